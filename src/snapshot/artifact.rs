//! Artifacts on their way back: declared by a relative name, checked by size and digest, never outside their directory.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A path below the workspace: relative, without `.` and `..`, valid UTF-8, no control characters, of a length that a file
/// system can hold.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ArtifactPath(String);

const LONGEST_NAME: usize = 255;
const LONGEST_PATH: usize = 4096 - 256;

/// A name that cannot be an artifact's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` cannot be an artifact: name a file or directory below the workspace, without `.`, `..` or a leading `/`"
)]
pub struct ArtifactPathError(String);

impl ArtifactPath {
    /// The path.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ArtifactPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ArtifactPath {
    type Err = ArtifactPathError;

    fn from_str(text: &str) -> Result<Self, ArtifactPathError> {
        let text = text.trim_end_matches('/');
        let normal = Path::new(text)
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        // `components` drops `.` and doubled slashes by itself, so the text is compared too.
        let plain = text
            .split('/')
            .all(|part| !part.is_empty() && part != "." && part != ".." && part.len() <= LONGEST_NAME);
        if normal && plain && text.len() <= LONGEST_PATH && !text.chars().any(char::is_control) {
            Ok(Self(text.to_owned()))
        } else {
            Err(ArtifactPathError(text.to_owned()))
        }
    }
}

impl TryFrom<String> for ArtifactPath {
    type Error = ArtifactPathError;

    fn try_from(text: String) -> Result<Self, ArtifactPathError> {
        text.parse()
    }
}

impl From<ArtifactPath> for String {
    fn from(path: ArtifactPath) -> Self {
        path.0
    }
}

/// An artifact as the node saw it after the command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// Where it is below the workspace, and goes below the target directory.
    pub path: ArtifactPath,
    /// Its size in bytes.
    pub size: u64,
    /// The SHA-256 of its content, lower-case hex.
    pub sha256: String,
}

/// Why an artifact was not taken.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// The list from the node is not in its form.
    #[error("the list of artifacts is malformed near `{0}`")]
    List(String),
    /// A directory or file of the target cannot be made.
    #[error("cannot write the artifact {}", path.display())]
    Write {
        /// Where.
        path: PathBuf,
        /// Why; a symbolic link in the way shows as "Not a directory" or "Too many levels of symbolic links".
        #[source]
        source: io::Error,
    },
    /// What came is not what was announced.
    #[error(
        "the artifact {path} arrived with {what} instead of what the node announced; nothing was written"
    )]
    Mismatch {
        /// The artifact.
        path: ArtifactPath,
        /// What differs.
        what: String,
    },
}

/// Reads the launcher's list: `SHA256 SIZE PATH` ended by NUL, for each.
///
/// # Errors
/// [`ArtifactError::List`].
pub fn parse_list(bytes: &[u8]) -> Result<Vec<Artifact>, ArtifactError> {
    let items = bytes.split(|byte| *byte == 0).filter(|item| !item.is_empty());
    let parse = |item: &[u8]| {
        let mut words = std::str::from_utf8(item).ok()?.splitn(3, ' ');
        let (digest, size, path) = (words.next()?, words.next()?, words.next()?);
        let hex = digest.len() == 64
            && digest
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        hex.then_some(())?;
        Some(Artifact {
            path: path.parse().ok()?,
            size: size.parse().ok()?,
            sha256: digest.to_owned(),
        })
    };
    items
        .map(|item| {
            parse(item).ok_or_else(|| ArtifactError::List(String::from_utf8_lossy(item).into_owned()))
        })
        .collect()
}

/// One artifact being received: a private temporary file that becomes the artifact only when everything fits.
#[derive(Debug)]
pub struct Receiver {
    artifact: Artifact,
    target: PathBuf,
    directory: OwnedFd,
    /// Directories that were made for it, each by its parent and name.
    made: Made,
    temporary: String,
    file: File,
    hasher: Sha256,
    received: u64,
}

