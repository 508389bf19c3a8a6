//! Expressions that the catalog stores as text: defaults, checks, conversions of columns.
//!
//! They are bound where they are made, so that a wrong one is refused there, and bound again by
//! whoever plans a statement with them. A row they are evaluated over has the table's columns at
//! their places.

use std::sync::Arc;

use sqlparser::ast;

use super::computed::{columns_of, name_columns_alone};
use super::names::make_up;
use crate::bind::{BindContext, Binder, Clause, NoRowCounts, NoVirtualTables, refuse_subquery};
use crate::catalog::{Catalog, Check, Column, ForeignKey, Table};
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{Expr, Typed};
use crate::function::IDENTITY_NEXTVAL;
use crate::oltp::constraint::named_key_detail;
use crate::oltp::foreign_key::References;
use crate::oltp::reference_error::{mixed_nulls, no_parent};
use crate::oltp::target::open_table;
use crate::parse::parse_expression;
use crate::session::work::Work;
use crate::types::cast::{self, CastContext};
use crate::types::{Datum, Type, TypeId};

impl Work<'_> {
    /// Calls `action` with a binder for text of the catalog or of the statement.
    pub(crate) fn bind<T>(&self, action: impl FnOnce(&mut Binder<'_>) -> Result<T>) -> Result<T> {
        let search_path = self.facts.binding_path(&self.catalog);
        self.read(|read| {
            let context = BindContext {
                catalog: &self.catalog,
                search_path: &search_path,
                eval: read.eval,
                virtual_tables: &NoVirtualTables,
                row_counts: &NoRowCounts,
                source: &"".into(),
            };
            action(&mut Binder::without_parameters(&context))
        })
    }

    /// The text a DEFAULT is stored as, once it is known to fit its column. NULL is no default at
    /// all.
    pub(crate) async fn default_text(
        &mut self,
        column: &Column,
        default: &ast::Expr,
    ) -> Result<Option<String>> {
        self.hold_named(default).await?;
        // Whether it is too long is found out where it is used, as in PostgreSQL.
        let loose = Column { ty: column.ty.parameter(), ..column.clone() };
        let bound = self.bind(|binder| bind_default(binder, &loose, default))?;
        // In the place of a domain's default it is one.
        let is_domain = column.ty.domain_oid().is_some();
        if !is_domain && matches!(bound.expr, Expr::Constant(ref value) if value.is_null()) {
            return Ok(None);
        }
        let mut default = default.clone();
        self.fix_times(&mut default, &bound.expr)?;
        self.qualify_types(&mut default)?;
        Ok(Some(self.fix_sequences(&default.to_string())?))
    }

    /// The bound default of a column, if it has one.
    pub(crate) fn bind_default(&self, table: &Table, place: usize) -> Result<Option<Expr>> {
        let column = &table.columns[place];
        let Some(text) = default_of(&self.catalog, column) else { return Ok(None) };
        let default = parse_expression(text)?;
        self.bind(|binder| bind_default(binder, column, &default)).map(|typed| Some(typed.expr))
    }

    /// 23502 or 23514 for values of columns that are not of the columns' domains.
    pub(crate) fn check_domains(&self, table: &Table, places: &[usize], row: &[Datum]) -> Result<()> {
        for &place in places {
            if let Some(check) = self.bind(|binder| binder.domain_check(table.columns[place].ty))? {
                self.read(|read| check.test(&row[place], read))?;
            }
        }
        Ok(())
    }

    /// A column's default after its type changed.
    pub(crate) fn convert_default(&self, column: &Column, default: &str, from: Type) -> Result<String> {
        let castable =
            from.id == column.ty.id || cast::find(from, column.ty, CastContext::Assignment).is_some();
        let syntax = parse_expression(default)?;
        let loose = Column { ty: column.ty.parameter(), ..column.clone() };
        if !castable || self.bind(|binder| bind_default(binder, &loose, &syntax)).is_err() {
            return Err(SqlError::new(
                sqlstate::DATATYPE_MISMATCH,
                format!(
                    "default for column \"{}\" cannot be cast automatically to type {}",
                    column.name,
                    column.ty.id.sql_name()
                ),
            ));
        }
        Ok(default.to_owned())
    }

    /// Replaces the sequence names in `nextval('...')` by oids, which renaming does not change.
    pub(super) fn fix_sequences(&self, text: &str) -> Result<String> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.to_ascii_lowercase().find("nextval('") {
            let (before, after) = rest.split_at(at + "nextval('".len());
            out.push_str(&before[..at]);
            // Whoever asks what a default depends on looks for it in these letters.
            out.push_str("nextval('");
            let end = after.find('\'').unwrap_or(after.len());
            let names = crate::identifier::split_qualified(&after[..end])?;
            let name = match names.as_slice() {
                [name] => super::names::Qualified::plain(name),
                [schema, name] => super::names::Qualified::within(schema, name),
                _ => return Err(SqlError::syntax("improper sequence name")),
            };
            if after[..end].bytes().all(|byte| byte.is_ascii_digit()) {
                out.push_str(&after[..end]);
            } else {
                out.push_str(&self.sequence(&name)?.oid.to_string());
            }
            rest = &after[end..];
        }
        out.push_str(rest);
        Ok(out)
    }

    /// The bound condition of a CHECK constraint.
    pub(crate) fn bind_check(&self, table: &Table, text: &str) -> Result<Expr> {
        let syntax = parse_expression(text)?;
        self.bind_check_syntax(table, &syntax)
    }

    fn bind_check_syntax(&self, table: &Table, syntax: &ast::Expr) -> Result<Expr> {
        self.bind(|binder| bind_check(binder, &Arc::new(table.clone()), syntax))
    }

    /// A new CHECK constraint, with a name if it was given none.
    pub(crate) async fn bind_new_check(
        &mut self,
        table: &Table,
        name: Option<String>,
        syntax: &ast::Expr,
    ) -> Result<Check> {
        self.hold_named(syntax).await?;
        let bound = self.bind_check_syntax(table, syntax)?;
        let columns = columns_of(table, syntax, &bound);
        let name = name.unwrap_or_else(|| {
            let column = match columns.as_slice() {
                [only] => table.columns[*only].name.as_str(),
                _ => "",
            };
            make_up(&table.name, column, "check", |name| self.is_constraint_taken(table, name))
        });
        let mut syntax = syntax.clone();
        self.fix_times(&mut syntax, &bound)?;
        self.qualify_types(&mut syntax)?;
        name_columns_alone(&mut syntax);
        Ok(Check {
            oid: self.allocate_oid()?,
            name,
            expression: syntax.to_string(),
            columns,
            not_valid: false,
            no_inherit: false,
            comment: None,
        })
    }

    /// 23514 if a row does not meet a constraint.
    pub(crate) fn validate_check(&mut self, table: &Table, check: &Check) -> Result<()> {
        let condition = self.bind_check(table, &check.expression)?;
        self.for_each_row(table, |work, _, row| match work.evaluate(&condition, &row)?.as_bool() {
            Some(false) => Err(SqlError::new(
                sqlstate::CHECK_VIOLATION,
                format!(
                    "check constraint \"{}\" of relation \"{}\" is violated by some row",
                    check.name, table.name
                ),
            )
            .with_table(&table.schema_name, &table.name)
            .with_constraint(&check.name)),
            _ => Ok(()),
        })
    }

    /// 23503 if a row refers to none.
    pub(crate) fn validate_foreign_key(
        &mut self,
        table: &Table,
        parent: &Table,
        key: &ForeignKey,
    ) -> Result<()> {
        self.for_each_row(table, |work, _, row| {
            let values: Vec<_> = key.columns.iter().map(|&place| row[place].clone()).collect();
            match References::of(key, &values) {
                References::Nothing => return Ok(()),
                References::Mixed => return Err(mixed_nulls(table, key)),
                References::Key if work.has_parent(table, parent, key, &values)? => return Ok(()),
                References::Key => {}
            }
            Err(no_parent(table, parent, key, &named_key_detail(table, &key.columns, &values, work.format)))
        })
    }

    /// The expression that converts a column's values to another type: USING, or an assignment.
    pub(crate) fn bind_conversion(
        &self,
        table: &Table,
        place: usize,
        ty: Type,
        using: Option<&ast::Expr>,
    ) -> Result<Expr> {
        let column = &table.columns[place];
        self.bind(|binder| {
            open_table(binder, &Arc::new(table.clone()))?;
            let (typed, with_using) = match using {
                Some(syntax) => {
                    let typed = binder.in_clause(Clause::Other("transform expressions"), |b| b.expression(syntax))?;
                    refuse_subquery(&typed.expr, "transform expression")?;
                    (typed, true)
                }
                None => (Typed::new(Expr::Slot(place), column.ty), false),
            };
            let converted = binder.coerce(typed, ty, CastContext::Assignment)?;
            let name = ty.format_with(binder.context.eval.format);
            converted.map(|typed| typed.expr).ok_or_else(|| match with_using {
                true => SqlError::new(
                    sqlstate::DATATYPE_MISMATCH,
                    format!(
                        "result of USING clause for column \"{}\" cannot be cast automatically to type {name}",
                        column.name
                    ),
                )
                .with_hint("You might need to add an explicit cast."),
                false => SqlError::new(
                    sqlstate::DATATYPE_MISMATCH,
                    format!("column \"{}\" cannot be cast automatically to type {name}", column.name),
                )
                .with_hint(format!(
                    "You might need to specify \"USING {}::{name}\".",
                    crate::identifier::quote_identifier(&column.name)
                )),
            })
        })
    }
}

