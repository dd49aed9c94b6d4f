//! Choices read from bytes. The bytes come from proptest, which shrinks them after a failure, or
//! from a fuzzer, which has no other input.

/// The bytes that are left. After the last one, zeros follow.
#[derive(Debug)]
pub struct Bytes<'a>(pub(crate) &'a [u8]);

impl Bytes<'_> {
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }

    /// Returns one of `count` numbers, starting at `least`.
    pub fn number(&mut self, least: u64, count: u8) -> u64 {
        least + u64::from(self.byte() % count)
    }

    pub fn perhaps(&mut self, least: u64, count: u8) -> Option<u64> {
        self.flag().then(|| self.number(least, count))
    }

    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}
