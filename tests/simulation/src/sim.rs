//! The one thread, its agenda, and what it does with each thing that is on it.

use crate::client::{Clients, Names};
use crate::clock::{MS, Truth};
use crate::faults::Fault;
use crate::judge::Judge;
use crate::net::Network;
use crate::node::Node;
use crate::redis::{Changed, Keyspace, Reply};
use crate::settings::{Plan, Safeguard};
use crate::wire::{CallId, ClientId, ConnId, Key, Owner, Request, ServerId};
use fastrand::Rng;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Something that happens at a certain time.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// Something happens at a server.
    At(ServerId, AtServer),
    /// An answer arrives.
    Answer {
        conn: ConnId,
        call: CallId,
        reply: Reply,
    },
    /// A client hears that a connection is gone.
    Broken {
        conn: ConnId,
    },
    /// A write arrives at the resource.
    Landing {
        key: Key,
        owner: Owner,
        token: u64,
    },
    /// A client's next life begins.
    Life {
        client: ClientId,
    },
    /// The next fault, and what a fault leaves to be done later.
    Fault,
    Later(Fault),
}

#[derive(Clone, Debug)]
pub(crate) enum AtServer {
    /// A request arrives.
    Arrive {
        conn: ConnId,
        call: CallId,
        request: Request,
    },
    /// It hears that a connection is gone.
    Gone(ConnId),
    /// Its timer, and its regular round, by their numbers.
    Timer(u64),
    Round(u64),
    /// The replicas had their time to confirm.
    Overdue(u64),
    /// A replica hears of a change, or of everything.
    Copy {
        from: ServerId,
        link: u64,
        offset: u64,
        changed: Changed,
    },
    Sync {
        from: ServerId,
        link: u64,
        offset: u64,
        keys: Keyspace,
    },
    /// A primary hears how far a replica is.
    Ack {
        from: ServerId,
        link: u64,
        offset: u64,
    },
    /// The time of a pause of writes is over.
    Unpause,
}

/// The process that an event is delivered to: while that is stopped, it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    Client(ClientId),
    Server(ServerId),
    Nobody,
}

#[derive(Default)]
struct Agenda {
    events: BTreeMap<(u64, u64), Event>,
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
    /// Which server became the primary last, and how many did.
    pub(crate) latest: Cell<ServerId>,
    pub(crate) generations: Cell<u64>,
    /// Faults are over: whatever is open is to come to an end.
    pub(crate) calm: Cell<bool>,
    /// When a server began to grant last: it was started, or took over.
    pub(crate) began: Cell<u64>,
    /// A change of primaries is going on.
    pub(crate) changing: Cell<bool>,
    random: RefCell<Rng>,
    agenda: RefCell<Agenda>,
    /// What is stopped, and what waits for it.
    stopped: RefCell<BTreeMap<Who, Vec<Event>>>,
    lines: RefCell<Option<Vec<String>>>,
}

impl Sim {
    pub(crate) fn new(plan: Plan, random: Rng, logs: bool) -> Rc<Self> {
        let mut judge = Judge::default();
        judge.promises_belief = plan.promises_belief;
        judge.promises_tokens = plan.promises_tokens;
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
            changing: Cell::new(false),
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

    /// A number below that; zero if there is none.
    pub(crate) fn below(&self, end: u64) -> u64 {
        self.random.borrow_mut().u64(0..end.max(1))
    }

    pub(crate) fn percent(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// How long something is under way: mostly a moment, now and then longer than a lease.
    pub(crate) fn delay(&self) -> u64 {
        match self.below(100) {
            0 if !self.calm.get() => self.below(2_000 * MS),
            1..=4 => self.below(60 * MS),
            _ => 50 + self.below(2 * MS),
        }
    }

    pub(crate) fn at(&self, time: u64, event: Event) {
        let mut agenda = self.agenda.borrow_mut();
        agenda.last += 1;
        let key = (time.max(self.now()), agenda.last);
        agenda.events.insert(key, event);
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

    /// Stops somebody. What is for him waits, until he goes on.
    pub(crate) fn stop(&self, who: Who) {
        self.stopped.borrow_mut().entry(who).or_default();
    }

    pub(crate) fn is_stopped(&self, who: Who) -> bool {
        self.stopped.borrow().contains_key(&who)
    }

    /// Somebody goes on; or, if it died meanwhile, what waited for it is forgotten.
    pub(crate) fn go_on(&self, who: Who) {
        let waited = self.stopped.borrow_mut().remove(&who).unwrap_or_default();
        let mut agenda = self.agenda.borrow_mut();
        for event in waited {
            // Before all that comes now, which may have been due by a part of a millisecond.
            agenda.last += 1;
            let key = (0, agenda.last);
            agenda.events.insert(key, event);
        }
        drop(agenda);
        self.wake_users();
    }

    pub(crate) fn all_go_on(&self) {
        let stopped: Vec<_> = self.stopped.borrow().keys().copied().collect();
        stopped.into_iter().for_each(|who| self.go_on(who));
    }

    fn whose(&self, event: &Event) -> Who {
        match event {
            Event::At(server, _) => Who::Server(*server),
            Event::Answer { conn, .. } | Event::Broken { conn } => {
                Who::Client(self.net.borrow().client_of(*conn))
            }
            Event::Landing { .. } | Event::Life { .. } | Event::Fault | Event::Later(_) => {
                Who::Nobody
            }
        }
    }

    /// When the next thing happens.
    pub(crate) fn next_time(&self) -> Option<u64> {
        self.agenda.borrow().events.first_key_value().map(|((time, _), _)| *time)
    }

    /// Lets it happen, at `now` at the earliest. `false`: nothing is left, or not before that time.
    pub(crate) fn happens_next(self: &Rc<Self>, end: u64, now: u64) -> bool {
        let next = {
            let mut agenda = self.agenda.borrow_mut();
            let Some(entry) = agenda.events.first_entry() else { return false };
            if entry.key().0 > end {
                return false;
            }
            entry.remove_entry()
        };
        let ((time, _), event) = next;
        self.truth.set(time.max(now));
        let who = self.whose(&event);
        if let Some(waiting) = self.stopped.borrow_mut().get_mut(&who) {
            waiting.push(event);
            return true;
        }
        self.judge.borrow_mut().counts.steps += 1;
        self.happen(event);
        true
    }

    fn happen(self: &Rc<Self>, event: Event) {
        match event {
            Event::Answer { conn, call, reply } => self.answered(conn, call, reply),
            Event::Broken { conn } => self.client_closes(conn),
            Event::Landing { key, owner, token } => {
                let taken = self.judge.borrow_mut().lands(key, owner, token);
                self.log(|| format!("write to {key} by {owner:?} with {token}: {taken}"));
            }
            Event::Life { client } => self.begin_life(client),
            Event::Fault => self.next_fault(),
            Event::Later(fault) => self.finish(fault),
            Event::At(server, event) => self.happen_at_server(server, event),
        }
    }

    /// Forgets everything that refers to this, so that it can be freed.
    pub(crate) fn end(&self) {
        let beliefs = std::mem::take(&mut self.judge.borrow_mut().beliefs);
        drop(beliefs);
        self.agenda.borrow_mut().events.clear();
        self.stopped.borrow_mut().clear();
    }
}
