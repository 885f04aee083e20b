//! Job and step states: every base state and flag that Slurm 21.08 to 26.05 documents (job_state_codes, squeue(1)).

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

macro_rules! states {
    ($($(#[$doc:meta])* $name:ident = $word:literal),+ $(,)?) => {
        /// The state of a job or step, in the one word that squeue(1) and sacct(1) print.
        ///
        /// Slurm has base states and flags; a flag that the tool knows hides the base state (job_state_codes).
        #[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(from = "String", into = "String")]
        pub enum SlurmState {
            $($(#[$doc])* $name,)+
            /// `CANCELLED`, or `CANCELLED by UID` (sacct(1)): cancelled by a person, or a step killed by any signal.
            Cancelled {
                /// The uid that cancelled it, where sacct names one.
                by: Option<u32>,
            },
            /// A word of another release, kept as it came. Never an end, and never a success.
            Unknown(String),
        }

        impl SlurmState {
            /// Every state with a fixed word, in the order of the documentation.
            pub const NAMED: &[Self] = &[$(Self::$name,)+];

            /// Reads the first word; a `+` from a cut column is dropped, and `by UID` is kept.
            pub fn parse(text: &str) -> Self {
                let mut words = text.split_whitespace();
                let word = words.next().unwrap_or_default().trim_end_matches('+');
                match word {
                    $($word => Self::$name,)+
                    "CANCELLED" => Self::Cancelled {
                        by: words.next().filter(|by| *by == "by").and_then(|_| words.next()?.parse().ok()),
                    },
                    other => Self::Unknown(other.to_owned()),
                }
            }

            /// The word that Slurm prints, without the uid.
            pub fn word(&self) -> &str {
                match self {
                    $(Self::$name => $word,)+
                    Self::Cancelled { .. } => "CANCELLED",
                    Self::Unknown(word) => word,
                }
            }
        }
    };
}

states! {
    /// Queued, waiting for its start.
    Pending = "PENDING",
    /// Has its nodes.
    Running = "RUNNING",
    /// Has its nodes, its processes are stopped, and its time limit does not run.
    Suspended = "SUSPENDED",
    /// The batch script, or every task of a step, exited 0.
    Completed = "COMPLETED",
    /// Exited with another code, or some other failure.
    Failed = "FAILED",
    /// Reached its time limit.
    Timeout = "TIMEOUT",
    /// A node was lost.
    NodeFail = "NODE_FAIL",
    /// Ended for another job. With requeueing allowed it may run again under the same id.
    Preempted = "PREEMPTED",
    /// Its node did not boot.
    BootFail = "BOOT_FAIL",
    /// Ended because of its `--deadline`.
    Deadline = "DEADLINE",
    /// A process was killed by the kernel because memory ran out.
    OutOfMemory = "OUT_OF_MEMORY",
    /// The launch failed on the node, for example in the prolog.
    LaunchFailed = "LAUNCH_FAILED",
    /// On its way back into the queue.
    Requeued = "REQUEUED",
    /// Back in the queue, held.
    RequeueHold = "REQUEUE_HOLD",
    /// Back in the queue, held, because of a special exit code.
    SpecialExit = "SPECIAL_EXIT",
    /// Its size is being changed; also how accounting closes the row of a job that went on with fewer nodes.
    Resizing = "RESIZING",
    /// Its nodes are being made ready.
    Configuring = "CONFIGURING",
    /// Over, but its real state is hidden until the last process and the epilog are.
    Completing = "COMPLETING",
    /// Stopped by SIGSTOP; keeps its nodes.
    Stopped = "STOPPED",
    /// Reconfiguring its nodes failed.
    ReconfigFail = "RECONFIG_FAIL",
    /// Its nodes are being powered up.
    PowerUpNode = "POWER_UP_NODE",
    /// Another cluster of the federation took it.
    Revoked = "REVOKED",
    /// Being requeued by the federation.
    RequeueFed = "REQUEUE_FED",
    /// Held because its reservation was deleted.
    ResvDelHold = "RESV_DEL_HOLD",
    /// A signal is on its way to it.
    Signaling = "SIGNALING",
    /// Over; its burst buffer is being staged out.
    StageOut = "STAGE_OUT",
    /// Its start is sent to accounting again; printed before 24.11 only.
    UpdateDb = "UPDATE_DB",
    /// Requeued with priority, from 25.11 on.
    Expediting = "EXPEDITING",
}

/// What a state means for somebody who waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Not started, or back in the queue.
    Waiting,
    /// Held: nobody will start it without `scontrol release`.
    Stuck,
    /// Has its nodes.
    Active,
    /// Neither running nor ended: its real state shows later.
    Between,
    /// Over. PREEMPTED and NODE_FAIL can still be followed by a second life where requeueing is allowed.
    Ended,
}

impl SlurmState {
    /// What the state means for somebody who waits. An unknown word is [`Phase::Between`].
    pub fn phase(&self) -> Phase {
        match self {
            Self::Pending
            | Self::Configuring
            | Self::PowerUpNode
            | Self::Requeued
            | Self::RequeueFed
            | Self::Expediting => Phase::Waiting,
            Self::RequeueHold | Self::SpecialExit | Self::ResvDelHold => Phase::Stuck,
            Self::Running | Self::Resizing | Self::Signaling | Self::Suspended | Self::Stopped => {
                Phase::Active
            }
            Self::Completing | Self::StageOut | Self::UpdateDb | Self::Unknown(_) => Phase::Between,
            Self::Completed
            | Self::Failed
            | Self::Timeout
            | Self::NodeFail
            | Self::Preempted
            | Self::BootFail
            | Self::Deadline
            | Self::OutOfMemory
            | Self::LaunchFailed
            | Self::ReconfigFail
            | Self::Revoked
            | Self::Cancelled { .. } => Phase::Ended,
        }
    }

    /// Over for good, as far as this record goes. COMPLETING and unknown words are not.
    pub fn is_terminal(&self) -> bool {
        self.phase() == Phase::Ended
    }

    /// In the queue and will start by itself.
    pub fn is_waiting(&self) -> bool {
        self.phase() == Phase::Waiting
    }

    /// Held until somebody releases it.
    pub fn is_stuck(&self) -> bool {
        self.phase() == Phase::Stuck
    }

    /// Has its nodes, its processes running or stopped.
    pub fn is_active(&self) -> bool {
        self.phase() == Phase::Active
    }

    /// Shows that the job left its nodes to go back into the queue: what ran in it is over.
    pub fn is_requeue(&self) -> bool {
        match self {
            Self::Requeued | Self::RequeueHold | Self::SpecialExit | Self::RequeueFed | Self::Expediting => {
                true
            }
            Self::Pending
            | Self::Running
            | Self::Suspended
            | Self::Completed
            | Self::Failed
            | Self::Timeout
            | Self::NodeFail
            | Self::Preempted
            | Self::BootFail
            | Self::Deadline
            | Self::OutOfMemory
            | Self::LaunchFailed
            | Self::Resizing
            | Self::Configuring
            | Self::Completing
            | Self::Stopped
            | Self::ReconfigFail
            | Self::PowerUpNode
            | Self::Revoked
            | Self::ResvDelHold
            | Self::Signaling
            | Self::StageOut
            | Self::UpdateDb
            | Self::Cancelled { .. }
            | Self::Unknown(_) => false,
        }
    }
}

impl fmt::Display for SlurmState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Cancelled { by: Some(uid) } = self {
            return f.pad(&format!("CANCELLED by {uid}"));
        }
        f.pad(self.word())
    }
}

impl FromStr for SlurmState {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self::parse(text))
    }
}

