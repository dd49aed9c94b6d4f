//! Blocked clients.
//!
//! Clients are blocked without a timeout of the server: if such a timeout passed in the same turn of the
//! event loop in which the client is answered, Redis 7.0 would lose the answer and 7.2 would crash. The lock
//! table measures the timeouts instead.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use redis_module::raw;

use super::api::{OK, required};
use super::ctx::Ctx;
use super::entry::Entry;
use super::guard::guard;
use super::message::Reply;
use crate::module::Module;
use crate::waiting::Note;

/// Identifies a client while it is blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Handle(usize);

/// A blocked client. It is unblocked exactly once: by [`Self::answer`] or [`Self::answer_then`], or with an
/// error when this value is dropped.
#[derive(Debug)]
pub(crate) struct Parked {
    raw: *mut raw::RedisModuleBlockedClient,
}

/// An answer that is not written to its client yet.
struct Answer {
    /// `None` if [`Module::reply_now`] composes the reply when it is written.
    reply: Option<Reply>,
    /// Passed back to [`Module`] when the answer is written or lost.
    note: Option<Note>,
    written: Cell<bool>,
}

thread_local! {
    static PARKED: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether a client was blocked since the last call of this function.
pub(super) fn take_parked() -> bool {
    PARKED.replace(false)
}

impl Ctx<'_> {
    /// Blocks the client that sent the command. `None` if the server refuses. Must only be called in a
    /// command, and only if blocking is allowed.
    pub(crate) fn park(&self) -> Option<Parked> {
        let block = required!(RedisModule_BlockClient);
        // SAFETY: the server passed this context to a command. `write_answer` and `answer_done` have the
        // right signatures and never unwind.
        let raw = unsafe { block(self.raw, Some(write_answer), None, Some(answer_done), 0) };
        if raw.is_null() {
            return None;
        }
        PARKED.set(true);
        let on_disconnect = required!(RedisModule_SetDisconnectCallback);
        // SAFETY: `raw` is the handle that the server just returned. `client_gone` never unwinds.
        unsafe { on_disconnect(raw, Some(client_gone)) };
        Some(Parked { raw })
    }
}

impl Parked {
    pub(crate) fn handle(&self) -> Handle {
        Handle(self.raw.addr())
    }

    /// Answers the client. At the end of this turn of the event loop the reply is written, or is lost if the
    /// client has disconnected. Then [`Module`] gets `note` back.
    pub(crate) fn answer(self, reply: Reply, note: Option<Note>) {
        self.unblock_with(Some(reply), note);
    }

    /// Answers the client with the reply that [`Module::reply_now`] composes from `note` when the reply is
    /// written.
    pub(crate) fn answer_then(self, note: Option<Note>) {
        self.unblock_with(None, note);
    }

    fn unblock_with(self, reply: Option<Reply>, note: Option<Note>) {
        let answer = Box::new(Answer { reply, note, written: Cell::new(false) });
        let this = std::mem::ManuallyDrop::new(self);
        unblock(this.raw, Box::into_raw(answer).cast());
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        unblock(self.raw, null_mut());
    }
}

/// Unblocks a client. Must be called exactly once per handle, which is invalid afterwards.
fn unblock(raw: *mut raw::RedisModuleBlockedClient, answer: *mut c_void) {
    let unblock = required!(RedisModule_UnblockClient);
    // SAFETY: the handle came from `park`, and this is the only call for it. `unblock_with` and `drop`
    // consume the value that owns the handle.
    unsafe { unblock(raw, answer) };
}

unsafe extern "C" fn write_answer(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: c_int,
) -> c_int {
    let written = guard(Entry::WriteAnswer, false, || {
        let private = required!(RedisModule_GetBlockedClientPrivateData);
        // SAFETY: the server passed this context for the answer to a blocked client.
        let answer = unsafe { private(ctx) }.cast::<Answer>();
        // SAFETY: the pointer is null, or points to the box that `unblock_with` made. `answer_done` frees the
        // box later.
        let Some(answer) = (unsafe { answer.as_ref() }) else { return false };
        let said;
        let reply = if let Some(reply) = &answer.reply {
            reply
        } else {
            said = Module::reply_now(&answer.note);
            &said
        };
        // SAFETY: `ctx` is the live context of this answer, and no part of the answer was sent yet.
        unsafe { reply.send(ctx) };
        answer.written.set(true);
        true
    });
    if !written {
        let trouble = Reply::error(c"ERR internal error, see the server's log");
        // SAFETY: `ctx` is alive. Only the steps before the sending can fail, so no part of the answer was
        // sent.
        unsafe { trouble.send(ctx) };
    }
    OK
}

unsafe extern "C" fn answer_done(ctx: *mut raw::RedisModuleCtx, answer: *mut c_void) {
    guard(Entry::AnswerDone, (), || {
        if answer.is_null() {
            return;
        }
        // SAFETY: `answer` is the box that `unblock_with` made. The server passes it here once, after its
        // last use.
        let answer = unsafe { Box::from_raw(answer.cast::<Answer>()) };
        // SAFETY: the context lives until this callback returns.
        let ctx = unsafe { Ctx::new(ctx) };
        if answer.written.get() {
            Module::answer_written(&ctx, answer.note);
        } else {
            Module::answer_lost(&ctx, answer.note);
        }
    });
}

unsafe extern "C" fn client_gone(
    ctx: *mut raw::RedisModuleCtx,
    client: *mut raw::RedisModuleBlockedClient,
) {
    // SAFETY: the context lives until this callback returns.
    let ctx = unsafe { Ctx::new(ctx) };
    guard(Entry::ClientGone, (), || Module::client_gone(&ctx, Handle(client.addr())));
}
