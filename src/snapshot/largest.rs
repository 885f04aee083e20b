//! Which parts of a candidate are the largest.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use super::manifest::os_path;
use super::walk::{Found, What};

/// How many are named.
const NAMED: usize = 5;

/// A file or a directory, with what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its path below the root.
    pub path: PathBuf,
    /// Bytes of its regular files.
    pub bytes: u64,
    /// Its regular files.
    pub files: usize,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({}, {} files)",
            self.path.display(),
            mebibytes(self.bytes),
            self.files
        )
    }
}

/// Whole mebibytes, rounded up.
pub(super) fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

/// What counts.
#[derive(Debug, Clone, Copy)]
pub(super) enum By {
    Files,
    Bytes,
}

/// The largest parts. A directory most of which is one thing below it is named by that thing: `src` tells nothing
/// when the weights lie in `src/model/weights`.
pub(super) fn largest(found: &[Found], by: By) -> Vec<Part> {
    let mut sizes: BTreeMap<&[u8], (u64, usize)> = BTreeMap::new();
    for entry in found {
        let What::File(stat) = &entry.what else { continue };
        let path = &entry.path[..];
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        for end in ends.map(|(at, _)| at).chain([path.len()]) {
            let size = sizes.entry(&path[..end]).or_default();
            *size = (size.0 + stat.size, size.1 + 1);
        }
    }
    let weight = |size: &(u64, usize)| match by {
        By::Files => size.1 as u64,
        By::Bytes => size.0,
    };
    let mut children: BTreeMap<&[u8], Vec<&[u8]>> = BTreeMap::new();
    for path in sizes.keys() {
        let parent = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        children.entry(&path[..parent]).or_default().push(path);
    }
    let mut parts = children.remove(&b""[..]).unwrap_or_default();
    let mut at = 0;
    while let Some(path) = parts.get(at).copied() {
        let below = children.get(path).map_or(&[][..], Vec::as_slice);
        let dominant = below
            .iter()
            .any(|child| weight(&sizes[child]) * 2 > weight(&sizes[path]));
        if below.len() > 1 && dominant {
            parts.swap_remove(at);
            parts.extend(below);
        } else {
            at += 1;
        }
    }
    parts.sort_by_key(|path| std::cmp::Reverse(weight(&sizes[path])));
    parts.truncate(NAMED);
    let part = |path: &[u8]| Part {
        path: os_path(path).to_owned(),
        bytes: sizes[path].0,
        files: sizes[path].1,
    };
    parts.into_iter().map(part).collect()
}

/// The parts in words.
pub(super) fn words(parts: &[Part]) -> String {
    let words: Vec<String> = parts.iter().map(Part::to_string).collect();
    words.join(", ")
}
