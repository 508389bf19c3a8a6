//! The table by file, the first differences with what follows from them, and the verdict.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Plan;
use super::compare::Class;
use super::excused::{Excused, mark};
use super::run::{Difference, FileResult};

/// How many first differences are printed; the file of details has all.
const PRINTED: usize = 60;

/// Prints what was found. Fails if there is a fault that is not excused.
pub(crate) fn report(plan: &Plan, results: &[FileResult], excused: &Excused) -> Result<(), String> {
    println!("{}", table(results));
    let firsts = firsts(results);
    println!("{}", causes(&firsts));
    println!("First differences, those first that most follows from:\n");
    for first in firsts.iter().take(PRINTED) {
        println!(
            "{:5} {:16} {}:{} {}",
            first.weight,
            first.difference.class.name(),
            first.file,
            first.difference.line,
            one_line(&first.difference.sql)
        );
    }
    if let Some(path) = &plan.details {
        std::fs::write(path, details(results, excused))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let faults: Vec<_> = firsts
        .iter()
        .filter(|first| first.difference.class.is_fault())
        .filter(|first| excused.reason(first.file, &first.difference.sql, first.difference.class).is_none())
        .collect();
    println!("\nFaults that are not excused: {}\n", faults.len());
    for fault in &faults {
        println!("{} {} {}", fault.file, mark(&fault.difference.sql), fault.difference.class.name());
        println!(
            "  line {}: {}\n    {}\n",
            fault.difference.line,
            one_line(&fault.difference.sql),
            fault.difference.told
        );
    }
    let unneeded = excused.unneeded(results);
    if !unneeded.is_empty() {
        println!("Entries of docs/regress-excused.txt that excused nothing:\n\n{}\n", unneeded.join("\n"));
    }
    if faults.is_empty() {
        Ok(())
    } else {
        Err(format!("{} faults that docs/regress-excused.txt does not list", faults.len()))
    }
}

/// A first difference, and how many follow from it (with itself).
struct First<'a> {
    file: &'a str,
    difference: &'a Difference,
    weight: usize,
}

fn firsts(results: &[FileResult]) -> Vec<First<'_>> {
    let mut firsts = Vec::new();
    for result in results {
        for (number, difference) in result.differences.iter().enumerate() {
            if difference.cause.is_none() {
                let follow = result.differences.iter().filter(|other| other.cause == Some(number)).count();
                firsts.push(First { file: &result.name, difference, weight: 1 + follow });
            }
        }
    }
    firsts.sort_by_key(|first| std::cmp::Reverse(first.weight));
    firsts
}

/// The first differences by what Cognate said: which cause costs how many statements.
fn causes(firsts: &[First<'_>]) -> String {
    let mut causes: BTreeMap<(Class, String), (usize, usize)> = BTreeMap::new();
    for first in firsts {
        let told = first.difference.told.split("Cognate:").nth(1).unwrap_or_default();
        let said = match first.difference.class {
            Class::NotSupported | Class::Refused | Class::OtherState | Class::Internal => one_line(told),
            _ => String::new(),
        };
        let cause = causes.entry((first.difference.class, said)).or_default();
        cause.0 += 1;
        cause.1 += first.weight;
    }
    let mut causes: Vec<_> = causes.into_iter().collect();
    causes.sort_by_key(|(_, (_, weight))| std::cmp::Reverse(*weight));
    let mut text = "Causes: first differences, all that follow, what was said\n\n".to_owned();
    for ((class, said), (number, weight)) in causes.iter().take(PRINTED) {
        let _ = writeln!(text, "{number:5} {weight:5} {:16} {said}", class.name());
    }
    text
}

fn table(results: &[FileResult]) -> String {
    let mut text = "| file | statements | equal |".to_owned();
    for class in Class::ALL.into_iter().skip(1) {
        let _ = write!(text, " {} |", class.name());
    }
    text.push_str(" follow | skipped |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    let mut total = vec![0; Class::ALL.len() + 3];
    for result in results {
        let mut counts = vec![result.statements, result.equal];
        let first_of = |class| {
            let all = result.differences.iter();
            all.filter(|difference| difference.class == class && difference.cause.is_none()).count()
        };
        counts.extend(Class::ALL.into_iter().skip(1).map(first_of));
        counts.push(result.differences.iter().filter(|difference| difference.cause.is_some()).count());
        counts.push(result.skipped);
        text.push_str(&row(&result.name, &counts));
        total.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
    }
    text.push_str(&row("all", &total));
    if let [statements, equal, ..] = *total.as_slice() {
        let _ = writeln!(text, "\n{:.1} % of {statements} statements are equal.", percent(equal, statements));
    }
    text
}

#[allow(clippy::cast_precision_loss, reason = "counts of statements")]
fn percent(part: usize, all: usize) -> f64 {
    100.0 * part as f64 / all.max(1) as f64
}

fn row(name: &str, counts: &[usize]) -> String {
    let mut row = format!("| {name} |");
    for (place, count) in counts.iter().enumerate() {
        match count {
            0 if place > 1 => row.push_str(" |"),
            _ => drop(write!(row, " {count} |")),
        }
    }
    row.push('\n');
    row
}

/// Every difference with both answers.
fn details(results: &[FileResult], excused: &Excused) -> String {
    let mut text = String::new();
    for result in results {
        for (number, difference) in result.differences.iter().enumerate() {
            let follows = difference
                .cause
                .and_then(|cause| result.differences.get(cause))
                .map_or(String::new(), |cause| format!(", follows from line {}", cause.line));
            let reason = excused.reason(&result.name, &difference.sql, difference.class);
            let excuse = reason.map_or(String::new(), |reason| format!(", excused: {reason}"));
            let _ = writeln!(
                text,
                "== {}:{} #{number} {} {}{follows}{excuse}\n{}\n    {}\n",
                result.name,
                difference.line,
                difference.class.name(),
                mark(&difference.sql),
                difference.sql,
                difference.told
            );
        }
    }
    text
}

fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(140).collect()
}
