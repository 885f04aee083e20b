//! A profile, validated.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::error::{ConfigError, Problem, nearest};
use super::launch::{LaunchPlan, plan};
use super::raw::{self, RawProfile};
use crate::job::duration::{parse_duration, parse_walltime};

/// Which runner a profile uses: the one word that switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunnerKind {
    /// Native SSH and Slurm.
    SlurmSsh,
    /// The SkyPilot CLI.
    Skypilot,
    /// This machine, no cluster.
    Local,
}

/// The accelerator programming model that a profile provides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AcceleratorBackend {
    /// AMD.
    Rocm,
    /// NVIDIA.
    Cuda,
    /// AWS Trainium.
    Trainium,
    /// No accelerator.
    Cpu,
}

/// `[profiles.NAME.ssh]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshOptions {
    /// The host, resolved through ssh_config.
    pub host: String,
    /// What the operator does to renew a certificate; only ever printed.
    pub renew_hint: Option<String>,
}

/// `[profiles.NAME.slurm]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlurmOptions {
    /// sbatch --partition.
    pub partition: String,
    /// sbatch --account.
    pub account: Option<String>,
    /// sbatch --qos.
    pub qos: Option<String>,
    /// sbatch and srun --gres, for example `gpu:4`.
    pub gres: Option<String>,
    /// sbatch and srun --gpus-per-node.
    pub gpus_per_node: Option<u32>,
    /// sbatch and srun --mem; `0` is all of the node.
    pub memory: Option<String>,
    /// sbatch --constraint.
    pub constraint: Option<String>,
    /// sbatch --reservation.
    pub reservation: Option<String>,
    /// sbatch --exclude.
    pub exclude: Option<String>,
    /// How long an allocation without work is kept.
    pub idle_timeout: Duration,
    /// How long a container may take to start.
    pub start_timeout: Duration,
    /// Further options of sbatch, as they are.
    pub extra_sbatch_args: Vec<String>,
}

/// An operator's description of one cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// The runner.
    pub runner: RunnerKind,
    /// What SkyPilot calls it; only that runner uses it.
    pub infra: Option<String>,
    /// The programming model of the accelerators.
    pub accelerator_backend: AcceleratorBackend,
    /// For example `MI300A`.
    pub accelerator_type: Option<String>,
    /// How many a node has.
    pub accelerators_per_node: u32,
    /// How many CPUs a node has.
    pub cpus_per_node: Option<u32>,
    /// Memory of a node, for SkyPilot.
    pub memory_gb_per_node: Option<u32>,
    /// The most nodes a request may have.
    pub max_nodes: u32,
    /// Whole nodes.
    pub exclusive: bool,
    /// SkyPilot's `image_id`.
    pub remote_runtime_image: Option<String>,
    /// How a step is launched.
    pub launch: LaunchPlan,
    /// Time limit of an allocation.
    pub allocation_time: Duration,
    /// Where everything remote lives: absolute, or beginning with a variable of the login environment.
    pub remote_artifact_root: String,
    /// How the cluster is reached.
    pub ssh: Option<SshOptions>,
    /// What is asked of Slurm.
    pub slurm: Option<SlurmOptions>,
}

/// Name of the built-in profile.
pub const LOCAL: &str = "local";
const DEFAULT_IDLE: Duration = Duration::from_secs(15 * 60);
const DEFAULT_START: Duration = Duration::from_secs(30 * 60);
const DEFAULT_ALLOCATION: Duration = Duration::from_secs(60 * 60);

impl Profile {
    /// The built-in profile: this machine, no file needed. `root` is where the runner keeps its files.
    pub fn local(root: &str) -> Self {
        Self {
            name: LOCAL.to_owned(),
            runner: RunnerKind::Local,
            infra: None,
            accelerator_backend: AcceleratorBackend::Cpu,
            accelerator_type: None,
            accelerators_per_node: 0,
            cpus_per_node: None,
            memory_gb_per_node: None,
            max_nodes: 1,
            exclusive: false,
            remote_runtime_image: None,
            launch: LaunchPlan {
                srun_options: Vec::new(),
                container: super::Container::None,
            },
            allocation_time: Duration::ZERO,
            remote_artifact_root: root.to_owned(),
            ssh: None,
            slurm: None,
        }
    }

    /// How long an allocation without work is kept.
    pub fn idle_timeout(&self) -> Duration {
        self.slurm
            .as_ref()
            .map_or(DEFAULT_IDLE, |slurm| slurm.idle_timeout)
    }

