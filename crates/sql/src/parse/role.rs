//! Statements about roles.
//!
//! ```text
//! CREATE { ROLE | USER | GROUP } name [WITH] option ...
//! ALTER  { ROLE | USER } role [WITH] option ... | RENAME TO name
//! ALTER GROUP role { ADD | DROP } USER role, ... | RENAME TO name
//! DROP   { ROLE | USER | GROUP } [IF EXISTS] role, ...
//! GRANT role, ... TO role, ... [WITH ADMIN OPTION] [GRANTED BY role]
//! REVOKE [ADMIN OPTION FOR] role, ... FROM role, ... [GRANTED BY role] [CASCADE | RESTRICT]
//! COMMENT ON ROLE name IS { 'text' | NULL }
//!
//! option:  [NO]SUPERUSER  [NO]CREATEDB  [NO]CREATEROLE  [NO]INHERIT  [NO]LOGIN  [NO]REPLICATION
//!          [NO]BYPASSRLS  CONNECTION LIMIT n  [ENCRYPTED] PASSWORD 'text'  PASSWORD NULL
//!          VALID UNTIL 'time'  IN { ROLE | GROUP } role, ...  { ROLE | USER | ADMIN } role, ...  SYSID n
//! ```
//!
//! GRANT and REVOKE of privileges are `grant`'s; settings of roles are `alter_settings`'s.

use sqlparser::ast::Ident;
use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use super::command::{Parsed, expect, is_word, take, take_all};

/// A role as statements name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleRef {
    /// CURRENT_USER, CURRENT_ROLE.
    CurrentUser,
    /// SESSION_USER.
    SessionUser,
    /// PUBLIC: everybody.
    Public,
    /// By its name.
    Named(Ident),
}

/// A statement about roles.
#[derive(Clone, Debug)]
pub enum RoleStatement {
    /// CREATE ROLE, USER, GROUP.
    Create {
        /// The word: USER means LOGIN.
        kind: &'static str,
        /// Its name.
        name: RoleRef,
        /// What it is given.
        options: Vec<RoleOption>,
    },
    /// ALTER ROLE, USER.
    Alter {
        /// Which.
        role: RoleRef,
        /// What changes.
        options: Vec<RoleOption>,
    },
    /// RENAME TO.
    Rename {
        /// Which.
        role: RoleRef,
        /// Its new name.
        name: Ident,
    },
    /// DROP ROLE, USER, GROUP.
    Drop {
        /// Which.
        roles: Vec<RoleRef>,
        /// IF EXISTS.
        if_exists: bool,
    },
    /// Memberships are given or taken.
    Members {
        /// It is said by ALTER GROUP.
        by_group: bool,
        /// They are given.
        grant: bool,
        /// The roles that others are members of.
        roles: Vec<RoleRef>,
        /// The others.
        members: Vec<RoleRef>,
        /// WITH ADMIN OPTION, or ADMIN OPTION FOR: only that is taken.
        admin: bool,
        /// GRANTED BY.
        granted_by: Option<RoleRef>,
    },
    /// COMMENT ON ROLE.
    Comment {
        /// Which.
        role: RoleRef,
        /// The comment; none takes it away.
        comment: Option<String>,
    },
}

/// What CREATE ROLE and ALTER ROLE say of a role.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum RoleOption {
    Superuser(bool),
    CreateDb(bool),
    CreateRole(bool),
    Inherit(bool),
    Login(bool),
    Replication(bool),
    BypassRls(bool),
    ConnectionLimit(i64),
    /// None is NULL.
    Password(Option<String>),
    ValidUntil(String),
    /// It becomes a member of these.
    In(Vec<RoleRef>),
    /// These become its members.
    Members(Vec<RoleRef>),
    /// The same with ADMIN OPTION.
    Admins(Vec<RoleRef>),
    SysId,
}

impl RoleStatement {
    /// The statement's tag.
    pub fn tag(&self) -> &'static str {
        match self {
            RoleStatement::Create { .. } => "CREATE ROLE",
            RoleStatement::Alter { .. } | RoleStatement::Rename { .. } => "ALTER ROLE",
            RoleStatement::Members { by_group: true, .. } => "ALTER ROLE",
            RoleStatement::Drop { .. } => "DROP ROLE",
            RoleStatement::Members { grant: true, .. } => "GRANT ROLE",
            RoleStatement::Members { grant: false, .. } => "REVOKE ROLE",
            RoleStatement::Comment { .. } => "COMMENT",
        }
    }
}

const KINDS: [&str; 3] = ["ROLE", "USER", "GROUP"];

