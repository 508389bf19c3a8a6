//! What the configuration says of the cluster that a server is a node of.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use cognate_engine::NODE_MAX;
use cognate_replication::{Limits, PaceBounds};
use cognate_sql::session::FlowBounds;

/// A node's place in its cluster.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterConfig {
    /// This node's number.
    pub node: u16,
    /// Where each node listens for the others, this one included.
    pub peers: BTreeMap<u16, String>,
    /// What nodes know each other by; empty only where all of them are on this machine.
    pub secret: String,
    /// PEM files for connections between nodes, if these are encrypted: certificate, key, and whose
    /// certificates the others' have to be.
    pub tls: Option<[PathBuf; 3]>,
    /// Log in bytes that stays for nodes that are away; `None`: as the order sees fit.
    pub log_kept: Option<u64>,
    /// Bytes that a node may lack before who writes waits for it, 0 for any; `None`: as the order
    /// sees fit.
    pub lag_limit: Option<u64>,
    /// How long who writes waits then.
    pub lag_wait: Duration,
}

/// How long who writes waits for a slow node, unless something else is said.
const LAG_WAIT: Duration = Duration::from_secs(5);
/// A node that is slow for so many times as long is treated as one that catches up.
const WAITS: u32 = 3;

/// What a configuration says of the connections between nodes, and of what is kept for them.
pub(crate) struct Between {
    pub(crate) secret: Option<String>,
    pub(crate) tls: [Option<PathBuf>; 3],
    pub(crate) log_kept: Result<Option<u64>, String>,
    pub(crate) lag_limit: Result<Option<u64>, String>,
    pub(crate) lag_wait: Option<String>,
}

impl std::fmt::Debug for ClusterConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ClusterConfig { node, peers, .. } = self;
        f.debug_struct("ClusterConfig").field("node", node).field("peers", peers).finish_non_exhaustive()
    }
}

impl ClusterConfig {
    /// Which nodes are slow.
    pub(crate) fn pace(&self) -> PaceBounds {
        let usual = PaceBounds::default();
        PaceBounds {
            lag_bytes: self.lag_limit.unwrap_or(usual.lag_bytes),
            patience: self.lag_wait.saturating_mul(WAITS),
        }
    }

    /// When who writes waits for them.
    pub(crate) fn flow(&self) -> FlowBounds {
        FlowBounds { lag_bytes: self.pace().lag_bytes, wait: self.lag_wait, log_kept: self.log_kept() }
    }

    /// Bytes of the log that stay for nodes that are away.
    pub(crate) fn log_kept(&self) -> u64 {
        self.log_kept.unwrap_or_else(|| Limits::default().kept_bytes)
    }
}

/// The cluster, if this is a node of one.
pub(crate) fn cluster(
    node: Option<u16>,
    peers: Option<&str>,
    between: Between,
) -> Result<Option<ClusterConfig>, String> {
    let Between { secret, tls, log_kept, lag_limit, lag_wait } = between;
    let (node, peers) = match (node, peers) {
        (None, None) => return Ok(None),
        (Some(node), Some(peers)) => (node, peers),
        (Some(_), None) => {
            return Err("node: the nodes of its cluster are missing: set peers".into());
        }
        (None, Some(_)) => return Err("peers: which of them is this one? Set node".into()),
    };
    let mut all = BTreeMap::new();
    for text in peers.split(',').map(str::trim) {
        let (number, address) = peer(text)?;
        if all.insert(number, address).is_some() {
            return Err(format!("peers: there are two nodes {number}"));
        }
    }
    if !all.contains_key(&node) {
        return Err(format!("node: {node} is not among the peers"));
    }
    // It would find itself where the other one should be.
    let own = all.get(&node);
    let same = all.iter().find(|(other, address)| **other != node && Some(*address) == own);
    if let Some((other, address)) = same {
        return Err(format!("peers: node {other} is said to be where node {node} listens, at {address}"));
    }
    let is_local = |address: &String| {
        let host = address.rsplit_once(':').map_or("", |(host, _)| host).trim_matches(['[', ']']);
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
    };
    if secret.is_none() && !all.values().all(is_local) {
        return Err(
            "peers: they can be reached from other machines, so a secret is needed: set --cluster-secret-file"
                .to_owned(),
        );
    }
    let tls = match tls {
        [None, None, None] => None,
        [Some(certificate), Some(key), Some(authority)] => Some([certificate, key, authority]),
        _ => {
            return Err(
                "cluster_tls: certificate, key and authority belong together: set all three".to_owned()
            );
        }
    };
    let log_kept = log_kept.map_err(|wrong| format!("cluster_log_kept: {wrong}"))?;
    let lag_limit = lag_limit.map_err(|wrong| format!("cluster_lag_limit: {wrong}"))?;
    let lag_wait = match &lag_wait {
        Some(text) => crate::amount::duration(text)
            .ok_or_else(|| format!("cluster_lag_wait: \"{text}\" is not a time such as 500ms or 5s"))?,
        None => LAG_WAIT,
    };
    let secret = secret.unwrap_or_default();
    Ok(Some(ClusterConfig { node, peers: all, secret, tls, log_kept, lag_limit, lag_wait }))
}

