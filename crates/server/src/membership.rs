//! What the configuration says of the cluster that a server is a node of.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cognate_engine::NODE_MAX;

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
}

/// What a configuration says of the connections between nodes, and of what is kept for them.
pub(crate) struct Between {
    pub(crate) secret: Option<String>,
    pub(crate) tls: [Option<PathBuf>; 3],
    pub(crate) log_kept: Result<Option<u64>, String>,
}

impl std::fmt::Debug for ClusterConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ClusterConfig { node, peers, .. } = self;
        f.debug_struct("ClusterConfig").field("node", node).field("peers", peers).finish_non_exhaustive()
    }
}

/// The cluster, if this is a node of one.
pub(crate) fn cluster(
    node: Option<u16>,
    peers: Option<&str>,
    between: Between,
) -> Result<Option<ClusterConfig>, String> {
    let Between { secret, tls, log_kept } = between;
    let (node, peers) = match (node, peers) {
        (None, None) => return Ok(None),
        (Some(node), Some(peers)) => (node, peers),
        (Some(_), None) => {
            return Err("node: the nodes of its cluster are missing: set peers".into());
        }
        (None, Some(_)) => return Err("peers: which of them is this one? Set node".into()),
    };
    let mut all = BTreeMap::new();
    for peer in peers.split(',').map(str::trim) {
        let wrong = || format!("peers: \"{peer}\" is not NUMBER=HOST:PORT");
        let (number, address) = peer.split_once('=').ok_or_else(wrong)?;
        let number: u16 = number.trim().parse().map_err(|_| wrong())?;
        let port =
            address.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse());
        if !matches!(port, Some(Ok(1u16..))) {
            return Err(wrong());
        }
        if !(1..=NODE_MAX).contains(&number) {
            return Err(format!("peers: nodes are numbered from 1 to {NODE_MAX}, not {number}"));
        }
        if all.insert(number, address.to_owned()).is_some() {
            return Err(format!("peers: there are two nodes {number}"));
        }
    }
    if !all.contains_key(&node) {
        return Err(format!("node: {node} is not among the peers"));
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
    Ok(Some(ClusterConfig { node, peers: all, secret: secret.unwrap_or_default(), tls, log_kept }))
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
