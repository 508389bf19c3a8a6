//! DROP SCHEMA, with what is in the schema and what depends on that.

use std::collections::BTreeSet;

use sqlparser::ast;

use super::drop::{Plan, cascade_notice, describe, describe_routine};
use super::names::single;
use super::resolve::undefined_schema;
use super::user_type::describe_type;
use crate::catalog::{Oid, PG_CATALOG_OID, Relation, Schema, UserType};
use crate::error::{Result, SqlError, sqlstate};
use crate::session::work::Work;

impl Work<'_> {
    /// DROP SCHEMA.
    pub(crate) async fn drop_schemas(
        &mut self,
        names: &[ast::ObjectName],
        if_exists: bool,
        cascade: bool,
    ) -> Result<()> {
        let names = names.iter().map(single).collect::<Result<Vec<_>>>()?;
        // Whoever makes something in one of them holds its name.
        for name in &names {
            self.lock_name(0, name).await?;
        }
        let mut locked = BTreeSet::new();
        let mut is_told = false;
        loop {
            self.refresh_catalog();
            let mut missing = Vec::new();
            let mut planned = self.plan_schemas(&names, if_exists, cascade, &mut missing);
            if let Ok(plan) = &mut planned {
                if !self.hold_types_of(plan, &mut locked).await? {
                    continue;
                }
                if is_told {
                    plan.dependents.clear();
                    missing.clear();
                }
            }
            let Some(mut plan) = self.covered(planned, missing, &mut locked).await? else { continue };
            let uses = std::mem::take(&mut plan.uses);
            if uses.is_empty() {
                return self.carry_out(plan);
            }
            if is_told {
                return Err(SqlError::internal("a type is used by what was dropped"));
            }
            // What stays loses its columns of the types first, and then goes all else.
            is_told = true;
            let dependents: Vec<String> = plan.dependents.iter().map(|(who, _)| who.clone()).collect();
            self.notices.extend(cascade_notice(&dependents));
            let is_view = |oid: &Oid| matches!(self.catalog.relation_by_oid(*oid), Some(Relation::View(_)));
            let views: Vec<Oid> = plan.removed.iter().copied().filter(is_view).collect();
            self.drop_views_silently(&views).await?;
            self.drop_used(uses).await?;
        }
    }

    /// Locks the names of the types that go: who makes a column of one holds it. False if one was
    /// not locked before: then the plan is to be made again.
    async fn hold_types_of(&mut self, plan: &Plan, locked: &mut BTreeSet<Oid>) -> Result<bool> {
        let over = plan.uses.types.iter().map(UserType::oid);
        let going: Vec<Oid> = plan.removed.iter().copied().chain(over).collect();
        let mut are_held = true;
        for oid in going {
            let Some(ty) = self.catalog.user_type_by_oid(oid) else { continue };
            if locked.insert(oid) {
                self.lock_name(ty.schema(), ty.name()).await?;
                are_held = false;
            }
        }
        Ok(are_held)
    }

    /// What goes with these schemas.
    fn plan_schemas(
        &self,
        names: &[String],
        if_exists: bool,
        cascade: bool,
        missing: &mut Vec<SqlError>,
    ) -> Result<Plan> {
        let catalog = self.catalog.clone();
        let mut plan = Plan::default();
        let mut targets = Vec::new();
        let mut types = Vec::new();
        for name in names {
            let Some(schema) = catalog.schema(name) else {
                if !if_exists {
                    return Err(undefined_schema(name));
                }
                missing.push(SqlError::notice(format!("schema \"{name}\" does not exist, skipping")));
                continue;
            };
            if schema.oid == PG_CATALOG_OID || name == "information_schema" {
                return Err(SqlError::new(
                    sqlstate::DEPENDENT_OBJECTS_STILL_EXIST,
                    format!("cannot drop schema {name} because it is required by the database system"),
                ));
            }
            self.require_schema_owner(schema)?;
            let on = format!("schema {name}");
            self.plan_contents(schema, &on, &mut plan, &mut types);
            targets.push(on);
            plan.removed.insert(schema.oid);
        }
        plan.removed.extend(types.iter().map(UserType::oid));
        if !types.is_empty() {
            let mut uses = self.uses(types, &plan.removed)?;
            plan.dependents.append(&mut uses.dependents);
            for view in uses.views.iter().filter_map(|oid| catalog.relation_by_oid(*oid)) {
                plan.add(view);
            }
            plan.uses = uses;
        }
        plan.close(self)?;
        plan.refuse_dependents(&targets, cascade)?;
        self.refuse_defaults_of_domains(&plan.removed, cascade)?;
        plan.uses.forget(&plan.removed);
        Ok(plan)
    }

    /// What is in a schema goes with it.
    fn plan_contents(&self, schema: &Schema, on: &str, plan: &mut Plan, types: &mut Vec<UserType>) {
        let mut inside: Vec<&Relation> = self.catalog.relations_in(schema.oid).collect();
        inside.sort_by_key(|relation| relation.oid());
        for relation in inside {
            let is_owned = matches!(relation, Relation::Sequence(sequence) if sequence.owner.is_some());
            if !matches!(relation, Relation::Index(..)) && !is_owned {
                plan.dependents.push((describe(self, relation), on.to_owned()));
            }
            if !matches!(relation, Relation::Index(..)) {
                plan.add(relation);
            }
        }
        for routine in self.catalog.routines().filter(|routine| routine.schema == schema.oid) {
            plan.dependents.push((describe_routine(self, routine), on.to_owned()));
            plan.removed.insert(routine.oid);
        }
        for ty in self.catalog.user_types().filter(|ty| ty.schema() == schema.oid) {
            plan.dependents.push((describe_type(self, &ty), on.to_owned()));
            types.push(ty);
        }
    }
}
