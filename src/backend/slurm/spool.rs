//! The local copies of an attempt's streams. The command's output goes here at the pace of the disk, so a reader that
//! is slow, or gone, holds up nothing.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::durable::{self, FileError};
use crate::remote::Stream;

/// One stream's copy.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) path: PathBuf,
    file: File,
    pub(super) size: u64,
}

/// Both streams' copies.
#[derive(Debug)]
pub(super) struct Spool {
    pub(super) stdout: Copy,
    pub(super) stderr: Copy,
}

impl Spool {
    pub(super) fn open(directory: &Path) -> Result<Self, FileError> {
        durable::create_private_dir(directory)?;
        let open = |stream: Stream| {
            let path = directory.join(stream.file_name());
            let file = File::options()
                .create(true)
                .truncate(false)
                .read(true)
                .write(true)
                .mode(0o600)
                .open(&path)
                .map_err(FileError::at("open", &path))?;
            let size = file.metadata().map_err(FileError::at("read", &path))?.len();
            Ok(Copy { path, file, size })
        };
        Ok(Self {
            stdout: open(Stream::Stdout)?,
            stderr: open(Stream::Stderr)?,
        })
    }

    pub(super) fn copy(&mut self, stream: Stream) -> &mut Copy {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }
}

impl Copy {
    /// Takes the bytes at `offset`; what was there already is not taken twice.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), FileError> {
        self.file
            .write_all_at(data, offset)
            .map_err(FileError::at("write", &self.path))?;
        self.size = self.size.max(offset + data.len() as u64);
        Ok(())
    }

    /// The last bytes, as text.
    pub(super) fn tail(&self, limit: u64) -> String {
        let from = self.size.saturating_sub(limit);
        let mut bytes = vec![0; usize::try_from(self.size - from).unwrap_or_default()];
        match self.file.read_exact_at(&mut bytes, from) {
            Ok(()) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => format!("(the local copy cannot be read: {error})"),
        }
    }
}
