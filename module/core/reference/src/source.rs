//! Choices that are read from bytes: for a fuzzer, which knows nothing else.

/// What is left of the bytes. When there are no more of them, zeros follow.
#[derive(Debug)]
pub struct Bytes<'a>(pub &'a [u8]);

impl Bytes<'_> {
    pub fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub fn below(&mut self, end: usize) -> usize {
        usize::from(self.next()) % end
    }

    pub fn flag(&mut self) -> bool {
        self.next() & 1 == 1
    }

    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Something, over and over until there are no more bytes, so often at most.
    pub fn all<T>(&mut self, most: usize, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let mut all = Vec::new();
        while !self.0.is_empty() && all.len() < most {
            all.push(one(self));
        }
        all
    }
}
