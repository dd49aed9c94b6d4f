//! Searches for expired holders among the fields of a key. Each search ends, its result is used only
//! until it may have changed, and all searches for waiters together take a limited share of the time.

use kvlock_core::{
    Found, KeyRef, MonoMillis, Now, SearchPart, Searches, Share, UnixMillis, Wanted,
};

const NOW: Now = Now { unix_us: 1_000_000_000, mono: MonoMillis(50_000) };
const ALIVE: u64 = 1_600_000;
const DEAD: u64 = 900_000;

fn later(ms: u64) -> Now {
    Now { unix_us: NOW.unix_us + ms * 1_000, mono: MonoMillis(NOW.mono.0 + ms) }
}

fn key(name: &str) -> KeyRef<'_> {
    KeyRef::semaphore(0, name.as_bytes())
}

/// A hash of which each scan shows one field. The cursor is the position of the field.
#[derive(Default)]
struct Hash {
    fields: Vec<(String, String)>,
    /// Number of fields that are counted but not shown by scans.
    hidden: usize,
}

impl Hash {
    /// Returns a hash with `living` live owners, followed by `dead` expired ones.
    fn new(living: usize, dead: usize) -> Self {
        let field = |name, until| (format!("owner-{name}"), format!("1 {until}"));
        let ends = std::iter::repeat_n(ALIVE, living).chain(std::iter::repeat_n(DEAD, dead));
        let fields = ends.enumerate().map(|(name, until)| field(name, until)).collect();
        Self { fields, hidden: 0 }
    }

    fn count(&self) -> usize {
        self.fields.len() + self.hidden
    }

