//! CREATE TABLE.

use sqlparser::ast;

use super::constraint::Rows;
use super::names::Qualified;
use super::request::{self, ColumnRequest, ConstraintRequest};
use crate::catalog::{Column, Derived, Hints, Object, OnCommit, Schema, Table};
use crate::error::{Result, SqlError, sqlstate};
use crate::parse::Like;
use crate::row::MAX_COLUMNS;
use crate::session::work::Work;
use crate::types::Datum;

/// Columns every table of PostgreSQL has.
const SYSTEM_COLUMNS: &[&str] = &["tableoid", "ctid", "xmin", "xmax", "cmin", "cmax"];

/// Whose a new table is, and for how long its rows stay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// TEMPORARY was said.
    pub(crate) temporary: bool,
    /// ON COMMIT was said, be it PRESERVE ROWS.
    says_on_commit: bool,
    on_commit: Option<OnCommit>,
}

impl Kind {
    /// What the statement says.
    pub(crate) fn of(statement: &ast::CreateTable) -> Kind {
        let on_commit = match statement.on_commit {
            Some(ast::OnCommit::DeleteRows) => Some(OnCommit::DeleteRows),
            Some(ast::OnCommit::Drop) => Some(OnCommit::Drop),
            Some(ast::OnCommit::PreserveRows) | None => None,
        };
        Kind { temporary: statement.temporary, says_on_commit: statement.on_commit.is_some(), on_commit }
    }
}

