//! When which process believed to hold which lock, and whether that can be.
//!
//! - Of two beliefs in one lock, one ends before the other begins.
//! - In the order of the beliefs tokens grow; no token is granted twice.
//! - No process acts on a lock in which it does not believe any more, and none loses one before its
//!   lease has expired.

use super::said::{End, Grant, Said};
use harness::checker::{Limits, Rule, check as check_history};
use harness::history::{Call, Outcome, Request};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A process believed from then to then, in nanoseconds, that it holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Belief {
    pub(super) grant: Grant,
    pub(super) process: String,
    pub(super) from: u64,
    pub(super) until: u64,
}

impl Belief {
    /// Whether the process can have acted on it: a guard may be lost before its process goes on.
    pub(super) fn is_empty(&self) -> bool {
        self.from >= self.until
    }
}

/// What one process believed, and did without believing. It was killed at `killed`.
pub(super) fn of(process: &str, said: &[Said], killed: u64) -> (Vec<Belief>, Vec<String>) {
    let mut open: BTreeMap<Grant, Belief> = BTreeMap::new();
    let (mut done, mut violations) = (Vec::new(), Vec::new());
    for said in said {
        match said {
            Said::Holds { grant, from, until, .. } => {
                let belief = Belief {
                    grant: grant.clone(),
                    process: process.to_owned(),
                    from: *from,
                    until: *until,
                };
                open.insert(grant.clone(), belief);
            }
            Said::Until { grant, until } => {
                open.entry(grant.clone()).and_modify(|belief| belief.until = *until);
            }
            Said::Ends { grant, at, looked, why } => {
                let Some(mut belief) = open.remove(grant) else { continue };
                if *looked > belief.until {
                    let late = looked - belief.until;
                    violations.push(format!("Late: {process} acted {late} ns after its {grant}"));
                }
                // No stranger takes locks away, and no server is lost.
                if *why != End::Release && *at < belief.until {
                    let early = belief.until - at;
                    violations.push(format!("Loss: {process} lost {grant} {early} ns too early"));
                }
                belief.until = belief.until.min(*at);
                done.push(belief);
            }
            _ => {}
        }
    }
    // A dead process believes nothing.
    done.extend(open.into_values().map(|mut belief| {
        belief.until = belief.until.min(killed);
        belief
    }));
    (done, violations)
}

/// What is wrong with the beliefs of all processes: for the [checker](harness::checker) one is a
/// grant that its owner counts on until it ends.
pub(super) fn check(beliefs: &[Belief]) -> Vec<String> {
    let call = |belief: &Belief| {
        let [from, until] = [belief.from, belief.until].map(Duration::from_nanos);
        let request = Request::Acquire { lease: until - from, timeout: None };
        let granted = Outcome::Granted { token: belief.grant.token, holds: 1 };
        let owner = format!("{}:{}", belief.process, belief.grant.token);
        let call = Call::new((&belief.grant.key, &owner), request, from, (from, granted));
        Call { valid_until: Some(until), ..call }
    };
    let calls: Vec<Call> = beliefs.iter().filter(|it| !it.is_empty()).map(call).collect();
    let mut found = check_history(&calls, &Limits::default());
    found.retain(|it| matches!(it.rule, Rule::Belief | Rule::TokenOrder));
    let mut all: Vec<String> = found.iter().map(ToString::to_string).collect();
    let mut tokens = BTreeSet::new();
    for belief in beliefs {
        if !tokens.insert(&belief.grant) {
            all.push(format!("TokenOrder: {} was granted twice", belief.grant));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(token: u64) -> Grant {
        Grant { key: "k".to_owned(), token }
    }

    fn belief(process: &str, token: u64, from: u64, until: u64) -> Belief {
        Belief { grant: grant(token), process: process.to_owned(), from, until }
    }

    fn kinds(violations: &[String]) -> Vec<&str> {
        violations.iter().filter_map(|wrong| wrong.split(':').next()).collect()
    }

    #[test]
    fn one_after_the_other_is_right_and_what_nobody_can_have_acted_on_does_not_matter() {
        let beliefs = [belief("b", 2, 20, 30), belief("a", 1, 10, 20), belief("a", 3, 30, 40)];
        assert_eq!(check(&beliefs), Vec::<String>::new());
        assert_eq!(check(&[belief("b", 2, 20, 30), belief("a", 1, 25, 25)]), Vec::<String>::new());
    }

    #[test]
    fn two_at_once_and_tokens_that_do_not_grow_are_found() {
        let beliefs = [belief("a", 1, 10, 90), belief("b", 2, 20, 30), belief("c", 3, 80, 95)];
        assert_eq!(kinds(&check(&beliefs)), ["Belief", "Belief"]);
        let back = [belief("a", 5, 10, 20), belief("b", 4, 21, 30)];
        assert_eq!(kinds(&check(&back)), ["TokenOrder"]);
        let twice = [belief("a", 5, 10, 20), belief("b", 5, 21, 30)];
        assert!(kinds(&check(&twice)).contains(&"TokenOrder"));
    }

    #[test]
    fn a_belief_ends_with_the_release_the_lease_or_the_process() {
        let holds = |token| Said::Holds {
            grant: grant(token),
            owner: "o".to_owned(),
            from: 10,
            until: 50,
            date_ms: 0,
        };
        let ends = |token, at, looked, why| Said::Ends { grant: grant(token), at, looked, why };
        let said = [
            holds(1),
            ends(1, 20, 15, End::Release),
            holds(2),
            Said::Until { grant: grant(2), until: 70 },
            ends(2, 100, 60, End::Lost),
            holds(3),
        ];
        let (beliefs, violations) = of("a", &said, 30);
        let ends: Vec<u64> = beliefs.iter().map(|belief| belief.until).collect();
        assert_eq!((ends, violations), (vec![20, 70, 30], vec![]));
    }

    #[test]
    fn an_act_after_a_belief_and_a_loss_before_its_end_are_found() {
        let holds =
            Said::Holds { grant: grant(1), owner: "o".to_owned(), from: 10, until: 50, date_ms: 0 };
        let late = Said::Ends { grant: grant(1), at: 60, looked: 55, why: End::Release };
        assert_eq!(kinds(&of("a", &[holds.clone(), late], 99).1), ["Late"]);
        for why in [End::Over, End::Lost] {
            let early = Said::Ends { grant: grant(1), at: 40, looked: 35, why };
            assert_eq!(kinds(&of("a", &[holds.clone(), early], 99).1), ["Loss"]);
        }
    }
}
