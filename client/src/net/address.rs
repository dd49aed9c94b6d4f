//! Where the server that keeps the locks is found.

use crate::wire::error::Error;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};
use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

/// Host and port of a server.
pub(crate) type At = (String, u16);

/// Where the server that keeps the locks is found: at an address, behind Sentinels, or as one of many
/// in a cluster.
///
/// Strings become one when they are given to [`Client::connect`](crate::Client::connect):
///
/// | form | |
/// |---|---|
/// | `redis://[user:password@]host[:port][/db]` | one server; `rediss://` with TLS, and all else that redis-rs reads |
/// | `redis-sentinel://[user:password@]host[:port][,host[:port]…][/db]?sentinelServiceName=name` | the primary that these Sentinels call by that name; `rediss-sentinel://` with TLS, at the Sentinels too |
/// | `redis-cluster://[user:password@]host[:port][,host[:port]…]` | the cluster to which these nodes belong; `rediss-cluster://` with TLS |
///
/// The port of a Sentinel is 26379 unless it is given. The login is for the server; Sentinels that
/// want one get `sentinelUsername=` and `sentinelPassword=`, as further parameters. Whatever is no
/// letter or digit in a password is written as `%` and two hexadecimal digits. Name all Sentinels:
/// those that are not named are not asked.
///
/// The nodes of a cluster are found from any one that answers, so name some that do not fail
/// together; `?node=host:port` names a further one too. All have the same login. With TLS, the
/// certificate of each must be for the name or address by which the nodes know each other
/// (`cluster-preferred-endpoint-type`), and on Redis 7.0 `tls-cluster` must be on: without it the
/// nodes name no port for TLS.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), kvlock::Error> {
/// let client = kvlock::Client::connect(
///     "redis-sentinel://:secret@s1,s2,s3:26380/0?sentinelServiceName=mymaster",
/// )
/// .await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Address(pub(crate) Place);

#[derive(Clone)]
pub(crate) enum Place {
    Server(ConnectionInfo),
    Sentinels {
        sentinels: Vec<ConnectionInfo>,
        /// By what name they know the primary.
        name: String,
        /// How to log in to the primary; where it is, they know.
        server: ConnectionInfo,
    },
    /// Some nodes of a cluster; the first says how to talk to all.
    Cluster(Vec<ConnectionInfo>),
}

impl Address {
    /// The primary that some Sentinels call by that name. `server` says how to talk to it: login,
    /// database and TLS count, its host and port do not.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] without a Sentinel or a name, or if the server is at a Unix socket.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use redis::IntoConnectionInfo;
    ///
    /// let sentinels = ["redis://s1:26379", "redis://s2:26379"];
    /// let sentinels = sentinels.map(|at| at.into_connection_info()).into_iter();
    /// let sentinels: Vec<_> = sentinels.collect::<Result<_, _>>()?;
    /// let server = "redis://:secret@any/0".into_connection_info()?;
    /// let address = kvlock::Address::behind_sentinels(sentinels, "mymaster", server)?;
    /// # let _ = address;
    /// # Ok(()) }
    /// ```
    pub fn behind_sentinels(
        sentinels: impl IntoIterator<Item = ConnectionInfo>,
        name: impl Into<String>,
        server: ConnectionInfo,
    ) -> Result<Self, Error> {
        let (sentinels, name) = (sentinels.into_iter().collect::<Vec<_>>(), name.into());
        if sentinels.is_empty() {
            return Err(invalid("no Sentinel is named"));
        }
        if name.is_empty() {
            return Err(invalid("sentinelServiceName is missing: by what name Sentinel knows it"));
        }
        if matches!(server.addr(), ConnectionAddr::Unix(_)) {
            return Err(invalid("a server behind Sentinels has no Unix socket"));
        }
        Ok(Self(Place::Sentinels { sentinels, name, server }))
    }

    /// A cluster, of which these are some nodes. All of its nodes are talked to as to the first of
    /// these: with its login and TLS.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] without a node, or if one is at a Unix socket.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use redis::IntoConnectionInfo;
    ///
    /// let nodes = ["redis://:secret@h1:6379", "redis://:secret@h2:6379"];
    /// let nodes = nodes.map(|at| at.into_connection_info()).into_iter();
    /// let address = kvlock::Address::cluster(nodes.collect::<Result<Vec<_>, _>>()?)?;
    /// # let _ = address;
    /// # Ok(()) }
    /// ```
    pub fn cluster(nodes: impl IntoIterator<Item = ConnectionInfo>) -> Result<Self, Error> {
        let nodes: Vec<_> = nodes.into_iter().collect();
        if nodes.is_empty() {
            return Err(invalid("no node of the cluster is named"));
        }
        if nodes.iter().any(|node| matches!(node.addr(), ConnectionAddr::Unix(_))) {
            return Err(invalid("a node of a cluster has no Unix socket"));
        }
        Ok(Self(Place::Cluster(nodes)))
    }

