//! Whether every node that executes a statement comes to the same: what is asked before it is ordered, and
//! again when it is its turn.
//!
//! Refused is what depends on the node, on the moment, or on the order in which rows are met: functions that
//! say something of the session or the server, system views, LIMIT without ORDER BY where something is
//! written, random numbers and sequences but in the rows of INSERT ... VALUES (others are met in an order that a
//! plan chooses), row ids of INSERT ... SELECT. Functions of time are the origin's time, random numbers come
//! from a seed that goes along. Plans are made without statistics, so they are the same at every node.
//! What a table adds by itself is looked at like the statement: defaults that it gives, and what its rows
//! have to meet, also where rows change because others do to which they refer.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use sqlparser::ast;

use super::super::facts::Facts;
use super::super::statement::tag;
use crate::bind::VirtualTables as _;
use crate::catalog::{
    Catalog, Column, Oid, ReferentialAction, Relation, Routine, TEMPORARY_ALIAS, Table, resolve_schema,
};
use crate::ddl::expression::default_of;
use crate::ddl::names;
use crate::error::{Result, SqlError, sqlstate};
use crate::function::{Kind, Volatility, all};
use crate::oltp::run::is_default;
use crate::parse::walk::{Step, Walker, has_expression, walk};
use crate::parse::{Command, Statement, changes_rows, locks_rows_within};
use crate::pg_catalog::SystemTables;

/// Functions that are the same at every node although nobody may compute them beforehand.
const FIXED: [&str; 12] = [
    "now",
    "transaction_timestamp",
    "statement_timestamp",
    "clock_timestamp",
    "current_user",
    "session_user",
    "user",
    "current_role",
    "current_database",
    "current_catalog",
    "current_schema",
    "current_schemas",
];
/// Those that are the same if they are called in the same order.
const IN_ORDER: [&str; 3] = ["random", "gen_random_uuid", "nextval"];
/// Those that say something of the session or the server.
const OF_THE_NODE: [&str; 10] = [
    "current_setting",
    "version",
    "txid_current",
    "txid_current_if_assigned",
    "getpgusername",
    "timeofday",
    "inet_client_addr",
    "inet_client_port",
    "inet_server_addr",
    "inet_server_port",
];

/// A refusal: 0A000 with what cannot be.
pub(super) fn unfit(what: impl std::fmt::Display) -> SqlError {
    SqlError::new(
        sqlstate::FEATURE_NOT_SUPPORTED,
        format!("{what} cannot be executed at every node alike (cognate.replication = active)"),
    )
    .with_hint("SET cognate.replication = auto, or certification, for this transaction.")
}

/// Whether a statement may change the database. What does not runs where it is.
pub(super) fn may_write(statement: &Statement) -> bool {
    use ast::Statement as S;
    let Command::Sql(sql) = &statement.command else {
        return matches!(
            statement.command,
            Command::CreateSequence { .. }
                | Command::AlterSequence { .. }
                | Command::AlterRelation(_)
                | Command::AlterSettings(_)
                | Command::Domain(_)
                | Command::Do { .. }
                | Command::Role(_)
                | Command::Grant(_)
                | Command::DefaultPrivileges(_)
                | Command::Owner(_)
        );
    };
    match sql.as_ref() {
        S::Query(query) => changes_rows(&query.body) || !query.locks.is_empty() || locks_rows_within(sql),
        S::Insert(_) | S::Update(_) | S::Delete(_) | S::Merge(_) | S::Call(_) | S::Copy { .. } => true,
        S::CreateTable(_) | S::CreateIndex(_) | S::CreateView(_) | S::CreateSchema { .. } => true,
        S::CreateType { .. } | S::AlterType(_) => true,
        S::AlterTable(_) | S::AlterIndex { .. } | S::AlterView { .. } | S::Drop { .. } | S::Truncate(_) => {
            true
        }
        _ => false,
    }
}

/// Whether a statement is about rows, and has a plan. Others, by themselves, run where they are given.
pub(super) fn is_about_rows(statement: &Statement) -> bool {
    use ast::Statement as S;
    let Command::Sql(sql) = &statement.command else { return false };
    matches!(
        sql.as_ref(),
        S::Query(_) | S::Insert(_) | S::Update(_) | S::Delete(_) | S::Merge(_) | S::Call(_)
    )
}

/// Whether these two make one transaction of what is between them, and say nothing else of it.
pub(super) fn is_plain_block(first: &Statement, last: &Statement) -> bool {
    use ast::Statement as S;
    let (Command::Sql(begin), Command::Sql(commit)) = (&first.command, &last.command) else { return false };
    let begins = matches!(begin.as_ref(), S::StartTransaction { modes, .. } if modes.is_empty());
    begins && first.deferrable.is_none() && matches!(commit.as_ref(), S::Commit { chain: false, .. })
}

