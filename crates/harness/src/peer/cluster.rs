//! A cluster of Cognate as its users run it: each node a `cognate serve` with a folder and ports of
//! its own, all on loopback.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use tempfile::TempDir;

use super::cognate::CognateOptions;
use super::{START_LIMIT, System, free_ports, fresh_folder};
use crate::error::{DatabaseContext, Error, IoContext, Result};

/// How long nodes may take to show what another one has committed, or to agree on a leader.
const PATIENCE: Duration = Duration::from_secs(30);

/// The nodes; stopped when dropped.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<System>,
    /// Of the file of the secret.
    _folder: TempDir,
}

impl Cluster {
    /// Starts so many nodes on fresh folders. They form the cluster by themselves.
    ///
    /// # Errors
    /// A node that does not start.
    pub async fn start(options: &CognateOptions, size: usize) -> Result<Cluster> {
        let folder = fresh_folder(options.directory.as_deref())?;
        let secret = folder.path().join("secret");
        std::fs::write(&secret, "a secret of benchmarks\n").doing("writing the cluster's secret")?;
        let ports = free_ports(size)?;
        let peer = |(at, port): (usize, &u16)| format!("{}=127.0.0.1:{port}", at + 1);
        let peers = ports.iter().enumerate().map(peer).collect::<Vec<String>>().join(",");
        // Side by side: one alone waits for a majority.
        let nodes = (1..=size).map(|node| {
            let mut options = options.clone();
            let secret = secret.display().to_string();
            for (name, value) in
                [("--node", node.to_string()), ("--peers", peers.clone()), ("--cluster-secret-file", secret)]
            {
                options.extra.extend([name.to_owned(), value]);
            }
            async move { System::start_node(format!("cognate, node {node}"), &options).await }
        });
        let nodes = try_join_all(nodes).await?;
        Ok(Cluster { nodes, _folder: folder })
    }

    /// All nodes, the first one first.
    pub fn nodes(&self) -> &[System] {
        &self.nodes
    }

    /// The folder of a node, and its process.
    pub fn folder_and_process(&mut self, place: usize) -> Option<(PathBuf, u32)> {
        let server = self.nodes[place].cognate()?;
        Some((server.data(), server.process_id()))
    }

    /// Waits until every node shows what the first one has committed.
    ///
    /// # Errors
    /// A node that does not answer, or not in time.
    pub async fn settle(&self) -> Result<()> {
        let first = self.nodes[0].client().await?;
        let doing = "asking for the newest commit";
        // A commit of its own, so that its token is behind all that went before.
        let mark = "DROP TABLE IF EXISTS settled; CREATE TABLE settled (at int)";
        first.batch_execute(mark).await.at(&self.nodes[0].name, doing)?;
        let row = first.query_one("SHOW cognate.commit_token", &[]).await.at(&self.nodes[0].name, doing)?;
        let token: String = row.get(0);
        for node in &self.nodes {
            let client = node.client().await?;
            let text = format!("SET cognate.read_after = '{token}'; SELECT count(*) FROM settled");
            let asked = tokio::time::timeout(PATIENCE, client.batch_execute(&text)).await;
            asked
                .map_err(|_| Error::Timeout(format!("{}: does not show a commit in time", node.name)))?
                .at(&node.name, "waiting for a commit of another node")?;
        }
        Ok(())
    }

    /// The place of the node that leads, as the node at `asked` knows it.
    ///
    /// # Errors
    /// If there is none in time.
    pub async fn leader(&self, asked: usize) -> Result<usize> {
        let node = &self.nodes[asked];
        let (client, started) = (node.client().await?, Instant::now());
        let text = "SELECT node::int8 FROM cognate_nodes WHERE role = 'leader' AND state = 'serving'";
        while started.elapsed() < PATIENCE {
            let rows = client.query(text, &[]).await.at(&node.name, "asking who leads")?;
            if let [row] = &rows[..] {
                let number: i64 = row.get(0);
                return Ok(number as usize - 1);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err(Error::Timeout(format!("{}: knows no leader", node.name)))
    }

    /// Ends a node at once, as `kill -9` does.
    ///
    /// # Errors
    /// If the operating system refuses.
    pub fn kill(&mut self, place: usize) -> Result<()> {
        match self.nodes[place].cognate() {
            Some(server) => server.kill(),
            None => Ok(()),
        }
    }

    /// Starts a node again that was killed, and waits until it serves.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn restart(&mut self, place: usize) -> Result<()> {
        let Some(server) = self.nodes[place].cognate() else { return Ok(()) };
        let restarted = tokio::time::timeout(START_LIMIT, server.restart()).await;
        restarted.map_err(|_| Error::Timeout("a node did not start again in time".to_owned()))?.map(drop)
    }

    /// Starts a node again that was killed, without anything that it had, and has another one let
    /// it join: it receives everything. Waits until it serves.
    ///
    /// # Errors
    /// If it does not start, or the other one refuses.
    pub async fn join_empty(&mut self, place: usize, asked: usize, limit: Duration) -> Result<()> {
        let [joining, other] = self
            .nodes
            .get_disjoint_mut([place, asked])
            .map_err(|_| Error::Usage("a node joins by the help of another one of the cluster".to_owned()))?;
        let (Some(joining), Some(other)) = (joining.cognate(), other.cognate()) else { return Ok(()) };
        joining.wipe()?;
        let number = (place + 1).to_string();
        let words = ["rebuild", &number];
        let both = async { tokio::try_join!(joining.restart(), other.manage(&words)) };
        let joined = tokio::time::timeout(limit, both).await;
        joined.map_err(|_| Error::Timeout("a node did not join in time".to_owned()))?.map(drop)
    }
}
