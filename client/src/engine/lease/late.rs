//! Unanswered renewals, which the server may still execute.
//!
//! A renewal sets the lease, and may shorten it. The server may execute an unanswered renewal after later
//! ones that were sent over other connections. The lease is then only as long as the unanswered renewal sets.
//! While that is possible, no later renewal counts for a longer lease.

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
    length: Duration,
    /// Length of the shortest renewal in flight at the same time. The server may have executed that one
    /// later, whichever answer arrives first.
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
    pub(crate) fn sending(&mut self, via: u64, length: Duration) -> RenewalId {
        self.last_number += 1;
        let renewal = RenewalId { number: self.last_number, via };
        let mut beside = Duration::MAX;
        for other in &mut self.in_flight {
            beside = beside.min(other.length);
            other.beside = other.beside.min(length);
        }
        self.in_flight.push(InFlight { renewal, length, beside });
        renewal
    }

    /// Records the answer to a renewal. Forgets renewals over the same connection that were given up before
    /// this one was sent. Returns the longest lease that may be counted, which renewals in flight at the same
    /// time limit.
    pub(crate) fn answered(&mut self, renewal: RenewalId) -> Duration {
        let place = self.in_flight.iter().position(|other| other.renewal == renewal);
        let most = place.map_or(Duration::MAX, |place| self.in_flight.swap_remove(place).beside);
        self.given_up.retain(|of| of.via != renewal.via || of.before >= renewal.number);
        most
    }

    /// Stops waiting for the answer to a renewal. No effect if the renewal is not in flight.
    pub(crate) fn give_up(&mut self, renewal: RenewalId) {
        let place = self.in_flight.iter().position(|other| other.renewal == renewal);
        let Some(place) = place else { return };
        let mut shortest = self.in_flight.swap_remove(place).length;
        let via = renewal.via;
        let before = self.last_number;
        if let Some(place) = self.given_up.iter().position(|of| of.via == via) {
            shortest = shortest.min(self.given_up.remove(place).shortest);
        }
        self.given_up.push(GivenUp { via, before, shortest });
        if self.given_up.len() > CONNECTIONS {
            let oldest = self.given_up.remove(0);
            self.others = shorter(self.others, Some(oldest.shortest));
        }
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
        let in_flight = self.in_flight.iter().map(|other| other.length);
        let given_up = self.given_up.iter().map(|of| of.shortest);
        in_flight.chain(given_up).chain(self.others).fold(length, Duration::min)
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
        let first = late.sending(1, SHORT);
        let second = late.sending(1, LONG);
        late.answered(second);
        assert_eq!(late.counts(LONG), SHORT, "the first may reach the connection later");
        assert!(!late.is_quiet());
        assert_eq!(late.answered(first), LONG);
        assert_eq!((late.counts(LONG), late.is_quiet()), (LONG, true));
        let [long, short] = [LONG, SHORT].map(|length| late.sending(1, length));
        late.answered(short);
        assert_eq!(late.answered(long), SHORT, "the shorter one may have been carried out last");
    }

    #[test]
    fn an_abandoned_request_is_over_after_a_later_reply_on_its_connection() {
        let mut late = UnansweredRenewals::default();
        let lost = late.sending(1, SHORT);
        let beside = late.sending(1, LONG);
        late.give_up(lost);
        late.answered(beside);
        assert_eq!(late.counts(LONG), SHORT, "it was sent before that was given up");
        let elsewhere = late.sending(2, LONG);
        late.answered(elsewhere);
        assert_eq!(late.counts(LONG), SHORT);
        let after = late.sending(1, LONG);
        late.answered(after);
        assert_eq!(late.counts(LONG), LONG);
    }

    #[test]
    fn renewals_that_were_given_up_are_kept_by_connection() {
        let mut late = UnansweredRenewals::default();
        assert_eq!(late.last_number(), 0);
        for (via, length) in [(1, LONG), (2, SHORT), (1, LONG), (3, LONG)] {
            let renewal = late.sending(via, length);
            late.give_up(renewal);
        }
        assert_eq!(late.last_number(), 4);
        let after = late.sending(1, LONG);
        late.answered(after);
        assert_eq!(late.counts(LONG), SHORT, "the short one is over another connection");
        let after = late.sending(2, LONG);
        late.answered(after);
        assert_eq!(late.counts(LONG), LONG, "three connections are not too many");
    }

    #[test]
    fn renewals_over_forgotten_connections_count_forever() {
        let mut late = UnansweredRenewals::default();
        for (via, length) in [(1, SHORT), (2, LONG), (3, LONG), (4, LONG)] {
            let renewal = late.sending(via, length);
            assert!(renewal.is_after(via - 1) && !renewal.is_after(via));
            late.give_up(renewal);
        }
        let after = late.sending(1, LONG);
        late.answered(after);
        assert_eq!(late.counts(LONG), SHORT);
        let mut handed_over = late.clone();
        let in_flight = handed_over.sending(5, SHORT / 2);
        let mut handed_over = handed_over.handed_over();
        handed_over.answered(in_flight);
        assert_eq!(handed_over.counts(LONG), SHORT / 2);
    }
}
