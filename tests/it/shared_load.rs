//! Readers and writers in any order, each checking at the moment of its grant that nobody is there
//! who must not be.

use crate::asking::{LONG, arrival, token};
use harness::random::Random;
use harness::{Connection, Kind, Server, cmd, on_each_server};
use std::sync::Mutex;
use std::time::Duration;

const CLIENTS: u64 = 8;
const SOON: Duration = Duration::from_secs(20);
const ROUNDS: usize = 150;

/// Who is inside, as the clients know it: between a grant's reply and the release.
#[derive(Default)]
struct Inside {
    readers: usize,
    writers: usize,
    /// The largest token that a reader and a writer had.
    tokens: [i64; 2],
}

impl Inside {
    fn enter(&mut self, shared: bool, token: i64) {
        assert_eq!(self.writers, 0, "a writer is inside");
        assert!(shared || self.readers == 0, "{} readers are inside", self.readers);
        // A reader may come in late in its period; nobody comes in behind the other kind.
        assert!(token > self.tokens[usize::from(shared)], "the token did not grow");
        let own = &mut self.tokens[usize::from(!shared)];
        *own = token.max(*own);
        if shared { self.readers += 1 } else { self.writers += 1 }
    }

    fn leave(&mut self, shared: bool) {
        if shared { self.readers -= 1 } else { self.writers -= 1 }
    }
}

fn one_round(
    connection: &mut Connection,
    owner: &str,
    random: &mut Random,
    inside: &Mutex<Inside>,
) {
    let shared = random.below(3) > 0;
    let mut command = cmd!["LOCK.WAIT", "k", owner, LONG, 0];
    let mut release = cmd!["LOCK.RELEASE", "k", owner];
    if shared {
        command.push(b"SHARED".to_vec());
        release.push(b"SHARED".to_vec());
    }
    connection.send(command);
    let token = token(&arrival(connection));
    inside.lock().unwrap().enter(shared, token);
    if random.below(2) == 0 {
        // Others get their turn.
        connection.run("PING");
    }
    inside.lock().unwrap().leave(shared);
    if !shared && random.below(4) == 0 {
        // Goes on as a reader.
        connection.call(cmd!["LOCK.ACQUIRE", "k", owner, LONG, "SHARED"]);
        assert_eq!(connection.call(release).integer(), 0);
        let again = connection.call(cmd!["LOCK.ACQUIRE", "k", owner, LONG, "SHARED", "HOLDS", 1]);
        assert!(again[0].integer() > token);
        inside.lock().unwrap().enter(true, again[0].integer());
        connection.run("PING");
        inside.lock().unwrap().leave(true);
        release = cmd!["LOCK.RELEASE", "k", owner, "SHARED"];
    }
    assert_eq!(connection.call(release).integer(), 0);
}

fn no_writer_ever_meets_anybody(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let inside = Mutex::new(Inside::default());
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (server, inside) = (&server, &inside);
            scope.spawn(move || {
                let mut random = Random::new(client);
                let mut connection = server.connect();
                for _ in 0..ROUNDS {
                    one_round(&mut connection, &format!("owner-{client}"), &mut random, inside);
                }
            });
        }
    });
    let mut eye = server.connect();
    assert_eq!(eye.run("EXISTS k").integer(), 0);
    assert!(harness::observe::info_number(&mut eye, "kvlock_granted_shared") > 0);
    assert!(harness::observe::info_number(&mut eye, "kvlock_downgraded") > 0);
    assert_eq!(harness::observe::info_number(&mut eye, "kvlock_caught_panics"), 0);
}

const READERS: i64 = 1_000;

/// How many are let in, at most, between two commands of somebody else: a few turns' worth, since
/// his commands may not have arrived in every turn.
const STEP: i64 = 256;

fn a_crowd_of_readers_is_let_in_a_few_at_a_time(kind: Kind) {
    let server = Server::options().kind(&kind).start();
    let mut eye = server.connect();
    eye.run("LOCK.ACQUIRE k writer 600000");
    let mut readers: Vec<_> = (0..READERS).map(|_| server.connect()).collect();
    for (number, reader) in readers.iter_mut().enumerate() {
        reader.send(cmd!["LOCK.WAIT", "k", format!("reader-{number}"), LONG, 0, "SHARED"]);
    }
    harness::observe::wait_for_waiters(&mut eye, "k", READERS);

    // More than the server reads in one turn, so that it looks every turn.
    let looks = 30_000;
    let mut observer = server.connect();
    observer.send_raw("LOCK.INFO k\r\n".repeat(looks).as_bytes());
    eye.send(cmd!["LOCK.RELEASE", "k", "writer"]);
    let mut seen = 0;
    for _ in 0..looks {
        let info = observer.receive(SOON).expect("an answer");
        let mode = info.field("mode");
        let shared = !mode.is_nil() && mode.text() == "shared";
        let inside = if shared { info.field("holders").integer() } else { 0 };
        assert!(inside - seen <= STEP, "{} were let in in one go", inside - seen);
        seen = inside;
    }
    assert_eq!(eye.receive(SOON).expect("released").integer(), 0);
    for reader in &mut readers {
        assert!(!reader.receive(SOON).expect("granted").is_error());
    }
    assert_eq!(eye.run("LOCK.INFO k").field("holders").integer(), READERS);
}

on_each_server!(no_writer_ever_meets_anybody, a_crowd_of_readers_is_let_in_a_few_at_a_time);
