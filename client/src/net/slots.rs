//! The slot of a key, and the slot map in the answer to `CLUSTER SLOTS`.

use crate::net::address::At;
use crate::wire::error::Error;
use redis::Value;
use std::collections::HashMap;

/// Number of slots.
pub(crate) const SLOTS: u16 = 16_384;

/// Returns the slot of a key: the hash of the part between the first `{` and the next `}`. If that part is
/// missing or empty, the slot is the hash of the whole key.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    crc16::State::<crc16::XMODEM>::calculate(tag(key).unwrap_or(key)) % SLOTS
}

fn tag(key: &[u8]) -> Option<&[u8]> {
    let (_, rest) = split_at(key, b'{')?;
    let (tag, _) = split_at(rest, b'}')?;
    (!tag.is_empty()).then_some(tag)
}

fn split_at(bytes: &[u8], mark: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == mark)?;
    Some((bytes.get(..at)?, bytes.get(at + 1..)?))
}

/// Adjacent slots, and the primary and replicas that serve them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) first: u16,
    pub(crate) last: u16,
    pub(crate) primary: At,
    pub(crate) replicas: Vec<At>,
}

/// The slot map of one node.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) ranges: Vec<Range>,
    /// Current epoch of the cluster, as the node knows it. A view with a lower epoch than the map in use is
    /// outdated.
    pub(crate) epoch: u64,
}

/// Reads the answers to `CLUSTER SLOTS` and `CLUSTER INFO` of a node that was reached at `host`.
pub(crate) fn read_view(slots: Value, info: Value, host: &str) -> Result<View, Error> {
    let wrong = || Error::Protocol("to CLUSTER SLOTS".to_owned());
    let Value::Array(ranges) = slots else { return Err(wrong()) };
    let ranges: Option<_> = ranges.into_iter().map(|range| read_range(range, host)).collect();
    let ranges = ranges.ok_or_else(wrong)?;
    let info: String = redis::from_redis_value(info)
        .map_err(|error| Error::Protocol(format!("to CLUSTER INFO: {error}")))?;
    let mut lines = info.lines();
    let epoch = lines.find_map(|line| line.strip_prefix("cluster_current_epoch:")?.parse().ok());
    let epoch = epoch.ok_or_else(|| Error::Protocol("to CLUSTER INFO: no epoch".to_owned()))?;
    Ok(View { ranges, epoch })
}

/// Reads a range: first slot, last slot, primary, replicas.
fn read_range(range: Value, host: &str) -> Option<Range> {
    let Value::Array(parts) = range else { return None };
    let mut parts = parts.into_iter();
    let mut slot = || {
        let slot = number(parts.next()?)?;
        (slot < SLOTS).then_some(slot)
    };
    let (first, last) = (slot()?, slot()?);
    let primary = read_node(parts.next()?, host)?;
    // Replicas whose entries are malformed are left out: the map is usable without them.
    let replicas = parts.filter_map(|replica| read_node(replica, host)).collect();
    (first <= last).then_some(Range { first, last, primary, replicas })
}

/// Reads a node: endpoint, port, id, and metadata. A null or empty endpoint means the host that was asked.
/// `?` means that the node's host name is not known: then the metadata has its IP address.
fn read_node(node: Value, host: &str) -> Option<At> {
    let Value::Array(parts) = node else { return None };
    let mut parts = parts.into_iter();
    let endpoint: Option<String> = redis::from_redis_value(parts.next()?).ok()?;
    let port = number(parts.next()?)?;
    let endpoint = match endpoint.as_deref() {
        None | Some("") => host.to_owned(),
        Some("?") => {
            let rest: Option<HashMap<String, String>> =
                parts.nth(1).and_then(|rest| redis::from_redis_value(rest).ok());
            rest.and_then(|mut rest| rest.remove("ip")).unwrap_or_else(|| host.to_owned())
        }
        Some(endpoint) => endpoint.to_owned(),
    };
    Some((endpoint, port))
}

