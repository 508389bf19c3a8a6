//! Which differences only follow from an earlier one.
//!
//! Where one server made or changed something and the other did not, everything that names it may
//! differ afterwards and says nothing new. So the names that such a statement writes are remembered
//! with the difference, and a later difference of a statement that mentions one is booked to the
//! first. A name is trusted again once both servers have dropped it or made it anew.
//!
//! ```text
//! CREATE TABLE t (a point)     refused by name: a first difference; t is not trusted
//! INSERT INTO t VALUES (...)   42P01: follows
//! CREATE VIEW v AS TABLE t     42P01: follows; v is not trusted either
//! DROP TABLE IF EXISTS t       done by both: t is trusted again
//! ```

use std::collections::HashMap;

use super::compare::tokens;

/// Names that are not the same on both servers, and the difference that began it.
#[derive(Default)]
pub(crate) struct Doubts {
    names: HashMap<String, usize>,
    /// What was written in the open block.
    block: Vec<String>,
    /// The difference that let one server's block fail, or begin.
    block_cause: Option<usize>,
}

/// What is seen of one statement on both servers.
pub(crate) struct Seen<'a> {
    pub(crate) sql: &'a str,
    /// Whether the answers are equal.
    pub(crate) equal: bool,
    /// Whether the servers refused it.
    pub(crate) refused: (bool, bool),
    /// The connections' states before and after it.
    pub(crate) before: (u8, u8),
    pub(crate) after: (u8, u8),
    /// The number that its difference gets, if it has one.
    pub(crate) number: usize,
}

impl Doubts {
    /// The difference that this one follows from, if any.
    pub(crate) fn note(&mut self, seen: &Seen<'_>) -> Option<usize> {
        let words = tokens(seen.sql);
        let written = written(&words);
        let mentioned =
            words.iter().flat_map(|word| inner_words(word)).find_map(|word| self.names.get(&word));
        let in_doubt = mentioned.copied().or(self.block_cause.filter(|_| seen.before.0 != seen.before.1));
        let cause = if seen.equal { None } else { in_doubt };
        let (wanted, got) = seen.refused;
        let changed = written.iter().chain(&renamed(&words)).cloned().collect::<Vec<_>>();
        // One has done it and the other has not, or both have with what may differ.
        let differs = wanted != got || (!wanted && (!seen.equal || mentioned.is_some()));
        if differs && seen.equal && self.is_anew(&words, &written) {
            self.names.retain(|name, _| !written.contains(name));
        } else if differs {
            let cause = in_doubt.unwrap_or(seen.number);
            self.names.extend(changed.iter().map(|name| (name.clone(), cause)));
        }
        self.note_block(seen, changed, cause);
        cause
    }

    /// Whether a statement that both have done leaves what it names the same: it drops it, or makes
    /// it from nothing in doubt.
    fn is_anew(&self, words: &[String], written: &[String]) -> bool {
        match words.first().map(String::as_str) {
            Some("drop") => true,
            Some("create") => {
                let mut others = words.iter().flat_map(|word| inner_words(word));
                !others.any(|word| !written.contains(&word) && self.names.contains_key(&word))
            }
            _ => false,
        }
    }

    fn note_block(&mut self, seen: &Seen<'_>, changed: Vec<String>, cause: Option<usize>) {
        if seen.before == (b'I', b'I') {
            self.block.clear();
            self.block_cause = None;
        }
        self.block.extend(changed);
        if seen.after.0 != seen.after.1 && self.block_cause.is_none() {
            self.block_cause = Some(cause.unwrap_or(seen.number));
        }
        let ended = seen.after.0 == b'I' && seen.before.0 != b'I';
        if let Some(cause) = self.block_cause.filter(|_| ended && (!seen.equal || seen.after.1 != b'I')) {
            self.names.extend(self.block.drain(..).map(|name| (name, cause)));
        }
    }
}

