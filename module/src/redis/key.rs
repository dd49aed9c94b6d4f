//! An open key: a hash, or something that is none of our business.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::null_mut;

use redis_module::raw;

use super::api::{KEYTYPE_EMPTY, KEYTYPE_HASH, KEYTYPE_STRING, required};
use super::ctx::Ctx;
use super::text::{Arg, Text};

/// What kind of value a key has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyKind {
    /// No value.
    Empty,
    /// A string.
    String,
    /// A hash.
    Hash,
    /// Anything else.
    Other,
}

/// A key that is open; closed when dropped. Those who watch or cache it hear of a change then, and
/// of nothing if there was none.
#[derive(Debug)]
pub(crate) struct Key<'a> {
    pub(super) raw: *mut raw::RedisModuleKey,
    ctx: &'a Ctx<'a>,
    name: Arg<'a>,
    changed: Cell<bool>,
}

const MODE_READ: i32 = raw::REDISMODULE_READ.cast_signed();
const MODE_WRITE: i32 = (raw::REDISMODULE_READ | raw::REDISMODULE_WRITE).cast_signed();
const PLAIN: i32 = raw::REDISMODULE_HASH_NONE.cast_signed();

impl Ctx<'_> {
    /// Opens a key to read it; `None` if it does not exist.
    pub(crate) fn open_to_read<'a>(&'a self, name: Arg<'a>) -> Option<Key<'a>> {
        self.open(name, MODE_READ)
    }

    /// Opens a key to read it and perhaps to write it. An expired key is deleted first.
    pub(crate) fn open_to_write<'a>(&'a self, name: Arg<'a>) -> Option<Key<'a>> {
        self.open(name, MODE_WRITE)
    }

    fn open<'a>(&'a self, name: Arg<'a>, mode: i32) -> Option<Key<'a>> {
        let open = required!(RedisModule_OpenKey);
        // SAFETY: the context and the name are alive.
        let raw = unsafe { open(self.raw, name.raw, mode) };
        let changed = Cell::new(false);
        (!raw.is_null()).then(|| Key { raw, ctx: self, name, changed })
    }
}

