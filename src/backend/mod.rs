//! The runners behind [`crate::runner::JobRunner`].

pub mod slurm;
