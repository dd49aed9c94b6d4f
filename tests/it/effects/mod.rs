//! Effects on replicas and files. The effects of each command are in `transcripts/effects.txt`, and key
//! events in `transcripts/key_events.txt`.

mod torn;
mod travelling;
