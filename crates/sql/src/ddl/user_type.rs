//! What enum types and domains have in common: their names, who uses them, and how they go.
//!
//! A type shares its name's lock with relations, as their row types have their names. Who gives a
//! column the type holds that lock shared, so that the type cannot go or change its name meanwhile.
//!
//! Defaults, checks, views and functions name types in stored text. A new name for what such a text
//! may mention is refused; views follow the new name of a type.

use std::collections::BTreeSet;
use std::sync::Arc;

use cognate_engine::{LockMode, TreeMode};
use cognate_syntax::has_expression;
use sqlparser::ast;

use super::drop::{cascade_notice, depend, describe, describe_routine};
use super::expression::{bind_check, bind_default};
use super::names::Qualified;
use super::resolve::undefined_schema;
use super::routine::lock_name;
use crate::bind::{Binder, Clause, renamed};
use crate::catalog::{
    Catalog, Check, Column, Computed, Domain, DomainCheck, Index, Object, Oid, Relation, Routine, Schema,
    Table, UserType, View,
};
use crate::error::{Result, SqlError, sqlstate};
use crate::function::Interrupt as _;
use crate::parse::{Command, parse_expression, parse_single};
use crate::session::work::Work;
use crate::types::{Type, TypeId};

/// Uses of types, and of the domains over them.
#[derive(Default)]
pub(super) struct Uses {
    /// The types, and behind them the domains that go with them.
    pub(super) types: Vec<UserType>,
    /// Columns of tables, by table and name.
    columns: Vec<(Oid, String)>,
    /// Defaults that name a type: of which column.
    defaults: Vec<(Oid, String)>,
    /// Constraints that name a type, by table and name.
    constraints: Vec<(Oid, String)>,
    /// Constraints of domains that stay, by domain and name.
    conditions: Vec<(Oid, String)>,
    /// Indexes whose expressions or predicates name a type: of which table.
    indexes: Vec<(Oid, Oid)>,
    /// Functions and procedures with arguments or results of the types.
    routines: Vec<Oid>,
    /// Views that name the types, have columns of them or call one of the routines, and the views
    /// over these.
    pub(super) views: Vec<Oid>,
    /// Who depends, and on what: "column m of table t", "type mood".
    pub(super) dependents: Vec<(String, String)>,
}

impl Uses {
    /// Leaves what a plan that has the views does not take along by itself.
    pub(super) fn forget(&mut self, gone: &BTreeSet<Oid>) {
        self.views.clear();
        self.types.retain(|ty| !gone.contains(&ty.oid()));
        self.routines.retain(|oid| !gone.contains(oid));
        self.conditions.retain(|(domain, _)| !gone.contains(domain));
    }

    /// Whether nothing has to be done but for the views.
    pub(super) fn is_empty(&self) -> bool {
        self.types.is_empty()
            && self.columns.is_empty()
            && self.defaults.is_empty()
            && self.constraints.is_empty()
            && self.conditions.is_empty()
            && self.indexes.is_empty()
            && self.routines.is_empty()
    }

    fn add_view(&mut self, work: &Work<'_>, view: &Arc<View>, on: &str) {
        if !self.views.contains(&view.oid) {
            self.views.push(view.oid);
            self.dependents.push((describe(work, &Relation::View(view.clone())), on.to_owned()));
        }
    }
}

/// What a statement says of the types that it drops.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dropped {
    /// DROP TYPE: any.
    Types,
    /// DROP DOMAIN: domains only.
    Domains,
}

/// 42710 if a relation or type of the schema has this name.
pub(super) fn duplicate_type(name: &str) -> SqlError {
    SqlError::new(sqlstate::DUPLICATE_OBJECT, format!("type \"{name}\" already exists"))
}

pub(super) fn undefined_type(name: &Qualified) -> SqlError {
    SqlError::new(sqlstate::UNDEFINED_OBJECT, format!("type \"{}\" does not exist", name.display()))
}

/// `type mood`, qualified unless it is found by its plain name.
pub(super) fn describe_type(work: &Work<'_>, ty: &UserType) -> String {
    let path = work.facts.lookup_path(&work.catalog);
    match work.catalog.user_type(&path, None, ty.name()) {
        Some(found) if found.oid() == ty.oid() => format!("type {}", ty.name()),
        _ => format!("type {}.{}", ty.schema_name(), ty.name()),
    }
}