impl Work<'_> {
    /// CREATE TABLE without a query. True unless it existed already and IF NOT EXISTS was said.
    pub(crate) async fn create_table(&mut self, statement: &ast::CreateTable) -> Result<bool> {
        refuse(statement)?;
        let name = Qualified::from_object_name(&statement.name)?;
        let mut columns = Vec::with_capacity(statement.columns.len());
        let (mut constraints, mut own) = (Vec::new(), Vec::new());
        let mut copied = Vec::new();
        for definition in &statement.columns {
            if let Some(like) = Like::read(&definition.name) {
                copied.extend(self.copy_columns(like, &mut columns, &mut constraints).await?);
                continue;
            }
            self.require_usage_for_type(&definition.data_type)?;
            let (column, with_column) = request::column(&name.name, definition, self.format)?;
            columns.push(column);
            own.extend(with_column);
        }
        for constraint in &statement.constraints {
            own.push(request::constraint(constraint)?);
        }
        // Those that are taken over by LIKE stay apart, as many as there are.
        constraints.extend(request::merged_keys(own));
        let options = storage_options(&statement.table_options)?;
        self.warn_of_global(statement);
        let kind = Kind::of(statement);
        let made = self.make_table(&name, columns, constraints, options, kind, statement.if_not_exists);
        let Some(name) = made.await? else { return Ok(false) };
        for (like, source) in &copied {
            self.copy_indexes(&name, like, source).await?;
        }
        Ok(true)
    }

    /// A WARNING for GLOBAL and LOCAL, which say nothing.
    pub(crate) fn warn_of_global(&mut self, statement: &ast::CreateTable) {
        if statement.temporary && statement.global == Some(true) {
            let message = "GLOBAL is deprecated in temporary table creation";
            self.notice(SqlError::warning(sqlstate::WARNING, message));
        }
    }

    /// Makes a table of these columns and constraints. Its name with its schema; none if there was
    /// one already.
    pub(crate) async fn make_table(
        &mut self,
        name: &Qualified,
        columns: Vec<ColumnRequest>,
        constraints: Vec<ConstraintRequest>,
        options: Vec<String>,
        kind: Kind,
        if_not_exists: bool,
    ) -> Result<Option<Qualified>> {
        let schema = self.creation_schema(name, kind.temporary)?;
        if kind.says_on_commit && schema.home.is_none() {
            return Err(SqlError::new(
                sqlstate::INVALID_TABLE_DEFINITION,
                "ON COMMIT can only be used on temporary tables",
            ));
        }
        if let Err(error) = self.claim_name(&schema, &name.name).await {
            if if_not_exists && error.sqlstate == sqlstate::DUPLICATE_TABLE {
                let message = format!("relation \"{}\" already exists, skipping", name.name);
                self.notice(SqlError::notice(message).with_sqlstate(sqlstate::DUPLICATE_TABLE));
                return Ok(None);
            }
            return Err(error);
        }
        check_columns(&columns)?;
        let types: Vec<_> = columns.iter().map(|column| column.ty).collect();
        self.hold_types(&types).await?;
        let mut table = Table {
            oid: self.allocate_oid()?,
            schema: schema.oid,
            schema_name: schema.name.clone(),
            name: name.name.clone(),
            tree: self.allocate_tree(),
            columns: Vec::with_capacity(columns.len()),
            indexes: Vec::new(),
            checks: Vec::new(),
            foreign_keys: Vec::new(),
            referenced_by: Vec::new(),
            temporary: schema.home.is_some(),
            on_commit: kind.on_commit,
            options,
            comment: None,
            hints: Hints::default(),
            derived: Derived::default(),
        };
        self.add_columns(&schema, &mut table, columns).await?;
        // Keys come first: a foreign key may refer to the table's own.
        let (keys, others): (Vec<_>, Vec<_>) = constraints
            .into_iter()
            .partition(|constraint| matches!(constraint, ConstraintRequest::Key { .. }));
        for constraint in keys {
            self.add_constraint(&mut table, constraint, Rows::None).await?;
        }
        self.change(Object::Table(table.clone().into()))?;
        for constraint in others {
            self.add_constraint(&mut table, constraint, Rows::None).await?;
        }
        self.change(Object::Table(table.into()))?;
        Ok(Some(Qualified::within(&schema.name, &name.name)))
    }

    async fn add_columns(
        &mut self,
        schema: &Schema,
        table: &mut Table,
        columns: Vec<ColumnRequest>,
    ) -> Result<()> {
        let mut generated = Vec::new();
        for (place, mut column) in columns.into_iter().enumerate() {
            generated.extend(column.generated.take().map(|expression| (place, expression)));
            self.add_column(schema, table, column).await?;
        }
        // They may be made from columns that come later. Once more, for those that are made from
        // generated ones.
        for (place, expression) in generated.iter().chain(&generated) {
            self.generate_column(table, *place, expression).await?;
        }
        Ok(())
    }

    /// Adds a column to a table that is being made or altered: its type, default and sequence.
    pub(crate) async fn add_column(
        &mut self,
        schema: &Schema,
        table: &mut Table,
        request: ColumnRequest,
    ) -> Result<()> {
        // Those that were dropped keep their places in the rows.
        let place = table.columns.len();
        check_count(place + 1)?;
        let mut column = Column {
            name: request.name,
            ty: request.ty,
            collation: request.collation,
            not_null: request.not_null.unwrap_or(false),
            default: None,
            identity: None,
            generated: None,
            sequence: None,
            dropped: false,
            missing: Datum::Null,
            comment: None,
        };
        if request.serial || request.identity.is_some() {
            if request.not_null == Some(false) {
                return Err(SqlError::syntax(format!(
                    "conflicting NULL/NOT NULL declarations for column \"{}\" of table \"{}\"",
                    column.name, table.name
                )));
            }
            let options = request.identity.as_ref().map(|(_, options)| options.clone()).unwrap_or_default();
            let name = self.column_sequence_name(schema, &table.name, &column.name, &options)?;
            let owner = Some((table.oid, place));
            let is_identity = request.identity.is_some();
            let oid = self.make_sequence(schema, &name, column.ty, &options, owner, is_identity).await?;
            column.not_null = true;
            column.sequence = Some(oid);
            column.identity = request.identity.map(|(identity, _)| identity);
            column.default = Some(super::sequence::nextval(oid));
        } else if let Some(default) = &request.default {
            column.default = self.default_text(&column, default).await?;
        }
        table.columns.push(column);
        if let Some(expression) = &request.generated {
            self.generate_column(table, place, expression).await?;
        }
        Ok(())
    }
}

/// 54011 if a table, or a view, is to have more columns than there can be.
pub(super) fn check_count(columns: usize) -> Result<()> {
    if columns > MAX_COLUMNS {
        return Err(SqlError::new(
            sqlstate::TOO_MANY_COLUMNS,
            format!("tables can have at most {MAX_COLUMNS} columns"),
        ));
    }
    Ok(())
}

fn check_columns(columns: &[ColumnRequest]) -> Result<()> {
    check_count(columns.len())?;
    for (place, column) in columns.iter().enumerate() {
        check_column_name(&column.name)?;
        if columns[..place].iter().any(|other| other.name == column.name) {
            return Err(SqlError::new(
                sqlstate::DUPLICATE_COLUMN,
                format!("column \"{}\" specified more than once", column.name),
            ));
        }
    }
    Ok(())
}

/// 42701 if the name is a system column's.
pub(crate) fn check_column_name(name: &str) -> Result<()> {
    if SYSTEM_COLUMNS.contains(&name) {
        return Err(SqlError::new(
            sqlstate::DUPLICATE_COLUMN,
            format!("column name \"{name}\" conflicts with a system column name"),
        ));
    }
    Ok(())
}

