//! Applies one operation to the table and to the model, and compares the results.

use kvlock_core::{AckAhead, Millis, Reading, Release, Want};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::naive::{Session, Wait, What, Whom};
use super::ops::{MOST, OWNERS, Op, SESSIONS};
use super::world::{Client, World, name, user};

impl World {
    pub fn step(&mut self, op: &Op) -> TestCaseResult {
        match *op {
            Op::Open { session, user, ttl } => self.open(session, user, ttl)?,
            Op::Wait { key, owner, through, timeout } => {
                self.wait_by(key, owner, through, timeout)?;
            }
            Op::Acquire { key, owner } => {
                let expected = self.model.acquire(key, owner);
                prop_assert_eq!(self.acquire(key, OWNERS[owner])?, expected);
            }
            Op::Cancel { key, owner } => {
                let place = self.model.queues[key].iter().position(|wait| wait.owner == owner);
                if let Some(place) = place {
                    self.model.leave(key, place, What::Cancelled);
                }
                let out = self.cancel(key, owner);
                prop_assert_eq!(out.is_some(), place.is_some());
                self.tell(out.flatten(), What::Cancelled)?;
            }
            Op::Release { key, owner } => {
                if self.model.holders[key] == Some(owner) {
                    self.model.used(key, owner);
                    self.model.holders[key] = None;
                    self.model.serve();
                }
                let (owner, want) = (OWNERS[owner], Want::Exclusive);
                let (_, change) = self.with(key, owner, |table, at| {
                    table.release(at, owner.as_bytes(), want, Release::All)
                });
                self.apply(key, owner, change)?;
            }
            Op::Renew { key, owner } => {
                self.model.used(key, owner);
                let owner = OWNERS[owner];
                let (_, change) = self.with(key, owner, |table, at| {
                    table.renew(at, owner.as_bytes(), Millis(1_000_000_000), None)
                });
                self.apply(key, owner, change)?;
            }
            Op::Next { session, user, connection, ack, timeout } => {
                self.next(session, user, connection, ack, timeout)?;
            }
            Op::Answer { lost } => self.answer(lost)?,
            Op::Hangup { connection } => self.hang_up(connection)?,
            Op::Close { session, user: by, then } => {
                let id = self.table.session(&name(session), user(by));
                let is_own = self.model.sessions[session].as_ref().is_some_and(|s| s.user == by);
                prop_assert_eq!(id.is_some(), is_own);
                if let Some(id) = id {
                    self.table.close_session(id);
                    let expected = self.model.end(&[session]);
                    if let Some((key, owner)) = then.filter(|_| expected == 0) {
                        self.wait_by(key, owner, None, None)?;
                    }
                    self.clear(expected)?;
                }
            }
            Op::Pass(ms) => {
                self.clock.pass(ms, ms.cast_signed(), &mut self.table);
                self.model.now += ms;
            }
            Op::Timer => self.timer()?,
        }
        self.model.serve();
        self.look()?;
        self.compare()
    }

    fn open(&mut self, number: usize, by: usize, ttl: u64) -> TestCaseResult {
        if self.model.sessions[number].is_some() {
            return Ok(());
        }
        let opened = self.table.open_session(name(number), user(by), Millis(ttl), self.clock.now());
        prop_assert!(opened.is_ok());
        self.model.generations += 1;
        self.model.sessions[number] = Some(Session {
            generation: self.model.generations,
            user: by,
            ttl,
            due: self.model.now + ttl,
            away: false,
            connection: None,
            cursor: 0,
            reader: None,
            posted: Vec::new(),
            unsent: Vec::new(),
            sent: 0,
            acked: 0,
        });
        Ok(())
    }

    fn wait_by(
        &mut self,
        key: usize,
        owner: usize,
        through: Option<usize>,
        timeout: Option<u64>,
    ) -> TestCaseResult {
        let client = self.next_client();
        let (whom, session) = match through {
            None => (Whom::Client(client), None),
            Some(number) => {
                let Some(session) = &self.model.sessions[number] else { return Ok(()) };
                let id = self.table.session(&name(number), user(session.user));
                (Whom::Session(number, session.generation), id)
            }
        };
        let end = timeout.map(|timeout| self.model.now + timeout);
        let expected = self.model.wait(key, Wait { owner, whom, end, place: client });
        let now = self.wait(key, OWNERS[owner], session, timeout, client)?;
        prop_assert_eq!(now, expected);
        Ok(())
    }

    fn next(
        &mut self,
        number: usize,
        by: usize,
        connection: u64,
        ack: isize,
        timeout: Option<u64>,
    ) -> TestCaseResult {
        let id = self.table.session(&name(number), user(by));
        let Some(session) = self.model.sessions[number].as_mut().filter(|s| s.user == by) else {
            prop_assert_eq!(id, None, "no session of this user");
            self.seen[0] += 1;
            return Ok(());
        };
        prop_assert!(id.is_some());
        let ack = session.sent.saturating_add_signed(ack);
        let now = self.clock.now();
        let begun = self.table.begin_reading(id.unwrap(), Some(connection), ack as u64, now);
        if ack > session.sent {
            prop_assert_eq!(begun.err(), Some(AckAhead));
            self.seen[1] += 1;
            return Ok(());
        }
        let (reading, replaced) = begun.expect("it is not ahead");
        prop_assert_eq!(replaced.map(|client| client.0), session.reader.take().map(|it| it.0));
        self.seen[2] += u64::from(session.away);
        let goes_on = session.connection == Some(connection);
        session.cursor = if goes_on { session.cursor.max(ack) } else { ack };
        (session.connection, session.away) = (Some(connection), false);
        session.acked = session.acked.max(ack);
        session.due = self.model.now + session.ttl;
        let has_news = session.posted.len() > session.cursor.max(session.acked);
        match timeout {
            Some(timeout) if !has_news => {
                let client = self.next_client();
                let session = self.model.sessions[number].as_mut().unwrap();
                session.reader = Some((client, false));
                session.due = self.model.now + timeout;
                self.reading.insert(client, reading.unwrap());
                self.table.block_reader(reading.unwrap(), Client(client), Millis(timeout), now);
            }
            _ => self.read(number, reading.unwrap())?,
        }
        Ok(())
    }