fn is_missing(error: &SqlError) -> bool {
    [sqlstate::UNDEFINED_OBJECT, sqlstate::INVALID_SCHEMA_NAME].contains(&error.sqlstate)
}

fn not_a_domain(name: &Qualified) -> SqlError {
    SqlError::new(sqlstate::WRONG_OBJECT_TYPE, format!("\"{}\" is not a domain", name.display()))
}

fn is_built_in(name: &Qualified) -> bool {
    let may_be = name.schema.as_deref().is_none_or(|schema| schema == "pg_catalog");
    may_be && TypeId::from_name(&name.name).is_some()
}

/// Whether a text may name something, in quotes or not.
fn mentions(text: &str, word: &str) -> bool {
    let quoted = word.replace('\'', "''");
    let folded = text.to_lowercase();
    [text, &folded].iter().any(|text| text.contains(word) || text.contains(&quoted))
}

/// Whether a query has a literal in which a word stands.
fn has_text(query: &str, word: &str) -> bool {
    let Ok(Some(statement)) = parse_single(query) else { return false };
    let Command::Sql(sql) = &statement.command else { return false };
    has_expression(sql.as_ref(), |expression| match expression {
        ast::Expr::Value(value) => {
            value.value.clone().into_string().is_some_and(|text| mentions(&text, word))
        }
        _ => false,
    })
}

