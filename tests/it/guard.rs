//! A panic in the module harms nobody but the call in which it happens. A build for this test is
//! told to panic at its next entry of a kind; after that the server answers, the caller hears of
//! it, and who waits for another lock gets it.

use crate::asking::{LONG, acquire, arrival, error, release, token, wait_in_line};
use harness::observe::{PATIENCE, info_number, wait_for_next_cron};
use harness::{Connection, Kind, Server, Value, cmd, module_file, on_each_server, wait};

const INTERNAL: &str = "ERR internal error, see the server's log";

/// A server on which somebody waits for `other` while the panic happens.
struct Stage {
    server: Server,
    control: Connection,
    bystander: Connection,
}

impl Stage {
    fn new(kind: &Kind) -> Self {
        let server = Server::options().kind(kind).planted().start();
        let (mut control, mut bystander) = (server.connect(), server.connect());
        acquire(&mut control, "other", "holder");
        wait_in_line(&mut bystander, &mut control, "other", "bystander");
        Self { server, control, bystander }
    }

    /// Someone in line for `k`, which `holder` has.
    fn waiter(&mut self, owner: &str) -> Connection {
        let mut waiter = self.server.connect();
        wait_in_line(&mut waiter, &mut self.control, "k", owner);
        waiter
    }

    fn panic_at(&mut self, entry: &str) {
        assert_eq!(self.control.call(cmd!["LOCK.PANIC", entry]), Value::Integer(1));
    }

    /// The panic was caught, and everything but what it hit goes on.
    fn finish(mut self) {
        wait::until("the panic was caught", PATIENCE, || {
            match info_number(&mut self.control, "kvlock_caught_panics") {
                1 => Ok(()),
                other => Err(other.to_string()),
            }
        });
        assert!(self.server.log().contains("caught a panic"), "{}", self.server.log());
        assert_eq!(self.control.run("PING"), Value::Status("PONG".into()));
        assert_eq!(release(&mut self.control, "other", "holder"), Value::Integer(0));
        token(&arrival(&mut self.bystander));
        assert_eq!(release(&mut self.bystander, "other", "bystander"), Value::Integer(0));
        assert_eq!(info_number(&mut self.control, "kvlock_caught_panics"), 1);
        self.server.assert_alive();
    }
}

fn a_panic_in_a_command_is_an_error_to_its_caller(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.panic_at("command");
    assert_eq!(error(&acquire(&mut stage.control, "k", "alice")), INTERNAL);
    token(&acquire(&mut stage.control, "k", "alice"));
    stage.finish();
}

fn a_panic_while_a_grant_is_written_passes_the_lock_on(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let first = token(&acquire(&mut stage.control, "k", "holder"));
    let (mut bob, mut carol) = (stage.waiter("bob"), stage.waiter("carol"));
    stage.panic_at("write-answer");
    assert_eq!(release(&mut stage.control, "k", "holder"), Value::Integer(0));
    assert_eq!(error(&arrival(&mut bob)), INTERNAL);
    assert!(token(&arrival(&mut carol)) > first + 1, "bob's grant had a token, too");
    assert_eq!(info_number(&mut stage.control, "kvlock_grants_taken_back"), 1);
    assert_eq!(release(&mut bob, "k", "bob"), Value::Nil);
    assert_eq!(release(&mut carol, "k", "carol"), Value::Integer(0));
    stage.finish();
}

fn a_panic_while_a_refusal_is_written_takes_nothing_back(kind: Kind) {
    let mut stage = Stage::new(&kind);
    acquire(&mut stage.control, "k", "holder");
    let mut bob = stage.waiter("bob");
    stage.panic_at("write-answer");
    assert_eq!(stage.control.run("LOCK.CANCEL k bob"), Value::Integer(1));
    assert_eq!(error(&arrival(&mut bob)), INTERNAL);
    assert_eq!(release(&mut stage.control, "k", "holder"), Value::Integer(0));
    assert_eq!(info_number(&mut stage.control, "kvlock_grants_taken_back"), 0);
    stage.finish();
}

fn a_panic_after_an_answer_was_written_changes_nothing(kind: Kind) {
    let mut stage = Stage::new(&kind);
    acquire(&mut stage.control, "k", "holder");
    let mut bob = stage.waiter("bob");
    stage.panic_at("answer-done");
    assert_eq!(release(&mut stage.control, "k", "holder"), Value::Integer(0));
    token(&arrival(&mut bob));
    assert_eq!(release(&mut bob, "k", "bob"), Value::Integer(0));
    stage.finish();
}

