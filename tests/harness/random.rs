//! Random numbers from a seed, so that a run can be repeated.

use crate::commit::commit;
use crate::kind::Kind;
use crate::options::chosen_io_threads;
use clap::Args;
use fastrand::Rng;
use std::time::SystemTime;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random {
    seed: u64,
    numbers: Rng,
}

impl Random {
    /// Creates the stream of the given seed.
    pub fn new(seed: u64) -> Self {
        Self { seed, numbers: Rng::with_seed(seed) }
    }

    /// A separate stream for a part of the work, such as a thread.
    pub fn part(&self, number: u64) -> Self {
        let seed = Rng::with_seed(self.seed).u64(..) ^ Rng::with_seed(number).u64(..);
        Self::new(seed)
    }

    /// A number from 0 to `end - 1`. `end` must not be 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.numbers.u64(..end)
    }

    /// True with the given probability, in percent.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A random element of `choices`.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.numbers.usize(..choices.len())]
    }

    /// Puts the elements in a random order.
    pub fn shuffle<T>(&mut self, all: &mut [T]) {
        self.numbers.shuffle(all);
    }

    /// A random element of `choices`, with a probability in proportion to its weight.
    pub fn weighted<'a, T>(&mut self, choices: &'a [T], weight: impl Fn(&T) -> u64) -> &'a T {
        let mut drawn = self.below(choices.iter().map(&weight).sum());
        let mut all = choices.iter();
        loop {
            let choice = all.next().expect("one of them is drawn");
            match drawn.checked_sub(weight(choice)) {
                Some(rest) => drawn = rest,
                None => return choice,
            }
        }
    }
}

/// The option `--seed` of a program.
#[derive(Args, Clone, Copy, Debug)]
pub struct Seed {
    /// Random seed (default: from the clock); the timing of threads still varies
    #[arg(
        long = "seed",
        value_name = "S",
        default_value_t = of_the_clock(),
        hide_default_value = true,
    )]
    pub number: u64,
}

impl Seed {
    /// The seed of one part of a run on the chosen server: a hash of this seed, the name and the server.
    /// With one seed for all parts, each part would draw the same numbers.
    #[must_use]
    pub fn of_part(self, name: &str) -> Self {
        Self { number: hash(&[name, Kind::chosen().name(), &self.number.to_string()]) }
    }

    /// The commit, server, number of I/O threads (if set) and seed of a run, as text.
    pub fn origin(&self) -> String {
        let kind = Kind::chosen();
        let threads = chosen_io_threads().map(|n| format!(" with {n} I/O threads"));
        let threads = threads.unwrap_or_default();
        format!("commit {}, {kind} {}{threads}, seed {}", commit(), kind.version(), self.number)
    }
}

/// The FNV-1a hash of the words.
fn hash(words: &[&str]) -> u64 {
    let bytes = words.iter().flat_map(|word| word.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A seed from the clock, below a billion, so that it is short enough to type.
fn of_the_clock() -> u64 {
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::from(clock.subsec_nanos())
}

#[cfg(test)]
mod tests {
    use super::Seed;

    #[test]
    fn parts_of_a_run_have_different_seeds() {
        let seed = Seed { number: 71 };
        let of = |name| seed.of_part(name).number;
        assert_eq!(of("pair/default"), of("pair/default"));
        assert_ne!(of("pair/default"), of("pair/min_replicas"));
        assert_ne!(of("pair/default"), Seed { number: 72 }.of_part("pair/default").number);
    }
}
