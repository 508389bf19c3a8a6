//! Who owns what: ALTER ... OWNER TO, REASSIGN OWNED, DROP OWNED.
//!
//! ```text
//! ALTER { TABLE | VIEW | SEQUENCE | INDEX | SCHEMA | DATABASE | TYPE | DOMAIN } [IF EXISTS] [ONLY] name OWNER TO role
//! ALTER { FUNCTION | PROCEDURE | ROUTINE } name [(types)] OWNER TO role
//! REASSIGN OWNED BY role, ... TO role
//! DROP OWNED BY role, ... [CASCADE | RESTRICT]
//! ```

use sqlparser::ast::ObjectName;
use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use super::command::{Parsed, expect, is_word, take, take_all};
use super::grant::routines;
use super::role::{RoleRef, role, roles};
use super::routine::RoutineArgument;
use crate::catalog::RoutineKind;

/// A statement about owners.
#[derive(Clone, Debug)]
pub enum OwnerStatement {
    /// ALTER ... OWNER TO.
    Alter {
        /// What kind of object, in upper case.
        kind: &'static str,
        /// Its name.
        name: ObjectName,
        /// A routine's arguments, if they are given.
        arguments: Option<Vec<RoutineArgument>>,
        /// IF EXISTS.
        if_exists: bool,
        /// Who is to own it.
        owner: RoleRef,
    },
    /// REASSIGN OWNED.
    Reassign {
        /// Who owns it.
        from: Vec<RoleRef>,
        /// Who is to own it.
        to: RoleRef,
    },
    /// DROP OWNED.
    Drop {
        /// Who owns it.
        of: Vec<RoleRef>,
        /// CASCADE.
        cascade: bool,
    },
}

impl OwnerStatement {
    /// The statement's tag.
    pub fn tag(&self) -> &'static str {
        match self {
            OwnerStatement::Alter { kind, .. } => match *kind {
                "TABLE" => "ALTER TABLE",
                "VIEW" => "ALTER VIEW",
                "SEQUENCE" => "ALTER SEQUENCE",
                "INDEX" => "ALTER INDEX",
                "SCHEMA" => "ALTER SCHEMA",
                "DATABASE" => "ALTER DATABASE",
                "TYPE" => "ALTER TYPE",
                "DOMAIN" => "ALTER DOMAIN",
                "FUNCTION" => "ALTER FUNCTION",
                "PROCEDURE" => "ALTER PROCEDURE",
                _ => "ALTER ROUTINE",
            },
            OwnerStatement::Reassign { .. } => "REASSIGN OWNED",
            OwnerStatement::Drop { .. } => "DROP OWNED",
        }
    }

    /// Which routines a word of ALTER means; ROUTINE is either.
    pub fn routine_kind(kind: &str) -> Option<RoutineKind> {
        match kind {
            "FUNCTION" => Some(RoutineKind::Function),
            "PROCEDURE" => Some(RoutineKind::Procedure),
            _ => None,
        }
    }
}

const KINDS: [&str; 11] = [
    "TABLE",
    "VIEW",
    "SEQUENCE",
    "INDEX",
    "SCHEMA",
    "DATABASE",
    "TYPE",
    "DOMAIN",
    "FUNCTION",
    "PROCEDURE",
    "ROUTINE",
];

/// The statement, if it is one of these.
pub(super) fn parse(parser: &mut Parser<'_>) -> Parsed<Option<OwnerStatement>> {
    if take_all(parser, &["REASSIGN", "OWNED", "BY"]) {
        let from = roles(parser)?;
        expect(parser, "TO")?;
        return Ok(Some(OwnerStatement::Reassign { from, to: role(parser)? }));
    }
    if take_all(parser, &["DROP", "OWNED", "BY"]) {
        let of = roles(parser)?;
        let cascade = take(parser, "CASCADE");
        if !cascade {
            take(parser, "RESTRICT");
        }
        return Ok(Some(OwnerStatement::Drop { of, cascade }));
    }
    let kind = KINDS.into_iter().find(|kind| is_word(parser, 1, kind));
    match kind.filter(|_| is_word(parser, 0, "ALTER")) {
        // Other forms of ALTER are found out by what stands behind the name.
        Some(kind) if has_owner(parser, kind) => alter(parser, kind).map(Some),
        _ => Ok(None),
    }
}

/// Whether the words OWNER TO and one more end the statement, and nothing else is said of a table.
fn has_owner(parser: &Parser<'_>, kind: &str) -> bool {
    let is = |ahead: usize, token: Token| parser.peek_nth_token_ref(ahead).token == token;
    let is_end = |ahead: usize| is(ahead, Token::EOF) || (kind == "TABLE" && is(ahead, Token::Comma));
    // Names and arguments are short.
    (3..64)
        .take_while(|&ahead| !is_end(ahead))
        .any(|ahead| is_word(parser, ahead, "OWNER") && is_word(parser, ahead + 1, "TO") && is_end(ahead + 3))
}

fn alter(parser: &mut Parser<'_>, kind: &'static str) -> Parsed<OwnerStatement> {
    (0..2).for_each(|_| parser.advance_token());
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    if kind == "TABLE" && is_word(parser, 0, "ONLY") && !is_word(parser, 1, "OWNER") {
        parser.advance_token();
    }
    let is_routine = ["FUNCTION", "PROCEDURE", "ROUTINE"].contains(&kind);
    let (name, arguments) = if is_routine {
        let mut named = routines(parser)?;
        match (named.pop(), named.is_empty()) {
            (Some(named), true) => named,
            _ => return parser.expected_ref("OWNER", parser.peek_token_ref()),
        }
    } else {
        (parser.parse_object_name(false)?, None)
    };
    expect(parser, "OWNER")?;
    expect(parser, "TO")?;
    Ok(OwnerStatement::Alter { kind, name, arguments, if_exists, owner: role(parser)? })
}

#[cfg(test)]
mod tests {
    use crate::parse::{Command, parse};

    #[test]
    fn owners_of_all_kinds() {
        for (text, tag) in [
            ("ALTER TABLE IF EXISTS ONLY s.t OWNER TO ann", "ALTER TABLE"),
            ("ALTER FUNCTION f(a int, text) OWNER TO CURRENT_USER", "ALTER FUNCTION"),
            ("ALTER SCHEMA s OWNER TO \"Ann\"", "ALTER SCHEMA"),
            ("REASSIGN OWNED BY a, b TO c", "REASSIGN OWNED"),
            ("DROP OWNED BY a CASCADE", "DROP OWNED"),
        ] {
            match &parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))[0].command {
                Command::Owner(statement) => assert_eq!(statement.tag(), tag, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}
