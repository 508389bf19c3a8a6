//! Queries: SELECT, VALUES, parentheses, LIMIT, row locks.

use std::ops::Range;

use cognate_engine::LockMode;
use sqlparser::ast::{
    self, Distinct as DistinctSyntax, Expr as Syntax, LockClause, LockType, NonBlock, OrderBy, OrderByExpr,
    OrderByKind, Query as QuerySyntax, Select as SelectSyntax, SelectItem, SelectItemQualifiedWildcardKind,
    SetExpr, WildcardAdditionalOptions,
};

use super::around::{postpone_calls, wrap};
use super::group::has_grouping_sets;
use super::literal;
use super::naming::figure_name;
use super::scope::{NamedColumn, NamedTable, name_parts, object_name};
use super::{Binder, Body, Clause, Distinct, Level, LockWait, Query, RowLock, Select, SlotPart, Source};
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{Expr, Typed};
use crate::parse::{KEY_MARK, Reader, Run, marked, selects_into};
use crate::session::OutputColumn;
use crate::types::{Type, TypeId};

/// Rows bound between two questions whether to stop.
const ROWS_UNASKED: usize = 256;

/// Most entries of a select list.
const MOST_TARGETS: usize = 1664;

/// The sort expressions of an ORDER BY.
pub(super) fn order_items(order: Option<&OrderBy>) -> Result<&[OrderByExpr]> {
    match order.map(|order| &order.kind) {
        None => Ok(&[]),
        Some(OrderByKind::Expressions(items)) => Ok(items),
        Some(OrderByKind::All(_)) => Err(SqlError::syntax("syntax error at or near \"ALL\"")),
    }
}

