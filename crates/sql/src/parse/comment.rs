//! COMMENT ON what is named by more than a name.
//!
//! ```text
//! COMMENT ON { FUNCTION | PROCEDURE | ROUTINE } name [(types)] IS { 'text' | NULL }
//! COMMENT ON CONSTRAINT name ON table IS { 'text' | NULL }
//! ```
//!
//! Other objects the parser knows; constraints of domains belong to `domain`.

use sqlparser::ast::{Ident, ObjectName};
use sqlparser::parser::Parser;

use super::command::{Parsed, expect, take, take_all};
use super::grant::{NamedRoutine, routines};
use crate::catalog::RoutineKind;

/// The statement.
#[derive(Clone, Debug)]
pub struct CommentStatement {
    /// What the comment is about.
    pub object: Commented,
    /// The comment; none takes it away.
    pub comment: Option<String>,
}

/// What a comment is about.
#[derive(Clone, Debug)]
pub enum Commented {
    /// A function or procedure; of no kind it is either.
    Routine(Option<RoutineKind>, NamedRoutine),
    /// A constraint, and the table that has it.
    Constraint(Ident, ObjectName),
}

/// The statement, if it is one of these.
pub(super) fn parse(parser: &mut Parser<'_>) -> Parsed<Option<CommentStatement>> {
    let kinds = [
        ("FUNCTION", Some(RoutineKind::Function)),
        ("PROCEDURE", Some(RoutineKind::Procedure)),
        ("ROUTINE", None),
    ];
    for (word, kind) in kinds {
        if take_all(parser, &["COMMENT", "ON", word]) {
            let mut named = routines(parser)?;
            return match (named.pop(), named.is_empty()) {
                (Some(named), true) => comment(parser, Commented::Routine(kind, named)).map(Some),
                _ => parser.expected_ref("IS", parser.peek_token_ref()),
            };
        }
    }
    if take_all(parser, &["COMMENT", "ON", "CONSTRAINT"]) {
        let name = parser.parse_identifier()?;
        expect(parser, "ON")?;
        let table = parser.parse_object_name(false)?;
        return comment(parser, Commented::Constraint(name, table)).map(Some);
    }
    Ok(None)
}

fn comment(parser: &mut Parser<'_>, object: Commented) -> Parsed<CommentStatement> {
    expect(parser, "IS")?;
    let comment = if take(parser, "NULL") { None } else { Some(parser.parse_literal_string()?) };
    Ok(CommentStatement { object, comment })
}

#[cfg(test)]
mod tests {
    use crate::parse::{Command, parse};

    #[test]
    fn comments_on_what_is_named_by_more() {
        for text in [
            "COMMENT ON FUNCTION f(a int, text) IS 'x'",
            "COMMENT ON PROCEDURE s.p IS NULL",
            "COMMENT ON ROUTINE r() IS 'x'",
            "COMMENT ON CONSTRAINT \"C\" ON s.t IS 'x'",
        ] {
            let parsed = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert!(matches!(parsed[0].command, Command::Comment(_)), "{text}");
        }
        assert_eq!(parse("COMMENT ON FUNCTION f, g IS 'x'").expect_err("two").sqlstate, "42601");
    }
}
