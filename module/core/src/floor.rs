//! The token floor: what keeps fencing tokens growing over a restart or a failover, when the
//! clock of the next server is behind and the lock itself is gone.
//!
//! A floor is a number that is stored with the data: a reservation. The server that wrote it issues
//! tokens below it only; any other server that finds it starts above it. It is raised a minute ahead
//! of the clock when less than half a minute is left, so it costs one small write in half a minute,
//! and losing the last half minute of a replication stream cannot lower a token.

use crate::planted::Bug;
use crate::token::{TOKEN_STORED_MAX, Token};
use crate::types::{MonoMillis, Now};

/// How far ahead of the clock a floor is written, in microseconds.
const AHEAD_US: u64 = 60_000_000;

/// How much must be left of it, in microseconds.
const LEFT_US: u64 = 30_000_000;

/// The same for tokens that are ahead of the clock, and grow by one with each grant. No more than a
/// moment of the clock: a floor that is further ahead of it than [`AHEAD_US`] tells who finds it
/// nothing of those who have found it before. See [`above`].
const AHEAD_TOKENS: u64 = 20_000;
const LEFT_TOKENS: u64 = 10_000;

/// How often a floor is looked at again, in milliseconds: others may set it without an event.
const CHECK_MS: u64 = 100;

/// When a server became one that grants, and how.
#[derive(Clone, Copy, Debug)]
pub struct Reign {
    since_us: u64,
    promoted: bool,
}

impl Reign {
    /// It was started.
    #[must_use]
    pub fn started(now: Now) -> Self {
        Self { since_us: now.unix_us, promoted: false }
    }

    /// It took over from another, which may not know it yet and go on granting.
    #[must_use]
    pub fn promoted(now: Now) -> Self {
        Self { since_us: now.unix_us, promoted: true }
    }
}

/// What a server knows of one floor.
#[derive(Clone, Copy, Debug)]
pub struct Floor {
    /// What somebody else had reserved when we first looked; 0 is nothing.
    found: u64,
    /// Our tokens are above it. See [`above`].
    others: u64,
    /// What we have reserved: our tokens are below it. 0 is nothing yet.
    ours: u64,
    /// When the stored number was looked at last.
    checked: MonoMillis,
}

impl Floor {
    /// A floor as it is found: 0 where nothing is stored, or nothing that makes sense.
    #[must_use]
    pub fn found(found: u64, now: Now, reign: Reign) -> Self {
        Self { found, others: above(found, reign), ours: 0, checked: now.mono }
    }

    /// What should be stored.
    #[must_use]
    pub fn expected(&self) -> u64 {
        if self.ours > 0 { self.ours } else { self.found }
    }

    /// What tokens must be above.
    #[must_use]
    pub fn others(&self) -> u64 {
        self.others
    }

    /// Says whether it is time to look at the stored number again, and counts as having looked.
    pub fn is_to_be_checked(&mut self, now: Now) -> bool {
        let due = now.mono.since(self.checked).0 >= CHECK_MS;
        if due {
            self.checked = now.mono;
        }
        due
    }

    /// The number to store before this token is issued; `None` if the reservation suffices, with room to
    /// spare. Never above [`TOKEN_STORED_MAX`]: a larger number is ignored when it is read.
    #[must_use]
    pub fn reservation(&self, token: Token, now: Now) -> Option<u64> {
        let (token, clock) = (token.value(), now.unix_us.min(TOKEN_STORED_MAX));
        let least = |us, tokens| {
            let least = clock.saturating_add(us).max(token.saturating_add(tokens));
            least.min(TOKEN_STORED_MAX)
        };
        (self.ours < least(LEFT_US, LEFT_TOKENS)).then(|| least(AHEAD_US, AHEAD_TOKENS))
    }

    /// That number was stored.
    pub fn reserved(&mut self, number: u64) {
        self.ours = number;
    }
}