    pub(crate) fn database(&self) -> i64 {
        let server = match &self.0 {
            Place::Server(server) | Place::Sentinels { server, .. } => Some(server),
            Place::Cluster(nodes) => nodes.first(),
        };
        server.map_or(0, |server| server.redis_settings().db())
    }

    fn parse(text: &str) -> Result<Self, Error> {
        for (scheme, plain) in [("redis-sentinel://", "redis"), ("rediss-sentinel://", "rediss")] {
            if let Some(rest) = text.strip_prefix(scheme) {
                return parse_sentinels(rest, plain);
            }
        }
        for (scheme, plain) in [("redis-cluster://", "redis"), ("rediss-cluster://", "rediss")] {
            if let Some(rest) = text.strip_prefix(scheme) {
                return parse_cluster(rest, plain);
            }
        }
        let server = text.into_connection_info()?;
        if !matches!(server.addr(), ConnectionAddr::Unix(_)) {
            check_parameters(text)?;
        }
        Ok(Self(Place::Server(server)))
    }
}

/// Refuses what redis-rs ignores: a parameter of an address with a host, other than `protocol`.
fn check_parameters(text: &str) -> Result<(), Error> {
    let text = text.split_once('#').map_or(text, |(text, _)| text);
    let parameters = text.split_once('?').map_or("", |(_, parameters)| parameters);
    for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
        let name = parameter.split_once('=').map_or(parameter, |(name, _)| name);
        if name == "db" {
            return Err(invalid("the database is the path of the address: redis://host:port/3"));
        }
        if name != "protocol" {
            return Err(invalid("a parameter of the address is not known"));
        }
    }
    Ok(())
}

/// What follows the scheme of an address with several hosts.
struct Parts<'a> {
    /// With the `@`.
    login: String,
    hosts: Vec<&'a str>,
    path: &'a str,
    /// Name and value; a part that is no pair is `None`.
    parameters: Vec<Option<(&'a str, &'a str)>>,
}

impl<'a> Parts<'a> {
    fn of(rest: &'a str) -> Self {
        let (rest, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (format!("{login}@"), hosts),
            None => (String::new(), authority),
        };
        let parameters = parameters.split('&').filter(|parameter| !parameter.is_empty());
        Self {
            login,
            hosts: hosts.split(',').filter(|host| !host.is_empty()).collect(),
            path,
            parameters: parameters.map(|parameter| parameter.split_once('=')).collect(),
        }
    }
}

/// What follows `redis-cluster://`. Each node is read by redis-rs, as an address of its own.
fn parse_cluster(rest: &str, scheme: &str) -> Result<Address, Error> {
    let Parts { login, mut hosts, path, parameters } = Parts::of(rest);
    for parameter in parameters {
        match parameter {
            Some(("node", host)) => hosts.push(host),
            _ => return Err(invalid("a parameter of the address is not known")),
        }
    }
    let node = |host| Ok(format!("{scheme}://{login}{host}/{path}").into_connection_info()?);
    Address::cluster(hosts.into_iter().map(node).collect::<Result<Vec<_>, Error>>()?)
}

/// What follows `redis-sentinel://`. Each part is read by redis-rs, as an address of its own.
fn parse_sentinels(rest: &str, scheme: &str) -> Result<Address, Error> {
    let Parts { login, hosts, path, parameters } = Parts::of(rest);
    let (mut name, mut user, mut password) = ("", "", "");
    for parameter in parameters {
        match parameter {
            Some(("sentinelServiceName", value)) => name = value,
            Some(("sentinelUsername", value)) => user = value,
            Some(("sentinelPassword", value)) => password = value,
            _ => return Err(invalid("a parameter of the address is not known")),
        }
    }
    let sentinel_login = match (user, password) {
        ("", "") => String::new(),
        (user, password) => format!("{user}:{password}@"),
    };
    let sentinel = |host: &str| {
        let port = if has_port(host) { "" } else { ":26379" };
        Ok(format!("{scheme}://{sentinel_login}{host}{port}").into_connection_info()?)
    };
    let sentinels = hosts.into_iter().map(sentinel).collect::<Result<Vec<_>, Error>>()?;
    let server = format!("{scheme}://{login}localhost/{path}").into_connection_info()?;
    Address::behind_sentinels(sentinels, name, server)
}

/// An address of IPv6 has colons of its own, in brackets.
fn has_port(host: &str) -> bool {
    host.rsplit(']').next().is_some_and(|end| end.contains(':'))
}

