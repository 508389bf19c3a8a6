//! Configuration: four sources, one result.
//!
//! A value comes from the command line, else from the environment (`COGNATE_*`), else from the TOML
//! file, else from the default. The first two arrive as one [`Settings`], the file as another
//! ([`Settings::parse`]); unknown keys in the file are refused by name. [`Config::resolve`] lays
//! them over one another, checks them, and reads the files that they name. Every error is one
//! sentence that says which setting is wrong.
//!
//! ```toml
//! data = "/var/lib/cognate"
//! listen = "127.0.0.1:5433"
//! http = "127.0.0.1:8433"          # or "off"
//! memory = "1GB"
//! max_connections = 1000
//!
//! [tls]
//! cert = "server.crt"
//! key = "server.key"
//!
//! [auth.users]
//! ann = "a password, or a verifier as PostgreSQL stores it"
//! ```

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cognate_engine::{ActiveLimit, Method};
use cognate_sql::session::application_servers;
use serde::Deserialize;

use crate::amount::{duration, parse_size};
use crate::membership::{self, ClusterConfig};
use crate::pg::auth::Users;

/// The operator's name where none is configured.
const SUPERUSER: &str = "cognate";
const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
/// The smallest memory budget the server starts with, in bytes.
const MEMORY_BYTES_MIN: u64 = 32 * MIB;
/// The slowest log device that can be simulated.
const LATENCY_MAX: Duration = Duration::from_secs(10);
/// The largest frontend message that can be configured, in bytes.
const MESSAGE_BYTES_MAX: u64 = GIB;

/// What one source says; `None` where it is silent. Field names are the keys of the TOML file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Folder of the database.
    pub data: Option<PathBuf>,
    /// Address for PostgreSQL clients, `HOST:PORT`.
    pub listen: Option<String>,
    /// Address for the live page, health and metrics, `HOST:PORT` or `off`.
    pub http: Option<String>,
    /// Memory budget of the engine, e.g. `256MB`.
    pub memory: Option<String>,
    /// Most sessions at a time.
    pub max_connections: Option<u32>,
    /// Largest frontend message, e.g. `64MB`.
    pub max_message: Option<String>,
    /// Seconds a client may take until it is authenticated.
    pub authentication_timeout_s: Option<u64>,
    /// Seconds that running statements get to finish at shutdown.
    pub shutdown_grace_s: Option<u64>,
    /// Threads of the runtime; default: one a core. A node has one more.
    pub worker_threads: Option<usize>,
    /// What makes SERIALIZABLE so: `pssi` or `strict`; for comparison `ssi`, `2pl` or `si`.
    pub serializable: Option<String>,
    /// Memory of the certifier, e.g. `32MB`.
    pub certifier_memory: Option<String>,
    /// What to log, e.g. `info` or `cognate_engine=debug`.
    pub log: Option<String>,
    /// Flush time of a simulated log device, e.g. `78ms`. For experiments: nothing is durable then.
    pub log_device_latency: Option<String>,
    /// When a commit releases its locks: `early` or `late`.
    pub lock_release: Option<String>,
    /// Most transactions that execute at a time: `auto`, `off` or a number.
    pub active_limit: Option<String>,
    /// Application servers that take requests which were left prepared: URLs with commas between
    /// them.
    pub application_servers: Option<String>,
    /// After how long that happens, e.g. `10s`; `0` is never.
    pub in_doubt_push_after: Option<String>,
    /// Number of this site among those of a request, from 1 to 1023: no two have the same.
    pub site: Option<u16>,
    /// Number of this node in a cluster.
    pub node: Option<u16>,
    /// All nodes of the cluster and where they meet: `1=HOST:PORT,2=HOST:PORT,3=HOST:PORT`.
    pub peers: Option<String>,
    /// What nodes of a cluster know each other by.
    pub cluster_secret: Option<String>,
    /// File whose first line is that.
    pub cluster_secret_file: Option<PathBuf>,
    /// PEM files for connections between nodes: certificate, key, and whose certificates the
    /// others' have to be.
    pub cluster_tls_cert: Option<PathBuf>,
    /// See `cluster_tls_cert`.
    pub cluster_tls_key: Option<PathBuf>,
    /// See `cluster_tls_cert`.
    pub cluster_tls_ca: Option<PathBuf>,
    /// Log that stays for nodes that are away, e.g. `64MB`.
    pub cluster_log_kept: Option<String>,
    /// What a node may lack before who writes waits for it, e.g. `64MB`; 0 for any.
    pub cluster_lag_limit: Option<String>,
    /// How long who writes waits then, e.g. `5s`.
    pub cluster_lag_wait: Option<String>,
    /// The user that may change what is the whole server's.
    pub superuser: Option<String>,
    /// What whoever asks for metrics has to show.
    pub http_token: Option<String>,
    /// File whose first line is that.
    pub http_token_file: Option<PathBuf>,
    /// Metrics are for everybody who reaches the address.
    pub allow_public_http: Option<bool>,
    /// Clients on other machines may do without encryption.
    pub allow_plaintext: Option<bool>,
    /// Certificate and key.
    #[serde(default)]
    pub tls: TlsSettings,
    /// Passwords.
    #[serde(default)]
    pub auth: AuthSettings,
}

