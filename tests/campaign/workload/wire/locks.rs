//! Actions of clients on locks: acquire, use and release them in many ways.

use super::client::{Client, Ending};
use super::sessions::client_of;
use super::waits::Wish;
use super::{KeyKind, Lock, PERMITS, Scene, WILD};
use harness::history::{Outcome, Request};
use harness::random::Random;
use harness::{Value, cmd};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A waiter breaks its connection off.
pub(super) const RESET_BY_WAITER: &str = "connection reset by a waiter";

/// The connection that would receive a grant is killed before the grant is delivered.
pub(super) const KILL_IN_HAND_OFF: &str = "CLIENT KILL in the turn of a hand-off";

/// Short leases, so that many end.
pub(super) const LEASES_MS: [u64; 4] = [30, 60, 120, 300];

/// A lease longer than the checker's limit of promptness, so that the checker notices a grant that is neither
/// delivered nor revoked.
pub(super) const LONG_MS: u64 = 6_000;

const TIMEOUTS_MS: [u64; 6] = [20, 60, 150, 400, 15_000, 0];

pub(super) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// One client's work until the round is over.
pub(super) fn work(scene: &Scene<'_>, number: usize, random: Random) {
    let mut worker = Worker::new(scene, random);
    let mut turn = 0_u64;
    while !scene.is_over() {
        turn += 1;
        worker.go_to(scene);
        // A new owner each time, so that unknown outcomes of the old one do not affect the next.
        worker.owner = format!("{number}:{turn}");
        match worker.kind {
            KeyKind::Latch => worker.turn_at_latch(),
            _ => worker.turn(),
        }
        scene.round.turns[number].fetch_add(1, Ordering::SeqCst);
    }
}

pub(super) struct Worker<'a> {
    pub(super) client: Client<'a>,
    /// A second connection, for commands while the first is blocked.
    pub(super) side: Client<'a>,
    pub(super) random: Random,
    pub(super) key: String,
    pub(super) owner: String,
    pub(super) kind: KeyKind,
    /// `true` if the worker requests the lock in shared mode.
    pub(super) shared: bool,
    /// Percentage of waits that go through a session, if one is open.
    pub(super) through_sessions: u64,
}

/// A request and its command.
pub(super) type Asks = (Request, Vec<Vec<u8>>);

impl<'a> Worker<'a> {
    pub(super) fn new(scene: &'a Scene<'a>, random: Random) -> Self {
        Self {
            client: Client::new(scene),
            side: Client::new(scene),
            random,
            key: String::new(),
            owner: String::new(),
            kind: KeyKind::Lock,
            shared: false,
            through_sessions: 60,
        }
    }

    /// Selects the lock for the next actions.
    pub(super) fn go_to_lock(&mut self, lock: &Lock) {
        self.key.clone_from(&lock.key);
        (self.client.db, self.side.db) = (lock.db, lock.db);
        self.kind = lock.kind;
        self.shared = lock.kind == KeyKind::Shared && self.random.percent(60);
    }

    fn go_to(&mut self, scene: &Scene<'_>) {
        let lock = loop {
            let lock: &Lock = self.random.pick(&scene.locks);
            if !matches!(lock.kind, KeyKind::Quiet | KeyKind::Crowd) {
                break lock;
            }
        };
        self.go_to_lock(lock);
    }

    /// A command for this lock and owner, in the requested mode.
    fn command(&self, name: &str, words: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let name = format!("{}.{name}", self.kind.family());
        let mode = if self.shared { cmd!["SHARED"] } else { Vec::new() };
        [cmd![name, self.key, self.owner], words, mode].concat()
    }

    /// A request for one hold of a lock, or for `count` permits. `makes` is the argument of `HOLDS`, if there
    /// is one.
    pub(super) fn asks(
        &self,
        count: u64,
        lease: u64,
        timeout: Option<u64>,
        makes: Option<u64>,
    ) -> Asks {
        let mut words = Vec::new();
        if self.kind == KeyKind::Semaphore {
            words.extend(cmd![count]);
        }
        words.extend(cmd![lease]);
        words.extend(timeout.into_iter().flat_map(|timeout| cmd![timeout]));
        words.extend(makes.into_iter().flat_map(|makes| cmd!["HOLDS", makes]));
        let command = self.command(if timeout.is_some() { "WAIT" } else { "ACQUIRE" }, words);
        let (lease, timeout) = (ms(lease), timeout.map(ms));
        let request = match self.kind {
            KeyKind::Semaphore => Request::Permits { of: PERMITS, lease, timeout },
            _ if self.shared => Request::Share { lease, timeout },
            _ => Request::Acquire { lease, timeout },
        };
        (request, command)
    }

    pub(super) fn gives_back(&self, words: Vec<Vec<u8>>) -> Asks {
        let request = match self.kind {
            KeyKind::Semaphore => Request::ReleasePermits,
            _ if self.shared => Request::ReleaseShare,
            _ => Request::Release,
        };
        (request, self.command("RELEASE", words))
    }

