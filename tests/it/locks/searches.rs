//! Who still lives among the thousands who hold a key together: the search for them ends, costs
//! little, and does not go by what was true of another key.

use crate::stage::{LONG, SOON, Stage, expect_same_data};
use harness::{Connection, Kind, Value, cmd, observe, on_each_server, wait};

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

fn the_dead_of_a_large_semaphore_are_found_while_a_small_one_is_busy(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let (far, over) = (far(&mut stage), now(&mut stage) - 1000);
    stage.eye.call(cmd!["HSET", "large", "lock-mode", "semaphore 40200 40200"]);
    put_holders(&mut stage, "large", "alive", 40_000, far);
    put_holders(&mut stage, "large", "dead", 200, over);
    stage.run("SEM.SET small 1");
    let mut waiter = stage.blocked(cmd!["SEM.WAIT", "large", "waiter", 200, LONG, 0]);
    wait::until("the waiter is served", SOON, || {
        stage.run("SEM.ACQUIRE small one 1 1");
        stage.run("SEM.ACQUIRE small other 1 1");
        if waiter.has_unread() { Ok(()) } else { Err(stage.run("SEM.INFO large").to_string()) }
    });
    assert_eq!(waiter.receive(SOON).unwrap(), Value::Integer(200));
    expect_same_data(&stage.server, &stage.replica);
}

/// What puts the semaphore `other` in the place of `k`, or changes `k` to what that is.
const REPLACEMENTS: [&str; 4] =
    ["RENAME other k", "COPY other k REPLACE", "SWAPDB 0 1", "HSET k alice \"1 1\""];

/// Makes it known of `k` that no lease ends soon, and puts one with a short lease in its place.
fn replace_what_is_known(stage: &mut Stage, db: u32, replacement: &str, wait: bool) -> Connection {
    stage.run("FLUSHALL");
    stage.select(db);
    stage.run("SEM.SET k 1");
    stage.run("SEM.ACQUIRE k alice 1 600000");
    let waiter = if wait {
        stage.blocked(cmd!["SEM.WAIT", "k", "waiter", 1, LONG, 0])
    } else {
        stage.server.connect()
    };
    assert_eq!(stage.run("SEM.ACQUIRE k bob 1 1000"), Value::Nil);
    let other = if replacement.starts_with("SWAPDB") { "k" } else { "other" };
    stage.select(if other == "k" { 1 } else { 0 });
    stage.run(&format!("SEM.SET {other} 1"));
    stage.run(&format!("SEM.ACQUIRE {other} carol 1 300"));
    stage.select(db);
    assert!(!stage.run(replacement).is_error(), "{replacement}");
    waiter
}

fn what_was_known_of_a_semaphore_is_not_believed_of_another(kind: Kind) {
    let mut stage = Stage::new(&kind);
    for replacement in REPLACEMENTS {
        replace_what_is_known(&mut stage, 0, replacement, false);
        wait::until(replacement, SOON, || match stage.run("SEM.ACQUIRE k dave 1 600000") {
            Value::Integer(1) => Ok(()),
            other => Err(other.to_string()),
        });
    }
    expect_same_data(&stage.server, &stage.replica);
}

fn who_waits_for_a_semaphore_gets_what_another_in_its_place_has(kind: Kind) {
    let mut stage = Stage::new(&kind);
    for replacement in REPLACEMENTS {
        let mut waiter = replace_what_is_known(&mut stage, 0, replacement, true);
        let reply = waiter.receive(SOON).unwrap_or_else(|e| panic!("{replacement}: {e}"));
        assert_eq!(reply, Value::Integer(1), "{replacement}");
    }
    expect_same_data(&stage.server, &stage.replica);
}

