//! Timers. They run on the server's wall clock and fire once.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use redis_module::raw;

use super::api::{OK, optional, required};
use super::ctx::Ctx;
use super::entry::Entry;
use super::guard::guard;
use crate::module::Module;

/// A timer that is late by this much was moved by a step of the wall clock.
const OVERDUE: Duration = Duration::from_millis(50);

/// The longest delay that is asked of the server. Redis 7.0 multiplies the milliseconds until the next
/// timer by 1,000 in a 32-bit integer: more than 2,147 s overflow, and the event loop never sleeps again.
const LONGEST: Duration = Duration::from_secs(30 * 60);

thread_local! {
    /// Whether the server was asked to call `next_turn`, and did not yet.
    static IS_CALLED: Cell<bool> = const { Cell::new(false) };
}

/// At most one timer, which calls [`Module::timer`].
///
/// While it is armed the module cannot be unloaded.
#[derive(Debug)]
pub(crate) struct Timer {
    armed: Option<(raw::RedisModuleTimerID, Instant)>,
}

impl Timer {
    /// No timer yet.
    pub(crate) fn new() -> Self {
        Self { armed: None }
    }

    /// Arms the timer to fire after `delay` or earlier: [`LONGEST`] at the latest. A timer that is armed for
    /// an earlier moment stays as it is: called too early, the module looks and arms it again.
    pub(crate) fn arm(&mut self, ctx: &Ctx<'_>, delay: Duration) {
        let now = Instant::now();
        let delay = delay.min(LONGEST);
        let at = now + delay;
        if let Some((_, armed_for)) = self.armed {
            let overdue = now.saturating_duration_since(armed_for) > OVERDUE;
            if armed_for <= at && !overdue {
                return;
            }
            self.disarm(ctx);
        }
        self.create(ctx, delay, at);
    }

    /// If the timer is due, lets it fire in the next turn of the event loop. For the end of its firing:
    /// a timer that is armed then fires after a millisecond at the earliest. So the next turn calls
    /// [`Module::next_turn`], which arms it anew with [`Self::hasten`]. Until then it stays armed, and
    /// the module cannot be unloaded.
    pub(crate) fn go_on(&mut self, ctx: &Ctx<'_>) {
        let is_due = self.armed.is_some_and(|(_, armed_for)| armed_for <= Instant::now());
        if !is_due || IS_CALLED.get() {
            return;
        }
        let (Some(add), Some(detach)) = (
            optional!(RedisModule_EventLoopAddOneShot),
            optional!(RedisModule_GetDetachedThreadSafeContext),
        ) else {
            return;
        };
        // SAFETY: the context is alive; the new one is freed by `next_turn`.
        let detached = unsafe { detach(ctx.raw) };
        // SAFETY: the callback has the right signature and never unwinds.
        let added = unsafe { add(Some(next_turn), detached.cast()) };
        IS_CALLED.set(added == OK);
        if added != OK {
            free_context(detached);
        }
    }

    /// Arms it anew, to fire in this turn. Not from inside of its firing.
    pub(crate) fn hasten(&mut self, ctx: &Ctx<'_>) {
        if self.armed.is_some() {
            self.disarm(ctx);
            self.create(ctx, Duration::ZERO, Instant::now());
        }
    }

    fn create(&mut self, ctx: &Ctx<'_>, delay: Duration, at: Instant) {
        let create = required!(RedisModule_CreateTimer);
        let period = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
        // SAFETY: the context is alive, and the function has the right signature and never
        // unwinds.
        let id = unsafe { create(ctx.raw, period, Some(fire), null_mut()) };
        self.armed = Some((id, at));
    }

    /// Disarms the timer, unless it was set to fire in the next turn.
    pub(crate) fn rest(&mut self, ctx: &Ctx<'_>) {
        if !IS_CALLED.get() {
            self.disarm(ctx);
        }
    }

    /// Stops it.
    pub(crate) fn disarm(&mut self, ctx: &Ctx<'_>) {
        if let Some((id, _)) = self.armed.take() {
            let stop = required!(RedisModule_StopTimer);
            // SAFETY: the timer is ours and did not fire yet: `fired` forgets it.
            unsafe { stop(ctx.raw, id, null_mut()) };
        }
    }

    /// To be called first whenever it fires.
    pub(crate) fn fired(&mut self) {
        self.armed = None;
    }
}

unsafe extern "C" fn fire(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    // SAFETY: the context lives until this callback returns.
    guard(Entry::Timer, (), || Module::timer(&unsafe { Ctx::new(ctx) }));
}

unsafe extern "C" fn next_turn(context: *mut c_void) {
    IS_CALLED.set(false);
    let detached = context.cast::<raw::RedisModuleCtx>();
    // SAFETY: the context was made by `go_on` and lives until it is freed below.
    guard(Entry::NextTurn, (), || Module::next_turn(&unsafe { Ctx::new(detached) }));
    free_context(detached);
}

/// Frees a context that `go_on` made. Called once for each.
fn free_context(detached: *mut raw::RedisModuleCtx) {
    let free = required!(RedisModule_FreeThreadSafeContext);
    // SAFETY: the caller gives up the context.
    unsafe { free(detached) };
}
