//! Observers: reads the state of a lock, and describes it in replies.

use kvlock_core::{
    Cause, HolderState, KeyRef, LossReason, Observed, Token, UnixMillis, VersionedState,
};

use crate::keyspace::{self, Depth};
use crate::redis::{Arg, Ctx, Key, Reply};
use crate::server::Server;

/// The state of a lock, as the parts of a reply.
pub(crate) struct StateReply {
    pub(crate) state: Reply,
    pub(crate) owner: Reply,
    pub(crate) token: Reply,
    pub(crate) value: Reply,
    pub(crate) version: Reply,
}

impl Server {
    /// Returns the state of a lock, and the time at which the state may end without a key event. `None` if
    /// the key is not a lock.
    pub(crate) fn state_of(
        &self,
        key: Option<&Key<'_>>,
        name: Arg<'_>,
    ) -> Option<(HolderState, Option<UnixMillis>)> {
        let seen = keyspace::read(key, &self.strings, name.bytes(), None, Depth::Full);
        let holder_state = match &seen {
            Observed::NotALock { .. } => return None,
            Observed::Free { .. } => HolderState::Vacant,
            Observed::Shared(sharing) => {
                HolderState::Shared { token: self.table.believe(sharing.token) }
            }
            Observed::Held(holding) => {
                let (owner, value) = key.and_then(keyspace::holder)?;
                let token = self.table.believe(holding.token);
                HolderState::Held { owner: owner.into(), token, value: value.map(Into::into) }
            }
        };
        Some((holder_state, seen.until()))
    }

    /// Notifies the observers of a lock if its state differs from the last one that was reported. A key that
    /// is not a lock counts as vacant.
    pub(crate) fn notice(
        &mut self,
        ctx: &Ctx<'_>,
        (key, name): (KeyRef<'_>, Arg<'_>),
        cause: Option<Cause>,
    ) {
        let state = self.state_of(ctx.open_to_read(name).as_ref(), name);
        self.table.notice(key, self.now(), cause, state.unwrap_or((HolderState::Vacant, None)));
    }
}

/// Describes the state of a lock for its observers.
pub(crate) fn state_reply(news: &VersionedState) -> StateReply {
    let (state, owner, token, value) = match &news.holder_state {
        HolderState::Vacant => ("vacant", None, None, None),
        HolderState::Shared { token } => ("shared", None, *token, None),
        HolderState::Held { owner, token, value } => ("held", Some(owner), *token, value.as_ref()),
    };
    let bytes = |bytes: &std::rc::Rc<[u8]>| Reply::Bytes(bytes.to_vec());
    StateReply {
        state: Reply::Word(state),
        owner: Reply::or_nil(owner, bytes),
        token: Reply::or_nil(token.map(Token::value), Reply::Number),
        value: Reply::or_nil(value, bytes),
        version: Reply::Number(news.version),
    }
}

/// Returns the word that a reply uses for the way in which the last holder's grant ended.
pub(crate) fn word(gone: LossReason) -> &'static str {
    match gone {
        LossReason::Released => "released",
        LossReason::Expired => "expired",
        LossReason::Forced => "forced",
        LossReason::Deleted => "deleted",
        LossReason::Flushed => "flushed",
        LossReason::TakenBack => "taken-back",
        LossReason::SessionEnded => "gone",
    }
}
