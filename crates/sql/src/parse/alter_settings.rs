//! `ALTER ROLE`, `ALTER USER` and `ALTER DATABASE` with SET or RESET: settings that sessions begin
//! with.
//!
//! ```text
//! ALTER { ROLE | USER } { name | CURRENT_USER | … | ALL } [ IN DATABASE name ]  change
//! ALTER DATABASE name                                                           change
//!
//! change:  SET name { TO | = } { value [, …] | DEFAULT }    SET name FROM CURRENT
//!          SET TIME ZONE value                              SET NAMES value
//!          RESET { name | TIME ZONE | ALL }
//! ```
//!
//! Other forms of these statements are the parser crate's, or refused by name.

use sqlparser::ast::{Expr, Ident, ObjectName};
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use super::command::{Parsed, expect, is_word, take, take_all};

/// Such a statement.
#[derive(Clone, Debug)]
pub struct AlterSettings {
    /// Whose sessions begin with it.
    pub scope: SettingScope,
    /// What changes.
    pub change: SettingChange,
}

/// Whose sessions a setting is for.
#[derive(Clone, Debug)]
pub enum SettingScope {
    /// ALTER ROLE.
    Role {
        /// The role.
        role: RoleName,
        /// IN DATABASE.
        database: Option<Ident>,
    },
    /// ALTER DATABASE.
    Database(Ident),
}

/// A role as statements name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleName {
    /// ALL: every role.
    All,
    /// CURRENT_USER, CURRENT_ROLE, SESSION_USER.
    Current,
    /// By its name.
    Named(Ident),
}

/// What becomes of a setting.
#[derive(Clone, Debug)]
pub enum SettingChange {
    /// SET; the value DEFAULT takes the setting away.
    Set(ObjectName, Vec<Expr>),
    /// SET FROM CURRENT.
    FromCurrent(ObjectName),
    /// RESET.
    Reset(ObjectName),
    /// RESET ALL.
    ResetAll,
}

impl AlterSettings {
    /// The statement's tag.
    pub fn tag(&self) -> &'static str {
        match self.scope {
            SettingScope::Role { .. } => "ALTER ROLE",
            SettingScope::Database(_) => "ALTER DATABASE",
        }
    }
}

/// The statement, if the one that begins here is of these.
pub(super) fn parse(parser: &mut Parser<'_>) -> Option<Parsed<AlterSettings>> {
    let is_database = is_word(parser, 1, "DATABASE");
    if !is_word(parser, 0, "ALTER")
        || !(is_database || is_word(parser, 1, "ROLE") || is_word(parser, 1, "USER"))
    {
        return None;
    }
    let is_in_database = !is_database && is_word(parser, 3, "IN") && is_word(parser, 4, "DATABASE");
    let verb = if is_in_database { 6 } else { 3 };
    let moves = is_database && is_word(parser, verb + 1, "TABLESPACE") && !assigns(parser, verb + 2);
    if is_word(parser, verb, "RESET") || (is_word(parser, verb, "SET") && !moves) {
        return Some(statement(parser, is_database));
    }
    None
}

fn assigns(parser: &Parser<'_>, ahead: usize) -> bool {
    parser.peek_nth_token_ref(ahead).token == Token::Eq || is_word(parser, ahead, "TO")
}

fn statement(parser: &mut Parser<'_>, is_database: bool) -> Parsed<AlterSettings> {
    parser.advance_token();
    parser.advance_token();
    let scope = if is_database {
        SettingScope::Database(parser.parse_identifier()?)
    } else {
        let role = role_name(parser.parse_identifier()?);
        let is_in_database = take_all(parser, &["IN", "DATABASE"]);
        let database = if is_in_database { Some(parser.parse_identifier()?) } else { None };
        SettingScope::Role { role, database }
    };
    let change = if take(parser, "SET") {
        set(parser)?
    } else {
        expect(parser, "RESET")?;
        reset(parser)?
    };
    Ok(AlterSettings { scope, change })
}

fn is_bare(ident: &Ident, words: &[&str]) -> bool {
    ident.quote_style.is_none() && words.iter().any(|word| ident.value.eq_ignore_ascii_case(word))
}

fn role_name(ident: Ident) -> RoleName {
    if is_bare(&ident, &["ALL"]) {
        RoleName::All
    } else if is_bare(&ident, &["CURRENT_USER", "CURRENT_ROLE", "SESSION_USER"]) {
        RoleName::Current
    } else {
        RoleName::Named(ident)
    }
}

fn named(name: &str) -> ObjectName {
    ObjectName::from(vec![Ident::new(name)])
}

fn set(parser: &mut Parser<'_>) -> Parsed<SettingChange> {
    if take_all(parser, &["TIME", "ZONE"]) {
        let value = match parser.parse_expr()? {
            // The zone of the server's place, which is what there is without the setting.
            Expr::Identifier(word) if is_bare(&word, &["LOCAL"]) => Expr::Identifier(Ident::new("default")),
            value => value,
        };
        return Ok(SettingChange::Set(named("timezone"), vec![value]));
    }
    if is_word(parser, 0, "NAMES") && !assigns(parser, 1) {
        parser.advance_token();
        return Ok(SettingChange::Set(named("client_encoding"), vec![parser.parse_expr()?]));
    }
    let name = parser.parse_object_name(false)?;
    if take(parser, "FROM") {
        expect(parser, "CURRENT")?;
        return Ok(SettingChange::FromCurrent(name));
    }
    if !parser.consume_token(&Token::Eq) {
        expect(parser, "TO")?;
    }
    Ok(SettingChange::Set(name, parser.parse_comma_separated(Parser::parse_expr)?))
}

fn reset(parser: &mut Parser<'_>) -> Parsed<SettingChange> {
    if take(parser, "ALL") {
        return Ok(SettingChange::ResetAll);
    }
    if take_all(parser, &["TIME", "ZONE"]) {
        return Ok(SettingChange::Reset(named("timezone")));
    }
    parser.parse_object_name(false).map(SettingChange::Reset)
}
