//! Sessions: composes the replies to their readers, answers blocked readers, and rings the bells.

use kvlock_core::{Ending, Kind, LockKey, Outcome, Reading, SessionId, SessionName};

use crate::observers::{StateReply, state_reply, word};
use crate::redis::{Arg, Ctx, Reply, Text};
use crate::replies::{NO_SESSION, READ_ELSEWHERE, sent_away};
use crate::server::Server;
use crate::waiting::{Note, Outcomes, Waiting, WaitsFor};

/// Largest number of outcomes in one reply. Limits the time in which a reply is composed.
const TOLD: usize = 500;

/// Prefix of the channel of a session's bell. The name of the session follows.
const CHANNEL: &[u8] = b"kvlock_session:";

impl Server {
    /// Returns the session that an argument names. Returns an error if the session does not exist or belongs
    /// to another user.
    pub(crate) fn session(&self, ctx: &Ctx<'_>, name: Arg<'_>) -> Result<SessionId, Reply> {
        let found =
            ctx.user().and_then(|user| self.table.session(name.bytes(), user.lend().bytes()));
        found.ok_or(NO_SESSION)
    }

    /// Returns whether there is an outcome to read.
    pub(crate) fn has_news(&self, reading: Reading) -> bool {
        let news = self.table.news(reading).and_then(Result::ok);
        news.is_some_and(|mut news| news.next().is_some())
    }

    /// Composes the reply to a reader: the monotonic time of this server, and the outcomes to read. Records
    /// the number of the last one in `outcomes`.
    pub(crate) fn read(&self, outcomes: &Outcomes) -> Reply {
        let news = match self.table.news(outcomes.reading) {
            None => return NO_SESSION,
            Some(Err(_)) => return READ_ELSEWHERE,
            Some(Ok(news)) => news,
        };
        let mut up_to = 0;
        let list = news.take(outcomes.most.min(TOLD)).map(|(number, outcome)| {
            up_to = number;
            entry(number, outcome)
        });
        let list = Reply::List(list.collect());
        outcomes.up_to.set(Some(up_to));
        Reply::List(vec![Reply::Number(self.now().mono.0), list])
    }

    /// Records that the reply to a reader was sent. From then on, the grants in the reply are not taken back.
    pub(crate) fn was_sent(&mut self, outcomes: &Outcomes) {
        if let Some(up_to) = outcomes.up_to.get() {
            self.table.sent(outcomes.reading, up_to, self.now());
        }
    }

    /// Answers some of the blocked readers that are due, for example because an outcome arrived or the timeout
    /// passed. The timer answers the others.
    pub(crate) fn answer_readers(&mut self) {
        if self.table.has_readers_to_tell() {
            for (reading, waiting) in self.table.next_readers(self.now()) {
                self.answer_reader(reading, waiting);
            }
        }
    }

    /// Answers a blocked reader. The reply is composed when it is sent.
    pub(crate) fn answer_reader(&mut self, reading: Reading, waiting: Waiting) {
        let parked = self.parked.remove(&waiting.client.handle());
        if let Some(WaitsFor::Outcomes(_, most)) = parked {
            let outcomes = Outcomes::new(reading, most);
            waiting.client.answer_then(Some(Note::Outcomes(outcomes)));
        }
    }

    pub(crate) fn close_session(&mut self, session: SessionId) {
        let reader = self.table.close_session(session);
        self.answer(reader, NO_SESSION, None);
    }
}

/// Rings the bell of a session: publishes on its channel that there are outcomes to read. Uses `PUBLISH` in a
/// cluster, too, and not `SPUBLISH`: this node has the session, but another node may serve the channel's
/// slot.
pub(crate) fn ring(ctx: &Ctx<'_>, session: &SessionName, last: u64) {
    let channel = Text::new(&[CHANNEL, session].concat());
    ctx.publish(channel.lend(), Text::new(last.to_string().as_bytes()).lend());
}

/// Returns one outcome as an entry of a reply.
fn entry(number: u64, outcome: &Outcome) -> Reply {
    let Outcome { key: LockKey { name, kind, .. }, owner, ending } = outcome;
    let owner = match (ending, kind) {
        (Ending::Changed(changed), _) => state_reply(&changed.news).owner,
        // The owner of an observation is not shown.
        (_, Kind::Changes) => Reply::Nil,
        (_, Kind::Lock | Kind::Semaphore | Kind::Latch) => Reply::Bytes(owner.to_vec()),
    };
    let name = Reply::Bytes(name.to_vec());
    let mut items = Vec::with_capacity(9);
    items.extend([Reply::Number(number), Reply::Word(kind.word()), name, owner]);
    match ending {
        Ending::Granted(granted) => {
            let token = (*kind == Kind::Lock).then_some(granted.token.value());
            items.extend([
                Reply::Word("granted"),
                Reply::or_nil(token, Reply::Number),
                Reply::Number(granted.holds),
                Reply::Number(granted.at.0),
            ]);
        }
        Ending::Open => items.push(Reply::Word("open")),
        Ending::Ready => items.push(Reply::Word("ready")),
        Ending::TimedOut => items.push(Reply::Word("timeout")),
        Ending::Cancelled => items.push(Reply::Word("cancelled")),
        Ending::Replaced => items.push(Reply::Word("replaced")),
        Ending::Changed(changed) => {
            let StateReply { state, token, value, version, .. } = state_reply(&changed.news);
            let why = Reply::or_nil(changed.why, |why| Reply::Word(word(why)));
            items.extend([Reply::Word("changed"), state, token, value, version, why]);
        }
        Ending::Dismissed(why) => {
            items.push(Reply::Word("error"));
            if let Reply::Error(text) = sent_away(why) {
                items.push(Reply::Bytes(text.to_bytes().to_vec()));
            }
        }
    }
    Reply::List(items)
}

/// Returns the first 8 digits of a session's name, for operators. They are not enough to use the session.
pub(crate) fn short_name(name: &SessionName) -> Reply {
    Reply::Bytes(name.iter().take(8).copied().collect())
}
