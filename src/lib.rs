//! vibesys measures a dirty working tree on a Slurm cluster that is reachable only by SSH.
//!
//! The modules are listed in layer order; a module may use those above it in this list, never those below.
//! `docs/architecture.md` has the map, `docs/glossary.md` the words.

// Foundation: knows nothing of jobs.
pub mod clock;
pub mod ids;
pub mod quote;
pub mod redact;

pub mod durable;

// Vocabulary: pure.
pub mod job;

pub mod config;

// Mechanisms: each knows one thing.
pub mod lease;
pub mod slurm;
pub mod snapshot;
pub mod ssh;

// What runs on the other side, what is asked, and how it is remembered.
pub mod remote;

pub mod runner;

pub mod journal;

// The runners.
pub mod backend;

// The only one that prints, reads the environment or picks a backend.
pub mod cli;
