//! The token floor. With it, fencing tokens grow even over a restart or a failover. This holds even
//! if the clock of the next server is behind and the lock is deleted.
//!
//! A floor is a number stored with the data: a reservation. The server that wrote it issues only
//! tokens below it; any other server that finds the floor issues tokens above it. The floor is
//! raised to a minute ahead of the clock when less than half a minute is left. So, unless tokens
//! are ahead of the clock, a floor costs at most one small write per half minute, and losing the
//! last half minute of a replication stream cannot lower a token.

use crate::token::{TOKEN_STORED_MAX, Token};
use crate::types::{MonoMillis, Now};

/// Distance of a new floor from the clock, in microseconds.
const AHEAD_US: u64 = 60_000_000;

/// The floor is raised when it is less than this ahead of the clock, in microseconds.
const LEFT_US: u64 = 30_000_000;

/// Smallest distance of a new floor from the token of the grant. It matters only for tokens that
/// are ahead of the clock, which grow by one with each grant. It is small compared with
/// [`AHEAD_US`], so that reservations hardly add up over promotions: see [`above`].
const AHEAD_TOKENS: u64 = 20_000;

/// The floor is raised when it is less than this above the token of the grant.
const LEFT_TOKENS: u64 = 10_000;

/// Shortest time between two regular reads of a stored floor, in milliseconds. The
/// reads are needed because other programs may set the floor without an event.
const CHECK_MS: u64 = 100;

/// Time at which a server became a primary, and whether by a promotion.
#[derive(Clone, Copy, Debug)]
pub struct PrimarySince {
    since_us: u64,
    promoted: bool,
}

impl PrimarySince {
    /// The server was started.
    #[must_use]
    pub fn started(now: Now) -> Self {
        Self { since_us: now.unix_us, promoted: false }
    }

    /// The server took over from another, which may not know that yet and may still grant.
    #[must_use]
    pub fn promoted(now: Now) -> Self {
        Self { since_us: now.unix_us, promoted: true }
    }
}

/// State of one floor, as a server knows it.
#[derive(Clone, Copy, Debug)]
pub struct Floor {
    /// Reservation of another server, as found by the first read; 0 if none.
    found: u64,
    /// The number that our tokens must be larger than, because of other servers: see [`above`].
    others: u64,
    /// Our own reservation: our tokens are below it. 0 if none yet.
    ours: u64,
    /// Time at which the stored number was last read.
    checked: MonoMillis,
}

impl Floor {
    /// Returns a floor after its first read. `found` is 0 if there is no valid number.
    #[must_use]
    pub fn found(found: u64, now: Now, primary_since: PrimarySince) -> Self {
        Self { found, others: above(found, primary_since), ours: 0, checked: now.mono }
    }

    /// Returns the number that a read finds unless another server or client has changed it.
    #[must_use]
    pub fn expected(&self) -> u64 {
        if self.ours > 0 { self.ours } else { self.found }
    }

    /// The number that tokens must be larger than.
    #[must_use]
    pub fn others(&self) -> u64 {
        self.others
    }

    /// Returns whether it is time to read the stored number again. If so, the caller must read it
    /// now.
    pub fn is_to_be_checked(&mut self, now: Now) -> bool {
        let due = now.mono.since(self.checked).0 >= CHECK_MS;
        if due {
            self.checked = now.mono;
        }
        due
    }

    /// The number to store in the same step as a grant with this token. `None` if enough of the
    /// reservation is left. Never above [`TOKEN_STORED_MAX`]: a larger number is ignored when it is
    /// read.
    #[must_use]
    pub fn reservation(&self, token: Token, now: Now) -> Option<u64> {
        let (token, clock) = (token.value(), now.unix_us.min(TOKEN_STORED_MAX));
        let least = |us, tokens| {
            let least = clock.saturating_add(us).max(token.saturating_add(tokens));
            least.min(TOKEN_STORED_MAX)
        };
        (self.ours < least(LEFT_US, LEFT_TOKENS)).then(|| least(AHEAD_US, AHEAD_TOKENS))
    }

    /// Records that the number was stored.
    pub fn reserved(&mut self, number: u64) {
        self.ours = number;
    }
}

