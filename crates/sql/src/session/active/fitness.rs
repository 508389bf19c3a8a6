//! Whether every node that executes a statement comes to the same: what is asked before it is
//! ordered, and again when it is its turn.
//!
//! Refused is what depends on the node, on the moment, or on the order in which rows are met:
//! functions that say something of the session or the server, system views, LIMIT without ORDER BY
//! where something is written, random numbers and sequences but in the rows of INSERT ... VALUES
//! (others are met in an order that a plan chooses), row ids of INSERT ... SELECT, and functions of
//! floating-point numbers that nodes may round otherwise ([`rounded`]). Functions of time are the
//! origin's time, random numbers come from a seed that goes along. Plans are made without
//! statistics, so they are the same at every node. What a table adds by itself is looked at like
//! the statement ([`targets`]): defaults that it gives, what its rows have to meet, and what is
//! computed of them, also where rows change because others do to which they refer. So is what
//! values of domains have to meet. What was ordered before a rule was made is not refused for it
//! ([`RULES`]). A function that is the whole statement, and does more than one
//! SELECT, is looked at like a procedure.

mod rounded;
mod targets;

use std::collections::HashSet;
use std::ops::ControlFlow;

use cognate_syntax::{Step, Walker, walk};
use sqlparser::ast;

use super::super::facts::Facts;
use super::super::statement::tag;
use super::program::RULES;
use crate::bind::{VirtualTables as _, alone, custom_name};
use crate::catalog::{
    Behavior, Catalog, Oid, Relation, Routine, RoutineKind, TEMPORARY_ALIAS, UserType, View, is_temporary,
    resolve_schema,
};
use crate::error::{Result, SqlError, sqlstate};
use crate::function::{Kind, Volatility, all};
use crate::identifier::fold;
use crate::parse::{Command, Statement, changes_rows, current_of, locks_rows_within};
use crate::pg_catalog::SystemTables;
use crate::routine::is_single_select;
use crate::types::Type;

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
const IN_ORDER: [&str; 5] = ["random", "gen_random_uuid", "uuid_generate_v4", "gen_random_bytes", "nextval"];
/// Those that say something of the session or the server.
const OF_THE_NODE: [&str; 11] = [
    "current_setting",
    "version",
    "txid_current",
    "txid_current_if_assigned",
    "txid_current_snapshot",
    "getpgusername",
    "timeofday",
    "inet_client_addr",
    "inet_client_port",
    "inet_server_addr",
    "inet_server_port",
];

/// From these rules on functions are refused whose last digit is up to the node.
const ROUNDING_SINCE: u32 = 1;

/// The rules that hold: those of the program that is executed, else those of now.
fn rules(facts: &Facts) -> u32 {
    facts.fixed().map_or(RULES, |fixed| fixed.rules)
}

/// Whether they are those of now.
pub(in crate::session) fn is_under_rules_of_now(facts: &Facts) -> bool {
    rules(facts) == RULES
}

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
                | Command::CreateSchema(_)
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
        S::CreateType { .. } | S::AlterType(_) | S::CreateExtension(_) | S::DropExtension(_) => true,
        S::AlterTable(_) | S::AlterIndex { .. } | S::AlterView { .. } | S::Drop { .. } | S::Truncate(_) => {
            true
        }
        _ => false,
    }
}

/// Whether a statement is about rows, and has a plan. Others, by themselves, run where they are
/// given.
pub(super) fn is_about_rows(statement: &Statement) -> bool {
    use ast::Statement as S;
    let Command::Sql(sql) = &statement.command else { return false };
    matches!(
        sql.as_ref(),
        S::Query(_) | S::Insert(_) | S::Update(_) | S::Delete(_) | S::Merge(_) | S::Call(_)
    )
}

/// Whether it is a COMMIT that says nothing else.
pub(super) fn is_plain_commit(statement: &Statement) -> bool {
    use ast::Statement as S;
    let Command::Sql(sql) = &statement.command else { return false };
    matches!(sql.as_ref(), S::Commit { chain: false, .. })
}

/// 0A000 unless every node that executes the statement comes to the same.
pub(in crate::session) fn check(catalog: &Catalog, facts: &Facts, statement: &Statement) -> Result<()> {
    let path = facts.lookup_path(catalog);
    check_within(catalog, (&path, rules(facts)), statement, &mut HashSet::new())
}