impl Receiver {
    /// Begins to receive `artifact` below `target`. No component below `target` may be a symbolic link.
    ///
    /// # Errors
    /// The place cannot be made.
    pub fn begin(target: &Path, artifact: Artifact) -> Result<Self, ArtifactError> {
        let full = target.join(artifact.path.as_str());
        let failed = |source: io::Error| ArtifactError::Write {
            path: full.clone(),
            source,
        };
        std::fs::create_dir_all(target).map_err(failed)?;
        let open = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
        let mut directory = rustix::fs::open(
            target,
            OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY,
            Mode::empty(),
        )
        .map_err(|error| failed(error.into()))?;
        let parents = artifact
            .path
            .as_str()
            .rsplit_once('/')
            .map_or("", |(parents, _)| parents);
        let mut made = Made(Vec::new());
        for part in parents.split('/').filter(|part| !part.is_empty()) {
            let new = match rustix::fs::mkdirat(&directory, part, Mode::from(0o755)) {
                Ok(()) => true,
                Err(rustix::io::Errno::EXIST) => false,
                Err(error) => return Err(failed(error.into())),
            };
            let below =
                rustix::fs::openat(&directory, part, open, Mode::empty()).map_err(|e| failed(e.into()))?;
            let parent = std::mem::replace(&mut directory, below);
            if new {
                made.0.push((parent, part.to_owned()));
            }
        }
        let suffix = crate::ids::random_hex(6).map_err(|error| failed(io::Error::other(error)))?;
        let temporary = format!(".vibesys-{suffix}.part");
        let create = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&directory, temporary.as_str(), create, Mode::from(0o644))
            .map_err(|error| failed(error.into()))?;
        Ok(Self {
            artifact,
            target: full,
            directory,
            made,
            temporary,
            file: file.into(),
            hasher: Sha256::new(),
            received: 0,
        })
    }

    /// How many bytes have come.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// The local disk refuses them, or they are more than were announced, which must not fill the disk.
    pub fn write(&mut self, data: &[u8]) -> Result<(), ArtifactError> {
        self.hasher.update(data);
        self.received += data.len() as u64;
        if self.received > self.artifact.size {
            return Err(self.mismatch(format!("more than the {} bytes announced", self.artifact.size)));
        }
        self.file.write_all(data).map_err(|source| ArtifactError::Write {
            path: self.target.clone(),
            source,
        })
    }

    fn mismatch(&self, what: String) -> ArtifactError {
        ArtifactError::Mismatch {
            path: self.artifact.path.clone(),
            what,
        }
    }

    /// Publishes the artifact if it is what was announced, so that it survives a crash.
    ///
    /// # Errors
    /// It is not, or the rename fails; nothing is left in either case, not even directories that were made for it.
    pub fn finish(mut self) -> Result<PathBuf, ArtifactError> {
        let digest = crate::ids::hex(&self.hasher.clone().finalize());
        let mismatch = if self.received != self.artifact.size {
            Some(format!(
                "{} bytes, {} announced",
                self.received, self.artifact.size
            ))
        } else if digest != self.artifact.sha256 {
            Some(format!("the digest {digest}"))
        } else {
            None
        };
        if let Some(what) = mismatch {
            return Err(self.mismatch(what));
        }
        let name = self.artifact.path.as_str().rsplit('/').next().unwrap_or_default();
        let published = self.file.sync_all().and_then(|()| {
            rustix::fs::renameat(&self.directory, &self.temporary, &self.directory, name)?;
            // From here it is there, so what was made for it stays, whatever the syncs say.
            let made = std::mem::take(&mut self.made.0);
            rustix::fs::fsync(&self.directory)?;
            made.iter()
                .try_for_each(|(parent, _)| rustix::fs::fsync(parent))?;
            Ok(())
        });
        published.map_err(|source| ArtifactError::Write {
            path: self.target.clone(),
            source,
        })?;
        Ok(self.target.clone())
    }
}

/// Directories that go again unless they are needed.
#[derive(Debug)]
struct Made(Vec<(OwnedFd, String)>);

impl Drop for Made {
    fn drop(&mut self) {
        for (parent, name) in self.0.iter().rev() {
            // One that somebody else uses meanwhile is not empty and stays.
            let _used = rustix::fs::unlinkat(parent, name.as_str(), rustix::fs::AtFlags::REMOVEDIR);
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // After a rename there is nothing of that name; in every other case it is ours to remove.
        let _gone = rustix::fs::unlinkat(
            &self.directory,
            self.temporary.as_str(),
            rustix::fs::AtFlags::empty(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(path: &str, content: &[u8]) -> Artifact {
        Artifact {
            path: path.parse().unwrap(),
            size: content.len() as u64,
            sha256: crate::ids::hex(&Sha256::digest(content)),
        }
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in [
            "",
            "/etc/passwd",
            "../x",
            "a/../../x",
            "a//b",
            "./a",
            "a/.",
            "a\nb",
            "..",
        ] {
            assert!(name.parse::<ArtifactPath>().is_err(), "{name:?}");
        }
        for name in ["a", "a/b.json", "-x", "a b", "...", "out/"] {
            assert!(name.parse::<ArtifactPath>().is_ok(), "{name:?}");
        }
    }

    #[test]
    fn an_artifact_appears_whole_or_not_at_all() {
        let target = tempfile::tempdir().unwrap();
        let mut receiver = Receiver::begin(target.path(), artifact("a/b/c", b"hello")).unwrap();
        receiver.write(b"hel").unwrap();
        assert!(!target.path().join("a/b/c").exists());
        receiver.write(b"lo").unwrap();
        assert_eq!(std::fs::read(receiver.finish().unwrap()).unwrap(), b"hello");
        for wrong in [&b"hell"[..], b"hellO", b"hello!"] {
            let mut receiver = Receiver::begin(target.path(), artifact("a/d/e/x", b"hello")).unwrap();
            let taken = receiver.write(wrong).and_then(|()| receiver.finish());
            assert!(matches!(taken, Err(ArtifactError::Mismatch { .. })));
            assert_eq!(std::fs::read_dir(target.path().join("a")).unwrap().count(), 1);
        }
        drop(Receiver::begin(target.path(), artifact("a/d/x", b"hello")).unwrap());
        assert!(!target.path().join("a/d").exists());
    }

    #[test]
    fn a_link_in_the_target_is_not_followed() {
        let (target, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::os::unix::fs::symlink(outside.path(), target.path().join("a")).unwrap();
        assert!(Receiver::begin(target.path(), artifact("a/x", b"")).is_err());
        std::os::unix::fs::symlink(outside.path().join("f"), target.path().join("l")).unwrap();
        Receiver::begin(target.path(), artifact("l", b""))
            .unwrap()
            .finish()
            .unwrap();
        assert!(!target.path().join("l").is_symlink());
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_list_that_lies_about_names_is_refused() {
        let digest = "a".repeat(64);
        assert_eq!(
            parse_list(format!("{digest} 5 out/a b\0").as_bytes()).unwrap()[0]
                .path
                .as_str(),
            "out/a b"
        );
        for bad in [
            format!("{digest} 5 ../x\0"),
            format!("{digest} -5 x\0"),
            "short 5 x\0".to_owned(),
            "\x01".to_owned(),
        ] {
            assert!(parse_list(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
