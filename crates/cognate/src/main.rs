//! The `cognate` command.

mod backup;
mod node;
mod restore;
mod trial;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Parser, Subcommand};
use cognate_engine::{Database, Options};
use cognate_env::descriptors::raise_open_files;
use cognate_server::assemble::{self, Running, TOLD_WITHOUT_END};
use cognate_server::config::{AuthSettings, Config, Settings, TlsSettings};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt as _;

/// So many files and sockets a server may need besides its clients' connections.
const FILES_SPARE: u64 = 256;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A durable SQL database that PostgreSQL clients can talk to.
#[derive(Debug, Parser)]
#[command(name = "cognate", version)]
struct Command {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Serve a database folder to PostgreSQL clients.
    Serve(Box<Serve>),
    /// Try out a cluster: all nodes on this machine, on loopback.
    Cluster(trial::Trial),
    /// Look at a cluster, and change which nodes it has.
    #[command(subcommand)]
    Node(node::Node),
    /// Take a backup of a running server, of a cluster's node, too.
    Backup(backup::Backup),
    /// Make a database of a backup, and read all of it.
    Restore(restore::Restore),
    /// Verify every file of a database folder; of a node's all but its order's log, which its start
    /// verifies. No server may have it open.
    Check {
        /// Folder of the database.
        #[arg(long, value_name = "DIR", env = "COGNATE_DATA", default_value = "cognate-data")]
        data: PathBuf,
    },
}

