//! Snapshots against the real tar, zstd, xargs and git: what is taken, and that it arrives as it was.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use vibesys::snapshot::{self, Limits, Manifest, SnapshotError};

fn shell(script: &str, arguments: &[&Path]) {
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", script, "sh"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{script}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn take(root: &Path) -> Manifest {
    snapshot::take(root, None, Limits::default()).unwrap()
}

/// What the launcher does with an archive.
fn unpack_full(root: &Path, manifest: &Manifest, into: &Path) {
    let archive = into.with_extension("zst");
    fs::write(
        &archive,
        snapshot::full_archive(root, manifest, Vec::new()).unwrap(),
    )
    .unwrap();
    fs::create_dir(into).unwrap();
    shell(
        r#"zstd -dcq --long=27 "$1" | tar -x -p -f - -C "$2" --no-same-owner --warning=no-timestamp"#,
        &[&archive, into],
    );
}

fn apply_delta(root: &Path, base: &Manifest, new: &Manifest, tree: &Path) {
    let delta = base.delta_to(new);
    let (archive, removed) = (tree.with_extension("delta"), tree.with_extension("removed"));
    fs::write(
        &archive,
        snapshot::delta_archive(root, &delta, Vec::new()).unwrap(),
    )
    .unwrap();
    fs::write(&removed, snapshot::removed_list(&delta)).unwrap();
    shell(
        r#"cd "$2"; xargs -0 -r rm -rf -- <"$3"; zstd -dcq --long=27 "$1" | tar -x -p -f - -C "$2" --no-same-owner --warning=no-timestamp"#,
        &[&archive, tree, &removed],
    );
}

#[test]
fn odd_trees_arrive_as_they_were() {
    let scratch = tempfile::tempdir().unwrap();
    let (root, copy) = (scratch.path().join("root"), scratch.path().join("copy"));
    fs::create_dir_all(root.join("deep/".repeat(40))).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    let long = "x".repeat(255);
    for name in [
        "a b",
        "-rf",
        "new\nline",
        "quote'\"",
        "*?[",
        "tab\t",
        "ünï",
        long.as_str(),
        ".hidden",
        "$(id)",
    ] {
        fs::write(root.join(name), name).unwrap();
        fs::write(root.join("deep").join(name), "below").unwrap();
    }
    fs::write(root.join(OsStr::from_bytes(b"not \xff utf-8")), [0, 255, 10]).unwrap();
    fs::write(root.join("run.sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(root.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::hard_link(root.join("run.sh"), root.join("hard")).unwrap();
    symlink("run.sh", root.join("link")).unwrap();
    symlink("../a b", root.join("deep/up")).unwrap();
    symlink("nowhere", root.join("dangling")).unwrap();
    let sparse = fs::File::create(root.join("sparse")).unwrap();
    sparse.set_len(3 << 20).unwrap();
    let manifest = take(&root);
    unpack_full(&root, &manifest, &copy);
    assert_eq!(take(&copy), manifest);
    assert_eq!(
        fs::metadata(copy.join("hard")).unwrap().permissions().mode() & 0o111,
        0o111
    );
    assert_eq!(
        fs::read_link(copy.join("dangling")).unwrap(),
        Path::new("nowhere")
    );
}

#[test]
fn what_git_ignores_stays_at_home_and_what_it_tracks_travels() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path();
    for path in [
        "src/main.c",
        "build/out.o",
        "logs/kept.log",
        "logs/lost.log",
        "untracked.txt",
        ".env.local",
        "sub/.git/config",
        "__pycache__/x",
    ] {
        fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
        fs::write(root.join(path), path).unwrap();
    }
    fs::write(root.join(".gitignore"), "build/\n*.log\n").unwrap();
    shell(
        r#"cd "$1"; git init -q; git add src .gitignore; git add -f logs/kept.log"#,
        &[root],
    );
    let manifest = take(root);
    let paths: Vec<String> = manifest
        .entries()
        .iter()
        .map(|entry| String::from_utf8_lossy(&entry.path).into_owned())
        .collect();
    assert_eq!(
        paths,
        [
            ".gitignore",
            "logs",
            "logs/kept.log",
            "src",
            "src/main.c",
            "sub",
            "untracked.txt"
        ]
    );
}

#[test]
fn the_candidates_own_git_configuration_starts_nothing_here() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("f"), "x").unwrap();
    let program = scratch.path().join("program");
    fs::write(
        &program,
        format!("#!/bin/sh\ntouch '{}/ran'\n", scratch.path().display()),
    )
    .unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    shell(
        r#"cd "$1"; git init -q; git add f; git config core.fsmonitor "$2""#,
        &[&root, &program],
    );
    assert_eq!(take(&root).size().0, 1);
    assert!(
        !scratch.path().join("ran").exists(),
        "the candidate ran a program on this machine"
    );
}

