//! Readers and writers in any order, each checking at the moment of its grant that nobody is there
//! who must not be.

use crate::asking::{LONG, arrival, token};
use harness::random::Random;
use harness::{Connection, Kind, Server, cmd, on_each_server};
use std::sync::Mutex;

const CLIENTS: u64 = 8;
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

on_each_server!(no_writer_ever_meets_anybody);
