//! docs/results.md: the figures of one run of all benchmarks, as Markdown, with what they were measured on.
//!
//! Only the part between two marker lines is written; the text around it, such as what falls short and why, is people's.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::error::{Error, IoContext, Result};
use crate::report::{Record, TOTAL, number};

/// Begins the part of the file that is written.
pub const BEGIN: &str = "<!-- figures: begin -->";
/// Ends it.
pub const END: &str = "<!-- figures: end -->";

/// The records of one benchmark, by its name on the command line, and the command that made them.
#[derive(Clone, Debug)]
pub struct Section {
    /// The subcommand.
    pub name: String,
    /// The whole command line.
    pub command: String,
    /// What it measured; empty if it failed.
    pub records: Vec<Record>,
    /// Why it failed, if it did.
    pub failure: Option<String>,
    /// The picture that it drew, beside the page of results.
    pub picture: Option<PathBuf>,
}

/// One row of the goals.
struct Goal {
    what: &'static str,
    must: &'static str,
    aim: &'static str,
    measured: Option<String>,
    holds: Option<bool>,
}

/// The Markdown of all sections.
pub fn markdown(sections: &[Section], machine: &str) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{machine}\n");
    let _ = writeln!(out, "| goal | must | aim | measured | holds |\n|---|---|---|---|---|");
    for goal in goals(sections) {
        let measured = goal.measured.as_deref().unwrap_or("not measured");
        let holds = match goal.holds {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "",
        };
        let _ = writeln!(out, "| {} | {} | {} | {measured} | {holds} |", goal.what, goal.must, goal.aim);
    }
    for section in sections {
        let _ = writeln!(out, "\n### {}\n\n`{}`\n", section.name, section.command);
        if let Some(failure) = &section.failure {
            let _ = writeln!(out, "FAILED: {failure}\n");
        }
        if let Some(name) = section.picture.as_deref().and_then(Path::file_name) {
            let _ = writeln!(out, "![{}]({})\n", section.name, name.to_string_lossy());
        }
        if !section.records.is_empty() {
            out.push_str(&table(&section.records));
        }
    }
    out
}

/// What a record is called in its table: the one parameter that tells the rows apart.
fn row_name(record: &Record) -> String {
    let names = ["point reads", "case", "interaction", "script", "step"];
    names.iter().map(|name| record.param(name)).find(|value| !value.is_empty()).unwrap_or("").to_owned()
}

fn table(records: &[Record]) -> String {
    let mut out = String::from(
        "| system | row | committed/s | aborts % | mean ms | p50 ms | p95 ms | p99 ms | further |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---|\n",
    );
    for record in records {
        let latency = record.latency_ms;
        let _ = writeln!(
            out,
            "| {} | {} | {} | {:.2} | {} | {} | {} | {} | {} |",
            record.system,
            row_name(record),
            number(record.committed_per_s),
            record.aborted_pct,
            number(latency.mean),
            number(latency.p50),
            number(latency.p95),
            number(latency.p99),
            further(record)
        );
    }
    out
}

/// Figures that are no rates, where a benchmark has some.
fn further(record: &Record) -> String {
    let names = [
        "mb_per_s",
        "log_mb",
        "resident_to_budget",
        "rounds",
        "acknowledged",
        "lost_or_extra",
        "device_per_s",
        "of_device_pct",
        "certifier_pct",
        "first_updater_pct",
        "deadlock_pct",
        "needless",
        "analytic_queries",
        "commits_per_flush",
        "of_ssd_pct",
        "over_late",
        "of_best_pct",
        "error_pct",
        "of_alone_pct",
        "mip_of_plain",
        "retries_lost_pct",
        "postgres_crowd_of_before",
    ];
    let shown = names.iter().filter(|name| **name != "rounds" || record.workload == "crash");
    let found = shown.filter_map(|name| {
        let value = record.params.get(*name).and_then(Value::as_f64)?;
        Some(format!("{} {}", name.replace('_', " "), number(value)))
    });
    found.collect::<Vec<String>>().join(", ")
}

