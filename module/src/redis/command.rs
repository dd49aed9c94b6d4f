//! Commands: how they are declared, documented and called.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::{null, null_mut};

use redis_module::raw;

use super::api::{OK, optional, required};
use super::ctx::Ctx;
use super::guard::{Entry, guard, log_line};
use super::message::Reply;
use super::parked::take_parked;
use super::spec::{ArgSpec, Command, CommandSpec, FOR_ALL, FOR_OPERATORS, wrong_arity};
use super::text::Arg;

/// Declares categories of ours. The server keeps them when the module is unloaded, and refuses them
/// when it is loaded again: they are there already.
///
/// # Safety
///
/// `ctx` is the context of the load function.
pub(super) unsafe fn add_categories(ctx: *mut raw::RedisModuleCtx) {
    let Some(add) = optional!(RedisModule_AddACLCategory) else { return };
    for category in [FOR_ALL, FOR_OPERATORS] {
        // SAFETY: by the contract of this function; the name is copied.
        unsafe { add(ctx, category.as_ptr()) };
    }
}

/// Declares a command to the server. `Err` names what the server refused.
///
/// # Safety
///
/// `ctx` is the context of the load function.
pub(super) unsafe fn register<C: Command>(
    ctx: *mut raw::RedisModuleCtx,
) -> Result<(), &'static CStr> {
    let spec = &C::SPEC;
    let (first, last, step) = if spec.has_key() { (1, 1, 1) } else { (0, 0, 0) };
    let create = required!(RedisModule_CreateCommand);
    // SAFETY: by the contract of this function; the strings are copied, the function never
    // unwinds.
    let created = unsafe {
        create(ctx, spec.name.as_ptr(), Some(call::<C>), spec.flags.as_ptr(), first, last, step)
    };
    if created != OK {
        return Err(spec.name);
    }
    let find = required!(RedisModule_GetCommand);
    // SAFETY: by the contract of this function.
    let command = unsafe { find(ctx, spec.name.as_ptr()) };
    if command.is_null() {
        return Err(spec.name);
    }
    // SAFETY: the command was just made, and we are still loading.
    if !unsafe { describe(command, spec) } {
        return Err(spec.name);
    }
    if let Some(set_categories) = optional!(RedisModule_SetCommandACLCategories) {
        // A server that does not know one of them sets none, and may have had no room for ours.
        let skipped = usize::from(optional!(RedisModule_AddACLCategory).is_none());
        for categories in spec.categories().iter().skip(skipped) {
            // SAFETY: likewise; the string is read at once.
            if unsafe { set_categories(command, categories.as_ptr()) } == OK {
                break;
            }
            log_line(&format!("the server does not know the ACL categories {categories:?}"));
        }
    }
    Ok(())
}

