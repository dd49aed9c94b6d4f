//! The two functions that the server calls to load and to unload the module.

use std::ffi::{CStr, CString, c_char, c_int};

use redis_module::raw;

use super::api::{ERR, OK};
use super::call::NoAcl;
use super::ctx::Ctx;
use super::entry::Entry;
use super::guard::{guard, log_line, log_panics, provoke, provoked_by};
use super::options::declare_options;
use super::text::Arg;
use super::{api, command, config, events, info};
use crate::module::Module;

/// Declares commands to the server while the module is being loaded.
#[derive(Debug)]
pub(crate) struct Registry<'a> {
    ctx: &'a Ctx<'a>,
    refused: Option<&'static CStr>,
}

/// Commands that the module replicates, and `EXISTS`, which it only calls.
const NEEDED: [&CStr; 10] = [
    c"RESTORE",
    c"HSET",
    c"HDEL",
    c"PEXPIREAT",
    c"DEL",
    c"UNLINK",
    c"SET",
    c"PUBLISH",
    c"SPUBLISH",
    c"EXISTS",
];

impl Registry<'_> {
    pub(crate) fn add<C: super::Command>(&mut self) {
        if self.refused.is_none() {
            // SAFETY: a registry exists only while the load function runs, and has the context of that
            // function.
            self.refused = unsafe { command::register::<C>(self.ctx.raw) }.err();
        }
    }
}

/// Loads the module.
///
/// # Safety
///
/// Must only be called by the server, with its context and `argc` arguments.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn RedisModule_OnLoad(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    const API: c_int = raw::REDISMODULE_APIVER_1.cast_signed();
    // The allocator is the server's, and not available yet. So the name must not be allocated.
    let mut name = [0_u8; 32];
    for (to, from) in name.iter_mut().zip(Module::NAME.bytes()) {
        *to = from;
    }
    let name = name.as_ptr().cast::<c_char>();
    // SAFETY: `ctx` is the context that the server passes to the load function. The name ends with a zero.
    let made = unsafe { raw::Export_RedisModule_Init(ctx, name, Module::VERSION, API) };
    if made != OK {
        return ERR;
    }
    let loaded = guard(Entry::Load, Err("a panic while loading".into()), || {
        log_panics();
        // SAFETY: the API is initialised. The server lends `ctx` and the `argc` strings until this callback
        // returns.
        unsafe { load_guarded(ctx, argv, argc) }
    });
    match loaded {
        Ok(()) => OK,
        Err(why) => {
            guard(Entry::Load, (), || {
                log_line(&format!("not loaded: {why}"));
                // SAFETY: the context lives until the load function returns.
                Module::unload(&unsafe { Ctx::new(ctx) });
            });
            ERR
        }
    }
}

/// Unloads the module, unless ACL rules name one of its commands, or may do so: then the server would crash.
///
/// # Safety
///
/// Must only be called by the server, with its context.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn RedisModule_OnUnload(ctx: *mut raw::RedisModuleCtx) -> c_int {
    // SAFETY: the context lives until this callback returns.
    let ctx = unsafe { Ctx::new(ctx) };
    guard(Entry::Unload, OK, || {
        match ctx.rules_that_name_commands() {
            Ok(None) => {
                Module::unload(&ctx);
                return OK;
            }
            Ok(Some(rules)) => {
                let rules = String::from_utf8_lossy(&rules);
                let user = rules.split(' ').nth(1).unwrap_or_default();
                log_line(&format!(
                    "not unloaded: the ACL rules of user {user:?} name a command of kvlock, and servers crash if it is removed. \
                     Begin the rules with -@all, and name categories, such as @lock, or no command of kvlock"
                ));
            }
            Err(NoAcl) => log_line(
                "not unloaded: the server has no command ACL, perhaps because of rename-command. If the ACL rules of a user \
                 name a command of kvlock, the server would crash",
            ),
        }
        ERR
    })
}

/// # Safety
///
/// As for [`RedisModule_OnLoad`], after the API was initialised.
unsafe fn load_guarded(
    raw_ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> Result<(), String> {
    if let Some(missing) = api::missing_function() {
        return Err(format!("this server lacks {missing}; Redis 7.0 or Valkey 8.0 is needed"));
    }
    #[cfg(not(feature = "system-alloc"))]
    if !super::memory::is_aligned() {
        return Err("this server aligns memory too little, as if built with MALLOC=libc on musl: it takes one with jemalloc".into());
    }
    // SAFETY: the context lives until the load function returns.
    let ctx = unsafe { Ctx::new(raw_ctx) };
    let count = usize::try_from(argc).unwrap_or(0);
    let args = if count == 0 {
        &[]
    } else {
        // SAFETY: `Arg` has the layout of the string pointer that it wraps. By the contract of this function,
        // `argv` points to `argc` strings.
        unsafe { std::slice::from_raw_parts(argv.cast::<Arg<'_>>(), count) }
    };
    if let Some(renamed) = NEEDED.into_iter().find(|name| !ctx.knows_command(name)) {
        return Err(format!(
            "this server knows no command {renamed:?}: rename-command must leave those alone by which \
             kvlock tells replicas and append-only files what it does"
        ));
    }
    let args = provoked_by(args);
    provoke(Entry::Load);
    // SAFETY: `raw_ctx` is the context of the load function.
    unsafe { declare_options(raw_ctx, false) };
    Module::load(&ctx);
    // SAFETY: `raw_ctx` is the context of the load function.
    unsafe { command::add_categories(raw_ctx) };
    let mut registry = Registry { ctx: &ctx, refused: None };
    Module::commands(&mut registry);
    if let Some(refused) = registry.refused {
        let name = CString::from(refused);
        return Err(format!("the server refused the command {name:?}"));
    }
    // SAFETY: `raw_ctx` is the context of the load function.
    unsafe { config::register(raw_ctx, args) }?;
    // SAFETY: `raw_ctx` is the context of the load function.
    unsafe { info::register(raw_ctx) };
    Module::loaded(&ctx);
    provoke(Entry::Loaded);
    // Nothing may fail after this: Redis 7.0 still sends events to a module whose loading has failed.
    // SAFETY: `raw_ctx` is the context of the load function.
    unsafe { events::subscribe(raw_ctx) };
    Ok(())
}
