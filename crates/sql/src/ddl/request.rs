//! What CREATE TABLE and ALTER TABLE ask for, taken off the syntax tree: columns and constraints
//! with folded names.

use sqlparser::ast;

use super::names::Qualified;
use crate::bind::resolve_type;
use crate::catalog::{Collation, Deferrable, Identity, ReferentialAction};
use crate::error::{Result, SqlError, sqlstate};
use crate::identifier::fold;
use crate::parse::{KeyLists, SequenceOptions, split_key, split_referenced};
use crate::pg_catalog::is_collatable;
use crate::types::{FormatContext, Type, TypeId};

/// A column to be made.
#[derive(Clone, Debug)]
pub(crate) struct ColumnRequest {
    pub(crate) name: String,
    pub(crate) ty: Type,
    /// COLLATE.
    pub(crate) collation: Option<Collation>,
    /// NOT NULL, NULL, or neither.
    pub(crate) not_null: Option<bool>,
    pub(crate) default: Option<ast::Expr>,
    /// `serial` and its kin.
    pub(crate) serial: bool,
    pub(crate) identity: Option<(Identity, SequenceOptions)>,
    /// GENERATED ALWAYS AS (...) STORED.
    pub(crate) generated: Option<ast::Expr>,
}

/// A constraint to be made.
#[derive(Clone, Debug)]
pub(crate) enum ConstraintRequest {
    /// PRIMARY KEY or UNIQUE.
    Key {
        name: Option<String>,
        columns: Vec<String>,
        /// INCLUDE.
        included: Vec<String>,
        /// WITH.
        options: Vec<String>,
        primary: bool,
        nulls_not_distinct: bool,
        deferrable: Option<Deferrable>,
    },
    /// CHECK.
    Check { name: Option<String>, expression: Box<ast::Expr>, no_inherit: bool },
    /// FOREIGN KEY or REFERENCES.
    ForeignKey(ForeignKeyRequest),
}

/// A foreign key to be made.
#[derive(Clone, Debug)]
pub(crate) struct ForeignKeyRequest {
    pub(crate) name: Option<String>,
    pub(crate) columns: Vec<String>,
    pub(crate) table: Qualified,
    /// Empty: the primary key.
    pub(crate) referenced: Vec<String>,
    pub(crate) on_delete: ReferentialAction,
    /// Those that it sets; empty: all.
    pub(crate) on_delete_columns: Vec<String>,
    pub(crate) on_update: ReferentialAction,
    pub(crate) deferrable: bool,
    pub(crate) initially_deferred: bool,
    pub(crate) match_full: bool,
}

impl ConstraintRequest {
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            ConstraintRequest::Key { name, .. } | ConstraintRequest::Check { name, .. } => name.as_deref(),
            ConstraintRequest::ForeignKey(key) => key.name.as_deref(),
        }
    }

    /// Takes a later key of the same statement over, and says so, if it is this one once more. The
    /// one that is left is the primary key if either is, and has its name, or else the first that
    /// was given.
    fn takes_over(&mut self, later: &ConstraintRequest) -> bool {
        use ConstraintRequest::Key;
        let Key { name, columns, included, options, primary, nulls_not_distinct, deferrable } = self else {
            return false;
        };
        let Key {
            name: its_name,
            columns: its_columns,
            included: its_included,
            options: its_options,
            primary: is_primary,
            nulls_not_distinct: its_nulls,
            deferrable: its_deferrable,
        } = later
        else {
            return false;
        };
        let is_same = *columns == *its_columns
            && *included == *its_included
            && *nulls_not_distinct == *its_nulls
            && *deferrable == *its_deferrable;
        if !is_same || (*primary && *is_primary) {
            return false;
        }
        if name.is_none() || (*is_primary && its_name.is_some()) {
            name.clone_from(its_name);
        }
        if *is_primary {
            options.clone_from(its_options);
            *primary = true;
        }
        true
    }
}

