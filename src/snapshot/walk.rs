//! What of a candidate is taken: what git would take, tracked or not, less what never belongs in a transfer.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

use ignore::WalkBuilder;

use super::error::SnapshotError;

/// Names that are left out wherever they stand: credentials, local state, caches and what is built anew.
pub const EXCLUDED_NAMES: &[&str] = &[
    ".cache",
    ".git",
    ".mypy_cache",
    ".nox",
    ".pytest_cache",
    ".ruff_cache",
    ".ssh",
    ".tox",
    ".venv",
    "__pycache__",
    "agent.toml",
    "node_modules",
];

/// How much a candidate may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Regular files.
    pub files: usize,
    /// Bytes of all regular files.
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            files: 50_000,
            bytes: 512 << 20,
        }
    }
}

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

/// What of a file's metadata tells that it is still the same.
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

/// Everything that belongs to the snapshot, sorted by path bytes.
#[derive(Debug, Clone)]
pub struct Walked {
    pub(super) found: Vec<Found>,
}

fn excluded(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".env") || EXCLUDED_NAMES.iter().any(|excluded| name == *excluded)
}

pub(super) fn walk(root: &Path, limits: Limits) -> Result<Walked, SnapshotError> {
    if !root.is_dir() {
        return Err(SnapshotError::NotADirectory {
            path: root.to_owned(),
        });
    }
    let real_root = root.canonicalize().map_err(|source| unreadable(root, source))?;
    let forced = std::thread::scope(|scope| {
        let forced = scope.spawn(|| tracked_though_ignored(root));
        let found = walk_tree(root);
        // A panic there could only come from the standard library; nothing forced is then the safe reading.
        found.map(|found| (found, forced.join().unwrap_or_default()))
    });
    let (mut paths, forced) = forced?;
    for path in forced {
        // The directories above a forced file may be ignored as a whole.
        paths.extend(
            path.ancestors()
                .filter(|part| !part.as_os_str().is_empty())
                .map(Path::to_owned),
        );
    }
    let (mut found, mut files, mut bytes) = (Vec::with_capacity(paths.len()), 0, 0);
    for path in &paths {
        let full = root.join(path);
        let metadata = full
            .symlink_metadata()
            .map_err(|source| unreadable(path, source))?;
        let kind = metadata.file_type();
        let what = if kind.is_dir() {
            What::Directory
        } else if kind.is_file() {
            files += 1;
            bytes += metadata.len();
            What::File(Stat::of(&metadata))
        } else if kind.is_symlink() {
            let target = full.read_link().map_err(|source| unreadable(path, source))?;
            check_link(&real_root, path, &full, &target)?;
            What::Symlink(target.into_os_string().into_vec())
        } else {
            let kind = match () {
                () if kind.is_fifo() => "fifo",
                () if kind.is_socket() => "socket",
                () => "device",
            };
            return Err(SnapshotError::Special {
                path: path.clone(),
                kind,
            });
        };
        found.push(Found {
            path: path.as_os_str().as_bytes().to_vec(),
            what,
        });
    }
    let too_large = |found_text: String, limit: String| SnapshotError::TooLarge {
        found: found_text,
        limit,
        largest: largest(&found),
    };
    if files > limits.files {
        return Err(too_large(
            format!("{files} files"),
            format!("{} files", limits.files),
        ));
    }
    if bytes > limits.bytes {
        return Err(too_large(mebibytes(bytes), mebibytes(limits.bytes)));
    }
    found.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    Ok(Walked { found })
}

