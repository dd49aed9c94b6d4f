//! Who still lives among the thousands who hold a key together: the search for them ends and costs little. That
//! it does not go by what was true of another key is in `transcripts/searches.txt`.

use crate::stage::{LONG, SOON, Stage, expect_same_data};
use harness::{Kind, Value, cmd, observe, on_each_server, wait};

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

on_each_server!(
    the_dead_of_a_large_semaphore_are_found_while_a_small_one_is_busy,
    large_semaphores_in_which_nobody_dies_are_searched_once,
);