/// The constraints that one statement writes for a table. As in PostgreSQL, a key over the columns
/// of another, and like it in all else, is none of its own.
pub(crate) fn merged_keys(constraints: Vec<ConstraintRequest>) -> Vec<ConstraintRequest> {
    let mut kept: Vec<ConstraintRequest> = Vec::with_capacity(constraints.len());
    for constraint in constraints {
        if !kept.iter_mut().any(|known| known.takes_over(&constraint)) {
            kept.push(constraint);
        }
    }
    kept
}

/// The integer type of `serial` and its kin.
fn serial_type(data_type: &ast::DataType) -> Option<TypeId> {
    let ast::DataType::Custom(name, arguments) = data_type else { return None };
    if !arguments.is_empty() {
        return None;
    }
    match name.to_string().to_ascii_lowercase().as_str() {
        "serial" | "serial4" => Some(TypeId::Int4),
        "bigserial" | "serial8" => Some(TypeId::Int8),
        "smallserial" | "serial2" => Some(TypeId::Int2),
        _ => None,
    }
}

/// A column's definition: the column itself, and the constraints written with it.
pub(crate) fn column(
    table: &str,
    definition: &ast::ColumnDef,
    format: &FormatContext,
) -> Result<(ColumnRequest, Vec<ConstraintRequest>)> {
    let serial = serial_type(&definition.data_type);
    let mut column = ColumnRequest {
        name: fold(&definition.name),
        ty: match serial {
            Some(id) => Type::new(id),
            None => resolve_type(&definition.data_type, format)?,
        },
        collation: None,
        not_null: None,
        default: None,
        serial: serial.is_some(),
        identity: None,
        generated: None,
    };
    reject_pseudo(&column)?;
    let mut constraints: Vec<ConstraintRequest> = Vec::new();
    let mut previous_is_deferrable = false;
    for option in &definition.options {
        let name = option.name.as_ref().map(fold);
        let is_deferrable = matches!(
            option.option,
            ast::ColumnOption::ForeignKey(_)
                | ast::ColumnOption::Unique(_)
                | ast::ColumnOption::PrimaryKey(_)
        );
        if let ast::ColumnOption::Options(options) = &option.option {
            let key = constraints.last_mut().filter(|_| previous_is_deferrable);
            set_key_options(key, options)?;
            continue;
        }
        let deferral = deferral(&option.option);
        if let (Some(words), true, Some(constraint)) =
            (deferral, previous_is_deferrable, constraints.last_mut())
        {
            apply_deferral(constraint, words)?;
            continue;
        }
        column_option(table, &mut column, &mut constraints, name, &option.option, format)?;
        previous_is_deferrable = is_deferrable;
    }
    Ok((column, constraints))
}

/// WITH and storage parameters behind a column's UNIQUE or PRIMARY KEY.
fn set_key_options(constraint: Option<&mut ConstraintRequest>, given: &[ast::SqlOption]) -> Result<()> {
    let Some(ConstraintRequest::Key { options, .. }) = constraint else {
        return Err(SqlError::syntax("syntax error at or near \"WITH\""));
    };
    let texts = given.iter().map(|option| match option {
        ast::SqlOption::KeyValue { key, value } => Ok(format!("{}={value}", fold(key))),
        other => Err(SqlError::syntax(format!("syntax error at or near \"{other}\""))),
    });
    *options = super::create_index::key_options(&texts.collect::<Result<Vec<String>>>()?)?;
    Ok(())
}

/// DEFERRABLE and the like as loose words after a column's REFERENCES, UNIQUE or PRIMARY KEY.
fn deferral(option: &ast::ColumnOption) -> Option<&str> {
    match option {
        ast::ColumnOption::DialectSpecific(tokens) => match tokens.first() {
            Some(sqlparser::tokenizer::Token::Word(word)) => Some(word.value.as_str()),
            _ => None,
        },
        _ => None,
    }
}

