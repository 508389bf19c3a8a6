//! ALTER VIEW, SET SCHEMA of tables and views, what the parser does not know of ALTER INDEX, and of
//! CREATE VIEW.
//!
//! ```text
//! ALTER VIEW [IF EXISTS] name RENAME TO new
//! ALTER VIEW [IF EXISTS] name RENAME [COLUMN] column TO new
//! ALTER VIEW [IF EXISTS] name SET (option [= value], ...)
//! ALTER VIEW [IF EXISTS] name RESET (option, ...)
//! ALTER { TABLE | VIEW } [IF EXISTS] [ONLY] name SET SCHEMA schema
//! ALTER TABLE [IF EXISTS] [ONLY] name ALTER CONSTRAINT name [[NOT] DEFERRABLE] [INITIALLY ...]
//! ALTER TABLE [IF EXISTS] [ONLY] name ALTER [COLUMN] column SET STATISTICS number
//! ALTER TABLE [IF EXISTS] [ONLY] name ALTER [COLUMN] column SET STORAGE kind
//! ALTER TABLE [IF EXISTS] [ONLY] name ALTER [COLUMN] column SET (option = value, ...)
//! ALTER TABLE [IF EXISTS] [ONLY] name ALTER [COLUMN] column RESET (option, ...)
//! ALTER TABLE [IF EXISTS] [ONLY] name { CLUSTER ON index | SET WITHOUT CLUSTER }
//! ALTER TABLE [IF EXISTS] [ONLY] name REPLICA IDENTITY { DEFAULT | NOTHING | FULL }
//! ALTER TABLE [IF EXISTS] [ONLY] name REPLICA IDENTITY USING INDEX index
//! ALTER { TABLE | INDEX } [IF EXISTS] [ONLY] name SET TABLESPACE name
//! ALTER INDEX IF EXISTS name RENAME TO new
//! ALTER INDEX [IF EXISTS] name ALTER [COLUMN] number SET STATISTICS number
//! CREATE VIEW name AS query WITH [CASCADED | LOCAL] CHECK OPTION
//! ```

use sqlparser::ast::{
    ConstraintCharacteristics, CreateTableOptions, Expr, Ident, ObjectName, SqlOption, Statement,
};
use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use super::command::{Parsed, expect, is_word, take, take_all};

/// The statement.
#[derive(Clone, Debug)]
pub struct AlterRelation {
    /// ALTER VIEW rather than ALTER TABLE.
    pub is_view: bool,
    /// ALTER INDEX.
    pub is_index: bool,
    /// Name.
    pub name: ObjectName,
    /// IF EXISTS.
    pub if_exists: bool,
    /// What changes.
    pub change: RelationChange,
}

/// What changes of a relation.
#[derive(Clone, Debug, PartialEq)]
pub enum RelationChange {
    /// RENAME TO.
    Rename(Ident),
    /// RENAME COLUMN.
    RenameColumn {
        /// What it is called.
        from: Ident,
        /// What it is to be called.
        to: Ident,
    },
    /// SET SCHEMA.
    SetSchema(Ident),
    /// SET of options.
    SetOptions(Vec<SqlOption>),
    /// RESET of options.
    ResetOptions(Vec<SqlOption>),
    /// ALTER CONSTRAINT.
    AlterConstraint {
        /// The constraint.
        name: Ident,
        /// What it is to be.
        characteristics: Option<ConstraintCharacteristics>,
    },
    /// ALTER COLUMN ... SET STATISTICS.
    SetStatistics {
        /// The column.
        column: Ident,
        /// How much is to be gathered; -1 for what is usual.
        target: i64,
    },
    /// The same of a column of an index, which has a number.
    SetIndexStatistics {
        /// The column's number, from 1 on.
        number: u64,
        /// As with that of a table.
        target: i64,
    },
    /// ALTER COLUMN ... SET STORAGE.
    SetStorage {
        /// The column.
        column: Ident,
        /// How.
        storage: Ident,
    },
    /// ALTER COLUMN ... SET or RESET of options.
    ColumnOptions {
        /// The column.
        column: Ident,
        /// The options; of RESET names only.
        options: Vec<SqlOption>,
        /// RESET.
        reset: bool,
    },
    /// CLUSTER ON an index, or SET WITHOUT CLUSTER.
    Cluster(Option<Ident>),
    /// REPLICA IDENTITY.
    ReplicaIdentity(NewReplicaIdentity),
    /// SET TABLESPACE.
    SetTablespace(Ident),
}

