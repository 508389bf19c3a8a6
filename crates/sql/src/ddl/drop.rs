//! DROP of tables, views, sequences, indexes, schemas and routines, with what depends on them (of
//! types: `user_type`).
//!
//! A drop is planned first: what goes, which tables lose a foreign key or a default, and who would
//! object. Then the tables are locked, the plan is made again, and if the locks still cover it, it
//! is carried out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cognate_engine::TreeMode;
use sqlparser::ast;

use super::names::Qualified;
use super::resolve::{undefined_schema, wrong_type};
use super::routine::lock_name;
use super::sequence::sequences_in;
use super::user_type::Uses;
use crate::catalog::{Catalog, Object, Oid, Relation, Routine, Table};
use crate::error::{Result, SqlError, sqlstate};
use crate::function::Interrupt as _;
use crate::parse::DropRoutine;
use crate::session::work::Work;

/// What a drop does.
#[derive(Default)]
pub(super) struct Plan {
    /// Objects that go: relations, routines and schemas.
    pub(super) removed: BTreeSet<Oid>,
    /// Tables that stay but change.
    changed: BTreeMap<Oid, Table>,
    /// Who depends on what that goes, in order: "view v", "table t".
    pub(super) dependents: Vec<(String, String)>,
    /// What else uses types that go with their schema.
    pub(super) uses: Uses,
}

/// `function f(integer)`, qualified unless it is found by its plain name. So are procedures called
/// where others depend on them.
pub(super) fn describe_routine(work: &Work<'_>, routine: &Routine) -> String {
    let path = work.facts.lookup_path(&work.catalog);
    let inputs = routine.input_types();
    let mut named = work.catalog.routines_named(&path, None, &routine.name);
    let found = named.find(|(_, known)| known.input_types() == inputs);
    if found.is_some_and(|(_, known)| known.oid == routine.oid) {
        format!("function {}", routine.identity(work.format))
    } else {
        format!("function {}.{}", routine.schema_name, routine.identity(work.format))
    }
}

/// `table t`, qualified unless it is found by its plain name.
pub(crate) fn describe(work: &Work<'_>, relation: &Relation) -> String {
    let path = work.facts.lookup_path(&work.catalog);
    let found = work.catalog.find(&path, None, relation.name()).map(Relation::oid);
    if found == Some(relation.oid()) {
        format!("{} {}", relation.kind(), relation.name())
    } else {
        format!("{} {}.{}", relation.kind(), relation.schema_name(), relation.name())
    }
}

impl Plan {
    pub(super) fn add(&mut self, relation: &Relation) {
        if !self.removed.insert(relation.oid()) {
            return;
        }
        if let Relation::Table(table) = relation {
            self.removed.extend(table.columns.iter().filter_map(|column| column.sequence));
        }
    }

    /// Sequences go with the columns that they belong to.
    fn add_owned_sequences(&mut self, catalog: &Catalog) {
        let owned = catalog.sequences().filter(|sequence| {
            let table = sequence.owner.map(|(table, _)| table);
            table.is_some_and(|table| self.removed.contains(&table))
        });
        let owned: Vec<Oid> = owned.map(|sequence| sequence.oid).collect();
        self.removed.extend(owned);
    }

    /// Adds what depends on what goes, until nothing more does.
    pub(super) fn close(&mut self, work: &Work<'_>) -> Result<()> {
        let catalog = work.catalog.clone();
        self.add_owned_sequences(&catalog);
        loop {
            work.interrupts.check()?;
            let before = self.removed.len();
            self.close_views(work, &catalog);
            self.close_routines(work, &catalog);
            if self.removed.len() == before {
                break;
            }
        }
        for table in catalog.tables() {
            if !self.removed.contains(&table.oid) {
                work.interrupts.check()?;
                self.close_table(work, &catalog, table);
            }
        }
        Ok(())
    }

