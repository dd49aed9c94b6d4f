//! Four clients contend for one lock; what happens is printed as it happens.
//!
//! ```text
//! cargo run -p kvlock --example contend -- redis://127.0.0.1:6379/
//! ```
//!
//! `scripts/run` starts a server with the module and runs this against it. The printed times are
//! measured; tokens, holds and positions are from replies of the server.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a timeline on the terminal is all it is for"
)]

use kvlock::{AsyncLockCommands, Grant, Token};
use redis::aio::MultiplexedConnection;
use std::error::Error;
use std::fmt::Display;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::sleep;

const KEY: &str = "orders:42";
const LEASE: Duration = Duration::from_secs(10);
const SHORT_LEASE: Duration = Duration::from_millis(500);
/// Pause between the scenes, so that a reader can follow the output.
const BREATH: Duration = Duration::from_millis(250);

type Outcome<T> = Result<T, Box<dyn Error>>;

// On one thread, so that the measured times do not include the wake-up of other threads.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let url = std::env::args().nth(1);
    match play(url.as_deref().unwrap_or("redis://127.0.0.1:6379/")).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            eprintln!("contend: {trouble}");
            ExitCode::FAILURE
        }
    }
}

async fn play(url: &str) -> Outcome<()> {
    let client = redis::Client::open(url)?;
    // A wait has no time limit, so redis-rs must not apply its response timeout.
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let connect = || client.get_multiplexed_async_connection_with_config(&config);
    let alice = connect().await?;
    let (bob, carol, dave) = (connect().await?, connect().await?, connect().await?);
    let observer = connect().await?;

    println!("\nalice, bob, carol and dave want the lock `{KEY}`.");
    println!("\n      time  who    what\n");
    let mut stage = Stage {
        timeline: Timeline { start: Instant::now() },
        observer,
        store: Store { latest: None },
    };

    stage.one_holds_it(alice.clone(), bob.clone()).await?;
    let waits = stage.the_others_queue([bob.clone(), carol, dave.clone()]).await?;
    let [bob_waits, carol_waits, dave_waits] = waits;
    sleep(BREATH).await;
    let bobs = stage.release_hands_off(alice, bob_waits).await?;
    sleep(BREATH).await;
    stage.a_waiter_is_cancelled(carol_waits).await?;
    sleep(BREATH).await;
    let daves = stage.a_holder_freezes(bob.clone(), bobs, dave_waits).await?;
    sleep(BREATH).await;
    stage.the_frozen_one_comes_back(bob, bobs, daves).await?;
    stage.the_end(dave).await?;
    Ok(())
}

/// A task that waits for the lock. Returns the time and the content of the reply.
type Wait = JoinHandle<(Instant, redis::RedisResult<Option<Grant>>)>;

struct Stage {
    timeline: Timeline,
    observer: MultiplexedConnection,
    store: Store,
}

impl Stage {
    async fn one_holds_it(
        &mut self,
        mut alice: MultiplexedConnection,
        mut bob: MultiplexedConnection,
    ) -> Outcome<()> {
        let Some(first) = alice.lock_acquire(KEY, "alice", LEASE).await? else {
            return Err(format!("`{KEY}` is held already: give this a server of its own").into());
        };
        self.say("alice", format_args!("acquires: {}", told(first)));

        let again = alice.lock_acquire(KEY, "alice", LEASE).await?;
        let again = again.ok_or("a holder was refused")?;
        let same = if again.token == first.token { "same" } else { "ANOTHER" };
        self.say("alice", format_args!("acquires again: {same} token, {}", times(again.holds)));

        match bob.lock_acquire(KEY, "bob", LEASE).await? {
            None => self.say("bob", "tries: refused, it is held"),
            Some(grant) => return Err(format!("two hold it: bob too, {}", told(grant)).into()),
        }
        Ok(())
    }

    async fn the_others_queue(&mut self, cons: [MultiplexedConnection; 3]) -> Outcome<[Wait; 3]> {
        let [bob, carol, dave] = cons;
        Ok([
            self.queue_up("bob", bob).await?,
            self.queue_up("carol", carol).await?,
            self.queue_up("dave", dave).await?,
        ])
    }

    async fn queue_up(
        &mut self,
        who: &'static str,
        mut con: MultiplexedConnection,
    ) -> Outcome<Wait> {
        let wait = tokio::spawn(async move {
            let answer = con.lock_wait(KEY, who, LEASE, None).await;
            (Instant::now(), answer)
        });
        let position = self.position(who).await?;
        self.say(who, format_args!("waits: number {position} in the queue"));
        Ok(wait)
    }

    /// Returns the waiter's place in the queue, as soon as the server lists the waiter.
    async fn position(&mut self, who: &str) -> Outcome<usize> {
        for _ in 0..1000 {
            let info = self.observer.lock_info_waiters(KEY, 10).await?;
            let mut queue = info.queue.iter();
            if let Some(index) = queue.position(|waiter| waiter.owner == who.as_bytes()) {
                return Ok(index + 1);
            }
            sleep(Duration::from_millis(1)).await;
        }
        Err(format!("{who} is not in the queue").into())
    }

