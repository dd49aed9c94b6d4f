//! Users that acquire a set of locks with one command. They send their commands without the crate. Each visit
//! (an acquire, work and a release) has its own owner and connection.

use crate::settings::Scene;
use crate::sim::Sim;
use crate::wire::{ClientId, Key, key_name, result_name};
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::time::{sleep, timeout};

/// A reply of the server.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Number(u64),
    Text(Vec<u8>),
    Nil,
    Error,
    List(Vec<Self>),
}

/// A connection to the server that the client treats as the primary.
struct Line(BufReader<DuplexStream>);

impl Line {
    /// Sends a command and waits for its reply. `None` if the connection is lost.
    async fn ask(&mut self, words: &[String]) -> Option<Said> {
        let mut bytes = format!("*{}\r\n", words.len());
        for word in words {
            bytes.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.0.write_all(bytes.as_bytes()).await.ok()?;
        self.hear().await
    }

    async fn hear(&mut self) -> Option<Said> {
        // The lists that are not complete, each with the number of elements that it still gets.
        let mut open: Vec<(usize, Vec<Said>)> = Vec::new();
        loop {
            let mut said = match self.hear_one().await? {
                (count, None) if count > 0 => {
                    open.push((count, Vec::new()));
                    continue;
                }
                (_, said) => said.unwrap_or(Said::List(Vec::new())),
            };
            loop {
                let Some((left, list)) = open.last_mut() else { return Some(said) };
                list.push(said);
                *left -= 1;
                if *left > 0 {
                    break;
                }
                said = Said::List(std::mem::take(list));
                open.pop();
            }
        }
    }

    /// Reads one element, or the length of a list whose elements follow.
    async fn hear_one(&mut self) -> Option<(usize, Option<Said>)> {
        let mut line = String::new();
        self.0.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
        let line = line.trim_end();
        let (kind, rest) = line.split_at_checked(1)?;
        let said = match kind {
            "*" => return Some((rest.parse().ok()?, None)),
            ":" => Said::Number(rest.parse().ok()?),
            "+" => Said::Text(rest.into()),
            "$" if rest == "-1" => Said::Nil,
            "$" => {
                let mut bytes = vec![0; rest.parse::<usize>().ok()? + 2];
                self.0.read_exact(&mut bytes).await.ok()?;
                bytes.truncate(bytes.len() - 2);
                Said::Text(bytes)
            }
            _ => Said::Error,
        };
        Some((0, Some(said)))
    }
}

/// A user that acquires sets of locks.
struct Me {
    sim: Rc<Sim>,
    id: ClientId,
}

/// The request of a visit.
struct Wish {
    owner: String,
    lease_ms: u64,
    first: Key,
    /// `WITH`, `UNDER` and `SHARED`, with their keys.
    options: Vec<String>,
    /// Lifetime of the result, if the visit wants the locks only while there is no result.
    result_ms: Option<u64>,
}

impl Wish {
    fn command(&self, name: &str, numbers: &[u64], options: &[&str]) -> Vec<String> {
        let mut words = vec![name.to_owned(), key_name(self.first), self.owner.clone()];
        words.extend(numbers.iter().map(u64::to_string));
        words.extend(options.iter().map(|word| (*word).to_owned()));
        words.extend(self.options.iter().cloned());
        let result = result_name(self.first);
        match (name, self.result_ms) {
            ("LOCK.ACQUIRE" | "LOCK.WAIT", Some(_)) => words.extend(["UNLESS".to_owned(), result]),
            ("LOCK.RELEASE", Some(lifetime)) => {
                let store = ["STORE".to_owned(), result, self.owner.clone(), "PX".to_owned()];
                words.extend(store.into_iter().chain([lifetime.to_string()]));
            }
            _ => {}
        }
        words
    }
}

impl Sim {
    pub(super) fn begin_life_of_sets(self: &Rc<Self>, id: ClientId) {
        debug_assert_eq!(self.plan.scene, Scene::Sets);
        let me = Me { sim: Rc::clone(self), id };
        self.spawn_user(id, me.live());
    }

