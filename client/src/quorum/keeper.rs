//! The one task that looks after what quorums hold: it asks the servers that do not hold a lock
//! again, and notices a loss that nobody looks for. Renewing is up to the watchdogs of the servers'
//! clients.

use super::Servers;
use super::attempt::Attempt;
use super::held::Held;
use crate::engine::sync::{Mutex, lock};
use std::collections::BTreeMap;
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
    /// By when they are due, and a number.
    entries: BTreeMap<(Instant, u64), Entry>,
    next: u64,
    closed: bool,
}

struct Entry {
    held: Weak<Held>,
    servers: Weak<Servers>,
    every: Duration,
}

type Due = (Arc<Servers>, Arc<Held>);

impl Keeper {
    /// Looks after it for as long as it is held.
    pub(crate) fn keep(self: &Arc<Self>, servers: &Arc<Servers>, held: &Arc<Held>) {
        let every = (held.term.length / 10).clamp(LEAST, MOST);
        let (held, servers) = (Arc::downgrade(held), Arc::downgrade(servers));
        lock(&self.agenda).plan(Instant::now(), Entry { held, servers, every });
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
        let mut due = Vec::new();
        while let Some(first) = self.entries.first_entry()
            && first.key().0 <= now
        {
            let entry = first.remove();
            if let (Some(servers), Some(held)) = (entry.servers.upgrade(), entry.held.upgrade()) {
                due.push((servers, held));
                self.plan(now, entry);
            }
        }
        (due, self.entries.first_key_value().map(|((at, _), _)| *at))
    }

    fn plan(&mut self, now: Instant, entry: Entry) {
        self.next += 1;
        self.entries.insert((now + entry.every, self.next), entry);
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
