//! Plays the transcripts in `tests/transcripts` on every server, and those in its subfolder `valkey-9` on
//! Valkey 9.1.

use harness::kind::workspace;
use harness::transcript::run_file;
use harness::{Kind, on_each_server};

macro_rules! transcripts {
    ($($name:ident),+) => {
        $(
            fn $name(kind: Kind) {
                let file = concat!("tests/transcripts/", stringify!($name), ".txt");
                run_file(&workspace().join(file), &kind);
            }
        )+
        on_each_server!($($name),+);
    };
}

// `build.rs` lists the files of the folder, without its subfolders.
include!(concat!(env!("OUT_DIR"), "/transcripts.rs"));

#[test]
fn whole_slots_in_a_cluster_of_valkey_9_1() {
    let file = workspace().join("tests/transcripts/valkey-9/whole_slots.txt");
    run_file(&file, &Kind::named("valkey-9.1"));
}

#[test]
fn subscribed_connections_of_valkey_9_1() {
    let file = workspace().join("tests/transcripts/valkey-9/subscribed.txt");
    run_file(&file, &Kind::named("valkey-9.1"));
}
