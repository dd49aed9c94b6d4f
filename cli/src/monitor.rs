//! A connection to one server, to read its counters and waiters repeatedly.

use crate::arguments::Address;
use crate::failure::Failure;
use crate::server::Server;
use kvlock::Error;
use redis::{Cmd, Connection, RedisError, Value};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Longest time to connect, and for one read or write.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Longest time for all queries of one [`ask`], including the name lookup, the connection and the login. By
/// default, Prometheus gives up after ten seconds.
pub(crate) const ASK_MAX: Duration = Duration::from_secs(5);

/// Runs `work`, which queries the server at this address, on a separate thread. Fails after [`ASK_MAX`].
pub(crate) async fn ask<T: Send + 'static>(
    address: &Address,
    work: impl FnOnce(&Address) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let name = Server::at(address)?.name;
    let address = Address { url: address.url.clone() };
    // After the timeout, the thread ends by itself later, and its result is dropped.
    match timeout(ASK_MAX, spawn_blocking(move || work(&address))).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(panic)) => Err(Failure::trouble(format!("{name}: {panic}"))),
        Err(_) => Err(Failure::of(&name, &Error::Timeout)),
    }
}

/// A connection to one server.
pub(crate) struct Monitor {
    connection: Connection,
    /// The address without the password, for messages.
    pub(crate) name: String,
}

/// Returns the server at this address. Refuses a cluster or Sentinels, because each server has counters of its
/// own.
pub(crate) fn one_server(address: &Address) -> Result<Server, Failure> {
    let server = Server::at(address)?;
    if ["-sentinel://", "-cluster://"].iter().any(|kind| address.url.contains(kind)) {
        let name = &server.name;
        return Err(Failure::usage(format!(
            "{name}: each server has counters of its own: name one of them, as in redis://host/"
        )));
    }
    Ok(server)
}

impl Monitor {
    /// Connects to the server at this address. See [`one_server`].
    pub(crate) fn connect(address: &Address) -> Result<Self, Failure> {
        let parsed = one_server(address)?;
        let name = parsed.name.clone();
        let trouble = |error: RedisError| Failure::of(&name, &error.into());
        let client = redis::Client::open(address.url.as_str()).map_err(trouble)?;
        // Called for its side effect: it installs the cryptography provider that TLS needs.
        kvlock::Client::from_redis(&client).map_err(|error| Failure::of(&name, &error))?;
        let connection = client.get_connection_with_timeout(ANSWER_MAX).map_err(trouble)?;
        connection.set_read_timeout(Some(ANSWER_MAX)).map_err(trouble)?;
        connection.set_write_timeout(Some(ANSWER_MAX)).map_err(trouble)?;
        Ok(Self { connection, name })
    }

    fn ask(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        command.query::<Value>(&mut self.connection)
    }

    /// Reads the counters.
    pub(crate) fn figures(&mut self) -> Result<Figures, Failure> {
        let asked = redis::cmd("INFO").arg(&["server", "replication", "kvlock"]).to_owned();
        let trouble = |error: RedisError| Failure::of(&self.name, &error.into());
        let text: String = asked.query(&mut self.connection).map_err(trouble)?;
        let figures = Figures::read(&text);
        if figures.number("kvlock_granted").is_none() {
            let name = &self.name;
            return Err(Failure::trouble(format!(
                "{name}: this server knows no locks: load kvlock.so there"
            )));
        }
        Ok(figures)
    }

    /// Reads a list of entries. `None` if the server does not know the command, or if this user may not use
    /// it.
    pub(crate) fn list(&mut self, command: &Cmd) -> Result<Option<Vec<Entry>>, Failure> {
        match self.ask(command) {
            Ok(Value::Array(entries)) => Ok(Some(entries.into_iter().map(Entry::read).collect())),
            Ok(_) => Ok(None),
            Err(error) if error.code() == Some("NOPERM") => Ok(None),
            Err(error) if error.to_string().contains("unknown command") => Ok(None),
            Err(error) => Err(Failure::of(&self.name, &error.into())),
        }
    }

    /// Reads one entry.
    pub(crate) fn entry(&mut self, command: &Cmd) -> Result<Entry, Failure> {
        let answer = self.ask(command);
        answer.map(Entry::read).map_err(|error| Failure::of(&self.name, &error.into()))
    }
}

/// The fields of `INFO`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures(BTreeMap<String, String>);

