//! Sessions through which clients wait, beside those that block: what becomes of each place in line.
//!
//! A [`Mailbox`] is one session after another with one reader (`readers.rs`). A client puts an owner
//! in line through it, and finds there what the reader was told. Each place has exactly one outcome:
//! a second one is a surprise, and one that never comes is a call without an answer.

use super::Scene;
use crate::topology::Two;
use harness::Value;
use harness::history::{CallId, Outcome};
use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long an outcome may take to come.
const ANSWER: Duration = Duration::from_secs(40);

/// How often a waiter looks whether the servers are still there.
const LOOK: Duration = Duration::from_millis(200);

/// From when to when.
pub(super) type Span = (Duration, Duration);

/// What the server says of one place in line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) number: u64,
    pub(super) key: String,
    pub(super) owner: String,
    pub(super) outcome: Outcome,
    /// When it was granted, on the server's clock.
    pub(super) granted_ms: Option<u64>,
}

/// How a place ended for its waiter.
pub(super) enum Arrival {
    Told(Outcome),
    /// The session is gone, which was there at that moment; nobody can have been told of a grant.
    Gone(Duration),
    /// The session is gone, and its last words may have been a grant.
    Unknown,
    /// It never ends.
    Never,
}

/// A place in line.
#[derive(Clone)]
pub(super) struct Place<'a> {
    mailbox: &'a Mailbox,
    session: usize,
    key: String,
    owner: String,
}

#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    inside: Mutex<Inside>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct Inside {
    /// What the server calls the session that there is now.
    name: Option<String>,
    /// The number of its reader's connection.
    reader: Option<i64>,
    /// All sessions that there were, the one that there is now being the last.
    sessions: Vec<Session>,
}

#[derive(Debug, Default)]
struct Session {
    /// What was told of each place, by key and owner.
    places: HashMap<(String, String), (CallId, Option<Outcome>)>,
    /// When it may have been away.
    away: Vec<Span>,
    /// When it was certainly there for the last time, and whether what was told then may be lost.
    end: Option<(Duration, bool)>,
}

impl Mailbox {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap()
    }

    /// A session has been opened.
    pub(super) fn opened(&self, name: &str) {
        let mut inside = self.inside();
        inside.name = Some(name.to_owned());
        inside.sessions.push(Session::default());
    }

    /// It is read through this connection from now on.
    pub(super) fn read_by(&self, reader: Option<i64>) {
        self.inside().reader = reader;
    }

    /// The connection through which a session is read now, by the first digits of its name.
    pub(super) fn reader_of(mailboxes: &[Self], digits: &str) -> Option<i64> {
        let is_its =
            |inside: &Inside| inside.name.as_ref().is_some_and(|it| it.starts_with(digits));
        mailboxes.iter().map(Self::inside).find(|inside| is_its(inside))?.reader
    }

    /// The session is gone: it was there at that moment. Says whether that may have been the last
    /// that it told of a grant.
    pub(super) fn gone(&self, there: Duration, may_have_told: bool) {
        let mut inside = self.inside();
        inside.name = None;
        if let Some(session) = inside.sessions.last_mut() {
            session.end = Some((there, may_have_told));
        }
        self.news.notify_all();
    }

    /// The session may have been away for that time.
    pub(super) fn was_away(&self, span: Span) {
        if let Some(session) = self.inside().sessions.last_mut() {
            session.away.push(span);
        }
    }

    /// The reader was told something that it did not know; says what is wrong with that.
    pub(super) fn deliver(&self, told: &Told) -> Option<String> {
        let mut inside = self.inside();
        let name = (told.key.clone(), told.owner.clone());
        match inside.sessions.last_mut()?.places.get_mut(&name) {
            None => Some(format!("an outcome of a place that nobody has: {told:?}")),
            Some((_, Some(first))) => Some(format!("an outcome after {first:?}: {told:?}")),
            Some((_, outcome)) => {
                *outcome = Some(told.outcome);
                self.news.notify_all();
                None
            }
        }
    }

    /// Takes a place, to be taken in line by a command with the name that is returned; nothing if
    /// there is no session just now.
    pub(super) fn enter(
        &self,
        call: CallId,
        key: &str,
        owner: &str,
    ) -> Option<(Place<'_>, String)> {
        let mut inside = self.inside();
        let name = inside.name.clone()?;
        let session = inside.sessions.len() - 1;
        let of = (key.to_owned(), owner.to_owned());
        inside.sessions[session].places.insert(of.clone(), (call, None));
        Some((Place { mailbox: self, session, key: of.0, owner: of.1 }, name))
    }

    /// Whether there is a session.
    pub(super) fn is_open(&self) -> bool {
        self.inside().name.is_some()
    }

    /// Notes for each call when it may have been passed over.
    pub(super) fn note_absences(&self, scene: &Scene<'_>) {
        for session in &self.inside().sessions {
            for (call, _) in session.places.values().filter(|_| !session.away.is_empty()) {
                scene.recorder.passed_over(*call, &session.away);
            }
        }
    }
}

/// The connection that hears of it when this waiter, one of those that a server lists, is served.
pub(crate) fn client_of(mailboxes: &[Mailbox], waiter: &Value) -> Option<i64> {
    match &waiter[2] {
        Value::Integer(client) => Some(*client),
        // Its session has just gone.
        Value::Nil => None,
        session => Mailbox::reader_of(mailboxes, &session.text()),
    }
}

impl Place<'_> {
    /// Waits for what becomes of it.
    pub(super) fn ends(&self, pair: &Two) -> Arrival {
        let until = Instant::now() + ANSWER;
        let name = (self.key.clone(), self.owner.clone());
        let mut inside = self.mailbox.inside();
        while Instant::now() < until {
            let session = &inside.sessions[self.session];
            let told = session.places.get(&name).and_then(|(_, outcome)| *outcome);
            match (told, session.end) {
                (Some(outcome), _) => return Arrival::Told(outcome),
                (None, Some((_, true))) => return Arrival::Unknown,
                (None, Some((there, false))) => return Arrival::Gone(there),
                (None, None) => {}
            }
            (inside, _) = self.mailbox.news.wait_timeout(inside, LOOK).unwrap();
            if !pair.is_up() {
                return Arrival::Unknown;
            }
        }
        Arrival::Never
    }

    pub(super) fn is_in(&self, mailbox: &Mailbox) -> bool {
        std::ptr::eq(self.mailbox, mailbox)
    }
}
