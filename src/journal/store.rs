//! Where records are kept.

use std::path::{Path, PathBuf};

use super::record::Record;
use crate::durable::{self, FileError};
use crate::ids::InvocationId;

/// Why a record cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file system refused.
    #[error(transparent)]
    File(#[from] FileError),
    /// The record is not what we write.
    #[error("the journal record {} is malformed", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// A record of a newer program.
    #[error("the journal record {} has version {version}; this program reads version 1", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
}

/// The directory of records.
#[derive(Debug, Clone)]
pub struct Journal {
    directory: PathBuf,
}

impl Journal {
    /// Opens the journal below a state directory, making it if need be.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn open(state: &Path) -> Result<Self, JournalError> {
        let directory = state.join("invocations");
        durable::create_private_dir(&directory)?;
        Ok(Self { directory })
    }

    fn path(&self, id: &InvocationId) -> PathBuf {
        self.directory.join(format!("{id}.json"))
    }

    /// Writes a record; durable when it returns.
    ///
    /// # Errors
    /// The disk refused it.
    pub fn write(&self, record: &Record) -> Result<(), JournalError> {
        let path = self.path(&record.invocation);
        let mut text = serde_json::to_vec_pretty(record).map_err(|source| JournalError::Malformed {
            path: path.clone(),
            source,
        })?;
        text.push(b'\n');
        Ok(durable::write_atomic(&path, &text)?)
    }

    /// Reads a record; `None` only if there is no such file.
    ///
    /// # Errors
    /// It cannot be read, or is not a record.
    pub fn read(&self, id: &InvocationId) -> Result<Option<Record>, JournalError> {
        let path = self.path(id);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(FileError::at("read", &path)(error).into()),
        };
        let record: Record = serde_json::from_slice(&text).map_err(|source| JournalError::Malformed {
            path: path.clone(),
            source,
        })?;
        if record.schema_version != 1 {
            return Err(JournalError::Version {
                path,
                version: record.schema_version,
            });
        }
        Ok(Some(record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_record_is_an_error_and_never_missing() {
        let state = tempfile::tempdir().unwrap();
        let journal = Journal::open(state.path()).unwrap();
        let id = InvocationId::random().unwrap();
        assert!(journal.read(&id).unwrap().is_none());
        let snapshot = "a".repeat(64).parse().unwrap();
        let record = Record::prepared(
            id.clone(),
            "p".into(),
            vec![],
            snapshot,
            jiff::Timestamp::UNIX_EPOCH,
        );
        journal.write(&record).unwrap();
        assert_eq!(journal.read(&id).unwrap().unwrap(), record);
        let whole = std::fs::read(journal.path(&id)).unwrap();
        for cut in 0..whole.len() - 2 {
            std::fs::write(journal.path(&id), &whole[..cut]).unwrap();
            assert!(journal.read(&id).is_err(), "cut at {cut}");
        }
    }
}
