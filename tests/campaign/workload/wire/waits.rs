//! Waits of a client: on a blocked connection or through a session, inspected, cancelled, broken off or
//! repeated.

use super::client::Ending;
use super::locks::{RESET_BY_WAITER, Worker, ms};
use super::sessions::Place;
use harness::history::{CallId, Outcome, Request};
use harness::{Value, cmd, lines};

/// A request that waits, and what the client may do during the wait.
pub(super) struct Wish {
    pub(super) request: Request,
    pub(super) command: Vec<Vec<u8>>,
    pub(super) timeout: u64,
    /// `true` if the client may break off the wait. False for a long lease: with an unknown outcome, the checker
    /// would overlook violations until that lease can have ended.
    pub(super) may_be_lost: bool,
    /// `true` if the request may be sent again during the wait.
    pub(super) may_be_repeated: bool,
}

/// A wait that was begun.
pub(super) struct Waiting<'a> {
    pub(super) call: CallId,
    /// `true` if it was sent through the second connection.
    beside: bool,
    pub(super) how: How<'a>,
    /// `true` if the owner's wait may have been cancelled because it was unknown whether this one had arrived.
    may_be_cancelled: bool,
}

pub(super) enum How<'a> {
    /// Sent without a session: the connection is blocked, unless the server answers at once.
    Blocked,
    /// Queued through a session.
    Queued(Place<'a>),
    /// Sent through a session, and not queued: answered at once, or the connection failed.
    Ended(Ending),
}

impl<'a> Worker<'a> {
    /// Waits. During the wait, may inspect it, cancel it, break it off or repeat it.
    pub(super) fn wait_for(&mut self, wish: &Wish) -> Ending {
        let waiting = self.begin(wish, false, None);
        let in_line = match waiting.how {
            How::Blocked => self.random.percent(60) && self.look_for_place(),
            How::Queued(_) => true,
            How::Ended(ending) => return ending,
        };
        // A queued waiter whose connection the server closes without a reply has no grant. A waiter never
        // seen in the queue may have been granted at once.
        let lost = if in_line { Outcome::Failed } else { Outcome::Unknown };
        match self.random.below(100) {
            0..=9 => self.cancel(waiting, &wish.request, lost),
            10..=16 if wish.may_be_lost && matches!(waiting.how, How::Blocked) => {
                let begun = self.client.scene.recorder.now();
                self.client.reset();
                self.client.scene.recorder.answered(waiting.call, Outcome::Unknown);
                self.client.scene.happened(RESET_BY_WAITER, begun);
                Ending::Unknown
            }
            17..=24 if wish.may_be_repeated && in_line => self.take_place_over(waiting, wish),
            _ => {
                if self.random.percent(50) && wish.timeout >= 60 {
                    self.look_for_place();
                }
                self.finish(waiting, &wish.request, lost)
            }
        }
    }

