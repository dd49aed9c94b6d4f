//! Renewals that may yet arrive when nobody waits for them any more.
//!
//! A renewal sets the lease, also to less than it was. One that was not answered may be carried out
//! after those that followed it over other connections, and then leaves no more than its own length.
//! So for as long as that is possible no later renewal counts for more.

use std::time::Duration;

/// The shortest of those that one grant has on their way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Late {
    /// Over the connection of this number, which was used last, since one was answered there: what
    /// was sent before that has arrived before it.
    last: Option<(u64, Duration)>,
    /// Over all others: of these nobody will ever hear.
    others: Option<Duration>,
}

impl Late {
    /// One is about to be sent over that connection.
    pub(crate) fn sending(&mut self, via: u64, length: Duration) {
        let here = self.last.filter(|(before, _)| *before == via);
        if here.is_none() {
            self.others = shorter(self.others, self.last.map(|(_, length)| length));
        }
        let length = here.map_or(length, |(_, before)| before.min(length));
        self.last = Some((via, length));
    }

    /// The one that was sent last has been answered.
    pub(crate) fn answered(&mut self) {
        self.last = None;
    }

    /// How much of a lease counts.
    pub(crate) fn counts(&self, length: Duration) -> Duration {
        let shortest = shorter(self.others, self.last.map(|(_, length)| length));
        shortest.map_or(length, |shortest| shortest.min(length))
    }
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
        late.sending(1, SHORT);
        assert_eq!(late.counts(LONG), SHORT);
        late.sending(1, LONG);
        assert_eq!(late.counts(LONG), SHORT, "neither is answered");
        late.answered();
        assert_eq!(late.counts(LONG), LONG);
    }

    #[test]
    fn what_was_not_answered_on_another_connection_lasts() {
        let mut late = Late::default();
        late.sending(1, SHORT);
        late.sending(2, LONG);
        late.answered();
        assert_eq!(late.counts(LONG), SHORT);
        late.sending(2, SHORT / 2);
        assert_eq!(late.counts(LONG), SHORT / 2);
        late.answered();
        assert_eq!(late.counts(LONG), SHORT);
    }
}