    async fn release_hands_off(
        &mut self,
        mut alice: MultiplexedConnection,
        bob: Wait,
    ) -> Outcome<Grant> {
        let left = alice.lock_release(KEY, "alice").await?;
        let left = left.ok_or("alice lost the lock")?;
        self.say("alice", format_args!("releases: {} left, still hers", times(left)));

        let before = Instant::now();
        let left = alice.lock_release(KEY, "alice").await?;
        let answered = Instant::now();
        let (granted, grant) = granted(bob).await?;
        let micros = granted.duration_since(before).as_micros();
        // The server sends both replies at the same time, and either can arrive first.
        self.timeline.say_at(
            answered.min(granted),
            "alice",
            format_args!("releases: {} left, handed off", times(left.unwrap_or_default())),
        );
        self.timeline.say_at(
            granted,
            "bob",
            format_args!("is {}, {micros} µs after alice sent her release", told(grant)),
        );
        Ok(grant)
    }

    async fn a_waiter_is_cancelled(&mut self, carol: Wait) -> Outcome<()> {
        if !self.observer.lock_cancel(KEY, "carol").await? {
            return Err("carol was not in the queue".into());
        }
        let (at, answer) = carol.await?;
        if answer?.is_some() {
            return Err("a cancelled wait was granted".into());
        }
        self.timeline.say_at(at, "carol", "is cancelled: her wait ends with nothing");
        let position = self.position("dave").await?;
        self.say("dave", format_args!("moves up: number {position} in the queue"));
        Ok(())
    }

    async fn a_holder_freezes(
        &mut self,
        mut bob: MultiplexedConnection,
        grant: Grant,
        dave: Wait,
    ) -> Outcome<Grant> {
        self.write("bob", grant.token);
        let before = Instant::now();
        let lease = bob.lock_renew(KEY, "bob", SHORT_LEASE).await?;
        let lease = lease.ok_or("bob lost the lock")?;
        self.say("bob", format_args!("renews: the lease is {} ms now", lease.as_millis()));
        self.say("bob", "freezes, as a paused machine does: no more renewals");

        let (granted, grant) = granted(dave).await?;
        // The lease began after `before`, so the real delay is not longer than `late`.
        let late = granted.duration_since(before + lease).as_secs_f64() * 1000.0;
        self.timeline.say_at(
            granted,
            "dave",
            format_args!("is {}, {late:.1} ms after bob's lease ended", told(grant)),
        );
        Ok(grant)
    }

    async fn the_frozen_one_comes_back(
        &mut self,
        mut bob: MultiplexedConnection,
        bobs: Grant,
        daves: Grant,
    ) -> Outcome<()> {
        self.write("dave", daves.token);
        self.say("bob", "wakes up and does not know yet what he missed");
        self.write("bob", bobs.token);
        match bob.lock_renew(KEY, "bob", LEASE).await? {
            None => self.say("bob", "renews: refused, he holds it no more"),
            Some(_) => return Err("an owner whose lease had ended could renew it".into()),
        }
        Ok(())
    }

    async fn the_end(&mut self, mut dave: MultiplexedConnection) -> Outcome<()> {
        let left = dave.lock_release(KEY, "dave").await?;
        let left = left.ok_or("dave lost the lock")?;
        self.say("dave", format_args!("releases: {} left, the lock is free", times(left)));
        println!();
        Ok(())
    }

    fn write(&mut self, who: &'static str, token: Token) {
        let verdict = match self.store.write(who, token) {
            Ok(()) => String::from("accepted"),
            Err(latest) => format!("REFUSED by the store, which has seen …{}", tail(latest)),
        };
        self.say(who, format_args!("writes order 42 with token …{}: {verdict}", tail(token)));
    }

    fn say(&self, who: &str, what: impl Display) {
        self.timeline.say_at(Instant::now(), who, what);
    }
}

/// The resource that the lock protects. It remembers the largest token that it has seen, and refuses
/// smaller tokens, and an equal token of another owner.
struct Store {
    latest: Option<(Token, &'static str)>,
}

impl Store {
    fn write(&mut self, owner: &'static str, token: Token) -> Result<(), Token> {
        match self.latest {
            Some((latest, by)) if token < latest || token == latest && owner != by => Err(latest),
            Some(_) | None => {
                self.latest = Some((token, owner));
                Ok(())
            }
        }
    }
}

struct Timeline {
    start: Instant,
}

impl Timeline {
    fn say_at(&self, at: Instant, who: &str, what: impl Display) {
        let millis = at.duration_since(self.start).as_secs_f64() * 1000.0;
        println!("{millis:7.1} ms  {who:<5}  {what}");
    }
}

async fn granted(wait: Wait) -> Outcome<(Instant, Grant)> {
    let (at, answer) = wait.await?;
    Ok((at, answer?.ok_or("a wait without limit ended without a grant")?))
}

fn told(grant: Grant) -> String {
    format!("granted, token {}, {}", grant.token, times(grant.holds))
}

fn times(holds: u64) -> String {
    let plural = if holds == 1 { "" } else { "s" };
    format!("{holds} hold{plural}")
}

/// The last digits of a token: enough to tell two apart.
fn tail(token: Token) -> String {
    format!("{:08}", token.value() % 100_000_000)
}
