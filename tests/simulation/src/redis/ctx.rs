//! The server's interface for the module during a call.

use super::key::Keyspace;
use super::{Arg, Handle, Text, parked::Answer};
use kvlock_core::{MonoMillis, Now};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::CStr;
use std::marker::PhantomData;
use std::time::Duration;

/// The server around the module.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) now: Now,
    pub(crate) primary: bool,
    /// `true` if writes are paused.
    pub(crate) paused: bool,
    pub(crate) lacks_replicas: bool,
    /// `true` if the server's settings ensure that each grant is on the disk before its reply.
    pub(crate) keeps_grants: bool,
    pub(crate) keys: Keyspace,
    /// Number of processes of Redisson that are subscribed to the channel of each lock. They hang: none
    /// acquires a lock.
    pub(crate) listeners: i32,
    /// Replies to blocked clients in this turn; `None` for clients unblocked without a reply.
    pub(crate) answers: VecDeque<(Handle, Option<Answer>)>,
    /// Time at which the timer fires, by the wall clock.
    pub(crate) timer: Option<u64>,
    /// The last number that was returned in place of random digits.
    pub(crate) digits: u64,
}

impl Default for Host {
    fn default() -> Self {
        Self {
            now: Now { unix_us: 0, mono: MonoMillis(0) },
            primary: false,
            paused: false,
            lacks_replicas: false,
            keeps_grants: true,
            keys: Keyspace::new(),
            listeners: 0,
            answers: VecDeque::new(),
            timer: None,
            digits: 0,
        }
    }
}

thread_local! {
    static HERE: RefCell<Host> = RefCell::default();
}

/// Runs `look` on the server that calls the module.
pub(crate) fn here<R>(look: impl FnOnce(&mut Host) -> R) -> R {
    HERE.with_borrow_mut(look)
}

/// The server's functions for the module: on behalf of a client, or without one.
#[derive(Debug)]
pub(crate) struct Ctx<'a> {
    client: Option<u64>,
    lent: PhantomData<&'a ()>,
}

impl Ctx<'_> {
    pub(crate) fn of(client: Option<u64>) -> Self {
        Self { client, lent: PhantomData }
    }

    pub(crate) fn db(&self) -> i32 {
        0
    }

    pub(crate) fn select(&self, _: i32) {}

    pub(crate) fn may_read(&self, _: Arg<'_>) -> bool {
        true
    }

    pub(crate) fn client_id(&self) -> u64 {
        self.client.unwrap_or_default()
    }

    pub(crate) fn connection(&self) -> Option<u64> {
        self.client
    }

    pub(crate) fn user(&self) -> Option<Text> {
        Some(Text::new(b"default"))
    }

    pub(crate) fn random_digits<const N: usize>(&self) -> [u8; N] {
        here(|host| host.digits += 1);
        let digits = here(|host| format!("{:0N$}", host.digits));
        std::array::from_fn(|at| digits.as_bytes()[at])
    }

    pub(crate) fn must_not_block(&self) -> bool {
        false
    }

    pub(crate) fn is_primary(&self) -> bool {
        here(|host| host.primary)
    }

    pub(crate) fn is_cluster(&self) -> bool {
        false
    }

    pub(crate) fn has_replicas(&self) -> bool {
        false
    }

    pub(crate) fn serves(&self, _: i32, _: &[Arg<'_>]) -> bool {
        true
    }

    /// Always false: a simulated server has enough memory.
    #[expect(clippy::unused_self, reason = "the context of a real server asks it")]
    pub(crate) fn is_out_of_memory(&self) -> bool {
        false
    }

    pub(crate) fn may_write_unasked(&self) -> bool {
        here(|host| !host.paused)
    }

    pub(crate) fn refusal_to_write(&self, _: Arg<'_>) -> Option<Vec<u8>> {
        here(|host| host.lacks_replicas).then(|| super::NO_REPLICAS.to_bytes().to_vec())
    }

    pub(crate) fn setting(&self, name: &CStr) -> Option<Vec<u8>> {
        let value = match name.to_bytes() {
            b"appendonly" => "yes",
            b"appendfsync" => "always",
            _ => "no",
        };
        here(|host| host.keeps_grants).then(|| value.into())
    }

    pub(crate) fn relay(&self, _: &CStr, _: Arg<'_>, _: Arg<'_>) {}

    pub(crate) fn publish(&self, _: Arg<'_>, _: Arg<'_>) -> i32 {
        here(|host| host.listeners)
    }

    pub(crate) fn publish_in_shard(&self, _: Arg<'_>, _: Arg<'_>) -> i32 {
        0
    }
}

/// The module's only timer. Its time is in the [`Host`], by the wall clock.
#[derive(Debug)]
pub(crate) struct Timer;

impl Timer {
    pub(crate) fn new() -> Self {
        Self
    }

    /// Sets the timer, unless it is set to an earlier time. A timer that should have fired already is set
    /// again: the date was set ahead.
    pub(crate) fn arm(&mut self, _: &Ctx<'_>, delay: Duration) {
        here(|host| {
            let now = host.now.unix_us;
            let delay = delay.min(Duration::from_secs(3_600));
            let due = now + u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
            if host.timer.is_none_or(|armed| due < armed || armed < now) {
                host.timer = Some(due);
            }
        });
    }

    pub(crate) fn go_on(&mut self, _: &Ctx<'_>) {
        here(|host| host.timer = host.timer.map(|due| due.max(host.now.unix_us)));
    }

    pub(crate) fn hasten(&mut self, _: &Ctx<'_>) {}

    pub(crate) fn rest(&mut self, ctx: &Ctx<'_>) {
        self.disarm(ctx);
    }

    pub(crate) fn disarm(&mut self, _: &Ctx<'_>) {
        here(|host| host.timer = None);
    }

    pub(crate) fn fired(&mut self) {
        here(|host| host.timer = None);
    }
}