/// What rows are to be told by that are changed.
#[derive(Clone, Debug, PartialEq)]
pub enum NewReplicaIdentity {
    /// The primary key.
    Default,
    /// Nothing.
    Nothing,
    /// All columns.
    Full,
    /// Those of an index.
    UsingIndex(Ident),
}

impl RelationChange {
    /// Whether it says something that has no effect, and is kept.
    pub fn is_hint(&self) -> bool {
        !self.action().is_empty()
    }

    /// What such a change is called.
    pub fn action(&self) -> &'static str {
        match self {
            RelationChange::SetStatistics { .. } | RelationChange::SetIndexStatistics { .. } => {
                "ALTER COLUMN ... SET STATISTICS"
            }
            RelationChange::SetStorage { .. } => "ALTER COLUMN ... SET STORAGE",
            RelationChange::ColumnOptions { reset: false, .. } => "ALTER COLUMN ... SET",
            RelationChange::ColumnOptions { reset: true, .. } => "ALTER COLUMN ... RESET",
            RelationChange::Cluster(Some(_)) => "CLUSTER ON",
            RelationChange::Cluster(None) => "SET WITHOUT CLUSTER",
            RelationChange::ReplicaIdentity(_) => "REPLICA IDENTITY",
            RelationChange::SetTablespace(_) => "SET TABLESPACE",
            _ => "",
        }
    }
}

impl AlterRelation {
    /// The statement's tag.
    pub fn tag(&self) -> &'static str {
        match () {
            () if self.is_view => "ALTER VIEW",
            () if self.is_index => "ALTER INDEX",
            () => "ALTER TABLE",
        }
    }
}

/// The statement, if it is one of these.
pub(super) fn parse(parser: &mut Parser<'_>) -> Parsed<Option<AlterRelation>> {
    let is_view = is_word(parser, 1, "VIEW");
    let is_index = is_word(parser, 1, "INDEX") && is_of_index(parser);
    let is_one = || is_view || is_index || (is_word(parser, 1, "TABLE") && is_of_table(parser));
    if !is_word(parser, 0, "ALTER") || !is_one() {
        return Ok(None);
    }
    (0..2).for_each(|_| parser.advance_token());
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    if !is_view && !is_index {
        take(parser, "ONLY");
    }
    let name = parser.parse_object_name(false)?;
    let hint = match () {
        () if is_view => None,
        () if is_index => index_hint(parser)?,
        () => hint(parser)?,
    };
    let change = match hint {
        Some(hint) => hint,
        None => change(parser)?,
    };
    Ok(Some(AlterRelation { is_view, is_index, name, if_exists, change }))
}

/// Whether it is a form of ALTER INDEX that is read here.
fn is_of_index(parser: &Parser<'_>) -> bool {
    (is_word(parser, 2, "IF") && renames(parser))
        || changes_options(parser, &["SET", "RESET"])
        || is_index_hint(parser)
        || moves(parser)
}

/// Whether SET TABLESPACE comes right behind the name of the relation.
fn moves(parser: &Parser<'_>) -> bool {
    let from = behind_name(parser);
    is_word(parser, from, "SET") && is_word(parser, from + 1, "TABLESPACE")
}

/// The same, read.
fn moved(parser: &mut Parser<'_>) -> Parsed<Option<RelationChange>> {
    if !take_all(parser, &["SET", "TABLESPACE"]) {
        return Ok(None);
    }
    parser.parse_identifier().map(|name| Some(RelationChange::SetTablespace(name)))
}

/// Whether something is said of a column of an index that is only kept.
fn is_index_hint(parser: &Parser<'_>) -> bool {
    let from = behind_name(parser);
    let column = from + 1 + usize::from(is_word(parser, from + 1, "COLUMN"));
    is_word(parser, from, "ALTER")
        && matches!(parser.peek_nth_token_ref(column).token, Token::Number(..))
        && is_word(parser, column + 1, "SET")
        && is_word(parser, column + 2, "STATISTICS")
}

