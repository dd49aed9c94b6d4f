//! `info`, `list`, `release`, `completions` and `man`.

use super::{SOON, Stage};
use harness::{cmd, observe, wait};
use serde_json::{Value as Json, json};

fn json_of(stage: &Stage, arguments: &[&str]) -> Json {
    let done = stage.start(arguments).done();
    done.assert_code(0);
    serde_json::from_str(&done.out).unwrap_or_else(|e| panic!("{e}: {done:?}"))
}

#[test]
fn a_free_lock() {
    let stage = Stage::set();
    let done = stage.start(&["info", "k"]).done();
    done.assert_code(0);
    assert_eq!(done.out, "key      k\nstate    free\nwaiters  0\n");
    let expected = json!({
        "key": "k", "state": "free", "shared": false, "holders": 0, "owner": null, "holds": 0, "token": null,
        "lease_left_ms": null, "value": null, "waiters": 0, "queue": [],
    });
    assert_eq!(json_of(&stage, &["info", "--json", "k"]), expected);
}

#[test]
fn the_value_of_a_leader() {
    let mut stage = Stage::set();
    stage.control.run("LOCK.ACQUIRE k ann 600000 VALUE 10.0.0.7:80");
    let done = stage.start(&["info", "k"]).done();
    assert!(done.out.contains("\nvalue    10.0.0.7:80\n"), "{done:?}");
    assert_eq!(json_of(&stage, &["info", "--json", "k"])["value"], json!("10.0.0.7:80"));
}

#[test]
fn a_held_lock_with_a_waiter() {
    let mut stage = Stage::set();
    stage.take_lock();
    let token = stage.control.run("LOCK.INFO k").field("token").integer();
    let _next = stage.next_in_line();
    let done = stage.start(&["info", "k"]).done();
    done.assert_code(0);
    let lines: Vec<&str> = done.out.lines().collect();
    assert_eq!(lines[..4], ["key      k", "state    held", "owner    another", "holds    1"]);
    assert_eq!(lines[4], format!("token    {token}"));
    assert!(lines[5].starts_with("lease    9m ") && lines[5].ends_with(" left"), "{done:?}");
    assert_eq!(lines[6], "waiters  1");
    assert!(lines[7].starts_with("         next for "), "{done:?}");

    let info = json_of(&stage, &["info", "--json", "k"]);
    assert_eq!((&info["owner"], &info["token"]), (&json!("another"), &json!(token)));
    assert!(info["lease_left_ms"].as_u64().unwrap() > 500_000);
    assert_eq!(info["queue"][0]["owner"], "next");
    assert!(info["queue"][0]["waited_ms"].is_u64() && info["queue"][0]["client_id"].is_u64());

    // The second waiter is `kvlock run`, which waits through a session.
    let _last = stage.start(&["run", "k", "true"]);
    observe::wait_for_waiters(&mut stage.control, "k", 2);
    let done = stage.start(&["info", "k"]).done();
    assert!(done.out.lines().last().unwrap().contains(", session "), "{done:?}");
    let info = json_of(&stage, &["info", "--json", "k"]);
    assert!(info["queue"][1]["client_id"].is_null() && info["queue"][1]["session"].is_string());
}

#[test]
fn a_shared_lock() {
    let mut stage = Stage::set();
    let token = stage.control.run("LOCK.ACQUIRE k one 600000 SHARED")[0].integer();
    stage.control.run("LOCK.ACQUIRE k two 600000 SHARED");
    let done = stage.start(&["info", "k"]).done();
    let expected =
        format!("key      k\nstate    shared\nholders  2\ntoken    {token}\nlease    9m ");
    assert!(done.out.starts_with(&expected), "{done:?}");
    let info = json_of(&stage, &["info", "--json", "k"]);
    assert_eq!((&info["shared"], &info["holders"]), (&json!(true), &json!(2)));
}

#[test]
fn a_lock_without_a_token_and_a_lease() {
    let mut stage = Stage::set();
    // As Redisson writes it, but without a TTL.
    stage.control.run("HSET k 7d0e2e39:1 2");
    let done = stage.start(&["info", "k"]).done();
    assert!(done.out.contains("holds    2\ntoken    none\nlease    without end\n"), "{done:?}");
}