/// A goal that a figure reaches from above.
fn at_least(
    what: &'static str,
    must: (&'static str, f64),
    aim: &'static str,
    value: Option<f64>,
    unit: &str,
) -> Goal {
    Goal {
        what,
        must: must.0,
        aim,
        measured: value.map(|value| format!("{value:.2}{unit}")),
        holds: value.map(|value| value >= must.1),
    }
}

/// A goal that a figure stays below.
fn at_most(
    what: &'static str,
    must: (&'static str, f64),
    aim: &'static str,
    value: Option<f64>,
    unit: &str,
) -> Goal {
    Goal { holds: value.map(|value| value <= must.1), ..at_least(what, must, aim, value, unit) }
}

/// The goals of serializability.
fn serializable_goals(param: impl Fn(&str, &str) -> Option<f64>) -> Vec<Goal> {
    vec![
        at_least(
            "s3u1 uniform, 80 clients, wire: PSSI / own snapshot isolation",
            ("≥ 0.95×", 0.95),
            "0.99×",
            param("snum", "uniform_of_si"),
            "×",
        ),
        at_least(
            "s3u1 uniform, 80 clients, embedded: PSSI / own snapshot isolation",
            ("≥ 0.95×", 0.95),
            "0.99×",
            param("snum", "embedded_of_si"),
            "×",
        ),
        at_least(
            "s3u1 hot, 80 clients, wire: Cognate SERIALIZABLE / PostgreSQL SERIALIZABLE",
            ("≥ 2×", 2.0),
            "3×",
            param("snum", "hot_of_postgres"),
            "×",
        ),
        at_most(
            "s5u1 hot, 40 clients: aborts by the certifier, PSSI / own SSI",
            ("≤ 0.6×", 0.6),
            "0.3×",
            param("snum", "certifier_aborts_of_ssi"),
            "×",
        ),
        at_most("needless aborts by the oracle", ("0", 0.0), "0", param("oracle", "needless"), ""),
        at_least(
            "read-mostly with 1,000-row ranges: PSSI / own snapshot isolation",
            ("≥ 0.9×", 0.9),
            "0.97×",
            param("snum", "scans_of_si"),
            "×",
        ),
    ]
}

/// The goals of the commit pipeline and the governor.
fn pipeline_goals(param: impl Fn(&str, &str) -> Option<f64>, worst_share: Option<f64>) -> Vec<Goal> {
    vec![
        at_least(
            "78 ms log device with governor: of the 2.5 ms device",
            ("≥ 95 %", 95.0),
            "99 %",
            param("device", "of_ssd_pct"),
            " %",
        ),
        at_least(
            "78 ms log device with governor: over late release with clients = limit",
            ("≥ 5.6×", 5.6),
            "10×",
            param("device", "over_late"),
            "×",
        ),
        at_least(
            "auto governor: of the best fixed limit, the worst load",
            ("≥ 95 %", 95.0),
            "98 %",
            worst_share,
            " %",
        ),
    ]
}

/// The goals of sibling transactions.
fn sibling_goals(param: impl Fn(&str, &str) -> Option<f64>) -> Vec<Goal> {
    let mip = |name: &str| param("mip", name);
    let ratio = |what, must, aim, name| at_most(what, must, aim, mip(name), "×");
    let lost = |what, must, name| at_most(what, must, "10 %", mip(name), " %");
    let latency = ("≤ 1.02×", 1.02);
    vec![
        ratio(
            "Buy Confirm, MIP / two-phase: mean latency over the curve",
            latency,
            "1×",
            "bc_mip_of_two_phase",
        ),
        ratio(
            "Admin Confirm, MIP / two-phase: mean latency over the curve",
            latency,
            "1×",
            "ac_mip_of_two_phase",
        ),
        lost(
            "Buy Confirm, a first sibling left prepared by every request: throughput lost",
            ("≤ 20 %", 20.0),
            "bc_failover_lost_pct",
        ),
        lost(
            "Admin Confirm, a first sibling left prepared by every request: throughput lost",
            ("≤ 15 %", 15.0),
            "ac_failover_lost_pct",
        ),
        at_most("storage a row", ("0", 0.0), "0", mip("bytes_a_row"), " bytes"),
        ratio(
            "retry, the first instance prepared and its server dead",
            ("≤ 2×", 2.0),
            "1.2×",
            "retry_of_request",
        ),
        at_least(
            "25 clients, ten hot items, one in doubt: third second / before",
            ("≥ 0.9×", 0.9),
            "1×",
            mip("crowd_of_before"),
            "×",
        ),
        at_least(
            "PREPARE and COMMIT PREPARED, 16 clients: Cognate / PostgreSQL",
            ("≥ 2×", 2.0),
            "4×",
            mip("pairs_of_postgres"),
            "×",
        ),
        ratio(
            "SHOW MIPT among a million forgotten and 100,000 live families / among few, through the wire",
            ("flat: ≤ 1.1×", 1.1),
            "flat",
            "lookup_wire_show_of_few",
        ),
        ratio(
            "BEGIN of a fresh family among as many / among few, through the wire",
            ("flat: ≤ 1.1×", 1.1),
            "flat",
            "lookup_wire_begin_of_few",
        ),
    ]
}

fn goals(sections: &[Section]) -> Vec<Goal> {
    let all: Vec<&Record> = sections.iter().flat_map(|section| &section.records).collect();
    let ratio = |workload: &str, row: &str| {
        let of = |system: &str| {
            let found =
                all.iter().find(|r| r.system == system && r.workload == workload && row_name(r) == row);
            found.map(|r| r.committed_per_s)
        };
        Some(of("cognate")? / of("postgres").filter(|rate| *rate > 0.0)?)
    };
    let param = |workload: &str, name: &str| {
        let record =
            all.iter().find(|record| record.workload == workload && record.params.contains_key(name))?;
        record.params.get(name).and_then(Value::as_f64)
    };
    let shares = all.iter().filter_map(|record| record.params.get("of_best_pct")?.as_f64());
    let worst_share = shares.reduce(f64::min);
    let pg = |what, row, aim| at_least(what, ("≥ 1.3×", 1.3), aim, ratio("pgbench", row), "×");
    let point_read = all.iter().find(|r| r.workload == "point-read").map(|r| 1000.0 * r.latency_ms.mean);
    let mut goals = vec![
        pg("pgbench select-only, prepared, 16 clients", "select-only", "2×"),
        pg("pgbench tpcb-like, prepared, 16 clients", "tpcb-like", "2.5×"),
        pg("pgbench simple-update, prepared, 16 clients", "simple-update", "2.5×"),
        at_least("bookstore, ordering mix, 80 clients", ("≥ 1×", 1.0), "2×", ratio("bookstore", TOTAL), "×"),
        at_most("point read in the embedded library, one thread", ("≤ 3 µs", 3.0), "1 µs", point_read, " µs"),
        at_least(
            "log: durable commits, 64 in flight, of the raw device",
            ("≥ 80 %", 80.0),
            "95 %",
            param("log", "of_device_pct"),
            " %",
        ),
        at_most(
            "data 4× the memory budget: resident size",
            ("≤ 1.5×", 1.5),
            "",
            param("memory", "resident_to_budget"),
            "×",
        ),
        at_least("recovery", ("≥ 100 MB/s", 100.0), "", param("recovery", "mb_per_s"), " MB/s"),
        at_most(
            "kill -9 rounds: transactions lost or too many",
            ("0", 0.0),
            "",
            param("crash", "lost_or_extra"),
            "",
        ),
    ];
    goals.extend(serializable_goals(param));
    goals.extend(pipeline_goals(param, worst_share));
    goals.extend(sibling_goals(param));
    goals
}

/// Puts Markdown between the markers of a file; a file without markers gets them at its end.
pub fn write(path: &Path, figures: &str) -> Result<()> {
    let old = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "# Results\n".to_owned(),
        Err(error) => return Err(error).doing(format!("reading {}", path.display())),
    };
    let (before, after) = match (old.find(BEGIN), old.find(END)) {
        (Some(begin), Some(end)) if begin < end => (&old[..begin], &old[end + END.len()..]),
        (None, None) => (old.as_str(), ""),
        _ => return Err(Error::Usage(format!("{}: its two marker lines are damaged", path.display()))),
    };
    let gap = if before.ends_with("\n\n") { "" } else { "\n" };
    let tail = if after.is_empty() { "\n" } else { after };
    let new = format!("{before}{gap}{BEGIN}\n\n{}\n\n{END}{tail}", figures.trim_end());
    std::fs::write(path, new).doing(format!("writing {}", path.display()))
}

/// The machine, the date and the compiler, in one line.
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
    format!(
        "{}, {cores} cores ({model}), {} GB, Linux {}, {compiler}.",
        today(),
        (kilobytes + (1 << 19)) >> 20,
        kernel.trim()
    )
}

