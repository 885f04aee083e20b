//! How an invocation ended: the whole space of outcomes, never just success or failure.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How an invocation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Outcome {
    /// The command ran and exited 0, and nothing contradicts it.
    Completed,
    /// The command ran and failed by its own doing. Never retried.
    ApplicationFailed,
    /// The allocation reached its time limit under the command.
    AllocationExpired,
    /// A node was lost, or never managed to start the command.
    NodeFailed,
    /// The allocation was taken away for another job.
    Preempted,
    /// Nothing is known of the end: the attempt stays open until it is proven over.
    TransportLost,
    /// Somebody cancelled the step or its allocation.
    Cancelled,
}

impl Outcome {
    /// The word of the outcome as it is shown and stored, for example `APPLICATION_FAILED`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Completed => "COMPLETED",
            Self::ApplicationFailed => "APPLICATION_FAILED",
            Self::AllocationExpired => "ALLOCATION_EXPIRED",
            Self::NodeFailed => "NODE_FAILED",
            Self::Preempted => "PREEMPTED",
            Self::TransportLost => "TRANSPORT_LOST",
            Self::Cancelled => "CANCELLED",
        }
    }

    /// Whether the same command may be tried again on other compute.
    ///
    /// Only causes outside the command qualify. [`Outcome::TransportLost`] does not: the attempt may still be
    /// running, and attempt n+1 never starts before n is proven over.
    pub fn is_infrastructure(self) -> bool {
        match self {
            Self::AllocationExpired | Self::NodeFailed | Self::Preempted => true,
            Self::Completed | Self::ApplicationFailed | Self::TransportLost | Self::Cancelled => false,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// Why an invocation ended as it did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Cause {
    /// The command exited by itself.
    Exit {
        /// Its exit code, 0 to 255.
        code: u8,
    },
    /// The command was ended by a signal that was not ours.
    Signal {
        /// The signal number.
        signal: u8,
    },
    /// A process of the step was killed because the step was over its memory.
    OutOfMemory {
        /// What the command itself exited with, if it still could.
        code: Option<u8>,
    },
    /// The command does not exist, or cannot be executed, on the node.
    CommandNotFound {
        /// 127 (missing) or 126 (not executable), as the shell says it.
        code: u8,
    },
    /// The invocation ran into its own time limit (`--timeout`).
    TimedOut,
    /// The allocation ran into its time limit.
    TimeLimit,
    /// The container, or the step itself, never got as far as the command.
    LaunchFailed {
        /// What Slurm or the container runtime said.
        message: String,
    },
    /// A node of the step or the batch host was lost.
    NodeFailure {
        /// The node, where Slurm names it.
        node: Option<String>,
    },
    /// Another job took the nodes.
    Preemption,
    /// We cancelled it.
    CancelledByUs,
    /// Somebody else cancelled it.
    CancelledBy {
        /// The user id that Slurm names, if it names one.
        uid: Option<u32>,
    },
    /// No observation was to be had.
    NoObservation {
        /// What was tried and what came back.
        message: String,
    },
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit { code } => write!(f, "exit code {code}"),
            Self::Signal { signal } => write!(f, "killed by signal {signal}"),
            Self::OutOfMemory { code: Some(code) } => write!(f, "out of memory (exit code {code})"),
            Self::OutOfMemory { code: None } => write!(f, "out of memory"),
            Self::CommandNotFound { code: 126 } => write!(f, "the command cannot be executed on the node"),
            Self::CommandNotFound { .. } => write!(f, "the command does not exist on the node"),
            Self::TimedOut => write!(f, "the invocation's own time limit was reached"),
            Self::TimeLimit => write!(f, "the allocation's time limit was reached"),
            Self::LaunchFailed { message } => write!(f, "the command was never started: {message}"),
            Self::NodeFailure { node: Some(node) } => write!(f, "node {node} failed"),
            Self::NodeFailure { node: None } => write!(f, "a node failed"),
            Self::Preemption => write!(f, "preempted by another job"),
            Self::CancelledByUs => write!(f, "cancelled on request"),
            Self::CancelledBy { uid: Some(uid) } => write!(f, "cancelled by uid {uid}"),
            Self::CancelledBy { uid: None } => write!(f, "cancelled by somebody else"),
            Self::NoObservation { message } => write!(f, "no observation: {message}"),
        }
    }
}

/// An outcome with its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// How it ended.
    pub outcome: Outcome,
    /// Why.
    pub cause: Cause,
}

impl Verdict {
    /// The exit code of the command itself, if it ran to an end of its own (128 + N for a signal, as shells say it).
    pub fn command_code(&self) -> Option<u8> {
        match &self.cause {
            Cause::Exit { code } | Cause::CommandNotFound { code } => Some(*code),
            Cause::Signal { signal } => Some(128_u8.saturating_add(*signal)),
            Cause::OutOfMemory { code } => Some(code.filter(|code| *code != 0).unwrap_or(137)),
            Cause::TimedOut
            | Cause::TimeLimit
            | Cause::LaunchFailed { .. }
            | Cause::NodeFailure { .. }
            | Cause::Preemption
            | Cause::CancelledByUs
            | Cause::CancelledBy { .. }
            | Cause::NoObservation { .. } => None,
        }
    }
}
