//! The smallest server for a table: a keyspace that applies each [`Change`] and each foreign write,
//! and clocks that tests set.

use std::collections::{BTreeMap, BTreeSet};

use kvlock_core::{
    Cause, Change, KeyRef, Keys, MODE_FIELD, Millis, Mode, MonoMillis, Now, Observed, Results,
    Share, Sharers, Sharing, Situation, TOKEN_FIELD, Table, Token, UnixMillis, VALUE_FIELD,
    stored_value,
};

/// Start of the monotonic clock, far beyond any time of the wall clock: see [`first_look`].
const MONO_START: u64 = 1 << 50;

/// Start of the wall clock, in microseconds: 1,000 s after 1970.
const WALL_START_US: u64 = 1_000_000_000;

/// The name of a key: its database and its bytes.
pub type Name = (i32, String);

/// Returns the name in the form that the table takes.
pub fn key_ref(name: &Name) -> KeyRef<'_> {
    KeyRef::lock(name.0, name.1.as_bytes())
}

/// Both clocks of the server.
#[derive(Debug)]
pub struct Clock {
    now: Now,
}

impl Clock {
    pub fn new() -> Self {
        Self { now: Now { unix_us: WALL_START_US, mono: MonoMillis(MONO_START) } }
    }

    pub fn now(&self) -> Now {
        self.now
    }

    /// Advances both clocks. The wall clock may also jump back or forward. After a jump back, looks
    /// that were planned by the wall clock would be late. So this plans a look at every key with
    /// waiters, as the module does.
    pub fn pass<P>(&mut self, mono_ms: u64, wall_ms: i64, table: &mut Table<P>) {
        let wall_us = wall_ms * 1000;
        self.now.unix_us = self.now.unix_us.saturating_add_signed(wall_us);
        self.now.mono = self.now.mono.plus(Millis(mono_ms));
        if wall_ms < 0 {
            table.look_at_all_soon(None, self.now);
        }
    }
}

/// Returns the time of the first look that the table has planned. The table only reports the time
/// until the next work. At the origin of both clocks, a look is always nearer than the end of a
/// wait.
pub fn first_look<P>(table: &Table<P>) -> Option<UnixMillis> {
    let beginning = Now { unix_us: 0, mono: MonoMillis(0) };
    let due = table.next_due(beginning)?;
    (due.0 < MONO_START).then_some(UnixMillis(due.0))
}

/// The owner for which a key is read.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub owner: &'a [u8],
    /// Time at which a share must not have expired to count; `None` if this is not checked.
    pub living_at: Option<UnixMillis>,
}

impl Asked<'_> {
    pub const NOBODY: Self = Self { owner: b"", living_at: None };
}

/// Reads a shared lock as the module does.
fn shared<'a>(
    fields: &BTreeMap<Vec<u8>, Vec<u8>>,
    until: Option<UnixMillis>,
    asked: Asked<'a>,
) -> Observed<'a> {
    let token = fields.get(TOKEN_FIELD).and_then(|token| Token::read(token));
    let reserved = |field: &[u8]| [TOKEN_FIELD, MODE_FIELD, VALUE_FIELD].contains(&field);
    let holders = fields.iter().filter(|(field, _)| !reserved(field));
    let shares: Option<Vec<_>> = holders.map(|(_, value)| Share::read(value)).collect();
    let Some(shares) = shares else {
        return Observed::NotALock { until };
    };
    let own = fields.get(asked.owner).and_then(|value| Share::read(value));
    let found = asked.living_at.map(|now| shares.iter().find(|share| share.is_live(now)));
    let living = found.flatten().map(|share| share.until);
    if shares.is_empty() || (found.is_some() && living.is_none()) {
        return Observed::Free { stored: token };
    }
    let holders = shares.len();
    Observed::Shared(Sharing { asked: asked.owner, own, token, until, holders, living })
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

/// Commands of other clients that change a key.
#[derive(Clone, Debug)]
pub enum Foreign {
    Del,
    Set,
    Hset(String, String),
    Hdel(String),
    Persist,
    Pexpire(u64),
}

/// All keys of the server.
#[derive(Debug, Default)]
pub struct Keyspace {
    entries: BTreeMap<Name, Entry>,
    /// Results in each database. They are keys, but none of them is a lock.
    results: BTreeMap<i32, ResultKeys>,
}

/// Results in a database.
#[derive(Debug, Default)]
pub struct ResultKeys(BTreeSet<Vec<u8>>);

impl Keys for ResultKeys {
    fn exists(&self, name: &[u8]) -> bool {
        self.0.contains(name)
    }
}

