//! How a step gets into its container: one plan out of `slurm.environment` and `command_prefix`.

use serde::{Deserialize, Serialize};

/// What surrounds the command on the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Container {
    /// Nothing: the command runs on the node itself, in its workspace.
    None,
    /// `srun --environment=EDF`: the launcher derives an environment file for each attempt that adds the mounts.
    Edf {
        /// The operator's environment file, an absolute path on the cluster.
        environment: String,
    },
    /// A program that runs the command, such as `apptainer exec …`; `@WORKSPACE@` and `@STEP@` in its arguments stand for
    /// the two directories it must bind at `/workspace` and `/vibesys`.
    Wrapper {
        /// The program and its arguments.
        argv: Vec<String>,
    },
}

/// Everything of the profile that goes on the `srun` line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchPlan {
    /// Further options of srun.
    pub srun_options: Vec<String>,
    /// The container.
    pub container: Container,
}

/// The two directories as an apptainer-like wrapper binds them. `--mount` is used where a comma or colon in a path
/// would be split by `--bind` (Apptainer User Guide, Bind Paths and Mounts).
const APPTAINER_MOUNTS: &[&str] = &[
    "--mount",
    "type=bind,src=@WORKSPACE@,dst=/workspace",
    "--mount",
    "type=bind,src=@STEP@,dst=/vibesys",
    "--pwd",
    "/workspace",
];

/// Makes the plan.
///
/// # Errors
/// A sentence that names the keys that do not fit together.
pub(super) fn plan(prefix: Option<&[String]>, environment: Option<&str>) -> Result<LaunchPlan, String> {
    let mut plan = LaunchPlan {
        srun_options: Vec::new(),
        container: Container::None,
    };
    let mut from_prefix = None;
    let words = prefix.unwrap_or_default();
    let mut rest = words;
    if words.first().is_some_and(|word| word == "srun") {
        rest = &words[1..];
        while let Some(option) = rest.first().filter(|word| word.starts_with('-')) {
            rest = &rest[1..];
            if let Some(edf) = option.strip_prefix("--environment=") {
                from_prefix = Some(edf.to_owned());
            } else if option == "--environment" {
                return Err("`command_prefix`: write `--environment=FILE` as one word".to_owned());
            } else if option != "--overlap" {
                // Always given by the runner, so saying it again is harmless.
                plan.srun_options.push(option.clone());
            }
        }
    }
    let edf = match (from_prefix, environment) {
        (Some(one), Some(other)) if one != other => {
            return Err(format!(
                "`command_prefix` has --environment={one} and `slurm.environment` is {other}: keep one of them"
            ));
        }
        (Some(edf), _) => Some(edf),
        (None, edf) => edf.map(str::to_owned),
    };
    if !rest.is_empty() {
        if edf.is_some() {
            return Err(format!(
                "`command_prefix` runs `{}` and an environment file is given too: keep one container",
                rest[0]
            ));
        }
        plan.container = Container::Wrapper {
            argv: with_mounts(rest),
        };
    } else if let Some(environment) = edf {
        if !environment.starts_with('/') || environment.contains(['"', '\\', '\n']) {
            return Err(format!(
                "the environment file must be an absolute path on the cluster without quotes, not `{environment}`"
            ));
        }
        plan.container = Container::Edf { environment };
    }
    Ok(plan)
}

/// Adds the mounts after `apptainer exec` (or `singularity exec`) unless the operator placed them.
fn with_mounts(argv: &[String]) -> Vec<String> {
    let mut argv = argv.to_vec();
    let is_exec = argv.get(1).is_some_and(|word| word == "exec")
        && argv.first().is_some_and(|word| {
            word.rsplit('/')
                .next()
                .is_some_and(|name| name == "apptainer" || name == "singularity")
        });
    if is_exec && !argv.iter().any(|word| word.contains("@WORKSPACE@")) {
        argv.splice(2..2, APPTAINER_MOUNTS.iter().map(|&word| word.to_owned()));
    }
    argv
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_prefix_of_the_original_becomes_an_environment_file() {
        let prefix = words("srun --overlap --environment=/a/e.toml --mpi=pmi2");
        let plan = plan(Some(&prefix), Some("/a/e.toml")).unwrap();
        assert_eq!(
            plan.container,
            Container::Edf {
                environment: "/a/e.toml".into()
            }
        );
        assert_eq!(plan.srun_options, ["--mpi=pmi2"]);
    }

    #[test]
    fn an_apptainer_prefix_gets_its_mounts_and_another_one_is_left_alone() {
        let Container::Wrapper { argv } = plan(Some(&words("apptainer exec --rocm /i.sif")), None)
            .unwrap()
            .container
        else {
            panic!("not a wrapper")
        };
        assert_eq!(argv[..3], ["apptainer", "exec", "--mount"]);
        assert_eq!(argv[argv.len() - 2..], ["--rocm", "/i.sif"]);
        let custom = words("enroot start --mount @WORKSPACE@:/workspace --mount @STEP@:/vibesys x.sqsh");
        assert_eq!(
            plan(Some(&custom), None).unwrap().container,
            Container::Wrapper { argv: custom }
        );
    }

    #[test]
    fn two_containers_are_refused_with_both_names() {
        let error = plan(Some(&words("srun --environment=/a")), Some("/b")).unwrap_err();
        assert!(error.contains("/a") && error.contains("/b"), "{error}");
        assert!(plan(Some(&words("apptainer exec i.sif")), Some("/b")).is_err());
        assert!(plan(None, Some("relative.toml")).is_err());
    }
}
