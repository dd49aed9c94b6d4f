//! What it costs a process to keep many locks.

use harness::Server;
use kvlock::{Client, Guard};
use nix::sys::resource::{UsageWho, getrusage};
use std::time::{Duration, Instant};

/// Each lock is renewed two or three times in it.
const WATCHED: Duration = Duration::from_secs(25);

pub(crate) async fn measure(server: &Server) {
    println!("keeping locks with leases of 30 s, share of one core of the holder's process\n");
    for many in [1_000, 10_000, 100_000] {
        let client = Client::connect(server.url()).await.unwrap();
        let guards = acquire(&client, many).await;
        let (wall, used) = (Instant::now(), cpu());
        tokio::time::sleep(WATCHED).await;
        let share = (cpu() - used).as_secs_f64() / wall.elapsed().as_secs_f64();
        let lost = guards.iter().filter(|guard| guard.is_lost()).count();
        println!("{many:>7} locks  {:5.2} %   {lost} lost", 100.0 * share);
        drop(guards);
        client.settled().await;
    }
}

async fn acquire(client: &Client, many: usize) -> Vec<Guard> {
    let tasks: Vec<_> = (0..100)
        .map(|task| {
            let client = client.clone();
            tokio::spawn(async move {
                let mut guards = Vec::new();
                for number in 0..many / 100 {
                    guards.push(client.lock(format!("{task}:{number}")).acquire().await.unwrap());
                }
                guards
            })
        })
        .collect();
    let mut guards = Vec::new();
    for task in tasks {
        guards.extend(task.await.unwrap());
    }
    guards
}

/// The processor time that this process has used.
fn cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
    [usage.user_time(), usage.system_time()]
        .map(|time| {
            let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
            Duration::new(seconds, 0)
                + Duration::from_micros(u64::try_from(time.tv_usec()).unwrap_or(0))
        })
        .iter()
        .sum()
}
