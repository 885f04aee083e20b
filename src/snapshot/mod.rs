//! Snapshots: what of a candidate is taken, its name, and how it travels.
//!
//! A snapshot is named by the digest of its manifest, so the same content has the same name whoever makes it and
//! whenever; times, owners and the order of a directory do not matter. Hard links become files of their own, and sparse
//! files travel as what is read from them. Everything here is synchronous.

pub mod artifact;
mod cache;
mod delta;
mod digest;
mod error;
mod git;
mod largest;
mod link;
mod manifest;
mod member;
mod open;
mod pack;
mod preview;
mod rules;
pub mod shell;
#[cfg(test)]
mod tests;
mod walk;

pub use delta::Delta;
pub use digest::{take, take_with};
pub use error::SnapshotError;
pub use largest::Part;
pub use manifest::{Entry, Kind, Manifest};
pub use pack::{delta_archive, full_archive, removed_list};
pub use preview::{Excluded, Preview, preview};
pub use rules::{EXCLUDED_NAMES, EXCLUDED_PATHS, Limits, Rules, Why};
