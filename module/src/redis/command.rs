//! Commands: how they are declared, documented and called.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::{null, null_mut};

use redis_module::raw;

use super::api::{OK, optional, required};
use super::ctx::Ctx;
use super::entry::Entry;
use super::guard::{guard, log_line};
use super::message::Reply;
use super::parked::take_parked;
use super::spec::{ArgSpec, Command, CommandSpec, FOR_ALL, FOR_OPERATORS, KeyAccess, wrong_arity};
use super::text::Arg;

/// Declares the ACL categories of this module. The server keeps them when the module is unloaded, and refuses
/// them when the module is loaded again. This error is ignored.
///
/// # Safety
///
/// `ctx` is the context of the load function.
pub(super) unsafe fn add_categories(ctx: *mut raw::RedisModuleCtx) {
    let Some(add) = optional!(RedisModule_AddACLCategory) else { return };
    for category in [FOR_ALL, FOR_OPERATORS] {
        // SAFETY: `ctx` is valid by the contract of this function; the server copies the name.
        unsafe { add(ctx, category.as_ptr()) };
    }
}

/// Declares a command to the server. If the server refuses it, `Err` has the name of the command.
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
    // SAFETY: `ctx` is valid by the contract of this function. The server copies the strings, and `call`
    // never unwinds.
    let created = unsafe {
        create(ctx, spec.name.as_ptr(), Some(call::<C>), spec.flags.as_ptr(), first, last, step)
    };
    if created != OK {
        return Err(spec.name);
    }
    let find = required!(RedisModule_GetCommand);
    // SAFETY: `ctx` is valid by the contract of this function; the name is a C string.
    let command = unsafe { find(ctx, spec.name.as_ptr()) };
    if command.is_null() {
        return Err(spec.name);
    }
    // SAFETY: `command` was just created, and the load function still runs.
    if !unsafe { describe(command, spec) } {
        return Err(spec.name);
    }
    if let Some(set_categories) = optional!(RedisModule_SetCommandACLCategories) {
        // If the server does not know one of the categories, it sets none of them. The server may have had no
        // room for this module's category, so the second attempt leaves this category out.
        let skipped = usize::from(optional!(RedisModule_AddACLCategory).is_none());
        for categories in spec.categories().iter().skip(skipped) {
            // SAFETY: `command` is valid, as above. The server reads the string during the call.
            if unsafe { set_categories(command, categories.as_ptr()) } == OK {
                break;
            }
            log_line(&format!("the server does not know the ACL categories {categories:?}"));
        }
    }
    Ok(())
}

impl Ctx<'_> {
    /// Returns whether the server asks which of the arguments are keys, instead of calling the command.
    fn asks_for_keys(&self) -> bool {
        let asks = required!(RedisModule_IsKeysPositionRequest);
        // SAFETY: the context is alive.
        unsafe { asks(self.raw) != 0 }
    }

    /// Reports which of the arguments are keys, and how they are used.
    fn report_keys(&self, spec: &CommandSpec, args: &[Arg<'_>]) {
        let report = required!(RedisModule_KeyAtPosWithFlags);
        let words: Vec<_> = args.iter().map(|arg| arg.bytes()).collect();
        for (position, access) in spec.key_positions(&words) {
            let position = c_int::try_from(position).unwrap_or(0);
            // SAFETY: the server passed this context for a request of key positions.
            unsafe { report(self.raw, position, key_flags(access).cast_signed()) };
        }
    }
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
        // SAFETY: `Arg` has the layout of the string pointer that it wraps. `count` is `argc`, and the server
        // lends `argc` strings at `argv` until this callback returns.
        let args = unsafe { std::slice::from_raw_parts(argv.cast::<Arg<'_>>(), count) };
        if const { C::SPEC.names_keys_in_options() } && ctx.asks_for_keys() {
            ctx.report_keys(&C::SPEC, args);
            return Some(Reply::Later);
        }
        Some(C::run(&ctx, args.get(1..).unwrap_or_default()))
    });
    let reply = match reply {
        Some(reply) => reply,
        // The command panicked after it had blocked the client. The client is answered when it is unblocked.
        None if take_parked() => Reply::Later,
        None => Reply::error(c"ERR internal error, see the server's log"),
    };
    // SAFETY: `raw_ctx` is the live context of this command, and nothing was sent to the caller yet.
    unsafe { reply.send(raw_ctx) };
    OK
}