/// The statement, if it is one of these. Those that set parameters were looked for before.
pub(super) fn parse(parser: &mut Parser<'_>) -> Parsed<Option<RoleStatement>> {
    let kind = KINDS.into_iter().find(|kind| is_word(parser, 1, kind));
    // USER MAPPING is about something else.
    let kind = kind.filter(|kind| *kind != "USER" || !is_word(parser, 2, "MAPPING"));
    match kind {
        Some(kind) if is_word(parser, 0, "CREATE") => {
            skip(parser, 2);
            let name = role(parser)?;
            Ok(Some(RoleStatement::Create { kind, name, options: options(parser)? }))
        }
        Some("GROUP") if is_word(parser, 0, "ALTER") => {
            skip(parser, 2);
            alter_group(parser).map(Some)
        }
        Some(_) if is_word(parser, 0, "ALTER") => {
            skip(parser, 2);
            let role = role(parser)?;
            if take_all(parser, &["RENAME", "TO"]) {
                return Ok(Some(RoleStatement::Rename { role, name: parser.parse_identifier()? }));
            }
            if take_all(parser, &["IN", "DATABASE"]) {
                // Only settings are those of a database, and they have been looked for.
                parser.parse_identifier()?;
                expect(parser, "SET")?;
            }
            Ok(Some(RoleStatement::Alter { role, options: options(parser)? }))
        }
        Some(_) if is_word(parser, 0, "DROP") => {
            skip(parser, 2);
            let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
            Ok(Some(RoleStatement::Drop { roles: roles(parser)?, if_exists }))
        }
        _ if take_all(parser, &["COMMENT", "ON", "ROLE"]) => {
            let role = role(parser)?;
            expect(parser, "IS")?;
            let comment = if take(parser, "NULL") { None } else { Some(parser.parse_literal_string()?) };
            Ok(Some(RoleStatement::Comment { role, comment }))
        }
        _ => members(parser),
    }
}

fn skip(parser: &mut Parser<'_>, words: usize) {
    (0..words).for_each(|_| parser.advance_token());
}

/// A role.
pub(super) fn role(parser: &mut Parser<'_>) -> Parsed<RoleRef> {
    if take(parser, "CURRENT_USER") || take(parser, "CURRENT_ROLE") {
        return Ok(RoleRef::CurrentUser);
    }
    if take(parser, "SESSION_USER") {
        return Ok(RoleRef::SessionUser);
    }
    // The crate would take a string for a name.
    if matches!(parser.peek_token_ref().token, Token::SingleQuotedString(_)) {
        return parser.expected_ref("a role", parser.peek_token_ref());
    }
    let name = parser.parse_identifier()?;
    let is_public =
        name.value == "public" || (name.quote_style.is_none() && name.value.eq_ignore_ascii_case("public"));
    Ok(if is_public { RoleRef::Public } else { RoleRef::Named(name) })
}

/// Roles with commas between them.
pub(super) fn roles(parser: &mut Parser<'_>) -> Parsed<Vec<RoleRef>> {
    parser.parse_comma_separated(role)
}

/// Roles that privileges are given to: before each may stand GROUP, which says nothing.
pub(super) fn grantees(parser: &mut Parser<'_>) -> Parsed<Vec<RoleRef>> {
    parser.parse_comma_separated(|parser| {
        take(parser, "GROUP");
        role(parser)
    })
}

/// GRANTED BY.
pub(super) fn granted_by(parser: &mut Parser<'_>) -> Parsed<Option<RoleRef>> {
    if take_all(parser, &["GRANTED", "BY"]) { role(parser).map(Some) } else { Ok(None) }
}

fn alter_group(parser: &mut Parser<'_>) -> Parsed<RoleStatement> {
    let group = role(parser)?;
    if take_all(parser, &["RENAME", "TO"]) {
        return Ok(RoleStatement::Rename { role: group, name: parser.parse_identifier()? });
    }
    let grant = take(parser, "ADD");
    if !grant {
        expect(parser, "DROP")?;
    }
    expect(parser, "USER")?;
    let members = roles(parser)?;
    let (roles, granted_by) = (vec![group], None);
    Ok(RoleStatement::Members { by_group: true, grant, roles, members, admin: false, granted_by })
}

