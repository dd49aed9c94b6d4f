//! A short run of `scripts/fuzz --live`, and proof that it would have seen something.

use harness::module_file;
use std::process::{Command, Output};

fn fuzz(commands: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fuzz"));
    command.args(["--commands", commands, "--seed", "1"]);
    command
}

fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{}\n{out}\n{err}", output.status)
}

#[test]
fn thousands_of_commands_of_any_sort_leave_nothing_behind() {
    let output = fuzz("30000").output().unwrap();
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("; 0 crashes"), "{text}");
    for error in ["MISMATCH", "UNSET", "WRONGTYPE"] {
        assert!(text.contains(error), "never {error}: {text}");
    }
    let damaged = text.lines().find_map(|line| line.split_once(" values damaged; "));
    let damaged = damaged.and_then(|(count, _)| count.parse::<u64>().ok());
    assert!(damaged.is_some_and(|damaged| damaged > 100), "{text}");
}

#[test]
fn it_sees_a_server_that_crashes() {
    let mut command = fuzz("200000");
    command.env("KVLOCK_MODULE", module_file::planted_path());
    let output = command.env("KVLOCK_PLANTED", "dies-of-hashes").output().unwrap();
    let text = text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("WRONG in round"), "{text}");
}

#[test]
fn a_wrong_option_is_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_fuzz")).arg("--sed").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("Usage: fuzz"));
}
