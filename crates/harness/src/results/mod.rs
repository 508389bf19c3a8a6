//! The pages of results, made from the JSON files that the benchmarks wrote.
//!
//! ```text
//! bench-results/*.json ──▶ figures ──▶ goals ──▶ docs/results.md          the first page (`first`), between two marker lines
//!                                  └──▶ tables ─▶ docs/results/NAME.md    one page for each file
//! ```
//!
//! Nothing is measured here and nothing is remembered: the same files give the same pages. Every
//! record says which commit, machine, day and command it comes from (`provenance`); where these
//! differ, the first page says so.

pub mod figures;
mod first;
pub mod goal;
pub mod provenance;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::error::{Error, IoContext, Result};
use crate::report::{Record, number};
use figures::{Figures, Measured, Page, row_name};
use first::{first_page, wrapped};
use goal::{GOALS, Goal, Verdict};

/// Begins the part of the first page that is written.
pub const BEGIN: &str = "<!-- figures: begin -->";
/// Ends it.
pub const END: &str = "<!-- figures: end -->";

/// At the head of a page that is written as a whole.
const MADE: &str = "<!-- made by `cognate-bench pages` from the JSON file of the same name: do not edit -->";

/// What is said of rows in which PostgreSQL is better, and the head of a page's part about them.
const BETTER: &str = "Where PostgreSQL is better";

/// Reads all JSON files of a folder.
///
/// # Errors
/// A file that cannot be read or is no list of records.
pub fn load(folder: &Path) -> Result<Figures> {
    let entries = std::fs::read_dir(folder).doing(format!("reading {}", folder.display()))?;
    let mut pages = Vec::new();
    for entry in entries {
        let path = entry.doing(format!("reading {}", folder.display()))?.path();
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned());
        let (Some(name), true) = (name, path.extension().is_some_and(|ending| ending == "json")) else {
            continue;
        };
        let text = std::fs::read_to_string(&path).doing(format!("reading {}", path.display()))?;
        let records = serde_json::from_str(&text)
            .map_err(|error| Error::Usage(format!("reading {}: {error}", path.display())))?;
        pages.push(Page { name, records });
    }
    pages.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Figures { pages })
}

/// Writes docs/results.md and the pages below docs/results.
///
/// # Errors
/// What cannot be written, and a first page whose markers are damaged.
pub fn write(figures: &Figures, docs: &Path) -> Result<()> {
    let folder = docs.join("results");
    std::fs::create_dir_all(&folder).doing(format!("creating {}", folder.display()))?;
    for page in &figures.pages {
        let picture = folder.join(format!("{}.svg", page.name)).exists();
        let path = folder.join(format!("{}.md", page.name));
        let text = page_text(figures, page, picture);
        std::fs::write(&path, text).doing(format!("writing {}", path.display()))?;
    }
    replace(&docs.join("results.md"), &first_page(figures))
}

/// The values that a parameter has in all records, each with the pages that have it; the one that
/// most pages have comes first.
fn by_value(figures: &Figures, name: &str) -> Vec<(String, Vec<String>)> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for page in &figures.pages {
        let values: BTreeSet<&str> = page.records.iter().map(|record| record.param(name)).collect();
        for value in values {
            let value = if value.is_empty() { "unknown" } else { value };
            match found.iter_mut().find(|(known, _)| known == value) {
                Some((_, pages)) => pages.push(page.name.clone()),
                None => found.push((value.to_owned(), vec![page.name.clone()])),
            }
        }
    }
    found.sort_by_key(|(_, pages)| Reverse(pages.len()));
    found
}

/// Where the figures come from: what holds for most pages, and the pages that are an exception.
fn origin(figures: &Figures) -> String {
    let mut out = String::new();
    for (what, name) in [("Commit", "commit"), ("Machine", "machine"), ("Measured on", "date")] {
        let values = by_value(figures, name);
        let Some(((usual, _), others)) = values.split_first() else { continue };
        let mut line = format!("{what}: {usual}");
        for (index, (value, pages)) in others.iter().enumerate() {
            let but = if index == 0 { "; **not the same for all**: " } else { "; " };
            let _ = write!(line, "{but}{value} ({})", pages.join(", "));
        }
        let _ = writeln!(out, "{}  ", wrapped(&format!("{line}."), ""));
    }
    out.push('\n');
    out
}