fn apply_deferral(constraint: &mut ConstraintRequest, word: &str) -> Result<()> {
    let is_deferred = word.eq_ignore_ascii_case("DEFERRED");
    if !is_deferred && !word.eq_ignore_ascii_case("DEFERRABLE") {
        return Ok(());
    }
    match constraint {
        ConstraintRequest::ForeignKey(key) => {
            key.deferrable = true;
            key.initially_deferred |= is_deferred;
        }
        ConstraintRequest::Key { deferrable, .. } => {
            *deferrable = Some(if is_deferred { Deferrable::Deferred } else { Deferrable::Immediate });
        }
        ConstraintRequest::Check { .. } => {}
    }
    Ok(())
}

/// NO INHERIT, as the parser knows it.
fn says_no_inherit(check: &ast::CheckConstraint) -> bool {
    check.enforced == Some(false)
}

fn reject_pseudo(column: &ColumnRequest) -> Result<()> {
    if column.ty.id.is_pseudo() || column.ty.id == TypeId::Unknown {
        return Err(SqlError::new(
            sqlstate::INVALID_TABLE_DEFINITION,
            format!("column \"{}\" has pseudo-type {}", column.name, column.ty.format()),
        ));
    }
    Ok(())
}

fn column_option(
    table: &str,
    column: &mut ColumnRequest,
    constraints: &mut Vec<ConstraintRequest>,
    name: Option<String>,
    option: &ast::ColumnOption,
    format: &FormatContext,
) -> Result<()> {
    let columns = || vec![column.name.clone()];
    match option {
        ast::ColumnOption::Null => set_null(table, column, false)?,
        ast::ColumnOption::NotNull => set_null(table, column, true)?,
        ast::ColumnOption::Default(expression) => {
            if column.default.is_some() || column.serial {
                return Err(SqlError::syntax(format!(
                    "multiple default values specified for column \"{}\" of table \"{table}\"",
                    column.name
                )));
            }
            column.default = Some(expression.clone());
        }
        ast::ColumnOption::PrimaryKey(key) => {
            constraints.push(ConstraintRequest::Key {
                name,
                columns: columns(),
                included: Vec::new(),
                options: Vec::new(),
                primary: true,
                nulls_not_distinct: false,
                deferrable: deferrable(key.characteristics.as_ref())?,
            });
        }
        ast::ColumnOption::Unique(key) => {
            let nulls_not_distinct = key.nulls_distinct == ast::NullsDistinctOption::NotDistinct;
            constraints.push(ConstraintRequest::Key {
                name,
                columns: columns(),
                included: Vec::new(),
                options: Vec::new(),
                primary: false,
                nulls_not_distinct,
                deferrable: deferrable(key.characteristics.as_ref())?,
            });
        }
        ast::ColumnOption::Check(check) => {
            let (expression, no_inherit) = (check.expr.clone(), says_no_inherit(check));
            constraints.push(ConstraintRequest::Check { name, expression, no_inherit });
        }
        ast::ColumnOption::ForeignKey(key) => {
            constraints.push(ConstraintRequest::ForeignKey(foreign_key(key, name, columns())?));
        }
        ast::ColumnOption::Generated { generation_expr: Some(expression), generation_expr_mode, .. } => {
            generated(table, column, expression, generation_expr_mode.as_ref())?;
        }
        ast::ColumnOption::Generated { generated_as, sequence_options, .. } => {
            column.identity = Some(identity(table, column, generated_as, sequence_options.as_deref())?);
        }
        ast::ColumnOption::Collation(name) => {
            if column.collation.is_some() {
                return Err(SqlError::syntax("multiple COLLATE clauses not allowed"));
            }
            column.collation = Some(collation(name, column.ty, format)?);
        }
        other => return Err(SqlError::unsupported(format_args!("column option {other}"))),
    }
    check_sources(table, column)
}

