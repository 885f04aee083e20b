//! What is taken and what is left out.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::{bash, paths, take};
use crate::snapshot::{Limits, Rules, SnapshotError, Why, preview, take_with};

fn write(root: &Path, files: &[&str]) {
    for path in files {
        fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
        fs::write(root.join(path), path).unwrap();
    }
}

#[test]
fn what_git_tracks_travels_though_a_rule_matches_it() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path();
    write(
        root,
        &[
            "f.c",
            "logs/kept.log",
            "logs/lost.log",
            "build/rules.mk",
            "build/out.o",
            ".env",
            "dist/x",
            "gone.log",
        ],
    );
    fs::write(root.join(".gitignore"), "logs/\n*.log\n").unwrap();
    bash(
        r#"cd "$1"; git init -q; git add .gitignore f.c build/rules.mk; git add -f logs/kept.log .env gone.log; rm gone.log"#,
        &[root],
    );
    let wanted = [
        ".gitignore",
        "build",
        "build/rules.mk",
        "f.c",
        "logs",
        "logs/kept.log",
    ];
    assert_eq!(paths(&take(root)), wanted);
    // A part of a repository is a candidate too; the rules above it count.
    assert_eq!(paths(&take(&root.join("logs"))), ["kept.log"]);
    let seen = preview(root, &Rules::default()).unwrap();
    assert_eq!((seen.files, seen.directories, seen.links), (4, 2, 0));
    let count = |why| seen.excluded.get(&why).map_or(0, |excluded| excluded.count);
    assert_eq!(count(Why::GitIgnored), 1);
    assert_eq!(count(Why::Secret), 1);
    assert_eq!(count(Why::Repository), 1);
    // `dist`, and `build/out.o` for the directory above it.
    assert_eq!(count(Why::BuildOutput), 2, "{:?}", seen.excluded);
    assert_eq!(seen.excluded[&Why::Secret].examples, [PathBuf::from(".env")]);
}

#[test]
fn a_tracked_file_behind_a_link_is_not_taken_twice() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path();
    write(root, &["data/f.log", "other/f.log"]);
    bash(
        r#"cd "$1"; git init -q; git add data; rm -r data; ln -s other data; echo '*.log' >.gitignore"#,
        &[root],
    );
    assert_eq!(paths(&take(root)), [".gitignore", "data", "other"]);
}

#[test]
fn without_a_repository_the_rules_above_do_not_count() {
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join(".gitignore"), "*\n").unwrap();
    let root = scratch.path().join("candidate");
    write(&root, &["f", "g.o", "sub/.git/config", "sub/h"]);
    fs::write(root.join(".gitignore"), "*.o\n").unwrap();
    assert_eq!(paths(&take(&root)), [".gitignore", "f", "sub", "sub/h"]);
}

#[test]
fn a_submodule_is_taken_without_its_repository() {
    let scratch = tempfile::tempdir().unwrap();
    write(scratch.path(), &["lib/l.c", "top/t.c"]);
    bash(
        r#"cd "$1"
        export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a
        (cd lib; git init -q; git add .; git commit -qm l)
        cd top; git init -q; git add t.c; git -c protocol.file.allow=always submodule --quiet add "$1/lib" lib 2>/dev/null"#,
        &[scratch.path()],
    );
    let wanted = [".gitmodules", "lib", "lib/l.c", "t.c"];
    assert_eq!(paths(&take(&scratch.path().join("top"))), wanted);
}

#[test]
fn the_rules_are_the_callers() {
    let scratch = tempfile::tempdir().unwrap();
    write(
        scratch.path(),
        &["node_modules/m", "a/secret", "b/secret", ".git/config"],
    );
    let mut rules = Rules::default();
    rules.names.remove(std::ffi::OsStr::new("node_modules"));
    rules.extend([(PathBuf::from("a/secret"), Why::Secret)]);
    let manifest = take_with(scratch.path(), None, Limits::default(), &rules).unwrap();
    assert_eq!(
        paths(&manifest),
        ["a", "b", "b/secret", "node_modules", "node_modules/m"]
    );
}

#[test]
fn too_much_is_refused_with_what_holds_it() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path();
    write(root, &["src/a", "src/model/x", "src/model/y", "src/model/z"]);
    fs::write(root.join("src/model/weights"), vec![0; 3 << 20]).unwrap();
    let refused = |files, bytes| {
        let limits = Limits { files, bytes };
        take_with(root, None, limits, &Rules::default())
            .unwrap_err()
            .to_string()
    };
    let text = refused(100, 1 << 20);
    assert!(
        text.contains("4 MiB") && text.contains("limit of 1 MiB"),
        "{text}"
    );
    assert!(text.contains("src/model/weights (3 MiB, 1 files)"), "{text}");
    let text = refused(3, 1 << 30);
    assert!(
        text.contains("5 files") && text.contains("limit of 3 files"),
        "{text}"
    );
    assert!(text.contains("src/model (4 MiB, 4 files)"), "{text}");
    assert!(
        take_with(
            root,
            None,
            Limits {
                files: 5,
                bytes: 4 << 20
            },
            &Rules::default()
        )
        .is_ok()
    );
    assert_eq!(preview(root, &Rules::default()).unwrap().files, 5);
}

#[test]
fn a_directory_that_cannot_be_read_is_an_error() {
    let scratch = tempfile::tempdir().unwrap();
    write(scratch.path(), &["d/f"]);
    bash(r#"chmod 0 "$1/d""#, &[scratch.path()]);
    // Root reads everything.
    if fs::read_dir(scratch.path().join("d")).is_err() {
        let error = crate::snapshot::take(scratch.path(), None, Limits::default()).unwrap_err();
        assert!(
            matches!(&error, SnapshotError::Unreadable { path, .. } if path == Path::new("d")),
            "{error:?}"
        );
    }
    bash(r#"chmod 700 "$1/d""#, &[scratch.path()]);
}

#[test]
fn a_socket_and_an_escaping_link_are_refused_unless_ignored() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path();
    let _listener = std::os::unix::net::UnixListener::bind(root.join("s")).unwrap();
    symlink("/etc", root.join("l")).unwrap();
    assert!(crate::snapshot::take(root, None, Limits::default()).is_err());
    fs::write(root.join(".gitignore"), "/l\n").unwrap();
    let error = crate::snapshot::take(root, None, Limits::default()).unwrap_err();
    assert!(error.to_string().contains("s is a socket"), "{error}");
    fs::write(root.join(".gitignore"), "/l\n/s\n").unwrap();
    assert_eq!(paths(&take(root)), [".gitignore"]);
}
