//! Stars of a query that is to be stored: what each stood for, so that later columns do not change
//! it.
//!
//! A view's query is kept as text. `SELECT * FROM t` would mean another list of columns once `t`
//! has more of them, so CREATE VIEW lets the binder note what each star of the text stands for, by
//! its place in the text, and puts the names there.
//!
//! ```text
//! SELECT *, u.* FROM t JOIN u USING (a)    becomes    SELECT a, t.b, u.c, u.a, u.c FROM t JOIN u USING (a)
//! ```
//!
//! So it is with the stars of subqueries wherever they are: `x IN (SELECT * FROM t)` fails once `t`
//! has two columns.
//!
//! What else a view has to keep of its query is noted on the way: which primary keys its groups
//! rest on, and which literals another session would read as other values.

use std::collections::HashMap;

use sqlparser::ast::helpers::attached_token::AttachedToken;
use sqlparser::ast::{
    Distinct, Expr as Syntax, GroupByExpr, Ident, JoinConstraint, JoinOperator, LimitClause,
    NamedWindowDefinition, NamedWindowExpr, ObjectName, OrderBy, OrderByKind, Query as QuerySyntax,
    Select as SelectSyntax, SelectItem, SetExpr, TableFactor, TableWithJoins,
};

use super::Binder;
use super::access::is_all_fields;
use super::expression::strip;
use super::operand::{Operand, for_each_argument, for_each_of_window, for_each_operand};
use super::scope::{NamedColumn, Namespace, schema_and_name};
use crate::catalog::Named;
use crate::error::Result;
use crate::expr::Typed;
use crate::types::Datum;

/// What stars stand for, by line and column.
pub(crate) type Stars = HashMap<(u64, u64), Vec<SelectItem>>;

/// What is noted of a query that is to be stored.
#[derive(Default)]
pub(crate) struct Noted {
    pub(crate) stars: Stars,
    /// Oids of what it depends on beside what it reads: sequences, types of users, and the
    /// constraints of primary keys by which columns are the same throughout a group.
    pub(crate) needed: Vec<u32>,
    /// Literals that were given a type: the text, and the value, which is a cast where the
    /// session's settings have a part in it.
    pub(crate) literals: Vec<(String, Typed)>,
    /// What its text names.
    pub(crate) named: Vec<Named>,
}

fn place(star: &AttachedToken) -> (u64, u64) {
    let start = star.0.span.start;
    (start.line, start.column)
}

fn ident(name: &str) -> Ident {
    if crate::identifier::quote_identifier(name) != name {
        Ident::with_quote('"', name)
    } else {
        Ident::new(name)
    }
}