/// Reads a number. Returns `None` if it is too large, where redis-rs would truncate it.
fn number(value: Value) -> Option<u16> {
    redis::from_redis_value::<i64>(value).ok()?.try_into().ok()
}

/// Reads the target of a `MOVED` or `ASK` that the node at `host` has sent: `host:port`. An IPv6 address may
/// have brackets or not. An empty host or `?` means the host of that node.
pub(crate) fn read_redirect(to: &str, host: &str) -> Option<At> {
    let (endpoint, port) = to.rsplit_once(':')?;
    let endpoint = if matches!(endpoint, "" | "?") { host } else { endpoint };
    let bare = endpoint.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    Some((bare.unwrap_or(endpoint).to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_same_slot_as_on_servers() {
        // The slots as `CLUSTER KEYSLOT` returns them.
        for (key, slot) in [
            ("123456789", 12739),
            ("", 0),
            ("foo", 12182),
            ("{foo}bar", 12182),
            ("a{foo}{bar}", 12182),
            ("{}foo", 9500),
            ("foo{", 7673),
            ("}foo{x}", 16287),
        ] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
    }

    fn parsed(text: &str) -> Value {
        redis::parse_redis_value(text.replace('\n', "\r\n").as_bytes()).unwrap()
    }

    fn at(host: &str, port: u16) -> At {
        (host.to_owned(), port)
    }

    #[test]
    fn a_slot_map_is_read_with_and_without_host_names() {
        let slots = parsed(
            "*2\n*4\n:0\n:5460\n*3\n$9\n10.0.0.10\n:7000\n$2\nid\n*4\n$1\n?\n:7003\n$2\nid\n*2\n$2\nip\n$8\n10.0.0.9\n\
             *3\n:5461\n:16383\n*3\n$-1\n:7001\n$2\nid\n",
        );
        let info = Value::SimpleString(
            "cluster_state:ok\r\ncluster_current_epoch:6\r\ncluster_my_epoch:2\r\n".to_owned(),
        );
        let view = read_view(slots, info, "asked").unwrap();
        assert_eq!(view.epoch, 6);
        assert_eq!(
            view.ranges,
            [
                Range {
                    first: 0,
                    last: 5460,
                    primary: at("10.0.0.10", 7000),
                    replicas: vec![at("10.0.0.9", 7003)]
                },
                Range { first: 5461, last: 16383, primary: at("asked", 7001), replicas: vec![] },
            ]
        );
    }

    #[test]
    fn an_invalid_slot_map_is_an_error() {
        let info = || Value::SimpleString("cluster_current_epoch:6\r\n".to_owned());
        for slots in [
            "+OK\n",
            "*1\n+OK\n",
            "*1\n*2\n:0\n:1\n",
            "*1\n*3\n:0\n:16384\n*2\n$1\nh\n:1\n",
            "*1\n*3\n:2\n:1\n*2\n$1\nh\n:1\n",
            "*1\n*3\n:0\n:1\n*2\n$1\nh\n:65536\n",
        ] {
            let refused = read_view(parsed(slots), info(), "h");
            assert!(matches!(refused, Err(Error::Protocol(_))), "{slots}: {refused:?}");
        }
        assert!(read_view(parsed("*0\n"), Value::Okay, "h").is_err());
        assert!(read_view(parsed("*0\n"), info(), "h").unwrap().ranges.is_empty());
    }

    #[test]
    fn a_redirect_names_its_target() {
        for (to, place) in [
            ("10.0.0.1:7000", Some(at("10.0.0.1", 7000))),
            ("::1:7000", Some(at("::1", 7000))),
            ("[::1]:7000", Some(at("::1", 7000))),
            (":7000", Some(at("asked", 7000))),
            ("?:7000", Some(at("asked", 7000))),
            ("h", None),
            ("h:x", None),
        ] {
            assert_eq!(read_redirect(to, "asked"), place, "{to}");
        }
    }
}