/// The words of a token: of a string, those within.
fn inner_words(token: &str) -> Vec<String> {
    if !token.starts_with(['\'', '"']) {
        return vec![token.to_owned()];
    }
    let parts = token.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    parts.filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// What a statement makes, changes or removes, by name; of a qualified name the last part.
fn written(words: &[String]) -> Vec<String> {
    let mut names = Vec::new();
    let word = |index: usize| words.get(index).map_or("", String::as_str);
    let defines =
        ["create", "alter", "drop", "truncate", "prepare", "declare", "fetch", "move", "refresh", "comment"]
            .contains(&word(0));
    for index in 0..words.len() {
        let before = if index > 0 { word(index - 1) } else { "" };
        match word(index) {
            "into" => names.extend(name_at(words, index + 1)),
            "update" if !["for", "on", "do", "key", "before", "after", "or"].contains(&before) => {
                names.extend(name_at(words, index + 1));
            }
            "from" if before == "delete" => names.extend(name_at(words, index + 1)),
            "copy" if index == 0 => names.extend(name_at(words, 1)),
            "nextval" | "setval" => names.extend(name_at(words, index + 2)),
            kind if defines && index < 6 && KINDS.contains(&kind) => {
                names.extend(list_at(words, index + 1));
                if ["index", "trigger", "rule"].contains(&kind) {
                    let on = words.iter().skip(index).position(|word| word == "on");
                    names.extend(on.and_then(|on| name_at(words, index + on + 1)));
                }
            }
            _ => {}
        }
    }
    if ["prepare", "declare", "truncate", "fetch", "move"].contains(&word(0)) {
        match word(0) {
            "fetch" | "move" => names.extend(words.last().map(|name| bare(name))),
            _ => names.extend(list_at(words, 1)),
        }
    }
    names
}

fn renamed(words: &[String]) -> Vec<String> {
    let place =
        words.windows(2).position(|pair| matches!(pair, [rename, to] if rename == "rename" && to == "to"));
    place.and_then(|place| name_at(words, place + 2)).into_iter().collect()
}

const KINDS: &[&str] = &[
    "table",
    "view",
    "index",
    "sequence",
    "type",
    "domain",
    "function",
    "procedure",
    "routine",
    "schema",
    "trigger",
    "rule",
    "aggregate",
    "operator",
    "role",
    "user",
    "group",
    "collation",
    "cast",
];
/// Between the kind of an object and its name.
const FILLERS: &[&str] =
    &["if", "not", "exists", "only", "concurrently", "table", "temp", "temporary", "unlogged", "recursive"];

fn bare(word: &str) -> String {
    word.trim_matches(['"', '\'']).to_owned()
}

fn name_at(words: &[String], at: usize) -> Option<String> {
    let skipped = words.iter().skip(at).take_while(|word| FILLERS.contains(&word.as_str())).count();
    let mut at = at + skipped;
    while words.get(at + 1).is_some_and(|word| word == ".") {
        at += 2;
    }
    let name = bare(words.get(at)?);
    name.starts_with(|first: char| first.is_alphabetic() || first == '_').then_some(name)
}

/// Names that are separated by commas.
fn list_at(words: &[String], at: usize) -> Vec<String> {
    let mut names: Vec<String> = name_at(words, at).into_iter().collect();
    let end = words.iter().skip(at).position(|word| word == "(" || word == "as");
    let list = words.get(at..end.map_or(words.len(), |end| at + end)).unwrap_or_default();
    for (index, word) in list.iter().enumerate() {
        if word == "," {
            names.extend(name_at(words, at + index + 1));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::{Doubts, Seen, tokens, written};

    #[test]
    fn what_a_statement_writes() {
        let of = |sql| written(&tokens(sql));
        assert_eq!(of("CREATE TEMP TABLE IF NOT EXISTS s.t (a int, b int)"), ["t"]);
        assert_eq!(of("CREATE UNIQUE INDEX i ON ONLY t (a)"), ["i", "t"]);
        assert_eq!(of("DROP TABLE a, b CASCADE"), ["a", "b"]);
        assert_eq!(of("WITH x AS (DELETE FROM a) INSERT INTO b SELECT nextval('c')"), ["a", "b", "c"]);
        assert_eq!(of("INSERT INTO a VALUES (1) ON CONFLICT DO UPDATE SET b = 1"), ["a"]);
        assert_eq!(of("SELECT 1 FROM t FOR UPDATE"), Vec::<String>::new());
    }

    #[test]
    fn a_difference_follows_from_one_whose_name_it_mentions() {
        let mut doubts = Doubts::default();
        let mut note = |sql, number, refused: (bool, bool)| {
            let states = (b'I', b'I');
            let equal = refused.0 == refused.1;
            doubts.note(&Seen { sql, equal, refused, before: states, after: states, number })
        };
        assert_eq!(note("CREATE TABLE t (a point)", 0, (false, true)), None);
        assert_eq!(note("INSERT INTO t VALUES (1)", 1, (false, true)), Some(0));
        assert_eq!(note("CREATE VIEW v AS SELECT * FROM t", 2, (false, true)), Some(0));
        assert_eq!(note("SELECT * FROM v", 3, (false, true)), Some(0));
        assert_eq!(note("DROP TABLE IF EXISTS t CASCADE", 4, (false, false)), None);
        assert_eq!(note("CREATE TABLE t (a box)", 4, (false, true)), None);
        assert_eq!(note("SELECT * FROM t", 5, (false, true)), Some(4));
    }
}