fn walk_tree(root: &Path) -> Result<BTreeSet<PathBuf>, SnapshotError> {
    let walker = WalkBuilder::new(root)
        .hidden(false)
        .ignore(false)
        .require_git(false)
        .follow_links(false)
        .filter_entry(|entry| entry.depth() == 0 || !excluded(entry.file_name()))
        .build();
    let mut paths = BTreeSet::new();
    for entry in walker {
        let entry = entry.map_err(|error| {
            let path = failed_path(&error).unwrap_or_else(|| root.to_owned());
            let shown = path.strip_prefix(root).unwrap_or(&path).to_owned();
            let text = error.to_string();
            unreadable(
                &shown,
                error
                    .into_io_error()
                    .unwrap_or_else(|| std::io::Error::other(text)),
            )
        })?;
        if let Ok(path) = entry.path().strip_prefix(root)
            && !path.as_os_str().is_empty()
        {
            paths.insert(path.to_owned());
        }
    }
    Ok(paths)
}

fn failed_path(error: &ignore::Error) -> Option<PathBuf> {
    match error {
        ignore::Error::WithPath { path, .. } => Some(path.clone()),
        ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => failed_path(err),
        ignore::Error::Partial(errors) => errors.iter().find_map(failed_path),
        ignore::Error::Loop { child, .. } => Some(child.clone()),
        ignore::Error::Io(_)
        | ignore::Error::Glob { .. }
        | ignore::Error::UnrecognizedFileType(_)
        | ignore::Error::InvalidDefinition => None,
    }
}

/// Files that git tracks although an ignore rule matches them; to git they are part of the tree like any other.
fn tracked_though_ignored(root: &Path) -> Vec<PathBuf> {
    if !root.ancestors().any(|directory| directory.join(".git").exists()) {
        return Vec::new();
    }
    // Where there is no git, there is no index to ask either.
    // Whoever edits the candidate may edit its `.git/config` too, and must not start a program here by it.
    let Ok(output) = Command::new("git")
        .args(["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"])
        .arg("-C")
        .arg(root)
        .args(["ls-files", "-z", "--cached", "--ignored", "--exclude-standard"])
        .env("GIT_OPTIONAL_LOCKS", "0")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
    else {
        return Vec::new();
    };
    output
        .stdout
        .split(|byte| *byte == 0)
        .filter(|path| !path.is_empty())
        .map(|path| PathBuf::from(OsString::from_vec(path.to_vec())))
        .filter(|path| !path.components().any(|part| excluded(part.as_os_str())))
        .filter(|path| root.join(path).symlink_metadata().is_ok())
        .collect()
}

/// A link is kept as a link as long as it stays inside, by its words and by where it really leads.
fn check_link(real_root: &Path, path: &Path, full: &Path, target: &Path) -> Result<(), SnapshotError> {
    let mut depth = path.components().count().saturating_sub(1);
    let mut escapes = false;
    for part in target.components() {
        match part {
            Component::RootDir | Component::Prefix(_) => escapes = true,
            Component::ParentDir => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => escapes = true,
            },
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
        }
    }
    if !escapes && let Ok(real) = full.canonicalize() {
        escapes = !real.starts_with(real_root);
    }
    if escapes {
        return Err(SnapshotError::EscapingLink {
            path: path.to_owned(),
            target: target.to_owned(),
        });
    }
    Ok(())
}

fn unreadable(path: &Path, source: std::io::Error) -> SnapshotError {
    SnapshotError::Unreadable {
        path: path.to_owned(),
        source,
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

/// The five largest parts at the top of the tree, in words.
fn largest(found: &[Found]) -> String {
    let mut parts: BTreeMap<&[u8], (u64, usize)> = BTreeMap::new();
    for entry in found {
        if let What::File(stat) = &entry.what {
            let top = entry.path.split(|byte| *byte == b'/').next().unwrap_or_default();
            let part = parts.entry(top).or_default();
            *part = (part.0 + stat.size, part.1 + 1);
        }
    }
    let mut parts: Vec<_> = parts.into_iter().collect();
    parts.sort_by_key(|(_, (bytes, files))| std::cmp::Reverse((*bytes, *files)));
    let words = parts.iter().take(5).map(|(name, (bytes, files))| {
        format!(
            "{} ({}, {files} files)",
            String::from_utf8_lossy(name),
            mebibytes(*bytes)
        )
    });
    words.collect::<Vec<_>>().join(", ")
}