/// The same, read.
fn index_hint(parser: &mut Parser<'_>) -> Parsed<Option<RelationChange>> {
    if !take(parser, "ALTER") {
        return moved(parser);
    }
    take(parser, "COLUMN");
    let number = parser.parse_literal_uint()?;
    expect(parser, "SET")?;
    expect(parser, "STATISTICS")?;
    Ok(Some(RelationChange::SetIndexStatistics { number, target: statistics_target(parser)? }))
}

/// Whether one of these words and a parenthesis come right behind the name of the relation.
fn changes_options(parser: &Parser<'_>, words: &[&str]) -> bool {
    let ahead = behind_name(parser);
    parser.peek_nth_token_ref(ahead + 1).token == Token::LParen
        && words.iter().any(|word| is_word(parser, ahead, word))
}

/// How far ahead the token behind the name of the relation is.
fn behind_name(parser: &Parser<'_>) -> usize {
    let is = |ahead: usize, token: &Token| parser.peek_nth_token_ref(ahead).token == *token;
    let mut ahead = 2;
    if is_word(parser, ahead, "IF") && is_word(parser, ahead + 1, "EXISTS") {
        ahead += 2;
    }
    if is_word(parser, ahead, "ONLY") {
        ahead += 1;
    }
    ahead += 1;
    while is(ahead, &Token::Period) {
        ahead += 2;
    }
    ahead
}

/// Whether SET or RESET, and options in parentheses, end the statement from here on.
fn changes_column_options(parser: &Parser<'_>, from: usize) -> bool {
    let token = |ahead: usize| &parser.peek_nth_token_ref(ahead).token;
    let begins = is_word(parser, from, "SET") || is_word(parser, from, "RESET");
    // There are two options.
    let mut inside = from + 2..from + 34;
    begins
        && *token(from + 1) == Token::LParen
        && inside
            .find(|&ahead| *token(ahead) == Token::RParen)
            .is_some_and(|end| matches!(token(end + 1), Token::EOF | Token::SemiColon))
}

/// Whether nothing else is to be changed than what is only kept.
fn is_hint(parser: &Parser<'_>) -> bool {
    let from = behind_name(parser);
    let starts = |words: &[&str]| words.iter().zip(from..).all(|(word, ahead)| is_word(parser, ahead, word));
    let column = from + 1 + usize::from(is_word(parser, from + 1, "COLUMN"));
    if starts(&["ALTER"]) && changes_column_options(parser, column + 1) {
        return true;
    }
    let is_of_column = starts(&["ALTER"])
        && is_word(parser, column + 1, "SET")
        && (is_word(parser, column + 2, "STATISTICS") || is_word(parser, column + 2, "STORAGE"));
    let is_one = is_of_column
        || starts(&["CLUSTER", "ON"])
        || starts(&["SET", "WITHOUT", "CLUSTER"])
        || starts(&["SET", "TABLESPACE"])
        || starts(&["REPLICA", "IDENTITY"]);
    // The longest of them, ALTER COLUMN a SET STATISTICS -1, has seven tokens. What stands behind a
    // semicolon is of another statement.
    let tokens = (from..from + 8).map(|ahead| &parser.peek_nth_token_ref(ahead).token);
    let mut own = tokens.take_while(|token| **token != Token::SemiColon);
    is_one && !own.any(|token| *token == Token::Comma)
}

/// What is only kept.
fn hint(parser: &mut Parser<'_>) -> Parsed<Option<RelationChange>> {
    if take_all(parser, &["CLUSTER", "ON"]) {
        return parser.parse_identifier().map(|index| Some(RelationChange::Cluster(Some(index))));
    }
    if take_all(parser, &["SET", "WITHOUT", "CLUSTER"]) {
        return Ok(Some(RelationChange::Cluster(None)));
    }
    if take_all(parser, &["REPLICA", "IDENTITY"]) {
        return replica_identity(parser).map(|identity| Some(RelationChange::ReplicaIdentity(identity)));
    }
    if is_word(parser, 1, "CONSTRAINT") || !take(parser, "ALTER") {
        return moved(parser);
    }
    take(parser, "COLUMN");
    let column = parser.parse_identifier()?;
    if take(parser, "RESET") {
        let options = options(parser)?;
        return Ok(Some(RelationChange::ColumnOptions { column, options, reset: true }));
    }
    expect(parser, "SET")?;
    if parser.peek_token_ref().token == Token::LParen {
        let options = options(parser)?;
        return Ok(Some(RelationChange::ColumnOptions { column, options, reset: false }));
    }
    if take(parser, "STORAGE") {
        return Ok(Some(RelationChange::SetStorage { column, storage: parser.parse_identifier()? }));
    }
    expect(parser, "STATISTICS")?;
    Ok(Some(RelationChange::SetStatistics { column, target: statistics_target(parser)? }))
}