/// Every option can also be set in the environment or in the configuration file (keys as the
/// options, `_` for `-`; certificate, key and passwords in `[tls]` and `[auth]`).
#[derive(Clone, Debug, Args)]
struct Serve {
    /// TOML file with settings; options and environment go before it.
    #[arg(long, value_name = "FILE", env = "COGNATE_CONFIG")]
    config: Option<PathBuf>,
    /// Folder of the database, made if missing [default: ./cognate-data].
    #[arg(long, value_name = "DIR", env = "COGNATE_DATA")]
    data: Option<PathBuf>,
    /// Where PostgreSQL clients connect [default: 127.0.0.1:5433].
    #[arg(long, value_name = "HOST:PORT", env = "COGNATE_LISTEN")]
    listen: Option<String>,
    /// Where the live page, /health and /metrics are, or `off` [default: 127.0.0.1:8433].
    #[arg(long, value_name = "HOST:PORT", env = "COGNATE_HTTP")]
    http: Option<String>,
    /// Memory budget, e.g. 256MB [default: 1GB or a quarter of the machine's, whichever is
    /// smaller].
    #[arg(long, value_name = "SIZE", env = "COGNATE_MEMORY")]
    memory: Option<String>,
    /// Most sessions at a time [default: 1000].
    #[arg(long, value_name = "N", env = "COGNATE_MAX_CONNECTIONS")]
    max_connections: Option<u32>,
    /// Largest message from a client [default: 64MB].
    #[arg(long, value_name = "SIZE", env = "COGNATE_MAX_MESSAGE")]
    max_message: Option<String>,
    /// Seconds until a client must be authenticated [default: 10].
    #[arg(long, value_name = "SECONDS", env = "COGNATE_AUTHENTICATION_TIMEOUT_S")]
    authentication_timeout_s: Option<u64>,
    /// Seconds that running statements get at shutdown [default: 5].
    #[arg(long, value_name = "SECONDS", env = "COGNATE_SHUTDOWN_GRACE_S")]
    shutdown_grace_s: Option<u64>,
    /// Threads that serve connections [default: one a core].
    #[arg(long, value_name = "N", env = "COGNATE_WORKER_THREADS")]
    worker_threads: Option<usize>,
    /// What makes SERIALIZABLE so: pssi; strict, which keeps real time, too; or, for comparison,
    /// ssi, 2pl, si [default: pssi].
    #[arg(long, value_name = "METHOD", env = "COGNATE_SERIALIZABLE")]
    serializable: Option<String>,
    /// Memory of the certifier, beyond which it summarizes old transactions [default: 32MB].
    #[arg(long, value_name = "SIZE", env = "COGNATE_CERTIFIER_MEMORY")]
    certifier_memory: Option<String>,
    /// What to log on standard error, e.g. `warn` or `cognate_engine=debug` [default: info].
    #[arg(long, value_name = "FILTER", env = "COGNATE_LOG")]
    log: Option<String>,
    /// Most transactions that execute at a time: `auto`, `off` or a number [default: auto].
    #[arg(long, value_name = "N", env = "COGNATE_ACTIVE_LIMIT")]
    active_limit: Option<String>,
    /// Application servers that take requests which were left prepared: URLs such as
    /// http://10.0.0.1:9000, with commas between them [default: none].
    #[arg(long, value_name = "URLS", env = "COGNATE_APPLICATION_SERVERS")]
    application_servers: Option<String>,
    /// After how long such a request is handed to one of them; 0 is never [default: 10s].
    #[arg(long, value_name = "TIME", env = "COGNATE_IN_DOUBT_PUSH_AFTER")]
    in_doubt_push_after: Option<String>,
    /// Number of this site among those that take part in the same requests, 1 to 1023: no two have
    /// the same [default: 1].
    #[arg(long, value_name = "N", env = "COGNATE_SITE")]
    site: Option<u16>,
    /// Number of this node in its cluster, 1 to 15 [default: a database of its own].
    #[arg(long, value_name = "N", env = "COGNATE_NODE")]
    node: Option<u16>,
    /// All nodes of the cluster and where they meet each other, such as
    /// 1=10.0.0.1:7433,2=10.0.0.2:7433,3=10.0.0.3:7433. It listens on its own entry.
    #[arg(long, value_name = "LIST", env = "COGNATE_PEERS")]
    peers: Option<String>,
    /// File whose first line is what the nodes know each other by; COGNATE_CLUSTER_SECRET is the
    /// secret itself.
    #[arg(long, value_name = "FILE", env = "COGNATE_CLUSTER_SECRET_FILE")]
    cluster_secret_file: Option<PathBuf>,
    /// PEM file of this node's certificate for connections between nodes, which are encrypted then.
    /// Every node's certificate has the DNS name `cognate-node`.
    #[arg(long, value_name = "FILE", env = "COGNATE_CLUSTER_TLS_CERT")]
    cluster_tls_cert: Option<PathBuf>,
    /// PEM file of its key.
    #[arg(long, value_name = "FILE", env = "COGNATE_CLUSTER_TLS_KEY")]
    cluster_tls_key: Option<PathBuf>,
    /// PEM file of the authority that must have signed every node's certificate.
    #[arg(long, value_name = "FILE", env = "COGNATE_CLUSTER_TLS_CA")]
    cluster_tls_ca: Option<PathBuf>,
    /// Log that stays for nodes that are away; one that is further behind is sent another node's
    /// state [default: 64MB].
    #[arg(long, value_name = "SIZE", env = "COGNATE_CLUSTER_LOG_KEPT")]
    cluster_log_kept: Option<String>,
    /// What a node that serves may lack before who writes waits for it; 0 for any [default: 64MB].
    #[arg(long, value_name = "SIZE", env = "COGNATE_CLUSTER_LAG_LIMIT")]
    cluster_lag_limit: Option<String>,
    /// How long who writes waits then, before it is refused (53400); a node that is slow for three
    /// times as long is not waited for any more [default: 5s].
    #[arg(long, value_name = "TIME", env = "COGNATE_CLUSTER_LAG_WAIT")]
    cluster_lag_wait: Option<String>,
    /// The user that may change settings which are the whole server's [default: cognate].
    #[arg(long, value_name = "NAME", env = "COGNATE_SUPERUSER")]
    superuser: Option<String>,
    /// File whose first line is the token (`Authorization: Bearer TOKEN`) that metrics and the
    /// details of health need; COGNATE_HTTP_TOKEN is the token itself.
    #[arg(long, value_name = "FILE", env = "COGNATE_HTTP_TOKEN_FILE")]
    http_token_file: Option<PathBuf>,
    /// Show metrics to everybody who reaches an --http address that is not loopback.
    #[arg(long, env = "COGNATE_ALLOW_PUBLIC_HTTP")]
    allow_public_http: bool,
    /// Let clients on other machines connect without encryption.
    #[arg(long, env = "COGNATE_ALLOW_PLAINTEXT")]
    allow_plaintext: bool,
    /// When a commit releases its locks: `early` (once it is ordered) or `late` (once it is
    /// durable) [default: early].
    #[arg(long, value_name = "WHEN", env = "COGNATE_LOCK_RELEASE")]
    lock_release: Option<String>,
    /// For experiments: simulate a log device whose every flush takes this long, 0 to 10s. Nothing
    /// is durable then.
    #[arg(long, value_name = "TIME", env = "COGNATE_LOG_DEVICE_LATENCY")]
    log_device_latency: Option<String>,
    /// PEM file of the TLS certificate chain.
    #[arg(long, value_name = "FILE", env = "COGNATE_TLS_CERT")]
    tls_cert: Option<PathBuf>,
    /// PEM file of the TLS key.
    #[arg(long, value_name = "FILE", env = "COGNATE_TLS_KEY")]
    tls_key: Option<PathBuf>,
    /// File whose first line is the password for every user; COGNATE_PASSWORD is the password
    /// itself.
    #[arg(long, value_name = "FILE", env = "COGNATE_PASSWORD_FILE")]
    password_file: Option<PathBuf>,
}