/// The collation of this name, for values of a type. 42804 if these have none.
pub(super) fn collation(name: &ast::ObjectName, ty: Type, format: &FormatContext) -> Result<Collation> {
    let parts = super::names::parts(name)?;
    let found = parts.last().and_then(|name| Collation::named(name));
    let collation = found.ok_or_else(|| SqlError::internal("a collation that the rewriting let through"))?;
    require_collatable(ty, format)?;
    Ok(collation)
}

/// 42804 if values of a type are ordered without a collation.
pub(super) fn require_collatable(ty: Type, format: &FormatContext) -> Result<()> {
    if is_collatable(ty.id) {
        return Ok(());
    }
    let message = format!("collations are not supported by type {}", ty.plain().format_with(format));
    Err(SqlError::new(sqlstate::DATATYPE_MISMATCH, message))
}

/// 42601 if a column is said to get its values in two ways.
fn check_sources(table: &str, column: &ColumnRequest) -> Result<()> {
    if column.generated.is_some() {
        let other = match () {
            () if column.default.is_some() || column.serial => Some("default"),
            () => column.identity.is_some().then_some("identity"),
        };
        if let Some(other) = other {
            return Err(SqlError::syntax(format!(
                "both {other} and generation expression specified for column \"{}\" of table \"{table}\"",
                column.name
            )));
        }
    }
    if column.identity.is_some() && (column.default.is_some() || column.serial) {
        return Err(SqlError::syntax(format!(
            "both default and identity specified for column \"{}\" of table \"{table}\"",
            column.name
        )));
    }
    Ok(())
}

/// GENERATED ALWAYS AS (...) STORED.
fn generated(
    table: &str,
    column: &mut ColumnRequest,
    expression: &ast::Expr,
    mode: Option<&ast::GeneratedExpressionMode>,
) -> Result<()> {
    if !matches!(mode, Some(ast::GeneratedExpressionMode::Stored)) {
        return Err(SqlError::unsupported("a generated column that is not STORED"));
    }
    if column.generated.is_some() {
        return Err(SqlError::syntax(format!(
            "multiple generation clauses specified for column \"{}\" of table \"{table}\"",
            column.name
        )));
    }
    column.generated = Some(expression.clone());
    Ok(())
}

/// GENERATED AS IDENTITY with its options.
fn identity(
    table: &str,
    column: &ColumnRequest,
    generated_as: &ast::GeneratedAs,
    options: Option<&[ast::SequenceOptions]>,
) -> Result<(Identity, SequenceOptions)> {
    let identity = match generated_as {
        ast::GeneratedAs::Always => Identity::Always,
        ast::GeneratedAs::ByDefault => Identity::ByDefault,
        ast::GeneratedAs::ExpStored => {
            return Err(SqlError::unsupported("GENERATED ALWAYS AS (expression) STORED"));
        }
    };
    super::sequence::check_identity_type(column.ty)?;
    if column.identity.is_some() {
        return Err(SqlError::syntax(format!(
            "multiple identity specifications for column \"{}\" of table \"{table}\"",
            column.name
        )));
    }
    Ok((identity, super::sequence::identity_options(options.unwrap_or_default())?))
}

fn set_null(table: &str, column: &mut ColumnRequest, not_null: bool) -> Result<()> {
    if column.not_null.is_some_and(|before| before != not_null) {
        return Err(SqlError::syntax(format!(
            "conflicting NULL/NOT NULL declarations for column \"{}\" of table \"{table}\"",
            column.name
        )));
    }
    column.not_null = Some(not_null);
    Ok(())
}

