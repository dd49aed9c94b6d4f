//! The owners that share a lock or hold permits: searches for live and for expired owners.

use std::collections::BTreeMap;

use kvlock_core::{Found, KeyRef, LockKey, Now, SearchPart, Searches, Share, UnixMillis};

use crate::redis::{Cursor, Key};

/// Largest number of steps for one list. A step is one call that scans some fields.
const LIST_STEPS: usize = 10_000;

/// Largest number of steps to find the lease that ends last.
const LAST_END_STEPS: usize = 256;

/// Largest number of parts of all searches of one command: see [`SearchPart`]. Each search of a set has at least one
/// part. A search can end earlier, for example as soon as it has the answer: a live sharer of a lock, or enough free
/// permits.
pub(crate) const ROUNDS_MAX: usize = 8;

/// Results of earlier searches among the owners of shared locks and semaphores. A cache, except for the
/// counters.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    pub(crate) searches: Searches<Cursor>,
    /// Key of the last incomplete list, and the cursor at which the list continues.
    listed: Option<(LockKey, Cursor)>,
    /// Number of expired owners whose fields were removed.
    pub(crate) swept: u64,
}

/// Live owners of a key.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    pub(crate) living: BTreeMap<Box<[u8]>, Share>,
    /// The whole hash was read in this call.
    pub(crate) is_all: bool,
    /// The hash has a field that is not a share.
    pub(crate) has_others: bool,
}

impl Holders {
    /// Does one part of the search among the owners of a key: see [`SearchPart`]. At the end of the hash, the cursor
    /// returns to the start.
    pub(crate) fn search(
        &mut self,
        at: KeyRef<'_>,
        key: &Key<'_>,
        part: SearchPart,
        now: Now,
    ) -> Found {
        self.searches.search(at, part, now, |cursor, visit| {
            let more = key.scan(cursor, visit);
            if !more {
                cursor.restart();
            }
            more
        })
    }

    /// Returns the time until which a search cannot find an expired owner. Outside a command (`unasked`), may
    /// instead return the time to which the search of a large hash is postponed. `None` if a search may run
    /// now.
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

    /// Lists at most `most` live owners of a key. Writes nothing. Reads only a part of a very large hash. If
    /// the next call is for the same key, it continues there.
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
        let extent = show_live(key, &mut cursor, now, LIST_STEPS, |owner, share| {
            if living.len() < most {
                living.insert(owner.into(), share);
            }
            living.len() < most
        });
        if extent == Extent::Part {
            self.listed = Some((at.to_lock_key(), cursor));
        }
        let is_all = extent == Extent::All && !is_part;
        Listed { living, is_all, has_others: extent == Extent::Others }
    }
}

/// Part of a hash that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// The hash to its end, from the cursor on.
    All,
    /// The requested number of owners.
    Enough,
    /// A part of the hash: the limit of steps was reached.
    Part,
    /// The hash has a field that is not a share.
    Others,
}

/// Passes the live owners of a key to `show`, starting at the cursor. Stops after the step in which `show`
/// returns `false`.
fn show_live(
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

/// End of the last lease in a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastEnd {
    /// All leases have ended.
    Nobody,
    /// The last lease ends at this time.
    At(UnixMillis),
    /// There are too many holders to read all of them, or the hash has a field that is not a share.
    Unknown,
}

/// Finds the lease that ends last, if the key does not have too many holders.
pub(crate) fn last_end(key: &Key<'_>, now: UnixMillis) -> LastEnd {
    let mut last = None::<UnixMillis>;
    let extent = show_live(key, &mut Cursor::new(), now, LAST_END_STEPS, |_, share| {
        last = last.max(Some(share.until));
        true
    });
    match last {
        _ if extent != Extent::All => LastEnd::Unknown,
        None => LastEnd::Nobody,
        Some(last) => LastEnd::At(last),
    }
}
