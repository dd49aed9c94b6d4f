//! What the clients do: take a lock in every way there is, use it, and give it back in every way.

use crate::client::{Client, Ending};
use crate::faults::{KILL_IN_HAND_OFF, RESET_BY_WAITER};
use crate::sessions::{Arrival, Place, client_of};
use crate::{Lock, Round, Sort, WILD};
use harness::history::{CallId, Outcome, Request};
use harness::random::Random;
use harness::{Value, cmd, lines};
use std::time::Duration;

/// Leases that end soon, so that many do.
pub(crate) const LEASES_MS: [u64; 4] = [30, 60, 120, 300];

/// A lease that outlasts the patience of the checker: whoever holds it must be told or go.
pub(crate) const LONG_MS: u64 = 6_000;

const TIMEOUTS_MS: [u64; 6] = [20, 60, 150, 400, 15_000, 0];

/// How long the server may take to queue a command of a transaction.
const SOON: Duration = Duration::from_secs(10);

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// One client's work until the round is over.
pub(crate) fn work(round: &Round, number: u64, random: Random) {
    let mut worker = Worker::new(round, random);
    let mut turn = 0_u64;
    while !round.is_over() {
        turn += 1;
        worker.go_to(round);
        // A new owner each time: what is unknown of an old one does not blur the next.
        worker.owner = format!("{number}:{turn}");
        match worker.sort {
            Sort::Lock | Sort::Shared | Sort::Quiet => worker.turn(),
            Sort::Semaphore => worker.turn_at_semaphore(),
            Sort::Latch => worker.turn_at_latch(),
        }
    }
}

pub(crate) struct Worker<'a> {
    pub(crate) client: Client<'a>,
    /// For what is done while the other connection is blocked.
    side: Client<'a>,
    pub(crate) random: Random,
    pub(crate) key: String,
    pub(crate) owner: String,
    sort: Sort,
    /// It wants to share the lock.
    shared: bool,
}

/// Something to wait for.
pub(crate) struct Wish {
    pub(crate) request: Request,
    pub(crate) command: Vec<Vec<u8>>,
    pub(crate) timeout: u64,
    /// What nobody knows of excuses much: not where the lease is long.
    pub(crate) may_be_lost: bool,
    /// It may be sent again while it waits.
    pub(crate) may_be_repeated: bool,
}

/// A wait that was begun.
pub(crate) struct Waiting<'a> {
    pub(crate) call: CallId,
    /// It was sent through the other connection.
    beside: bool,
    pub(crate) how: How<'a>,
}

pub(crate) enum How<'a> {
    /// The connection is blocked.
    Blocked,
    /// A session will be told.
    Queued(Place<'a>),
    /// It has been answered at once.
    Ended(Ending),
}

impl<'a> Worker<'a> {
    pub(crate) fn new(round: &'a Round, random: Random) -> Self {
        Self {
            client: Client::new(round),
            side: Client::new(round),
            random,
            key: String::new(),
            owner: String::new(),
            sort: Sort::Lock,
            shared: false,
        }
    }

    /// Has to do with this lock from now on.
    pub(crate) fn go_to_lock(&mut self, lock: &Lock) {
        self.key.clone_from(&lock.key);
        (self.client.db, self.side.db) = (lock.db, lock.db);
        self.sort = lock.sort;
        self.shared = lock.sort == Sort::Shared && self.random.percent(60);
    }

    fn go_to(&mut self, round: &Round) {
        let lock = loop {
            let lock: &Lock = self.random.pick(&round.locks);
            if lock.sort != Sort::Quiet {
                break lock;
            }
        };
        self.go_to_lock(lock);
    }

    /// A command about this lock by this owner, in the mode that it wants.
    fn say(&self, name: &str, words: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let mode = if self.shared { cmd!["SHARED"] } else { Vec::new() };
        [cmd![name, self.key, self.owner], words, mode].concat()
    }

