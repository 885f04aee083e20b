//! What travels: the request as a small tar, and the options of sbatch and srun.

use std::io;

use crate::config::{Container, Profile};
use crate::ids::SnapshotId;
use crate::job::duration::walltime;
use crate::quote;
use crate::runner::{EvaluationRequest, FailureKind, RunError};

const STEP: &str = include_str!("../../../slurm-templates/step.sh");
pub(super) const LAUNCHER: &str = include_str!("../../../slurm-templates/launcher.sh");

/// The attempt's directory as it is unpacked on the cluster: every file that anybody will look for is there from the start.
pub(super) fn archive(
    profile: &Profile,
    request: &EvaluationRequest,
    snapshot: &SnapshotId,
) -> Result<Vec<u8>, RunError> {
    let nul = |error: quote::NulByte| RunError::new(FailureKind::Config, error.to_string());
    let (kind, environment) = match &profile.launch.container {
        Container::None => ("none", ""),
        Container::Edf { environment } => ("edf", environment.as_str()),
        Container::Wrapper { .. } => ("wrapper", ""),
    };
    let fields = format!(
        "version=1\nsnapshot={snapshot}\ntasks={}\ntime_limit={}\nstart_limit={}\ncontainer={kind}\nenvironment={environment}\n",
        request.nodes,
        request.time_limit.map_or(0, |limit| limit.as_secs()),
        profile.start_timeout().as_secs(),
    );
    let mut exports = String::new();
    for (name, value) in &request.environment {
        exports.extend([
            "export ",
            name,
            "=",
            &quote::sh(value.expose()).map_err(nul)?,
            "
",
        ]);
    }
    let wrapper = match &profile.launch.container {
        Container::Wrapper { argv } => argv.clone(),
        Container::None | Container::Edf { .. } => Vec::new(),
    };
    let artifacts: Vec<String> = request
        .artifacts
        .iter()
        .map(|path| path.as_str().to_owned())
        .collect();
    let mut files: Vec<(String, Vec<u8>, u32)> = vec![
        ("request".into(), fields.into_bytes(), 0o600),
        ("argv".into(), list(&request.argv)?, 0o600),
        ("options".into(), list(&srun_options(profile, request))?, 0o600),
        ("wrapper".into(), list(&wrapper)?, 0o600),
        ("artifacts.want".into(), list(&artifacts)?, 0o600),
        ("artifacts".into(), Vec::new(), 0o600),
        ("events".into(), Vec::new(), 0o600),
        ("stdout".into(), Vec::new(), 0o600),
        ("stderr".into(), Vec::new(), 0o600),
        ("launch.err".into(), Vec::new(), 0o600),
        ("step/run".into(), STEP.as_bytes().to_vec(), 0o700),
    ];
    if !exports.is_empty() {
        files.push(("step/env".into(), exports.into_bytes(), 0o600));
    }
    files.extend((0..request.nodes).map(|task| (format!("step/app.{task}"), Vec::new(), 0o600)));
    pack(&files).map_err(|error| {
        RunError::new(FailureKind::Internal, "the request cannot be packed").caused_by(error)
    })
}

fn pack(files: &[(String, Vec<u8>, u32)]) -> io::Result<Vec<u8>> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut directory = tar::Header::new_gnu();
    directory.set_entry_type(tar::EntryType::Directory);
    directory.set_mode(0o700);
    directory.set_size(0);
    builder.append_data(&mut directory, "step", io::empty())?;
    for (path, content, mode) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(*mode);
        header.set_size(content.len() as u64);
        builder.append_data(&mut header, path, content.as_slice())?;
    }
    builder.into_inner()
}

/// NUL-terminated words, as bash's `mapfile -d ''` reads them.
fn list(words: &[String]) -> Result<Vec<u8>, RunError> {
    if words.iter().any(|word| word.contains('\0')) {
        return Err(RunError::new(FailureKind::Config, quote::NulByte.to_string()));
    }
    Ok(words
        .iter()
        .flat_map(|word| [word.as_bytes(), b"\0"].concat())
        .collect())
}

