//! The process environment, read in one place.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use super::args::Global;
use crate::runner::{FailureKind, RunError};

/// What the process was given.
#[derive(Debug)]
pub(super) struct Environment {
    variables: BTreeMap<OsString, OsString>,
}

impl Environment {
    pub(super) fn read() -> Self {
        Self {
            variables: std::env::vars_os().collect(),
        }
    }

    /// A variable that is set and not empty.
    pub(super) fn get(&self, name: &str) -> Option<&OsString> {
        self.variables
            .get(std::ffi::OsStr::new(name))
            .filter(|value| !value.is_empty())
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.to_str()
    }

    pub(super) fn home(&self) -> Result<PathBuf, RunError> {
        self.get("HOME").map(PathBuf::from).ok_or_else(|| {
            RunError::new(
                FailureKind::Config,
                "HOME is not set, so there is no place for configuration and records",
            )
            .hint("set HOME, or name --state-dir and --cluster-profiles-file")
        })
    }

    pub(super) fn state_dir(&self, global: &Global) -> Result<PathBuf, RunError> {
        if let Some(directory) = &global.state_dir {
            return std::path::absolute(directory).map_err(|error| {
                RunError::new(FailureKind::Config, "--state-dir cannot be used").caused_by(error)
            });
        }
        if let Some(directory) = self.get("VIBESYS_STATE_HOME") {
            return absolute("VIBESYS_STATE_HOME", directory);
        }
        if let Some(directory) = self.get("XDG_STATE_HOME") {
            return Ok(absolute("XDG_STATE_HOME", directory)?.join("vibesys"));
        }
        Ok(self.home()?.join(".local/state/vibesys"))
    }

    pub(super) fn profiles_file(&self, global: &Global) -> Result<PathBuf, RunError> {
        if let Some(file) = &global.cluster_profiles_file {
            return Ok(file.clone());
        }
        let config = match self.get("XDG_CONFIG_HOME") {
            Some(directory) => absolute("XDG_CONFIG_HOME", directory)?,
            None => self.home()?.join(".config"),
        };
        Ok(config.join("vibesys/clusters.toml"))
    }
}

fn absolute(name: &str, value: &OsString) -> Result<PathBuf, RunError> {
    let path = PathBuf::from(value);
    if path.is_absolute() {
        return Ok(path);
    }
    Err(RunError::new(
        FailureKind::Config,
        format!("{name} must be an absolute path, not `{}`", path.display()),
    ))
}
