//! The guard around the calls from the server.
//!
//! A panic that leaves an `extern "C"` function aborts the process, which is the database server. So each
//! such function does its work inside [`guard`] or [`catch`].

use std::any::Any;
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use super::api::required;
use super::entry::Entry;
use super::text::Arg;

static CAUGHT: AtomicU64 = AtomicU64::new(0);

/// Returns the number of panics that were caught since the module was loaded.
pub(crate) fn caught_panics() -> u64 {
    CAUGHT.load(Ordering::Relaxed)
}

/// Payload of a panic.
pub(super) type Payload = Box<dyn Any + Send>;

/// Runs `body`. If it panics, counts the panic and returns `otherwise`.
pub(super) fn guard<R>(entry: Entry, otherwise: R, body: impl FnOnce() -> R) -> R {
    catch(entry, body).unwrap_or_else(|payload| {
        CAUGHT.fetch_add(1, Ordering::Relaxed);
        forget(payload);
        otherwise
    })
}

/// Runs `body`. If it panics, returns the payload of the panic. Used for an entry that the server calls
/// inside another entry: the outer entry must resume the panic.
pub(super) fn catch<R>(entry: Entry, body: impl FnOnce() -> R) -> Result<R, Payload> {
    catch_unwind(AssertUnwindSafe(|| {
        provoke(entry);
        #[cfg(feature = "provoke")]
        super::refusal::enter(entry);
        body()
    }))
}

/// Kind of call in which the next panic is provoked, in builds for tests of this guard.
#[cfg(feature = "provoke")]
static PROVOKED: std::sync::Mutex<Option<Entry>> = std::sync::Mutex::new(None);

/// Makes the server's next call of this kind panic.
#[cfg(feature = "provoke")]
pub(crate) fn provoke_at(entry: Entry) {
    if let Ok(mut provoked) = PROVOKED.lock() {
        *provoked = Some(entry);
    }
}

#[cfg(feature = "provoke")]
#[expect(clippy::panic, reason = "this is what it is for")]
pub(super) fn provoke(entry: Entry) {
    let wanted = PROVOKED.lock().is_ok_and(|mut wanted| wanted.take_if(|e| *e == entry).is_some());
    if wanted {
        panic!("provoked in {entry:?}");
    }
}

#[cfg(not(feature = "provoke"))]
pub(super) fn provoke(_entry: Entry) {}

/// Removes `provoke load` or `provoke loaded` from the arguments of the module, and provokes a panic at that
/// entry. These entries run before any command could ask for a panic.
#[cfg(feature = "provoke")]
pub(super) fn provoked_by<'s, 'a>(args: &'s [Arg<'a>]) -> &'s [Arg<'a>] {
    let [first, entry, rest @ ..] = args else { return args };
    if first.bytes() != b"provoke" {
        return args;
    }
    provoke_at(if entry.bytes() == b"load" { Entry::Load } else { Entry::Loaded });
    rest
}

#[cfg(not(feature = "provoke"))]
pub(super) fn provoked_by<'s, 'a>(args: &'s [Arg<'a>]) -> &'s [Arg<'a>] {
    args
}

/// Leaks the payload of a panic: dropping it could panic again, outside the guard.
#[expect(clippy::mem_forget, reason = "a few bytes, against a second panic")]
fn forget(payload: Payload) {
    std::mem::forget(payload);
}

/// Installs a panic hook that writes each panic to the server's log instead of to standard error.
pub(super) fn log_panics() {
    std::panic::set_hook(Box::new(|panic: &PanicHookInfo<'_>| {
        log_line(&format!("caught a panic, please report it: {panic}"));
    }));
}

/// Writes a warning to the server's log.
pub(crate) fn log_line(line: &str) {
    let Ok(line) = CString::new(line.replace('\0', " ")) else {
        return;
    };
    let log = required!(RedisModule_Log);
    // SAFETY: a null context is valid: the server then logs for the module in general. The format takes one C
    // string, which outlives the call.
    unsafe {
        log(std::ptr::null_mut(), c"warning".as_ptr(), c"kvlock: %s".as_ptr(), line.as_ptr());
    }
}
