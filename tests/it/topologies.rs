//! Short runs of `scripts/campaign topologies`: that what is promised of Sentinels, a cluster and a quorum
//! holds, and that the same program finds two holders where that is not promised.

use std::process::{Command, Output};

fn topologies(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_topologies")).args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{}\n{out}\n{err}", output.status)
}

/// What it counted, by the words after the number.
fn count(text: &str, what: &str) -> u64 {
    let line =
        text.lines().find(|line| line.trim_start().split_once("  ").is_some_and(|it| it.1 == what));
    line.and_then(|line| line.trim_start().split(' ').next()?.parse().ok()).unwrap_or(0)
}

fn holds_on(topology: &str) {
    // Another seed each time, and so other faults: the output says which.
    let output = topologies(&["--on", topology, "--seconds", "5"]);
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains(" 0 overlaps, 0 tokens out of order, 0 stale writes, 0 wrongs"),
        "{text}"
    );
    for figure in ["faults", "grants", "given up while waiting", "renewals seen"] {
        assert!(count(&text, figure) > 0, "{figure}: {text}");
    }
}

#[test]
fn all_replicas_confirm_and_no_two_hold_a_lock() {
    holds_on("sentinel");
}

#[test]
fn slots_and_masters_change_and_no_two_hold_a_lock() {
    holds_on("cluster");
}

#[test]
fn a_minority_forgets_hangs_and_is_far_away_and_no_two_hold_a_lock() {
    holds_on("five");
}

/// The same faults without any setting against them: that the zeros above are not for want of looking.
#[test]
fn it_sees_two_holders_where_nothing_is_done_against_it_and_still_nothing_stale_is_written() {
    let cut = ["--setting", "default", "--fault", "cut off, replaced", "--seconds", "3"];
    let output = topologies(&[&["--on", "sentinel", "--seed", "1"], &cut[..]].concat());
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(count(&text, "two believed to hold a lock") > 0, "{text}");
    assert!(text.contains(" 0 stale writes, 0 wrongs"), "{text}");
}

#[test]
fn a_wrong_option_is_refused() {
    for (arguments, why) in [
        (&["--on", "six"][..], "[possible values: sentinel, cluster, five]"),
        (&["--on", "five", "--setting", "none"], "five has no setting"),
        (&["--on", "five", "--promotions", "1"], "five has no promotions"),
        (&[], "Usage: topologies"),
    ] {
        let output = topologies(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output).contains(why), "{arguments:?}: {}", text(&output));
    }
}
