//! A Galera cluster of its own: MariaDB servers from the installed binaries, durable, on free
//! loopback ports.
//!
//! The settings are those of a careful small installation: `innodb_flush_log_at_trx_commit = 1`,
//! snapshot isolation as REPEATABLE READ (`innodb_snapshot_isolation`), two appliers for the two
//! cores that such machines have. The first node is made alone; the others copy its data by rsync
//! when they join. MariaDB refuses to run as root, so a harness that runs as root starts it as user
//! `mysql`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder};
use tempfile::TempDir;

use super::owner::{Owner, own};
use super::{START_LIMIT, first_file, free_ports, fresh_folder, in_path, reap, signal, tail};
use crate::error::{Error, IoContext, Result};

/// Which packages have the programs.
const PACKAGES: &str = "mariadb-server galera-4 rsync lsof";
/// The database of the benchmarks.
const DATABASE: &str = "bench";
/// Replication's library, where Debian and others have it.
const PROVIDERS: [&str; 4] = [
    "/usr/lib/galera/libgalera_smm.so",
    "/usr/lib64/galera/libgalera_smm.so",
    "/usr/lib/libgalera_smm.so",
    "/usr/lib64/galera-4/libgalera_smm.so",
];

/// The nodes; stopped when dropped.
#[derive(Debug)]
pub struct Galera {
    nodes: Vec<Node>,
    /// What the servers call themselves.
    pub version: String,
}

/// A running MariaDB.
#[derive(Debug)]
struct Node {
    child: Child,
    folder: TempDir,
    ports: Ports,
}

/// Where a node listens.
#[derive(Clone, Copy, Debug)]
struct Ports {
    sql: u16,
    group: u16,
    increments: u16,
    transfer: u16,
}

impl Galera {
    /// Starts so many nodes on fresh folders.
    ///
    /// # Errors
    /// `Missing` with the packages to install, and a node that does not start.
    pub async fn start(parent: Option<&Path>, size: usize) -> Result<Galera> {
        let programs = Programs::find()?;
        let free = free_ports(4 * size)?;
        let of =
            |four: &[u16]| Ports { sql: four[0], group: four[1], increments: four[2], transfer: four[3] };
        let all: Vec<Ports> = free.chunks_exact(4).map(of).collect();
        let mut nodes: Vec<Node> = Vec::new();
        for (at, &ports) in all.iter().enumerate() {
            nodes.push(Node::start(&programs, parent, at, ports, &all).await?);
        }
        let mut first = connect(&nodes[0].opts(None)).await?;
        for text in [
            format!("CREATE DATABASE {DATABASE}"),
            "CREATE USER bench@'127.0.0.1'".to_owned(),
            "GRANT ALL ON *.* TO bench@'127.0.0.1'".to_owned(),
        ] {
            first.query_drop(&text).await.map_err(|error| failed(&text, &error))?;
        }
        let version = first.query_first("SELECT version()").await;
        let version: Option<String> = version.map_err(|error| failed("asking for the version", &error))?;
        drop(first.disconnect().await);
        Ok(Galera { nodes, version: version.unwrap_or_default() })
    }

    /// How to connect to each node.
    pub fn nodes(&self) -> Vec<Opts> {
        self.nodes.iter().map(|node| node.opts(Some(DATABASE))).collect()
    }
}

/// Opens a connection.
///
/// # Errors
/// If the server does not take it.
pub async fn connect(opts: &Opts) -> Result<Conn> {
    Conn::new(opts.clone()).await.map_err(|error| failed("connecting", &error))
}

/// What MariaDB or its driver said, where the run cannot go on.
pub fn failed(doing: &str, error: &mysql_async::Error) -> Error {
    Error::Database { system: "galera".to_owned(), doing: doing.to_owned(), message: error.to_string() }
}

/// What has to be installed.
struct Programs {
    server: PathBuf,
    install: PathBuf,
    provider: PathBuf,
    owner: Option<Owner>,
}

impl Programs {
    fn find() -> Result<Programs> {
        let missing = |what: &str| {
            Error::Missing(format!("Galera's {what} was not found; on Debian: apt-get install {PACKAGES}"))
        };
        let folders = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"].map(Path::new);
        let program = |name: &str| {
            let found = in_path(name).or_else(|| first_file(folders.map(|folder| folder.join(name))));
            found.ok_or_else(|| missing(&format!("program {name}")))
        };
        for name in ["rsync", "wsrep_sst_rsync"] {
            program(name)?;
        }
        // The copying of data asks one of them who listens.
        program("lsof").or_else(|_| program("ss"))?;
        Ok(Programs {
            server: program("mariadbd")?,
            install: program("mariadb-install-db")?,
            provider: first_file(PROVIDERS.map(PathBuf::from))
                .ok_or_else(|| missing("library libgalera_smm.so"))?,
            owner: Owner::find("MariaDB", "mysql", "mariadb-server")?,
        })
    }

    fn command(&self, program: &Path, settings: &Path) -> Command {
        let mut command = Command::new(program);
        // The scripts of the copying are looked for along the path.
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/sbin:/sbin:/usr/bin:/bin")).env("LC_ALL", "C");
        command.arg(format!("--defaults-file={}", settings.display())).stdin(Stdio::null());
        own(&mut command, self.owner);
        command
    }

