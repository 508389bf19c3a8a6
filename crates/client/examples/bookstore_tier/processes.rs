//! Sites and application servers as child processes on loopback. All of them end with their owner
//! here.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio_postgres::NoTls;

use crate::Error;

/// How long a process may take until it answers.
const READY: Duration = Duration::from_secs(60);

fn urls(ports: &[u16]) -> Vec<String> {
    ports.iter().map(|port| format!("http://127.0.0.1:{port}")).collect()
}

/// Ports that the system gives to nobody who lets it choose: one that is killed finds its own free
/// when it is started again.
const PORTS: std::ops::Range<u16> = 18_000..20_000;

/// Ports that are free now.
pub(crate) fn free_ports(count: usize) -> Result<Vec<u16>, Error> {
    // All are held until the last is found, so that none comes twice.
    let mut listeners: Vec<TcpListener> = Vec::new();
    for _ in PORTS {
        if listeners.len() == count {
            break;
        }
        listeners.extend(TcpListener::bind(("127.0.0.1", rand::random_range(PORTS))).ok());
    }
    if listeners.len() < count {
        return Err("no ports are free".into());
    }
    listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

/// A child that is killed when dropped.
struct Process(Child);

impl Process {
    fn spawn(command: &mut Command) -> Result<Process, Error> {
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.stdin(Stdio::null()).spawn().map_err(|error| format!("{program}: {error}"))?;
        Ok(Process(child))
    }

    fn kill(&mut self) -> Result<(), Error> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }

    fn signal(&self, name: &str) -> Result<(), Error> {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.0.id().to_string()).status()?;
        if status.success() { Ok(()) } else { Err(format!("kill -{name} failed").into()) }
    }

    fn has_ended(&mut self) -> Result<bool, Error> {
        Ok(self.0.try_wait()?.is_some())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A Cognate that this program has started.
struct Site {
    process: Process,
    binary: PathBuf,
    arguments: Vec<String>,
    folder: TempDir,
    ports: [u16; 2],
}

impl Site {
    fn spawn(binary: &Path, folder: &Path, ports: [u16; 2], arguments: &[String]) -> Result<Process, Error> {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(folder.join("site.log"))?;
        Process::spawn(
            Command::new(binary)
                .args(["serve", "--memory", "128MB", "--data"])
                .arg(folder.join("data"))
                .args(["--listen", &format!("127.0.0.1:{}", ports[0])])
                .args(["--http", &format!("127.0.0.1:{}", ports[1])])
                .args(arguments)
                .stdout(log.try_clone()?)
                .stderr(log),
        )
    }

    async fn wait(&mut self, address: &str) -> Result<(), Error> {
        let begun = Instant::now();
        while tokio_postgres::connect(address, NoTls).await.is_err() {
            if self.process.has_ended()? || begun.elapsed() > READY {
                let log = std::fs::read_to_string(self.folder.path().join("site.log")).unwrap_or_default();
                return Err(format!("a site did not start:\n{log}").into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

/// The sites.
pub(crate) struct Sites {
    addresses: Vec<String>,
    /// None if they were running before.
    ours: Vec<Site>,
}

impl Sites {
    /// Databases that run already.
    pub(crate) fn given(addresses: Vec<String>) -> Sites {
        Sites { addresses, ours: Vec::new() }
    }

    /// New ones, which know the application servers: what is left prepared is pushed back to these.
    pub(crate) async fn start(
        count: usize,
        binary: Option<&Path>,
        arguments: &[String],
        servers: &[u16],
    ) -> Result<Sites, Error> {
        let binary = find_binary(binary)?;
        let mut sites = Sites { addresses: Vec::new(), ours: Vec::new() };
        // Which the application servers do not have, that are started last.
        let mut free = free_ports(2 * count + servers.len())?;
        free.retain(|port| !servers.contains(port));
        for (place, ports) in free.chunks_exact(2).take(count).enumerate() {
            let (folder, ports) = (TempDir::new()?, [ports[0], ports[1]]);
            let stub = ["--application-servers", &urls(servers).join(","), "--in-doubt-push-after", "2s"];
            let stub = stub.into_iter().map(str::to_owned);
            let lane = ["--site".to_owned(), (place + 1).to_string()];
            let arguments: Vec<String> = stub.chain(lane).chain(arguments.iter().cloned()).collect();
            let process = Site::spawn(&binary, folder.path(), ports, &arguments)?;
            let binary = binary.clone();
            let address = format!("host=127.0.0.1 port={} user=cognate dbname=postgres", ports[0]);
            let mut site = Site { process, binary, arguments, folder, ports };
            site.wait(&address).await?;
            sites.addresses.push(address);
            sites.ours.push(site);
        }
        Ok(sites)
    }

    pub(crate) fn addresses(&self) -> &[String] {
        &self.addresses
    }

    pub(crate) fn are_ours(&self) -> bool {
        !self.ours.is_empty()
    }

    /// `kill -9`, and again on the same folder.
    pub(crate) async fn kill_and_restart(&mut self, place: usize) -> Result<(), Error> {
        let Some(site) = self.ours.get_mut(place) else { return Ok(()) };
        site.process.kill()?;
        site.process = Site::spawn(&site.binary, site.folder.path(), site.ports, &site.arguments)?;
        site.wait(&self.addresses[place]).await
    }
}

/// The application servers: this program in another role.
pub(crate) struct Servers {
    processes: Vec<Process>,
    ports: Vec<u16>,
    sites: Vec<String>,
}

impl Servers {
    pub(crate) async fn start(ports: Vec<u16>, sites: &[String]) -> Result<Servers, Error> {
        let count = ports.len();
        let sites = sites.to_vec();
        let mut servers = Servers { processes: Vec::new(), ports, sites };
        for server in 0..count {
            let process = servers.spawn(server)?;
            servers.processes.push(process);
        }
        for server in 0..count {
            let begun = Instant::now();
            while tokio::net::TcpStream::connect(("127.0.0.1", servers.ports[server])).await.is_err() {
                if servers.processes[server].has_ended()? || begun.elapsed() > READY {
                    return Err("an application server did not start".into());
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        Ok(servers)
    }

    fn spawn(&self, server: usize) -> Result<Process, Error> {
        Process::spawn(
            Command::new(std::env::current_exe()?)
                .args(["--application-server", &format!("127.0.0.1:{}", self.ports[server])])
                .args(self.sites.iter().flat_map(|site| ["--site", site])),
        )
    }

    pub(crate) fn len(&self) -> usize {
        self.processes.len()
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        urls(&self.ports)
    }

    pub(crate) fn kill(&mut self, server: usize) -> Result<(), Error> {
        self.processes[server].kill()
    }

    pub(crate) fn restart(&mut self, server: usize) -> Result<(), Error> {
        self.processes[server] = self.spawn(server)?;
        Ok(())
    }

    pub(crate) fn pause(&mut self, server: usize) -> Result<(), Error> {
        self.processes[server].signal("STOP")
    }

    pub(crate) fn resume(&mut self, server: usize) -> Result<(), Error> {
        self.processes[server].signal("CONT")
    }
}

/// The binary to run: the one given, the one beside this program, or one built now.
fn find_binary(given: Option<&Path>) -> Result<PathBuf, Error> {
    if let Some(given) = given {
        return Ok(std::path::absolute(given)?);
    }
    // This program is in `target/<profile>/examples`.
    let me = std::env::current_exe()?;
    let folder = me.parent().and_then(Path::parent).ok_or("this program is in no folder")?;
    let binary = folder.join("cognate");
    if binary.is_file() {
        return Ok(binary);
    }
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--package", "cognate"]);
    if folder.file_name().is_some_and(|name| name == "release") {
        build.arg("--release");
    }
    println!("{} is not there: building it", binary.display());
    match build.status()?.success() && binary.is_file() {
        true => Ok(binary),
        false => Err("cannot build cognate; give it by --cognate".into()),
    }
}