fn shown(goal: &Goal, measured: &Measured) -> String {
    let error = measured.error.filter(|error| *error > 0.0);
    let error = error.map_or(String::new(), |error| format!(" ± {}", number(error)));
    format!("{}{error}{}", number(measured.value), goal.unit)
}

fn goal_table<'a>(figures: &Figures, goals: impl Iterator<Item = &'a Goal>, links: bool) -> String {
    let mut out =
        String::from("| what | isolation | must | aim | measured | holds |\n|---|---|---|---|---|---|\n");
    for goal in goals {
        let must = goal.must.text(goal.unit);
        let Some(measured) = (goal.find)(figures) else {
            let _ = writeln!(out, "| {} | | {must} | {} | not measured | |", goal.what, goal.aim);
            continue;
        };
        let holds = match goal.must.verdict(&measured) {
            Verdict::Holds => "yes",
            Verdict::Fails => "**no**",
            Verdict::Open => "not distinguishable from the limit",
            Verdict::Shown => "",
        };
        let what = match links {
            true => format!("[{}](results/{}.md)", goal.what, measured.page),
            false => goal.what.to_owned(),
        };
        let text = shown(goal, &measured);
        let _ =
            writeln!(out, "| {what} | {} | {must} | {} | {text} | {holds} |", measured.isolation, goal.aim);
    }
    out
}

fn page_text(figures: &Figures, page: &Page, picture: bool) -> String {
    let mut out = format!("{MADE}\n# {}\n\n", page.name);
    let commands: BTreeSet<&str> = page.records.iter().map(|record| record.param("command")).collect();
    for command in commands.into_iter().filter(|command| !command.is_empty()) {
        let _ = writeln!(out, "    {command}");
    }
    let own = Figures { pages: vec![page.clone()] };
    let _ = writeln!(out, "\n{}", origin(&own).trim_end());
    let goals = GOALS.iter().filter(|goal| (goal.find)(figures).is_some_and(|found| found.page == page.name));
    let goals = goal_table(figures, goals, false);
    if goals.lines().count() > 2 {
        let _ = writeln!(out, "\n{goals}");
    }
    let missing = page.records.iter().filter_map(|record| record.params.get("not_measured")?.as_array());
    let missing: BTreeSet<&str> = missing.flatten().filter_map(Value::as_str).collect();
    for why in missing {
        // It was said by a program, and is to be read as it is.
        let _ = writeln!(out, "\nNot measured: {}.", why.replace('<', "&lt;"));
    }
    if picture {
        let _ = writeln!(out, "\n![{}]({}.svg)", page.name, page.name);
    }
    let _ = writeln!(
        out,
        "\nA ± is the standard error of the mean over the rounds.\n\n{}",
        table(&page.records).trim_end()
    );
    out.push_str(&better_table(&own));
    out
}

/// The rows of a page in which PostgreSQL is better, with what both did; nothing if there are none.
fn better_table(own: &Figures) -> String {
    let rows = own.better_of_postgres();
    if rows.is_empty() {
        return String::new();
    }
    let mut out = format!(
        "\n## {BETTER}\n\n\
         | row | isolation | committed/s | PostgreSQL | ratio | p99 ms | PostgreSQL | ratio |\n\
         |---|---|---:|---:|---:|---:|---:|---:|\n"
    );
    let ratio = |ratio: Option<f64>, is_worse: bool| match ratio {
        Some(ratio) if is_worse => format!("**{}×**", number(ratio)),
        Some(ratio) => format!("{}×", number(ratio)),
        None => String::new(),
    };
    for row in rows {
        let (ours, theirs) = (row.ours, row.theirs);
        let levels = match (ours.param("isolation"), theirs.param("isolation")) {
            (level, other) if level == other => level.to_owned(),
            (level, other) => format!("{level} / {other}"),
        };
        let _ = writeln!(
            out,
            "| {} | {levels} | {} | {} | {} | {} | {} | {} |",
            row.row(),
            number(ours.committed_per_s),
            number(theirs.committed_per_s),
            ratio(row.rate(), row.is_slower()),
            number(ours.latency_ms.p99),
            number(theirs.latency_ms.p99),
            ratio(row.p99(), row.waits_longer())
        );
    }
    out
}

