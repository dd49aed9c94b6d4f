//! The result of a command: the replies, the writes and the locks that changed.

use kvlock_core::{Cause, Change, Counters, HandOff, MonoMillis, Now, UnixMillis, Want};

use super::stage::{Client, Grant, Stage};
use super::words;
use kvlock_core_reference::sim::{Asked, Name, first_look, key_ref};

/// Fixed times for comparing states. With them, the text of a state does not change as time passes.
const DATES: [Now; 2] = {
    let end = Now { unix_us: u64::MAX, mono: MonoMillis(u64::MAX) };
    [Now { unix_us: 0, mono: MonoMillis(0) }, end]
};

impl Stage {
    pub(crate) fn carry_out(&mut self, lock: &Name, caller: &str, change: Change<Client>) {
        self.log += &words::written(lock, caller, &change, self.clock.now());
        self.space.apply(lock, caller, self.clock.now(), &change);
        match change {
            Change::HandOff(hand_off) => self.hand_off(lock, hand_off),
            Change::Share(sharers) => {
                sharers.joined.into_iter().for_each(|hand_off| self.hand_off(lock, hand_off));
            }
            // A look finds out whether the remaining sharers are alive.
            Change::Leave => {
                let change = self.look(lock, Cause::Release);
                self.carry_out(lock, "", change);
            }
            Change::None
            | Change::Take { .. }
            | Change::Update { .. }
            | Change::Free
            | Change::GiveWay
            | Change::Beside { .. } => {}
        }
    }

    fn hand_off(&mut self, lock: &Name, hand_off: HandOff<Client>) {
        let token = hand_off.token;
        let owner = String::from_utf8_lossy(&hand_off.owner).into_owned();
        let grant = Grant { id: hand_off.id, lock: lock.clone(), owner, token };
        let Some(client) = hand_off.client else { return };
        self.grants.insert(client.name.clone(), grant);
        let told = format!("granted, token {}, holds 1", token.value());
        self.tell(Some(client), &told);
    }

    /// Returns the states and the next look, if they differ from those shown last, and the counters that
    /// changed in this step.
    pub(crate) fn news(&mut self, before: &Counters) -> String {
        let (now, mut all) = (self.clock.now(), String::new());
        for lock in self.names.clone() {
            let stands = self.stands(&lock, DATES);
            if self.last_states.insert(lock.clone(), stands.clone()) != Some(stands) {
                all += &self.stands(&lock, [now, now]);
            }
        }
        let look = first_look(&self.table);
        if std::mem::replace(&mut self.look_said, look) != look {
            all += &match look {
                Some(look) => format!("next look in {}\n", look.since(now.unix()).0),
                None => "no look planned\n".to_owned(),
            };
        }
        all + &words::counted(before, self.table.counters())
    }

    /// Returns the state of a lock as text. The time that is left is counted from `from`, the time
    /// waited up to `till`.
    fn stands(&self, lock: &Name, [from, till]: [Now; 2]) -> String {
        let seen = self.space.observe(lock, Asked::NOBODY);
        let mut all = format!("{}: {}\n", words::key(lock), words::seen(&seen, from));
        for (owner, (holds, until)) in self.space.shares(lock) {
            let left = UnixMillis(until).since(from.unix()).0;
            all += &format!("  shared by {owner}, holds {holds}, {left} left\n");
        }
        for (place, waiter) in (1..).zip(self.table.queue_of(key_ref(lock))) {
            let owner = String::from_utf8_lossy(waiter.owner);
            let waited = till.mono.since(waiter.since).0;
            let ends = waiter.client.and_then(|client| client.ends);
            let left = match ends {
                Some(end) => format!("{} left", end.since(from.mono).0),
                None => "no limit".to_owned(),
            };
            let by = match (waiter.client, waiter.session) {
                (Some(client), _) if *client.name == *owner => String::new(),
                (Some(client), _) => format!(" ({})", client.name),
                (None, name) => format!(" (session {})", self.session_named(name)),
            };
            let want = if waiter.want == Want::Shared { " to share" } else { "" };
            all += &format!("  {place}. {owner}{by}{want}, waited {waited}, {left}\n");
        }
        all
    }
}
