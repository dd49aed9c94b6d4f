//! What others are told of that: replicas and files. What each command tells them is in `transcripts/effects.txt`, what
//! listeners hear in `transcripts/key_events.txt`.

mod torn;
mod travelling;