impl Binder<'_> {
    /// Binds a query. Its untyped columns become text unless `keep_unknown`.
    pub fn query(&mut self, syntax: &QuerySyntax, keep_unknown: bool) -> Result<Query> {
        stacker::maybe_grow(256 * 1024, 4 * 1024 * 1024, || match &syntax.with {
            Some(with) => self.with_ctes(with, |binder| binder.query_without_with(syntax, keep_unknown)),
            None => self.query_without_with(syntax, keep_unknown),
        })
    }

    /// Binds a query whose WITH is in sight already.
    pub(crate) fn query_without_with(&mut self, syntax: &QuerySyntax, keep_unknown: bool) -> Result<Query> {
        if syntax.for_clause.is_some()
            || syntax.settings.is_some()
            || syntax.format_clause.is_some()
            || !syntax.pipe_operators.is_empty()
        {
            return Err(SqlError::syntax("syntax error: a clause of another dialect"));
        }
        let order = order_items(syntax.order_by.as_ref())?;
        let mut query = match unwrapped(&syntax.body) {
            SetExpr::Select(select) => self.select(select, order, &syntax.locks, keep_unknown)?,
            body => {
                if !syntax.locks.is_empty() && !matches!(body, SetExpr::Query(_)) {
                    let what =
                        if matches!(body, SetExpr::Values(_)) { "VALUES" } else { "UNION/INTERSECT/EXCEPT" };
                    return Err(lock_not_allowed(&syntax.locks[0], &format!("with {what}")));
                }
                let mut query = self.set_expr(body, keep_unknown)?;
                if let (SetExpr::Query(_), Some(lock)) = (body, syntax.locks.first()) {
                    return Err(self.lacks(format!("{lock} outside parentheses")));
                }
                if (!order.is_empty() || syntax.limit_clause.is_some() || syntax.fetch.is_some())
                    && (!query.order.is_empty() || query.limit.is_some() || query.offset.is_some())
                {
                    query = wrap(query);
                }
                self.order_of_outputs(&mut query, order)?;
                query
            }
        };
        let (limit, offset) = self.limits(syntax)?;
        if limit.is_some() {
            query.limit = limit;
        }
        if offset.is_some() {
            query.offset = offset;
        }
        if syntax.fetch.as_ref().is_some_and(|fetch| fetch.with_ties) {
            self.check_ties(&query, &syntax.locks)?;
            query.ties = true;
        }
        Ok(postpone_calls(query))
    }

    /// The body of a query.
    pub(super) fn set_expr(&mut self, body: &SetExpr, keep_unknown: bool) -> Result<Query> {
        match body {
            SetExpr::Select(select) => self.select(select, &[], &[], keep_unknown),
            SetExpr::Query(query) => self.query(query, keep_unknown),
            SetExpr::SetOperation { right, .. } if selects_into(right) => {
                let message = "INTO is only allowed on first SELECT of UNION/INTERSECT/EXCEPT";
                Err(SqlError::syntax(message))
            }
            SetExpr::SetOperation { op, set_quantifier, left, right } => {
                self.set_operation(*op, *set_quantifier, left, right, keep_unknown)
            }
            SetExpr::Values(values) => {
                let rows: Vec<&Vec<Syntax>> = values.rows.iter().map(|row| &row.content).collect();
                self.values(&rows, keep_unknown)
            }
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => {
                Err(self.lacks("a data-modifying statement within a query"))
            }
            SetExpr::Table(_) => Err(SqlError::syntax("syntax error at or near \"TABLE\"")),
        }
    }

    fn values(&mut self, rows: &[&Vec<Syntax>], keep_unknown: bool) -> Result<Query> {
        let width = rows.first().map_or(0, |row| row.len());
        if rows.iter().any(|row| marked(row).map_or(row.len(), |run| run.width) != width) {
            return Err(SqlError::syntax("VALUES lists must all be the same length"));
        }
        self.push_level();
        let bound = self.in_clause(Clause::Values, |binder| {
            let mut bound = Vec::with_capacity(rows.len());
            for row in rows {
                match marked(row) {
                    Some(run) => binder.literal_rows(run, &mut bound)?,
                    None => {
                        let row = row.iter().map(|item| binder.expression(item));
                        bound.push(row.collect::<Result<Vec<_>>>()?);
                    }
                }
            }
            Ok(bound)
        });
        self.pop_level()?;
        let mut bound = bound?;
        let mut columns = vec![];
        for i in 0..width {
            let types: Vec<Type> = bound.iter().map(|row| row[i].ty).collect();
            let all_unknown = types.iter().all(|ty| ty.id == TypeId::Unknown);
            let ty = if all_unknown && keep_unknown {
                TypeId::Unknown.into()
            } else {
                self.common(&types, "VALUES")?
            };
            for row in &mut bound {
                let item = std::mem::replace(&mut row[i], Typed::new(Expr::NULL, ty));
                row[i] = self.convert(item, ty)?;
            }
            columns.push(output_column(format!("column{}", i + 1), ty));
        }
        let rows = bound.into_iter().map(|row| row.into_iter().map(|item| item.expr).collect()).collect();
        Ok(Query::of(Body::Values(rows), columns))
    }

    /// Binds rows that stayed text until now.
    fn literal_rows(&self, run: Run, into: &mut Vec<Vec<Typed>>) -> Result<()> {
        let bytes = run.rows * (size_of::<Vec<Typed>>() + 16 + run.width * 2 * size_of::<Typed>());
        self.context.eval.check_size(bytes + run.end - run.start)?;
        let (mut reader, mut row) = (Reader::new(self.context.source, run), Vec::new());
        into.reserve_exact(run.rows);
        while reader.next_row(&mut row) {
            if into.len().is_multiple_of(ROWS_UNASKED) {
                self.context.eval.check_interrupt()?;
            }
            into.push(row.iter().map(literal::plain).collect::<Result<_>>()?);
        }
        Ok(())
    }

    fn select(
        &mut self,
        syntax: &SelectSyntax,
        order: &[OrderByExpr],
        locks: &[LockClause],
        keep_unknown: bool,
    ) -> Result<Query> {
        if syntax.into.is_some() {
            return Err(SqlError::syntax("SELECT ... INTO is not allowed here"));
        }
        if syntax.projection.is_empty()
            && matches!(syntax.distinct, Some(DistinctSyntax::Distinct | DistinctSyntax::On(_)))
        {
            return Err(SqlError::syntax("syntax error: SELECT DISTINCT without a select list"));
        }
        check_dialect(syntax)?;
        let moved = super::group_set::moved(syntax, order);
        let (syntax, order) = match &moved {
            Some((syntax, order)) => (syntax, order.as_slice()),
            None => (syntax, order),
        };
        let depth = self.levels.len();
        self.push_level();
        let bound = self.select_in_level(syntax, order, locks, keep_unknown);
        self.levels.truncate(depth);
        bound
    }

    fn select_in_level(
        &mut self,
        syntax: &SelectSyntax,
        order: &[OrderByExpr],
        locks: &[LockClause],
        keep_unknown: bool,
    ) -> Result<Query> {
        self.level()?.has_grouping_sets = has_grouping_sets(&syntax.group_by);
        self.in_clause(Clause::FROM, |binder| binder.from_clause(&syntax.from))?;
        if let Some(condition) = &syntax.selection {
            self.where_clause(condition)?;
        }
        self.window_clause(&syntax.named_window)?;
        let mut targets = self.expand_targets(&syntax.projection, vec![])?;
        let visible = targets.len();
        let having = match &syntax.having {
            Some(having) => Some(self.in_clause(Clause::Having, |binder| {
                let typed = binder.expression(having)?;
                binder.condition(typed, "HAVING")
            })?),
            None => None,
        };
        let keys = self.in_clause(Clause::OrderBy, |binder| binder.order_by(order, &mut targets, visible))?;
        let group = self
            .in_clause(Clause::GroupBy, |binder| binder.group_by(&syntax.group_by, &mut targets, visible))?;
        let distinct = match &syntax.distinct {
            None | Some(DistinctSyntax::All) => Distinct::No,
            Some(DistinctSyntax::Distinct) => {
                if targets.len() > visible {
                    return Err(SqlError::new(
                        sqlstate::INVALID_COLUMN_REFERENCE,
                        "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
                    ));
                }
                Distinct::All
            }
            Some(DistinctSyntax::On(items)) => self.in_clause(Clause::OrderBy, |binder| {
                binder.distinct_on(items, &mut targets, visible, &keys)
            })?,
        };
        let mut settled = vec![];
        for (place, (name, typed)) in targets.into_iter().enumerate() {
            let sorted =
                place >= visible || keys.iter().any(|key| key.column == place) || distinct != Distinct::No;
            let typed = if keep_unknown && !sorted { typed } else { self.settle(typed)? };
            if distinct == Distinct::All {
                self.check_sortable_value(&typed, "equality")?;
            }
            settled.push((name, typed));
        }
        let locks = self.row_locks(locks, syntax, &distinct, having.is_some() || group.is_some())?;
        let mut level = self.pop_level()?;
        let columns =
            (settled[..visible].iter()).map(|(name, typed)| origin(&level.select, name, typed)).collect();
        level.select.targets = settled.into_iter().map(|(_, typed)| typed).collect();
        level.select.visible = visible;
        level.select.distinct = distinct;
        level.select.locks = locks;
        let select = self.finish_select(level, group, having)?;
        let mut query = Query::of(Body::Select(Box::new(select)), columns);
        query.order = keys;
        Ok(query)
    }

    /// WHERE.
    pub fn where_clause(&mut self, condition: &Syntax) -> Result<()> {
        let condition = self.in_clause(Clause::Where, |binder| {
            let typed = binder.expression(condition)?;
            binder.condition(typed, "WHERE")
        })?;
        let mut conjuncts = vec![];
        condition.into_conjuncts(&mut conjuncts);
        self.level()?.select.filter.extend(conjuncts);
        Ok(())
    }

    /// The select list: names and expressions, `*` replaced by what it stands for. `hidden` are
    /// columns in sight that `*` does not list.
    pub(super) fn expand_targets(
        &mut self,
        items: &[SelectItem],
        hidden: Vec<NamedColumn>,
    ) -> Result<Vec<(String, Typed)>> {
        let level = self.level()?;
        let listed = level.namespace.star.len();
        level.namespace.star.extend(hidden);
        let bound = self.in_clause(Clause::Targets, |binder| {
            let mut targets = vec![];
            for item in items {
                binder.target(item, listed, &mut targets)?;
            }
            Ok(targets)
        });
        self.level()?.namespace.star.truncate(listed);
        bound
    }

    fn target(&mut self, item: &SelectItem, listed: usize, targets: &mut Vec<(String, Typed)>) -> Result<()> {
        match item {
            SelectItem::UnnamedExpr(expr) => match self.starred(expr)? {
                Some(columns) => targets.extend(columns),
                None => targets.push((figure_name(expr), self.expression(expr)?)),
            },
            SelectItem::ExprWithAlias { expr, alias } => {
                check_alias(alias).map_err(|error| self.at(error, alias.span))?;
                match self.starred(expr)? {
                    // PostgreSQL reads the name and has no use for it.
                    Some(columns) => targets.extend(columns),
                    None => targets.push((object_name(alias), self.expression(expr)?)),
                }
            }
            SelectItem::Wildcard(options) => {
                check_wildcard(options)?;
                targets.extend(self.star(listed)?);
                let named = self.level()?.namespace.star.get(..listed).unwrap_or_default().to_vec();
                self.note_star(&options.wildcard_token, None, &named);
            }
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options) => {
                check_wildcard(options)?;
                targets.extend(self.listed_star(name, &options.wildcard_token)?);
            }
            other => return Err(self.lacks(format!("\"{other}\" in a select list"))),
        }
        check_width(targets.len())
    }

    /// RETURNING: names and typed expressions over the open level.
    pub fn returning(&mut self, items: &[SelectItem]) -> Result<(Vec<OutputColumn>, Vec<Expr>)> {
        let targets = self.in_clause(Clause::Other("RETURNING"), |binder| {
            let mut targets = vec![];
            let listed = binder.level()?.namespace.star.len();
            for item in items {
                binder.target(item, listed, &mut targets)?;
            }
            Ok(targets)
        })?;
        let mut columns = vec![];
        let mut exprs = vec![];
        for (name, typed) in targets {
            let typed = self.settle(typed)?;
            columns.push(origin(&self.level()?.select, &name, &typed));
            exprs.push(typed.expr);
        }
        Ok((columns, exprs))
    }

    /// FOR UPDATE and FOR SHARE.
    fn row_locks(
        &mut self,
        clauses: &[LockClause],
        syntax: &SelectSyntax,
        distinct: &Distinct,
        grouped: bool,
    ) -> Result<Vec<RowLock>> {
        let Some(first) = clauses.first() else { return Ok(vec![]) };
        let level = self.level()?;
        let reason = if *distinct != Distinct::No {
            Some("with DISTINCT clause")
        } else if grouped
            && !matches!(&syntax.group_by, ast::GroupByExpr::Expressions(keys, _) if keys.is_empty())
        {
            Some("with GROUP BY clause")
        } else if syntax.having.is_some() {
            Some("with HAVING clause")
        } else if !level.aggregates.is_empty() {
            Some("with aggregate functions")
        } else if level.window_results > 0 {
            Some("with window functions")
        } else if !level.set_returning.is_empty() {
            Some("with set-returning functions in the target list")
        } else {
            None
        };
        if let Some(reason) = reason {
            return Err(lock_not_allowed(first, reason));
        }
        let mut locks: Vec<RowLock> = vec![];
        for clause in clauses {
            let (mode, _) = lock_strength(clause);
            let wait = match clause.nonblock {
                None => LockWait::Block,
                Some(NonBlock::Nowait) => LockWait::NoWait,
                Some(NonBlock::SkipLocked) => LockWait::SkipLocked,
            };
            for relation in self.locked_relations(clause)? {
                match locks.iter_mut().find(|lock| lock.relation == relation) {
                    // Locked twice: the stronger lock, the more impatient wait.
                    Some(lock) => {
                        lock.mode = lock.mode.max(mode);
                        if lock.wait == LockWait::Block || wait == LockWait::NoWait {
                            lock.wait = wait;
                        }
                    }
                    None => locks.push(RowLock { relation, mode, wait }),
                }
                self.need_to_lock(relation)?;
                self.level()?.key_slot(relation);
            }
        }
        Ok(locks)
    }

    /// The stored tables a lock clause means.
    fn locked_relations(&mut self, clause: &LockClause) -> Result<Vec<usize>> {
        let only = match &clause.of {
            Some(name) => name_parts(name)?.pop().map(|(name, _)| name).filter(|name| name != KEY_MARK),
            None => None,
        };
        let level = self.level()?;
        let meant = match &only {
            None => 0..level.select.relations.len(),
            Some(only) => locked_name(level, clause, only)?,
        };
        let mut found = vec![];
        for place in meant {
            let relation = &level.select.relations[place];
            match &relation.source {
                Source::Table(_) if relation.nullable => {
                    return Err(cannot_lock(clause, "the nullable side of an outer join"));
                }
                Source::Table(_) => found.push(place),
                Source::Query(_) => {
                    return Err(self.lacks(format!("{} of a derived table", lock_name(clause))));
                }
                _ if only.as_ref() == Some(&relation.alias) => {
                    return Err(cannot_lock(clause, "a function"));
                }
                _ => {}
            }
        }
        Ok(found)
    }
}

