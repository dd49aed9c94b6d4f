//! A server as small as can be, to put around a table: a keyspace that does what a
//! [`Change`] says and what others do to it, and clocks that are moved by hand.

use std::collections::BTreeMap;

use kvlock_core::{
    Cause, Change, KeyRef, Millis, MonoMillis, Now, Observed, Situation, TOKEN_FIELD, Table, Token,
    UnixMillis,
};

/// Where the clock that only goes forward starts. It is far beyond any wall clock, see
/// [`first_look`].
const MONO_START: u64 = 1 << 50;

/// Where the wall clock starts, in microseconds: 1,000 s after 1970.
const WALL_START_US: u64 = 1_000_000_000;

/// The name of a key: its database and its bytes.
pub(crate) type Name = (i32, String);

/// The same name as the table takes it.
pub(crate) fn key_ref(name: &Name) -> KeyRef<'_> {
    KeyRef { db: name.0, name: name.1.as_bytes() }
}

/// Both clocks of the server.
#[derive(Debug)]
pub(crate) struct Clock {
    now: Now,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { now: Now { unix_us: WALL_START_US, mono: MonoMillis(MONO_START) } }
    }

    pub(crate) fn now(&self) -> Now {
        self.now
    }

    /// Moves the clocks on. The wall clock may be set back or forward meanwhile. If it is set
    /// back, what was planned by it is late, and the server's next round has everything looked at.
    pub(crate) fn pass<P>(&mut self, mono_ms: u64, wall_ms: i64, table: &mut Table<P>) {
        let wall_us = wall_ms * 1000;
        self.now.unix_us = self.now.unix_us.saturating_add_signed(wall_us);
        self.now.mono = self.now.mono.plus(Millis(mono_ms));
        if wall_ms < 0 {
            table.look_at_all_soon(None, self.now);
        }
    }
}

/// The moment of the first look that the table has planned. The table says how long it is until
/// anything is due; asked at the beginning of both clocks, a look is always nearer than the end
/// of a wait.
pub(crate) fn first_look<P>(table: &Table<P>) -> Option<UnixMillis> {
    let beginning = Now { unix_us: 0, mono: MonoMillis(0) };
    let due = table.next_due(beginning)?;
    (due.0 < MONO_START).then_some(UnixMillis(due.0))
}

#[derive(Debug, PartialEq, Eq)]
enum Value {
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    Text,
}

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    value: Value,
    until: Option<UnixMillis>,
}

/// What others may do to a key.
#[derive(Clone, Debug)]
pub(crate) enum Foreign {
    Del,
    Set,
    Hset(String, String),
    Hdel(String),
    Persist,
    Pexpire(u64),
}

/// All keys of the server.
#[derive(Debug, Default)]
pub(crate) struct Keyspace {
    entries: BTreeMap<Name, Entry>,
}