/// How much is to be gathered.
fn statistics_target(parser: &mut Parser<'_>) -> Parsed<i64> {
    let is_negative = parser.consume_token(&Token::Minus);
    let number = i64::try_from(parser.parse_literal_uint()?).unwrap_or(i64::MAX);
    Ok(if is_negative { -number } else { number })
}

fn replica_identity(parser: &mut Parser<'_>) -> Parsed<NewReplicaIdentity> {
    if take(parser, "DEFAULT") {
        return Ok(NewReplicaIdentity::Default);
    }
    if take(parser, "NOTHING") {
        return Ok(NewReplicaIdentity::Nothing);
    }
    if take(parser, "FULL") {
        return Ok(NewReplicaIdentity::Full);
    }
    expect(parser, "USING")?;
    expect(parser, "INDEX")?;
    parser.parse_identifier().map(NewReplicaIdentity::UsingIndex)
}

/// Whether a new name is given.
fn renames(parser: &Parser<'_>) -> bool {
    (5..16).any(|ahead| is_word(parser, ahead, "RENAME") && is_word(parser, ahead + 1, "TO"))
}

/// Whether it is a form of ALTER TABLE that is read here.
fn is_of_table(parser: &Parser<'_>) -> bool {
    // Behind ALTER TABLE, what may stand before the name, and the name.
    let alters_constraint =
        |ahead: usize| is_word(parser, ahead, "ALTER") && is_word(parser, ahead + 1, "CONSTRAINT");
    sets_schema(parser)
        || (3..11).any(alters_constraint)
        || changes_options(parser, &["RESET"])
        || is_hint(parser)
}

/// Whether the words SET SCHEMA and one more end the statement: the parser knows what else can be
/// said of a table.
fn sets_schema(parser: &Parser<'_>) -> bool {
    let is_end = |ahead: usize| parser.peek_nth_token_ref(ahead).token == Token::EOF;
    // Names are short.
    (3..16).take_while(|&ahead| !is_end(ahead)).any(|ahead| {
        is_word(parser, ahead, "SET") && is_word(parser, ahead + 1, "SCHEMA") && is_end(ahead + 3)
    })
}

fn change(parser: &mut Parser<'_>) -> Parsed<RelationChange> {
    if take_all(parser, &["SET", "SCHEMA"]) {
        return parser.parse_identifier().map(RelationChange::SetSchema);
    }
    if take_all(parser, &["ALTER", "CONSTRAINT"]) {
        let name = parser.parse_identifier()?;
        let characteristics = parser.parse_constraint_characteristics()?;
        return Ok(RelationChange::AlterConstraint { name, characteristics });
    }
    if take(parser, "SET") {
        return options(parser).map(RelationChange::SetOptions);
    }
    if take(parser, "RESET") {
        return options(parser).map(RelationChange::ResetOptions);
    }
    expect(parser, "RENAME")?;
    if take(parser, "TO") {
        return parser.parse_identifier().map(RelationChange::Rename);
    }
    take(parser, "COLUMN");
    let from = parser.parse_identifier()?;
    expect(parser, "TO")?;
    Ok(RelationChange::RenameColumn { from, to: parser.parse_identifier()? })
}

/// Options in parentheses.
fn options(parser: &mut Parser<'_>) -> Parsed<Vec<SqlOption>> {
    parser.expect_token(&Token::LParen)?;
    let options = parser.parse_comma_separated(option)?;
    parser.expect_token(&Token::RParen)?;
    Ok(options)
}