/// The relations that a name in a lock clause stands for: of a merged view or derived table those
/// that it reads. 42P01, 0A000.
fn locked_name(level: &Level, clause: &LockClause, name: &str) -> Result<Range<usize>> {
    let tables = &level.namespace.tables;
    if let Some(table) = tables.iter().find(|table| table.name == name) {
        return table.relations.clone().ok_or_else(|| cannot_lock(clause, "a join"));
    }
    // Within a join that has a name of its own tables are not in sight, and can be locked.
    let is_within = |place: &usize| {
        let hides = |table: &NamedTable| table.relations.as_ref().is_some_and(|of| of.contains(place));
        level.select.relations[*place].alias == name && !tables.iter().any(hides)
    };
    let within = (0..level.select.relations.len()).find(is_within);
    within.map(|place| place..place + 1).ok_or_else(|| {
        let message = format!("relation \"{name}\" in {} clause not found in FROM clause", lock_name(clause));
        SqlError::new(sqlstate::UNDEFINED_TABLE, message)
    })
}

/// 0A000.
fn cannot_lock(clause: &LockClause, what: &str) -> SqlError {
    let message = format!("{} cannot be applied to {what}", lock_name(clause));
    SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message)
}

/// A body without parentheses that say nothing: in `(SELECT a FROM t) ORDER BY b` the order is the
/// SELECT's.
fn unwrapped(mut body: &SetExpr) -> &SetExpr {
    while let SetExpr::Query(query) = body
        && is_bare(query)
    {
        body = &query.body;
    }
    body
}