fn a_panic_when_a_waiter_leaves_keeps_the_lock_from_nobody(kind: Kind) {
    let mut stage = Stage::new(&kind);
    acquire(&mut stage.control, "k", "holder");
    let (mut bob, mut carol) = (stage.waiter("bob"), stage.waiter("carol"));
    let id = bob_id(&mut stage.control);
    stage.panic_at("client-gone");
    assert_eq!(stage.control.call(cmd!["CLIENT", "KILL", "ID", id]), Value::Integer(1));
    let closed = || bob.is_closed().then_some(()).ok_or_else(String::new);
    wait::until("bob's connection is closed", PATIENCE, closed);
    assert_eq!(release(&mut stage.control, "k", "holder"), Value::Integer(0));
    token(&arrival(&mut carol));
    assert_eq!(release(&mut carol, "k", "carol"), Value::Integer(0));
    stage.finish();
}

fn bob_id(control: &mut Connection) -> i64 {
    let info = control.run("LOCK.INFO k WAITERS 1");
    let bob = &info.field("queue")[0];
    assert_eq!(bob[0].text(), "bob");
    bob[2].integer()
}

fn a_panic_in_a_timer_only_delays(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.control.call(cmd!["LOCK.ACQUIRE", "k", "holder", 200]);
    let mut bob = stage.waiter("bob");
    stage.panic_at("timer");
    token(&arrival(&mut bob));
    let mut carol = stage.server.connect();
    assert_eq!(carol.call(cmd!["LOCK.WAIT", "k", "carol", LONG, 50]), Value::Nil);
    stage.finish();
}

fn a_panic_in_a_key_event_is_caught(kind: Kind) {
    let mut stage = Stage::new(&kind);
    acquire(&mut stage.control, "k", "holder");
    let mut bob = stage.waiter("bob");
    stage.panic_at("key-event");
    assert_eq!(stage.control.run("DEL k"), Value::Integer(1));
    // Nobody heard of the deletion, but whoever asks next learns that bob is before him.
    assert_eq!(acquire(&mut stage.control, "k", "carol"), Value::Nil);
    token(&arrival(&mut bob));
    stage.finish();
}

fn a_panic_in_a_server_event_is_caught(kind: Kind) {
    let mut stage = Stage::new(&kind);
    // The next regular round of the server is one.
    stage.panic_at("server-event");
    stage.finish();
}

fn a_panic_while_an_option_is_read_is_caught(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.panic_at("read-config");
    stage.control.run("CONFIG GET kvlock.max-waiters");
    let right = stage.control.run("CONFIG GET kvlock.max-waiters");
    assert_eq!(right[1].text(), "1000000");
    stage.finish();
}

fn a_panic_while_an_option_is_set_is_an_error_to_the_caller(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.panic_at("write-config");
    let refused = error(&stage.control.run("CONFIG SET kvlock.max-waiters 5"));
    assert!(refused.contains("internal error"), "{refused}");
    assert_eq!(stage.control.run("CONFIG GET kvlock.max-waiters")[1].text(), "1000000");
    stage.finish();
}

fn a_panic_while_info_is_written_leaves_the_rest_of_it(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.panic_at("info");
    let info = stage.control.run("INFO everything").text();
    assert!(info.contains("redis_version") && !info.contains("kvlock_granted"), "{info}");
    stage.finish();
}

fn a_panic_while_a_lock_is_read_grants_nothing(kind: Kind) {
    let mut stage = Stage::new(&kind);
    // Without a token nobody can say what it is before having seen all fields.
    stage.control.run("HSET k holder 1");
    stage.panic_at("scan");
    assert_eq!(error(&acquire(&mut stage.control, "k", "alice")), INTERNAL);
    assert_eq!(acquire(&mut stage.control, "k", "alice"), Value::Nil);
    assert_eq!(release(&mut stage.control, "k", "holder"), Value::Integer(0));
    stage.finish();
}

fn a_panic_at_unloading_still_lets_the_module_be_loaded_again(kind: Kind) {
    let server = Server::options().kind(&kind).planted().start();
    let (mut control, mut bob) = (server.connect(), server.connect());
    acquire(&mut control, "k", "holder");
    control.run("LOCK.PANIC unload");
    assert_eq!(control.run("MODULE UNLOAD kvlock"), Value::Status("OK".into()));
    assert!(server.log().contains("caught a panic"), "{}", server.log());
    let path = module_file::planted_path().display().to_string();
    assert_eq!(control.call(cmd!["MODULE", "LOAD", path]), Value::Status("OK".into()));
    wait_in_line(&mut bob, &mut control, "k", "bob");
    assert_eq!(release(&mut control, "k", "holder"), Value::Integer(0));
    token(&arrival(&mut bob));
    server.assert_alive();
}