unsafe extern "C" fn call<C: Command>(
    raw_ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the context lives until this callback returns.
    let ctx = unsafe { Ctx::new(raw_ctx) };
    take_parked();
    let reply = guard(Entry::Command, None, || {
        let (least, more) = const { C::SPEC.words() };
        let count = usize::try_from(argc).unwrap_or(0);
        if count < least || (count > least && !more) {
            return Some(wrong_arity(C::SPEC.name));
        }
        // SAFETY: an `Arg` is laid out as the string pointer that it wraps, and the server lends
        // `argc` of them until this callback returns.
        let args = unsafe { std::slice::from_raw_parts(argv.cast::<Arg<'_>>(), count) };
        Some(C::run(&ctx, args.get(1..).unwrap_or_default()))
    });
    let reply = match reply {
        Some(reply) => reply,
        // It is answered when it is unparked.
        None if take_parked() => Reply::Later,
        None => Reply::error(c"ERR internal error, see the server's log"),
    };
    // SAFETY: nothing was sent to the caller yet.
    unsafe { reply.send(raw_ctx) };
    OK
}

/// Tells the server what `COMMAND DOCS` and `COMMAND INFO` say.
///
/// # Safety
///
/// `command` was just made, in the load function that is still running.
unsafe fn describe(command: *mut raw::RedisModuleCommand, spec: &CommandSpec) -> bool {
    static VERSION: raw::RedisModuleCommandInfoVersion = raw::RedisModuleCommandInfoVersion {
        version: 1,
        sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
        sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
        sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
    };
    let mut keys = Vec::from_iter(spec.has_key().then(|| key_spec(spec.writes())));
    // SAFETY: an all-zero key specification is the API's mark for the end of the list.
    keys.push(unsafe { std::mem::zeroed() });
    let mut options = [end_of_args(), end_of_args(), end_of_args()];
    let mut args: Vec<_> = spec.args.iter().map(|arg| arg_spec(arg, &mut options)).collect();
    args.push(end_of_args());
    let info = raw::RedisModuleCommandInfo {
        version: &raw const VERSION,
        summary: spec.summary.as_ptr(),
        complexity: spec.complexity.as_ptr(),
        since: SINCE.as_ptr(),
        history: null_mut(),
        tips: null(),
        arity: spec.arity(),
        key_specs: keys.as_mut_ptr(),
        args: args.as_mut_ptr(),
    };
    let set = required!(RedisModule_SetCommandInfo);
    // SAFETY: by the contract of this function; everything that `info` points to lives until the
    // call returns, and the server copies it.
    unsafe { set(command, &raw const info) == OK }
}

const SINCE: &CStr = c"0.1.0";

fn key_spec(writes: bool) -> raw::RedisModuleCommandKeySpec {
    // In the bindings the kinds of search begin with "invalid" and "unknown": index and range
    // come third.
    const INDEX: raw::RedisModuleKeySpecBeginSearchType =
        raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
    const RANGE: raw::RedisModuleKeySpecFindKeysType =
        raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
    let access = raw::REDISMODULE_CMD_KEY_ACCESS;
    let flags = if writes {
        access | raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_UPDATE
    } else {
        access | raw::REDISMODULE_CMD_KEY_RO
    };
    raw::RedisModuleCommandKeySpec {
        notes: null(),
        flags: u64::from(flags),
        begin_search_type: INDEX,
        bs: raw::RedisModuleCommandKeySpec__bindgen_ty_1 {
            index: raw::RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_1 { pos: 1 },
        },
        find_keys_type: RANGE,
        fk: raw::RedisModuleCommandKeySpec__bindgen_ty_2 {
            range: raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 {
                lastkey: 0,
                keystep: 1,
                limit: 0,
            },
        },
    }
}

type ArgType = raw::RedisModuleCommandArgType;
const TEXT: ArgType = raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING;
const NUMBER: ArgType = raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER;
const KEY: ArgType = raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY;
const WORD: ArgType = raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN;
const ONE_OF: ArgType = raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF;
const OPTIONAL: c_int = raw::REDISMODULE_CMD_ARG_OPTIONAL.cast_signed();

fn arg_spec(
    arg: &ArgSpec,
    options: &mut [raw::RedisModuleCommandArg; 3],
) -> raw::RedisModuleCommandArg {
    match arg {
        ArgSpec::Key => raw::RedisModuleCommandArg { key_spec_index: 0, ..plain(c"key", KEY) },
        ArgSpec::Text(name) => plain(name, TEXT),
        ArgSpec::OptionalText(name) => optional(plain(name, TEXT)),
        ArgSpec::Number(name) => plain(name, NUMBER),
        ArgSpec::NumberOrWord { name, word } => {
            one_of(plain(name, NUMBER), behind(word, c"all", WORD), options)
        }
        ArgSpec::OptionalWord { word, name } => optional(behind(word, name, WORD)),
        ArgSpec::OptionalNumber { word, name } => optional(behind(word, name, NUMBER)),
        ArgSpec::NamedText { word, name } => behind(word, name, TEXT),
        ArgSpec::OptionalNamedText { word, name } => optional(behind(word, name, TEXT)),
        ArgSpec::OptionalWordOrNumber { word, other, name } => {
            let (word, number) = (behind(word, c"all", WORD), behind(other, name, NUMBER));
            optional(one_of(word, number, options))
        }
    }
}

fn optional(arg: raw::RedisModuleCommandArg) -> raw::RedisModuleCommandArg {
    raw::RedisModuleCommandArg { flags: OPTIONAL, ..arg }
}

/// An argument that begins with a word, or is nothing else.
fn behind(word: &CStr, name: &CStr, kind: ArgType) -> raw::RedisModuleCommandArg {
    raw::RedisModuleCommandArg { token: word.as_ptr(), ..plain(name, kind) }
}

fn one_of(
    first: raw::RedisModuleCommandArg,
    second: raw::RedisModuleCommandArg,
    options: &mut [raw::RedisModuleCommandArg; 3],
) -> raw::RedisModuleCommandArg {
    let [one, other, _] = &mut *options;
    (*one, *other) = (first, second);
    let subargs = options.as_mut_ptr();
    raw::RedisModuleCommandArg { subargs, ..plain(c"amount", ONE_OF) }
}

fn plain(name: &CStr, kind: ArgType) -> raw::RedisModuleCommandArg {
    raw::RedisModuleCommandArg { name: name.as_ptr(), type_: kind, ..end_of_args() }
}

fn end_of_args() -> raw::RedisModuleCommandArg {
    let none: *const c_char = null();
    raw::RedisModuleCommandArg {
        name: none,
        type_: TEXT,
        key_spec_index: -1,
        token: none,
        summary: none,
        since: none,
        flags: 0,
        deprecated_since: none,
        subargs: null_mut(),
        display_text: none,
    }
}