/// An entry of the list: a node's number, and where it listens for the others.
fn peer(text: &str) -> Result<(u16, String), String> {
    let wrong = || format!("peers: \"{text}\" is not NUMBER=HOST:PORT");
    let (number, address) = text.split_once('=').ok_or_else(wrong)?;
    let number: u16 = number.trim().parse().map_err(|_| wrong())?;
    let address = address.trim();
    let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
    let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
    if host.is_empty() || host.contains(char::is_whitespace) || !is_port {
        return Err(wrong());
    }
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    if host.contains(':') && !is_bracketed {
        // Where the address ends and the port begins, nobody can tell.
        return Err(format!("peers: \"{text}\": write an IPv6 address in brackets, as NUMBER=[HOST]:PORT"));
    }
    if !(1..=NODE_MAX).contains(&number) {
        return Err(format!("peers: nodes are numbered from 1 to {NODE_MAX}, not {number}"));
    }
    Ok((number, address.to_owned()))
}

/// A node cannot have settings that would decide otherwise than other nodes.
pub(crate) fn check(
    cluster: Option<&ClusterConfig>,
    serializable: Option<&str>,
    lock_release: Option<&str>,
) -> Result<(), String> {
    let pssi = serializable.is_none_or(|method| method == "pssi");
    let early = lock_release.is_none_or(|when| when == "early");
    match cluster.is_none() || pssi && early {
        true => Ok(()),
        false => Err("node: nodes of a cluster certify by pssi and release locks early; serializable and \
             lock_release cannot say otherwise"
            .to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(node: u16, peers: &str) -> Result<BTreeMap<u16, String>, String> {
        let between = Between {
            secret: Some("s".to_owned()),
            tls: [None, None, None],
            log_kept: Ok(None),
            lag_limit: Ok(None),
            lag_wait: None,
        };
        let cluster = cluster(Some(node), Some(peers), between)?;
        Ok(cluster.map(|cluster| cluster.peers).unwrap_or_default())
    }

    #[test]
    fn addresses_are_names_or_numbers_of_either_kind() {
        let peers = read(2, " 1=db-1.example:7433 , 2 = 10.0.0.2:7433,3=[2001:db8::3]:7433").expect("a list");
        let addresses: Vec<&str> = peers.values().map(String::as_str).collect();
        assert_eq!(addresses, ["db-1.example:7433", "10.0.0.2:7433", "[2001:db8::3]:7433"]);
    }

    #[test]
    fn lists_that_cannot_be_meant_are_refused() {
        for (peers, expected) in [
            ("", "peers: \"\" is not NUMBER=HOST:PORT"),
            ("1=a:1,", "peers: \"\" is not NUMBER=HOST:PORT"),
            ("a:1", "peers: \"a:1\" is not NUMBER=HOST:PORT"),
            ("one=a:1", "peers: \"one=a:1\" is not NUMBER=HOST:PORT"),
            ("1=:1", "peers: \"1=:1\" is not NUMBER=HOST:PORT"),
            ("1=a:0", "peers: \"1=a:0\" is not NUMBER=HOST:PORT"),
            ("1=a:65536", "peers: \"1=a:65536\" is not NUMBER=HOST:PORT"),
            ("1=a b:1", "peers: \"1=a b:1\" is not NUMBER=HOST:PORT"),
            ("1=2001:db8::3:7433", "write an IPv6 address in brackets"),
            ("0=a:1", "peers: nodes are numbered from 1 to 15, not 0"),
            ("1=a:1,1=a:1", "peers: there are two nodes 1"),
            ("2=a:1", "node: 1 is not among the peers"),
            ("1=a:1,2=b:1,3=a:1", "peers: node 3 is said to be where node 1 listens, at a:1"),
        ] {
            let refused = read(1, peers).expect_err(peers);
            assert!(refused.contains(expected), "{peers}: {refused}");
        }
    }
}
