//! Measures the time until observers of an election know the new leader. Two candidates lead in turn.

use crate::{Args, now};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::sleep;

/// Time between two changes: long enough that the next candidate is queued, and nothing is in flight.
const PAUSE: Duration = Duration::from_millis(150);

/// A candidate in the election.
pub trait Candidate {
    /// Campaigns until the candidate leads. Observers see the given number as the leader's value.
    fn lead(&mut self, number: u64) -> impl Future<Output = ()>;

    /// Resigns, and returns when the server has replied.
    fn resign(&mut self) -> impl Future<Output = ()>;
}

/// What an observer reports: the number of the leader, and the time at which the observer received it.
pub type Heard = (u64, u64);

/// Prints `ready`, and a line for each change. The line has the times until all observers, and until half of
/// them, knew the new leader. They are in nanoseconds from the moment at which the previous leader began to
/// resign.
pub async fn observe<C: Candidate>(
    args: &Args,
    version: &str,
    [mut leader, mut next]: [C; 2],
    mut heard: UnboundedReceiver<Heard>,
) -> ! {
    leader.lead(0).await;
    let observers: usize = args.number("tasks");
    all(&mut heard, observers, 0).await;
    println!("ready {version}");
    let go = tokio::task::spawn_blocking(|| std::io::stdin().lines().next().unwrap().unwrap());
    let go = go.await.unwrap();
    let end: u64 = go.rsplit(' ').next().unwrap().parse().unwrap();
    for number in 1.. {
        if now() >= end {
            break;
        }
        let resign = async {
            sleep(PAUSE).await;
            let begun = now();
            leader.resign().await;
            begun
        };
        let ((), begun) = tokio::join!(next.lead(number), resign);
        let mut moments = all(&mut heard, observers, number).await;
        moments.sort_unstable();
        let since = |place: usize| moments.get(place).map_or(0, |moment| moment - begun);
        println!("{} {}", since(observers - 1), since(observers / 2));
        std::mem::swap(&mut leader, &mut next);
    }
    println!("done");
    std::process::exit(0);
}

/// Waits until all observers have reported the leader with this number. Returns the reported times.
async fn all(heard: &mut UnboundedReceiver<Heard>, observers: usize, number: u64) -> Vec<u64> {
    let mut moments = Vec::new();
    while moments.len() < observers {
        let (of, moment) = heard.recv().await.unwrap();
        if of == number {
            moments.push(moment);
        }
    }
    moments
}
