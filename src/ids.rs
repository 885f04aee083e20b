//! Names of things: every identifier is a type that can only hold a well-formed value.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Why a text is not the identifier it was meant to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {expected}")]
pub struct IdError {
    /// What was given.
    pub text: String,
    /// What was wanted, with its article.
    pub expected: &'static str,
}

macro_rules! string_id {
    ($(#[$doc:meta])* $name:ident, $expected:literal, $valid:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The text of the identifier.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                let valid: fn(&str) -> bool = $valid;
                if valid(text) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(IdError { text: text.to_owned(), expected: $expected })
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }
    };
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

string_id!(
    /// One requested evaluation: 32 lower-case hex digits.
    InvocationId,
    "an invocation id (32 lower-case hex digits)",
    |text| is_hex(text, 32)
);
string_id!(
    /// An immutable copy of a candidate: the SHA-256 of its manifest, 64 lower-case hex digits.
    SnapshotId,
    "a snapshot id (64 lower-case hex digits)",
    |text| is_hex(text, 64)
);
string_id!(
    /// Our promise of compute for a run: 12 lower-case hex digits.
    LeaseId,
    "a lease id (12 lower-case hex digits)",
    |text| is_hex(text, 12)
);

impl InvocationId {
    /// A new random id.
    ///
    /// # Errors
    /// The operating system has no randomness to give.
    pub fn random() -> Result<Self, getrandom::Error> {
        Ok(Self(random_hex(16)?))
    }
}

/// `bytes` random bytes as lower-case hex.
///
/// # Errors
/// The operating system has no randomness to give.
pub fn random_hex(bytes: usize) -> Result<String, getrandom::Error> {
    let mut buffer = vec![0_u8; bytes];
    getrandom::fill(&mut buffer)?;
    Ok(hex(&buffer))
}

/// Lower-case hex of `bytes`.
pub fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            let _infallible = write!(text, "{byte:02x}");
            text
        })
}

/// One Slurm job, as `sbatch --parsable` names it: `JOBID` or `JOBID;CLUSTER`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AllocationId(pub u64);

impl fmt::Display for AllocationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl FromStr for AllocationId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        text.parse().map(Self).map_err(|_| IdError {
            text: text.to_owned(),
            expected: "a Slurm job id (a number)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invocation_id_is_32_hex_digits() {
        let id = InvocationId::random().unwrap();
        assert_eq!(id.to_string().parse::<InvocationId>().unwrap(), id);
        assert!(
            "ABCDEF0123456789abcdef0123456789"
                .parse::<InvocationId>()
                .is_err()
        );
        assert!("../../../../etc/passwd".parse::<InvocationId>().is_err());
        assert!(serde_json::from_str::<InvocationId>("\"short\"").is_err());
    }
}
