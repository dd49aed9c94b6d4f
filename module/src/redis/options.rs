//! Capabilities of the module that are declared to the server.

use std::ffi::{c_int, c_void};

use redis_module::raw;

use super::api::{OK, required};

/// Options of the module: [`Key`](super::Key) signals modified keys itself, and no code depends on the keys
/// of a replica while the replica loads another data set.
const OPTIONS: c_int = raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED.cast_signed()
    | raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD.cast_signed();

/// Options of Valkey only. Propagated commands need no validation by the server, because all of them are in
/// `NEEDED` of `load.rs`, which is checked at load. Slots may migrate with `CLUSTER MIGRATESLOTS`: each write
/// outside a command is in the slot of its key, and none happens while writes are paused.
const VALKEY_OPTIONS: c_int = (1 << 4) | (1 << 5);

/// Option of Valkey 9.2 and later: the module tries again to open a key that cannot be written during a save
/// without a fork. The value is the next bit after the options of Valkey 9.1. Not tested with Valkey 9.2.
const VALKEY_FORKLESS: c_int = 1 << 6;

/// Returns whether the server is Valkey, detected by its own names of API functions.
fn is_valkey() -> bool {
    // SAFETY: the load function fills this static, before other code of the module runs. After that it is
    // only read.
    let Some(find) = (unsafe { raw::RedisModule_GetApi }) else { return false };
    let mut found: *mut c_void = std::ptr::null_mut();
    // SAFETY: the name ends with a NUL, and `found` is valid for writing a pointer.
    unsafe { find(c"ValkeyModule_Replicate".as_ptr(), (&raw mut found).cast()) == OK }
}

/// Declares the module's capabilities to the server. `forkless` allows saves without a fork.
///
/// # Safety
///
/// `ctx` is a context of this module.
pub(super) unsafe fn declare_options(ctx: *mut raw::RedisModuleCtx, forkless: bool) {
    let set_options = required!(RedisModule_SetModuleOptions);
    let options = match (is_valkey(), forkless) {
        (false, _) => OPTIONS,
        (true, false) => OPTIONS | VALKEY_OPTIONS,
        (true, true) => OPTIONS | VALKEY_OPTIONS | VALKEY_FORKLESS,
    };
    // SAFETY: `ctx` is valid by the contract of this function.
    unsafe { set_options(ctx, options) };
}
