//! Marked names of stored texts in the words that they stand for: what reads a text again knows the
//! marks, and a person or another server does not.
//!
//! ```text
//! OVER ("\u{1}tw" ORDER BY i ROWS 1 PRECEDING)    OVER ("w" ORDER BY i ROWS 1 PRECEDING EXCLUDE TIES)
//! GROUP BY "\u{1}distinct", ROLLUP (a, b)         GROUP BY DISTINCT ROLLUP (a, b)
//! (r)."\u{1}*"                                    (r).*
//! ```

use super::lexeme::Lexemes;
use super::rewrite::DISTINCT_SETS;
use super::{ALL_FIELDS, KEY_MARK};

/// Begins every marked name.
const MARK: &str = "\"\u{1}";

/// The text as PostgreSQL would read it.
pub(crate) fn spelled(text: &str) -> String {
    if !text.contains(MARK) {
        return text.to_owned();
    }
    let (mut out, mut from) = (String::with_capacity(text.len()), 0);
    // Of each parenthesis that is open, what is to be said at its end.
    let mut ends: Vec<&str> = Vec::new();
    // What a comma becomes that comes next.
    let mut comma = None;
    for lexeme in Lexemes::new(text) {
        let start = lexeme.text.as_ptr() as usize - text.as_ptr() as usize;
        if let Some(instead) = comma.take().filter(|_| lexeme.text == ",") {
            out.push_str(instead);
            from = start + 1;
            continue;
        }
        match lexeme.text {
            "(" => ends.push(""),
            ")" => {
                let end = ends.pop().unwrap_or_default();
                out.push_str(&text[from..start]);
                out.push_str(end);
                from = start;
            }
            name if name.starts_with(MARK) => {
                out.push_str(&text[from..start]);
                from = start + name.len();
                let inner = name.trim_matches('"');
                match inner {
                    _ if inner == ALL_FIELDS => out.push('*'),
                    _ if inner == DISTINCT_SETS => {
                        out.push_str("DISTINCT");
                        comma = Some("");
                    }
                    // `FOR UPDATE OF "key"` locks less: the stronger lock is said.
                    _ if inner == KEY_MARK => {
                        out.truncate(out.trim_end_matches("OF ").trim_end().len());
                        comma = Some(" OF");
                    }
                    _ => {
                        let (end, rest) = exclusion(&inner[1..]);
                        if let Some(open) = ends.last_mut() {
                            *open = end;
                        }
                        if !rest.is_empty() {
                            out.push_str(&format!("\"{rest}\""));
                        }
                    }
                }
            }
            _ => {}
        }
    }
    out.push_str(&text[from..]);
    out
}

/// What a window's mark says, and the name behind it.
fn exclusion(mark: &str) -> (&'static str, &str) {
    match mark.chars().next() {
        Some('c') => (" EXCLUDE CURRENT ROW", &mark[1..]),
        Some('g') => (" EXCLUDE GROUP", &mark[1..]),
        Some('t') => (" EXCLUDE TIES", &mark[1..]),
        _ => ("", mark),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_become_words() {
        for (stored, spoken) in [
            ("SELECT 'it''s' FROM t", "SELECT 'it''s' FROM t"),
            (
                "SELECT sum(i) OVER (\"\u{1}tw\" ORDER BY (i) ROWS 1 PRECEDING), f(a)",
                "SELECT sum(i) OVER (\"w\" ORDER BY (i) ROWS 1 PRECEDING EXCLUDE TIES), f(a)",
            ),
            ("OVER (\"\u{1}c\" ORDER BY i)", "OVER ( ORDER BY i EXCLUDE CURRENT ROW)"),
            ("GROUP BY \"\u{1}distinct\", ROLLUP (a)", "GROUP BY DISTINCT ROLLUP (a)"),
            ("SELECT (r).\"\u{1}*\" FROM t", "SELECT (r).* FROM t"),
            ("FOR UPDATE OF \"\u{1}key\"", "FOR UPDATE"),
            ("FOR UPDATE OF \"\u{1}key\", t", "FOR UPDATE OF t"),
        ] {
            assert_eq!(spelled(stored), spoken);
        }
    }
}