fn what_was_known_before_a_failover_is_not_believed_after_it(kind: Kind) {
    let mut stage = Stage::of_twins(&kind);
    stage.run("SEM.SET k 1");
    stage.run("SEM.ACQUIRE k alice 1 600000");
    assert_eq!(stage.run("SEM.ACQUIRE k bob 1 1000"), Value::Nil);
    expect_same_data(&stage.server, &stage.replica);
    let mut there = stage.replica.connect();
    there.run("REPLICAOF NO ONE");
    stage.eye.call(cmd!["REPLICAOF", "127.0.0.1", stage.replica.port()]);
    assert_eq!(there.run("SEM.RELEASE k alice"), Value::Integer(0));
    assert_eq!(there.run("SEM.ACQUIRE k carol 1 300"), Value::Integer(1));
    observe::wait_for_replica(&mut there, &mut stage.eye);
    expect_same_data(&stage.server, &stage.replica);
    stage.run("REPLICAOF NO ONE");
    wait::until_is("carol is dead", SOON, Value::Integer(1), || {
        stage.run("SEM.ACQUIRE k dave 1 600000")
    });
}

fn large_semaphores_in_which_nobody_dies_are_searched_once(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let far = far(&mut stage);
    let mut waiters = Vec::new();
    for n in 0..20 {
        let key = format!("large-{n}");
        stage.eye.call(cmd!["HSET", key, "lock-mode", "semaphore 1100 1100"]);
        put_holders(&mut stage, &key, "alive", 1_100, far);
        waiters.push(stage.blocked(cmd!["SEM.WAIT", key, "waiter", 1, LONG, 0]));
    }
    let mut before = 0;
    wait::until("nobody is looked for", SOON, || {
        (0..5).for_each(|_| observe::wait_for_next_cron(&mut stage.eye));
        let steps = stage.counted("search_steps");
        let went = steps - std::mem::replace(&mut before, steps);
        if steps > 0 && went == 0 { Ok(()) } else { Err(format!("{went} of {steps} steps")) }
    });
    assert!(before < 20 * 8_000, "{before} steps");
    // Each is found as soon as it dies.
    for (n, waiter) in waiters.iter_mut().enumerate() {
        stage.eye.call(cmd!["HSET", format!("large-{n}"), "alive77", "1 1"]);
        assert_eq!(waiter.receive(SOON).unwrap(), Value::Integer(1));
    }
    expect_same_data(&stage.server, &stage.replica);
}

fn a_holder_among_thousands_of_dead_is_not_overlooked_by_who_asks(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let (far, over) = (far(&mut stage), now(&mut stage) - 1000);
    stage.run("HSET k lock-mode shared fencing-token 5");
    stage.run("HSET s lock-mode \"semaphore 20001 20001\"");
    for key in ["k", "s"] {
        put_holders(&mut stage, key, "dead", 20_000, over);
        put_holders(&mut stage, key, "alive", 1, far);
    }
    let info = stage.run("LOCK.INFO k");
    assert_eq!(info.field("state"), &Value::bulk("held"));
    assert_eq!(info.field("mode"), &Value::bulk("shared"));
    for line in ["LOCK.INFO k HOLDERS 9", "SEM.INFO s HOLDERS 9"] {
        wait::until(line, SOON, || match stage.run(line).field("held-by").elements() {
            [] => Err("nobody".to_owned()),
            holders => {
                assert_eq!(holders[0][0], Value::bulk("alive0"), "{line}");
                Ok(())
            }
        });
    }
    assert_eq!(stage.run("LOCK.ACQUIRE k writer 1000"), Value::Nil);
}

on_each_server!(
    the_dead_of_a_large_semaphore_are_found_while_a_small_one_is_busy,
    what_was_known_of_a_semaphore_is_not_believed_of_another,
    who_waits_for_a_semaphore_gets_what_another_in_its_place_has,
    what_was_known_before_a_failover_is_not_believed_after_it,
    large_semaphores_in_which_nobody_dies_are_searched_once,
    a_holder_among_thousands_of_dead_is_not_overlooked_by_who_asks,
);
