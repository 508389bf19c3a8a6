//! Statements: those the parser crate knows, and those parsed here.

use sqlparser::ast::helpers::stmt_create_table::CreateTableBuilder;
use sqlparser::ast::{self, DataType, FetchDirection, Ident, ObjectName};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

use super::alter_relation::{self, AlterRelation};
use super::alter_settings::{self, AlterSettings};
use super::comment::{self, CommentStatement};
use super::database::{self, DatabaseStatement};
use super::domain::{self, DomainStatement};
use super::grant::{self, DefaultPrivileges, GrantStatement};
use super::inline_code;
use super::maintenance;
use super::mip::{MipArgument, MipOperation};
use super::owner::{self, OwnerStatement};
use super::role::{self, RoleStatement};
use super::routine::{self, CreateRoutine, DropRoutine};
use super::schema::CreateSchema;

pub(super) type Parsed<T> = Result<T, ParserError>;

/// A statement.
#[derive(Clone, Debug)]
pub enum Command {
    /// Nothing (what is left of a statement that was taken apart).
    Empty,
    /// A statement of the parser crate.
    Sql(Box<ast::Statement>),
    /// FETCH and MOVE.
    Fetch {
        /// Cursor.
        cursor: Ident,
        /// Which rows.
        count: FetchCount,
        /// MOVE: rows are skipped, not returned.
        skip: bool,
    },
    /// PREPARE TRANSACTION.
    PrepareTransaction(String),
    /// COMMIT PREPARED.
    CommitPrepared(String),
    /// ROLLBACK PREPARED.
    RollbackPrepared(String),
    /// A statement about a family of siblings.
    Mip(MipOperation, Vec<MipArgument>),
    /// SET CONSTRAINTS.
    SetConstraints {
        /// The constraints; none is ALL.
        names: Option<Vec<ObjectName>>,
        /// DEFERRED rather than IMMEDIATE.
        deferred: bool,
    },
    /// VACUUM, ANALYZE, CLUSTER, REINDEX, CHECKPOINT.
    Maintenance {
        /// The command's first word, upper case: its tag.
        command: &'static str,
        /// The relations named, with the columns named of each.
        relations: Vec<(ObjectName, Vec<Ident>)>,
        /// The index that CLUSTER names.
        index: Option<Ident>,
        /// What kind of object REINDEX names, upper case.
        kind: Option<&'static str>,
        /// Options with their values, and words before the names, as they are folded.
        options: Vec<(String, Option<String>)>,
    },
    /// CREATE SEQUENCE.
    CreateSequence {
        /// Name.
        name: ObjectName,
        /// IF NOT EXISTS.
        if_not_exists: bool,
        /// TEMPORARY.
        temporary: bool,
        /// Its options.
        options: SequenceOptions,
    },
    /// ALTER SEQUENCE.
    AlterSequence {
        /// Name.
        name: ObjectName,
        /// IF EXISTS.
        if_exists: bool,
        /// What changes.
        change: AlterSequence,
    },
    /// ALTER VIEW, and SET SCHEMA of tables and views.
    AlterRelation(Box<AlterRelation>),
    /// ALTER ROLE and ALTER DATABASE with SET or RESET.
    AlterSettings(AlterSettings),
    /// CREATE FUNCTION and CREATE PROCEDURE.
    CreateRoutine(Box<CreateRoutine>),
    /// DROP FUNCTION, PROCEDURE and ROUTINE.
    DropRoutine(DropRoutine),
    /// DO.
    Do {
        /// LANGUAGE.
        language: Option<Ident>,
        /// What is to be done.
        code: Option<String>,
    },
    /// CREATE, ALTER and DROP DOMAIN.
    Domain(Box<DomainStatement>),
    /// CREATE SCHEMA with elements.
    CreateSchema(Box<CreateSchema>),
    /// BACKUP.
    Backup,
    /// CREATE, ALTER and DROP DATABASE.
    Database(Box<DatabaseStatement>),
    /// CREATE, ALTER and DROP ROLE, and memberships.
    Role(Box<RoleStatement>),
    /// GRANT and REVOKE of privileges.
    Grant(Box<GrantStatement>),
    /// ALTER DEFAULT PRIVILEGES.
    DefaultPrivileges(Box<DefaultPrivileges>),
    /// OWNER TO, REASSIGN OWNED, DROP OWNED.
    Owner(Box<OwnerStatement>),
    /// COMMENT ON what is named by more than a name.
    Comment(Box<CommentStatement>),
    /// A statement of PostgreSQL that there is no implementation of: its name.
    Unsupported(&'static str),
}

/// Which rows FETCH wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchCount {
    /// This many, forwards; negative is backwards; 0 is the current one again.
    Forward(i64),
    /// All that are left.
    All,
    /// This many, backwards.
    Backward(i64),
    /// All before.
    BackwardAll,
    /// The row at this position, from 1; negative counts from the end.
    Absolute(i64),
    /// The row at this distance.
    Relative(i64),
}