#[test]
fn the_locks_that_have_waiters() {
    let mut stage = Stage::set();
    let done = stage.start(&["list"]).done();
    assert_eq!((done.code(), done.out.as_str()), (0, ""));
    assert_eq!(done.err, "kvlock: no lock has waiters\n");
    assert_eq!(json_of(&stage, &["list", "--json"]), json!([]));

    stage.take_lock();
    let _next = stage.next_in_line();
    let done = stage.start(&["list"]).done();
    done.assert_code(0);
    let lines: Vec<Vec<&str>> =
        done.out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["WAITERS", "LONGEST", "WAIT", "KEY", "OWNER"]);
    assert_eq!((lines[1][0], lines[1][2], lines[1][3]), ("1", "k", "another"));
    let list = json_of(&stage, &["list", "--json", "--count", "5"]);
    assert_eq!((&list[0]["key"], &list[0]["waiters"]), (&json!("k"), &json!(1)));
    assert!(list[0]["longest_wait_ms"].is_u64());
}

#[test]
fn a_lock_whose_waiters_are_all_away_has_no_longest_wait() {
    let mut stage = Stage::set();
    stage.take_lock();
    let session = stage.control.run("SESSION.OPEN 60000")[0].text();
    stage.control.call(cmd!["LOCK.WAIT", "k", "next", 60_000, 0, "SESSION", session]);
    let mut reader = stage.server.connect();
    reader.call(cmd!["SESSION.NEXT", session, 0, 1]);
    drop(reader);
    wait::until_is("no longest wait", SOON, true, || {
        json_of(&stage, &["list", "--json"])[0]["longest_wait_ms"].is_null()
    });
    let done = stage.start(&["list"]).done();
    assert_eq!(done.out.lines().nth(1).unwrap().split_whitespace().nth(1), Some("-"), "{done:?}");
}

#[test]
fn the_locks_that_a_waiter_for_several_waits_for() {
    let mut stage = Stage::set();
    stage.take_lock();
    let mut next = stage.server.connect();
    next.send(cmd!["LOCK.WAIT", "free", "next", 600_000, 0, "WITH", 1, "k"]);
    observe::wait_for_waiters(&mut stage.control, "free", 1);
    let list = stage.start(&["list"]).done();
    assert!(
        list.out.contains("-  (first waits for k)") || list.out.contains("- (first waits for k)")
    );
    let list = json_of(&stage, &["list", "--json"]);
    let free = list.as_array().unwrap().iter().find(|lock| lock["key"] == "free").unwrap();
    assert_eq!(free["first_waits_for"], "k");
    let done = stage.start(&["info", "free", "--waiters", "5"]).done();
    assert!(done.out.contains(", waits for k"), "{done:?}");
}

#[test]
fn a_lock_is_released_only_by_force() {
    let mut stage = Stage::set();
    stage.take_lock();
    let done = stage.start(&["release", "k"]).done();
    done.assert_code(2);
    assert!(done.err.contains("--force"), "{done:?}");
    assert!(!stage.is_free());
    for expected in ["k released\n", "k was free\n"] {
        let done = stage.start(&["release", "--force", "k"]).done();
        assert_eq!((done.code(), done.out.as_str()), (0, expected));
        assert!(stage.is_free());
    }
}

#[test]
fn completions_for_each_shell() {
    let stage = Stage::set();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let done = stage.start(&["completions", shell]).done();
        done.assert_code(0);
        assert!(done.out.contains("conflict-exit-code"), "{shell}: {done:?}");
    }
}

#[test]
fn a_page_of_the_manual_for_each_subcommand() {
    let stage = Stage::set();
    for (arguments, title) in [
        (&["man"][..], ".TH kvlock 1"),
        (&["man", "run"], ".TH kvlock-run 1"),
        (&["man", "info"], ".TH kvlock-info 1"),
        (&["man", "list"], ".TH kvlock-list 1"),
        (&["man", "release"], ".TH kvlock-release 1"),
    ] {
        let done = stage.start(arguments).done();
        done.assert_code(0);
        assert!(done.out.contains(title), "{done:?}");
    }
}

#[test]
fn the_help_names_every_exit_code() {
    let stage = Stage::set();
    for arguments in [&["--help"][..], &["run", "--help"]] {
        let done = stage.start(arguments).done();
        done.assert_code(0);
        for code in ["  2 ", "  123 ", "  124 ", "  125 ", "  126 ", "  127 ", "128 + n"] {
            assert!(done.out.contains(code), "{code}: {}", done.out);
        }
        assert!(done.out.contains("Examples:"));
    }
}

#[test]
fn control_characters_in_names_are_escaped() {
    let stage = Stage::set();
    let name = "a\u{7f}\u{9b}\u{202e}b";
    let done = stage.start(&["info", name]).done();
    assert!(done.out.starts_with("key      a\\u{7f}\\u{9b}\\u{202e}b\n"), "{done:?}");
    let done = stage.start(&["info", "--json", name]).done();
    assert!(done.out.contains(r#""key":"a\u007f\u009b\u202eb""#), "{done:?}");
    assert_eq!(json_of(&stage, &["info", "--json", name])["key"], json!(name));
}