impl Binder<'_> {
    /// From now on what a stored text has to keep is noted: what stars stand for, and the rest.
    pub(crate) fn begin_noting(&mut self) {
        self.noting = Some(Noted::default());
    }

    /// What was noted.
    pub(crate) fn take_noted(&mut self) -> Noted {
        let mut noted = self.noting.take().unwrap_or_default();
        noted.named = self.named_by_text(&noted.needed);
        noted
    }

    /// Where to note something of the text itself, if that is to be: not of a view that it reads,
    /// nor of a function that it calls.
    pub(super) fn noted(&mut self) -> Option<&mut Noted> {
        match self.view_depth == 0 && self.routine_depth == 0 {
            true => self.noting.as_mut(),
            false => None,
        }
    }

    /// Notes what the query depends on.
    pub(super) fn note_needed(&mut self, oids: &[u32]) {
        let Some(noted) = self.noted() else { return };
        for oid in oids {
            if !noted.needed.contains(oid) {
                noted.needed.push(*oid);
            }
        }
    }

    /// The same of what a literal of the type `regclass` stands for, if that is a sequence or a
    /// table.
    pub(super) fn note_named(&mut self, value: &Datum) {
        let catalog = self.context.catalog;
        if let Datum::Oid(oid) = value
            && (catalog.sequence_by_oid(*oid).is_some() || catalog.table_by_oid(*oid).is_some())
        {
            self.note_needed(&[*oid]);
        }
    }

    /// What an item of a select list stands for that is a star though it looks like an expression:
    /// `(record).*`, and stars in parentheses, `(t.*)`, which are as good as without.
    pub(super) fn starred(&mut self, item: &Syntax) -> Result<Option<Vec<(String, Typed)>>> {
        match strip(item) {
            Syntax::QualifiedWildcard(table, star) => self.listed_star(table, star).map(Some),
            Syntax::CompoundFieldAccess { root, access_chain } if is_all_fields(access_chain) => {
                self.record_star(root).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// `table.*` in a select list, noted.
    pub(super) fn listed_star(
        &mut self,
        name: &ObjectName,
        star: &AttachedToken,
    ) -> Result<Vec<(String, Typed)>> {
        let columns = self.table_star(name)?;
        let table = schema_and_name(name)?.1;
        let tables = &self.level()?.namespace.tables;
        let named = tables.iter().find(|known| known.name == table).map(|known| known.columns.clone());
        if let Some(named) = named {
            self.note_star(star, Some(&table), &named);
        }
        Ok(columns)
    }

    /// Notes the columns of a star; a name that would not find its column leaves the star as it is.
    pub(super) fn note_star(&mut self, star: &AttachedToken, table: Option<&str>, columns: &[NamedColumn]) {
        if self.noting.is_none() || self.view_depth > 0 {
            return;
        }
        let Some(namespace) = self.levels.last().map(|level| &level.namespace) else { return };
        let items = columns.iter().map(|column| item(namespace, table, column)).collect::<Option<Vec<_>>>();
        if let (Some(items), Some(noted)) = (items, &mut self.noting) {
            noted.stars.insert(place(star), items);
        }
    }
}

/// A column by the name of its table, or alone if it is one that USING has merged.
fn item(namespace: &Namespace, table: Option<&str>, column: &NamedColumn) -> Option<SelectItem> {
    let is_same = |known: &&NamedColumn| known.name == column.name && known.source == column.source;
    let owner = match table {
        Some(table) => Some(table),
        None => {
            let owner = namespace.tables.iter().find(|table| table.columns.iter().any(|own| is_same(&own)));
            owner.map(|table| table.name.as_str())
        }
    };
    let in_sight: Vec<&NamedColumn> = match owner {
        Some(owner) => {
            let owner = namespace.tables.iter().find(|table| table.name == owner)?;
            owner.columns.iter().filter(|known| known.name == column.name).collect()
        }
        None => namespace.star.iter().filter(|known| known.name == column.name).collect(),
    };
    match (in_sight.as_slice(), owner) {
        ([_], Some(owner)) => {
            Some(SelectItem::UnnamedExpr(Syntax::CompoundIdentifier(vec![ident(owner), ident(&column.name)])))
        }
        ([_], None) => Some(SelectItem::UnnamedExpr(Syntax::Identifier(ident(&column.name)))),
        _ => None,
    }
}

/// The query with names in place of its stars.
pub(crate) fn pinned(query: &QuerySyntax, stars: &Stars) -> QuerySyntax {
    let mut query = query.clone();
    pin_query(&mut query, stars);
    query
}

fn pin_query(query: &mut QuerySyntax, stars: &Stars) {
    if let Some(with) = &mut query.with {
        with.cte_tables.iter_mut().for_each(|cte| pin_query(&mut cte.query, stars));
    }
    pin_body(&mut query.body, stars);
    if let Some(OrderBy { kind: OrderByKind::Expressions(keys), .. }) = &mut query.order_by {
        keys.iter_mut().for_each(|key| pin_expression(&mut key.expr, stars));
    }
    if let Some(LimitClause::LimitOffset { limit, offset, .. }) = &mut query.limit_clause {
        let offset = offset.as_mut().map(|offset| &mut offset.value);
        limit.as_mut().into_iter().chain(offset).for_each(|count| pin_expression(count, stars));
    }
}

fn pin_body(body: &mut SetExpr, stars: &Stars) {
    match body {
        SetExpr::Select(select) => pin_select(select, stars),
        SetExpr::Query(query) => pin_query(query, stars),
        SetExpr::SetOperation { left, right, .. } => {
            pin_body(left, stars);
            pin_body(right, stars);
        }
        SetExpr::Values(values) => {
            let items = values.rows.iter_mut().flat_map(|row| &mut row.content);
            items.for_each(|item| pin_expression(item, stars));
        }
        _ => {}
    }
}

fn pin_select(select: &mut SelectSyntax, stars: &Stars) {
    let mut items = vec![];
    for mut item in std::mem::take(&mut select.projection) {
        let noted = star_of(&item).and_then(|star| stars.get(&place(star)));
        if let Some(noted) = noted {
            items.extend(noted.iter().cloned());
            continue;
        }
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = &mut item {
            pin_expression(expr, stars);
        }
        items.push(item);
    }
    select.projection = items;
    select.from.iter_mut().for_each(|item| pin_from(item, stars));
    if let Some(Distinct::On(items)) = &mut select.distinct {
        items.iter_mut().for_each(|item| pin_expression(item, stars));
    }
    if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
        keys.iter_mut().for_each(|key| pin_expression(key, stars));
    }
    let conditions = select.selection.iter_mut().chain(&mut select.having);
    conditions.for_each(|condition| pin_expression(condition, stars));
    for NamedWindowDefinition(_, window) in &mut select.named_window {
        if let NamedWindowExpr::WindowSpec(window) = window {
            for_each_of_window(window, &mut |operand| pin_operand(operand, stars));
        }
    }
}

/// Whether an item of a select list is a star, also that of a record.
pub(super) fn stands_for_many(item: &SelectItem) -> bool {
    let of_record = match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => match strip(expr) {
            Syntax::CompoundFieldAccess { access_chain, .. } => is_all_fields(access_chain),
            _ => false,
        },
        _ => false,
    };
    of_record || star_of(item).is_some()
}

