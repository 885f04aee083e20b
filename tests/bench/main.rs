//! What an evaluation costs beside the same thing by hand, on the test cluster: `cargo bench --bench exec`.
//!
//! By hand is what a careful user types: `rsync -a` of the tree and `srun --overlap --jobid` through ssh, over one
//! ControlMaster (warm) or a new connection each time (cold). Both use the same allocation, in turn, in one run.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a measurement stops at the first surprise, prints, and reads the environment of its run"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;
use vibesys::backend::slurm::{Connector, SlurmRunner};
use vibesys::clock::{Clock, SystemClock};
use vibesys::config::{Document, Profile};
use vibesys::job::Outcome;
use vibesys::remote::Stream;
use vibesys::runner::{EvaluationRequest, FailureKind, JobRunner, Observer, Phase, RunError};
use vibesys::ssh::client::{Settings, SshTransport, Trust};
use vibesys::ssh::config::{Environment, Sources, resolve};
use vibesys::ssh::known_hosts::KnownHostsFiles;
use vibesys::ssh::route::Route;
use vibesys::ssh::signer::FileAndAgent;
use vibesys::ssh::transport::Transport;

const NAME: &str = "bench";
const FILES: usize = 2000;
const FILE_SIZE: usize = 25_000;

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/testbed")
        .join(name)
}

fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[derive(Debug)]
struct Ssh(Route, Trust);

#[async_trait]
impl Connector for Ssh {
    fn target(&self) -> String {
        "beverin".to_owned()
    }

    async fn connect(&self) -> Result<Arc<dyn Transport>, RunError> {
        match SshTransport::connect(&self.0, &self.1, &Settings::default()).await {
            Ok(transport) => Ok(Arc::new(transport)),
            Err(error) => Err(RunError::new(FailureKind::Unreachable, "no connection").caused_by(error)),
        }
    }
}

#[derive(Debug, Default)]
struct Sent(AtomicU64);

impl Observer for Sent {
    fn phase(&self, phase: &Phase) {
        if let Phase::Staging { sent, .. } = phase {
            self.0.store(*sent, Ordering::Relaxed);
        }
    }

    fn output(&self, _: Stream, _: &Path, _: u64) {}
}

struct Bench {
    ssh_config: String,
    master: PathBuf,
    profile: Profile,
    profiles_file: PathBuf,
    scratch: tempfile::TempDir,
    remote: String,
}

impl Bench {
    fn runner(&self) -> SlurmRunner {
        let user: PathBuf = self.ssh_config.clone().into();
        let sources = Sources {
            user,
            named: true,
            system: None,
        };
        let environment = Environment {
            home: "/root".into(),
            user: "root".into(),
            uid: 0,
            hostname: "here".into(),
            agent: None,
        };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let trust = Trust {
            host_keys: Arc::new(KnownHostsFiles::new(Arc::clone(&clock))),
            credentials: Arc::new(FileAndAgent::new(Arc::clone(&clock))),
        };
        let connector = Box::new(Ssh(resolve("beverin", &sources, &environment).unwrap(), trust));
        SlurmRunner::open(self.profile.clone(), "exec", &self.state(), connector, clock).unwrap()
    }

    fn state(&self) -> PathBuf {
        self.scratch.path().join("state")
    }

    #[expect(clippy::unused_self, reason = "a request of this bench")]
    fn request(&self, candidate: &Path) -> EvaluationRequest {
        EvaluationRequest {
            candidate: candidate.to_owned(),
            argv: vec!["true".to_owned()],
            environment: Vec::new(),
            time_limit: None,
            artifacts: Vec::new(),
            artifact_target: candidate.to_owned(),
            nodes: 1,
            accelerators: None,
        }
    }