/// At the beginning, and at the end of it, when the server knows most of the module.
fn a_panic_while_loading_refuses_the_module(kind: Kind) {
    let server = Server::options().kind(&kind).without_module().start();
    let (mut control, mut bob) = (server.connect(), server.connect());
    let path = module_file::planted_path().display().to_string();
    for (times, at) in (1..).zip(["load", "loaded", "load"]) {
        let refused = control.call(cmd!["MODULE", "LOAD", path, "provoke", at]);
        assert!(refused.is_error(), "{at}: {refused}");
        let log = server.log();
        assert_eq!(log.matches("not loaded: a panic while loading").count(), times, "{log}");
        // Nothing of it is left, and nothing that happens now calls what is gone.
        assert!(!control.run("MODULE LIST").to_string().contains("kvlock"));
        assert_eq!(control.run("CONFIG GET kvlock.*"), Value::Array(vec![]));
        assert!(acquire(&mut control, "k", "holder").is_error());
        for line in ["HSET h f 1", "PEXPIRE h 600000", "DEL h", "SWAPDB 0 1", "FLUSHALL"] {
            assert!(!control.run(line).is_error(), "{at}: {line}");
        }
        wait_for_next_cron(&mut control);
        assert!(!control.run("INFO everything").text().contains("kvlock_"));
    }
    assert_eq!(control.call(cmd!["MODULE", "LOAD", path]), Value::Status("OK".into()));
    acquire(&mut control, "k", "holder");
    wait_in_line(&mut bob, &mut control, "k", "bob");
    assert_eq!(release(&mut control, "k", "holder"), Value::Integer(0));
    token(&arrival(&mut bob));
    server.assert_alive();
}

#[test]
fn only_the_build_for_tests_can_be_told_to_panic() {
    let server = Server::start();
    let mut control = server.connect();
    assert_eq!(control.run("LOCK.PANIC command").code(), "ERR");
    assert_eq!(control.run("MODULE UNLOAD kvlock"), Value::Status("OK".into()));
    let path = module_file::path().display().to_string();
    assert!(control.call(cmd!["MODULE", "LOAD", path, "provoke", "load"]).is_error());
    assert!(!server.log().contains("panic"), "{}", server.log());
    assert_eq!(control.call(cmd!["MODULE", "LOAD", path]), Value::Status("OK".into()));
    assert_eq!(info_number(&mut control, "kvlock_caught_panics"), 0);
}

/// Both are looked at in the same turn of the event loop; the first one cannot be.
fn a_panic_in_one_look_keeps_the_next_lock_from_nobody(kind: Kind) {
    let mut stage = Stage::new(&kind);
    acquire(&mut stage.control, "k", "holder");
    let _bob = stage.waiter("bob");
    let mut carol = stage.server.connect();
    acquire(&mut stage.control, "l", "holder");
    wait_in_line(&mut carol, &mut stage.control, "l", "carol");
    stage.panic_at("scan");
    stage.control.send_raw(b"MULTI\r\nPEXPIRE k 600000\r\nDEL l\r\nEXEC\r\n");
    for _ in 0..4 {
        assert!(!arrival(&mut stage.control).is_error());
    }
    token(&arrival(&mut carol));
    stage.finish();
}

on_each_server!(
    a_panic_in_one_look_keeps_the_next_lock_from_nobody,
    a_panic_in_a_command_is_an_error_to_its_caller,
    a_panic_while_a_grant_is_written_passes_the_lock_on,
    a_panic_while_a_refusal_is_written_takes_nothing_back,
    a_panic_after_an_answer_was_written_changes_nothing,
    a_panic_when_a_waiter_leaves_keeps_the_lock_from_nobody,
    a_panic_in_a_timer_only_delays,
    a_panic_in_a_key_event_is_caught,
    a_panic_in_a_server_event_is_caught,
    a_panic_while_an_option_is_read_is_caught,
    a_panic_while_an_option_is_set_is_an_error_to_the_caller,
    a_panic_while_info_is_written_leaves_the_rest_of_it,
    a_panic_while_a_lock_is_read_grants_nothing,
    a_panic_at_unloading_still_lets_the_module_be_loaded_again,
    a_panic_while_loading_refuses_the_module,
);
