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
    /// Bytes that a node may lack before who writes waits for it, 0 for any; `None`: as the order sees
    /// fit.
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
    let lag_limit = lag_limit.map_err(|wrong| format!("cluster_lag_limit: {wrong}"))?;
    let lag_wait = match &lag_wait {
        Some(text) => crate::config::duration(text)
            .ok_or_else(|| format!("cluster_lag_wait: \"{text}\" is not a time such as 500ms or 5s"))?,
        None => LAG_WAIT,
    };
    let secret = secret.unwrap_or_default();
    Ok(Some(ClusterConfig { node, peers: all, secret, tls, log_kept, lag_limit, lag_wait }))
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
