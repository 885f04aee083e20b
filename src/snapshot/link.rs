//! Whether a symbolic link stays inside of the candidate.

use std::path::{Component, Path};

/// Follows `target` of the link at `path`, word by word, and says whether it ever leaves `real_root` (canonical).
///
/// It must stay inside by its words alone, which is how a reader understands it, and as the file system resolves it,
/// at every step; where a step leads to nothing that exists, the rest is taken by its words.
pub(super) fn escapes(real_root: &Path, path: &Path, target: &Path) -> bool {
    by_words(path, target) || by_resolution(real_root, path, target)
}

fn by_words(path: &Path, target: &Path) -> bool {
    let mut depth = path.components().count().saturating_sub(1);
    for part in target.components() {
        match part {
            Component::RootDir | Component::Prefix(_) => return true,
            Component::ParentDir => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return true,
            },
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
        }
    }
    false
}

fn by_resolution(real_root: &Path, path: &Path, target: &Path) -> bool {
    let mut at = real_root.join(path.parent().unwrap_or(Path::new("")));
    for part in target.components() {
        match part {
            Component::ParentDir => {
                at.pop();
            }
            Component::Normal(name) => {
                at.push(name);
                if at.is_symlink()
                    && let Ok(real) = at.canonicalize()
                {
                    at = real;
                }
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
        if !at.starts_with(real_root) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_link_may_lead_anywhere_inside_and_nowhere_else() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap().join("root");
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        // Seen from `a/b/up`, two words down are no step down at all.
        symlink("../..", root.join("a/b/up")).unwrap();
        symlink("nowhere/at/all", root.join("a/gone")).unwrap();
        for (path, target, wanted) in [
            ("x", "a/b", false),
            ("x", "./a//b/", false),
            ("a/b/x", "../../a", false),
            ("x", "not/there", false),
            ("x", "a/gone/more", false),
            ("x", "a/b/up/a", false),
            ("x", "", false),
            ("x", "/etc/passwd", true),
            ("x", "..", true),
            ("x", "../root/a", true),
            ("a/x", "b/../../../y", true),
            ("x", "a/b/up/..", true),
            ("x", "a/b/up/../root/a", true),
            ("x", "a/b/up/../not-there", true),
        ] {
            assert_eq!(
                escapes(&root, Path::new(path), Path::new(target)),
                wanted,
                "{path} -> {target}"
            );
        }
    }
}
