//! A PostgreSQL of the tests' own, from the installed programs.
//!
//! Where there is none the test says so on the terminal, and has tested nothing. PostgreSQL does
//! not run as root, so a test that does starts it as user `postgres`.

use std::fs::{DirEntry, metadata, read_dir, read_to_string};
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::process::{END, Failure, port};

/// Where Debian has its programs, in a folder for each version.
const VERSIONS: &str = "/usr/lib/postgresql";
/// Nothing here is meant to survive the machine. Calls without undo are kept prepared.
const SETTINGS: [&str; 5] = [
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "max_connections=200",
    "max_prepared_transactions=64",
    "fsync=off",
];

/// A user and its group, by numbers.
type Owner = Option<(u32, u32)>;

/// A running PostgreSQL.
pub(crate) struct Postgres {
    process: Child,
    address: SocketAddr,
    programs: PathBuf,
    _folder: tempfile::TempDir,
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // QUIT ends all its processes at once.
        let quit = format!("kill -QUIT {}", self.process.id());
        let _ = Command::new("sh").args(["-c", &quit]).status();
        let _ = self.process.wait();
    }
}

impl Postgres {
    /// Starts one; none where none is installed.
    pub(crate) fn start() -> Result<Option<Postgres>, Failure> {
        let Some(programs) = programs() else {
            // Not by a macro of the standard library, whose output tests swallow.
            let said = "\nSKIPPED: nothing is tested on PostgreSQL, since there is none here (Debian's \
                package postgresql)\n";
            std::io::stderr().write_all(said.as_bytes())?;
            return Ok(None);
        };
        let (owner, folder, address) = (owner()?, tempfile::tempdir()?, port()?);
        if let Some((user, group)) = owner {
            chown(folder.path(), Some(user), Some(group))?;
        }
        let data = folder.path().join("data");
        let made = command(&programs.join("initdb"), owner, folder.path())
            .arg("-D")
            .arg(&data)
            .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"])
            .status()?;
        if !made.success() {
            return Err(format!("initdb: {made}").into());
        }
        let mut server = command(&programs.join("postgres"), owner, folder.path());
        server.arg("-D").arg(&data).arg("-c").arg(format!("port={}", address.port()));
        for setting in SETTINGS {
            server.args(["-c", setting]);
        }
        let process = server.stderr(Stdio::null()).spawn()?;
        Ok(Some(Postgres { process, address, programs, _folder: folder }))
    }

    /// A new database. Waits until connections are taken.
    pub(crate) fn database(&mut self, name: &str) -> Result<String, Failure> {
        let (address, begun) = (self.address, Instant::now());
        loop {
            let mut create = Command::new(self.programs.join("createdb"));
            create.args(["-h", "127.0.0.1", "-U", "postgres", "-p", &address.port().to_string(), name]);
            if create.stderr(Stdio::null()).status()?.success() {
                return Ok(format!("postgresql://postgres@{address}/{name}"));
            }
            if let Some(status) = self.process.try_wait()? {
                return Err(format!("PostgreSQL has ended: {status}").into());
            }
            if begun.elapsed() > END {
                return Err("PostgreSQL takes no connections".into());
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// The programs of the newest version.
fn programs() -> Option<PathBuf> {
    let version = |entry: &DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let versions = read_dir(VERSIONS).ok()?.flatten();
    let programs = versions.filter_map(|entry| Some((version(&entry)?, entry.path().join("bin"))));
    // A client's packages have a folder, too.
    programs.filter(|(_, folder)| folder.join("initdb").exists()).max().map(|(_, folder)| folder)
}

/// The user that it runs as, if this one is root.
fn owner() -> Result<Owner, Failure> {
    if metadata("/proc/self")?.uid() != 0 {
        return Ok(None);
    }
    let users = read_to_string("/etc/passwd")?;
    let user = users.lines().find_map(|line| line.strip_prefix("postgres:"));
    let mut fields = user.ok_or("there is no user postgres")?.split(':').skip(1);
    let mut number = || fields.next().and_then(|field| field.parse::<u32>().ok());
    match (number(), number()) {
        (Some(user), Some(group)) => Ok(Some((user, group))),
        _ => Err("the user postgres has no numbers".into()),
    }
}

fn command(program: &Path, owner: Owner, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::null());
    if let Some((user, group)) = owner {
        command.uid(user).gid(group);
    }
    command
}
