//! Job states, every one that any release from 21.08 on prints (Slurm documentation, job_state_codes).

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! states {
    ($($name:ident $word:literal),+ $(,)?) => {
        /// The state of a job or step as squeue(1) and sacct(1) print it.
        #[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(from = "String", into = "String")]
        pub enum SlurmState {
            $(#[doc = concat!("`", $word, "`")] $name,)+
            /// `CANCELLED`, or `CANCELLED by UID`.
            Cancelled {
                /// The uid that cancelled it, where sacct names one.
                by: Option<u32>,
            },
            /// A word of a newer release, kept as it came and never read as an end.
            Unknown(String),
        }

        impl SlurmState {
            /// Reads the first word; a `+` from a cut column is dropped.
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

            /// The word that Slurm prints.
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
    Pending "PENDING", Running "RUNNING", Suspended "SUSPENDED", Completed "COMPLETED", Failed "FAILED",
    Timeout "TIMEOUT", NodeFail "NODE_FAIL", Preempted "PREEMPTED", BootFail "BOOT_FAIL", Deadline "DEADLINE",
    OutOfMemory "OUT_OF_MEMORY", LaunchFailed "LAUNCH_FAILED", Requeued "REQUEUED", RequeueHold "REQUEUE_HOLD",
    SpecialExit "SPECIAL_EXIT", Resizing "RESIZING", Configuring "CONFIGURING", Completing "COMPLETING",
    Stopped "STOPPED", ReconfigFail "RECONFIG_FAIL", PowerUpNode "POWER_UP_NODE", Revoked "REVOKED",
    RequeueFed "REQUEUE_FED", ResvDelHold "RESV_DEL_HOLD", Signaling "SIGNALING", StageOut "STAGE_OUT",
    UpdateDb "UPDATE_DB", Expediting "EXPEDITING",
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
    /// Over.
    Ended,
}

impl SlurmState {
    /// What the state means for somebody who waits; an unknown word is [`Phase::Between`].
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
}

impl fmt::Display for SlurmState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Cancelled { by: Some(uid) } = self {
            return write!(f, "CANCELLED by {uid}");
        }
        f.pad(self.word())
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
    fn words_are_read_as_they_come() {
        assert_eq!(
            SlurmState::parse("CANCELLED by 1234"),
            SlurmState::Cancelled { by: Some(1234) }
        );
        assert_eq!(
            SlurmState::parse("CANCELLED+"),
            SlurmState::Cancelled { by: None }
        );
        assert_eq!(
            SlurmState::parse("OUT_OF_ME+"),
            SlurmState::Unknown("OUT_OF_ME".into())
        );
        assert_eq!(SlurmState::parse("HIBERNATING").phase(), Phase::Between);
        assert_eq!(SlurmState::parse("").phase(), Phase::Between);
        for word in ["PENDING", "TIMEOUT", "CANCELLED by 0", "NEW_WORD"] {
            assert_eq!(SlurmState::parse(word).to_string(), word);
        }
        assert_ne!(SlurmState::Completing.phase(), Phase::Ended);
    }
}
