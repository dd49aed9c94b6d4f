//! Runs the commands of a transcript on a table. A simulated server does what the module does.

use std::collections::{BTreeMap, BTreeSet};

use kvlock_core::{
    Acquire, Cause, Change, Dismissal, GrantId, Join, Limits, Millis, MonoMillis, Reading, Release,
    Table, Token, UnixMillis, Via, WaitReply, WaiterId, Want,
};

use super::{Args, words};
use kvlock_core_reference::sim::{Asked, Clock, Foreign, Keyspace, Name, key_ref};

/// A blocked client.
#[derive(Debug, PartialEq)]
pub(crate) struct Client {
    pub(crate) name: String,
    pub(crate) ends: Option<MonoMillis>,
}

/// A grant to a blocked client.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) id: GrantId,
    pub(crate) lock: Name,
    pub(crate) owner: String,
    pub(crate) token: Token,
}

#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) table: Table<Client>,
    pub(crate) space: Keyspace,
    pub(crate) clock: Clock,
    floor: Option<u64>,
    /// Every key that a command has named.
    pub(crate) names: BTreeSet<Name>,
    /// Locks that other clients have changed since the timer last ran.
    changed: BTreeSet<Name>,
    /// The waiter of each client.
    waiting: BTreeMap<String, WaiterId>,
    /// The call of each reader, by the name of its connection.
    pub(crate) readings: BTreeMap<String, Reading>,
    /// Grants whose reply is in flight, by the name of the client.
    pub(crate) grants: BTreeMap<String, Grant>,
    /// The state of each lock and the time of the first look, as they were last shown.
    pub(crate) last_states: BTreeMap<Name, String>,
    pub(crate) look_said: Option<UnixMillis>,
    /// Result of the current command, so far.
    pub(crate) log: String,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let limits = Limits { waiters: 100, waiters_per_key: 100, ..Limits::UNLIMITED };
        Self {
            table: Table::new(limits),
            space: Keyspace::default(),
            clock: Clock::new(),
            floor: Some(0),
            names: BTreeSet::new(),
            changed: BTreeSet::new(),
            waiting: BTreeMap::new(),
            readings: BTreeMap::new(),
            grants: BTreeMap::new(),
            last_states: BTreeMap::new(),
            look_said: None,
            log: String::new(),
        }
    }

    /// Runs one command. Returns its result and the locks that changed.
    pub(crate) fn run(&mut self, line: &str) -> String {
        let before = *self.table.counters();
        let (command, mut args) = Args::parse(line);
        match command {
            "acquire" | "wait" | "release" | "renew" | "cancel" | "force-release" => {
                self.request(command, &mut args);
            }
            "del" | "set" | "hset" | "hdel" | "persist" | "pexpire" => {
                self.befall(command, &mut args);
            }
            _ => self.event(command, &mut args),
        }
        args.finish(line);
        self.tell_readers();
        self.table.check().expect("the invariants hold");
        let happened = std::mem::take(&mut self.log);
        happened + &self.news(&before)
    }

    /// Runs a client's request. If a waiter must be granted the lock first, serves that waiter.
    fn request(&mut self, command: &str, args: &mut Args<'_>) {
        let lock = self.name(args);
        if self.with(&lock, "", |table, at| table.owes_a_grant(at)) {
            let changed = self.changed.contains(&lock);
            let cause = if changed { Cause::Outside } else { Cause::Expiry };
            let change = self.look(&lock, cause);
            if change != Change::None {
                self.say("before that:");
            }
            self.carry_out(&lock, "", change);
        }
        if command == "force-release" {
            let (reply, change) = self.with_all(&lock, "", |table, at| table.force_release(at));
            let released = reply.map_or("WRONGTYPE", |held| if held { "1" } else { "0" });
            self.say(&format!("-> {released}"));
            self.carry_out(&lock, "", change);
            return;
        }
        let owner: String = args.must("owner");
        let want = if args.flag("shared") { Want::Shared } else { Want::Exclusive };
        match command {
            "acquire" | "wait" => self.acquire(command == "wait", &lock, &owner, want, args),
            "release" => {
                let release = match args.may("holds") {
                    Some(n) => Release::DownTo(n),
                    None if args.flag("all") => Release::All,
                    None => Release::One,
                };
                let by = owner.as_bytes();
                let (reply, change) =
                    self.with(&lock, &owner, |table, at| table.release(at, by, want, release));
                self.say(&format!("-> {}", words::released(reply)));
                self.carry_out(&lock, &owner, change);
            }
            "renew" => {
                let lease = Millis(args.must("lease-ms"));
                let by = owner.as_bytes();
                let at_least = args.may("token").and_then(Token::from_stored);
                let (reply, change) =
                    self.with(&lock, &owner, |table, at| table.renew(at, by, lease, at_least));
                self.say(&format!("-> {}", words::renewed(reply)));
                self.carry_out(&lock, &owner, change);
            }
            _ => {
                let out = self.table.cancel(key_ref(&lock), owner.as_bytes());
                self.say(if out.is_some() { "-> 1" } else { "-> 0" });
                self.tell(out.flatten(), "nil");
            }
        }
    }

    fn acquire(&mut self, wait: bool, lock: &Name, owner: &str, want: Want, args: &mut Args<'_>) {
        let lease = Millis(args.must("lease-ms"));
        let request = Acquire { owner: owner.as_bytes(), want, lease, holds: args.may("holds") };
        let session = args.may::<String>("session").map(|name| self.session(&name));
        let (reply, change) = self.with_all(lock, owner, |table, at| {
            if wait {
                return table.wait(at, &request, session);
            }
            let (reply, change) = table.acquire(at, &request);
            (WaitReply::Now(reply), change)
        });
        let timeout = args.may("timeout-ms").map(Millis);
        let name = args.may("client").unwrap_or_else(|| owner.to_owned());
        match reply {
            WaitReply::Now(reply) => self.say(&format!("-> {}", words::acquired(reply))),
            WaitReply::QueueFull(_) => self.say("-> QUEUEFULL"),
            WaitReply::Draining => self.say("-> TRYAGAIN"),
            WaitReply::Deadlock(_) => self.say("-> DEADLOCK"),
            WaitReply::Block if session.is_some() => {
                self.say("-> queued");
                let join = Join { owner: owner.as_bytes(), want, lease, timeout };
                let via = Via::Session(session.expect("it is one"));
                let (_, out) =
                    self.with_all(lock, owner, |table, at| table.enqueue(at, &join, via));
                self.tell(out, "UNBLOCKED");
            }
            WaitReply::Block => {
                self.say("-> (blocked)");
                let join = Join { owner: owner.as_bytes(), want, lease, timeout };
                let client = Client {
                    name: name.clone(),
                    ends: timeout.map(|timeout| self.clock.now().mono.plus(timeout)),
                };
                let (id, out) =
                    self.with_all(lock, owner, |table, at| table.enqueue(at, &join, client));
                self.tell(out, "UNBLOCKED");
                self.waiting.insert(name, id);
            }
        }
        self.carry_out(lock, owner, change);
    }

    /// Applies another client's command to a key.
    fn befall(&mut self, command: &str, args: &mut Args<'_>) {
        let lock = self.name(args);
        let what = match command {
            "del" => Foreign::Del,
            "set" => Foreign::Set,
            "hset" => Foreign::Hset(args.must("field"), args.must("value")),
            "hdel" => Foreign::Hdel(args.must("field")),
            "persist" => Foreign::Persist,
            _ => Foreign::Pexpire(args.must("ms")),
        };
        let now = self.clock.now();
        // Some servers do not report every change of a key.
        if args.flag("unseen") {
            self.space.change(&lock, &what, now);
        } else {
            self.space.befall(&lock, &what, now, &mut self.table);
        }
        self.changed.insert(lock);
    }

    fn event(&mut self, event: &str, args: &mut Args<'_>) {
        match event {
            // Keys expire without a report from the server; `due` is the timer.
            "pass" => {
                let ms: u64 = args.must("ms");
                let wall = args.may("wall-ms").unwrap_or_else(|| ms.cast_signed());
                self.clock.pass(ms, wall, &mut self.table);
                self.space.expire(self.clock.now());
            }
            "due" => self.due(),
            "disconnect" => {
                let id = self.waiting[&args.must::<String>("client")];
                let out = self.table.disconnected(id);
                self.tell(out, "gone");
            }
            // The reply of a hand-off is written, or its client has disconnected.
            "answered" => {
                let grant = self.grants.remove(&args.must::<String>("client"));
                let grant = grant.expect("a grant");
                let key = key_ref(&grant.lock);
                self.table.delivered(key, grant.id, grant.owner.as_bytes(), grant.token);
            }
            "gone" => {
                let grant = self.grants.remove(&args.must::<String>("client"));
                let grant = grant.expect("a grant");
                let (owner, by) = (&grant.owner, grant.owner.as_bytes());
                let (id, token) = (grant.id, grant.token);
                let change =
                    self.with(&grant.lock, owner, |table, at| table.take_back(at, id, by, token));
                self.carry_out(&grant.lock, owner, change);
            }
            "flush" => {
                let (db, now) = (args.may("db"), self.clock.now());
                self.space.flush(db, now, &mut self.table);
            }
            "look-every" => self.table.look_every = args.may("ms").map(Millis),
            "limits" => {
                self.table.limits.waiters = args.must("waiters");
                self.table.limits.waiters_per_key = args.must("per-key");
            }
            "drain" => {
                self.table.limits.draining = true;
                let mut all = self.table.dismiss_all();
                // The order of the clients does not matter.
                all.sort_by(|a, b| a.name.cmp(&b.name));
                all.into_iter().for_each(|out| self.tell(Some(out), "TRYAGAIN"));
            }
            "slot-moved" => {
                let lock = self.name(args);
                while let Some(out) = self.table.dismiss_one_of(key_ref(&lock), Dismissal::Moving) {
                    self.tell(out, "MOVED");
                }
            }
            "quarantine" => {
                let now = self.clock.now();
                self.table.set_quarantine(Millis(args.must("ms")));
                self.table.end_quarantine(now);
                if args.flag("begins") {
                    self.table.begin_quarantine(now);
                }
            }
            "drain-over" => self.table.limits.draining = false,
            // Without a token, the floor is unknown.
            "floor" => self.floor = args.may("token"),
            "list" => self.list(args.may("db").unwrap_or(0), args.must("count")),
            other => self.session_event(other, args),
        }
    }

    /// Does all due work, as the timer does.
    fn due(&mut self) {
        let now = self.clock.now();
        self.table.end_quarantine(now);
        while let Some(out) = self.table.time_out_one(now) {
            self.tell(out, "nil");
        }
        self.sessions_due();
        while let Some((lock, cause)) = self.table.next_look(now) {
            let name = String::from_utf8_lossy(&lock.name).into_owned();
            let lock = (lock.db, name);
            self.say(&format!("look at {}: {}", words::key(&lock), words::cause(cause)));
            let change = self.look(&lock, cause);
            self.carry_out(&lock, "", change);
        }
        self.changed.clear();
    }

    fn list(&mut self, db: i32, count: usize) {
        let now = self.clock.now().mono;
        for lock in self.table.most_waited_for(db, count) {
            let key = String::from_utf8_lossy(&lock.key.name);
            let waited = lock.since.map_or(0, |since| now.since(since).0);
            self.log += &format!("-> {key}, waiters {}, longest {waited}\n", lock.waiters);
        }
    }

    fn name(&mut self, args: &mut Args<'_>) -> Name {
        let name = (args.may("db").unwrap_or(0), args.must("key"));
        self.names.insert(name.clone());
        name
    }

    /// Calls `ask` with the table, and with the lock as an owner sees it.
    pub(crate) fn with<T>(
        &mut self,
        lock: &Name,
        owner: &str,
        ask: impl FnOnce(&mut Table<Client>, &kvlock_core::Situation<'_>) -> T,
    ) -> T {
        let asked = Asked { owner: owner.as_bytes(), living_at: None };
        let at = self.space.situation(lock, asked, self.clock.now(), self.floor);
        ask(&mut self.table, &at)
    }

    /// Like `with`, after a search for living sharers.
    pub(crate) fn with_all<T>(
        &mut self,
        lock: &Name,
        owner: &str,
        ask: impl FnOnce(&mut Table<Client>, &kvlock_core::Situation<'_>) -> T,
    ) -> T {
        let now = self.clock.now();
        let asked = Asked { owner: owner.as_bytes(), living_at: Some(now.unix()) };
        let at = self.space.situation(lock, asked, now, self.floor);
        ask(&mut self.table, &at)
    }

    pub(crate) fn look(&mut self, lock: &Name, cause: Cause) -> Change<Client> {
        if self.with(lock, "", |table, at| table.must_find_live_sharers(at)) {
            self.with_all(lock, "", |table, at| table.look(at, cause))
        } else {
            self.with(lock, "", |table, at| table.look(at, cause))
        }
    }

    pub(crate) fn say(&mut self, line: &str) {
        self.log += line;
        self.log += "\n";
    }

    pub(crate) fn tell(&mut self, client: Option<Client>, what: &str) {
        if let Some(client) = client {
            self.say(&format!("{}'s wait ends: {what}", client.name));
            self.waiting.remove(&client.name);
        }
    }
}
