//! What a client process is to do, and how it is told: by the words of its command line.

/// What a client process is to do, again and again, until it is killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Role {
    /// The address of the server.
    pub(crate) address: String,
    /// The locks that it takes, with a comma between them: any of them each time.
    pub(crate) keys: String,
    /// The lease of the locks that it holds, which is renewed.
    pub(crate) lease_ms: u64,
    /// In so many cases of a hundred the lease is a part of that, not renewed, and the lock held
    /// until it is over.
    pub(crate) fixed: u64,
    /// It holds a lock for any time below this.
    pub(crate) hold_ms: u64,
    /// In so many cases of a hundred it holds the lock for longer than its lease: twice as long.
    pub(crate) long: u64,
    /// In so many cases of a hundred it waits no longer than a part of the lease.
    pub(crate) limited: u64,
    /// So many do that at once, by one client.
    pub(crate) tasks: u64,
    /// The threads of its runtime.
    pub(crate) threads: u64,
    /// In every second hold one of those threads is blocked once, for so long.
    pub(crate) block_ms: u64,
    /// The socket of the store that it counts in while it holds a lock; none if it is empty.
    pub(crate) store: String,
    /// How often it writes after a loss, without asking.
    pub(crate) careless: u64,
    /// How fast the clock runs by which it counts leases: right is 100.
    pub(crate) clock: u64,
    /// Decides what is left open above.
    pub(crate) seed: u64,
}

impl Role {
    /// One that waits for the lock as long as it takes, and holds it until it is lost.
    pub(crate) fn new(keys: impl Into<String>, lease_ms: u64) -> Self {
        Self {
            address: String::new(),
            keys: keys.into(),
            lease_ms,
            fixed: 0,
            hold_ms: u64::MAX,
            long: 0,
            limited: 0,
            tasks: 1,
            threads: 1,
            block_ms: 0,
            store: String::new(),
            careless: 0,
            clock: 100,
            seed: 0,
        }
    }

    /// The words that say it.
    pub(crate) fn words(&self) -> Vec<String> {
        let numbers = [
            ("lease-ms", self.lease_ms),
            ("fixed", self.fixed),
            ("hold-ms", self.hold_ms),
            ("long", self.long),
            ("limited", self.limited),
            ("tasks", self.tasks),
            ("threads", self.threads),
            ("block-ms", self.block_ms),
            ("careless", self.careless),
            ("clock", self.clock),
            ("seed", self.seed),
        ];
        let texts = [("address", &self.address), ("keys", &self.keys), ("store", &self.store)];
        let numbers = numbers.into_iter().map(|(name, value)| [name.to_owned(), value.to_string()]);
        let texts = texts.into_iter().map(|(name, value)| [name.to_owned(), value.clone()]);
        numbers.chain(texts).flatten().collect()
    }

    /// What those words say.
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Option<Self> {
        let mut role = Self::new("", 0);
        while let Some(word) = words.next() {
            let value = words.next()?;
            let number = match word.as_str() {
                "address" => {
                    role.address = value;
                    continue;
                }
                "keys" => {
                    role.keys = value;
                    continue;
                }
                "store" => {
                    role.store = value;
                    continue;
                }
                "lease-ms" => &mut role.lease_ms,
                "fixed" => &mut role.fixed,
                "hold-ms" => &mut role.hold_ms,
                "long" => &mut role.long,
                "limited" => &mut role.limited,
                "tasks" => &mut role.tasks,
                "threads" => &mut role.threads,
                "block-ms" => &mut role.block_ms,
                "careless" => &mut role.careless,
                "clock" => &mut role.clock,
                "seed" => &mut role.seed,
                _ => return None,
            };
            *number = value.parse().ok()?;
        }
        Some(role)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_say_all_of_it() {
        let role = Role {
            address: "redis://127.0.0.1:1/".to_owned(),
            fixed: 1,
            hold_ms: 2,
            long: 3,
            limited: 4,
            tasks: 5,
            threads: 6,
            block_ms: 7,
            store: "a socket".to_owned(),
            careless: 8,
            clock: 9,
            seed: 10,
            ..Role::new("k1,k2", 11)
        };
        assert_eq!(Role::parse(role.words().into_iter()), Some(role));
        assert_eq!(Role::parse(["--what".to_owned(), "1".to_owned()].into_iter()), None);
    }
}
