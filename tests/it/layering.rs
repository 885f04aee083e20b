//! The order of the modules in `src/lib.rs` is the order of the layers: a module uses only those before it.

use std::fs;
use std::path::{Path, PathBuf};

fn sources(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let entries = fs::read_dir(path).into_iter().flatten();
    entries
        .flat_map(|entry| sources(&entry.unwrap().path()))
        .collect()
}

#[test]
fn imports_go_down_only() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let lib = fs::read_to_string(root.join("lib.rs")).unwrap();
    let layers: Vec<&str> = lib
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'))
        .collect();
    assert!(layers.len() > 10, "{layers:?}");
    let mut wrong = Vec::new();
    for (level, module) in layers.iter().enumerate() {
        let files = [
            sources(&root.join(module)),
            sources(&root.join(format!("{module}.rs"))),
        ]
        .concat();
        assert!(!files.is_empty(), "{module} has no file");
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            for used in text.split("crate::").skip(1) {
                let name: String = used
                    .chars()
                    .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
                    .collect();
                if layers
                    .iter()
                    .position(|layer| *layer == name)
                    .is_some_and(|other| other > level)
                {
                    wrong.push(format!(
                        "{} uses {name}",
                        file.strip_prefix(&root).unwrap().display()
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
