//! Sessions through which clients wait, and the outcome of each place in a queue.
//!
//! A [`Mailbox`] is a sequence of sessions with one reader (`readers.rs`). A client queues an owner through
//! the current session, and receives the owner's outcome from the mailbox. Each place must have exactly one
//! outcome. A second one is a violation, and without one the call stays without a reply.

use harness::Value;
use harness::history::{CallId, Outcome, Recorder};
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Longest wait for an outcome.
const ANSWER: Duration = Duration::from_secs(40);

/// Start and end of a stretch of time.
pub(super) type Span = (Duration, Duration);

/// An outcome of a place, as the server sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Delivered {
    pub(super) number: u64,
    pub(super) key: String,
    pub(super) owner: String,
    pub(super) outcome: Outcome,
    /// Time of the grant, on the server's clock.
    pub(super) granted_ms: Option<u64>,
}

/// Outcome of a place. If the session ended first, the outcome is `Failed`, with the last time at which the
/// session is known to have existed. But if a reply with outcomes may be lost, or the primary has changed, it is
/// `Unknown`.
type Arrival = (Outcome, Option<Duration>);

/// A place in a queue: its mailbox, and the channel for its outcome.
pub(super) struct Place<'a>(&'a Mailbox, Receiver<Arrival>);

#[derive(Debug, Default)]
pub(crate) struct Mailbox(Mutex<Session>);

/// The current session, or the last one.
#[derive(Debug, Default)]
struct Session {
    /// The server's name for it, while it exists.
    name: Option<String>,
    /// Client ID of its reader's connection.
    reader: Option<i64>,
    /// By key and owner.
    waiters: HashMap<(String, String), Waiter>,
    /// Times in which it may have been *away*: without a reader.
    away: Vec<Span>,
}

#[derive(Debug)]
struct Waiter {
    call: CallId,
    hears: Sender<Arrival>,
    was_told: Option<Outcome>,
}

impl Mailbox {
    fn now(&self) -> MutexGuard<'_, Session> {
        self.0.lock().unwrap()
    }

    /// Records a new session, and the connection that reads it.
    pub(super) fn opened(&self, name: &str, reader: i64) {
        let (name, reader) = (Some(name.to_owned()), Some(reader));
        *self.now() = Session { name, reader, ..Session::default() };
    }

    /// Sets the connection that reads the session.
    pub(super) fn read_by(&self, reader: Option<i64>) {
        self.now().reader = reader;
    }

    /// Client ID of the connection that reads the session whose name begins with `digits`.
    fn reader_of(mailboxes: &[Self], digits: &str) -> Option<i64> {
        let is_its = |it: &Session| it.name.as_ref().is_some_and(|name| name.starts_with(digits));
        mailboxes.iter().map(Self::now).find(|session| is_its(session))?.reader
    }

    /// Records that the session has ended; it still existed at `there`. `may_have_told` is true if a lost
    /// reply may have contained outcomes, or if grants that were not read may still be valid.
    pub(super) fn gone(&self, there: Duration, may_have_told: bool, recorder: &Recorder) {
        let mut session = self.now();
        (session.name, session.reader) = (None, None);
        let Session { waiters, away, .. } = &mut *session;
        for (_, Waiter { call, hears, .. }) in waiters.drain() {
            recorder.passed_over(call, away);
            // Most waiters have received their outcome before, and no longer listen.
            let outcome = if may_have_told { Outcome::Unknown } else { Outcome::Failed };
            let _told = hears.send((outcome, (!may_have_told).then_some(there)));
        }
    }

    /// Records a time in which the session may have been away.
    pub(super) fn was_away(&self, span: Span) {
        self.now().away.push(span);
    }

    /// Passes a new outcome to its waiter. Returns a message if no waiter expects one.
    pub(super) fn deliver(&self, told: &Delivered) -> Option<String> {
        match self.now().waiters.get_mut(&(told.key.clone(), told.owner.clone())) {
            None => Some(format!("an outcome of a place that nobody has: {told:?}")),
            Some(Waiter { was_told: Some(first), .. }) => {
                Some(format!("an outcome after {first:?}: {told:?}"))
            }
            Some(waiter) => {
                waiter.was_told = Some(told.outcome);
                // The client may no longer listen.
                let _heard = waiter.hears.send((told.outcome, None));
                None
            }
        }
    }

    /// Reserves a place. The caller must then send a wait through the session of the returned name. Returns
    /// `None` if there is no session now.
    pub(super) fn enter(
        &self,
        call: CallId,
        key: &str,
        owner: &str,
    ) -> Option<(Place<'_>, String)> {
        let mut session = self.now();
        let (name, (hears, arrival)) = (session.name.clone()?, channel());
        let waiter = Waiter { call, hears, was_told: None };
        session.waiters.insert((key.to_owned(), owner.to_owned()), waiter);
        Some((Place(self, arrival), name))
    }

    /// Returns whether there is a session.
    pub(super) fn is_open(&self) -> bool {
        self.now().name.is_some()
    }
}

/// Client ID of the connection that would receive the grant of `waiter`, an entry of the field `queue` in a
/// reply to `LOCK.INFO` or `SEM.INFO`.
pub(crate) fn client_of(mailboxes: &[Mailbox], waiter: &Value) -> Option<i64> {
    match &waiter[2] {
        Value::Integer(client) => Some(*client),
        // The waiter's session has just ended.
        Value::Nil => None,
        session => Mailbox::reader_of(mailboxes, &session.text()),
    }
}

impl Place<'_> {
    /// Waits for the outcome of the place; `None` if it does not arrive in time.
    pub(super) fn ends(&self) -> Option<Arrival> {
        self.1.recv_timeout(ANSWER).ok()
    }

    pub(super) fn is_in(&self, mailbox: &Mailbox) -> bool {
        std::ptr::eq(self.0, mailbox)
    }
}
