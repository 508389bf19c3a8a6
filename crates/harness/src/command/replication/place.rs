//! Servers that have the table, and the check of what is in it.

use std::time::{Duration, Instant};

#[cfg(feature = "galera")]
use super::NODES;
use super::{Bench, ReplicationArgs};
use crate::driver::Outcome;
use crate::error::{DatabaseContext, Error, Result};
use crate::peer::System;
use crate::peer::cluster::Cluster;
use crate::peer::cognate::CognateOptions;
use crate::peer::postgres::PostgresOptions;
use crate::workload::updates::{Shape, Target};

const SUM: &str = "SELECT sum(v) FROM counters";
/// How long standbys may take until they follow.
const PATIENCE: Duration = Duration::from_secs(60);

/// The servers behind a place; stopped with it.
pub(super) enum Servers {
    /// Of Cognate, or of PostgreSQL with its standbys behind it.
    Each(Vec<System>),
    /// Of Cognate, as one database.
    Cluster(Cluster),
    /// MariaDB's; none if they run already.
    #[cfg(feature = "galera")]
    Galera { _started: Option<crate::peer::galera::Galera> },
}

/// One database, on one node or several.
pub(super) struct Place {
    /// `cognate`, `postgres` or `galera`.
    pub(super) system: &'static str,
    pub(super) version: String,
    /// What a commit waits for.
    pub(super) durable: &'static str,
    /// Where clients connect: one for each node that takes updates.
    pub(super) targets: Vec<Target>,
    pub(super) servers: Servers,
    /// Rows that acknowledged transactions have counted up, and those whose end nobody knows.
    counted: u64,
    unknown: u64,
}

impl Place {
    fn new(system: &'static str, version: &str, durable: &'static str, servers: Servers) -> Place {
        let target = |node: &System| Target::Postgres(Box::new(node.config().clone()));
        let targets = match &servers {
            // Standbys take no updates.
            Servers::Each(nodes) => nodes[..1].iter().map(target).collect(),
            Servers::Cluster(cluster) => cluster.nodes().iter().map(target).collect(),
            #[cfg(feature = "galera")]
            Servers::Galera { .. } => Vec::new(),
        };
        let version = version.to_owned();
        Place { system, version, durable, targets, servers, counted: 0, unknown: 0 }
    }

    /// One node of Cognate by itself: of this build, or of an older binary.
    pub(super) async fn single(args: &ReplicationArgs, older: Option<&std::path::Path>) -> Result<Place> {
        let mut options = args.server.cognate();
        if let Some(older) = older {
            options.binary = Some(older.to_owned());
        }
        let node = System::start_cognate(&options).await?;
        let version = node.version.clone();
        Ok(Place::new("cognate", &version, "flushed", Servers::Each(vec![node])))
    }

    /// So many nodes of Cognate.
    pub(super) async fn cluster(args: &ReplicationArgs, size: usize) -> Result<Place> {
        Place::cluster_of(&args.server.cognate(), size).await
    }

    /// The same of an older binary.
    pub(super) async fn older_cluster(
        args: &ReplicationArgs,
        size: usize,
        older: &std::path::Path,
    ) -> Result<Place> {
        let options = CognateOptions { binary: Some(older.to_owned()), ..args.server.cognate() };
        Place::cluster_of(&options, size).await
    }

    async fn cluster_of(options: &CognateOptions, size: usize) -> Result<Place> {
        let spinner = crate::progress::spinner(&format!("cognate: starting {size} nodes"));
        let cluster = Cluster::start(options, size).await?;
        spinner.finish_and_clear();
        let version = cluster.nodes()[0].version.clone();
        Ok(Place::new("cognate", &version, "flushed at a majority", Servers::Cluster(cluster)))
    }

    /// PostgreSQL with two standbys, one of which has to have a commit on disk: as many as a
    /// majority of three has beside the first.
    pub(super) async fn postgres(args: &ReplicationArgs) -> Result<Place> {
        let mut nodes = Vec::new();
        if let Some(url) = &args.postgres {
            nodes.push(System::connect(url).await?);
        } else {
            let spinner = crate::progress::spinner("postgres: starting it and two standbys");
            nodes.push(System::start_postgres(&args.server.postgres()).await?);
            let small =
                PostgresOptions { shared_buffers: Some("256MB".to_owned()), ..args.server.postgres() };
            for name in ["s1", "s2"] {
                let standby = nodes[0].start_standby(name, &small).await?;
                nodes.push(standby);
            }
            wait_for_standbys(&nodes[0]).await?;
            spinner.finish_and_clear();
        }
        let version = nodes[0].version.clone();
        let durable = "synchronous_commit = on, ANY 1 of two standbys";
        Ok(Place::new("postgres", &version, durable, Servers::Each(nodes)))
    }

    /// Three nodes of Galera.
    #[cfg(feature = "galera")]
    pub(super) async fn galera(args: &ReplicationArgs) -> Result<Place> {
        let read = |url: &String| {
            let opts = mysql_async::Opts::from_url(url);
            // Over TCP, as the others.
            let opts = opts.map(|opts| mysql_async::OptsBuilder::from_opts(opts).prefer_socket(false).into());
            // The address is not repeated: there may be a password in it.
            opts.map_err(|error| Error::Usage(format!("--galera: {error}")))
        };
        let given = args.galera.iter().map(read).collect::<Result<Vec<mysql_async::Opts>>>()?;
        let (opts, version, started) = if given.is_empty() {
            let spinner = crate::progress::spinner("galera: starting three nodes");
            let started = crate::peer::galera::Galera::start(args.server.directory.as_deref(), NODES).await?;
            spinner.finish_and_clear();
            (started.nodes(), started.version.clone(), Some(started))
        } else {
            (given, "connected".to_owned(), None)
        };
        let durable = "innodb_flush_log_at_trx_commit = 1 at each node; ordered at all of them";
        let mut place = Place::new("galera", &version, durable, Servers::Galera { _started: started });
        place.targets = opts.into_iter().map(Target::Galera).collect();
        Ok(place)
    }