    /// The same by hand; `warm` over the ControlMaster. Returns the bytes that rsync sent.
    fn by_hand(&self, candidate: &Path, job: u64, warm: bool) -> u64 {
        let control = if warm {
            format!("-o ControlPath={}", self.master.display())
        } else {
            "-o ControlPath=none".to_owned()
        };
        let shell = format!("ssh -F {} {control}", self.ssh_config);
        let from = format!("{}/", candidate.display());
        let to = format!("beverin:{}/", self.remote);
        let said = run(Command::new("rsync").args(["-a", "--delete", "--stats", "-e", &shell, &from, &to]));
        let mut ssh = Command::new("ssh");
        ssh.args(["-F", &self.ssh_config])
            .args(control.split(' '))
            .arg("beverin");
        run(ssh.arg(format!(
            "cd {} && srun --overlap --jobid={job} -N1 -n1 --cpu-bind=none --mem=0 true",
            self.remote
        )));
        let line = said
            .lines()
            .find(|line| line.starts_with("Total bytes sent"))
            .unwrap();
        line.chars()
            .filter(char::is_ascii_digit)
            .collect::<String>()
            .parse()
            .unwrap()
    }

    fn master(&self) {
        drop(fs::remove_file(&self.master));
        let path = format!("ControlPath={}", self.master.display());
        let status = Command::new("ssh")
            .args([
                "-F",
                &self.ssh_config,
                "-fN",
                "-o",
                "ControlMaster=yes",
                "-o",
                &path,
                "beverin",
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success());
    }

    fn end_master(&self) {
        let path = format!("ControlPath={}", self.master.display());
        drop(
            Command::new("ssh")
                .args(["-F", &self.ssh_config, "-O", "exit", "-o", &path, "beverin"])
                .output(),
        );
    }

    fn exec(&self, candidate: &Path) {
        run(Command::new(env!("CARGO_BIN_EXE_vibesys"))
            .arg("--state-dir")
            .arg(self.state())
            .arg("--cluster-profiles-file")
            .arg(&self.profiles_file)
            .args([
                "--ssh-config",
                &self.ssh_config,
                "--quiet",
                "exec",
                "--cluster-profile",
                "bed",
                "-C",
            ])
            .arg(candidate)
            .args(["--", "true"]));
    }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1000.0
}

fn row(what: &str, ours: f64, hand: f64, note: &str) {
    println!("| {what} | {ours:.0} | {hand:.0} | {:.2} | {note} |", ours / hand);
}

fn timed(work: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    work();
    begun.elapsed()
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    run(Command::new(script("up")).args(["--bed", NAME]));
    let home = std::env::var("VIBESYS_BED_HOME").unwrap_or_else(|_| "/var/tmp/vibesys-bed".to_owned());
    let text = fs::read_to_string(format!("{home}/{NAME}/bed.env")).unwrap();
    let get = |key: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
            .expect("a key of bed.env")
            .to_owned()
    };
    let scratch = tempfile::tempdir().unwrap();
    let profiles = "[profiles.bed]\nrunner='slurm-ssh'\naccelerator_backend='rocm'\nexclusive=true\ncpus_per_node=192\n\
                    allocation_time='02:00:00'\nremote_artifact_root='$SCRATCH/vibesys'\n[profiles.bed.ssh]\nhost='beverin'\n\
                    [profiles.bed.slurm]\npartition='mi300'\n";
    let profiles_file = scratch.path().join("clusters.toml");
    fs::write(&profiles_file, profiles).unwrap();
    let bench = Bench {
        ssh_config: get("SSH_CONFIG"),
        master: scratch.path().join("master"),
        profile: Document::parse(profiles).unwrap().profile("bed").unwrap().clone(),
        profiles_file,
        remote: format!("{}/byhand", get("SCRATCH")),
        scratch,
    };
    let small = bench.scratch.path().join("small");
    fs::create_dir(&small).unwrap();
    fs::write(small.join("f"), "x").unwrap();
    let runner = bench.runner();
    let report = runner
        .evaluate(bench.request(&small), &Sent::default(), CancellationToken::new())
        .await
        .unwrap();
    let job = report.provenance.job.unwrap();
    println!("| what (medians, ms) | vibesys | by hand | ratio | |\n| --- | --- | --- | --- | --- |");
    for delay in ["0", "20", "100"] {
        run(Command::new(script("fault")).args(["--bed", NAME, "delay", delay]));
        bench.master();
        let runner = bench.runner();
        let (mut ours, mut hand, mut verdicts) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..11 {
            fs::write(small.join("f"), format!("{delay} {round}")).unwrap();
            let begun = Instant::now();
            let report = runner
                .evaluate(bench.request(&small), &Sent::default(), CancellationToken::new())
                .await
                .unwrap();
            let whole = begun.elapsed();
            assert_eq!(report.verdict.outcome, Outcome::Completed);
            let ended = report
                .timings
                .iter()
                .find(|(stage, _)| stage == "ended")
                .unwrap()
                .1;
            let by_hand = timed(|| {
                bench.by_hand(&small, job, true);
            });
            if round > 0 {
                ours.push(Duration::from_millis(ended));
                verdicts.push(whole);
                hand.push(by_hand);
            }
        }
        let hand = median(hand);
        row(
            &format!("one edit, warm, {delay} ms round trip, to the result"),
            median(ours),
            hand,
            "library, held connection",
        );
        row(
            &format!("the same, with accounting's confirmation, {delay} ms"),
            median(verdicts),
            hand,
            "sacct has no peer by hand",
        );
        let (mut ours, mut hand) = (Vec::new(), Vec::new());
        for round in 0..5 {
            fs::write(small.join("f"), format!("cold {delay} {round}")).unwrap();
            ours.push(timed(|| bench.exec(&small)));
            hand.push(timed(|| {
                bench.by_hand(&small, job, false);
            }));
        }
        row(
            &format!("`vibesys exec -- true`, cold, {delay} ms"),
            median(ours),
            median(hand),
            "a new process and connection each time",
        );
        runner.close().await;
        bench.end_master();
    }
    run(Command::new(script("fault")).args(["--bed", NAME, "delay", "0"]));
    tree(&bench, job).await;
    drop(runner.release().await.unwrap());
    run(Command::new(script("down")).args(["--bed", NAME, "--wipe"]));
}

