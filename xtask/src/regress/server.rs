//! The two servers: programs that are started on folders of their own, or addresses where somebody
//! runs them.
//!
//! A program's folder is set up once and then copied for each file of tests, so each of them begins
//! with the same state. At an address the files run one after another on the same data.

use std::net::TcpListener;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::wire::{Address, Client};

/// Which server, and how it is reached.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    /// The folder of PostgreSQL's programs.
    Postgres(PathBuf),
    /// Cognate's program.
    Cognate(PathBuf),
    Address(Address),
}

impl Kind {
    /// `HOST:PORT`, or else a path for `program`.
    pub(crate) fn parse(text: &str, program: fn(PathBuf) -> Kind) -> Kind {
        let address = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
        match address {
            Some((host, port)) => Kind::Address(Address { host: host.to_owned(), port }),
            None => program(PathBuf::from(text)),
        }
    }
}

/// A running server. One that was started here ends with it.
pub(crate) struct Server {
    child: Option<Child>,
    pub(crate) address: Address,
    is_cognate: bool,
}

fn failed(doing: &str, error: &std::io::Error) -> String {
    format!("{doing}: {error}")
}

/// User and group `postgres` when this is root, which PostgreSQL does not run as.
fn owner() -> Result<Option<(u32, u32)>, String> {
    if std::fs::metadata("/proc/self").map_or(1, |me| me.uid()) != 0 {
        return Ok(None);
    }
    let users = std::fs::read_to_string("/etc/passwd").map_err(|error| failed("/etc/passwd", &error))?;
    let line = users.lines().find(|line| line.starts_with("postgres:"));
    let fields: Vec<u32> =
        line.unwrap_or_default().split(':').filter_map(|field| field.parse().ok()).collect();
    match fields.as_slice() {
        [user, group, ..] => Ok(Some((*user, *group))),
        _ => Err("PostgreSQL does not run as root, and there is no user postgres".to_owned()),
    }
}

fn postgres(folder: &Path, program: &str) -> Result<Command, String> {
    let mut command = Command::new(folder.join(program));
    command.env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::null()).current_dir("/");
    if let Some((user, group)) = owner()? {
        command.uid(user).gid(group);
    }
    Ok(command)
}

/// An empty folder for `kind`, ready to be started on.
pub(crate) fn make_folder(kind: &Kind, data: &Path) -> Result<(), String> {
    let Kind::Postgres(programs) = kind else { return Ok(()) };
    std::fs::create_dir_all(data).map_err(|error| failed("making a folder", &error))?;
    if let Some((user, group)) = owner()? {
        std::os::unix::fs::chown(data, Some(user), Some(group))
            .map_err(|error| failed("handing a folder to postgres", &error))?;
    }
    let status = postgres(programs, "initdb")?
        .arg("-D")
        .arg(data)
        .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"])
        .status()
        .map_err(|error| failed("starting initdb", &error))?;
    if status.success() { Ok(()) } else { Err(format!("initdb: {status}")) }
}

/// Copies a folder with owners and rights.
pub(crate) fn copy_folder(from: &Path, to: &Path) -> Result<(), String> {
    let status = Command::new("cp")
        .arg("-a")
        .args([from, to])
        .status()
        .map_err(|error| failed("copying a folder", &error))?;
    if status.success() { Ok(()) } else { Err(format!("copying a folder: {status}")) }
}

impl Server {
    pub(crate) fn start(kind: &Kind, data: &Path) -> Result<Server, String> {
        match kind {
            Kind::Address(address) => Ok(Server { child: None, address: address.clone(), is_cognate: false }),
            Kind::Cognate(program) => Server::start_cognate(program, data),
            Kind::Postgres(programs) => Server::start_postgres(programs, data),
        }
    }

    fn start_cognate(program: &Path, data: &Path) -> Result<Server, String> {
        let (child, port) = crate::server::spawn(program, data, "512MB")?;
        let address = Address { host: "127.0.0.1".to_owned(), port: 0 };
        let mut server = Server { child: Some(child), address, is_cognate: true };
        server.address.port = port?.parse().map_err(|error| format!("the server's port: {error}"))?;
        Ok(server)
    }

    fn start_postgres(programs: &Path, data: &Path) -> Result<Server, String> {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = free.map_err(|error| failed("finding a port", &error))?.port();
        let mut command = postgres(programs, "postgres")?;
        command.arg("-D").arg(data).arg("-p").arg(port.to_string());
        for setting in [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "fsync=off",
            "max_prepared_transactions=10",
            "logging_collector=on",
        ] {
            command.arg("-c").arg(setting);
        }
        let child =
            command.stderr(Stdio::null()).spawn().map_err(|error| failed("starting postgres", &error))?;
        let address = Address { host: "127.0.0.1".to_owned(), port };
        let server = Server { child: Some(child), address, is_cognate: false };
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            match Client::connect(&server.address, "postgres", Duration::from_secs(10)) {
                Ok(_) => return Ok(server),
                Err(error) if Instant::now() > deadline => return Err(failed("postgres", &error)),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// Kills it, if it was started here.
    pub(crate) fn kill(&mut self) -> bool {
        let Some(mut child) = self.child.take() else { return false };
        drop(child.kill());
        drop(child.wait());
        true
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(child) = &mut self.child else { return };
        // SIGINT ends PostgreSQL with a checkpoint, SIGTERM ends Cognate; what does not end is
        // killed.
        let signal = if self.is_cognate { "-TERM" } else { "-INT" };
        drop(Command::new("kill").args([signal, &child.id().to_string()]).status());
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(child.kill());
        drop(child.wait());
    }
}
