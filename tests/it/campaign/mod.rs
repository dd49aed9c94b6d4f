//! Short runs of `scripts/campaign`. They check that promises hold under faults, and that the program finds
//! violations when a safeguard is missing. Other tests check that the suites and tests in documents exist.

use harness::kind::workspace;
use harness::resp::split;
use std::fs;
use std::process::{Command, Output};

fn campaign(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_campaign"));
    command.args(arguments);
    command
}

fn run(command: &mut Command) -> (Output, String) {
    let output = command.output().unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    let text = format!("{command:?}: {}\n{out}\n{err}", output.status);
    (output, text)
}

/// Runs the program, and returns its output. Fails the test if a promise was broken.
fn right(arguments: &[&str]) -> String {
    let (output, text) = run(&mut campaign(arguments));
    assert!(output.status.success(), "{text}");
    assert!(text.contains("0 violations |"), "{text}");
    text
}

/// A counter in the program's output, by the words after the number.
fn count(text: &str, what: &str) -> u64 {
    let line =
        text.lines().find(|line| line.trim_start().split_once("  ").is_some_and(|it| it.1 == what));
    line.and_then(|line| line.trim_start().split(' ').next()?.parse().ok()).unwrap_or(0)
}

/// Makes a test of each line: the test calls a check with the arguments in the line.
macro_rules! runs {
    ($($(#[$doc:meta])* $name:ident: $check:ident($($argument:expr),*);)+) => {
        $(
            $(#[$doc])*
            #[test]
            fn $name() {
                $check($($argument),*);
            }
        )+
    };
}

runs! {
    all_replicas_confirm_and_no_two_hold_a_lock: holds_on("sentinel/all_replicas");
    slots_and_masters_change_and_no_two_hold_a_lock: holds_on("cluster/all_replicas");
    a_minority_forgets_hangs_and_is_far_away_and_no_two_hold_a_lock: holds_on("five/quarantine");
    clocks_of_a_quorum_are_hours_apart_and_no_two_hold_a_lock: holds_on("five/apart");
    the_roles_of_a_pair_change_under_leases_of_a_tenth_of_a_second: meets("pair/default", "failover on demand");
    writes_are_paused_under_leases_of_a_tenth_of_a_second: meets("pair/default", "CLIENT PAUSE");
    masters_are_killed_under_load: meets("cluster/all_replicas", "killed with -9");
    replicas_take_over_in_order_under_load: meets("cluster/all_replicas", "failover on demand");
    slots_move_under_load: meets("cluster/all_replicas", "slots moved there and back");
    connections_of_a_cluster_are_cut_under_load: meets("cluster/all_replicas", "CLIENT KILL at all");
    a_quarantine_and_all_replicas_and_no_two_hold_a_lock: holds_on("sentinel/quarantine");
    threads_of_the_server_and_no_two_hold_a_lock: holds_on("single/io-threads");
    /// Locks are deleted, flushed and evicted: two clients may hold one, but nothing stale is written.
    administrators_delete_locks_and_nothing_stale_is_written: holds_on("strangers/single");
    clients_with_slow_clocks_are_found: finds_without("single/default");
    clients_with_slow_clocks_are_found_on_a_pair: finds_without("pair/default");
    all_that_is_on_the_wire_of_valkey_9: holds_on_valkey_9("chaos");
    locks_of_valkey_9_meet_faults: holds_on_valkey_9("single/default");
    readers_and_writers_meet_faults: holds_on("readers/single/default");
    permits_meet_faults: holds_on("semaphores/single/default");
    latches_meet_faults: holds_on("latches/single/default");
    leaders_meet_faults: holds_on("elections/single/default");
    leaders_change_with_their_primaries: meets("elections/sentinel/all_replicas", "failover on demand");
    leaders_move_with_their_slots: meets("elections/cluster/all_replicas", "slots moved there and back");
    what_is_bound_meets_faults: holds_on("bound/single/default");
    /// With the default settings, each client gets locks again after the restart, and no state is left.
    a_rolling_restart_under_load: meets("sentinel/default", "all restarted in turn");
    grants_that_no_replica_has_heard_of: zeros("lost-link");
    grants_that_the_promoted_replica_has_not_heard_of: zeros("stale");
    a_primary_that_stood_still_while_it_was_replaced: zeros("paused");
    a_primary_that_is_cut_off_with_some_of_its_clients: zeros("partition");
    a_primary_that_is_back_at_once_and_empty: zeros("back-empty");
    a_primary_that_is_back_at_once_with_its_data: zeros("back-with-data");
    a_server_that_is_killed_forgets_no_more_than_it_may: dies("kill");
    a_loss_of_power_costs_no_more_than_it_may: dies("power");
    holders_that_are_killed_leave_their_locks_to_the_first_in_line: holders("killed --times 3");
    a_waiter_that_is_stopped_costs_its_offer: holders("waiting --times 3");
    the_date_of_the_clients_has_no_say: holders("dates --seconds 3");
    holders_without_processor_time_do_not_overlap: holders("starved --seconds 2");
    holders_whose_runtime_is_blocked_do_not_overlap: holders("blocked --seconds 2");
    clients_that_are_killed_stopped_and_cut_off_do_not_overlap: holders("mixture --seconds 4 --grants 500");
}

#[test]
fn every_command_meets_commands_of_other_clients() {
    let text = right(&["chaos", "--seconds", "10", "--seed", "1"]);
    for figure in [
        "fault: CLIENT KILL in the turn of a hand-off",
        "fault: connection reset by a waiter",
        "fault: a reader away and back",
        "fault: a reader replaced",
        "fault: SESSION.CLOSE",
        "fault: SESSION.NEXT and SESSION.CLOSE in one packet",
        "waits in crowds",
        "lock: grants",
        "shared: shared grants",
        "shared: grants to one alone",
        "shared: downgrades",
        "semaphore: grants",
        "latch: waiters released",
        "quiet: grants",
        "quiet: semaphores replaced",
        "waits through a session",
        "moments in which locks were left to scripts",
        "scripts: grants",
    ] {
        assert!(count(&text, figure) > 0, "{figure}: {text}");
    }
    let of_a_stranger = |line: &str| line.contains("  fault: ") && line.ends_with(" by a stranger");
    assert!(text.lines().any(of_a_stranger), "{text}");
}

#[test]
fn thousands_of_random_commands_leave_nothing_behind() {
    let text = right(&["fuzz", "--seconds", "5", "--seed", "1"]);
    for error in ["errors: MISMATCH", "errors: UNSET", "errors: WRONGTYPE"] {
        assert!(count(&text, error) > 0, "never {error}: {text}");
    }
    assert!(count(&text, "values damaged") > 100, "{text}");
}

/// Runs a suite with a new seed each time. The output shows the seed.
fn holds_on(suite: &str) {
    let text = right(&[suite, "--seconds", "5", "--some"]);
    assert!(count(&text, "grants") > 0, "{text}");
}

/// Runs the control of a suite, whose setting does not prevent overlaps. It must find two holders of a lock.
fn finds_without(suite: &str) {
    let control = format!("{suite}/control");
    let text = right(&[&control, "--seconds", "5", "--some"]);
    assert!(count(&text, "two believed to hold a lock") > 0, "{text}");
}

fn holds_on_valkey_9(suite: &str) {
    let mut command = campaign(&[suite, "--seconds", "5", "--some"]);
    let (output, text) = run(command.env("KVLOCK_SERVER", "valkey-9.1"));
    assert!(output.status.success(), "{text}");
    assert!(count(&text, "grants") > 0, "{text}");
}

fn meets(suite: &str, fault: &str) {
    right(&[suite, "--fault", fault, "--seconds", "3"]);
}

fn zeros(scripts: &str) {
    let text = right(&[scripts, "--zeros", "--jobs", "5"]);
    assert!(text.contains(" --zeros "), "{text}");
}

/// A suite fails if all leases are over before the server is back, or if crashes that must lose grants lose none.
fn dies(suites: &str) {
    right(&[suites, "--times", "2", "--grants", "500", "--seed", "1", "--jobs", "3"]);
}

fn holders(scenario: &str) -> String {
    let scenario = format!("holders/{scenario} --seed 1");
    let text = right(&scenario.split(' ').collect::<Vec<_>>());
    assert!(count(&text, "grants whose beliefs were checked") > 0, "{text}");
    text
}

/// A server is stopped for longer than some of the leases. A renewal that waits in its socket is executed too
/// late.
#[test]
fn a_server_that_is_stopped_past_the_end_of_leases() {
    let text = right(&["single", "--fault", "stopped for about a session", "--seconds", "3"]);
    assert!(count(&text, "leases that ended") > 0, "{text}");
}

/// Without a safeguard, these faults must make two clients believe that they hold a lock. This shows that the
/// tests above can find violations.
#[test]
fn two_holders_are_found_without_a_setting_and_no_stale_write() {
    let two = "two believed to hold a lock";
    let cut = ["--fault", "cut off, replaced", "--seconds", "3", "--until", two];
    let text = right(&[&["sentinel/default"], &cut[..]].concat());
    assert!(count(&text, two) > 0, "{text}");
    assert!(text.contains(" 0 stale writes"), "{text}");
}

#[test]
fn servers_with_different_clocks() {
    // The clock of the next primary is ahead in the first try, and behind in the second.
    let text = right(&["clocks", "--zeros", "--times", "2", "--jobs", "2"]);
    for apart in ["+5000 ms", "-5000 ms"] {
        let apart = format!("clock of the next primary {apart}");
        assert_eq!(
            text.lines().filter(|line| line.starts_with('|') && line.contains(&apart)).count(),
            2,
            "{text}"
        );
    }
}

#[test]
fn holders_that_were_stopped_write_nothing_stale() {
    let text = holders("stopped --times 4");
    let of = |what: &str| count(&text, &format!("careless holders, store that {what}"));
    assert_eq!(of("looks at tokens: stale writes taken"), 0, "{text}");
    // Both stores get the same writes. The store that does not look at tokens takes stale ones.
    assert!(of("looks at tokens: stale writes refused") >= 1000, "{text}");
    assert!(of("does not look: stale writes taken") >= 1000, "{text}");
}

/// A run without rounds or faults must fail.
#[test]
fn no_round_and_no_fault_are_violations() {
    sees(campaign(&["pair/default", "--seconds", "0", "--some"]), "Little: ");
    sees(campaign(&["holders/mixture", "--seconds", "0", "--grants", "1"]), "Little: ");
}

/// Checks that a command fails with a violation that begins with this text.
fn sees(mut command: Command, violation: &str) -> String {
    let (output, text) = run(&mut command);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(&format!("VIOLATION {violation}")), "{text}");
    text
}

#[test]
fn clients_that_count_validity_wrongly_are_found() {
    let short = ["--seconds", "2", "--grants", "400", "--seed", "1", "--wrong-clock"];
    let text = sees(campaign(&[&["holders/mixture"], &short[..]].concat()), "Belief: ");
    assert!(text.contains(" --wrong-clock`"), "{text}");
}

#[test]
fn a_wrong_option_is_refused() {
    for (arguments, why) in [
        (&["six"][..], "there is no suite \"six\""),
        (&["five/none"], "there is no suite"),
        (&[], "which suites?"),
        (&["five", "--sed", "1"], "Usage: campaign"),
    ] {
        let (output, text) = run(&mut campaign(arguments));
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(why), "{text}");
    }
}

/// The arguments after each `scripts/campaign` in a text, up to the end of the code.
fn said(text: &str) -> impl Iterator<Item = &str> {
    // A line of a paragraph may end after the name of the program.
    let after = text.split("scripts/campaign").skip(1);
    after.filter_map(|rest| rest.strip_prefix([' ', '\n'])).map(|rest| {
        let end = rest.find(['`', '\n']).unwrap_or(rest.len());
        // Text after two spaces is an explanation.
        rest[..end].split("  ").next().unwrap_or_default()
    })
}

#[test]
fn documents_name_existing_suites_and_suites_name_existing_rows() {
    let mut named = 0;
    for file in [
        "docs/evidence.md",
        "docs/guarantees.md",
        "scripts/campaign",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
    ] {
        let text = fs::read_to_string(workspace().join(file)).unwrap();
        // Skips mentions of other programs, and mentions without arguments.
        let is_ours = |line: &&str| {
            !line.starts_with("simulation") && line.starts_with(|c: char| c.is_lowercase())
        };
        for line in said(&text).filter(is_ours) {
            let words =
                split(line).unwrap().into_iter().map(|word| String::from_utf8(word).unwrap());
            let mut command = campaign(&["--list"]);
            let (output, text) = run(command.args(words));
            assert!(output.status.success(), "{file}: {text}");
            named += 1;
        }
    }
    assert!(named > 30, "only {named}");
    let evidence = fs::read_to_string(workspace().join("docs/evidence.md")).unwrap();
    let list = campaign(&["--list"]).output().unwrap().stdout;
    for row in String::from_utf8(list).unwrap().lines() {
        // The cell between the name of the suite and its description.
        let cells = row.split_once(' ').map_or("", |(_, rest)| rest.trim_start());
        for number in cells.split("  ").next().unwrap_or_default().split(", ") {
            let start = format!("| {number} | ");
            assert!(evidence.lines().any(|line| line.starts_with(&start)), "{row}");
        }
    }
}

/// The code spans of a text that are names of tests or prefixes of such names.
fn tests_in(text: &str) -> impl Iterator<Item = &str> {
    let spans = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    spans.filter(|span| {
        let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_:".contains(c);
        span.contains("::") && *span != "::" && span.chars().all(is_part)
    })
}

/// Returns whether a name is a module of the client's tests, or a prefix of their names. These tests are in another
/// binary, so this function reads their source.
fn is_of_the_client(name: &str) -> bool {
    let Some(name) = name.strip_prefix("client::") else { return false };
    let (module, test) = name.rsplit_once("::").unwrap_or(("client", name));
    let file = format!("client/tests/it/{}", module.replace("::", "/"));
    [".rs", "/mod.rs"].into_iter().any(|end| {
        let text = fs::read_to_string(workspace().join(format!("{file}{end}")));
        let is_in =
            |text: String| ["fn", "mod"].iter().any(|it| text.contains(&format!("{it} {test}")));
        text.is_ok_and(is_in)
    })
}

#[test]
fn the_evidence_names_existing_tests() {
    let this = std::env::current_exe().unwrap();
    let list = Command::new(this).arg("--list").output().unwrap().stdout;
    let list = String::from_utf8(list).unwrap();
    let mut named = 0;
    for file in ["docs/evidence.md", "docs/guarantees.md", "CONTRIBUTING.md"] {
        let text = fs::read_to_string(workspace().join(file)).unwrap();
        for name in tests_in(&text) {
            let is_here = list.lines().any(|test| test.starts_with(name));
            assert!(is_here || is_of_the_client(name), "{file}: {name}");
            named += 1;
        }
    }
    assert!(named > 50, "only {named} names");
}
