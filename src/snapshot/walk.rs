//! What of a candidate is taken: what git would take, tracked or not, less what never belongs in a transfer.

use std::collections::BTreeSet;
use std::fs::{FileType, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use ignore::WalkBuilder;

use super::error::SnapshotError;
use super::largest::{By, largest, mebibytes, words};
use super::manifest::os_path;
use super::rules::{Limits, Rules};
use super::{git, link};

/// The walk ends when this many times the allowed files were seen: it need not read a whole disk to refuse it.
const GIVE_UP: usize = 4;

/// One thing that was found, not yet read.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) path: Vec<u8>,
    pub(super) what: What,
}

#[derive(Debug, Clone)]
pub(super) enum What {
    Directory,
    File(Stat),
    Symlink(Vec<u8>),
}

/// What of a file's metadata tells that it is still the same. Times are nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) size: u64,
    pub(super) mtime: i128,
    pub(super) ctime: i128,
    pub(super) inode: u64,
    pub(super) device: u64,
    pub(super) executable: bool,
}

impl Stat {
    pub(super) fn of(metadata: &Metadata) -> Self {
        let nanoseconds = |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
        Self {
            size: metadata.len(),
            mtime: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
            ctime: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
            inode: metadata.ino(),
            device: metadata.dev(),
            executable: metadata.mode() & 0o111 != 0,
        }
    }
}

/// Everything that belongs to the snapshot of `root`, sorted by path bytes.
pub(super) fn walk(root: &Path, limits: Limits, rules: &Rules) -> Result<Vec<Found>, SnapshotError> {
    let real_root = root
        .canonicalize()
        .ok()
        .filter(|root| root.is_dir())
        .ok_or_else(|| SnapshotError::NotADirectory {
            path: root.to_owned(),
        })?;
    let mut walk = Walk {
        root: &real_root,
        limits,
        rules,
        found: Vec::new(),
        files: 0,
        bytes: 0,
    };
    let in_git = git::is_work_tree(&real_root);
    let tracked = std::thread::scope(|scope| {
        let tracked = in_git.then(|| scope.spawn(|| git::tracked(&real_root)));
        walk.tree(in_git)?;
        match tracked.map(std::thread::ScopedJoinHandle::join) {
            None => Ok(Vec::new()),
            Some(Ok(tracked)) => tracked,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
        }
    })?;
    walk.add_tracked(&tracked)?;
    walk.check_limits()?;
    Ok(walk.found)
}

struct Walk<'a> {
    root: &'a Path,
    limits: Limits,
    rules: &'a Rules,
    found: Vec<Found>,
    files: usize,
    bytes: u64,
}

