//! A small hash in the format of `DUMP`, for `RESTORE`. Uses the oldest encoding of a hash, which every
//! supported server reads. The server stores the result like a hash that `HSET` created.

use crc::{CRC_64_REDIS, Crc, Table};

/// Type byte of a hash that is written as a plain list of fields and values.
const HASH: u8 = 4;

/// Version of the format. Old enough for all supported servers.
const VERSION: u16 = 9;

/// Size of the buffer in bytes: enough for two fields, one of them with a name of 1,024 bytes.
const MOST: usize = 1_200;

static CHECKSUM: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// A value in the format of `DUMP`.
pub(super) struct Dump {
    bytes: [u8; MOST],
    len: usize,
}

impl Dump {
    /// Returns the dump of a hash. `None` if it is too large.
    pub(super) fn of_hash(fields: &[(&[u8], &[u8])]) -> Option<Self> {
        let mut dump = Self { bytes: [0; MOST], len: 0 };
        dump.push(&[HASH])?;
        dump.push_length(fields.len())?;
        for text in fields.iter().flat_map(|(field, value)| [field, value]) {
            dump.push_length(text.len())?;
            dump.push(text)?;
        }
        dump.push(&VERSION.to_le_bytes())?;
        let checksum = CHECKSUM.checksum(dump.bytes());
        dump.push(&checksum.to_le_bytes())?;
        Some(dump)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    fn push(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.len.checked_add(bytes.len())?;
        self.bytes.get_mut(self.len..end)?.copy_from_slice(bytes);
        self.len = end;
        Some(())
    }

    /// Appends a length: in 6 bits, or in 14 bits with the high byte first.
    fn push_length(&mut self, length: usize) -> Option<()> {
        match u16::try_from(length).ok().filter(|length| *length < 1 << 14)?.to_be_bytes() {
            [0, short] if short < 1 << 6 => self.push(&[short]),
            [high, low] => self.push(&[1 << 6 | high, low]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dump_of_a_hash_is_what_servers_produce() {
        let dump = Dump::of_hash(&[(b"a", b"1"), (b"fencing-token", b"t17")]).expect("it is small");
        let (body, end) = dump.bytes().split_at(dump.len - 10);
        assert_eq!(body, b"\x04\x02\x01a\x011\x0dfencing-token\x03t17");
        assert_eq!(end[..2], [9, 0]);
        assert_eq!(CHECKSUM.checksum(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    }

    #[test]
    fn names_of_every_length_are_dumped_up_to_a_limit() {
        let owner = [b'x'; 1_024];
        let dump = Dump::of_hash(&[(&owner, b"1"), (b"f", b"t1")]).expect("there is room");
        assert_eq!(dump.bytes()[..5], *b"\x04\x02\x44\x00x");
        assert_eq!(
            Dump::of_hash(&[(&[b'x'; 64], b"")]).expect("it is small").bytes()[2..4],
            *b"\x40\x40"
        );
        assert!(Dump::of_hash(&[(&[0; MOST], b"1")]).is_none());
    }
}
