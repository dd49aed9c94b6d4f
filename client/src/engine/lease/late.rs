//! Unanswered renewals, which the server may still execute.
//!
//! A renewal sets the lease, and may shorten it. The server may execute an unanswered renewal after later
//! ones that were sent over other connections. The lease is then only as long as the unanswered renewal sets.
//! While that is possible, no later renewal counts for a longer lease.

use crate::engine::clock::Moment;
use std::time::Duration;

/// Number of connections for which given-up renewals are tracked separately. Renewals over older connections
/// limit the lease for good.
const CONNECTIONS: usize = 3;

/// One renewal of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RenewalId {
    /// Number of the renewal. Later renewals have larger ones.
    number: u64,
    via: u64,
}

/// The unanswered renewals of one grant.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnansweredRenewals {
    /// Renewals that are awaited. The order in which they reach a connection is not known.
    in_flight: Vec<InFlight>,
    /// Renewals that are no longer awaited, by connection.
    given_up: Vec<GivenUp>,
    /// Length of the shortest given-up renewal that is not in `given_up`.
    others: Option<Duration>,
    last_number: u64,
}

/// A renewal that is awaited.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    renewal: RenewalId,
    /// If the server executes this renewal last, it does so after this moment: when this renewal was sent, or a
    /// later one whose answer has arrived.
    after: Moment,
    length: Duration,
    /// Length of the shortest other renewal, no longer in flight, that the server may have executed after this one.
    beside: Duration,
}

/// The renewals over one connection that were given up.
#[derive(Clone, Copy, Debug)]
struct GivenUp {
    via: u64,
    /// Number of the last renewal sent before the give-up. Later renewals over the same connection arrive
    /// later.
    before: u64,
    shortest: Duration,
}

impl UnansweredRenewals {
    /// Records a renewal that is about to be sent over the connection `via`.
    pub(crate) fn sending(&mut self, via: u64, sent: Moment, length: Duration) -> RenewalId {
        self.last_number += 1;
        let renewal = RenewalId { number: self.last_number, via };
        let elsewhere = self.given_up.iter().filter(|of| of.via != via);
        let beside = elsewhere.map(|of| of.shortest).fold(Duration::MAX, Duration::min);
        self.in_flight.push(InFlight { renewal, after: sent, length, beside });
        renewal
    }

    /// Records that the server has set a lease of at most `length` with a renewal.
    pub(crate) fn shorten(&mut self, renewal: RenewalId, length: Duration) {
        if let Some(one) = self.in_flight.iter_mut().find(|other| other.renewal == renewal) {
            one.length = one.length.min(length);
        }
    }

    /// Records that the server has executed a renewal. Returns the longest lease that may be counted for it:
    /// the server may have executed another one later, whichever answer arrives first.
    pub(crate) fn executed(&mut self, renewal: RenewalId) -> Duration {
        let done = self.end(renewal);
        if let Some(InFlight { after, length, .. }) = done {
            for other in &mut self.in_flight {
                other.after = other.after.max(after);
                other.beside = other.beside.min(length);
            }
        }
        self.forget_before(renewal);
        done.map_or(Duration::MAX, |done| done.beside)
    }

    /// Records that a renewal was answered, and that the server has not executed it.
    pub(crate) fn refused(&mut self, renewal: RenewalId) {
        self.end(renewal);
        self.forget_before(renewal);
    }

    /// Forgets renewals over the same connection that were given up before this one was sent.
    fn forget_before(&mut self, answered: RenewalId) {
        self.given_up.retain(|of| of.via != answered.via || of.before >= answered.number);
    }

    fn end(&mut self, renewal: RenewalId) -> Option<InFlight> {
        let place = self.in_flight.iter().position(|other| other.renewal == renewal)?;
        Some(self.in_flight.swap_remove(place))
    }

    /// Stops waiting for the answer to a renewal. Returns its length, and a moment after which the server
    /// executes it if it executes it last; `None` if the renewal is not in flight.
    pub(crate) fn give_up(&mut self, renewal: RenewalId) -> Option<(Moment, Duration)> {
        let InFlight { after, length, .. } = self.end(renewal)?;
        for other in &mut self.in_flight {
            other.beside = other.beside.min(length);
        }
        let (via, mut shortest) = (renewal.via, length);
        let before = self.last_number;
        if let Some(place) = self.given_up.iter().position(|of| of.via == via) {
            shortest = shortest.min(self.given_up.remove(place).shortest);
        }
        self.given_up.push(GivenUp { via, before, shortest });
        if self.given_up.len() > CONNECTIONS {
            let oldest = self.given_up.remove(0);
            self.others = shorter(self.others, Some(oldest.shortest));
        }
        Some((after, length))
    }