/// Declares the content of `COMMAND DOCS` and `COMMAND INFO` for a command. Returns whether the server
/// accepts it.
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
    let access = if spec.writes() { KeyAccess::Update } else { KeyAccess::Read };
    let mut keys = Vec::from_iter(spec.has_key().then(|| key_spec(key_flags(access))));
    let (fixed, _) = spec.words();
    keys.extend(spec.args.iter().filter_map(|arg| option_key_spec(arg, fixed)));
    // SAFETY: the structure consists of integers and pointers, so a value of all zeros is valid. In the API,
    // it marks the end of the list.
    keys.push(unsafe { std::mem::zeroed() });
    let mut parts = Vec::new();
    let mut further_keys = 0;
    let mut args: Vec<_> = spec
        .args
        .iter()
        .map(|arg| {
            further_keys += c_int::from(arg.key_access().is_some());
            arg_spec(arg, further_keys, &mut parts)
        })
        .collect();
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
    // SAFETY: `command` is valid by the contract of this function. Everything that `info` points to lives
    // until the call returns, and the server copies it.
    unsafe { set(command, &raw const info) == OK }
}

const SINCE: &CStr = c"0.1.0";

/// Returns the flags that declare to the server how a command uses a key.
fn key_flags(access: KeyAccess) -> u32 {
    match access {
        KeyAccess::Update => {
            raw::REDISMODULE_CMD_KEY_ACCESS
                | raw::REDISMODULE_CMD_KEY_RW
                | raw::REDISMODULE_CMD_KEY_UPDATE
        }
        KeyAccess::Read => raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_RO,
        KeyAccess::Overwrite => raw::REDISMODULE_CMD_KEY_OW | raw::REDISMODULE_CMD_KEY_UPDATE,
    }
}

/// Returns the specification of the keys that an option names, if any. The server searches for the option's
/// word, but a text argument may equal that word. So the specification is marked as incomplete, and the
/// server asks the command.
fn option_key_spec(arg: &ArgSpec, fixed: usize) -> Option<raw::RedisModuleCommandKeySpec> {
    const KEYWORD: raw::RedisModuleKeySpecBeginSearchType =
        raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_KEYWORD;
    let word = arg.word().filter(|_| arg.key_access().is_some())?;
    let flags = key_flags(arg.key_access()?) | raw::REDISMODULE_CMD_KEY_INCOMPLETE;
    let keyword = raw::RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_2 {
        keyword: word.as_ptr(),
        startfrom: c_int::try_from(fixed).unwrap_or(0),
    };
    let spec = raw::RedisModuleCommandKeySpec {
        begin_search_type: KEYWORD,
        bs: raw::RedisModuleCommandKeySpec__bindgen_ty_1 { keyword },
        ..key_spec(flags)
    };
    Some(if matches!(arg, ArgSpec::OptionalKeys { .. }) { counted(spec) } else { spec })
}

/// Changes a specification to that of a list of keys that begins with their number.
fn counted(spec: raw::RedisModuleCommandKeySpec) -> raw::RedisModuleCommandKeySpec {
    const KEYNUM: raw::RedisModuleKeySpecFindKeysType =
        raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_KEYNUM;
    let keynum = raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_2 {
        keynumidx: 0,
        firstkey: 1,
        keystep: 1,
    };
    raw::RedisModuleCommandKeySpec {
        find_keys_type: KEYNUM,
        fk: raw::RedisModuleCommandKeySpec__bindgen_ty_2 { keynum },
        ..spec
    }
}