impl Walk<'_> {
    fn tree(&mut self, in_git: bool) -> Result<(), SnapshotError> {
        let (root, rules) = (self.root.to_owned(), self.rules.clone());
        let walker = WalkBuilder::new(self.root)
            .hidden(false)
            .ignore(false)
            .require_git(false)
            // The rules above the candidate count up to the top of its repository, and not at all without one.
            .parents(in_git)
            .follow_links(false)
            .filter_entry(move |entry| {
                let below = entry.path().strip_prefix(&root);
                entry.depth() == 0 || below.is_ok_and(|path| rules.why(path).is_none())
            })
            .build();
        for entry in walker {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) if gone(&error) => continue,
                Err(error) => return Err(self.walk_error(error)),
            };
            let Ok(path) = entry.path().strip_prefix(self.root) else {
                continue;
            };
            if path.as_os_str().is_empty() {
                continue;
            }
            self.add(path)?;
            if self.files > self.limits.files.saturating_mul(GIVE_UP) {
                return self.check_limits();
            }
        }
        self.sort();
        Ok(())
    }

    fn add(&mut self, path: &Path) -> Result<(), SnapshotError> {
        let full = self.root.join(path);
        let unreadable = |source| SnapshotError::Unreadable {
            path: path.to_owned(),
            source,
        };
        let metadata = match full.symlink_metadata() {
            Ok(metadata) => metadata,
            // Removed since its directory was read: it is not part of the candidate any more.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(unreadable(error)),
        };
        let kind = metadata.file_type();
        let what = if kind.is_dir() {
            What::Directory
        } else if kind.is_file() {
            self.files += 1;
            self.bytes = self.bytes.saturating_add(metadata.len());
            What::File(Stat::of(&metadata))
        } else if kind.is_symlink() {
            let target = full.read_link().map_err(unreadable)?;
            if link::escapes(self.root, path, &target) {
                return Err(SnapshotError::EscapingLink {
                    path: path.to_owned(),
                    target,
                });
            }
            What::Symlink(target.into_os_string().into_vec())
        } else {
            return Err(SnapshotError::Special {
                path: path.to_owned(),
                kind: special(kind),
            });
        };
        self.found.push(Found {
            path: path.as_os_str().as_bytes().to_vec(),
            what,
        });
        Ok(())
    }

    /// Adds what git tracks although a rule matches it: to git it is part of the tree like any other.
    fn add_tracked(&mut self, tracked: &[Vec<u8>]) -> Result<(), SnapshotError> {
        let mut missing = BTreeSet::new();
        for path in tracked.iter().map(|path| os_path(path)) {
            if self.has(path) || self.rules.refuses_tracked(path) || !self.is_plain(path) {
                continue;
            }
            // The directories above may be ignored as a whole.
            let parts = path.ancestors().filter(|part| !part.as_os_str().is_empty());
            missing.extend(parts.filter(|part| !self.has(part)).map(Path::to_owned));
        }
        for path in missing {
            self.add(&path)?;
        }
        self.sort();
        Ok(())
    }

    fn has(&self, path: &Path) -> bool {
        let path = path.as_os_str().as_bytes();
        self.found
            .binary_search_by(|found| found.path.as_slice().cmp(path))
            .is_ok()
    }

    /// Whether `path` is there and only real directories lead to it; through a link it would be another file, which git
    /// does not follow either. A directory that git tracks as such is a submodule, and an ignored one stays out.
    fn is_plain(&self, path: &Path) -> bool {
        let is_dir = |path: &Path| {
            self.root
                .join(path)
                .symlink_metadata()
                .map(|found| found.is_dir())
        };
        is_dir(path).is_ok_and(|submodule| !submodule)
            && path
                .ancestors()
                .skip(1)
                .filter(|part| !part.as_os_str().is_empty())
                .all(|part| is_dir(part).is_ok_and(|directory| directory))
    }

    fn sort(&mut self) {
        self.found.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    }

    fn check_limits(&self) -> Result<(), SnapshotError> {
        let Limits { files, bytes } = self.limits;
        let (found, limit, by) = if self.files > files {
            (
                format!("{} files", self.files),
                format!("{files} files"),
                By::Files,
            )
        } else if self.bytes > bytes {
            (mebibytes(self.bytes), mebibytes(bytes), By::Bytes)
        } else {
            return Ok(());
        };
        Err(SnapshotError::TooLarge {
            found,
            limit,
            largest: words(&largest(&self.found, by)),
        })
    }

    fn walk_error(&self, error: ignore::Error) -> SnapshotError {
        let path = failed_path(&error).unwrap_or(self.root);
        let path = path.strip_prefix(self.root).unwrap_or(path);
        let path = if path.as_os_str().is_empty() {
            self.root
        } else {
            path
        }
        .to_owned();
        let text = error.to_string();
        let source = error.into_io_error().unwrap_or_else(|| io::Error::other(text));
        SnapshotError::Unreadable { path, source }
    }
}

/// Whether a directory went away while it was walked.
fn gone(error: &ignore::Error) -> bool {
    error.depth() != Some(0)
        && error
            .io_error()
            .is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
}

fn special(kind: FileType) -> &'static str {
    if kind.is_fifo() {
        "fifo"
    } else if kind.is_socket() {
        "socket"
    } else {
        "device"
    }
}

fn failed_path(error: &ignore::Error) -> Option<&Path> {
    match error {
        ignore::Error::WithPath { path, .. } => Some(path),
        ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => failed_path(err),
        ignore::Error::Partial(errors) => errors.iter().find_map(failed_path),
        ignore::Error::Loop { child, .. } => Some(child),
        ignore::Error::Io(_)
        | ignore::Error::Glob { .. }
        | ignore::Error::UnrecognizedFileType(_)
        | ignore::Error::InvalidDefinition => None,
    }
}
