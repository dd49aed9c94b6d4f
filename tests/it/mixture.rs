//! A thousand operations of all kinds, from many clients, with hand-offs, short leases and foreign
//! changes in between: afterwards everyone who was told of the effects has the same data.

use crate::stage::{SOON, Stage, expect_same_data, expect_unharmed};
use crate::trail::commands;
use harness::{Connection, Kind, Value, observe, on_each_server, wait};

const OPERATIONS: u64 = 1000;
const KEYS: u64 = 4;

/// The same numbers in every run.
struct Numbers(u64);

impl Numbers {
    /// One from 0 to `below` - 1.
    fn below(&mut self, below: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// A line for one of ten owners.
fn operation(numbers: &mut Numbers) -> String {
    let (key, owner) = (numbers.below(KEYS), numbers.below(10));
    let (lease, timeout) = (5 + numbers.below(60), 1 + numbers.below(100));
    match numbers.below(20) {
        0..=3 => format!("LOCK.ACQUIRE k{key} o{owner} {lease}"),
        4..=9 => format!("LOCK.WAIT k{key} o{owner} {lease} {timeout}"),
        10..=12 => format!("LOCK.RELEASE k{key} o{owner}"),
        13 => format!("LOCK.RELEASE k{key} o{owner} ALL"),
        14 => format!("LOCK.RENEW k{key} o{owner} {lease}"),
        15 => format!("LOCK.FORCERELEASE k{key}"),
        16 => format!("LOCK.CANCEL k{key} o{owner}"),
        17 => {
            ["DEL", "UNLINK", "PERSIST", "TYPE"][lease as usize % 4].to_owned()
                + &format!(" k{key}")
        }
        18 => format!("PEXPIRE k{key} {lease}"),
        _ => format!("RENAME k{key} k{}", numbers.below(KEYS)),
    }
}

fn after_a_thousand_operations_replica_and_file_say_the_same(kind: Kind) {
    let stage = Stage::with_files(&kind);
    let mut eye = stage.server.connect();
    let mut numbers = Numbers(u64::from(stage.server.kind().is_redis_7_0()) + 7);
    let mut idle: Vec<Connection> = (0..20).map(|_| stage.server.connect()).collect();
    let mut busy: Vec<Connection> = Vec::new();
    for _ in 0..OPERATIONS {
        let mut client = idle.pop().unwrap_or_else(|| stage.server.connect());
        client.send_raw(format!("{}\r\n", operation(&mut numbers)).as_bytes());
        busy.push(client);
        // Who has an answer is free again; a reply of whatever kind is right here.
        let mut waiting = Vec::new();
        for mut client in busy {
            if client.has_unread() { idle.push(receive(client)) } else { waiting.push(client) }
        }
        busy = waiting;
        if busy.len() > 10 {
            idle.push(receive(busy.remove(0)));
        }
    }
    busy.into_iter().map(receive).for_each(drop);
    drop(idle);
    observe::wait_for_blocked_clients(&mut eye, 0);
    let handed_off = observe::info_number(&mut eye, "kvlock_handed_off");
    assert!(handed_off > 20, "{handed_off} hand-offs are too few for this test");
    assert!(observe::info_number(&mut eye, "kvlock_handed_off_by_expiry") > 0);
    assert_eq!(observe::info_number(&mut eye, "kvlock_caught_panics"), 0);
    expect_same_data(&stage.server, &stage.replica);
    let foreign = |words: &&Vec<String>| words[0].to_uppercase().starts_with("LOCK.");
    assert_eq!(commands(&stage.server).iter().find(foreign), None);

    // The file alone gives the same data as well.
    let digest = |eye: &mut Connection| eye.run("DEBUG DIGEST");
    wait::until("all leases have ended", 2 * SOON, || {
        let keys = eye.run("KEYS *").elements().to_vec();
        let end = |key: &Value| eye.run(&format!("PTTL {}", key.text())).integer();
        let stay = keys.iter().map(end).all(|left| left == -1);
        // The digest also sees keys that have expired and are not deleted yet.
        let all = i64::try_from(keys.len()) == Ok(eye.run("DBSIZE").integer());
        if stay && all { Ok(()) } else { Err(format!("{keys:?}")) }
    });
    let before = digest(&mut eye);
    assert_eq!(eye.run("DEBUG LOADAOF"), Value::Status("OK".into()));
    assert_eq!(digest(&mut eye), before);
    expect_unharmed(&stage.server);
    expect_unharmed(&stage.replica);
}

fn receive(mut client: Connection) -> Connection {
    client.receive(SOON).expect("every operation is answered");
    client
}

on_each_server!(after_a_thousand_operations_replica_and_file_say_the_same);