/// `[tls]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsSettings {
    /// PEM file of the certificate chain.
    pub cert: Option<PathBuf>,
    /// PEM file of the private key.
    pub key: Option<PathBuf>,
}

/// `[auth]`
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuthSettings {
    /// One password for every user name.
    pub password: Option<String>,
    /// File whose first line is that password.
    pub password_file: Option<PathBuf>,
    /// Passwords of single users; if there are any and no password for all, nobody else gets in.
    #[serde(default)]
    pub users: BTreeMap<String, String>,
}

impl std::fmt::Debug for AuthSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let users: Vec<_> = self.users.keys().collect();
        f.debug_struct("AuthSettings").field("users", &users).finish_non_exhaustive()
    }
}

/// A setting that cannot be used: one sentence for the person who starts the server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

/// The configuration of a server, checked.
#[derive(Debug, Clone)]
pub struct Config {
    /// Folder of the database.
    pub data: PathBuf,
    /// Address for PostgreSQL clients. Port 0 lets the system choose.
    pub listen: SocketAddr,
    /// Address for the live page, health and metrics, if wanted.
    pub http: Option<SocketAddr>,
    /// Memory budget of the engine in bytes.
    pub memory_bytes: u64,
    /// Most sessions at a time.
    pub max_connections: u32,
    /// Largest frontend message in bytes.
    pub message_bytes_max: usize,
    /// Time a client has until it is authenticated.
    pub authentication_timeout: Duration,
    /// Time that running statements get to finish at shutdown.
    pub shutdown_grace: Duration,
    /// Threads of the runtime; `None`: one a core.
    pub worker_threads: Option<usize>,
    /// What makes SERIALIZABLE so.
    pub serializable: Method,
    /// Memory of the certifier in bytes.
    pub certifier_bytes: u64,
    /// Filter of the log.
    pub log: String,
    /// Flush time of the simulated log device, if there is to be one.
    pub log_device_latency: Option<Duration>,
    /// Whether a commit releases its locks before it is durable.
    pub early_lock_release: bool,
    /// Most transactions that execute at a time.
    pub active_limit: ActiveLimit,
    /// Application servers that take requests which were left prepared.
    pub application_servers: Vec<String>,
    /// After how long that happens; zero is never.
    pub in_doubt_push_after: Option<Duration>,
    /// Number of this site.
    pub site: u16,
    /// The cluster that it is a node of, if any.
    pub cluster: Option<ClusterConfig>,
    /// The user that may change what is the whole server's.
    pub superuser: String,
    /// What whoever asks for metrics has to show, if anything.
    pub http_token: Option<String>,
    /// Clients on other machines may do without encryption.
    pub allow_plaintext: bool,
    /// Certificate and key files.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Whom to let in.
    pub users: Users,
}