impl Serve {
    /// Lays options and environment over the configuration file.
    fn resolve(self) -> Result<Config, String> {
        let file = match &self.config {
            Some(file) => Settings::read(file).map_err(|e| e.to_string())?,
            None => Settings::default(),
        };
        let password = match self.password_file {
            // The option goes before the environment, so it also goes before this variable.
            Some(_) => None,
            None => std::env::var("COGNATE_PASSWORD").ok(),
        };
        let above = Settings {
            data: self.data,
            listen: self.listen,
            http: self.http,
            memory: self.memory,
            max_connections: self.max_connections,
            max_message: self.max_message,
            authentication_timeout_s: self.authentication_timeout_s,
            shutdown_grace_s: self.shutdown_grace_s,
            worker_threads: self.worker_threads,
            serializable: self.serializable,
            certifier_memory: self.certifier_memory,
            log: self.log,
            log_device_latency: self.log_device_latency,
            lock_release: self.lock_release,
            active_limit: self.active_limit,
            application_servers: self.application_servers,
            in_doubt_push_after: self.in_doubt_push_after,
            site: self.site,
            node: self.node,
            peers: self.peers,
            cluster_secret: match self.cluster_secret_file {
                Some(_) => None,
                None => std::env::var("COGNATE_CLUSTER_SECRET").ok(),
            },
            cluster_secret_file: self.cluster_secret_file,
            cluster_tls_cert: self.cluster_tls_cert,
            cluster_tls_key: self.cluster_tls_key,
            cluster_tls_ca: self.cluster_tls_ca,
            cluster_log_kept: self.cluster_log_kept,
            cluster_lag_limit: self.cluster_lag_limit,
            cluster_lag_wait: self.cluster_lag_wait,
            superuser: self.superuser,
            http_token: match self.http_token_file {
                Some(_) => None,
                None => std::env::var("COGNATE_HTTP_TOKEN").ok(),
            },
            http_token_file: self.http_token_file,
            allow_public_http: self.allow_public_http.then_some(true),
            allow_plaintext: self.allow_plaintext.then_some(true),
            tls: TlsSettings { cert: self.tls_cert, key: self.tls_key },
            auth: AuthSettings { password, password_file: self.password_file, ..AuthSettings::default() },
        };
        Config::resolve(above.or(file)).map_err(|e| e.to_string())
    }
}

