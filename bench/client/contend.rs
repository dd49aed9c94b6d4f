//! Ten processes that want one lock all the time.

use harness::Server;
use kvlock::Client;
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PROCESSES: usize = 10;
const TURN: Duration = Duration::from_secs(5);

pub(crate) fn measure(server: &Server) {
    let start = || {
        Command::new(std::env::current_exe().unwrap())
            .args(["contender", &server.url()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let processes: Vec<_> = (0..PROCESSES).map(|_| start()).collect();
    let mut cycles: Vec<u64> = Vec::new();
    for mut process in processes {
        let mut said = String::new();
        process.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        process.wait().unwrap();
        cycles.push(said.trim().parse().unwrap());
    }
    cycles.sort_unstable();
    let seconds = TURN.as_secs();
    let all: u64 = cycles.iter().sum();
    println!("{PROCESSES} processes on one lock: {} cycles per second in all;", all / seconds);
    println!(
        "the one with the fewest had {:?} cycles in {seconds} s, the one with the most {:?}\n",
        cycles.first().unwrap(),
        cycles.last().unwrap()
    );
}

/// One of them.
pub(crate) async fn contender(url: &str) {
    let client = Client::connect(url).await.unwrap();
    let lock = client.lock("wanted");
    let (start, mut cycles) = (Instant::now(), 0);
    while start.elapsed() < TURN {
        lock.acquire().await.unwrap().release().await.unwrap();
        cycles += 1;
    }
    println!("{cycles}");
}
