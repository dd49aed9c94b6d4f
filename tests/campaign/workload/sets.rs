//! Sets of locks, each acquired as a whole or not at all. A set names its locks in any order. Some sets are a
//! single lock. Each lock of a set is judged like a single lock.

use super::{Tasks, Turn, Work};
use harness::history::{CallId, Outcome, Request};
use std::time::Duration;
use tokio::time::sleep;

/// Suffixes of the names of the locks. The prefix is a key of the round. If this key does not begin with a hash
/// tag, the whole key becomes the tag.
const BESIDE: [&str; 4] = ["a", "b", "c", "d"];

/// Returns the names of the locks for a key of the round. All are in the slot of the key.
fn names(key: &str) -> [String; 4] {
    let tagged = if key.starts_with('{') { key.to_owned() } else { format!("{{{key}}}") };
    BESIDE.map(|name| format!("{tagged}:{name}"))
}

pub(crate) const SETS: Work =
    Work { name: "sets", tasks: Tasks::Turns(|turn| Box::pin(turn.take_set())) };

impl Turn<'_> {
    /// Acquires one to three of the locks, all or none, and releases them.
    async fn take_set(self) {
        let Self { round, route, owner, random, .. } = self;
        let (recorder, log) = (&round.recorder, &round.log);
        let key = random.pick(&round.keys).clone();
        let mut names = names(&key);
        random.shuffle(&mut names);
        let count = 1 + usize::try_from(random.below(3)).unwrap_or_default();
        let Some((names, _)) = names.split_at_checked(count) else { return };
        let Some((first, others)) = names.split_first() else { return };
        let lease = Duration::from_millis(*random.pick(&round.leases_ms));
        let within = Duration::from_millis(20 + random.below(1500));
        let time = Duration::from_millis(random.below(30));
        let lock = route.client().lock(first).and(others.to_vec()).lease(lease);
        let request = Request::Acquire { lease, timeout: Some(within) };
        let calls: Vec<CallId> =
            names.iter().map(|name| recorder.sent(name, &owner, request.clone())).collect();
        let answered = |calls: &[CallId], outcome: Outcome| {
            calls.iter().for_each(|call| recorder.answered(*call, outcome));
        };
        let guard = match lock.acquire_within(within).await {
            Ok(Some(guard)) => guard,
            Ok(None) => return answered(&calls, Outcome::Refused),
            Err(trouble) => {
                answered(&calls, Outcome::Unknown);
                log.trouble("acquire a set", &trouble);
                return sleep(Duration::from_millis(5)).await;
            }
        };
        // The owner is new, so it held none of the locks, and all have the same token.
        let token = guard.token().value();
        answered(&calls, Outcome::Granted { token, holds: 1 });
        round.granted(&owner);
        log.add("sets of several locks granted", u64::from(count > 1));
        let end = recorder.now() + time;
        while recorder.now() < end && !guard.is_lost() {
            let until = recorder.now() + guard.lease_left();
            calls.iter().for_each(|call| recorder.believed(*call, until));
            sleep(Duration::from_millis(2)).await;
        }
        let release = |name: &String| recorder.sent(name, &owner, Request::Release);
        let releases: Vec<CallId> = names.iter().map(release).collect();
        if random.percent(20) {
            drop(guard);
            return answered(&releases, Outcome::Unknown);
        }
        match guard.release().await {
            Ok(()) => answered(&releases, Outcome::Released { left: 0 }),
            Err(trouble) => {
                answered(&releases, Outcome::Unknown);
                log.trouble("release a set", &trouble);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::names;

    /// Returns the part of a key that selects its slot.
    fn hashed(key: &str) -> &str {
        let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
        tag.map_or(key, |(tag, _)| tag)
    }

    #[test]
    fn the_locks_of_a_set_are_in_the_slot_of_their_key() {
        for key in ["r1", "{moved}r1"] {
            assert!(names(key).iter().all(|name| hashed(name) == hashed(key)), "{key}");
        }
    }
}
