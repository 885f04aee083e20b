//! What is wrong with a configuration file, all of it at once.

use std::fmt;
use std::path::PathBuf;

/// One mistake in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Line and column, from 1, where they are known.
    pub place: Option<(usize, usize)>,
    /// What is wrong, with what was expected.
    pub message: String,
}

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file is not there.
    #[error("there is no cluster profile file at {}", path.display())]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file is wrong.
    #[error("{}", Listing { path, problems })]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Everything that is wrong with it.
        problems: Vec<Problem>,
    },
    /// No profile of that name.
    #[error("unknown cluster profile `{name}`; available profiles: {}", available.join(", "))]
    UnknownProfile {
        /// What was asked for.
        name: String,
        /// What there is.
        available: Vec<String>,
        /// The nearest of them.
        nearest: Option<String>,
    },
}

impl ConfigError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Missing { .. } => Some(
                "copy examples/clusters.toml there and fill it in, name another file with --cluster-profiles-file, \
                 or use `--cluster-profile local`, which needs no file"
                    .to_owned(),
            ),
            Self::UnknownProfile { nearest: Some(name), .. } => Some(format!("did you mean `{name}`?")),
            Self::Unreadable { .. } | Self::Invalid { .. } | Self::UnknownProfile { .. } => None,
        }
    }
}

struct Listing<'a> {
    path: &'a PathBuf,
    problems: &'a [Problem],
}

impl fmt::Display for Listing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            match problem.place {
                Some((line, column)) => write!(f, "{path}:{line}:{column}: {}", problem.message)?,
                None => write!(f, "{path}: {}", problem.message)?,
            }
        }
        Ok(())
    }
}

/// The name of `known` that is nearest to `word`, if any is near enough to be meant.
pub(super) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(word, name), name))
        .min()
        .filter(|(distance, name)| *distance <= 2.max(name.len() / 3))
        .map(|(_, name)| name)
}
