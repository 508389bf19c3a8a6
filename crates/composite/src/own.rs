//! Statements of ours with which local transactions end.
//!
//! They are prepared in each connection once, by SQL, and executed by text: so statement and COMMIT
//! are one message, which the database answers once. Two messages, even if they are sent together,
//! wake whoever waits twice.

use std::fmt::Write as _;

/// What a connection is told before it executes the first of them.
///
/// `write` writes a slot, and `release` frees the slot of a call that is undone; both divide by
/// zero if the slot belongs to another generation, `release` also if it is not this root's any
/// more. An insertion that always meets its row is the one statement that can fail on what it
/// finds, on every database. `fence` divides by zero if the component has another generation.
/// `keep` keeps an answer, and fails for a key that is kept already.
pub(crate) const PREPARE: &str = "
PREPARE cognate_composite_write(text, int, bigint, text, text) AS
    INSERT INTO cognate_composite.slot AS s VALUES ($1, $2, $3, $4, $5, false)
    ON CONFLICT (component, id) DO UPDATE SET root = excluded.root, facts = excluded.facts, noted = false,
        generation = s.generation / (CASE WHEN s.generation = excluded.generation THEN 1 ELSE 0 END);
PREPARE cognate_composite_release(text, int, bigint, text) AS
    INSERT INTO cognate_composite.slot AS s VALUES ($1, $2, $3, $4, NULL, false)
    ON CONFLICT (component, id) DO UPDATE SET root = NULL, facts = NULL,
        generation = s.generation / (CASE WHEN s.generation = excluded.generation AND s.root = excluded.root THEN 1 ELSE 0 END);
PREPARE cognate_composite_fence(text, bigint) AS
    SELECT 1 / count(*) FROM cognate_composite.component WHERE name = $1 AND generation = $2;
PREPARE cognate_composite_keep(text, text, text, text, text, double precision) AS
    INSERT INTO cognate_composite.answer VALUES ($1, $2, $3, $4, $5, now() + make_interval(secs => $6))";

/// One of them, with what it is about. `component` and `generation` are this process's.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Own<'a> {
    /// Writes a slot.
    Write { component: &'a str, slot: i32, generation: i64, root: &'a str, facts: &'a str },
    /// Frees the slot of a call that is undone.
    Release { component: &'a str, slot: i32, generation: i64, root: &'a str },
    /// Looks at the generation.
    Fence { component: &'a str, generation: i64 },
    /// Keeps an answer for so many seconds.
    Keep { component: &'a str, key: &'a str, root: &'a str, arguments: &'a str, answer: &'a str, secs: f64 },
}

impl Own<'_> {
    /// Adds the statement to a text.
    pub(crate) fn add_to(&self, text: &mut String) {
        match *self {
            Own::Write { component, slot, generation, root, facts } => {
                text.push_str("EXECUTE cognate_composite_write(");
                literal(text, component);
                let _ = write!(text, ", {slot}, {generation}, ");
                literal(text, root);
                text.push_str(", ");
                literal(text, facts);
            }
            Own::Release { component, slot, generation, root } => {
                text.push_str("EXECUTE cognate_composite_release(");
                literal(text, component);
                let _ = write!(text, ", {slot}, {generation}, ");
                literal(text, root);
            }
            Own::Fence { component, generation } => {
                text.push_str("EXECUTE cognate_composite_fence(");
                literal(text, component);
                let _ = write!(text, ", {generation}");
            }
            Own::Keep { component, key, root, arguments, answer, secs } => {
                text.push_str("EXECUTE cognate_composite_keep(");
                for value in [component, key, root, arguments, answer] {
                    literal(text, value);
                    text.push_str(", ");
                }
                let _ = write!(text, "{secs}");
            }
        }
        text.push_str("); ");
    }
}

/// A text as SQL writes it. Connections are told that a backslash is a character like others
/// (`standard_conforming_strings`), so only quotes have to be doubled.
fn literal(text: &mut String, value: &str) {
    text.reserve(value.len() + 2);
    text.push('\'');
    let mut rest = value;
    while let Some(quote) = rest.find('\'') {
        text.push_str(&rest[..=quote]);
        text.push('\'');
        rest = &rest[quote + 1..];
    }
    text.push_str(rest);
    text.push('\'');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_about_quotes_stays_a_value() {
        let mut text = String::new();
        let facts = r#"{"a":"'';--\"}"#;
        Own::Write { component: "shop", slot: 3, generation: -1, root: "r'", facts }.add_to(&mut text);
        assert_eq!(text, r#"EXECUTE cognate_composite_write('shop', 3, -1, 'r''', '{"a":"'''';--\"}'); "#);
        let mut text = String::new();
        Own::Keep { component: "c", key: "'", root: "r", arguments: "1", answer: "2", secs: 86400.0 }
            .add_to(&mut text);
        assert_eq!(text, "EXECUTE cognate_composite_keep('c', '''', 'r', '1', '2', 86400); ");
    }
}
