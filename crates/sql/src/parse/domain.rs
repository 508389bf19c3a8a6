//! CREATE, ALTER and DROP DOMAIN, and COMMENT ON a constraint of a domain.
//!
//! ```text
//! CREATE DOMAIN name [AS] type [DEFAULT expression | [CONSTRAINT name] {NOT NULL | NULL | CHECK (expression)}] ...
//! ALTER DOMAIN name { {SET DEFAULT expression | DROP DEFAULT} | {SET | DROP} NOT NULL
//!     | ADD [CONSTRAINT name] {CHECK (expression) [NOT VALID] | NOT NULL}
//!     | DROP CONSTRAINT [IF EXISTS] name [RESTRICT | CASCADE] | RENAME CONSTRAINT name TO name
//!     | VALIDATE CONSTRAINT name | RENAME TO name | SET SCHEMA name }
//! DROP DOMAIN [IF EXISTS] name, ... [RESTRICT | CASCADE]
//! COMMENT ON CONSTRAINT name ON DOMAIN name IS {'text' | NULL}
//! ```

use sqlparser::ast::{DataType, Expr, Ident, ObjectName};
use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use super::command::{Parsed, expect, is_word, take, take_all};
use super::dialect::BELOW_IS;

/// A statement about domains.
#[derive(Clone, Debug)]
pub enum DomainStatement {
    /// CREATE DOMAIN.
    Create {
        /// Its name.
        name: ObjectName,
        /// The type it is over.
        data_type: DataType,
        /// The rest, as it was given.
        clauses: Vec<DomainClause>,
    },
    /// ALTER DOMAIN.
    Alter {
        /// Its name.
        name: ObjectName,
        /// What changes.
        change: Box<DomainChange>,
    },
    /// DROP DOMAIN.
    Drop {
        /// Their names.
        names: Vec<ObjectName>,
        /// IF EXISTS.
        if_exists: bool,
        /// CASCADE.
        cascade: bool,
    },
    /// COMMENT ON CONSTRAINT ... ON DOMAIN.
    CommentOnConstraint {
        /// The constraint.
        constraint: Ident,
        /// The domain.
        domain: ObjectName,
        /// The comment; none takes it away.
        comment: Option<String>,
    },
}