impl Settings {
    /// Parses a TOML file's text. `origin` names it in the error.
    pub fn parse(text: &str, origin: &str) -> Result<Settings, ConfigError> {
        toml::from_str(text).map_err(|e| {
            let line = e.span().map(|span| {
                1 + text.as_bytes()[..span.start.min(text.len())].iter().filter(|&&b| b == b'\n').count()
            });
            let place = line.map(|line| format!(" line {line}")).unwrap_or_default();
            ConfigError(format!("{origin}{place}: {}", e.message().replace('\n', " ")))
        })
    }

    /// Reads and parses a TOML file.
    pub fn read(file: &Path) -> Result<Settings, ConfigError> {
        let text = std::fs::read_to_string(file)
            .map_err(|e| ConfigError(format!("cannot read configuration file {}: {e}", file.display())))?;
        Settings::parse(&text, &file.display().to_string())
    }

    /// This, with what it leaves open taken from `below`.
    pub fn or(self, below: Settings) -> Settings {
        // A password given above in either form hides both forms below, so that they cannot
        // contradict each other.
        let hides_password = self.auth.password.is_some() || self.auth.password_file.is_some();
        let below_auth = if hides_password {
            AuthSettings { password: None, password_file: None, users: below.auth.users }
        } else {
            below.auth
        };
        let mut users = below_auth.users;
        users.extend(self.auth.users);
        Settings {
            data: self.data.or(below.data),
            listen: self.listen.or(below.listen),
            http: self.http.or(below.http),
            memory: self.memory.or(below.memory),
            max_connections: self.max_connections.or(below.max_connections),
            max_message: self.max_message.or(below.max_message),
            authentication_timeout_s: self.authentication_timeout_s.or(below.authentication_timeout_s),
            shutdown_grace_s: self.shutdown_grace_s.or(below.shutdown_grace_s),
            worker_threads: self.worker_threads.or(below.worker_threads),
            serializable: self.serializable.or(below.serializable),
            certifier_memory: self.certifier_memory.or(below.certifier_memory),
            log: self.log.or(below.log),
            log_device_latency: self.log_device_latency.or(below.log_device_latency),
            lock_release: self.lock_release.or(below.lock_release),
            active_limit: self.active_limit.or(below.active_limit),
            application_servers: self.application_servers.or(below.application_servers),
            in_doubt_push_after: self.in_doubt_push_after.or(below.in_doubt_push_after),
            site: self.site.or(below.site),
            node: self.node.or(below.node),
            peers: self.peers.or(below.peers),
            cluster_secret_file: match &self.cluster_secret {
                Some(_) => None,
                None => self.cluster_secret_file.clone().or(below.cluster_secret_file),
            },
            cluster_secret: match self.cluster_secret_file {
                Some(_) => self.cluster_secret,
                None => self.cluster_secret.or(below.cluster_secret),
            },
            cluster_tls_cert: self.cluster_tls_cert.or(below.cluster_tls_cert),
            cluster_tls_key: self.cluster_tls_key.or(below.cluster_tls_key),
            cluster_tls_ca: self.cluster_tls_ca.or(below.cluster_tls_ca),
            cluster_log_kept: self.cluster_log_kept.or(below.cluster_log_kept),
            cluster_lag_limit: self.cluster_lag_limit.or(below.cluster_lag_limit),
            cluster_lag_wait: self.cluster_lag_wait.or(below.cluster_lag_wait),
            superuser: self.superuser.or(below.superuser),
            // As with passwords: one form above hides both below.
            http_token_file: match &self.http_token {
                Some(_) => None,
                None => self.http_token_file.clone().or(below.http_token_file),
            },
            http_token: match self.http_token_file {
                Some(_) => self.http_token,
                None => self.http_token.or(below.http_token),
            },
            allow_public_http: self.allow_public_http.or(below.allow_public_http),
            allow_plaintext: self.allow_plaintext.or(below.allow_plaintext),
            tls: TlsSettings { cert: self.tls.cert.or(below.tls.cert), key: self.tls.key.or(below.tls.key) },
            auth: AuthSettings {
                password: self.auth.password.or(below_auth.password),
                password_file: self.auth.password_file.or(below_auth.password_file),
                users,
            },
        }
    }
}

