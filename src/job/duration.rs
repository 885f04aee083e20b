//! Spans of time as people write them.

use std::time::Duration;

/// A text that is no span of time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// A number without a unit could be seconds, minutes or hours.
    #[error("`{0}` has no unit: write `{0}s`, `{0}m` or `{0}h`")]
    NoUnit(String),
    /// Anything else.
    #[error("`{0}` is not a time span: write for example `90s`, `30m`, `1h30m` or `01:30:00`")]
    Invalid(String),
    /// Slurm's form was asked for.
    #[error("`{0}` is not a time limit: write `[DAYS-]HOURS:MM:SS`, more than zero, for example `08:00:00`")]
    Walltime(String),
}

/// Reads `90s`, `30m`, `1h30m`, `2d` or `[D-]HH:MM:SS`. More than zero.
///
/// # Errors
/// See [`DurationError`].
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let text = text.trim();
    if text.contains(':') {
        return parse_walltime(text);
    }
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(DurationError::NoUnit(text.to_owned()));
    }
    let invalid = || DurationError::Invalid(text.to_owned());
    let (mut total, mut digits, mut last) = (0_u64, String::new(), u64::MAX);
    for c in text.chars() {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        let unit = match c {
            'd' => 86_400,
            'h' => 3600,
            'm' => 60,
            's' => 1,
            _ => return Err(invalid()),
        };
        // Larger units come first, each once: `30m1h` is more likely a slip than a wish.
        if unit >= last {
            return Err(invalid());
        }
        last = unit;
        let number: u64 = digits.parse().map_err(|_| invalid())?;
        digits.clear();
        total = number
            .checked_mul(unit)
            .and_then(|seconds| total.checked_add(seconds))
            .ok_or_else(invalid)?;
    }
    if total == 0 || !digits.is_empty() {
        return Err(invalid());
    }
    Ok(Duration::from_secs(total))
}

/// Reads `[DAYS-]HOURS:MM:SS` (sbatch(1), --time); minutes and seconds below 60, hours below 24 after days.
///
/// # Errors
/// [`DurationError::Walltime`].
pub fn parse_walltime(text: &str) -> Result<Duration, DurationError> {
    let invalid = || DurationError::Walltime(text.to_owned());
    let number = |text: &str| -> Option<u64> {
        (!text.is_empty() && text.len() <= 6 && text.bytes().all(|b| b.is_ascii_digit()))
            .then(|| text.parse().ok())
            .flatten()
    };
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(number(days).ok_or_else(invalid)?), rest),
        None => (None, text),
    };
    let parts: Vec<u64> = rest
        .split(':')
        .map(number)
        .collect::<Option<_>>()
        .ok_or_else(invalid)?;
    let [hours, minutes, seconds] = parts[..] else {
        return Err(invalid());
    };
    let total = days.unwrap_or(0) * 86_400 + hours * 3600 + minutes * 60 + seconds;
    if minutes >= 60 || seconds >= 60 || (days.is_some() && hours >= 24) || total == 0 {
        return Err(invalid());
    }
    Ok(Duration::from_secs(total))
}

/// `D-HH:MM:SS`, the one form of a time limit that no version of Slurm reads differently (sbatch(1)).
pub fn walltime(duration: Duration) -> String {
    let seconds = duration.as_secs();
    format!(
        "{}-{:02}:{:02}:{:02}",
        seconds / 86_400,
        seconds / 3600 % 24,
        seconds / 60 % 60,
        seconds % 60
    )
}

/// A span in the words of a sentence: `1 h 5 min`, `42 s`, `310 ms`.
pub fn in_words(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{} ms", duration.as_millis()),
        1..=59 => format!("{:.1} s", duration.as_secs_f64()),
        60..=3599 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..=86_399 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_people_write_are_read() {
        for (text, seconds) in [
            ("90s", 90),
            ("30m", 1800),
            ("1h30m", 5400),
            ("2d", 172_800),
            ("01:30:00", 5400),
            ("1-00:00:01", 86_401),
        ] {
            assert_eq!(
                parse_duration(text).unwrap(),
                Duration::from_secs(seconds),
                "{text}"
            );
        }
        assert_eq!(walltime(Duration::from_secs(90_061)), "1-01:01:01");
    }

    #[test]
    fn the_others_are_refused_with_a_way_out() {
        assert!(parse_duration("30").unwrap_err().to_string().contains("30m"));
        for text in [
            "",
            "s",
            "1x",
            "0s",
            "30m1h",
            "1h1h",
            "-5m",
            "99999999999999999999h",
            "1.5h",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        for text in ["1-24:00:00", "00:00:00", "1:60:00", "48:00", "8"] {
            assert!(parse_walltime(text).is_err(), "{text}");
        }
        assert!(parse_walltime("48:00:00").is_ok());
    }
}