/// Options of CREATE and ALTER SEQUENCE. `None` is not given; an inner `None` is NO MINVALUE, OWNED
/// BY NONE and so on.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct SequenceOptions {
    /// SEQUENCE NAME of an identity column: the folded parts.
    pub name: Option<Vec<String>>,
    pub data_type: Option<DataType>,
    pub increment: Option<i64>,
    pub minimum: Option<Option<i64>>,
    pub maximum: Option<Option<i64>>,
    pub start: Option<i64>,
    pub restart: Option<Option<i64>>,
    pub cache: Option<i64>,
    pub cycle: Option<bool>,
    /// `table.column`.
    pub owned_by: Option<Option<ObjectName>>,
}

/// What ALTER SEQUENCE does.
#[derive(Clone, Debug, PartialEq)]
pub enum AlterSequence {
    /// Changes options.
    Options(SequenceOptions),
    /// RENAME TO.
    Rename(Ident),
    /// SET SCHEMA.
    SetSchema(Ident),
}

/// Statements refused by name: their first words.
const UNSUPPORTED: &[(&[&str], &str)] = &[
    (&["ALTER", "SYSTEM"], "ALTER SYSTEM"),
    (&["ALTER", "AGGREGATE"], "ALTER AGGREGATE"),
    (&["ALTER", "DATABASE"], "ALTER DATABASE"),
    (&["ALTER", "EXTENSION"], "ALTER EXTENSION"),
    (&["ALTER", "FUNCTION"], "ALTER FUNCTION"),
    (&["ALTER", "MATERIALIZED"], "ALTER MATERIALIZED VIEW"),
    (&["ALTER", "PROCEDURE"], "ALTER PROCEDURE"),
    (&["ALTER", "PUBLICATION"], "ALTER PUBLICATION"),
    (&["ALTER", "ROUTINE"], "ALTER ROUTINE"),
    (&["ALTER", "SUBSCRIPTION"], "ALTER SUBSCRIPTION"),
    (&["ALTER", "TRIGGER"], "ALTER TRIGGER"),
    (&["CREATE", "AGGREGATE"], "CREATE AGGREGATE"),
    (&["CREATE", "CAST"], "CREATE CAST"),
    (&["CREATE", "PUBLICATION"], "CREATE PUBLICATION"),
    (&["CREATE", "RULE"], "CREATE RULE"),
    (&["CREATE", "STATISTICS"], "CREATE STATISTICS"),
    (&["CREATE", "SUBSCRIPTION"], "CREATE SUBSCRIPTION"),
    (&["CREATE", "TABLESPACE"], "CREATE TABLESPACE"),
    (&["CREATE", "FOREIGN", "DATA"], "CREATE FOREIGN DATA WRAPPER"),
    (&["CREATE", "FOREIGN", "TABLE"], "CREATE FOREIGN TABLE"),
    (&["IMPORT", "FOREIGN"], "IMPORT FOREIGN SCHEMA"),
    (&["REFRESH", "MATERIALIZED"], "REFRESH MATERIALIZED VIEW"),
    (&["SECURITY", "LABEL"], "SECURITY LABEL"),
];

