//! Commands that we call in order to learn what the server would answer to a client. None of them
//! changes anything.

use std::ptr::null_mut;

use redis_module::raw;

use super::api::required;
use super::ctx::Ctx;
use super::text::Arg;

/// A reply to one of our calls; freed when dropped.
struct CallReply(*mut raw::RedisModuleCallReply);

impl Drop for CallReply {
    fn drop(&mut self) {
        let free = required!(RedisModule_FreeCallReply);
        // SAFETY: the reply is ours and this is its end.
        unsafe { free(self.0) };
    }
}

impl CallReply {
    /// The text of an error; `None` for anything else.
    fn error(&self) -> Option<Vec<u8>> {
        let kind = required!(RedisModule_CallReplyType);
        // SAFETY: the reply is alive.
        if unsafe { kind(self.0) } != REPLY_ERROR {
            return None;
        }
        let text = required!(RedisModule_CallReplyStringPtr);
        let mut length = 0;
        // SAFETY: the reply is alive.
        let start = unsafe { text(self.0, &raw mut length) };
        if start.is_null() {
            return Some(Vec::new());
        }
        // SAFETY: the server returns the start of `length` bytes that live as long as the reply.
        let text = unsafe { std::slice::from_raw_parts(start.cast::<u8>(), length) };
        let text = text.strip_prefix(b"-").unwrap_or(text);
        Some(text.trim_ascii().to_vec())
    }
}

const REPLY_ERROR: i32 = 1;
const _: () = assert!(REPLY_ERROR as isize == raw::REDISMODULE_REPLY_ERROR);

impl Ctx<'_> {
    /// Why the server would refuse a client that wrote to this key now: the slot is not its own,
    /// it has too few replicas, its disk is full. `None` if it would not.
    ///
    /// Asks by deleting a field without a name from the hash at `key`, or from no hash at all.
    pub(crate) fn refusal_to_write(&self, key: Arg<'_>) -> Option<Vec<u8>> {
        let call = required!(RedisModule_Call);
        // SAFETY: "S" and "E" ask for the checks that a script's commands get and for errors as
        // replies; "s" takes a live string and "b" bytes and their number, here none.
        let raw = unsafe {
            call(self.raw, c"HDEL".as_ptr(), c"SEsb".as_ptr(), key.raw, c"".as_ptr(), 0_usize)
        };
        if raw.is_null() {
            return Some(b"TRYAGAIN the server refused".to_vec());
        }
        CallReply(raw).error()
    }

    /// Says whether this server serves the slot of `key`, rather than importing it, in the eyes
    /// of a client that does not ask for an exception.
    pub(crate) fn serves_slot_of(&self, key: Arg<'_>) -> bool {
        let context = required!(RedisModule_GetThreadSafeContext);
        // SAFETY: without a blocked client this makes a context of its own, on the main thread.
        let fresh = unsafe { context(null_mut()) };
        let call = required!(RedisModule_Call);
        // SAFETY: the context is alive; "s" takes a live string.
        let raw = unsafe { call(fresh, c"EXISTS".as_ptr(), c"s".as_ptr(), key.raw) };
        let serves = !raw.is_null();
        if serves {
            drop(CallReply(raw));
        }
        let free = required!(RedisModule_FreeThreadSafeContext);
        // SAFETY: the context is ours and this is its end.
        unsafe { free(fresh) };
        serves
    }
}
