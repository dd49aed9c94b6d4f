//! The state of a simulation, its agenda of events, and their execution.

use crate::client::{Clients, Names};
use crate::clock::{MS, Truth};
use crate::judge::Judge;
use crate::net::Network;
use crate::node::Node;
use crate::settings::{Plan, Safeguard};
use crate::wire::{ClientId, ServerId};
use fastrand::Rng;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// What happens in an event.
pub(crate) type Event = Box<dyn FnOnce(&Rc<Sim>)>;

/// The process to which an event happens. Events of a stopped process are queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    Client(ClientId),
    Server(ServerId),
    Nobody,
}

#[derive(Default)]
struct Agenda {
    events: BTreeMap<(u64, u64), (Who, Event)>,
    last: u64,
}

pub(crate) struct Sim {
    pub(crate) plan: Plan,
    pub(crate) truth: Truth,
    pub(crate) net: RefCell<Network>,
    pub(crate) servers: RefCell<Vec<Node>>,
    pub(crate) clients: RefCell<Clients>,
    pub(crate) names: RefCell<Names>,
    pub(crate) judge: RefCell<Judge>,
    /// The server that became the primary last.
    pub(crate) latest: Cell<ServerId>,
    /// Number of promotions and restarts.
    pub(crate) generations: Cell<u64>,
    /// `true` if faults have ended, and users finish their work.
    pub(crate) calm: Cell<bool>,
    /// Time at which a fault last tried to restart or promote a server.
    pub(crate) began: Cell<u64>,
    /// Number of `failover` faults in progress.
    pub(crate) changing: Cell<u32>,
    random: RefCell<Rng>,
    agenda: RefCell<Agenda>,
    /// Stopped processes, with their waiting events.
    stopped: RefCell<BTreeMap<Who, Vec<Event>>>,
    lines: RefCell<Option<Vec<String>>>,
}

impl Sim {
    pub(crate) fn new(plan: Plan, random: Rng, logs: bool) -> Rc<Self> {
        let mut judge = Judge::default();
        judge.promises_belief = plan.promises_belief;
        judge.promises_tokens = plan.promises_tokens;
        judge.promises_leases = plan.promises_leases;
        judge.fence = plan.has(Safeguard::Fence);
        Rc::new(Self {
            plan,
            truth: Truth::default(),
            net: RefCell::default(),
            servers: RefCell::default(),
            clients: RefCell::default(),
            names: RefCell::default(),
            judge: RefCell::new(judge),
            latest: Cell::new(0),
            generations: Cell::new(0),
            calm: Cell::new(false),
            began: Cell::new(0),
            changing: Cell::new(0),
            random: RefCell::new(random),
            agenda: RefCell::default(),
            stopped: RefCell::default(),
            lines: RefCell::new(logs.then(Vec::new)),
        })
    }

    pub(crate) fn now(&self) -> u64 {
        self.truth.now()
    }

    pub(crate) fn has(&self, safeguard: Safeguard) -> bool {
        self.plan.has(safeguard)
    }

    /// A random number below `end`; zero if `end` is zero.
    pub(crate) fn below(&self, end: u64) -> u64 {
        self.random.borrow_mut().u64(0..end.max(1))
    }

    pub(crate) fn percent(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Time in flight of a message: mostly short, sometimes longer than a short lease.
    pub(crate) fn delay(&self) -> u64 {
        match self.below(100) {
            0 if !self.calm.get() && !self.plan.promises_leases => self.below(2_000 * MS),
            1..=4 => self.below(60 * MS),
            _ => 50 + self.below(2 * MS),
        }
    }

    /// Schedules an event.
    pub(crate) fn at(&self, time: u64, who: Who, event: impl FnOnce(&Rc<Self>) + 'static) {
        let mut agenda = self.agenda.borrow_mut();
        agenda.last += 1;
        let key = (time.max(self.now()), agenda.last);
        agenda.events.insert(key, (who, Box::new(event)));
    }

    /// Schedules a turn of a server's event loop.
    pub(crate) fn at_server(
        &self,
        time: u64,
        server: ServerId,
        event: impl FnOnce(&mut Node, &Self) + 'static,
    ) {
        self.at(time, Who::Server(server), move |sim| sim.in_turn(server, event));
    }

    pub(crate) fn in_turn(&self, server: ServerId, event: impl FnOnce(&mut Node, &Self)) {
        let node = &mut self.servers.borrow_mut()[server];
        if node.up {
            node.turn(self, |node| event(node, self));
        }
    }

    pub(crate) fn log(&self, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut *self.lines.borrow_mut() {
            let (now, step) = (self.now(), self.judge.try_borrow().map_or(0, |j| j.counts.steps));
            lines.push(format!("{step:>5} {:>12.3} ms  {}", now as f64 / 1_000.0, line()));
        }
    }

    pub(crate) fn take_log(&self) -> Vec<String> {
        self.lines.borrow_mut().take().unwrap_or_default()
    }

    /// Pauses a process. Its events are queued until it resumes.
    pub(crate) fn stop(&self, who: Who) {
        self.stopped.borrow_mut().entry(who).or_default();
    }

    pub(crate) fn is_stopped(&self, who: Who) -> bool {
        self.stopped.borrow().contains_key(&who)
    }

    /// Resumes a process, and queues its events again. If the process died while paused, they have no effect.
    pub(crate) fn go_on(&self, who: Who) {
        let waited = self.stopped.borrow_mut().remove(&who).unwrap_or_default();
        let mut agenda = self.agenda.borrow_mut();
        for event in waited {
            // Time 0 puts these events before all others that are due.
            agenda.last += 1;
            let key = (0, agenda.last);
            agenda.events.insert(key, (who, event));
        }
        drop(agenda);
        self.wake_users();
    }

    pub(crate) fn all_go_on(&self) {
        let stopped: Vec<_> = self.stopped.borrow().keys().copied().collect();
        stopped.into_iter().for_each(|who| self.go_on(who));
    }

    /// Time of the next event.
    pub(crate) fn next_time(&self) -> Option<u64> {
        self.agenda.borrow().events.first_key_value().map(|((time, _), _)| *time)
    }

    /// Runs the next event, at `now` at the earliest, or queues it if its process is stopped. Returns `false`
    /// if there is no event up to `end`.
    pub(crate) fn happens_next(self: &Rc<Self>, end: u64, now: u64) -> bool {
        let next = {
            let mut agenda = self.agenda.borrow_mut();
            let Some(entry) = agenda.events.first_entry() else { return false };
            if entry.key().0 > end {
                return false;
            }
            entry.remove_entry()
        };
        let ((time, _), (who, event)) = next;
        self.truth.set(time.max(now));
        if let Some(waiting) = self.stopped.borrow_mut().get_mut(&who) {
            waiting.push(event);
            return true;
        }
        self.judge.borrow_mut().counts.steps += 1;
        event(self);
        true
    }

    /// Drops beliefs and events, which may refer to the simulation, so that it can be freed.
    pub(crate) fn end(&self) {
        let beliefs = std::mem::take(&mut self.judge.borrow_mut().beliefs);
        drop(beliefs);
        self.agenda.borrow_mut().events.clear();
        self.stopped.borrow_mut().clear();
    }
}
