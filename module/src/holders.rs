//! Those who hold a key together: searches for the living and the dead among them.

use std::collections::BTreeMap;

use kvlock_core::{
    Found, Go, KeyRef, LockKey, Now, OWNER_BYTES_MAX, RESERVED_FIELDS, Searches, Share, UnixMillis,
};

use crate::redis::{Cursor, Key};

/// How many steps a list takes at most: calls that show some fields.
const LIST_STEPS: usize = 10_000;

/// What is remembered of those who hold keys together. Nothing depends on it: it saves work.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    pub(crate) searches: Searches<Cursor>,
    /// Where the last list ended that did not come to the end.
    listed: Option<(LockKey, Cursor)>,
    /// How many fields of dead holders were removed.
    pub(crate) swept: u64,
}

/// Some of the living.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    pub(crate) living: BTreeMap<Box<[u8]>, Share>,
    /// The whole hash was seen, or as many as were asked for.
    pub(crate) is_all: bool,
    /// There is a field that can be no share.
    pub(crate) has_others: bool,
}

impl Holders {
    /// Goes on with the search of a key.
    pub(crate) fn go(&mut self, at: KeyRef<'_>, key: &Key<'_>, go: Go, now: Now) -> Found {
        self.searches.go(at, go, now, |cursor, visit| {
            let more = key.scan(cursor, visit);
            if !more {
                cursor.restart();
            }
            more
        })
    }

    /// Until when a search would be in vain, or is put off if no command asks for it.
    pub(crate) fn rest(
        &mut self,
        at: KeyRef<'_>,
        key: &Key<'_>,
        unasked: bool,
        now: Now,
    ) -> Option<UnixMillis> {
        let fields = key.fields();
        let known = self.searches.earliest(at, fields, now);
        known.or_else(|| unasked.then(|| self.searches.turn(at, fields, now))?)
    }

    /// Lists some of the living who hold a key, without changing anything. Of a large hash it
    /// sees a part, and the next time the next.
    pub(crate) fn list(
        &mut self,
        at: KeyRef<'_>,
        key: &Key<'_>,
        now: UnixMillis,
        most: usize,
    ) -> Listed {
        let before = self.listed.take().filter(|(listed, _)| listed.borrow() == at);
        let is_part = before.is_some();
        let mut cursor = before.map_or_else(Cursor::new, |(_, cursor)| cursor);
        let mut listed = Listed::default();
        for _ in 0..LIST_STEPS {
            let more = key.scan(&mut cursor, &mut |field, value| {
                if RESERVED_FIELDS.contains(&field) {
                    return;
                }
                match Share::read(value).filter(|_| field.len() <= OWNER_BYTES_MAX) {
                    None => listed.has_others = true,
                    Some(share) if share.is_live(now) && listed.living.len() < most => {
                        listed.living.insert(field.into(), share);
                    }
                    Some(_) => {}
                }
            });
            if !more {
                listed.is_all = !is_part;
                return listed;
            }
            if listed.living.len() >= most {
                listed.is_all = true;
                return listed;
            }
        }
        self.listed = Some((at.keep(), cursor));
        listed
    }
}
