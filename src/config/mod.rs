//! Operator configuration: `clusters.toml`, strict, every mistake named with its place.
//!
//! A profile maps a portable request to one cluster. The file belongs to the operator; nothing in the code has a
//! default that names a site, a partition, a path, a GPU or an image.

mod error;
mod launch;
mod profile;
mod raw;

pub use error::{ConfigError, Problem};
pub use launch::{Container, LaunchPlan};
pub use profile::{AcceleratorBackend, Document, LOCAL, Profile, RunnerKind, SlurmOptions, SshOptions};
