//! Renewals that the server may still carry out, although nothing here waits for their answers.
//!
//! A renewal sets the lease, also to less than it was. One without an answer may be carried out after
//! later ones that went over other connections, and then leaves no more than its own length. As long
//! as that is possible no later renewal counts for more.

use std::time::Duration;

/// Connections of which unanswered renewals are kept apart. Renewals over older ones count for ever.
const CONNECTIONS: usize = 3;

/// One renewal of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RenewalId {
    /// Larger than those of all renewals before.
    number: u64,
    via: u64,
}

/// The unanswered renewals of one grant.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Late {
    /// By connection, the one that was used last at the end. A server carries out what arrives over
    /// one connection in order.
    open: [Option<Unanswered>; CONNECTIONS],
    /// The shortest of those over other connections.
    others: Option<Duration>,
    last_number: u64,
}

/// The renewals over one connection since the last answer.
#[derive(Clone, Copy, Debug)]
struct Unanswered {
    last: RenewalId,
    shortest: Duration,
}

impl Late {
    /// Records a renewal that is about to be sent over that connection.
    pub(crate) fn sending(&mut self, via: u64, length: Duration) -> RenewalId {
        self.last_number += 1;
        let last = RenewalId { number: self.last_number, via };
        let before = self.open.iter_mut().find(|entry| is_over(entry, via)).and_then(Option::take);
        let shortest = before.map_or(length, |before| before.shortest.min(length));
        // The oldest goes out at the front, the new one comes in at the end.
        self.open.sort_by_key(|entry| entry.map_or(0, |entry| entry.last.number));
        let oldest = self.open[0].replace(Unanswered { last, shortest });
        self.others = shorter(self.others, oldest.map(|oldest| oldest.shortest));
        self.open.rotate_left(1);
        last
    }

    /// Records the answer to a renewal: it, and what went over the same connection before, is over.
    pub(crate) fn answered(&mut self, renewal: RenewalId) {
        for entry in &mut self.open {
            if entry.is_some_and(|entry| entry.last == renewal) {
                *entry = None;
            }
        }
    }

    /// Returns the number of the renewal that was sent last; 0 before the first.
    pub(crate) fn last_number(&self) -> u64 {
        self.last_number
    }

    /// Returns how much of a lease counts while the others are unanswered.
    pub(crate) fn counts(&self, length: Duration) -> Duration {
        let open = self.open.iter().flatten().map(|entry| entry.shortest);
        open.chain(self.others).fold(length, Duration::min)
    }
}

impl RenewalId {
    /// Whether it was sent after the renewal of that number.
    pub(crate) fn is_after(self, number: u64) -> bool {
        self.number > number
    }
}

fn is_over(entry: &Option<Unanswered>, via: u64) -> bool {
    entry.is_some_and(|entry| entry.last.via == via)
}

fn shorter(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_secs(1);
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn what_was_answered_on_the_same_connection_is_over() {
        let mut late = Late::default();
        let first = late.sending(1, SHORT);
        assert_eq!(late.counts(LONG), SHORT);
        let second = late.sending(1, LONG);
        assert_eq!(late.counts(LONG), SHORT, "neither is answered");
        late.answered(first);
        assert_eq!(late.counts(LONG), SHORT, "the second is not");
        late.answered(second);
        assert_eq!(late.counts(LONG), LONG);
    }

    #[test]
    fn what_was_not_answered_on_another_connection_lasts() {
        let mut late = Late::default();
        let lost = late.sending(1, SHORT);
        let answered = late.sending(2, LONG);
        late.answered(answered);
        assert_eq!(late.counts(LONG), SHORT);
        let shorter = late.sending(2, SHORT / 2);
        assert_eq!(late.counts(LONG), SHORT / 2);
        late.answered(shorter);
        assert_eq!(late.counts(LONG), SHORT);
        late.answered(lost);
        assert_eq!(late.counts(LONG), LONG, "its answer came late");
    }

    #[test]
    fn renewals_over_forgotten_connections_count_for_ever() {
        let mut late = Late::default();
        let first = late.sending(1, SHORT);
        for via in 2..=4 {
            let renewal = late.sending(via, LONG);
            assert!(renewal.is_after(via - 1) && !renewal.is_after(via));
        }
        late.answered(first);
        assert_eq!(late.counts(LONG), SHORT);
    }
}