impl Settings {
    /// What is said of the connections between nodes, and of what waits for them.
    fn between(&self) -> Result<membership::Between, ConfigError> {
        let (text, file) = (self.cluster_secret.clone(), self.cluster_secret_file.clone());
        let tls = [&self.cluster_tls_cert, &self.cluster_tls_key, &self.cluster_tls_ca];
        let size = |text: &Option<String>| text.as_deref().map(parse_size).transpose();
        Ok(membership::Between {
            secret: secret("cluster_secret", text, file)?,
            tls: tls.map(Clone::clone),
            log_kept: size(&self.cluster_log_kept),
            lag_limit: size(&self.cluster_lag_limit),
            lag_wait: self.cluster_lag_wait.clone(),
        })
    }
}

impl Config {
    /// Fills in defaults and checks everything. Reads the password file and asks the system for its
    /// memory.
    pub fn resolve(settings: Settings) -> Result<Config, ConfigError> {
        let between = settings.between()?;
        let listen = address("listen", settings.listen.as_deref().unwrap_or("127.0.0.1:5433"))?;
        let http = match settings.http.as_deref().unwrap_or("127.0.0.1:8433") {
            "off" | "none" => None,
            text => Some(address("http", text)?),
        };
        let users = users(&settings.auth)?;
        let http_token = http_token(settings.http_token, settings.http_token_file)?;
        check_http(http, http_token.is_some() || settings.allow_public_http == Some(true))?;
        let allow_plaintext = settings.allow_plaintext == Some(true);
        let tls = tls_files(settings.tls)?;
        check_listen(listen, &users, tls.is_some() || allow_plaintext)?;
        let cluster =
            membership::cluster(settings.node, settings.peers.as_deref(), between).map_err(ConfigError)?;
        let (method_name, release) = (settings.serializable.as_deref(), settings.lock_release.as_deref());
        membership::check(cluster.as_ref(), method_name, release).map_err(ConfigError)?;
        Ok(Config {
            data: settings.data.unwrap_or_else(|| PathBuf::from("cognate-data")),
            listen,
            http,
            memory_bytes: memory(settings.memory.as_deref())?,
            max_connections: positive("max_connections", settings.max_connections, 1000)?,
            message_bytes_max: message_bytes(settings.max_message.as_deref())?,
            authentication_timeout: Duration::from_secs(positive(
                "authentication_timeout_s",
                settings.authentication_timeout_s,
                10,
            )?),
            shutdown_grace: Duration::from_secs(settings.shutdown_grace_s.unwrap_or(5)),
            worker_threads: settings
                .worker_threads
                .map(|threads| positive("worker_threads", Some(threads), 1))
                .transpose()?,
            serializable: method(settings.serializable.as_deref())?,
            certifier_bytes: certifier_bytes(settings.certifier_memory.as_deref())?,
            log: settings.log.unwrap_or_else(|| "info".to_owned()),
            log_device_latency: settings.log_device_latency.as_deref().map(latency).transpose()?,
            early_lock_release: lock_release(settings.lock_release.as_deref())?,
            active_limit: active_limit(settings.active_limit.as_deref())?,
            application_servers: application_servers(
                settings.application_servers.as_deref().unwrap_or_default(),
            )
            .map_err(|what| ConfigError(format!("application_servers: {what}")))?,
            in_doubt_push_after: settings.in_doubt_push_after.as_deref().map(push_after).transpose()?,
            site: site(settings.site)?,
            cluster,
            superuser: superuser(settings.superuser)?,
            http_token,
            allow_plaintext,
            tls,
            users,
        })
    }
}

