//! The core's table is made anew for each step, of what is known of the server, and asked afterwards
//! what has become of it.

use kvlock_core::{Limits, Millis, Reading, SessionId, Table, Token};

use super::server::{Binding, PARKED, Server, Session};
use crate::server::{KEY, OWNERS, at};

const USER: &[u8] = b"u";

/// A table, and how its sessions are named there.
pub(super) struct Made {
    pub(super) table: Table<()>,
    pub(super) named: Vec<(u8, SessionId, Option<Reading>)>,
}

impl Made {
    pub(super) fn named(&self, number: u8) -> Option<(SessionId, Option<Reading>)> {
        let found = self.named.iter().find(|named| named.0 == number);
        found.map(|(_, id, reading)| (*id, *reading))
    }

    fn open(&mut self, number: u8, ttl: u8, now: u8) -> SessionId {
        let opened = self.table.open_session([number; 32], USER, Millis(ttl.into()), at(now));
        let Ok(id) = opened else { panic!("{opened:?}") };
        self.named.push((number, id, None));
        id
    }
}

impl Server {
    /// A table that knows what is known here.
    pub(super) fn made(&self, ttl: u8) -> Made {
        let mut made = Made { table: Table::new(Limits::UNLIMITED), named: Vec::new() };
        for Session { number, due, reader } in self.sessions.iter().copied() {
            if reader.is_none() {
                made.open(number, ttl, due.saturating_sub(ttl));
                continue;
            }
            let id = made.open(number, ttl, 0);
            let began = made.table.begin_reading(id, None, 0, at(0));
            let Ok((Some(reading), _)) = began else { panic!("{began:?}") };
            made.table.block_reader(reading, (), Millis(due.into()), at(0));
            made.named.iter_mut().for_each(|named| {
                if named.0 == number {
                    named.2 = Some(reading);
                }
            });
        }
        for Binding { owner, token, number } in self.bindings.iter().copied() {
            let named = made.named(number).map(|(id, _)| id);
            let id = named.unwrap_or_else(|| made.open(number, ttl, 0));
            let Some(token) = Token::from_stored(token) else { panic!("a token") };
            made.table.bind((KEY, OWNERS[owner]), (token, Millis(0)), id, at(0));
            if named.is_none() {
                let _reader = made.table.close_session(id);
                made.named.retain(|(other, ..)| *other != number);
            }
        }
        made
    }

    /// What a table has come to know. When something is due there, is found by letting time go by.
    pub(super) fn read_back(&mut self, mut made: Made, ttl: u8, now: u8) {
        let before = std::mem::take(&mut self.bindings);
        let token = self.lock.map(|lock| lock.token);
        for (owner, name) in OWNERS.iter().enumerate() {
            let old = before.iter().find(|binding| binding.owner == owner);
            for token in token.into_iter().chain(old.map(|binding| binding.token)) {
                let to = made.table.bound_to(KEY, name, Token::from_stored(token));
                if let Some([number, ..]) = to.copied()
                    && !self.bindings.iter().any(|binding| binding.owner == owner)
                {
                    self.bindings.push(Binding { owner, token, number });
                }
            }
        }
        while let Some(bound) = made.table.next_bound(at(now)) {
            let gone = before.iter().find(|binding| *OWNERS[binding.owner] == *bound.owner);
            self.bindings.extend(gone.filter(|_| bound.is_orphan).copied());
        }
        let mut left = std::mem::take(&mut self.sessions);
        left.retain(|session| made.named(session.number).is_some());
        for session in &mut left {
            let view = made.named(session.number).and_then(|(id, _)| made.table.view_session(id));
            let Some(view) = view else {
                session.number = u8::MAX;
                continue;
            };
            session.reader = view.reader.map(|()| session.reader.unwrap_or(true));
        }
        left.retain(|session| session.number != u8::MAX);
        self.sessions.clone_from(&left);
        for tick in now..=now + ttl.max(PARKED) {
            while made.table.session_due(at(tick)) {}
            let mut due = Vec::new();
            while let Some((reading, ())) = made.table.next_reader(at(tick)) {
                due.push(reading.session);
            }
            left.retain(|session| {
                let id = made.named(session.number).map(|(id, _)| id);
                let is_due =
                    id.is_none_or(|id| due.contains(&id) || made.table.view_session(id).is_none());
                if is_due {
                    for open in &mut self.sessions {
                        if open.number == session.number {
                            open.due = tick;
                        }
                    }
                }
                !is_due
            });
        }
    }
}