    fn owned(&self, path: &Path) -> Result<()> {
        self.owner.map_or(Ok(()), |owner| owner.give(path))
    }
}

impl Node {
    async fn start(
        programs: &Programs,
        parent: Option<&Path>,
        at: usize,
        ports: Ports,
        all: &[Ports],
    ) -> Result<Node> {
        let folder = fresh_folder(parent)?;
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700))
            .doing("protecting a folder")?;
        programs.owned(folder.path())?;
        let temporary = folder.path().join("tmp");
        std::fs::create_dir(&temporary).doing("creating a folder")?;
        programs.owned(&temporary)?;
        let settings = folder.path().join("my.cnf");
        std::fs::write(&settings, text(programs, folder.path(), at, ports, all)).doing("writing my.cnf")?;
        programs.owned(&settings)?;
        let made = programs
            .command(&programs.install, &settings)
            .args(["--auth-root-authentication-method=normal", "--skip-test-db", "--wsrep-on=OFF"])
            .current_dir(folder.path())
            .output()
            .doing("running mariadb-install-db")?;
        if !made.status.success() {
            let said = String::from_utf8_lossy(&made.stderr).into_owned();
            return Err(Error::Server(format!("mariadb-install-db failed ({})\n{said}", made.status)));
        }
        let log = std::fs::File::create(folder.path().join("server.log")).doing("creating a log")?;
        let error_log = log.try_clone().doing("creating a log")?;
        let mut command = programs.command(&programs.server, &settings);
        if at == 0 {
            command.arg("--wsrep-new-cluster");
        }
        command.current_dir(folder.path()).stdout(log).stderr(error_log);
        let child = command.spawn().doing("starting mariadbd")?;
        let mut node = Node { child, folder, ports };
        node.wait_synced().await?;
        Ok(node)
    }

    fn opts(&self, database: Option<&str>) -> Opts {
        let user = if database.is_some() { "bench" } else { "root" };
        OptsBuilder::default()
            .ip_or_hostname("127.0.0.1")
            .tcp_port(self.ports.sql)
            .user(Some(user))
            .db_name(database)
            // Over TCP, as the others.
            .prefer_socket(false)
            .into()
    }

    async fn wait_synced(&mut self) -> Result<()> {
        let log = self.folder.path().join("server.log");
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().doing("watching mariadbd")? {
                return Err(Error::Server(format!("mariadbd ended at its start ({status})\n{}", tail(&log))));
            }
            if let Ok(mut client) = Conn::new(self.opts(None)).await {
                let text = "SHOW STATUS LIKE 'wsrep_local_state_comment'";
                let state: Result<Option<(String, String)>, _> = client.query_first(text).await;
                drop(client.disconnect().await);
                if matches!(state, Ok(Some((_, state))) if state == "Synced") {
                    return Ok(());
                }
            }
            if started.elapsed() > 2 * START_LIMIT {
                return Err(Error::Server(format!("mariadbd was not in sync in time\n{}", tail(&log))));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The data go anyway; nothing is gained by a clean end.
        signal(&self.child, "KILL");
        reap(&mut self.child, Duration::from_secs(10));
    }
}

/// A node's settings.
fn text(programs: &Programs, folder: &Path, at: usize, ports: Ports, all: &[Ports]) -> String {
    let folder = folder.display();
    let addresses: Vec<String> = all.iter().map(|ports| format!("127.0.0.1:{}", ports.group)).collect();
    let Ports { sql, group, increments, transfer } = ports;
    format!(
        "[mariadbd]\n\
         datadir = {folder}/data\n\
         socket = {folder}/s\n\
         pid-file = {folder}/pid\n\
         tmpdir = {folder}/tmp\n\
         bind-address = 127.0.0.1\n\
         port = {sql}\n\
         skip-name-resolve\n\
         max_connections = 300\n\
         binlog_format = ROW\n\
         default_storage_engine = InnoDB\n\
         innodb_autoinc_lock_mode = 2\n\
         innodb_buffer_pool_size = 256M\n\
         innodb_log_file_size = 256M\n\
         innodb_flush_log_at_trx_commit = 1\n\
         innodb_snapshot_isolation = ON\n\
         transaction_isolation = REPEATABLE-READ\n\
         wsrep_on = ON\n\
         wsrep_provider = {}\n\
         wsrep_cluster_name = bench\n\
         wsrep_cluster_address = gcomm://{}\n\
         wsrep_node_name = n{at}\n\
         wsrep_node_address = 127.0.0.1:{group}\n\
         wsrep_node_incoming_address = 127.0.0.1:{sql}\n\
         wsrep_provider_options = \"gmcast.listen_addr=tcp://127.0.0.1:{group};\
         ist.recv_addr=127.0.0.1:{increments};gcache.size=256M;pc.recovery=FALSE\"\n\
         wsrep_sst_method = rsync\n\
         wsrep_sst_receive_address = 127.0.0.1:{transfer}\n\
         wsrep_slave_threads = 2\n",
        programs.provider.display(),
        addresses.join(",")
    )
}