/// Today's date in UTC, year-month-day.
fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (year, month, day) = civil(seconds as i64 / 86_400);
    format!("{year:04}-{month:02}-{day:02}")
}

/// The date of a day counted from 1970-01-01, by walking 400-year cycles of March-based years.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468; // days since 0000-03-01
    let cycle = shifted.div_euclid(146_097);
    let in_cycle = shifted.rem_euclid(146_097);
    let year_in_cycle = (in_cycle - in_cycle / 1_460 + in_cycle / 36_524 - in_cycle / 146_096) / 365;
    let day_in_year = in_cycle - (365 * year_in_cycle + year_in_cycle / 4 - year_in_cycle / 100);
    let month_from_march = (5 * day_in_year + 2) / 153;
    let day = day_in_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_in_cycle + cycle * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(10_956), (1999, 12, 31));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(20_778), (2026, 11, 21));
    }

    #[test]
    fn rows_are_named_by_what_tells_them_apart() {
        let record = |params: &[(&str, &str)]| Record {
            system: "cognate".into(),
            workload: "mixed".into(),
            params: params.iter().map(|&(name, value)| (name.to_owned(), value.into())).collect(),
            committed_per_s: 1.0,
            aborted_pct: 0.0,
            latency_ms: crate::report::LatencyMs { mean: 1.0, p50: 1.0, p95: 1.0, p99: 1.0 },
        };
        assert_eq!(row_name(&record(&[("interaction", "point read"), ("point reads", "alone")])), "alone");
        assert_eq!(row_name(&record(&[("interaction", "Home")])), "Home");
        let device = [("case", "SSD (2.5 ms), late release"), ("interaction", "s3u1")];
        assert_eq!(row_name(&record(&device)), "SSD (2.5 ms), late release");
        assert_eq!(row_name(&record(&[])), "");
    }

    #[test]
    fn only_the_part_between_the_markers_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.md");
        write(&path, "first").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, format!("# Results\n\n{BEGIN}\n\nfirst\n\n{END}\n"));
        std::fs::write(&path, format!("{text}\nWhat falls short: nothing.\n")).unwrap();
        write(&path, "second").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("second") && !text.contains("first") && text.ends_with("nothing.\n"), "{text}");
        std::fs::write(&path, END).unwrap();
        assert!(write(&path, "third").is_err(), "a damaged file is not written");
    }
}
