//! Stars of a query that is to be stored: what each stood for, so that later columns do not change it.
//!
//! A view's query is kept as text. `SELECT * FROM t` would mean another list of columns once `t` has more of them, so CREATE VIEW
//! lets the binder note what each star of the text stands for, by its place in the text, and puts the names there.
//!
//! ```text
//! SELECT *, u.* FROM t JOIN u USING (a)    becomes    SELECT a, t.b, u.c, u.a, u.c FROM t JOIN u USING (a)
//! ```
//!
//! Stars of subqueries within expressions stay: what is asked of them does not depend on their columns (EXISTS), or there is one.

use std::collections::HashMap;

use sqlparser::ast::{
    Expr as Syntax, Ident, Query as QuerySyntax, SelectItem, SetExpr, TableFactor, TableWithJoins,
    WildcardAdditionalOptions,
};

use super::Binder;
use super::scope::{NamedColumn, Namespace};

/// What stars stand for, by line and column.
pub(crate) type Stars = HashMap<(u64, u64), Vec<SelectItem>>;

fn place(options: &WildcardAdditionalOptions) -> (u64, u64) {
    let start = options.wildcard_token.0.span.start;
    (start.line, start.column)
}

fn ident(name: &str) -> Ident {
    if crate::function::quote_identifier(name) != name {
        Ident::with_quote('"', name)
    } else {
        Ident::new(name)
    }
}

impl Binder<'_> {
    /// Notes from now on what stars stand for.
    pub(crate) fn note_stars(&mut self) {
        self.stars = Some(Stars::new());
    }

    /// What was noted.
    pub(crate) fn take_stars(&mut self) -> Stars {
        self.stars.take().unwrap_or_default()
    }

    /// Notes the columns of a star; a name that would not find its column leaves the star as it is.
    pub(super) fn note_star(
        &mut self,
        options: &WildcardAdditionalOptions,
        table: Option<&str>,
        columns: &[NamedColumn],
    ) {
        if self.stars.is_none() || self.view_depth > 0 {
            return;
        }
        let Some(namespace) = self.levels.last().map(|level| &level.namespace) else { return };
        let items = columns.iter().map(|column| item(namespace, table, column)).collect::<Option<Vec<_>>>();
        if let (Some(items), Some(stars)) = (items, &mut self.stars) {
            stars.insert(place(options), items);
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
}

fn pin_body(body: &mut SetExpr, stars: &Stars) {
    match body {
        SetExpr::Select(select) => {
            let items = std::mem::take(&mut select.projection).into_iter();
            select.projection = items
                .flat_map(|item| {
                    let noted = match &item {
                        SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) => {
                            stars.get(&place(options)).cloned()
                        }
                        _ => None,
                    };
                    noted.unwrap_or_else(|| vec![item])
                })
                .collect();
            select.from.iter_mut().for_each(|item| pin_from(item, stars));
        }
        SetExpr::Query(query) => pin_query(query, stars),
        SetExpr::SetOperation { left, right, .. } => {
            pin_body(left, stars);
            pin_body(right, stars);
        }
        _ => {}
    }
}

fn pin_from(item: &mut TableWithJoins, stars: &Stars) {
    let relations = std::iter::once(&mut item.relation);
    for relation in relations.chain(item.joins.iter_mut().map(|join| &mut join.relation)) {
        match relation {
            TableFactor::Derived { subquery, .. } => pin_query(subquery, stars),
            TableFactor::NestedJoin { table_with_joins, .. } => pin_from(table_with_joins, stars),
            _ => {}
        }
    }
}
