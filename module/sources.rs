//! Which sources a module is made of: `build.rs` writes it into the module, and tests compare it
//! with the tree before they load one.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// What counts, in the folder `module`.
pub(crate) const PARTS: [&str; 4] = ["Cargo.toml", "core/Cargo.toml", "core/src", "src"];

/// A number for all of them, as text (FNV-1a).
pub(crate) fn fingerprint(module: &Path) -> io::Result<String> {
    let mut files = Vec::new();
    for part in PARTS {
        collect(module.join(part), &mut files)?;
    }
    files.sort();
    let mut number = 0xcbf2_9ce4_8422_2325_u64;
    for file in files {
        for byte in fs::read(file)? {
            number = (number ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    Ok(format!("{number:016x}"))
}

fn collect(path: PathBuf, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            collect(entry?.path(), files)?;
        }
    } else {
        files.push(path);
    }
    Ok(())
}
