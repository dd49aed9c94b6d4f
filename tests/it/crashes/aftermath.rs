//! What is left of the grants of a server that has died.

use super::load::call;
use harness::checker::{Limits, Rule, check};
use harness::history::{Call, Outcome, Recorder, Request};
use harness::{Connection, Value, cmd};
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

/// What crashes have cost.
#[derive(Default)]
pub(super) struct Cost {
    /// How many times the server died.
    pub(super) crashes: usize,
    /// Grants that clients knew of.
    pub(super) grants: usize,
    /// Those of them that had neither been released nor were over when the server was back.
    pub(super) standing: usize,
    /// Those of these that the server then did not know.
    pub(super) lost: usize,
    /// Locks that were granted while somebody could rely on having them.
    pub(super) twice: usize,
}

impl Cost {
    /// Counts what the server that is back has forgotten of these calls.
    pub(super) fn count_lost(&mut self, eye: &mut Connection, book: &Recorder, calls: &[Call]) {
        let released = |grant: &Call| {
            let same = |call: &Call| (&call.key, &call.owner) == (&grant.key, &grant.owner);
            calls.iter().any(|call| call.request == Request::Release && same(call))
        };
        for grant in calls {
            let Some((_, Outcome::Granted { token, .. })) = grant.answer else { continue };
            self.grants += 1;
            // Only what all want is released at all.
            if grant.key.contains("wanted") && released(grant) {
                continue;
            }
            let fields = eye.call(cmd!["HMGET", grant.key, grant.owner, "fencing-token"]);
            let known = [Value::bulk("1"), Value::bulk(token.to_string())];
            let Request::Acquire { lease, .. } = grant.request else { continue };
            // Its lease began later, and so is not over yet.
            if book.now() < grant.sent + lease {
                self.standing += 1;
                self.lost += usize::from(fields.elements() != known);
            }
        }
    }

    /// Counts what was granted twice. Nothing else is wrong even if grants are lost.
    pub(super) fn count_twice(&mut self, calls: &[Call]) {
        for violation in check(calls, &Limits::default()) {
            match violation.rule {
                Rule::Exclusion => self.twice += 1,
                // The queue dies with the server.
                Rule::Prompt | Rule::Fifo => {}
                _ => panic!("{violation}"),
            }
        }
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { crashes, grants, standing, lost, twice } = self;
        write!(f, "{crashes} crashes, {grants} grants of which {standing} stood: ")?;
        write!(f, "{lost} lost, {twice} granted twice")
    }
}

/// Somebody else asks for each lock of these calls, one after another.
pub(super) fn want_all(
    connection: &mut Connection,
    book: &Recorder,
    calls: &[Call],
    owner: &str,
    request: &Request,
) -> Vec<Outcome> {
    let keys: BTreeSet<&str> = calls.iter().map(|call| call.key.as_str()).collect();
    let ask = |key: &&str| call(connection, book, key, owner, request.clone());
    keys.iter().map(ask).map(|outcome| outcome.expect("the server answers")).collect()
}

/// The request of those who want a lock.
pub(super) fn wanting(lease: Duration, timeout: Option<Duration>) -> Request {
    Request::Acquire { lease, timeout }
}
