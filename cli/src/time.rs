//! Durations on the command line and on the screen, and a clock that also runs while the machine is
//! suspended.

use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Parses `10s`, `1h 30m` or `500ms`. A number without a unit is seconds, as with `flock -w`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| seconds.is_finite());
    match seconds {
        Some(seconds) => Duration::try_from_secs_f64(seconds).map_err(|e| e.to_string()),
        None => humantime::parse_duration(text).map_err(|e| format!("{e}, as in 10s or 1m 30s")),
    }
}

/// Formats a duration: with tenths of a second below ten seconds, else in whole seconds.
pub(crate) fn readable(duration: Duration) -> String {
    if duration < Duration::from_secs(10) {
        return format!("{:.1}s", duration.as_secs_f64());
    }
    humantime::format_duration(Duration::from_secs(duration.as_secs())).to_string()
}

/// Returns the time since the machine started, including the time for which it was suspended. `None` if the
/// system has no such clock. Every Linux has one.
pub(crate) fn since_boot() -> Option<Duration> {
    clock_gettime(ClockId::CLOCK_BOOTTIME).ok().map(Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed() {
        for (text, millis) in [
            ("10s", 10_000),
            ("1m 30s", 90_000),
            ("1m30s", 90_000),
            ("250ms", 250),
            ("10", 10_000),
            ("0", 0),
            ("0.5", 500),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn other_text_is_refused_with_an_example() {
        for text in ["", "soon", "-1", "-1s", "10 parsecs", "nan", "inf", "1e300"] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert!(duration("soon").unwrap_err().contains("10s"));
    }

    #[test]
    fn durations_are_formatted_briefly() {
        assert_eq!(readable(Duration::from_millis(1_234)), "1.2s");
        assert_eq!(readable(Duration::from_millis(90_900)), "1m 30s");
    }
}