    fn renews(&self, lease: u64) -> Asks {
        let command = cmd![format!("{}.RENEW", self.kind.family()), self.key, self.owner, lease];
        (Request::Renew { lease: ms(lease) }, command)
    }

    pub(super) fn call(&mut self, (request, command): &Asks) -> Ending {
        self.client.call(&self.key, &self.owner, request, command)
    }

    fn turn(&mut self) {
        let is_wild_lock = self.client.db == WILD && self.kind != KeyKind::Semaphore;
        match self.random.below(100) {
            0..=3 => return self.meddle(),
            4..=6 if is_wild_lock => return self.delete_and_acquire(),
            9..=16 if self.kind == KeyKind::Semaphore => return self.take_all_twice(),
            _ => {}
        }
        let lease = self.lease();
        let is_semaphore = self.kind == KeyKind::Semaphore;
        let count = if is_semaphore { 1 + self.random.below(PERMITS) } else { 1 };
        match self.get(count, lease) {
            Ending::Done => {
                self.granted();
                if self.keeps_sharing() {
                    self.keep_sharing(lease);
                } else {
                    self.use_it(count, lease);
                }
            }
            // The lock may have been granted. Release it, so that no waiter has to wait for the end of the
            // lease.
            Ending::Unknown if lease == LONG_MS => self.clean_up(),
            Ending::Failed => {
                self.client.reconnect();
                if is_semaphore {
                    // A stranger may have deleted the semaphore.
                    self.client.ask(cmd!["SEM.SET", self.key, PERMITS, "NX"]);
                }
            }
            Ending::Refused | Ending::Unknown => {}
        }
    }

    fn lease(&mut self) -> u64 {
        let long = self.random.percent(if self.client.db == WILD { 10 } else { 20 });
        if long { LONG_MS } else { *self.random.pick(&LEASES_MS) }
    }

    fn get(&mut self, count: u64, lease: u64) -> Ending {
        let makes = self.random.percent(40).then_some(count);
        if self.random.percent(35) {
            return self.call(&self.asks(count, lease, None, makes));
        }
        let timeout = *self.random.pick(&TIMEOUTS_MS);
        let (request, command) = self.asks(count, lease, Some(timeout), makes);
        let is_short = lease != LONG_MS;
        self.wait_for(&Wish {
            request,
            command,
            timeout,
            may_be_lost: is_short,
            // A repeated request for permits without HOLDS would take more.
            may_be_repeated: is_short && (makes.is_some() || self.kind != KeyKind::Semaphore),
        })
    }

    /// Counts a grant by its kind.
    pub(super) fn granted(&self) {
        let what = match self.kind {
            KeyKind::Shared if self.shared => "shared: shared grants".to_owned(),
            KeyKind::Shared => "shared: grants to one alone".to_owned(),
            KeyKind::Latch => "latch: waiters released".to_owned(),
            kind => format!("{}: grants", kind.name()),
        };
        self.client.scene.granted(&what);
    }

    fn keeps_sharing(&mut self) -> bool {
        self.kind == KeyKind::Shared && !self.shared && self.random.percent(25)
    }

    /// Takes all free permits, and repeats the request after another holder has released one: the repetition
    /// takes none. All commands are in one transaction, so that no other client interferes and no state is left.
    fn take_all_twice(&mut self) {
        let (key, all) =
            (self.key.clone(), cmd!["SEM.ACQUIRE", self.key, self.owner, "ALL", LONG_MS]);
        let all = [all, cmd!["HOLDS", 1]].concat();
        let replies = self.side.transact(&[
            cmd!["SEM.ACQUIRE", key, "another", 1, LONG_MS],
            all.clone(),
            cmd!["SEM.RELEASE", key, "another", "ALL"],
            all,
            cmd!["SEM.RELEASE", key, self.owner, "ALL"],
        ]);
        let replies = replies.unwrap_or_default();
        if let [Value::Integer(1), Value::Integer(taken), _, again, _] = &replies[..] {
            self.client.scene.log.add("semaphore: all taken twice", 1);
            if *again != Value::Integer(*taken) {
                let what = format!("{key}: {taken} were all, and {again} when taken again");
                self.client.scene.log.surprise(what);
            }
        }
    }

    /// Downgrades an exclusive hold to a shared one. Then repeats the shared request, whose reply has the
    /// token of the shared hold.
    fn keep_sharing(&mut self, lease: u64) {
        let (key, owner) = (self.key.clone(), self.owner.clone());
        let share = cmd!["LOCK.ACQUIRE", key, owner, lease, "SHARED", "HOLDS", 1];
        let release = cmd!["LOCK.RELEASE", key, owner, "ALL"];
        let sharing = Request::Share { lease: ms(lease), timeout: None };
        for (request, command) in
            [(&sharing, &share), (&Request::Release, &release), (&sharing, &share)]
        {
            match self.client.call(&key, &owner, request, command) {
                Ending::Done => {}
                // The owner may still have one or both of the holds.
                _ => return self.clean_up(),
            }
        }
        self.client.scene.log.add("shared: downgrades", 1);
        self.shared = true;
        self.give_back(lease);
    }

