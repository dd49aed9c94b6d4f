//! Scans of the fields of a hash.

use std::ffi::c_void;
use std::panic::resume_unwind;

use redis_module::raw;

use super::api::required;
use super::entry::Entry;
use super::guard::{Payload, catch};
use super::key::Key;
use super::text::Arg;

/// Position of a scan in a hash. After a restart, a cursor can be used with any hash. Even if the hash
/// changes between two calls of [`Key::scan`], a complete scan visits each field that stays in it.
#[derive(Debug)]
pub(crate) struct Cursor(*mut raw::RedisModuleScanCursor);

impl Cursor {
    /// Returns a cursor at the beginning.
    pub(crate) fn new() -> Self {
        let create = required!(RedisModule_ScanCursorCreate);
        // SAFETY: the function takes no arguments.
        Self(unsafe { create() })
    }

    /// Moves the cursor back to the beginning.
    pub(crate) fn restart(&mut self) {
        let restart = required!(RedisModule_ScanCursorRestart);
        // SAFETY: the cursor is alive, and `self` owns it.
        unsafe { restart(self.0) };
    }
}

impl Default for Cursor {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        let destroy = required!(RedisModule_ScanCursorDestroy);
        // SAFETY: `self` owns the cursor, and the cursor is not used after this call.
        unsafe { destroy(self.0) };
    }
}

impl Key<'_> {
    /// Passes each field of a small hash with its value to `visit`. The hash must not change during the call.
    ///
    /// # Panics
    ///
    /// If `visit` does.
    pub(crate) fn for_each(&self, visit: &mut dyn FnMut(&[u8], &[u8])) {
        let mut cursor = Cursor::new();
        while self.scan(&mut cursor, visit) {}
    }

    /// Passes some fields of a hash to `visit`: a few of a large hash, all of a small one, possibly none.
    /// Returns whether there are more. If not, the cursor must be restarted before its next use.
    ///
    /// # Panics
    ///
    /// If `visit` does.
    pub(crate) fn scan(&self, cursor: &mut Cursor, visit: &mut dyn FnMut(&[u8], &[u8])) -> bool {
        let scan = required!(RedisModule_ScanKey);
        let mut visitor = Visitor { visit, panic: None };
        let visitor_pointer = (&raw mut visitor).cast::<c_void>();
        // SAFETY: the key is open, and the cursor is alive. The pointer is to the `Visitor` that
        // `visit_field` expects, which outlives the call. No caller's `visit` changes the hash.
        let more = unsafe { scan(self.raw, cursor.0, Some(visit_field), visitor_pointer) } != 0;
        if let Some(panic) = visitor.panic {
            resume_unwind(panic);
        }
        more
    }
}

struct Visitor<'a> {
    visit: &'a mut dyn FnMut(&[u8], &[u8]),
    panic: Option<Payload>,
}

unsafe extern "C" fn visit_field(
    _key: *mut raw::RedisModuleKey,
    field: *mut raw::RedisModuleString,
    value: *mut raw::RedisModuleString,
    visitor: *mut c_void,
) {
    // SAFETY: `visitor` points to the `Visitor` that `scan` made, which lives until `scan` returns.
    let visitor = unsafe { &mut *visitor.cast::<Visitor<'_>>() };
    let visited = catch(Entry::Scan, || {
        if !value.is_null() {
            // SAFETY: the server lends `field` for the duration of this call.
            let field = unsafe { Arg::new(field) };
            // SAFETY: the server lends `value` for the duration of this call.
            let value = unsafe { Arg::new(value) };
            (visitor.visit)(field.bytes(), value.bytes());
        }
    });
    if let Err(panic) = visited {
        visitor.panic = Some(panic);
    }
}