impl Work<'_> {
    /// An oid, and the one behind it for the array type.
    pub(super) fn allocate_pair(&self) -> Result<Oid> {
        let mut first = self.allocate_oid()?;
        loop {
            // Somebody else may have taken the one in between.
            let second = self.allocate_oid()?;
            if second == first + 1 {
                return Ok(first);
            }
            first = second;
        }
    }

    /// Takes a name for a new type. 42710 if it is in use.
    pub(super) async fn claim_type_name(&mut self, schema: &Schema, name: &str) -> Result<()> {
        self.hold_schema(schema).await?;
        self.lock_name(schema.oid, name).await?;
        let is_type = self.catalog.user_type(&[], Some(&schema.name), name).is_some();
        if is_type || self.is_taken(&schema.name, name) { Err(duplicate_type(name)) } else { Ok(()) }
    }

    /// The type of this name, its name locked.
    pub(super) async fn locked_type(&mut self, name: &Qualified) -> Result<UserType> {
        self.refresh_catalog();
        self.require_usage(name)?;
        let find = |work: &Self| {
            if let Some(schema) = name.schema.as_deref().filter(|name| work.catalog.schema(name).is_none()) {
                return Err(undefined_schema(schema));
            }
            let path = work.facts.binding_path(&work.catalog);
            let found = work.catalog.user_type(&path, name.schema.as_deref(), &name.name);
            found.cloned().ok_or_else(|| undefined_type(name))
        };
        let ty = find(self)?;
        self.lock_name(ty.schema(), ty.name()).await?;
        let again = find(self)?;
        if again.oid() == ty.oid() { Ok(again) } else { Err(undefined_type(name)) }
    }

    /// Keeps types of users from going while columns get them. 42501 for one that the session may
    /// not use, 42704 for one that has gone.
    pub(crate) async fn hold_types(&mut self, types: &[Type]) -> Result<()> {
        self.require_types(types)?;
        for oid in types.iter().filter_map(|ty| ty.user_type()) {
            // It was looked up just now, by the same catalog.
            let Some(ty) = self.catalog.user_type_by_oid(oid) else { continue };
            self.lock_name_as(ty.schema(), ty.name(), LockMode::Shared).await?;
            if self.catalog.user_type_by_oid(oid).is_none() {
                return Err(undefined_type(&Qualified::plain(ty.name())));
            }
        }
        Ok(())
    }

    /// 0A000 if a stored text has this word and the type is in reach of it: which one is meant
    /// there, only binding the text would tell.
    pub(super) fn refuse_mentioned(&self, ty: &UserType, word: &str, what: &str) -> Result<()> {
        let has = |text: &str| mentions(text, word);
        let refused = |who: String| Err(SqlError::unsupported(format!("{what} where {who} names it")));
        for table in self.catalog.tables() {
            let described = || describe(self, &Relation::Table(table.clone()));
            for (_, column) in table.visible_columns() {
                let is_of_it = [column.ty.user_type(), column.ty.enum_named()].contains(&Some(ty.oid()));
                let may_name = is_of_it || matches!(ty, UserType::Domain(_));
                if column.generated.as_ref().is_some_and(|generated| has(&generated.text)) {
                    return refused(format!("column {} of {}", column.name, described()));
                }
                if column.default.as_deref().is_some_and(has) && may_name {
                    return refused(format!("the default of column {} of {}", column.name, described()));
                }
            }
            if let Some(check) = table.checks.iter().find(|check| has(&check.expression)) {
                return refused(format!("constraint {} of {}", check.name, described()));
            }
            let computes = |index: &&Index| index.computed().any(|computed| has(&computed.text));
            if let Some(index) = table.indexes.iter().find(computes) {
                return refused(format!("index {} of {}", index.name, described()));
            }
        }
        for domain in self.catalog.domains().filter(|domain| domain.oid != ty.oid()) {
            let mut texts = domain.checks.iter().map(|check| &check.expression).chain(&domain.default);
            if texts.any(|text| has(text)) {
                return refused(describe_type(self, &UserType::Domain(domain.clone())));
            }
        }
        let names = |routine: &&Arc<Routine>| {
            let mut defaults = routine.inputs().filter_map(|input| input.default.as_deref());
            has(&routine.body) || defaults.any(has)
        };
        match self.catalog.routines().find(names) {
            Some(routine) => refused(format!("{} {}", routine.kind.noun(), routine.identity(self.format))),
            None => Ok(()),
        }
    }

    /// 0A000 if a view's query has this word.
    pub(super) fn refuse_viewed(&self, word: &str, what: &str) -> Result<()> {
        match self.catalog.views().find(|view| mentions(&view.query, word)) {
            Some(view) => Err(self.named_by(view, what)),
            None => Ok(()),
        }
    }

    fn named_by(&self, view: &Arc<View>, what: &str) -> SqlError {
        let who = describe(self, &Relation::View(view.clone()));
        SqlError::unsupported(format!("{what} where {who} names it"))
    }

    /// Views go on naming a type that had another name, or was in another schema, in the catalog
    /// before. 0A000 where one has its name in a text, which may be that of a `regtype`.
    pub(super) async fn follow_type(&mut self, before: &Catalog, word: &str, what: &str) -> Result<()> {
        let after = self.catalog.clone();
        let naming = after.views().filter(|view| mentions(&view.query, word));
        let naming: Vec<Arc<View>> = naming.cloned().collect();
        for view in &naming {
            let Some(view) = self.held_view(view).await? else { continue };
            let query = renamed(&view, before, &after, &view.search_path);
            let changed = View { query, ..View::clone(&view) };
            if has_text(&changed.query, word) || !self.view_fits(&changed)? {
                return Err(self.named_by(&view, what));
            }
            if changed.query != view.query {
                self.change(Object::View(changed.into()))?;
            }
        }
        Ok(())
    }

    /// DROP TYPE and DROP DOMAIN.
    pub(crate) async fn drop_types(
        &mut self,
        dropped: Dropped,
        names: &[ast::ObjectName],
        if_exists: bool,
        cascade: bool,
    ) -> Result<()> {
        let mut types: Vec<UserType> = Vec::new();
        for name in names {
            let name = Qualified::from_object_name(name)?;
            match self.locked_type(&name).await {
                Ok(UserType::Enum(_)) if dropped == Dropped::Domains => {
                    return Err(not_a_domain(&name));
                }
                Ok(ty) if types.iter().any(|known| known.oid() == ty.oid()) => {}
                Ok(ty) => {
                    self.require_type_droppable(&ty)?;
                    types.push(ty);
                }
                Err(error) if if_exists && is_missing(&error) => {
                    self.notice(SqlError::notice(format!("{}, skipping", error.message)));
                }
                Err(_) if dropped == Dropped::Domains && is_built_in(&name) => {
                    return Err(not_a_domain(&name));
                }
                Err(error) => return Err(error),
            }
        }
        let what = match types.as_slice() {
            [only] => describe_type(self, only),
            _ => "desired object(s)".to_owned(),
        };
        let uses = self.locked_uses(types).await?;
        if !cascade && !uses.dependents.is_empty() {
            return Err(depend(&what, &uses.dependents));
        }
        let dependents: Vec<String> = uses.dependents.iter().map(|(who, _)| who.clone()).collect();
        self.notices.extend(cascade_notice(&dependents));
        self.drop_used(uses).await
    }

    /// Uses of types, once the names of all domains over them are locked, too.
    async fn locked_uses(&mut self, types: Vec<UserType>) -> Result<Uses> {
        let mut locked = types.len();
        loop {
            let uses = self.uses(types.clone(), &BTreeSet::new())?;
            if uses.types.len() <= locked {
                return Ok(uses);
            }
            for ty in &uses.types[types.len()..] {
                self.lock_name(ty.schema(), ty.name()).await?;
            }
            locked = uses.types.len();
        }
    }

    /// Drops types with all that uses them. What goes has been told.
    pub(super) async fn drop_used(&mut self, mut uses: Uses) -> Result<()> {
        let views = std::mem::take(&mut uses.views);
        if !views.is_empty() {
            self.drop_views_silently(&views).await?;
        }
        // A generated column would go with the one that it is made from.
        uses.columns.sort_by_key(|(table, name)| {
            let table = self.catalog.table_by_oid(*table);
            let column = table.and_then(|table| table.columns.iter().find(|column| column.name == *name));
            column.is_none_or(|column| column.generated.is_none())
        });
        for (oid, name) in uses.constraints {
            self.lock_table(oid, TreeMode::Exclusive).await?;
            let mut table = self.table_copy(oid)?;
            table.checks.retain(|check| check.name != name);
            self.change(Object::Table(table.into()))?;
        }
        for (oid, name) in uses.conditions {
            self.drop_condition(oid, &name).await?;
        }
        for (oid, name) in uses.defaults {
            self.lock_table(oid, TreeMode::Exclusive).await?;
            let mut table = self.table_copy(oid)?;
            table.columns.iter_mut().filter(|column| column.name == name).for_each(|c| c.default = None);
            self.change(Object::Table(table.into()))?;
        }
        for (table, oid) in uses.indexes {
            self.lock_table(table, TreeMode::Exclusive).await?;
            if let Some(index) = self.table_copy(table)?.index(oid).cloned() {
                self.drop_key(table, &index)?;
            }
        }
        for (table, column) in uses.columns {
            self.lock_table(table, TreeMode::Exclusive).await?;
            self.alter_drop_column(table, &column, false, true).await?;
        }
        for oid in uses.routines {
            let Some(routine) = self.catalog.routine_by_oid(oid).cloned() else { continue };
            self.lock_name(routine.schema, &lock_name(&routine.name)).await?;
            // Somebody else may have dropped it before.
            if self.catalog.routine_by_oid(oid).is_some() {
                self.remove(oid)?;
            }
        }
        for ty in uses.types {
            self.remove(ty.oid())?;
        }
        Ok(())
    }

    /// Drops a constraint of a domain, which may have gone meanwhile.
    async fn drop_condition(&mut self, oid: Oid, name: &str) -> Result<()> {
        if let Some(domain) = self.catalog.domain_by_oid(oid).cloned() {
            self.lock_name(domain.schema, &domain.name).await?;
        }
        let Some(domain) = self.catalog.domain_by_oid(oid) else { return Ok(()) };
        let mut domain = Domain::clone(domain);
        domain.checks.retain(|check| check.name != name);
        self.change(Object::Domain(domain.into()))
    }

    /// Views go without a word, and with them what depends on them.
    pub(super) async fn drop_views_silently(&mut self, views: &[Oid]) -> Result<()> {
        // Somebody else may have dropped some of them before.
        let is_there = |catalog: &Catalog, oid: Oid| catalog.relation_by_oid(oid).is_some();
        let left = |catalog: &Catalog| views.iter().copied().filter(|oid| is_there(catalog, *oid)).collect();
        self.drop_silently(left, None).await
    }

    /// Who uses these types, but for what is gone then.
    pub(super) fn uses(&self, types: Vec<UserType>, gone: &BTreeSet<Oid>) -> Result<Uses> {
        let mut uses = Uses { types, ..Uses::default() };
        let mut at = 0;
        while let Some(ty) = uses.types.get(at).cloned() {
            at += 1;
            let on = describe_type(self, &ty);
            for domain in self.catalog.domains().filter(|domain| !gone.contains(&domain.oid)) {
                self.uses_in_domain(&ty, &on, domain, &mut uses);
            }
            for table in self.catalog.tables().filter(|table| !gone.contains(&table.oid)) {
                self.interrupts.check()?;
                self.uses_in_table(&ty, &on, table, &mut uses)?;
            }
            self.uses_in_routines(&ty, &on, gone, &mut uses);
            for view in self.catalog.views().filter(|view| !gone.contains(&view.oid)) {
                let has_column = view.columns.iter().any(|column| column.ty.user_type() == Some(ty.oid()));
                if has_column || view.depends_on.contains(&ty.oid()) {
                    uses.add_view(self, view, &on);
                }
            }
        }
        self.uses_in_views(gone, &mut uses);
        Ok(uses)
    }

    /// A domain goes with the type that it is over, and with one that its default names; of its
    /// constraints those go that name a type.
    fn uses_in_domain(&self, ty: &UserType, on: &str, domain: &Arc<Domain>, uses: &mut Uses) {
        if uses.types.iter().any(|known| known.oid() == domain.oid) {
            return;
        }
        if domain.base.user_type() == Some(ty.oid()) || self.domain_default_names(ty, domain) {
            let domain = UserType::Domain(domain.clone());
            uses.dependents.push((describe_type(self, &domain), on.to_owned()));
            uses.types.push(domain);
            return;
        }
        for check in domain.checks.iter().filter(|check| self.condition_names(ty, domain, check)) {
            let known = (domain.oid, check.name.clone());
            if !uses.conditions.contains(&known) {
                uses.dependents.push((format!("constraint {}", check.name), on.to_owned()));
                uses.conditions.push(known);
            }
        }
    }

    /// Views over those that use types.
    fn uses_in_views(&self, gone: &BTreeSet<Oid>, uses: &mut Uses) {
        let mut at = 0;
        while let Some(oid) = uses.views.get(at).copied() {
            at += 1;
            let Some(under) = self.catalog.relation_by_oid(oid) else { continue };
            let on = describe(self, under);
            let over = self.catalog.views().filter(|view| view.depends_on.contains(&oid));
            for view in over.filter(|view| !gone.contains(&view.oid)) {
                uses.add_view(self, view, &on);
            }
        }
    }

    /// Functions and procedures with arguments or results of a type, and views that call them.
    fn uses_in_routines(&self, ty: &UserType, on: &str, gone: &BTreeSet<Oid>, uses: &mut Uses) {
        for routine in self.catalog.routines().filter(|routine| !gone.contains(&routine.oid)) {
            let Some(its_type) = routine.type_over(ty.oid()) else { continue };
            if uses.routines.contains(&routine.oid) {
                continue;
            }
            let array = if its_type.oid() == ty.oid() { "" } else { "[]" };
            let who = describe_routine(self, routine);
            uses.dependents.push((who.clone(), format!("{on}{array}")));
            uses.routines.push(routine.oid);
            let calling = self.catalog.views().filter(|view| view.depends_on.contains(&routine.oid));
            for view in calling.filter(|view| !gone.contains(&view.oid)) {
                uses.add_view(self, view, &who);
            }
        }
    }

    fn uses_in_table(&self, ty: &UserType, on: &str, table: &Arc<Table>, uses: &mut Uses) -> Result<()> {
        let described = describe(self, &Relation::Table(table.clone()));
        for (place, column) in table.visible_columns() {
            let is_of_it = column.ty.user_type() == Some(ty.oid());
            if is_of_it || self.generation_names(ty, table, place) {
                let known = (table.oid, column.name.clone());
                // It may be of another one of the types.
                if uses.columns.contains(&known) {
                    continue;
                }
                uses.columns.push(known);
                let array = if is_of_it && column.ty.oid() != ty.oid() { "[]" } else { "" };
                let who = format!("column {} of {described}", column.name);
                uses.dependents.push((who, format!("{on}{array}")));
            } else if self.default_names(ty, column) {
                uses.defaults.push((table.oid, column.name.clone()));
                let who = format!("default value for column {} of {described}", column.name);
                uses.dependents.push((who, on.to_owned()));
            }
        }
        for check in table.checks.iter().filter(|check| self.check_names(ty, table, check)) {
            uses.constraints.push((table.oid, check.name.clone()));
            uses.dependents.push((format!("constraint {} on {described}", check.name), on.to_owned()));
        }
        for index in table.indexes.iter().filter(|index| self.index_names(ty, table, index)) {
            let known = (table.oid, index.oid);
            if !uses.indexes.contains(&known) {
                uses.indexes.push(known);
                let index = Relation::Index(table.clone(), index.oid);
                uses.dependents.push((describe(self, &index), on.to_owned()));
            }
        }
        Ok(())
    }

    /// Whether what a generated column is has a cast to a type.
    fn generation_names(&self, ty: &UserType, table: &Arc<Table>, place: usize) -> bool {
        let Some(generated) = table.columns[place].generated.as_ref() else { return false };
        self.text_names(ty, &generated.text, |binder, syntax| {
            binder.generated_column(table, place, syntax).map(drop)
        })
    }

    /// Whether an expression of an index, or its predicate, has a cast to a type.
    fn index_names(&self, ty: &UserType, table: &Arc<Table>, index: &Index) -> bool {
        let of_expression = |one: &Computed| {
            self.text_names(ty, &one.text, |binder, syntax| binder.index_expression(table, syntax).map(drop))
        };
        let of_predicate = |one: &Computed| {
            self.text_names(ty, &one.text, |binder, syntax| binder.index_predicate(table, syntax).map(drop))
        };
        index.expressions.iter().any(of_expression) || index.predicate.as_ref().is_some_and(of_predicate)
    }

    /// Whether a stored text that is bound like this names a type.
    fn text_names(
        &self,
        ty: &UserType,
        text: &str,
        bind: impl FnOnce(&mut Binder<'_>, &ast::Expr) -> Result<()>,
    ) -> bool {
        if !mentions(text, ty.name()) {
            return false;
        }
        let named = parse_expression(text).and_then(|syntax| {
            self.bind(|binder| {
                bind(binder, &syntax)?;
                Ok(binder.user_types().contains(&ty.oid()))
            })
        });
        named.unwrap_or(false)
    }

    /// Whether a column's default has a cast to a type.
    fn default_names(&self, ty: &UserType, column: &Column) -> bool {
        let Some(text) = column.default.as_deref() else { return false };
        self.text_names(ty, text, |binder, syntax| bind_default(binder, column, syntax).map(drop))
    }

    /// Whether a domain's default has a cast to a type.
    fn domain_default_names(&self, ty: &UserType, domain: &Domain) -> bool {
        let Some(text) = domain.default.as_deref() else { return false };
        self.text_names(ty, text, |binder, syntax| {
            binder.push_level();
            let bound = binder.in_clause(Clause::Default, |binder| binder.expression(syntax));
            binder.pop_level()?;
            bound.map(drop)
        })
    }

    /// Whether a domain's constraint has a cast to a type.
    fn condition_names(&self, ty: &UserType, domain: &Domain, check: &DomainCheck) -> bool {
        if !mentions(&check.expression, ty.name()) {
            return false;
        }
        let named = parse_expression(&check.expression).and_then(|syntax| {
            self.bind(|binder| binder.types_of_condition(domain.base, &check.search_path, &syntax))
        });
        named.is_ok_and(|named| named.contains(&ty.oid()))
    }

    /// Whether a table's constraint has a cast to a type.
    fn check_names(&self, ty: &UserType, table: &Arc<Table>, check: &Check) -> bool {
        self.text_names(ty, &check.expression, |binder, syntax| bind_check(binder, table, syntax).map(drop))
    }
}
