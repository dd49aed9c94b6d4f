//! The commands: the documentation of each, the parsing of its arguments, and its call of the lock table.

mod acquire;
mod cancel;
mod deadlock;
mod info;
mod latch;
mod list;
mod observe;
#[cfg(feature = "provoke")]
mod panic;
mod release;
mod renew;
mod sem;
mod session;
mod set;
mod wait;

use std::ffi::CString;

use kvlock_core::arguments::Refusal;
use kvlock_core::{Dismissal, Full};

use crate::module::DRAINING;
use crate::redis::{Arg, Command, CommandSpec, Ctx, Registry, Reply};
use crate::server::{self, Server};

/// How many locks or sessions are shown unless the caller says so.
const SHOWN: usize = 10;

/// What a command answers: trouble is an answer, too.
type Answer = Result<Reply, Reply>;

/// A command of ours.
trait Operation: 'static {
    /// Declaration for the server and its users.
    const SPEC: CommandSpec;

    /// Runs the command. On a replica, commands that write are not run.
    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer;
}

impl<O: Operation> Command for O {
    const SPEC: CommandSpec = O::SPEC;

    fn run(ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Reply {
        let answer = server::with_unless_busy(|server| {
            if O::SPEC.writes() && !server.may_serve() {
                return READ_ONLY;
            }
            O::run(server, ctx, args).unwrap_or_else(|trouble| trouble)
        });
        answer.unwrap_or(BUSY)
    }
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        error(refusal.to_string())
    }
}

fn error(text: String) -> Reply {
    CString::new(text).map_or(SYNTAX, |text| Reply::Error(text.into()))
}

/// Declares all of them.
pub(crate) fn register(registry: &mut Registry<'_>) {
    registry.add::<acquire::LockAcquire>();
    registry.add::<wait::LockWait>();
    registry.add::<release::LockRelease>();
    registry.add::<renew::LockRenew>();
    registry.add::<cancel::LockCancel>();
    registry.add::<cancel::SemCancel>();
    registry.add::<cancel::LatchCancel>();
    registry.add::<info::LockInfo>();
    registry.add::<list::LockList>();
    registry.add::<list::LockProfile>();
    registry.add::<release::LockForceRelease>();
    registry.add::<latch::LatchSet>();
    registry.add::<latch::LatchCountDown>();
    registry.add::<latch::LatchWait>();
    registry.add::<latch::LatchInfo>();
    registry.add::<sem::SemSet>();
    registry.add::<sem::SemAcquire>();
    registry.add::<sem::SemWait>();
    registry.add::<sem::SemRelease>();
    registry.add::<sem::SemRenew>();
    registry.add::<sem::SemInfo>();
    registry.add::<observe::LockObserve>();
    registry.add::<observe::LockUnobserve>();
    registry.add::<session::SessionOpen>();
    registry.add::<session::SessionNext>();
    registry.add::<session::SessionClose>();
    registry.add::<session::SessionList>();
    #[cfg(feature = "provoke")]
    registry.add::<panic::LockPanic>();
}

const SYNTAX: Reply = Reply::error(c"ERR syntax error");
const NOT_A_LOCK: Reply =
    Reply::error(c"WRONGTYPE Operation against a key holding the wrong kind of value");
const MISMATCH: Reply = Reply::error(c"MISMATCH HOLDS does not fit what the owner holds");
const TOO_MANY_HOLDS: Reply = Reply::error(c"ERR too many holds");
/// The error for a lock whose slot is migrating to or from this server.
pub(crate) const MOVING: Reply = Reply::error(c"TRYAGAIN the slot is moving: ask again");
const UPGRADE: Reply =
    Reply::error(c"UPGRADE this owner shares the lock: it must release that to hold it alone");
const SHARED: Reply =
    Reply::error(c"ERR invalid TOKEN: this owner shares the lock, with others who have that token");
pub(crate) const UNSET: Reply =
    Reply::error(c"UNSET this semaphore has no permits yet: SEM.SET gives it some");
pub(crate) const TOO_MANY_PERMITS: Reply =
    Reply::error(c"TOOMANY the semaphore does not have so many permits");
const QUEUE_FULL: Reply = Reply::error(c"QUEUEFULL too many clients wait, try again later");
const USER_SHARE_FULL: Reply = Reply::error(
    c"QUEUEFULL this user has its share of the limit (kvlock.user-share), try again later",
);
/// The error for another module that calls a command from an event that one of our commands has caused.
const BUSY: Reply = Reply::error(c"TRYAGAIN called from within a command: ask again later");
const READ_ONLY: Reply = Reply::error(c"READONLY You can't write against a read only replica.");
/// The error for an unknown session: it has ended, was opened before the server started, or belongs to
/// another user.
pub(crate) const NO_SESSION: Reply =
    Reply::error(c"NOSESSION this user has no such session here: open one and wait again");

const NO_USER: Reply = Reply::error(c"ERR this caller has no user to whom a session could belong");
/// Where blocking is allowed, but the server refuses to block this connection.
const SUBSCRIBED: Reply = Reply::error(
    c"ERR this server blocks no connection that is subscribed to channels: wait on another connection",
);
const UNBOUND: Reply = Reply::error(c"ERR BOUND needs a SESSION");
const TOO_MANY_BOUND: Reply =
    Reply::error(c"QUEUEFULL too many locks are bound to sessions, try again later");
const TOO_MANY_SESSIONS: Reply = Reply::error(c"QUEUEFULL too many sessions, try again later");
const ACK_AHEAD: Reply = Reply::error(c"ERR invalid ack: must not be ahead of what was sent");

/// The error for a limit that is reached: `server` where it is the server's.
fn full(full: Full, server: Reply) -> Reply {
    match full {
        Full::Server => server,
        Full::User => USER_SHARE_FULL,
    }
}

/// What a waiter hears that is sent away.
pub(crate) fn sent_away(why: &Dismissal) -> Reply {
    match why {
        Dismissal::Draining => DRAINING,
        Dismissal::Moving => MOVING,
        Dismissal::TooMany => TOO_MANY_PERMITS,
        Dismissal::Unset => UNSET,
        Dismissal::Misfit(reply) => acquire::reply(*reply),
        Dismissal::Server(text) => {
            CString::new(text.to_vec()).map_or(MOVING, |text| Reply::Error(text.into()))
        }
    }
}
