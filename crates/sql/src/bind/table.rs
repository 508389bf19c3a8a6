//! What FROM can name: stored tables, views, computed tables, common table expressions, derived
//! tables.

use std::sync::Arc;

use cognate_syntax::has_expression;
use sqlparser::ast::{
    self, Expr as Syntax, GroupByExpr, JoinConstraint, ObjectName, Query as QuerySyntax, SetExpr, TableAlias,
    TableFactor, TableWithJoins,
};

use super::computed::bind_computed;
use super::from::{Item, NewRelation, constraint, undefined_table};
use super::scope::{ColumnSource, NamedColumn, NamedTable, Namespace, name_span, object_name};
use super::sequence_table::SequenceTable;
use super::{Binder, Clause, From, Join, JoinKind, Query, Source, VirtualTable};
use crate::catalog::{self, Relation as CatalogRelation, Table, View};
use crate::ddl::temporary::of_another_session;
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::Expr;
use crate::function::ResolvedFunction;
use crate::parse;
use crate::pg_catalog::{EXPLODED, absent_relation, is_for_superusers};
use crate::types::{Type, TypeId};

/// Views may refer to views this deep.
const MAX_VIEW_DEPTH: usize = 100;
/// What a view counts as whenever it is read, and its text besides whenever it is read again; and
/// what all may come to.
const VIEW_BYTES: usize = 1024;
const MOST_VIEW_BYTES: usize = 4 << 20;