/// Where to begin when somebody else has reserved tokens up to `found`.
///
/// The reservation alone would not do. Two servers that take over one after the other, of which the
/// second has not heard of the first, find the same one and would begin at the same token. So each
/// begins at least as far ahead of its clock as anybody reserves: the one that comes later begins
/// higher, as long as their clocks agree, and does so for as long as the one before was ahead. What
/// the one before has reserved is not much more than that, however many took over before it.
///
/// What counts is when it took over, not when it grants here for the first time: that it may do
/// after it was deposed itself, and after the next one has granted. Whoever was promoted does that
/// also where nothing was reserved yet: the server before may still be about to grant its first
/// lock there.
fn above(found: u64, reign: Reign) -> u64 {
    if (found == 0 && !reign.promoted) || Bug::FloorAlone.is_planted() {
        return found;
    }
    found.max(reign.since_us.saturating_add(AHEAD_US)).min(TOKEN_STORED_MAX)
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

    /// The first token and the reservation of a server that begins then.
    fn begin(found: u64, reign: Reign, now: Now) -> (u64, u64) {
        let floor = Floor::found(found, now, reign);
        let first = floor.others().max(now.unix_us) + 1;
        (first, floor.reservation(token(first), now).unwrap())
    }

    #[test]
    fn a_reservation_is_a_minute_ahead_of_the_clock_and_renewed_at_half_of_it() {
        let mut floor = Floor::found(0, at(DATE), Reign::started(at(DATE)));
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
    fn a_token_that_is_ahead_of_the_clock_is_below_the_reservation() {
        let mut floor = Floor::found(0, at(DATE), Reign::started(at(DATE)));
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
    fn a_reservation_is_never_larger_than_what_is_believed_when_it_is_read() {
        let mut floor = Floor::found(0, at(DATE), Reign::started(at(DATE)));
        for value in [TOKEN_STORED_MAX - AHEAD_TOKENS + 1, TOKEN_STORED_MAX, TOKEN_STORED_MAX + 9] {
            let reserved = floor.reservation(token(value), at(DATE));
            assert_eq!(reserved, Some(TOKEN_STORED_MAX), "{value}");
        }
        floor.reserved(TOKEN_STORED_MAX);
        assert_eq!(floor.reservation(token(TOKEN_STORED_MAX + 9), at(DATE)), None);
    }

    #[test]
    fn starts_in_a_row_begin_higher_each_also_when_some_leave_no_trace() {
        let (mut last, mut stored) = (0, DATE + AHEAD_US);
        for start in 1..100_u64 {
            // As fast as a server can start.
            let now = at(DATE + start * 25_000);
            let (first, reserved) = begin(stored, Reign::started(now), now);
            assert!(first > last, "start {start}: {first} after {last}");
            last = first + 1_000;
            if start % 3 == 0 {
                stored = reserved;
            }
        }
    }

    #[test]
    fn who_took_over_first_begins_lower_whoever_grants_first() {
        let (one, other) = (at(DATE), at(DATE + 10_000));
        for found in [0, DATE - AHEAD_US / 2, DATE + AHEAD_US / 2] {
            let late = at(DATE + AHEAD_US / 2);
            let (of_one, _) = begin(found, Reign::promoted(one), late);
            let (of_other, _) = begin(found, Reign::promoted(other), other);
            assert!(of_one < of_other, "{found}: {of_one}, {of_other}");
        }
    }

    #[test]
    fn nothing_lifts_a_first_start_and_nothing_is_beyond_the_end_of_numbers() {
        assert_eq!(Floor::found(0, at(DATE), Reign::started(at(DATE))).others(), 0);
        let end = at(u64::MAX);
        assert_eq!(Floor::found(0, end, Reign::promoted(end)).others(), TOKEN_STORED_MAX);
    }

    #[test]
    fn the_stored_number_is_looked_at_once_a_second() {
        let mut floor = Floor::found(0, at(DATE), Reign::started(at(DATE)));
        assert!(!floor.is_to_be_checked(at(DATE + 99_000)));
        assert!(floor.is_to_be_checked(at(DATE + 100_000)));
        assert!(!floor.is_to_be_checked(at(DATE + 100_000)));
    }
}
