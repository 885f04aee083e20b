//! Getting the snapshot to the cluster: nothing if it is there, the difference if its base is, all of it otherwise.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

use super::session::{Session, lost};
use super::{blocking, candidate_error};
use crate::durable;
use crate::ids::{SnapshotId, hex};
use crate::remote::{Batch, Done, Pending, call};
use crate::runner::{FailureKind, Observer, Phase, RunError};
use crate::snapshot::{self, Manifest, SnapshotError};

/// A difference above this share of the whole is not worth a second archive to unpack.
const DELTA_SHARE: u64 = 4;
/// A difference of this many bytes is small whatever the whole is.
const SMALL_DELTA: u64 = 1 << 20;
/// Size of one piece of an upload: the other side starts a few processes for each.
const PIECE: usize = 4 << 20;
/// Pieces that wait to be sent while the next are packed.
const PIECES_AHEAD: usize = 3;

/// What is known here of the snapshots there: the last whole one, and the last that was published.
#[derive(Debug)]
pub(super) struct Known {
    directory: PathBuf,
    pub(super) base: Option<Arc<Manifest>>,
    last: Option<String>,
}

impl Known {
    /// What is known of the snapshots below `root` of `cluster`.
    pub(super) fn load(state: &Path, cluster: &str, root: &str) -> Self {
        let key = hex(&Sha256::digest(format!("{cluster}\0{root}")));
        let directory = state.join("staged").join(&key[..16]);
        let base = std::fs::read(directory.join("base"))
            .ok()
            .and_then(|bytes| Manifest::decode(&bytes))
            .map(Arc::new);
        let last = std::fs::read_to_string(directory.join("last")).ok();
        Self {
            directory,
            base,
            last,
        }
    }

    pub(super) fn has(&self, id: &SnapshotId) -> bool {
        self.last.as_deref() == Some(id.as_str())
    }

    /// The snapshot is published there now. A note that is lost costs an upload, so nothing is synced for it.
    pub(super) fn published(&mut self, id: &SnapshotId, base: Option<Arc<Manifest>>) {
        let write = || -> std::io::Result<()> {
            durable::create_private_dir(&self.directory).map_err(std::io::Error::other)?;
            let replace = |name: &str, bytes: &[u8]| {
                let temporary = self.directory.join(format!(".{name}.{}", std::process::id()));
                std::fs::write(&temporary, bytes)?;
                std::fs::rename(temporary, self.directory.join(name))
            };
            if let Some(base) = &base {
                replace("base", &base.encode())?;
            }
            replace("last", id.as_str().as_bytes())
        };
        if let Err(error) = write() {
            tracing::warn!(%error, "cannot note what was staged");
        }
        self.last = Some(id.as_str().to_owned());
        if base.is_some() {
            self.base = base;
        }
    }

    /// The cluster no longer has what we thought (scratch is purged).
    pub(super) fn forget(&mut self) {
        self.last = None;
        self.base = None;
    }
}

/// A difference, packed.
#[derive(Debug)]
pub(super) struct PackedDelta {
    base: SnapshotId,
    archive: Vec<u8>,
    removed: Vec<u8>,
}

/// Packs the difference if it is small enough to be worth it.
pub(super) async fn pack_delta(
    known: &Known,
    candidate: &Path,
    manifest: &Arc<Manifest>,
) -> Result<Option<PackedDelta>, RunError> {
    let Some(base) = known.base.clone() else {
        return Ok(None);
    };
    let (candidate, manifest) = (candidate.to_owned(), Arc::clone(manifest));
    let packed = blocking(move || -> Result<Option<PackedDelta>, SnapshotError> {
        let delta = base.delta_to(&manifest);
        if delta.bytes() > (manifest.size().1 / DELTA_SHARE).max(SMALL_DELTA) {
            return Ok(None);
        }
        Ok(Some(PackedDelta {
            base: base.id(),
            archive: snapshot::delta_archive(&candidate, &delta, Vec::new())?,
            removed: snapshot::removed_list(&delta),
        }))
    });
    packed.await?.map_err(candidate_error)
}

