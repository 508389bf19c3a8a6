//! Two lanes of jobs beside each other: in one of them work that mostly waits, in the other one
//! work that computes, so that no core is idle while something is waited for. A lane whose own jobs
//! are done takes the other's.
//!
//! What a job says goes into a file, `target/gate/NAME.log`, and is printed whole when the job
//! ends, so that lines of two jobs do not mix. All jobs are run, whatever fails. What was skipped
//! is printed once more at the end, so that nobody takes it for tested, and what failing tests said
//! when they panicked last.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::step::{Panics, target};

/// What a job mostly does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    Waits,
    Computes,
}

/// Commands one after the other, until one fails.
pub(crate) struct Job {
    name: String,
    lane: Lane,
    commands: Vec<Command>,
}

/// A job that failed.
#[derive(Debug)]
struct Failure {
    name: String,
    why: String,
    said: Vec<String>,
}

/// Runs all jobs, those of a lane in their order.
///
/// # Errors
/// The names of those that failed.
pub(crate) fn run(root: &Path, jobs: Vec<Job>) -> Result<(), String> {
    let folder = target(root).join("gate");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let (queue, failures) = (Mutex::new(jobs), Mutex::new(Vec::new()));
    let skips = Mutex::new(Vec::new());
    let work = |lane: Lane| {
        while let Some(job) = take(&queue, lane) {
            match job.run(&folder) {
                Ok(skipped) => held(&skips).extend(skipped),
                Err(failure) => held(&failures).push(failure),
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| work(Lane::Waits));
        work(Lane::Computes);
    });
    held(&skips).iter().for_each(|line| println!("== {line}"));
    let failures: Vec<Failure> = std::mem::take(&mut *held(&failures));
    for Failure { name, why, said } in &failures {
        println!("== {name}: FAILED, {why}");
        said.iter().for_each(|line| println!("{line}"));
    }
    let names: Vec<&str> = failures.iter().map(|failure| failure.name.as_str()).collect();
    if names.is_empty() { Ok(()) } else { Err(format!("failed: {}", names.join(", "))) }
}

/// The next job of this lane, or of the other one.
fn take(queue: &Mutex<Vec<Job>>, lane: Lane) -> Option<Job> {
    let mut queue = held(queue);
    let next = queue.iter().position(|job| job.lane == lane).unwrap_or(0);
    (next < queue.len()).then(|| queue.remove(next))
}

/// What it guards is whole between any two statements here.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Job {
    pub(crate) fn new(name: impl Into<String>, lane: Lane, commands: Vec<Command>) -> Job {
        Job { name: name.into(), lane, commands }
    }

    /// Runs it, and prints what it said. What was skipped in it is told once more.
    fn run(self, folder: &Path) -> Result<Vec<String>, Failure> {
        let Job { name, commands, .. } = self;
        let file = folder.join(format!("{}.log", name.replace(' ', "-")));
        println!("== {name} begins: {}", file.display());
        let begin = Instant::now();
        let ended = execute(commands, &file);
        let seconds = begin.elapsed().as_secs();
        let said = fs::read(&file).unwrap_or_default();
        let verdict = match &ended {
            Ok(()) => format!("{seconds} s"),
            Err(why) => format!("FAILED after {seconds} s, {why}"),
        };
        let mut out = io::stdout().lock();
        // Who does not want to read it any more does not keep the others from ending.
        let _ = writeln!(out, "== {name}, all that it said:")
            .and_then(|()| out.write_all(&said))
            .and_then(|()| writeln!(out, "== {name}: {verdict}"));
        drop(out);
        let said = String::from_utf8_lossy(&said);
        match ended {
            Ok(()) => Ok(skipped(&name, &said)),
            Err(why) => Err(Failure { name, why, said: Panics::of(&said) }),
        }
    }
}

/// The lines in which tests say that they do nothing here.
fn skipped(name: &str, said: &str) -> Vec<String> {
    let lines = said.lines().filter(|line| line.starts_with("SKIPPED"));
    lines.map(|line| format!("{name}: {line}")).collect()
}

/// Runs commands into a file. The error says which has failed, and how.
fn execute(commands: Vec<Command>, file: &Path) -> Result<(), String> {
    let failed = |error: io::Error| format!("{}: {error}", file.display());
    let mut log = File::create(file).map_err(failed)?;
    for mut command in commands {
        let line = line(&command);
        writeln!(log, "$ {line}").map_err(failed)?;
        let (out, err) = (log.try_clone().map_err(failed)?, log.try_clone().map_err(failed)?);
        let status = command.stdin(Stdio::null()).stdout(out).stderr(err).status();
        let status = status.map_err(|error| format!("`{line}` does not start: {error}"))?;
        if !status.success() {
            return Err(format!("`{line}`: {status}"));
        }
    }
    Ok(())
}

/// A command as it would be typed.
fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str, lane: Lane, scripts: &[&str]) -> Job {
        let command = |script: &&str| {
            let mut command = Command::new("sh");
            command.args(["-c", *script]);
            command
        };
        Job::new(name, lane, scripts.iter().map(command).collect())
    }

    fn folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("cognate-lanes-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_job_ends_with_its_first_failure_and_what_it_said_is_known() {
        let folder = folder("failure");
        // Put together, so that the line with the command does not look like a panic.
        let said = "echo \"thread 'x' pan\"\"icked at y.rs:1:1:\"; echo left; exit 3";
        let scripts = ["echo one", said, "echo never"];
        let failure = job("a b", Lane::Waits, &scripts).run(&folder).unwrap_err();
        assert_eq!(failure.said, ["thread 'x' panicked at y.rs:1:1:", "left"]);
        assert!(failure.why.ends_with("exit status: 3"), "{}", failure.why);
        let log = fs::read_to_string(folder.join("a-b.log")).unwrap();
        assert!(log.contains("\none\n") && !log.contains("\nnever\n"), "{log}");
        let scripts = ["echo one; echo SKIPPED: two >&2", "echo not SKIPPED"];
        let skipped = job("well", Lane::Computes, &scripts).run(&folder).unwrap();
        assert_eq!(skipped, ["well: SKIPPED: two"]);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_lane_takes_its_own_jobs_first_and_then_the_others() {
        let (waits, computes) = (Lane::Waits, Lane::Computes);
        let jobs = [("a", waits), ("b", computes), ("c", waits), ("d", computes)];
        let queue = Mutex::new(Vec::from(jobs.map(|(name, lane)| job(name, lane, &[]))));
        let taken = |lane| take(&queue, lane).map(|job| job.name);
        let order = [computes, waits, computes, computes, waits].map(taken);
        assert_eq!(order.map(Option::unwrap_or_default), ["b", "a", "d", "c", ""]);
    }

    #[test]
    fn all_jobs_are_run_and_those_that_fail_are_named() {
        let root = folder("all");
        let mark = root.join("mark");
        let last = format!("touch {}", mark.display());
        let jobs = vec![
            job("one", Lane::Computes, &["exit 1"]),
            job("two", Lane::Waits, &[]),
            job("three", Lane::Computes, &[last.as_str()]),
        ];
        assert_eq!(run(&root, jobs), Err("failed: one".to_owned()));
        assert!(mark.exists());
        fs::remove_dir_all(root).unwrap();
    }
}
