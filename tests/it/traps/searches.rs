//! Who still lives among the thousands who hold a key together: the search for them ends, costs
//! little, and does not go by what was true of another key.

use super::stage::{LONG, Stage};
use harness::{Kind, Value, cmd};

/// When a lease ends that does not end while a test runs, as a hash says it.
fn far(stage: &mut Stage) -> i64 {
    now(stage) + 3_600_000
}

fn now(stage: &mut Stage) -> i64 {
    stage.run("TIME")[0].text().parse::<i64>().unwrap() * 1000
}

/// Puts so many holders with one permit or share each into a hash, whose leases end then.
fn put_holders(stage: &mut Stage, key: &str, name: &str, count: usize, until: i64) {
    for from in (0..count).step_by(1000) {
        let mut command = cmd!["HSET", key];
        for holder in from..count.min(from + 1000) {
            command.extend(cmd![format!("{name}{holder}"), format!("1 {until}")]);
        }
        assert!(!stage.eye.call(command).is_error());
    }
}

/// The key is a lock whose fields have a TTL of their own that is over. They are counted until the
/// server has removed them, and no search shows them.
fn a_lock_whose_fields_are_over_is_free(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.run("DEBUG SET-ACTIVE-EXPIRE 0");
    let (far, command) = (far(&mut stage), cmd!["HPEXPIRE", "k", 1, "FIELDS", 200]);
    for waits in [false, true] {
        stage.run("HSET k lock-mode shared fencing-token 5");
        put_holders(&mut stage, "k", "over", 200, far);
        assert_eq!(stage.run("LOCK.ACQUIRE k writer 1000"), Value::Nil);
        let mut writer = waits.then(|| stage.wait("k", "writer"));
        let fields = (0..200).flat_map(|n| cmd![format!("over{n}")]);
        stage.eye.call(command.iter().cloned().chain(fields).collect::<Vec<_>>());
        let end = now(&mut stage) + 1100;
        stage.wait_past(end);
        match &mut writer {
            Some(writer) => {
                // Nobody tells when a field is over; this is told.
                stage.run("PEXPIRE k 600000");
                stage.granted(writer);
            }
            None => drop(stage.hold("k", "writer", LONG)),
        }
        stage.release("k", "writer");
    }
    stage.check();
}

/// The server that keeps fields whose time is over for a while.
#[test]
fn a_lock_whose_fields_are_over_is_free_redis_8() {
    a_lock_whose_fields_are_over_is_free(Kind::named("redis-8"));
}