/// Whether a query is its body and nothing more.
fn is_bare(query: &QuerySyntax) -> bool {
    query.with.is_none()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
        && query.locks.is_empty()
        && query.for_clause.is_none()
        && query.settings.is_none()
        && query.format_clause.is_none()
        && query.pipe_operators.is_empty()
}

/// The strength of a lock clause, and its name.
fn lock_strength(clause: &LockClause) -> (LockMode, &'static str) {
    let first = clause.of.as_ref().and_then(|name| name.0.first()).and_then(|part| part.as_ident());
    let of_keys = first.is_some_and(|name| name.value == KEY_MARK);
    match (&clause.lock_type, of_keys) {
        (LockType::Update, false) => (LockMode::Exclusive, "FOR UPDATE"),
        (LockType::Update, true) => (LockMode::NoKeyExclusive, "FOR NO KEY UPDATE"),
        (LockType::Share, false) => (LockMode::Shared, "FOR SHARE"),
        (LockType::Share, true) => (LockMode::KeyShared, "FOR KEY SHARE"),
    }
}

/// `FOR UPDATE` and the like.
pub(crate) fn lock_name(clause: &LockClause) -> &'static str {
    lock_strength(clause).1
}

pub(super) fn lock_not_allowed(clause: &LockClause, reason: &str) -> SqlError {
    SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("{} is not allowed {reason}", lock_name(clause)))
}

