//! Durations as people give them: seconds, as a decimal.

use std::time::Duration;

/// The longest duration a flag takes: 7 days, as the service's longest visibility.
const SECONDS_MAX: f64 = 7.0 * 24.0 * 3600.0;

/// Reads seconds from `0` to seven days.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let rule = || "give seconds as a plain number, as `0.5` or `60`".to_owned();
    let plain = |c: char| c.is_ascii_digit() || c == '.';
    if text.is_empty() || !text.chars().all(plain) {
        return Err(rule());
    }
    let secs: f64 = text
        .parse()
        .map_err(|_ignored: std::num::ParseFloatError| rule())?;
    if secs > SECONDS_MAX {
        return Err(format!("at most {SECONDS_MAX} seconds (7 days)"));
    }
    Duration::try_from_secs_f64(secs).map_err(|error| error.to_string())
}

/// Reads seconds above zero.
pub(super) fn some_seconds(text: &str) -> Result<Duration, String> {
    match seconds(text)? {
        Duration::ZERO => Err("must be more than 0".to_owned()),
        duration => Ok(duration),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_plain_decimals_within_a_week() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(seconds("60"), Ok(Duration::from_secs(60)));
        assert_eq!(seconds("0"), Ok(Duration::ZERO));
        for text in ["", "60s", "-1", "1e3", "inf", "NaN", ".", "1.2.3", "604801"] {
            assert!(seconds(text).is_err(), "{text}");
        }
        assert!(some_seconds("0").is_err());
    }
}
