//! Tests that compute for long and need no server. `scripts/test` runs them by the name of their module beside the
//! tests on servers.

#![allow(missing_docs, reason = "these are tests")]

mod holes;