    fn wants(&self, lease: u64, timeout: Option<u64>) -> Request {
        let (lease, timeout) = (ms(lease), timeout.map(ms));
        if self.shared {
            Request::Share { lease, timeout }
        } else {
            Request::Acquire { lease, timeout }
        }
    }

    fn gives_back(&self) -> Request {
        if self.shared { Request::ReleaseShare } else { Request::Release }
    }

    fn turn(&mut self) {
        match self.random.below(100) {
            0..=3 => self.meddle(),
            4..=5 if self.client.db == WILD => self.force_release(),
            6..=8 if self.client.db == WILD => self.delete_and_acquire(),
            _ => {
                let lease = self.lease();
                let ending = self.get(lease);
                match ending {
                    Ending::Done(_) if self.goes_on_sharing() => self.go_on_sharing(lease),
                    Ending::Done(_) => self.use_it(lease),
                    // It may have been granted: nobody must have to wait for the end of that.
                    Ending::Unknown if lease == LONG_MS => self.clean_up(),
                    Ending::Failed => self.client.reconnect(),
                    Ending::Refused | Ending::Unknown => {}
                }
            }
        }
    }

    pub(crate) fn lease(&mut self) -> u64 {
        let long = self.random.percent(if self.client.db == WILD { 10 } else { 20 });
        if long { LONG_MS } else { *self.random.pick(&LEASES_MS) }
    }

    pub(crate) fn timeout(&mut self) -> u64 {
        *self.random.pick(&TIMEOUTS_MS)
    }

    fn get(&mut self, lease: u64) -> Ending {
        let holds = if self.random.percent(30) { cmd!["HOLDS", 1] } else { Vec::new() };
        if self.random.percent(35) {
            let command = self.say("LOCK.ACQUIRE", [cmd![lease], holds].concat());
            return self.client.call(&self.key, &self.owner, &self.wants(lease, None), &command);
        }
        let timeout = self.timeout();
        let command = self.say("LOCK.WAIT", [cmd![lease, timeout], holds].concat());
        self.wait_for(&Wish {
            request: self.wants(lease, Some(timeout)),
            command,
            timeout,
            may_be_lost: lease != LONG_MS,
            may_be_repeated: lease != LONG_MS,
        })
    }

    /// Waits, and looks, cancels, goes away or comes again meanwhile.
    pub(crate) fn wait_for(&mut self, wish: &Wish) -> Ending {
        let waiting = self.begin(wish, false, None);
        let in_line = match waiting.how {
            How::Blocked => self.random.percent(60) && self.look_for_place(),
            How::Queued(_) => true,
            How::Ended(ending) => return ending,
        };
        // A waiter in line whose connection the server closes without a word has nothing. Who was
        // not seen there may have had it at once.
        let lost = if in_line { Outcome::Failed } else { Outcome::Unknown };
        match self.random.below(100) {
            0..=9 => self.cancel(waiting, &wish.request, lost),
            10..=16 if wish.may_be_lost && matches!(waiting.how, How::Blocked) => {
                let begun = self.client.round.recorder.now();
                self.client.reset();
                self.client.round.recorder.answered(waiting.call, Outcome::Unknown);
                self.happened(RESET_BY_WAITER, begun);
                Ending::Unknown
            }
            17..=24 if wish.may_be_repeated && in_line => self.take_place_over(waiting, wish),
            _ => {
                if self.random.percent(50) && wish.timeout >= 60 {
                    self.look_for_place();
                }
                self.finish(waiting, &wish.request, lost)
            }
        }
    }

