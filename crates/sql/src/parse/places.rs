//! Words that the parser takes where they cannot stand: reserved ones as names of relations, and
//! statements within EXPLAIN, PREPARE and DECLARE that these cannot be about.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::error::Source;
use super::rewrite::is;
use crate::error::Result;
use crate::pg_catalog::is_no_relation;

/// What queries begin with.
const QUERIES: [&str; 4] = ["SELECT", "VALUES", "WITH", "TABLE"];
/// What statements begin with that change rows.
const CHANGES: [&str; 4] = ["INSERT", "UPDATE", "DELETE", "MERGE"];
/// What may stand between CREATE and a kind of relation.
const MODIFIERS: [&str; 10] = [
    "OR",
    "REPLACE",
    "LOCAL",
    "GLOBAL",
    "TEMP",
    "TEMPORARY",
    "UNLOGGED",
    "UNIQUE",
    "MATERIALIZED",
    "RECURSIVE",
];

/// 42601 at such a word.
pub(super) fn check(tokens: &[TokenWithSpan], places: &Source<'_>) -> Result<()> {
    let Some(Token::Word(first)) = tokens.first().map(|token| &token.token) else { return Ok(()) };
    let wrong = match first.keyword {
        Keyword::CREATE => created(tokens),
        Keyword::ALTER => renamed(tokens),
        Keyword::DECLARE => of_cursor(tokens),
        Keyword::PREPARE => prepared(tokens),
        Keyword::EXPLAIN => explained(tokens),
        _ => None,
    };
    match wrong {
        Some(token) => Err(places.near(token.span.start)),
        None => Ok(()),
    }
}

fn is_any(token: Option<&TokenWithSpan>, words: &[&str]) -> bool {
    words.iter().any(|word| is(token, word))
}

fn opens(token: Option<&TokenWithSpan>) -> bool {
    token.is_some_and(|token| token.token == Token::LParen)
}

/// The token, if it is a word that can be no name of a relation.
fn no_name(token: &TokenWithSpan) -> Option<&TokenWithSpan> {
    match &token.token {
        Token::Word(word) if word.quote_style.is_none() => {
            is_no_relation(&word.value.to_ascii_lowercase()).then_some(token)
        }
        _ => None,
    }
}

/// The name of a new relation.
fn created(tokens: &[TokenWithSpan]) -> Option<&TokenWithSpan> {
    // Before a table or a sequence the word is gone by now.
    if is(tokens.get(1), "UNLOGGED") {
        return tokens.get(2);
    }
    let is_modifier = |token: &&TokenWithSpan| is_any(Some(*token), &MODIFIERS);
    let kind = 1 + tokens.iter().skip(1).take_while(is_modifier).count();
    if !is_any(tokens.get(kind), &["TABLE", "VIEW", "INDEX", "SEQUENCE"]) {
        return None;
    }
    let mut name = kind + 1 + usize::from(is(tokens.get(kind + 1), "CONCURRENTLY"));
    if is(tokens.get(name), "IF") && is(tokens.get(name + 1), "NOT") {
        name += 3;
    }
    // An index needs no name.
    let has_none = is(tokens.get(kind), "INDEX") && is(tokens.get(name), "ON");
    tokens.get(name).filter(|_| !has_none).and_then(no_name)
}

/// The new name that ends ALTER ... RENAME.
fn renamed(tokens: &[TokenWithSpan]) -> Option<&TokenWithSpan> {
    let [rest @ .., to, name] = tokens else { return None };
    let renames = rest.iter().rev().take(3).any(|token| is(Some(token), "RENAME"));
    if renames && is(Some(to), "TO") { no_name(name) } else { None }
}

/// What DECLARE ... CURSOR FOR begins with, if it is no query.
fn of_cursor(tokens: &[TokenWithSpan]) -> Option<&TokenWithSpan> {
    let cursor = tokens.iter().position(|token| is(Some(token), "CURSOR"))?;
    let begin = cursor + 1 + tokens[cursor..].iter().position(|token| is(Some(token), "FOR"))?;
    let begins = |token: &&TokenWithSpan| is_any(Some(*token), &QUERIES) || opens(Some(*token));
    tokens.get(begin).filter(|token| !begins(token))
}

/// What PREPARE name AS begins with, if that cannot be prepared.
fn prepared(tokens: &[TokenWithSpan]) -> Option<&TokenWithSpan> {
    let mut depth = 0;
    let begin = 1 + tokens.iter().position(|token| {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        depth == 0 && is(Some(token), "AS")
    })?;
    // Behind a name and types; PREPARE TRANSACTION and its kind have no AS.
    let fits = |token: &&TokenWithSpan| {
        is_any(Some(*token), &QUERIES) || is_any(Some(*token), &CHANGES) || opens(Some(*token))
    };
    tokens.get(begin).filter(|token| !fits(token))
}