/// 0A000 unless that holds for what values of parameters have to meet: those that are declared to
/// be of domains.
pub(in crate::session) fn check_parameters(
    catalog: &Catalog,
    facts: &Facts,
    types: &[Option<Type>],
) -> Result<()> {
    let mut domains = types.iter().flatten().filter_map(|ty| ty.domain_named()).peekable();
    if domains.peek().is_none() {
        return Ok(());
    }
    let (path, mut seen) = (facts.lookup_path(catalog), HashSet::new());
    let (writes, is_values, in_function, has_sequences, refusal) = (true, false, None, false, None);
    let (path, seen, rules) = (&path, &mut seen, rules(facts));
    let mut check = Check {
        catalog,
        path,
        view: None,
        rules,
        writes,
        is_values,
        seen,
        in_function,
        has_sequences,
        refusal,
    };
    domains.try_for_each(|domain| check.domain(Some(domain)))
}

/// What was looked at, and as part of what: in a statement that writes, in the rows of INSERT ...
/// VALUES, in the body of a function in an expression. Elsewhere the same may be refused.
type Look = (Oid, bool, bool, bool);

fn check_within(
    catalog: &Catalog,
    (path, rules): (&[String], u32),
    statement: &Statement,
    seen: &mut HashSet<Look>,
) -> Result<()> {
    use ast::Statement as S;
    let Command::Sql(sql) = &statement.command else { return Err(unfit(tag(&statement.command))) };
    if is_about_rows(statement) && locks_rows_within(sql) {
        return Err(unfit(
            "a statement in parts (a WITH query that changes rows, a subquery that locks them)",
        ));
    }
    if is_at_cursor(sql) {
        return Err(unfit("WHERE CURRENT OF"));
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
    let refusal = None;
    let has_sequences = own.is_some_and(|own| {
        catalog.relations_in(own).any(|relation| matches!(relation, Relation::Sequence(_)))
    });
    let in_function = None;
    let mut check = Check {
        catalog,
        path,
        view: None,
        rules,
        writes,
        is_values,
        seen,
        in_function,
        has_sequences,
        refusal,
    };
    match sql.as_ref() {
        S::Insert(insert) => check.inserted(insert)?,
        S::Update(update) => check.updated(update)?,
        S::Delete(delete) => check.deleted(delete)?,
        S::Query(query) => match query.body.as_ref() {
            ast::SetExpr::Update(S::Update(update)) => check.updated(update)?,
            ast::SetExpr::Delete(S::Delete(delete)) => check.deleted(delete)?,
            _ => {
                if let Some((function, _)) = called_alone(catalog, path, query)? {
                    check.routines(function)?;
                }
            }
        },
        S::Call(call) => check.routines(&call.name)?,
        _ => {}
    }
    let step = walk(sql.as_ref(), &mut check);
    check.outcome(step)
}

/// Whether a statement is about the row at which a cursor stands: no other node has the cursor.
fn is_at_cursor(sql: &ast::Statement) -> bool {
    let condition = match sql {
        ast::Statement::Update(update) => &update.selection,
        ast::Statement::Delete(delete) => &delete.selection,
        _ => return false,
    };
    condition.as_ref().and_then(current_of).is_some()
}

/// Whether a statement is the call of a function that may change the database, and nothing else.
pub(super) fn is_writing_call(catalog: &Catalog, facts: &Facts, statement: &Statement) -> bool {
    let Command::Sql(sql) = &statement.command else { return false };
    let ast::Statement::Query(query) = sql.as_ref() else { return false };
    let called = called_alone(catalog, &facts.lookup_path(catalog), query);
    matches!(called, Ok(Some((_, true))))
}

/// The function that a query calls, if it is nothing else, and does more than one SELECT; and
/// whether that may change the database.
fn called_alone<'q>(
    catalog: &Catalog,
    path: &[String],
    query: &'q ast::Query,
) -> Result<Option<(&'q ast::ObjectName, bool)>> {
    let Some((called, ..)) = alone(query) else { return Ok(None) };
    let Some((schema, name)) = split(called) else { return Ok(None) };
    let (mut does_more, mut writes) = (false, false);
    for (_, routine) in catalog.routines_named(path, schema.as_deref(), &name) {
        if routine.kind == RoutineKind::Function && !is_single_select(&crate::routine::statements(routine)?) {
            does_more = true;
            writes |= routine.behavior == Behavior::Volatile;
        }
    }
    Ok(does_more.then_some((called, writes)))
}

