//! What the tests of the command line share: a candidate, a state directory, the program, and the cluster.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

/// A cluster, described by its own file.
pub(crate) struct Cluster {
    name: &'static str,
    values: BTreeMap<String, String>,
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/testbed")
        .join(name)
}

/// The cluster that the tests share, or `None` on a machine that cannot run one. Under CI that is a failure: the
/// cluster is the point.
pub(crate) fn cluster() -> Option<&'static Cluster> {
    static CLUSTER: OnceLock<Option<Cluster>> = OnceLock::new();
    CLUSTER.get_or_init(|| Cluster::start("it")).as_ref()
}

impl Cluster {
    /// Starts a cluster of that name, or finds it running.
    pub(crate) fn start(name: &'static str) -> Option<Self> {
        let up = Command::new(script("up"))
            .args(["--bed", name])
            .stdin(Stdio::null())
            .output()
            .expect("tests/testbed/up");
        let said = String::from_utf8_lossy(&up.stdout).into_owned() + &String::from_utf8_lossy(&up.stderr);
        if up.status.code() == Some(77) {
            assert!(std::env::var_os("CI").is_none(), "no cluster here: {said}");
            eprintln!("skipped: {said}");
            return None;
        }
        assert!(up.status.success(), "the cluster does not start: {said}");
        let home = std::env::var("VIBESYS_BED_HOME").unwrap_or_else(|_| "/var/tmp/vibesys-bed".to_owned());
        let text = fs::read_to_string(format!("{home}/{name}/bed.env")).unwrap();
        let values = text
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        Some(Self { name, values })
    }

    /// Ends it and removes what it kept.
    pub(crate) fn end(self) {
        self.script("down", &["--wipe"]);
    }

    /// Breaks or mends something.
    pub(crate) fn fault(&self, arguments: &[&str]) {
        self.script("fault", arguments);
    }