/// Adds the difference to a batch; the answer tells whether it was published.
pub(super) fn add_delta(
    batch: &mut Batch,
    id: &SnapshotId,
    packed: &PackedDelta,
    mark: &str,
) -> Result<Vec<Pending<Done>>, RunError> {
    let (archive, removed) = (format!("{mark}.delta"), format!("{mark}.removed"));
    let size = packed.archive.len().to_string();
    let publish = call(
        "publish_delta",
        &[id.as_str(), packed.base.as_str(), &archive, &size, &removed],
    );
    Ok(vec![
        batch.put(&archive, 0, &packed.archive),
        batch.put(&removed, 0, &packed.removed),
        batch.run(&publish.map_err(|error| RunError::new(FailureKind::Internal, error.to_string()))?),
    ])
}

impl PackedDelta {
    pub(super) fn size(&self) -> u64 {
        (self.archive.len() + self.removed.len()) as u64
    }
}

/// Sends the whole snapshot while it is being packed, and publishes it.
pub(super) async fn upload(
    session: &Session,
    candidate: &Path,
    manifest: &Arc<Manifest>,
    mark: &str,
    observer: &dyn Observer,
) -> Result<(), RunError> {
    let (sender, mut pieces) = mpsc::channel::<Bytes>(PIECES_AHEAD);
    let packing = {
        let (candidate, manifest) = (candidate.to_owned(), Arc::clone(manifest));
        tokio::task::spawn_blocking(move || {
            let writer = Pieces {
                sender,
                buffer: Vec::with_capacity(PIECE),
            };
            snapshot::full_archive(&candidate, &manifest, writer).and_then(Pieces::finish)
        })
    };
    let file = format!("{mark}.full");
    let (mut sent, mut answers) = (0, Vec::new());
    while let Some(piece) = pieces.recv().await {
        let mut batch = session.agent.batch();
        answers.push(batch.put(&file, sent, &piece));
        session.agent.send(batch).await.map_err(lost)?;
        sent += piece.len() as u64;
        observer.phase(&Phase::Staging { sent, total: None });
    }
    packing
        .await
        .map_err(|error| RunError::new(FailureKind::Internal, error.to_string()))?
        .map_err(candidate_error)?;
    let id = manifest.id();
    let publish = call("publish_full", &[id.as_str(), &file, &sent.to_string()])
        .map_err(|error| RunError::new(FailureKind::Internal, error.to_string()))?;
    let mut batch = session.agent.batch();
    answers.push(batch.run(&publish));
    session.agent.send(batch).await.map_err(lost)?;
    for answer in answers {
        let done = answer.answer().await.map_err(lost)?;
        if done.code != 0 {
            return Err(storage_error(&done));
        }
    }
    Ok(())
}

/// The cluster's storage refused something.
pub(super) fn storage_error(done: &Done) -> RunError {
    let words = done.complaint();
    let full = ["No space left", "quota", "Quota"]
        .iter()
        .any(|word| words.contains(word));
    let message = if full {
        "the cluster's storage is full"
    } else {
        "the cluster's storage refused the files"
    };
    RunError::new(
        FailureKind::RemoteStorage,
        format!("{message}: {}", words.lines().next().unwrap_or("no reason given")),
    )
    .hint("free space or inodes below `remote_artifact_root`, or set another one in the profile")
}

/// Cuts what is packed into pieces and hands them over.
struct Pieces {
    sender: mpsc::Sender<Bytes>,
    buffer: Vec<u8>,
}

impl Pieces {
    fn hand_over(&mut self) -> std::io::Result<()> {
        let piece = std::mem::replace(&mut self.buffer, Vec::with_capacity(PIECE));
        self.sender
            .blocking_send(piece.into())
            .map_err(|_| std::io::ErrorKind::BrokenPipe.into())
    }

    fn finish(mut self) -> Result<(), SnapshotError> {
        if self.buffer.is_empty() {
            Ok(())
        } else {
            self.hand_over().map_err(SnapshotError::Write)
        }
    }
}

impl std::io::Write for Pieces {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        let room = (PIECE - self.buffer.len()).min(data.len());
        self.buffer.extend_from_slice(&data[..room]);
        if self.buffer.len() == PIECE {
            self.hand_over()?;
        }
        Ok(room)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
