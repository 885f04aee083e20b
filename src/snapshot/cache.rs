//! Digests of a candidate's files, remembered by their stat data as git's index does.
//!
//! The file: a header; for each file, sorted by path, the length of the path (4 bytes), the path, size, mtime and ctime
//! (8, 16, 16), inode and device (8, 8), SHA-256 (32), executable bit (1); and the SHA-256 of all that. Numbers are
//! big-endian. A file that is not exactly of this form is no cache, and everything is read anew.

use std::path::Path;

use sha2::{Digest, Sha256};

use super::walk::Stat;
use crate::{durable, ids};

/// A file touched this shortly before it was read could change again within the same timestamp ("racily clean" in
/// git's words); such an entry is read anew the next time. A second covers file systems that keep whole seconds.
const RACE: i128 = 1_000_000_000;
const HEADER: &[u8] = b"vibesys stat cache 2\n";
const RECORD: usize = 8 + 16 + 16 + 8 + 8 + 32 + 1;

/// What is remembered: sorted by path.
#[derive(Debug, Default)]
pub(super) struct Cache {
    bytes: Vec<u8>,
    /// Where each path and record stand in the bytes.
    index: Vec<(std::ops::Range<usize>, usize)>,
}

impl Cache {
    pub(super) fn load(path: &Path) -> Self {
        std::fs::read(path)
            .ok()
            .and_then(Self::decode)
            .unwrap_or_default()
    }

    fn decode(bytes: Vec<u8>) -> Option<Self> {
        let (body, digest) = bytes.split_at_checked(bytes.len().checked_sub(32)?)?;
        if Sha256::digest(body)[..] != *digest {
            return None;
        }
        body.strip_prefix(HEADER)?;
        let mut index: Vec<(std::ops::Range<usize>, usize)> = Vec::new();
        let mut at = HEADER.len();
        while at < body.len() {
            let length = u32::from_be_bytes(body.get(at..at + 4)?.try_into().ok()?) as usize;
            let path = at + 4..(at + 4).checked_add(length)?;
            let this = body.get(path.clone())?;
            if index.last().is_some_and(|(last, _)| body[last.clone()] >= *this) {
                return None;
            }
            let record = path.end;
            at = record.checked_add(RECORD)?;
            body.get(record..at)?;
            index.push((path, record));
        }
        Some(Self { bytes, index })
    }

    /// The digest of the file at `path`, if it was read when its stat data were these.
    pub(super) fn get(&self, path: &[u8], stat: &Stat) -> Option<[u8; 32]> {
        let found = self
            .index
            .binary_search_by(|(range, _)| self.bytes[range.clone()].cmp(path))
            .ok()?;
        let record = self.bytes.get(self.index[found].1..)?;
        let (known, rest) = record.split_at_checked(RECORD - 33)?;
        let same = known == stat_bytes(stat) && rest.get(32) == Some(&u8::from(stat.executable));
        same.then(|| rest.get(..32)?.try_into().ok()).flatten()
    }
}

fn stat_bytes(stat: &Stat) -> [u8; RECORD - 33] {
    let mut bytes = [0; RECORD - 33];
    bytes[..8].copy_from_slice(&stat.size.to_be_bytes());
    bytes[8..24].copy_from_slice(&stat.mtime.to_be_bytes());
    bytes[24..40].copy_from_slice(&stat.ctime.to_be_bytes());
    bytes[40..48].copy_from_slice(&stat.inode.to_be_bytes());
    bytes[48..].copy_from_slice(&stat.device.to_be_bytes());
    bytes
}

/// Replaces the cache. `files` are sorted by path, `started` is when the walk began.
///
/// The rename keeps readers from half a file. Nothing is synced: after a crash the digest at the end tells whether the
/// file is whole, and losing it only costs time; so is a failure to write it only a remark.
pub(super) fn store<'a>(path: &Path, files: impl Iterator<Item = (&'a [u8], Stat, [u8; 32])>, started: i128) {
    let mut bytes = HEADER.to_vec();
    for (name, stat, digest) in files {
        if stat.mtime.max(stat.ctime) + RACE > started {
            continue;
        }
        let Ok(length) = u32::try_from(name.len()) else {
            continue;
        };
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(&stat_bytes(&stat));
        bytes.extend_from_slice(&digest);
        bytes.push(u8::from(stat.executable));
    }
    let digest = Sha256::digest(&bytes);
    bytes.extend_from_slice(&digest);
    if let Err(error) = replace(path, &bytes) {
        tracing::warn!(path = %path.display(), error, "the stat cache cannot be written");
    }
}

fn replace(path: &Path, bytes: &[u8]) -> Result<(), String> {
    if let Some(directory) = path.parent() {
        durable::create_private_dir(directory).map_err(|error| error.to_string())?;
    }
    let suffix = ids::random_hex(4).map_err(|error| error.to_string())?;
    let temporary = path.with_extension(format!("{suffix}.tmp"));
    let written = std::fs::write(&temporary, bytes).and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        // The first error is the one to report.
        drop(std::fs::remove_file(&temporary));
    }
    written.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: Stat = Stat {
        size: 3,
        mtime: 5_000_000_000,
        ctime: -7,
        inode: 11,
        device: 13,
        executable: true,
    };

    fn stored(files: &[(&[u8], Stat)], started: i128) -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cache/stat");
        store(
            &path,
            files.iter().map(|(name, stat)| (*name, *stat, [9; 32])),
            started,
        );
        (directory, path)
    }

    #[test]
    fn a_digest_is_known_by_all_of_its_stat_data() {
        let (_directory, path) = stored(&[(b"a", STAT), (b"b", STAT)], i128::MAX);
        let cache = Cache::load(&path);
        assert_eq!(cache.get(b"a", &STAT), Some([9; 32]));
        assert_eq!(cache.get(b"c", &STAT), None);
        for other in [
            Stat { size: 4, ..STAT },
            Stat { mtime: 6, ..STAT },
            Stat { ctime: 6, ..STAT },
            Stat { inode: 6, ..STAT },
            Stat { device: 6, ..STAT },
            Stat {
                executable: false,
                ..STAT
            },
        ] {
            assert_eq!(cache.get(b"a", &other), None, "{other:?}");
        }
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn what_was_touched_just_before_is_not_remembered() {
        for (started, known) in [(5_999_999_999, false), (6_000_000_000, true)] {
            let (_directory, path) = stored(&[(b"a", STAT)], started);
            assert_eq!(Cache::load(&path).get(b"a", &STAT).is_some(), known);
        }
    }

    #[test]
    fn a_damaged_cache_is_none() {
        let (_directory, path) = stored(&[(b"a", STAT), (b"b", STAT)], i128::MAX);
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            assert!(Cache::decode(whole[..at].to_vec()).is_none(), "cut at {at}");
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            assert!(Cache::decode(flipped).is_none(), "flipped at {at}");
        }
        let (_directory, path) = stored(&[(b"b", STAT), (b"a", STAT)], i128::MAX);
        assert!(
            Cache::decode(std::fs::read(path).unwrap()).is_none(),
            "not sorted"
        );
    }
}