/// What EXPLAIN is about, if it cannot be.
fn explained(tokens: &[TokenWithSpan]) -> Option<&TokenWithSpan> {
    let mut begin = 1;
    if opens(tokens.get(1)) {
        if opens(tokens.get(2)) || is_any(tokens.get(2), &QUERIES) {
            return None;
        }
        begin += 1 + tokens[1..].iter().position(|token| token.token == Token::RParen)?;
    } else {
        begin += usize::from(is(tokens.get(begin), "ANALYZE"));
        begin += usize::from(is(tokens.get(begin), "VERBOSE"));
    }
    let about = tokens.get(begin)?;
    if is(Some(about), "CREATE") {
        let is_modifier = |token: &&TokenWithSpan| {
            is_any(Some(*token), &["LOCAL", "GLOBAL", "TEMP", "TEMPORARY", "UNLOGGED", "MATERIALIZED"])
        };
        let kind = begin + 1 + tokens[begin + 1..].iter().take_while(is_modifier).count();
        let is_view = is(tokens.get(kind), "VIEW") && is(tokens.get(kind - 1), "MATERIALIZED");
        return tokens.get(kind).filter(|kind| !is_view && !is(Some(*kind), "TABLE"));
    }
    // Procedures are not explained in PostgreSQL.
    let others = ["CALL", "DECLARE", "EXECUTE", "EXPLAIN"];
    let fits = is_any(Some(about), &QUERIES) || is_any(Some(about), &CHANGES) || is_any(Some(about), &others);
    (!fits && !opens(Some(about))).then_some(about)
}

#[cfg(test)]
mod tests {
    use crate::parse::parse;

    #[test]
    fn words_are_refused_where_they_cannot_stand() {
        for (text, near) in [
            ("CREATE TABLE where (a int)", "where"),
            ("CREATE TEMP TABLE IF NOT EXISTS join (a int)", "join"),
            ("CREATE OR REPLACE VIEW order AS SELECT 1", "order"),
            ("CREATE UNIQUE INDEX select ON t (a)", "select"),
            ("CREATE SEQUENCE user", "user"),
            ("CREATE UNLOGGED TEMP TABLE t (a int)", "TEMP"),
            ("CREATE UNLOGGED INDEX i ON t (a)", "INDEX"),
            ("ALTER TABLE t RENAME TO where", "where"),
            ("ALTER TABLE t RENAME COLUMN a TO from", "from"),
            ("DECLARE c CURSOR WITH HOLD FOR INSERT INTO t VALUES (1) RETURNING a", "INSERT"),
            ("PREPARE q AS CREATE TABLE x (a int)", "CREATE"),
            ("PREPARE q (int) AS NOTIFY a", "NOTIFY"),
            ("EXPLAIN NOTIFY a", "NOTIFY"),
            ("EXPLAIN (COSTS OFF) VACUUM", "VACUUM"),
            ("EXPLAIN ANALYZE VERBOSE CREATE VIEW v AS SELECT 1", "VIEW"),
            ("EXPLAIN t", "t"),
        ] {
            let error = parse(text).expect_err(text);
            assert_eq!(error.message, format!("syntax error at or near \"{near}\""), "{text}");
        }
    }

    #[test]
    fn the_same_words_stand_where_they_may() {
        for text in [
            "CREATE TABLE \"where\" (a int)",
            "CREATE TABLE s.where (a int)",
            "CREATE TABLE coalesce (a int)",
            "CREATE INDEX ON t (a)",
            "CREATE INDEX CONCURRENTLY IF NOT EXISTS i ON t (a)",
            "CREATE TEMP TABLE IF NOT EXISTS t AS TABLE u",
            "ALTER TABLE t RENAME TO \"where\"",
            "DECLARE c NO SCROLL CURSOR WITHOUT HOLD FOR TABLE t",
            "PREPARE q (int) AS (SELECT $1)",
            "PREPARE q AS MERGE INTO t USING u ON a = b WHEN MATCHED THEN DO NOTHING",
            "EXPLAIN (SELECT 1)",
            "EXPLAIN (COSTS OFF) (SELECT 1)",
            "EXPLAIN ANALYZE CREATE TEMP TABLE t AS SELECT 1",
            "EXPLAIN EXECUTE q",
        ] {
            assert!(parse(text).is_ok(), "{text}");
        }
    }
}
