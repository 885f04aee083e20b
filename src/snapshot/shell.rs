//! How the other side makes a tree of what was staged: the text of the commands, for bash with `pipefail`, GNU tar,
//! zstd, xargs and find. The launcher (`slurm-templates/launcher.sh`) has the same text; a test compares them.
//!
//! A whole snapshot is [`EXTRACT`] into an empty directory. A difference is [`REMOVE`] and then [`EXTRACT`] in a copy of
//! its base: what is gone or has become another kind of thing is removed first, because tar does not put a file in the
//! place of a directory; what only changed is replaced by tar, which unlinks the old file before it writes the new one.
//!
//! # Times
//!
//! Every file in an archive has one fixed time in the past. So equal content has equal archives, and within the tree
//! nothing is older than anything else, so that make(1) does not remake generated files that were staged with their sources
//! (with times of unpacking, `configure` would come before `configure.ac`). What a build makes in the tree is newer than
//! its sources. Access times are those of unpacking, so a purge of what was not read for weeks does not see an old file.
//!
//! It is **not** enough where build products outlive the tree: a build directory on scratch, torch's extension cache, or
//! `PYTHONPYCACHEPREFIX`. They compare their products with the times of sources that always stand at the same path, and
//! would take an edited source for an old one: the product of another candidate would be measured. [`FRESHEN`] gives
//! all files of the tree one time, now, just before the command starts.

/// `EXTRACT ARCHIVE TREE`: unpacks `$1` in `$2`. The archive has a checksum, so a damaged one fails here.
pub const EXTRACT: &str =
    r#"zstd -dcq --long=27 "$1" | tar -x -p -f - -C "$2" --no-same-owner --warning=no-timestamp"#;

/// `REMOVE LIST` within the tree: removes what [`removed_list`](super::removed_list) names.
pub const REMOVE: &str = "xargs -0 -r rm -rf --";

/// `FRESHEN TREE REFERENCE`: all files below `$1` get the time of `$2`, a file that was made just before on the same
/// file system, so that the clock is the same as that of build products.
pub const FRESHEN: &str = r#"find "$1" -type f -exec touch -c -r "$2" -- {} +"#;
