//! What somebody who edits the candidate could try, and what a build could believe.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use super::{apply, bash, paths, take, unpack};
use crate::snapshot::{Limits, SnapshotError, full_archive, shell};

#[test]
fn taking_a_candidate_starts_no_program_of_its_choice() {
    let scratch = tempfile::tempdir().unwrap();
    let (root, mark) = (scratch.path().join("root"), scratch.path().join("ran"));
    fs::create_dir(&root).unwrap();
    fs::write(root.join("f"), "f").unwrap();
    bash(
        r#"cd "$1"; git init -q; git add f
        printf '#!/bin/sh\n: >"%s"\n' "$2" >.git/hook; chmod +x .git/hook
        git config core.fsmonitor .git/hook"#,
        &[&root, &mark],
    );
    // The trap is a real one: this is what it does to a plain git.
    bash(r#"cd "$1"; git status >/dev/null 2>&1"#, &[&root]);
    assert!(mark.exists());
    fs::remove_file(&mark).unwrap();
    assert_eq!(paths(&take(&root)), ["f"]);
    assert!(!mark.exists());
}

#[test]
fn a_file_exchanged_for_a_link_after_the_digest_is_not_sent() {
    let scratch = tempfile::tempdir().unwrap();
    let (root, outside) = (scratch.path().join("root"), scratch.path().join("outside"));
    fs::create_dir_all(root.join("d")).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(root.join("d/key"), "harmless").unwrap();
    fs::write(outside.join("key"), "-SECRET-").unwrap();
    let manifest = take(&root);
    let exchanged = |prepare: &dyn Fn()| {
        drop(fs::remove_dir_all(root.join("d")));
        prepare();
        let mut sent = Vec::new();
        let error = full_archive(&root, &manifest, &mut sent).unwrap_err();
        assert!(matches!(error, SnapshotError::Changed { .. }), "{error:?}");
        // Not even the part that went out before the error holds it.
        let plain = zstd::stream::decode_all(&sent[..]).unwrap_or(sent);
        assert!(!plain.windows(8).any(|window| window == b"-SECRET-"));
    };
    exchanged(&|| symlink(&outside, root.join("d")).unwrap());
    fs::remove_file(root.join("d")).unwrap();
    exchanged(&|| {
        fs::create_dir(root.join("d")).unwrap();
        symlink(outside.join("key"), root.join("d/key")).unwrap();
    });
    exchanged(&|| bash(r#"mkdir "$1/d"; mkfifo "$1/d/key""#, &[&root]).clear());
}

#[test]
fn a_file_edited_after_the_digest_is_not_packed() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path();
    fs::write(root.join("f"), "before").unwrap();
    let manifest = take(root);
    for content in ["after!", "aft", "", "much longer than before"] {
        fs::write(root.join("f"), content).unwrap();
        let error = full_archive(root, &manifest, Vec::new()).unwrap_err();
        assert!(
            matches!(&error, SnapshotError::Changed { path } if path == Path::new("f")),
            "{content}: {error:?}"
        );
    }
    fs::remove_file(root.join("f")).unwrap();
    let error = full_archive(root, &manifest, Vec::new()).unwrap_err();
    assert!(matches!(error, SnapshotError::Changed { .. }), "{error:?}");
}

#[test]
fn a_candidate_that_is_being_written_gives_a_whole_content_or_an_error() {
    let scratch = tempfile::tempdir().unwrap();
    let (root, cache) = (scratch.path().join("root"), scratch.path().join("cache"));
    fs::create_dir(&root).unwrap();
    fs::write(root.join("f"), vec![0; 300_000]).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut round = 0_u8;
            while !stop.load(Ordering::Relaxed) {
                round = round.wrapping_add(1);
                let next = root.join(".cache");
                fs::write(&next, vec![round; 300_000]).unwrap();
                fs::rename(&next, root.join("f")).unwrap();
            }
        });
        for _ in 0..30 {
            match crate::snapshot::take(&root, Some(&cache), Limits::default()) {
                Ok(manifest) => match full_archive(&root, &manifest, Vec::new()) {
                    Ok(archive) => {
                        let plain = zstd::stream::decode_all(&archive[..]).unwrap();
                        let content = &plain[512..300_512];
                        assert!(
                            content.iter().all(|byte| *byte == content[0]),
                            "one whole version"
                        );
                    }
                    Err(error) => assert!(matches!(error, SnapshotError::Changed { .. }), "{error:?}"),
                },
                Err(error) => assert!(matches!(error, SnapshotError::Changed { .. }), "{error:?}"),
            }
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    });
    assert_eq!(
        crate::snapshot::take(&root, Some(&cache), Limits::default()).unwrap(),
        take(&root)
    );
}

