//! Random numbers that a seed decides, so that a run can be repeated.

/// A stream of numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of that seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A stream of its own for a part of the work, such as a thread.
    pub fn part(&self, number: u64) -> Self {
        let mut part = Self(self.0 ^ number.wrapping_mul(0xA076_1D64_78BD_642F));
        part.next();
        part
    }

    /// Any number (splitmix64).
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below that, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True in so many cases of a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        let index = self.below(choices.len() as u64);
        &choices[usize::try_from(index).expect("an index")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_all_of_it_and_parts_differ() {
        let numbers = |mut random: Random| -> Vec<u64> { (0..9).map(|_| random.next()).collect() };
        let seven = Random::new(7);
        assert_eq!(numbers(seven.clone()), numbers(Random::new(7)));
        assert_ne!(numbers(seven.part(1)), numbers(seven.part(2)));
        assert_ne!(numbers(seven.part(1)), numbers(Random::new(8).part(1)));
    }
}
