//! `cognate-bench all`: every benchmark with the settings of the project's goals, one after the other.

use std::path::PathBuf;

use clap::{Args, Parser};

use super::ServerArgs;
use crate::cli::Cli;
use crate::error::{Error, IoContext, Result};
use crate::report::Record;
use crate::results::{self, Section};

/// The arguments of the whole series.
#[derive(Clone, Debug, Args)]
pub struct AllArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Write each benchmark's results into this folder, one JSON file each.
    #[arg(long, value_name = "DIR", default_value = "bench-results")]
    json: PathBuf,
    /// Write the tables into this Markdown file, between its two marker lines.
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Leave PostgreSQL out.
    #[arg(long)]
    without_peer: bool,
    /// Short runs that only show that everything works; their figures mean nothing.
    #[arg(long)]
    smoke: bool,
    /// Only these benchmarks.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
}

/// A benchmark of the series: name, whether it has a peer, arguments for the goals, arguments for a smoke run.
const SERIES: &[(&str, bool, &str, &str)] = &[
    ("pgbench", true, "", "--scale 1 --seconds 2 --rounds 1"),
    ("bookstore", true, "", "--seconds 4 --items 1000 --browsers 1 --clients 16"),
    ("mixed", true, "", "--seconds 3 --rows 10000 --readings 20000"),
    ("point-read", false, "", "--rows 2000 --reads 2000"),
    ("log", false, "", "--seconds 1"),
    ("device", false, "", "--seconds 1 --rounds 1 --rows 2000 --clients 800"),
    (
        "governor",
        false,
        "",
        "--seconds 1 --settle 1 --turns 1 --rows 2000 --clients 8,16 --limits 4,off --connected 100 --busy 8",
    ),
    ("memory", false, "", "--memory 64MB --seconds 3"),
    (
        "mip",
        true,
        "",
        "--rounds 1 --milliseconds 200 --clients 1,4 --items 1000 --browsers 1 --ahead 10 --retries 20 --rows 1000 --families 10000",
    ),
    ("snum", false, "", "--seconds 1 --rounds 1 --rows 2000"),
    ("recovery", false, "", "--megabytes 40 --rounds 1"),
    ("crash", false, "", "--rounds 3"),
];

/// Runs the series; a benchmark that fails does not keep the others from running, but fails the whole in the end.
pub async fn run(args: &AllArgs) -> Result<()> {
    if let Some(unknown) = args.only.iter().find(|name| !SERIES.iter().any(|(known, ..)| known == name)) {
        let known: Vec<&str> = SERIES.iter().map(|(name, ..)| *name).collect();
        return Err(Error::Usage(format!("--only {unknown}: there are {}", known.join(", "))));
    }
    let mut sections = Vec::new();
    for (name, has_peer, goal, smoke) in SERIES {
        if !args.only.is_empty() && !args.only.iter().any(|only| only == name) {
            continue;
        }
        let peer = *has_peer && !args.without_peer;
        sections.push(one(args, name, peer, if args.smoke { smoke } else { goal }).await?);
    }
    if let Some(path) = &args.results {
        results::write(path, &results::markdown(&sections, &results::machine()))?;
        eprintln!("wrote {}", path.display());
    }
    let failed: Vec<String> = sections
        .iter()
        .filter_map(|section| Some(format!("{}: {}", section.name, section.failure.as_ref()?)))
        .collect();
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Error::Violation(format!("{} benchmarks failed\n{}", failed.len(), failed.join("\n")))),
    }
}

async fn one(args: &AllArgs, name: &str, peer: bool, settings: &str) -> Result<Section> {
    let file = args.json.join(format!("{name}.json"));
    let mut shown = vec!["cognate-bench".to_owned(), name.to_owned()];
    shown.extend(settings.split_whitespace().map(str::to_owned));
    if name == "snum" && args.without_peer {
        shown.extend(["--systems".to_owned(), "pssi,ssi,si,2pl".to_owned()]);
    }
    if peer {
        shown.extend(["--peer".to_owned(), "postgres".to_owned()]);
    }
    let drawn = args.results.as_ref().filter(|_| matches!(name, "governor" | "mip"));
    let picture = drawn.map(|path| path.with_file_name(format!("{name}.svg")));
    if let Some(picture) = &picture {
        shown.extend(["--curves".to_owned(), picture.display().to_string()]);
    }
    let mut line = shown.clone();
    line.extend(["--json".to_owned(), file.display().to_string()]);
    line.extend(args.server.as_arguments(&shown));
    eprintln!("\n{}", shown.join(" "));
    // What an earlier run left must not pass for this one's result.
    if file.exists() {
        std::fs::remove_file(&file).doing(format!("removing {}", file.display()))?;
    }
    let cli = Cli::try_parse_from(&line).map_err(|error| Error::Usage(error.to_string()))?;
    let failure = match Box::pin(cli.run_command()).await {
        Ok(()) => None,
        Err(error) => {
            eprintln!("error: {error}");
            Some(error.to_string())
        }
    };
    let records: Vec<Record> = match std::fs::read_to_string(&file) {
        Ok(text) => serde_json::from_str(&text)
            .map_err(|error| Error::Usage(format!("reading {}: {error}", file.display())))?,
        Err(_) => Vec::new(),
    };
    Ok(Section { name: name.to_owned(), command: shown.join(" "), records, failure, picture })
}
