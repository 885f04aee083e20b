//! The manifest: what a snapshot is made of, and from it its name.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

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
    pub(super) fn tag(&self) -> u8 {
        match self {
            Self::Directory => b'D',
            Self::File { .. } => b'F',
            Self::Symlink { .. } => b'L',
        }
    }
}

/// The path that these bytes are.
pub(super) fn os_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
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

    /// Reads what [`encode`](Self::encode) wrote of a tree; `None` for anything else, so also for entries that are not
    /// sorted, come twice, or have a path that leads out of the tree.
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
                    let executable = match take(1)? {
                        [0] => false,
                        [1] => true,
                        _ => return None,
                    };
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
            let sorted = entries.last().is_none_or(|last: &Entry| last.path < path);
            if !sorted || !is_inside(&path) {
                return None;
            }
            entries.push(Entry { path, kind });
        }
        Some(Self { entries })
    }

    /// The name of the snapshot: the SHA-256 of the canonical bytes.
    pub fn id(&self) -> SnapshotId {
        SnapshotId::from_digest(&Sha256::digest(self.encode()).into())
    }
}

/// Whether the path is one that a walk can give: relative, without empty parts, `.`, `..` and NUL.
fn is_inside(path: &[u8]) -> bool {
    !path.contains(&0)
        && path
            .split(|byte| *byte == b'/')
            .all(|part| !part.is_empty() && part != b"." && part != b"..")
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
    fn bytes_that_no_walk_gives_are_no_manifest() {
        let directory = |path: &[u8]| Entry {
            path: path.to_vec(),
            kind: Kind::Directory,
        };
        for path in ["../x", "/etc", "a/../../x", "", ".", "a//b", "a/", "a\0b"] {
            let bytes = Manifest::new(vec![directory(path.as_bytes())]).encode();
            assert_eq!(Manifest::decode(&bytes), None, "{path:?}");
        }
        let twice = Manifest::new(vec![directory(b"a"), directory(b"a")]);
        assert_eq!(Manifest::decode(&twice.encode()), None);
        let file = Entry {
            path: b"f".to_vec(),
            kind: Kind::File {
                executable: true,
                size: 0,
                sha256: [0; 32],
            },
        };
        let mut bytes = Manifest::new(vec![file]).encode();
        let bit = bytes.len() - 41;
        assert_eq!(bytes[bit], 1);
        bytes[bit] = 2;
        assert_eq!(Manifest::decode(&bytes), None);
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
