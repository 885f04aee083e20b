//! What is never staged, and how much may be.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Why something was left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// Credentials and private settings.
    Secret,
    /// The data of a version control system.
    Repository,
    /// A cache that a tool makes again.
    Cache,
    /// Installed packages, which belong to this machine.
    Dependencies,
    /// What a build makes. Files in it that git tracks are staged all the same.
    BuildOutput,
    /// State of this tool.
    OwnState,
    /// A rule of git's, and git does not track it.
    GitIgnored,
}

impl Why {
    /// The reason in words that follow "left out:".
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Secret => "may hold secrets",
            Self::Repository => "version control data",
            Self::Cache => "cache",
            Self::Dependencies => "installed packages",
            Self::BuildOutput => "build output that git does not track",
            Self::OwnState => "state of this tool",
            Self::GitIgnored => "ignored by git",
        }
    }
}

/// The names that are left out wherever they stand; a `*` at the end stands for any rest.
///
/// | reason | names |
/// | --- | --- |
/// | secrets | `.env*` `.ssh` `agent.toml` |
/// | version control | `.git` (always, whatever the caller's rules are) |
/// | caches | `.cache` `.mypy_cache` `.pytest_cache` `.ruff_cache` `.uv-cache` `__pycache__` |
/// | installed packages | `.bin` `.nox` `.pip` `.tox` `.venv` `node_modules` |
/// | build output, unless git tracks it | `build` `dist` |
/// | own state | `.skyignore` `.vibesys-evaluator-package` `.vibesys-evaluator-toolchains` `.vibesys-evaluator-tools` |
pub const EXCLUDED_NAMES: &[(&str, Why)] = &[
    (".env*", Why::Secret),
    (".ssh", Why::Secret),
    ("agent.toml", Why::Secret),
    (".git", Why::Repository),
    (".cache", Why::Cache),
    (".mypy_cache", Why::Cache),
    (".pytest_cache", Why::Cache),
    (".ruff_cache", Why::Cache),
    (".uv-cache", Why::Cache),
    ("__pycache__", Why::Cache),
    (".bin", Why::Dependencies),
    (".nox", Why::Dependencies),
    (".pip", Why::Dependencies),
    (".tox", Why::Dependencies),
    (".venv", Why::Dependencies),
    ("node_modules", Why::Dependencies),
    ("build", Why::BuildOutput),
    ("dist", Why::BuildOutput),
    (".skyignore", Why::OwnState),
    (".vibesys-evaluator-package", Why::OwnState),
    (".vibesys-evaluator-toolchains", Why::OwnState),
    (".vibesys-evaluator-tools", Why::OwnState),
];

/// The paths below the root that are left out, with everything below them.
pub const EXCLUDED_PATHS: &[(&str, Why)] = &[
    (".vibesys/logs", Why::OwnState),
    (".vibesys/state", Why::OwnState),
];

/// What is left out besides what git ignores. The default is [`EXCLUDED_NAMES`] and [`EXCLUDED_PATHS`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Names, at any depth; a `*` at the end stands for any rest.
    pub names: BTreeMap<OsString, Why>,
    /// Paths below the root.
    pub paths: BTreeMap<PathBuf, Why>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            names: EXCLUDED_NAMES
                .iter()
                .map(|(name, why)| (OsString::from(name), *why))
                .collect(),
            paths: EXCLUDED_PATHS
                .iter()
                .map(|(path, why)| (PathBuf::from(path), *why))
                .collect(),
        }
    }
}

impl Rules {
    /// Why the entry at `path` (below the root) is left out for its own name or path; `None` if it is not.
    pub fn why(&self, path: &Path) -> Option<Why> {
        let name = path.file_name().unwrap_or_default();
        if name == ".git" {
            return Some(Why::Repository);
        }
        self.names
            .get(name)
            .or_else(|| self.by_prefix(name))
            .or_else(|| self.paths.get(path))
            .copied()
    }

    fn by_prefix(&self, name: &OsStr) -> Option<&Why> {
        self.names.iter().find_map(|(pattern, why)| {
            let prefix = pattern.as_bytes().strip_suffix(b"*")?;
            name.as_bytes().starts_with(prefix).then_some(why)
        })
    }

    /// Why what was not taken was not: for its own name or path, for that of a directory above, or because of git.
    pub(super) fn why_missing(&self, path: &Path) -> Why {
        let by_rule = path.ancestors().find_map(|part| self.why(part));
        by_rule.unwrap_or(Why::GitIgnored)
    }

    /// Whether a file that git tracks is left out all the same: build output that is tracked is source.
    pub(super) fn refuses_tracked(&self, path: &Path) -> bool {
        path.ancestors()
            .filter(|part| !part.as_os_str().is_empty())
            .filter_map(|part| self.why(part))
            .any(|why| why != Why::BuildOutput)
    }
}

/// Paths that a caller adds to the default rules.
impl Extend<(PathBuf, Why)> for Rules {
    fn extend<I: IntoIterator<Item = (PathBuf, Why)>>(&mut self, paths: I) {
        self.paths.extend(paths);
    }
}

/// How much a candidate may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Regular files.
    pub files: usize,
    /// Bytes of all regular files.
    pub bytes: u64,
}

impl Limits {
    /// No limit, to look at a candidate that is too large.
    pub const NONE: Self = Self {
        files: usize::MAX,
        bytes: u64::MAX,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            files: 50_000,
            bytes: 512 << 20,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_table_in_the_documentation_is_the_list() {
        let source = include_str!("rules.rs");
        let documented: BTreeSet<&str> = source
            .lines()
            .filter_map(|line| line.strip_prefix("/// | "))
            .flat_map(|line| line.split('`').skip(1).step_by(2))
            .collect();
        let listed: BTreeSet<&str> = EXCLUDED_NAMES.iter().map(|(name, _)| *name).collect();
        assert_eq!(documented, listed);
    }

    #[test]
    fn names_count_at_any_depth_and_paths_only_where_they_are() {
        let rules = Rules::default();
        for (path, why) in [
            (".env", Some(Why::Secret)),
            ("a/.env.local", Some(Why::Secret)),
            ("a/b/node_modules", Some(Why::Dependencies)),
            (".vibesys/logs", Some(Why::OwnState)),
            ("a/.vibesys/logs", None),
            (".vibesys", None),
            ("environment", None),
            ("builds", None),
        ] {
            assert_eq!(rules.why(Path::new(path)), why, "{path}");
        }
        assert!(!rules.refuses_tracked(Path::new("build/rules.mk")));
        assert!(rules.refuses_tracked(Path::new("build/.env")));
        let empty = Rules {
            names: BTreeMap::new(),
            paths: BTreeMap::new(),
        };
        assert_eq!(empty.why(Path::new("sub/.git")), Some(Why::Repository));
    }
}
