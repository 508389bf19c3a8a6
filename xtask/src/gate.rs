//! `cargo xtask ci`, the gate.
//!
//! ```text
//! fmt ─▶ tidy ─▶ clippy ─▶ tests are built ─▶ lanes: one waits, one computes
//! ```
//!
//! The first that fails ends the run, up to the lanes. There each test's binary is a job, and so
//! are the checks that build a part of the house otherwise, beside tests that wait for processes:
//! all of them are run, whatever fails.
//!
//! Whatever asks cargo for a feature asks for the whole workspace, and names targets that are built
//! with it. Features of other packages would be put together otherwise, and everything below were
//! built once more. The scheduler under the engine is the exception: it would be under all others.
//!
//! Invariant: what is built while tests run replaces no program that they start. The purchase with
//! fault points does, so it follows the components' tests in their own job.

use std::path::Path;
use std::process::Command;

use super::lanes::{self, Job, Lane};
use super::step::{self, cargo, command};
use super::suite::{self, Binary};
use super::tidy;

/// So many simulated clusters.
pub(crate) const SEEDS: &str = "100";

const COMPONENTS: &str = "composite test components";
const SERVER: &str = "server test main";

/// Tests that take long, so they begin first. Those that wait are processes that are started,
/// killed and elected.
const FIRST: [(&str, Lane); 6] = [
    ("cognate test main", Lane::Waits),
    (COMPONENTS, Lane::Waits),
    ("replication test cluster", Lane::Waits),
    (SERVER, Lane::Computes),
    ("sql lib cognate_sql", Lane::Computes),
    ("sql test main", Lane::Computes),
];

/// Checks everything.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    cargo(root, "fmt", &["fmt", "--all", "--check"], &[])?;
    println!("== tidy");
    tidy::check(root)?;
    // With the harness' driver for Galera, which nothing else here builds.
    let galera = ["--all-targets", "--features", "cognate-harness/galera"];
    let whole = ["clippy", "--workspace", "--locked"];
    let clippy = [&whole[..], &galera, &["--", "-D", "warnings"]].concat();
    cargo(root, "clippy", &clippy, &[])?;
    lanes::run(root, jobs(root, suite::build(root)?)?)
}

/// All jobs, those first that take long.
fn jobs(root: &Path, mut binaries: Vec<Binary>) -> Result<Vec<Job>, String> {
    let mut jobs = Vec::new();
    for (name, lane) in FIRST {
        let found = binaries.iter().position(|binary| binary.name() == name);
        let binary = binaries.remove(found.ok_or_else(|| format!("no tests are called {name}"))?);
        if name == SERVER {
            // The storms are a job of their own.
            jobs.push(storms(&binary));
            jobs.push(Job::new(name, lane, vec![tests(&binary, lane, &["--skip", "simulation"])]));
            continue;
        }
        let mut commands = vec![tests(&binary, lane, &[])];
        if name == COMPONENTS {
            commands.extend(faults(root));
        }
        jobs.push(Job::new(name, lane, commands));
    }
    jobs.push(Job::new("exactly once", Lane::Waits, exactly_once(root)));
    jobs.push(Job::new("planted faults", Lane::Computes, planted(root)));
    jobs.push(Job::new("schedules", Lane::Computes, schedules(root)));
    let alone = |binary: Binary| {
        let command = tests(&binary, Lane::Computes, &[]);
        Job::new(binary.name(), Lane::Computes, vec![command])
    };
    jobs.extend(binaries.into_iter().map(alone));
    let examples = command(root, &["test", "--workspace", "--locked", "--doc"], &[]);
    jobs.push(Job::new("examples in docs", Lane::Computes, vec![examples]));
    let denied = [("RUSTDOCFLAGS", "-D warnings")];
    let docs = command(root, &["doc", "--workspace", "--no-deps", "--locked"], &denied);
    jobs.push(Job::new("docs", Lane::Computes, vec![docs]));
    Ok(jobs)
}

/// The tests of a binary. Where they wait, more of them go on at the same time than there are
/// cores, unless whoever runs the gate has said how many.
fn tests(binary: &Binary, lane: Lane, words: &[&str]) -> Command {
    let mut command = binary.command(words);
    if lane == Lane::Waits && std::env::var_os("RUST_TEST_THREADS").is_none() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        command.env("RUST_TEST_THREADS", (2 * cores).to_string());
    }
    command
}

/// Simulated clusters, each in a storm of its own seed. What they print is not held back, so that
/// the seed is known of one that ends its process.
fn storms(server: &Binary) -> Job {
    let mut command = server.command(&["simulation", "--nocapture"]);
    command.env("COGNATE_SEEDS", SEEDS).env("COGNATE_SEED", "1");
    Job::new("simulated clusters", Lane::Computes, vec![command])
}

/// Requests over three sites and three application servers, all of which are killed: each happens
/// once. The long trial is in the example's head.
fn exactly_once(root: &Path) -> Vec<Command> {
    let build = ["build", "--workspace", "--bin", "cognate", "--example", "bookstore_tier", "--locked"];
    let mut trial = Command::new(step::target(root).join("debug/examples/bookstore_tier"));
    trial.args(["--buys", "200", "--sites", "3", "--kill-sites", "--havoc"]).current_dir(root);
    vec![command(root, &build, &[]), trial]
}

/// Components of composite transactions that die at every fault point. The long runs are in the
/// heads of the tests' files.
fn faults(root: &Path) -> Vec<Command> {
    let points = ["--workspace", "--locked", "--features", "cognate-composite/fault-points"];
    let (tests, example) = (["--test", "components"], ["--example", "purchase"]);
    let clippy = [&["clippy"], &points[..], &tests, &example, &["--", "-D", "warnings"]].concat();
    // The tests start it.
    let build = [&["build"], &points[..], &example].concat();
    let tests = [&["test"], &points[..], &tests, &["--", "fault"]].concat();
    [clippy, build, tests].map(|words| command(root, &words, &[])).into()
}

/// Rules of a cluster that are left out, each of which the engine's histories, or the storms of the
/// total order, must notice.
fn planted(root: &Path) -> Vec<Command> {
    let features = "cognate-engine/planted-faults,cognate-replication/planted-faults";
    let planted = ["--workspace", "--locked", "--features", features];
    let targets = ["--test", "engine", "--test", "cluster"];
    let clippy = [&["clippy"], &planted[..], &targets, &["--", "-D", "warnings"]].concat();
    let tests = [&["test", "--no-fail-fast"], &planted[..], &targets, &["--", "faults::"]].concat();
    // What only the log itself can be asked is in its library, and all libraries would be built.
    let log = ["test", "--package", "cognate-replication", "--features", "planted-faults", "--lib"];
    let log = [&log[..], &["--locked", "--", "faults"]].concat();
    [clippy, tests, log].map(|words| command(root, &words, &[])).into()
}

/// The engine under a scheduler that explores schedules: its library alone, with the feature that
/// puts the scheduler in. Then each protocol by itself, which the benchmark compares with.
fn schedules(root: &Path) -> Vec<Command> {
    let engine = ["--package", "cognate-engine", "--features", "shuttle", "--lib", "--locked"];
    let clippy = [&["clippy", "--tests"], &engine[..], &["--", "-D", "warnings"]].concat();
    let tests = [&["test"], &engine[..], &["schedules::"]].concat();
    let alone = ["--package", "cognate-engine", "--features", "protocol-alone", "--locked"];
    let alone = [&["test"], &alone[..], &["--test", "engine", "--", "cluster_alone"]].concat();
    [clippy, tests, alone].map(|words| command(root, &words, &[])).into()
}