/// What the profile asks accelerators with, for `count` of them.
fn accelerators(profile: &Profile, count: Option<u32>) -> Option<String> {
    let slurm = profile.slurm.as_ref()?;
    if let Some(provided) = slurm.gpus_per_node {
        return Some(format!("--gpus-per-node={}", count.unwrap_or(provided)));
    }
    let gres = slurm.gres.as_ref()?;
    let Some(count) = count else {
        return Some(format!("--gres={gres}"));
    };
    // `gpu:4` and `gpu:mi300a:4`: the count is the last part, if it is a number.
    let name = match gres.rsplit_once(':') {
        Some((name, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => gres,
    };
    Some(format!("--gres={name}:{count}"))
}

/// Every size of the step: nothing may come from what the batch step happened to be given.
fn srun_options(profile: &Profile, request: &EvaluationRequest) -> Vec<String> {
    let nodes = request.nodes;
    let mut options = vec![
        format!("--nodes={nodes}"),
        format!("--ntasks={nodes}"),
        "--ntasks-per-node=1".to_owned(),
    ];
    let memory = profile.slurm.as_ref().and_then(|slurm| slurm.memory.as_deref());
    options.push(format!("--mem={}", memory.unwrap_or("0")));
    if profile.exclusive
        && let Some(cpus) = profile.cpus_per_node
    {
        options.push(format!("--cpus-per-task={cpus}"));
    }
    options.extend(accelerators(profile, request.accelerators));
    options.extend(profile.launch.srun_options.iter().cloned());
    options
}

/// The options of sbatch for the allocation named `name`. Options, not `#SBATCH` lines: those lose against SBATCH_* variables.
pub(super) fn sbatch_options(profile: &Profile, name: &str, nodes: u32) -> Vec<String> {
    let mut options = vec![
        format!("--job-name={name}"),
        format!("--comment={name}"),
        // A second life of the job would run requests again.
        "--no-requeue".to_owned(),
        format!("--nodes={nodes}"),
        "--ntasks-per-node=1".to_owned(),
        format!("--time={}", walltime(profile.allocation_time)),
    ];
    if profile.exclusive {
        options.push("--exclusive".to_owned());
    }
    let Some(slurm) = &profile.slurm else {
        return options;
    };
    options.push(format!("--partition={}", slurm.partition));
    let named = [
        ("account", &slurm.account),
        ("qos", &slurm.qos),
        ("mem", &slurm.memory),
        ("constraint", &slurm.constraint),
        ("reservation", &slurm.reservation),
        ("exclude", &slurm.exclude),
    ];
    options.extend(
        named
            .iter()
            .filter_map(|(name, value)| Some(format!("--{name}={}", value.as_ref()?))),
    );
    if !profile.exclusive
        && let Some(cpus) = profile.cpus_per_node
    {
        options.push(format!("--cpus-per-task={cpus}"));
    }
    options.extend(accelerators(profile, None));
    options.extend(slurm.extra_sbatch_args.iter().cloned());
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Document;

    #[test]
    fn a_count_of_accelerators_replaces_the_profiles() {
        let text = |gres: &str| {
            format!(
                "[profiles.p]\nrunner='slurm-ssh'\naccelerator_backend='rocm'\nremote_artifact_root='$SCRATCH/v'\n\
                 [profiles.p.ssh]\nhost='h'\n[profiles.p.slurm]\npartition='q'\n{gres}\n"
            )
        };
        for (gres, count, expected) in [
            ("gres='gpu:4'", Some(2), "--gres=gpu:2"),
            ("gres='gpu:mi300a:4'", Some(1), "--gres=gpu:mi300a:1"),
            ("gres='gpu'", Some(3), "--gres=gpu:3"),
            ("gres='gpu:4'", None, "--gres=gpu:4"),
            ("gpus_per_node=4", Some(2), "--gpus-per-node=2"),
        ] {
            let document = Document::parse(&text(gres)).unwrap();
            assert_eq!(
                accelerators(document.profile("p").unwrap(), count).unwrap(),
                expected
            );
        }
    }
}
