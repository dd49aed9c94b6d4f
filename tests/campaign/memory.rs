//! Memory that idle servers use, from round to round.

use crate::report::Report;
use harness::{Server, observe};
use std::fmt;

/// Minimum number of rounds for a judgement: with fewer, noise could look like a leak.
const ENOUGH: usize = 150;

/// Allowed growth from the second quarter to the last, in percent. A leak of one byte in each call exceeds
/// this within an hour.
const TOLERANCE: u64 = 5;

/// Bytes used by all servers, after each round.
#[derive(Debug, Default)]
pub(crate) struct Memory(Vec<u64>);

impl Memory {
    pub(crate) fn add(&mut self, servers: Vec<&Server>) {
        let used = |server: &Server| observe::info_number(&mut server.connect(), "used_memory");
        let all: i64 = servers.into_iter().map(used).sum();
        self.0.push(all.cast_unsigned());
    }

    /// The median of each quarter of the rounds; fewer medians if there are too few rounds for four parts.
    fn quarters(&self) -> Vec<u64> {
        let rounds = self.0.len().div_ceil(4).max(1);
        self.0.chunks(rounds).map(median).collect()
    }

    /// Adds the number of rounds and the medians to the counters of the report.
    pub(crate) fn publish(&self, report: &Report) {
        report.add("rounds", self.0.len() as u64);
        for (number, bytes) in self.quarters().into_iter().enumerate() {
            report.add(&format!("bytes used, median of quarter {}", number + 1), bytes);
        }
    }

    /// A message if memory grew from the second quarter to the last; `None` if not, or if there were too few
    /// rounds. The first quarter is ignored: in it the servers still fill buffers of fixed size, such as the
    /// replication backlog.
    pub(crate) fn growth(&self) -> Option<String> {
        let [_, before, .., after] = *self.quarters() else { return None };
        let grown = after > before + before * TOLERANCE / 100;
        (self.0.len() >= ENOUGH && grown)
            .then(|| format!("Memory: it has grown from {before} to {after} bytes"))
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quarters = self.quarters();
        write!(f, "bytes used between rounds by all servers, medians of the quarters: {quarters:?}")
    }
}

fn median(rounds: &[u64]) -> u64 {
    let mut rounds = rounds.to_vec();
    rounds.sort_unstable();
    rounds.get(rounds.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::Memory;

    fn grows(rounds: u64, by: impl Fn(u64) -> u64) -> bool {
        Memory((0..rounds).map(|round| 6_000_000 + by(round)).collect()).growth().is_some()
    }

    #[test]
    fn a_leak_is_detected_and_noise_is_not() {
        assert!(grows(1000, |round| round * 1000));
        assert!(!grows(1000, |round| round % 7 * 20_000));
        assert!(!grows(1000, |round| round.min(100) * 20_000), "it grew at first only");
        assert!(!grows(100, |round| round * 10_000), "that is too few to say");
    }
}