/// Forms of ALTER TYPE refused by name: the words behind the type's name.
const UNSUPPORTED_OF_TYPES: &[(&[&str], &str)] = &[
    (&["SET", "SCHEMA"], "ALTER TYPE ... SET SCHEMA"),
    (&["SET"], "ALTER TYPE ... SET"),
    (&["ADD", "ATTRIBUTE"], "ALTER TYPE ... ADD ATTRIBUTE"),
    (&["DROP", "ATTRIBUTE"], "ALTER TYPE ... DROP ATTRIBUTE"),
    (&["ALTER", "ATTRIBUTE"], "ALTER TYPE ... ALTER ATTRIBUTE"),
    (&["RENAME", "ATTRIBUTE"], "ALTER TYPE ... RENAME ATTRIBUTE"),
];

/// The name of a form that is refused, if it is one.
fn unsupported(parser: &Parser<'_>) -> Option<&'static str> {
    let is_at = |from: usize, words: &[&str]| {
        words.iter().enumerate().all(|(ahead, word)| is_word(parser, from + ahead, word))
    };
    let is_type = is_at(0, &["ALTER", "TYPE"]);
    let has_schema = is_type && parser.peek_nth_token_ref(3).token == Token::Period;
    let behind = if has_schema { 5 } else { 3 };
    let of_types = UNSUPPORTED_OF_TYPES.iter().filter(|(words, _)| is_type && is_at(behind, words));
    let all = UNSUPPORTED.iter().filter(|(words, _)| is_at(0, words));
    all.chain(of_types).next().map(|(_, name)| *name)
}

pub(super) fn is_word(parser: &Parser<'_>, ahead: usize, word: &str) -> bool {
    matches!(&parser.peek_nth_token_ref(ahead).token,
        Token::Word(found) if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
}

pub(super) fn take(parser: &mut Parser<'_>, word: &str) -> bool {
    let found = is_word(parser, 0, word);
    if found {
        parser.advance_token();
    }
    found
}

pub(super) fn take_all(parser: &mut Parser<'_>, words: &[&str]) -> bool {
    let found = words.iter().enumerate().all(|(ahead, word)| is_word(parser, ahead, word));
    if found {
        words.iter().for_each(|_| parser.advance_token());
    }
    found
}

pub(super) fn expect(parser: &mut Parser<'_>, word: &str) -> Parsed<()> {
    if take(parser, word) { Ok(()) } else { parser.expected_ref(word, parser.peek_token_ref()) }
}

/// Parses one statement, up to its end or to what it cannot be.
pub(super) fn parse(parser: &mut Parser<'_>) -> Parsed<Command> {
    if let Some(alter) = alter_settings::parse(parser) {
        return alter.map(Command::AlterSettings);
    }
    if let Some(command) = of_roles(parser)? {
        return Ok(command);
    }
    if let Some(name) = unsupported(parser) {
        while parser.next_token().token != Token::EOF {}
        return Ok(Command::Unsupported(name));
    }
    if take(parser, "FETCH") {
        return fetch(parser, false);
    }
    if take(parser, "MOVE") {
        return fetch(parser, true);
    }
    if take_all(parser, &["PREPARE", "TRANSACTION"]) {
        return parser.parse_literal_string().map(Command::PrepareTransaction);
    }
    if take_all(parser, &["COMMIT", "PREPARED"]) {
        return parser.parse_literal_string().map(Command::CommitPrepared);
    }
    if take_all(parser, &["ROLLBACK", "PREPARED"]) {
        return parser.parse_literal_string().map(Command::RollbackPrepared);
    }
    if take(parser, "BACKUP") {
        return Ok(Command::Backup);
    }
    if take_all(parser, &["SET", "CONSTRAINTS"]) {
        return set_constraints(parser);
    }
    for command in ["VACUUM", "ANALYZE", "ANALYSE", "CLUSTER", "REINDEX", "CHECKPOINT"] {
        if take(parser, command) {
            return maintenance::parse(parser, if command == "ANALYSE" { "ANALYZE" } else { command });
        }
    }
    let scope = usize::from(is_word(parser, 1, "LOCAL") || is_word(parser, 1, "GLOBAL"));
    let temporary = is_word(parser, 1 + scope, "TEMP") || is_word(parser, 1 + scope, "TEMPORARY");
    let words = 1 + if temporary { scope + 1 } else { 0 };
    if is_word(parser, 0, "CREATE") && is_word(parser, words, "SEQUENCE") {
        return create_sequence(parser, temporary, words + 1);
    }
    if take_all(parser, &["ALTER", "SEQUENCE"]) {
        return alter_sequence(parser);
    }
    if let Some(alter) = alter_relation::parse(parser)? {
        return Ok(Command::AlterRelation(alter.into()));
    }
    if let Some(command) = routine::parse(parser)? {
        return Ok(command);
    }
    if let Some(command) = inline_code::parse(parser)? {
        return Ok(command);
    }
    if let Some(statement) = domain::parse(parser)? {
        return Ok(Command::Domain(Box::new(statement)));
    }
    if let Some(statement) = comment::parse(parser)? {
        return Ok(Command::Comment(Box::new(statement)));
    }
    if take_all(parser, &["CREATE", "EXTENSION"]) {
        return create_extension(parser);
    }
    let mut statement = parser.parse_statement()?;
    alter_relation::check_option(parser, &mut statement)?;
    Ok(Command::Sql(Box::new(into_table(statement))))
}

/// The rest of CREATE EXTENSION, whose options may have a WITH before them, and any order.
fn create_extension(parser: &mut Parser<'_>) -> Parsed<Command> {
    let if_not_exists = take_all(parser, &["IF", "NOT", "EXISTS"]);
    let name = parser.parse_identifier()?;
    let mut create =
        ast::CreateExtension { name, if_not_exists, cascade: false, schema: None, version: None };
    let _ = take(parser, "WITH");
    loop {
        if take(parser, "SCHEMA") {
            create.schema = Some(parser.parse_identifier()?);
        } else if take(parser, "VERSION") {
            create.version = Some(parser.parse_identifier()?);
        } else if take(parser, "CASCADE") {
            create.cascade = true;
        } else {
            return Ok(Command::Sql(Box::new(ast::Statement::CreateExtension(create))));
        }
    }
}

/// A statement about databases and roles, and what these may do and own.
fn of_roles(parser: &mut Parser<'_>) -> Parsed<Option<Command>> {
    if let Some(statement) = role::parse(parser)? {
        return Ok(Some(Command::Role(statement.into())));
    }
    if let Some(statement) = grant::parse(parser)? {
        return Ok(Some(Command::Grant(statement.into())));
    }
    if let Some(statement) = grant::parse_default(parser)? {
        return Ok(Some(Command::DefaultPrivileges(statement.into())));
    }
    if let Some(statement) = owner::parse(parser)? {
        return Ok(Some(Command::Owner(statement.into())));
    }
    if let Some(statement) = database::parse(parser)? {
        return Ok(Some(Command::Database(statement.into())));
    }
    if take_all(parser, &["RESET", "SESSION", "AUTHORIZATION"]) {
        let name = ObjectName::from(vec![Ident::new("session_authorization")]);
        let reset = ast::ResetStatement { reset: ast::Reset::ConfigurationParameter(name) };
        return Ok(Some(Command::Sql(Box::new(ast::Statement::Reset(reset)))));
    }
    Ok(None)
}

/// Whether a query is one of `SELECT ... INTO`.
pub(crate) fn selects_into(body: &ast::SetExpr) -> bool {
    match body {
        ast::SetExpr::Select(select) => select.into.is_some(),
        ast::SetExpr::SetOperation { left, .. } => selects_into(left),
        _ => false,
    }
}

/// `SELECT ... INTO t` as what it stands for: `CREATE TABLE t AS SELECT ...`. The first SELECT of a
/// set operation says so for all.
fn into_table(statement: ast::Statement) -> ast::Statement {
    fn first(body: &mut ast::SetExpr) -> Option<ast::SelectInto> {
        match body {
            ast::SetExpr::Select(select) => select.into.take(),
            ast::SetExpr::SetOperation { left, .. } => first(left),
            _ => None,
        }
    }
    let ast::Statement::Query(mut query) = statement else { return statement };
    match first(&mut query.body) {
        Some(into) => {
            CreateTableBuilder::new(into.name).temporary(into.temporary).query(Some(query)).build().into()
        }
        None => ast::Statement::Query(query),
    }
}

pub(super) fn signed(parser: &mut Parser<'_>) -> Parsed<i64> {
    let negative = parser.consume_token(&Token::Minus);
    if !negative {
        let _ = parser.consume_token(&Token::Plus);
    }
    let token = parser.next_token();
    let number = match &token.token {
        Token::Number(digits, _) => {
            let text = if negative { format!("-{digits}") } else { digits.clone() };
            text.parse().ok()
        }
        _ => None,
    };
    match number {
        Some(number) => Ok(number),
        None => parser.expected("an integer", token),
    }
}

fn is_number(parser: &Parser<'_>) -> bool {
    matches!(parser.peek_token_ref().token, Token::Number(..) | Token::Minus | Token::Plus)
}

fn fetch(parser: &mut Parser<'_>, skip: bool) -> Parsed<Command> {
    let count = if take(parser, "NEXT") {
        FetchCount::Forward(1)
    } else if take(parser, "PRIOR") {
        FetchCount::Backward(1)
    } else if take(parser, "FIRST") {
        FetchCount::Absolute(1)
    } else if take(parser, "LAST") {
        FetchCount::Absolute(-1)
    } else if take(parser, "ABSOLUTE") {
        FetchCount::Absolute(signed(parser)?)
    } else if take(parser, "RELATIVE") {
        FetchCount::Relative(signed(parser)?)
    } else if take(parser, "ALL") {
        FetchCount::All
    } else if take(parser, "FORWARD") {
        if take(parser, "ALL") {
            FetchCount::All
        } else if is_number(parser) {
            FetchCount::Forward(signed(parser)?)
        } else {
            FetchCount::Forward(1)
        }
    } else if take(parser, "BACKWARD") {
        if take(parser, "ALL") {
            FetchCount::BackwardAll
        } else if is_number(parser) {
            FetchCount::Backward(signed(parser)?)
        } else {
            FetchCount::Backward(1)
        }
    } else if is_number(parser) {
        FetchCount::Forward(signed(parser)?)
    } else {
        FetchCount::Forward(1)
    };
    if !take(parser, "FROM") {
        take(parser, "IN");
    }
    Ok(Command::Fetch { cursor: parser.parse_identifier()?, count, skip })
}

impl From<&FetchDirection> for FetchCount {
    /// A direction of the parser crate, whose limits are literals.
    fn from(direction: &FetchDirection) -> FetchCount {
        let number = |value: &ast::ValueWithSpan| value.to_string().parse().unwrap_or(i64::MAX);
        match direction {
            FetchDirection::Count { limit } => FetchCount::Forward(number(limit)),
            FetchDirection::Next => FetchCount::Forward(1),
            FetchDirection::Prior => FetchCount::Backward(1),
            FetchDirection::First => FetchCount::Absolute(1),
            FetchDirection::Last => FetchCount::Absolute(-1),
            FetchDirection::Absolute { limit } => FetchCount::Absolute(number(limit)),
            FetchDirection::Relative { limit } => FetchCount::Relative(number(limit)),
            FetchDirection::All | FetchDirection::ForwardAll => FetchCount::All,
            FetchDirection::Forward { limit } => FetchCount::Forward(limit.as_ref().map_or(1, number)),
            FetchDirection::Backward { limit } => FetchCount::Backward(limit.as_ref().map_or(1, number)),
            FetchDirection::BackwardAll => FetchCount::BackwardAll,
        }
    }
}

fn set_constraints(parser: &mut Parser<'_>) -> Parsed<Command> {
    let names = if take(parser, "ALL") {
        None
    } else {
        Some(parser.parse_comma_separated(|parser| parser.parse_object_name(false))?)
    };
    let deferred = take(parser, "DEFERRED");
    if !deferred {
        expect(parser, "IMMEDIATE")?;
    }
    Ok(Command::SetConstraints { names, deferred })
}

fn create_sequence(parser: &mut Parser<'_>, temporary: bool, words: usize) -> Parsed<Command> {
    for _ in 0..words {
        parser.advance_token();
    }
    let if_not_exists = parser.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]);
    let name = parser.parse_object_name(false)?;
    let options = sequence_options(parser)?;
    Ok(Command::CreateSequence { name, if_not_exists, temporary, options })
}

