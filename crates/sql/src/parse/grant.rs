//! GRANT and REVOKE of privileges, and what is said of privileges of objects to come.
//!
//! ```text
//! GRANT  { privilege, ... | ALL [PRIVILEGES] } ON object TO role, ... [WITH GRANT OPTION] [GRANTED BY role]
//! GRANT  { privilege (column, ...), ... | ALL (column, ...) } ON [TABLE] name, ... TO ...
//! REVOKE [GRANT OPTION FOR] ... ON object FROM role, ... [GRANTED BY role] [CASCADE | RESTRICT]
//! ALTER DEFAULT PRIVILEGES [FOR { ROLE | USER } role, ...] [IN SCHEMA name, ...]
//!     { GRANT | REVOKE } ... ON { TABLES | SEQUENCES | FUNCTIONS | ROUTINES | TYPES | SCHEMAS } ...
//!
//! object:  [TABLE] name, ...   SEQUENCE name, ...   SCHEMA name, ...   DATABASE name, ...
//!          { FUNCTION | PROCEDURE | ROUTINE } name [(types)], ...      { TYPE | DOMAIN } name, ...
//!          ALL { TABLES | SEQUENCES | FUNCTIONS | PROCEDURES | ROUTINES } IN SCHEMA name, ...
//! ```

use sqlparser::ast::{Ident, ObjectName};
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use super::command::{Parsed, expect, is_word, take, take_all};
use super::role::{RoleRef, granted_by, grantees, roles};
use super::routine::{RoutineArgument, arguments};
use crate::catalog::{RoutineKind, Securable};

/// GRANT or REVOKE of privileges.
#[derive(Clone, Debug)]
pub struct GrantStatement {
    /// They are given.
    pub grant: bool,
    /// GRANT OPTION FOR: only the right to give them on is taken.
    pub option_for: bool,
    /// The words without columns, in upper case; none is ALL.
    pub privileges: Option<Vec<String>>,
    /// What is said of columns.
    pub columns: Vec<OnColumns>,
    /// On what.
    pub objects: Objects,
    /// To whom, or from whom.
    pub grantees: Vec<RoleRef>,
    /// WITH GRANT OPTION.
    pub with_option: bool,
    /// GRANTED BY.
    pub granted_by: Option<RoleRef>,
    /// CASCADE.
    pub cascade: bool,
}

/// A privilege on columns.
#[derive(Clone, Debug)]
pub struct OnColumns {
    /// The word, in upper case; none is ALL.
    pub privilege: Option<String>,
    /// The columns.
    pub columns: Vec<Ident>,
}

/// A routine by its name, and its arguments if they are given.
pub type NamedRoutine = (ObjectName, Option<Vec<RoutineArgument>>);

