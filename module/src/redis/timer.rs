//! Timers. They run on the server's wall clock and fire once.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use redis_module::raw;

use super::api::required;
use super::ctx::Ctx;
use super::guard::{Entry, guard};
use crate::module::Module;

/// A timer that is late by this much was moved by a step of the wall clock.
const OVERDUE: Duration = Duration::from_millis(50);

/// The longest time that is asked of the server, which adds it to its clock in microseconds: a longer
/// one can wrap around, and then it fires at once, again and again.
const LONGEST: Duration = Duration::from_secs(3600);

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

    /// Sees to it that the timer fires in `delay` or earlier: after an hour at the latest. One that is armed for earlier is
    /// left alone: whoever is called too early looks and arms it again.
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

    /// Lets the timer, if it is armed, fire in the next turn of the event loop. One that is armed
    /// while it fires does not: the server then takes a millisecond at least. Not from inside of
    /// its firing.
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

    /// Says whether it is armed to fire as soon as it can.
    pub(crate) fn is_due(&self) -> bool {
        self.armed.is_some_and(|(_, armed_for)| armed_for <= Instant::now())
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
