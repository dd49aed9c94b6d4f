//! Where a transcript is played: a table with a server around it, that does what the module does.

use std::collections::{BTreeMap, BTreeSet};

use kvlock_core::{
    Acquire, Cause, Change, Counters, Join, Limits, Millis, MonoMillis, Release, Table, Token,
    WaitReply, WaiterId,
};

use crate::sim::{Clock, Foreign, Keyspace, Name, first_look, key_ref};
use crate::{Args, words};

/// A client that waits.
#[derive(Debug, PartialEq)]
struct Client {
    name: String,
    ends: Option<MonoMillis>,
}

/// A lock that was given to a client that waited.
#[derive(Debug)]
struct Grant {
    lock: Name,
    owner: String,
    token: Token,
}

#[derive(Debug)]
pub(crate) struct Stage {
    table: Table<Client>,
    space: Keyspace,
    clock: Clock,
    floor: Option<u64>,
    /// Every key that was ever spoken of.
    names: BTreeSet<Name>,
    /// Those that others changed since the timer ran.
    changed: BTreeSet<Name>,
    /// Which waiter a client is.
    waiting: BTreeMap<String, WaiterId>,
    /// By the name of the client: grants whose reply is on its way.
    grants: BTreeMap<String, Grant>,
    /// What happened in this step.
    log: String,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let limits = Limits { waiters: 100, waiters_per_key: 100, draining: false };
        Self {
            table: Table::new(limits),
            space: Keyspace::default(),
            clock: Clock::new(),
            floor: Some(0),
            names: BTreeSet::new(),
            changed: BTreeSet::new(),
            waiting: BTreeMap::new(),
            grants: BTreeMap::new(),
            log: String::new(),
        }
    }

    /// Carries out one command; returns what it came to and how everything stands then.
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
        self.table.check().expect("the invariants hold");
        let happened = std::mem::take(&mut self.log);
        happened + &self.standing(&before)
    }

    /// What a client asks for. Whoever is owed the lock gets it first.
    fn request(&mut self, command: &str, args: &mut Args<'_>) {
        let lock = self.name(args);
        if self.with(&lock, |table, at| table.owes_a_grant(at)) {
            let changed = self.changed.contains(&lock);
            let cause = if changed { Cause::Outside } else { Cause::Expiry };
            let change = self.with(&lock, |table, at| table.look(at, cause));
            if change != Change::None {
                self.say("before that:");
            }
            self.carry_out(&lock, "", change);
        }
        if command == "force-release" {
            let (reply, change) = self.with(&lock, |table, at| table.force_release(at));
            let released = reply.map_or("WRONGTYPE", |held| if held { "1" } else { "0" });
            self.say(&format!("-> {released}"));
            self.carry_out(&lock, "", change);
            return;
        }
        let owner: String = args.must("owner");
        match command {
            "acquire" | "wait" => self.acquire(command == "wait", &lock, &owner, args),
            "release" => {
                let release = match args.may("holds") {
                    Some(n) => Release::DownTo(n),
                    None if args.flag("all") => Release::All,
                    None => Release::One,
                };
                let (reply, change) =
                    self.with(&lock, |table, at| table.release(at, owner.as_bytes(), release));
                self.say(&format!("-> {}", words::released(reply)));
                self.carry_out(&lock, &owner, change);
            }
            "renew" => {
                let lease = Millis(args.must("lease-ms"));
                let (reply, change) =
                    self.with(&lock, |table, at| table.renew(at, owner.as_bytes(), lease));
                self.say(&format!("-> {}", words::renewed(reply)));
                self.carry_out(&lock, &owner, change);
            }
            _ => {
                let out = self.table.cancel(key_ref(&lock), owner.as_bytes());
                self.say(if out.is_some() { "-> 1" } else { "-> 0" });
                self.tell(out, "nil");
            }
        }
    }

    fn acquire(&mut self, wait: bool, lock: &Name, owner: &str, args: &mut Args<'_>) {
        let lease = Millis(args.must("lease-ms"));
        let request = Acquire { owner: owner.as_bytes(), lease, holds: args.may("holds") };
        let (reply, change) = self.with(lock, |table, at| {
            if wait {
                return table.wait(at, &request);
            }
            let (reply, change) = table.acquire(at, &request);
            (WaitReply::Now(reply), change)
        });
        let timeout = args.may("timeout-ms").map(Millis);
        let name = args.may("client").unwrap_or_else(|| owner.to_owned());
        match reply {
            WaitReply::Now(reply) => self.say(&format!("-> {}", words::acquired(reply))),
            WaitReply::QueueFull => self.say("-> QUEUEFULL"),
            WaitReply::Draining => self.say("-> TRYAGAIN"),
            WaitReply::Block => {
                self.say("-> (blocked)");
                let join = Join { owner: owner.as_bytes(), lease, timeout };
                let client = Client {
                    name: name.clone(),
                    ends: timeout.map(|timeout| self.clock.now().mono.plus(timeout)),
                };
                let (id, out) = self.with(lock, |table, at| table.enqueue(at, &join, client));
                self.tell(out, "UNBLOCKED");
                self.waiting.insert(name, id);
            }
        }
        self.carry_out(lock, owner, change);
    }

    /// What somebody else does to a key, with a command of the server.
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
        // Some servers do not say that a key is gone.
        if args.flag("unseen") {
            self.space.change(&lock, &what, now);
        } else {
            self.space.befall(&lock, &what, now, &mut self.table);
        }
        self.changed.insert(lock);
    }

    fn event(&mut self, event: &str, args: &mut Args<'_>) {
        match event {
            // Time goes by. The server says nothing; `due` is the timer.
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
            // The reply of a hand-off is written, or its client was gone before that.
            "answered" => {
                let grant = self.grants.remove(&args.must::<String>("client"));
                self.table.delivered(grant.expect("a grant").token);
            }
            "gone" => {
                let grant = self.grants.remove(&args.must::<String>("client"));
                let grant = grant.expect("a grant");
                let (owner, token) = (grant.owner.as_bytes(), grant.token);
                let change = self.with(&grant.lock, |table, at| table.take_back(at, owner, token));
                self.carry_out(&grant.lock, "", change);
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
                // They go in no particular order.
                all.sort_by(|a, b| a.name.cmp(&b.name));
                all.into_iter().for_each(|out| self.tell(Some(out), "TRYAGAIN"));
            }
            "slot-moved" => {
                let lock = self.name(args);
                while let Some(out) = self.table.dismiss_one_of(key_ref(&lock)) {
                    self.tell(Some(out), "MOVED");
                }
            }
            "drain-over" => self.table.limits.draining = false,
            // Without a token it is not known yet.
            "floor" => self.floor = args.may("token"),
            "list" => self.list(args.may("db").unwrap_or(0), args.must("count")),
            other => panic!("no such command: {other}"),
        }
    }

    /// Does all that is due, as the timer does.
    fn due(&mut self) {
        let now = self.clock.now();
        while let Some(out) = self.table.time_out_one(now) {
            self.tell(Some(out), "nil");
        }
        while let Some((lock, cause)) = self.table.next_look(now) {
            let name = String::from_utf8_lossy(&lock.name).into_owned();
            let lock = (lock.db, name);
            self.say(&format!("look at {}: {}", words::key(&lock), words::cause(cause)));
            let change = self.with(&lock, |table, at| table.look(at, cause));
            self.carry_out(&lock, "", change);
        }
        self.changed.clear();
    }

    fn list(&mut self, db: i32, count: usize) {
        let now = self.clock.now().mono;
        for lock in self.table.most_waited_for(db, count) {
            let key = String::from_utf8_lossy(&lock.key.name);
            let waited = now.since(lock.since).0;
            self.log += &format!("-> {key}, waiters {}, longest {waited}\n", lock.waiters);
        }
    }

    fn name(&mut self, args: &mut Args<'_>) -> Name {
        let name = (args.may("db").unwrap_or(0), args.must("key"));
        self.names.insert(name.clone());
        name
    }

    fn with<T>(
        &mut self,
        lock: &Name,
        ask: impl FnOnce(&mut Table<Client>, &kvlock_core::Situation<'_>) -> T,
    ) -> T {
        let at = self.space.situation(lock, self.clock.now(), self.floor);
        ask(&mut self.table, &at)
    }

    fn say(&mut self, line: &str) {
        self.log += line;
        self.log += "\n";
    }

    fn tell(&mut self, client: Option<Client>, what: &str) {
        if let Some(client) = client {
            self.say(&format!("{}'s wait ends: {what}", client.name));
            self.waiting.remove(&client.name);
        }
    }

    fn carry_out(&mut self, lock: &Name, caller: &str, change: Change<Client>) {
        self.log += &words::written(lock, caller, &change, self.clock.now());
        self.space.apply(lock, caller, &change);
        if let Change::HandOff(hand_off) = change {
            let token = hand_off.token;
            let grant = Grant {
                lock: lock.clone(),
                owner: String::from_utf8_lossy(&hand_off.owner).into_owned(),
                token,
            };
            self.grants.insert(hand_off.client.name.clone(), grant);
            let told = format!("granted, token {}, holds 1", token.value());
            self.tell(Some(hand_off.client), &told);
        }
    }

    /// How everything stands, and what was counted since.
    fn standing(&self, before: &Counters) -> String {
        let mut all = String::new();
        let now = self.clock.now();
        for lock in &self.names {
            let seen = words::seen(&self.space.observe(lock), now);
            all += &format!("{}: {seen}\n", words::key(lock));
            for (place, waiter) in (1..).zip(self.table.queue_of(key_ref(lock))) {
                let owner = String::from_utf8_lossy(waiter.owner);
                let waited = now.mono.since(waiter.since).0;
                let left = match waiter.client.ends {
                    Some(end) => format!("{} left", end.since(now.mono).0),
                    None => "no limit".to_owned(),
                };
                let client = &waiter.client.name;
                let by = if **client == *owner { String::new() } else { format!(" ({client})") };
                all += &format!("  {place}. {owner}{by}, waited {waited}, {left}\n");
            }
        }
        if let Some(look) = first_look(&self.table) {
            all += &format!("next look in {}\n", look.since(now.unix()).0);
        }
        all + &words::counted(before, self.table.counters())
    }
}
