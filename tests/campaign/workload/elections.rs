//! Elections: one candidate leads at a time, terms grow, and no observer sees a smaller term after a larger
//! one.

use super::hold::take_turn;
use super::{HoldKind, Tasks, Turn, Work};
use crate::round::Round;
use crate::suites::Promises;
use kvlock::Observer;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Number of tasks between two observers. These tasks are candidates.
const ONE_OF: usize = 6;

/// Longest time for which an observer waits for a change before it checks whether the round is over.
const TURN: Duration = Duration::from_millis(50);

pub(crate) const ELECTIONS: Work =
    Work { name: "elections", tasks: Tasks::Turns(|turn| Box::pin(lead_or_observe(turn))) };

async fn lead_or_observe(Turn { round, route, number, owner, random }: Turn<'_>) {
    // Tasks are assigned to the ways in turn. No number of ways is a multiple of seven, so the observers are on
    // different ways.
    if number % (ONE_OF + 1) != 0 {
        return take_turn(round, route, owner, random, |_| HoldKind::Leader).await;
    }
    let key = random.pick(&round.keys);
    match route.client().election(key).observe().await {
        Ok(observer) => watch(round, key, observer, number, random.below(60)).await,
        Err(trouble) => {
            round.log.trouble("observe", &trouble);
            sleep(TURN).await;
        }
    }
}

/// Observes for at most `turns` turns, so that new observers appear now and then.
async fn watch(round: &Round, key: &str, mut observer: Observer, number: usize, turns: u64) {
    let mut last = observer.leader();
    for _ in 0..turns {
        if round.is_over() {
            return;
        }
        if let Ok(leader) = timeout(TURN, observer.changed()).await {
            round.log.add("leaders observed", u64::from(leader.is_some()));
            if let (Some(before), Some(now)) = (&last, &leader) {
                let is_next =
                    now.term > before.term || now.term == before.term && now.owner == before.owner;
                if !is_next {
                    let what = format!("Observed: {key}: {now:?} after {before:?}");
                    round.log.broken("terms that went back", Promises::NoOverlap, what);
                }
            }
            last = leader.or(last);
        }
        round.turns[number].fetch_add(1, Ordering::SeqCst);
    }
}
