//! Slurm's times: limits as sbatch(1) takes them, and points in time as squeue(1), sacct(1) and scontrol(1) print them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

/// A finite time limit. Always printed as `D-HH:MM:SS`, the one form that nothing reads differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Walltime {
    seconds: u64,
}

impl Walltime {
    /// A limit of so many seconds.
    pub fn from_seconds(seconds: u64) -> Self {
        Self { seconds }
    }

    /// Its length in seconds.
    pub fn seconds(self) -> u64 {
        self.seconds
    }

    /// Its length.
    pub fn duration(self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

impl fmt::Display for Walltime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, rest) = (self.seconds / 86_400, self.seconds % 86_400);
        let text = format!("{days}-{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
        f.pad(&text)
    }
}

/// Why a text is not a time limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a time limit of Slurm (M, M:S, H:M:S, D-H, D-H:M or D-H:M:S)")]
pub struct WalltimeError {
    /// What was given.
    pub text: String,
}

impl FromStr for Walltime {
    type Err = WalltimeError;

    /// Reads all six forms of sbatch(1) `--time`. Note that `M:S` is minutes and seconds, `D-H` days and hours.
    fn from_str(text: &str) -> Result<Self, WalltimeError> {
        walltime(text.trim()).ok_or_else(|| WalltimeError {
            text: text.to_owned(),
        })
    }
}

fn walltime(text: &str) -> Option<Walltime> {
    let number = |text: &str| -> Option<u64> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse().ok()).flatten()
    };
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(number(days)?), rest),
        None => (None, text),
    };
    let parts = rest.split(':').map(number).collect::<Option<Vec<u64>>>()?;
    // (days, hours, minutes, seconds)
    let (days, hours, minutes, seconds) = match (days, parts.as_slice()) {
        (None, [minutes]) => (0, 0, *minutes, 0),
        (None, [minutes, seconds]) => (0, 0, *minutes, *seconds),
        (None, [hours, minutes, seconds]) => (0, *hours, *minutes, *seconds),
        (Some(days), [hours]) => (days, *hours, 0, 0),
        (Some(days), [hours, minutes]) => (days, *hours, *minutes, 0),
        (Some(days), [hours, minutes, seconds]) => (days, *hours, *minutes, *seconds),
        (None | Some(_), _) => return None,
    };
    let seconds = days
        .checked_mul(86_400)?
        .checked_add(hours.checked_mul(3600)?)?
        .checked_add(minutes.checked_mul(60)?)?
        .checked_add(seconds)?;
    Some(Walltime { seconds })
}

impl TryFrom<String> for Walltime {
    type Error = WalltimeError;

    fn try_from(text: String) -> Result<Self, WalltimeError> {
        text.parse()
    }
}

impl From<Walltime> for String {
    fn from(walltime: Walltime) -> Self {
        walltime.to_string()
    }
}

/// A time limit as Slurm reports it, which need not be a time (squeue(1) `%l`, sacct(1) Timelimit, scontrol(1)).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum TimeLimit {
    /// So long.
    Finite(Walltime),
    /// `UNLIMITED`, or `infinite` of sinfo(1).
    Unlimited,
    /// `Partition_Limit`: that of the partition.
    PartitionLimit,
    /// `NOT_SET`, `NONE`, `INVALID`, `N/A`, or nothing.
    NotSet,
    /// Something else, kept as it came: unknown, never zero.
    Unknown(String),
}

impl TimeLimit {
    /// Reads a limit in Slurm's time forms.
    pub fn parse(text: &str) -> Self {
        let text = text.trim();
        match text.to_ascii_lowercase().as_str() {
            "unlimited" | "infinite" => Self::Unlimited,
            "partition_limit" => Self::PartitionLimit,
            "" | "not_set" | "none" | "invalid" | "n/a" | "(null)" => Self::NotSet,
            _ => text
                .parse()
                .map_or_else(|_| Self::Unknown(text.to_owned()), Self::Finite),
        }
    }

    /// Reads a limit in plain minutes, or in words (sacct(1) TimelimitRaw).
    pub fn parse_minutes(text: &str) -> Self {
        match text.trim().parse::<u64>() {
            Ok(minutes) => Self::Finite(Walltime::from_seconds(minutes.saturating_mul(60))),
            Err(_) => Self::parse(text),
        }
    }

    /// The limit, if it is one.
    pub fn finite(&self) -> Option<Walltime> {
        match self {
            Self::Finite(walltime) => Some(*walltime),
            Self::Unlimited | Self::PartitionLimit | Self::NotSet | Self::Unknown(_) => None,
        }
    }
}