    /// Puts it in line: with a connection that blocks, or through a session, not the same as another.
    pub(crate) fn begin(
        &mut self,
        wish: &Wish,
        beside: bool,
        other: Option<&Place<'a>>,
    ) -> Waiting<'a> {
        let (key, owner, round) = (self.key.clone(), self.owner.clone(), self.client.round);
        let mailbox = self.random.pick(&round.mailboxes);
        let may_be_used = mailbox.is_open() && !other.is_some_and(|other| other.is_in(mailbox));
        let through = (may_be_used && self.random.percent(60)).then_some(mailbox);
        let client = if beside { &mut self.side } else { &mut self.client };
        client.connection();
        let call = round.recorder.sent(&key, &owner, wish.request.clone());
        let place = through.and_then(|mailbox| mailbox.enter(call, &key, &owner));
        let Some((place, session)) = place else {
            client.connection().send(&wish.command);
            return Waiting { call, beside, how: How::Blocked };
        };
        client.connection().send([wish.command.clone(), cmd!["SESSION", session]].concat());
        let how = match client.finish_or_queue(call, &wish.request) {
            None => How::Queued(place),
            Some(ending) => How::Ended(ending),
        };
        round.tally.add("waits through a session", u64::from(matches!(how, How::Queued(_))));
        if matches!(how, How::Ended(Ending::Unknown)) {
            // It may be in line, whatever became of the connection, and may be served until it is not.
            while !matches!(self.withdraw(), Value::Integer(_)) && round.pair.crashes() == 0 {
                self.side.reconnect();
                std::thread::sleep(ms(1));
            }
            round.recorder.answered(call, Outcome::Unknown);
        }
        Waiting { call, beside, how }
    }

    /// Waits for its end. `lost` is what it means if the connection that is blocked is closed.
    pub(crate) fn finish(
        &mut self,
        waiting: Waiting<'a>,
        request: &Request,
        lost: Outcome,
    ) -> Ending {
        let Waiting { call, beside, how } = waiting;
        let client = if beside { &mut self.side } else { &mut self.client };
        let place = match how {
            How::Blocked => return client.finish(call, request, lost),
            How::Ended(ending) => return ending,
            How::Queued(place) => place,
        };
        match place.ends(client.round) {
            Arrival::Told(outcome) => client.ended(call, outcome),
            Arrival::Unknown => client.ended(call, Outcome::Unknown),
            // It stays open, and the checker finds it.
            Arrival::Never => Ending::Unknown,
            Arrival::Gone(there) => {
                client.round.recorder.ended(call, Outcome::Failed, there);
                Ending::Failed
            }
        }
    }

    /// Notes who is in line, as the server says; says whether this one is.
    fn look_for_place(&mut self) -> bool {
        let command = match self.sort {
            Sort::Lock | Sort::Shared | Sort::Quiet => "LOCK.INFO",
            Sort::Semaphore => "SEM.INFO",
            Sort::Latch => "LATCH.INFO",
        };
        let recorder = &self.client.round.recorder;
        let asked = recorder.now();
        let info = self.side.ask(cmd![command, self.key, "WAITERS", 1000]);
        lines::note(&info, &self.key, asked, recorder).contains(&self.owner)
    }

    fn happened(&self, fault: &'static str, begun: Duration) {
        let round = self.client.round;
        round.tally.fault(fault, begun, round.recorder.now());
    }

    /// Takes the wait back, whoever is told.
    fn withdraw(&mut self) -> Value {
        let command = match self.sort {
            Sort::Lock | Sort::Shared | Sort::Quiet => "LOCK.CANCEL",
            Sort::Semaphore => "SEM.CANCEL",
            Sort::Latch => "LATCH.CANCEL",
        };
        self.side.ask(cmd![command, self.key, self.owner])
    }

    fn cancel(&mut self, waiting: Waiting<'a>, request: &Request, lost: Outcome) -> Ending {
        let (begun, call) = (self.client.round.recorder.now(), waiting.call);
        let cancelled = self.withdraw();
        self.client.round.tally.cancel(begun, self.client.round.recorder.now());
        let ending = self.finish(waiting, request, lost);
        // Without an answer to the cancel nobody knows which of the two it was.
        if ending == Ending::Refused && cancelled != Value::Integer(0) {
            self.client.round.recorder.answered(call, Outcome::Withdrawn);
        }
        ending
    }

    /// The same owner waits again elsewhere, as after a reconnect.
    fn take_place_over(&mut self, first: Waiting<'a>, wish: &Wish) -> Ending {
        let place = if let How::Queued(place) = &first.how { Some(place) } else { None };
        let second = self.begin(wish, true, place);
        self.client.round.recorder.took_over(second.call, first.call);
        // What the first was given without hearing of it, the second may find; what the second was,
        // an owner may that goes on with what the first was given.
        let before = self.finish(first, &wish.request, Outcome::Unknown);
        let goes_on = matches!(before, Ending::Done(_));
        let may_have = goes_on || before == Ending::Unknown;
        let lost = if may_have { Outcome::Unknown } else { Outcome::Failed };
        let after = self.finish(second, &wish.request, lost);
        if goes_on { before } else { after }
    }

    fn goes_on_sharing(&mut self) -> bool {
        self.sort == Sort::Shared && !self.shared && self.random.percent(25)
    }

    /// Goes from holding the lock alone to sharing it, and asks what token that has.
    fn go_on_sharing(&mut self, lease: u64) {
        let (key, owner) = (self.key.clone(), self.owner.clone());
        let share = cmd!["LOCK.ACQUIRE", key, owner, lease, "SHARED", "HOLDS", 1];
        let release = cmd!["LOCK.RELEASE", key, owner, "ALL"];
        let sharing = Request::Share { lease: ms(lease), timeout: None };
        for (request, command) in
            [(&sharing, &share), (&Request::Release, &release), (&sharing, &share)]
        {
            match self.client.call(&key, &owner, request, command) {
                Ending::Done(_) => {}
                // What it has lost of one it may still have of the other.
                _ => return self.clean_up(),
            }
        }
        self.client.round.tally.add("shared: downgrades", 1);
        self.shared = true;
        self.give_back(lease);
    }

    /// Renews, re-enters, gives a part back, and repeats some of it; then gives it back or not.
    fn use_it(&mut self, lease: u64) {
        let (key, owner) = (self.key.clone(), self.owner.clone());
        let mut holds = 1_u64;
        for _ in 0..self.random.below(4) {
            let other = *self.random.pick(&LEASES_MS);
            let step = self.random.below(3);
            let (request, command, then) = match step {
                0 => (
                    Request::Renew { lease: ms(lease) },
                    cmd!["LOCK.RENEW", key, owner, lease],
                    holds,
                ),
                1 if holds > 1 => (
                    self.gives_back(),
                    self.say("LOCK.RELEASE", cmd!["HOLDS", holds - 1]),
                    holds - 1,
                ),
                _ => (
                    self.wants(other, None),
                    self.say("LOCK.ACQUIRE", cmd![other, "HOLDS", holds + 1]),
                    holds + 1,
                ),
            };
            // What is sent again, because the answer was lost say, changes nothing.
            for _ in 0..=u64::from(self.random.percent(30)) {
                match self.client.call(&key, &owner, &request, &command) {
                    Ending::Done(_) => holds = then,
                    Ending::Refused => return,
                    Ending::Failed | Ending::Unknown => return self.clean_up(),
                }
            }
        }
        self.give_back(lease);
    }

    /// Keeps what it has for a moment, now and then: others come meanwhile, and wait.
    pub(crate) fn dwell(&mut self) {
        if self.random.percent(50) {
            std::thread::sleep(ms(1 + self.random.below(10)));
        }
    }

    /// Releases it, or lets its lease end.
    fn give_back(&mut self, lease: u64) {
        if self.sort == Sort::Shared {
            self.dwell();
        }
        if lease == LONG_MS || self.random.percent(85) {
            let (request, command) = (self.gives_back(), self.say("LOCK.RELEASE", cmd!["ALL"]));
            let ending = if self.random.percent(15) {
                self.release_to_the_dead(&request, &command)
            } else {
                self.client.call(&self.key, &self.owner, &request, &command)
            };
            if matches!(ending, Ending::Failed | Ending::Unknown) {
                self.clean_up();
            }
        }
    }

    /// Hands what it has to the first waiter and kills that one before it can hear of it.
    pub(crate) fn release_to_the_dead(&mut self, request: &Request, release: &[Vec<u8>]) -> Ending {
        let (key, owner) = (self.key.clone(), self.owner.clone());
        let info = if self.sort == Sort::Semaphore { "SEM.INFO" } else { "LOCK.INFO" };
        let info = self.side.ask(cmd![info, key, "WAITERS", 1]);
        let head = matches!(info, Value::Array(_)).then(|| info.field("queue").elements().first());
        let head = head.flatten().and_then(|head| client_of(self.client.round, head));
        let Some(id) = head else {
            return self.client.call(&key, &owner, request, release);
        };
        let begun = self.client.round.recorder.now();
        // A transaction: both are done in one turn of the server, whatever the network does.
        let call = self.client.begin(&key, &owner, request.clone(), &[b"MULTI".to_vec()]);
        self.client.connection().send(release);
        self.client.connection().send(cmd!["CLIENT", "KILL", "ID", id]);
        self.client.connection().send(cmd!["EXEC"]);
        for _ in 0..3 {
            if self.client.connection().receive(SOON).is_err() {
                self.client.reconnect();
                self.client.round.recorder.answered(call, Outcome::Unknown);
                return Ending::Unknown;
            }
        }
        self.happened(KILL_IN_HAND_OFF, begun);
        self.client.finish_as(call, request, Outcome::Unknown, |replies| match replies {
            Value::Array(replies) => replies[0].clone(),
            // The transaction was refused as a whole.
            other => other,
        })
    }

    /// Releases what it may still hold, until the server says that it is done.
    fn clean_up(&mut self) {
        for shared in [false, true] {
            if shared == self.shared || self.sort == Sort::Shared {
                self.shared = shared;
                let (request, command) = (self.gives_back(), self.say("LOCK.RELEASE", cmd!["ALL"]));
                self.insist(&request, &command);
            }
        }
    }

    /// Sends a command until the server says that it is done, or has nothing to do.
    pub(crate) fn insist(&mut self, request: &Request, command: &[Vec<u8>]) {
        let (key, owner) = (self.key.clone(), self.owner.clone());
        loop {
            self.client.reconnect();
            match self.client.call(&key, &owner, request, command) {
                Ending::Done(_) | Ending::Refused => return,
                Ending::Failed | Ending::Unknown => std::thread::yield_now(),
            }
        }
    }

    /// Touches a lock that it has nothing to do with.
    fn meddle(&mut self) {
        let (key, owner) = (self.key.clone(), self.owner.clone());
        let renew = Request::Renew { lease: ms(30) };
        let command = cmd!["LOCK.RENEW", key, owner, 30];
        self.client.call(&key, &owner, &renew, &command);
        let command = self.say("LOCK.RELEASE", Vec::new());
        self.client.call(&key, &owner, &self.gives_back(), &command);
    }

    fn force_release(&mut self) {
        let command = cmd!["LOCK.FORCERELEASE", self.key];
        self.client.call(&self.key, &self.owner, &Request::Break, &command);
    }

    /// Deletes the lock and tries to get it before those who wait: both in one turn of the server.
    fn delete_and_acquire(&mut self) {
        let (key, owner) = (self.key.clone(), self.owner.clone());
        let lease = *self.random.pick(&LEASES_MS);
        let request = self.wants(lease, None);
        let (deletion, command) = (cmd!["DEL", key], self.say("LOCK.ACQUIRE", cmd![lease]));
        let breaking = self.client.begin(&key, "stranger", Request::Break, &deletion);
        let acquiring = self.client.begin(&key, &owner, request.clone(), &command);
        let broken = self.client.finish(breaking, &Request::Break, Outcome::Unknown);
        if broken == Ending::Unknown {
            self.client.round.recorder.answered(acquiring, Outcome::Unknown);
            return;
        }
        if let Ending::Done(_) = self.client.finish(acquiring, &request, Outcome::Unknown) {
            self.use_it(lease);
        }
    }
}
