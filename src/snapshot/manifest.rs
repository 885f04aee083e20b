//! The manifest: what a snapshot is made of, and from it its name.

use std::cmp::Ordering;

use sha2::{Digest, Sha256};

use crate::ids::{SnapshotId, hex};

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File {
        /// Whether anybody may execute it.
        executable: bool,
        /// Its size in bytes.
        size: u64,
        /// The digest of its content.
        sha256: [u8; 32],
    },
    /// A symbolic link.
    Symlink {
        /// Its target, as bytes.
        target: Vec<u8>,
    },
}

impl Kind {
    fn tag(&self) -> u8 {
        match self {
            Self::Directory => b'D',
            Self::File { .. } => b'F',
            Self::Symlink { .. } => b'L',
        }
    }
}

/// One entry of a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The path below the root, as bytes: names need not be UTF-8.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: Kind,
}

/// Everything a snapshot is made of, sorted by path bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    entries: Vec<Entry>,
}

const HEADER: &[u8] = b"vibesys manifest 1\n";

impl Manifest {
    /// A manifest of these entries, in whatever order they come.
    pub fn new(mut entries: Vec<Entry>) -> Self {
        entries.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Self { entries }
    }

    /// The entries, sorted.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Regular files, and their bytes.
    pub fn size(&self) -> (usize, u64) {
        self.entries
            .iter()
            .fold((0, 0), |(files, bytes), entry| match entry.kind {
                Kind::File { size, .. } => (files + 1, bytes + size),
                Kind::Directory | Kind::Symlink { .. } => (files, bytes),
            })
    }

    /// The canonical bytes: a versioned header, then for each entry a tag, the length-prefixed path, and for a file
    /// its executable bit, size and SHA-256, for a link its length-prefixed target. Lengths are 8 bytes, big-endian.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = HEADER.to_vec();
        let text = |bytes: &mut Vec<u8>, text: &[u8]| {
            bytes.extend_from_slice(&(text.len() as u64).to_be_bytes());
            bytes.extend_from_slice(text);
        };
        for entry in &self.entries {
            bytes.push(entry.kind.tag());
            text(&mut bytes, &entry.path);
            match &entry.kind {
                Kind::Directory => {}
                Kind::File {
                    executable,
                    size,
                    sha256,
                } => {
                    bytes.push(u8::from(*executable));
                    bytes.extend_from_slice(&size.to_be_bytes());
                    bytes.extend_from_slice(sha256);
                }
                Kind::Symlink { target } => text(&mut bytes, target),
            }
        }
        bytes
    }

    /// Reads what [`encode`](Self::encode) wrote; `None` for anything else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(HEADER)?;
        let mut take = |length: usize| -> Option<&[u8]> {
            let (head, tail) = rest.split_at_checked(length)?;
            rest = tail;
            Some(head)
        };
        let mut entries = Vec::new();
        while let Some(tag) = take(1) {
            let tag = tag[0];
            let mut number = || Some(u64::from_be_bytes(take(8)?.try_into().ok()?));
            let length = number()?;
            let path = take(usize::try_from(length).ok()?)?.to_vec();
            let kind = match tag {
                b'D' => Kind::Directory,
                b'F' => {
                    let executable = take(1)? == [1];
                    let size = u64::from_be_bytes(take(8)?.try_into().ok()?);
                    Kind::File {
                        executable,
                        size,
                        sha256: take(32)?.try_into().ok()?,
                    }
                }
                b'L' => {
                    let length = u64::from_be_bytes(take(8)?.try_into().ok()?);
                    Kind::Symlink {
                        target: take(usize::try_from(length).ok()?)?.to_vec(),
                    }
                }
                _ => return None,
            };
            entries.push(Entry { path, kind });
        }
        Some(Self { entries })
    }

    /// The name of the snapshot: the SHA-256 of the canonical bytes.
    pub fn id(&self) -> SnapshotId {
        SnapshotId::from_digest(&Sha256::digest(self.encode()).into())
    }

    /// What turns `self` into `new`.
    pub fn delta_to<'a>(&'a self, new: &'a Self) -> Delta<'a> {
        let mut delta = Delta {
            removed: Vec::new(),
            changed: Vec::new(),
        };
        let (mut old, mut new) = (self.entries.iter().peekable(), new.entries.iter().peekable());
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => return delta,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(old), Some(new)) => old.path.cmp(&new.path),
            };
            let before = if order == Ordering::Greater {
                None
            } else {
                old.next()
            };
            let after = if order == Ordering::Less { None } else { new.next() };
            match (before, after) {
                (Some(before), None) => delta.remove(&before.path),
                (Some(before), Some(after)) if before.kind != after.kind => {
                    // A file that only changed is replaced by the unpacking; another kind of thing is not.
                    if before.kind.tag() != after.kind.tag() {
                        delta.remove(&before.path);
                    }
                    delta.changed.push(after);
                }
                (None, Some(after)) => delta.changed.push(after),
                (Some(_), Some(_)) | (None, None) => {}
            }
        }
    }
}

/// The difference between two manifests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delta<'a> {
    /// Paths to remove first, each with everything below it.
    pub removed: Vec<&'a [u8]>,
    /// Entries to write then.
    pub changed: Vec<&'a Entry>,
}

impl<'a> Delta<'a> {
    fn remove(&mut self, path: &'a [u8]) {
        // `a/b` goes with `a`, but `a.b` sorts between them.
        let below = self
            .removed
            .iter()
            .any(|top| path.starts_with(top) && path.get(top.len()) == Some(&b'/'));
        if !below {
            self.removed.push(path);
        }
    }

    /// Bytes of the files to write.
    pub fn bytes(&self) -> u64 {
        let size = |entry: &&Entry| match entry.kind {
            Kind::File { size, .. } => size,
            Kind::Directory | Kind::Symlink { .. } => 0,
        };
        self.changed.iter().map(size).sum()
    }
}

impl SnapshotId {
    fn from_digest(digest: &[u8; 32]) -> Self {
        // Hex of 32 bytes is what the type holds, so the way through its parser cannot fail.
        hex(digest)
            .parse()
            .unwrap_or_else(|_| unreachable!("32 bytes are 64 hex digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_known_tree_never_changes() {
        let manifest = Manifest::new(vec![
            Entry {
                path: b"b".to_vec(),
                kind: Kind::Symlink {
                    target: b"a/x".to_vec(),
                },
            },
            Entry {
                path: b"a".to_vec(),
                kind: Kind::Directory,
            },
            Entry {
                path: b"a/x".to_vec(),
                kind: Kind::File {
                    executable: true,
                    size: 2,
                    sha256: Sha256::digest(b"hi").into(),
                },
            },
        ]);
        assert_eq!(Manifest::decode(&manifest.encode()).unwrap(), manifest);
        assert_eq!(
            manifest.id().as_str(),
            "617b3d83d9749eff0178e3355aac74cb6381ff872dc1417336d3835d5b95a03a"
        );
    }

    #[test]
    fn damaged_bytes_are_no_manifest() {
        let bytes = Manifest::new(vec![Entry {
            path: b"a".to_vec(),
            kind: Kind::Directory,
        }])
        .encode();
        for cut in 0..bytes.len() {
            if cut != HEADER.len() {
                assert!(Manifest::decode(&bytes[..cut]).is_none(), "{cut}");
            }
        }
    }
}
