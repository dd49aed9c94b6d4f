//! The commands: declares and documents them, parses their arguments, and calls the lock table.

mod acquire;
mod cancel;
mod deadlock;
mod info;
mod join;
mod latch;
mod list;
mod observe;
mod operation;
#[cfg(feature = "provoke")]
mod panic;
mod release;
mod renew;
mod sem;
mod session;
mod set;
mod store;
mod wait;

use crate::redis::Registry;

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