/// 0A000 for a routine of one session's, which no other node finds by its name.
fn check_is_known(routine: &Routine) -> Result<()> {
    match is_temporary(&routine.schema_name) {
        true => Err(unfit(format_args!("temporary {} \"{}\"", routine.kind.noun(), routine.name))),
        false => Ok(()),
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
    /// The view whose text this is.
    view: Option<&'a View>,
    rules: u32,
    writes: bool,
    /// The rows of an INSERT ... VALUES.
    is_values: bool,
    /// Views, routines and domains that were looked at.
    seen: &'s mut HashSet<Look>,
    /// The function in an expression whose body this is.
    in_function: Option<String>,
    /// The session has temporary sequences, which no other node knows.
    has_sequences: bool,
    /// Why the walk has ended.
    refusal: Option<SqlError>,
}

impl<'a> Check<'a, '_> {
    /// Notes that something is looked at, if that was not done before as part of the same.
    fn is_new(&mut self, oid: Oid) -> bool {
        self.seen.insert((oid, self.writes, self.is_values, self.in_function.is_some()))
    }

    fn find(&self, name: &ast::ObjectName) -> Option<&'a Relation> {
        let (schema, name) = split(name)?;
        match self.view {
            Some(view) => view.relation(self.catalog, schema.as_deref(), &name),
            None => self.catalog.find(self.path, schema.as_deref(), &name),
        }
    }

    /// What a CALL would run, whichever of the routines of this name it is.
    fn routines(&mut self, name: &ast::ObjectName) -> Result<()> {
        let Some((schema, name)) = split(name) else { return Ok(()) };
        for (_, routine) in self.catalog.routines_named(self.path, schema.as_deref(), &name) {
            check_is_known(routine)?;
            if !self.is_new(routine.oid) {
                continue;
            }
            for statement in crate::routine::statements(routine)? {
                let (catalog, told) = (self.catalog, (self.path, self.rules));
                on_more_stack(|| check_within(catalog, told, &statement, self.seen))?;
            }
            let step = self.defaults(routine);
            self.outcome(step)?;
        }
        Ok(())
    }

    /// Ends a walk with this error.
    fn refuse(&mut self, error: SqlError) -> Step {
        self.refusal = Some(error);
        ControlFlow::Break(())
    }

    /// What came of a walk.
    fn outcome(&mut self, step: Step) -> Result<()> {
        match (step, self.refusal.take()) {
            (ControlFlow::Continue(()), _) => Ok(()),
            (ControlFlow::Break(()), Some(refusal)) => Err(refusal),
            (ControlFlow::Break(()), None) => {
                Err(SqlError::internal("a statement was refused without a reason"))
            }
        }
    }

    /// Whether functions are refused whose last digit is up to the node.
    fn refuses_rounding(&self) -> bool {
        self.rules >= ROUNDING_SINCE
    }

    /// What stands for arguments that a call leaves out, and what its values have to meet.
    fn defaults(&mut self, routine: &Routine) -> Step {
        for input in routine.inputs() {
            if let Err(error) = self.domain(input.ty.domain_named()) {
                return self.refuse(error);
            }
            match input.default.as_deref().map(crate::parse::parse_expression) {
                Some(Ok(expr)) => walk(&expr, self)?,
                Some(Err(error)) => return self.refuse(error),
                None => {}
            }
        }
        match self.domain(routine.result.domain_named()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => self.refuse(error),
        }
    }

    /// What values of a type have to meet that an expression names.
    fn named_type(&mut self, data_type: &ast::DataType) -> Step {
        let mut data_type = data_type.clone();
        let name = custom_name(&mut data_type).and_then(|name| split(name));
        let Some((schema, name)) = name else { return ControlFlow::Continue(()) };
        let oid = match self.catalog.user_type(self.path, schema.as_deref(), &name) {
            Some(UserType::Domain(domain)) => domain.oid,
            _ => return ControlFlow::Continue(()),
        };
        match self.domain(Some(oid)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => self.refuse(error),
        }
    }

    /// A function in an expression or in FROM.
    fn called(&mut self, name: &ast::ObjectName) -> Step {
        let Some((schema, name)) = split(name) else { return ControlFlow::Continue(()) };
        if self.refuses_rounding() && rounded::is_function(schema.as_deref(), &name) {
            return self.refuse(unfit(format_args!("function {name}()")));
        }
        match self.function(&name) {
            Ok(()) => self.own_function(schema.as_deref(), &name),
            Err(error) => self.refuse(error),
        }
    }

    /// A function of the user's in an expression or in FROM.
    fn own_function(&mut self, schema: Option<&str>, name: &str) -> Step {
        let (catalog, path) = (self.catalog, self.path);
        for (_, routine) in catalog.routines_named(path, schema, name) {
            if !self.is_new(routine.oid) {
                continue;
            }
            let known = check_is_known(routine);
            let statements = match known.and_then(|()| crate::routine::statements(routine)) {
                Ok(statements) => statements,
                Err(error) => return self.refuse(error),
            };
            let outer = self.in_function.replace(name.to_owned());
            let view = self.view.take();
            for statement in statements {
                if let Command::Sql(sql) = &statement.command {
                    on_more_stack(|| walk(sql.as_ref(), self))?;
                }
            }
            self.defaults(routine)?;
            (self.in_function, self.view) = (outer, view);
        }
        ControlFlow::Continue(())
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

/// Schema and name, as they are looked up.
fn split(name: &ast::ObjectName) -> Option<(Option<String>, String)> {
    let parts: Vec<String> = name.0.iter().filter_map(|part| part.as_ident()).map(fold).collect();
    match parts.as_slice() {
        [name] => Some((None, name.clone())),
        [.., schema, name] => Some((Some(schema.clone()), name.clone())),
        [] => None,
    }
}

impl Walker for Check<'_, '_> {
    fn relation(&mut self, relation: &ast::ObjectName) -> Step {
        let Some((schema, name)) = split(relation) else { return ControlFlow::Continue(()) };
        // A function in FROM comes as a relation, too.
        let is_relation =
            self.find(relation).is_some() || SystemTables.find(schema.as_deref(), &name).is_some();
        if let (true, Some(function)) = (is_relation, &self.in_function) {
            return self.refuse(unfit(format_args!(
                "function {function}(), which reads \"{name}\", in an expression"
            )));
        }
        match self.find(relation) {
            Some(found) if found.is_temporary() => {
                self.refuse(unfit(format_args!("temporary {} \"{}\"", found.kind(), found.name())))
            }
            Some(Relation::View(view)) => {
                if !self.is_new(view.oid) {
                    return ControlFlow::Continue(());
                }
                let parsed = match crate::parse::parse(&view.query) {
                    Ok(parsed) => parsed,
                    Err(error) => return self.refuse(error),
                };
                // Its names are looked up where it was made.
                let outer = std::mem::replace(&mut self.path, view.search_path.as_slice());
                let around = self.view.replace(view);
                let step = parsed.iter().try_for_each(|statement| match &statement.command {
                    Command::Sql(sql) => walk(sql.as_ref(), self),
                    _ => ControlFlow::Continue(()),
                });
                (self.path, self.view) = (outer, around);
                step
            }
            Some(_) => ControlFlow::Continue(()),
            None if SystemTables.find(schema.as_deref(), &name).is_some() => {
                self.refuse(unfit(format_args!("system view \"{name}\"")))
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
                    return self.refuse(error);
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
            ast::Expr::Cast { data_type, .. } => self.named_type(data_type),
            ast::Expr::TypedString(literal) => self.named_type(&literal.data_type),
            _ => match rounded::operator(expr).filter(|_| self.refuses_rounding()) {
                Some(operator) => self.refuse(unfit(format_args!("operator {operator}"))),
                None => ControlFlow::Continue(()),
            },
        }
    }

    fn query(&mut self, query: &ast::Query) -> Step {
        let skips = |lock: &ast::LockClause| matches!(lock.nonblock, Some(ast::NonBlock::SkipLocked));
        if query.locks.iter().any(skips) {
            return self.refuse(unfit("SKIP LOCKED"));
        }
        let is_cut = query.limit_clause.is_some() || query.fetch.is_some();
        if self.writes && is_cut && query.order_by.is_none() {
            return self.refuse(unfit("LIMIT without ORDER BY in a statement that writes"));
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use cognate_engine::{Access, Database, Isolation, Options};
    use cognate_env::sim::SimDisk;

    use super::super::Fixed;
    use super::*;
    use crate::session::{Session, SessionParameters, SqlDatabase};

    /// A start executes once more what an earlier build has ordered, and other nodes may not.
    #[test]
    fn what_was_ordered_under_earlier_rules_is_not_refused_by_later_ones() {
        let options = Options { disk: SimDisk::new(1).handle(), ..Options::new("data") };
        let engine = Database::open(options).unwrap();
        let database = SqlDatabase::open(engine.clone()).unwrap();
        let checked = |text: &str, rules: Option<u32>| {
            let session = Session::new(database.clone(), SessionParameters::default()).unwrap();
            if let Some(rules) = rules {
                let stored = engine.begin(Isolation::Snapshot, Access::ReadOnly).view();
                session.facts.fix(Fixed::new(0, engine.clone(), stored).under(rules));
            }
            let statement = crate::parse::parse_single(text).unwrap().unwrap();
            check(&database.catalog(), &session.facts, &statement).map_err(|error| error.sqlstate)
        };
        let refused = Err(sqlstate::FEATURE_NOT_SUPPORTED);
        for text in ["DELETE FROM t WHERE ln(x) > 1", "DELETE FROM t WHERE x ^ 0.5 > 1"] {
            assert_eq!(checked(text, Some(0)), Ok(()), "{text}");
            assert_eq!(checked(text, Some(RULES)), refused, "{text}");
            assert_eq!(checked(text, None), refused, "{text}");
        }
        let of_the_node = "DELETE FROM t WHERE id = pg_backend_pid()";
        assert_eq!(checked(of_the_node, Some(0)), refused, "it always was");
    }
}
