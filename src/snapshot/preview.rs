//! What would be staged, and what would not, before it is.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::error::SnapshotError;
use super::largest::{By, Part, largest};
use super::manifest::os_path;
use super::rules::{Limits, Rules, Why};
use super::walk::{self, Found, What};

/// So many of what was left out are named for each reason.
const EXAMPLES: usize = 5;

/// A candidate in numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preview {
    /// Regular files.
    pub files: usize,
    /// Directories.
    pub directories: usize,
    /// Symbolic links.
    pub links: usize,
    /// Bytes of the regular files.
    pub bytes: u64,
    /// The files and directories that hold the most bytes.
    pub largest: Vec<Part>,
    /// What stays at home, by reason.
    pub excluded: BTreeMap<Why, Excluded>,
}

/// What was left out for one reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Excluded {
    /// How many; a directory counts as one, whatever is in it.
    pub count: usize,
    /// The first few of them.
    pub examples: Vec<PathBuf>,
}

/// Looks at the candidate at `root` without reading its files, however large it is.
///
/// # Errors
/// As [`take`](super::take), but for the limits.
pub fn preview(root: &Path, rules: &Rules) -> Result<Preview, SnapshotError> {
    let found = walk::walk(root, Limits::NONE, rules)?;
    let mut preview = Preview {
        files: 0,
        directories: 0,
        links: 0,
        bytes: 0,
        largest: largest(&found, By::Bytes),
        excluded: BTreeMap::new(),
    };
    preview.look_for_excluded(root, Path::new(""), &found, rules)?;
    for entry in &found {
        match &entry.what {
            What::File(stat) => {
                preview.files += 1;
                preview.bytes += stat.size;
            }
            What::Symlink(_) => preview.links += 1,
            What::Directory => {
                preview.directories += 1;
                preview.look_for_excluded(root, os_path(&entry.path), &found, rules)?;
            }
        }
    }
    Ok(preview)
}

impl Preview {
    /// Counts what is in a staged directory and was not taken from it.
    fn look_for_excluded(
        &mut self,
        root: &Path,
        directory: &Path,
        found: &[Found],
        rules: &Rules,
    ) -> Result<(), SnapshotError> {
        let failed = |source| SnapshotError::Unreadable {
            path: directory.to_owned(),
            source,
        };
        let mut names = Vec::new();
        for entry in root.join(directory).read_dir().map_err(failed)? {
            names.push(entry.map_err(failed)?.file_name());
        }
        names.sort_unstable();
        for name in names {
            let path = directory.join(name);
            let bytes = path.as_os_str().as_bytes();
            if found
                .binary_search_by(|entry| entry.path.as_slice().cmp(bytes))
                .is_ok()
            {
                continue;
            }
            let excluded = self.excluded.entry(rules.why_missing(&path)).or_default();
            excluded.count += 1;
            if excluded.examples.len() < EXAMPLES {
                excluded.examples.push(path);
            }
        }
        Ok(())
    }
}