fn main() -> ExitCode {
    let outcome = match Command::parse().action {
        Action::Serve(serve) => serve.clone().resolve().and_then(|config| run(config, &serve)),
        Action::Cluster(trial) => try_out(&trial),
        Action::Node(node) => node.run(),
        Action::Backup(backup) => backup.run(),
        Action::Restore(restore) => restore.run(),
        Action::Check { data } => check(&data),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("cognate: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(config: Config, sources: &Serve) -> Result<(), String> {
    let (filter, log) = reload::Layer::new(log_filter(&config.log)?);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    tracing_subscriber::registry().with(filter).with(lines).init();
    claim_open_files(config.max_connections);
    let set_filter = |filter: Targets| log.reload(filter).map_err(|e| format!("log: {e}"));
    // Reads the same sources again. What takes effect is told as they say, and what cannot be used
    // changes nothing: its refusal is told as before.
    let reread = |running: &mut Running| -> Result<(), String> {
        let config = sources.clone().resolve()?;
        let (filter, before) = (log_filter(&config.log)?, log_filter(&running.config().log)?);
        set_filter(filter)?;
        let reloaded = running.reload(config).map_err(|e| e.to_string());
        if reloaded.is_err() {
            set_filter(before)?;
        }
        reloaded
    };
    // For accepting clients, HTTP and signals; connections have threads of their own.
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|e| format!("cannot start the runtime: {e}"))?;
    let outcome = runtime.block_on(serve(config, reread));
    // Nothing is left that matters: the database is closed or was never opened.
    runtime.shutdown_background();
    outcome
}

/// Asks for as many open files and sockets as the system gives, and says so where they may be too
/// few: a server that has none left cannot go on with its log.
fn claim_open_files(connections: u32) {
    let needed = u64::from(connections) + FILES_SPARE;
    if let Some(allowed) = raise_open_files().filter(|allowed| *allowed < needed) {
        tracing::warn!(
            allowed,
            needed,
            "too few open files for so many connections: raise ulimit -n, or lower max_connections"
        );
    }
}

/// The filter of the log. The consensus library says much that only its authors need; who wants it
/// names it.
fn log_filter(text: &str) -> Result<Targets, String> {
    let parts: Vec<&str> = text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    let named: Targets = match parts[..] {
        // Nothing is named, and not a target without a name: that would be all of them.
        [] => Targets::new(),
        _ => parts.join(",").parse::<Targets>().map_err(|e| format!("log: {e}"))?,
    };
    if text.contains("openraft") {
        return Ok(named);
    }
    Ok(named.with_target("openraft", LevelFilter::ERROR).with_target(TOLD_WITHOUT_END, LevelFilter::OFF))
}

async fn serve(
    mut config: Config,
    reread: impl Fn(&mut Running) -> Result<(), String>,
) -> Result<(), String> {
    let mut signals = Signals::new().map_err(|e| format!("cannot listen for signals: {e}"))?;
    loop {
        let mut running = tokio::select! {
            running = assemble::start(config.clone()) => running.map_err(|e| e.to_string())?,
            () = signals.end() => return Ok(()),
        };
        announce(&running);
        let mut goes_on = until_end(&mut running, &mut signals, &reread).await;
        // If it starts again, then with what has been read meanwhile.
        config = running.config().clone();
        let mut stopping = std::pin::pin!(running.stop());
        loop {
            tokio::select! {
                stopped = &mut stopping => break stopped.map_err(|e| e.to_string())?,
                () = signals.end() => {
                    if !std::mem::take(&mut goes_on) {
                        // What was acknowledged is in the log; the next start replays it.
                        tracing::warn!("ended at once");
                        std::process::exit(1);
                    }
                    // The first one: until now the server was to start again.
                    tracing::info!("stopping; a second signal ends at once");
                }
            }
        }
        if !goes_on {
            return Ok(());
        }
    }
}

/// Serves until the server is to stop. Says whether it is to start again.
async fn until_end(
    running: &mut Running,
    signals: &mut Signals,
    reread: &impl Fn(&mut Running) -> Result<(), String>,
) -> bool {
    loop {
        let asked = tokio::select! {
            asked = signals.next() => asked,
            () = running.until_replaced() => {
                tracing::info!("starting again, with another node's state");
                return true;
            }
        };
        if asked == Asked::End {
            tracing::info!("stopping; a second signal ends at once");
            return false;
        }
        if let Err(error) = reread(running) {
            tracing::error!("the configuration stays as it was: {error}");
        }
    }
}

/// Runs a cluster until a signal asks it to end, or none of its nodes is left.
fn try_out(trial: &trial::Trial) -> Result<(), String> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().map_err(|e| format!("cannot start the runtime: {e}"))?;
    runtime.block_on(async {
        let mut signals = Signals::new().map_err(|e| format!("cannot listen for signals: {e}"))?;
        let mut nodes = trial.start()?;
        loop {
            tokio::select! {
                () = signals.end() => break,
                () = tokio::time::sleep(trial::LOOK_AT_RUNNING) => {
                    if let Some(ended) = nodes.ended() {
                        return ended;
                    }
                }
            }
        }
        nodes.ask();
        loop {
            if let Some(ended) = nodes.ended() {
                return ended;
            }
            tokio::select! {
                () = tokio::time::sleep(trial::LOOK) => {}
                () = signals.end() => nodes.ask(),
            }
        }
    })
}