fn table(records: &[Record]) -> String {
    let mut out = String::from(
        "| system | row | isolation | committed/s | aborts % | mean ms | p50 ms | p95 ms | p99 ms | further |\n\
         |---|---|---|---:|---:|---:|---:|---:|---:|---|\n",
    );
    for record in records {
        let latency = record.latency_ms;
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {:.2} | {} | {} | {} | {} | {} |",
            record.system,
            row_name(record),
            record.param("isolation"),
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

/// The parameters that a page shows beside what every row has, in this order.
const FURTHER: &[&str] = &[
    "mb_per_s",
    "replayed_mb",
    "log_mb",
    "resident_to_budget",
    "rounds",
    "acknowledged",
    "lost_or_extra",
    "device_per_s",
    "of_device_pct",
    "of_direct_pct",
    "certifier_pct",
    "first_updater_pct",
    "deadlock_pct",
    "buy_confirm_pct",
    "needless",
    "justified",
    "undecided",
    "first_updater_stale",
    "first_updater_undecided",
    "first_updater_needless",
    "analytic_queries",
    "commits_per_flush",
    "of_ssd_pct",
    "over_late",
    "of_best_pct",
    "of_alone_pct",
    "mip_of_plain",
    "retries_lost_pct",
    "postgres_crowd_of_before",
    "cardinality",
    "local_per_s",
    "stdev_ms",
    "of_plain",
    "of_plain_autocommit",
    "of_http",
    "of_http_last",
    "of_direct",
    "of_direct_last",
    "of_atomikos",
    "of_dbos",
    "of_none",
    "of_galera",
    "serializable_of_galera",
    "of_postgres",
    "serializable_of_postgres",
    "of_postgres_default",
    "of_one_node",
    "s3u1_of_one_node",
    "s3u1_of_one_node_repeatable_read",
    "of_before",
    "one_update_of_before",
    "s3u1_of_before",
    "scans_of_before",
    "certification_of_before",
    "active_of_alone",
    "active_latency_of_alone",
    "certification_of_alone",
    "certification_latency_of_alone",
    "weak_voting_of_alone",
    "weak_voting_latency_of_alone",
    "a_w_of_best",
    "a_c_w_of_best",
    "auto_of_best",
    "hot_of_galera",
    "hot_auto_of_galera",
    "hot_aborts_seen",
    "of_floor",
    "follower_of_floor",
    "without_commits_s",
    "without_commits_median_s",
    "commits_a_subtransaction",
    "flushes_a_subtransaction",
    "cancel_ms_max",
    "read_ms_max",
    "refused_beside",
];

/// Figures that are no rates, where a benchmark has some, and errors first: of a row that has many
/// the rest is worth little.
fn further(record: &Record) -> String {
    let shown = FURTHER.iter().filter(|name| **name != "rounds" || record.workload == "crash");
    let found = shown.filter_map(|name| {
        let value = record.params.get(*name).and_then(Value::as_f64)?;
        Some(format!("{} {}", name.replace('_', " "), number(value)))
    });
    let errors = record.params.get("errors").and_then(Value::as_object).into_iter().flatten();
    let errors = errors.map(|(state, count)| format!("**errors** {state} {count}"));
    let ended = Some(record.param("ended")).filter(|how| !how.is_empty());
    let ended = ended.map(|how| format!("not to be cancelled, it had ended: {how}"));
    errors.chain(found).chain(ended).collect::<Vec<String>>().join(", ")
}

/// Puts Markdown between the markers of a file; a file without markers gets them at its end.
///
/// # Errors
/// A file that has only one of the markers, or both in the wrong order, is not written.
pub fn replace(path: &Path, figures: &str) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::LatencyMs;
    use serde_json::json;

    fn record(system: &str, params: &[(&str, Value)], rate: f64, p99: f64) -> Record {
        Record {
            system: system.into(),
            workload: "pgbench".into(),
            params: params.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
            committed_per_s: rate,
            aborted_pct: 0.0,
            latency_ms: LatencyMs { mean: 1.0, p50: 1.0, p95: 1.0, p99 },
        }
    }

    #[test]
    fn rows_are_named_by_what_tells_them_apart() {
        let name = |params: &[(&str, &str)]| {
            let params: Vec<(&str, Value)> =
                params.iter().map(|(name, value)| (*name, json!(value))).collect();
            row_name(&record("cognate", &params, 1.0, 1.0))
        };
        assert_eq!(name(&[("interaction", "point read"), ("point reads", "alone")]), "alone");
        assert_eq!(name(&[("interaction", "Home")]), "Home");
        assert_eq!(
            name(&[("case", "SSD (2.5 ms), late release"), ("interaction", "s3u1")]),
            "SSD (2.5 ms), late release"
        );
        assert_eq!(name(&[]), "");
    }

    #[test]
    fn the_first_page_tells_origins_ratios_errors_and_what_is_lost() {
        let of = |system: &str, commit: &str, rounds: [f64; 3], p99: f64| {
            let params = [
                ("script", json!("select-only")),
                ("isolation", json!("read-committed")),
                ("commit", json!(commit)),
                ("tps_of_rounds", json!(rounds)),
            ];
            record(system, &params, rounds[1], p99)
        };
        let pages = |commit: &str| Figures {
            pages: vec![Page {
                name: "pgbench".to_owned(),
                records: vec![
                    of("cognate", "abc", [20.0, 26.0, 33.0], 1.43),
                    of("postgres", commit, [10.0, 20.0, 30.0], 0.59),
                ],
            }],
        };
        let text = first_page(&pages("abc"));
        assert!(text.contains("Commit: abc."), "{text}");
        assert!(
            text.contains(
                "| read-committed | ≥ 1.3× | 2× | 1.30 ± 0.273× | not distinguishable from the limit |"
            ),
            "{text}"
        );
        let better = "- [pgbench](results/pgbench.md#where-postgresql-is-better): select-only p99 2.42×\n";
        assert!(text.contains(better), "{text}");
        assert!(
            text.contains(
                "| bookstore, ordering mix, 80 clients: Cognate / PostgreSQL | | ≥ 1× | 2× | not measured | |"
            ),
            "{text}"
        );
        let text = first_page(&pages("def"));
        assert!(text.contains("Commit: abc; **not the same for all**: def (pgbench)."), "{text}");
    }

    #[test]
    fn a_page_tells_what_other_systems_do_and_why_one_was_not_measured() {
        let why = "DBOS: there is no program python3";
        let params = [
            ("case", json!("purchase, composite")),
            ("of_atomikos", json!(1.75)),
            ("not_measured", json!([why])),
        ];
        let ours = Record { workload: "composite".into(), ..record("composite", &params, 900.0, 9.0) };
        let page = Page { name: "composite".to_owned(), records: vec![ours] };
        let text = page_text(&Figures { pages: vec![page.clone()] }, &page, false);
        let row = "| composite, the same: Atomikos, XA transactions of clients in its own process |  | ≥ 1.5× |  | 1.75× | yes |";
        assert!(text.contains(row), "{text}");
        assert!(text.contains(&format!("\nNot measured: {why}.\n")), "{text}");
        assert!(text.contains("of atomikos 1.75"), "{text}");
    }

    #[test]
    fn a_row_tells_its_errors() {
        let errors = json!({ "25006": 2, "53200": 331_015 });
        let params = [("point reads", json!("beside")), ("errors", errors), ("analytic_queries", json!(3))];
        let page = Page { name: "mixed".to_owned(), records: vec![record("postgres", &params, 5000.0, 4.0)] };
        let text = page_text(&Figures { pages: vec![page.clone()] }, &page, false);
        let told = "| **errors** 25006 2, **errors** 53200 331015, analytic queries 3.00 |";
        assert!(text.contains(told), "{text}");
        let none = record("cognate", &[("errors", json!({})), ("ended", json!(""))], 1.0, 1.0);
        assert_eq!(further(&none), "");
        let quick = [("read_ms_max", json!(2)), ("ended", json!("rows, rows"))];
        let told = "read ms max 2.00, not to be cancelled, it had ended: rows, rows";
        assert_eq!(further(&record("cognate", &quick, 1.0, 1.0)), told);
    }

    #[test]
    fn only_the_part_between_the_markers_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.md");
        replace(&path, "first").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, format!("# Results\n\n{BEGIN}\n\nfirst\n\n{END}\n"));
        std::fs::write(&path, format!("{text}\nWhat falls short: nothing.\n")).unwrap();
        replace(&path, "second").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("second") && !text.contains("first") && text.ends_with("nothing.\n"), "{text}");
        std::fs::write(&path, END).unwrap();
        assert!(replace(&path, "third").is_err(), "a damaged file is not written");
    }
}