    fn close_views(&mut self, work: &Work<'_>, catalog: &Arc<Catalog>) {
        for view in catalog.views() {
            if self.removed.contains(&view.oid) {
                continue;
            }
            let Some(on) = view.depends_on.iter().find(|oid| self.removed.contains(oid)) else { continue };
            let relation = Relation::View(view.clone());
            let routine = catalog.routine_by_oid(*on).map(|routine| describe_routine(work, routine));
            let on = catalog.relation_by_oid(*on).map(|on| describe(work, on)).or(routine);
            self.dependents.push((describe(work, &relation), on.unwrap_or_default()));
            self.add(&relation);
        }
    }

    /// Functions whose result is a row of what goes.
    fn close_routines(&mut self, work: &Work<'_>, catalog: &Catalog) {
        for routine in catalog.routines() {
            let on = routine.row_of.filter(|oid| self.removed.contains(oid));
            if let Some(on) = on.and_then(|oid| catalog.relation_by_oid(oid))
                && self.removed.insert(routine.oid)
            {
                self.dependents.push((describe_routine(work, routine), format!("type {}", on.name())));
            }
        }
    }

    /// What a table that stays loses.
    fn close_table(&mut self, work: &Work<'_>, catalog: &Arc<Catalog>, table: &Arc<Table>) {
        let mut changed = Table::clone(table);
        let mut is_changed = false;
        let described = describe(work, &Relation::Table(table.clone()));
        changed.foreign_keys.retain(|key| {
            let stays = !self.removed.contains(&key.referenced_table);
            if !stays {
                let on = catalog.relation_by_oid(key.referenced_table).map(|on| describe(work, on));
                let who = format!("constraint {} on {described}", key.name);
                self.dependents.push((who, on.unwrap_or_default()));
            }
            is_changed |= !stays;
            stays
        });
        let references = changed.referenced_by.len();
        changed.referenced_by.retain(|reference| !self.removed.contains(&reference.table));
        is_changed |= changed.referenced_by.len() != references;
        for column in &mut changed.columns {
            let is_gone = |oid: &Oid| self.removed.contains(oid);
            let used = column.default.as_deref().and_then(|text| sequences_in(text).find(is_gone));
            if let Some(sequence) = used {
                let on = catalog.relation_by_oid(sequence).map(|on| describe(work, on)).unwrap_or_default();
                self.dependents
                    .push((format!("default value for column {} of {described}", column.name), on));
                column.default = None;
                is_changed = true;
            }
            if column.sequence.is_some_and(|sequence| self.removed.contains(&sequence)) {
                column.sequence = None;
                is_changed = true;
            }
        }
        if is_changed {
            self.changed.insert(table.oid, changed);
        }
    }

    /// 2BP01 if others depend on what is dropped, and are not to go with it.
    pub(super) fn refuse_dependents(&self, targets: &[String], cascade: bool) -> Result<()> {
        if cascade || self.dependents.is_empty() {
            return Ok(());
        }
        let what = match targets {
            [only] => only.as_str(),
            _ => "desired object(s)",
        };
        Err(depend(what, &self.dependents))
    }

    /// Tables, sequences and views that must be locked.
    fn relations(&self, catalog: &Catalog) -> BTreeSet<Oid> {
        let removed = self.removed.iter().filter(|oid| catalog.relation_by_oid(**oid).is_some());
        removed.chain(self.changed.keys()).copied().collect()
    }
}

pub(crate) fn depend(what: &str, dependents: &[(String, String)]) -> SqlError {
    let lines: Vec<String> = dependents.iter().map(|(who, on)| format!("{who} depends on {on}")).collect();
    let them = if what == "desired object(s)" { "them" } else { "it" };
    SqlError::new(
        sqlstate::DEPENDENT_OBJECTS_STILL_EXIST,
        format!("cannot drop {what} because other objects depend on {them}"),
    )
    .with_detail(lines.join("\n"))
    .with_hint("Use DROP ... CASCADE to drop the dependent objects too.")
}

/// The NOTICE of a drop that takes others along.
pub(crate) fn cascade_notice(dependents: &[String]) -> Option<SqlError> {
    match dependents {
        [] => None,
        [one] => Some(SqlError::notice(format!("drop cascades to {one}"))),
        many => {
            let lines: Vec<String> = many.iter().map(|one| format!("drop cascades to {one}")).collect();
            let notice = SqlError::notice(format!("drop cascades to {} other objects", many.len()));
            Some(notice.with_detail(lines.join("\n")))
        }
    }
}

