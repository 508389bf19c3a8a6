//! The project's own chores: `cargo xtask ci` is the one gate, locally and in CI; `cargo xtask
//! tidy` checks the shape of the house; `cargo xtask isolation` runs PostgreSQL's isolation specs,
//! for which it needs PostgreSQL's tester; `cargo xtask regress` runs PostgreSQL's regression
//! scripts and compares, for which it needs PostgreSQL; `cargo xtask clients` runs programs of
//! PostgreSQL drivers, which it takes from their registries; `cargo xtask simulate` lets simulated
//! clusters through storms.
//!
//! Nothing here changes a file. Each step prints its name and its time, and the first that fails
//! ends the run.

mod clients;
mod isolation;
mod regress;
mod server;
mod step;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use step::cargo;

const USAGE: &str = "usage: cargo xtask <ci | tidy | isolation | regress | clients | simulate>
  ci    fmt, clippy, tidy, tests, explored schedules, fault points, planted faults, simulated clusters, a trial of exactly-once and docs, all with
        warnings denied
  tidy  crate direction, file and function lengths, prose at the head of modules
  isolation --tester PROGRAM --specs FOLDER [--server PROGRAM] [SPEC ...]
        PostgreSQL's isolation specs against this server, as a table
  regress --files FOLDER --postgres FOLDER|HOST:PORT [--server PROGRAM|HOST:PORT] [--details FILE] [--seconds N] [--every] [NAME ...]
        PostgreSQL's regression scripts (src/test/regress of its source), statement by statement against PostgreSQL (the folder of its
        programs) and this server; --every also those about what Cognate does not have
  clients [--server PROGRAM] [NAME ...]
        programs of PostgreSQL drivers against this server, drivers as their registries have them
  simulate [--seeds N] [--first SEED]
        simulated clusters of engines, each in a storm of its own seed [default: 100 from 1 on]; each seed is printed before it runs;
        optimized from 1000 on";

/// The packages of which a step's features are put together. Other packages' features would be put
/// together otherwise, and everything below were built once more.
const WHOLE: [&str; 2] = ["--workspace", "--locked"];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = workspace_root();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["ci"] => ci(&root),
        ["tidy"] => tidy::check(&root),
        ["isolation", arguments @ ..] => isolation::run(&root, arguments),
        ["regress", arguments @ ..] => regress::run(&root, arguments),
        ["clients", arguments @ ..] => clients::run(&root, arguments),
        ["simulate", arguments @ ..] => simulate(&root, arguments),
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

fn workspace_root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

fn ci(root: &Path) -> Result<(), String> {
    cargo(root, "fmt", &["fmt", "--all", "--check"], &[])?;
    println!("== tidy");
    tidy::check(root)?;
    // With the harness' driver for Galera, which nothing else here builds.
    let galera = ["--features", "cognate-harness/galera"];
    let clippy =
        [&["clippy", "--workspace", "--all-targets", "--locked"], &galera[..], &["--", "-D", "warnings"]]
            .concat();
    cargo(root, "clippy", &clippy, &[])?;
    cargo(root, "tests", &["test", "--workspace", "--locked", "--no-fail-fast"], &[])?;
    schedules(root)?;
    faults(root)?;
    planted(root)?;
    simulate(root, &[])?;
    exactly_once(root)?;
    cargo(root, "docs", &["doc", "--workspace", "--no-deps", "--locked"], &[("RUSTDOCFLAGS", "-D warnings")])
}

/// Requests over three sites and three application servers, all of which are killed: each happens
/// once. The long trial is in the example's head.
fn exactly_once(root: &Path) -> Result<(), String> {
    let build = ["build", "--workspace", "--bin", "cognate", "--example", "bookstore_tier", "--locked"];
    cargo(root, "programs of the trial", &build, &[])?;
    let trial = ["--buys", "200", "--sites", "3", "--kill-sites", "--havoc"];
    step::program(root, "exactly once", "target/debug/examples/bookstore_tier", &trial)
}

/// Components of composite transactions that die at every fault point. The long runs are in the
/// heads of the tests' files.
fn faults(root: &Path) -> Result<(), String> {
    let points = [&WHOLE[..], &["--features", "cognate-composite/fault-points"]].concat();
    let targets = ["--lib", "--test", "components", "--test", "protocol"];
    let example = ["--example", "purchase"];
    let clippy = [&["clippy"], &points[..], &targets, &example, &["--", "-D", "warnings"]].concat();
    cargo(root, "clippy of fault points", &clippy, &[])?;
    // The tests start it.
    cargo(root, "the purchase with fault points", &[&["build"], &points[..], &example].concat(), &[])?;
    let tests = [&["test"], &points[..], &targets, &["--", "fault"]].concat();
    cargo(root, "faults", &tests, &[])
}

/// Rules of a cluster that are left out, each of which the engine's histories, or the storms of the
/// total order, must notice.
fn planted(root: &Path) -> Result<(), String> {
    let engine = ("cognate-engine", &["--test", "main"][..], "cluster_faults");
    let replication = ("cognate-replication", &["--lib", "--test", "cluster"][..], "faults");
    for (package, targets, filter) in [engine, replication] {
        let package = ["--package", package, "--features", "planted-faults", "--locked"];
        let clippy = [&["clippy", "--all-targets"], &package[..], &["--", "-D", "warnings"]].concat();
        cargo(root, "clippy of planted faults", &clippy, &[])?;
        let tests = [&["test"], &package[..], targets, &["--", filter]].concat();
        cargo(root, "planted faults", &tests, &[])?;
    }
    Ok(())
}

/// Simulated clusters, each in a storm of its own seed.
fn simulate(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let (mut seeds, mut first) = ("100", "1");
    for pair in arguments.chunks(2) {
        match pair {
            ["--seeds", number] if number.parse::<u64>().is_ok() => seeds = number,
            ["--first", number] if number.parse::<u64>().is_ok() => first = number,
            _ => return Err(USAGE.to_owned()),
        }
    }
    // Optimized, a storm takes a fifth of the time; for a hundred, building would take longer than
    // that, and is not needed where the tests have been built.
    let tests: &[&str] = if seeds.len() > 3 {
        &["test", "--package", "cognate-server", "--test", "main", "--locked", "--release"]
    } else {
        &["test", WHOLE[0], WHOLE[1], "--test", "main"]
    };
    let tests = [tests, &["--", "simulation", "--nocapture"]].concat();
    cargo(root, "simulated clusters", &tests, &[("COGNATE_SEEDS", seeds), ("COGNATE_SEED", first)])
}

/// The engine under a scheduler that explores schedules: its library alone, with the feature that
/// puts the scheduler in.
fn schedules(root: &Path) -> Result<(), String> {
    let engine = ["--package", "cognate-engine", "--features", "shuttle", "--lib", "--locked"];
    let clippy = [&["clippy", "--tests"], &engine[..], &["--", "-D", "warnings"]].concat();
    cargo(root, "clippy of schedules", &clippy, &[])?;
    let tests = [&["test"], &engine[..], &["schedules::"]].concat();
    cargo(root, "schedules", &tests, &[])
}