/// Says which clause is not supported, if there is one.
pub(crate) fn refuse(statement: &ast::CreateTable) -> Result<()> {
    let clauses = [
        (statement.or_replace, "CREATE OR REPLACE TABLE"),
        (statement.external, "CREATE EXTERNAL TABLE"),
        (statement.like.is_some(), "CREATE TABLE ... LIKE"),
        (statement.clone.is_some(), "CREATE TABLE ... CLONE"),
        (statement.inherits.is_some(), "INHERITS"),
        (statement.partition_by.is_some(), "PARTITION BY"),
        (statement.partition_of.is_some(), "PARTITION OF"),
        (statement.cluster_by.is_some() || statement.clustered_by.is_some(), "CLUSTER BY"),
        (statement.comment.is_some(), "COMMENT in CREATE TABLE"),
        (statement.strict, "STRICT"),
        (statement.without_rowid, "WITHOUT ROWID"),
    ];
    match clauses.iter().find(|(present, _)| *present) {
        Some((_, clause)) => Err(SqlError::unsupported(clause)),
        None => Ok(()),
    }
}

/// WITH (fillfactor = 100, ...): storage parameters are hints; they are checked, kept and have no
/// effect. 22023, too, for one that is there twice.
pub(crate) fn storage_options(options: &ast::CreateTableOptions) -> Result<Vec<String>> {
    let options = match options {
        ast::CreateTableOptions::None => return Ok(Vec::new()),
        ast::CreateTableOptions::With(options) => options,
        other => return Err(SqlError::unsupported(format_args!("table option {other}"))),
    };
    let stored = options.iter().filter_map(|option| match says_no_oids(option) {
        Ok(true) => None,
        Ok(false) => Some(storage_option(option)),
        Err(error) => Some(Err(error)),
    });
    let stored: Vec<String> = stored.collect::<Result<_>>()?;
    check_once(&stored)?;
    Ok(stored)
}

/// 22023 if an option is there twice.
pub(super) fn check_once(options: &[String]) -> Result<()> {
    for (place, option) in options.iter().enumerate() {
        let name = option_name(option);
        if options[..place].iter().any(|before| option_name(before) == name) {
            let message = format!("parameter \"{name}\" specified more than once");
            return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message));
        }
    }
    Ok(())
}

/// The options of a table to which others are given: of the same name it keeps those.
pub(super) fn merged_options(known: &[String], given: Vec<String>) -> Vec<String> {
    let is_given = |option: &str| given.iter().any(|given| option_name(given) == option_name(option));
    let mut merged: Vec<String> = known.iter().filter(|option| !is_given(option)).cloned().collect();
    merged.extend(given);
    merged
}

/// The name in an option as it is kept.
pub(super) fn option_name(option: &str) -> &str {
    option.split_once('=').map_or(option, |(name, _)| name)
}

/// Whether an option says that a table has no oids, as none has. 0A000 if it says that it has.
fn says_no_oids(option: &ast::SqlOption) -> Result<bool> {
    let ast::SqlOption::KeyValue { key, value } = option else { return Ok(false) };
    if crate::identifier::fold(key) != "oids" {
        return Ok(false);
    }
    match value.to_string().trim_matches('\'').to_ascii_lowercase().as_str() {
        "false" | "off" | "no" | "0" => Ok(true),
        _ => {
            let message = "tables declared WITH OIDS are not supported";
            Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message))
        }
    }
}

fn storage_option(option: &ast::SqlOption) -> Result<String> {
    let (name, value) = match option {
        ast::SqlOption::KeyValue { key, value } => (crate::identifier::fold(key), value.to_string()),
        ast::SqlOption::Ident(key) => (crate::identifier::fold(key), "true".to_owned()),
        _ => return Err(SqlError::unsupported(format_args!("storage parameter {option}"))),
    };
    let value = value.trim_matches('\'').to_owned();
    let known = name == "fillfactor"
        || name == "parallel_workers"
        || name == "toast_tuple_target"
        || name == "user_catalog_table"
        || name.starts_with("autovacuum_")
        || name.starts_with("vacuum_")
        || name.starts_with("toast.autovacuum_")
        || name.starts_with("toast.vacuum_")
        || name == "toast.log_autovacuum_min_duration"
        || name == "log_autovacuum_min_duration";
    if !known {
        let name = name.strip_prefix("toast.").unwrap_or(&name);
        return Err(SqlError::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("unrecognized parameter \"{name}\""),
        ));
    }
    if name == "fillfactor" && value.parse::<f64>().is_err() {
        return Err(SqlError::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("invalid value for integer option \"fillfactor\": {value}"),
        ));
    }
    if name == "fillfactor" && !value.parse::<i64>().is_ok_and(|value| (10..=100).contains(&value)) {
        return Err(SqlError::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("value {value} out of bounds for option \"fillfactor\""),
        )
        .with_detail("Valid values are between \"10\" and \"100\"."));
    }
    Ok(format!("{name}={value}"))
}
