//! A panic while the module is loaded or unloaded. All other entries are in `transcripts/panics.txt`.

use crate::asking::{acquire, arrival, release, token, wait_in_line};
use harness::observe::{info_number, wait_for_next_cron};
use harness::{Kind, Server, Value, cmd, module_file, on_each_server};

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

on_each_server!(
    a_panic_at_unloading_still_lets_the_module_be_loaded_again,
    a_panic_while_loading_refuses_the_module,
);
