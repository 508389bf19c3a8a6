//! Views that stand for a table: their rows are rows of it, and some of their columns are columns
//! of it, so that INSERT, UPDATE and DELETE on them are about the table.
//!
//! ```text
//! CREATE VIEW v AS SELECT id, a AS b, a + 1 AS c FROM t WHERE a > 5
//!   table t, column id is t.id, b is t.a, c cannot be changed
//! ```
//!
//! All of that can be seen in the text of a view, and in those of the views that it is over.

use std::sync::Arc;

use cognate_syntax::{Step, Walker, walk};
use sqlparser::ast::{
    self, Distinct, Expr as Syntax, GroupByExpr, ObjectName, Query, Select, SelectItem, SetExpr, TableAlias,
    TableFactor,
};

use super::expression::strip;
use super::scope::{name_parts, object_name, schema_and_name};
use crate::catalog::{Catalog, Relation, Table, View};
use crate::function::{is_aggregate, returns_set};
use crate::parse::{self, Command, Statement};

/// Views may be over views this deep.
const DEPTH_MAX: usize = 100;

const ONE_TABLE: &str =
    "Views that do not select from a single table or view are not automatically updatable.";
const NO_COLUMNS: &str = "Views that have no updatable columns are not automatically updatable.";
const NO_COLUMN: &str = "View columns that are not columns of their base relation are not updatable.";
const SYSTEM_COLUMN: &str = "View columns that refer to system columns are not updatable.";
const WHOLE_ROW: &str = "View columns that return whole-row references are not updatable.";

/// The table that a view stands for.
#[derive(Clone, Debug)]
pub(crate) struct BaseTable {
    pub(crate) table: Arc<Table>,
    /// Names of the view's columns, and what they are in the table.
    pub(crate) columns: Vec<(String, ViewColumn)>,
    /// The views, the innermost first.
    pub(crate) views: Vec<Arc<View>>,
}

/// A column of a view: its place in the table, or why it cannot be changed.
pub(crate) type ViewColumn = Result<usize, FixedColumn>;

/// A column that cannot be changed, in the view in which it is none of a table.
#[derive(Clone, Debug)]
pub(crate) struct FixedColumn {
    pub(crate) view: String,
    pub(crate) column: String,
    pub(crate) detail: &'static str,
}

/// A view that stands for no table, and why.
#[derive(Clone, Debug)]
pub(crate) struct NoBaseTable {
    pub(crate) view: String,
    pub(crate) detail: &'static str,
}

/// The table that a view stands for. Whoever deletes rows does without columns.
pub(crate) fn base_table(
    view: &Arc<View>,
    catalog: &Catalog,
    needs_columns: bool,
) -> Result<BaseTable, NoBaseTable> {
    base_within(view, catalog, needs_columns, 0)
}

fn base_within(
    view: &Arc<View>,
    catalog: &Catalog,
    needs_columns: bool,
    depth: usize,
) -> Result<BaseTable, NoBaseTable> {
    let refused = |detail| NoBaseTable { view: view.name.clone(), detail };
    let statement = parse::parse_single(&view.query).ok().flatten();
    let query = statement.as_ref().and_then(query_of).ok_or_else(|| refused(ONE_TABLE))?;
    let (select, name, alias) = over(query).map_err(refused)?;
    let plain: Vec<Option<String>> = select.projection.iter().map(plain_name).collect();
    if needs_columns && plain.iter().all(Option::is_none) {
        return Err(refused(NO_COLUMNS));
    }
    let (schema, named) = schema_and_name(name).map_err(|_| refused(ONE_TABLE))?;
    let mut base = match view.relation(catalog, schema.as_deref(), &named) {
        Some(Relation::Table(table)) => of_table(table),
        Some(Relation::View(inner)) if depth < DEPTH_MAX => {
            base_within(inner, catalog, needs_columns, depth + 1)?
        }
        _ => return Err(refused(ONE_TABLE)),
    };
    if let Some(alias) = alias {
        for ((name, _), given) in base.columns.iter_mut().zip(&alias.columns) {
            *name = object_name(&given.name);
        }
    }
    let shown = alias.map_or(named, |alias| object_name(&alias.name));
    let is_complete = plain.len() == view.columns.len();
    let columns = view.columns.iter().enumerate().map(|(at, column)| {
        let fixed = |detail| FixedColumn { view: view.name.clone(), column: column.name.clone(), detail };
        let Some(wanted) = plain.get(at).filter(|_| is_complete).and_then(Option::as_ref) else {
            return (column.name.clone(), Err(fixed(NO_COLUMN)));
        };
        let found = base.columns.iter().find(|(name, _)| name == wanted);
        let missing = || Err(fixed(if *wanted == shown { WHOLE_ROW } else { SYSTEM_COLUMN }));
        (column.name.clone(), found.map_or_else(missing, |(_, place)| place.clone()))
    });
    let columns = columns.collect();
    let mut views = base.views;
    views.push(view.clone());
    Ok(BaseTable { table: base.table, columns, views })
}