/// The star that an item of a select list is.
fn star_of(item: &SelectItem) -> Option<&AttachedToken> {
    match item {
        SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) => {
            Some(&options.wildcard_token)
        }
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => match strip(expr) {
            Syntax::QualifiedWildcard(_, star) => Some(star),
            _ => None,
        },
        _ => None,
    }
}

fn pin_from(item: &mut TableWithJoins, stars: &Stars) {
    pin_relation(&mut item.relation, stars);
    for join in &mut item.joins {
        pin_relation(&mut join.relation, stars);
        if let JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint) = &mut join.join_operator
            && let JoinConstraint::On(condition) = constraint
        {
            pin_expression(condition, stars);
        }
    }
}

fn pin_relation(relation: &mut TableFactor, stars: &Stars) {
    let mut pin = |operand: Operand<'_>| pin_operand(operand, stars);
    match relation {
        TableFactor::Derived { subquery, .. } => pin_query(subquery, stars),
        TableFactor::NestedJoin { table_with_joins, .. } => pin_from(table_with_joins, stars),
        TableFactor::Table { args: Some(arguments), .. } => for_each_argument(&mut arguments.args, &mut pin),
        TableFactor::Function { args, .. } => for_each_argument(args, &mut pin),
        TableFactor::UNNEST { array_exprs, .. } => {
            array_exprs.iter_mut().for_each(|array| pin_expression(array, stars));
        }
        _ => {}
    }
}

fn pin_expression(expr: &mut Syntax, stars: &Stars) {
    stacker::maybe_grow(128 * 1024, 4 * 1024 * 1024, || {
        for_each_operand(expr, &mut |operand| pin_operand(operand, stars));
    });
}

fn pin_operand(operand: Operand<'_>, stars: &Stars) {
    match operand {
        Operand::Expression(expr) => pin_expression(expr, stars),
        Operand::Query(query) => pin_query(query, stars),
    }
}
