//! Strings of the server: borrowed ones, such as arguments, and ones that the module owns.

use std::ffi::c_longlong;
use std::marker::PhantomData;

use redis_module::raw::{RedisModuleCtx, RedisModuleString};

use super::api::required;

/// A borrowed string of the server: one that the server lends for a callback, or a [`Text`].
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Arg<'a> {
    pub(super) raw: *mut RedisModuleString,
    lent: PhantomData<&'a [u8]>,
}

impl<'a> Arg<'a> {
    /// # Safety
    ///
    /// `raw` is a string that stays alive and unchanged for `'a`.
    pub(super) unsafe fn new(raw: *mut RedisModuleString) -> Self {
        Self { raw, lent: PhantomData }
    }

    /// Returns the bytes of the string, which need not be UTF-8.
    pub(crate) fn bytes(self) -> &'a [u8] {
        let mut length = 0;
        let pointer_of = required!(RedisModule_StringPtrLen);
        // SAFETY: the string is alive for 'a (see `new`).
        let start = unsafe { pointer_of(self.raw, &raw mut length) };
        // SAFETY: the server returns the start of `length` bytes that live as long as the string.
        unsafe { std::slice::from_raw_parts(start.cast(), length) }
    }
}

impl AsRef<[u8]> for Arg<'_> {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

/// A string of the server that the module owns.
#[derive(Debug)]
pub(crate) struct Text(*mut RedisModuleString);

impl Text {
    /// Returns a string with these bytes.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let create = required!(RedisModule_CreateString);
        // SAFETY: a null context is valid: the module then owns the new string. The server copies the bytes.
        Self(unsafe { create(no_context(), bytes.as_ptr().cast(), bytes.len()) })
    }

    /// Returns the decimal form of a number. Numbers outside the range of `i64` do not occur.
    pub(crate) fn number(number: u64) -> Self {
        let create = required!(RedisModule_CreateStringFromLongLong);
        let number = c_longlong::try_from(number).unwrap_or(c_longlong::MAX);
        // SAFETY: a null context is valid: the module then owns the new string.
        Self(unsafe { create(no_context(), number) })
    }

    /// # Safety
    ///
    /// `raw` is null, or a string that nothing else frees.
    pub(super) unsafe fn from_raw(raw: *mut RedisModuleString) -> Option<Self> {
        (!raw.is_null()).then(|| Self(raw))
    }

    /// Returns the raw string. The caller must free it.
    pub(super) fn into_raw(self) -> *mut RedisModuleString {
        std::mem::ManuallyDrop::new(self).0
    }

    pub(crate) fn lend(&self) -> Arg<'_> {
        // SAFETY: `self` owns the string, and is borrowed for as long as the string is lent.
        unsafe { Arg::new(self.0) }
    }
}

fn no_context() -> *mut RedisModuleCtx {
    std::ptr::null_mut()
}

impl Drop for Text {
    fn drop(&mut self) {
        let free = required!(RedisModule_FreeString);
        // SAFETY: `self` owns the string, and the string is not used after this call.
        unsafe { free(no_context(), self.0) }
    }
}