fn site(number: Option<u16>) -> Result<u16, ConfigError> {
    let number = number.unwrap_or(1);
    let lanes = 1..1 << cognate_engine::sibling::LANE_BITS;
    match lanes.contains(&number) {
        true => Ok(number),
        false => Err(ConfigError(format!("site: must be between 1 and {}", lanes.end - 1))),
    }
}

/// With the first role it becomes one itself, which every statement about roles can name.
fn superuser(name: Option<String>) -> Result<String, ConfigError> {
    let name = name.unwrap_or_else(|| SUPERUSER.to_owned());
    let is_reserved = matches!(name.as_str(), "public" | "none") || name.starts_with("pg_");
    match !is_reserved && (1..=cognate_sql::MAX_NAME).contains(&name.len()) {
        true => Ok(name),
        false => Err(ConfigError(format!("superuser: \"{name}\" cannot be the name of a role"))),
    }
}

fn push_after(text: &str) -> Result<Duration, ConfigError> {
    duration(text).ok_or_else(|| {
        ConfigError(format!("in_doubt_push_after: \"{text}\" is not a time such as 500ms or 10s, or 0"))
    })
}

fn positive<N: PartialOrd + From<u8>>(name: &str, value: Option<N>, default: N) -> Result<N, ConfigError> {
    let value = value.unwrap_or(default);
    if value >= N::from(1) { Ok(value) } else { Err(ConfigError(format!("{name}: must be at least 1"))) }
}

fn address(name: &str, text: &str) -> Result<SocketAddr, ConfigError> {
    let wrong = |what: String| ConfigError(format!("{name}: \"{text}\" is not an address HOST:PORT: {what}"));
    let mut found = text.to_socket_addrs().map_err(|e| wrong(e.to_string()))?;
    found.next().ok_or_else(|| wrong("the name has no address".to_owned()))
}

fn users(auth: &AuthSettings) -> Result<Users, ConfigError> {
    let from_file = match &auth.password_file {
        Some(file) if auth.password.is_none() => {
            let text = std::fs::read_to_string(file)
                .map_err(|e| ConfigError(format!("cannot read password file {}: {e}", file.display())))?;
            Some(text.lines().next().unwrap_or_default().to_owned())
        }
        _ => None,
    };
    let anyone = auth.password.clone().or(from_file);
    let empty = anyone.as_deref() == Some("") || auth.users.values().any(String::is_empty);
    if empty {
        return Err(ConfigError("auth: an empty password is not allowed".to_owned()));
    }
    Ok(Users::new(&auth.users, anyone.as_deref()))
}

/// Who can be reached from other machines asks for a password, and has a certificate or is told
/// that it needs none.
pub(crate) fn check_listen(listen: SocketAddr, users: &Users, decided: bool) -> Result<(), ConfigError> {
    if listen.ip().is_loopback() {
        return Ok(());
    }
    if !users.password_required() {
        return Err(ConfigError(format!(
            "listen: {listen} can be reached from other machines, so a password is needed: set COGNATE_PASSWORD, \
             --password-file or [auth] in the configuration file, or listen on 127.0.0.1"
        )));
    }
    if !decided {
        return Err(ConfigError(format!(
            "listen: {listen} can be reached from other machines, so a certificate is needed: set --tls-cert and --tls-key, listen on \
             127.0.0.1, or say --allow-plaintext if the network between is your own"
        )));
    }
    Ok(())
}

/// Figures are for whoever has the token, or for everybody if that is said.
fn check_http(http: Option<SocketAddr>, decided: bool) -> Result<(), ConfigError> {
    match http {
        Some(address) if !decided && !address.ip().is_loopback() => Err(ConfigError(format!(
            "http: {address} can be reached from other machines, so a token is needed for the metrics: set COGNATE_HTTP_TOKEN or \
             --http-token-file, listen on 127.0.0.1, or say --allow-public-http"
        ))),
        _ => Ok(()),
    }
}

