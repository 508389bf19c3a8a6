//! Names in the queries of views, which are stored as texts: what they mean, and how they are to be
//! written for whoever asks, and after something was renamed.
//!
//! ```text
//! stored, with the path under which it was defined        told under an empty path
//! SELECT a FROM t WHERE f(a) = CAST('x' AS mood)          SELECT a FROM public.t WHERE public.f(a) = CAST('x' AS public.mood)
//! WITH t AS (SELECT a FROM t) SELECT a FROM t             WITH t AS (SELECT a FROM public.t) SELECT a FROM t
//!
//! stored                                                  after ALTER TABLE t RENAME TO u
//! SELECT t.a FROM t                                       SELECT t.a FROM u AS t
//! ```
//!
//! A dump is made and read with an empty path.

use sqlparser::ast::{
    self, DataType, Expr as Syntax, Ident, ObjectName, Query, SetExpr, TableAlias, TableFactor, With,
};

use super::scope::{object_name, schema_and_name};
use super::type_name::{custom_name, put_schema};
use crate::catalog::{Catalog, Relation, View};
use crate::function::quote_identifier;
use crate::parse::walk::{Changer, change};
use crate::parse::{self, Command};

/// The query for who has this search path: names that it does not lead to have their schemas.
pub(crate) fn told(view: &View, catalog: &Catalog, path: &[String]) -> String {
    written(view, catalog, catalog, path)
}

/// The query after relations or schemas were renamed, between these two catalogs; the path is the
/// view's own one after that.
pub(crate) fn renamed(view: &View, before: &Catalog, after: &Catalog, path: &[String]) -> String {
    written(view, before, after, path)
}

fn written(view: &View, before: &Catalog, after: &Catalog, path: &[String]) -> String {
    let as_stored = || view.query.clone();
    let Ok(mut parsed) = parse::parse(&view.query) else { return as_stored() };
    let Some(statement) = parsed.last_mut() else { return as_stored() };
    let depth = statement.depth();
    let Command::Sql(sql) = &mut statement.command else { return as_stored() };
    let ast::Statement::Query(query) = sql.as_mut() else { return as_stored() };
    parse::on_large_stack(depth, || {
        change(query.as_mut(), &mut Names { view, before, after, path, in_sight: vec![], with: vec![] });
        query.to_string()
    })
}

/// Gives names their schemas, and new names.
struct Names<'a> {
    view: &'a View,
    /// In which names are looked up.
    before: &'a Catalog,
    /// Which says how things are called.
    after: &'a Catalog,
    /// What it leads to needs no schema.
    path: &'a [String],
    /// Names of the queries of WITH that can be read at this place.
    in_sight: Vec<String>,
    /// Of each query around this place: its WITH, and how many names were in sight before it.
    with: Vec<(Option<With>, usize)>,
}

impl Names<'_> {
    /// What a relation is called now, and the schema that it must be named with; none if the name
    /// is good as it is.
    fn relation(&self, schema: Option<&str>, name: &str) -> Option<(Option<&str>, &str)> {
        if schema.is_none() && self.in_sight.iter().any(|known| known == name) {
            return None;
        }
        let meant = self.before.find(&self.view.search_path, schema, name)?.oid();
        let now = self.after.relation_by_oid(meant)?;
        let is_led_to = |found: Option<&Relation>| found.is_some_and(|found| found.oid() == meant);
        let is_good = match schema {
            Some(schema) => now.schema_name() == schema,
            None => is_led_to(self.after.find(self.path, None, name)),
        };
        if is_good && now.name() == name {
            return None;
        }
        let needs_schema = !is_led_to(self.after.find(self.path, None, now.name()));
        Some((needs_schema.then(|| now.schema_name()), now.name()))
    }

    /// A function of a user's. Those that are built in are found under every path.
    fn function(&self, name: &mut ObjectName) {
        let Ok((schema, alone)) = schema_and_name(name) else { return };
        let mut named = self.before.routines_named(&self.view.search_path, schema.as_deref(), &alone);
        let meant = named.find(|(_, routine)| self.view.depends_on.contains(&routine.oid));
        let Some((_, meant)) = meant else { return };
        let Some(now) = self.after.routine_by_oid(meant.oid) else { return };
        let mut found = self.after.routines_named(self.path, None, &alone);
        match schema.as_deref() {
            Some(schema) if schema == now.schema_name => {}
            None if found.any(|(_, found)| found.oid == now.oid) => {}
            _ => put_schema(name, &now.schema_name),
        }
    }

    fn data_type(&self, data_type: &mut DataType) {
        let Some(name) = custom_name(data_type) else { return };
        let Ok((schema, alone)) = schema_and_name(name) else { return };
        let meant = self.before.user_type(&self.view.search_path, schema.as_deref(), &alone);
        let now = meant.and_then(|meant| self.after.user_type_by_oid(meant.oid()));
        let Some(now) = now else { return };
        let is_good = match &schema {
            Some(schema) => schema == now.schema_name(),
            None => {
                self.after.user_type(self.path, None, &alone).is_some_and(|found| found.oid() == now.oid())
            }
        };
        if !is_good {
            put_schema(name, now.schema_name());
        }
    }

    /// `TABLE t`, alone or in a UNION.
    fn body(&self, body: &mut SetExpr) {
        match body {
            SetExpr::SetOperation { left, right, .. } => {
                self.body(left);
                self.body(right);
            }
            SetExpr::Table(table) => {
                let name = table.table_name.clone().unwrap_or_default();
                if let Some((schema, name)) = self.relation(table.schema_name.as_deref(), &name) {
                    table.schema_name = schema.map(quote_identifier);
                    table.table_name = Some(quote_identifier(name));
                }
            }
            _ => {}
        }
    }
}

