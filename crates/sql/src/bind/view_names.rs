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
//!
//! stored                                                  after ALTER TABLE t RENAME COLUMN a TO b
//! SELECT t.a FROM t                                       SELECT t.a FROM t AS t (a)
//! ```
//!
//! So a column has its old name in all of the query, also where USING or NATURAL meets it, and the
//! outputs keep theirs. One that comes gets a name that the query has nowhere: else a plain name in
//! it could mean either of two, or another one than before.
//!
//! ```text
//! stored                                                  after ALTER TABLE u ADD COLUMN a INT
//! SELECT a FROM t JOIN u USING (id)                       SELECT a FROM t JOIN u AS u (id, a_1) USING (id)
//! ```
//!
//! A dump is made and read with an empty path. Literals that name relations, as in `nextval('s')`,
//! are told and follow likewise.

use cognate_syntax::{Changer, change};
use sqlparser::ast::{
    self, DataType, Expr as Syntax, FunctionArg, FunctionArgExpr, Ident, ObjectName, Query, SelectItem,
    SetExpr, TableAlias, TableAliasColumnDef, TableFactor, Value, With,
};

use super::Binder;
use super::naming::figure_name;
use super::quoted_query::quote_names;
use super::scope::{object_name, schema_and_name};
use super::star::stands_for_many;
use super::table::simple_select;
use super::type_name::{custom_name, put_schema};
use crate::catalog::{Catalog, Oid, Relation, View};
use crate::error::Result;
use crate::identifier::{in_quotes, quote_identifier, split_qualified};
use crate::parse::{self, Command};

/// The query for who has this search path: names that it does not lead to have their schemas, and
/// the outputs are called as the view's columns are. With `quote_all`, names are in quotes.
pub(crate) fn told(view: &View, catalog: &Catalog, path: &[String], quote_all: bool) -> String {
    written(view, catalog, catalog, path, |query| {
        if quote_all {
            quote_names(query);
        }
        with_output_names(query, view, quote_all)
    })
}

/// The query after relations, their columns, types or schemas were renamed, between these two
/// catalogs; the path is the view's own one after that.
pub(crate) fn renamed(view: &View, before: &Catalog, after: &Catalog, path: &[String]) -> String {
    written(view, before, after, path, |query| query.to_string())
}

fn written(
    view: &View,
    before: &Catalog,
    after: &Catalog,
    path: &[String],
    print: impl FnOnce(&mut Query) -> String,
) -> String {
    let as_stored = || view.query.clone();
    let Ok(mut parsed) = parse::parse(&view.query) else { return as_stored() };
    let Some(statement) = parsed.last_mut() else { return as_stored() };
    let depth = statement.depth();
    let Command::Sql(sql) = &mut statement.command else { return as_stored() };
    let ast::Statement::Query(query) = sql.as_mut() else { return as_stored() };
    parse::on_large_stack(depth, || {
        let mut names = Names { view, before, after, path, in_sight: vec![], with: vec![], new: vec![] };
        change(query.as_mut(), &mut names);
        print(query.as_mut())
    })
}

/// The query's text, its outputs called as the view's columns are: by aliases where nothing else in
/// the query could mean them, else from outside.
fn with_output_names(query: &mut Query, view: &View, quote_all: bool) -> String {
    let names: Vec<&str> = view.columns.iter().map(|column| column.name.as_str()).collect();
    match output_names(&query.body) {
        Some(own) if own.len() == names.len() && own != names => {}
        _ => return query.to_string(),
    }
    let is_simple = simple_select(query).is_some();
    match query.body.as_mut() {
        SetExpr::Select(select) if is_simple => {
            for (item, name) in select.projection.iter_mut().zip(names) {
                let expr = match &*item {
                    SelectItem::UnnamedExpr(expr) if figure_name(expr) != name => expr.clone(),
                    SelectItem::ExprWithAlias { expr, .. } => expr.clone(),
                    _ => continue,
                };
                let alias = if quote_all { Ident::with_quote('"', name) } else { ident(name) };
                *item = SelectItem::ExprWithAlias { expr, alias };
            }
            query.to_string()
        }
        _ => {
            let quoted: fn(&str) -> String = if quote_all { in_quotes } else { quote_identifier };
            let names: Vec<String> = names.into_iter().map(quoted).collect();
            let name = quoted(&view.name);
            format!("SELECT * FROM ({query}) AS {name} ({})", names.join(", "))
        }
    }
}

/// What a query's outputs are called; none where a star or a record stands for many.
fn output_names(body: &SetExpr) -> Option<Vec<String>> {
    match body {
        SetExpr::Select(select) => {
            let names = select.projection.iter().map(|item| match item {
                item if stands_for_many(item) => None,
                SelectItem::UnnamedExpr(expr) => Some(figure_name(expr)),
                SelectItem::ExprWithAlias { alias, .. } => Some(object_name(alias)),
                _ => None,
            });
            names.collect()
        }
        SetExpr::Query(query) => output_names(&query.body),
        SetExpr::SetOperation { left, .. } => output_names(left),
        SetExpr::Values(values) => {
            let width = values.rows.first()?.content.len();
            Some((1..=width).map(|number| format!("column{number}")).collect())
        }
        _ => None,
    }
}

