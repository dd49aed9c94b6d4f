//! Lets the module say of which sources it is made.

use std::env;
use std::error::Error;
use std::path::Path;

mod sources;

fn main() -> Result<(), Box<dyn Error>> {
    for part in sources::PARTS {
        println!("cargo::rerun-if-changed={part}");
    }
    // Asked when it runs: a target folder that was brought from elsewhere has the program compiled there.
    let sources = sources::fingerprint(Path::new(&env::var("CARGO_MANIFEST_DIR")?))?;
    println!("cargo::rustc-env=KVLOCK_SOURCES={sources}");
    Ok(())
}