#[test]
fn what_cannot_travel_is_refused_by_name() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join("root");
    let try_with = |prepare: &dyn Fn(&Path)| {
        drop(fs::remove_dir_all(&root));
        fs::create_dir_all(root.join("d")).unwrap();
        prepare(&root);
        let limits = Limits {
            files: 3,
            bytes: 1000,
        };
        snapshot::take(&root, None, limits).unwrap_err()
    };
    for target in ["/etc/passwd", "../../etc", "d/../../../x"] {
        let error = try_with(&|root| symlink(target, root.join("d/link")).unwrap());
        assert!(
            matches!(error, SnapshotError::EscapingLink { .. }),
            "{target}: {error}"
        );
        assert!(
            error.to_string().contains("d/link") && error.to_string().contains(target),
            "{error}"
        );
    }
    let error = try_with(&|root| {
        symlink("d", root.join("a")).unwrap();
        symlink("../..", root.join("d/x")).unwrap();
    });
    assert!(matches!(error, SnapshotError::EscapingLink { .. }), "{error}");
    let error = try_with(&|root| shell(r#"mkfifo "$1/pipe""#, &[root]));
    assert!(error.to_string().contains("pipe is a fifo"), "{error}");
    let error = try_with(&|root| (0..4).for_each(|i| fs::write(root.join(format!("f{i}")), "").unwrap()));
    assert!(error.to_string().contains("4 files"), "{error}");
    let error = try_with(&|root| fs::write(root.join("d/model.bin"), vec![0; 5000]).unwrap());
    assert!(error.to_string().contains("d (1 MiB, 1 files)"), "{error}");
    let error = snapshot::take(&root.join("nothing"), None, Limits::default()).unwrap_err();
    assert!(matches!(error, SnapshotError::NotADirectory { .. }), "{error}");
}

#[test]
fn a_remembered_digest_never_hides_an_edit() {
    let scratch = tempfile::tempdir().unwrap();
    let (root, cache) = (scratch.path().join("root"), scratch.path().join("cache/stat"));
    fs::create_dir(&root).unwrap();
    fs::write(root.join("f"), "one").unwrap();
    fs::write(root.join("old"), "same").unwrap();
    let past = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    fs::File::options()
        .write(true)
        .open(root.join("old"))
        .unwrap()
        .set_modified(past)
        .unwrap();
    let with_cache = || snapshot::take(&root, Some(&cache), Limits::default()).unwrap();
    let first = with_cache();
    assert_eq!(first, take(&root));
    assert_eq!(with_cache(), first);
    // The same size, as soon after as a file system can tell apart or sooner.
    for content in ["two", "six", "ten"] {
        fs::write(root.join("f"), content).unwrap();
        assert_eq!(with_cache(), take(&root), "{content}");
    }
    for damage in [&b""[..], b"rubbish", &fs::read(&cache).unwrap()[..40]] {
        fs::write(&cache, damage).unwrap();
        assert_eq!(with_cache(), take(&root));
    }
}

#[test]
fn an_archive_is_never_anything_else_than_its_manifest() {
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("f"), "before").unwrap();
    let manifest = take(scratch.path());
    for content in ["after!", "aft", "much longer than before"] {
        fs::write(scratch.path().join("f"), content).unwrap();
        let packed = snapshot::full_archive(scratch.path(), &manifest, Vec::new());
        // A file that only grew is still what it was up to the announced size, unless its beginning changed.
        assert!(matches!(packed, Err(SnapshotError::Changed { .. })), "{content}");
    }
    assert_eq!(
        snapshot::full_archive(scratch.path(), &take(scratch.path()), Vec::new()).unwrap(),
        snapshot::full_archive(scratch.path(), &take(scratch.path()), Vec::new()).unwrap()
    );
}

type Tree = BTreeMap<Vec<u8>, Node>;

#[derive(Debug, Clone)]
enum Node {
    File(Vec<u8>, bool),
    Link(Vec<u8>),
    Directory,
}

/// Trees over a few names, so that two of them share paths with different kinds.
fn trees() -> impl Strategy<Value = Tree> {
    let name = prop_oneof![
        Just(b"a".to_vec()),
        Just(b"a.b".to_vec()),
        Just(b"-f".to_vec()),
        Just(b"x\n\xfe".to_vec()),
        Just(b" ".to_vec())
    ];
    let path = proptest::collection::vec(name, 1..4).prop_map(|parts| parts.join(&b'/'));
    let node = prop_oneof![
        (proptest::collection::vec(any::<u8>(), 0..20), any::<bool>())
            .prop_map(|(data, exec)| Node::File(data, exec)),
        Just(Node::Link(b"a".to_vec())),
        Just(Node::Link(b"not there".to_vec())),
        Just(Node::Directory),
    ];
    proptest::collection::btree_map(path, node, 0..12)
}

fn build(root: &Path, tree: &Tree) {
    fs::create_dir(root).unwrap();
    for (path, node) in tree {
        let full = root.join(std::ffi::OsString::from_vec(path.clone()));
        // A path below something that is no directory cannot exist; skipping it keeps the rest of the tree.
        let parent = full.parent().unwrap();
        if parent
            .ancestors()
            .take_while(|part| *part != root)
            .any(std::path::Path::is_symlink)
            || fs::create_dir_all(parent).is_err()
        {
            continue;
        }
        match node {
            Node::File(data, exec) => {
                if fs::write(&full, data).is_ok() {
                    fs::set_permissions(
                        &full,
                        fs::Permissions::from_mode(if *exec { 0o755 } else { 0o644 }),
                    )
                    .unwrap();
                }
            }
            Node::Link(target) => drop(symlink(OsStr::from_bytes(target), &full)),
            Node::Directory => drop(fs::create_dir_all(&full)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn a_delta_over_its_base_is_the_new_tree(base in trees(), new in trees()) {
        let scratch = tempfile::tempdir().unwrap();
        let (base_root, new_root, copy) = (scratch.path().join("base"), scratch.path().join("new"), scratch.path().join("copy"));
        build(&base_root, &base);
        build(&new_root, &new);
        let (base, new) = (take(&base_root), take(&new_root));
        unpack_full(&base_root, &base, &copy);
        prop_assert_eq!(&take(&copy), &base);
        apply_delta(&new_root, &base, &new, &copy);
        prop_assert_eq!(take(&copy), new);
    }
}
