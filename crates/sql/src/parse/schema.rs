//! CREATE SCHEMA with what is to be made in it. Its tokens are cut where the elements begin, and
//! each part is parsed by itself, as a statement of its own.
//!
//! ```text
//! CREATE SCHEMA s | CREATE TABLE t (a int) | CREATE VIEW v AS TABLE t | GRANT SELECT ON v TO bob
//! ```

use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::rewrite::is;
use super::{Command, is_blank};

/// The statement.
#[derive(Clone, Debug)]
pub struct CreateSchema {
    /// CREATE SCHEMA itself.
    pub schema: Command,
    /// What is to be made in it, as it was written.
    pub elements: Vec<Command>,
}

/// What elements that begin with CREATE go on with. Behind GRANT the word is a privilege.
const OBJECTS: [&str; 12] = [
    "TABLE",
    "TEMP",
    "TEMPORARY",
    "LOCAL",
    "GLOBAL",
    "UNLOGGED",
    "VIEW",
    "RECURSIVE",
    "OR",
    "INDEX",
    "UNIQUE",
    "SEQUENCE",
];

/// The tokens of the schema, then those of each element; none if it is another statement, or has no
/// elements.
pub(super) fn cut(tokens: &[TokenWithSpan]) -> Option<Vec<Vec<TokenWithSpan>>> {
    if !is(tokens.first(), "CREATE") {
        return None;
    }
    let code = || tokens.iter().enumerate().filter(|(_, token)| !is_blank(token));
    if !is(code().nth(1).map(|(_, token)| token), "SCHEMA") {
        return None;
    }
    let next = code().skip(3).map(|(_, token)| Some(token)).chain([None]);
    let (mut depth, mut starts) = (0i32, vec![0]);
    for ((at, token), next) in code().skip(2).zip(next) {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        if depth == 0 && begins_element(token, next) {
            starts.push(at);
        }
    }
    if starts.len() == 1 {
        return None;
    }
    starts.push(tokens.len());
    Some(starts.windows(2).map(|ends| tokens[ends[0]..ends[1]].to_vec()).collect())
}

fn begins_element(token: &TokenWithSpan, next: Option<&TokenWithSpan>) -> bool {
    let makes = is(Some(token), "CREATE") && OBJECTS.iter().any(|word| is(next, word));
    makes || (is(Some(token), "GRANT") && !is(next, "OPTION"))
}

#[cfg(test)]
mod tests {
    use crate::parse::{Command, parse};

    #[test]
    fn elements_are_found_where_they_begin() {
        for (text, elements) in [
            ("CREATE SCHEMA s", None),
            ("CREATE SCHEMA s CREATE TABLE t (a int)", Some(1)),
            ("CREATE SCHEMA s CREATE VIEW v AS SELECT * FROM t CREATE UNIQUE INDEX i ON t (a)", Some(2)),
            ("CREATE SCHEMA s GRANT CREATE ON SCHEMA s TO a WITH GRANT OPTION CREATE SEQUENCE q", Some(2)),
        ] {
            let statements = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let found = match &statements[0].command {
                Command::CreateSchema(create) => Some(create.elements.len()),
                _ => None,
            };
            assert_eq!((statements.len(), found), (1, elements), "{text}");
        }
        assert_eq!(parse("CREATE SCHEMA s FLY").expect_err("no such word").sqlstate, "42601");
    }
}
