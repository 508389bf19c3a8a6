//! Marked names of stored texts in the words that they stand for: what reads a text again knows the
//! marks, and a person or another server does not.
//!
//! ```text
//! OVER ("\u{1}tw" ORDER BY i ROWS 1 PRECEDING)    OVER ("w" ORDER BY i ROWS 1 PRECEDING EXCLUDE TIES)
//! GROUP BY "\u{1}distinct", ROLLUP (a, b)         GROUP BY DISTINCT ROLLUP (a, b)
//! (r)."\u{1}*"                                    (r).*
//! "\u{1}rows from"(f(a), g(b))                    ROWS FROM(f(a), g(b))
//! GROUPING SETS ((a), (ROLLUP (b)))               GROUPING SETS ((a), ROLLUP (b))
//! ```

use super::lexeme::{Lexeme, Lexemes};
use super::operator::opaque;
use super::rewrite::{DISTINCT_SETS, ROWS_FROM};
use super::{ALL_FIELDS, KEY_MARK};

/// Begins every marked name.
const MARK: &str = "\"\u{1}";

/// Lists that may have parentheses which PostgreSQL does not know.
const SETS: &str = "GROUPING SETS";

/// A parenthesis that is open.
#[derive(Default)]
struct Open {
    /// What is to be said at its end.
    end: &'static str,
    /// The items of GROUPING SETS are in it.
    of_sets: bool,
    /// It is not said itself.
    is_left_out: bool,
}

/// The text as PostgreSQL would read it.
pub(crate) fn spelled(text: &str) -> String {
    if !text.contains(MARK) && !text.contains(SETS) {
        return text.to_owned();
    }
    let (mut out, mut from) = (String::with_capacity(text.len()), 0);
    let mut open: Vec<Open> = Vec::new();
    // What a comma becomes that comes next.
    let mut comma = None;
    let lexemes: Vec<Lexeme<'_>> = Lexemes::new(text).collect();
    for (at, lexeme) in lexemes.iter().enumerate() {
        let start = lexeme.text.as_ptr() as usize - text.as_ptr() as usize;
        if let Some(instead) = comma.take().filter(|_| lexeme.text == ",") {
            out.push_str(instead);
            from = start + 1;
            continue;
        }
        match lexeme.text {
            "(" => {
                let in_sets = open.last().is_some_and(|open| open.of_sets);
                let is_left_out = in_sets && begins_sets(&lexemes[at + 1..]);
                if is_left_out {
                    out.push_str(&text[from..start]);
                    from = start + 1;
                }
                let of_sets = matches!(&lexemes[..at], [.., first, second]
                    if first.text == "GROUPING" && second.text == "SETS");
                open.push(Open { of_sets, is_left_out, ..Open::default() });
            }
            ")" => {
                let closed = open.pop().unwrap_or_default();
                out.push_str(&text[from..start]);
                out.push_str(closed.end);
                from = start + usize::from(closed.is_left_out);
            }
            name if name.starts_with(MARK) => {
                out.push_str(&text[from..start]);
                from = start + name.len();
                let inner = name.trim_matches('"');
                match inner {
                    _ if inner == ALL_FIELDS => out.push('*'),
                    _ if inner == ROWS_FROM => out.push_str("ROWS FROM"),
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
                        if let Some(open) = open.last_mut() {
                            open.end = end;
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

/// The text of a syntax tree, which has no comments: `--` in it are two signs, between which a
/// space belongs.
pub(crate) fn with_signs_apart(text: String) -> String {
    if !text.contains("--") {
        return text;
    }
    let bytes = text.as_bytes();
    let (mut apart, mut from, mut at) = (String::with_capacity(text.len() + 8), 0, 0);
    while at < bytes.len() {
        at += match bytes[at..].starts_with(b"--") {
            true => {
                apart.push_str(&text[from..=at]);
                apart.push(' ');
                from = at + 1;
                1
            }
            false => opaque(bytes, at).unwrap_or(1),
        };
    }
    apart.push_str(&text[from..]);
    apart
}

/// Whether ROLLUP or CUBE with its list comes next.
fn begins_sets(lexemes: &[Lexeme<'_>]) -> bool {
    matches!(lexemes, [word, list, ..] if matches!(word.text, "ROLLUP" | "CUBE") && list.text == "(")
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
    fn signs_of_older_texts_come_apart() {
        for (stored, apart) in [
            ("SELECT --v, ---v FROM t", "SELECT - -v, - - -v FROM t"),
            ("SELECT '--', \"a--b\", - -v", "SELECT '--', \"a--b\", - -v"),
            ("SELECT 'ü--' || --5", "SELECT 'ü--' || - -5"),
        ] {
            assert_eq!(with_signs_apart(stored.to_owned()), apart);
            assert_eq!(with_signs_apart(apart.to_owned()), apart);
        }
    }

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
            ("FROM \"\u{1}rows from\"(f(1), g(2)) AS r (a, b)", "FROM ROWS FROM(f(1), g(2)) AS r (a, b)"),
            (
                "GROUPING SETS ((a), (), (b, c), (ROLLUP (d, (e, f))), (CUBE (g)))",
                "GROUPING SETS ((a), (), (b, c), ROLLUP (d, (e, f)), CUBE (g))",
            ),
            ("SELECT 'GROUPING SETS ((ROLLUP (a)))'", "SELECT 'GROUPING SETS ((ROLLUP (a)))'"),
            ("FOR UPDATE OF \"\u{1}key\"", "FOR UPDATE"),
            ("FOR UPDATE OF \"\u{1}key\", t", "FOR UPDATE OF t"),
        ] {
            assert_eq!(spelled(stored), spoken);
        }
    }
}
