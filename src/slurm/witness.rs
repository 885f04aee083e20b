//! What slurmstepd and srun write into a step's standard error when it ends (slurmstepd req.c, srun(1)).
//!
//! The command writes there, too, and can forge all of it. These words explain an end when accounting cannot; they
//! never make a success, and they never overrule accounting.

use serde::{Deserialize, Serialize};

/// What the lines say of the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndWords {
    /// `CANCELLED AT … DUE TO TIME LIMIT`
    TimeLimit,
    /// `CANCELLED AT … DUE TO PREEMPTION`
    Preemption,
    /// `CANCELLED AT … DUE TO JOB REQUEUE`
    Requeue,
    /// `CANCELLED AT … DUE TO NODE FAILURE`, or srun's `Node failure on NODE`, with the node where srun names it.
    NodeFailure(Option<String>),
    /// `oom_kill event`: the kernel killed a process for lack of memory.
    OutOfMemory,
    /// `CANCELLED AT …` without a reason: scancel, a signal, or the start of a preemption's grace time.
    Cancelled,
}

/// Reads the end of a step's standard error, or of what srun itself said.
pub fn end_words(text: &str) -> Option<EndWords> {
    let lines = || text.lines().filter(|line| is_slurms(line));
    let has = |words: &[&str]| lines().any(|line| words.iter().any(|word| line.contains(word)));
    if has(&["DUE TO TIME LIMIT"]) {
        Some(EndWords::TimeLimit)
    } else if has(&["DUE TO PREEMPTION"]) {
        Some(EndWords::Preemption)
    } else if has(&["DUE TO NODE FAILURE", "Node failure on "]) {
        let node = lines().find_map(|line| line.split_once("Node failure on "));
        let name = node.and_then(|(_, rest)| rest.split_whitespace().next());
        Some(EndWords::NodeFailure(name.map(str::to_owned)))
    } else if has(&["DUE TO JOB REQUEUE"]) {
        Some(EndWords::Requeue)
    } else if says_out_of_memory(text) {
        Some(EndWords::OutOfMemory)
    } else if has(&["CANCELLED AT "]) {
        Some(EndWords::Cancelled)
    } else {
        None
    }
}

/// Whether Slurm's own lines say that memory ran out.
pub fn says_out_of_memory(text: &str) -> bool {
    let words = ["oom_kill event", "oom-kill event", "Out Of Memory", "OOM Killed"];
    text.lines()
        .filter(|line| is_slurms(line))
        .any(|line| words.iter().any(|word| line.contains(word)))
}

/// `slurmstepd: error:`, `slurmstepd-nid001: error:`, `srun: error:`, with a `--label` number before it.
fn is_slurms(line: &str) -> bool {
    let line = line.trim_start_matches(|char: char| char.is_ascii_digit() || char == ':' || char == ' ');
    line.starts_with("slurmstepd") || line.starts_with("srun:")
}

/// The most telling line of what was said about a start that failed.
pub fn launch_words<'a>(said: &[&'a str]) -> Option<&'a str> {
    let lines = || {
        said.iter()
            .flat_map(|text| text.lines())
            .map(str::trim)
            .filter(|line| !line.is_empty())
    };
    let telling = [
        "pyxis:",
        "edf:",
        "enroot",
        "sarus",
        "FATAL",
        "execve",
        "cannot find name for user ID",
        "Unable to create step",
        "Unable to confirm allocation",
        "Job credential expired",
        "spank",
        "No such file",
        "error:",
    ];
    telling
        .iter()
        .find_map(|word| lines().find(|line| line.contains(word)))
        .or_else(|| lines().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captured_ends_are_understood() {
        use EndWords::{Cancelled, NodeFailure, Preemption};
        for (text, expected) in [
            (
                include_str!("../../tests/fixtures/slurm/22.05/node_fail_norequeue/slurm-22.out"),
                Some(NodeFailure(Some("nid002".into()))),
            ),
            (
                include_str!("../../tests/fixtures/slurm/24.11/preempted_low/slurm-34.out"),
                Some(Preemption),
            ),
            (
                include_str!("../../tests/fixtures/slurm/22.05/scancel_step_only/slurm-16.out"),
                Some(Cancelled),
            ),
            (
                "slurmstepd-nid001: error: *** STEP 62.9 ON nid001 CANCELLED AT 2026-12-01T04:42:21 DUE TO TIME LIMIT ***",
                Some(EndWords::TimeLimit),
            ),
            (
                "0: slurmstepd: error: Detected 1 oom_kill event in StepId=6.0. Some of the step tasks have been OOM Killed.",
                Some(EndWords::OutOfMemory),
            ),
            ("srun: error: nid001: task 0: Exited with exit code 9", None),
            ("my program was CANCELLED AT noon DUE TO TIME LIMIT", None),
            ("", None),
        ] {
            assert_eq!(end_words(text), expected, "{text}");
        }
    }

    #[test]
    fn the_cause_of_a_failed_start_is_found_among_its_consequences() {
        let said = "srun: error: nid001: task 0: Exited with exit code 1\n\
                    slurmstepd-nid001: error: edf: image /images/none.sqsh: No such file or directory\n\
                    slurmstepd-nid001: error: spank: required plugin edf.so: task_init_privileged() failed with rc=-1\n";
        assert!(launch_words(&["", said]).unwrap().contains("edf: image"));
        assert_eq!(launch_words(&["", "\n"]), None);
    }
}