/// 0A000 unless every node that executes the statement comes to the same.
pub(super) fn check(catalog: &Catalog, facts: &Facts, statement: &Statement) -> Result<()> {
    check_within(catalog, &facts.lookup_path(catalog), statement, &mut HashSet::new())
}

fn check_within(
    catalog: &Catalog,
    path: &[String],
    statement: &Statement,
    seen: &mut HashSet<Oid>,
) -> Result<()> {
    use ast::Statement as S;
    let Command::Sql(sql) = &statement.command else { return Err(unfit(tag(&statement.command))) };
    if locks_rows_within(sql) {
        return Err(unfit(
            "a statement in parts (a WITH query that changes rows, a subquery that locks them)",
        ));
    }
    let (writes, is_values) = match sql.as_ref() {
        S::Query(query) if matches!(*query.body, ast::SetExpr::Insert(_) | ast::SetExpr::Merge(_)) => {
            return Err(unfit(format_args!("WITH before {}", tag(&statement.command))));
        }
        S::Query(query) => (matches!(*query.body, ast::SetExpr::Update(_) | ast::SetExpr::Delete(_)), false),
        S::Insert(insert) => {
            let of = |query: &ast::Query| matches!(*query.body, ast::SetExpr::Values(_));
            (true, insert.source.as_deref().is_none_or(of))
        }
        S::Update(_) | S::Delete(_) | S::Call(_) => (true, false),
        _ => return Err(unfit(tag(&statement.command))),
    };
    let own = own_schema(catalog, path);
    let has_sequences = own.is_some_and(|own| {
        catalog.relations_in(own).any(|relation| matches!(relation, Relation::Sequence(_)))
    });
    let mut check = Check { catalog, path, writes, is_values, seen, in_function: None, has_sequences };
    match sql.as_ref() {
        S::Insert(insert) => check.inserted(insert)?,
        S::Update(update) => check.updated(update)?,
        S::Delete(delete) => check.deleted(delete)?,
        S::Query(query) => match query.body.as_ref() {
            ast::SetExpr::Update(S::Update(update)) => check.updated(update)?,
            ast::SetExpr::Delete(S::Delete(delete)) => check.deleted(delete)?,
            _ => {}
        },
        S::Call(call) => check.routines(&call.name)?,
        _ => {}
    }
    match walk(sql.as_ref(), &mut check) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(Some(refusal)) => Err(*refusal),
        ControlFlow::Break(None) => Err(SqlError::internal("a statement was refused without a reason")),
    }
}

/// The schema of the temporary objects of who searches these schemas.
fn own_schema(catalog: &Catalog, path: &[String]) -> Option<Oid> {
    catalog.schema(resolve_schema(path, TEMPORARY_ALIAS)).map(|schema| schema.oid)
}

/// Routines may call others in long chains: looks at the next one with stack enough for it.
fn on_more_stack<T>(look: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(256 << 10, 2 << 20, look)
}

struct Check<'a, 's> {
    catalog: &'a Catalog,
    path: &'a [String],
    writes: bool,
    /// The rows of an INSERT ... VALUES.
    is_values: bool,
    /// Views and routines that were looked at.
    seen: &'s mut HashSet<Oid>,
    /// The function in an expression whose body this is.
    in_function: Option<String>,
    /// The session has temporary sequences, which no other node knows.
    has_sequences: bool,
}

