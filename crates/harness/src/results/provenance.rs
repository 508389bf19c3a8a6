//! Where figures come from: the commit, the machine, the day and the command, kept with every
//! record.
//!
//! A figure without these cannot be repeated, and figures of different commits or machines cannot
//! be compared; the pages of results say so where they meet.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use cognate_env::clock::date;
use serde_json::json;

use crate::report::Record;

/// Parameters of a record that say where it comes from; they are told once a page and not in its
/// tables.
pub const NAMES: [&str; 4] = ["commit", "machine", "date", "command"];

/// Options of the command line that say where something lies, and not what is measured. Each has a
/// value.
const PLACES: [&str; 5] = ["--json", "--svg", "--curves", "--directory", "--cognate-binary"];

/// Options without which something else would be measured. What stands in the place of their value
/// is told: paths are of one machine, and there may be a password in an address.
const GIVEN: &[(&str, &str)] = &[
    ("--before", "FILE"),
    ("--alone", "FILE"),
    ("--connect", "URL"),
    ("--galera", "URL"),
    ("--postgres", "URL"),
];

/// Adds to each record where it comes from, unless it says so already.
pub fn stamp(records: &mut [Record]) {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let values = [commit(), machine(), today(), command(&words)];
    for record in records {
        for (name, value) in NAMES.iter().zip(&values) {
            record.params.entry(*name).or_insert_with(|| json!(value));
        }
    }
}

/// The command line without what concerns only places.
pub fn command(words: &[String]) -> String {
    let mut shown = vec!["cognate-bench"];
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let (name, has_value) = word.split_once('=').map_or((word.as_str(), false), |(name, _)| (name, true));
        let given = GIVEN.iter().find(|(given, _)| *given == name);
        match (PLACES.contains(&name), given) {
            (false, None) => shown.push(word),
            (_, given) => {
                shown.extend(given.into_iter().flat_map(|(name, value)| [*name, *value]));
                if !has_value {
                    words.next();
                }
            }
        }
    }
    shown.join(" ")
}

/// The commit of the working folder, with a plus sign if the folder differs from it.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok().filter(|out| out.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    // Results themselves may have changed: they are what is being measured.
    let changed =
        ["status", "--porcelain", "--untracked-files=no", "--", "crates", "Cargo.toml", "Cargo.lock"];
    match git(&["rev-parse", "--short=10", "HEAD"]) {
        Some(commit) if git(&changed).is_some_and(|changes| changes.is_empty()) => commit,
        Some(commit) => format!("{commit}+"),
        None => "unknown".to_owned(),
    }
}

/// The machine and the compiler, in one line.
pub fn machine() -> String {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus
        .lines()
        .find_map(|line| {
            line.strip_prefix("model name")?.split_once(':').map(|(_, model)| model.trim().to_owned())
        })
        .unwrap_or_else(|| "unknown processor".to_owned());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kilobytes: u64 = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok())
        .unwrap_or(0);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let compiler = Command::new("rustc").arg("--version").output().map_or_else(
        |_| "rustc of unknown version".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    );
    let gigabytes = (kilobytes + (1 << 19)) >> 20;
    format!("{cores} cores ({model}), {gigabytes} GB, Linux {}, {compiler}", kernel.trim())
}

/// Today's date in UTC, year-month-day.
pub fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (year, month, day) = date(seconds as i64 / 86_400);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_told_without_places() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let line = words("mip --goals pairs --json /tmp/x.json --rounds 3 --svg=/tmp/y.svg --directory /tmp");
        assert_eq!(command(&line), "cognate-bench mip --goals pairs --rounds 3");
        assert_eq!(command(&[]), "cognate-bench");
        let line = words("replication --before /old/cognate --alone=/new/cognate --galera mysql://a:b@c/d");
        assert_eq!(command(&line), "cognate-bench replication --before FILE --alone FILE --galera URL");
        let line = words("mixed --connect postgresql://a:password@b/c --rounds 3");
        assert_eq!(command(&line), "cognate-bench mixed --connect URL --rounds 3");
    }
}