fn option(parser: &mut Parser<'_>) -> Parsed<SqlOption> {
    let key = parser.parse_identifier()?;
    if !parser.consume_token(&Token::Eq) {
        return Ok(SqlOption::Ident(key));
    }
    let value = match &parser.peek_token_ref().token {
        Token::Word(_) => Expr::Identifier(parser.parse_identifier()?),
        _ => parser.parse_expr()?,
    };
    Ok(SqlOption::KeyValue { key, value })
}

/// WITH CHECK OPTION behind a view's query: it becomes one of the options before that.
pub(super) fn check_option(parser: &mut Parser<'_>, statement: &mut Statement) -> Parsed<()> {
    let Statement::CreateView(view) = statement else { return Ok(()) };
    if !take(parser, "WITH") {
        return Ok(());
    }
    let is_local = take(parser, "LOCAL");
    if !is_local {
        take(parser, "CASCADED");
    }
    expect(parser, "CHECK")?;
    expect(parser, "OPTION")?;
    let value = Expr::Identifier(Ident::new(if is_local { "local" } else { "cascaded" }));
    let option = SqlOption::KeyValue { key: Ident::new("check_option"), value };
    match &mut view.options {
        CreateTableOptions::With(options) => options.push(option),
        options => *options = CreateTableOptions::With(vec![option]),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::parse::{Command, parse};

    #[test]
    fn forms_of_alter_view() {
        for (text, tag) in [
            ("ALTER VIEW v RENAME TO w", "ALTER VIEW"),
            ("ALTER VIEW IF EXISTS s.v RENAME COLUMN a TO \"B\"", "ALTER VIEW"),
            ("ALTER VIEW v RENAME a TO b", "ALTER VIEW"),
            ("ALTER VIEW v SET SCHEMA s", "ALTER VIEW"),
            ("ALTER TABLE ONLY s.t ALTER CONSTRAINT c NOT DEFERRABLE INITIALLY IMMEDIATE", "ALTER TABLE"),
            ("ALTER VIEW v SET (check_option = local, security_barrier)", "ALTER VIEW"),
            ("ALTER VIEW IF EXISTS v RESET (check_option)", "ALTER VIEW"),
            ("ALTER TABLE IF EXISTS ONLY s.t RESET (fillfactor, autovacuum_enabled)", "ALTER TABLE"),
            ("ALTER INDEX s.i SET (fillfactor = 70, deduplicate_items = off)", "ALTER INDEX"),
            ("ALTER INDEX IF EXISTS i RESET (fillfactor)", "ALTER INDEX"),
            ("ALTER INDEX s.i ALTER COLUMN 2 SET STATISTICS 100", "ALTER INDEX"),
            ("ALTER INDEX IF EXISTS i ALTER 1 SET STATISTICS -1", "ALTER INDEX"),
            ("ALTER TABLE ONLY s.t ALTER COLUMN \"A\" SET STATISTICS -1", "ALTER TABLE"),
            ("ALTER TABLE IF EXISTS t ALTER a SET STORAGE EXTERNAL", "ALTER TABLE"),
            ("ALTER TABLE s.t CLUSTER ON t_pkey", "ALTER TABLE"),
            ("ALTER TABLE t SET WITHOUT CLUSTER", "ALTER TABLE"),
            ("ALTER TABLE ONLY s.t ALTER COLUMN a SET (n_distinct = -0.5, b = 1)", "ALTER TABLE"),
            ("ALTER TABLE IF EXISTS t ALTER a RESET (n_distinct, b)", "ALTER TABLE"),
            ("ALTER TABLE IF EXISTS ONLY s.t SET TABLESPACE pg_default", "ALTER TABLE"),
            ("ALTER INDEX s.i SET TABLESPACE pg_default", "ALTER INDEX"),
            ("ALTER TABLE ONLY s.t REPLICA IDENTITY FULL", "ALTER TABLE"),
            ("ALTER TABLE ONLY s.t REPLICA IDENTITY USING INDEX i", "ALTER TABLE"),
            ("ALTER TABLE IF EXISTS ONLY s.t SET SCHEMA \"S\"", "ALTER TABLE"),
        ] {
            match &parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))[0].command {
                Command::AlterRelation(alter) => assert_eq!(alter.tag(), tag, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}