fn of_table(table: &Arc<Table>) -> BaseTable {
    let columns = table.visible_columns().map(|(place, column)| (column.name.clone(), Ok(place)));
    BaseTable { table: table.clone(), columns: columns.collect(), views: vec![] }
}

fn query_of(statement: &Statement) -> Option<&Query> {
    let Command::Sql(sql) = &statement.command else { return None };
    match sql.as_ref() {
        ast::Statement::Query(query) => Some(query.as_ref()),
        _ => None,
    }
}

/// The one relation that a simple query is over: its SELECT, the relation's name and alias. Else
/// why it is not simple, in the order in which PostgreSQL looks.
fn over(query: &Query) -> Result<(&Select, &ObjectName, Option<&TableAlias>), &'static str> {
    let select = match query.body.as_ref() {
        SetExpr::Select(select) => select.as_ref(),
        SetExpr::SetOperation { .. } => {
            return Err("Views containing UNION, INTERSECT, or EXCEPT are not automatically updatable.");
        }
        _ => return Err(ONE_TABLE),
    };
    let is_grouped = match &select.group_by {
        GroupByExpr::Expressions(keys, modifiers) => !keys.is_empty() || !modifiers.is_empty(),
        GroupByExpr::All(_) => true,
    };
    let is_distinct = matches!(select.distinct, Some(Distinct::Distinct | Distinct::On(_)));
    let is_cut = query.limit_clause.is_some() || query.fetch.is_some();
    let calls = Calls::of(select);
    let refusals = [
        (is_distinct, "Views containing DISTINCT are not automatically updatable."),
        (is_grouped, "Views containing GROUP BY are not automatically updatable."),
        (select.having.is_some(), "Views containing HAVING are not automatically updatable."),
        (query.with.is_some(), "Views containing WITH are not automatically updatable."),
        (is_cut, "Views containing LIMIT or OFFSET are not automatically updatable."),
        (calls.aggregates, "Views that return aggregate functions are not automatically updatable."),
        (calls.windows, "Views that return window functions are not automatically updatable."),
        (calls.sets, "Views that return set-returning functions are not automatically updatable."),
    ];
    if let Some((_, detail)) = refusals.iter().find(|(is_so, _)| *is_so) {
        return Err(*detail);
    }
    let [from] = select.from.as_slice() else { return Err(ONE_TABLE) };
    match &from.relation {
        TableFactor::Table { name, alias, args: None, .. } if from.joins.is_empty() => {
            Ok((select, name, alias.as_ref()))
        }
        _ => Err(ONE_TABLE),
    }
}

/// The name of an output that is nothing but a column.
fn plain_name(item: &SelectItem) -> Option<String> {
    let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else {
        return None;
    };
    match strip(expr) {
        Syntax::Identifier(name) => Some(object_name(name)),
        Syntax::CompoundIdentifier(parts) => parts.last().map(object_name),
        _ => None,
    }
}

/// What kinds of functions a list of outputs calls, those in its subqueries not.
#[derive(Default)]
struct Calls {
    aggregates: bool,
    windows: bool,
    sets: bool,
    /// How many queries are around.
    queries: usize,
}

impl Calls {
    fn of(select: &Select) -> Calls {
        let mut calls = Calls::default();
        for item in &select.projection {
            let _ = walk(item, &mut calls);
        }
        calls
    }
}

impl Walker for Calls {
    fn query(&mut self, _: &Query) -> Step {
        self.queries += 1;
        Step::Continue(())
    }

    fn leaves_query(&mut self) -> Step {
        self.queries -= 1;
        Step::Continue(())
    }

    fn expression(&mut self, expression: &Syntax) -> Step {
        if let Syntax::Function(call) = expression
            && self.queries == 0
            && let Some((name, _)) = name_parts(&call.name).ok().and_then(|mut parts| parts.pop())
        {
            self.windows |= call.over.is_some();
            self.aggregates |= (call.over.is_none() && is_aggregate(&name)) || !call.within_group.is_empty();
            self.sets |= returns_set(&name);
        }
        Step::Continue(())
    }
}