    fn scan(&self, cursor: &mut usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> bool {
        if let Some((field, value)) = self.fields.get(*cursor) {
            visit(field.as_bytes(), value.as_bytes());
        }
        *cursor += 1;
        let more = *cursor < self.fields.len();
        if !more {
            *cursor = 0;
        }
        more
    }

    fn search(
        &self,
        searches: &mut Searches<usize>,
        name: &str,
        part: SearchPart,
        now: Now,
    ) -> Found {
        searches.search(key(name), part, now, |cursor, visit| self.scan(cursor, visit))
    }

    /// Runs one part of a search for a command. Then removes the expired owners that it found; the
    /// other fields keep their positions.
    fn find(&mut self, searches: &mut Searches<usize>, name: &str, now: Now) -> Found {
        let found = self.search(searches, name, self.asked(), now);
        for (field, value) in &mut self.fields {
            if found.dead.contains_key(field.as_bytes()) {
                value.clear();
                field.clear();
            }
        }
        found
    }

    fn asked(&self) -> SearchPart {
        SearchPart { wanted: Wanted::TheDead, fields: self.count(), removes: true, unasked: false }
    }
}

#[test]
fn each_key_is_searched_from_its_own_cursor() {
    let (mut searches, mut large) = (Searches::default(), Hash::new(20_000, 5));
    let mut small = Hash::new(3, 0);
    for _ in 0..20_005 {
        if large.find(&mut searches, "large", NOW).dead.len() == 5 {
            return;
        }
        small.find(&mut searches, "small", NOW);
        assert!(searches.steps() < 60_000, "the dead are not found");
    }
    panic!("the dead are not found");
}

#[test]
fn the_result_of_a_search_is_used_until_it_may_have_changed() {
    let mut hash = Hash::new(30, 3);
    let fields = hash.count() - 3;
    let known = |searches: &mut Searches<usize>, now| searches.earliest(key("k"), fields, now);
    let mut anew = || {
        let mut searches = Searches::default();
        hash.find(&mut searches, "k", NOW);
        hash.fields.retain(|(field, _)| !field.is_empty());
        assert_eq!(known(&mut searches, NOW), Some(UnixMillis(ALIVE)));
        searches
    };
    assert_eq!(known(&mut anew(), later(600_000)), Some(UnixMillis(ALIVE)));
    assert_eq!(known(&mut anew(), later(600_001)), None, "the lease has ended");
    assert_eq!(anew().earliest(key("k"), fields + 1, NOW), None, "there is a field more");
    assert_eq!(anew().earliest(key("other"), fields, NOW), None);

    let mut searches = anew();
    searches.changed(1, b"k");
    searches.changed(0, b"other");
    assert_eq!(known(&mut searches, NOW), Some(UnixMillis(ALIVE)));
    searches.changed(0, b"k");
    assert_eq!(known(&mut searches, NOW), None, "it was changed");

    let mut searches = anew();
    searches.forget();
    assert_eq!(known(&mut searches, NOW), None, "any key may be another");

    let mut searches = anew();
    searches.unheard();
    assert_eq!(known(&mut searches, later(1_000)), Some(UnixMillis(ALIVE)));
    assert_eq!(known(&mut searches, later(1_001)), None, "some key was changed");
    let (mut hash, end) = (Hash::new(fields, 0), Some(UnixMillis(ALIVE)));
    hash.find(&mut searches, "k", later(1_001));
    assert_eq!(known(&mut searches, later(9_000)), end, "no key was changed since");
}

#[test]
fn owners_that_come_and_go_are_known() {
    let (mut searches, mut hash) = (Searches::default(), Hash::new(3, 0));
    hash.find(&mut searches, "k", NOW);
    let sooner = Share { holds: 1, until: UnixMillis(ALIVE - 7) };
    searches.note(key("k"), false, Some(sooner));
    assert_eq!(searches.earliest(key("k"), 4, NOW), Some(sooner.until));
    searches.note(key("k"), true, Some(Share { until: UnixMillis(ALIVE), ..sooner }));
    searches.note(key("k"), true, None);
    assert_eq!(searches.earliest(key("k"), 3, NOW), Some(sooner.until));
}

#[test]
fn a_change_during_a_search_discards_it_and_the_next_counts() {
    let (mut searches, mut hash) = (Searches::default(), Hash::new(3_000, 0));
    assert_eq!(hash.find(&mut searches, "k", NOW).passed, None);
    hash.fields[7].1 = "1 1000005".to_owned();
    searches.changed(0, b"k");
    assert_eq!(hash.find(&mut searches, "k", NOW).passed, None, "it ends, and says nothing");
    assert_eq!(searches.earliest(key("k"), 3_000, NOW), None);
    let end = Some(UnixMillis(1_000_005));
    let passed = (0..2).find_map(|_| hash.find(&mut searches, "k", NOW).passed);
    assert_eq!(passed, Some(end));
    assert_eq!(searches.earliest(key("k"), 3_000, NOW), end);
}

#[test]
fn dead_owners_that_were_not_removed_are_found_again() {
    let (mut searches, mut hash) = (Searches::default(), Hash::new(4_000, 200));
    let part = SearchPart { removes: false, unasked: true, ..hash.asked() };
    let last =
        (0..9).map(|_| hash.search(&mut searches, "k", part, NOW)).find(|it| it.passed.is_some());
    assert_eq!(last.map(|last| last.left_of(4_200)), Some(4_000));
    assert_eq!(searches.earliest(key("k"), hash.count(), NOW), None);
    let found: usize = (0..9).map(|_| hash.find(&mut searches, "k", NOW).dead.len()).sum();
    assert_eq!(found, 200);
}

#[test]
fn a_search_in_one_step_sees_all_holders() {
    let (mut searches, mut hash) = (Searches::default(), Hash::new(40, 2));
    // Another client has deleted three fields: 42 of 45 are left.
    assert_eq!(hash.find(&mut searches, "k", NOW).left_of(45), 40);
    assert_eq!(searches.steps(), 84, "a scan and a field, 42 times");
    let mut large = Hash::new(4_000, 0);
    assert_eq!(large.find(&mut searches, "large", NOW).left_of(4_003), 4_003);
}

#[test]
fn a_hash_with_hidden_fields_is_searched_once() {
    let (mut searches, hash) = (Searches::default(), Hash { hidden: 200, ..Hash::default() });
    let part = SearchPart { wanted: Wanted::Anybody, ..hash.asked() };
    let found = hash.search(&mut searches, "k", part, NOW);
    assert!(found.whole && found.living.is_none() && found.dead.is_empty());
    assert!(searches.steps() < 5, "{} steps", searches.steps());
}

#[test]
fn one_live_owner_is_enough_and_is_checked_first_next_time() {
    let (mut searches, mut hash) = (Searches::default(), Hash::new(9_000, 0));
    hash.fields.insert(0, ("long".repeat(1_000), format!("1 {ALIVE}")));
    let part = SearchPart { wanted: Wanted::Anybody, ..hash.asked() };
    assert!(hash.search(&mut searches, "k", part, NOW).has_others, "no owner has so long a name");
    hash.fields.remove(0);
    let found = hash.search(&mut searches, "k", part, NOW);
    assert!(found.living.is_some() && searches.steps() < 9);
    let owner = found.living.map(|(owner, _)| owner);
    assert_eq!(searches.witness(key("k")), owner.as_deref());
}

#[test]
fn background_searches_share_a_limited_part_of_the_time() {
    let mut searches = Searches::default();
    let names: Vec<_> = (0..100).map(|n| format!("large-{n}")).collect();
    let hash = Hash::new(5_000, 0);
    let part = SearchPart { unasked: true, ..hash.asked() };
    let mut looks = 0;
    for ms in 0..10_000 {
        let now = later(ms);
        for name in &names {
            let known = searches.earliest(key(name), 5_000, now);
            if known.is_none() && searches.turn(key(name), 5_000, now).is_none() {
                hash.search(&mut searches, name, part, now);
                looks += 1;
            }
        }
        assert!(searches.steps() <= 250 * ms + 15_000, "{} steps in {ms} ms", searches.steps());
    }
    for name in &names {
        let known = searches.earliest(key(name), 5_000, later(10_000));
        assert_eq!(known, Some(UnixMillis(ALIVE)), "{name} after {looks} looks");
    }
    assert!(searches.steps() < 100 * 11_000, "{} steps", searches.steps());
}

#[test]
fn a_search_for_anybody_begins_again_if_the_rest_of_the_hash_has_nobody() {
    let (mut searches, hash) = (Searches::default(), Hash::new(1, 9));
    let part = SearchPart { wanted: Wanted::Anybody, removes: false, ..hash.asked() };
    for _ in 0..2 {
        let found = hash.search(&mut searches, "k", part, NOW);
        assert!(found.living.is_some(), "after {} steps", searches.steps());
    }
}

#[test]
fn a_small_hash_is_read_whole_even_if_an_earlier_search_stopped_within_it() {
    for (wanted, is_whole) in [(Wanted::TheDead, true), (Wanted::SomeDead, false)] {
        let (mut searches, hash) = (Searches::default(), Hash::new(5, 0));
        let anybody = SearchPart { wanted: Wanted::Anybody, ..hash.asked() };
        assert!(!hash.search(&mut searches, "k", anybody, NOW).whole, "it ends at the first owner");
        let part = SearchPart { wanted, ..hash.asked() };
        assert_eq!(hash.search(&mut searches, "k", part, NOW).whole, is_whole, "{wanted:?}");
    }
}

#[test]
fn only_searches_of_large_hashes_outside_commands_delay_others() {
    for (fields, unasked, is_delayed) in
        [(5_000, true, true), (5_000, false, false), (1_000, true, false)]
    {
        let (mut searches, hash) = (Searches::default(), Hash::new(fields, 0));
        let part = SearchPart { unasked, ..hash.asked() };
        for _ in 0..20 {
            hash.search(&mut searches, "k", part, NOW);
        }
        let turn = searches.turn(key("other"), 5_000, NOW);
        assert_eq!(turn.is_some(), is_delayed, "{fields} {unasked}");
    }
}

#[test]
fn a_search_waits_until_enough_time_has_passed_for_all_steps_before_it() {
    let mut searches = Searches::<usize>::default();
    // A key that is not searched in its turn takes no steps.
    assert!((0..100).all(|n| searches.turn(key(&format!("k{n}")), 5_000, NOW).is_none()));
    assert_eq!(searches.remembered(), 0);
    // 5,000 steps are saved up, and there are 250 for each millisecond.
    for fields in [1_500, 1_125] {
        let hash = Hash::new(fields, 0);
        let part = SearchPart { unasked: true, ..hash.asked() };
        hash.search(&mut searches, &format!("{fields}"), part, NOW);
    }
    assert_eq!(searches.steps(), 5_250);
    let turn = searches.turn(key("k"), 5_000, NOW);
    assert_eq!(turn, Some(later(1).unix()));
    assert_eq!(searches.turn(key("k"), 5_000, later(1)), None);
}

#[test]
fn searching_a_small_hash_is_not_delayed_by_another() {
    let (mut searches, now) = (Searches::default(), later(0));
    let hash = Hash::new(5_000, 0);
    let part = SearchPart { unasked: true, ..hash.asked() };
    for number in 0..100 {
        hash.search(&mut searches, &format!("large{number}"), part, now);
    }
    assert!(searches.turn(key("another"), 5_000, now).is_some());
    assert_eq!(searches.turn(key("small"), 1_000, now), None);
}

#[test]
fn unused_results_are_dropped_when_there_is_no_room() {
    let (mut searches, mut hash) = (Searches::default(), Hash::new(2, 0));
    for n in 0..5_000 {
        hash.find(&mut searches, &format!("k-{n}"), later(n));
    }
    assert!(searches.remembered() <= 1_025, "{} are remembered", searches.remembered());
    // The results of searches for waiters are all kept until they have not been used for a while.
    let part = SearchPart { unasked: true, ..hash.asked() };
    for n in 0..5_000 {
        hash.search(&mut searches, &format!("w-{n}"), part, later(10_000));
    }
    assert!(searches.remembered() > 4_900);
    assert!(
        (0..5_000)
            .all(|n| { searches.earliest(key(&format!("w-{n}")), 2, later(10_000)).is_some() })
    );
    for n in 0..5_000 {
        hash.find(&mut searches, &format!("k-{n}"), later(20_000 + n));
    }
    assert!(searches.remembered() <= 1_025, "{} are remembered", searches.remembered());
}

/// A small hash is searched in one part before its result counts.
#[test]
fn the_result_of_several_parts_counts_only_for_a_large_hash() {
    for (fields, earliest) in [(1_000, None), (1_001, Some(UnixMillis(ALIVE)))] {
        let (mut searches, hash) = (Searches::default(), Hash::new(fields, 0));
        let part = SearchPart { wanted: Wanted::SomeDead, ..hash.asked() };
        assert_eq!(hash.search(&mut searches, "k", part, NOW).passed, None);
        while hash.search(&mut searches, "k", part, NOW).passed.is_none() {}
        assert_eq!(searches.earliest(key("k"), fields, NOW), earliest);
    }
}

/// Number of remembered keys from which a new one replaces an unused one.
const ROOM: usize = 1_024;

/// Whether the result of a search for a command is remembered.
fn is_remembered(searches: &mut Searches<usize>, name: &str, now: Now) -> bool {
    Hash::new(2, 0).find(searches, name, now);
    searches.earliest(key(name), 2, now).is_some()
}

#[test]
fn a_result_is_replaced_only_without_room_and_if_it_was_not_used_for_a_while() {
    let mut searches = Searches::default();
    assert!(is_remembered(&mut searches, "first", NOW));
    assert!(is_remembered(&mut searches, "second", later(10_000)));
    assert_eq!(searches.remembered(), 2);

    let mut searches = Searches::default();
    for number in 0..ROOM {
        assert!(is_remembered(&mut searches, &format!("k{number}"), NOW));
    }
    assert!(!is_remembered(&mut searches, "new", later(2_000)));
    let full = searches.remembered();
    assert!(is_remembered(&mut searches, "new", later(2_001)));
    assert!(searches.remembered() <= full);
}

#[test]
fn a_key_whose_search_has_a_turn_is_not_replaced_before_it() {
    let mut searches = Searches::default();
    let hash = Hash::new(5_000, 0);
    let part = SearchPart { unasked: true, ..hash.asked() };
    // So many steps take 30 seconds.
    while searches.steps() < 250 * 30_000 {
        hash.search(&mut searches, "large", part, NOW);
    }
    for number in 0..ROOM {
        assert!(searches.turn(key(&format!("k{number}")), 5_000, NOW).is_some());
    }
    // A search makes room by at most two keys.
    assert!((0..9).all(|_| !is_remembered(&mut searches, "new", later(20_000))));
    assert!((0..9).any(|_| is_remembered(&mut searches, "new", later(60_000))));
}
