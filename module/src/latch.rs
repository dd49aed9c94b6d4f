//! A count-down latch in the keyspace: reads its key, and writes a change. The timer answers its waiters.

use kvlock_core::{KeyRef, Latch, LatchAt, LatchChange, UnixMillis};

use crate::floor::FLOOR_PREFIX;
use crate::keyspace::Strings;
use crate::redis::{Arg, Ctx, Key, KeyKind, Text};
use crate::server::Server;

/// Reads a latch, and whether `participant` has already counted it down.
pub(crate) fn read(
    key: Option<&Key<'_>>,
    strings: &Strings,
    name: Arg<'_>,
    participant: Option<Arg<'_>>,
) -> Latch {
    if name.bytes().starts_with(FLOOR_PREFIX) {
        return Latch::NotALatch { until: None };
    }
    let Some(key) = key.filter(|key| key.kind() != KeyKind::Empty) else { return Latch::Open };
    let until = key.expires().map(UnixMillis);
    if key.kind() != KeyKind::Hash {
        return Latch::NotALatch { until };
    }
    let mode_field = strings.mode_field.lend();
    let [mode, counted] = key.get([mode_field, participant.unwrap_or(mode_field)]);
    match mode.and_then(|mode| Latch::read_left(mode.lend().bytes())) {
        None => Latch::NotALatch { until },
        Some(left) => {
            let counted = participant.is_some() && counted.is_some();
            Latch::Counting { left, counted, until }
        }
    }
}

impl Server {
    /// Carries out one operation of a command that may change a latch: reads the latch, lets `operate`
    /// decide, and writes the change. If the latch has opened, the timer answers its waiters.
    pub(crate) fn on_latch<R>(
        &mut self,
        ctx: &Ctx<'_>,
        name: Arg<'_>,
        participant: Option<Arg<'_>>,
        operate: impl FnOnce(&mut Self, &LatchAt<'_>) -> (R, LatchChange),
    ) -> R {
        let open = ctx.open_to_write(name);
        let seen = read(open.as_ref(), &self.strings, name, participant);
        let at = LatchAt { key: KeyRef::latch(ctx.db(), name.bytes()), seen, now: self.now() };
        let (outcome, change) = operate(self, &at);
        if let Some(key) = open {
            self.write_latch(&key, participant, change);
        }
        outcome
    }

    fn write_latch(&self, key: &Key<'_>, participant: Option<Arg<'_>>, change: LatchChange) {
        let left = |left| Text::new(Latch::text(left).as_bytes());
        let mode_field = self.strings.mode_field.lend();
        match change {
            LatchChange::None => {}
            LatchChange::Begin { count, until } => {
                if key.kind() != KeyKind::Empty {
                    key.delete();
                }
                key.set(&[(mode_field, left(count).lend())]);
                if let Some(until) = until {
                    key.set_expires(until.0);
                }
            }
            LatchChange::Count { left: now } => {
                let counted =
                    participant.map(|participant| (participant, self.strings.counted.lend()));
                let now = left(now);
                key.set(&Vec::from_iter([(mode_field, now.lend())].into_iter().chain(counted)));
            }
            LatchChange::Open => key.delete(),
        }
    }

    /// Called when a key was changed. If it was deleted, releases the waiters of the latch: a later look would
    /// read what is at the key by then. In a cluster, only the later look can tell whether the slot was moved.
    pub(crate) fn latch_changed(&mut self, ctx: &Ctx<'_>, key: KeyRef<'_>) {
        if self.in_cluster || !self.table.is_in_line(key) {
            return;
        }
        if ctx.open_to_read(Text::new(key.name).lend()).is_none() {
            self.table.look_at_latch(&LatchAt { key, seen: Latch::Open, now: self.now() });
        }
    }

    /// Reads a latch that has waiters, and passes its state to the table. The table releases the waiters if
    /// the latch is open.
    pub(crate) fn look_at_latch(&mut self, ctx: &Ctx<'_>, key: KeyRef<'_>) {
        let name = Text::new(key.name);
        let open = ctx.open_to_read(name.lend());
        let seen = read(open.as_ref(), &self.strings, name.lend(), None);
        self.table.look_at_latch(&LatchAt { key, seen, now: self.now() });
    }
}
