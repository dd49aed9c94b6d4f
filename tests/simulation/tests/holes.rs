//! With all safeguards nothing is wrong in some hundred seeds; with one of them off, the hole that
//! it closes is found, and it is that safeguard which closes it.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a panic is how a test fails, and what was found is shown"
)]

use kvlock_core::Bug;
use kvlock_simulation::{Counts, Keeping, Rule, Safeguard, Scene, Settings, run, shrink};

const STEPS: u64 = 1_000;

/// Where a safeguard matters, and which promise it keeps.
struct Hole {
    off: Safeguard,
    scene: Scene,
    keeping: Keeping,
    rule: Rule,
    /// Found within so many seeds of so many steps.
    within: u64,
    steps: u64,
}

const fn hole(off: Safeguard, scene: Scene, rule: Rule, within: u64) -> Hole {
    Hole { off, scene, keeping: Keeping::Nothing, rule, within, steps: STEPS }
}

/// Finds a seed that shows it.
fn is_found(hole: &Hole) {
    let Hole { off, scene, keeping, rule, within, steps } = *hole;
    let with = Settings { scene: Some(scene), keeping: Some(keeping), off: None };
    let without = Settings { off: Some(off), ..with.clone() };
    let shows = |seed: &u64| {
        let found = run(*seed, steps, &without, false).violation;
        found.is_some_and(|found| found.rule == rule)
    };
    let Some(seed) = (0..within).find(shows) else {
        panic!("{off:?} is off, and {rule:?} is kept in {within} seeds");
    };
    println!("{off:?} off: {rule:?} is broken by seed {seed}");
    let report = run(seed, steps, &with, false);
    assert_eq!(report.violation, None, "seed {seed}, with {off:?}");
}

#[test]
fn with_all_safeguards_nothing_is_wrong() {
    let mut counts = Counts::default();
    for seed in 0..150 {
        let report = run(seed, STEPS, &Settings::all(), false);
        if let Some(violation) = report.violation {
            let (steps, report) = shrink(seed, STEPS, &Settings::all());
            report.log.iter().for_each(|line| println!("{line}"));
            panic!("seed {seed}, {steps} steps: {violation}");
        }
        counts.add(&report.counts);
    }
    println!("{counts:?}");
    // A world in which nothing happens proves nothing.
    let Counts { promotions, crashes, handed_off, reentered, renewed, .. } = counts;
    for happened in [promotions, crashes, handed_off, reentered, renewed] {
        assert!(happened > 0, "{counts:?}");
    }
    let Counts { lost, outcomes, bound, bound_released, .. } = counts;
    for happened in [lost, outcomes, bound, bound_released] {
        assert!(happened > 0, "{counts:?}");
    }
    assert!(counts.quorums > 0 && counts.writes_refused > 0, "{counts:?}");
}

#[test]
#[cfg(tokio_unstable)]
fn a_seed_decides_everything() {
    for seed in 0..100 {
        let once = run(seed, STEPS, &Settings::all(), true);
        let again = run(seed, STEPS, &Settings::all(), true);
        assert!(once.log == again.log && once.counts == again.counts, "seed {seed}");
        assert!(once.log.len() > 100, "seed {seed}");
    }
}

#[test]
#[cfg(tokio_unstable)]
fn a_run_is_shortened_to_what_shows_it() {
    let without = Settings { off: Some(Safeguard::Fence), ..Settings::of(Scene::Single) };
    let fails = |seed: &u64| run(*seed, STEPS, &without, false).violation.is_some();
    let seed = (0..100).find(fails).expect("a late write lands");
    let (steps, report) = shrink(seed, STEPS, &without);
    assert!(report.violation.is_some() && !report.log.is_empty());
    assert!(steps < STEPS, "{steps}");
    assert_eq!(run(seed, steps - 1, &without, false).violation, None, "one step less");
}