/// The DEFAULT of a column, or that of its domain. A generated column has none.
pub(crate) fn default_of<'a>(catalog: &'a Catalog, column: &'a Column) -> Option<&'a str> {
    if column.generated.is_some() {
        return None;
    }
    let of_domain = || catalog.domain_by_oid(column.ty.domain_oid()?)?.default.as_deref();
    column.default.as_deref().or_else(of_domain)
}

/// Binds a DEFAULT for its column. What the column's domain asks of it is tested with the row.
pub(crate) fn bind_default(binder: &mut Binder<'_>, column: &Column, default: &ast::Expr) -> Result<Typed> {
    binder.push_level();
    let bound = binder.in_clause(Clause::Default, |binder| {
        let mut typed = binder.expression(default).map_err(|error| match error.sqlstate {
            sqlstate::UNDEFINED_COLUMN => SqlError::new(
                sqlstate::FEATURE_NOT_SUPPORTED,
                "cannot use column reference in DEFAULT expression",
            ),
            _ => error,
        })?;
        refuse_subquery(&typed.expr, "DEFAULT expression")?;
        if let (Some(_), Expr::Function(call)) = (&column.identity, &mut typed.expr) {
            call.function.function = &IDENTITY_NEXTVAL;
        }
        let from = typed.ty;
        let coerced = binder.coerce_unchecked(typed, column.ty, CastContext::Assignment)?;
        coerced.ok_or_else(|| binder.unlike_column(&column.name, column.ty, from))
    });
    binder.pop_level()?;
    bound
}

