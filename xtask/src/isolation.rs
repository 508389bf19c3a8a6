//! `cargo xtask isolation`: PostgreSQL's own isolation specs, against this server.
//!
//! The tester and the specs are PostgreSQL's and are not part of this repository: the tester is a
//! program, the specs a folder with `specs/` and `expected/`. Each spec gets a server of its own on
//! an empty folder. Its output is cut into permutations, and each of them compared with what
//! PostgreSQL answers. Where they differ, the serialization failures tell how: Cognate aborts only
//! where a cycle closes, so it should have fewer of them, or choose another victim.
//!
//! ```text
//! permutation of the output ── equal to that of some expected file ──▶ same
//!        └── else: serialization failures, fewer / as many / more ──▶ fewer aborts, another victim, more aborts
//!                                              none in either ──▶ other
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::server::{self, Server};

/// What PostgreSQL says when a transaction cannot be serialized.
const FAILURE: &str = "could not serialize access";
/// Begins a permutation.
const START: &str = "starting permutation: ";
/// Seconds after which the tester cancels a step that hangs.
const STEP_SECONDS: &str = "5";
/// How PostgreSQL's own runs are set. The time-out is ours, longer than a step: where PostgreSQL
/// has aborted a transaction already, a permutation may leave Cognate's open; the table is dropped
/// then.
const SETTINGS: [(&str, &str); 4] = [
    ("PGISOLATIONTIMEOUT", STEP_SECONDS),
    ("PGDATESTYLE", "Postgres, MDY"),
    ("PGTZ", "PST8PDT"),
    ("PGOPTIONS", "-c intervalstyle=postgres_verbose -c lock_timeout=8s"),
];

/// The arguments.
struct Plan {
    tester: PathBuf,
    specs: PathBuf,
    server: PathBuf,
    /// Only these, unless there are none.
    names: Vec<String>,
}

/// What became of one spec.
#[derive(Default)]
struct Outcome {
    permutations: usize,
    same: usize,
    fewer: usize,
    victim: usize,
    more: usize,
    other: usize,
    not_run: usize,
    /// What Cognate does not have.
    missing: Option<String>,
}

/// Runs the specs and prints a table.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let plan = plan(root, arguments)?;
    let mut names = plan.names.clone();
    if names.is_empty() {
        let entries = std::fs::read_dir(plan.specs.join("specs"))
            .map_err(|error| failed("reading the specs", &error))?;
        let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let specs = files.filter(|path| path.extension().is_some_and(|extension| extension == "spec"));
        names = specs.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect();
        names.sort();
    }
    println!(
        "| spec | permutations | same | fewer aborts | another victim | more aborts | other | not run | not supported |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for name in names {
        println!("{}", row(&name, &spec(&plan, &name)?));
    }
    Ok(())
}

fn plan(root: &Path, arguments: &[&str]) -> Result<Plan, String> {
    let (mut tester, mut specs, mut server, mut names) = (None, None, None, Vec::new());
    let mut arguments = arguments.iter();
    while let Some(&argument) = arguments.next() {
        let mut path = || arguments.next().map(PathBuf::from).ok_or(format!("{argument} needs a path"));
        match argument {
            "--tester" => tester = Some(path()?),
            "--specs" => specs = Some(path()?),
            "--server" => server = Some(path()?),
            name => names.push(name.to_owned()),
        }
    }
    let server = match server {
        Some(server) => server,
        None => server::build(root)?,
    };
    let tester = tester.ok_or("--tester: the path of PostgreSQL's isolationtester")?;
    let specs = specs.ok_or("--specs: a folder with PostgreSQL's isolation specs/ and expected/")?;
    Ok(Plan { tester, specs, server, names })
}

fn failed(doing: &str, error: &std::io::Error) -> String {
    format!("{doing}: {error}")
}

fn spec(plan: &Plan, name: &str) -> Result<Outcome, String> {
    let server = Server::start(&plan.server, "isolation")?;
    let file = plan.specs.join("specs").join(format!("{name}.spec"));
    let input = std::fs::File::open(&file).map_err(|error| failed(&file.display().to_string(), &error))?;
    let connection = format!("host=127.0.0.1 port={} user=postgres dbname=postgres", server.port);
    let output = Command::new(&plan.tester)
        .arg(connection)
        .envs(SETTINGS)
        .stdin(input)
        .output()
        .map_err(|error| failed("starting the tester", &error))?;
    let expected = expected(plan, name)?;
    let (told, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let mut outcome = compare(&told, &expected);
    outcome.missing = missing(&complained).or_else(|| missing(&told));
    Ok(outcome)
}

/// The expected outputs: a spec may have several.
fn expected(plan: &Plan, name: &str) -> Result<Vec<String>, String> {
    let of = |suffix: &str| plan.specs.join("expected").join(format!("{name}{suffix}.out"));
    let files = ["", "_1", "_2", "_3"].map(of).into_iter().filter(|file| file.exists());
    let read = |file| std::fs::read_to_string(file).map_err(|error| failed("an expected output", &error));
    files.map(read).collect()
}

/// Permutations by their names; one that occurs again is counted.
fn permutations(output: &str) -> BTreeMap<(String, usize), String> {
    let mut all = BTreeMap::new();
    for part in output.split(START).skip(1) {
        let (name, body) = part.split_once('\n').unwrap_or((part, ""));
        let mut place = 0;
        while all.contains_key(&(name.to_owned(), place)) {
            place += 1;
        }
        all.insert((name.to_owned(), place), body.trim_end().to_owned());
    }
    all
}

fn compare(told: &str, expected: &[String]) -> Outcome {
    let alternatives: Vec<_> = expected.iter().map(|text| permutations(text)).collect();
    let mut outcome = Outcome::default();
    let told = permutations(told);
    let Some(first) = alternatives.first() else { return outcome };
    for (name, wanted) in first {
        outcome.permutations += 1;
        let Some(got) = told.get(name) else {
            outcome.not_run += 1;
            continue;
        };
        if alternatives.iter().any(|alternative| alternative.get(name) == Some(got)) {
            outcome.same += 1;
            continue;
        }
        let (got, wanted) = (got.matches(FAILURE).count(), wanted.matches(FAILURE).count());
        match got.cmp(&wanted) {
            std::cmp::Ordering::Less => outcome.fewer += 1,
            std::cmp::Ordering::Greater => outcome.more += 1,
            std::cmp::Ordering::Equal if got > 0 => outcome.victim += 1,
            std::cmp::Ordering::Equal => outcome.other += 1,
        }
    }
    outcome
}

/// The first message that says that something is not there.
fn missing(text: &str) -> Option<String> {
    let told = |line: &&str| line.contains("not supported") || line.contains("syntax error");
    let line = text.lines().find(told)?;
    Some(line.split("ERROR:").last().unwrap_or(line).trim().replace('|', "\\|"))
}

fn row(name: &str, outcome: &Outcome) -> String {
    let mut row = format!("| {name} | {} |", outcome.permutations);
    for count in [outcome.same, outcome.fewer, outcome.victim, outcome.more, outcome.other, outcome.not_run] {
        match count {
            0 => row.push_str(" |"),
            _ => drop(write!(row, " {count} |")),
        }
    }
    let _ = write!(row, " {} |", outcome.missing.as_deref().unwrap_or(""));
    row
}
