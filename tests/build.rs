//! Lists the transcripts: each becomes a test. If `KVLOCK_SERVER` is set, `on_each_server!` makes one test on
//! that server, not three.

use std::env::{var, var_os};
use std::error::Error;
use std::fs;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rustc-check-cfg=cfg(one_server)");
    println!("cargo::rerun-if-env-changed=KVLOCK_SERVER");
    if var_os("KVLOCK_SERVER").is_some() {
        println!("cargo::rustc-cfg=one_server");
    }
    println!("cargo::rerun-if-changed=transcripts");
    let mut names = Vec::new();
    for file in fs::read_dir("transcripts")? {
        let name = file?.file_name().into_string().map_err(|name| format!("{name:?}"))?;
        // Transcripts for a single kind of server are in folders, and are not listed here.
        names.extend(name.strip_suffix(".txt").map(str::to_owned));
    }
    let list = format!("transcripts!({});", names.join(", "));
    Ok(fs::write(Path::new(&var("OUT_DIR")?).join("transcripts.rs"), list)?)
}
