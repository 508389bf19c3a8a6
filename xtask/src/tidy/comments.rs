//! Comments are for people: their lines have at most [`COLUMNS`] columns.
//!
//! A comment is a line that begins with `//`, however far it is indented. What cannot be broken
//! into shorter lines is exempt: a line without a space within the limit (an address, say), a row
//! of a table (`|`), code between fences, and drawings (box-drawing characters).

/// Columns that a line of a comment may have, its indentation among them.
const COLUMNS: usize = 100;
/// What drawings are made of.
const BOX_DRAWING: std::ops::RangeInclusive<char> = '\u{2500}'..='\u{257f}';

/// Finds the lines of one file that are too long, with their numbers.
pub(super) fn inspect(name: &str, text: &str, findings: &mut Vec<String>) {
    let mut is_fenced = false;
    for (index, line) in text.lines().enumerate() {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            // A fence that was left open ends with its comment.
            is_fenced = false;
            continue;
        };
        let prose = comment.trim_start_matches(['/', '!']).trim_start();
        if prose.starts_with("```") {
            is_fenced = !is_fenced;
            continue;
        }
        let columns = line.chars().count();
        if columns > COLUMNS && !is_fenced && can_be_broken(line, prose) {
            findings.push(format!(
                "{name}:{}: a comment of {columns} columns, and {COLUMNS} are the most",
                index + 1
            ));
        }
    }
}

/// Whether a long `line`, whose text begins with `prose`, would do as several lines.
fn can_be_broken(line: &str, prose: &str) -> bool {
    if prose.starts_with('|') || prose.chars().any(|c| BOX_DRAWING.contains(&c)) {
        return false;
    }
    // The space behind the mark of a list's item is no place to break at.
    let words = prose.strip_prefix("- ").unwrap_or(prose).trim_start();
    let begin = line.chars().count() - words.chars().count();
    line.chars().take(COLUMNS + 1).skip(begin).any(|c| c == ' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        inspect("crates/x/src/a.rs", text, &mut findings);
        findings
    }

    /// `start`, and words behind it up to `columns`.
    fn line(start: &str, columns: usize) -> String {
        let mut line = format!("{start} {}", "word ".repeat(columns));
        line.truncate(columns - 1);
        line + "x"
    }

    #[test]
    fn a_long_line_is_found_with_its_number_in_every_kind_of_comment() {
        for start in ["//", "///", "//!", "        // - ", "    ////"] {
            assert!(found(&line(start, 100)).is_empty(), "{start}");
            let text = format!("fn a() {{}}\n\n{}\n", line(start, 101));
            assert_eq!(
                found(&text),
                ["crates/x/src/a.rs:3: a comment of 101 columns, and 100 are the most"],
                "{start}"
            );
        }
        assert_eq!(found(&format!("{}\n{}\n", line("//", 120), line("//", 120))).len(), 2);
    }

    #[test]
    fn columns_are_characters() {
        let line = |words: usize| format!("// {}", "ä ".repeat(words).trim_end());
        assert!(found(&line(49)).is_empty());
        assert_eq!(found(&line(50)).len(), 1);
    }

    #[test]
    fn what_cannot_be_broken_is_exempt() {
        let address = format!("https://example.org/{}", "a".repeat(100));
        assert!(found(&format!("/// {address}")).is_empty());
        assert!(found(&format!("/// - {address} and more")).is_empty());
        assert_eq!(found(&format!("/// see {address}")).len(), 1);
        assert!(found(&line("//! | a row |", 130)).is_empty());
        assert!(found(&line("// ──▶", 130)).is_empty());
    }

    #[test]
    fn code_is_exempt_until_its_fence_or_its_comment_ends() {
        let long = line("//!", 130);
        assert!(found(&format!("//! ```text\n{long}\n//! ```\n")).is_empty());
        assert_eq!(found(&format!("//! ```text\n//! ```\n{long}\n")).len(), 1);
        assert_eq!(found(&format!("//! ```text\n\nuse a::b;\n{long}\n")).len(), 1);
    }

    #[test]
    fn code_beside_a_comment_is_none() {
        assert!(found(&line("let a = 1; //", 130)).is_empty());
    }
}
