//! An open key. Reads and writes hashes and strings. A value of another type can only be deleted or replaced.
//!
//! Each write is also propagated to replicas and the append-only file, as a command of the server. When the
//! key is closed after a write, clients that watch or cache it are signalled and key events are sent.

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

use redis_module::raw;

use super::api::{KEYTYPE_EMPTY, KEYTYPE_HASH, KEYTYPE_STRING, required};
use super::ctx::Ctx;
use super::dump::Dump;
use super::message::KeyKind;
use super::text::{Arg, Text};

/// An open key. Closed when dropped.
#[derive(Debug)]
pub(crate) struct Key<'a> {
    pub(super) raw: *mut raw::RedisModuleKey,
    ctx: &'a Ctx<'a>,
    name: Arg<'a>,
    changed: Cell<bool>,
    /// The [`EVENTS`] that have happened, one bit for each.
    events: Cell<u8>,
}

const MODE_READ: i32 = raw::REDISMODULE_READ.cast_signed();
const MODE_WRITE: i32 = (raw::REDISMODULE_READ | raw::REDISMODULE_WRITE).cast_signed();
const PLAIN: i32 = raw::REDISMODULE_HASH_NONE.cast_signed();
const EXISTS: i32 = raw::REDISMODULE_HASH_EXISTS.cast_signed();

/// A hash with more fields than this is freed in the background, here and on replicas.
const LARGE: usize = 64;

/// Longest field, in bytes, of a hash in the server's compact encoding, by default. A hash that has had a
/// longer field keeps the larger encoding, even without that field.
const SHORT: usize = 64;

/// Largest number of fields that one call of the module API writes.
const AT_ONCE: usize = 3;

const DELETED: u8 = 1;
const LOST_FIELDS: u8 = 2;
const GOT_FIELDS: u8 = 4;
const GOT_AN_END: u8 = 8;
const IS_A_STRING: u8 = 16;

/// The key events in the order in which they are sent, each with its class in `notify-keyspace-events`.
const EVENTS: [(u8, i32, &CStr); 5] = [
    (DELETED, raw::REDISMODULE_NOTIFY_GENERIC, c"del"),
    (LOST_FIELDS, raw::REDISMODULE_NOTIFY_HASH, c"hdel"),
    (GOT_FIELDS, raw::REDISMODULE_NOTIFY_HASH, c"hset"),
    (IS_A_STRING, raw::REDISMODULE_NOTIFY_STRING, c"set"),
    (GOT_AN_END, raw::REDISMODULE_NOTIFY_GENERIC, c"expire"),
];

impl Ctx<'_> {
    /// Opens a key for reading. `None` if it does not exist.
    pub(crate) fn open_to_read<'a>(&'a self, name: Arg<'a>) -> Option<Key<'a>> {
        self.open(name, MODE_READ)
    }

    /// Opens a key for reading and writing, even if it does not exist. Deletes an expired key first. `None`
    /// if the server refuses writes to the key at this moment, as Valkey 9.2 does while it saves that key
    /// without a fork. Then the state of the key is unknown, and the caller must try again in a later turn.
    pub(crate) fn open_to_write<'a>(&'a self, name: Arg<'a>) -> Option<Key<'a>> {
        #[cfg(feature = "provoke")]
        if super::refusal::is_refused(name.bytes()) {
            return None;
        }
        self.open(name, MODE_WRITE)
    }

    fn open<'a>(&'a self, name: Arg<'a>, mode: i32) -> Option<Key<'a>> {
        let open = required!(RedisModule_OpenKey);
        // SAFETY: the context and the name are alive.
        let raw = unsafe { open(self.raw, name.raw, mode) };
        let (changed, events) = (Cell::new(false), Cell::new(0));
        (!raw.is_null()).then(|| Key { raw, ctx: self, name, changed, events })
    }
}

