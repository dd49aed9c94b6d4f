//! Access to the functions of the module API.
//!
//! `redis-module` has a static for each function, which the load function fills. Functions that every
//! supported server has are checked once, in [`missing_function`]. Any other function is checked where it is
//! used: if the function is absent, the server lacks the capability.

use std::ffi::c_int;

use redis_module::raw;

// Constants whose type in the bindings differs from the type that the functions use.
pub(super) const OK: c_int = 0;
pub(super) const ERR: c_int = 1;
pub(super) const KEYTYPE_EMPTY: c_int = 0;
pub(super) const KEYTYPE_STRING: c_int = 1;
pub(super) const KEYTYPE_HASH: c_int = 3;
const _: () = assert!(
    OK as isize == raw::REDISMODULE_OK
        && ERR as isize == raw::REDISMODULE_ERR
        && KEYTYPE_EMPTY as isize == raw::REDISMODULE_KEYTYPE_EMPTY
        && KEYTYPE_STRING as isize == raw::REDISMODULE_KEYTYPE_STRING
        && KEYTYPE_HASH as isize == raw::REDISMODULE_KEYTYPE_HASH
);

/// Returns a function that every supported server has.
macro_rules! required {
    ($name:ident) => {{
        // SAFETY: the load function fills this static, before other code of the module runs. After that it is
        // only read.
        let function = unsafe { ::redis_module::raw::$name };
        match function {
            Some(function) => function,
            None => $crate::redis::api::absent(stringify!($name)),
        }
    }};
}

/// Returns a function that only some servers have, as an `Option`.
macro_rules! optional {
    ($name:ident) => {{
        // SAFETY: the load function fills this static, before other code of the module runs. After that it is
        // only read.
        unsafe { ::redis_module::raw::$name }
    }};
}

pub(super) use {optional, required};

/// Panics. Reached only if [`missing_function`] was not called first. The guard catches the panic.
#[cold]
#[expect(clippy::panic, reason = "caught by the guard; loading checks that it cannot happen")]
pub(super) fn absent(name: &str) -> ! {
    panic!("the server has no {name}");
}

/// Returns the name of a required function that this server lacks. `None` if it has all of them.
pub(super) fn missing_function() -> Option<&'static str> {
    macro_rules! first_missing {
        ($($name:ident)*) => {
            $(
                if optional!($name).is_none() {
                    return Some(stringify!($name));
                }
            )*
        };
    }
    first_missing! {
        RedisModule_Alloc RedisModule_Free RedisModule_Log
        RedisModule_CreateCommand RedisModule_GetCommand RedisModule_SetCommandInfo
        RedisModule_IsKeysPositionRequest RedisModule_KeyAtPosWithFlags
        RedisModule_RegisterNumericConfig RedisModule_RegisterEnumConfig
        RedisModule_RegisterBoolConfig RedisModule_LoadConfigs
        RedisModule_RegisterInfoFunc RedisModule_InfoAddSection RedisModule_InfoAddFieldULongLong
        RedisModule_InfoAddFieldCString
        RedisModule_SubscribeToKeyspaceEvents RedisModule_SubscribeToServerEvent
        RedisModule_GetNotifyKeyspaceEvents RedisModule_NotifyKeyspaceEvent
        RedisModule_GetServerInfo RedisModule_ServerInfoGetFieldUnsigned RedisModule_FreeServerInfo
        RedisModule_CreateString RedisModule_CreateStringFromLongLong RedisModule_FreeString
        RedisModule_StringPtrLen
        RedisModule_SetModuleOptions RedisModule_SignalModifiedKey
        RedisModule_OpenKey RedisModule_CloseKey RedisModule_KeyType RedisModule_ValueLength
        RedisModule_DeleteKey RedisModule_UnlinkKey RedisModule_HashGet RedisModule_HashSet RedisModule_GetAbsExpire
        RedisModule_SetAbsExpire RedisModule_ScanCursorCreate RedisModule_ScanCursorDestroy
        RedisModule_ScanCursorRestart RedisModule_ScanKey RedisModule_StringDMA RedisModule_StringSet
        RedisModule_GetClientUserNameById RedisModule_GetCurrentUserName RedisModule_GetRandomHexChars
        RedisModule_GetSelectedDb RedisModule_SelectDb RedisModule_GetClientId
        RedisModule_GetContextFlags RedisModule_AvoidReplicaTraffic RedisModule_Replicate
        RedisModule_Call RedisModule_FreeCallReply RedisModule_CallReplyType
        RedisModule_CallReplyStringPtr RedisModule_CallReplyArrayElement
        RedisModule_GetThreadSafeContext RedisModule_FreeThreadSafeContext
        RedisModule_PublishMessage RedisModule_PublishMessageShard
        RedisModule_BlockClient RedisModule_UnblockClient RedisModule_SetDisconnectCallback
        RedisModule_GetBlockedClientPrivateData
        RedisModule_CreateTimer RedisModule_StopTimer
        RedisModule_ReplyWithNull RedisModule_ReplyWithLongLong RedisModule_ReplyWithArray
        RedisModule_ReplyWithMap RedisModule_ReplyWithStringBuffer RedisModule_ReplyWithError
    }
    None
}