impl From<String> for SlurmState {
    fn from(text: String) -> Self {
        Self::parse(&text)
    }
}

impl From<SlurmState> for String {
    fn from(state: SlurmState) -> Self {
        state.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_counts_and_the_uid_is_kept() {
        let cancelled = |by| SlurmState::Cancelled { by };
        assert_eq!(SlurmState::parse("CANCELLED by 1234"), cancelled(Some(1234)));
        assert_eq!(SlurmState::parse("CANCELLED by somebody"), cancelled(None));
        assert_eq!(SlurmState::parse("CANCELLED+"), cancelled(None));
        assert_eq!(SlurmState::parse(" RUNNING "), SlurmState::Running);
        assert_eq!(SlurmState::parse("COMPLETED 0:0"), SlurmState::Completed);
    }

    #[test]
    fn words_survive_being_printed_and_stored() {
        for state in SlurmState::NAMED {
            assert_eq!(&SlurmState::parse(state.word()), state);
            let json = serde_json::to_string(state).unwrap();
            assert_eq!(&serde_json::from_str::<SlurmState>(&json).unwrap(), state);
        }
        assert_eq!(SlurmState::parse("CANCELLED by 0").to_string(), "CANCELLED by 0");
        assert_eq!(format!("{:>8}|", SlurmState::Failed), "  FAILED|");
    }

    #[test]
    fn unknown_and_cut_words_are_kept_and_are_no_end() {
        for word in ["HIBERNATING", "OUT_OF_ME", "completed", ""] {
            let state = SlurmState::parse(word);
            assert_eq!(state, SlurmState::Unknown(word.to_owned()));
            assert_eq!(state.to_string(), word);
            assert!(!state.is_terminal() && !state.is_active() && !state.is_waiting() && !state.is_stuck());
        }
    }

    #[test]
    fn completing_is_neither_running_nor_over() {
        assert_eq!(SlurmState::Completing.phase(), Phase::Between);
        assert!(SlurmState::RequeueHold.is_stuck() && SlurmState::RequeueHold.is_requeue());
        assert!(SlurmState::ResvDelHold.is_stuck() && !SlurmState::ResvDelHold.is_requeue());
        assert!(SlurmState::Configuring.is_waiting());
        assert!(SlurmState::Suspended.is_active());
    }
}