/// 54011 if a select list has more entries than one may have.
pub(super) fn check_width(entries: usize) -> Result<()> {
    if entries <= MOST_TARGETS {
        return Ok(());
    }
    let message = format!("target lists can have at most {MOST_TARGETS} entries");
    Err(SqlError::new(sqlstate::TOO_MANY_COLUMNS, message))
}

/// An output column that comes from no table.
pub(super) fn output_column(name: String, ty: Type) -> OutputColumn {
    OutputColumn { name, ty, table_oid: 0, attribute_number: 0 }
}

/// An output column, with the table column it is, if it is one.
fn origin(select: &Select, name: &str, typed: &Typed) -> OutputColumn {
    let mut column = output_column(name.to_owned(), typed.ty);
    if let Expr::Slot(slot) = typed.expr
        && let Some(slot) = select.slots.get(slot)
    {
        let relation = &select.relations[slot.relation];
        let oid = match &relation.source {
            Source::Table(table) => table.oid,
            Source::Virtual(table) => table.oid(),
            _ => return column,
        };
        column.table_oid = oid;
        if let SlotPart::Column(place) = slot.part {
            column.attribute_number = i16::try_from(place + 1).unwrap_or(0);
        }
    }
    column
}

/// The parser takes a string for an alias.
fn check_alias(alias: &ast::Ident) -> Result<()> {
    if alias.quote_style == Some('\'') {
        return Err(SqlError::syntax(format!("syntax error at or near \"'{}'\"", alias.value)));
    }
    Ok(())
}

fn check_wildcard(options: &WildcardAdditionalOptions) -> Result<()> {
    let plain = options.opt_ilike.is_none()
        && options.opt_exclude.is_none()
        && options.opt_except.is_none()
        && options.opt_replace.is_none()
        && options.opt_rename.is_none()
        && options.opt_alias.is_none();
    if plain { Ok(()) } else { Err(SqlError::syntax(format!("syntax error at or near \"{options}\""))) }
}

/// Clauses of other dialects that the parser lets pass.
fn check_dialect(syntax: &SelectSyntax) -> Result<()> {
    let foreign = syntax.top.is_some()
        || syntax.exclude.is_some()
        || !syntax.lateral_views.is_empty()
        || syntax.prewhere.is_some()
        || !syntax.connect_by.is_empty()
        || !syntax.cluster_by.is_empty()
        || !syntax.distribute_by.is_empty()
        || !syntax.sort_by.is_empty()
        || syntax.qualify.is_some()
        || syntax.value_table_mode.is_some()
        || syntax.select_modifiers.as_ref().is_some_and(|modifiers| modifiers.is_any_set());
    if foreign { Err(SqlError::syntax("syntax error: a clause of another dialect")) } else { Ok(()) }
}