    fn draw_wish(&self) -> Wish {
        let mut keys: Vec<_> = (0..self.plan.keys).collect();
        for at in (1..keys.len()).rev() {
            keys.swap(at, self.below(at as u64 + 1) as usize);
        }
        let half = self.plan.lease_ms / 2;
        let number = {
            let counts = &mut self.judge.borrow_mut().counts;
            counts.sets_wanted += 1;
            counts.sets_wanted
        };
        let mut options = Vec::new();
        let last = match self.below(10) {
            // A single lock instead of a set.
            0 | 1 => 1,
            2..=6 => 2,
            _ => 3,
        };
        let with = if self.percent(50) { 1 + self.below(last as u64) as usize } else { last };
        for (word, keys) in [("WITH", &keys[1..with.max(1)]), ("UNDER", &keys[with.max(1)..last])] {
            if !keys.is_empty() {
                options.extend([word.to_owned(), keys.len().to_string()]);
                options.extend(keys.iter().map(|key| key_name(*key)));
            }
        }
        if self.percent(25) {
            options.push("SHARED".to_owned());
        }
        let lease_ms = half + self.below(half);
        let result_ms = self.percent(40).then(|| 1 + self.below(2_000));
        Wish { owner: format!("set {number}"), lease_ms, first: keys[0], options, result_ms }
    }
}

impl Me {
    async fn live(self) {
        while !self.sim.calm.get() {
            self.sim.rest(300_000).await;
            let wish = self.sim.draw_wish();
            let patience = Duration::from_millis(self.sim.below(3_000));
            let gives_up = self.sim.percent(15);
            let visit = self.visit(&wish);
            // If the future is dropped, its connection closes.
            let held =
                if gives_up { timeout(patience, visit).await.ok().flatten() } else { visit.await };
            if held.is_none() && self.sim.percent(70) {
                self.clean_up(&wish).await;
            }
        }
    }

    fn connect(&self) -> Option<Line> {
        let server = self.sim.home_of(self.id);
        self.sim.connect(self.id, server).map(|stream| Line(BufReader::new(stream)))
    }

    /// Acquires all locks, works, and releases them. `None` if locks may still be held, or the wait may still
    /// be queued.
    async fn visit(&self, wish: &Wish) -> Option<()> {
        let sim = &self.sim;
        let mut line = self.connect()?;
        let timeout_ms = if sim.percent(50) { 0 } else { 1 + sim.below(4_000) };
        let numbers = [wish.lease_ms, timeout_ms];
        let granted = match sim.below(10) {
            0 | 1 => line.ask(&wish.command("LOCK.ACQUIRE", &numbers[..1], &[])).await?,
            2..=5 => line.ask(&wish.command("LOCK.WAIT", &numbers, &[])).await?,
            _ => self.wait_through_session(&mut line, wish, &numbers).await?,
        };
        if granted == Said::Error {
            return None;
        }
        if !matches!(granted, Said::List(_)) {
            return Some(());
        }
        // Some visits last longer than the lease, and then release locks that may have been lost.
        let longest = if sim.percent(15) { wish.lease_ms * 2 } else { wish.lease_ms / 2 };
        let work = sim.below(longest);
        sleep(Duration::from_millis(work)).await;
        if sim.percent(40) {
            let renewed = line.ask(&wish.command("LOCK.RENEW", &[wish.lease_ms], &[])).await?;
            if renewed == Said::Nil {
                return None;
            }
            sleep(Duration::from_millis(work / 2)).await;
        }
        line.ask(&wish.command("LOCK.RELEASE", &[], &[])).await.map(drop)
    }

    /// Opens a session, waits through it, and returns the outcome.
    async fn wait_through_session(
        &self,
        line: &mut Line,
        wish: &Wish,
        numbers: &[u64],
    ) -> Option<Said> {
        let open = ["SESSION.OPEN".to_owned(), (400 + self.sim.below(3_000)).to_string()];
        let Said::List(opened) = line.ask(&open).await? else { return Some(Said::Error) };
        let Some(Said::Text(name)) = opened.first() else { return Some(Said::Error) };
        let name = String::from_utf8_lossy(name).into_owned();
        for _ in 0..if self.sim.percent(20) { 2 } else { 1 } {
            let said = line.ask(&wish.command("LOCK.WAIT", numbers, &["SESSION", &name])).await?;
            let queued = Said::Text(b"queued".into());
            if !matches!(&said, Said::List(said) if said.first() == Some(&queued)) {
                return Some(said);
            }
        }
        loop {
            let next = ["SESSION.NEXT", &name, "0", "500"].map(str::to_owned);
            let Said::List(said) = line.ask(&next).await? else { return Some(Said::Error) };
            let Some(Said::List(outcomes)) = said.into_iter().nth(1) else {
                return Some(Said::Error);
            };
            if let Some(Said::List(outcome)) = outcomes.into_iter().next() {
                let granted = outcome.contains(&Said::Text(b"granted".into()));
                return Some(if granted { Said::List(outcome) } else { Said::Nil });
            }
        }
    }

    /// Cancels the wait, and releases locks that may be held.
    async fn clean_up(&self, wish: &Wish) -> Option<()> {
        let mut line = self.connect()?;
        let cancel = ["LOCK.CANCEL".to_owned(), key_name(wish.first), wish.owner.clone()];
        line.ask(&cancel).await?;
        line.ask(&wish.command("LOCK.RELEASE", &[], &[])).await.map(drop)
    }
}
