//! Lets the module say of which sources it is made.

use std::path::Path;

mod sources;

fn main() -> std::io::Result<()> {
    for part in sources::PARTS {
        println!("cargo::rerun-if-changed={part}");
    }
    let sources = sources::fingerprint(Path::new(env!("CARGO_MANIFEST_DIR")))?;
    println!("cargo::rustc-env=KVLOCK_SOURCES={sources}");
    Ok(())
}
