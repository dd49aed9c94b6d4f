//! What was seen in the tries of one scenario under one setting.

use crate::setting::Expected;
use std::collections::BTreeSet;

/// What came of one try, or of all of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) tries: u64,
    /// Tries in which two clients believed at the same time that they hold a lock.
    pub(crate) doubled: u64,
    /// How often that was.
    pub(crate) double_grants: u64,
    pub(crate) granted: u64,
    /// Grants that were told to their client and are not known after the failover, or not known to
    /// a client that had not released them.
    pub(crate) lost: u64,
    /// Tokens that were not larger than one before.
    pub(crate) tokens_back: u64,
    /// What else there is to say.
    pub(crate) notes: BTreeSet<String>,
}

impl Seen {
    pub(crate) fn add(&mut self, one: Self) {
        self.tries += 1;
        self.doubled += u64::from(one.double_grants > 0);
        self.double_grants += one.double_grants;
        self.granted += one.granted;
        self.lost += one.lost;
        self.tokens_back += one.tokens_back;
        self.notes.extend(one.notes);
    }

    /// A client was granted a lock although another still believes that it holds it.
    pub(crate) fn believed(&mut self, other_believes: bool) {
        self.double_grants += u64::from(other_believes);
    }

    pub(crate) fn token(&mut self, before: Option<u64>, after: u64) {
        self.tokens_back += u64::from(before.is_some_and(|before| before >= after));
    }

    /// What is not as it was promised.
    pub(crate) fn wrongs(&self, expected: Expected, loses: bool, splits: bool) -> Vec<String> {
        let mut wrongs = Vec::new();
        // What was held before, and what was asked for then.
        if splits && self.granted < 2 * self.tries {
            wrongs.push("a primary that was cut off granted nothing: it was not".to_owned());
        }
        if loses && self.lost < self.tries {
            wrongs
                .push(format!("{} of {} grants were lost: nothing was cut", self.lost, self.tries));
        }
        if self.tokens_back > 0 {
            wrongs.push(format!("{} tokens did not grow", self.tokens_back));
        }
        match expected {
            Expected::None if self.doubled > 0 => {
                wrongs.push(format!("{} double grants, and none is promised", self.double_grants));
            }
            Expected::Each if self.doubled < self.tries => {
                wrongs.push(format!(
                    "double grants in {} of {} tries only: the fault was not there",
                    self.doubled, self.tries
                ));
            }
            Expected::None | Expected::Each | Expected::Any => {}
        }
        wrongs
    }
}