    /// How long a container may take to start.
    pub fn start_timeout(&self) -> Duration {
        self.slurm
            .as_ref()
            .map_or(DEFAULT_START, |slurm| slurm.start_timeout)
    }
}

/// A whole `clusters.toml`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    profiles: BTreeMap<String, Profile>,
}

impl Document {
    /// Reads and validates the file.
    ///
    /// # Errors
    /// Everything that is wrong with it, at once.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let bytes = std::fs::read(path).map_err(|source| {
            if source.kind() == std::io::ErrorKind::NotFound {
                ConfigError::Missing {
                    path: path.to_owned(),
                }
            } else {
                ConfigError::Unreadable {
                    path: path.to_owned(),
                    source,
                }
            }
        })?;
        let invalid = |problems| ConfigError::Invalid {
            path: path.to_owned(),
            problems,
        };
        let text = String::from_utf8(bytes).map_err(|error| {
            let line = error.as_bytes()[..error.utf8_error().valid_up_to()]
                .split(|b| *b == b'\n')
                .count();
            invalid(vec![Problem {
                place: Some((line, 1)),
                message: "the file is not UTF-8 text".to_owned(),
            }])
        })?;
        Self::parse(&text).map_err(invalid)
    }

    /// Validates the text of a file.
    ///
    /// # Errors
    /// Everything that is wrong with it, at once.
    pub fn parse(text: &str) -> Result<Self, Vec<Problem>> {
        let table: Spanned<toml::de::DeTable<'_>> = toml::de::DeTable::parse(text).map_err(|error| {
            vec![Problem {
                place: error.span().map(|span| place(text, span.start)),
                message: error.message().to_owned(),
            }]
        })?;
        let mut check = Check {
            text,
            problems: Vec::new(),
        };
        let profiles = check.document(table.get_ref());
        if check.problems.is_empty() {
            Ok(Self { profiles })
        } else {
            Err(check.problems)
        }
    }

    /// The profile of that name.
    ///
    /// # Errors
    /// There is none; the error lists what there is.
    pub fn profile(&self, name: &str) -> Result<&Profile, ConfigError> {
        self.profiles
            .get(name)
            .ok_or_else(|| ConfigError::UnknownProfile {
                name: name.to_owned(),
                available: self.names().map(str::to_owned).collect(),
                nearest: nearest(name, self.names()).map(str::to_owned),
            })
    }

    /// The names of all profiles, sorted; `local` is always there besides them.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.profiles.keys().map(String::as_str)
    }
}

fn place(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}

struct Check<'a> {
    text: &'a str,
    problems: Vec<Problem>,
}

type Table<'t> = toml::de::DeTable<'t>;