/// Blanks around it do not come along in a request's head.
fn http_token(token: Option<String>, file: Option<PathBuf>) -> Result<Option<String>, ConfigError> {
    let token = secret("http_token", token, file)?;
    Ok(token.map(|token| token.trim().to_owned()))
}

/// A secret of either form; it is not empty.
fn secret(name: &str, secret: Option<String>, file: Option<PathBuf>) -> Result<Option<String>, ConfigError> {
    let secret = match (secret, file) {
        (Some(secret), _) => secret,
        (None, None) => return Ok(None),
        (None, Some(file)) => {
            let text = std::fs::read_to_string(&file)
                .map_err(|e| ConfigError(format!("{name}: cannot read {}: {e}", file.display())))?;
            text.lines().next().unwrap_or_default().to_owned()
        }
    };
    // A line of blanks is a file that nobody has filled in.
    match secret.trim().is_empty() {
        false => Ok(Some(secret)),
        true => Err(ConfigError(format!("{name}: it must not be empty"))),
    }
}

fn memory(text: Option<&str>) -> Result<u64, ConfigError> {
    let Some(text) = text else {
        let quarter = system_memory_bytes().map_or(GIB, |total| total / 4);
        return Ok(quarter.clamp(MEMORY_BYTES_MIN, GIB));
    };
    let bytes = parse_size(text).map_err(|e| ConfigError(format!("memory: {e}")))?;
    if bytes < MEMORY_BYTES_MIN {
        return Err(ConfigError(format!("memory: {text} is too little; the least is 32MB")));
    }
    Ok(bytes)
}

fn method(text: Option<&str>) -> Result<Method, ConfigError> {
    let Some(text) = text else { return Ok(Method::DEFAULT) };
    Method::named(text).ok_or_else(|| {
        let names = Method::ALL.map(Method::name).join(", ");
        ConfigError(format!("serializable: \"{text}\" is none of {names}"))
    })
}

/// Certificate and key, or neither.
fn tls_files(tls: TlsSettings) -> Result<Option<(PathBuf, PathBuf)>, ConfigError> {
    match (tls.cert, tls.key) {
        (Some(cert), Some(key)) => Ok(Some((cert, key))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(ConfigError("tls: a certificate is given but no key".to_owned())),
        (None, Some(_)) => Err(ConfigError("tls: a key is given but no certificate".to_owned())),
    }
}

fn certifier_bytes(text: Option<&str>) -> Result<u64, ConfigError> {
    let bytes = match text {
        Some(text) => parse_size(text).map_err(|e| ConfigError(format!("certifier_memory: {e}")))?,
        None => 32 * MIB,
    };
    if (MIB..=64 * GIB).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(ConfigError("certifier_memory: must be between 1MB and 64GB".to_owned()))
    }
}

fn message_bytes(text: Option<&str>) -> Result<usize, ConfigError> {
    let bytes = match text {
        Some(text) => parse_size(text).map_err(|e| ConfigError(format!("max_message: {e}")))?,
        None => 64 * MIB,
    };
    if (16_384..=MESSAGE_BYTES_MAX).contains(&bytes) {
        Ok(bytes as usize)
    } else {
        Err(ConfigError("max_message: must be between 16kB and 1GB".to_owned()))
    }
}

/// The latency of a simulated device: a number with `us`, `ms` or `s`, or 0.
fn latency(text: &str) -> Result<Duration, ConfigError> {
    let wrong = || {
        ConfigError(format!(
            "log_device_latency: \"{text}\" is not between 0 and 10s; write for example 78ms, 2.5ms or 0"
        ))
    };
    duration(text).filter(|time| *time <= LATENCY_MAX).ok_or_else(wrong)
}

