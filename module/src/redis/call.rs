//! Commands that are called to read the state of the server. None of them changes anything.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

use kvlock_core::PROBED_FIELD;
use redis_module::raw;

use super::api::{optional, required};
use super::ctx::Ctx;
use super::text::Arg;

/// The server has no command `ACL`: its configuration has renamed or removed it.
pub(super) struct NoAcl;

/// Reply to a call of a command. Freed when dropped.
struct CallReply(*mut raw::RedisModuleCallReply);

impl Drop for CallReply {
    fn drop(&mut self) {
        let free = required!(RedisModule_FreeCallReply);
        // SAFETY: this value owns the reply, and the reply is not used after this call.
        unsafe { free(self.0) };
    }
}

impl CallReply {
    /// Returns the text of an error. `None` for any other reply.
    fn error(&self) -> Option<Vec<u8>> {
        let kind = required!(RedisModule_CallReplyType);
        // SAFETY: the reply lives as long as `self`, which owns it.
        if unsafe { kind(self.0) } != REPLY_ERROR {
            return None;
        }
        let text = text_of(self.0);
        let text = text.strip_prefix(b"-").unwrap_or(&text);
        Some(text.trim_ascii().to_vec())
    }

    /// Returns the text at an index of a list. `None` if the reply is not a list, or has no text there.
    fn text_at(&self, place: usize) -> Option<Vec<u8>> {
        let kind = required!(RedisModule_CallReplyType);
        // SAFETY: the reply lives as long as `self`, which owns it.
        if unsafe { kind(self.0) } != REPLY_ARRAY {
            return None;
        }
        let element = required!(RedisModule_CallReplyArrayElement);
        // SAFETY: the reply is alive and is a list. For an index outside the list, the server returns null.
        let found = unsafe { element(self.0, place) };
        if found.is_null() {
            return None;
        }
        // SAFETY: `found` is an element of the list, and lives as long as the list.
        if unsafe { kind(found) } != REPLY_STRING {
            return None;
        }
        Some(text_of(found))
    }
}

/// Returns the text of a live reply that has one.
fn text_of(reply: *mut raw::RedisModuleCallReply) -> Vec<u8> {
    let text = required!(RedisModule_CallReplyStringPtr);
    let mut length = 0;
    // SAFETY: the caller passes a live reply.
    let start = unsafe { text(reply, &raw mut length) };
    if start.is_null() {
        return Vec::new();
    }
    // SAFETY: the server returns the start of `length` bytes that live as long as the reply.
    unsafe { std::slice::from_raw_parts(start.cast::<u8>(), length) }.to_vec()
}

/// First version of Redis that stores the ACL rules of a user as given, rather than only their result.
const KEEPS_RULES: i32 = 0x0007_0200;

/// Prefixes of the names of this module's commands.
const FAMILIES: [&[u8]; 4] = [b"lock.", b"sem.", b"latch.", b"session."];

const REPLY_STRING: i32 = 0;
const REPLY_ERROR: i32 = 1;
const REPLY_ARRAY: i32 = 3;
const _: () = assert!(
    REPLY_STRING as isize == raw::REDISMODULE_REPLY_STRING
        && REPLY_ERROR as isize == raw::REDISMODULE_REPLY_ERROR
        && REPLY_ARRAY as isize == raw::REDISMODULE_REPLY_ARRAY
);