/// Shows the table the holders of the locks of database 0.
pub struct Holders<'a> {
    pub space: &'a Keyspace,
    pub now: UnixMillis,
}

impl Keys for Holders<'_> {
    fn exists(&self, _: &[u8]) -> bool {
        false
    }

    fn holders(&self, name: &[u8], _: &[u8], most: usize) -> kvlock_core::HeldBy {
        let name = (0, String::from_utf8_lossy(name).into_owned());
        let alone = match self.space.observe(&name, Asked::NOBODY) {
            Observed::Held(holding) => Some(holding.owner.into()),
            Observed::Free { .. } | Observed::NotALock { .. } | Observed::Shared(_) => None,
        };
        let shares = self.space.shares(&name).into_iter();
        let living = shares.filter(|(_, (_, until))| *until >= self.now.0);
        let living = living.map(|(owner, _)| owner.into_bytes().into_boxed_slice());
        let is_shared = alone.is_none();
        let owners = alone.into_iter().chain(living).take(most).collect();
        kvlock_core::HeldBy { owners, is_shared }
    }
}

static NO_RESULTS: ResultKeys = ResultKeys(BTreeSet::new());

impl Keyspace {
    /// Reads a key as the module reads it for an owner. Checks whether all shares have expired only
    /// if `asked` contains a time.
    pub fn observe<'a>(&'a self, name: &Name, asked: Asked<'a>) -> Observed<'a> {
        match self.entries.get(name) {
            None => Observed::Free { stored: None },
            Some(Entry { value: Value::Text, until }) => Observed::NotALock { until: *until },
            Some(Entry { value: Value::Hash(fields), until }) => {
                let all = fields.iter().map(|(f, v)| (&f[..], &v[..]));
                match fields.get(MODE_FIELD).and_then(|mode| Mode::read(mode)) {
                    Some(Mode::Shared) => shared(fields, *until, asked),
                    _ => Observed::from_fields(all.take(4), *until),
                }
            }
        }
    }

    /// Owners that share a lock, each with its hold count and the end of its lease.
    pub fn shares(&self, name: &Name) -> Vec<(String, (u64, u64))> {
        let Some(Entry { value: Value::Hash(fields), .. }) = self.entries.get(name) else {
            return Vec::new();
        };
        let shared = fields.get(MODE_FIELD).and_then(|mode| Mode::read(mode)) == Some(Mode::Shared);
        let shares = fields.iter().filter_map(|(owner, value)| {
            let share = Share::read(value).filter(|_| shared)?;
            Some((String::from_utf8_lossy(owner).into_owned(), (share.holds, share.until.0)))
        });
        shares.collect()
    }

    /// Results in a database.
    pub fn results(&self, db: i32) -> &ResultKeys {
        self.results.get(&db).unwrap_or(&NO_RESULTS)
    }

    /// Stores a result, or deletes it.
    pub fn set_result(&mut self, db: i32, name: &str, there: bool) {
        let results = &mut self.results.entry(db).or_default().0;
        if there {
            results.insert(name.into())
        } else {
            results.remove(name.as_bytes())
        };
    }

