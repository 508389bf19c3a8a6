//! The subcommands of `cognate-bench`, one file each.

pub mod all;
pub mod analytic;
pub mod bookstore;
pub mod composite;
pub mod conflicts;
pub mod crash;
pub mod device;
pub mod governor;
pub mod interrupt;
pub mod log;
pub mod memory;
pub mod mip;
pub mod mixed;
pub mod oracle;
pub mod pages;
pub mod pgbench;
pub mod point_read;
pub mod recovery;
pub mod replication;
pub mod snum;
pub mod snum_systems;
pub mod statements;

use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value, json};

use crate::error::{Error, Result};
use crate::peer::System;
use crate::peer::cognate::CognateOptions;
use crate::peer::postgres::PostgresOptions;
use crate::report::{self, Record};
use crate::results::provenance;

/// A system to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Peer {
    /// A PostgreSQL that the harness starts from the installed binaries.
    Postgres,
}

/// How the servers under test are started.
#[derive(Clone, Debug, Default, Args)]
pub struct ServerArgs {
    /// The cognate binary; without it the one beside this program, built first if it is not there.
    #[arg(long, value_name = "FILE", env = "COGNATE_BINARY")]
    pub cognate_binary: Option<PathBuf>,
    /// The folder in which servers keep their temporary data; choose one on the disk that you want
    /// to measure.
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// The memory budget of Cognate, such as 256MB; the server's own default if not given.
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
}

impl ServerArgs {
    /// The options for starting Cognate.
    pub fn cognate(&self) -> CognateOptions {
        CognateOptions {
            binary: self.cognate_binary.clone(),
            directory: self.directory.clone(),
            memory: self.memory.clone(),
            extra: Vec::new(),
        }
    }

    /// The same settings as command-line arguments, except those that `line` has already.
    pub fn as_arguments(&self, line: &[String]) -> Vec<String> {
        let path = |path: &PathBuf| path.display().to_string();
        let pairs = [
            ("--cognate-binary", self.cognate_binary.as_ref().map(path)),
            ("--directory", self.directory.as_ref().map(path)),
            ("--memory", self.memory.clone()),
        ];
        let given = pairs.into_iter().filter(|(name, _)| !line.iter().any(|word| word == name));
        given.filter_map(|(name, value)| Some([name.to_owned(), value?])).flatten().collect()
    }

    /// The options for starting PostgreSQL.
    pub fn postgres(&self) -> PostgresOptions {
        PostgresOptions { directory: self.directory.clone(), ..PostgresOptions::default() }
    }
}

/// Which systems a benchmark runs on.
#[derive(Clone, Debug, Args)]
pub struct SystemArgs {
    /// Run the same load on this system too, in the same invocation, and print the ratio.
    #[arg(long, value_name = "SYSTEM")]
    pub peer: Option<Peer>,
    /// Run on the peer alone; no Cognate is started.
    #[arg(long, requires = "peer")]
    pub peer_only: bool,
    /// Run on a server that is up already instead of starting Cognate (its data may be replaced),
    /// for example postgresql://postgres@127.0.0.1:5433/bench.
    #[arg(long, value_name = "URL", conflicts_with = "peer_only")]
    pub connect: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
}

impl SystemArgs {
    /// Starts or connects to every system that was asked for; Cognate first.
    pub async fn start(&self) -> Result<Vec<System>> {
        let mut systems = Vec::new();
        if let Some(url) = &self.connect {
            systems.push(System::connect(url).await?);
        } else if !self.peer_only {
            systems.push(System::start_cognate(&self.server.cognate()).await?);
        }
        if self.peer == Some(Peer::Postgres) {
            systems.push(System::start_postgres(&self.server.postgres()).await?);
        }
        for system in &systems {
            eprintln!("{}: server_version {}", system.name, system.version);
        }
        Ok(systems)
    }
}

/// Where the results go.
#[derive(Clone, Debug, Args)]
pub struct OutputArgs {
    /// Write the results as a JSON list to this file.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Draw the results as an SVG chart into this file.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

impl OutputArgs {
    /// Writes the files that were asked for.
    pub fn write(&self, title: &str, records: &[Record], column: &str) -> Result<()> {
        if let Some(path) = &self.json {
            let mut records = records.to_vec();
            provenance::stamp(&mut records);
            report::write_json(path, &records)?;
            eprintln!("wrote {}", path.display());
        }
        if let Some(path) = &self.svg {
            report::write_svg(path, title, records, column)?;
            eprintln!("wrote {}", path.display());
        }
        Ok(())
    }
}

/// The parameters that every record of a system carries.
pub fn parameters(system: &System, pairs: &[(&str, Value)]) -> Map<String, Value> {
    let mut map = Map::new();
    map.insert("server_version".to_owned(), json!(system.version));
    for (name, value) in pairs {
        map.insert((*name).to_owned(), value.clone());
    }
    map
}

/// How many threads the clients of one run are spread over: as many as there are cores, at most
/// eight.
pub fn client_threads() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from).min(8)
}

/// The order of so many contestants in a round: turn and turn about (A B, B A). What drifts over
/// time then falls on all of them.
pub(crate) fn turn_about(round: impl Into<u64>, count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    if round.into() % 2 == 1 {
        order.reverse();
    }
    order
}

/// Bytes from a size as the server's `--memory` takes it: a number with `KB`, `MB` or `GB` (powers
/// of 1024).
pub fn parse_size(text: &str) -> Result<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => Some(1_u64),
        "K" | "KB" => Some(1 << 10),
        "M" | "MB" => Some(1 << 20),
        "G" | "GB" => Some(1 << 30),
        _ => None,
    };
    let number = digits.trim().parse::<u64>().ok();
    number
        .zip(factor)
        .and_then(|(number, factor)| number.checked_mul(factor))
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| {
            Error::Usage(format!("--memory {text}: a size is a number with KB, MB or GB, such as 256MB"))
        })
}
