//! What git tracks, asked of git once.

use std::path::Path;
use std::process::{Command, Stdio};

use super::error::SnapshotError;

/// Variables that would make git look at another repository than the candidate's own (`git rev-parse --local-env-vars`),
/// as they are set within a hook or an alias.
const FOREIGN: [&str; 12] = [
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_CEILING_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_CONFIG",
    "GIT_CONFIG_COUNT",
    "GIT_CONFIG_PARAMETERS",
    "GIT_DIR",
    "GIT_INDEX_FILE",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_WORK_TREE",
];

/// Whether `root` (canonical) stands in a work tree of git, by the look of it.
pub(super) fn is_work_tree(root: &Path) -> bool {
    root.ancestors()
        .any(|directory| directory.join(".git").symlink_metadata().is_ok())
}

/// The paths below `root` that git tracks, in git's order, which is by bytes.
///
/// The candidate may have been edited by somebody who must not run anything here, its `.git/config` too, so the settings
/// by which git starts programs (`core.fsmonitor`, hooks) are overruled.
pub(super) fn tracked(root: &Path) -> Result<Vec<Vec<u8>>, SnapshotError> {
    let mut command = Command::new("git");
    for name in FOREIGN {
        command.env_remove(name);
    }
    let output = command
        .args([
            "-c",
            "core.fsmonitor=false",
            "-c",
            "core.hooksPath=/dev/null",
            "-C",
        ])
        .arg(root)
        .args(["ls-files", "-z", "--cached"])
        .env("GIT_OPTIONAL_LOCKS", "0")
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            tracing::warn!(
                "git is not installed here: tracked files that an ignore rule matches are left out"
            );
            return Ok(Vec::new());
        }
        Err(error) => return Err(failed(root, error.to_string())),
    };
    if output.status.success() {
        let paths = output.stdout.split(|byte| *byte == 0);
        return Ok(paths
            .filter(|path| !path.is_empty())
            .map(<[u8]>::to_vec)
            .collect());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    // A directory that is only called `.git`, or the inside of a repository.
    if ["not a git repository", "must be run in a work tree"]
        .iter()
        .any(|phrase| words.contains(phrase))
    {
        return Ok(Vec::new());
    }
    Err(failed(root, words.lines().next().unwrap_or_default().to_owned()))
}

fn failed(root: &Path, message: String) -> SnapshotError {
    SnapshotError::Git {
        path: root.to_owned(),
        message,
    }
}
