//! Addresses: one server, Sentinels or a cluster.

use crate::wire::error::Error;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};
use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

/// Host and port of a server.
pub(crate) type At = (String, u16);

/// Returns an address of the same kind, with or without TLS, for another host and port.
pub(crate) fn moved(kind: &ConnectionAddr, (host, port): At) -> ConnectionAddr {
    if let ConnectionAddr::TcpTls { insecure, tls_params, .. } = kind.clone() {
        ConnectionAddr::TcpTls { host, port, insecure, tls_params }
    } else {
        ConnectionAddr::Tcp(host, port)
    }
}

/// Address of one server, of a primary that Sentinels monitor, or of a cluster.
///
/// [`Client::connect`](crate::Client::connect) also accepts it as a string:
///
/// | form | |
/// |---|---|
/// | `redis://[user:password@]host[:port][/db]` | one server; `rediss://` with TLS; also `unix://` and other forms that redis-rs reads |
/// | `redis-sentinel://[user:password@]host[:port][,host[:port]…][/db]?sentinelServiceName=name` | the primary that these Sentinels know by this name; `rediss-sentinel://` with TLS, for the Sentinels too |
/// | `redis-cluster://[user:password@]host[:port][,host[:port]…]` | the cluster that has these nodes; `rediss-cluster://` with TLS |
///
/// The default port of a Sentinel is 26379. The login is for the server. If the Sentinels require a
/// login, add the parameters `sentinelUsername=` and `sentinelPassword=`. In a password, write every
/// character that is not a letter or digit as `%` and two hexadecimal digits. Name all Sentinels: the
/// client asks only the named ones.
///
/// The client gets the list of a cluster's nodes from any node that answers, so name some that do not
/// fail together. `?node=host:port` also names a node. All nodes have the same login. With TLS, each
/// node's certificate must be for the name or address that the nodes report to clients
/// (`cluster-preferred-endpoint-type`). On Redis 7.0 `tls-cluster` must be on: without it the nodes do
/// not report their TLS ports.
///
/// Connections with TLS always use RESP3.
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
        /// Name of the primary at the Sentinels.
        name: String,
        /// Login, database and TLS settings of the primary. Host and port are ignored.
        server: ConnectionInfo,
    },
    /// Some nodes of a cluster. The login and TLS settings of the first one are used for all.
    Cluster(Vec<ConnectionInfo>),
}

impl Address {
    /// Returns the address of the primary that these Sentinels know as `name`. `server` has the login,
    /// database and TLS settings for it; its host and port are ignored.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if there is no Sentinel or no name, or if `server` is a Unix socket.
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
            return Err(invalid(
                "sentinelServiceName is missing: the name of the primary at its Sentinels",
            ));
        }
        if matches!(server.addr(), ConnectionAddr::Unix(_)) {
            return Err(invalid("a server behind Sentinels has no Unix socket"));
        }
        Ok(Self(Place::Sentinels { sentinels, name, server }))
    }

    /// Returns the address of the cluster that has these nodes. The login and TLS settings of the first
    /// one are used for all nodes.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if there is no node, or if one is a Unix socket.
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
        let Some(first) = nodes.first() else {
            return Err(invalid("no node of the cluster is named"));
        };
        let with_settings_of_first = |node: &ConnectionInfo| match node.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                let at = moved(first.addr(), (host.clone(), *port));
                Ok(first.clone().set_addr(at))
            }
            ConnectionAddr::Unix(_) | _ => Err(invalid("a node of a cluster has no Unix socket")),
        };
        let nodes = nodes.iter().map(with_settings_of_first).collect::<Result<_, _>>()?;
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

/// Refuses every parameter other than `protocol` in an address with a host: redis-rs would ignore it.
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

/// Parts of an address with several hosts, after the scheme.
struct Parts<'a> {
    /// User name and password with the `@`, or empty.
    login: String,
    hosts: Vec<&'a str>,
    path: &'a str,
    /// Name and value; `None` for a parameter without `=`.
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

/// Parses the text after `redis-cluster://`. redis-rs reads each node as an address of its own.
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

/// Parses the text after `redis-sentinel://`. redis-rs reads each Sentinel, and the server, as an address of
/// its own.
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

/// Returns whether the host is followed by a port. Ignores the colons of an IPv6 address in brackets.
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
    /// Writes the address without the login.
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

/// Returns the address as it is written in a URL: an IPv6 address in brackets.
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

    #[test]
    fn all_nodes_of_a_cluster_have_the_settings_of_the_first() {
        let schemes = [("redis", true), ("rediss", cfg!(feature = "tls-rustls"))];
        for (scheme, _) in schemes.into_iter().filter(|(_, is_built)| *is_built) {
            let nodes = [format!("{scheme}://me:secret@a:1"), "redis://b:2".to_owned()];
            let nodes = nodes.map(|node| node.into_connection_info().unwrap());
            let Place::Cluster(nodes) = Address::cluster(nodes).unwrap().0 else { panic!() };
            let names = nodes.iter().map(|node| node.addr().to_string());
            assert_eq!(names.collect::<Vec<_>>(), ["a:1", "b:2"]);
            for node in nodes {
                let is_tls = matches!(node.addr(), ConnectionAddr::TcpTls { .. });
                assert_eq!(is_tls, scheme == "rediss", "{}", node.addr());
                let login = node.redis_settings();
                assert_eq!((login.username(), login.password()), (Some("me"), Some("secret")));
            }
        }
    }

    fn sentinels(text: &str) -> (Vec<String>, String, ConnectionInfo) {
        match Address::parse(text).unwrap().0 {
            Place::Sentinels { sentinels, name, server } => {
                (sentinels.iter().map(|at| at.addr().to_string()).collect(), name, server)
            }
            other @ (Place::Server(_) | Place::Cluster(_)) => panic!("{:?}", Address(other)),
        }
    }

    #[test]
    fn an_address_can_hold_all_settings_of_sentinels() {
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
    fn server_and_sentinels_have_separate_logins() {
        let address = "redis-sentinel://:a@h/?sentinelServiceName=m&sentinelPassword=b";
        let Place::Sentinels { sentinels, server, .. } = Address::parse(address).unwrap().0 else {
            panic!("sentinels")
        };
        assert_eq!(server.redis_settings().password(), Some("a"));
        assert_eq!(sentinels[0].redis_settings().password(), Some("b"));
        assert_eq!(sentinels[0].redis_settings().db(), 0);
    }

    #[test]
    fn an_incomplete_address_is_refused() {
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
