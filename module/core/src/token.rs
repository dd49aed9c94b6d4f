//! Fencing tokens.

use crate::parse::strict_decimal;

/// Largest stored token that raises the tokens after it.
///
/// Any client may write a hash. A wrong value near the end of the number range would leave no room
/// for larger tokens. So larger values are ignored, unless this server has issued tokens that large.
/// 2^52 microseconds after 1970 is the year 2112.
pub const TOKEN_STORED_MAX: u64 = 1 << 52;

/// Largest distance ahead of the clock to which a holder may raise the token of its lock, in
/// microseconds: a day. Clocks in the wrong time zone, or clocks that jump, may differ by that
/// much. The distance counts from the clock, so repeated requests do not add up. See
/// [`TokenSource::most`] for numbers that are used already.
pub const RAISE_AHEAD_US: u64 = 24 * 60 * 60 * 1_000_000;

/// First byte of a stored token, so that it does not read as a number. Redisson's script that
/// unlocks a read lock counts down from every number in the hash. From a token, that would block
/// the server for years.
const TEXT_PREFIX: &[u8] = b"t";

/// A fencing token: a number that is larger for each new exclusive grant, and for each new shared
/// period, of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// Returns the token for a stored number. `None` if no kvlock server can have written it, since
    /// tokens fit into 53 bits.
    #[must_use]
    pub fn from_stored(value: u64) -> Option<Self> {
        (1..1 << 53).contains(&value).then_some(Self(value))
    }

    /// Reads the token field of a hash. `None` if the value is not a valid token.
    #[must_use]
    pub fn read(value: &[u8]) -> Option<Self> {
        strict_decimal(value.strip_prefix(TEXT_PREFIX)?).and_then(Self::from_stored)
    }

    /// Returns the value of the token field of a hash.
    #[must_use]
    pub fn text(self) -> TokenText {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(self.0).as_bytes();
        let mut text = TokenText { bytes: [0; 17], len: 0 };
        for part in [TEXT_PREFIX, digits] {
            let end = text.len.saturating_add(part.len());
            if let Some(to) = text.bytes.get_mut(text.len..end) {
                to.copy_from_slice(part);
                text.len = end;
            }
        }
        text
    }

    /// Stands for the missing token of a grant of permits. No server issues this token for a lock,
    /// because the clock is far past it.
    pub const NONE: Self = Self(1);

    /// The number that clients and resources see.
    #[must_use]
    pub fn value(self) -> u64 {
        self.0
    }
}

/// A token as it is stored.
#[derive(Clone, Copy, Debug)]
pub struct TokenText {
    bytes: [u8; 17],
    len: usize,
}

impl TokenText {
    /// The bytes of the stored form.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// Issues the tokens of one server.
///
/// ```text
/// token = max(last + 1, stored + 1, floor + 1, now in microseconds)
/// ```
///
/// `last` makes tokens grow while the server runs. `stored`, the token still in the hash, covers a
/// hash that outlived the server. `floor`, a persisted and replicated reservation, covers the case
/// that only this reservation outlived the server. The clock covers the case that nothing did.
///
/// While the floor is unknown because the slot is moving, the token of a lock with a stored token is
/// `stored + 1`: see [`Self::issue`].
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenSource {
    last: u64,
}

impl TokenSource {
    /// Returns the stored token, unless it is too large: above [`TOKEN_STORED_MAX`] and above every
    /// token that this source has issued or recorded.
    #[must_use]
    pub fn believe(&self, stored: Option<Token>) -> Option<Token> {
        stored.filter(|token| token.0 <= TOKEN_STORED_MAX.max(self.last))
    }

    /// Returns the largest token to which a holder may raise its own: [`RAISE_AHEAD_US`] ahead of the
    /// clock. A number that was issued or reserved already is allowed too, because it raises no
    /// later token. The result is never above [`TOKEN_STORED_MAX`].
    #[must_use]
    pub fn most(&self, floor: Option<u64>, unix_us: u64) -> u64 {
        let ahead = unix_us.saturating_add(RAISE_AHEAD_US);
        ahead.max(self.last).max(floor.unwrap_or(0)).min(TOKEN_STORED_MAX)
    }

    /// Records that a lock has this token. Tokens that are issued later with a floor are larger.
    pub fn raise(&mut self, token: Token) {
        self.last = self.last.max(token.0);
    }