    fn script(&self, name: &str, arguments: &[&str]) -> String {
        let output = Command::new(script(name))
            .args(["--bed", self.name])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{name} {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn get(&self, key: &str) -> &str {
        self.values
            .get(key)
            .unwrap_or_else(|| panic!("{key} is not in bed.env"))
    }

    /// Runs a command on one of the cluster's machines and returns what it printed.
    pub(crate) fn on(&self, host: &str, command: &str) -> String {
        self.script("exec", &[host, "--", "bash", "-lc", command])
    }

    /// The allocations of that name, as accounting has them. Slurm 22.05 writes a name down only after some seconds.
    pub(crate) fn jobs(&self, name: &str) -> Vec<String> {
        for _ in 0..30 {
            let text = self.on(
                "beverin",
                &format!("sacct -nPX -S now-1days --name={name} -o JobID"),
            );
            if !text.trim().is_empty() {
                return text.lines().map(str::to_owned).collect();
            }
            std::thread::sleep(std::time::Duration::from_millis(500));
        }
        Vec::new()
    }
}

/// What one test has to itself: a candidate, records, a profile. Gives its allocations back in the end.
pub(crate) struct World {
    directory: tempfile::TempDir,
    profile: &'static str,
    pub(crate) ssh_config: Option<String>,
    pub(crate) environment: Vec<(&'static str, String)>,
}

impl Drop for World {
    fn drop(&mut self) {
        if self.profile != "local" && self.state().join("leases").exists() {
            let _released = self.vibesys(&["lease", "release", "--cluster-profile", self.profile]);
        }
    }
}

/// How a run of the program ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Ran {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Fails unless standard error has all of these words, no panic, and no key.
    #[track_caller]
    pub(crate) fn says(&self, words: &[&str]) -> &Self {
        for word in words {
            assert!(self.stderr.contains(word), "`{word}` is not in: {}", self.stderr);
        }
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        assert!(!self.stderr.contains("PRIVATE KEY"), "{}", self.stderr);
        self
    }

    #[track_caller]
    pub(crate) fn ends_with(&self, code: i32) -> &Self {
        assert_eq!(self.code, code, "{}{}", self.text(), self.stderr);
        self
    }
}

impl World {
    /// On this machine.
    pub(crate) fn local() -> Self {
        Self::new("local", String::new(), None)
    }

    /// On the cluster, in the shared partition, so that tests run side by side.
    pub(crate) fn shared(cluster: &Cluster) -> Self {
        Self::on_cluster(
            cluster,
            "partition = \"debug\"\naccount = \"csstaff\"\nmemory = \"500\"",
            "exclusive = false\ncpus_per_node = 4\n",
        )
    }

    /// On the cluster, with these lines in `[profiles.bed.slurm]` and in `[profiles.bed]`.
    pub(crate) fn on_cluster(cluster: &Cluster, slurm: &str, more: &str) -> Self {
        let profile = format!(
            "[profiles.bed]\nrunner = \"slurm-ssh\"\naccelerator_backend = \"rocm\"\naccelerator_type = \"MI300A\"\n\
             accelerators_per_node = 4\nmax_nodes = 3\nallocation_time = \"00:20:00\"\n\
             remote_artifact_root = \"$SCRATCH/vibesys\"\n{more}\n[profiles.bed.ssh]\nhost = \"beverin\"\n\
             renew_hint = \"make a new certificate\"\n[profiles.bed.slurm]\n{slurm}\n"
        );
        Self::new("bed", profile, Some(cluster.get("SSH_CONFIG").to_owned()))
    }

    fn new(profile: &'static str, text: String, ssh_config: Option<String>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("candidate")).unwrap();
        fs::write(directory.path().join("clusters.toml"), text).unwrap();
        Self {
            directory,
            profile,
            ssh_config,
            environment: Vec::new(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// Writes a file of the candidate.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path("candidate").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// Replaces text of the profile file.
    pub(crate) fn edit_profile(&self, from: &str, to: &str) {
        let path = self.path("clusters.toml");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{from} is not in {text}");
        fs::write(path, text.replace(from, to)).unwrap();
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vibesys"));
        command.arg("--state-dir").arg(self.state());
        command
            .arg("--cluster-profiles-file")
            .arg(self.path("clusters.toml"));
        if let Some(config) = &self.ssh_config {
            command.arg("--ssh-config").arg(config);
        }
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.env_remove("SSH_AUTH_SOCK").env_remove("VIBESYS_LOG");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    pub(crate) fn vibesys(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.command(arguments).output().unwrap())
    }

    /// The arguments of an `exec` in this world.
    pub(crate) fn exec_arguments(&self, options: &[&str], command: &[&str]) -> Vec<String> {
        let candidate = self.path("candidate").to_str().unwrap().to_owned();
        let mut arguments: Vec<String> = ["exec", "--cluster-profile", self.profile, "-C", &candidate]
            .map(str::to_owned)
            .into();
        arguments.extend(options.iter().map(|&option| option.to_owned()));
        arguments.push("--".to_owned());
        arguments.extend(command.iter().map(|&word| word.to_owned()));
        arguments
    }

    pub(crate) fn exec(&self, options: &[&str], command: &[&str]) -> Ran {
        let arguments = self.exec_arguments(options, command);
        self.vibesys(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// The report of an `exec`.
    pub(crate) fn report(&self, options: &[&str], command: &[&str]) -> Value {
        let ran = self.exec(&[options, &["--json"]].concat(), command);
        let document: Value = serde_json::from_slice(&ran.stdout)
            .unwrap_or_else(|_| panic!("no JSON: {}{}", ran.text(), ran.stderr));
        assert_eq!(document["schema_version"], 1);
        document["data"].clone()
    }

    /// Every file below the state directory.
    pub(crate) fn records(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut found = Vec::new();
        let mut folders = vec![self.state()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if let Ok(content) = fs::read(&path) {
                    found.push((path, content));
                }
            }
        }
        found
    }
}