#[test]
fn without_its_rules_a_client_believes_too_long() {
    for (off, within) in [
        (Safeguard::FromSending, 50),
        (Safeguard::LooksAtClock, 50),
        (Safeguard::RateMargin, 400),
        (Safeguard::UnansweredIsNothing, 50),
        (Safeguard::WholeTtl, 200),
    ] {
        is_found(&hole(off, Scene::Single, Rule::Belief, within));
    }
    is_found(&hole(Safeguard::Holds, Scene::Single, Rule::Holds, 20));
}

#[test]
fn who_counts_from_when_it_was_told_believes_too_long() {
    is_found(&hole(Safeguard::GrantedAt, Scene::Single, Rule::Belief, 1_000));
}

#[test]
fn a_shorter_renewal_that_arrives_late_is_counted_on() {
    is_found(&hole(Safeguard::CountsLate, Scene::Single, Rule::Belief, 1_000));
}

#[test]
fn a_resource_that_does_not_look_takes_late_writes() {
    is_found(&hole(Safeguard::Fence, Scene::Single, Rule::Stale, 20));
}

#[test]
fn a_server_that_writes_unasked_while_writes_are_paused_crashes() {
    is_found(&hole(Safeguard::PauseGuard, Scene::Single, Rule::Forbidden, 20));
}

/// With a quarantine.
fn is_found_in_quarantine(off: Safeguard, scene: Scene, within: u64) {
    let hole = hole(off, scene, Rule::Belief, within);
    // Leases that outlast what a primary goes on granting take long to end.
    is_found(&Hole { keeping: Keeping::Quarantine, steps: 4 * STEPS, ..hole });
}

#[test]
fn a_server_that_forgets_grants_again_unless_it_waits() {
    is_found_in_quarantine(Safeguard::Quarantine, Scene::Crashes, 100);
    is_found_in_quarantine(Safeguard::Quarantine, Scene::Failovers, 100);
}

#[test]
fn a_primary_that_is_cut_off_goes_on_unless_it_needs_replicas() {
    is_found_in_quarantine(Safeguard::MinReplicas, Scene::Failovers, 400);
}

#[test]
fn a_primary_that_is_cut_off_together_with_a_replica_goes_on() {
    is_found_in_quarantine(Safeguard::NoReplicaAlong, Scene::Failovers, 1_000);
}

#[test]
fn grants_that_not_all_replicas_have_are_granted_again() {
    for off in [Safeguard::ReplicasConfirm, Safeguard::RenewalsConfirm, Safeguard::AllReplicas] {
        let hole = hole(off, Scene::Failovers, Rule::Belief, 1_000);
        is_found(&Hole { keeping: Keeping::Replicas, ..hole });
    }
}

#[test]
fn tokens_go_back_without_floors() {
    for off in [Safeguard::FloorsByClock, Safeguard::DataOutlivesTokens] {
        is_found(&hole(off, Scene::Crashes, Rule::Tokens, 200));
    }
    is_found(&hole(Safeguard::Floors, Scene::Failovers, Rule::Tokens, 20));
}

#[test]
fn a_deposed_primary_leaves_nobody_waiting() {
    is_found(&hole(Safeguard::DismissDeposed, Scene::Failovers, Rule::Left, 20));
}

#[test]
fn tokens_of_a_quorum_go_back_unless_they_are_written_back() {
    is_found(&hole(Safeguard::WriteBack, Scene::Quorum, Rule::Tokens, 20));
}

#[test]
fn sessions_are_told_everything_once_and_last_as_long_as_they_should() {
    use Rule::{Left, Order, Sessions};
    for (bug, rule, within) in [
        (Bug::OutcomeTwice, Sessions, 20),
        (Bug::LostAtTakeover, Sessions, 400),
        (Bug::PlaceLost, Order, 20),
        (Bug::AwayGranted, Sessions, 20),
        (Bug::WrittenTakenBack, Sessions, 20),
        (Bug::SessionOutlives, Left, 20),
        (Bug::BoundStays, Sessions, 200),
    ] {
        is_found(&hole(Safeguard::Core(bug), Scene::Single, rule, within));
    }
}
