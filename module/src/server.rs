//! The state of the loaded module.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::time::Duration;

use kvlock_core::{Limits, Millis, Now, Table, Untold};

use crate::clock;
use crate::config::Config;
use crate::floor::Floors;
use crate::holders::Holders;
use crate::keyspace::Words;
use crate::redis::{Ctx, Handle, Reply, Timer};
use crate::replies::READY;
use crate::waiting::{Note, Waiting, WaitsFor};

/// Everything the module remembers.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) table: Table<Waiting>,
    /// What a parked client waits for.
    pub(crate) parked: BTreeMap<Handle, WaitsFor>,
    pub(crate) floors: Floors,
    pub(crate) config: Config,
    pub(crate) primary: bool,
    pub(crate) in_cluster: bool,
    pub(crate) has_replicas: bool,
    pub(crate) timer: Timer,
    /// How many turns of the event loop had something that was due outside commands.
    pub(crate) turns: u64,
    /// Longest time that one turn has spent on work outside commands.
    pub(crate) longest_turn: Duration,
    /// The wall clock at the last regular round of the server.
    pub(crate) last_round_unix_us: u64,
    pub(crate) words: Words,
    /// Room for the name of a channel.
    pub(crate) channel: Vec<u8>,
    pub(crate) holders: Holders,
}

thread_local! {
    /// The server has one thread that calls us. The state is dropped by [`stop`], not when the
    /// thread ends: by then the module may be unloaded.
    static SERVER: RefCell<ManuallyDrop<Option<Server>>> =
        const { RefCell::new(ManuallyDrop::new(None)) };
}

/// Makes the state anew.
pub(crate) fn start(ctx: &Ctx<'_>) {
    SERVER.with_borrow_mut(|state| **state = Some(Server::new(ctx)));
}

/// Drops the state.
pub(crate) fn stop(ctx: &Ctx<'_>) {
    SERVER.with_borrow_mut(|state| {
        if let Some(mut server) = state.take() {
            server.timer.disarm(ctx);
        }
    });
}

/// Works with the state. Not from inside itself.
pub(crate) fn with<R>(work: impl FnOnce(&mut Server) -> R) -> R {
    SERVER.with_borrow_mut(|state| match state.as_mut() {
        Some(server) => work(server),
        None => unreachable!("the state lives from load to unload"),
    })
}

/// Calls `work` with the state, unless a caller has it already. Then the event was caused by that caller, which
/// needs no notice of it.
pub(crate) fn with_unless_busy<R>(work: impl FnOnce(&mut Server) -> R) -> Option<R> {
    SERVER.with(|state| state.try_borrow_mut().ok()?.as_mut().map(work))
}

impl Server {
    /// Returns the state of a module that was just loaded.
    pub(crate) fn new(ctx: &Ctx<'_>) -> Self {
        // The options' defaults are set before anything else happens.
        let mut table = Table::new(Limits::UNLIMITED);
        // In a cluster a slot can leave without an event.
        table.look_every = ctx.is_cluster().then_some(Millis(1000));
        Self {
            table,
            parked: BTreeMap::new(),
            floors: Floors::new(clock::now()),
            config: Config::default(),
            primary: ctx.is_primary(),
            in_cluster: ctx.is_cluster(),
            has_replicas: ctx.has_replicas(),
            timer: Timer::new(),
            turns: 0,
            longest_turn: Duration::ZERO,
            last_round_unix_us: 0,
            words: Words::default(),
            channel: Vec::new(),
            holders: Holders::default(),
        }
    }

    /// Returns whether commands may write: on a replica they may not, even if it is writable.
    pub(crate) fn may_serve(&self) -> bool {
        self.primary
    }

    /// Answers a waiter that has left the table, if it is a client. A session has its outcome.
    pub(crate) fn answer(
        &mut self,
        waiting: impl Into<Option<Waiting>>,
        reply: Reply,
        grant: Option<Untold>,
    ) {
        if let Some(waiting) = waiting.into() {
            self.parked.remove(&waiting.client.handle());
            waiting.client.answer(reply, grant.map(Note::Grant));
        }
    }

    /// The client of a grant was gone before the grant was sent.
    pub(crate) fn never_arrived(&mut self, ctx: &Ctx<'_>, grant: Untold) {
        if self.primary {
            self.table.was_not_sent(grant);
            self.timer.arm(ctx, Duration::ZERO);
        }
    }

    /// The reply of a grant was sent, or only its lease can end it.
    pub(crate) fn delivered(&mut self, grant: &Untold) {
        self.table.delivered(grant.key.borrow(), grant.id, &grant.owner, grant.token);
    }

    /// Answers blocked clients whose ready-key exists.
    pub(crate) fn answer_ready(&mut self) {
        while let Some(waiting) = self.table.next_ready_client() {
            self.answer(waiting, READY, None);
        }
    }

    /// Answers waiters whose ready-key exists and readers with unread outcomes, then sets the timer.
    pub(crate) fn plan(&mut self, ctx: &Ctx<'_>, now: Now) {
        self.answer_ready();
        self.tell_readers(now);
        self.wind(ctx, now);
    }

    /// Sets the timer to the time of the next work.
    pub(crate) fn wind(&mut self, ctx: &Ctx<'_>, now: Now) {
        if let Some(delay) = self.table.next_due(now) {
            self.timer.arm(ctx, Duration::from_millis(delay.0));
        }
    }

    /// Answers blocked waiters that have left the table, all with the same error.
    pub(crate) fn answer_all(&mut self, all: Vec<Waiting>, reply: &Reply) {
        for waiting in all {
            self.answer(waiting, reply.clone(), None);
        }
    }
}