impl<'a> Check<'a, '_> {
    fn find(&self, name: &ast::ObjectName) -> Option<&'a Relation> {
        let (schema, name) = split(name)?;
        self.catalog.find(self.path, schema.as_deref(), &name)
    }

    /// What a CALL would run, whichever of the routines of this name it is.
    fn routines(&mut self, name: &ast::ObjectName) -> Result<()> {
        let Some((schema, name)) = split(name) else { return Ok(()) };
        for (_, routine) in self.catalog.routines_named(self.path, schema.as_deref(), &name) {
            if !self.seen.insert(routine.oid) {
                continue;
            }
            for statement in crate::routine::statements(routine)? {
                let (catalog, path) = (self.catalog, self.path);
                on_more_stack(|| check_within(catalog, path, &statement, self.seen))?;
            }
            if let ControlFlow::Break(Some(refusal)) = self.defaults(routine) {
                return Err(*refusal);
            }
        }
        Ok(())
    }

    /// What stands for arguments that a call leaves out.
    fn defaults(&mut self, routine: &Routine) -> Step {
        for default in routine.inputs().filter_map(|input| input.default.as_deref()) {
            match crate::parse::parse_expression(default) {
                Ok(expr) => walk(&expr, self)?,
                Err(error) => return ControlFlow::Break(Some(Box::new(error))),
            }
        }
        ControlFlow::Continue(())
    }

    /// A function in an expression or in FROM.
    fn called(&mut self, name: &ast::ObjectName) -> Step {
        let Some((schema, name)) = split(name) else { return ControlFlow::Continue(()) };
        match self.function(&name) {
            Ok(()) => self.own_function(schema.as_deref(), &name),
            Err(error) => ControlFlow::Break(Some(Box::new(error))),
        }
    }

    /// A function of the user's in an expression or in FROM.
    fn own_function(&mut self, schema: Option<&str>, name: &str) -> Step {
        let (catalog, path) = (self.catalog, self.path);
        for (_, routine) in catalog.routines_named(path, schema, name) {
            if !self.seen.insert(routine.oid) {
                continue;
            }
            let statements = match crate::routine::statements(routine) {
                Ok(statements) => statements,
                Err(error) => return ControlFlow::Break(Some(Box::new(error))),
            };
            let outer = self.in_function.replace(name.to_owned());
            for statement in statements {
                if let Command::Sql(sql) = &statement.command {
                    on_more_stack(|| walk(sql.as_ref(), self))?;
                }
            }
            self.defaults(routine)?;
            self.in_function = outer;
        }
        ControlFlow::Continue(())
    }

    /// What an INSERT puts rows into, and what that gives them.
    fn inserted(&mut self, insert: &ast::Insert) -> Result<()> {
        let ast::TableObject::TableName(name) = &insert.table else { return Ok(()) };
        let Some(relation) = self.find(name) else { return Ok(()) };
        // A view's columns have names of their own.
        let says = matches!(relation, Relation::Table(_))
            && insert.source.is_some()
            && !insert.columns.is_empty()
            && !has_expression(insert, is_default);
        let is_given = |column: &Column| says && insert.columns.iter().any(|name| is_of(name, column));
        self.target(relation, &is_given)?;
        for table in self.tables_under(relation) {
            for column in table.columns.iter().filter(|column| !column.dropped && !is_given(column)) {
                self.default(column)?;
            }
            self.met(table)?;
            if let Some(ast::OnInsert::OnConflict(on)) = &insert.on
                && let ast::OnConflictAction::DoUpdate(update) = &on.action
            {
                let is_table = matches!(relation, Relation::Table(_));
                let changed = changed_places(table, &update.assignments, is_table);
                self.referring(table, Some(&changed), &mut HashSet::new())?;
            }
        }
        Ok(())
    }

    /// What rows of INSERT ... SELECT go into.
    fn target(&self, relation: &Relation, is_given: &dyn Fn(&Column) -> bool) -> Result<()> {
        if self.is_values {
            return Ok(());
        }
        let table = match relation {
            Relation::Table(table) => table,
            Relation::View(view) => {
                return Err(unfit(format_args!("INSERT ... SELECT into view \"{}\"", view.name)));
            }
            _ => return Ok(()),
        };
        if table.primary_key().is_none() {
            return Err(unfit(format_args!(
                "INSERT ... SELECT into table \"{}\", which has no primary key",
                table.name
            )));
        }
        let mut left_out = table.columns.iter().filter(|column| !column.dropped && !is_given(column));
        let default = left_out.find(|column| {
            let text = default_of(self.catalog, column).unwrap_or_default().to_ascii_lowercase();
            IN_ORDER.iter().any(|name| text.contains(&format!("{name}(")))
        });
        default.map_or(Ok(()), |column| {
            Err(unfit(format_args!(
                "INSERT ... SELECT into table \"{}\", whose column \"{}\" has a default that counts or is random",
                table.name, column.name
            )))
        })
    }

    /// What an UPDATE puts into rows by itself.
    fn updated(&mut self, update: &ast::Update) -> Result<()> {
        let ast::TableFactor::Table { name, .. } = &update.table.relation else { return Ok(()) };
        let Some(relation) = self.find(name) else { return Ok(()) };
        let is_table = matches!(relation, Relation::Table(_));
        let by_default: Vec<&ast::AssignmentTarget> = update
            .assignments
            .iter()
            .filter(|assignment| has_expression(&assignment.value, is_default))
            .map(|assignment| &assignment.target)
            .collect();
        for table in self.tables_under(relation) {
            let gets_it = |column: &&Column| {
                let mut targets = by_default.iter();
                !column.dropped && targets.any(|target| !is_table || assigns(target, column))
            };
            for column in table.columns.iter().filter(gets_it) {
                self.default(column)?;
            }
            self.met(table)?;
            let changed = changed_places(table, &update.assignments, is_table);
            self.referring(table, Some(&changed), &mut HashSet::new())?;
        }
        Ok(())
    }

    /// What goes with the rows of a DELETE.
    fn deleted(&mut self, delete: &ast::Delete) -> Result<()> {
        let ast::FromTable::WithFromKeyword(from) = &delete.from else { return Ok(()) };
        let Some(ast::TableFactor::Table { name, .. }) = from.first().map(|from| &from.relation) else {
            return Ok(());
        };
        let Some(relation) = self.find(name) else { return Ok(()) };
        self.tables_under(relation)
            .into_iter()
            .try_for_each(|table| self.referring(table, None, &mut HashSet::new()))
    }

    /// What is put into rows that refer to those of a table, whose columns at these places change, or which
    /// go. `seen` has the foreign keys that were looked at, and whether for rows that go.
    fn referring(
        &mut self,
        table: &Table,
        changed: Option<&[usize]>,
        seen: &mut HashSet<(Oid, bool)>,
    ) -> Result<()> {
        let catalog = self.catalog;
        for reference in &table.referenced_by {
            let Some(child) = catalog.table_by_oid(reference.table) else { continue };
            let Some(key) = child.foreign_keys.iter().find(|key| key.oid == reference.constraint) else {
                continue;
            };
            let is_met = |changed| key.referenced_columns.iter().any(|&at| table.changes_with(at, changed));
            if !changed.is_none_or(is_met) || !seen.insert((key.oid, changed.is_none())) {
                continue;
            }
            let action = if changed.is_none() { key.on_delete } else { key.on_update };
            match action {
                ReferentialAction::NoAction | ReferentialAction::Restrict => continue,
                ReferentialAction::Cascade if changed.is_none() => {
                    on_more_stack(|| self.referring(child, None, seen))?;
                    continue;
                }
                ReferentialAction::SetDefault => {
                    for &place in &key.columns {
                        self.default(&child.columns[place])?;
                    }
                }
                ReferentialAction::Cascade | ReferentialAction::SetNull => {}
            }
            self.met(child)?;
            on_more_stack(|| self.referring(child, Some(&key.columns), seen))?;
        }
        Ok(())
    }

    /// The table of this name, or those that a view is over: one of them is changed through it.
    fn tables_under(&self, relation: &'a Relation) -> Vec<&'a Arc<Table>> {
        match relation {
            Relation::Table(table) => vec![table],
            Relation::View(view) => {
                let catalog = self.catalog;
                let under = view.depends_on.iter().filter_map(|oid| catalog.relation_by_oid(*oid));
                under.flat_map(|relation| self.tables_under(relation)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// What a column has by default.
    fn default(&mut self, column: &Column) -> Result<()> {
        match default_of(self.catalog, column) {
            Some(text) => self.stored(text),
            None => Ok(()),
        }
    }

    /// What the rows of a table have to meet.
    fn met(&mut self, table: &Table) -> Result<()> {
        for check in &table.checks {
            self.stored(&check.expression)?;
        }
        let catalog = self.catalog;
        for column in table.columns.iter().filter(|column| !column.dropped) {
            let mut next = column.ty.domain_named();
            while let Some(domain) = next.and_then(|oid| catalog.domain_by_oid(oid)) {
                for check in &domain.checks {
                    self.stored(&check.expression)?;
                }
                next = domain.base.domain_named();
            }
        }
        Ok(())
    }

    /// An expression of the catalog. A sequence that it names is no temporary one.
    fn stored(&mut self, text: &str) -> Result<()> {
        let expression = crate::parse::parse_expression(text)?;
        let had_sequences = std::mem::take(&mut self.has_sequences);
        let step = walk(&expression, self);
        self.has_sequences = had_sequences;
        match step {
            ControlFlow::Break(Some(refusal)) => Err(*refusal),
            _ => Ok(()),
        }
    }

    fn function(&self, name: &str) -> Result<()> {
        if FIXED.contains(&name) {
            return Ok(());
        }
        if name == "nextval" && self.has_sequences {
            return Err(unfit("nextval() in a session that has temporary sequences"));
        }
        if IN_ORDER.contains(&name) {
            return match self.is_values {
                true => Ok(()),
                false => Err(unfit(format_args!("{name}() outside INSERT ... VALUES"))),
            };
        }
        let is_of_the_node = OF_THE_NODE.contains(&name)
            || name.starts_with("cognate_")
            || (name.starts_with("pg_") && name != "pg_typeof");
        let is_volatile = all().any(|function| {
            function.name == name
                && function.kind() == Kind::Scalar
                && function.volatility == Volatility::Volatile
        });
        match is_of_the_node || is_volatile {
            true => Err(unfit(format_args!("function {name}()"))),
            false => Ok(()),
        }
    }
}

/// Whether a name in a statement is that of a column.
fn is_of(name: &ast::ObjectName, column: &Column) -> bool {
    split(name).is_some_and(|(_, name)| name == column.name)
}

/// The places of a table's columns that are assigned to; all of them through a view, whose columns have names
/// of their own.
fn changed_places(table: &Table, assignments: &[ast::Assignment], is_table: bool) -> Vec<usize> {
    let is_changed = |column: &Column| assignments.iter().any(|one| assigns(&one.target, column));
    let places = 0..table.columns.len();
    places.filter(|&place| !is_table || is_changed(&table.columns[place])).collect()
}

/// Whether a column is assigned to.
fn assigns(target: &ast::AssignmentTarget, column: &Column) -> bool {
    match target {
        ast::AssignmentTarget::ColumnName(name) => is_of(name, column),
        ast::AssignmentTarget::Tuple(all) => all.iter().any(|name| is_of(name, column)),
    }
}

/// Schema and name, as they are looked up.
fn split(name: &ast::ObjectName) -> Option<(Option<String>, String)> {
    let parts: Vec<String> = name.0.iter().filter_map(|part| part.as_ident()).map(names::fold).collect();
    match parts.as_slice() {
        [name] => Some((None, name.clone())),
        [.., schema, name] => Some((Some(schema.clone()), name.clone())),
        [] => None,
    }
}

impl Walker for Check<'_, '_> {
    fn relation(&mut self, relation: &ast::ObjectName) -> Step {
        let refuse = |error: SqlError| ControlFlow::Break(Some(Box::new(error)));
        let Some((schema, name)) = split(relation) else { return ControlFlow::Continue(()) };
        // A function in FROM comes as a relation, too.
        let is_relation =
            self.find(relation).is_some() || SystemTables.find(schema.as_deref(), &name).is_some();
        if let (true, Some(function)) = (is_relation, &self.in_function) {
            return refuse(unfit(format_args!(
                "function {function}(), which reads \"{name}\", in an expression"
            )));
        }
        match self.find(relation) {
            Some(found) if found.is_temporary() => {
                refuse(unfit(format_args!("temporary {} \"{}\"", found.kind(), found.name())))
            }
            Some(Relation::View(view)) => {
                if !self.seen.insert(view.oid) {
                    return ControlFlow::Continue(());
                }
                let parsed = match crate::parse::parse(&view.query) {
                    Ok(parsed) => parsed,
                    Err(error) => return refuse(error),
                };
                for statement in parsed {
                    if let Command::Sql(sql) = &statement.command {
                        walk(sql.as_ref(), self)?;
                    }
                }
                ControlFlow::Continue(())
            }
            Some(_) => ControlFlow::Continue(()),
            None if SystemTables.find(schema.as_deref(), &name).is_some() => {
                refuse(unfit(format_args!("system view \"{name}\"")))
            }
            None => ControlFlow::Continue(()),
        }
    }

    fn table_factor(&mut self, factor: &ast::TableFactor) -> Step {
        let called = match factor {
            ast::TableFactor::Table { name, args: Some(_), .. } => name,
            // Nodes have values in advance, each its own.
            ast::TableFactor::Table { name, args: None, .. } => match self.find(name) {
                Some(Relation::Sequence(sequence)) => {
                    let error = unfit(format_args!("sequence \"{}\" read as a table", sequence.name));
                    return ControlFlow::Break(Some(Box::new(error)));
                }
                _ => return ControlFlow::Continue(()),
            },
            ast::TableFactor::Function { name, .. } => name,
            _ => return ControlFlow::Continue(()),
        };
        self.called(called)
    }

    fn expression(&mut self, expr: &ast::Expr) -> Step {
        match expr {
            ast::Expr::Function(call) => self.called(&call.name),
            _ => ControlFlow::Continue(()),
        }
    }

    fn query(&mut self, query: &ast::Query) -> Step {
        let is_cut = query.limit_clause.is_some() || query.fetch.is_some();
        if self.writes && is_cut && query.order_by.is_none() {
            return ControlFlow::Break(Some(Box::new(unfit(
                "LIMIT without ORDER BY in a statement that writes",
            ))));
        }
        ControlFlow::Continue(())
    }
}
