//! Blocked clients, which wait for their replies.

use super::Reply;
use super::ctx::{Ctx, here};
use crate::waiting::Note;
use std::mem::ManuallyDrop;

/// Identifies a blocked client by the number of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Handle(pub(crate) u64);

#[derive(Debug)]
pub(crate) struct Parked(Handle);

/// An answer that is written when the turn ends.
#[derive(Debug)]
pub(crate) struct Answer {
    /// If `None`, the module composes the reply when the answer is written.
    pub(crate) reply: Option<Reply>,
    pub(crate) note: Option<Note>,
}

impl Ctx<'_> {
    pub(crate) fn park(&self) -> Option<Parked> {
        self.connection().map(|client| Parked(Handle(client)))
    }
}

impl Parked {
    pub(crate) fn handle(&self) -> Handle {
        self.0
    }

    pub(crate) fn answer(self, reply: Reply, note: Option<Note>) {
        self.unpark(Answer { reply: Some(reply), note });
    }

    pub(crate) fn answer_then(self, note: Option<Note>) {
        self.unpark(Answer { reply: None, note });
    }

    fn unpark(self, answer: Answer) {
        let client = ManuallyDrop::new(self).0;
        here(|host| host.answers.push_back((client, Some(answer))));
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        here(|host| host.answers.push_back((self.0, None)));
    }
}
