//! Puts a server together and takes it apart again.
//!
//! Start: bind both ports (a port in use is found before any file is touched), answer `/health`
//! with "starting" and clients of a node with 57P03, open the database, accept clients. Stop:
//! accept nobody, let what runs finish for a grace time, cancel the rest, then checkpoint and
//! close. A client that is idle at the stop is told at once, also inside a block, which rolls back.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cognate_engine::{Database, Error, Node, Options};
use cognate_env::sim::LogDevice;
use cognate_env::{Disk, RealDisk};
pub use cognate_replication::TOLD_WITHOUT_END;
use cognate_replication::order::TotalOrder;
use cognate_sql::session::SqlDatabase;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::cluster::{self, Member};
use crate::config::Config;
use crate::crew::Crew;
use crate::http::{self, Ready, Starting as StartingOrder};
use crate::listener;
use crate::pg::door::Door;
use crate::pg::registry::Stop;
use crate::reload;
use crate::server::{Access, Server};
use crate::stub;

/// Time that cancelled statements get to notice it.
const CANCEL_GRACE: Duration = Duration::from_secs(10);
/// How often they are told.
const CANCEL_PERIOD: Duration = Duration::from_millis(50);

/// Why a server does not start, or did not close well: one message for a person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StartError(pub String);

/// A server that accepts clients.
pub struct Running {
    listen: SocketAddr,
    http: Option<SocketAddr>,
    server: Arc<Server>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    member: Option<Member>,
    config: Config,
}

/// A start under way. It is boxed so that a server is compiled in this crate, and not once more in
/// each that starts one.
pub type Starting = Pin<Box<dyn Future<Output = Result<Running, StartError>> + Send>>;

/// Starts a server. Done once clients are accepted.
pub fn start(config: Config) -> Starting {
    start_on(config, Arc::new(RealDisk))
}

/// The same with its data on a disk of the caller's, such as a simulated one.
#[inline(never)]
pub fn start_on(config: Config, disk: Arc<dyn Disk>) -> Starting {
    Box::pin(begin(config, disk))
}

async fn begin(config: Config, disk: Arc<dyn Disk>) -> Result<Running, StartError> {
    let access = Access::read(&config).map_err(StartError)?;
    let cannot_listen = |address: SocketAddr| {
        move |error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => StartError(format!("cannot listen on {address}: the port is in use")),
            _ => StartError(format!("cannot listen on {address}: {error}")),
        }
    };
    let clients = listener::bind(config.listen).map_err(cannot_listen(config.listen))?;
    let listen = clients.local_addr().map_err(cannot_listen(config.listen))?;
    let (stop, stopped) = watch::channel(false);
    let (ready, starting): (Ready, StartingOrder) = (Arc::new(OnceLock::new()), Arc::default());
    let mut tasks = Vec::new();
    let mut http_address = None;
    if let Some(address) = config.http {
        let socket = listener::bind(address).map_err(cannot_listen(address))?;
        http_address = Some(socket.local_addr().map_err(cannot_listen(address))?);
        tasks.push(tokio::spawn(http::serve(
            socket,
            (ready.clone(), starting.clone()),
            config.http_token.clone(),
            stopped.clone(),
        )));
    }
    let crew = match &config.cluster {
        Some(_) => Crew::start_for_node(config.worker_threads),
        None => Crew::start(config.worker_threads),
    };
    let crew = Arc::new(crew.map_err(no_threads)?);
    let opening = open(&config, &disk, &starting, &crew);
    let (clients, opened) = meanwhile_refused(clients, &config, &access, &starting, opening).await?;
    let (database, member) = opened?;
    let order = member.as_ref().map(Member::order);
    let server = serving(database, crew, access, &config, order);
    tasks.push(tokio::spawn(listener::accept(clients, server.clone(), stopped.clone())));
    let leads: stub::Leads = match &member {
        Some(member) => Box::new(member.leadership()),
        None => Box::new(|| true),
    };
    tasks.push(tokio::spawn(stub::run(server.clone(), config.site, leads, stopped)));
    let _ = ready.set(Arc::downgrade(&server));
    Ok(Running { listen, http: http_address, server, stop, tasks, member, config })
}