    /// Returns the unanswered renewals for another record of the same owner. That record gets no answers to
    /// renewals in flight here, so they count as given up.
    pub(crate) fn handed_over(mut self) -> Self {
        for InFlight { length, .. } in std::mem::take(&mut self.in_flight) {
            self.others = shorter(self.others, Some(length));
        }
        self
    }

    /// Returns whether no renewal is in flight.
    pub(crate) fn is_quiet(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Returns the number of the renewal that was sent last; 0 before the first.
    pub(crate) fn last_number(&self) -> u64 {
        self.last_number
    }

    /// Returns the part of a lease that counts while other renewals are unanswered.
    pub(crate) fn counts(&self, length: Duration) -> Duration {
        self.in_flight().map(|(_, length)| length).fold(self.outlasts(length), Duration::min)
    }

    /// Returns the part of a lease that counts whenever the server executes renewals that were given up.
    pub(crate) fn outlasts(&self, length: Duration) -> Duration {
        let given_up = self.given_up.iter().map(|of| of.shortest);
        given_up.chain(self.others).fold(length, Duration::min)
    }

    /// Returns the length of each renewal in flight, and a moment after which the server executes it if it
    /// executes it last.
    pub(crate) fn in_flight(&self) -> impl Iterator<Item = (Moment, Duration)> {
        self.in_flight.iter().map(|other| (other.after, other.length))
    }
}

impl RenewalId {
    /// Returns whether this renewal was sent after the renewal with `number`.
    pub(crate) fn is_after(self, number: u64) -> bool {
        self.number > number
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
    fn a_request_in_flight_counts_until_its_own_reply() {
        let mut late = UnansweredRenewals::default();
        let first = late.sending(1, Moment(0), SHORT);
        let second = late.sending(1, Moment(0), LONG);
        late.executed(second);
        assert_eq!(late.counts(LONG), SHORT, "the first may reach the connection later");
        assert!(!late.is_quiet());
        assert_eq!(late.executed(first), LONG);
        assert_eq!((late.counts(LONG), late.is_quiet()), (LONG, true));
        let [long, short] = [LONG, SHORT].map(|length| late.sending(1, Moment(0), length));
        late.executed(short);
        assert_eq!(late.executed(long), SHORT, "the shorter one may have been carried out last");
    }

    #[test]
    fn an_abandoned_request_is_over_after_a_later_reply_on_its_connection() {
        let mut late = UnansweredRenewals::default();
        let lost = late.sending(1, Moment(0), SHORT);
        let beside = late.sending(1, Moment(0), LONG);
        late.give_up(lost);
        late.executed(beside);
        assert_eq!(late.counts(LONG), SHORT, "it was sent before that was given up");
        let elsewhere = late.sending(2, Moment(0), LONG);
        late.executed(elsewhere);
        assert_eq!(late.counts(LONG), SHORT);
        let after = late.sending(1, Moment(0), LONG);
        late.executed(after);
        assert_eq!(late.counts(LONG), LONG);
    }

    #[test]
    fn renewals_that_were_given_up_are_kept_by_connection() {
        let mut late = UnansweredRenewals::default();
        assert_eq!(late.last_number(), 0);
        for (via, length) in [(1, LONG), (2, SHORT), (1, LONG), (3, LONG)] {
            let renewal = late.sending(via, Moment(0), length);
            late.give_up(renewal);
        }
        assert_eq!(late.last_number(), 4);
        let after = late.sending(1, Moment(0), LONG);
        late.executed(after);
        assert_eq!(late.counts(LONG), SHORT, "the short one is over another connection");
        let after = late.sending(2, Moment(0), LONG);
        late.executed(after);
        assert_eq!(late.counts(LONG), LONG, "three connections are not too many");
    }

    #[test]
    fn renewals_over_forgotten_connections_count_forever() {
        let mut late = UnansweredRenewals::default();
        for (via, length) in [(1, SHORT), (2, LONG), (3, LONG), (4, LONG)] {
            let renewal = late.sending(via, Moment(0), length);
            assert!(renewal.is_after(via - 1) && !renewal.is_after(via));
            late.give_up(renewal);
        }
        let after = late.sending(1, Moment(0), LONG);
        late.executed(after);
        assert_eq!(late.counts(LONG), SHORT);
        let mut handed_over = late.clone();
        let in_flight = handed_over.sending(5, Moment(0), SHORT / 2);
        let mut handed_over = handed_over.handed_over();
        handed_over.executed(in_flight);
        assert_eq!(handed_over.counts(LONG), SHORT / 2);
    }
}