impl Check<'_> {
    fn problem(&mut self, offset: usize, message: impl Into<String>) {
        self.problems.push(Problem {
            place: Some(place(self.text, offset)),
            message: message.into(),
        });
    }

    fn keys(&mut self, table: &Table<'_>, known: &[&str], of: &str) {
        for key in table.keys() {
            let name: &str = key.get_ref();
            if !known.contains(&name) {
                let meant = nearest(name, known.iter().copied())
                    .map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                let list = known.join(", ");
                self.problem(
                    key.span().start,
                    format!("unknown key `{name}` in {of}{meant} (known keys: {list})"),
                );
            }
        }
    }

    fn document(&mut self, table: &Table<'_>) -> BTreeMap<String, Profile> {
        self.keys(table, raw::TOP, "the file");
        if let Some(version) = table.get("schema_version")
            && version
                .get_ref()
                .as_integer()
                .is_none_or(|number| number.as_str() != "1")
        {
            self.problem(
                version.span().start,
                "schema_version must be 1, the only version there is",
            );
        }
        let mut profiles = BTreeMap::new();
        let Some(entries) = table.get("profiles") else {
            self.problem(0, "there is no [profiles.NAME] table, and at least one is needed");
            return profiles;
        };
        let Some(entries_table) = entries.get_ref().as_table() else {
            self.problem(
                entries.span().start,
                "`profiles` must be a table of profiles: [profiles.NAME]",
            );
            return profiles;
        };
        for (key, value) in entries_table {
            let name: &str = key.get_ref();
            if !valid_name(name) {
                self.problem(
                    key.span().start,
                    format!(
                        "`{name}` is not a profile name: lower-case letters, digits, `.`, `_` and `-`, 64 at the most, \
                         beginning and ending with a letter or digit"
                    ),
                );
            } else if name == LOCAL {
                self.problem(
                    key.span().start,
                    "`local` is built in and cannot be defined: choose another name",
                );
            } else if let Some(profile) = value.get_ref().as_table() {
                if let Some(profile) = self.profile(name, profile, value) {
                    profiles.insert(name.to_owned(), profile);
                }
            } else {
                self.problem(value.span().start, format!("`profiles.{name}` must be a table"));
            }
        }
        if entries_table.is_empty() {
            self.problem(entries.span().start, "there is no profile in the file");
        }
        profiles
    }

    fn profile(
        &mut self,
        name: &str,
        table: &Table<'_>,
        value: &Spanned<toml::de::DeValue<'_>>,
    ) -> Option<Profile> {
        let before = self.problems.len();
        self.keys(table, raw::PROFILE, &format!("[profiles.{name}]"));
        for (part, known) in [("ssh", raw::SSH), ("slurm", raw::SLURM)] {
            if let Some(inner) = table.get(part).and_then(|inner| inner.get_ref().as_table()) {
                self.keys(inner, known, &format!("[profiles.{name}.{part}]"));
            }
        }
        let start = value.span().start;
        let raw: RawProfile = match RawProfile::deserialize(toml::de::ValueDeserializer::from(value.clone()))
        {
            Ok(raw) => raw,
            Err(error) => {
                let at = error.span().map_or(start, |span| span.start);
                let message = error.message().lines().next().unwrap_or_default().to_owned();
                self.problem(at, format!("in [profiles.{name}]: {message}"));
                return None;
            }
        };
        let profile = self.validated(name, start, raw);
        (self.problems.len() == before).then_some(profile).flatten()
    }

    #[expect(
        clippy::too_many_lines,
        reason = "one key after the other, each by its own rule"
    )]
    fn validated(&mut self, name: &str, start: usize, raw: RawProfile) -> Option<Profile> {
        let at = raw.runner.span().start;
        let runner = match raw.runner.get_ref().as_str() {
            "slurm-ssh" => RunnerKind::SlurmSsh,
            "skypilot" => RunnerKind::Skypilot,
            "local" => RunnerKind::Local,
            other => {
                self.problem(
                    at,
                    format!("runner must be `slurm-ssh`, `skypilot` or `local`, not `{other}`"),
                );
                return None;
            }
        };
        let mut missing = Vec::new();
        if runner == RunnerKind::SlurmSsh {
            if raw.ssh.is_none() {
                missing.push("the table [profiles.NAME.ssh] with `host`");
            }
            if raw.slurm.is_none() {
                missing.push("the table [profiles.NAME.slurm] with `partition`");
            }
        }
        if runner == RunnerKind::Skypilot && raw.infra.as_deref().is_none_or(|infra| infra.trim().is_empty())
        {
            missing.push("`infra`");
        }
        if runner != RunnerKind::Local && raw.remote_artifact_root.is_none() {
            missing.push("`remote_artifact_root`");
        }
        if runner != RunnerKind::Local && raw.accelerator_backend.is_none() {
            missing.push("`accelerator_backend`");
        }
        if !missing.is_empty() {
            let list = missing.join(" and ").replace("NAME", name);
            let word = raw.runner.get_ref();
            self.problem(
                at,
                format!("runner = \"{word}\" needs {list} in [profiles.{name}]"),
            );
        }
        let backend = raw
            .accelerator_backend
            .as_ref()
            .map_or(Some(AcceleratorBackend::Cpu), |word| {
                let backend = match word.get_ref().as_str() {
                    "rocm" => AcceleratorBackend::Rocm,
                    "cuda" => AcceleratorBackend::Cuda,
                    "trainium" => AcceleratorBackend::Trainium,
                    "cpu" => AcceleratorBackend::Cpu,
                    other => {
                        self.problem(
                            word.span().start,
                            format!("accelerator_backend must be rocm, cuda, trainium or cpu, not `{other}`"),
                        );
                        return None;
                    }
                };
                Some(backend)
            });
        for (key, value) in [
            ("accelerators_per_node", &raw.accelerators_per_node),
            ("cpus_per_node", &raw.cpus_per_node),
            ("max_nodes", &raw.max_nodes),
        ] {
            if let Some(value) = value.as_ref().filter(|value| *value.get_ref() == 0) {
                self.problem(value.span().start, format!("{key} must be at least 1"));
            }
        }
        let allocation_time = self.time(
            raw.allocation_time.as_ref(),
            "allocation_time",
            DEFAULT_ALLOCATION,
        );
        let root = self.root(raw.remote_artifact_root.as_ref());
        let environment = raw.slurm.as_ref().and_then(|slurm| slurm.environment.as_ref());
        let launch = match plan(
            raw.command_prefix
                .as_ref()
                .map(|words| words.get_ref().as_slice()),
            environment.map(|path| path.get_ref().as_str()),
        ) {
            Ok(mut launch) => {
                if let Some(slurm) = &raw.slurm {
                    launch.srun_options.extend(slurm.extra_srun_args.iter().cloned());
                }
                Some(launch)
            }
            Err(message) => {
                let at = environment
                    .map(|path| path.span().start)
                    .or(raw.command_prefix.as_ref().map(|words| words.span().start));
                self.problem(at.unwrap_or(start), message);
                None
            }
        };
        let slurm = raw.slurm.map(|slurm| self.slurm(slurm));
        Some(Profile {
            name: name.to_owned(),
            runner,
            infra: raw.infra,
            accelerator_backend: backend?,
            accelerator_type: raw.accelerator_type,
            accelerators_per_node: raw.accelerators_per_node.map_or(0, Spanned::into_inner),
            cpus_per_node: raw.cpus_per_node.map(Spanned::into_inner),
            memory_gb_per_node: raw.memory_gb_per_node,
            max_nodes: raw.max_nodes.map_or(1, Spanned::into_inner),
            exclusive: raw.exclusive,
            remote_runtime_image: raw.remote_runtime_image,
            launch: launch?,
            allocation_time: allocation_time?,
            remote_artifact_root: root?,
            ssh: raw.ssh.map(|ssh| SshOptions {
                host: ssh.host.into_inner(),
                renew_hint: ssh.renew_hint,
            }),
            slurm,
        })
    }

    fn slurm(&mut self, raw: raw::RawSlurm) -> SlurmOptions {
        if let (Some(_), Some(gpus)) = (&raw.gres, &raw.gpus_per_node) {
            self.problem(
                gpus.span().start,
                "`gres` and `gpus_per_node` ask for the same thing: keep one of them",
            );
        }
        if raw.partition.get_ref().is_empty() {
            self.problem(raw.partition.span().start, "partition must not be empty");
        }
        let idle_timeout = self.duration(raw.idle_timeout.as_ref(), "idle_timeout", DEFAULT_IDLE);
        let start_timeout = self.duration(raw.start_timeout.as_ref(), "start_timeout", DEFAULT_START);
        SlurmOptions {
            partition: raw.partition.into_inner(),
            account: raw.account,
            qos: raw.qos,
            gres: raw.gres,
            gpus_per_node: raw.gpus_per_node.map(Spanned::into_inner),
            memory: raw.memory,
            constraint: raw.constraint,
            reservation: raw.reservation,
            exclude: raw.exclude,
            idle_timeout,
            start_timeout,
            extra_sbatch_args: raw.extra_sbatch_args,
        }
    }

    fn duration(&mut self, value: Option<&Spanned<String>>, key: &str, default: Duration) -> Duration {
        let Some(value) = value else { return default };
        parse_duration(value.get_ref()).unwrap_or_else(|error| {
            self.problem(value.span().start, format!("{key}: {error}"));
            default
        })
    }

    fn time(&mut self, value: Option<&Spanned<String>>, key: &str, default: Duration) -> Option<Duration> {
        let Some(value) = value else { return Some(default) };
        match parse_walltime(value.get_ref()) {
            Ok(time) => Some(time),
            Err(error) => {
                self.problem(value.span().start, format!("{key}: {error}"));
                None
            }
        }
    }

    fn root(&mut self, value: Option<&Spanned<String>>) -> Option<String> {
        let value = value?;
        let text = value.get_ref().trim_end_matches('/');
        let (head, rest) = text.split_once('/').unwrap_or((text, ""));
        let head_ok = head.is_empty()
            || head.strip_prefix('$').is_some_and(|name| {
                !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            });
        let odd = |c: char| c.is_control() || "$`\"'\\*?[]{}~;&|<>() ".contains(c);
        let rest_ok = !rest.is_empty()
            && rest
                .split('/')
                .all(|part| !part.is_empty() && part != "." && part != ".." && !part.contains(odd));
        if head_ok && rest_ok {
            return Some(text.to_owned());
        }
        self.problem(
            value.span().start,
            format!(
                "remote_artifact_root must be an absolute path, or begin with a variable as in `$SCRATCH/vibesys`, \
                 without `.`, `..`, blanks and other shell syntax, not `{text}`"
            ),
        );
        None
    }
}