    /// Renews, re-enters or acquires more permits, releases a part, and repeats some of these calls. Then
    /// releases the rest or lets the lease end.
    fn use_it(&mut self, count: u64, lease: u64) {
        let mut holds = count;
        for _ in 0..self.random.below(4) {
            let other = *self.random.pick(&LEASES_MS);
            let step = self.random.below(3);
            let (asks, then) = match step {
                0 => (self.renews(lease), holds),
                1 if holds > 1 => (self.gives_back(cmd!["HOLDS", holds - 1]), holds - 1),
                _ if self.kind == KeyKind::Semaphore && holds == PERMITS => continue,
                _ => (self.asks(1, other, None, Some(holds + 1)), holds + 1),
            };
            // A repetition, as after a lost reply, does not change the number of holds.
            for _ in 0..=u64::from(self.random.percent(30)) {
                match self.call(&asks) {
                    Ending::Done => holds = then,
                    // The owner got no more permits, and keeps those that it had.
                    Ending::Refused if matches!(asks.0, Request::Permits { .. }) => break,
                    Ending::Refused => return,
                    Ending::Failed | Ending::Unknown => return self.clean_up(),
                }
            }
        }
        self.give_back(lease);
    }

    /// Releases the hold, or lets its lease end.
    fn give_back(&mut self, lease: u64) {
        if self.kind != KeyKind::Lock && self.random.percent(50) {
            // Gives other clients time to queue.
            std::thread::sleep(ms(1 + self.random.below(10)));
        }
        if lease == LONG_MS || self.random.percent(85) {
            let asks = self.gives_back(cmd!["ALL"]);
            let ending = if self.random.percent(15) {
                self.release_to_lost_clients(&asks)
            } else {
                self.call(&asks)
            };
            if matches!(ending, Ending::Failed | Ending::Unknown) {
                self.clean_up();
            }
        }
    }

    /// Releases the hold and, in the same transaction, kills the connection that would receive the next grant:
    /// the connection of the first waiter, or of the reader of its session. If none is found, only releases.
    fn release_to_lost_clients(&mut self, asks: &Asks) -> Ending {
        let (request, release) = asks;
        let (key, owner) = (self.key.clone(), self.owner.clone());
        let command = format!("{}.INFO", self.kind.family());
        let info = self.side.ask(cmd![command, key, "WAITERS", 1]);
        let head = matches!(info, Value::Array(_)).then(|| info.field("queue").elements().first());
        let head = head.flatten().and_then(|head| client_of(self.client.scene.mailboxes, head));
        let Some(id) = head else {
            return self.client.call(&key, &owner, request, release);
        };
        let scene = self.client.scene;
        let begun = scene.recorder.now();
        let call = scene.recorder.sent(&key, &owner, request.clone());
        let replies = self.client.transact(&[release.clone(), cmd!["CLIENT", "KILL", "ID", id]]);
        let Ok(replies) = replies else { return self.client.ended(call, Outcome::Unknown) };
        scene.happened(KILL_IN_HAND_OFF, begun);
        self.client.ended(call, self.client.outcome(request, &replies[0]))
    }

    /// Releases any hold that the owner may still have. Repeats the request until the server confirms it.
    pub(super) fn clean_up(&mut self) {
        for shared in [false, true] {
            if shared == self.shared || self.kind == KeyKind::Shared {
                self.shared = shared;
                self.insist(&self.gives_back(cmd!["ALL"]));
            }
        }
    }

    /// Repeats a request until the server confirms that it is done or that there was nothing to do.
    fn insist(&mut self, asks: &Asks) {
        loop {
            self.client.reconnect();
            match self.call(asks) {
                Ending::Done | Ending::Refused => return,
                Ending::Failed | Ending::Unknown => std::thread::yield_now(),
            }
        }
    }

    /// Sends commands for a lock that the owner does not hold.
    fn meddle(&mut self) {
        self.call(&self.renews(30));
        self.call(&self.gives_back(Vec::new()));
    }

    /// Deletes the lock, and at once tries to acquire it before its waiters.
    fn delete_and_acquire(&mut self) {
        let (key, owner) = (self.key.clone(), self.owner.clone());
        let lease = *self.random.pick(&LEASES_MS);
        let deletion = cmd!["DEL", key];
        let (request, command) = self.asks(1, lease, None, None);
        let breaking = self.client.begin(&key, "stranger", Request::Break, &deletion);
        let acquiring = self.client.begin(&key, &owner, request.clone(), &command);
        let broken = self.client.finish(breaking, &Request::Break, Outcome::Unknown);
        if broken == Ending::Unknown {
            self.client.scene.recorder.answered(acquiring, Outcome::Unknown);
            return;
        }
        if let Ending::Done = self.client.finish(acquiring, &request, Outcome::Unknown) {
            self.use_it(1, lease);
        }
    }
}
