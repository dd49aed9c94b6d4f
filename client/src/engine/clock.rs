//! The clock of leases, and the safety margin before their end.

use std::fmt;
use std::time::Duration;

/// The clock with which the validity of leases is measured.
///
/// The default on Linux and Android is `CLOCK_BOOTTIME`, which counts the time in which the machine was
/// suspended. There, [`Instant`](std::time::Instant) does not count it, and the wall clock can jump. Use
/// another clock for tests.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use std::time::Duration;
///
/// #[derive(Debug, Default)]
/// struct ByHand(AtomicU64);
///
/// impl kvlock::Clock for &'static ByHand {
///     fn now(&self) -> Duration {
///         Duration::from_millis(self.0.load(Ordering::SeqCst))
///     }
/// }
///
/// let clock: &'static ByHand = Box::leak(Box::default());
/// let builder = kvlock::Client::builder().clock(clock);
/// # let _ = builder;
/// ```
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Returns the time since a fixed moment of the clock's choice. Never decreases.
    fn now(&self) -> Duration;
}

/// The clock of the machine.
#[derive(Debug)]
pub(crate) struct Boottime;

#[cfg(any(target_os = "linux", target_os = "android"))]
impl Clock for Boottime {
    fn now(&self) -> Duration {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        // The kernel returns neither negative seconds nor a second or more of nanoseconds.
        let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
        Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default())
    }
}

/// Elsewhere the monotonic clock is used; on some systems it stops during a suspend.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
impl Clock for Boottime {
    fn now(&self) -> Duration {
        static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        START.get_or_init(std::time::Instant::now).elapsed()
    }
}

/// A moment of a [`Clock`], in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(pub(crate) u64);

impl Moment {
    /// The earliest moment.
    pub(crate) const LONG_AGO: Self = Self(0);
    /// The latest moment, which never comes.
    pub(crate) const NEVER: Self = Self(u64::MAX);

    pub(crate) fn of(clock: &dyn Clock) -> Self {
        // Saturates 584 years after the clock started.
        Self(nanos(clock.now()))
    }

    /// Returns the moment that is later by `duration`.
    #[must_use]
    pub(crate) fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }

    /// Returns the time from `now` to this moment; zero if it has passed.
    #[must_use]
    pub(crate) fn left_at(self, now: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(now.0))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Part of each lease at the server that a holder may not use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SafetyMargin {
    /// Minimum time from the moment at which the lock counts as lost for its holder to the end of the lease at
    /// the server. For a short lease it is a quarter of the lease, if that is less.
    pub(crate) margin: Duration,
}

impl SafetyMargin {
    /// Returns a moment no later than the start of a lease that was granted `waited` after the wait arrived.
    /// `waited` is measured by the server, in whole milliseconds; `sent` is when the wait was sent.
    pub(crate) fn granted(&self, sent: Moment, waited: Duration) -> Moment {
        let waited = waited.saturating_sub(Duration::from_millis(1));
        sent.after(waited - waited / Self::DRIFT)
    }

    /// Largest difference in rate between two clocks: one part in this many.
    const DRIFT: u32 = 100;
    /// Rounding of the server, which counts whole milliseconds of a clock that it reads once per turn of
    /// its loop.
    const ROUNDING: Duration = Duration::from_millis(2);

    /// Returns the moment until which a holder may count on a lease that was requested at `sent`. The server
    /// frees the lock no earlier than a [`margin`](Self::margin) after that moment. The margin is at most a
    /// quarter of the lease.
    pub(crate) fn until(&self, sent: Moment, lease: Duration) -> Moment {
        let margin = self.margin.min(lease / 4);
        let unsure = lease / Self::DRIFT + Self::ROUNDING + margin;
        sent.after(lease.saturating_sub(unsure))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A suspend moves `CLOCK_BOOTTIME` ahead of `CLOCK_MONOTONIC`, as does the offset of a time namespace. This
    /// test runs itself again in such a namespace.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_clock_counts_the_time_of_a_suspend() {
        use std::process::Command;
        const INSIDE: &str = "KVLOCK_TEST_IN_TIME_NAMESPACE";
        const AHEAD_S: u64 = 1_000_000;
        if std::env::var_os(INSIDE).is_some() {
            println!("\nseconds {}", Boottime.now().as_secs());
            return;
        }
        let before = Boottime.now().as_secs();
        // Without root, a user namespace is needed, too.
        let output = Command::new("unshare")
            .args(["--map-root-user", "--time", "--boottime", &AHEAD_S.to_string()])
            .arg(std::env::current_exe().unwrap())
            .args(["--nocapture", "the_clock_counts_the_time_of_a_suspend"])
            .env(INSIDE, "1")
            .output()
            .expect("unshare is part of util-linux");
        let [text, trouble] =
            [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
        let seconds = text.lines().find_map(|line| line.strip_prefix("seconds "));
        let Some(seconds) = seconds else {
            // Some containers and systems do not allow the test to create namespaces.
            assert!(trouble.starts_with("unshare: "), "{trouble}");
            println!("not tested: {trouble}");
            return;
        };
        assert!(seconds.parse::<u64>().unwrap() >= before + AHEAD_S, "{seconds} s, {before} s");
    }

    #[test]
    fn a_lease_after_a_wait_counts_from_before_the_grant() {
        let safety = SafetyMargin { margin: Duration::from_millis(500) };
        let granted = |waited| safety.granted(Moment(0), Duration::from_millis(waited));
        // One millisecond is subtracted for rounding, and a hundredth for the different rates of the clocks.
        assert_eq!(granted(1_001), Moment(0).after(Duration::from_millis(1_000 - 10)));
        assert_eq!(granted(0), Moment(0));
    }

    #[test]
    fn a_holder_counts_on_less_time_than_the_server_grants() {
        let safety = SafetyMargin { margin: Duration::from_millis(500) };
        let until = |lease| safety.until(Moment(0), Duration::from_millis(lease));
        assert_eq!(until(30_000), Moment(0).after(Duration::from_millis(30_000 - 300 - 2 - 500)));
        assert_eq!(until(1_000), Moment(0).after(Duration::from_millis(1_000 - 10 - 2 - 250)));
        assert_eq!(until(2), Moment(0));
    }
}
