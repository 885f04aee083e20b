//! Files that survive a crash: whole-file replacement with every fsync that it needs.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file operation that failed, with the path it was about.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}", path.display())]
pub struct FileError {
    /// What was being done, as a verb.
    pub action: &'static str,
    /// The path it was done to.
    pub path: PathBuf,
    /// What the operating system said.
    #[source]
    pub source: io::Error,
}

impl FileError {
    /// An adapter for `map_err` that adds the action and the path.
    pub fn at(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self { action, path, source }
    }
}

/// Replaces `path` by `contents` so that a crash at any point leaves the old or the new file, never a mixture.
///
/// Writes a temporary sibling with mode 0600, syncs it, renames it into place and syncs the directory.
///
/// # Errors
/// Any step that the operating system refused.
pub fn write_atomic(path: &Path, contents: &[u8]) -> Result<(), FileError> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let suffix = crate::ids::random_hex(4)
        .map_err(|error| FileError::at("name a temporary file beside", path)(io::Error::other(error)))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = directory.join(format!(".{name}.{suffix}.tmp"));
    let written = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| {
            file.write_all(contents)?;
            file.sync_all()
        })
        .map_err(FileError::at("write", &temporary))
        .and_then(|()| fs::rename(&temporary, path).map_err(FileError::at("replace", path)));
    if written.is_err() {
        // The first error is the one to report; a leftover temporary file is harmless.
        drop(fs::remove_file(&temporary));
    }
    written.and_then(|()| sync_directory(directory))
}

/// Makes a rename, a creation or a removal in `directory` durable.
///
/// # Errors
/// The directory cannot be opened or synced.
pub fn sync_directory(directory: &Path) -> Result<(), FileError> {
    File::open(directory)
        .and_then(|handle| handle.sync_all())
        .map_err(FileError::at("sync directory", directory))
}

/// Creates `directory` and its missing parents with mode 0700.
///
/// # Errors
/// A component exists and is not a directory, or cannot be created.
pub fn create_private_dir(directory: &Path) -> Result<(), FileError> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(FileError::at("create directory", directory))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_replaced_file_is_whole_private_and_leaves_no_temporary() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record.json");
        write_atomic(&path, b"one").unwrap();
        write_atomic(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_write_names_the_path_and_keeps_the_old_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("missing").join("record.json");
        let error = write_atomic(&path, b"x").unwrap_err();
        assert!(error.to_string().contains("record.json"), "{error}");
    }
}