fn lock_release(text: Option<&str>) -> Result<bool, ConfigError> {
    match text {
        None | Some("early") => Ok(true),
        Some("late") => Ok(false),
        Some(other) => Err(ConfigError(format!("lock_release: \"{other}\" is neither early nor late"))),
    }
}

fn active_limit(text: Option<&str>) -> Result<ActiveLimit, ConfigError> {
    let limit = text.map(str::parse).transpose();
    Ok(limit.map_err(|error| ConfigError(format!("active_limit: {error}")))?.unwrap_or_default())
}

/// Memory of this machine in bytes, where the system tells.
fn system_memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(text: &str) -> Result<Config, String> {
        let settings = Settings::parse(text, "test.toml").map_err(|e| e.0)?;
        Config::resolve(settings).map_err(|e| e.0)
    }

    #[test]
    fn defaults() {
        let config = resolve("").expect("defaults are valid");
        assert_eq!(config.listen.to_string(), "127.0.0.1:5433");
        assert_eq!(config.http.map(|a| a.to_string()).as_deref(), Some("127.0.0.1:8433"));
        assert_eq!(config.data, PathBuf::from("cognate-data"));
        assert_eq!(config.max_connections, 1000);
        assert!(config.memory_bytes <= GIB);
        assert!(!config.users.password_required());
    }

    #[test]
    fn everything_can_be_said_in_the_file() {
        let config = resolve(
            "data = 'd'\nlisten = 'localhost:1'\nhttp = 'off'\nmemory = '256MB'\nmax_connections = 5000\n\
             max_message = '1MB'\nauthentication_timeout_s = 3\nshutdown_grace_s = 0\nworker_threads = 2\n\
             application_servers = 'http://a:1,http://b:2'\nin_doubt_push_after = '500ms'\nsite = 3\n\
             log = 'warn'\nlog_device_latency = '2.5ms'\nlock_release = 'late'\nactive_limit = '80'\n[tls]\ncert = 'c'\nkey = 'k'\n[auth.users]\nann = 'x'\n",
        )
        .expect("valid");
        assert_eq!(config.memory_bytes, 256 * MIB);
        assert_eq!(config.http, None);
        assert_eq!(config.log_device_latency, Some(Duration::from_micros(2500)));
        assert!(!config.early_lock_release);
        assert_eq!(config.active_limit, ActiveLimit::Fixed(80));
        assert_eq!(config.application_servers, ["http://a:1", "http://b:2"]);
        assert_eq!((config.in_doubt_push_after, config.site), (Some(Duration::from_millis(500)), 3));
        assert_eq!(config.tls, Some(("c".into(), "k".into())));
        assert!(config.users.password_required());
    }

    #[test]
    fn errors_name_the_setting() {
        for (text, expected) in [
            ("colour = 1", "test.toml line 1: unknown field `colour`"),
            ("listen = '127.0.0.1:1'\n[tls]\ncertt = 'x'", "unknown field `certt`"),
            ("memory = '1 potato'", "memory: \"1 potato\" is not a size"),
            ("memory = '1MB'", "memory: 1MB is too little"),
            ("memory = '99999999999TB'", "memory: \"99999999999TB\" is too large"),
            ("listen = '5433'", "listen: \"5433\" is not an address"),
            ("http = 'x'", "http: \"x\" is not an address"),
            ("max_connections = 0", "max_connections: must be at least 1"),
            ("max_connections = -1", "test.toml line 1"),
            ("worker_threads = 0", "worker_threads: must be at least 1"),
            ("serializable = 'maybe'", "serializable: \"maybe\" is none of pssi, strict, ssi, 2pl, si"),
            ("certifier_memory = '1kB'", "certifier_memory: must be between 1MB and 64GB"),
            ("log_device_latency = '11s'", "log_device_latency: \"11s\" is not between 0 and 10s"),
            ("log_device_latency = '-1ms'", "log_device_latency: \"-1ms\" is not between 0 and 10s"),
            ("log_device_latency = '5'", "write for example 78ms, 2.5ms or 0"),
            ("lock_release = 'soon'", "lock_release: \"soon\" is neither early nor late"),
            ("application_servers = 'a'", "application_servers: \"a\" does not begin with http://"),
            (
                "in_doubt_push_after = 'soon'",
                "in_doubt_push_after: \"soon\" is not a time such as 500ms or 10s, or 0",
            ),
            (
                "node = 1\npeers = '1=127.0.0.1:1'\ncluster_lag_limit = 'much'",
                "cluster_lag_limit: \"much\" is not a size",
            ),
            (
                "node = 1\npeers = '1=127.0.0.1:1'\ncluster_lag_wait = '5'",
                "cluster_lag_wait: \"5\" is not a time such as 500ms or 5s",
            ),
            ("site = 0", "site: must be between 1 and 1023"),
            ("site = 1024", "site: must be between 1 and 1023"),
            ("superuser = ''", "superuser: \"\" cannot be the name of a role"),
            ("superuser = 'public'", "superuser: \"public\" cannot be the name of a role"),
            ("superuser = 'pg_operator'", "superuser: \"pg_operator\" cannot be the name of a role"),
            ("active_limit = '0'", "active_limit: 0 is outside the valid range (1 .. 100000)"),
            ("active_limit = 'many'", "active_limit: \"many\" is neither auto, off nor a number"),
            ("max_message = '2GB'", "max_message: must be between"),
            ("listen = '0.0.0.0:5433'", "a password is needed"),
            ("listen = '0.0.0.0:5433'\n[auth]\npassword = 'x'", "a certificate is needed"),
            ("http = '0.0.0.0:8433'", "a token is needed"),
            ("http_token = ''", "http_token: it must not be empty"),
            ("http_token = ' '", "http_token: it must not be empty"),
            ("cluster_secret = ' '", "cluster_secret: it must not be empty"),
            ("http_token_file = '/nonexistent/file'", "http_token: cannot read /nonexistent/file"),
            ("[tls]\ncert = 'c'", "no key"),
            ("[auth]\npassword = ''", "empty password"),
            ("[auth]\npassword_file = '/nonexistent/file'", "cannot read password file /nonexistent/file"),
        ] {
            let error = resolve(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn other_addresses_are_fine_with_a_password_and_a_certificate_or_if_it_is_said() {
        for text in [
            "listen = '0.0.0.0:5433'\n[auth]\npassword = 'x'\n[tls]\ncert = 'c'\nkey = 'k'",
            "listen = '0.0.0.0:5433'\nallow_plaintext = true\n[auth]\npassword = 'x'",
            "http = '0.0.0.0:8433'\nhttp_token = 'x'",
            "http = '0.0.0.0:8433'\nallow_public_http = true",
        ] {
            assert!(resolve(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn the_upper_source_wins_key_by_key() {
        let above = Settings {
            listen: Some("127.0.0.1:1".to_owned()),
            auth: AuthSettings { password_file: Some("p".into()), ..AuthSettings::default() },
            ..Settings::default()
        };
        let below =
            Settings::parse("listen = 'x'\nmemory = '64MB'\n[auth]\npassword = 'old'", "f").expect("valid");
        let merged = above.or(below);
        assert_eq!(merged.listen.as_deref(), Some("127.0.0.1:1"));
        assert_eq!(merged.memory.as_deref(), Some("64MB"));
        assert_eq!(merged.auth.password, None, "the file's password gives way to the password file above");
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("256MB"), Ok(256 * MIB));
        assert_eq!(parse_size(" 2 GiB "), Ok(2 * GIB));
        assert_eq!(parse_size("64kb"), Ok(65_536));
        assert_eq!(parse_size("17"), Ok(17));
        for wrong in ["", "MB", "-1MB", "1.5GB", "1XB"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }
}
