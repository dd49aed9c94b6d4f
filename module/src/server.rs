//! The state of the loaded module, and how a decision of the lock table is carried out.

use std::cell::RefCell;
use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::time::Duration;

use kvlock_core::{
    Bug, Change, HandOff, KeyRef, Limits, LockKey, Millis, Now, Observed, Situation, Table, Token,
    WaiterId,
};

use crate::clock;
use crate::config::Config;
use crate::floor::{Floors, Place};
use crate::keyspace::{self, Audience, Words, Writer};
use crate::module::Module;
use crate::redis::{Arg, Ctx, Handle, Key, Parked, Reply, Text, Timer};

/// A client in a wait queue.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) client: Parked<Module>,
    /// The number by which `CLIENT LIST` knows it.
    pub(crate) client_id: u64,
}

/// A grant that was given to a waiter, until its reply is written.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) key: LockKey,
    pub(crate) owner: Rc<[u8]>,
    pub(crate) token: Token,
}

/// Everything the module remembers.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) table: Table<Waiting>,
    /// Which waiter a parked client is.
    pub(crate) parked: HashMap<Handle, WaiterId>,
    /// Grants whose client was gone, to be taken back as soon as something may be written.
    pub(crate) lost: Vec<Grant>,
    pub(crate) floors: Floors,
    pub(crate) config: Config,
    pub(crate) primary: bool,
    pub(crate) in_cluster: bool,
    pub(crate) has_replicas: bool,
    pub(crate) timer: Timer<Module>,
    /// The wall clock in the server's regular round before.
    pub(crate) last_round_unix_us: u64,
    pub(crate) words: Words,
}

thread_local! {
    /// The server has one thread that calls us. The state is dropped by [`stop`], not when the
    /// thread ends: by then the module may be unloaded.
    static SERVER: RefCell<ManuallyDrop<Option<Server>>> =
        const { RefCell::new(ManuallyDrop::new(None)) };
}

/// Makes the state anew.
pub(crate) fn start(ctx: &Ctx<'_>) {
    let limits = Limits { waiters: 10_000, waiters_per_key: 10_000, draining: false };
    let mut table = Table::new(limits);
    // In a cluster a slot can leave without an event.
    table.look_every = ctx.is_cluster().then_some(Millis(1000));
    let server = Server {
        table,
        parked: HashMap::new(),
        lost: Vec::new(),
        floors: Floors::default(),
        config: Config::default(),
        primary: ctx.is_primary(),
        in_cluster: ctx.is_cluster(),
        has_replicas: ctx.has_replicas(),
        timer: Timer::new(),
        last_round_unix_us: 0,
        words: Words::default(),
    };
    SERVER.with_borrow_mut(|state| **state = Some(server));
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

/// Works with the state unless we are at it already: then what the server tells us of is our own
/// doing, and whoever is at it knows.
pub(crate) fn with_unless_busy<R>(work: impl FnOnce(&mut Server) -> R) -> Option<R> {
    SERVER.with(|state| state.try_borrow_mut().ok()?.as_mut().map(work))
}

impl Server {
    /// Says whether commands may write: on a replica they may not, even if it is writable.
    pub(crate) fn may_serve(&self) -> bool {
        self.primary || Bug::NoRoleCheck.is_planted()
    }

    /// Does one operation of a command on a lock: reads it as `asked` sees it, lets `operate`
    /// decide, and carries that out. If the lock is free although somebody waits, the first
    /// waiter gets it before anything else happens.
    pub(crate) fn on_lock<R>(
        &mut self,
        ctx: &Ctx<'_>,
        name: Arg<'_>,
        asked: Option<Arg<'_>>,
        operate: impl FnOnce(&mut Table<Waiting>, &Situation<'_>) -> (R, Change<Waiting>),
    ) -> R {
        let now = clock::now();
        let key = KeyRef { db: ctx.db(), name: name.bytes() };
        let floor = self.floors.of(ctx, Place::of(key.db, key.name, self.in_cluster), now);
        let owner = asked.unwrap_or(name);
        let mut open = ctx.open_to_write(name);
        let mut seen = keyspace::read(open.as_ref(), &self.words, name, asked);
        let at = seen.situation(key, owner.bytes(), now, floor);
        if self.table.owes_a_grant(&at) {
            let cause = self.table.cause_of_freedom(key);
            let change = self.table.look(&at, cause);
            self.carry_out(ctx, name, open, owner, &at, change);
            open = ctx.open_to_write(name);
            seen = keyspace::read(open.as_ref(), &self.words, name, asked);
        }
        let at = seen.situation(key, owner.bytes(), now, floor);
        let (outcome, change) = operate(&mut self.table, &at);
        self.carry_out(ctx, name, open, owner, &at, change);
        outcome
    }

    /// Writes a change of the lock table to the open key, answers the waiter that got the lock by
    /// it, and sets the timer. `requester` is the owner that a change without a name of its own
    /// speaks of.
    pub(crate) fn carry_out(
        &mut self,
        ctx: &Ctx<'_>,
        name: Arg<'_>,
        open: Option<Key<'_>>,
        requester: Arg<'_>,
        at: &Situation<'_>,
        change: Change<Waiting>,
    ) {
        let issued = change.issued();
        if let Some(key) = open.filter(|_| !matches!(change, Change::None)) {
            self.write(ctx, name, key, requester, at, change);
        }
        if let Some(token) = issued {
            let place = Place::of(at.key.db, at.key.name, self.in_cluster);
            self.floors.reserve(ctx, place, token, at.now);
        }
        self.plan(ctx, at.now);
    }

    fn write(
        &mut self,
        ctx: &Ctx<'_>,
        name: Arg<'_>,
        open: Key<'_>,
        requester: Arg<'_>,
        at: &Situation<'_>,
        change: Change<Waiting>,
    ) {
        let writer = Writer { ctx, words: &self.words, key: name };
        match change {
            Change::None => {}
            Change::Take { token, until } => writer.grant(open, None, requester, token, until),
            Change::Update { holds, token, until } => {
                writer.update(open, requester, holds, token, until);
            }
            Change::Free => {
                writer.free(open);
                let audience = Audience {
                    how: self.config.redisson_channel,
                    in_cluster: self.in_cluster,
                    has_replicas: self.has_replicas,
                };
                writer.announce(audience);
            }
            Change::HandOff(HandOff { owner, token, until, client }) => {
                let before = match &at.seen {
                    Observed::Held(holding) => Some(holding.owner),
                    Observed::Free { .. } | Observed::NotALock { .. } => None,
                };
                writer.grant(open, before, Text::new(&owner).lend(), token, until);
                let key = LockKey { db: at.key.db, name: at.key.name.into() };
                let reply = Reply::Pair(token.value(), 1);
                self.answer(client, reply, Some(Grant { key, owner, token }));
            }
        }
    }

    /// Answers a waiter that has left the table.
    pub(crate) fn answer(&mut self, waiting: Waiting, reply: Reply, grant: Option<Grant>) {
        self.parked.remove(&waiting.client.handle());
        waiting.client.answer(reply, grant);
    }

    /// Sets the timer for what is due next.
    pub(crate) fn plan(&mut self, ctx: &Ctx<'_>, now: Now) {
        if let Some(delay) = self.table.next_due(now) {
            self.timer.arm(ctx, Duration::from_millis(delay.0));
        }
    }

    /// Answers all waiters the same.
    pub(crate) fn dismiss_all(&mut self, reply: &Reply) {
        for waiting in self.table.dismiss_all() {
            self.answer(waiting, reply.clone(), None);
        }
    }
}