#[test]
fn a_damaged_or_cut_archive_does_not_unpack() {
    let scratch = tempfile::tempdir().unwrap();
    let (root, file, tree) = (
        scratch.path().join("root"),
        scratch.path().join("a.zst"),
        scratch.path().join("tree"),
    );
    fs::create_dir_all(&root).unwrap();
    fs::create_dir(&tree).unwrap();
    fs::write(root.join("f"), "content ".repeat(1000)).unwrap();
    let archive = full_archive(&root, &take(&root), Vec::new()).unwrap();
    let middle = archive.len() / 2;
    let mut flipped = archive.clone();
    flipped[middle] ^= 4;
    for bad in [&archive[..middle], &archive[..archive.len() - 1], &flipped] {
        fs::write(&file, bad).unwrap();
        let script = format!("if {{ {}; }} 2>/dev/null; then echo unpacked; fi", shell::EXTRACT);
        assert_eq!(bash(&script, &[&file, &tree]), "");
    }
}

#[test]
fn times_serve_a_build_in_the_tree_and_freshened_ones_a_build_outside_of_it() {
    let scratch = tempfile::tempdir().unwrap();
    let at = |name: &str| scratch.path().join(name);
    let write = |root: &Path, source: &str| {
        fs::create_dir_all(root).unwrap();
        fs::write(root.join("source"), source).unwrap();
        // Staged with its source, so not to be remade.
        fs::write(root.join("made"), "staged").unwrap();
        fs::write(
            root.join("Makefile"),
            "all: made $(OUT)/product\nmade: source\n\techo remade >made\n$(OUT)/product: source\n\tcp source $@\n",
        )
        .unwrap();
    };
    write(&at("one"), "old");
    write(&at("two"), "new");
    let (one, two) = (take(&at("one")), take(&at("two")));
    let make = r#"make -s -C "$1" OUT="$2""#;
    // In the tree.
    unpack(&at("one"), &one, &at("in"));
    bash(r#"make -s -C "$1" OUT=. && make -q -C "$1" OUT=."#, &[&at("in")]);
    assert_eq!(fs::read_to_string(at("in/made")).unwrap(), "staged");
    assert_eq!(fs::read_to_string(at("in/product")).unwrap(), "old");
    let unpacked = fs::metadata(at("in/source")).unwrap();
    assert!(
        unpacked.modified().unwrap() < SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000)
    );
    assert!(
        unpacked.atime() > 1_700_000_000,
        "a purge by access sees a new file"
    );
    // Outside of it, for one candidate after the other at the same path.
    let products = at("products");
    fs::create_dir(&products).unwrap();
    let evaluate = |freshen: bool| {
        if freshen {
            fs::write(at("reference"), "").unwrap();
            bash(shell::FRESHEN, &[&at("tree"), &at("reference")]);
        }
        bash(make, &[&at("tree"), &products]);
        fs::read_to_string(products.join("product")).unwrap()
    };
    unpack(&at("one"), &one, &at("tree"));
    assert_eq!(evaluate(true), "old");
    apply(&at("two"), &one.delta_to(&two), &at("tree"));
    assert_eq!(
        evaluate(false),
        "old",
        "the trap: the product of another candidate"
    );
    assert_eq!(evaluate(true), "new");
    apply(&at("one"), &two.delta_to(&one), &at("tree"));
    assert_eq!(evaluate(true), "old");
    assert_eq!(fs::read_to_string(at("tree/made")).unwrap(), "staged");
}