impl Work<'_> {
    /// DROP TABLE, VIEW, SEQUENCE.
    pub(crate) async fn drop_relations(
        &mut self,
        kind: &'static str,
        names: &[ast::ObjectName],
        if_exists: bool,
        cascade: bool,
    ) -> Result<()> {
        let names = names.iter().map(Qualified::from_object_name).collect::<Result<Vec<_>>>()?;
        let mut locked = BTreeSet::new();
        loop {
            self.refresh_catalog();
            let mut missing = Vec::new();
            let planned = self.plan_relations(kind, &names, if_exists, cascade, &mut missing);
            if let Some(plan) = self.covered(planned, missing, &mut locked).await? {
                return self.carry_out(plan);
            }
        }
    }

    /// What goes with these relations. Notices about those that are not there come before what is
    /// said of the others, be it an error.
    fn plan_relations(
        &self,
        kind: &'static str,
        names: &[Qualified],
        if_exists: bool,
        cascade: bool,
        missing: &mut Vec<SqlError>,
    ) -> Result<Plan> {
        let mut plan = Plan::default();
        let mut targets = Vec::new();
        for name in names {
            match self.droppable(kind, name) {
                Ok(relation) => {
                    self.require_droppable(&relation)?;
                    targets.push(describe(self, &relation));
                    plan.add(&relation);
                }
                Err(error) if if_exists && error.sqlstate != sqlstate::WRONG_OBJECT_TYPE => {
                    missing.push(SqlError::notice(format!("{}, skipping", error.message)));
                }
                Err(error) => return Err(error),
            }
        }
        self.refuse_identity_sequences(&plan)?;
        plan.close(self)?;
        plan.refuse_dependents(&targets, cascade)?;
        self.refuse_defaults_of_domains(&plan.removed, cascade)?;
        Ok(plan)
    }

    /// The plan, once what it needs is locked and it has not changed meanwhile.
    pub(super) async fn covered(
        &mut self,
        planned: Result<Plan>,
        missing: Vec<SqlError>,
        locked: &mut BTreeSet<Oid>,
    ) -> Result<Option<Plan>> {
        if let Ok(plan) = &planned
            && !self.lock_for(plan, locked).await?
        {
            return Ok(None);
        }
        self.notices.extend(missing);
        planned.map(Some)
    }

    /// Drops a session's temporary objects, and their schema if it is to go, too.
    pub(crate) async fn drop_temporary(&mut self, schema: Oid, with_schema: bool) -> Result<()> {
        let inside = |catalog: &Catalog| {
            let relations =
                catalog.relations_in(schema).filter(|relation| !matches!(relation, Relation::Index(..)));
            let routines = catalog.routines().filter(|routine| routine.schema == schema);
            relations.map(Relation::oid).chain(routines.map(|routine| routine.oid)).collect()
        };
        self.drop_silently(inside, with_schema.then_some(schema)).await
    }

    /// Drops what is picked, with what depends on it, and then the schema, and says nothing of it.
    pub(crate) async fn drop_silently(
        &mut self,
        pick: impl Fn(&Catalog) -> Vec<Oid>,
        schema: Option<Oid>,
    ) -> Result<()> {
        let mut locked = BTreeSet::new();
        loop {
            self.refresh_catalog();
            let mut plan = Plan::default();
            for oid in pick(&self.catalog) {
                match self.catalog.relation_by_oid(oid) {
                    Some(relation) => plan.add(relation),
                    None => drop(plan.removed.insert(oid)),
                }
            }
            plan.close(self)?;
            plan.dependents.clear();
            plan.removed.extend(schema.filter(|schema| self.catalog.schema_by_oid(*schema).is_some()));
            if self.lock_for(&plan, &mut locked).await? {
                return self.carry_out(plan);
            }
        }
    }

    /// Drops relations and routines that a role owns, with what depends on them if that is said.
    pub(super) async fn drop_owned_objects(&mut self, owned: &[Oid], cascade: bool) -> Result<()> {
        let mut locked = BTreeSet::new();
        loop {
            self.refresh_catalog();
            let mut plan = Plan::default();
            for oid in owned {
                match self.catalog.relation_by_oid(*oid) {
                    Some(relation) => plan.add(relation),
                    None if self.catalog.routine_by_oid(*oid).is_some() => drop(plan.removed.insert(*oid)),
                    None => {}
                }
            }
            plan.close(self)?;
            if !cascade && !plan.dependents.is_empty() {
                return Err(depend("desired object(s)", &plan.dependents));
            }
            if self.lock_for(&plan, &mut locked).await? {
                return self.carry_out(plan);
            }
        }
    }

    /// DROP FUNCTION, PROCEDURE and ROUTINE.
    pub(crate) async fn drop_routines(&mut self, drop: &DropRoutine) -> Result<()> {
        self.refresh_catalog();
        let (named, _) = self.routines_to_drop(drop)?;
        for routine in &named {
            self.lock_name(routine.schema, &lock_name(&routine.name)).await?;
        }
        let mut locked = BTreeSet::new();
        loop {
            // What the names meant before a wait may have changed.
            self.refresh_catalog();
            let (named, missing) = self.routines_to_drop(drop)?;
            named.iter().try_for_each(|routine| self.require_routine_droppable(routine))?;
            let mut plan = Plan::default();
            plan.removed.extend(named.iter().map(|routine| routine.oid));
            plan.close(self)?;
            if !drop.cascade && !plan.dependents.is_empty() {
                let what = match named.as_slice() {
                    [only] => describe_routine(self, only),
                    _ => "desired object(s)".to_owned(),
                };
                self.notices.extend(missing);
                return Err(depend(&what, &plan.dependents));
            }
            if self.lock_for(&plan, &mut locked).await? {
                self.notices.extend(missing);
                return self.carry_out(plan);
            }
        }
    }

    /// DROP INDEX.
    pub(crate) async fn drop_indexes(
        &mut self,
        names: &[ast::ObjectName],
        if_exists: bool,
        cascade: bool,
    ) -> Result<()> {
        for name in names {
            let name = Qualified::from_object_name(name)?;
            self.require_usage(&name)?;
            let Some((table, oid)) = self.locked_index(&name).await? else {
                let error = missing(self, "index", &name);
                if !if_exists {
                    return Err(error);
                }
                self.notice(SqlError::notice(format!("{}, skipping", error.message)));
                continue;
            };
            let index = table.index(oid).ok_or_else(|| missing(self, "index", &name))?;
            self.require_droppable(&Relation::Index(table.clone(), oid))?;
            if index.constraint.is_some() {
                let what = format!("constraint {} on table {}", index.name, table.name);
                return Err(SqlError::new(
                    sqlstate::DEPENDENT_OBJECTS_STILL_EXIST,
                    format!("cannot drop index {} because {what} requires it", index.name),
                )
                .with_hint(format!("You can drop {what} instead.")));
            }
            self.drop_references(&table, index, &format!("index {}", index.name), cascade).await?;
            self.engine.drop_tree(index.tree);
            // As the foreign keys that went have left it.
            let mut table = self.table_copy(table.oid)?;
            table.indexes.retain(|index| index.oid != oid);
            self.change(Object::Table(table.into()))?;
        }
        Ok(())
    }

    /// The index of this name, with its table locked. Whoever was waited for may have dropped it,
    /// or given its name to an index of another table.
    async fn locked_index(&mut self, name: &Qualified) -> Result<Option<(Arc<Table>, Oid)>> {
        let mut locked = None;
        loop {
            match self.find(name) {
                Some(Relation::Index(table, oid)) if locked == Some(table.oid) => {
                    return Ok(Some((table, oid)));
                }
                Some(Relation::Index(table, _)) => {
                    self.lock_table(table.oid, TreeMode::Exclusive).await?;
                    locked = Some(table.oid);
                }
                Some(other) => return Err(wrong_kind(&other, "index")),
                None => return Ok(None),
            }
        }
    }

    /// A foreign key that uses this index of the table: its name and table.
    pub(crate) fn reference_to(&self, table: &Table, index: Oid) -> Option<(String, Arc<Table>)> {
        table.referenced_by.iter().find_map(|reference| {
            let child = self.catalog.table_by_oid(reference.table)?;
            let key = child.foreign_key(reference.constraint)?;
            (key.referenced_index == index).then(|| (key.name.clone(), child.clone()))
        })
    }

    fn droppable(&self, kind: &'static str, name: &Qualified) -> Result<Relation> {
        self.require_usage(name)?;
        match self.find(name) {
            Some(relation) if relation.kind() == kind => Ok(relation),
            Some(relation) => Err(wrong_kind(&relation, kind)),
            None => Err(missing(self, kind, name)),
        }
    }

    fn refuse_identity_sequences(&self, plan: &Plan) -> Result<()> {
        for sequence in plan.removed.iter().filter_map(|oid| self.catalog.sequence_by_oid(*oid)) {
            let owner =
                sequence.owner.filter(|(table, _)| sequence.identity && !plan.removed.contains(table));
            let Some((table, place)) = owner else { continue };
            let Some(table) = self.catalog.table_by_oid(table) else { continue };
            let column = format!("column {} of table {}", table.columns[place].name, table.name);
            return Err(SqlError::new(
                sqlstate::DEPENDENT_OBJECTS_STILL_EXIST,
                format!("cannot drop sequence {} because {column} requires it", sequence.name),
            )
            .with_hint(format!("You can drop {column} instead.")));
        }
        Ok(())
    }

    /// Locks a plan's relations: whoever is changing one of them would store it again. False if
    /// there was something left to lock: then the plan is to be made again.
    async fn lock_for(&mut self, plan: &Plan, locked: &mut BTreeSet<Oid>) -> Result<bool> {
        let wanted = plan.relations(&self.catalog);
        let new: Vec<Oid> = wanted.difference(locked).copied().collect();
        for &oid in &new {
            self.interrupts.check()?;
            self.lock_table(oid, TreeMode::Exclusive).await?;
            if let Some(Relation::View(view)) = self.catalog.relation_by_oid(oid).cloned() {
                self.lock_name(view.schema, &view.name).await?;
            }
            let has_list = self.catalog.relation_by_oid(oid).is_some_and(|of| !of.is_temporary());
            if has_list && self.catalog.has_roles() && plan.removed.contains(&oid) {
                // Who gives something on it would leave a list of nothing.
                self.lock_access(oid).await?;
            }
            locked.insert(oid);
        }
        Ok(new.is_empty())
    }

    pub(super) fn carry_out(&mut self, plan: Plan) -> Result<()> {
        for &oid in &plan.removed {
            self.require_unused(oid, "DROP TABLE")?;
        }
        let dependents: Vec<String> = plan.dependents.iter().map(|(who, _)| who.clone()).collect();
        self.notices.extend(cascade_notice(&dependents));
        self.change_all(plan.changed.into_values().map(|table| Object::Table(table.into())))?;
        for &oid in &plan.removed {
            if let Some(table) = self.catalog.table_by_oid(oid).cloned() {
                self.drop_trees(&table);
            }
        }
        self.remove_all(plan.removed)
    }
}

fn wrong_kind(relation: &Relation, kind: &str) -> SqlError {
    let article = if relation.kind().starts_with('i') { "an" } else { "a" };
    wrong_type(relation.name(), kind).with_hint(format!(
        "Use DROP {} to remove {article} {}.",
        relation.kind().to_uppercase(),
        relation.kind()
    ))
}

fn missing(work: &Work<'_>, kind: &str, name: &Qualified) -> SqlError {
    if let Some(schema) = name.schema.as_deref().filter(|schema| !work.is_schema(schema)) {
        return undefined_schema(schema);
    }
    let state = if kind == "index" { sqlstate::UNDEFINED_OBJECT } else { sqlstate::UNDEFINED_TABLE };
    SqlError::new(state, format!("{kind} \"{}\" does not exist", name.name))
}
