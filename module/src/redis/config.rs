//! Options: `CONFIG GET`, `CONFIG SET`, and pairs of a name and a value when the module is loaded.

use std::ffi::{c_char, c_int, c_longlong, c_void};

use redis_module::raw;

use super::api::{ERR, OK, required};
use super::entry::Entry;
use super::guard::guard;
use super::options::declare_options;
use super::spec::{ConfigKind, ConfigSpec};
use super::text::{Arg, Text};
use crate::module::Module;
use crate::server::{self, Server};

/// Declares all options of the module, with the values in the arguments of the load function. `Err` describes
/// what is wrong with the arguments, or the option that the server refused.
///
/// # Safety
///
/// `ctx` is the context of the load function.
pub(super) unsafe fn register(
    ctx: *mut raw::RedisModuleCtx,
    args: &[Arg<'_>],
) -> Result<(), String> {
    let mut values: Vec<i64> = Module::CONFIGS.iter().map(|spec| spec.default).collect();
    let mut pairs = args.chunks_exact(2);
    for pair in &mut pairs {
        let [name, value] = pair else { continue };
        let short = name.bytes().strip_prefix(b"kvlock.").unwrap_or_else(|| name.bytes());
        let index = Module::CONFIGS.iter().position(|spec| spec.name.to_bytes() == short);
        let shown = String::from_utf8_lossy(name.bytes());
        let (index, spec) = index
            .and_then(|index| Some((index, Module::CONFIGS.get(index)?)))
            .ok_or_else(|| format!("there is no option {shown:?}"))?;
        let value = spec
            .parse(value.bytes())
            .ok_or_else(|| format!("the value of {shown} must be {}", spec.kind.describe()))?;
        values.iter_mut().skip(index).take(1).for_each(|slot| *slot = value);
    }
    if !pairs.remainder().is_empty() {
        return Err("options are pairs of a name and a value".into());
    }
    for (index, (spec, value)) in Module::CONFIGS.iter().zip(values).enumerate() {
        server::with(|server| (spec.set)(server, value));
        // SAFETY: `ctx` is valid by the contract of this function.
        if !unsafe { declare(ctx, index, spec, value) } {
            return Err(format!("the server refused the option {:?}", spec.name));
        }
    }
    let load = required!(RedisModule_LoadConfigs);
    // SAFETY: `ctx` is valid by the contract of this function, and all options are declared.
    unsafe { load(ctx) };
    // SAFETY: `ctx` is valid by the contract of this function.
    unsafe { declare_what_is_set(ctx) };
    Ok(())
}

/// # Safety
///
/// `ctx` is the context of the load function.
unsafe fn declare(
    ctx: *mut raw::RedisModuleCtx,
    index: usize,
    spec: &ConfigSpec,
    value: i64,
) -> bool {
    let name = spec.name.as_ptr();
    // The index is passed as a pointer, which the server never dereferences.
    let which = std::ptr::without_provenance_mut::<c_void>(index);
    let flags = raw::REDISMODULE_CONFIG_DEFAULT;
    let small = c_int::try_from(value).unwrap_or(0);
    let declared = match spec.kind {
        ConfigKind::Number(least, most) => {
            let register = required!(RedisModule_RegisterNumericConfig);
            let (get, set) = (Some(get_number as _), Some(set_number as _));
            // SAFETY: `ctx` is valid by the contract of this function; the callbacks never unwind.
            unsafe { register(ctx, name, value, flags, least, most, get, set, Some(apply), which) }
        }
        ConfigKind::Switch => {
            let register = required!(RedisModule_RegisterBoolConfig);
            let (get, set) = (Some(get_small as _), Some(set_small as _));
            // SAFETY: as for a number.
            unsafe { register(ctx, name, small, flags, get, set, Some(apply), which) }
        }
        ConfigKind::Word(words) => {
            let register = required!(RedisModule_RegisterEnumConfig);
            let mut names: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
            let numbers: Vec<c_int> = (0..).take(words.len()).collect();
            let count = c_int::try_from(words.len()).unwrap_or(0);
            let (get, set) = (Some(get_small as _), Some(set_small as _));
            // SAFETY: as for a number. Both lists have `count` elements, and the server copies them.
            unsafe {
                register(
                    ctx,
                    name,
                    small,
                    flags,
                    names.as_mut_ptr(),
                    numbers.as_ptr(),
                    count,
                    get,
                    set,
                    Some(apply),
                    which,
                )
            }
        }
    };
    declared == OK
}

/// Declares the module's capabilities to the server again, since an option controls one of them.
///
/// # Safety
///
/// `ctx` is a context of this module.
unsafe fn declare_what_is_set(ctx: *mut raw::RedisModuleCtx) {
    let forkless = server::with(|server| server.config.forkless_saves);
    // SAFETY: `ctx` is valid by the contract of this function.
    unsafe { declare_options(ctx, forkless) };
}

/// Called after the server has set all options of a command.
unsafe extern "C" fn apply(
    ctx: *mut raw::RedisModuleCtx,
    _which: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    guard(Entry::WriteConfig, ERR, || {
        // SAFETY: `ctx` is the context of this module that the server passes.
        unsafe { declare_what_is_set(ctx) };
        server::with(Server::apply_options);
        OK
    })
}

/// Returns the value of an option. `which` is its index.
fn get(which: *mut c_void) -> i64 {
    guard(Entry::ReadConfig, 0, || {
        let spec = Module::CONFIGS.get(which.addr());
        spec.map_or(0, |spec| server::with(|server| (spec.get)(server)))
    })
}

unsafe extern "C" fn get_number(_name: *const c_char, which: *mut c_void) -> c_longlong {
    get(which)
}

unsafe extern "C" fn get_small(_name: *const c_char, which: *mut c_void) -> c_int {
    c_int::try_from(get(which)).unwrap_or(0)
}

unsafe extern "C" fn set_number(
    _name: *const c_char,
    value: c_longlong,
    which: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the server passes `error` for the text of an error.
    unsafe { set(which, value, error) }
}

unsafe extern "C" fn set_small(
    _name: *const c_char,
    value: c_int,
    which: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the server passes `error` for the text of an error.
    unsafe { set(which, c_longlong::from(value), error) }
}

/// # Safety
///
/// `error` is null, or valid for writing a pointer to a string that the server then frees.
unsafe fn set(which: *mut c_void, value: i64, error: *mut *mut raw::RedisModuleString) -> c_int {
    let is_set = guard(Entry::WriteConfig, false, || {
        let spec = Module::CONFIGS.get(which.addr());
        spec.inspect(|spec| server::with(|server| (spec.set)(server, value))).is_some()
    });
    if is_set {
        return OK;
    }
    if !error.is_null() {
        // SAFETY: `error` is not null, so it is valid for writing by the contract of this function.
        unsafe { *error = Text::new(b"internal error").into_raw() };
    }
    ERR
}