fn announce(running: &Running) {
    let mut out = std::io::stdout();
    // Whoever started the server may have closed its output; that is no reason to stop.
    let _ = writeln!(out, "ready  {}", running.psql_command());
    let _ = out.flush();
    if let Some(http) = running.http() {
        let http: SocketAddr = http;
        tracing::info!("live page, health and metrics at http://{http}");
    }
}

/// Refuses a folder that has no database: opening would make one of whatever folder it is. What is
/// damaged in a database, and a restore that was interrupted, are named by the opening.
fn refuse_others(data: &Path) -> Result<(), String> {
    let folder = data.display();
    if !data.is_dir() {
        return Err(format!("there is no folder {folder}"));
    }
    let has = |name: &str| data.join(name).try_exists().map_err(|e| format!("cannot read {folder}: {e}"));
    if has("backup.txt")? || has("INCOMPLETE")? {
        return Err(format!("{folder} is a backup, which `cognate backup verify` reads"));
    }
    // A folder of PostgreSQL's has a `base`, too. One of ours has a lock even without its manifest.
    let is_database = data.join("base").is_dir() && (has("lock")? || has("base/MANIFEST")?);
    match is_database || has("RESTORING")? {
        true => Ok(()),
        false => Err(format!("there is no database in {folder}")),
    }
}

/// Opening a database reads and verifies every file of it; what the catalog says is read, too.
fn check(data: &Path) -> Result<(), String> {
    refuse_others(data)?;
    let mut options = Options::new(data);
    if data.join("images").is_dir() {
        // A node's. Nothing is ordered here; its order's log is verified by its own start.
        options.node = Some(cognate_engine::Node { number: 1, start: 0, order: Arc::new(Nowhere) });
    }
    let database = Database::open(options).map_err(|e| e.to_string())?;
    cognate_sql::session::verify_catalogs(&database).map_err(|e| e.to_string())?;
    let statistics = database.statistics();
    println!(
        "sound: {} commits, {} bytes in {} files, {} bytes of log to replay",
        statistics.durable, statistics.base.bytes, statistics.base.runs, statistics.replay_bytes
    );
    Ok(())
}

