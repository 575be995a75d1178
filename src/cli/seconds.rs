//! Durations as people give them: seconds, as a decimal; ages, with their unit.

use std::time::Duration;

use jiff::SignedDuration;

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

/// The longest age: a hundred years.
const AGE_SECS_MAX: i64 = 100 * 366 * 24 * 3600;

/// Reads an age: a whole number of seconds, minutes, hours or days, as `90s`, `90m`, `12h`, `30d`.
pub(super) fn age(text: &str) -> Result<SignedDuration, String> {
    let rule = || "give a whole number and its unit, as `90s`, `90m`, `12h` or `30d`".to_owned();
    let units = [("s", 1), ("m", 60), ("h", 3600), ("d", 24 * 3600)];
    let with_unit =
        |(unit, secs): (&str, i64)| text.strip_suffix(unit).map(|number| (number, secs));
    let (number, secs) = units.into_iter().find_map(with_unit).ok_or_else(rule)?;
    if !number.chars().all(|c| c.is_ascii_digit()) {
        return Err(rule());
    }
    let number: i64 = number
        .parse()
        .map_err(|_ignored: std::num::ParseIntError| rule())?;
    match number.checked_mul(secs) {
        Some(secs) if secs <= AGE_SECS_MAX => Ok(SignedDuration::from_secs(secs)),
        Some(_) | None => Err("at most 36600d, a hundred years".to_owned()),
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

    #[test]
    fn ages_are_whole_numbers_with_a_unit() {
        for (text, secs) in [
            ("0s", 0),
            ("90s", 90),
            ("90m", 5400),
            ("12h", 43_200),
            ("30d", 2_592_000),
        ] {
            assert_eq!(age(text), Ok(SignedDuration::from_secs(secs)), "{text}");
        }
        for text in [
            "",
            "30",
            "d",
            "-1d",
            "+1d",
            "1.5h",
            "1w",
            "1 d",
            "1D",
            "36601d",
            "99999999999999999999d",
        ] {
            assert!(age(text).is_err(), "{text}");
        }
    }
}