/// A table constraint.
pub(crate) fn constraint(constraint: &ast::TableConstraint) -> Result<ConstraintRequest> {
    match constraint {
        ast::TableConstraint::PrimaryKey(key) => {
            let KeyLists { columns, included, options } = key_lists(&key.columns)?;
            Ok(ConstraintRequest::Key {
                name: key.name.as_ref().map(fold),
                columns,
                included,
                options: super::create_index::key_options(&options)?,
                primary: true,
                nulls_not_distinct: false,
                deferrable: deferrable(key.characteristics.as_ref())?,
            })
        }
        ast::TableConstraint::Unique(key) => {
            let KeyLists { columns, included, options } = key_lists(&key.columns)?;
            let nulls_not_distinct = key.nulls_distinct == ast::NullsDistinctOption::NotDistinct;
            Ok(ConstraintRequest::Key {
                name: key.name.as_ref().map(fold),
                columns,
                included,
                options: super::create_index::key_options(&options)?,
                primary: false,
                nulls_not_distinct,
                deferrable: deferrable(key.characteristics.as_ref())?,
            })
        }
        ast::TableConstraint::Check(check) => Ok(ConstraintRequest::Check {
            name: check.name.as_ref().map(fold),
            expression: check.expr.clone(),
            no_inherit: says_no_inherit(check),
        }),
        ast::TableConstraint::ForeignKey(key) => {
            let columns = key.columns.iter().map(fold).collect();
            let name = key.name.as_ref().map(fold);
            foreign_key(key, name, columns).map(ConstraintRequest::ForeignKey)
        }
        other => Err(SqlError::unsupported(format_args!("table constraint {other}"))),
    }
}

/// The columns of a key, those of its INCLUDE, and its storage parameters.
fn key_lists(columns: &[ast::IndexColumn]) -> Result<KeyLists> {
    let names = columns.iter().map(|column| match &column.column.expr {
        ast::Expr::Identifier(name) => Ok(fold(name)),
        other => Err(SqlError::syntax(format!("a key consists of column names, not of {other}"))),
    });
    names.collect::<Result<Vec<String>>>().map(split_key)
}

/// DEFERRABLE and INITIALLY of a constraint.
pub(super) fn deferrable(
    characteristics: Option<&ast::ConstraintCharacteristics>,
) -> Result<Option<Deferrable>> {
    let Some(characteristics) = characteristics else { return Ok(None) };
    let is_deferred = characteristics.initially == Some(ast::DeferrableInitial::Deferred);
    if is_deferred && characteristics.deferrable == Some(false) {
        return Err(SqlError::syntax("constraint declared INITIALLY DEFERRED must be DEFERRABLE"));
    }
    Ok(match (is_deferred, characteristics.deferrable) {
        (true, _) => Some(Deferrable::Deferred),
        (false, Some(true)) => Some(Deferrable::Immediate),
        (false, _) => None,
    })
}

fn foreign_key(
    key: &ast::ForeignKeyConstraint,
    name: Option<String>,
    columns: Vec<String>,
) -> Result<ForeignKeyRequest> {
    let match_full = match &key.match_kind {
        None | Some(ast::ConstraintReferenceMatchKind::Simple) => false,
        Some(ast::ConstraintReferenceMatchKind::Full) => true,
        Some(kind) => return Err(SqlError::unsupported(kind)),
    };
    let action = |action: Option<ast::ReferentialAction>| match action {
        None | Some(ast::ReferentialAction::NoAction) => ReferentialAction::NoAction,
        Some(ast::ReferentialAction::Restrict) => ReferentialAction::Restrict,
        Some(ast::ReferentialAction::Cascade) => ReferentialAction::Cascade,
        Some(ast::ReferentialAction::SetNull) => ReferentialAction::SetNull,
        Some(ast::ReferentialAction::SetDefault) => ReferentialAction::SetDefault,
    };
    let deferrable = deferrable(key.characteristics.as_ref())?;
    let (referenced, on_delete_columns) = split_referenced(key.referred_columns.iter().map(fold).collect());
    Ok(ForeignKeyRequest {
        name,
        columns,
        table: Qualified::from_object_name(&key.foreign_table)?,
        referenced,
        on_delete: action(key.on_delete),
        on_delete_columns,
        on_update: action(key.on_update),
        deferrable: deferrable.is_some(),
        initially_deferred: matches!(deferrable, Some(Deferrable::Deferred)),
        match_full,
    })
}
