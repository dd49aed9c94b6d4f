//! The core's table. It is built from the server's state for a step, and the new sessions and bindings are read
//! from it afterwards.

use kvlock_core::{Join, Limits, Reading, SessionId, SessionName, Table, Token, Want};

use crate::client::Asks;
use crate::server::{Binding, KEY, OWNERS, PARKED, Server, Session, at, millis};

/// Largest number of sessions of a client.
pub(crate) const SESSIONS: u8 = 4;

const USER: &[u8] = b"u";
const READY_KEY: &[u8] = b"r";

/// A blocked client and its request.
pub(crate) type Parked = (usize, Asks);

fn name(number: u8) -> SessionName {
    [number; 32]
}

/// A table, and the blocked reads of its sessions.
pub(crate) struct Tabled {
    pub(crate) table: Table<Parked>,
    readings: Vec<(u8, Reading)>,
}

impl Tabled {
    pub(crate) fn session(&self, number: u8) -> Option<SessionId> {
        self.table.session(&name(number), USER)
    }

    pub(crate) fn open(&mut self, number: u8, ttl: u8, now: u8) -> SessionId {
        let opened = self.table.open_session(name(number), USER, millis(ttl), at(now));
        opened.unwrap_or_else(|why| panic!("{why:?}"))
    }

    /// Adds a reader of a session for the given time, and returns the replaced reader. `None` if the session
    /// does not exist.
    pub(crate) fn read(&mut self, number: u8, time: u8, now: u8) -> Option<Option<Parked>> {
        let began = self.table.begin_reading(self.session(number)?, None, 0, at(now));
        let Ok((Some(reading), replaced)) = began else { panic!("{began:?}") };
        let parked = (usize::from(number / SESSIONS), Asks::Reading(number));
        self.table.block_reader(reading, parked, millis(time), at(now));
        self.readings.push((number, reading));
        Some(replaced)
    }

    pub(crate) fn lose_reader(&mut self, number: u8, now: u8) {
        for (_, reading) in self.readings.iter().filter(|(of, _)| *of == number) {
            self.table.reader_gone(*reading, at(now));
        }
    }
}

impl Server {
    /// A table with this server's state.
    pub(crate) fn table(&self, now: u8) -> Tabled {
        let mut table = Table::new(Limits::UNLIMITED);
        table.set_quarantine(millis(self.quarantine));
        table.begin_quarantine(at(0));
        for (client, lease) in self.queue.iter().copied() {
            let (owner, lease) = (OWNERS[client], millis(lease));
            let join = Join { owner, want: Want::Exclusive, lease, timeout: None };
            let joined = table.enqueue(&self.situation(client, now), &join, (client, Asks::Lock));
            table.set_ready_key(joined.0, self.results.map(|_| READY_KEY));
        }
        let mut made = Tabled { table, readings: Vec::new() };
        for Session { number, due, is_read } in self.sessions.iter().copied() {
            let opened = if is_read { 0 } else { due.saturating_sub(self.ttl) };
            made.open(number, self.ttl, opened);
            if is_read {
                made.read(number, due, 0);
            }
        }
        for Binding { owner, token, number } in self.bindings.iter().copied() {
            let open = made.session(number);
            let id = open.unwrap_or_else(|| made.open(number, self.ttl, 0));
            let Some(token) = Token::from_stored(token) else { panic!("a token") };
            made.table.bind((KEY, OWNERS[owner]), (token, millis(0)), id, at(0));
            if open.is_none() {
                made.table.close_session(id);
            }
        }
        made
    }

    /// Reads sessions and bindings back from a table. Advances the table's time to find out when sessions are due.
    pub(crate) fn read_back(&mut self, mut table: Table<Parked>, now: u8) {
        let before = std::mem::take(&mut self.bindings);
        for (owner, owner_name) in OWNERS.iter().enumerate() {
            let old = before.iter().find(|binding| binding.owner == owner);
            let tokens = self.lock.iter().map(|lock| lock.token);
            let mut tokens = tokens.chain(old.map(|binding| binding.token));
            self.bindings.extend(tokens.find_map(|token| {
                let to = table.bound_to(KEY, owner_name, Token::from_stored(token));
                to.map(|to| Binding { owner, token, number: to[0] })
            }));
        }
        while let Some(bound) = table.next_bound(at(now)) {
            let gone = before.iter().find(|binding| *OWNERS[binding.owner] == *bound.owner);
            self.bindings.extend(gone.filter(|_| bound.is_orphan));
        }
        let open = |view: kvlock_core::SessionView<'_, Parked>| Session {
            number: view.name[0],
            due: u8::MAX,
            is_read: view.reader.is_some(),
        };
        self.sessions = table.sessions().map(open).collect();
        for tick in now..=now + self.ttl.max(PARKED) {
            while table.handle_due_session(at(tick)) {}
            while table.next_reader(at(tick)).is_some() {}
            for session in &mut self.sessions {
                let id = table.session(&name(session.number), USER);
                let view = id.and_then(|id| table.view_session(id));
                if view.is_none_or(|view| view.reader.is_some() != session.is_read) {
                    session.due = session.due.min(tick);
                }
            }
        }
    }
}