impl Changer for Names<'_> {
    fn query(&mut self, query: &mut Query) {
        let before = self.in_sight.len();
        let mut with = query.with.take();
        if let Some(with) = &mut with {
            let names = with.cte_tables.iter().map(|cte| object_name(&cte.alias.name)).collect::<Vec<_>>();
            if with.recursive {
                self.in_sight.extend(names.iter().cloned());
            }
            // Without RECURSIVE each reads those before it only.
            for (cte, name) in with.cte_tables.iter_mut().zip(names) {
                change(cte.query.as_mut(), self);
                self.in_sight.push(name);
            }
        }
        self.with.push((with, before));
        self.body(&mut query.body);
    }

    fn leaves_query(&mut self, query: &mut Query) {
        let (with, before) = self.with.pop().expect("a query that was entered");
        query.with = with;
        self.in_sight.truncate(before);
    }

    fn table_factor(&mut self, factor: &mut TableFactor) {
        match factor {
            TableFactor::Table { name, args: None, alias, .. } => {
                let Ok((schema, alone)) = schema_and_name(name) else { return };
                let Some((schema, now)) = self.relation(schema.as_deref(), &alone) else { return };
                if now != alone && alias.is_none() {
                    // Columns go on being named after it.
                    *alias = Some(alias_of(&alone));
                }
                if now != alone || name.0.len() > 1 {
                    *name = ObjectName::from(vec![ident(now)]);
                }
                if let Some(schema) = schema {
                    put_schema(name, schema);
                }
            }
            TableFactor::Table { name, args: Some(_), .. } | TableFactor::Function { name, .. } => {
                self.function(name);
            }
            _ => {}
        }
    }

    fn expression(&mut self, expression: &mut Syntax) {
        match expression {
            Syntax::Function(call) => self.function(&mut call.name),
            Syntax::Cast { data_type, .. } => self.data_type(data_type),
            Syntax::TypedString(literal) => self.data_type(&mut literal.data_type),
            // A column that is named with the schema of its table, too: the table's name is enough.
            Syntax::CompoundIdentifier(parts) if parts.len() == 3 => {
                let (schema, table) = (object_name(&parts[0]), object_name(&parts[1]));
                let meant = self.before.find(&[], Some(&schema), &table).map(Relation::oid);
                let now = meant.and_then(|oid| self.after.relation_by_oid(oid));
                if now.is_some_and(|now| now.schema_name() != schema || now.name() != table) {
                    parts.remove(0);
                }
            }
            _ => {}
        }
    }
}

fn ident(name: &str) -> Ident {
    match quote_identifier(name) == name {
        true => Ident::new(name),
        false => Ident::with_quote('"', name),
    }
}

fn alias_of(name: &str) -> TableAlias {
    TableAlias { explicit: true, name: ident(name), columns: vec![], at: None }
}
