//! Opening the candidate's files so that none outside of it can be read.
//!
//! Somebody may edit the candidate while it is read. Were a directory exchanged for a link at the right moment, a read by
//! path would follow it to a private key and stage that; so no link is followed, at any component.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::error::SnapshotError;

/// The candidate's root, and the directory that was used last: neighbours in the sorted order mostly share it.
#[derive(Debug)]
pub(super) struct Tree {
    root: OwnedFd,
    last: Option<(PathBuf, OwnedFd)>,
}

impl Tree {
    pub(super) fn open(root: &Path) -> Result<Self, SnapshotError> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let root =
            rustix::fs::open(root, flags, Mode::empty()).map_err(|error| SnapshotError::Unreadable {
                path: root.to_owned(),
                source: error.into(),
            })?;
        Ok(Self { root, last: None })
    }

    /// Opens the regular file at `path`. That something else stands there now shows as [`SnapshotError::Changed`].
    pub(super) fn file(&mut self, path: &Path) -> Result<File, SnapshotError> {
        let failed = |source: io::Error| {
            let path = path.to_owned();
            match Errno::from_io_error(&source) {
                Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => SnapshotError::Changed { path },
                _ => SnapshotError::Unreadable { path, source },
            }
        };
        let file = self.open_file(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.is_file() {
            Ok(file)
        } else {
            Err(SnapshotError::Changed {
                path: path.to_owned(),
            })
        }
    }

    fn open_file(&mut self, path: &Path) -> io::Result<File> {
        let parent = path.parent().unwrap_or(Path::new(""));
        let name = path.file_name().unwrap_or_default();
        // Not blocking, in case it is a fifo by now.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let directory = if parent.as_os_str().is_empty() {
            &self.root
        } else {
            match &mut self.last {
                Some((last, _)) if last == parent => {}
                last => *last = Some((parent.to_owned(), descend(&self.root, parent)?)),
            }
            self.last.as_ref().map_or(&self.root, |(_, directory)| directory)
        };
        Ok(rustix::fs::openat(directory, name, flags, Mode::empty())?.into())
    }
}

fn descend(root: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    let mut directory = root.try_clone()?;
    for part in path.components() {
        directory = rustix::fs::openat(&directory, part.as_os_str(), flags, Mode::empty())?;
    }
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn no_link_on_the_way_to_a_file_is_followed() {
        let scratch = tempfile::tempdir().unwrap();
        let (root, outside) = (scratch.path().join("root"), scratch.path().join("outside"));
        std::fs::create_dir_all(root.join("a")).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(root.join("a/f"), "inside").unwrap();
        std::fs::write(outside.join("f"), "secret").unwrap();
        symlink(&outside, root.join("d")).unwrap();
        symlink(outside.join("f"), root.join("a/l")).unwrap();
        let mut tree = Tree::open(&root).unwrap();
        assert!(tree.file(Path::new("a/f")).is_ok());
        for path in ["d/f", "a/l", "a", "a/none", "a/f/g"] {
            let error = tree.file(Path::new(path)).unwrap_err();
            assert!(
                matches!(error, SnapshotError::Changed { .. }),
                "{path}: {error:?}"
            );
        }
    }
}
