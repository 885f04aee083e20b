//! Bringing artifacts back: the node's list first, then each file in pieces, checked before it appears.

use std::path::{Path, PathBuf};

use super::allocate::checked_call;
use super::session::{Session, lost};
use super::{blocking, internal, local_storage};
use crate::runner::RunError;
use crate::snapshot::artifact::{Artifact, ArtifactError, Receiver, parse_list};

const PIECE: u64 = 1 << 20;
/// Pieces asked for ahead of the answers, so that a long way costs no wait between them.
const AHEAD: u64 = 16;
/// A list longer than this was not made by a sensible command.
const LONGEST_LIST: u64 = 16 << 20;

/// Brings every listed artifact below `target`; returns what came and what did not, with the reason.
pub(super) async fn artifacts(
    session: &Session,
    generation: &str,
    name: &str,
    list_size: u64,
    target: &Path,
) -> Result<(Vec<PathBuf>, Vec<String>), RunError> {
    if list_size > LONGEST_LIST {
        return Ok((
            Vec::new(),
            vec![format!(
                "the list of artifacts has {list_size} bytes; nothing was fetched"
            )],
        ));
    }
    let list = checked_call("send_list", &[generation, name])?;
    let done = session.agent.run(&list).await.map_err(lost)?;
    let bytes = unhex(&done.text()).ok_or_else(|| internal("list of artifacts")(done.complaint()))?;
    let listed = match parse_list(&bytes) {
        Ok(listed) => listed,
        Err(error) => return Ok((Vec::new(), vec![error.to_string()])),
    };
    let (mut came, mut missing) = (Vec::new(), Vec::new());
    for artifact in listed {
        match fetch(session, generation, name, &artifact, target).await {
            Ok(path) => came.push(path),
            Err(Fetch::Artifact(error @ ArtifactError::Write { .. })) => return Err(local_storage(error)),
            Err(Fetch::Artifact(error)) => missing.push(error.to_string()),
            Err(Fetch::Run(error)) => return Err(error),
        }
    }
    Ok((came, missing))
}

enum Fetch {
    Artifact(ArtifactError),
    Run(RunError),
}

async fn fetch(
    session: &Session,
    generation: &str,
    name: &str,
    artifact: &Artifact,
    target: &Path,
) -> Result<PathBuf, Fetch> {
    let run = |error| Fetch::Run(error);
    let (target, wanted) = (target.to_owned(), artifact.clone());
    let mut receiver = blocking(move || Receiver::begin(&target, wanted))
        .await
        .map_err(run)?
        .map_err(Fetch::Artifact)?;
    let mut asked = 0;
    while asked < artifact.size {
        let mut batch = session.agent.batch();
        let mut answers = Vec::new();
        for _ in 0..AHEAD {
            let length = PIECE.min(artifact.size - asked);
            if length == 0 {
                break;
            }
            answers.push(batch.fetch(generation, name, artifact.path.as_str(), asked, length));
            asked += length;
        }
        session.agent.send(batch).await.map_err(lost).map_err(run)?;
        for answer in answers {
            let data = answer.answer().await.map_err(lost).map_err(run)?;
            receiver = blocking(move || receiver.write(&data).map(|()| receiver))
                .await
                .map_err(run)?
                .map_err(Fetch::Artifact)?;
        }
        if receiver.received() < asked {
            break;
        }
    }
    blocking(move || receiver.finish())
        .await
        .map_err(run)?
        .map_err(Fetch::Artifact)
}

/// The list has NUL bytes, which a shell cannot pass on, so it comes as hex.
fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits
        .len()
        .is_multiple_of(2)
        .then(|| digits.chunks(2).map(pair).collect())
        .flatten()
}