    /// Sends the wait, with or without a session, but not through the mailbox of `other`. The server may also
    /// answer it at once.
    pub(super) fn begin(
        &mut self,
        wish: &Wish,
        beside: bool,
        other: Option<&Place<'a>>,
    ) -> Waiting<'a> {
        let (key, owner, scene) = (self.key.clone(), self.owner.clone(), self.client.scene);
        let mailbox = self.random.pick(scene.mailboxes);
        let may_be_used = mailbox.is_open() && !other.is_some_and(|other| other.is_in(mailbox));
        let through =
            (may_be_used && self.random.percent(self.through_sessions)).then_some(mailbox);
        let client = if beside { &mut self.side } else { &mut self.client };
        client.connection();
        let call = scene.recorder.sent(&key, &owner, wish.request.clone());
        let place = through.and_then(|mailbox| mailbox.enter(call, &key, &owner));
        let Some((place, session)) = place else {
            client.connection().send(&wish.command);
            return Waiting { call, beside, how: How::Blocked, may_be_cancelled: false };
        };
        client.connection().send([wish.command.clone(), cmd!["SESSION", session]].concat());
        let how = match client.finish_or_queue(call, &wish.request) {
            None => How::Queued(place),
            Some(ending) => How::Ended(ending),
        };
        scene.log.add("waits through a session", u64::from(matches!(how, How::Queued(_))));
        let mut may_be_cancelled = false;
        if matches!(how, How::Ended(Ending::Unknown)) {
            // The wait may be queued in spite of the broken connection, and be granted until it is cancelled.
            loop {
                let cancelled = self.withdraw();
                may_be_cancelled |= cancelled != Value::Integer(0);
                if matches!(cancelled, Value::Integer(_)) || !scene.pair.is_up() {
                    break;
                }
                self.side.reconnect();
                std::thread::sleep(ms(1));
            }
            scene.recorder.answered(call, Outcome::Unknown);
        }
        Waiting { call, beside, how, may_be_cancelled }
    }

    /// Waits for the outcome. `lost` is the outcome to record if the blocked connection closes. If `lost` is
    /// unknown, a wait that failed through a session is recorded as unknown, too.
    pub(super) fn finish(
        &mut self,
        waiting: Waiting<'a>,
        request: &Request,
        lost: Outcome,
    ) -> Ending {
        let Waiting { call, beside, how, .. } = waiting;
        let client = if beside { &mut self.side } else { &mut self.client };
        let place = match how {
            How::Blocked => return client.finish(call, request, lost),
            How::Ended(ending) => return ending,
            How::Queued(place) => place,
        };
        // A wait without an outcome stays open, and the checker reports it.
        let (outcome, at) = match place.ends() {
            None => return Ending::Unknown,
            // The owner's other wait may have received the grant.
            Some((Outcome::Failed, _)) if lost == Outcome::Unknown => (lost, None),
            Some(arrival) => arrival,
        };
        let ending = client.ended(call, outcome);
        if let Some(at) = at {
            client.scene.recorder.ended(call, outcome, at);
        }
        ending
    }

    /// Returns whether the owner is queued.
    fn look_for_place(&mut self) -> bool {
        self.line().contains(&self.owner)
    }

    /// Reads the queue of the key and records it. Returns the owners in it.
    pub(super) fn line(&mut self) -> Vec<String> {
        let recorder = self.client.scene.recorder;
        let (asked, command) = (recorder.now(), format!("{}.INFO", self.kind.family()));
        let info = self.side.ask(cmd![command, self.key, "WAITERS", 1000]);
        lines::note(&info, &self.key, asked, recorder)
    }

    /// Cancels the wait, through the second connection.
    fn withdraw(&mut self) -> Value {
        self.side.ask(cmd![format!("{}.CANCEL", self.kind.family()), self.key, self.owner])
    }

    fn cancel(&mut self, waiting: Waiting<'a>, request: &Request, lost: Outcome) -> Ending {
        let (begun, call) = (self.client.scene.recorder.now(), waiting.call);
        let cancelled = self.withdraw();
        self.client.scene.log.cancel(begun, self.client.scene.recorder.now());
        let ending = self.finish(waiting, request, lost);
        // If the cancel succeeded or its reply is unknown, the cancel may have ended the wait before its
        // timeout.
        if ending == Ending::Refused && cancelled != Value::Integer(0) {
            self.client.scene.recorder.answered(call, Outcome::Withdrawn);
        }
        ending
    }

    /// The same owner waits again on another connection, as after a reconnect.
    fn take_place_over(&mut self, first: Waiting<'a>, wish: &Wish) -> Ending {
        let place = if let How::Queued(place) = &first.how { Some(place) } else { None };
        let second = self.begin(wish, true, place);
        self.client.scene.recorder.took_over(second.call, first.call);
        let earlier = first.call;
        // Both waits are of the same owner, so the reply to either of them may be the one grant.
        let before = self.finish(first, &wish.request, Outcome::Unknown);
        if second.may_be_cancelled && before == Ending::Refused {
            // The second wait had not arrived, and the first one was cancelled instead.
            self.client.scene.recorder.answered(earlier, Outcome::Withdrawn);
        }
        let goes_on = matches!(before, Ending::Done);
        let may_have = goes_on || before == Ending::Unknown;
        let lost = if may_have { Outcome::Unknown } else { Outcome::Failed };
        let (call, is_queued) = (second.call, matches!(second.how, How::Queued(_)));
        let after = self.finish(second, &wish.request, lost);
        if matches!(after, Ending::Unknown | Ending::Failed) && !is_queued {
            // The connection of the second wait may have broken before the command arrived, or lead to a server
            // that has become a replica. Then the place still belongs to the first wait.
            self.client.scene.recorder.may_not_have_come(call);
        }
        if goes_on { before } else { after }
    }
}