    /// Issues the token of a new grant. With a floor, it is larger than every token issued before,
    /// than `stored` and than `floor`. A `stored` token that [`Self::believe`] rejects does not count.
    ///
    /// Without a floor, because the slot is moving, the token is just above `stored`. If this lock
    /// is deleted before its slot has moved, the other node knows only the floor. That floor was
    /// reserved when `stored` was issued, at least 10,000 tokens above it. The tokens of other locks
    /// and the clock of this server do not count: they may be far above that floor, and the other
    /// node knows neither. The caller asks for no token if it knows neither a floor nor a stored
    /// token.
    pub fn issue(&mut self, stored: Option<Token>, floor: Option<u64>, unix_us: u64) -> Token {
        let stored = self.believe(stored).map(Token::value);
        let next = match (floor, stored) {
            (None, Some(stored)) => stored.saturating_add(1),
            _ => {
                // A clock beyond the year 2112 must not use up the numbers. Beyond the cap, tokens
                // grow one by one.
                let clock = unix_us.min(TOKEN_STORED_MAX);
                let floor = floor.unwrap_or(0).min(TOKEN_STORED_MAX);
                let before = self.last.max(stored.unwrap_or(0)).max(floor);
                before.saturating_add(1).max(clock)
            }
        };
        self.last = self.last.max(next);
        Token(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_follow_the_clock_and_never_decrease() {
        let mut source = TokenSource::default();
        let first = source.issue(None, None, 1_000);
        assert_eq!(first.value(), 1_000);
        let same_microsecond = source.issue(None, None, 1_000);
        assert_eq!(same_microsecond.value(), 1_001);
        let clock_set_back = source.issue(None, None, 10);
        assert_eq!(clock_set_back.value(), 1_002);
    }

    #[test]
    fn a_token_in_the_hash_or_a_floor_raises_the_next_one() {
        let mut source = TokenSource::default();
        let stored = Token::from_stored(5_000);
        assert_eq!(source.issue(stored, None, 1_000).value(), 5_001);
        assert_eq!(source.issue(None, Some(9_000), 1_000).value(), 9_001);
    }

    #[test]
    fn without_a_floor_neither_other_locks_nor_the_clock_raise_a_token() {
        let mut source = TokenSource::default();
        source.raise(Token(90_000));
        assert_eq!(source.issue(Token::from_stored(5_000), None, 7_000).value(), 5_001);
        assert_eq!(source.issue(Token::from_stored(5_000), Some(0), 7_000).value(), 90_001);
    }

    #[test]
    fn a_raised_token_raises_the_next_one_and_never_lowers_it() {
        let mut source = TokenSource::default();
        source.raise(Token(5_000));
        assert_eq!(source.issue(None, None, 1_000).value(), 5_001);
        source.raise(Token(7));
        assert_eq!(source.issue(None, None, 1_000).value(), 5_002);
    }

    #[test]
    fn tokens_can_be_raised_by_a_day_and_not_by_a_day_each_time() {
        let mut source = TokenSource::default();
        let most = source.most(None, 1_000);
        assert_eq!(most, 1_000 + RAISE_AHEAD_US);
        source.raise(Token(most));
        assert_eq!(source.most(None, 1_000), most);
        assert_eq!(source.most(Some(most + 5), 1_000), most + 5);
        assert_eq!(source.most(None, u64::MAX), TOKEN_STORED_MAX);
    }

    #[test]
    fn a_stored_token_reads_as_it_was_written_and_not_as_a_number() {
        for (value, text) in [(1, "t1"), (10, "t10"), (1_795_202_270_794_123, "t1795202270794123")]
        {
            let token = Token(value);
            assert_eq!(token.text().as_bytes(), text.as_bytes());
            assert_eq!(Token::read(text.as_bytes()), Some(token));
        }
        let largest = Token((1 << 53) - 1);
        assert_eq!(Token::read(largest.text().as_bytes()), Some(largest));
        for other in ["", "t", "5", "T5", "t05", "tt5", "t5 ", "t9007199254740992"] {
            assert_eq!(Token::read(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn poisoned_values_are_ignored() {
        assert_eq!(Token::from_stored(0), None);
        assert_eq!(Token::from_stored(u64::MAX), None);
        assert_eq!(Token::from_stored(1 << 53), None);
        let mut source = TokenSource::default();
        let token = source.issue(None, Some(u64::MAX), u64::MAX);
        assert_eq!(token.value(), TOKEN_STORED_MAX + 1);
        assert_eq!(source.issue(None, None, 0).value(), TOKEN_STORED_MAX + 2);
    }
}
