//! Another module calls our commands: from a command of its own, from a timer, and in the way that
//! may block. A call is not a client: it gets an answer at once, and the server lives on.

use crate::stage::{LONG, SOON, Stage, expect_unharmed, token_of};
use harness::kind::workspace;
use harness::{Kind, Server, Value, cmd, observe, on_each_server, wait};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// The other module, compiled once.
static CALLER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let made = folder.join(format!("caller-{}.so", std::process::id()));
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]);
    compile.arg(&made).arg(workspace().join("tests/it/server/modules_caller.c"));
    let done = compile.status().unwrap_or_else(|e| panic!("{compile:?}: {e}"));
    assert!(done.success(), "{compile:?}: {done}");
    // Every run replaces the file of the one before.
    let module = folder.join("caller.so");
    std::fs::rename(made, &module).expect("put the module in its place");
    module
});

pub(crate) fn stage_with_a_caller(kind: &Kind) -> Stage {
    Stage::with(kind, |options| options.config("loadmodule", CALLER.display()))
}

fn a_wait_called_by_another_module_answers_as_a_try(kind: Kind) {
    let mut stage = stage_with_a_caller(&kind);
    stage.hold("k", "alice", LONG);
    // With replication, errors as replies, checks as for scripts, and the user's rights.
    for (number, flags) in ["", "!", "E", "S", "C", "!ESC"].into_iter().enumerate() {
        let mut call = |words: Vec<Vec<u8>>| {
            let mut command = cmd!["CALL.NOW", flags];
            command.extend(words);
            stage.eye.call(command)
        };
        for timeout in [0, 60_000] {
            assert_eq!(call(cmd!["LOCK.WAIT", "k", "bob", LONG, timeout]), Value::Nil, "{flags}");
        }
        let free = format!("free{number}");
        token_of(&call(cmd!["LOCK.WAIT", free, "bob", LONG, 0]));
        assert_eq!(call(cmd!["LOCK.WAIT", free, "carol", LONG, 0]), Value::Nil, "{flags}");
        assert_eq!(call(cmd!["LOCK.INFO", "k"]).field("waiters"), &Value::Integer(0));
        stage.granted_unseen();
        let token = stage.token(&free);
        stage.expect_holder(&free, "bob", 1, Some(token));
        if !flags.contains('!') {
            // The caller wants nobody to be told, as with any other command.
            stage.run(&format!("DEL {free}"));
        }
    }
    stage.check();
}

fn a_release_called_by_another_module_serves_the_waiter(kind: Kind) {
    let mut stage = stage_with_a_caller(&kind);
    for call in ["CALL.NOW ! LOCK.RELEASE k alice", "CALL.TIMER ! LOCK.RELEASE k alice"] {
        stage.hold("k", "alice", LONG);
        let mut bob = stage.wait("k", "bob");
        let mut carol = stage.wait("k", "carol");
        assert!(!stage.run(call).is_error(), "{call}");
        stage.granted(&mut bob);
        assert!(!stage.run("CALL.TIMER ! DEL k").is_error());
        stage.granted(&mut carol);
        assert!(!stage.run("CALL.NOW !E LOCK.FORCERELEASE k").is_error());
        stage.check();
    }
}

fn a_wait_called_from_a_timer_does_no_harm(kind: Kind) {
    let mut stage = stage_with_a_caller(&kind);
    stage.hold("k", "alice", LONG);
    for line in ["LOCK.WAIT k bob 600000 0", "LOCK.WAIT free bob 600000 0", "LOCK.CANCEL k bob"] {
        stage.run(&format!("CALL.TIMER ! {line}"));
    }
    wait::until("the timers have fired", SOON, || match stage.run("EXISTS free") {
        Value::Integer(1) => Ok(()),
        _ => Err("free is still free".to_owned()),
    });
    stage.granted_unseen();
    stage.settle();
    assert_eq!(stage.run("LOCK.INFO k").field("waiters"), &Value::Integer(0));
    stage.check();
}

/// The server dies when such a call is blocked by a module and given up.
fn a_call_that_may_block_is_answered_at_once_all_the_same(kind: Kind) {
    let mut stage = stage_with_a_caller(&kind);
    stage.hold("k", "alice", LONG);
    let refused = stage.run("CALL.LATER ECHO now").is_error();
    assert_eq!(refused, kind.is_redis_7_0(), "only Redis 7.0 has no such calls");
    let mut caller = stage.server.connect();
    caller.send(cmd!["CALL.LATER", "LOCK.WAIT", "k", "bob", LONG, 0]);
    let answer = caller.receive(SOON).unwrap_or_else(|e| panic!("the call is blocked: {e}"));
    assert!(answer.is_nil() || refused && answer.is_error(), "{answer}");
    caller.close();
    stage.settle();
    assert_eq!(stage.run("LOCK.INFO k").field("waiters"), &Value::Integer(0));
    observe::wait_for_blocked_clients(&mut stage.eye, 0);
    stage.check();
}

/// A command of ours opens a key whose time has come, and another module that hears of that calls a
/// command of ours.
fn a_call_from_within_a_command_is_told_to_try_again(kind: Kind) {
    let mut stage = stage_with_a_caller(&kind);
    stage.run("DEBUG SET-ACTIVE-EXPIRE 0");
    stage.run("CALL.HEARD k");
    stage.hold("k", "alice", 20);
    let end = stage.run("PEXPIRETIME k").integer();
    stage.wait_past(end);
    stage.hold("k", "bob", LONG);
    assert_eq!(stage.run("CALL.HEARD k"), Value::Integer(1));
    stage.check();
}

/// There is room for some dozens on a server.
fn where_others_have_all_categories_commands_are_in_those_of_the_server(kind: Kind) {
    if kind.is_redis_7_0() {
        // It puts no command of a module in any.
        return;
    }
    let caller = format!("{} categories", CALLER.display());
    let server = Server::options().kind(&kind).config("loadmodule", caller).start();
    let connection = &mut server.connect();
    let categories = connection.run("ACL CAT").to_string();
    assert!(categories.contains("filler-ba") && !categories.contains("lock_admin"), "{categories}");
    let info = connection.run("COMMAND INFO lock.forcerelease")[0][6].to_string();
    for category in ["@write", "@admin", "@dangerous"] {
        assert!(info.contains(category), "not in {category}: {info}");
    }
    expect_unharmed(&server);
}

on_each_server!(
    where_others_have_all_categories_commands_are_in_those_of_the_server,
    a_call_from_within_a_command_is_told_to_try_again,
    a_wait_called_by_another_module_answers_as_a_try,
    a_release_called_by_another_module_serves_the_waiter,
    a_wait_called_from_a_timer_does_no_harm,
    a_call_that_may_block_is_answered_at_once_all_the_same,
);
