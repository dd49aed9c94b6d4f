//! With all safeguards, 150 seeds break no promise. With one safeguard off, some seed shows the violation
//! that the safeguard prevents. The same seed passes with the safeguard on. The patches in `tests/planted`
//! add bugs to the module and the crate; the simulation finds some of them.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a panic is how a test fails, and what was found is shown"
)]

use kvlock_simulation::{Counts, Keeping, Rule, Safeguard, Scene, Settings, run, shrink};

const STEPS: u64 = 1_000;
/// Largest number of seeds to try. The rarest violation shows in 4 of 1,000 seeds, and runs without
/// `tokio_unstable` are partly random. With far fewer seeds a test would sometimes fail.
const SEEDS: u64 = 5_000;

/// Finds a seed that shows the violation, and checks that the safeguard prevents it.
fn is_found(off: Safeguard, scene: Scene, keeping: Keeping, rule: Rule) {
    let with = Settings { scene: Some(scene), keeping: Some(keeping), ..Settings::default() };
    let without = Settings { off: Some(off), ..with.clone() };
    // Leases that outlast a replaced primary need more steps to end.
    let steps = if keeping == Keeping::Quarantine { 4 * STEPS } else { STEPS };
    let shows = |seed: &u64| {
        let found = run(*seed, steps, &without, false).violation;
        found.is_some_and(|found| found.rule == rule)
    };
    let Some(seed) = (0..SEEDS).find(shows) else {
        panic!("{off:?} is off, and {rule:?} is kept in {SEEDS} seeds");
    };
    println!("{off:?} off: {rule:?} is broken by seed {seed}");
    let report = run(seed, steps, &with, false);
    assert_eq!(report.violation, None, "seed {seed}, with {off:?}");
}

/// Makes a test from each line: its name, the safeguard that is off, the scene, the setting that preserves
/// grants, and the rule that the run breaks.
macro_rules! holes {
    ($($name:ident: $off:ident, $scene:ident, $keeping:ident, $rule:ident;)*) => {
        $(
            #[test]
            fn $name() {
                let off = Safeguard::$off;
                is_found(off, Scene::$scene, Keeping::$keeping, Rule::$rule);
            }
        )*
    };
}

holes! {
    a_lease_counted_from_the_reply_is_believed_too_long: FromSending, Single, Nothing, Belief;
    a_holder_that_does_not_check_its_clock_believes_too_long: LooksAtClock, Single, Nothing, Belief;
    a_client_with_a_slow_clock_believes_too_long: RateMargin, Single, Nothing, Belief;
    a_renewal_without_a_reply_is_believed_too_long: UnansweredIsNothing, Single, Nothing, Belief;
    a_client_of_a_shortened_session_believes_too_long: WholeTtl, Single, Nothing, Belief;
    a_repeated_command_without_holds_holds_twice: Holds, Single, Nothing, Holds;
    a_grant_counted_from_its_outcome_is_believed_too_long: GrantedAt, Single, Nothing, Belief;
    a_shorter_renewal_that_arrives_late_is_counted_on: CountsLate, Single, Nothing, Belief;
    a_resource_that_does_not_look_takes_late_writes: Fence, Single, Nothing, Stale;
    a_server_without_its_data_grants_again_without_a_quarantine: Quarantine, Crashes, Quarantine, Belief;
    a_promoted_replica_grants_again_without_a_quarantine: Quarantine, Failovers, Quarantine, Belief;
    a_primary_that_is_cut_off_goes_on_unless_it_needs_replicas: MinReplicas, Failovers, Quarantine, Belief;
    a_primary_that_is_cut_off_together_with_a_replica_goes_on: NoReplicaAlong, Failovers, Quarantine, Belief;
    grants_that_no_replica_has_are_granted_again: ReplicasConfirm, Failovers, Replicas, Belief;
    renewals_that_no_replica_has_are_granted_over: RenewalsConfirm, Failovers, Replicas, Belief;
    grants_that_not_all_replicas_have_are_granted_again: AllReplicas, Failovers, Replicas, Belief;
    a_primary_that_comes_back_empty_grants_again: ComesBackWhole, Failovers, Replicas, Belief;
    tokens_that_are_reserved_far_ahead_go_back: FloorsByClock, Crashes, Nothing, Tokens;
    tokens_that_are_lost_while_ahead_of_the_clock_go_back: DataOutlivesTokens, Crashes, Nothing, Tokens;
    a_deposed_primary_leaves_nobody_waiting: DismissDeposed, Failovers, Nothing, Left;
    tokens_of_a_quorum_go_back_unless_they_are_written_back: WriteBack, Quorum, Nothing, Tokens;
}

#[test]
fn with_all_safeguards_there_is_no_violation() {
    let mut counts = Counts::default();
    for seed in 0..150 {
        let report = run(seed, STEPS, &Settings::default(), false);
        if let Some(violation) = report.violation {
            let (steps, report) = shrink(seed, STEPS, &Settings::default());
            report.log.iter().for_each(|line| println!("{line}"));
            panic!("seed {seed}, {steps} steps: {violation}");
        }
        counts.add(&report.counts);
    }
    println!("{counts:?}");
    // A run in which nothing happens proves nothing.
    let Counts { promotions, crashes, handed_off, reentered, renewed, .. } = counts;
    for happened in [promotions, crashes, handed_off, reentered, renewed] {
        assert!(happened > 0, "{counts:?}");
    }
    let Counts { lost, outcomes, taken_back, bound, bound_released, .. } = counts;
    for happened in [lost, outcomes, taken_back, bound, bound_released] {
        assert!(happened > 0, "{counts:?}");
    }
    assert!(counts.overlapping > 0 && counts.stalls > 0, "{counts:?}");
    assert!(counts.quorums > 0 && counts.writes_refused > 0, "{counts:?}");
    assert!(counts.stored > 0 && counts.told_ready > 0, "{counts:?}");
    assert!(counts.sets_granted > 0 && counts.sets_waited > 0, "{counts:?}");
}

#[test]
#[cfg(tokio_unstable)]
fn a_seed_determines_the_whole_run() {
    for seed in 0..100 {
        let once = run(seed, STEPS, &Settings::default(), true);
        let again = run(seed, STEPS, &Settings::default(), true);
        assert!(once.log == again.log && once.counts == again.counts, "seed {seed}");
        assert!(once.log.len() > 100, "seed {seed}");
    }
}

#[test]
#[cfg(tokio_unstable)]
fn a_run_is_shortened_to_its_first_violation() {
    let without =
        Settings { off: Some(Safeguard::Fence), scene: Some(Scene::Single), ..Settings::default() };
    let fails = |seed: &u64| run(*seed, STEPS, &without, false).violation.is_some();
    let seed = (0..100).find(fails).expect("a late write lands");
    let (steps, report) = shrink(seed, STEPS, &without);
    assert!(report.violation.is_some() && !report.log.is_empty());
    assert!(steps < STEPS, "{steps}");
    assert_eq!(run(seed, steps - 1, &without, false).violation, None, "one step less");
}