    /// Returns everything about a key that the table gets as input.
    pub fn situation<'a>(
        &'a self,
        name: &'a Name,
        asked: Asked<'a>,
        now: Now,
        floor: Option<u64>,
    ) -> Situation<'a> {
        Situation {
            key: key_ref(name),
            seen: self.observe(name, asked),
            now,
            floor,
            results: Results::among(self.results(name.0)),
        }
    }

    /// Applies a change of the table to a key. For most changes, checks that the key's content allows
    /// them.
    pub fn apply<P>(&mut self, name: &Name, caller: &str, now: Now, change: &Change<P>) {
        let asked = Asked { owner: caller.as_bytes(), living_at: Some(now.unix()) };
        let seen = self.observe(name, asked);
        let free = matches!(seen, Observed::Free { .. });
        let held = matches!(seen, Observed::Held(_));
        let shared = matches!(self.observe(name, Asked::NOBODY), Observed::Shared(_));
        match change {
            Change::None => {}
            Change::Take { token, until, value } => {
                assert!(free, "only a free lock is taken (I9)");
                self.put(name, caller.as_bytes(), *token, *until);
                self.say(name, value);
            }
            Change::Update { holds, token, until, value } => {
                assert!(held, "only a holder is updated");
                self.update(name, caller, *holds, *token, *until);
                self.say(name, value);
            }
            Change::Beside { holds, token, until } => {
                assert!(held, "only a holder shares beside");
                self.update(name, caller, None, *token, *until);
                let mode = Mode::Exclusive(*holds).text().into_bytes();
                let mode = (*holds > 0).then_some(mode);
                self.set(name, MODE_FIELD, mode);
            }
            Change::Free | Change::GiveWay => {
                assert!(held || shared, "only a held lock is freed");
                self.entries.remove(name);
            }
            Change::Leave => {
                assert!(shared, "only a sharer leaves");
                self.set(name, caller.as_bytes(), None);
            }
            Change::HandOff(hand_off) => {
                self.put(name, &hand_off.owner, hand_off.token, hand_off.until);
                self.say(name, &hand_off.value);
            }
            Change::Share(sharers) => {
                assert!(sharers.begins || shared, "only a shared lock goes on being shared");
                self.share(name, caller, sharers);
            }
        }
    }

    fn share<P>(&mut self, name: &Name, caller: &str, sharers: &Sharers<P>) {
        if sharers.begins {
            let entry = Entry { value: Value::Hash(BTreeMap::new()), until: None };
            self.entries.insert(name.clone(), entry);
            self.set(name, MODE_FIELD, Some(Mode::Shared.text().into_bytes()));
        }
        if let Some(token) = sharers.token {
            self.set(name, TOKEN_FIELD, Some(token.text().as_bytes().to_vec()));
        }
        if let Some(share) = sharers.own {
            self.set(name, caller.as_bytes(), Some(share.text().into_bytes()));
        }
        for hand_off in &sharers.joined {
            let share = Share { holds: 1, until: hand_off.until };
            self.set(name, &hand_off.owner, Some(share.text().into_bytes()));
        }
        if let Some(entry) = self.entries.get_mut(name) {
            entry.until = sharers.until.or(entry.until);
        }
    }

    /// Sets the holder's value; an empty one deletes it.
    fn say(&mut self, name: &Name, value: &kvlock_core::Value) {
        if let Some(value) = value {
            let said = Some(stored_value(value)).filter(|_| !value.is_empty());
            self.set(name, VALUE_FIELD, said);
        }
    }

    fn set(&mut self, name: &Name, field: &[u8], value: Option<Vec<u8>>) {
        if let Some(Entry { value: Value::Hash(fields), .. }) = self.entries.get_mut(name) {
            match value {
                Some(value) => fields.insert(field.to_vec(), value),
                None => fields.remove(field),
            };
        }
    }

    fn put(&mut self, name: &Name, owner: &[u8], token: Token, until: UnixMillis) {
        let fields = BTreeMap::from([
            (owner.to_vec(), b"1".to_vec()),
            (TOKEN_FIELD.to_vec(), token.text().as_bytes().to_vec()),
        ]);
        let entry = Entry { value: Value::Hash(fields), until: Some(until) };
        self.entries.insert(name.clone(), entry);
    }

    fn update(
        &mut self,
        name: &Name,
        holder: &str,
        holds: Option<u64>,
        token: Option<Token>,
        until: Option<UnixMillis>,
    ) {
        if let Some(holds) = holds {
            self.set(name, holder.as_bytes(), Some(holds.to_string().into_bytes()));
        }
        if let Some(token) = token {
            self.set(name, TOKEN_FIELD, Some(token.text().as_bytes().to_vec()));
        }
        if let Some(entry) = self.entries.get_mut(name) {
            entry.until = until.or(entry.until);
        }
    }

    /// Applies another client's command to a key. If it changed the key, lets the table plan a look, as
    /// the module does when the server reports the change. Returns whether it changed the key.
    pub fn befall<P>(
        &mut self,
        name: &Name,
        what: &Foreign,
        now: Now,
        table: &mut Table<P>,
    ) -> bool {
        let changed = self.change(name, what, now);
        if changed {
            table.look_soon_at_all_of(name.0, name.1.as_bytes(), Cause::Outside, now);
        }
        changed
    }

    /// Applies the command without a notice to the table. Returns whether it changed anything.
    pub fn change(&mut self, name: &Name, what: &Foreign, now: Now) -> bool {
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

    /// Deletes the locks of a database, or of all databases, and plans looks at their keys.
    pub fn flush<P>(&mut self, db: Option<i32>, now: Now, table: &mut Table<P>) {
        self.entries.retain(|(of, _), _| db.is_some_and(|db| db != *of));
        table.look_at_all_soon(db, now);
    }

    /// Removes every expired key, without a notice to the table. A server may do so much later, so
    /// the table must not depend on it.
    pub fn expire(&mut self, now: Now) {
        let expired = |until: UnixMillis| until < now.unix();
        self.entries.retain(|_, entry| !entry.until.is_some_and(expired));
    }
}
