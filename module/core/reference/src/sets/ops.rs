//! Operations on a few locks and sets of them.

use crate::Bytes;

/// Position of a lock in [`KEYS`].
pub type Key = usize;
pub const KEYS: [&str; 3] = ["a", "b", "top"];
pub type Owner = &'static str;
const OWNERS: [Owner; 4] = ["ann", "bob", "carol", "dave"];

/// A limit above the number of pieces of work that are ever due at one time.
pub const ALL: usize = 2_000;

/// The locks of a request. The flag of each marks a lock of `UNDER`. `shared` is the mode of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    pub keys: Vec<(Key, bool)>,
    pub shared: bool,
}

impl Set {
    /// Returns each lock, and whether the set only shares it.
    pub fn wants(&self) -> impl Iterator<Item = (Key, bool)> {
        self.keys.iter().map(|(key, under)| (*key, *under || self.shared))
    }

    /// Returns whether both sets have the same locks and the same first lock.
    pub fn is_same(&self, other: &Self) -> bool {
        let sorted = |set: &Self| {
            let mut keys = set.keys.clone();
            keys.sort_unstable();
            (keys, set.keys[0], set.shared)
        };
        sorted(self) == sorted(other)
    }
}

#[derive(Clone, Debug)]
pub enum Op {
    Acquire(Owner, Set, u64),
    /// Waits, with a lease and perhaps a timeout, through the session or as a blocked client.
    Wait(Owner, Set, u64, Option<u64>, bool),
    Release(Owner, Set),
    Cancel(Owner, Key),
    Disconnect(usize),
    Force(Key),
    Delete(Key),
    Pass(u64),
    /// One of the latest grants was never sent, so it is taken back.
    TakeBack(usize),
    Delivered(usize),
    /// The reader of the session disconnects, or reconnects.
    Away(bool),
    /// In a late world: ends the session and opens another one.
    Close,
    /// In a late world: does up to this number of pieces of work.
    Work(usize),
}

fn set(bytes: &mut Bytes<'_>) -> Set {
    let first = bytes.below(3);
    let shared = bytes.below(5) == 0;
    let mut keys = vec![(first, false)];
    // At least half of the requests are for a single lock.
    if bytes.below(2) == 0 {
        for step in [1, 2] {
            match bytes.below(3) {
                0 => {}
                role => keys.push(((first + step) % KEYS.len(), role == 1)),
            }
        }
    }
    Set { keys, shared }
}

pub fn op(bytes: &mut Bytes<'_>) -> Op {
    let owner = bytes.pick(&OWNERS);
    let lease = bytes.pick(&[50, 100_000, 100_000]);
    match bytes.below(46) {
        0..=4 => Op::Acquire(owner, set(bytes), lease),
        5..=17 => {
            let timeout = bytes.pick(&[None, None, None, Some(30)]);
            Op::Wait(owner, set(bytes), lease, timeout, bytes.below(3) == 0)
        }
        18..=26 => Op::Release(owner, set(bytes)),
        27 | 28 => Op::Cancel(owner, bytes.below(3)),
        29 => Op::Disconnect(bytes.below(64)),
        30 | 31 => Op::Force(bytes.below(3)),
        32 | 33 => Op::Delete(bytes.below(3)),
        34 | 35 => Op::Pass(bytes.pick(&[10, 60])),
        36 => Op::TakeBack(bytes.below(3)),
        37 => Op::Delivered(bytes.below(3)),
        38 | 39 => Op::Away(bytes.below(2) == 0),
        40 => Op::Close,
        _ => Op::Work(bytes.pick(&[1, 2, 5, ALL])),
    }
}

/// Returns a few operations. A test runs all short walks of them.
pub fn alphabet() -> Vec<Op> {
    let of = |keys: &[(Key, bool)]| Set { keys: keys.to_vec(), shared: false };
    let (a, b) = (of(&[(0, false)]), of(&[(1, false)]));
    let both = of(&[(0, false), (1, false)]);
    let other_order = of(&[(1, false), (0, false)]);
    let a_under = of(&[(0, false), (2, true)]);
    let b_under = of(&[(1, false), (2, true)]);
    let top = of(&[(2, false)]);
    let long = 100_000;
    vec![
        Op::Wait("ann", both.clone(), long, None, false),
        Op::Wait("bob", other_order, long, None, false),
        Op::Wait("carol", a.clone(), long, None, false),
        Op::Wait("carol", top.clone(), long, None, false),
        Op::Wait("dave", b_under.clone(), long, None, false),
        Op::Wait("ann", a_under.clone(), long, None, false),
        Op::Acquire("dave", b.clone(), long),
        Op::Release("ann", both),
        Op::Release("ann", a_under),
        Op::Release("dave", b_under),
        Op::Release("carol", a),
        Op::Release("carol", top),
        Op::Cancel("ann", 0),
        Op::Delete(1),
    ]
}
