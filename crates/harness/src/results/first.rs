//! The first page: one screen, which tells what is lost before anything else can be looked up.
//!
//! It has the goals of the first page in a table, and of everything else a line for each page of
//! results: what does not hold, with its must, and where PostgreSQL is better; and what nobody has
//! measured, which would stand on no page otherwise. Nothing of that is left out for the sake of
//! room; the figures of both sides stand on the pages themselves. Pages that nothing is told of are
//! listed at the end. Lines of the source are broken, so that the page can be read there, too.

use std::fmt::Write as _;

use super::figures::{Better, Figures};
use super::goal::{GOALS, Verdict};
use super::{BETTER, goal_table, origin};
use crate::report::number;

/// Columns of a line; only rows of tables, which cannot be broken, are longer.
const COLUMNS: usize = 140;

/// What is said of goals that no file of figures knows of.
const MISSING: &str = "**Not measured**, of all goals on all pages";

/// The part of the first page that is written: where the figures come from, the goals, what is
/// lost, and where the peer is better.
pub(super) fn first_page(figures: &Figures) -> String {
    let mut out = origin(figures);
    out.push_str(&goal_table(figures, GOALS.iter().filter(|goal| goal.first_page), true));
    let lost = GOALS.iter().filter_map(|goal| {
        let measured = (goal.find)(figures)?;
        let is_lost = goal.must.verdict(&measured) == Verdict::Fails;
        let (value, unit) = (number(measured.value), goal.unit);
        let told = format!("{} {value}{unit} ({})", goal.short, goal.must.text(unit));
        is_lost.then_some((measured.page, told))
    });
    let lost: Vec<(String, String)> = lost.collect();
    out.push_str(&by_page("What does not hold, of all goals on all pages (and what must be):", "", &lost));
    let missing = GOALS.iter().filter(|goal| !goal.first_page && goal.is_missing(figures));
    let missing: Vec<String> =
        missing.map(|goal| format!("{} ({})", goal.short, goal.must.text(goal.unit))).collect();
    if !missing.is_empty() {
        let told = format!("{MISSING} (and what must be): {}.", missing.join("; "));
        let _ = writeln!(out, "\n{}", wrapped(&told, ""));
    }
    let better = figures.better_of_postgres();
    let better = better.iter().map(|row| (row.page.to_owned(), in_short(row)));
    let better: Vec<(String, String)> = better.collect();
    let title = format!("{BETTER} (Cognate / PostgreSQL, committed a second, or else p99 latency):");
    let anchor = format!("#{}", BETTER.to_lowercase().replace(' ', "-"));
    out.push_str(&by_page(&title, &anchor, &better));
    let further: Vec<String> = figures
        .pages
        .iter()
        .filter(|page| !out.contains(&format!("](results/{}.md", page.name)))
        .map(|page| format!("[{}](results/{}.md)", page.name, page.name))
        .collect();
    if !further.is_empty() {
        let _ = writeln!(out, "\n{}", wrapped(&format!("Further pages: {}.", further.join(" · ")), ""));
    }
    out
}

/// A row in which PostgreSQL is better, with one ratio.
fn in_short(row: &Better<'_>) -> String {
    let name = row.row();
    match (row.rate(), row.p99()) {
        (Some(rate), _) if row.is_slower() => format!("{name} {}×", number(rate)),
        (_, Some(p99)) => format!("{name} p99 {}×", number(p99)),
        _ => name,
    }
}

/// What is told of pages, an item for each page, in the order in which pages are named first. The
/// links lead to an anchor of the page, if there is one.
fn by_page(title: &str, anchor: &str, told: &[(String, String)]) -> String {
    let mut out = String::new();
    if told.is_empty() {
        return out;
    }
    let mut pages: Vec<(&str, Vec<&str>)> = Vec::new();
    for (page, text) in told {
        match pages.iter_mut().find(|(known, _)| *known == page.as_str()) {
            Some((_, texts)) => texts.push(text.as_str()),
            None => pages.push((page.as_str(), vec![text.as_str()])),
        }
    }
    let _ = writeln!(out, "\n{title}\n");
    for (page, texts) in pages {
        let item = format!("- [{page}](results/{page}.md{anchor}): {}", texts.join("; "));
        let _ = writeln!(out, "{}", wrapped(&item, "  "));
    }
    out
}

