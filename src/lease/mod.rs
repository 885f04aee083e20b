//! A lease: our promise of compute, over one allocation after another.
//!
//! Deciding is pure ([`decide`]); the record is on disk before a job is submitted, and the job bears the record's name, so
//! that after a crash "was it submitted?" is asked of the cluster and not guessed.

use std::fs::File;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::durable::{self, FileError};
use crate::ids::LeaseId;

/// How far the current allocation of a lease is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeasePhase {
    /// About to be submitted, or submitted and not answered.
    Submitting,
    /// Its job is known.
    Held,
    /// Over, or given back.
    Ended,
}

/// The record of a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseRecord {
    /// Version of the format, 1.
    pub schema_version: u32,
    /// Its id.
    pub lease: LeaseId,
    /// The profile.
    pub profile: String,
    /// Which allocation this is, from 1.
    pub sequence: u32,
    /// How far it is.
    pub phase: LeasePhase,
    /// Its job; for the local runner, the launcher's process id.
    pub job: Option<u64>,
    /// When the submission was intended.
    pub submitting_at: Timestamp,
}

impl LeaseRecord {
    /// A lease that never had an allocation.
    pub fn fresh(lease: LeaseId, profile: String) -> Self {
        Self {
            schema_version: 1,
            lease,
            profile,
            sequence: 0,
            phase: LeasePhase::Ended,
            job: None,
            submitting_at: Timestamp::UNIX_EPOCH,
        }
    }

    /// The name that the job of the current allocation bears.
    pub fn job_name(&self) -> String {
        format!("vibesys-{}-{}", self.lease, self.sequence)
    }

    /// The directory of the current allocation below the remote `leases`.
    pub fn generation(&self) -> String {
        format!("{}/{}", self.lease, self.sequence)
    }

    /// The intent to submit the next allocation.
    pub fn begin_submit(&mut self, now: Timestamp) {
        self.sequence += 1;
        self.phase = LeasePhase::Submitting;
        self.job = None;
        self.submitting_at = now;
    }
}

/// What the cluster says of the job name of a lease whose submission was not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// Nobody asked yet.
    NotAsked,
    /// Jobs of that name, oldest first.
    Found(Vec<u64>),
    /// Asked twice, apart, in queue and accounting: there is none.
    Absent,
}

/// What to do next to have an allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// There is one: use it, and believe its launcher when it says otherwise.
    Use,
    /// A submission was not answered: ask the cluster for its name.
    Look,
    /// Take this job as ours and cancel the others, which an unclear submission left.
    Adopt {
        /// The oldest.
        job: u64,
        /// The others.
        surplus: Vec<u64>,
    },
    /// Submit the next allocation.
    Submit,
    /// Submit the same allocation again: it provably does not exist, and should it appear all the same, its launcher
    /// finds the directory claimed and ends.
    Resubmit,
}

/// Decides what to do next.
pub fn decide(record: &LeaseRecord, lookup: &Lookup) -> Action {
    match (record.phase, lookup) {
        (LeasePhase::Held, _) => Action::Use,
        (LeasePhase::Ended, _) => Action::Submit,
        (LeasePhase::Submitting, Lookup::NotAsked) => Action::Look,
        (LeasePhase::Submitting, Lookup::Absent) => Action::Resubmit,
        (LeasePhase::Submitting, Lookup::Found(jobs)) => match jobs.split_first() {
            Some((job, surplus)) => Action::Adopt {
                job: *job,
                surplus: surplus.to_vec(),
            },
            None => Action::Look,
        },
    }
}

/// Why a lease cannot be worked with.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// The file system refused.
    #[error(transparent)]
    File(#[from] FileError),
    /// The record is not what we write.
    #[error("the lease record {} is malformed", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
}

/// A lease's record, locked: nobody else decides about it meanwhile.
#[derive(Debug)]
pub struct LockedLease {
    path: PathBuf,
    _lock: File,
    /// The record; [`save`](Self::save) makes changes durable.
    pub record: LeaseRecord,
}

impl LockedLease {
    /// Locks the lease, waiting for whoever has it, and reads its record. Blocks.
    ///
    /// # Errors
    /// See [`LeaseError`].
    pub fn open(state: &Path, lease: &LeaseId, profile: &str) -> Result<Self, LeaseError> {
        let directory = state.join("leases");
        durable::create_private_dir(&directory)?;
        // The lock file is never removed: two processes must always lock the same one.
        let lock_path = directory.join(format!("{lease}.lock"));
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)
            .and_then(|file| file.lock().map(|()| file))
            .map_err(FileError::at("lock", &lock_path))?;
        let path = directory.join(format!("{lease}.json"));
        let record = match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map_err(|source| LeaseError::Malformed {
                path: path.clone(),
                source,
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                LeaseRecord::fresh(lease.clone(), profile.to_owned())
            }
            Err(error) => return Err(FileError::at("read", &path)(error).into()),
        };
        Ok(Self {
            path,
            _lock: lock,
            record,
        })
    }

    /// Makes the record durable.
    ///
    /// # Errors
    /// The disk refused it.
    pub fn save(&self) -> Result<(), LeaseError> {
        let text = serde_json::to_vec_pretty(&self.record).map_err(|source| LeaseError::Malformed {
            path: self.path.clone(),
            source,
        })?;
        Ok(durable::write_atomic(&self.path, &text)?)
    }
}

/// The leases that have a record here.
///
/// # Errors
/// The directory cannot be read.
pub fn known(state: &Path) -> Result<Vec<LeaseId>, LeaseError> {
    let directory = state.join("leases");
    let entries = match std::fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(FileError::at("list", &directory)(error).into()),
    };
    let mut leases: Vec<LeaseId> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".json")?.parse().ok())
        .collect();
    leases.sort();
    Ok(leases)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unanswered_submission_is_looked_for_before_anything_else() {
        let mut record = LeaseRecord::fresh("0123456789ab".parse().unwrap(), "p".into());
        assert_eq!(decide(&record, &Lookup::NotAsked), Action::Submit);
        record.begin_submit(Timestamp::UNIX_EPOCH);
        assert_eq!(record.job_name(), "vibesys-0123456789ab-1");
        assert_eq!(decide(&record, &Lookup::NotAsked), Action::Look);
        assert_eq!(decide(&record, &Lookup::Found(vec![])), Action::Look);
        assert_eq!(decide(&record, &Lookup::Absent), Action::Resubmit);
        assert_eq!(
            decide(&record, &Lookup::Found(vec![4, 9])),
            Action::Adopt {
                job: 4,
                surplus: vec![9]
            }
        );
        record.phase = LeasePhase::Held;
        assert_eq!(decide(&record, &Lookup::Found(vec![4])), Action::Use);
    }

    #[test]
    fn a_record_survives_and_a_damaged_one_is_an_error() {
        let state = tempfile::tempdir().unwrap();
        let id: LeaseId = "0123456789ab".parse().unwrap();
        let mut lease = LockedLease::open(state.path(), &id, "p").unwrap();
        lease.record.begin_submit(Timestamp::UNIX_EPOCH);
        lease.save().unwrap();
        drop(lease);
        assert_eq!(
            LockedLease::open(state.path(), &id, "p").unwrap().record.sequence,
            1
        );
        assert_eq!(known(state.path()).unwrap(), vec![id.clone()]);
        std::fs::write(state.path().join("leases/0123456789ab.json"), "{").unwrap();
        assert!(LockedLease::open(state.path(), &id, "p").is_err());
    }
}
