//! vibesys measures a dirty working tree on a Slurm cluster that is reachable only by SSH.
//!
//! The modules are listed in layer order; a module may use those above it in this list, never those below.
//! `docs/architecture.md` has the map, `docs/glossary.md` the words.

// Layer 0: foundation, knows nothing of jobs.
pub mod clock;
pub mod durable;
pub mod ids;
pub mod quote;
pub mod redact;

// Layer 1: vocabulary, pure.
pub mod config;
pub mod job;

// Layer 2: mechanisms, each knows one thing.
pub mod lease;
pub mod slurm;
pub mod snapshot;
pub mod ssh;

// Layer 3: what is asked, how it is remembered, and what runs on the other side.
pub mod journal;
pub mod remote;
pub mod runner;

// Layer 4: the runners.
pub mod backend;

// Layer 5: the only layer that prints, reads the environment or picks a backend.
pub mod cli;