impl Keyspace {
    /// What a key holds, read as the module reads it.
    pub(crate) fn observe(&self, name: &Name) -> Observed<'_> {
        match self.entries.get(name) {
            None => Observed::Free { stored: None },
            Some(Entry { value: Value::Text, until }) => Observed::NotALock { until: *until },
            Some(Entry { value: Value::Hash(fields), until }) => {
                let fields = fields.iter().take(4).map(|(f, v)| (&f[..], &v[..]));
                Observed::from_fields(fields, *until)
            }
        }
    }

    /// Everything that the table is told about a key.
    pub(crate) fn situation<'a>(
        &'a self,
        name: &'a Name,
        now: Now,
        floor: Option<u64>,
    ) -> Situation<'a> {
        Situation { key: key_ref(name), seen: self.observe(name), now, floor }
    }

    /// Does what the table says to a key, and checks that it can be done to what is there.
    pub(crate) fn apply<P>(&mut self, name: &Name, caller: &str, change: &Change<P>) {
        let free = matches!(self.observe(name), Observed::Free { .. });
        let held = matches!(self.observe(name), Observed::Held(_));
        match change {
            Change::None => {}
            Change::Take { token, until } => {
                assert!(free, "only a free lock is taken");
                self.put(name, caller.as_bytes(), *token, *until);
            }
            Change::Update { holds, token, until } => {
                assert!(held, "only a holder is updated");
                self.update(name, *holds, *token, *until);
            }
            Change::Free => {
                assert!(held, "only a held lock is freed");
                self.entries.remove(name);
            }
            Change::HandOff(hand_off) => {
                self.put(name, &hand_off.owner, hand_off.token, hand_off.until);
            }
        }
    }

    fn put(&mut self, name: &Name, owner: &[u8], token: Token, until: UnixMillis) {
        let fields = BTreeMap::from([
            (owner.to_vec(), b"1".to_vec()),
            (TOKEN_FIELD.to_vec(), token.value().to_string().into_bytes()),
        ]);
        let entry = Entry { value: Value::Hash(fields), until: Some(until) };
        self.entries.insert(name.clone(), entry);
    }

    fn update(
        &mut self,
        name: &Name,
        holds: Option<u64>,
        token: Option<Token>,
        until: Option<UnixMillis>,
    ) {
        let Some(entry) = self.entries.get_mut(name) else {
            return;
        };
        let Value::Hash(fields) = &mut entry.value else {
            return;
        };
        if let Some(holds) = holds {
            for (field, value) in fields.iter_mut() {
                if field != TOKEN_FIELD {
                    *value = holds.to_string().into_bytes();
                }
            }
        }
        if let Some(token) = token {
            let value = token.value().to_string().into_bytes();
            fields.insert(TOKEN_FIELD.to_vec(), value);
        }
        entry.until = until.or(entry.until);
    }

    /// Does to a key what somebody else wants, as the server's own command would, and has the
    /// table plan a look at it, as the module does when it hears of it.
    pub(crate) fn befall<P>(
        &mut self,
        name: &Name,
        what: &Foreign,
        now: Now,
        table: &mut Table<P>,
    ) {
        if self.change(name, what, now) {
            table.look_soon(key_ref(name), Cause::Outside, now);
        }
    }

    /// The same without a word to the table. Says whether it came to anything.
    pub(crate) fn change(&mut self, name: &Name, what: &Foreign, now: Now) -> bool {
        match what {
            Foreign::Del => self.entries.remove(name).is_some(),
            Foreign::Set => {
                let (value, until) = (Value::Text, None);
                self.entries.insert(name.clone(), Entry { value, until });
                true
            }
            Foreign::Hset(field, value) => {
                let entry = self
                    .entries
                    .entry(name.clone())
                    .or_insert_with(|| Entry { value: Value::Hash(BTreeMap::new()), until: None });
                match &mut entry.value {
                    Value::Text => false,
                    Value::Hash(fields) => {
                        fields.insert(field.clone().into_bytes(), value.clone().into_bytes());
                        true
                    }
                }
            }
            Foreign::Hdel(field) => self.hdel(name, field),
            Foreign::Persist => {
                let entry = self.entries.get_mut(name);
                entry.is_some_and(|entry| entry.until.take().is_some())
            }
            Foreign::Pexpire(ms) => {
                let entry = self.entries.get_mut(name);
                let until = Some(now.unix().plus(Millis(*ms)));
                entry.map(|entry| entry.until = until).is_some()
            }
        }
    }

    fn hdel(&mut self, name: &Name, field: &str) -> bool {
        let Some(Entry { value: Value::Hash(fields), .. }) = self.entries.get_mut(name) else {
            return false;
        };
        let removed = fields.remove(field.as_bytes()).is_some();
        if fields.is_empty() {
            self.entries.remove(name);
        }
        removed
    }

    /// Empties a database, or all of them, and has the table look at what was in it.
    pub(crate) fn flush<P>(&mut self, db: Option<i32>, now: Now, table: &mut Table<P>) {
        self.entries.retain(|(of, _), _| db.is_some_and(|db| db != *of));
        table.look_at_all_soon(db, now);
    }

    /// Removes every key whose time is over. The server may find out much later: the table must
    /// not depend on being told, and is not.
    pub(crate) fn expire(&mut self, now: Now) {
        let expired = |until: UnixMillis| until < now.unix();
        self.entries.retain(|_, entry| !entry.until.is_some_and(expired));
    }
}