fn key_spec(flags: u32) -> raw::RedisModuleCommandKeySpec {
    // The search begins at a fixed index, and finds a range of keys from there.
    const INDEX: raw::RedisModuleKeySpecBeginSearchType =
        raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
    const RANGE: raw::RedisModuleKeySpecFindKeysType =
        raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
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
const BLOCK: ArgType = raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK;
const MULTIPLE: c_int = raw::REDISMODULE_CMD_ARG_MULTIPLE.cast_signed();
const OPTIONAL: c_int = raw::REDISMODULE_CMD_ARG_OPTIONAL.cast_signed();

/// Parts of composed arguments. They must live until the server has copied them.
type Parts = Vec<Vec<raw::RedisModuleCommandArg>>;

/// Returns the description of an argument for the server. If the argument names a key, `key` is the index of
/// its key specification.
fn arg_spec(arg: &ArgSpec, key: c_int, parts: &mut Parts) -> raw::RedisModuleCommandArg {
    match arg {
        ArgSpec::Key => raw::RedisModuleCommandArg { key_spec_index: 0, ..plain(c"key", KEY) },
        ArgSpec::Text(name) => plain(name, TEXT),
        ArgSpec::OptionalText(name) => optional(plain(name, TEXT)),
        ArgSpec::Number(name) => plain(name, NUMBER),
        ArgSpec::NumberOrWord { name, word } => {
            one_of(plain(name, NUMBER), behind(word, c"all", WORD), parts)
        }
        ArgSpec::OptionalWord { word, name } => optional(behind(word, name, WORD)),
        ArgSpec::OptionalNumber { word, name } => optional(behind(word, name, NUMBER)),
        ArgSpec::NamedText { word, name } => behind(word, name, TEXT),
        ArgSpec::OptionalNamedText { word, name } => optional(behind(word, name, TEXT)),
        ArgSpec::OptionalWordOrNumber { word, other, name } => {
            let (word, number) = (behind(word, c"all", WORD), behind(other, name, NUMBER));
            optional(one_of(word, number, parts))
        }
        ArgSpec::OptionalKey { word, name } => {
            optional(raw::RedisModuleCommandArg { key_spec_index: key, ..behind(word, name, KEY) })
        }
        ArgSpec::OptionalKeys { word, name } => {
            let keys = raw::RedisModuleCommandArg {
                key_spec_index: key,
                flags: MULTIPLE,
                ..plain(c"key", KEY)
            };
            let subargs = store_parts(parts, vec![plain(c"numkeys", NUMBER), keys]);
            optional(raw::RedisModuleCommandArg { subargs, ..behind(word, name, BLOCK) })
        }
        ArgSpec::OptionalStore { word, key: name } => {
            let name = raw::RedisModuleCommandArg { key_spec_index: key, ..plain(name, KEY) };
            let lifetime = optional(behind(c"PX", c"lifetime-ms", NUMBER));
            let subargs = store_parts(parts, vec![name, plain(c"value", TEXT), lifetime]);
            let store = behind(word, c"result", BLOCK);
            optional(raw::RedisModuleCommandArg { subargs, ..store })
        }
    }
}

/// Stores the parts of an argument in `parts`, and returns a pointer to the first of them.
fn store_parts(
    parts: &mut Parts,
    mut some: Vec<raw::RedisModuleCommandArg>,
) -> *mut raw::RedisModuleCommandArg {
    some.push(end_of_args());
    let start = some.as_mut_ptr();
    parts.push(some);
    start
}

fn optional(arg: raw::RedisModuleCommandArg) -> raw::RedisModuleCommandArg {
    raw::RedisModuleCommandArg { flags: OPTIONAL, ..arg }
}

/// Returns an argument that begins with a word, or that consists only of the word.
fn behind(word: &CStr, name: &CStr, kind: ArgType) -> raw::RedisModuleCommandArg {
    raw::RedisModuleCommandArg { token: word.as_ptr(), ..plain(name, kind) }
}

fn one_of(
    first: raw::RedisModuleCommandArg,
    second: raw::RedisModuleCommandArg,
    parts: &mut Parts,
) -> raw::RedisModuleCommandArg {
    let subargs = store_parts(parts, vec![first, second]);
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