/// Words in lines of at most [`COLUMNS`] columns; all lines but the first begin with `indent`.
pub(super) fn wrapped(text: &str, indent: &str) -> String {
    let mut out = String::new();
    let mut columns = 0;
    for word in text.split(' ') {
        let width = word.chars().count();
        if columns > 0 && columns + 1 + width > COLUMNS {
            out.push('\n');
            out.push_str(indent);
            columns = indent.len();
        } else if columns > 0 {
            out.push(' ');
            columns += 1;
        }
        out.push_str(word);
        columns += width;
    }
    out
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::results::{load, page_text, replace};

    /// Lines of the first page, with what is written by hand.
    const LINES: usize = 75;
    /// Columns of a row of its table.
    const ROW: usize = 210;

    fn committed() -> (std::path::PathBuf, Figures) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let figures = load(&root.join("bench-results")).unwrap();
        (root, figures)
    }

    #[test]
    fn the_first_page_of_the_committed_figures_is_one_screen() {
        let (root, figures) = committed();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.md");
        std::fs::copy(root.join("docs/results.md"), &path).unwrap();
        replace(&path, &first_page(&figures)).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = text.lines().count();
        assert!(lines <= LINES, "{lines} lines\n{text}");
        for line in text.lines() {
            let most = if line.starts_with('|') { ROW } else { COLUMNS };
            let columns = line.trim_end().chars().count();
            assert!(columns <= most, "{columns} columns, and {most} are the most: {line}");
        }
        assert_eq!(text.matches("![").count(), 1, "one picture");
        for page in &figures.pages {
            assert!(text.contains(&format!("](results/{}.md", page.name)), "no link to {}", page.name);
        }
    }

    #[test]
    fn whatever_the_committed_figures_lose_stands_on_the_first_page() {
        let (_, figures) = committed();
        // Lines are broken anywhere.
        let words = |text: &str| text.split_whitespace().collect::<Vec<&str>>().join(" ");
        let first = words(&first_page(&figures));
        for goal in GOALS {
            let Some(measured) = (goal.find)(&figures) else { continue };
            let figure = format!("{} {}{}", goal.short, number(measured.value), goal.unit);
            let lost = words(&format!("{figure} ({})", goal.must.text(goal.unit)));
            let is_lost = goal.must.verdict(&measured) == Verdict::Fails;
            assert_eq!(first.contains(&lost), is_lost, "{lost}: {first}");
        }
    }

    #[test]
    fn what_nobody_has_measured_stands_on_the_first_page() {
        let (_, figures) = committed();
        let words = |text: &str| text.split_whitespace().collect::<Vec<&str>>().join(" ");
        let first = words(&first_page(&figures));
        let told = first.split(MISSING).nth(1).unwrap_or_default();
        for goal in GOALS.iter().filter(|goal| !goal.first_page) {
            let item = words(&format!("{} ({})", goal.short, goal.must.text(goal.unit)));
            assert!(!goal.is_missing(&figures) || told.contains(&item), "{item}: {first}");
        }
        let all = words(&first_page(&Figures::default()));
        assert!(all.contains("a node is away, log kept (≤ 1×)"), "{all}");
    }

    #[test]
    fn every_page_shows_where_postgresql_is_better() {
        let (_, figures) = committed();
        for page in &figures.pages {
            let own = Figures { pages: vec![page.clone()] };
            let rows = own.better_of_postgres();
            let text = page_text(&figures, page, false);
            assert_eq!(text.contains(&format!("\n## {BETTER}\n")), !rows.is_empty(), "{}", page.name);
            let section = text.split(&format!("## {BETTER}")).nth(1).unwrap_or_default();
            for row in rows {
                let name = format!("| {} |", row.row());
                let both = [row.ours, row.theirs].map(|record| number(record.committed_per_s)).join(" | ");
                let mut lines = section.lines().filter(|line| line.starts_with(&name));
                assert!(lines.any(|line| line.contains(&both)), "{name} {both}: {section}");
            }
        }
    }

    #[test]
    fn what_is_told_of_one_page_is_one_item() {
        let told = [("a", "one"), ("b", "two"), ("a", "three")];
        let told = told.map(|(page, text)| (page.to_owned(), text.to_owned()));
        let text = "\nLost:\n\n- [a](results/a.md#b): one; three\n- [b](results/b.md#b): two\n";
        assert_eq!(by_page("Lost:", "#b", &told), text);
        assert_eq!(by_page("Lost:", "", &[]), "");
    }

    #[test]
    fn long_lines_are_broken_between_words() {
        let words = "word ".repeat(50);
        let text = wrapped(words.trim_end(), "  ");
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        assert_eq!(text.replace("\n  ", " "), words.trim_end());
        assert_eq!(text.lines().count(), 2, "{text}");
        assert_eq!(wrapped(&"×".repeat(COLUMNS), ""), "×".repeat(COLUMNS), "columns are no bytes");
        let long = "a".repeat(COLUMNS + 1);
        assert_eq!(wrapped(&format!("{long} b"), ""), format!("{long}\nb"), "a word is not broken");
    }
}