/// Binds a CHECK over a row of the table.
pub(crate) fn bind_check(binder: &mut Binder<'_>, table: &Arc<Table>, check: &ast::Expr) -> Result<Expr> {
    let names = (Clause::Check, "check constraint", "CHECK");
    binder.outside_routine(|binder| bind_condition(binder, table, check, names))
}

/// Binds the WHERE of a COPY FROM over a row of the table.
pub(crate) fn bind_copy_where(
    binder: &mut Binder<'_>,
    table: &Arc<Table>,
    condition: &ast::Expr,
) -> Result<Expr> {
    let names = (Clause::Other("COPY FROM WHERE conditions"), "COPY FROM WHERE condition", "WHERE");
    bind_condition(binder, table, condition, names)
}

/// Binds a condition over a row of the table. Messages name it so: where a subquery is refused, and
/// where it is no condition.
fn bind_condition(
    binder: &mut Binder<'_>,
    table: &Arc<Table>,
    condition: &ast::Expr,
    (clause, name, word): (Clause, &str, &str),
) -> Result<Expr> {
    open_table(binder, table)?;
    let bound = binder.in_clause(clause, |binder| {
        let typed = binder.expression(condition)?;
        refuse_subquery(&typed.expr, name)?;
        let from = typed.ty;
        let coerced = binder.coerce(typed, Type::new(TypeId::Bool), CastContext::Implicit)?;
        coerced.map(|typed| typed.expr).ok_or_else(|| {
            SqlError::new(
                sqlstate::DATATYPE_MISMATCH,
                format!("argument of {word} must be type boolean, not type {}", from.id.sql_name()),
            )
        })
    });
    binder.pop_level()?;
    bound
}
