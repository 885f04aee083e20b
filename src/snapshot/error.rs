//! Why a candidate cannot be taken.

use std::io;
use std::path::PathBuf;

/// Why a candidate cannot be taken, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The candidate directory itself.
    #[error("the candidate {} is not a directory", path.display())]
    NotADirectory {
        /// What was named.
        path: PathBuf,
    },
    /// A file or directory cannot be read.
    #[error("cannot read {} of the candidate", path.display())]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A link that leads out of the candidate.
    #[error("the symbolic link {} leads out of the candidate, to {}", path.display(), target.display())]
    EscapingLink {
        /// The link.
        path: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// A fifo, socket or device.
    #[error("{} is a {kind}, which cannot be staged", path.display())]
    Special {
        /// The path.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// Too much.
    #[error("the candidate has {found}, more than the limit of {limit}; the largest parts are {largest}")]
    TooLarge {
        /// How much.
        found: String,
        /// How much is allowed.
        limit: String,
        /// Its largest parts.
        largest: String,
    },
    /// A file that is being written to.
    #[error("{} changed while it was read", path.display())]
    Changed {
        /// The path.
        path: PathBuf,
    },
    /// git does not say what it tracks.
    #[error("git cannot list what it tracks in {}: {message}", path.display())]
    Git {
        /// The candidate.
        path: PathBuf,
        /// The first line of what git said.
        message: String,
    },
    /// The archive cannot be written to where it goes.
    #[error("cannot write the archive")]
    Write(#[source] io::Error),
}

impl SnapshotError {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotADirectory { .. } => Some("name the candidate's directory with -C DIR"),
            Self::EscapingLink { .. } => Some(
                "only the candidate travels: replace the link by what it points to, or ignore it in .gitignore",
            ),
            Self::Special { .. } => Some("remove it, or ignore it in .gitignore"),
            Self::TooLarge { .. } => Some(
                "keep data and models on the cluster's own storage; name what need not travel in .gitignore, or in .git/info/exclude",
            ),
            Self::Changed { .. } => Some("wait until nothing writes to the candidate, then try again"),
            Self::Unreadable { .. } => Some("make it readable, or ignore it in .gitignore"),
            Self::Git { .. } => {
                Some("make `git ls-files` work in that directory; tracked files must not be lost unseen")
            }
            Self::Write(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_about_the_candidate_names_the_path_and_what_to_do() {
        let path = || PathBuf::from("a/path");
        let errors = [
            SnapshotError::NotADirectory { path: path() },
            SnapshotError::Unreadable {
                path: path(),
                source: io::ErrorKind::PermissionDenied.into(),
            },
            SnapshotError::EscapingLink {
                path: path(),
                target: "/etc".into(),
            },
            SnapshotError::Special {
                path: path(),
                kind: "fifo",
            },
            SnapshotError::TooLarge {
                found: "2 files".into(),
                limit: "1 files".into(),
                largest: "a/path (1 MiB, 2 files)".into(),
            },
            SnapshotError::Changed { path: path() },
            SnapshotError::Git {
                path: path(),
                message: "dubious ownership".into(),
            },
        ];
        for error in errors {
            assert!(error.to_string().contains("a/path"), "{error}");
            assert!(error.hint().is_some(), "{error}");
        }
    }
}
