//! Acquire and release, through the crate and as the same two commands over plain redis-rs.

use crate::figures::Spread;
use harness::Server;
use kvlock::{Client, LockCommands as _};
use redis::IntoConnectionInfo as _;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use std::time::{Duration, Instant};

const ROUNDS: usize = 15;
const TURN: Duration = Duration::from_millis(1000);
const LEASE: Duration = Duration::from_secs(30);

/// The crate sets `TCP_NODELAY`, which redis-rs by itself does not: without it small commands of
/// many tasks travel together, and each of them waits for an acknowledgement.
pub(crate) async fn measure(server: &Server) {
    println!("acquire + release, cycles per second, median of {ROUNDS} turns (least–most)\n");
    let client = Client::connect(server.url()).await.unwrap();
    let (prompt, plain) = (connect(server, true).await, connect(server, false).await);
    for tasks in [1, 64] {
        let mut figures = [Vec::new(), Vec::new(), Vec::new()];
        let mut ratios = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            let ours = per_second(tasks, |task| by_crate(client.clone(), task)).await;
            let by_prompt = per_second(tasks, |task| by_hand(prompt.clone(), task)).await;
            let by_plain = per_second(tasks, |task| by_hand(plain.clone(), task)).await;
            for (all, one) in figures.iter_mut().zip([ours, by_prompt, by_plain]) {
                all.push(one);
            }
            for (all, one) in ratios.iter_mut().zip([by_prompt / ours, by_plain / ours]) {
                all.push(one);
            }
        }
        let [ours, by_prompt, by_plain] = figures.map(Spread::of);
        let [to_prompt, to_plain] = ratios.map(Spread::of);
        println!("{tasks:>3} tasks  kvlock                     {ours}");
        println!(
            "           redis-rs with TCP_NODELAY  {by_prompt}  kvlock takes {:.2} times as long",
            to_prompt.median
        );
        println!(
            "           redis-rs by default        {by_plain}  kvlock takes {:.2} times as long\n",
            to_plain.median
        );
    }
}

async fn connect(server: &Server, nodelay: bool) -> MultiplexedConnection {
    let tcp = TcpSettings::default().set_nodelay(nodelay);
    let address = server.url().into_connection_info().unwrap().set_tcp_settings(tcp);
    let redis = redis::Client::open(address).unwrap();
    redis.get_multiplexed_async_connection().await.unwrap()
}

/// Cycles per second of so many tasks, each on a lock of its own, for one turn.
async fn per_second<F>(tasks: usize, cycles: impl Fn(usize) -> F) -> f64
where
    F: Future<Output = u32> + Send + 'static,
{
    let start = Instant::now();
    let running: Vec<_> = (0..tasks).map(|task| tokio::spawn(cycles(task))).collect();
    let mut done = 0.0;
    for task in running {
        done += f64::from(task.await.unwrap());
    }
    done / start.elapsed().as_secs_f64()
}

async fn by_crate(client: Client, task: usize) -> u32 {
    let lock = client.lock(format!("crate:{task}"));
    let (start, mut cycles) = (Instant::now(), 0);
    while start.elapsed() < TURN {
        lock.acquire().await.unwrap().release().await.unwrap();
        cycles += 1;
    }
    cycles
}

async fn by_hand(mut connection: MultiplexedConnection, task: usize) -> u32 {
    let (key, owner) = (format!("plain:{task}"), format!("owner:{task}"));
    let (start, mut cycles) = (Instant::now(), 0);
    while start.elapsed() < TURN {
        connection.lock_acquire_to_holds(&key, &owner, LEASE, 1).await.unwrap().unwrap();
        connection.lock_release_all(&key, &owner).await.unwrap().unwrap();
        cycles += 1;
    }
    cycles
}