impl Key<'_> {
    /// Returns the type of the value at the key.
    pub(crate) fn kind(&self) -> KeyKind {
        let kind = required!(RedisModule_KeyType);
        // SAFETY: the key is open.
        match unsafe { kind(self.raw) } {
            KEYTYPE_EMPTY => KeyKind::Empty,
            KEYTYPE_STRING => KeyKind::String,
            KEYTYPE_HASH => KeyKind::Hash,
            _ => KeyKind::Other,
        }
    }

    /// Returns the number of fields of a hash.
    pub(crate) fn fields(&self) -> usize {
        let length = required!(RedisModule_ValueLength);
        // SAFETY: the key is open.
        unsafe { length(self.raw) }
    }

    /// Returns the expiry time, in milliseconds since 1970. `None` if the key has no TTL.
    pub(crate) fn expires(&self) -> Option<u64> {
        let expires = required!(RedisModule_GetAbsExpire);
        // SAFETY: the key is open.
        u64::try_from(unsafe { expires(self.raw) }).ok()
    }

    /// Reads up to four fields of a hash in one call.
    pub(crate) fn get<const N: usize>(&self, names: [Arg<'_>; N]) -> [Option<Text>; N] {
        const { assert!(N <= 4, "there is room for four") };
        let get = required!(RedisModule_HashGet);
        let mut found: [*mut raw::RedisModuleString; N] = [null_mut(); N];
        let mut pairs = [(null_mut(), null_mut()); 4];
        for (pair, (name, place)) in pairs.iter_mut().zip(names.iter().zip(&mut found)) {
            *pair = (name.raw, std::ptr::from_mut(place));
        }
        let ([a, b, c, d], end) = (pairs, null_mut::<c_void>());
        // SAFETY: the key is open. Each name is a live string, followed by a pointer that is valid for
        // writing the value. The first null pointer ends the list.
        unsafe { get(self.raw, PLAIN, a.0, a.1, b.0, b.1, c.0, c.1, d.0, d.1, end) };
        // SAFETY: each value is null, or a new string that nothing else frees.
        found.map(|raw| unsafe { Text::from_raw(raw) })
    }

    pub(crate) fn has(&self, field: Arg<'_>) -> bool {
        let get = required!(RedisModule_HashGet);
        let mut found = 0_i32;
        // SAFETY: the key is open. The name is a live string, followed by a pointer that is valid for writing
        // a number. A null pointer ends the list.
        unsafe { get(self.raw, EXISTS, field.raw, &raw mut found, null_mut::<c_void>()) };
        found != 0
    }

    fn happened(&self, event: u8) {
        self.changed.set(true);
        self.events.set(self.events.get() | event);
    }

    fn replicate<'w>(&self, command: &CStr, words: impl Iterator<Item = Arg<'w>>) {
        let mut args = vec![self.name];
        for word in words {
            args.push(word);
        }
        self.ctx.replicate(command, &args);
    }

    /// Writes fields of a hash. Creates the hash if the key is empty.
    pub(crate) fn set(&self, fields: &[(Arg<'_>, Arg<'_>)]) {
        if fields.is_empty() {
            return;
        }
        self.write(fields);
        let words = fields.iter().flat_map(|(field, value)| [*field, *value]);
        self.replicate(c"HSET", words);
    }

    fn write(&self, fields: &[(Arg<'_>, Arg<'_>)]) {
        self.happened(GOT_FIELDS);
        let set = required!(RedisModule_HashSet);
        for some in fields.chunks(AT_ONCE) {
            let mut pairs = [(null_mut(), null_mut()); AT_ONCE];
            for (pair, (field, value)) in pairs.iter_mut().zip(some) {
                *pair = (field.raw, value.raw);
            }
            let ([a, b, c], end) = (pairs, null_mut::<c_void>());
            // SAFETY: the key is open for writing, and is a hash or empty. The strings are alive, and the
            // server copies them. The first null pointer ends the list.
            unsafe { set(self.raw, PLAIN, a.0, a.1, b.0, b.1, c.0, c.1, end) };
        }
    }

    /// Deletes fields of a hash. If no field is left, the key is deleted.
    pub(crate) fn unset<'f>(&self, fields: impl Iterator<Item = Arg<'f>> + Clone) {
        if fields.clone().next().is_none() {
            return;
        }
        self.happened(LOST_FIELDS);
        fields.clone().for_each(|field| self.erase(field));
        self.replicate(c"HDEL", fields);
    }

    fn erase(&self, field: Arg<'_>) {
        let set = required!(RedisModule_HashSet);
        // The API's mark for "delete this field": the number 1 instead of a pointer to a value.
        let delete = std::ptr::without_provenance_mut::<raw::RedisModuleString>(1);
        // SAFETY: the arguments are valid for the reasons given in `write`. The mark replaces the value.
        unsafe { set(self.raw, PLAIN, field.raw, delete, null_mut::<c_void>()) };
    }

    /// Sets the expiry time, in milliseconds since 1970.
    pub(crate) fn set_expires(&self, at: u64) {
        self.write_end(at);
        self.ctx.replicate_number(c"PEXPIREAT", self.name, at);
    }

    fn write_end(&self, at: u64) {
        self.happened(GOT_AN_END);
        let set = required!(RedisModule_SetAbsExpire);
        let at = i64::try_from(at).unwrap_or(i64::MAX);
        // SAFETY: the key is open for writing; the time is not negative.
        unsafe { set(self.raw, at) };
    }

    /// Replaces any value of the key with a hash of these few fields. The hash expires at `at`, in
    /// milliseconds since 1970. Replicas and the append-only file get one `RESTORE`. They get several
    /// commands if the old value is large or not a hash, or if the fields are too long for a [`Dump`].
    /// `words` are `REPLACE` and `ABSTTL`.
    ///
    /// Pass `other` only if the key is a hash with no fields except the first of `fields` and `other`. If
    /// `other` is short and the fields fit in a [`Dump`], only `other` is deleted and the hash is reused.
    pub(crate) fn replace<const N: usize>(
        &self,
        fields: [(Arg<'_>, Arg<'_>); N],
        other: Option<Arg<'_>>,
        at: u64,
        words: [Arg<'_>; 2],
    ) {
        let dump = Dump::of_hash(&fields.map(|(field, value)| (field.bytes(), value.bytes())));
        let other = other.filter(|other| dump.is_some() && other.bytes().len() <= SHORT);
        match (self.kind(), other) {
            (KeyKind::Empty, _) => {}
            (KeyKind::Hash, Some(other)) => {
                self.happened(DELETED);
                self.erase(other);
            }
            (KeyKind::Hash, None) if self.fields() <= LARGE && dump.is_some() => {
                self.write_deletion(false);
            }
            (KeyKind::Hash | KeyKind::String | KeyKind::Other, _) => self.delete(),
        }
        let Some(dump) = &dump else {
            self.set(&fields);
            return self.set_expires(at);
        };
        self.write(&fields);
        self.write_end(at);
        self.ctx.replicate_value(self.name, at, dump.bytes(), words);
    }

    pub(crate) fn delete(&self) {
        let is_large = self.kind() == KeyKind::Hash && self.fields() > LARGE;
        self.write_deletion(is_large);
        let command = if is_large { c"UNLINK" } else { c"DEL" };
        self.ctx.replicate(command, &[self.name]);
    }

    fn write_deletion(&self, is_large: bool) {
        self.happened(DELETED);
        let delete = if is_large {
            required!(RedisModule_UnlinkKey)
        } else {
            required!(RedisModule_DeleteKey)
        };
        // SAFETY: the key is open for writing.
        unsafe { delete(self.raw) };
    }

    /// Returns the bytes of a string.
    pub(crate) fn string(&self) -> Vec<u8> {
        let access = required!(RedisModule_StringDMA);
        let mut length = 0;
        // SAFETY: the key is open and is a string. The string does not change during this call.
        let start = unsafe { access(self.raw, &raw mut length, MODE_READ) };
        if start.is_null() {
            return Vec::new();
        }
        // SAFETY: the server returns the start of `length` bytes. They live until the string is changed.
        unsafe { std::slice::from_raw_parts(start.cast(), length) }.to_vec()
    }

    /// Replaces any value of the key with a string.
    pub(crate) fn set_string(&self, value: Arg<'_>) {
        self.happened(IS_A_STRING);
        let set = required!(RedisModule_StringSet);
        // SAFETY: the key is open for writing. The value is a live string, which the server retains.
        unsafe { set(self.raw, value.raw) };
        self.ctx.replicate(c"SET", &[self.name, value]);
    }

    /// Replaces any value of the key with a string that expires at `at`, in milliseconds since 1970.
    pub(crate) fn set_string_until(&self, value: Arg<'_>, at: u64) {
        self.happened(IS_A_STRING);
        let set = required!(RedisModule_StringSet);
        // SAFETY: the key is open for writing. The value is a live string, which the server retains.
        unsafe { set(self.raw, value.raw) };
        self.write_end(at);
        let (word, end) = (Text::new(b"PXAT"), Text::number(at));
        self.ctx.replicate(c"SET", &[self.name, value, word.lend(), end.lend()]);
    }
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        let close = required!(RedisModule_CloseKey);
        // SAFETY: the key is open, and is not used after this call.
        unsafe { close(self.raw) };
        if !self.changed.get() {
            return;
        }
        let signal = required!(RedisModule_SignalModifiedKey);
        // SAFETY: the context and the name are alive.
        unsafe { signal(self.ctx.raw, self.name.raw) };
        for (bit, class, event) in EVENTS {
            if self.events.get() & bit != 0 {
                self.ctx.notify(class, event, self.name);
            }
        }
    }
}
