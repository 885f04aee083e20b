//! The login-node side of a connection: a remote shell that runs `slurm-templates/agent.sh`.
//!
//! One channel carries everything that an evaluation needs: requests, archives, log bytes and results. Requests can be
//! sent without waiting for the answers to earlier ones, so an evaluation costs one round trip before its first log line.
//! Nothing here knows Slurm or leases; the functions that a request calls are in the script.

mod agent;
mod answer;

pub use agent::{Agent, AgentError, Batch, Done, Follow, FollowEvent, Login, Pending, StartError, call};
pub use answer::{Answer, AnswerError, AnswerParser, Stream};
