//! The module's section of `INFO`.

use std::ffi::{CStr, CString, c_int};

use redis_module::raw;

use super::api::{OK, required};
use super::entry::Entry;
use super::guard::guard;
use crate::module::Module;

/// Adds fields to the section.
#[derive(Debug)]
pub(crate) struct InfoWriter {
    raw: *mut raw::RedisModuleInfoCtx,
}

impl InfoWriter {
    /// Adds a field. The server adds the prefix `kvlock_` to its name.
    pub(crate) fn field(&self, name: &str, value: u64) {
        let Ok(name) = CString::new(name) else { return };
        let add = required!(RedisModule_InfoAddFieldULongLong);
        // SAFETY: the info context is alive; the server copies the name.
        unsafe { add(self.raw, name.as_ptr(), value) };
    }

    pub(crate) fn text(&self, name: &CStr, value: &str) {
        let Ok(value) = CString::new(value) else { return };
        let add = required!(RedisModule_InfoAddFieldCString);
        // SAFETY: the info context is alive; the server copies the name and the value.
        unsafe { add(self.raw, name.as_ptr(), value.as_ptr()) };
    }
}

/// # Safety
///
/// `ctx` is the context of the load function.
pub(super) unsafe fn register(ctx: *mut raw::RedisModuleCtx) {
    let register = required!(RedisModule_RegisterInfoFunc);
    // SAFETY: `ctx` is valid by the contract of this function; `write_info` never unwinds.
    unsafe { register(ctx, Some(write_info)) };
}

unsafe extern "C" fn write_info(ctx: *mut raw::RedisModuleInfoCtx, for_crash: c_int) {
    // A crash report may be made on any thread, and in any state.
    if for_crash != 0 {
        return;
    }
    guard(Entry::Info, (), || {
        let section = required!(RedisModule_InfoAddSection);
        // SAFETY: the info context is alive; a section without a name gets the name of the module.
        let wanted = unsafe { section(ctx, std::ptr::null()) };
        if wanted == OK {
            Module::info(&InfoWriter { raw: ctx });
        }
    });
}