/// Waits for the opening. Clients of a node are told meanwhile that it is starting, for that can
/// take as long as the other nodes are away; a database of its own has only its files to read, and
/// they wait.
async fn meanwhile_refused<T>(
    clients: TcpListener,
    config: &Config,
    access: &Access,
    starting: &StartingOrder,
    opening: impl Future<Output = T>,
) -> Result<(TcpListener, T), StartError> {
    if config.cluster.is_none() {
        return Ok((clients, opening.await));
    }
    let door = Arc::new(Door::new(config, access.clone(), starting.clone()));
    let (open, is_open) = watch::channel(false);
    let refusing = tokio::spawn(listener::refuse(clients, door, is_open));
    let opened = opening.await;
    let _ = open.send(true);
    let clients = refusing.await;
    let clients = clients.map_err(|error| StartError(format!("the port for clients is lost: {error}")))?;
    Ok((clients, opened))
}

/// Opens the database, and takes part in its cluster. A node that is far behind is sent another
/// one's state, and opens again with that. The order runs where the crew has a place for it.
async fn open(
    config: &Config,
    disk: &Arc<dyn Disk>,
    starting: &StartingOrder,
    crew: &Crew,
) -> Result<(SqlDatabase, Option<Member>), StartError> {
    loop {
        let Some(cluster) = &config.cluster else {
            return Ok((open_database(config, Arc::clone(disk), None).await?, None));
        };
        let (node, joining) = cluster::join(cluster, &config.data)?;
        let database = open_database(config, Arc::clone(disk), Some(node)).await?;
        let (shared, data, files) = (database.clone(), config.data.clone(), Arc::clone(disk));
        let join = async move { Box::pin(joining.start(&shared, &data, files)).await };
        let joined = crew.order_runtime().spawn(join).await;
        let member = joined.map_err(|e| StartError(format!("taking part in the cluster failed: {e}")))??;
        *starting.lock() = Some(member.order());
        let is_level = Box::pin(member.caught_up(&database)).await;
        *starting.lock() = None;
        if is_level {
            return Ok((database, Some(member)));
        }
        Box::pin(member.stop()).await;
    }
}

pub(crate) fn no_threads(error: io::Error) -> StartError {
    StartError(format!("cannot start the serving threads: {error}"))
}

/// What the serving threads share.
pub(crate) fn serving(
    database: SqlDatabase,
    crew: Arc<Crew>,
    access: Access,
    config: &Config,
    order: Option<TotalOrder>,
) -> Arc<Server> {
    let server = Arc::new(Server::new(database, crew, access, config, order));
    server.database.healing().configure(config.in_doubt_push_after, config.application_servers.clone());
    server
}

/// Opens the engine and the SQL layer on a thread of their own: recovery reads files and takes its
/// time.
pub(crate) async fn open_database(
    config: &Config,
    disk: Arc<dyn Disk>,
    node: Option<Node>,
) -> Result<SqlDatabase, StartError> {
    let mut options = Options::new(&config.data).memory(config.memory_bytes);
    options.disk = disk;
    options.node = node;
    options.serializable = config.serializable;
    options.certifier_bytes = config.certifier_bytes;
    options.early_lock_release = config.early_lock_release;
    options.active_limit = config.active_limit;
    if let Some(latency) = config.log_device_latency {
        tracing::warn!(
            "log_device_latency: the log device is simulated, with {latency:?} a flush; what is committed does not survive a power failure"
        );
        options.disk = Arc::new(LogDevice::new(options.disk, latency));
    }
    let opened = tokio::task::spawn_blocking(move || {
        let (is_node, began) = (options.node.is_some(), Instant::now());
        let engine = loop {
            match Database::open(options.clone()) {
                // A node opens again with another one's state when what ran before has let go of
                // it.
                Err(Error::InUse { .. }) if is_node && began.elapsed() < CANCEL_GRACE => {
                    std::thread::sleep(CANCEL_PERIOD);
                }
                opened => break opened.map_err(|e| StartError(e.to_string()))?,
            }
        };
        SqlDatabase::open(engine).map_err(|e| {
            let detail = e.detail.as_ref().map(|detail| format!("; {detail}")).unwrap_or_default();
            StartError(format!("{}{detail}", e.message))
        })
    });
    opened.await.map_err(|e| StartError(format!("opening the database failed: {e}")))?
}

