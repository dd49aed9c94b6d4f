//! Short runs of `scripts/campaign`: that what is promised holds under faults, and that the same program
//! finds what is not promised; and that its table is the one that the documents speak of.

use harness::kind::workspace;
use harness::module_file;
use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output};

fn campaign(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_campaign"));
    command.args(arguments);
    command
}

fn run(mut command: Command) -> (Output, String) {
    let output = command.output().unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    let text = format!("{command:?}: {}\n{out}\n{err}", output.status);
    (output, text)
}

/// What it says when all is as it is promised.
fn right(arguments: &[&str]) -> String {
    let (output, text) = run(campaign(arguments));
    assert!(output.status.success(), "{text}");
    assert!(text.contains("0 violations |"), "{text}");
    text
}

/// What it counted, by the words after the number.
pub(crate) fn count(text: &str, what: &str) -> u64 {
    let line =
        text.lines().find(|line| line.trim_start().split_once("  ").is_some_and(|it| it.1 == what));
    line.and_then(|line| line.trim_start().split(' ').next()?.parse().ok()).unwrap_or(0)
}

fn holds_on(suite: &str) {
    // Another seed each time, and so other faults: the output says which.
    let text = right(&[suite, "--seconds", "5"]);
    assert!(text.contains(" 0 overlaps, 0 tokens out of order, 0 stale writes"), "{text}");
    for figure in ["faults", "grants", "given up while waiting", "renewals seen"] {
        assert!(count(&text, figure) > 0, "{figure}: {text}");
    }
}

#[test]
fn all_replicas_confirm_and_no_two_hold_a_lock() {
    holds_on("sentinel/all_replicas");
}

#[test]
fn slots_and_masters_change_and_no_two_hold_a_lock() {
    holds_on("cluster/all_replicas");
}

#[test]
fn a_minority_forgets_hangs_and_is_far_away_and_no_two_hold_a_lock() {
    holds_on("five/quarantine");
}

#[test]
fn the_roles_of_a_pair_change_under_leases_of_a_tenth_of_a_second() {
    holds_on("pair/default");
}

/// The same faults without any setting against them: that the zeros above are not for want of looking.
#[test]
fn it_sees_two_holders_where_nothing_is_done_against_it_and_still_nothing_stale_is_written() {
    let cut = ["--fault", "cut off, replaced", "--seconds", "3", "--seed", "1"];
    let text = right(&[&["sentinel/default"], &cut[..]].concat());
    assert!(count(&text, "two believed to hold a lock") > 0, "{text}");
    assert!(text.contains(" 0 stale writes"), "{text}");
}

fn zeros(scripts: &str) {
    right(&[scripts, "--zeros", "--jobs", "5"]);
}

#[test]
fn grants_that_no_replica_has_heard_of() {
    zeros("lost-link");
}

#[test]
fn grants_that_the_promoted_replica_has_not_heard_of() {
    zeros("stale");
}

#[test]
fn a_primary_that_stood_still_while_it_was_replaced() {
    zeros("paused");
}

#[test]
fn a_primary_that_is_cut_off_with_some_of_its_clients() {
    zeros("partition");
}

#[test]
fn servers_whose_clocks_are_apart() {
    zeros("clocks");
}

/// A service that goes on: without any setting everybody has his turn again, and nothing is left.
#[test]
fn a_rolling_restart_under_load() {
    right(&["sentinel/default", "--fault", "all restarted in turn", "--seconds", "1"]);
}

/// Each row must see that the server died, and what that costs without a promise.
fn dies(suites: &str) {
    right(&[suites, "--times", "2", "--grants", "500", "--seed", "1", "--jobs", "3"]);
}

#[test]
fn a_server_that_is_killed_forgets_no_more_than_it_may() {
    dies("kill");
}

#[test]
fn a_loss_of_power_costs_no_more_than_it_may() {
    dies("power");
}

fn holders(arguments: &[&str]) -> String {
    let text = right(&[arguments, &["--seed", "1"]].concat());
    assert!(count(&text, "grants whose beliefs were checked") > 0, "{text}");
    text
}

#[test]
fn holders_that_are_killed_leave_their_locks_to_the_first_in_line() {
    holders(&["holders/killed", "--times", "2"]);
}

#[test]
fn holders_that_were_stopped_write_nothing_stale() {
    let text = holders(&["holders/stopped", "--times", "4"]);
    let of = |what: &str| count(&text, &format!("careless holders, store that {what}"));
    assert_eq!(of("looks at tokens: stale writes taken"), 0, "{text}");
    // The same writes at the other store show that they were stale.
    assert!(of("looks at tokens: stale writes refused") >= 1000, "{text}");
    assert!(of("does not look: stale writes taken") >= 1000, "{text}");
}

