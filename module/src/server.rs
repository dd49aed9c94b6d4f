//! The state of the loaded module.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::time::Duration;

use kvlock_core::{Limits, Millis, Now, Table, UnsentGrant};

use crate::clock;
use crate::config::Config;
use crate::floor::Floors;
use crate::holders::Holders;
use crate::keyspace::Strings;
use crate::redis::{Ctx, Handle, Reply, Timer};
use crate::replies::{DRAINING, READY};
use crate::waiting::{Note, Waiting, WaitsFor};

/// The whole state of the module.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) table: Table<Waiting>,
    /// Blocked clients, and what each waits for.
    pub(crate) parked: BTreeMap<Handle, WaitsFor>,
    pub(crate) floors: Floors,
    pub(crate) config: Config,
    pub(crate) primary: bool,
    pub(crate) in_cluster: bool,
    pub(crate) has_replicas: bool,
    /// See [`Self::now`].
    now: OnceCell<Now>,
    pub(crate) timer: Timer,
    /// Number of times that the timer has fired.
    pub(crate) turns: u64,
    /// Longest processor time that one firing of the timer has taken.
    pub(crate) longest_turn: Duration,
    /// Wall clock at the server's last cron, in microseconds since 1970.
    pub(crate) last_round_unix_us: u64,
    pub(crate) strings: Strings,
    /// Buffer for the names of Redisson's channels.
    pub(crate) channel: Vec<u8>,
    pub(crate) holders: Holders,
}

thread_local! {
    /// The state. The server calls the module on one thread only. Only [`stop`] drops the state: when the
    /// thread ends, the module may already be unloaded.
    static SERVER: RefCell<ManuallyDrop<Option<Server>>> =
        const { RefCell::new(ManuallyDrop::new(None)) };
}

pub(crate) fn start(ctx: &Ctx<'_>) {
    SERVER.with_borrow_mut(|state| **state = Some(Server::new(ctx)));
}

pub(crate) fn stop(ctx: &Ctx<'_>) {
    SERVER.with_borrow_mut(|state| {
        if let Some(mut server) = state.take() {
            server.timer.disarm(ctx);
        }
    });
}

/// Calls `work` with the state. `work` must not call this function again: that would panic.
pub(crate) fn with<R>(work: impl FnOnce(&mut Server) -> R) -> R {
    SERVER.with_borrow_mut(|state| match state.as_mut() {
        Some(server) => work(server.forget_time()),
        None => unreachable!("the state lives from load to unload"),
    })
}

/// Calls `work` with the state. Returns `None` if a caller further up the stack already uses the state, or if
/// the state does not exist. In the first case, work of this module caused the current event or command. The
/// event then needs no handling; the command, which another module called, gets an error.
pub(crate) fn with_unless_busy<R>(work: impl FnOnce(&mut Server) -> R) -> Option<R> {
    SERVER.with(|state| {
        state.try_borrow_mut().ok()?.as_mut().map(|server| work(server.forget_time()))
    })
}

impl Server {
    pub(crate) fn new(ctx: &Ctx<'_>) -> Self {
        // The configured limits replace these before the first command.
        let mut table = Table::new(Limits::UNLIMITED);
        // In a cluster, a slot can migrate away without an event. So keys with waiters are checked
        // regularly.
        table.look_every = ctx.is_cluster().then_some(Millis(1000));
        Self {
            table,
            parked: BTreeMap::new(),
            floors: Floors::new(clock::now()),
            config: Config::default(),
            primary: ctx.is_primary(),
            in_cluster: ctx.is_cluster(),
            has_replicas: ctx.has_replicas(),
            now: OnceCell::new(),
            timer: Timer::new(),
            turns: 0,
            longest_turn: Duration::ZERO,
            last_round_unix_us: 0,
            strings: Strings::default(),
            channel: Vec::new(),
            holders: Holders::default(),
        }
    }

    /// Makes the next call of [`Self::now`] read the clocks. [`with`] and [`with_unless_busy`] call this when a
    /// callback begins. The timer calls it before each piece of work, and before it is armed again.
    pub(crate) fn forget_time(&mut self) -> &mut Self {
        self.now.take();
        self
    }

    /// Returns the time of the first call since [`Self::forget_time`]: a command decides everything at one
    /// moment.
    pub(crate) fn now(&self) -> Now {
        *self.now.get_or_init(clock::now)
    }

    /// Returns whether commands may write. `false` on a replica, even on a writable one.
    pub(crate) fn may_serve(&self) -> bool {
        self.primary
    }

    /// Answers a blocked client (a waiter or a reader) that has left the lock table. `waiting` is `None` if
    /// no client is blocked, for example for a wait through a session.
    pub(crate) fn answer(
        &mut self,
        waiting: impl Into<Option<Waiting>>,
        reply: Reply,
        grant: Option<UnsentGrant>,
    ) {
        if let Some(waiting) = waiting.into() {
            self.parked.remove(&waiting.client.handle());
            waiting.client.answer(reply, grant.map(Note::Grant));
        }
    }

    /// Plans to take back a grant whose client disconnected before the reply was sent.
    pub(crate) fn never_arrived(&mut self, ctx: &Ctx<'_>, grant: UnsentGrant) {
        if self.primary {
            self.table.queue_take_back(grant);
            self.timer.arm(ctx, Duration::ZERO);
        }
    }

    /// Records that the reply of a grant was sent, or that the grant cannot be taken back and ends with its
    /// lease.
    pub(crate) fn delivered(&mut self, grant: &UnsentGrant) {
        self.table.delivered(grant.key.borrow(), grant.id, &grant.owner, grant.token);
    }

    /// Answers all blocked waiters whose ready-key was found to exist, and some of the blocked readers that are
    /// due: see [`Self::answer_readers`].
    pub(crate) fn answer_due(&mut self) {
        while let Some(waiting) = self.table.next_ready_client() {
            self.answer(waiting, READY, None);
        }
        self.answer_readers();
    }

    /// Ends a command, or an event that may have planned work: answers clients, and arms the timer.
    pub(crate) fn finish(&mut self, ctx: &Ctx<'_>) {
        self.answer_due();
        self.arm_timer(ctx);
    }

    /// Arms the timer for the next planned work.
    pub(crate) fn arm_timer(&mut self, ctx: &Ctx<'_>) {
        if let Some(delay) = self.table.next_due(self.now()) {
            self.timer.arm(ctx, Duration::from_millis(delay.0));
        }
    }

    /// Answers blocked clients that have left the lock table, all with the same reply.
    pub(crate) fn answer_all(&mut self, all: Vec<Waiting>, reply: &Reply) {
        for waiting in all {
            self.answer(waiting, reply.clone(), None);
        }
    }

    /// Applies changed options: ends a quarantine whose new length has passed, and dismisses all waiters and
    /// readers if the module is being drained. The server takes back the options of a command that it refuses,
    /// so nothing is done before it has set all of them.
    pub(crate) fn apply_options(&mut self) {
        // The next cron arms the timer, which serves the waiters.
        self.table.end_quarantine(self.now());
        if self.table.limits.draining {
            while let Some(opened) = self.table.next_opened() {
                self.answer_all(opened.into_iter().collect(), &Reply::Number(0));
            }
            let blocked = self.table.dismiss_all();
            self.answer_all(blocked, &DRAINING);
            self.table.wake_readers();
            self.answer_readers();
        }
    }
}