impl Binder<'_> {
    /// A view's query by itself, with its names looked up where they were when it was made.
    pub(crate) fn query_of_view(&mut self, view: &View, query: &Query) -> Result<super::Query> {
        let search_path = std::mem::replace(&mut self.search_path, view.search_path.clone());
        let text = std::mem::replace(&mut self.text, view.oid);
        let bound = self.query(query, false);
        self.text = text;
        self.search_path = search_path;
        bound
    }
}

/// A relation's visible columns: their places, and their names.
fn columns_of(relation: &Relation) -> Vec<(usize, &str)> {
    match relation {
        Relation::Table(table) => {
            table.visible_columns().map(|(place, column)| (place, column.name.as_str())).collect()
        }
        Relation::View(view) => {
            view.columns.iter().enumerate().map(|(place, column)| (place, column.name.as_str())).collect()
        }
        Relation::Index(..) | Relation::Sequence(_) => vec![],
    }
}

/// A name for a column that has come since, which is not to be taken for another one.
fn unused(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let numbered = (1..).map(|number| format!("{name}_{number}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    names.find(|name| !is_taken(name)).unwrap_or_default()
}

/// Whether a name may stand in a query, in quotes or not.
fn has_word(query: &str, name: &str) -> bool {
    let is_of_word = |sign: char| sign.is_alphanumeric() || sign == '_' || sign == '$';
    match name.chars().all(is_of_word) {
        true => query.split(|sign: char| !is_of_word(sign)).any(|word| word.eq_ignore_ascii_case(name)),
        false => query.contains(&name.replace('"', "\"\"")),
    }
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
    /// Names that columns got which have come since.
    new: Vec<String>,
}

impl<'a> Names<'a> {
    /// The relation that a name means here; none for a query of WITH.
    fn meant(&self, schema: Option<&str>, name: &str) -> Option<&'a Relation> {
        if schema.is_none() && self.in_sight.iter().any(|known| known == name) {
            return None;
        }
        self.view.relation(self.before, schema, name)
    }

    /// Whether a new column of this name might be taken for something else in the query. NATURAL
    /// compares columns whose names stand nowhere.
    fn is_used(&self, name: &str) -> bool {
        let query = &self.view.query;
        let is_compared = || {
            let mut read = self.view.depends_on.iter().filter_map(|oid| self.after.relation_by_oid(*oid));
            self.new.iter().any(|new| new == name)
                || read.any(|relation| columns_of(relation).iter().any(|(_, column)| *column == name))
        };
        has_word(query, name) || (has_word(query, "NATURAL") && is_compared())
    }

    /// Whether a relation without an alias may get one for its columns, as they were and are.
    fn may_get_alias(&self, meant: &Relation, now: &Relation) -> bool {
        let (before, after) = (columns_of(meant), columns_of(now));
        let is_renamed = |(place, name): &(usize, &str)| {
            after.iter().any(|(place_now, name_now)| place_now == place && name_now != name)
        };
        match self.has_namesake(meant) {
            true => before.iter().any(is_renamed),
            false => before != after,
        }
    }

    /// Whether the query reads another relation of the same name, in another schema: where the one
    /// has an alias, the other cannot stand beside it.
    fn has_namesake(&self, meant: &Relation) -> bool {
        let mut read = self.view.depends_on.iter().filter_map(|oid| self.before.relation_by_oid(*oid));
        read.any(|other| other.oid() != meant.oid() && other.name() == meant.name())
    }

    /// What the columns of a relation are to be called here, from the first one on up to the last
    /// that is called otherwise now. They have the names of its alias, or those from before. None
    /// if it has the columns that it had.
    fn columns(
        &mut self,
        schema: Option<&str>,
        name: &str,
        alias: Option<&TableAlias>,
    ) -> Option<Vec<TableAliasColumnDef>> {
        let meant = self.meant(schema, name)?;
        let given = alias.map_or(&[][..], |alias| &alias.columns);
        let (before, after) = (columns_of(meant), columns_of(self.after.relation_by_oid(meant.oid())?));
        if before == after {
            return None;
        }
        let known: Vec<Option<String>> = after
            .iter()
            .map(|(place, _)| {
                let at = before.iter().position(|(known, _)| known == place)?;
                Some(given.get(at).map_or_else(|| before[at].1.to_owned(), |given| object_name(&given.name)))
            })
            .collect();
        let may_have_alias = alias.is_some() || !self.has_namesake(meant);
        let mut wanted: Vec<String> = Vec::with_capacity(after.len());
        for (at, (_, now)) in after.iter().enumerate() {
            let name = known[at].clone().unwrap_or_else(|| {
                let is_known = |name: &str| known.iter().any(|known| known.as_deref() == Some(name));
                let name = unused(now, |name| is_known(name) || (may_have_alias && self.is_used(name)));
                self.new.push(name.clone());
                name
            });
            wanted.push(name);
        }
        let last = (0..after.len()).rev().find(|&at| wanted[at] != after[at].1);
        wanted.truncate(last.map_or(0, |last| last + 1));
        let named = |name: String| TableAliasColumnDef { name: ident(&name), data_type: None };
        Some(wanted.into_iter().map(named).collect())
    }

    /// What a relation is called now, and the schema that it must be named with; none if the name
    /// is good as it is.
    fn relation(&self, schema: Option<&str>, name: &str) -> Option<(Option<&str>, &str)> {
        self.now(self.meant(schema, name)?.oid(), schema, name)
    }

    /// The same of a relation by its oid.
    fn now(&self, meant: Oid, schema: Option<&str>, name: &str) -> Option<(Option<&str>, &str)> {
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

    /// The literal of a `regclass`: the relation that it names.
    fn literal(&self, value: &mut Value) {
        let Value::SingleQuotedString(text) = value else { return };
        let Ok(parts) = split_qualified(text) else { return };
        let (schema, name) = match parts.as_slice() {
            [name] => (None, name),
            [schema, name] => (Some(schema.as_str()), name),
            _ => return,
        };
        let Some(meant) = self.view.relation(self.before, schema, name) else { return };
        let now = match self.now(meant.oid(), schema, name) {
            None => return,
            Some((Some(schema), name)) => format!("{}.{}", quote_identifier(schema), quote_identifier(name)),
            Some((None, name)) => quote_identifier(name),
        };
        *text = now;
    }

    /// The literal that says of which sequence a built-in function takes a value.
    fn sequence(&self, call: &mut ast::Function) {
        let is_of_sequences = schema_and_name(&call.name)
            .is_ok_and(|(_, name)| ["nextval", "currval", "setval"].contains(&name.as_str()));
        if let ast::FunctionArguments::List(list) = &mut call.args
            && let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(Syntax::Value(literal)))) =
                list.args.first_mut()
            && is_of_sequences
        {
            self.literal(&mut literal.value);
        }
    }

    /// A function of a user's; says whether it is one. Those that are built in are found under
    /// every path.
    fn function(&self, name: &mut ObjectName) -> bool {
        let Ok((schema, alone)) = schema_and_name(name) else { return false };
        let mut named = self.before.routines_named(&self.view.search_path, schema.as_deref(), &alone);
        let meant = named.find(|(_, routine)| self.view.depends_on.contains(&routine.oid));
        let Some((_, meant)) = meant else { return false };
        let Some(now) = self.after.routine_by_oid(meant.oid) else { return true };
        let mut found = self.after.routines_named(self.path, None, &alone);
        match schema.as_deref() {
            Some(schema) if schema == now.schema_name => {}
            None if found.any(|(_, found)| found.oid == now.oid) => {}
            _ => put_schema(name, &now.schema_name),
        }
        true
    }

    fn data_type(&self, data_type: &mut DataType) {
        let Some(name) = custom_name(data_type) else { return };
        let Ok((schema, alone)) = schema_and_name(name) else { return };
        let known = self.view.known_type(self.before, schema.as_deref(), &alone);
        let meant =
            known.or_else(|| self.before.user_type(&self.view.search_path, schema.as_deref(), &alone));
        let now = meant.and_then(|meant| self.after.user_type_by_oid(meant.oid()));
        let Some(now) = now else { return };
        let has_name = now.name() == alone;
        if !has_name {
            *name = ObjectName::from(vec![ident(now.name())]);
        }
        let is_good = match &schema {
            Some(schema) if has_name => schema == now.schema_name(),
            _ => {
                let found = self.after.user_type(self.path, None, now.name());
                found.is_some_and(|found| found.oid() == now.oid())
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
                if let Some(columns) = self.columns(schema.as_deref(), &alone, alias.as_ref())
                    && (alias.is_some() || !columns.is_empty())
                {
                    alias.get_or_insert_with(|| alias_of(&alone)).columns = columns;
                }
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
            Syntax::Function(call) => {
                let is_users = self.function(&mut call.name);
                if !is_users {
                    self.sequence(call);
                }
            }
            Syntax::Cast { data_type: DataType::Regclass, expr, .. } => {
                if let Syntax::Value(literal) = expr.as_mut() {
                    self.literal(&mut literal.value);
                }
            }
            Syntax::Cast { data_type, .. } => self.data_type(data_type),
            Syntax::TypedString(literal) if literal.data_type == DataType::Regclass => {
                self.literal(&mut literal.value.value);
            }
            Syntax::TypedString(literal) => self.data_type(&mut literal.data_type),
            // A column that is named with the schema of its table, too: the table's name is enough.
            Syntax::CompoundIdentifier(parts) if parts.len() == 3 => {
                let (schema, table) = (object_name(&parts[0]), object_name(&parts[1]));
                let Some(meant) = self.before.find(&[], Some(&schema), &table) else { return };
                let Some(now) = self.after.relation_by_oid(meant.oid()) else { return };
                let is_as_before = now.schema_name() == schema && now.name() == table;
                if !is_as_before || self.may_get_alias(meant, now) {
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
