//! Snapshots against the real bash, tar, zstd, xargs, find, make and git.

mod measure;
mod safety;
mod take;
mod trees;

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Delta, Limits, Manifest, delta_archive, full_archive, removed_list, shell};

/// Runs `script` in bash as the launcher would, with `arguments` as `$1`, `$2` and so on; returns its output.
fn bash(script: &str, arguments: &[&Path]) -> String {
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", script, "bash"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{script}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn take(root: &Path) -> Manifest {
    super::take(root, None, Limits::default()).unwrap()
}

fn paths(manifest: &Manifest) -> Vec<String> {
    let text = |path: &Vec<u8>| String::from_utf8_lossy(path).into_owned();
    manifest.entries().iter().map(|entry| text(&entry.path)).collect()
}

fn extract(archive: Vec<u8>, tree: &Path) {
    let file = tree.with_extension("zst");
    fs::write(&file, archive).unwrap();
    bash(shell::EXTRACT, &[&file, tree]);
}

/// Makes `tree` what `manifest` of `root` says, on the other side.
fn unpack(root: &Path, manifest: &Manifest, tree: &Path) {
    fs::create_dir(tree).unwrap();
    extract(full_archive(root, manifest, Vec::new()).unwrap(), tree);
}

/// Applies `delta`, whose content is in `root`, to its base in `tree`.
fn apply(root: &Path, delta: &Delta<'_>, tree: &Path) {
    let list = tree.with_extension("removed");
    fs::write(&list, removed_list(delta)).unwrap();
    bash(&format!("cd \"$2\" && {} <\"$1\"", shell::REMOVE), &[&list, tree]);
    extract(delta_archive(root, delta, Vec::new()).unwrap(), tree);
}

#[test]
fn the_launcher_uses_the_documented_commands() {
    let launcher = Path::new(env!("CARGO_MANIFEST_DIR")).join("slurm-templates/launcher.sh");
    let text = fs::read_to_string(launcher).unwrap();
    for command in [shell::EXTRACT, shell::REMOVE] {
        assert!(text.contains(command), "{command}");
    }
}
