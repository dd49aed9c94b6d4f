//! Each folder in `LAYERS` uses only itself and the folders before it.

use std::path::Path;
use std::{fs, io};

const LAYERS: [&str; 4] = ["wire", "net", "engine", "api"];

fn wrong(folder: &Path, later: &[&str], found: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            wrong(&path, later, found)?;
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path)?;
            let uses = |layer: &&&str| text.contains(&format!("crate::{layer}::"));
            found.extend(later.iter().filter(uses).map(|layer| format!("{path:?}: {layer}")));
        }
    }
    Ok(())
}

#[test]
fn no_folder_uses_a_later_one() -> io::Result<()> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut later = &LAYERS[..];
    while let Some((layer, rest)) = later.split_first() {
        wrong(&source.join(layer), rest, &mut found)?;
        later = rest;
    }
    assert_eq!(found, [""; 0]);
    Ok(())
}
