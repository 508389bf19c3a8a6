//! One step of the gate: a command of cargo's, whose output passes through. If it fails, what the
//! tests said when they panicked is printed once more, last: whoever reads the end of a long output
//! has it there.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// So many lines are said again, and so many of each panic.
const LINES_MAX: usize = 160;
const LINES_OF_ONE: usize = 12;

/// Runs cargo, and prints the step's name and its time.
///
/// # Errors
/// That it cannot be started, or has failed.
pub(crate) fn cargo(
    root: &Path,
    name: &str,
    arguments: &[&str],
    environment: &[(&str, &str)],
) -> Result<(), String> {
    run(name, command(root, arguments, environment))
}

/// A command of cargo's.
pub(crate) fn command(root: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Command {
    let program = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(program);
    forget_package(&mut command);
    command.args(arguments).envs(environment.iter().copied()).current_dir(root);
    command
}

/// Takes out of a command's environment what `cargo run` says there of this package. Some build
/// scripts look at it (ring's): started from here and by hand in turn, cargo would run them each
/// time, and build all that is above them once more.
pub(crate) fn forget_package(command: &mut Command) {
    let names = std::env::vars_os().map(|(name, _)| name);
    for name in names.filter(|name| is_of_package(&name.to_string_lossy())) {
        command.env_remove(name);
    }
}

fn is_of_package(name: &str) -> bool {
    ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|begin| name.starts_with(begin))
}

/// Where cargo builds.
pub(crate) fn target(root: &Path) -> PathBuf {
    root.join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

fn run(name: &str, mut command: Command) -> Result<(), String> {
    println!("== {name}");
    let begin = Instant::now();
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{name}: cannot start {}: {error}", command.get_program().display()))?;
    let mut panics = Panics::default();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).split(b'\n') {
            let line = line.map_err(|error| format!("{name}: cannot read its output: {error}"))?;
            let mut out = std::io::stdout().lock();
            // Who does not want to read it any more does not keep the step from ending.
            let _ = out.write_all(&line).and_then(|()| out.write_all(b"\n"));
            panics.see(&String::from_utf8_lossy(&line));
        }
    }
    let status = child.wait().map_err(|error| format!("{name}: cannot wait for cargo: {error}"))?;
    if !status.success() {
        panics.lines.iter().for_each(|line| println!("{line}"));
        return Err(format!("{name} failed"));
    }
    println!("== {name}: {} s", begin.elapsed().as_secs());
    Ok(())
}

/// The lines of a test's output that say why it failed.
#[derive(Default)]
pub(crate) struct Panics {
    lines: Vec<String>,
    /// How many more belong to the last panic.
    left: usize,
}

impl Panics {
    /// Those of a whole output.
    pub(crate) fn of(output: &str) -> Vec<String> {
        let mut panics = Panics::default();
        output.lines().for_each(|line| panics.see(line));
        panics.lines
    }

    fn see(&mut self, line: &str) {
        // A test that returns an error does not panic.
        if line.contains("panicked at") || line.starts_with("Error: ") {
            self.left = LINES_OF_ONE;
        }
        if line.starts_with("stack backtrace:") || line.starts_with("note: run with") {
            self.left = 0;
        }
        if self.left > 0 && self.lines.len() < LINES_MAX {
            self.left -= 1;
            self.lines.push(line.chars().take(600).collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_is_told_nothing_of_this_package() {
        let ours = ["CARGO_PKG_NAME", "CARGO_PKG_VERSION_MAJOR", "CARGO_MANIFEST_DIR"];
        assert!(ours.into_iter().all(is_of_package));
        let others = ["CARGO", "CARGO_HOME", "CARGO_INCREMENTAL", "CARGO_TARGET_DIR"];
        assert!(!others.into_iter().any(is_of_package));
        // The tests' own process has been told.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        let command = command(Path::new("."), &["tree"], &[]);
        let removed: Vec<_> = command.get_envs().filter(|(_, value)| value.is_none()).collect();
        assert!(removed.iter().any(|(name, _)| *name == "CARGO_MANIFEST_DIR"), "{removed:?}");
    }

    #[test]
    fn what_a_test_said_is_kept_without_its_backtrace() {
        let said =
            ["test a ... ok", "thread 'b' panicked at c.rs:1:1:", "left: 1", "stack backtrace:", "0: d"];
        assert_eq!(Panics::of(&said.join("\n")), said[1..3]);
        assert_eq!(Panics::of("test a ... FAILED\nError: \"b\""), ["Error: \"b\""]);
    }
}