    /// Composes and sends a reply to a reader.
    fn read(&mut self, number: usize, reading: Reading) -> TestCaseResult {
        let news = self.table.news(reading).expect("it is there").expect("it reads");
        let news: Vec<_> = news.take(MOST).map(|(n, outcome)| (n, self.told(outcome))).collect();
        let session = self.model.sessions[number].as_mut().unwrap();
        let from = session.cursor.max(session.acked);
        let expected = session.posted.iter().copied().zip(1..).skip(from).take(MOST);
        let expected: Vec<(u64, _)> = expected.map(|(told, number)| (number, told)).collect();
        prop_assert_eq!(&news, &expected);
        let up_to = news.last().map_or(0, |(n, _)| *n);
        self.seen[3] += u64::from(from + news.len() < session.posted.len());
        session.cursor = session.cursor.max(usize::try_from(up_to).unwrap());
        session.due = self.model.now + session.ttl;
        session.sent = session.sent.max(usize::try_from(up_to).unwrap());
        self.table.sent(reading, up_to, self.clock.now());
        Ok(())
    }

    /// Answers the readers that have outcomes to read or whose time is over. With `lost`, the
    /// answers do not arrive, because the readers have disconnected.
    fn answer(&mut self, lost: bool) -> TestCaseResult {
        let now = self.clock.now();
        while let Some((reading, Client(client))) = self.table.next_reader(now) {
            let reads = |session: &Session| session.reader == Some((client, true));
            let number = (0..SESSIONS)
                .find(|number| self.model.sessions[*number].as_ref().is_some_and(reads));
            prop_assert!(number.is_some(), "{client} has nothing to hear");
            let session = self.model.sessions[number.unwrap()].as_mut().unwrap();
            session.reader = None;
            session.due = self.model.now + session.ttl;
            if lost {
                (session.away, session.connection) = (true, None);
                prop_assert!(self.table.reader_gone(reading, now).is_none());
                self.seen[4] += 1;
            } else {
                self.read(number.unwrap(), reading)?;
            }
        }
        let readers = self.model.sessions.iter().flatten().filter_map(|session| session.reader);
        prop_assert_eq!(readers.filter(|(_, ready)| *ready).count(), 0, "not answered");
        Ok(())
    }

    fn hang_up(&mut self, connection: u64) -> TestCaseResult {
        let now = self.clock.now();
        for number in 0..SESSIONS {
            let Some(session) = &mut self.model.sessions[number] else { continue };
            if session.connection != Some(connection) {
                continue;
            }
            (session.away, session.connection) = (true, None);
            session.due = self.model.now + session.ttl;
            self.seen[5] += 1;
            if let Some((client, _)) = session.reader.take() {
                let gone = self.table.reader_gone(self.reading[&client], now);
                prop_assert_eq!(gone.map(|it| it.0), Some(client));
            }
        }
        self.table.connection_closed(connection, now);
        Ok(())
    }

    fn timer(&mut self) -> TestCaseResult {
        let now = self.clock.now();
        while self.table.handle_due_session(now) {}
        let mut over = Vec::new();
        for number in 0..SESSIONS {
            let time = self.model.now;
            let Some(session) = &mut self.model.sessions[number] else { continue };
            if session.due > time {
                continue;
            }
            if let Some((_, ready)) = &mut session.reader {
                *ready = true;
                session.due = time + session.ttl;
            } else {
                over.push(number);
            }
        }
        let taken_back = self.model.end(&over);
        self.clear(taken_back)?;
        while let Some((_, _, key, over)) = self.first_over() {
            self.model.leave(key, over, What::TimedOut);
        }
        self.look()?;
        while let Some(out) = self.table.time_out_one(now) {
            self.tell(out, What::TimedOut)?;
        }
        Ok(())
    }

    /// Returns the wait with the earliest end among those that have ended: its end, its number, its
    /// key, and its place in the queue.
    fn first_over(&self) -> Option<(u64, u64, usize, usize)> {
        let queues = self.model.queues.iter().zip(0..);
        let waits = queues.flat_map(|(queue, key)| queue.iter().zip(0..).map(move |w| (w, key)));
        let ends = waits.filter_map(|((wait, at), key)| Some((wait.end?, wait.place, key, at)));
        ends.min().filter(|(end, ..)| *end <= self.model.now)
    }

    /// Clears the remains of ended sessions; exactly `expected` grants must be taken back.
    fn clear(&mut self, expected: u64) -> TestCaseResult {
        let before = self.table.counters().grants_taken_back;
        self.model.serve();
        while self.table.work_on_sessions() {}
        while let Some(unsent) = self.table.next_unsent() {
            self.take_back(&unsent)?;
        }
        prop_assert_eq!(self.table.counters().grants_taken_back - before, expected);
        Ok(())
    }

    fn cancel(&mut self, key: usize, owner: usize) -> Option<Option<Client>> {
        let key = (0, format!("k{key}"));
        self.table.cancel(crate::sim::key_ref(&key), OWNERS[owner].as_bytes())
    }
}
