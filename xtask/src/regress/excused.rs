//! The differences that are known and have a reason: a committed list.
//!
//! ```text
//! # A reason: whole sentences, up to the next one.
//! numeric 3f29c1a07be4d512 wrong data      file, statement's mark, class
//! ```
//!
//! A statement's mark is a hash of its text, so the list has none of the texts and does not depend
//! on line numbers. Entries that excused nothing in a run are told: what they speak of has gone, or
//! comes only on a slower machine.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::compare::Class;
use super::run::FileResult;

/// Reasons by file, mark and class.
pub(crate) struct Excused {
    reasons: HashMap<(String, String, &'static str), String>,
}

impl Excused {
    pub(crate) fn read(path: &Path) -> Result<Excused, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let (mut reasons, mut reason, mut listing) = (HashMap::new(), String::new(), false);
        for line in text.lines() {
            if let Some(comment) = line.strip_prefix('#') {
                if std::mem::take(&mut listing) {
                    reason.clear();
                }
                reason.push_str(comment);
                continue;
            }
            if line.trim().is_empty() {
                continue;
            }
            listing = true;
            let mut words = line.splitn(3, ' ');
            let (Some(file), Some(mark), Some(class)) = (words.next(), words.next(), words.next()) else {
                return Err(format!("{}: not an entry: {line}", path.display()));
            };
            let class = Class::ALL.into_iter().find(|known| known.name() == class.trim());
            let class = class.ok_or(format!("{}: not a class: {line}", path.display()))?;
            if reason.trim().is_empty() {
                return Err(format!("{}: an entry without a reason: {line}", path.display()));
            }
            let key = (file.to_owned(), mark.to_owned(), class.name());
            reasons.insert(key, reason.trim().to_owned());
        }
        Ok(Excused { reasons })
    }

    pub(crate) fn reason(&self, file: &str, sql: &str, class: Class) -> Option<&str> {
        self.reasons.get(&(file.to_owned(), mark(sql), class.name())).map(String::as_str)
    }

    /// The entries of these files that excuse nothing of what was found, as they are listed.
    pub(crate) fn unneeded(&self, results: &[FileResult]) -> Vec<String> {
        let ran: HashSet<&str> = results.iter().map(|result| result.name.as_str()).collect();
        let mut found = HashSet::new();
        for result in results {
            for difference in &result.differences {
                found.insert((result.name.clone(), mark(&difference.sql), difference.class.name()));
            }
        }
        let entries = self.reasons.keys().filter(|entry| ran.contains(entry.0.as_str()));
        let mut unneeded: Vec<String> = entries
            .filter(|entry| !found.contains(*entry))
            .map(|(file, mark, class)| format!("{file} {mark} {class}"))
            .collect();
        unneeded.sort();
        unneeded
    }
}

/// FNV-1a of the text without differences in white space.
pub(crate) fn mark(sql: &str) -> String {
    let text = sql.split_whitespace().collect::<Vec<_>>().join(" ");
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::super::run::Difference;
    use super::*;

    #[test]
    fn entries_that_excuse_nothing_are_told_for_the_files_that_ran() {
        let entry = |file: &str, sql: &str, class: Class| {
            ((file.to_owned(), mark(sql), class.name()), "a reason".to_owned())
        };
        let entries = [
            entry("join", "SELECT 1", Class::WrongData),
            entry("join", "SELECT 2", Class::WrongData),
            entry("join", "SELECT 1", Class::Hang),
            entry("window", "SELECT 1", Class::WrongData),
        ];
        let excused = Excused { reasons: HashMap::from(entries) };
        let (sql, told) = ("SELECT   1".to_owned(), String::new());
        let difference = Difference { line: 1, sql, class: Class::WrongData, told, cause: None };
        let result =
            FileResult { name: "join".to_owned(), differences: vec![difference], ..FileResult::default() };
        let mut unneeded =
            [format!("join {} wrong data", mark("SELECT 2")), format!("join {} hang", mark("SELECT 1"))];
        unneeded.sort();
        assert_eq!(excused.unneeded(&[result]), unneeded);
    }
}