impl Ctx<'_> {
    /// Returns the error with which the server would refuse a client's write to the hash at this key now.
    /// `None` if it would not refuse. A server refuses, for example, if it does not serve the slot, has too
    /// few replicas, or could not save to disk.
    ///
    /// Finds out with an `HDEL` of a field that no hash has, so that nothing is changed.
    pub(crate) fn refusal_to_write(&self, key: Arg<'_>) -> Option<Vec<u8>> {
        let call = required!(RedisModule_Call);
        // SAFETY: the context is alive. "s" takes the key, which is a live string, and "c" takes a C string.
        // "S" requests the checks that a script's commands get, and "E" requests errors as replies. "!" would
        // replicate the deletion if the field existed.
        let raw = unsafe {
            call(self.raw, c"HDEL".as_ptr(), c"!SEsc".as_ptr(), key.raw, PROBED_FIELD.as_ptr())
        };
        if raw.is_null() {
            return Some(b"TRYAGAIN the server refused".to_vec());
        }
        CallReply(raw).error()
    }

    /// Returns whether the caller, or the client of the running script, has a user. Nothing is executed: the
    /// server checks the user first, and then finds that the command does not exist.
    pub(super) fn acts_for_a_user(&self) -> bool {
        // "C" runs the command as the caller's user.
        self.is_unknown(c"kvlock.nothing", c"C")
    }

    /// Returns whether the server has a command with this name. `false` if the command was renamed.
    pub(super) fn knows_command(&self, name: &CStr) -> bool {
        // Each command that is looked up needs arguments. Without arguments, the server does not execute it.
        !self.is_unknown(name, c"")
    }

    /// Returns whether the server has no command with this name. `how` contains the flags of the call.
    fn is_unknown(&self, name: &CStr, how: &CStr) -> bool {
        let call = required!(RedisModule_Call);
        // SAFETY: the context is alive, and `name` and `how` are C strings. No flag in `how` takes an
        // argument.
        let raw = unsafe { call(self.raw, name.as_ptr(), how.as_ptr()) };
        let error = std::io::Error::last_os_error().kind();
        if raw.is_null() {
            return error == std::io::ErrorKind::NotFound;
        }
        drop(CallReply(raw));
        false
    }

    /// Returns the line of `ACL LIST` for a user whose rules name one of this module's commands, or an error if
    /// the server refuses `ACL LIST`. `None` if there is no such user, or if the server does not store rules
    /// as given, for example Redis 7.0.
    ///
    /// A server that stores such a rule crashes when the command is unloaded (valkey-io/valkey#2797).
    pub(super) fn rules_that_name_commands(&self) -> Result<Option<Vec<u8>>, NoAcl> {
        let Some(version) = optional!(RedisModule_GetServerVersion) else { return Ok(None) };
        // SAFETY: the function takes no arguments and may be called at any time.
        if unsafe { version() } < KEEPS_RULES {
            return Ok(None);
        }
        let call = required!(RedisModule_Call);
        // SAFETY: the context is alive; "c" takes a C string.
        let raw = unsafe { call(self.raw, c"ACL".as_ptr(), c"c".as_ptr(), c"LIST".as_ptr()) };
        if raw.is_null() {
            return Err(NoAcl);
        }
        let users = CallReply(raw);
        let names_one = |rules: &Vec<u8>| {
            let rules = rules.split(|byte| *byte == b' ');
            let mut named = rules
                .filter_map(|rule| rule.strip_prefix(b"+").or_else(|| rule.strip_prefix(b"-")));
            named.any(|name| FAMILIES.iter().any(|family| name.starts_with(family)))
        };
        Ok((0..).map_while(|place| users.text_at(place)).find(names_one))
    }

    /// Returns a setting of the server. `None` if it has no such setting, or refuses `CONFIG GET`.
    pub(crate) fn setting(&self, name: &CStr) -> Option<Vec<u8>> {
        let call = required!(RedisModule_Call);
        // SAFETY: the context is alive; each "c" takes one C string.
        let raw = unsafe {
            call(self.raw, c"CONFIG".as_ptr(), c"cc".as_ptr(), c"GET".as_ptr(), name.as_ptr())
        };
        if raw.is_null() { None } else { CallReply(raw).text_at(1) }
    }

    /// Returns whether this server serves these keys of one slot for a client that has not sent `ASKING`. `false`
    /// while it imports the slot, and while the slot moves away, if one of the keys is not here.
    pub(crate) fn serves(&self, db: i32, keys: &[Arg<'_>]) -> bool {
        let context = required!(RedisModule_GetThreadSafeContext);
        // SAFETY: null is a valid argument: without a blocked client, the server creates an independent
        // context. The context is used on the main thread only.
        let fresh = unsafe { context(null_mut()) };
        let select = required!(RedisModule_SelectDb);
        // SAFETY: `fresh` is a live context. `EXISTS` finds keys only in their own database.
        unsafe { select(fresh, db) };
        let call = required!(RedisModule_Call);
        // SAFETY: `fresh` is a live context. "v" takes an array of live strings and its length; `Arg` has the
        // layout of the string pointer that it wraps.
        let raw = unsafe {
            call(
                fresh,
                c"EXISTS".as_ptr(),
                c"v".as_ptr(),
                keys.as_ptr().cast::<c_void>(),
                keys.len(),
            )
        };
        let serves = !raw.is_null();
        if serves {
            drop(CallReply(raw));
        }
        let free = required!(RedisModule_FreeThreadSafeContext);
        // SAFETY: this function made the context, and does not use it after this call.
        unsafe { free(fresh) };
        serves
    }
}
