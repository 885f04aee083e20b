//! Figures: `cargo test --release --lib snapshot::tests::measure -- --ignored --nocapture`.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use super::{delta_archive, full_archive};
use crate::snapshot::{Limits, Rules, preview, take};

const FILES: usize = 2_000;
const FILE: usize = 25 << 10;

/// Text that compresses about as source does: words of a small vocabulary, with numbers in between.
fn source(seed: usize) -> Vec<u8> {
    let words = [
        "let", "self", "return", "match", "kernel", "buffer", "index", "stride", "->", "{", "}", "(&",
        ");\n", "    ",
    ];
    let (mut text, mut state) = (Vec::with_capacity(FILE), seed as u64 * 2 + 1);
    while text.len() < FILE {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let pick = usize::try_from(state >> 40).unwrap();
        write!(text, "{} ", words[pick % words.len()]).unwrap();
        if pick.is_multiple_of(3) {
            write!(text, "x{:x} ", pick % 5000).unwrap();
        }
    }
    text.truncate(FILE);
    text
}

fn candidate(root: &Path) {
    for at in 0..FILES {
        let directory = root.join(format!("d{}/e{}", at % 20, at % 7));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(format!("f{at}.rs")), source(at)).unwrap();
    }
    super::bash(
        r#"cd "$1"; git init -q; git add .; echo '*.o' >.gitignore"#,
        &[root],
    );
}

/// The fastest and the median of a few runs, in milliseconds.
fn time<T>(what: &str, runs: usize, mut work: impl FnMut() -> T) -> T {
    let mut times = Vec::new();
    let mut last = None;
    for _ in 0..runs {
        let begun = Instant::now();
        last = Some(work());
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    println!(
        "{what:34} fastest {:7.1} ms, median {:7.1} ms",
        times[0],
        times[times.len() / 2]
    );
    last.unwrap()
}

#[test]
#[ignore = "figures, not a check"]
fn figures_of_50_mb_in_2000_files() {
    let scratch = tempfile::tempdir().unwrap();
    let (root, cache) = (scratch.path().join("root"), scratch.path().join("cache"));
    candidate(&root);
    // Past the time in which a digest is not remembered.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let limits = Limits::default();
    let cold = time("take, nothing remembered", 9, || {
        drop(fs::remove_file(&cache));
        take(&root, Some(&cache), limits).unwrap()
    });
    let base = time("take, all remembered", 25, || {
        take(&root, Some(&cache), limits).unwrap()
    });
    assert_eq!(base, cold);
    time("walk alone", 25, || {
        crate::snapshot::walk::walk(&root, limits, &Rules::default()).unwrap()
    });
    time("git ls-files alone", 25, || {
        crate::snapshot::git::tracked(&root).unwrap()
    });
    time("load of the cache alone", 25, || {
        crate::snapshot::cache::Cache::load(&cache)
    });
    time("name of the manifest", 9, || base.id());
    time("preview", 9, || preview(&root, &Rules::default()).unwrap());
    let full = time("pack, whole", 9, || {
        full_archive(&root, &base, Vec::new()).unwrap()
    });
    println!("{:34} {} bytes of {}", "", full.len(), base.size().1);
    let plain = zstd::stream::decode_all(&full[..]).unwrap();
    for level in [-1, 1, 3] {
        let packed = time(&format!("zstd level {level} alone"), 5, || {
            let mut encoder = zstd::Encoder::new(Vec::new(), level).unwrap();
            encoder.include_checksum(true).unwrap();
            encoder.write_all(&plain).unwrap();
            encoder.finish().unwrap()
        });
        println!("{:34} {} bytes", "", packed.len());
    }
    let edited = root.join("d3/e0/f63.rs");
    fs::write(&edited, source(9_999_999)).unwrap();
    let new = time("take, one file edited", 9, || {
        take(&root, Some(&cache), limits).unwrap()
    });
    let delta = time("delta, one file edited", 25, || {
        let delta = base.delta_to(&new);
        assert_eq!((delta.changed.len(), delta.removed.len()), (1, 0));
        delta_archive(&root, &delta, Vec::new()).unwrap()
    });
    println!("{:34} {} bytes", "", delta.len());
}