fn alter_sequence(parser: &mut Parser<'_>) -> Parsed<Command> {
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let name = parser.parse_object_name(false)?;
    let change = if take_all(parser, &["RENAME", "TO"]) {
        AlterSequence::Rename(parser.parse_identifier()?)
    } else if take_all(parser, &["SET", "SCHEMA"]) {
        AlterSequence::SetSchema(parser.parse_identifier()?)
    } else if take_all(parser, &["SET", "LOGGED"]) || take_all(parser, &["SET", "UNLOGGED"]) {
        // All of them are logged, as those of CREATE UNLOGGED SEQUENCE are.
        AlterSequence::Options(SequenceOptions::default())
    } else {
        AlterSequence::Options(sequence_options(parser)?)
    };
    Ok(Command::AlterSequence { name, if_exists, change })
}

/// Options in any order.
fn sequence_options(parser: &mut Parser<'_>) -> Parsed<SequenceOptions> {
    let mut options = SequenceOptions::default();
    while sequence_option(parser, &mut options)? {}
    Ok(options)
}

/// One option; false if there is none.
pub(super) fn sequence_option(parser: &mut Parser<'_>, options: &mut SequenceOptions) -> Parsed<bool> {
    if take(parser, "AS") {
        options.data_type = Some(parser.parse_data_type()?);
    } else if take(parser, "INCREMENT") {
        take(parser, "BY");
        options.increment = Some(signed(parser)?);
    } else if take(parser, "MINVALUE") {
        options.minimum = Some(Some(signed(parser)?));
    } else if take(parser, "MAXVALUE") {
        options.maximum = Some(Some(signed(parser)?));
    } else if take(parser, "START") {
        take(parser, "WITH");
        options.start = Some(signed(parser)?);
    } else if take(parser, "RESTART") {
        let with = take(parser, "WITH");
        options.restart = Some(if with || is_number(parser) { Some(signed(parser)?) } else { None });
    } else if take(parser, "CACHE") {
        options.cache = Some(signed(parser)?);
    } else if take(parser, "CYCLE") {
        options.cycle = Some(true);
    } else if take(parser, "NO") {
        if take(parser, "MINVALUE") {
            options.minimum = Some(None);
        } else if take(parser, "MAXVALUE") {
            options.maximum = Some(None);
        } else {
            expect(parser, "CYCLE")?;
            options.cycle = Some(false);
        }
    } else if take_all(parser, &["OWNED", "BY"]) {
        options.owned_by =
            Some(if take(parser, "NONE") { None } else { Some(parser.parse_object_name(false)?) });
    } else {
        return Ok(false);
    }
    Ok(true)
}
