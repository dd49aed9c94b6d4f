//! When which process believed to hold which lock, and whether that can be.
//!
//! - Of two beliefs in one lock, one ends before the other begins.
//! - In the order of the beliefs tokens grow; no token is granted twice.
//! - Nobody acts on a lock in which he does not believe any more, and nobody loses one before the
//!   time that he had for it is over.

use crate::said::{End, Grant, Said};
use std::collections::{BTreeMap, BTreeSet};

/// A process believed from then to then, in nanoseconds, that it holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Belief {
    pub(crate) grant: Grant,
    pub(crate) process: String,
    pub(crate) from: u64,
    pub(crate) until: u64,
}

impl Belief {
    /// Whether the process can have acted on it: a guard may be lost before its process goes on.
    pub(crate) fn is_empty(&self) -> bool {
        self.from >= self.until
    }
}

/// What one process believed, and did without believing. It was killed at `killed`.
pub(crate) fn of(process: &str, said: &[Said], killed: u64) -> (Vec<Belief>, Vec<String>) {
    let mut open: BTreeMap<Grant, Belief> = BTreeMap::new();
    let (mut done, mut wrongs) = (Vec::new(), Vec::new());
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
                    wrongs.push(format!("Late: {process} acted {late} ns after its {grant}"));
                }
                // No stranger takes locks away, and no server is lost.
                if *why != End::Release && *at < belief.until {
                    let early = belief.until - at;
                    wrongs.push(format!("Loss: {process} lost {grant} {early} ns too early"));
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
    (done, wrongs)
}

/// What is wrong with the beliefs of all processes.
pub(crate) fn check(mut beliefs: Vec<Belief>) -> Vec<String> {
    let mut wrongs = Vec::new();
    let mut tokens = BTreeSet::new();
    for belief in &beliefs {
        if !tokens.insert(belief.grant.clone()) {
            wrongs.push(format!("Token: {} was granted twice", belief.grant));
        }
    }
    beliefs.retain(|belief| !belief.is_empty());
    beliefs.sort_by(|a, b| (&a.grant.key, a.from).cmp(&(&b.grant.key, b.from)));
    let mut last: Option<&Belief> = None;
    for belief in &beliefs {
        let before = last.filter(|last| last.grant.key == belief.grant.key);
        if let Some(before) = before {
            if belief.from < before.until {
                let both = before.until.min(belief.until) - belief.from;
                wrongs.push(format!("Overlap: for {both} ns {before:?} and {belief:?}"));
            }
            if belief.grant.token <= before.grant.token {
                wrongs.push(format!("Token: {belief:?} is not above {before:?}"));
            }
        }
        // The one that lasts longest, of the same lock.
        last = Some(before.filter(|before| before.until > belief.until).unwrap_or(belief));
    }
    wrongs
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

    fn kinds(wrongs: &[String]) -> Vec<&str> {
        wrongs.iter().filter_map(|wrong| wrong.split(':').next()).collect()
    }

    #[test]
    fn one_after_the_other_is_right() {
        let beliefs = vec![belief("b", 2, 20, 30), belief("a", 1, 10, 20), belief("a", 3, 30, 40)];
        assert_eq!(check(beliefs), Vec::<String>::new());
    }

    #[test]
    fn two_at_once_are_found_also_inside_a_long_one() {
        let beliefs = vec![belief("a", 1, 10, 90), belief("b", 2, 20, 30), belief("c", 3, 80, 95)];
        assert_eq!(kinds(&check(beliefs)), ["Overlap", "Overlap"]);
    }

    #[test]
    fn what_nobody_can_have_acted_on_overlaps_with_nothing() {
        let beliefs = vec![belief("b", 2, 20, 30), belief("a", 1, 25, 25)];
        assert_eq!(check(beliefs), Vec::<String>::new());
    }

    #[test]
    fn locks_do_not_disturb_each_other() {
        let mut other = belief("b", 1, 15, 25);
        other.grant.key = "other".to_owned();
        assert_eq!(check(vec![belief("a", 1, 10, 20), other]), Vec::<String>::new());
    }

    #[test]
    fn tokens_that_do_not_grow_are_found() {
        let beliefs = vec![belief("a", 5, 10, 20), belief("b", 4, 20, 30)];
        assert_eq!(kinds(&check(beliefs)), ["Token"]);
        let twice = vec![belief("a", 5, 10, 20), belief("b", 5, 20, 30)];
        assert_eq!(kinds(&check(twice)), ["Token", "Token"]);
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
        let (beliefs, wrongs) = of("a", &said, 30);
        let ends: Vec<u64> = beliefs.iter().map(|belief| belief.until).collect();
        assert_eq!((ends, wrongs), (vec![20, 70, 30], vec![]));
    }

    #[test]
    fn who_acts_after_his_belief_or_loses_it_before_is_found() {
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