fn valid_name(name: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    name.len() <= 64
        && edge(name.chars().next())
        && edge(name.chars().last())
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ORIGINAL: &str = r#"
[profiles.cscs-mi300]
runner = "skypilot"
infra = "slurm/beverin/mi300"
accelerator_backend = "rocm"
accelerator_type = "MI300A"
accelerators_per_node = 4
cpus_per_node = 192
exclusive = true
command_prefix = ["srun", "--overlap", "--environment=/path/to/runtime-environment.toml"]
allocation_time = "08:00:00"
remote_artifact_root = "/capstor/scratch/cscs/vibesys"
"#;

    fn problems(text: &str) -> String {
        let error = Document::parse(text).unwrap_err();
        ConfigError::Invalid {
            path: "clusters.toml".into(),
            problems: error,
        }
        .to_string()
    }

    #[test]
    fn the_profile_of_the_original_loads_unchanged() {
        let document = Document::parse(ORIGINAL).unwrap();
        let profile = document.profile("cscs-mi300").unwrap();
        assert_eq!(profile.runner, RunnerKind::Skypilot);
        assert_eq!(profile.allocation_time, Duration::from_secs(8 * 3600));
        assert_eq!(profile.max_nodes, 1);
    }

    #[test]
    fn the_switched_word_says_which_tables_are_missing() {
        let text = problems(&ORIGINAL.replace("\"skypilot\"", "\"slurm-ssh\""));
        assert!(text.starts_with("clusters.toml:3:10:"), "{text}");
        assert!(
            text.contains("[profiles.cscs-mi300.ssh]") && text.contains("[profiles.cscs-mi300.slurm]"),
            "{text}"
        );
    }

    #[test]
    fn every_unknown_key_is_named_with_its_place_and_the_nearest_known_one() {
        let text = problems(&format!(
            "{ORIGINAL}acelerator_type = \"x\"\n[profiles.cscs-mi300.slurm]\npartition = \"p\"\nacount = \"a\"\n"
        ));
        assert!(
            text.contains("clusters.toml:13:1: unknown key `acelerator_type`"),
            "{text}"
        );
        assert!(text.contains("did you mean `accelerator_type`?"), "{text}");
        assert!(
            text.contains("clusters.toml:16:1: unknown key `acount`"),
            "{text}"
        );
        assert!(text.contains("did you mean `account`?"), "{text}");
    }

    #[test]
    fn wrong_values_say_what_was_expected() {
        for (from, to, expected) in [
            (
                "accelerators_per_node = 4",
                "accelerators_per_node = \"4\"",
                "invalid type",
            ),
            (
                "accelerators_per_node = 4",
                "accelerators_per_node = 0",
                "at least 1",
            ),
            ("\"08:00:00\"", "\"8h\"", "allocation_time"),
            (
                "\"/capstor/scratch/cscs/vibesys\"",
                "\"/capstor/../etc\"",
                "remote_artifact_root",
            ),
            (
                "\"/capstor/scratch/cscs/vibesys\"",
                "\"$(id)/x\"",
                "remote_artifact_root",
            ),
            ("\"rocm\"", "\"vulkan\"", "rocm, cuda"),
            ("\"skypilot\"", "\"slurm\"", "slurm-ssh"),
            ("[profiles.cscs-mi300]", "[profiles.local]", "built in"),
            ("[profiles.cscs-mi300]", "[profiles.Bad]", "not a profile name"),
            (
                "[profiles.cscs-mi300]",
                "schema_version = 2\n[profiles.cscs-mi300]",
                "must be 1",
            ),
        ] {
            let text = problems(&ORIGINAL.replace(from, to));
            assert!(text.contains(expected), "{to}: {text}");
        }
    }

    #[test]
    fn the_example_is_valid_and_the_document_has_every_key() {
        let document = Document::parse(include_str!("../../examples/clusters.toml")).unwrap();
        assert_eq!(document.names().count(), 3);
        let text = include_str!("../../docs/profile.md");
        for key in [raw::PROFILE, raw::SSH, raw::SLURM].concat() {
            let written = text.contains(&format!("`{key}`")) || text.contains(&format!(".{key}]`"));
            assert!(written, "docs/profile.md does not mention `{key}`");
        }
    }

    #[test]
    fn an_unknown_profile_lists_what_there_is() {
        let error = Document::parse(ORIGINAL)
            .unwrap()
            .profile("cscs-mi30")
            .unwrap_err();
        assert!(error.to_string().contains("cscs-mi300"));
        assert_eq!(error.hint().unwrap(), "did you mean `cscs-mi300`?");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(cut in 0..ORIGINAL.len(), insert in "\\PC{0,12}") {
            let mut text = ORIGINAL.to_owned();
            text.insert_str(cut, &insert);
            drop(Document::parse(&text));
            drop(Document::parse(&insert));
        }
    }
}