/// What privileges are on.
#[derive(Clone, Debug)]
pub enum Objects {
    /// Tables and views; sequences too, if TABLE is not said or said.
    Tables(Vec<ObjectName>),
    /// Sequences.
    Sequences(Vec<ObjectName>),
    /// Schemas.
    Schemas(Vec<Ident>),
    /// Databases.
    Databases(Vec<Ident>),
    /// Functions, procedures, or either.
    Routines(Option<RoutineKind>, Vec<NamedRoutine>),
    /// Types, domains among them.
    Types(Vec<ObjectName>),
    /// Languages of functions.
    Languages(Vec<Ident>),
    /// All of a kind in schemas; of routines perhaps only those of one.
    AllIn(Securable, Option<RoutineKind>, Vec<Ident>),
    /// All of a kind to come.
    ToCome(Securable),
    /// Kinds that there are none of: the word.
    Unsupported(&'static str),
}

/// ALTER DEFAULT PRIVILEGES.
#[derive(Clone, Debug)]
pub struct DefaultPrivileges {
    /// FOR ROLE; nobody is who says it.
    pub roles: Vec<RoleRef>,
    /// IN SCHEMA; none is all.
    pub schemas: Vec<Ident>,
    /// What is given or taken.
    pub grant: GrantStatement,
}

/// The statement, if it is a GRANT or REVOKE. Those of roles were looked for before.
pub(super) fn parse(parser: &mut Parser<'_>) -> Parsed<Option<GrantStatement>> {
    if !is_word(parser, 0, "GRANT") && !is_word(parser, 0, "REVOKE") {
        return Ok(None);
    }
    statement(parser, false).map(Some)
}

/// The statement, if it is ALTER DEFAULT PRIVILEGES.
pub(super) fn parse_default(parser: &mut Parser<'_>) -> Parsed<Option<DefaultPrivileges>> {
    if !take_all(parser, &["ALTER", "DEFAULT", "PRIVILEGES"]) {
        return Ok(None);
    }
    let (mut of, mut schemas) = (Vec::new(), Vec::new());
    loop {
        if take_all(parser, &["FOR", "ROLE"]) || take_all(parser, &["FOR", "USER"]) {
            of = roles(parser)?;
        } else if take_all(parser, &["IN", "SCHEMA"]) {
            schemas = parser.parse_comma_separated(Parser::parse_identifier)?;
        } else {
            break;
        }
    }
    Ok(Some(DefaultPrivileges { roles: of, schemas, grant: statement(parser, true)? }))
}

fn statement(parser: &mut Parser<'_>, is_default: bool) -> Parsed<GrantStatement> {
    let grant = take(parser, "GRANT");
    if !grant {
        expect(parser, "REVOKE")?;
    }
    let option_for = !grant && take_all(parser, &["GRANT", "OPTION", "FOR"]);
    let mut on_columns = Vec::new();
    let privileges = privileges(parser, &mut on_columns)?;
    expect(parser, "ON")?;
    let objects = if is_default { to_come(parser)? } else { objects(parser)? };
    expect(parser, if grant { "TO" } else { "FROM" })?;
    let grantees = grantees(parser)?;
    let with_option = grant && take_all(parser, &["WITH", "GRANT", "OPTION"]);
    let granted_by = granted_by(parser)?;
    let cascade = !grant && take(parser, "CASCADE");
    if !grant && !cascade {
        take(parser, "RESTRICT");
    }
    Ok(GrantStatement {
        grant,
        option_for,
        privileges,
        columns: on_columns,
        objects,
        grantees,
        with_option,
        granted_by,
        cascade,
    })
}

/// The words without columns. Those with columns go to the others.
fn privileges(parser: &mut Parser<'_>, on_columns: &mut Vec<OnColumns>) -> Parsed<Option<Vec<String>>> {
    if take(parser, "ALL") {
        take(parser, "PRIVILEGES");
        let Some(columns) = columns(parser)? else { return Ok(None) };
        on_columns.push(OnColumns { privilege: None, columns });
        return Ok(Some(Vec::new()));
    }
    let mut words = Vec::new();
    loop {
        let mut word = parser.parse_identifier()?.value.to_uppercase();
        if word == "ALTER" && take(parser, "SYSTEM") {
            word.push_str(" SYSTEM");
        }
        match columns(parser)? {
            Some(columns) => on_columns.push(OnColumns { privilege: Some(word), columns }),
            None => words.push(word),
        }
        if !parser.consume_token(&Token::Comma) {
            return Ok(Some(words));
        }
    }
}

fn columns(parser: &mut Parser<'_>) -> Parsed<Option<Vec<Ident>>> {
    if !parser.consume_token(&Token::LParen) {
        return Ok(None);
    }
    let columns = idents(parser)?;
    parser.expect_token(&Token::RParen)?;
    Ok(Some(columns))
}

fn names(parser: &mut Parser<'_>) -> Parsed<Vec<ObjectName>> {
    parser.parse_comma_separated(|parser| parser.parse_object_name(false))
}

fn idents(parser: &mut Parser<'_>) -> Parsed<Vec<Ident>> {
    parser.parse_comma_separated(Parser::parse_identifier)
}

/// Kinds that there are none of, or whose privileges are not kept.
const UNSUPPORTED: [(&[&str], &str); 6] = [
    (&["FOREIGN", "DATA"], "GRANT ON FOREIGN DATA WRAPPER"),
    (&["FOREIGN", "SERVER"], "GRANT ON FOREIGN SERVER"),
    (&["LARGE", "OBJECT"], "GRANT ON LARGE OBJECT"),
    (&["PARAMETER"], "GRANT ON PARAMETER"),
    (&["TABLESPACE"], "GRANT ON TABLESPACE"),
    (&["ALL", "FOREIGN"], "GRANT ON ALL FOREIGN TABLES"),
];

/// Whether these words come next, and the name of something behind them.
fn is_at(parser: &Parser<'_>, words: &[&str]) -> bool {
    let is_named = matches!(parser.peek_nth_token_ref(words.len()).token, Token::Word(_) | Token::Number(..));
    is_named && words.iter().enumerate().all(|(ahead, word)| is_word(parser, ahead, word))
}

fn objects(parser: &mut Parser<'_>) -> Parsed<Objects> {
    if let Some((_, name)) = UNSUPPORTED.iter().find(|(words, _)| is_at(parser, words)) {
        let is_end = |parser: &Parser<'_>| {
            is_word(parser, 0, "TO")
                || is_word(parser, 0, "FROM")
                || parser.peek_token_ref().token == Token::EOF
        };
        while !is_end(parser) {
            parser.advance_token();
        }
        return Ok(Objects::Unsupported(name));
    }
    if take(parser, "ALL") {
        let (kind, routines) = kind_of_all(parser)?;
        expect(parser, "IN")?;
        expect(parser, "SCHEMA")?;
        return Ok(Objects::AllIn(kind, routines, idents(parser)?));
    }
    if take(parser, "TABLE") {
        return names(parser).map(Objects::Tables);
    }
    if take(parser, "SEQUENCE") {
        return names(parser).map(Objects::Sequences);
    }
    if take(parser, "SCHEMA") {
        return idents(parser).map(Objects::Schemas);
    }
    if take(parser, "DATABASE") {
        return idents(parser).map(Objects::Databases);
    }
    if is_at(parser, &["LANGUAGE"]) && !is_word(parser, 1, "TO") && !is_word(parser, 1, "FROM") {
        parser.advance_token();
        return idents(parser).map(Objects::Languages);
    }
    if take(parser, "TYPE") || take(parser, "DOMAIN") {
        return names(parser).map(Objects::Types);
    }
    let kind = super::routine::kind_at(parser, 0);
    if kind.is_some() || is_word(parser, 0, "ROUTINE") {
        parser.advance_token();
        return routines(parser).map(|routines| Objects::Routines(kind, routines));
    }
    names(parser).map(Objects::Tables)
}

