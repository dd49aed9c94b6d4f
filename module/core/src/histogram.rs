//! A histogram of durations, with a fixed size and a few instructions for each value.

/// Number of buckets: up to 1 ms, 2 ms, 4 ms, … 35 minutes, and longer.
const BUCKETS: usize = 23;

/// A histogram of durations. The limit of each bucket is twice that of the previous one. So the
/// limit is less than twice the recorded value, except in the first and the last bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    buckets: [u64; BUCKETS],
    sum_us: u64,
}

impl Histogram {
    /// Records a duration in microseconds, `times` times.
    pub(crate) fn record(&mut self, micros: u64, times: u64) {
        let millis = micros.div_ceil(1000);
        // The exponent of the smallest power of two that is not below `millis`.
        let bits = u64::BITS.saturating_sub(millis.saturating_sub(1).leading_zeros());
        let bucket = usize::try_from(bits).unwrap_or(BUCKETS).min(BUCKETS.saturating_sub(1));
        if let Some(bucket) = self.buckets.get_mut(bucket) {
            *bucket = bucket.saturating_add(times);
        }
        self.sum_us = self.sum_us.saturating_add(micros.saturating_mul(times));
    }

    /// Sum of all recorded durations, in microseconds.
    #[must_use]
    pub fn sum_us(&self) -> u64 {
        self.sum_us
    }

    /// Number of recorded values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, bucket| sum.saturating_add(*bucket))
    }

    /// Returns the buckets that are not empty. Each has its upper limit in milliseconds, `None` for
    /// the last bucket, and the number of values between the previous limit and its own.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        let ends = (0..u32::try_from(BUCKETS.saturating_sub(1)).unwrap_or(0)).map(|n| Some(1 << n));
        let all = ends.chain([None]).zip(self.buckets);
        all.filter(|(_, counted)| *counted > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(micros: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        micros.iter().for_each(|micros| histogram.record(*micros, 1));
        histogram
    }

    #[test]
    fn each_value_is_in_its_first_matching_bucket() {
        let millis = [0, 1, 2, 3, 4, 5, 1 << 21, (1 << 21) + 1].map(|millis| millis * 1000);
        let found: Vec<_> = of(&millis).buckets().collect();
        let minutes = Some(1 << 21);
        let expected =
            [(Some(1), 2), (Some(2), 1), (Some(4), 2), (Some(8), 1), (minutes, 1), (None, 1)];
        assert_eq!(found, expected);
        assert_eq!(of(&[1001, 1 << 40]).buckets().collect::<Vec<_>>(), [(Some(2), 1), (None, 1)]);
        let mut histogram = of(&[3000]);
        histogram.record(2500, 8);
        assert_eq!((histogram.count(), histogram.sum_us()), (9, 23_000));
        assert_eq!(of(&[999, 1000, 5]).buckets().collect::<Vec<_>>(), [(Some(1), 3)]);
    }

    proptest! {
        #[test]
        fn buckets_are_cumulative_and_lose_nothing(
            micros in prop::collection::vec(0..10_000_000_000_u64, 0..50)
        ) {
            let histogram = of(&micros);
            prop_assert_eq!(histogram.count(), micros.len() as u64);
            prop_assert_eq!(histogram.sum_us(), micros.iter().sum::<u64>());
            let mut before = 0;
            for (end, counted) in histogram.buckets() {
                let reached = micros.iter().filter(|micros| end.is_none_or(|end| **micros <= end * 1000));
                before += counted;
                prop_assert_eq!(reached.count() as u64, before);
            }
        }
    }
}
