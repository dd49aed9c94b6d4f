//! The tasks: they warm up, start together, and record the times of their cycles.

use crate::{Args, Session, now};
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc, watch};

/// Times of a cycle: request, grant, release, and the reply to the release; 0 for events that have not
/// happened.
type Cycle = [u64; 4];

#[derive(Clone, Copy, Default)]
struct Span {
    start: u64,
    end: u64,
}

struct Task<S> {
    number: usize,
    session: S,
    args: Args,
    cycles: Arc<Mutex<Vec<Cycle>>>,
    /// The task of this process that got a lock last.
    newest_owner: Arc<AtomicUsize>,
    /// Sends the time at which the task got its lock, with `mode=keep`.
    kept: mpsc::UnboundedSender<u64>,
    /// Limits the number of tasks that acquire at the same time, with `mode=keep`.
    turns: Arc<Semaphore>,
}

/// Runs one task for each session, prints the records, and ends the process. With `mode=keep`, prints the
/// times of the first and the last grant instead, and does not end the process.
pub async fn drive<S: Session>(args: Args, version: &str, sessions: Vec<S>) -> ! {
    let (go, started) = watch::channel(Span::default());
    let (warm, mut warmed) = mpsc::unbounded_channel();
    let (kept, mut keeping) = mpsc::unbounded_channel();
    let newest_owner = Arc::new(AtomicUsize::new(usize::MAX));
    let keeps = args.text("mode") == "keep";
    let at_once = if keeps { args.number("at_once") } else { 0 };
    let turns = Arc::new(Semaphore::new(at_once));
    let mut records = Vec::new();
    for (number, session) in sessions.into_iter().enumerate() {
        let cycles = Arc::new(Mutex::new(Vec::new()));
        records.push(Arc::clone(&cycles));
        let (args, newest_owner) = (args.clone(), Arc::clone(&newest_owner));
        let (kept, turns) = (kept.clone(), Arc::clone(&turns));
        let task = Task { number, session, args, cycles, newest_owner, kept, turns };
        tokio::spawn(task.live(warm.clone(), started.clone()));
    }
    drop(warm);
    while warmed.recv().await.is_some() {}
    println!("ready {version}");

    let line = tokio::task::spawn_blocking(|| std::io::stdin().lines().next().unwrap().unwrap());
    let line = line.await.unwrap();
    let mut words = line.split(' ').skip(1).map(|word| word.parse().unwrap());
    let span = Span { start: words.next().unwrap(), end: words.next().unwrap() };
    go.send_replace(span);
    if keeps {
        let mut moments = Vec::new();
        while moments.len() < records.len() {
            keeping.recv_many(&mut moments, records.len()).await;
        }
        let [first, last] = [moments.iter().min(), moments.iter().max()].map(Option::unwrap);
        println!("{first} {last}");
        std::future::pending::<()>().await;
    }
    until(span.end).await;
    // Prints only after the measurement, because printing takes processor time.
    print(&records);
    std::process::exit(0);
}

fn print(records: &[Arc<Mutex<Vec<Cycle>>>]) {
    let mut text = String::new();
    for (task, cycles) in records.iter().enumerate() {
        for [wanted, got, releasing, released] in cycles.lock().unwrap().iter() {
            writeln!(text, "{task} {wanted} {got} {releasing} {released}").unwrap();
        }
    }
    text.push_str("done\n");
    std::io::stdout().write_all(text.as_bytes()).unwrap();
}

impl<S: Session> Task<S> {
    /// Warms up, drops `warm`, and acquires and releases locks when the measurement starts.
    async fn live(mut self, warm: mpsc::UnboundedSender<()>, mut started: watch::Receiver<Span>) {
        let process = self.args.text("process");
        let own = format!("{}:warm:{process}:{}", self.args.text("key"), self.number);
        let length = Duration::from_millis(self.args.number("warm_ms"));
        let begun = Instant::now();
        loop {
            let held = self.session.acquire(&own).await;
            self.session.release(held).await;
            if begun.elapsed() >= length {
                break;
            }
        }
        drop(warm);
        let span = *started.wait_for(|span| span.end > 0).await.unwrap();
        until(span.start).await;
        if self.args.text("mode") == "keep" {
            return self.keep().await;
        }
        self.cycle_until(span.end).await;
    }

    /// Acquires the lock, and holds it until the process is killed.
    async fn keep(&mut self) {
        let keys = self.args.number::<usize>("keys");
        let key = format!("{}:{}", self.args.text("key"), self.number % keys);
        let turn = self.turns.acquire().await;
        let _held = self.session.acquire(&key).await;
        drop(turn);
        self.kept.send(now()).unwrap();
        std::future::pending::<()>().await;
    }

    async fn cycle_until(&mut self, end: u64) {
        let keys = self.args.number::<usize>("keys");
        let key = format!("{}:{}", self.args.text("key"), self.number % keys);
        let (hold, think): (u64, u64) = (self.args.number("hold_us"), self.args.number("think_us"));
        let (abandons, yields) = (self.args.is_no("release"), self.args.is_yes("yields"));
        while now() < end {
            self.cycles.lock().unwrap().push([now(), 0, 0, 0]);
            let held = self.session.acquire(&key).await;
            self.note(1);
            self.newest_owner.store(self.number, Ordering::Relaxed);
            if hold > 0 {
                until(now() + hold * 1_000).await;
            }
            self.note(2);
            if abandons {
                self.session.abandon(held);
            } else {
                self.session.release(held).await;
            }
            self.note(3);
            while yields && self.newest_owner.load(Ordering::Relaxed) == self.number {
                until(now() + 100_000).await;
            }
            if think > 0 {
                until(now() + think * 1_000).await;
            }
        }
    }

    fn note(&self, what: usize) {
        if let Some(moment) = self.cycles.lock().unwrap().last_mut().and_then(|c| c.get_mut(what)) {
            *moment = now();
        }
    }
}

/// Sleeps until [`now`] reaches the given moment. Timers of tokio are rounded up to milliseconds; this timer
/// is not.
async fn until(moment: u64) {
    let left = Duration::from_nanos(moment.saturating_sub(now()));
    if !left.is_zero() {
        tokio_timerfd::sleep(left).await.unwrap();
    }
}
