//! A store that checks fencing tokens, and a holder that sleeps through the end of its lease.
//!
//! ```text
//! cargo run -p kvlock --example fencing -- redis://127.0.0.1:6379/
//! ```
//!
//! The store is an SQLite table. It refuses a token that is smaller than the largest it has seen,
//! and an equal token of another owner: two servers that both act as the primary can issue equal
//! tokens. The check and the write are one SQL statement, so no other write can come in between.
#![expect(clippy::print_stdout, reason = "a story on the terminal is all it is for")]

use kvlock::{Client, Guard, Token};
use rusqlite::{Connection, params};
use std::error::Error;
use std::time::Duration;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// An account whose balance only the holder of a lock may set.
struct Account(Connection);

impl Account {
    fn open() -> Outcome<Self> {
        let database = Connection::open_in_memory()?;
        database.execute_batch(
            "create table account (
                 id integer primary key,
                 balance integer not null,
                 token integer not null,
                 owner text not null
             );
             insert into account values (42, 0, 0, '');",
        )?;
        Ok(Self(database))
    }

    /// Sets the balance, unless the token is smaller than the stored one, or equal to it but of
    /// another owner. Returns whether the balance was set.
    fn set(&self, balance: i64, token: Token, owner: &str) -> Outcome<bool> {
        let token = i64::try_from(token.value())?;
        let changed = self.0.execute(
            "update account set balance = ?1, token = ?2, owner = ?3
              where id = 42 and (token < ?2 or (token = ?2 and owner = ?3))",
            params![balance, token, owner],
        )?;
        Ok(changed == 1)
    }

    fn balance(&self) -> Outcome<i64> {
        Ok(self.0.query_row("select balance from account where id = 42", [], |row| row.get(0))?)
    }

    /// Calls [`set`](Self::set) with the token and the owner of the guard, and prints the outcome.
    fn set_as(&self, name: &str, balance: i64, guard: &Guard) -> Outcome<bool> {
        let done = self.set(balance, guard.token(), guard.owner())?;
        let verdict = if done { "accepted" } else { "REFUSED" };
        println!("{name} sets {balance} with token {}: {verdict}", guard.token());
        Ok(done)
    }
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379/".to_owned());
    let account = Account::open()?;
    // Two clients, as in two processes.
    let (alice, bob) = (Client::connect(url.as_str()).await?, Client::connect(url.as_str()).await?);

    // A fixed lease is not renewed, so it ends like the lease of a stopped process.
    let lock = alice.lock("account:42").fixed_lease(Duration::from_millis(500));
    let alices = lock.acquire().await?;
    assert!(account.set_as("alice", 100, &alices)?);
    assert!(account.set_as("alice", 110, &alices)?, "once more with the same token");

    println!("alice falls asleep");
    let bobs = bob.lock("account:42").acquire().await?;
    assert!(account.set_as("bob", 200, &bobs)?);

    println!("alice wakes up, and writes without looking");
    assert!(alices.is_lost(), "had she looked, she would have known");
    assert!(!account.set_as("alice", 120, &alices)?);

    println!("somebody writes with bob's token, granted by a server that was cut off");
    let refused = !account.set(300, bobs.token(), "somebody else:1")?;
    assert!(refused, "equal, but from another owner");

    println!("the balance is {}", account.balance()?);
    assert_eq!(account.balance()?, 200);
    bobs.release().await?;
    Ok(())
}
