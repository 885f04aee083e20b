//! Snapshots: what of a candidate is taken, its name, and how it travels.
//!
//! A snapshot is named by the digest of its manifest, so the same content has the same name whoever makes it and
//! whenever; times, owners and the order of a directory do not matter. Everything here is synchronous.

pub mod artifact;
mod cache;
mod error;
mod manifest;
mod pack;
mod walk;

use std::path::Path;

pub use error::SnapshotError;
pub use manifest::{Delta, Entry, Kind, Manifest};
pub use pack::{delta_archive, full_archive, removed_list};
pub use walk::{EXCLUDED_NAMES, Limits, Walked};

/// Takes the manifest of the candidate at `root`. `cache` is a file that remembers digests by stat data, as git's index does.
///
/// # Errors
/// See [`SnapshotError`]; every variant names the path and what to do.
pub fn take(root: &Path, cache: Option<&Path>, limits: Limits) -> Result<Manifest, SnapshotError> {
    let walked = walk::walk(root, limits)?;
    cache::digest(root, &walked, cache)
}
