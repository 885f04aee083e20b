//! The difference between two manifests.

use std::cmp::Ordering;
use std::collections::HashSet;

use super::manifest::{Entry, Kind, Manifest};

/// What turns one tree into another: remove first, then write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delta<'a> {
    /// Paths to remove first, each with everything below it.
    pub removed: Vec<&'a [u8]>,
    /// Entries to write then, sorted by path.
    pub changed: Vec<&'a Entry>,
}

impl Delta<'_> {
    /// Bytes of the files to write.
    pub fn bytes(&self) -> u64 {
        let size = |entry: &&Entry| match entry.kind {
            Kind::File { size, .. } => size,
            Kind::Directory | Kind::Symlink { .. } => 0,
        };
        self.changed.iter().map(size).sum()
    }

    /// Whether the two trees are the same.
    pub fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.changed.is_empty()
    }
}

impl Manifest {
    /// What turns `self` into `new`.
    pub fn delta_to<'a>(&'a self, new: &'a Self) -> Delta<'a> {
        let (mut removed, mut changed) = (Vec::new(), Vec::new());
        let (mut before, mut after) = (self.entries().iter().peekable(), new.entries().iter().peekable());
        loop {
            let order = match (before.peek(), after.peek()) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(old), Some(new)) => old.path.cmp(&new.path),
            };
            let old = before.next_if(|_| order != Ordering::Greater);
            let new = after.next_if(|_| order != Ordering::Less);
            match (old, new) {
                (Some(old), None) => removed.push(&old.path[..]),
                (Some(old), Some(new)) if old.kind != new.kind => {
                    // A file that only changed is replaced by the unpacking; another kind of thing is not.
                    if old.kind.tag() != new.kind.tag() {
                        removed.push(&old.path[..]);
                    }
                    changed.push(new);
                }
                (None, Some(new)) => changed.push(new),
                (Some(_), Some(_)) | (None, None) => {}
            }
        }
        Delta {
            removed: tops(removed),
            changed,
        }
    }
}

/// The paths that stand below no other of them.
fn tops(paths: Vec<&[u8]>) -> Vec<&[u8]> {
    // The order does not help: `a.b` sorts between `a` and `a/b`.
    let all: HashSet<&[u8]> = paths.iter().copied().collect();
    let is_top = |path: &&[u8]| {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        !ends.into_iter().any(|(end, _)| all.contains(&path[..end]))
    };
    paths.into_iter().filter(is_top).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(entries: &[(&str, Kind)]) -> Manifest {
        let entry = |(path, kind): &(&str, Kind)| Entry {
            path: path.as_bytes().to_vec(),
            kind: kind.clone(),
        };
        Manifest::new(entries.iter().map(entry).collect())
    }

    fn file(size: u64) -> Kind {
        Kind::File {
            executable: false,
            size,
            sha256: [0; 32],
        }
    }

    #[test]
    fn a_removed_directory_is_named_once_and_a_changed_kind_goes_first() {
        let old = manifest(&[
            ("a", Kind::Directory),
            ("a.b", file(1)),
            ("a/x", file(1)),
            ("kind", Kind::Directory),
            ("kind/y", file(1)),
            ("same", file(1)),
            ("size", file(1)),
        ]);
        let new = manifest(&[
            ("a.b", file(1)),
            ("kind", file(2)),
            ("same", file(1)),
            ("size", file(3)),
        ]);
        let delta = old.delta_to(&new);
        assert_eq!(delta.removed, [&b"a"[..], b"kind"]);
        let changed: Vec<_> = delta.changed.iter().map(|entry| &entry.path[..]).collect();
        assert_eq!(changed, [&b"kind"[..], b"size"]);
        assert_eq!(delta.bytes(), 5);
        assert!(old.delta_to(&old).is_empty() && !delta.is_empty());
    }
}