impl Key<'_> {
    /// What it holds.
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

    /// How many fields a hash has.
    pub(crate) fn fields(&self) -> usize {
        let length = required!(RedisModule_ValueLength);
        // SAFETY: the key is open.
        unsafe { length(self.raw) }
    }

    /// When it expires, in milliseconds since 1970.
    pub(crate) fn expires(&self) -> Option<u64> {
        let expires = required!(RedisModule_GetAbsExpire);
        // SAFETY: the key is open.
        u64::try_from(unsafe { expires(self.raw) }).ok()
    }

    /// Reads two fields of a hash at once.
    pub(crate) fn get_two(&self, first: Arg<'_>, second: Arg<'_>) -> [Option<Text>; 2] {
        let get = required!(RedisModule_HashGet);
        let mut found: [*mut raw::RedisModuleString; 2] = [null_mut(); 2];
        let [one, two] = &mut found;
        let (one, two) = (&raw mut *one, &raw mut *two);
        let end = null_mut::<c_void>();
        // SAFETY: the key is open, both names are alive, each is followed by a place for its
        // value, and a null pointer ends the list.
        unsafe { get(self.raw, PLAIN, first.raw, one, second.raw, two, end) };
        // SAFETY: the values are new strings, or null, that the caller frees.
        found.map(|raw| unsafe { Text::from_raw(raw) })
    }

    /// Reads four fields of a hash at once.
    pub(crate) fn get_four(&self, names: [Arg<'_>; 4]) -> [Option<Text>; 4] {
        let get = required!(RedisModule_HashGet);
        let mut found: [*mut raw::RedisModuleString; 4] = [null_mut(); 4];
        let [one, two, three, four] = found.each_mut().map(std::ptr::from_mut);
        let ([a, b, c, d], end) = (names, null_mut::<c_void>());
        // SAFETY: as in `get_two`, with two names and two places more.
        unsafe {
            get(self.raw, PLAIN, a.raw, one, b.raw, two, c.raw, three, d.raw, four, end);
        }
        // SAFETY: the values are new strings, or null, that the caller frees.
        found.map(|raw| unsafe { Text::from_raw(raw) })
    }

    /// Writes one field of a hash, which is made if the key is empty.
    pub(crate) fn set(&self, field: Arg<'_>, value: Arg<'_>) {
        self.changed.set(true);
        let set = required!(RedisModule_HashSet);
        // SAFETY: the key is open for writing and a hash or empty; both strings are alive and
        // copied; a null pointer ends the list.
        unsafe { set(self.raw, PLAIN, field.raw, value.raw, null_mut::<c_void>()) };
    }

    /// Writes two fields of a hash, which is made if the key is empty.
    pub(crate) fn set_two(&self, first: (Arg<'_>, Arg<'_>), second: (Arg<'_>, Arg<'_>)) {
        self.changed.set(true);
        let set = required!(RedisModule_HashSet);
        let (a, b, end) = (first, second, null_mut::<c_void>());
        // SAFETY: as in `set`, twice.
        unsafe { set(self.raw, PLAIN, a.0.raw, a.1.raw, b.0.raw, b.1.raw, end) };
    }

    /// Deletes one field of a hash. A hash without fields is gone.
    pub(crate) fn unset(&self, field: Arg<'_>) {
        self.changed.set(true);
        let set = required!(RedisModule_HashSet);
        // The API's mark for "delete this field": the number 1 in the place of a value.
        let delete = std::ptr::without_provenance_mut::<raw::RedisModuleString>(1);
        // SAFETY: as in `set`, with the mark instead of a value.
        unsafe { set(self.raw, PLAIN, field.raw, delete, null_mut::<c_void>()) };
    }

    /// Sets when the key expires, in milliseconds since 1970.
    pub(crate) fn set_expires(&self, at: u64) {
        self.changed.set(true);
        let set = required!(RedisModule_SetAbsExpire);
        let at = i64::try_from(at).unwrap_or(i64::MAX);
        // SAFETY: the key is open for writing; the time is not negative.
        unsafe { set(self.raw, at) };
    }

    /// Counts it as changed.
    pub(crate) fn touch(&self) {
        self.changed.set(true);
    }

    /// Deletes the key.
    pub(crate) fn delete(&self) {
        self.changed.set(true);
        let delete = required!(RedisModule_DeleteKey);
        // SAFETY: the key is open for writing.
        unsafe { delete(self.raw) };
    }

    /// Deletes the key, and lets the server free a large value when it has time.
    pub(crate) fn unlink(&self) {
        self.changed.set(true);
        let unlink = required!(RedisModule_UnlinkKey);
        // SAFETY: the key is open for writing.
        unsafe { unlink(self.raw) };
    }

    /// The bytes of a string.
    pub(crate) fn string(&self) -> Vec<u8> {
        let access = required!(RedisModule_StringDMA);
        let mut length = 0;
        // SAFETY: the key is open and a string, which nobody changes while we look.
        let start = unsafe { access(self.raw, &raw mut length, MODE_READ) };
        if start.is_null() {
            return Vec::new();
        }
        // SAFETY: the server returns the start of `length` bytes that live until it is changed.
        unsafe { std::slice::from_raw_parts(start.cast(), length) }.to_vec()
    }

    /// Makes the key a string, whatever it was.
    pub(crate) fn set_string(&self, value: Arg<'_>) {
        self.changed.set(true);
        let set = required!(RedisModule_StringSet);
        // SAFETY: the key is open for writing; the value is alive and retained.
        unsafe { set(self.raw, value.raw) };
    }
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        let close = required!(RedisModule_CloseKey);
        // SAFETY: the key is open and this is its end.
        unsafe { close(self.raw) };
        if self.changed.get() {
            let signal = required!(RedisModule_SignalModifiedKey);
            // SAFETY: the context and the name are alive.
            unsafe { signal(self.ctx.raw, self.name.raw) };
        }
    }
}
