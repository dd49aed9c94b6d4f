//! Subscriptions to key events and server events.

use std::ffi::{c_char, c_int, c_void};

use redis_module::raw;

use super::api::{OK, optional, required};
use super::ctx::Ctx;
use super::entry::Entry;
use super::guard::guard;
use super::message::{KeyEvent, ServerEvent};
use super::text::Arg;
use crate::module::Module;

/// # Safety
///
/// `ctx` is the context of the load function.
pub(super) unsafe fn subscribe(ctx: *mut raw::RedisModuleCtx) {
    let subscribe_keys = required!(RedisModule_SubscribeToKeyspaceEvents);
    let kinds = raw::REDISMODULE_NOTIFY_GENERIC
        | raw::REDISMODULE_NOTIFY_HASH
        | raw::REDISMODULE_NOTIFY_EXPIRED
        | raw::REDISMODULE_NOTIFY_EVICTED;
    // SAFETY: `ctx` is valid by the contract of this function; `key_event` never unwinds.
    unsafe { subscribe_keys(ctx, kinds, Some(key_event)) };
    let subscribe_server = required!(RedisModule_SubscribeToServerEvent);
    for id in [
        raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
        raw::REDISMODULE_EVENT_REPLICA_CHANGE,
        raw::REDISMODULE_EVENT_FLUSHDB,
        raw::REDISMODULE_EVENT_SWAPDB,
        raw::REDISMODULE_EVENT_LOADING,
        raw::REDISMODULE_EVENT_CRON_LOOP,
    ]
    .into_iter()
    .chain(
        may_receive_client_events(server_version()).then_some(raw::REDISMODULE_EVENT_CLIENT_CHANGE),
    ) {
        let event = raw::RedisModuleEvent { id, dataver: 1 };
        // SAFETY: `ctx` is valid by the contract of this function; `server_event` never unwinds.
        unsafe { subscribe_server(ctx, event, Some(server_event)) };
    }
}

/// First version whose client events may be subscribed to: 7.0.6. With a subscription, an earlier server
/// crashes when a client that is blocked outside database 0 disconnects (redis/redis#11500).
const TELLS_OF_CLIENTS: i32 = 0x0007_0006;

/// Returns whether the events of clients can be subscribed to on a server of this version. `true` if the
/// version is unknown. Valkey reports its own version, 8.0 or later, and does not have the bug.
fn may_receive_client_events(version: Option<i32>) -> bool {
    version.is_none_or(|version| version >= TELLS_OF_CLIENTS)
}

/// Returns the version of the server, with one byte for each of its numbers.
fn server_version() -> Option<i32> {
    let version = optional!(RedisModule_GetServerVersion)?;
    // SAFETY: the function takes no arguments and may be called at any time.
    Some(unsafe { version() })
}

unsafe extern "C" fn key_event(
    ctx: *mut raw::RedisModuleCtx,
    kind: c_int,
    _event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    guard(Entry::KeyEvent, (), || {
        // SAFETY: the name of the key lives until this callback returns.
        let key = unsafe { Arg::new(key) };
        // SAFETY: the context lives until this callback returns.
        let ctx = unsafe { Ctx::new(ctx) };
        let expired = kind == raw::REDISMODULE_NOTIFY_EXPIRED;
        Module::key_event(&ctx, KeyEvent { db: ctx.db(), key: key.bytes(), expired });
    });
    OK
}

unsafe extern "C" fn server_event(
    ctx: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    sub: u64,
    data: *mut c_void,
) {
    guard(Entry::ServerEvent, (), || {
        // SAFETY: `data` is what the server passes with this event.
        if let Some(event) = unsafe { read_event(event.id, sub, data) } {
            // SAFETY: the context lives until this callback returns.
            Module::server_event(&unsafe { Ctx::new(ctx) }, event);
        }
    });
}

/// # Safety
///
/// `data` is what the server passes with this event.
unsafe fn read_event(id: u64, sub: u64, data: *mut c_void) -> Option<ServerEvent> {
    match (id, sub) {
        (raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, now) => {
            let primary = now == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER;
            Some(if primary { ServerEvent::BecamePrimary } else { ServerEvent::BecameReplica })
        }
        (raw::REDISMODULE_EVENT_REPLICA_CHANGE, _) => Some(ServerEvent::ReplicasChanged),
        (raw::REDISMODULE_EVENT_FLUSHDB, raw::REDISMODULE_SUBEVENT_FLUSHDB_END) => {
            // SAFETY: for this event, `data` is null or points to this structure.
            let flush = unsafe { data.cast::<raw::RedisModuleFlushInfoV1>().as_ref() }?;
            Some(ServerEvent::Flushed((flush.dbnum >= 0).then_some(flush.dbnum)))
        }
        (raw::REDISMODULE_EVENT_SWAPDB, _) => {
            // SAFETY: for this event, `data` is null or points to this structure.
            let swap = unsafe { data.cast::<raw::RedisModuleSwapDbInfoV1>().as_ref() }?;
            Some(ServerEvent::Swapped(swap.dbnum_first, swap.dbnum_second))
        }
        (raw::REDISMODULE_EVENT_LOADING, raw::REDISMODULE_SUBEVENT_LOADING_ENDED) => {
            Some(ServerEvent::Loaded)
        }
        (raw::REDISMODULE_EVENT_CRON_LOOP, _) => Some(ServerEvent::Cron),
        (
            raw::REDISMODULE_EVENT_CLIENT_CHANGE,
            raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED,
        ) => {
            // SAFETY: for this event, `data` is null or points to this structure.
            let client = unsafe { data.cast::<raw::RedisModuleClientInfoV1>().as_ref() }?;
            Some(ServerEvent::ClientClosed(client.id))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::may_receive_client_events;

    #[test]
    fn client_events_are_not_subscribed_where_they_crash_the_server() {
        for (version, may) in [
            (0x0007_0000, false),
            (0x0007_0005, false),
            (0x0007_0006, true),
            (0x0007_000f, true),
            (0x0007_0200, true),
            (0x0008_0001, true),
            (0x0009_0102, true),
        ] {
            assert_eq!(may_receive_client_events(Some(version)), may, "{version:x}");
        }
    }
}
