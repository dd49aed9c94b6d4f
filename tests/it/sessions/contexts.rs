//! Where calls for sessions come from: transactions, scripts, other modules, clients that want no
//! replies; and arguments of every sort.

use super::{Party, told, words};
use crate::server::modules::stage_with_a_caller;
use crate::stage::{LONG, Stage};
use harness::{Kind, Value, cmd, observe, on_each_server};

fn in_a_transaction_and_in_a_script_nothing_blocks(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let party = Party::open(&stage, 60_000);
    stage.hold("k", "alice", LONG);
    let id = party.id.clone();
    let mut other = stage.server.connect_resp(3);
    other.run("MULTI");
    other.run(&format!("LOCK.WAIT k bob 600000 0 SESSION {id}"));
    other.run(&format!("SESSION.NEXT {id} 0 60000"));
    other.run("LOCK.RELEASE k alice");
    other.run(&format!("SESSION.NEXT {id} 0 60000"));
    let replies = other.run("EXEC");
    assert_eq!(replies[0][0], Value::bulk("queued"));
    assert_eq!(told(&replies[1]), []);
    assert_eq!(words(&told(&replies[3])), [("bob", "granted")]);
    let script = "return {redis.call('LOCK.WAIT', KEYS[1], 'carol', 600000, 0, 'SESSION', ARGV[1]), \
                  redis.call('LOCK.RELEASE', KEYS[1], 'bob'), \
                  redis.call('SESSION.NEXT', ARGV[1], 1, 60000)}";
    let replies = other.call(cmd!["EVAL", script, 1, "k", id]);
    assert_eq!(replies[0][0], Value::bulk("queued"));
    assert_eq!(words(&told(&replies[2])), [("carol", "granted")]);
    let opened = other.call(cmd!["EVAL", "return redis.call('SESSION.OPEN', 1000)", 0]);
    assert_eq!(opened[0].text().len(), 32);
    stage.granted_unseen();
    stage.granted_unseen();
    stage.check();
}

fn another_module_has_no_user_and_harms_nobody(kind: Kind) {
    let mut stage = stage_with_a_caller(&kind);
    let party = Party::open(&stage, 60_000);
    stage.hold("k", "alice", LONG);
    for flags in ["", "!", "E", "S", "C", "!ESC"] {
        // Only "C" is to act as the caller's user.
        let as_user = flags.contains('C');
        let opened = stage.eye.call(cmd!["CALL.NOW", flags, "SESSION.OPEN", 1000]);
        assert_eq!(opened.is_error(), !as_user, "{flags}: {opened}");
        let next = stage.eye.call(cmd!["CALL.NOW", flags, "SESSION.NEXT", party.id, 0, 60_000]);
        assert_eq!(next.is_error(), !as_user, "{flags}: {next}");
        let owner = format!("bob{flags}");
        let wait = cmd!["CALL.NOW", flags, "LOCK.WAIT", "k", owner, LONG, 0, "SESSION", party.id];
        let wait = stage.eye.call(wait);
        assert_eq!(wait.is_error(), !as_user, "{flags}: {wait}");
    }
    stage.run(&format!("CALL.TIMER ! SESSION.NEXT {} 0 60000", party.id));
    stage.run("CALL.TIMER ! SESSION.OPEN 1000");
    observe::wait_for_next_cron(&mut stage.eye);
    stage.check();
}

on_each_server!(
    in_a_transaction_and_in_a_script_nothing_blocks,
    another_module_has_no_user_and_harms_nobody,
);
