//! A count-down latch in the keyspace: reads what a key says, writes a change, and tells of it.

use kvlock_core::{KeyRef, Latch, LatchAt, LatchChange, RUN_MAX, UnixMillis};

use crate::clock;
use crate::floor::FLOOR_PREFIX;
use crate::keyspace::Words;
use crate::redis::{Arg, Ctx, Key, KeyEventKind, KeyKind, Reply, Text};
use crate::server::Server;

/// Reads a latch, and whether a participant has counted.
pub(crate) fn read(
    key: Option<&Key<'_>>,
    words: &Words,
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
    let mode_field = words.mode_field.lend();
    let [mode, counted] = key.get_two(mode_field, participant.unwrap_or(mode_field));
    match mode.and_then(|mode| Latch::read_left(mode.lend().bytes())) {
        None => Latch::NotALatch { until },
        Some(left) => {
            let counted = participant.is_some() && counted.is_some();
            Latch::Counting { left, counted, until }
        }
    }
}

impl Server {
    /// Does one operation of a command on a latch that may change it.
    pub(crate) fn on_latch<R>(
        &mut self,
        ctx: &Ctx<'_>,
        name: Arg<'_>,
        participant: Option<Arg<'_>>,
        operate: impl FnOnce(&mut Self, &LatchAt<'_>) -> (R, LatchChange),
    ) -> R {
        let now = clock::now();
        let open = ctx.open_to_write(name);
        let seen = read(open.as_ref(), &self.words, name, participant);
        let at = LatchAt { key: KeyRef::latch(ctx.db(), name.bytes()), seen, now };
        let (outcome, change) = operate(self, &at);
        if let Some(key) = open {
            self.write_latch(ctx, name, participant, key, seen, change);
        }
        self.answer_released(ctx);
        self.plan(ctx, now);
        outcome
    }

    fn write_latch(
        &self,
        ctx: &Ctx<'_>,
        name: Arg<'_>,
        participant: Option<Arg<'_>>,
        key: Key<'_>,
        seen: Latch,
        change: LatchChange,
    ) {
        let mode_field = self.words.mode_field.lend();
        match change {
            LatchChange::None => {}
            LatchChange::Begin { count, until } => {
                let replaces = seen != Latch::Open;
                let left = Text::new(Latch::text(count).as_bytes());
                if replaces {
                    key.unlink();
                }
                key.set(mode_field, left.lend());
                if let Some(until) = until {
                    key.set_expires(until.0);
                }
                drop(key);
                if replaces {
                    tell_deletion(ctx, name);
                }
                ctx.replicate(c"HSET", &[name, mode_field, left.lend()]);
                ctx.notify(KeyEventKind::Hash, c"hset", name);
                if let Some(until) = until {
                    ctx.replicate_number(c"PEXPIREAT", name, until.0);
                    ctx.notify(KeyEventKind::Generic, c"expire", name);
                }
            }
            LatchChange::Count { left } => {
                let (left, counted) =
                    (Text::new(Latch::text(left).as_bytes()), self.words.counted.lend());
                let mut args = vec![name, mode_field, left.lend()];
                key.set(mode_field, left.lend());
                if let Some(participant) = participant {
                    key.set(participant, counted);
                    args.extend([participant, counted]);
                }
                drop(key);
                ctx.replicate(c"HSET", &args);
                ctx.notify(KeyEventKind::Hash, c"hset", name);
            }
            LatchChange::Open => {
                key.unlink();
                drop(key);
                tell_deletion(ctx, name);
            }
        }
    }

    /// Looks at a latch that somebody waits for.
    pub(crate) fn look_at_latch(&mut self, ctx: &Ctx<'_>, key: KeyRef<'_>) {
        let name = Text::new(key.name);
        let open = ctx.open_to_read(name.lend());
        let seen = read(open.as_ref(), &self.words, name.lend(), None);
        self.table.look_at_latch(&LatchAt { key, seen, now: clock::now() });
    }

    /// Answers some of those whose latch has opened; the timer brings the others.
    pub(crate) fn answer_released(&mut self, ctx: &Ctx<'_>) {
        for _ in 0..RUN_MAX {
            let Some(waiting) = self.table.next_released() else { return };
            self.answer(waiting, Reply::Number(0), None);
        }
        if self.table.has_released() {
            self.timer.arm(ctx, std::time::Duration::ZERO);
        }
    }
}

/// A latch with many participants is a large hash: nobody waits until its memory is free.
fn tell_deletion(ctx: &Ctx<'_>, name: Arg<'_>) {
    ctx.replicate(c"UNLINK", &[name]);
    ctx.notify(KeyEventKind::Generic, c"del", name);
}
