//! Sending of replies.

use std::ffi::{c_long, c_longlong};

use redis_module::raw::RedisModuleCtx;

use super::api::required;
use super::message::Reply;

impl Reply {
    /// Sends the reply.
    ///
    /// # Safety
    ///
    /// `ctx` is the live context of a command or of the answer to a blocked client. Nothing was sent yet, or
    /// this reply is the next element of an array or a map.
    pub(super) unsafe fn send(&self, ctx: *mut RedisModuleCtx) {
        match self {
            Self::Nil => {
                let send = required!(RedisModule_ReplyWithNull);
                // SAFETY: `ctx` is valid by the contract of this function.
                unsafe { send(ctx) };
            }
            // SAFETY: `ctx` is valid by the contract of this function.
            Self::Number(number) => unsafe { send_number(ctx, *number) },
            Self::Pair(first, second) => {
                // SAFETY: `ctx` is valid by the contract of this function.
                unsafe { send_array(ctx, 2) };
                // SAFETY: `ctx` is valid, and this is the first of the two elements announced.
                unsafe { send_number(ctx, *first) };
                // SAFETY: `ctx` is valid, and this is the second element.
                unsafe { send_number(ctx, *second) };
            }
            // SAFETY: `ctx` is valid by the contract of this function.
            Self::Bytes(bytes) => unsafe { send_bytes(ctx, bytes) },
            // SAFETY: `ctx` is valid by the contract of this function.
            Self::Word(word) => unsafe { send_bytes(ctx, word.as_bytes()) },
            Self::List(items) => {
                // SAFETY: `ctx` is valid by the contract of this function.
                unsafe { send_array(ctx, items.len()) };
                for item in items {
                    // SAFETY: `ctx` is valid, and this is one of the elements announced.
                    unsafe { item.send(ctx) };
                }
            }
            Self::Map(entries) => {
                let start = required!(RedisModule_ReplyWithMap);
                // SAFETY: `ctx` is valid by the contract of this function.
                unsafe { start(ctx, c_long::try_from(entries.len()).unwrap_or(0)) };
                for (name, value) in entries {
                    // SAFETY: `ctx` is valid, and this is the name of one of the entries announced.
                    unsafe { send_bytes(ctx, name.as_bytes()) };
                    // SAFETY: `ctx` is valid, and this is the value of that entry.
                    unsafe { value.send(ctx) };
                }
            }
            Self::Error(text) => {
                let send = required!(RedisModule_ReplyWithError);
                // SAFETY: `ctx` is valid by the contract of this function; the server copies the text.
                unsafe { send(ctx, text.as_ptr()) };
            }
            Self::Later => {}
        }
    }
}

/// # Safety
///
/// As for [`Reply::send`].
unsafe fn send_number(ctx: *mut RedisModuleCtx, number: u64) {
    let send = required!(RedisModule_ReplyWithLongLong);
    let number = c_longlong::try_from(number).unwrap_or(c_longlong::MAX);
    // SAFETY: `ctx` is valid by the contract of this function.
    unsafe { send(ctx, number) };
}

/// # Safety
///
/// As for [`Reply::send`].
unsafe fn send_array(ctx: *mut RedisModuleCtx, length: usize) {
    let send = required!(RedisModule_ReplyWithArray);
    // SAFETY: `ctx` is valid by the contract of this function.
    unsafe { send(ctx, c_long::try_from(length).unwrap_or(0)) };
}

/// # Safety
///
/// As for [`Reply::send`].
unsafe fn send_bytes(ctx: *mut RedisModuleCtx, bytes: &[u8]) {
    let send = required!(RedisModule_ReplyWithStringBuffer);
    // SAFETY: `ctx` is valid by the contract of this function; the server copies the bytes.
    unsafe { send(ctx, bytes.as_ptr().cast(), bytes.len()) };
}