/// An order that nothing goes to.
struct Nowhere;

impl cognate_engine::TotalOrder for Nowhere {
    fn propose(&self, _request: bytes::Bytes) {}

    fn request_bytes_max(&self) -> u64 {
        0
    }

    fn wait_synced(&self, _position: u64) -> bool {
        false
    }
}

/// What a signal asks for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    /// SIGINT and SIGTERM: to stop.
    End,
    /// SIGHUP: to read the configuration again.
    Reload,
}

/// SIGINT, SIGTERM and SIGHUP.
struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    hangup: tokio::signal::unix::Signal,
    /// A SIGHUP came while only an end was waited for.
    has_hung_up: bool,
}

impl Signals {
    #[cfg(unix)]
    fn new() -> std::io::Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            has_hung_up: false,
        })
    }

    #[cfg(not(unix))]
    fn new() -> std::io::Result<Signals> {
        Ok(Signals { has_hung_up: false })
    }

    /// Waits for the next one, unless one came before that nobody could answer.
    async fn next(&mut self) -> Asked {
        if std::mem::take(&mut self.has_hung_up) { Asked::Reload } else { self.receive().await }
    }

    async fn receive(&mut self) -> Asked {
        #[cfg(unix)]
        tokio::select! {
            _ = self.terminate.recv() => Asked::End,
            _ = self.interrupt.recv() => Asked::End,
            _ = self.hangup.recv() => Asked::Reload,
        }
        #[cfg(not(unix))]
        {
            let _ = tokio::signal::ctrl_c().await;
            Asked::End
        }
    }

    /// Waits for one that asks to stop. Another is for `next`: a server that starts reads its
    /// configuration again as soon as it runs.
    async fn end(&mut self) {
        while self.receive().await != Asked::End {
            self.has_hung_up = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::log_filter;

    /// During a start, say, which may take long.
    #[cfg(unix)]
    #[tokio::test]
    async fn a_hang_up_that_nobody_can_answer_yet_is_kept() {
        use std::future::poll_fn;
        use std::task::Poll;

        use super::{Asked, Signals};

        let mut signals = Signals::new().expect("signals");
        let mut witness = Signals::new().expect("signals");
        let id = std::process::id().to_string();
        let sent = std::process::Command::new("kill").args(["-HUP", &id]).status();
        assert!(sent.expect("kill runs").success());
        // All who listen hear it at the same time.
        assert_eq!(witness.next().await, Asked::Reload);
        {
            let mut end = std::pin::pin!(signals.end());
            let is_pending = poll_fn(|cx| Poll::Ready(end.as_mut().poll(cx).is_pending())).await;
            assert!(is_pending, "it asks for no end");
        }
        assert_eq!(signals.next().await, Asked::Reload);
    }

    #[test]
    fn the_log_says_what_is_asked_for_and_little_of_the_consensus_library() {
        let filter = log_filter("warn, cognate_engine=debug,").expect("a filter");
        assert!(filter.would_enable("cognate_engine::database", &Level::DEBUG));
        assert!(filter.would_enable("cognate_sql", &Level::WARN));
        assert!(!filter.would_enable("cognate_sql", &Level::INFO));
        assert!(filter.would_enable("openraft::engine", &Level::ERROR));
        assert!(!filter.would_enable("openraft::engine", &Level::WARN));
        assert!(!filter.would_enable("openraft::raft::raft_inner", &Level::ERROR));
        let filter = log_filter("openraft=info").expect("a filter");
        assert!(filter.would_enable("openraft::engine", &Level::INFO));
        assert!(!filter.would_enable("cognate_sql", &Level::ERROR));
        assert!(!log_filter("").expect("a filter").would_enable("cognate_sql", &Level::ERROR));
        assert!(log_filter("cognate_engine=loud").is_err());
    }
}