/// GRANT and REVOKE, if they are about roles: no privilege stands before TO or FROM without ON.
fn members(parser: &mut Parser<'_>) -> Parsed<Option<RoleStatement>> {
    let grant = is_word(parser, 0, "GRANT");
    if !grant && !is_word(parser, 0, "REVOKE") {
        return Ok(None);
    }
    let mut ahead = 1;
    loop {
        if is_word(parser, ahead, "ON") || parser.peek_nth_token_ref(ahead).token == Token::EOF {
            return Ok(None);
        }
        if is_word(parser, ahead, if grant { "TO" } else { "FROM" }) {
            break;
        }
        ahead += 1;
    }
    parser.advance_token();
    let for_admin = !grant && take_all(parser, &["ADMIN", "OPTION", "FOR"]);
    let of = roles(parser)?;
    expect(parser, if grant { "TO" } else { "FROM" })?;
    let members = grantees(parser)?;
    let with_admin = grant && take_all(parser, &["WITH", "ADMIN", "OPTION"]);
    let granted_by = granted_by(parser)?;
    if !grant && !take(parser, "CASCADE") {
        take(parser, "RESTRICT");
    }
    let admin = for_admin || with_admin;
    Ok(Some(RoleStatement::Members { by_group: false, grant, roles: of, members, admin, granted_by }))
}

/// Options in any order.
fn options(parser: &mut Parser<'_>) -> Parsed<Vec<RoleOption>> {
    take(parser, "WITH");
    let mut options = Vec::new();
    while let Some(option) = option(parser)? {
        options.push(option);
    }
    Ok(options)
}

/// What a word says, and what it says with NO before it.
type Flag = (&'static str, fn(bool) -> RoleOption);

const FLAGS: [Flag; 7] = [
    ("SUPERUSER", RoleOption::Superuser),
    ("CREATEDB", RoleOption::CreateDb),
    ("CREATEROLE", RoleOption::CreateRole),
    ("INHERIT", RoleOption::Inherit),
    ("LOGIN", RoleOption::Login),
    ("REPLICATION", RoleOption::Replication),
    ("BYPASSRLS", RoleOption::BypassRls),
];

fn option(parser: &mut Parser<'_>) -> Parsed<Option<RoleOption>> {
    for (word, option) in FLAGS {
        if take(parser, word) {
            return Ok(Some(option(true)));
        }
        if take(parser, &format!("NO{word}")) {
            return Ok(Some(option(false)));
        }
    }
    if take_all(parser, &["CONNECTION", "LIMIT"]) {
        return super::command::signed(parser).map(|limit| Some(RoleOption::ConnectionLimit(limit)));
    }
    let is_encrypted = take_all(parser, &["ENCRYPTED", "PASSWORD"]);
    if is_encrypted || take(parser, "PASSWORD") {
        let is_none = !is_encrypted && take(parser, "NULL");
        let password = if is_none { None } else { Some(parser.parse_literal_string()?) };
        return Ok(Some(RoleOption::Password(password)));
    }
    if take_all(parser, &["VALID", "UNTIL"]) {
        return parser.parse_literal_string().map(|until| Some(RoleOption::ValidUntil(until)));
    }
    if take_all(parser, &["IN", "ROLE"]) || take_all(parser, &["IN", "GROUP"]) {
        return roles(parser).map(|roles| Some(RoleOption::In(roles)));
    }
    if take(parser, "ROLE") || take(parser, "USER") {
        return roles(parser).map(|roles| Some(RoleOption::Members(roles)));
    }
    if take(parser, "ADMIN") {
        return roles(parser).map(|roles| Some(RoleOption::Admins(roles)));
    }
    if take(parser, "SYSID") {
        return super::command::signed(parser).map(|_| Some(RoleOption::SysId));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{Command, parse};

    fn statement(text: &str) -> RoleStatement {
        match &parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))[0].command {
            Command::Role(statement) => (**statement).clone(),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn options_come_in_any_order() {
        let RoleStatement::Create { kind, options, .. } =
            statement("CREATE USER ann WITH NOINHERIT PASSWORD 'x' IN ROLE a, b CONNECTION LIMIT -1")
        else {
            panic!()
        };
        assert_eq!((kind, options.len()), ("USER", 4));
        assert_eq!(options[0], RoleOption::Inherit(false));
        assert_eq!(options[3], RoleOption::ConnectionLimit(-1));
    }

    #[test]
    fn grants_of_roles_are_told_from_those_of_privileges() {
        let RoleStatement::Members { roles, members, admin, .. } =
            statement("GRANT a, select TO b, CURRENT_USER WITH ADMIN OPTION")
        else {
            panic!()
        };
        assert_eq!((roles.len(), members.len(), admin), (2, 2, true));
        assert!(matches!(
            statement("REVOKE ADMIN OPTION FOR a FROM b CASCADE"),
            RoleStatement::Members { grant: false, admin: true, .. }
        ));
        for text in ["GRANT SELECT ON t TO b", "REVOKE ALL ON SCHEMA s FROM PUBLIC"] {
            assert!(matches!(parse(text).unwrap()[0].command, Command::Grant(_)), "{text}");
        }
    }
}