impl fmt::Display for TimeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finite(walltime) => walltime.fmt(f),
            Self::Unlimited => f.pad("UNLIMITED"),
            Self::PartitionLimit => f.pad("Partition_Limit"),
            Self::NotSet => f.pad("NOT_SET"),
            Self::Unknown(text) => f.pad(text),
        }
    }
}

impl From<String> for TimeLimit {
    fn from(text: String) -> Self {
        Self::parse(&text)
    }
}

impl From<TimeLimit> for String {
    fn from(limit: TimeLimit) -> Self {
        limit.to_string()
    }
}

/// A point in time in seconds since the epoch, as every tool prints it under `SLURM_TIME_FORMAT=%s`.
///
/// `Unknown`, `None`, `N/A`, `NONE`, 0 and the empty text are no point in time. Neither is a local time: it lacks its zone.
pub fn epoch(text: &str) -> Option<Timestamp> {
    let seconds: i64 = text.trim().parse().ok()?;
    if seconds <= 0 {
        return None;
    }
    Timestamp::from_second(seconds).ok()
}

/// A point in time in either form, a local one read in the cluster's zone (`2026-12-01T04:31:08`, slurm.conf(5)).
pub fn time_in(text: &str, zone: &TimeZone) -> Option<Timestamp> {
    if let Some(time) = epoch(text) {
        return Some(time);
    }
    let local: DateTime = text.trim().parse().ok()?;
    zone.to_timestamp(local).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn all_six_forms_are_read() {
        for (text, seconds) in [
            ("5", 300),
            ("5:30", 330),
            ("1:00:00", 3600),
            ("2-12", 216_000),
            ("2-12:30", 217_800),
            ("1-02:03:04", 93_784),
            ("0", 0),
            ("90:00:00", 324_000),
        ] {
            assert_eq!(text.parse::<Walltime>().unwrap().seconds(), seconds, "{text}");
        }
        for text in [
            "",
            "-",
            "1-",
            "-1",
            "1:2:3:4",
            "1-2:3:4:5",
            "1h",
            "8 h",
            "99999999999999999999",
            "1-+2",
        ] {
            assert!(text.parse::<Walltime>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_limit_is_always_printed_in_full() {
        assert_eq!("90".parse::<Walltime>().unwrap().to_string(), "0-01:30:00");
        assert_eq!("25:00:00".parse::<Walltime>().unwrap().to_string(), "1-01:00:00");
    }

    #[test]
    fn what_is_no_limit_is_never_zero() {
        assert_eq!(TimeLimit::parse("UNLIMITED"), TimeLimit::Unlimited);
        assert_eq!(TimeLimit::parse("infinite"), TimeLimit::Unlimited);
        assert_eq!(TimeLimit::parse("Partition_Limit"), TimeLimit::PartitionLimit);
        assert_eq!(TimeLimit::parse("INVALID"), TimeLimit::NotSet);
        assert_eq!(TimeLimit::parse("soon"), TimeLimit::Unknown("soon".into()));
        assert_eq!(TimeLimit::parse("soon").finite(), None);
        assert_eq!(TimeLimit::parse_minutes("90").finite().unwrap().seconds(), 5400);
        assert_eq!(
            TimeLimit::parse_minutes("Partition_Limit"),
            TimeLimit::PartitionLimit
        );
    }

    #[test]
    fn points_in_time_come_from_the_epoch_or_with_a_zone() {
        assert_eq!(epoch("1700000000").unwrap().as_second(), 1_700_000_000);
        for text in ["Unknown", "None", "N/A", "NONE", "", "0", "2026-12-01T04:31:08"] {
            assert_eq!(epoch(text), None, "{text}");
        }
        let zurich = TimeZone::fixed(jiff::tz::offset(1));
        let time = time_in("2026-12-01T04:31:08", &zurich).unwrap();
        assert_eq!(time.to_string(), "2026-12-01T03:31:08Z");
        assert_eq!(time_in("Unknown", &zurich), None);
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(seconds in 0_u64..100_000_000) {
            let limit = Walltime::from_seconds(seconds);
            prop_assert_eq!(limit.to_string().parse::<Walltime>().unwrap(), limit);
        }

        #[test]
        fn no_text_is_too_odd(text in ".*") {
            let limit = TimeLimit::parse(&text);
            prop_assert_eq!(TimeLimit::parse(&limit.to_string()), limit);
            let _ = epoch(&text);
            let _ = time_in(&text, &TimeZone::UTC);
        }
    }
}
