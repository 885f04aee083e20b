//! Taking the manifest of a candidate: walk it, and read what is not remembered.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

use super::cache::{self, Cache};
use super::error::SnapshotError;
use super::manifest::{Entry, Kind, Manifest, os_path};
use super::open::Tree;
use super::rules::{Limits, Rules};
use super::walk::{self, Stat, What};

/// Below this, starting threads costs more than it saves.
const PARALLEL_FROM: u64 = 4 << 20;
/// More threads than this wait for the disk or for memory.
const THREADS: usize = 4;
const BUFFER: usize = 128 << 10;

/// Takes the manifest of the candidate at `root`, by the default [`Rules`]. `cache` is a file that remembers digests by
/// stat data, as git's index does; it is one candidate's.
///
/// # Errors
/// See [`SnapshotError`]; every variant names the path and what to do.
pub fn take(root: &Path, cache: Option<&Path>, limits: Limits) -> Result<Manifest, SnapshotError> {
    take_with(root, cache, limits, &Rules::default())
}

/// As [`take`], by the rules of the caller.
///
/// # Errors
/// See [`SnapshotError`]; every variant names the path and what to do.
pub fn take_with(
    root: &Path,
    cache: Option<&Path>,
    limits: Limits,
    rules: &Rules,
) -> Result<Manifest, SnapshotError> {
    let started = now();
    let remembered = cache.map(Cache::load).unwrap_or_default();
    let mut found = walk::walk(root, limits, rules)?;
    let mut digests = vec![[0; 32]; found.len()];
    let mut unknown = Vec::new();
    for (at, entry) in found.iter().enumerate() {
        if let What::File(stat) = &entry.what {
            match remembered.get(&entry.path, stat) {
                Some(digest) => digests[at] = digest,
                None => unknown.push((at, os_path(&entry.path), stat.size)),
            }
        }
    }
    let hashed = hash_all(root, &unknown)?;
    let anything_new = !hashed.is_empty();
    for (at, stat, digest) in hashed {
        found[at].what = What::File(stat);
        digests[at] = digest;
    }
    let entries = found.iter().zip(&digests);
    if let Some(file) = cache
        && anything_new
    {
        let files = entries.clone().filter_map(|(entry, digest)| match &entry.what {
            What::File(stat) => Some((&entry.path[..], *stat, *digest)),
            What::Directory | What::Symlink(_) => None,
        });
        cache::store(file, files, started);
    }
    let entries = entries.map(|(entry, digest)| Entry {
        path: entry.path.clone(),
        kind: match &entry.what {
            What::Directory => Kind::Directory,
            What::Symlink(target) => Kind::Symlink {
                target: target.clone(),
            },
            What::File(stat) => Kind::File {
                executable: stat.executable,
                size: stat.size,
                sha256: *digest,
            },
        },
    });
    Ok(Manifest::new(entries.collect()))
}

type Hashed = (usize, Stat, [u8; 32]);

fn hash_all(root: &Path, unknown: &[(usize, &Path, u64)]) -> Result<Vec<Hashed>, SnapshotError> {
    if unknown.is_empty() {
        return Ok(Vec::new());
    }
    let total: u64 = unknown.iter().map(|(_, _, size)| size).sum();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if total < PARALLEL_FROM {
        1
    } else {
        cores.min(THREADS)
    };
    let next = AtomicUsize::new(0);
    let work = || {
        let (mut tree, mut hashed) = (Tree::open(root)?, Vec::new());
        let mut buffer = vec![0; BUFFER];
        while let Some((at, path, _)) = unknown.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (stat, digest) = hash(&mut tree, path, &mut buffer)?;
            hashed.push((*at, stat, digest));
        }
        Ok(hashed)
    };
    if threads == 1 {
        return work();
    }
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut all = Vec::with_capacity(unknown.len());
        for worker in workers {
            match worker.join() {
                Ok(hashed) => all.extend(hashed?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(all)
    })
}

/// The digest of a file that did not change while it was read, with its stat data then; one that did change is read
/// once more.
fn hash(tree: &mut Tree, path: &Path, buffer: &mut [u8]) -> Result<(Stat, [u8; 32]), SnapshotError> {
    let unreadable = |source| SnapshotError::Unreadable {
        path: path.to_owned(),
        source,
    };
    for _ in 0..2 {
        let file = tree.file(path)?;
        let before = Stat::of(&file.metadata().map_err(unreadable)?);
        let (size, digest) = digest_of(&file, before.size, buffer).map_err(unreadable)?;
        let after = Stat::of(&file.metadata().map_err(unreadable)?);
        if before == after && size == before.size {
            return Ok((before, digest));
        }
    }
    Err(SnapshotError::Changed {
        path: path.to_owned(),
    })
}

/// Reads one byte more than is expected, so that a file which keeps growing is noticed and not followed.
fn digest_of(file: &File, size: u64, buffer: &mut [u8]) -> io::Result<(u64, [u8; 32])> {
    let mut reader = file.take(size.saturating_add(1));
    let (mut hasher, mut size) = (Sha256::new(), 0);
    loop {
        match reader.read(buffer) {
            Ok(0) => return Ok((size, hasher.finalize().into())),
            Ok(count) => {
                hasher.update(&buffer[..count]);
                size += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn now() -> i128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos().cast_signed())
}