/// A tree of 50 MB in 2,000 files: new, then with one file changed.
async fn tree(bench: &Bench, job: u64) {
    bench.master();
    let runner = bench.runner();
    let (mut new, mut edit) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    let (mut new_bytes, mut edit_bytes) = ([0, 0], [0, 0]);
    for round in 0..3_u32 {
        let root = bench.scratch.path().join(format!("tree{round}"));
        for number in 0..FILES {
            // Half text, half noise: it shrinks about as a source tree with some data in it does.
            let mut state = u32::try_from(number + 1).unwrap().wrapping_mul(round + 7);
            let content: Vec<u8> = (0..FILE_SIZE)
                .map(|index| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    if index % 2 == 0 {
                        b"int main(void) {"[index / 2 % 16]
                    } else {
                        state.to_be_bytes()[0] & 0x3f
                    }
                })
                .collect();
            let path = root.join(format!("d{}/f{number}", number / 50));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        run(Command::new("ssh").args([
            "-F",
            &bench.ssh_config,
            "beverin",
            &format!("rm -rf {}", bench.remote),
        ]));
        let sent = Sent::default();
        new[0].push(evaluate(&runner, bench, &root, &sent).await);
        new_bytes[0] = sent.0.load(Ordering::Relaxed);
        new[1].push(timed(|| new_bytes[1] = bench.by_hand(&root, job, true)));
        // An agent thinks for longer than this between two measurements; the launcher uses the time.
        tokio::time::sleep(Duration::from_secs(2)).await;
        fs::write(root.join("d0/f0"), format!("edited {round}")).unwrap();
        edit[0].push(evaluate(&runner, bench, &root, &sent).await);
        edit_bytes[0] = sent.0.load(Ordering::Relaxed);
        edit[1].push(timed(|| edit_bytes[1] = bench.by_hand(&root, job, true)));
    }
    let [ours, hand] = new.map(median);
    row(
        "50 MB in 2,000 files, new, warm",
        ours,
        hand,
        &format!("{} / {} bytes sent", new_bytes[0], new_bytes[1]),
    );
    let [ours, hand] = edit.map(median);
    row(
        "the same, one file changed",
        ours,
        hand,
        &format!("{} / {} bytes sent", edit_bytes[0], edit_bytes[1]),
    );
    runner.close().await;
    bench.end_master();
}

async fn evaluate(runner: &SlurmRunner, bench: &Bench, root: &Path, sent: &Sent) -> Duration {
    let report = runner
        .evaluate(bench.request(root), sent, CancellationToken::new())
        .await
        .unwrap();
    assert_eq!(report.verdict.outcome, Outcome::Completed);
    let ended = report
        .timings
        .iter()
        .find(|(stage, _)| stage == "ended")
        .unwrap()
        .1;
    Duration::from_millis(ended)
}