fn invalid(what: &str) -> Error {
    Error::Config(what.to_owned())
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

impl fmt::Display for Address {
    /// Where it is, without the login.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::Server(server) => f.write_str(&shown(server.addr())),
            Place::Sentinels { sentinels, name, .. } => {
                write!(f, "{name} behind Sentinels at {}", listed(sentinels))
            }
            Place::Cluster(nodes) => write!(f, "the cluster at {}", listed(nodes)),
        }
    }
}

fn listed(servers: &[ConnectionInfo]) -> String {
    let servers: Vec<_> = servers.iter().map(|server| shown(server.addr())).collect();
    servers.join(", ")
}

/// The address as a URL has it: an IPv6 address in brackets.
pub(crate) fn shown(addr: &ConnectionAddr) -> String {
    match addr {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            if host.contains(':') && !host.starts_with('[') {
                format!("[{host}]:{port}")
            } else {
                format!("{host}:{port}")
            }
        }
        other @ (ConnectionAddr::Unix(_) | _) => other.to_string(),
    }
}

impl From<ConnectionInfo> for Address {
    fn from(server: ConnectionInfo) -> Self {
        Self(Place::Server(server))
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text)
    }
}

macro_rules! from_text {
    ($($text:ty),*) => { $(
        impl TryFrom<$text> for Address {
            type Error = Error;

            fn try_from(text: $text) -> Result<Self, Error> {
                Self::parse(text.as_ref())
            }
        }
    )* };
}
from_text!(&str, String, &String);

impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentinels(text: &str) -> (Vec<String>, String, ConnectionInfo) {
        match Address::parse(text).unwrap().0 {
            Place::Sentinels { sentinels, name, server } => {
                (sentinels.iter().map(|at| at.addr().to_string()).collect(), name, server)
            }
            other @ (Place::Server(_) | Place::Cluster(_)) => panic!("{:?}", Address(other)),
        }
    }

    #[test]
    fn an_address_with_sentinels_says_all_there_is_to_know() {
        let (at, name, server) = sentinels(
            "redis-sentinel://me:p%40ss@a,b:5,[::1],[::1]:7/3?sentinelServiceName=mymaster",
        );
        assert_eq!(at, ["a:26379", "b:5", "::1:26379", "::1:7"]);
        assert_eq!(name, "mymaster");
        let login = server.redis_settings();
        assert_eq!((login.username(), login.password()), (Some("me"), Some("p@ss")));
        assert_eq!(login.db(), 3);
    }

    #[test]
    fn the_login_of_the_server_is_not_that_of_the_sentinels() {
        let address = "redis-sentinel://:a@h/?sentinelServiceName=m&sentinelPassword=b";
        let Place::Sentinels { sentinels, server, .. } = Address::parse(address).unwrap().0 else {
            panic!("sentinels")
        };
        assert_eq!(server.redis_settings().password(), Some("a"));
        assert_eq!(sentinels[0].redis_settings().password(), Some("b"));
        assert_eq!(sentinels[0].redis_settings().db(), 0);
    }

    #[test]
    fn an_address_that_lacks_something_is_refused() {
        for text in [
            "redis-sentinel://h",
            "redis-sentinel://h?sentinelServiceName=",
            "redis-sentinel://?sentinelServiceName=m",
            "redis-sentinel://h?sentinelServiceName=m&master=m",
            "redis-sentinel://h:x?sentinelServiceName=m",
            "redis-sentinel://h/x?sentinelServiceName=m",
            "redis",
            "redis://",
            "redis://h?db=3",
            "rediss://h/1?insecure=1",
            "http://127.0.0.1/",
            "127.0.0.1",
            "",
        ] {
            let refused = Address::parse(text);
            assert!(matches!(refused, Err(Error::Config(_))), "{text}: {refused:?}");
        }
    }

    #[test]
    fn an_address_is_shown_as_it_is_written() {
        for (text, place) in [
            ("redis://[::1]:27030", "[::1]:27030"),
            ("redis://h:1/3?protocol=resp3", "h:1"),
            ("redis://:p%3Fq@h:1", "h:1"),
            ("redis-cluster://[::1]:1,h", "the cluster at [::1]:1, h:6379"),
            ("unix:///run/s?db=3", "/run/s"),
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), place, "{text}");
        }
    }

    #[test]
    fn no_password_is_shown() {
        for text in ["redis://:secret@h", "redis-sentinel://:secret@h/?sentinelServiceName=m"] {
            let address: Address = text.parse().unwrap();
            let shown = format!("{address:?} {address}");
            assert!(shown.contains('h') && !shown.contains("secret"), "{shown}");
        }
    }
}
