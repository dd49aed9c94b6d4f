//! Cluster slots: the slot of a key, and a short hash tag for each slot.

use std::sync::OnceLock;

use crc::{CRC_16_XMODEM, Crc};

/// Number of slots in a cluster.
const SLOTS: u16 = 16_384;

static CHECKSUM: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// Returns the slot of a key. Hashes only the part inside the first pair of braces, or the whole key if there
/// is no such pair or the pair is empty.
pub(crate) fn of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = key.get(open + 1..)?;
        let close = rest.iter().position(|byte| *byte == b'}')?;
        rest.get(..close).filter(|tag| !tag.is_empty())
    });
    CHECKSUM.checksum(tag.unwrap_or(key)) % SLOTS
}

/// Returns the smallest number whose decimal form hashes to this slot. The number is the same on every
/// server.
pub(crate) fn tag(slot: u16) -> u32 {
    static TAGS: OnceLock<Vec<u32>> = OnceLock::new();
    let tags = TAGS.get_or_init(all_tags);
    tags.get(usize::from(slot)).copied().unwrap_or(0)
}

/// Tries the numbers from 0 upwards until each slot has one. Takes a few milliseconds.
fn all_tags() -> Vec<u32> {
    let mut tags = vec![None; usize::from(SLOTS)];
    let mut missing = tags.len();
    for number in 0_u32.. {
        if missing == 0 {
            break;
        }
        let slot = of(number.to_string().as_bytes());
        if let Some(tag @ None) = tags.get_mut(usize::from(slot)) {
            *tag = Some(number);
            missing -= 1;
        }
    }
    tags.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(of(b"123456789"), 0x31C3);
        assert_eq!(of(b"foo{bar}zap"), of(b"bar"));
        assert_eq!(of(b"foo{}{bar}"), CHECKSUM.checksum(b"foo{}{bar}") % SLOTS);
        assert_eq!(of(b"foo{{bar}}zap"), of(b"{bar"));
    }

    #[test]
    fn every_slot_has_a_tag_in_it() {
        for slot in 0..SLOTS {
            assert_eq!(of(tag(slot).to_string().as_bytes()), slot);
        }
    }
}
