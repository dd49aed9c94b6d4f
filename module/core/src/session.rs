//! Sessions: the waits of one client, with all outcomes sent over one connection at a time.
//!
//! ```text
//! LOCK.WAIT … SESSION id ─► queue ──ends──► outbox  7 granted …   8 timeout …   9 granted …
//!                                             acknowledged ▲      sent ▲
//! SESSION.NEXT id 6 … ◄── 7 8 9 … ◄── the outcomes that exist when the reply is written, up to COUNT
//! ```
//!
//! A wait through a session is a waiter like any other, but has no connection of its own. Its
//! outcome goes to the session's outbox, and from there to the reader (`reading.rs`).
//! `session_life.rs` opens and closes sessions.

use std::collections::BTreeSet;

use crate::account::{Account, Charge};
use crate::ids::{SessionName, WaiterId};
use crate::outbox::Outbox;
use crate::outcome::Full;
use crate::types::{Millis, MonoMillis};

/// State of a session's bell, which publishes a message when there are outcomes to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bell {
    /// The session has no bell.
    Absent,
    /// No message is due. The next outcome makes one due.
    Quiet,
    /// A message is due; the session is on the list of bells to ring.
    Due,
    /// The message was published, and no call has read the session since.
    Rung,
}

/// Reason for which a session is not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotOpened {
    /// A limit of sessions is reached.
    Full(Full),
    /// The module is being drained.
    Draining,
}

/// A session, as `SESSION.LIST` shows it.
#[derive(Clone, Copy, Debug)]
pub struct SessionView<'a, P> {
    /// Name of the session.
    pub name: &'a SessionName,
    /// ACL user that opened the session.
    pub user: &'a [u8],
    /// The client that is blocked in `SESSION.NEXT`.
    pub reader: Option<&'a P>,
    /// Number of waits.
    pub waits: usize,
    /// Number of outcomes that are kept.
    pub outcomes: usize,
    /// Number of its bindings: one for each owner and key, whatever the number of holds or permits.
    pub bound: usize,
    /// Time at which the session was opened.
    pub since: MonoMillis,
    /// `true` if the connection of its reader was closed, and no later call has read the session.
    pub away: bool,
}

#[derive(Debug)]
pub(crate) struct Session<P> {
    pub(crate) name: SessionName,
    /// The account of the user, to which the session itself is charged.
    pub(crate) account: Account,
    pub(crate) _charge: Charge,
    pub(crate) ttl: Millis,
    pub(crate) since: MonoMillis,
    /// Number of the latest `SESSION.NEXT` call.
    pub(crate) reading: u64,
    /// The client of that call, while it is blocked.
    pub(crate) reader: Option<P>,
    /// `true` if the reader is on the list of readers to answer.
    pub(crate) ready: bool,
    /// Connection of the latest call; `None` if it was closed or is unknown.
    pub(crate) connection: Option<u64>,
    /// Number of the last outcome that was sent over that connection or acknowledged. The next reply
    /// continues after it.
    pub(crate) cursor: u64,
    /// Time at which the blocked reader's timeout passes; without a blocked reader, time at which
    /// the session ends.
    pub(crate) due: MonoMillis,
    pub(crate) away: bool,
    pub(crate) waits: BTreeSet<WaiterId>,
    /// The bindings: locks and permits that are released when the session ends.
    pub(crate) bound: BTreeSet<(u64, u64)>,
    /// `Some` while waiters are still to be moved in or out of line, because the session went away
    /// or came back. Contains the last waiter already moved, if any.
    pub(crate) settling: Option<Option<WaiterId>>,
    /// `true` if the session is on the list of sessions with work to do.
    pub(crate) listed: bool,
    pub(crate) outbox: Outbox,
    pub(crate) bell: Bell,
}

impl<P> Session<P> {
    /// Number of the latest outcome. `None` if all outcomes were sent to the latest reader.
    pub(crate) fn unread(&self) -> Option<u64> {
        self.outbox.after(self.cursor).next().map(|_| self.outbox.last())
    }

    pub(crate) fn view(&self) -> SessionView<'_, P> {
        SessionView {
            name: &self.name,
            user: self.account.user(),
            reader: self.reader.as_ref(),
            waits: self.waits.len(),
            outcomes: self.outbox.len(),
            bound: self.bound.len(),
            since: self.since,
            away: self.away,
        }
    }
}