#[test]
fn a_waiter_that_is_stopped_costs_its_offer() {
    holders(&["holders/waiting", "--times", "1"]);
}

#[test]
fn the_date_of_the_clients_has_no_say() {
    holders(&["holders/dates", "--seconds", "3"]);
}

#[test]
fn holders_without_processor_time_do_not_overlap() {
    holders(&["holders/starved", "--seconds", "2"]);
}

#[test]
fn holders_whose_runtime_is_blocked_do_not_overlap() {
    holders(&["holders/blocked", "--seconds", "2"]);
}

#[test]
fn clients_that_are_killed_stopped_and_cut_off_do_not_overlap() {
    let text = holders(&["holders/mixture", "--seconds", "4", "--grants", "500"]);
    for fault in ["clients killed", "clients stopped for up to three leases", "connections cut"] {
        assert!(count(&text, fault) > 0, "{text}");
    }
}

/// What was not tried is not right.
#[test]
fn no_round_and_no_fault_are_violations() {
    sees(campaign(&["pair/default", "--seconds", "0"]), "Little");
    sees(campaign(&["holders/mixture", "--seconds", "0", "--grants", "1"]), "Little");
}

/// Ends with a violation of that kind.
fn sees(command: Command, violation: &str) {
    let (output, text) = run(command);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(&format!("VIOLATION {violation}: ")), "{text}");
}

#[test]
fn clients_that_count_validity_wrongly_are_found() {
    let short = ["--seconds", "2", "--grants", "400", "--seed", "1", "--wrong-clock"];
    sees(campaign(&[&["holders/mixture"], &short[..]].concat()), "Belief");
}

#[test]
fn the_last_in_line_being_served_first_is_found() {
    let mut command = campaign(&["holders/killed", "--times", "1", "--seed", "1"]);
    command.env("KVLOCK_MODULE", module_file::planted_path()).env("KVLOCK_PLANTED", "lifo");
    sees(command, "Fifo");
}

#[test]
fn a_wrong_option_is_refused() {
    for (arguments, why) in [
        (&["six"][..], "there is no suite \"six\""),
        (&["five/none"], "there is no suite"),
        (&[], "which suites?"),
        (&["five", "--sed", "1"], "Usage: campaign"),
    ] {
        let (output, text) = run(campaign(arguments));
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(why), "{text}");
    }
}

/// The names of suites that a text gives to `scripts/campaign`: words up to the first option, the end
/// of the code, or what is said of it.
fn named(text: &str) -> impl Iterator<Item = &str> {
    text.split("scripts/campaign ").skip(1).flat_map(|rest| {
        let end = rest.find(['`', '\n']).unwrap_or(rest.len());
        let words = rest[..end].split("  ").next().unwrap_or_default().split_whitespace();
        words.take_while(|word| word.starts_with(|c: char| c.is_lowercase()))
    })
}

#[test]
fn the_documents_name_suites_that_there_are_and_the_suites_rows_that_there_are() {
    let evidence = fs::read_to_string(workspace().join("docs/evidence.md")).unwrap();
    let (_, list) = run(campaign(&["--list"]));
    let rows: Vec<Vec<&str>> = list.lines().map(|line| line.split("  ").collect()).collect();
    let suites: BTreeSet<&str> = list
        .lines()
        .filter_map(|line| line.split(' ').next())
        .filter(|it| it.contains('/'))
        .collect();
    assert!(suites.len() > 10, "{list}");
    for file in [
        "docs/evidence.md",
        "docs/guarantees.md",
        "scripts/campaign",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
    ] {
        let text = fs::read_to_string(workspace().join(file)).unwrap();
        for name in named(&text) {
            let is = |suite: &&str| {
                suite
                    .strip_prefix(name)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            assert!(name == "chaos" || suites.iter().any(is), "{file}: {name}");
        }
    }
    for row in rows.iter().filter(|row| suites.contains(row[0])) {
        let cells: Vec<&str> =
            row[1..].iter().map(|cell| cell.trim()).filter(|cell| !cell.is_empty()).collect();
        for number in cells[0].split(", ") {
            let row = format!("| {number} | ");
            assert!(evidence.lines().any(|line| line.starts_with(&row)), "{row}: {cells:?}");
        }
    }
}