impl Running {
    /// Where PostgreSQL clients connect.
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Where the live page, health and metrics are, if anywhere.
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }

    /// The `psql` command that connects to this server.
    pub fn psql_command(&self) -> String {
        let ip = self.listen.ip();
        let host = match ip {
            std::net::IpAddr::V4(ip) if ip.is_unspecified() => "127.0.0.1".to_owned(),
            std::net::IpAddr::V6(ip) if ip.is_unspecified() => "::1".to_owned(),
            ip => ip.to_string(),
        };
        let access = self.server.access();
        // Whoever starts the server is its operator, if the superuser gets in at all.
        let user = access.users.only_named(&access.superuser).unwrap_or(&access.superuser);
        format!("psql -h {host} -p {} -d postgres -U {user}", self.listen.port())
    }

    /// The database that is served.
    pub fn database(&self) -> &SqlDatabase {
        &self.server.database
    }

    /// What it runs with: what has been taken over since its start, too.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Takes over what of this configuration a running server can, for connections that begin from
    /// now on, and says in the log what it cannot. On an error nothing has changed.
    pub fn reload(&mut self, config: Config) -> Result<(), StartError> {
        reload::check(&self.config, &config).map_err(|error| StartError(error.0))?;
        let access = Access::read(&config).map_err(StartError)?;
        self.server.set_access(access);
        reload::settings(&self.server.database, &self.config, &config);
        let fixed = reload::fixed(&self.config, &config);
        if !fixed.is_empty() {
            tracing::warn!("changed only by a restart: {}", fixed.join(", "));
        }
        tracing::info!("configuration, certificate and passwords were read again");
        // What was not taken over stays as it is, and is named again next time.
        self.config = reload::in_force(&self.config, config);
        Ok(())
    }

    /// Resolves if this node was far behind in its cluster and was sent another one's state: it is
    /// to be stopped and started again, and goes on with that.
    pub async fn until_replaced(&self) {
        match &self.member {
            Some(member) => member.until_replaced().await,
            None => std::future::pending().await,
        }
    }

    /// Stops: nobody new, a grace time for what runs, then cancel, checkpoint, close. Boxed for the
    /// same reason as a start.
    #[inline(never)]
    pub fn stop(self) -> Pin<Box<dyn Future<Output = Result<(), StartError>> + Send>> {
        Box::pin(self.end())
    }

    async fn end(self) -> Result<(), StartError> {
        let _ = self.stop.send(true);
        end_sessions(&self.server, self.config.shutdown_grace).await;
        for task in self.tasks {
            let _ = timeout(CANCEL_PERIOD, task).await;
        }
        if let Some(member) = self.member {
            Box::pin(member.stop()).await;
        }
        close_database(&self.server).await
    }
}

/// Has all connections end: a grace time for what runs, then cancel.
pub(crate) async fn end_sessions(server: &Server, grace: Duration) {
    let registry = &server.registry;
    registry.stop(Stop::WhenIdle);
    if timeout(grace, registry.closed()).await.is_ok() {
        return;
    }
    let deadline = Instant::now() + CANCEL_GRACE;
    loop {
        // Again and again: an order that arrives between two statements finds nothing to cancel.
        registry.stop(Stop::Now);
        if timeout(CANCEL_PERIOD, registry.closed()).await.is_ok() {
            return;
        }
        if Instant::now() >= deadline {
            return tracing::warn!("{} connections did not end in time", registry.open_count());
        }
    }
}

/// Checkpoint and close.
pub(crate) async fn close_database(server: &Server) -> Result<(), StartError> {
    let database = server.database.clone();
    let closed = tokio::task::spawn_blocking(move || {
        database.stop_gathering();
        database.engine().close()
    });
    let closed = closed.await.map_err(|e| StartError(format!("closing the database failed: {e}")))?;
    closed.map_err(|e| StartError(format!("closing the database failed: {e}")))
}
