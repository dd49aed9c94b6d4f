//! The one task that looks after what quorums hold: it asks the servers that do not hold a lock
//! again, and notices a loss that nobody looks for. Renewing is up to the watchdogs of the servers'
//! clients.

use super::Servers;
use super::attempt::Attempt;
use super::held::Held;
use crate::sync::{Mutex, lock};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

/// Between two looks at a lock: a tenth of its lease, within these.
const LEAST: Duration = Duration::from_millis(10);
const MOST: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct Keeper {
    agenda: Mutex<Agenda>,
    woken: Notify,
    task: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Agenda {
    entries: Vec<Entry>,
    closed: bool,
}

struct Entry {
    held: Weak<Held>,
    servers: Weak<Servers>,
    at: Instant,
    every: Duration,
}

type Due = (Arc<Servers>, Arc<Held>);

impl Keeper {
    /// Looks after it for as long as it is held.
    pub(crate) fn keep(self: &Arc<Self>, servers: &Arc<Servers>, held: &Arc<Held>) {
        let every = (held.term.length / 10).clamp(LEAST, MOST);
        let (held, servers) = (Arc::downgrade(held), Arc::downgrade(servers));
        lock(&self.agenda).entries.push(Entry { held, servers, at: Instant::now() + every, every });
        self.woken.notify_one();
        let mut task = lock(&self.task);
        if task.as_ref().is_none_or(JoinHandle::is_finished)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            *task = Some(runtime.spawn(self.clone().run()));
        }
    }

    /// Ends the task.
    pub(crate) fn close(&self) {
        lock(&self.agenda).closed = true;
        self.woken.notify_one();
    }

    async fn run(self: Arc<Self>) {
        loop {
            let (due, next) = {
                let mut agenda = lock(&self.agenda);
                if agenda.closed {
                    return;
                }
                agenda.due(Instant::now())
            };
            for (servers, held) in due {
                if held.is_alive() {
                    complete(&servers, &held);
                }
            }
            let pause = async {
                match next {
                    Some(next) => sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = pause => {}
                () = self.woken.notified() => {}
            }
        }
    }
}

impl Agenda {
    /// What is to be looked at now, and when to come back.
    fn due(&mut self, now: Instant) -> (Vec<Due>, Option<Instant>) {
        self.entries.retain(|entry| entry.held.strong_count() > 0);
        let due = self.entries.iter_mut().filter(|entry| entry.at <= now).filter_map(|entry| {
            entry.at = now + entry.every;
            Some((entry.servers.upgrade()?, entry.held.upgrade()?))
        });
        let due = due.collect();
        (due, self.entries.iter().map(|entry| entry.at).min())
    }
}

/// Asks the servers that do not hold it, unless they are being asked.
fn complete(servers: &Arc<Servers>, held: &Arc<Held>) {
    let missing = held.missing();
    if missing.is_empty() || !held.begin_completing() {
        return;
    }
    let (key, term, patience) = (&held.key, held.term, held.patience);
    let attempt = Attempt::at(servers, key, term, patience, Some(held.token), missing);
    let held = Arc::downgrade(held);
    servers.spawn(async move {
        attempt.join(held.clone()).await;
        if let Some(held) = held.upgrade() {
            held.end_completing();
        }
    });
}
