//! A short run of `scripts/fuzz --live`, and proof that it would have seen something.

use crate::campaign::{campaign, count, planted, right, sees_one_of};

#[test]
fn thousands_of_commands_of_any_sort_leave_nothing_behind() {
    let text = right(&["fuzz", "--seconds", "5", "--seed", "1"]);
    for error in ["errors: MISMATCH", "errors: UNSET", "errors: WRONGTYPE"] {
        assert!(count(&text, error) > 0, "never {error}: {text}");
    }
    assert!(count(&text, "values damaged") > 100, "{text}");
}

#[test]
fn it_sees_a_server_that_crashes() {
    let command = campaign(&["fuzz", "--seconds", "30", "--seed", "1"]);
    sees_one_of(planted(command, "dies-of-hashes"), &["the server on port"]);
}