/// Routines with commas between them.
pub(super) fn routines(parser: &mut Parser<'_>) -> Parsed<Vec<NamedRoutine>> {
    parser.parse_comma_separated(|parser| {
        let name = parser.parse_object_name(false)?;
        let is_listed = parser.peek_token_ref().token == Token::LParen;
        Ok((name, if is_listed { Some(arguments(parser)?) } else { None }))
    })
}

fn kind_of_all(parser: &mut Parser<'_>) -> Parsed<(Securable, Option<RoutineKind>)> {
    if take(parser, "TABLES") {
        Ok((Securable::Table, None))
    } else if take(parser, "SEQUENCES") {
        Ok((Securable::Sequence, None))
    } else if take(parser, "FUNCTIONS") {
        Ok((Securable::Routine, Some(RoutineKind::Function)))
    } else if take(parser, "PROCEDURES") {
        Ok((Securable::Routine, Some(RoutineKind::Procedure)))
    } else {
        expect(parser, "ROUTINES")?;
        Ok((Securable::Routine, None))
    }
}

fn to_come(parser: &mut Parser<'_>) -> Parsed<Objects> {
    let kinds = [
        ("TABLES", Securable::Table),
        ("SEQUENCES", Securable::Sequence),
        ("FUNCTIONS", Securable::Routine),
        ("ROUTINES", Securable::Routine),
        ("TYPES", Securable::Type),
        ("SCHEMAS", Securable::Schema),
    ];
    match kinds.into_iter().find(|(word, _)| take(parser, word)) {
        Some((_, kind)) => Ok(Objects::ToCome(kind)),
        None => parser.expected_ref("a kind of object", parser.peek_token_ref()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{Command, parse};

    #[test]
    fn what_privileges_are_on() {
        let on = |text: &str| match &parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))[0].command
        {
            Command::Grant(grant) => grant.objects.clone(),
            other => panic!("{text}: {other:?}"),
        };
        assert!(matches!(on("GRANT ALL ON t, s.u TO a"), Objects::Tables(names) if names.len() == 2));
        assert!(matches!(
            on("REVOKE GRANT OPTION FOR SELECT, insert (a, b) ON TABLE t FROM a, GROUP b CASCADE"),
            Objects::Tables(_)
        ));
        assert!(matches!(
            on("GRANT EXECUTE ON FUNCTION f(int, text), g TO PUBLIC"),
            Objects::Routines(Some(RoutineKind::Function), routines) if routines.len() == 2
        ));
        assert!(matches!(
            on("GRANT USAGE ON ALL SEQUENCES IN SCHEMA s TO a WITH GRANT OPTION GRANTED BY CURRENT_USER"),
            Objects::AllIn(Securable::Sequence, None, _)
        ));
        assert!(
            matches!(on("GRANT USAGE ON LANGUAGE sql TO a"), Objects::Languages(names) if names.len() == 1)
        );
        assert!(matches!(on("GRANT SELECT ON language TO a"), Objects::Tables(_)));
    }

    #[test]
    fn privileges_on_columns() {
        let of = |text: &str| match &parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))[0].command
        {
            Command::Grant(grant) => GrantStatement::clone(grant),
            other => panic!("{text}: {other:?}"),
        };
        let mixed = of("GRANT SELECT (a), delete, Update (b, \"C\") ON t TO x");
        assert_eq!(mixed.privileges.unwrap(), ["DELETE"]);
        let said: Vec<_> =
            mixed.columns.iter().map(|on| (on.privilege.as_deref(), on.columns.len())).collect();
        assert_eq!(said, [(Some("SELECT"), 1), (Some("UPDATE"), 2)]);
        let all = of("REVOKE ALL PRIVILEGES (a) ON TABLE t FROM x CASCADE");
        assert_eq!(all.privileges.unwrap().len(), 0);
        assert_eq!(all.columns[0].privilege, None);
        assert!(of("GRANT ALL ON t TO x").privileges.is_none());
    }

    #[test]
    fn privileges_of_objects_to_come() {
        let text = "ALTER DEFAULT PRIVILEGES FOR ROLE a, b IN SCHEMA s GRANT SELECT ON TABLES TO c";
        match &parse(text).unwrap()[0].command {
            Command::DefaultPrivileges(given) => {
                assert_eq!((given.roles.len(), given.schemas.len()), (2, 1));
                assert!(matches!(given.grant.objects, Objects::ToCome(Securable::Table)));
            }
            other => panic!("{other:?}"),
        }
    }
}
