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

/// If a timer is late by more than this, the wall clock was probably set back. Then the next call of
/// [`Timer::arm`] arms the timer again.
const OVERDUE: Duration = Duration::from_millis(50);

/// Longest delay of a timer. Redis 7.0 multiplies the milliseconds until the next timer by 1,000 in a 32-bit
/// integer. More than 2,147 s would overflow, and the event loop would no longer sleep.
const LONGEST: Duration = Duration::from_secs(30 * 60);

thread_local! {
    /// `true` if the server was asked to call `next_turn` and has not called it yet.
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
    /// Returns a timer that is not armed.
    pub(crate) fn new() -> Self {
        Self { armed: None }
    }

    /// Arms the timer to fire after `delay`, or after [`LONGEST`] if that is shorter. A timer that is already
    /// armed for an earlier time is left unchanged, unless it is overdue. If `LONGEST` makes it
    /// fire before anything is due, the module arms it again.
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

    /// If work is due again when the timer has fired, makes the timer fire in the next turn of the event
    /// loop. Does nothing if the server lacks the functions for this.
    ///
    /// A timer that is armed while it fires would fire after a millisecond at the earliest. So the next turn
    /// calls [`Module::next_turn`], which arms the timer again with [`Self::hasten`]. Until then the timer
    /// stays armed, and the module cannot be unloaded.
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
        // SAFETY: the context is alive. The new context is freed by `next_turn`, or below if `next_turn` will
        // not be called.
        let detached = unsafe { detach(ctx.raw) };
        // SAFETY: `next_turn` has the right signature and never unwinds.
        let added = unsafe { add(Some(next_turn), detached.cast()) };
        IS_CALLED.set(added == OK);
        if added != OK {
            free_context(detached);
        }
    }

    /// If the timer is armed, arms it again to fire in this turn. Must not be called while it fires.
    pub(crate) fn hasten(&mut self, ctx: &Ctx<'_>) {
        if self.armed.is_some() {
            self.disarm(ctx);
            self.create(ctx, Duration::ZERO, Instant::now());
        }
    }

    fn create(&mut self, ctx: &Ctx<'_>, delay: Duration, at: Instant) {
        let create = required!(RedisModule_CreateTimer);
        let period = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
        // SAFETY: the context is alive. `fire` has the right signature and never unwinds.
        let id = unsafe { create(ctx.raw, period, Some(fire), null_mut()) };
        self.armed = Some((id, at));
    }

    /// Disarms the timer, unless [`Self::go_on`] has made it fire in the next turn.
    pub(crate) fn rest(&mut self, ctx: &Ctx<'_>) {
        if !IS_CALLED.get() {
            self.disarm(ctx);
        }
    }

    pub(crate) fn disarm(&mut self, ctx: &Ctx<'_>) {
        if let Some((id, _)) = self.armed.take() {
            let stop = required!(RedisModule_StopTimer);
            // SAFETY: the context is alive. The timer with this id has not fired yet: `fired` forgets the id.
            unsafe { stop(ctx.raw, id, null_mut()) };
        }
    }

    /// Records that the timer fired. Must be called before any other method when it fires.
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
    // SAFETY: `go_on` made the context, and the caller does not use it after this call.
    unsafe { free(detached) };
}
