//! Random trees through the real commands.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::{apply, take, unpack};
use crate::snapshot::{Limits, full_archive};

#[derive(Debug, Clone)]
enum Node {
    File(Vec<u8>, bool),
    Link(Vec<u8>),
    Directory,
}

type Tree = BTreeMap<Vec<Vec<u8>>, Node>;

/// A few names, so that two trees share paths with different kinds; some of them awkward for tar, rm or a shell.
fn few_names() -> impl Strategy<Value = Vec<u8>> {
    let names: [&[u8]; 6] = [b"a", b"a.b", b"-rf", b"x\n\xfe", b" ", b"*"];
    proptest::sample::select(names.map(<[u8]>::to_vec).to_vec())
}

/// Any name that a file system takes and no rule leaves out.
fn any_name() -> impl Strategy<Value = Vec<u8>> {
    let long = prop_oneof![4 => 1..20_usize, 1 => 95..105_usize, 1 => Just(255)];
    long.prop_flat_map(|length| vec(any::<u8>(), length))
        .prop_map(|mut name| {
            for byte in &mut name {
                if matches!(*byte, 0 | b'/') {
                    *byte = b'%';
                }
            }
            // Not `.`, `..` nor an excluded name, and not git's rules.
            if name[0] == b'.' {
                name[0] = b'-';
            }
            name
        })
}

fn node() -> impl Strategy<Value = Node> {
    let targets: [&[u8]; 7] = [
        b"a",
        b"./a",
        b"a//b/",
        b"a/./b",
        b"not there",
        b"\xff\n",
        &[b'x'; 150],
    ];
    prop_oneof![
        (vec(any::<u8>(), 0..600), any::<bool>()).prop_map(|(data, exec)| Node::File(data, exec)),
        proptest::sample::select(targets.map(<[u8]>::to_vec).to_vec()).prop_map(Node::Link),
        Just(Node::Directory),
    ]
}

fn trees(name: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Tree> {
    btree_map(vec(name, 1..4), node(), 0..12)
}

/// Makes the tree; what cannot stand below a file or link is skipped.
fn build(root: &Path, tree: &Tree, backwards: bool) {
    fs::create_dir(root).unwrap();
    // Which of two conflicting nodes comes into being depends on the order, so conflicts are settled before.
    let plain: Vec<_> = tree
        .iter()
        .filter(|(path, _)| {
            (1..path.len()).all(|end| matches!(tree.get(&path[..end]), None | Some(Node::Directory)))
        })
        .collect();
    let order: Vec<usize> = if backwards {
        (0..plain.len()).rev().collect()
    } else {
        (0..plain.len()).collect()
    };
    for at in order {
        let (path, node) = plain[at];
        let full = path
            .iter()
            .fold(root.to_owned(), |full, part| full.join(OsStr::from_bytes(part)));
        fs::create_dir_all(full.parent().unwrap()).unwrap();
        match node {
            Node::File(data, exec) => {
                fs::write(&full, data).unwrap();
                let mode = if *exec { 0o700 } else { 0o600 };
                fs::set_permissions(&full, fs::Permissions::from_mode(mode)).unwrap();
            }
            Node::Link(target) => symlink(OsStr::from_bytes(target), &full).unwrap(),
            Node::Directory => fs::create_dir_all(&full).unwrap(),
        }
    }
}

fn age(tree: &Path, seconds: u64) {
    let past = SystemTime::now() - Duration::from_secs(seconds);
    for entry in tree.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            age(&path, seconds + 1);
        }
        fs::File::open(&path).unwrap().set_modified(past).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_tree_arrives_as_it_was(tree in trees(any_name())) {
        let scratch = tempfile::tempdir().unwrap();
        let (root, copy) = (scratch.path().join("root"), scratch.path().join("copy"));
        build(&root, &tree, false);
        let manifest = take(&root);
        unpack(&root, &manifest, &copy);
        prop_assert_eq!(take(&copy), manifest);
    }

    #[test]
    fn a_delta_over_its_base_is_the_new_tree(base in trees(few_names()), new in trees(few_names())) {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        build(&at("base"), &base, false);
        build(&at("new"), &new, false);
        let (base, new) = (take(&at("base")), take(&at("new")));
        unpack(&at("base"), &base, &at("copy"));
        apply(&at("new"), &base.delta_to(&new), &at("copy"));
        prop_assert_eq!(take(&at("copy")), new);
    }

    #[test]
    fn names_and_archives_depend_on_content_alone(tree in trees(few_names())) {
        let scratch = tempfile::tempdir().unwrap();
        let (one, two) = (scratch.path().join("one"), scratch.path().join("two"));
        build(&one, &tree, false);
        build(&two, &tree, true);
        age(&two, 1000);
        let manifest = take(&one);
        prop_assert_eq!(take(&two).id(), manifest.id());
        prop_assert_eq!(
            full_archive(&one, &manifest, Vec::new()).unwrap(),
            full_archive(&two, &manifest, Vec::new()).unwrap()
        );
    }

    #[test]
    fn the_walk_never_leaves_the_root(
        links in vec((vec(prop_oneof!["a", "b", "c"], 1..3), vec(prop_oneof![3 => Just(".."), 1 => Just("a"), 1 => Just("b"), 1 => Just("c"), 1 => Just("outside")], 1..5)), 1..6)
    ) {
        let scratch = tempfile::tempdir().unwrap();
        let (root, outside) = (scratch.path().join("root"), scratch.path().join("outside"));
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("c"), "outside").unwrap();
        for (path, target) in &links {
            drop(symlink(target.join("/"), root.join(path.join("/"))));
        }
        if let Ok(manifest) = crate::snapshot::take(&root, None, Limits::default()) {
            prop_assert_eq!(manifest.size().0, 0, "the only file is outside");
            let real = root.canonicalize().unwrap();
            for entry in manifest.entries() {
                let full = root.join(OsStr::from_bytes(&entry.path));
                prop_assert!(full.canonicalize().map_or(true, |full| full.starts_with(&real)), "{:?}", entry);
            }
        }
    }
}