/// Names and types of the columns of a set-returning function's rows, for those with columns of
/// their own; else it is one column with the function's name.
pub(super) fn set_columns(resolved: &ResolvedFunction) -> Option<Vec<(&'static str, Type)>> {
    let text = Type::new(TypeId::Text);
    Some(match resolved.function.name {
        "json_each" => vec![("key", text), ("value", TypeId::Json.into())],
        "jsonb_each" => vec![("key", text), ("value", TypeId::Jsonb.into())],
        "json_each_text" | "jsonb_each_text" => vec![("key", text), ("value", text)],
        "json_array_elements" => vec![("value", TypeId::Json.into())],
        "jsonb_array_elements" => vec![("value", TypeId::Jsonb.into())],
        "json_array_elements_text" | "jsonb_array_elements_text" => vec![("value", text)],
        "aclexplode" => EXPLODED.to_vec(),
        "pg_options_to_table" => vec![("option_name", text), ("option_value", text)],
        "pg_partition_tree" => vec![
            ("relid", TypeId::Regclass.into()),
            ("parentrelid", TypeId::Regclass.into()),
            ("isleaf", TypeId::Bool.into()),
            ("level", TypeId::Int4.into()),
        ],
        "pg_sequence_parameters" => vec![
            ("start_value", TypeId::Int8.into()),
            ("minimum_value", TypeId::Int8.into()),
            ("maximum_value", TypeId::Int8.into()),
            ("increment", TypeId::Int8.into()),
            ("cycle_option", TypeId::Bool.into()),
            ("cache_size", TypeId::Int8.into()),
            ("data_type", TypeId::Oid.into()),
        ],
        "pg_ls_waldir" => {
            vec![("name", text), ("size", TypeId::Int8.into()), ("modification", TypeId::Timestamptz.into())]
        }
        "pg_stat_get_progress_info" => {
            let of_whom: [(&'static str, Type); 3] =
                [("pid", TypeId::Int4.into()), ("datid", TypeId::Oid.into()), ("relid", TypeId::Oid.into())];
            of_whom.into_iter().chain(PROGRESS.map(|name| (name, TypeId::Int8.into()))).collect()
        }
        "pg_get_keywords" => vec![
            ("word", text),
            ("catcode", TypeId::InternalChar.into()),
            ("barelabel", TypeId::Bool.into()),
            ("catdesc", text),
            ("baredesc", text),
        ],
        _ => return None,
    })
}

/// What `pg_stat_get_progress_info` tells, without a name.
const PROGRESS: [&str; 20] = [
    "param1", "param2", "param3", "param4", "param5", "param6", "param7", "param8", "param9", "param10",
    "param11", "param12", "param13", "param14", "param15", "param16", "param17", "param18", "param19",
    "param20",
];

/// Functions without arguments whose rows are those of a view of `pg_catalog`, and the view: tools
/// read them by themselves.
const FUNCTIONS_OF_VIEWS: [(&str, &str); 6] = [
    ("pg_show_all_settings", "pg_settings"),
    ("pg_lock_status", "pg_locks"),
    ("pg_prepared_statement", "pg_prepared_statements"),
    ("pg_cursor", "pg_cursors"),
    ("pg_timezone_names", "pg_timezone_names"),
    ("pg_timezone_abbrevs", "pg_timezone_abbrevs"),
];

impl Binder<'_> {
    /// The view whose rows a function of no arguments gives.
    pub(super) fn view_of_function(
        &self,
        schema: Option<&str>,
        function: &str,
    ) -> Option<Arc<dyn VirtualTable>> {
        let (_, view) = FUNCTIONS_OF_VIEWS.iter().find(|(known, _)| *known == function)?;
        let is_meant = matches!(schema, None | Some("pg_catalog"));
        self.context.virtual_tables.find(Some("pg_catalog"), view).filter(|_| is_meant)
    }

    /// A table whose rows are computed.
    pub(super) fn computed(
        &mut self,
        found: Arc<dyn VirtualTable>,
        name: &str,
        alias: Option<&TableAlias>,
        nullable: bool,
    ) -> Result<Item> {
        self.reads_catalog = true;
        let types: Vec<Type> = found.columns().iter().map(|(_, ty)| *ty).collect();
        let columns =
            found.columns().iter().enumerate().map(|(i, (name, _))| ((*name).to_owned(), i)).collect();
        let schema = found.schema().to_owned();
        let source = Source::Virtual(found);
        let new = NewRelation { source, schema: Some(&schema), name, columns, types };
        self.add_relation(new, alias, nullable)
    }

    pub(super) fn table(
        &mut self,
        name: &ObjectName,
        alias: Option<&TableAlias>,
        nullable: bool,
    ) -> Result<Item> {
        let (schema, table) = self.relation_name(name)?;
        if schema.is_none()
            && let Some(cte) = self.cte_in_sight(&table)
        {
            return self.cte(cte, alias, nullable);
        }
        if !self.is_temporary(schema.as_deref(), &table)
            && let Some(found) = self.context.virtual_tables.find(schema.as_deref(), &table)
        {
            if is_for_superusers(found.oid()) {
                self.need_superuser(found.oid());
            }
            return self.computed(found, &table, alias, nullable);
        }
        let catalog = self.context.catalog;
        let Some(relation) = self.find_relation(schema.as_deref(), &table).cloned() else {
            if let Some(error) = absent_relation(schema.as_deref(), &table) {
                return Err(self.at(error, name_span(name)));
            }
            if let Some(schema) = &schema
                && catalog.schema(schema).is_none()
            {
                let error = SqlError::new(
                    sqlstate::UNDEFINED_TABLE,
                    format!("relation \"{schema}.{table}\" does not exist"),
                );
                return Err(self.at(error, name_span(name)));
            }
            let shown = schema.map_or(table.clone(), |schema| format!("{schema}.{table}"));
            return Err(undefined_table(self, name, &shown));
        };
        if let Some(schema) = &schema {
            self.need_schema(schema);
        }
        let read = self.need_in_from(&relation);
        let item = match &relation {
            CatalogRelation::Table(table) => self.stored_table(&table.clone(), alias, nullable),
            CatalogRelation::View(view) => self.view(&view.clone(), alias, nullable),
            CatalogRelation::Sequence(sequence)
                if sequence.is_temporary() && !self.is_own(&sequence.schema_name) =>
            {
                Err(of_another_session())
            }
            CatalogRelation::Sequence(sequence) => {
                self.note_needed(&[sequence.oid]);
                let found: Arc<dyn VirtualTable> = Arc::new(SequenceTable(sequence.clone()));
                self.computed(found, &table, alias, nullable)
            }
            CatalogRelation::Index(..) => {
                Err(SqlError::new(sqlstate::WRONG_OBJECT_TYPE, format!("\"{table}\" is an index")))
            }
        };
        item.map(|(tree, names)| (tree, names.read_as(read)))
    }

    /// Whether a plain name is that of a temporary object, which is found before the system's own.
    fn is_temporary(&self, schema: Option<&str>, name: &str) -> bool {
        let first = self.search_path.first().filter(|first| schema.is_none() && catalog::is_temporary(first));
        first.is_some_and(|first| self.context.catalog.relation(first, name).is_some())
    }

    /// Whether a schema of temporary objects is that of the session, whatever view is being bound.
    fn is_own(&self, schema: &String) -> bool {
        self.context.search_path.contains(schema)
    }

    /// 0A000 for a temporary table of another session.
    pub(crate) fn check_own(&self, table: &Table) -> Result<()> {
        let is_own = !table.temporary || self.is_own(&table.schema_name);
        if is_own { Ok(()) } else { Err(of_another_session()) }
    }

    /// The relation a possibly qualified name means.
    pub(crate) fn find_relation(&self, schema: Option<&str>, name: &str) -> Option<&CatalogRelation> {
        match self.view_of_text() {
            Some(view) => view.relation(self.context.catalog, schema, name),
            None => self.context.catalog.find(&self.search_path, schema, name),
        }
    }

    /// The view whose text is bound, if any: names in it mean what they meant when it was made.
    pub(super) fn view_of_text(&self) -> Option<&View> {
        match self.context.catalog.relation_by_oid(self.text)? {
            CatalogRelation::View(view) => Some(view.as_ref()),
            _ => None,
        }
    }

    /// A stored table.
    pub(crate) fn stored_table(
        &mut self,
        table: &std::sync::Arc<crate::catalog::Table>,
        alias: Option<&TableAlias>,
        nullable: bool,
    ) -> Result<Item> {
        self.check_own(table)?;
        if table.has_computed() {
            // For the planner, which does without an index that cannot be bound.
            let _ = bind_computed(self.context, table);
        }
        self.note_table(table);
        let item = self.stored_relation(table, alias, nullable)?;
        self.claim_changed(table)?;
        Ok(item)
    }

    /// The same, which the statement does not depend on.
    pub(super) fn stored_relation(
        &mut self,
        table: &std::sync::Arc<crate::catalog::Table>,
        alias: Option<&TableAlias>,
        nullable: bool,
    ) -> Result<Item> {
        let types = table.columns.iter().map(|column| column.ty).collect();
        let columns = table.visible_columns().map(|(place, column)| (column.name.clone(), place)).collect();
        let source = Source::Table(table.clone());
        let new = NewRelation { source, schema: Some(&table.schema_name), name: &table.name, columns, types };
        self.add_relation(new, alias, nullable)
    }

    /// A view is about to be read. Where each of some views reads another one twice, what they are
    /// together doubles with each. The first reading of a long one is no more than its text in the
    /// statement would be. 54001 beyond what any statement needs.
    fn count_view(&mut self, view: &View) -> Result<()> {
        self.context.eval.check_interrupt()?;
        let again = if self.views.contains(&view.oid) { view.query.len() } else { 0 };
        self.view_bytes += VIEW_BYTES + again;
        if self.view_bytes <= MOST_VIEW_BYTES {
            return Ok(());
        }
        Err(SqlError::new(sqlstate::STATEMENT_TOO_COMPLEX, "statement is too complex")
            .with_detail("It reads views too often, by way of other ones."))
    }

    /// A view: its query in place of its name, bound in the surroundings of its definition.
    pub(super) fn view(&mut self, view: &View, alias: Option<&TableAlias>, nullable: bool) -> Result<Item> {
        if self.view_depth >= MAX_VIEW_DEPTH {
            return Err(SqlError::new(
                sqlstate::STATEMENT_TOO_COMPLEX,
                "views refer to one another too deeply",
            ));
        }
        self.count_view(view)?;
        let statement = parse::parse_single(&view.query)?;
        let query = match statement.as_ref().map(|statement| &statement.command) {
            Some(parse::Command::Sql(sql)) => match sql.as_ref() {
                ast::Statement::Query(query) => query,
                _ => return Err(SqlError::internal(format!("view \"{}\" is no query", view.name))),
            },
            _ => return Err(SqlError::internal(format!("view \"{}\" is no query", view.name))),
        };
        let search_path = std::mem::replace(&mut self.search_path, view.search_path.clone());
        // The level itself stays in sight: its names are those of the view's own FROM while the
        // view is merged.
        let barrier = std::mem::replace(&mut self.barrier, self.levels.len().saturating_sub(1));
        let ctes = std::mem::take(&mut self.ctes);
        let positions = std::mem::replace(&mut self.positions, false);
        let from = self.level()?.select.relations.len();
        let acting = self.enter_view(view);
        let text = std::mem::replace(&mut self.text, view.oid);
        self.view_depth += 1;
        if !self.views.contains(&view.oid) {
            self.views.push(view.oid);
        }
        let bound = match self.is_changed_here() {
            true => self.changed_query(query, &view.name),
            false => self.derived(query, false, None, &view.name, nullable),
        };
        self.view_depth -= 1;
        self.text = text;
        self.acting = acting;
        self.positions = positions;
        self.ctes = ctes;
        self.barrier = barrier;
        self.search_path = search_path;
        let (tree, mut names) = bound?;
        self.note_through_view(view, from)?;
        let Some(mut table) = names.tables.pop() else {
            return Err(SqlError::internal("a view without columns"));
        };
        for (column, defined) in table.columns.iter_mut().zip(&view.columns) {
            column.name.clone_from(&defined.name);
        }
        let fields = table.columns.iter().map(|column| column.name.clone()).collect();
        let name = alias.map_or_else(|| view.name.clone(), |alias| object_name(&alias.name));
        let columns = super::from::rename(table.columns, alias, &name)?;
        let schema = if alias.is_some() { None } else { Some(view.schema_name.clone()) };
        let relations = table.relations;
        Ok((tree, Namespace::of(NamedTable { schema, name, columns, fields, relations })))
    }

    /// A derived table: merged into this level if it is simple enough, else a query of its own.
    pub(super) fn derived(
        &mut self,
        query: &QuerySyntax,
        lateral: bool,
        alias: Option<&TableAlias>,
        name: &str,
        nullable: bool,
    ) -> Result<Item> {
        // What stands beside it in FROM is in sight only if it is LATERAL.
        let level = self.level()?;
        let before = if lateral { level.namespace.clone() } else { std::mem::take(&mut level.namespace) };
        let simple = simple_select(query);
        let looks_around = lateral && simple.is_some_and(|select| may_look_around(&select.from));
        let bound = match simple {
            Some(select) if !nullable && !self.is_tried(select.select_token.0.span) && !looks_around => {
                match self.merge(select, alias, name, false) {
                    Ok(Some(item)) => Ok(item),
                    Ok(None) => {
                        // By itself it may be merged with what grouping sets keep it apart from.
                        if !self.level()?.has_grouping_sets {
                            self.note_tried(select.select_token.0.span);
                        }
                        self.separate(query, alias, name, nullable)
                    }
                    Err(error) => Err(error),
                }
            }
            _ => self.separate(query, alias, name, nullable),
        };
        self.level()?.namespace = before;
        bound
    }

    /// Binds a derived table as a query one level in.
    fn separate(
        &mut self,
        query: &QuerySyntax,
        alias: Option<&TableAlias>,
        name: &str,
        nullable: bool,
    ) -> Result<Item> {
        let query = self.query_in_statement(query, false)?;
        self.query_relation(query, alias, name, nullable)
    }

    /// A bound query as a relation.
    pub(super) fn query_relation(
        &mut self,
        query: Query,
        alias: Option<&TableAlias>,
        name: &str,
        nullable: bool,
    ) -> Result<Item> {
        let types = query.columns.iter().map(|column| column.ty).collect();
        let columns = query.columns.iter().enumerate().map(|(i, column)| (column.name.clone(), i)).collect();
        let source = Source::Query(Box::new(query));
        self.add_relation(NewRelation { source, schema: None, name, columns, types }, alias, nullable)
    }

    /// Merges a simple SELECT into the current level: its relations join this level's, its
    /// conditions hold here, its outputs are expressions. None if it turns out not to be simple:
    /// volatile, aggregating or set-returning outputs, or volatile conditions, which are tested
    /// once for each of its own rows, not for each of a join around it (`is_alone`: there is none).
    /// Then nothing has changed.
    pub(super) fn merge(
        &mut self,
        select: &ast::Select,
        alias: Option<&TableAlias>,
        name: &str,
        is_alone: bool,
    ) -> Result<Option<Item>> {
        let level = self.level()?;
        let relations = level.select.relations.len();
        let slots = level.select.slots.len();
        let filters = level.select.filter.len();
        let (aggregates, sets) = (level.aggregates.len(), level.set_returning.len());
        let (windows, results) = (level.select.windows.clone(), level.window_results);
        let from = std::mem::take(&mut level.select.from);
        let namespace = level.namespace.clone();
        let clause = std::mem::replace(&mut level.clause, Clause::Targets);
        let is_merging = std::mem::replace(&mut level.is_merging, true);
        let references = self.cte_references();
        let outputs = self.merged_outputs(select);
        let level = self.level()?;
        level.is_merging = is_merging;
        level.clause = clause;
        level.namespace = namespace;
        let merged = std::mem::replace(&mut level.select.from, from);
        let outputs = outputs?;
        let simple = level.aggregates.len() == aggregates
            && level.set_returning.len() == sets
            && level.window_results == results
            && (is_alone || !level.select.filter[filters..].iter().any(Expr::is_volatile))
            && !outputs.iter().any(|column| match &column.source {
                ColumnSource::Expr(typed) => {
                    level.has_grouping_sets || typed.expr.is_volatile() || typed.expr.has_subquery()
                }
                ColumnSource::Relation { .. } => false,
            });
        if !simple {
            level.undo_to(relations, slots, filters, aggregates, sets);
            (level.select.windows, level.window_results) = (windows, results);
            self.set_cte_references(references);
            return Ok(None);
        }
        let shown = alias.map_or_else(|| name.to_owned(), |alias| object_name(&alias.name));
        let columns = super::from::rename(outputs, alias, &shown)?;
        let relations = Some(relations..self.level()?.select.relations.len());
        let tree = merged
            .into_iter()
            .reduce(|left, right| {
                From::Join(Box::new(Join { kind: JoinKind::Inner, left, right, on: vec![] }))
            })
            .unwrap_or(From::Unit);
        let named = NamedTable { schema: None, name: shown, columns, fields: vec![], relations };
        Ok(Some((tree, Namespace::of(named))))
    }

    fn merged_outputs(&mut self, select: &ast::Select) -> Result<Vec<NamedColumn>> {
        let lateral = self.level()?.namespace.clone();
        self.level()?.namespace = Namespace::default();
        // LATERAL: the items to the left stay in sight of the inner FROM's own LATERAL items and of
        // its expressions, its own names first.
        let bound = self.from_clause(&select.from);
        let level = self.level()?;
        for table in lateral.tables {
            if !level.namespace.tables.iter().any(|known| known.name == table.name) {
                level.namespace.tables.push(table);
            }
        }
        level.namespace.closed.extend(lateral.closed);
        let own = level.namespace.star.len();
        for column in lateral.star {
            if !level.namespace.star[..own].iter().any(|known| known.name == column.name) {
                level.namespace.star.push(column);
            }
        }
        bound?;
        if let Some(condition) = &select.selection {
            self.where_clause(condition)?;
        }
        // `*` lists the inner FROM only.
        let extra = self.level()?.namespace.star.split_off(own);
        let stars_only = self.expand_targets(&select.projection, extra)?;
        stars_only
            .into_iter()
            .map(|(name, typed)| {
                let typed = self.settle(typed)?;
                Ok(NamedColumn { name, source: ColumnSource::Expr(typed), read: None })
            })
            .collect()
    }
}

impl super::Level {
    /// Forgets everything bound after these marks.
    fn undo_to(&mut self, relations: usize, slots: usize, filters: usize, aggregates: usize, sets: usize) {
        self.select.relations.truncate(relations);
        self.through_views.retain(|view| view.relations.end <= relations);
        self.select.slots.truncate(slots);
        self.select.filter.truncate(filters);
        self.aggregates.truncate(aggregates);
        self.set_returning.truncate(sets);
        for relation in &mut self.select.relations {
            for slot in relation.slots.iter_mut().chain([&mut relation.key_slot]) {
                if slot.is_some_and(|slot| slot >= slots) {
                    *slot = None;
                }
            }
        }
    }
}

/// Whether something in the FROM of a LATERAL query may refer to what is beside the query: a
/// function's arguments, a query, the condition of a join that names anything but columns of the
/// FROM's own tables. Merged it would find only its own neighbours there.
fn may_look_around(from: &[TableWithJoins]) -> bool {
    let mut own = vec![];
    for item in from {
        for factor in std::iter::once(&item.relation).chain(item.joins.iter().map(|join| &join.relation)) {
            let TableFactor::Table { name, alias, args: None, .. } = factor else { return true };
            let last = || name.0.last().and_then(|part| part.as_ident());
            own.extend(alias.as_ref().map(|alias| &alias.name).or_else(last).map(object_name));
        }
    }
    let looks = |part: &Syntax| match part {
        Syntax::CompoundIdentifier(names) => match names.as_slice() {
            [table, _] => !own.contains(&object_name(table)),
            _ => true,
        },
        Syntax::Identifier(_)
        | Syntax::QualifiedWildcard(..)
        | Syntax::Exists { .. }
        | Syntax::InSubquery { .. }
        | Syntax::Subquery(_) => true,
        _ => false,
    };
    from.iter().flat_map(|item| &item.joins).any(|join| match constraint(join) {
        Some(JoinConstraint::On(condition)) => has_expression(condition, looks),
        _ => false,
    })
}

/// The SELECT of a query that may be merged into the one around it, judged by its clauses.
pub(super) fn simple_select(query: &QuerySyntax) -> Option<&ast::Select> {
    let plain = query.with.is_none()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
        && query.locks.is_empty()
        && query.pipe_operators.is_empty();
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    let ungrouped = match &select.group_by {
        GroupByExpr::Expressions(keys, modifiers) => keys.is_empty() && modifiers.is_empty(),
        GroupByExpr::All(_) => false,
    };
    (plain
        && ungrouped
        && select.distinct.is_none()
        && select.having.is_none()
        && select.into.is_none()
        && select.named_window.is_empty()
        && select.qualify.is_none())
    .then_some(select)
}