/// A clause of CREATE DOMAIN.
#[derive(Clone, Debug)]
pub enum DomainClause {
    /// DEFAULT.
    Default(Expr),
    /// NOT NULL.
    NotNull,
    /// NULL.
    Null,
    /// CHECK, with its name, if it was given one.
    Check(Option<Ident>, Expr),
    /// A constraint that domains cannot have: its words.
    Impossible(&'static str),
}

/// What ALTER DOMAIN does.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum DomainChange {
    /// SET DEFAULT; none is DROP DEFAULT.
    Default(Option<Expr>),
    /// SET or DROP NOT NULL.
    NotNull(bool),
    /// ADD CHECK.
    Add { name: Option<Ident>, expression: Expr, not_valid: bool },
    /// ADD of what domains cannot have: its words.
    Impossible(&'static str),
    /// DROP CONSTRAINT.
    Drop { name: Ident, if_exists: bool },
    /// RENAME CONSTRAINT.
    RenameConstraint { name: Ident, new: Ident },
    /// VALIDATE CONSTRAINT.
    Validate(Ident),
    /// RENAME TO.
    Rename(Ident),
    /// SET SCHEMA.
    Schema(Ident),
}

/// The statement, if it is one of these.
pub(super) fn parse(parser: &mut Parser<'_>) -> Parsed<Option<DomainStatement>> {
    if take_all(parser, &["CREATE", "DOMAIN"]) {
        return create(parser).map(Some);
    }
    if take_all(parser, &["ALTER", "DOMAIN"]) {
        let name = parser.parse_object_name(false)?;
        return Ok(Some(DomainStatement::Alter { name, change: Box::new(change(parser)?) }));
    }
    if take_all(parser, &["DROP", "DOMAIN"]) {
        let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
        let names = parser.parse_comma_separated(|parser| parser.parse_object_name(false))?;
        return Ok(Some(DomainStatement::Drop { names, if_exists, cascade: behavior(parser) }));
    }
    let is_comment = ["COMMENT", "ON", "CONSTRAINT"].iter().enumerate();
    let is_comment = is_comment.into_iter().all(|(ahead, word)| is_word(parser, ahead, word));
    if is_comment && is_word(parser, 4, "ON") && is_word(parser, 5, "DOMAIN") {
        (0..3).for_each(|_| parser.advance_token());
        let constraint = parser.parse_identifier()?;
        (0..2).for_each(|_| parser.advance_token());
        let domain = parser.parse_object_name(false)?;
        expect(parser, "IS")?;
        let comment = if take(parser, "NULL") { None } else { Some(parser.parse_literal_string()?) };
        return Ok(Some(DomainStatement::CommentOnConstraint { constraint, domain, comment }));
    }
    Ok(None)
}

/// Whether CASCADE is said; RESTRICT is what is meant anyway.
fn behavior(parser: &mut Parser<'_>) -> bool {
    let cascade = take(parser, "CASCADE");
    if !cascade {
        take(parser, "RESTRICT");
    }
    cascade
}

/// An expression up to a NOT NULL that belongs to the statement.
fn default(parser: &mut Parser<'_>) -> Parsed<Expr> {
    parser.parse_subexpr(BELOW_IS)
}

fn create(parser: &mut Parser<'_>) -> Parsed<DomainStatement> {
    let name = parser.parse_object_name(false)?;
    take(parser, "AS");
    let data_type = parser.parse_data_type()?;
    let mut clauses = vec![];
    loop {
        let name = if take(parser, "CONSTRAINT") { Some(parser.parse_identifier()?) } else { None };
        clauses.push(match constraint(parser, name.clone())? {
            Some(clause) => clause,
            None if name.is_none() && take(parser, "DEFAULT") => DomainClause::Default(default(parser)?),
            None if name.is_none() => break,
            None => return parser.expected_ref("a constraint", parser.peek_token_ref()),
        });
    }
    Ok(DomainStatement::Create { name, data_type, clauses })
}

/// A constraint, if there is one.
fn constraint(parser: &mut Parser<'_>, name: Option<Ident>) -> Parsed<Option<DomainClause>> {
    Ok(Some(if take_all(parser, &["NOT", "NULL"]) {
        DomainClause::NotNull
    } else if take(parser, "NULL") {
        DomainClause::Null
    } else if take(parser, "CHECK") {
        parser.expect_token(&Token::LParen)?;
        let expression = parser.parse_expr()?;
        parser.expect_token(&Token::RParen)?;
        if take_all(parser, &["NO", "INHERIT"]) {
            DomainClause::Impossible("NO INHERIT")
        } else {
            DomainClause::Check(name, expression)
        }
    } else if let Some(words) = impossible(parser) {
        // What it says is not looked at, so neither is what follows.
        while parser.next_token().token != Token::EOF {}
        DomainClause::Impossible(words)
    } else {
        return Ok(None);
    }))
}

/// The words of a constraint that only tables have.
fn impossible(parser: &Parser<'_>) -> Option<&'static str> {
    let words = [
        ("UNIQUE", "unique"),
        ("PRIMARY", "primary key"),
        ("EXCLUDE", "exclusion"),
        ("REFERENCES", "foreign key"),
        ("FOREIGN", "foreign key"),
        ("DEFERRABLE", "DEFERRABLE"),
        ("INITIALLY", "DEFERRABLE"),
    ];
    words.into_iter().find(|(word, _)| is_word(parser, 0, word)).map(|(_, what)| what)
}

fn change(parser: &mut Parser<'_>) -> Parsed<DomainChange> {
    let change = if take_all(parser, &["SET", "DEFAULT"]) {
        DomainChange::Default(Some(default(parser)?))
    } else if take_all(parser, &["DROP", "DEFAULT"]) {
        DomainChange::Default(None)
    } else if take_all(parser, &["SET", "NOT", "NULL"]) {
        DomainChange::NotNull(true)
    } else if take_all(parser, &["DROP", "NOT", "NULL"]) {
        DomainChange::NotNull(false)
    } else if take_all(parser, &["SET", "SCHEMA"]) {
        DomainChange::Schema(parser.parse_identifier()?)
    } else if take(parser, "ADD") {
        return added(parser);
    } else if take_all(parser, &["DROP", "CONSTRAINT"]) {
        let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
        let name = parser.parse_identifier()?;
        // Nothing depends on a constraint of a domain.
        behavior(parser);
        DomainChange::Drop { name, if_exists }
    } else if take_all(parser, &["RENAME", "CONSTRAINT"]) {
        let name = parser.parse_identifier()?;
        expect(parser, "TO")?;
        DomainChange::RenameConstraint { name, new: parser.parse_identifier()? }
    } else if take_all(parser, &["RENAME", "TO"]) {
        DomainChange::Rename(parser.parse_identifier()?)
    } else if take_all(parser, &["VALIDATE", "CONSTRAINT"]) {
        DomainChange::Validate(parser.parse_identifier()?)
    } else {
        return parser.expected_ref("what ALTER DOMAIN does", parser.peek_token_ref());
    };
    Ok(change)
}

fn added(parser: &mut Parser<'_>) -> Parsed<DomainChange> {
    let name = if take(parser, "CONSTRAINT") { Some(parser.parse_identifier()?) } else { None };
    match constraint(parser, name)? {
        Some(DomainClause::Check(name, expression)) => {
            let not_valid = take_all(parser, &["NOT", "VALID"]);
            Ok(DomainChange::Add { name, expression, not_valid })
        }
        Some(DomainClause::Impossible(words)) => Ok(DomainChange::Impossible(words)),
        _ => parser.expected_ref("a constraint", parser.peek_token_ref()),
    }
}
