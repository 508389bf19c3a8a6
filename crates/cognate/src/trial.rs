//! `cognate cluster`: a whole cluster on loopback, to try it out. Each node is a process of its
//! own, this program with `serve`, and ends with this one.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use clap::Args;
use rand::Rng as _;

/// Where nodes meet each other: so far above the port of their clients.
const PEER_OFFSET: u16 = 100;
/// Where their live pages, health and metrics are.
const HTTP_OFFSET: u16 = 200;
/// How often it is looked whether the nodes have ended that were asked to.
pub(crate) const LOOK: Duration = Duration::from_millis(20);
/// How often it is looked whether all have ended by themselves, such as for a port in use.
pub(crate) const LOOK_AT_RUNNING: Duration = Duration::from_millis(500);

/// Arguments of `cognate cluster`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Trial {
    /// How many nodes.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=15))]
    nodes: u16,
    /// Folder of all nodes' data: node1, node2 and so on.
    #[arg(long, value_name = "DIR", default_value = "cognate-cluster")]
    data: PathBuf,
    /// SQL is on this port of loopback and on the next ones.
    #[arg(long, value_name = "PORT", default_value_t = 5433, value_parser = clap::value_parser!(u16).range(1..))]
    base_port: u16,
    /// Memory budget of each node, e.g. 256MB.
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
}

/// The nodes' processes.
pub(crate) struct Nodes {
    children: Vec<(u16, Child)>,
}

impl Trial {
    /// Starts all nodes. Their lines `ready …` come out with the node's number before them.
    pub(crate) fn start(&self) -> Result<Nodes, String> {
        // All ports are below this one.
        self.base_port.checked_add(HTTP_OFFSET + self.nodes).ok_or("base-port: too high")?;
        std::fs::create_dir_all(&self.data)
            .map_err(|e| format!("cannot make {}: {e}", self.data.display()))?;
        let secret = self.secret()?;
        let program = std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
        let peers: Vec<String> = (1..=self.nodes)
            .map(|node| format!("{node}=127.0.0.1:{}", self.port(node) + PEER_OFFSET))
            .collect();
        let mut nodes = Nodes { children: Vec::new() };
        for node in 1..=self.nodes {
            let child = self.node(&program, node, &peers.join(","), &secret);
            let mut child = match child {
                Ok(child) => child,
                Err(error) => {
                    // Those that run already would be left behind.
                    nodes.ask();
                    nodes.children.iter_mut().for_each(|(_, child)| drop(child.wait()));
                    return Err(format!("cannot start node {node}: {error}"));
                }
            };
            if let Some(output) = child.stdout.take() {
                std::thread::spawn(move || announce(node, output));
            }
            nodes.children.push((node, child));
        }
        Ok(nodes)
    }

    fn port(&self, node: u16) -> u16 {
        self.base_port + node - 1
    }

    fn node(&self, program: &Path, node: u16, peers: &str, secret: &Path) -> std::io::Result<Child> {
        let mut command = Command::new(program);
        command.arg("serve").arg("--data").arg(self.data.join(format!("node{node}")));
        command.args(["--listen", &format!("127.0.0.1:{}", self.port(node))]);
        command.args(["--http", &format!("127.0.0.1:{}", self.port(node) + HTTP_OFFSET)]);
        command.args(["--node", &node.to_string(), "--peers", peers]);
        command.arg("--cluster-secret-file").arg(secret);
        if let Some(memory) = &self.memory {
            command.args(["--memory", memory]);
        }
        // A terminal's interrupt is for this process alone, which tells the nodes: they would take
        // that for the second signal, and end at once.
        command.process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()
    }

    /// The file of the secret, made at the first start.
    fn secret(&self) -> Result<PathBuf, String> {
        let path = self.data.join("secret");
        if !path.exists() {
            let bytes: [u8; 16] = rand::rng().random();
            let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            // Nobody else reads it, and no start finds a part of it.
            let fresh = self.data.join("secret.new");
            let write = || {
                let mut file = std::fs::OpenOptions::new();
                let mut file = file.write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
                file.write_all((text + "\n").as_bytes())?;
                std::fs::rename(&fresh, &path)
            };
            write().map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        }
        Ok(path)
    }
}

/// Passes on what a node says on its standard output.
fn announce(node: u16, output: impl std::io::Read) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        let mut out = std::io::stdout().lock();
        // Whoever started this may have closed its output; that is no reason to stop.
        let _ = writeln!(out, "node {node}  {line}");
        let _ = out.flush();
    }
}

impl Nodes {
    /// Asks those that still run to stop. Asked once more, they end at once.
    pub(crate) fn ask(&mut self) {
        for (_, child) in &mut self.children {
            if matches!(child.try_wait(), Ok(None))
                && let Some(pid) = rustix::process::Pid::from_raw(child.id() as i32)
            {
                // One that has ended meanwhile needs no signal.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            }
        }
    }

    /// Whether all have ended well, once all have ended.
    pub(crate) fn ended(&mut self) -> Option<Result<(), String>> {
        let mut failed = Vec::new();
        for (node, child) in &mut self.children {
            match child.try_wait() {
                Ok(None) => return None,
                Ok(Some(status)) if status.success() => {}
                Ok(Some(status)) => failed.push(format!("node {node} ended with {status}")),
                Err(error) => failed.push(format!("node {node}: {error}")),
            }
        }
        Some(if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) })
    }
}