    #[cfg(not(feature = "galera"))]
    pub(super) async fn galera(_: &ReplicationArgs) -> Result<Place> {
        let why = "this program has no driver for it: build it with `--features galera`";
        Err(Error::Missing(why.to_owned()))
    }

    /// Runs statements at the first node, one after the other.
    pub(super) async fn execute(&self, statements: &[String]) -> Result<()> {
        match &self.targets[0] {
            Target::Postgres(config) => {
                let client = crate::peer::connect(config).await.at(self.system, "connecting")?;
                for statement in statements {
                    let doing: String = statement.chars().take(60).collect();
                    client.batch_execute(statement).await.at(self.system, doing)?;
                }
            }
            #[cfg(feature = "galera")]
            Target::Galera(opts) => {
                use mysql_async::prelude::Queryable;
                let mut client = crate::peer::galera::connect(opts).await?;
                for statement in statements {
                    let doing: String = statement.chars().take(60).collect();
                    let done = client.query_drop(statement).await;
                    done.map_err(|error| crate::peer::galera::failed(&doing, &error))?;
                }
                drop(client.disconnect().await);
            }
        }
        Ok(())
    }

    /// Makes the table and fills it; every node shows it then.
    pub(super) async fn fill(&self, shape: &Shape) -> Result<()> {
        let spinner = crate::progress::spinner(&format!("{}: loading", self.system));
        self.execute(&shape.statements()).await?;
        if self.system == "postgres" {
            self.execute(&["VACUUM ANALYZE counters".to_owned(), "CHECKPOINT".to_owned()]).await?;
        }
        self.settle().await?;
        spinner.finish_and_clear();
        Ok(())
    }

    /// Waits until every node shows what the first one has.
    pub(super) async fn settle(&self) -> Result<()> {
        match &self.servers {
            Servers::Each(_) => Ok(()),
            Servers::Cluster(cluster) => cluster.settle().await,
            #[cfg(feature = "galera")]
            Servers::Galera { .. } => {
                for target in &self.targets {
                    self.sum(target).await?;
                }
                Ok(())
            }
        }
    }

    /// Remembers what a run counted up in the table.
    pub(super) fn note(&mut self, outcome: &Outcome, updates: usize) {
        let total = outcome.total();
        self.counted += total.acknowledged * updates as u64;
        self.unknown += total.unknown * updates as u64;
    }

    /// Remembers updates that were acknowledged.
    pub(super) fn note_committed(&mut self, updates: u64) {
        self.counted += updates;
    }

    /// Updates that may have been made here, or elsewhere.
    pub(super) fn note_unknown(&mut self, updates: u64) {
        self.unknown += updates;
    }

    /// Each acknowledged transaction happened once, and nothing else, at every node.
    ///
    /// # Errors
    /// `Violation` if not.
    pub(super) async fn check(&self) -> Result<()> {
        self.settle().await?;
        for (at, target) in self.targets.iter().enumerate() {
            let found = self.sum(target).await?;
            let (counted, at_most) = (self.counted as i64, (self.counted + self.unknown) as i64);
            if found < counted || found > at_most {
                return Err(Error::Violation(format!(
                    "{}, node {}: {counted} UPDATES WERE ACKNOWLEDGED, {} OF UNKNOWN END, AND {found} ARE THERE",
                    self.system,
                    at + 1,
                    self.unknown
                )));
            }
        }
        Ok(())
    }

    /// The sum over the table as a node shows it, once it has what was committed before at any.
    async fn sum(&self, target: &Target) -> Result<i64> {
        match target {
            Target::Postgres(config) => {
                let client = crate::peer::connect(config).await.at(self.system, "connecting")?;
                let row = client.query_one(SUM, &[]).await.at(self.system, SUM)?;
                Ok(row.get(0))
            }
            #[cfg(feature = "galera")]
            Target::Galera(opts) => {
                use mysql_async::prelude::Queryable;
                let mut client = crate::peer::galera::connect(opts).await?;
                let text = "SET SESSION wsrep_sync_wait = 1";
                client.query_drop(text).await.map_err(|error| crate::peer::galera::failed(text, &error))?;
                let sum: Result<Option<i64>, _> = client.query_first(SUM).await;
                let sum = sum.map_err(|error| crate::peer::galera::failed(SUM, &error))?;
                drop(client.disconnect().await);
                Ok(sum.unwrap_or_default())
            }
        }
    }
}

impl Bench<'_> {
    /// A place with the table, or none if its system is missing here.
    pub(super) async fn filled(&mut self, what: &str, started: Result<Place>) -> Result<Option<Place>> {
        let place = self.unless_missing(what, started)?;
        if let Some(place) = &place {
            place.fill(&self.shape(super::throughput::UPDATES)).await?;
        }
        Ok(place)
    }
}

/// Names the standbys to their primary as those it has to wait for, and waits until both follow.
async fn wait_for_standbys(primary: &System) -> Result<()> {
    let client = primary.client().await?;
    for text in ["ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (s1, s2)'", "SELECT pg_reload_conf()"] {
        client.batch_execute(text).await.at(&primary.name, text)?;
    }
    let text = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = 'quorum'";
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        let row = client.query_one(text, &[]).await.at(&primary.name, text)?;
        if row.get::<_, i64>(0) == 2 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err(Error::Timeout("postgres: its standbys do not follow".to_owned()))
}