/// Returns the number that tokens must be larger than. `found` is the reservation of another
/// server; 0 if there is none.
///
/// The reservation alone is not enough. Suppose two servers are promoted one after the other, and
/// the second has not heard of the first. Both find the same reservation and could start at the
/// same token. So each issues only tokens at least [`AHEAD_US`] above the time of its own
/// promotion. The later one starts higher, as long as their clocks agree. This distance does not
/// grow, however many servers are promoted in turn.
///
/// The time of the promotion counts, not the time of the first grant. A server may grant for the
/// first time after it was deposed, and after its successor has granted. A promoted server keeps this
/// distance even if it finds no reservation, because its predecessor may be about to grant its first
/// lock.
fn above(found: u64, primary_since: PrimarySince) -> u64 {
    if found == 0 && !primary_since.promoted {
        return found;
    }
    found.max(primary_since.since_us.saturating_add(AHEAD_US)).min(TOKEN_STORED_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: u64 = 1_795_290_198_162_386;

    fn token(value: u64) -> Token {
        Token::from_stored(value).unwrap()
    }

    fn at(unix_us: u64) -> Now {
        Now { unix_us, mono: MonoMillis(unix_us / 1000) }
    }

    /// Returns the first token and the reservation of a server that starts at this time.
    fn begin(found: u64, primary_since: PrimarySince, now: Now) -> (u64, u64) {
        let floor = Floor::found(found, now, primary_since);
        let first = floor.others().max(now.unix_us) + 1;
        (first, floor.reservation(token(first), now).unwrap())
    }

    #[test]
    fn a_reservation_is_a_minute_ahead_of_the_clock_and_renewed_at_half_of_it() {
        let mut floor = Floor::found(0, at(DATE), PrimarySince::started(at(DATE)));
        let now = token(DATE);
        let reserved = floor.reservation(now, at(DATE)).unwrap();
        assert_eq!(reserved, DATE + AHEAD_US);
        floor.reserved(reserved);
        assert_eq!(floor.expected(), reserved);
        assert_eq!(floor.reservation(now, at(DATE + LEFT_US)), None);
        let later = DATE + LEFT_US + 1;
        assert_eq!(floor.reservation(now, at(later)), Some(later + AHEAD_US));
    }

    #[test]
    fn a_token_ahead_of_the_clock_is_below_the_reservation() {
        let mut floor = Floor::found(0, at(DATE), PrimarySince::started(at(DATE)));
        floor.reserved(DATE + AHEAD_US);
        let far = DATE + 10 * AHEAD_US;
        let reserved = floor.reservation(token(far), at(DATE)).unwrap();
        assert_eq!(reserved, far + AHEAD_TOKENS);
        floor.reserved(reserved);
        let (near, next) = (far + LEFT_TOKENS, far + LEFT_TOKENS + 1);
        assert_eq!(floor.reservation(token(near), at(DATE)), None);
        assert!(floor.reservation(token(next), at(DATE)).is_some());
    }

    #[test]
    fn a_reservation_is_never_larger_than_readers_accept() {
        let mut floor = Floor::found(0, at(DATE), PrimarySince::started(at(DATE)));
        for value in [TOKEN_STORED_MAX - AHEAD_TOKENS + 1, TOKEN_STORED_MAX, TOKEN_STORED_MAX + 9] {
            let reserved = floor.reservation(token(value), at(DATE));
            assert_eq!(reserved, Some(TOKEN_STORED_MAX), "{value}");
        }
        floor.reserved(TOKEN_STORED_MAX);
        assert_eq!(floor.reservation(token(TOKEN_STORED_MAX + 9), at(DATE)), None);
    }

    #[test]
    fn each_start_begins_higher_even_if_earlier_ones_saved_nothing() {
        let (mut last, mut stored) = (0, DATE + AHEAD_US);
        for start in 1..100_u64 {
            // Each start is 25 ms after the one before.
            let now = at(DATE + start * 25_000);
            let (first, reserved) = begin(stored, PrimarySince::started(now), now);
            assert!(first > last, "start {start}: {first} after {last}");
            last = first + 1_000;
            if start % 3 == 0 {
                stored = reserved;
            }
        }
    }

    #[test]
    fn the_earlier_promotion_begins_lower_whichever_grants_first() {
        let (one, other) = (at(DATE), at(DATE + 10_000));
        for found in [0, DATE - AHEAD_US / 2, DATE + AHEAD_US / 2] {
            let late = at(DATE + AHEAD_US / 2);
            let (of_one, _) = begin(found, PrimarySince::promoted(one), late);
            let (of_other, _) = begin(found, PrimarySince::promoted(other), other);
            assert!(of_one < of_other, "{found}: {of_one}, {of_other}");
        }
    }

    #[test]
    fn a_first_start_begins_at_the_clock_and_tokens_stay_in_range() {
        assert_eq!(Floor::found(0, at(DATE), PrimarySince::started(at(DATE))).others(), 0);
        let end = at(u64::MAX);
        assert_eq!(Floor::found(0, end, PrimarySince::promoted(end)).others(), TOKEN_STORED_MAX);
    }

    #[test]
    fn the_stored_floor_is_checked_every_100_ms() {
        let mut floor = Floor::found(0, at(DATE), PrimarySince::started(at(DATE)));
        assert!(!floor.is_to_be_checked(at(DATE + 99_000)));
        assert!(floor.is_to_be_checked(at(DATE + 100_000)));
        assert!(!floor.is_to_be_checked(at(DATE + 100_000)));
    }

    #[test]
    fn a_read_is_expected_to_find_the_latest_reservation() {
        let mut floor = Floor::found(5, at(DATE), PrimarySince::started(at(DATE)));
        assert_eq!(floor.expected(), 5);
        floor.reserved(DATE);
        assert_eq!(floor.expected(), DATE);
    }
}
