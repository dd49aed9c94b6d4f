//! The owners that share a key: searches for live and for expired ones.

use std::collections::BTreeMap;

use kvlock_core::{Found, Go, KeyRef, LockKey, Now, Searches, Share, UnixMillis};

use crate::redis::{Cursor, Key};

/// How many steps a list takes at most: calls that show some fields.
const LIST_STEPS: usize = 10_000;

/// How many are taken to find the last lease to end.
const LAST_END_STEPS: usize = 256;

/// Results of earlier searches among the owners of shared keys. A cache: it saves work only.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    pub(crate) searches: Searches<Cursor>,
    /// Where the last incomplete list stopped.
    listed: Option<(LockKey, Cursor)>,
    /// Number of removed fields of expired owners.
    pub(crate) swept: u64,
}

/// Some of the living.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    pub(crate) living: BTreeMap<Box<[u8]>, Share>,
    /// The list is complete, or has the requested number of entries.
    pub(crate) is_all: bool,
    /// The hash has a field that is not a share.
    pub(crate) has_others: bool,
}

impl Holders {
    /// Continues the search of a key.
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

    /// Lists some live owners of a key. Changes nothing. Reads a part of a large hash, and the next part at
    /// the next call.
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
        let mut living = BTreeMap::new();
        let extent = show_living(key, &mut cursor, now, LIST_STEPS, |owner, share| {
            if living.len() < most {
                living.insert(owner.into(), share);
            }
            living.len() < most
        });
        if extent == Extent::Part {
            self.listed = Some((at.keep(), cursor));
        }
        let is_all = extent == Extent::Enough || extent == Extent::All && !is_part;
        Listed { living, is_all, has_others: extent == Extent::Others }
    }
}

/// How much of a hash was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// All of it.
    All,
    /// The requested number of owners.
    Enough,
    /// The fields that a limited number of steps has returned.
    Part,
    /// The hash has a field that is not a share.
    Others,
}

/// Passes live owners of a key to `show`, from the cursor on, until `show` returns false.
fn show_living(
    key: &Key<'_>,
    cursor: &mut Cursor,
    now: UnixMillis,
    steps: usize,
    mut show: impl FnMut(&[u8], Share) -> bool,
) -> Extent {
    let (mut others, mut wants_more) = (false, true);
    for _ in 0..steps {
        let more = key.scan(cursor, &mut |field, value| match Share::of_field(field, value) {
            Some(None) => others = true,
            Some(Some(share)) if share.is_live(now) => wants_more = show(field, share),
            Some(Some(_)) | None => {}
        });
        match (others, more, wants_more) {
            (true, ..) => return Extent::Others,
            (_, false, _) => return Extent::All,
            (.., false) => return Extent::Enough,
            (.., true) => {}
        }
    }
    Extent::Part
}

/// When the last of those leases ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastEnd {
    /// All have ended.
    Nobody,
    /// Then, and not before.
    At(UnixMillis),
    /// Too many hold the key to look at all of them, or one of them is no share.
    Unknown,
}

/// Finds the last lease to end where not too many hold a key.
pub(crate) fn last_end(key: &Key<'_>, now: UnixMillis) -> LastEnd {
    let mut last = None::<UnixMillis>;
    let extent = show_living(key, &mut Cursor::new(), now, LAST_END_STEPS, |_, share| {
        last = last.max(Some(share.until));
        true
    });
    match last {
        _ if extent != Extent::All => LastEnd::Unknown,
        None => LastEnd::Nobody,
        Some(last) => LastEnd::At(last),
    }
}
