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
//! built once more. So all that checks without building asks for [`GALERA`], too, and all that
//! builds tests, or runs them, asks for [`PLANTED`]: the engine is below nearly everything. The
//! scheduler under the engine is the exception: it would be under all others.
//!
//! Of two cargos beside each other one waits for the other, and its lane with it. So the jobs that
//! build stand apart in the order, with tests between them.
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

/// Faults that a test can plant into its own thread. All tests are built with them: who plants some
/// would need nearly everything once more otherwise; who plants none has none. Clippy
/// and the docs look at the house without them, as it is shipped, and clippy at both.
pub(crate) const PLANTED: &str = "cognate-engine/planted-faults,cognate-replication/planted-faults";

/// The harness' driver for Galera, which nothing but clippy, and the docs beside it, builds.
const GALERA: &str = "cognate-harness/galera";

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

/// Tests that take a minute or so, between two jobs that build.
const SECOND: [&str; 2] = ["engine test engine", "harness test main"];

/// And those between the next two.
const THIRD: [&str; 2] = ["composite-protocol test protocol", "client-protocol test model"];

/// Checks everything.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    cargo(root, "fmt", &["fmt", "--all", "--check"], &[])?;
    println!("== tidy");
    tidy::check(root)?;
    let whole = ["clippy", "--workspace", "--locked", "--all-targets", "--features", GALERA];
    let clippy = [&whole[..], &["--", "-D", "warnings"]].concat();
    cargo(root, "clippy", &clippy, &[])?;
    lanes::run(root, jobs(root, suite::build(root, PLANTED)?)?)
}

/// All jobs, those first that take long.
fn jobs(root: &Path, mut binaries: Vec<Binary>) -> Result<Vec<Job>, String> {
    let mut jobs = Vec::new();
    for (name, lane) in FIRST {
        let binary = taken(&mut binaries, name)?;
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
    jobs.push(Job::new("exactly once", Lane::Waits, vec![exactly_once(root)]));
    jobs.push(Job::new("clippy with planted faults", Lane::Computes, vec![planted(root)]));
    for name in SECOND {
        jobs.push(alone(&taken(&mut binaries, name)?));
    }
    jobs.push(Job::new("schedules", Lane::Computes, schedules(root)));
    for name in THIRD {
        jobs.push(alone(&taken(&mut binaries, name)?));
    }
    let docs = ["doc", "--workspace", "--no-deps", "--locked", "--features", GALERA];
    let docs = command(root, &docs, &[("RUSTDOCFLAGS", "-D warnings")]);
    jobs.push(Job::new("docs", Lane::Computes, vec![docs]));
    jobs.extend(binaries.iter().map(alone));
    let examples = ["test", "--workspace", "--locked", "--doc", "--features", PLANTED];
    let examples = command(root, &examples, &[]);
    jobs.push(Job::new("examples in docs", Lane::Computes, vec![examples]));
    Ok(jobs)
}

/// The binary of this name, which is not among the others any more.
fn taken(binaries: &mut Vec<Binary>, name: &str) -> Result<Binary, String> {
    let found = binaries.iter().position(|binary| binary.name() == name);
    Ok(binaries.remove(found.ok_or_else(|| format!("no tests are called {name}"))?))
}

/// All tests of a binary, as a job.
fn alone(binary: &Binary) -> Job {
    Job::new(binary.name(), Lane::Computes, vec![tests(binary, Lane::Computes, &[])])
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
/// once. The long trial is in the example's head. It was built with the tests.
fn exactly_once(root: &Path) -> Command {
    let mut trial = Command::new(step::target(root).join("debug/examples/bookstore_tier"));
    trial.args(["--buys", "200", "--sites", "3", "--kill-sites", "--havoc"]).current_dir(root);
    trial
}

/// Components of composite transactions that die at every fault point. The long runs are in the
/// heads of the tests' files.
fn faults(root: &Path) -> Vec<Command> {
    const POINTS: &str = "cognate-composite/fault-points";
    // The tests start the example.
    let targets = ["--workspace", "--locked", "--test", "components", "--example", "purchase"];
    let both = format!("{POINTS},{GALERA}");
    let clippy = [&["clippy"], &targets[..], &["--features", both.as_str(), "--", "-D", "warnings"]].concat();
    let built = format!("{POINTS},{PLANTED}");
    let build = [&["build"], &targets[..], &["--features", built.as_str()]].concat();
    let tests = ["test", "--workspace", "--locked", "--test", "components", "--features", built.as_str()];
    let tests = [&tests[..], &["--", "fault"]].concat();
    [clippy, build, tests].map(|words| command(root, &words, &[])).into()
}

/// Clippy for what there is with planted faults alone, and for each protocol without the lists that
/// it shares with others, which the benchmark compares with. That rules which are left out are
/// noticed, the engine's histories and the storms of the total order see with all other tests.
fn planted(root: &Path) -> Command {
    let all = format!("{PLANTED},cognate-engine/protocol-alone,{GALERA}");
    let targets = ["clippy", "--workspace", "--locked", "--test", "engine", "--test", "cluster"];
    let clippy = [&targets[..], &["--features", all.as_str(), "--", "-D", "warnings"]].concat();
    command(root, &clippy, &[])
}

/// The engine under a scheduler that explores schedules: its library alone, with the feature that
/// puts the scheduler in.
fn schedules(root: &Path) -> Vec<Command> {
    let engine = ["--package", "cognate-engine", "--features", "shuttle", "--lib", "--locked"];
    let clippy = [&["clippy", "--tests"], &engine[..], &["--", "-D", "warnings"]].concat();
    let tests = [&["test"], &engine[..], &["schedules::"]].concat();
    [clippy, tests].map(|words| command(root, &words, &[])).into()
}
