//! The project's own chores: `cargo xtask ci` is the one gate, locally and in CI; `cargo xtask
//! tidy` checks the shape of the house; `cargo xtask isolation` runs PostgreSQL's isolation specs,
//! for which it needs PostgreSQL's tester; `cargo xtask regress` runs PostgreSQL's regression
//! scripts and compares, for which it needs PostgreSQL; `cargo xtask clients` runs programs of
//! PostgreSQL drivers, which it takes from their registries; `cargo xtask simulate` lets simulated
//! clusters through storms.
//!
//! Nothing here changes a file. Each step prints its name and its time.

mod clients;
mod gate;
mod isolation;
mod lanes;
mod regress;
mod server;
mod step;
mod suite;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use step::cargo;

const USAGE: &str = "usage: cargo xtask <ci | tidy | isolation | regress | clients | simulate>
  ci    fmt, tidy, clippy, tests, explored schedules, fault points, planted faults, simulated clusters, a trial of exactly-once and docs, all with
        warnings denied; from the tests on in two lanes beside each other, whose output is printed when it is whole (target/gate)
  tidy  crate direction, file and function lengths, prose at the head of modules, lengths of comments' lines
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

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = workspace_root();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["ci"] => gate::run(&root),
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

/// As cargo says when it starts this program, since checkouts that share a target folder share the
/// program, too, with the path of the one that built it.
fn workspace_root() -> PathBuf {
    let built = || PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(built, PathBuf::from);
    manifest.parent().unwrap_or(&manifest).to_path_buf()
}

/// Simulated clusters, each in a storm of its own seed.
fn simulate(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let (mut seeds, mut first) = (gate::SEEDS, "1");
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
        &["test", "--workspace", "--locked", "--test", "main", "--features", gate::PLANTED]
    };
    let tests = [tests, &["--", "simulation", "--nocapture"]].concat();
    cargo(root, "simulated clusters", &tests, &[("COGNATE_SEEDS", seeds), ("COGNATE_SEED", first)])
}