impl Figures {
    pub(crate) fn read(info: &str) -> Self {
        let fields = info.lines().filter_map(|line| line.split_once(':'));
        Self(fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect())
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name)?.parse().ok()
    }

    pub(crate) fn histogram(&self, name: &str) -> Option<Histogram> {
        Histogram::read(self.0.get(name)?)
    }

    /// Returns the fields of the module, without the prefix `kvlock_`.
    pub(crate) fn of_module(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|(name, value)| Some((name.strip_prefix("kvlock_")?, &**value)))
    }

    /// Returns the name and the version of the server.
    pub(crate) fn server(&self) -> (&'static str, &str) {
        match self.text("valkey_version") {
            "" => ("redis", self.text("redis_version")),
            version => ("valkey", version),
        }
    }
}

/// A distribution of durations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Histogram {
    pub(crate) count: u64,
    pub(crate) sum_us: u64,
    /// Number of durations in each bucket, by its upper limit in milliseconds. The last bucket has no
    /// limit: `u64::MAX`.
    pub(crate) buckets: BTreeMap<u64, u64>,
}

impl Histogram {
    fn read(text: &str) -> Option<Self> {
        let mut found = Self::default();
        for pair in text.split(',') {
            let (name, value) = pair.split_once('=')?;
            let value: u64 = value.parse().ok()?;
            match name {
                "count" => found.count = value,
                "sum_us" => found.sum_us = value,
                "inf" => _ = found.buckets.insert(u64::MAX, value),
                end => _ = found.buckets.insert(end.parse().ok()?, value),
            }
        }
        Some(found)
    }

    /// Returns the durations that were added since an earlier histogram.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let before = |end| earlier.buckets.get(end).copied().unwrap_or_default();
        let buckets = self.buckets.iter().map(|(end, n)| (*end, n.saturating_sub(before(end))));
        Self {
            count: self.count.saturating_sub(earlier.count),
            sum_us: self.sum_us.saturating_sub(earlier.sum_us),
            buckets: buckets.collect(),
        }
    }

    /// Returns the upper limit in milliseconds of the bucket that contains the percentile. `None` if the
    /// histogram is empty.
    pub(crate) fn percentile(&self, percent: u64) -> Option<u64> {
        let all: u64 = self.buckets.values().sum();
        let wanted = all.saturating_mul(percent).div_ceil(100).max(1);
        let mut reached = 0_u64;
        let end = self.buckets.iter().find(|(_, counted)| {
            reached = reached.saturating_add(**counted);
            reached >= wanted
        });
        end.map(|(end, _)| *end)
    }
}

/// The fields of a reply, or of one element of a list reply, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry(BTreeMap<String, Value>);

impl Entry {
    fn read(value: Value) -> Self {
        // A map in RESP3, an array of names and values in RESP2.
        let Ok(pairs) = value.into_map_iter() else { return Self::default() };
        let name = |name: &Value| String::from_utf8_lossy(&bytes(name)).into_owned();
        Self(pairs.map(|(field, value)| (name(&field), value)).collect())
    }

    /// Returns an entry with these fields.
    #[cfg(test)]
    pub(crate) fn of<const N: usize>(fields: [(&str, &str); N]) -> Self {
        let fields =
            fields.map(|(name, value)| (name.to_owned(), Value::SimpleString(value.to_owned())));
        Self(fields.into())
    }

    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        self.0.get(name).map(bytes).unwrap_or_default()
    }

    pub(crate) fn text(&self, name: &str) -> String {
        String::from_utf8_lossy(&self.bytes(name)).into_owned()
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        match self.0.get(name)? {
            Value::Int(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    /// Returns a field that is a list of lists. Empty if the field does not exist.
    pub(crate) fn rows(&self, name: &str) -> Vec<Vec<Value>> {
        let row = |value: &Value| match value {
            Value::Array(row) => Some(row.clone()),
            _ => None,
        };
        match self.0.get(name) {
            Some(Value::Array(rows)) => rows.iter().filter_map(row).collect(),
            _ => Vec::new(),
        }
    }
}

/// Returns the bytes of a string or a number. Empty for other values.
pub(crate) fn bytes(value: &Value) -> Vec<u8> {
    match value {
        Value::BulkString(bytes) => bytes.clone(),
        Value::SimpleString(text) => text.clone().into_bytes(),
        Value::Int(number) => number.to_string().into_bytes(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_is_read_and_subtracted() {
        let read = |text| Histogram::read(text).unwrap();
        let (before, now) =
            (read("count=2,sum_us=2000,1=2"), read("count=5,sum_us=9000,1=3,4=1,inf=1"));
        let since = now.since(&before);
        assert_eq!((since.count, since.sum_us), (3, 7000));
        assert_eq!(
            [34, 67, 100].map(|percent| since.percentile(percent)),
            [Some(4), Some(u64::MAX), Some(u64::MAX)]
        );
        assert_eq!(since.percentile(1), Some(1));
        assert_eq!(Histogram::default().percentile(50), None);
        assert_eq!(Histogram::read("count=2,oops"), None);
    }
}
