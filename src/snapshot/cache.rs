//! Digests of a candidate's files, remembered by their stat data as git's index does.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

use super::error::SnapshotError;
use super::manifest::{Entry, Kind, Manifest};
use super::walk::{Found, Stat, Walked, What};
use crate::durable;

/// A file touched this shortly before it was read could change again within the same timestamp ("racily clean" in
/// git's words); such an entry is read anew the next time.
const RACE: i128 = 1_000_000_000;
/// Below this, starting threads costs more than it saves.
const PARALLEL_FROM: u64 = 4 << 20;
const HEADER: &[u8] = b"vibesys stat cache 1\n";
const RECORD: usize = 8 + 16 + 16 + 8 + 8 + 32;

type Cache = HashMap<Vec<u8>, (Stat, [u8; 32])>;

pub(super) fn digest(
    root: &Path,
    walked: &Walked,
    cache_file: Option<&Path>,
) -> Result<Manifest, SnapshotError> {
    let cache = cache_file.map(load).unwrap_or_default();
    let started = now();
    let mut entries = Vec::with_capacity(walked.found.len());
    let mut unknown: Vec<(usize, &Found, Stat)> = Vec::new();
    for found in &walked.found {
        let kind = match &found.what {
            What::Directory => Kind::Directory,
            What::Symlink(target) => Kind::Symlink {
                target: target.clone(),
            },
            What::File(stat) => {
                let known = cache.get(&found.path).filter(|(cached, _)| cached == stat);
                if known.is_none() {
                    unknown.push((entries.len(), found, *stat));
                }
                let sha256 = known.map_or([0; 32], |(_, digest)| *digest);
                Kind::File {
                    executable: stat.executable,
                    size: stat.size,
                    sha256,
                }
            }
        };
        entries.push(Entry {
            path: found.path.clone(),
            kind,
        });
    }
    for (index, stat, digest) in hash_all(root, &unknown)? {
        entries[index].kind = Kind::File {
            executable: stat.executable,
            size: stat.size,
            sha256: digest,
        };
    }
    if let Some(file) = cache_file
        && !unknown.is_empty()
    {
        store(file, walked, &entries, started);
    }
    Ok(Manifest::new(entries))
}

type Hashed = (usize, Stat, [u8; 32]);

fn hash_all(root: &Path, unknown: &[(usize, &Found, Stat)]) -> Result<Vec<Hashed>, SnapshotError> {
    let one = |(index, found, stat): &(usize, &Found, Stat)| -> Result<Hashed, SnapshotError> {
        let path = super::pack::os_path(&found.path);
        let (stat, digest) = hash(root, path, *stat)?;
        Ok((*index, stat, digest))
    };
    let total: u64 = unknown.iter().map(|(_, _, stat)| stat.size).sum();
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    if total < PARALLEL_FROM || threads == 1 {
        return unknown.iter().map(one).collect();
    }
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let work = || {
            let mut hashed = Vec::new();
            while let Some(item) = unknown.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
                hashed.push(one(item)?);
            }
            Ok(hashed)
        };
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

/// The digest of a file that did not change while it was read; one that did is read once more.
fn hash(root: &Path, path: &Path, expected: Stat) -> Result<(Stat, [u8; 32]), SnapshotError> {
    let full = root.join(path);
    let unreadable = |source| SnapshotError::Unreadable {
        path: path.to_owned(),
        source,
    };
    for _ in 0..2 {
        let mut file = File::open(&full).map_err(unreadable)?;
        let before = Stat::of(&file.metadata().map_err(unreadable)?);
        let digest = digest_of(&mut file).map_err(unreadable)?;
        let after = Stat::of(&file.metadata().map_err(unreadable)?);
        if before == after
            && (before == expected || full.symlink_metadata().is_ok_and(|m| Stat::of(&m) == before))
        {
            return Ok((before, digest));
        }
    }
    Err(SnapshotError::Changed {
        path: path.to_owned(),
    })
}

fn digest_of(file: &mut File) -> io::Result<[u8; 32]> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 128 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finalize().into()),
            count => hasher.update(&buffer[..count]),
        }
    }
}

fn now() -> i128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos().cast_signed())
}

/// A cache that cannot be read, or is not ours, is no cache: everything is read anew.
fn load(path: &Path) -> Cache {
    std::fs::read(path)
        .ok()
        .and_then(|bytes| decode(&bytes))
        .unwrap_or_default()
}

fn decode(bytes: &[u8]) -> Option<Cache> {
    let (body, digest) = bytes.split_at_checked(bytes.len().checked_sub(32)?)?;
    if Sha256::digest(body)[..] != *digest {
        return None;
    }
    let mut rest = body.strip_prefix(HEADER)?;
    let mut cache = Cache::new();
    while !rest.is_empty() {
        let (length, tail) = rest.split_at_checked(4)?;
        let length = u32::from_be_bytes(length.try_into().ok()?) as usize;
        let (path, tail) = tail.split_at_checked(length)?;
        let (record, tail) = tail.split_at_checked(RECORD + 1)?;
        rest = tail;
        let number = |at: usize| Some(u64::from_be_bytes(record.get(at..at + 8)?.try_into().ok()?));
        let time = |at: usize| Some(i128::from_be_bytes(record.get(at..at + 16)?.try_into().ok()?));
        let stat = Stat {
            size: number(0)?,
            mtime: time(8)?,
            ctime: time(24)?,
            inode: number(40)?,
            device: number(48)?,
            executable: record[RECORD] == 1,
        };
        cache.insert(path.to_vec(), (stat, record.get(56..88)?.try_into().ok()?));
    }
    Some(cache)
}

/// Losing the cache only costs time, so a failure to write it is a remark and nothing is synced for it.
fn store(path: &Path, walked: &Walked, entries: &[Entry], started: i128) {
    let mut bytes = HEADER.to_vec();
    for (found, entry) in walked.found.iter().zip(entries) {
        let (What::File(stat), Kind::File { sha256, .. }) = (&found.what, &entry.kind) else {
            continue;
        };
        if stat.mtime.max(stat.ctime) + RACE > started {
            continue;
        }
        let Ok(length) = u32::try_from(found.path.len()) else {
            continue;
        };
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(&found.path);
        bytes.extend_from_slice(&stat.size.to_be_bytes());
        bytes.extend_from_slice(&stat.mtime.to_be_bytes());
        bytes.extend_from_slice(&stat.ctime.to_be_bytes());
        bytes.extend_from_slice(&stat.inode.to_be_bytes());
        bytes.extend_from_slice(&stat.device.to_be_bytes());
        bytes.extend_from_slice(sha256);
        bytes.push(u8::from(stat.executable));
    }
    let digest = Sha256::digest(&bytes);
    bytes.extend_from_slice(&digest);
    let temporary: PathBuf = path.with_extension(format!("{}.tmp", std::process::id()));
    let written = path
        .parent()
        .map_or(Ok(()), durable::create_private_dir)
        .map_err(|error| error.to_string())
        .and_then(|()| std::fs::write(&temporary, &bytes).map_err(|error| error.to_string()))
        .and_then(|()| std::fs::rename(&temporary, path).map_err(|error| error.to_string()));
    if let Err(error) = written {
        tracing::warn!(path = %path.display(), error, "the stat cache cannot be written");
    }
}
