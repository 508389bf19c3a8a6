//! Who owns what: OWNER TO, REASSIGN OWNED, DROP OWNED.
//!
//! A table's owner owns its indexes, and the sequences of its columns with it. A list of privileges
//! follows: what the old owner had and gave, the new one has and gave.

use std::sync::Arc;

use sqlparser::ast;

use super::names::{Qualified, single};
use super::permission::denied;
use super::resolve::{undefined_schema, undefined_table, wrong_type};
use crate::catalog::{
    Access, DefaultAccess, OWNER_OID, Object, Oid, Privileges, Relation, Securable, access_list,
};
use crate::error::{Result, SqlError, sqlstate};
use crate::parse::{OwnerStatement, RoleRef, RoutineArgument};
use crate::session::work::Work;

impl Work<'_> {
    /// A statement about owners.
    pub(crate) async fn owner_statement(&mut self, statement: &OwnerStatement) -> Result<()> {
        match statement {
            OwnerStatement::Alter { kind, name, arguments, if_exists, owner } => {
                match self.alter_owner(kind, name, arguments.as_deref(), owner).await {
                    Err(error) if *if_exists && error.sqlstate == sqlstate::UNDEFINED_TABLE => {
                        self.notice(SqlError::notice(format!("{}, skipping", error.message)));
                        Ok(())
                    }
                    done => done,
                }
            }
            OwnerStatement::Reassign { from, to } => self.reassign_owned(from, to).await,
            OwnerStatement::Drop { of, cascade } => self.drop_owned(of, *cascade).await,
        }
    }

    /// The role that CREATE ... AUTHORIZATION names, which stays until the transaction ends; none
    /// before there are roles. 42704, 42501.
    pub(super) async fn owner_named(&mut self, name: &ast::Ident) -> Result<Option<Oid>> {
        let role = match self.role_word(name) {
            Some(word) => RoleRef::Named(ast::Ident::with_quote('"', word)),
            None => RoleRef::Named(name.clone()),
        };
        if self.is_before_roles(&role) {
            return Ok(None);
        }
        let role = self.role_named(&role)?;
        self.require_member(role)?;
        self.hold_role(role).await?;
        Ok(Some(role).filter(|_| self.catalog.has_roles()))
    }

    /// 42501 unless the session may become a role.
    pub(super) fn require_member(&self, role: Oid) -> Result<()> {
        let Some(rights) = self.rights() else { return Ok(()) };
        if self.catalog.memberships(rights.role, false).contains(&role) {
            return Ok(());
        }
        let name = self.catalog.role_name(role).unwrap_or_default();
        Err(denied(format!("must be member of role \"{name}\"")))
    }

    async fn alter_owner(
        &mut self,
        kind: &str,
        name: &ast::ObjectName,
        arguments: Option<&[RoutineArgument]>,
        owner: &RoleRef,
    ) -> Result<()> {
        let (object, schema) = self.object_to_own(kind, name, arguments).await?;
        if self.is_before_roles(owner) {
            // Nothing is kept of owners yet.
            return Ok(());
        }
        let owner = self.role_named(owner)?;
        if owner == self.catalog.owner(object) {
            return Ok(());
        }
        self.refuse_linked(object)?;
        self.require_owner_of(object)?;
        if kind == "INDEX" {
            return self.warn_of_index(name);
        }
        if self.rights().is_some() {
            self.require_member(owner)?;
            match schema {
                Some(schema) => {
                    let rights = self.catalog.rights(owner);
                    let create = Privileges::CREATE;
                    if self.catalog.privileges(&rights, schema, Securable::Schema, create).is_empty() {
                        let name = self.catalog.schema_by_oid(schema).map(|schema| schema.name.clone());
                        let name = name.unwrap_or_default();
                        return Err(denied(format!("permission denied for schema {name}")));
                    }
                }
                None if kind == "SCHEMA" => self.require_on_database(Privileges::CREATE, None)?,
                None if kind == "DATABASE" && !self.may_create_databases() => {
                    return Err(denied("permission denied to change owner of database"));
                }
                None => {}
            }
        }
        self.own_with_parts(object, owner).await
    }

    /// A WARNING that the owner of an index stays that of its table.
    fn warn_of_index(&mut self, name: &ast::ObjectName) -> Result<()> {
        let name = Qualified::from_object_name(name)?;
        let message = format!("cannot change owner of index \"{}\"", name.name);
        let warning = SqlError::warning(sqlstate::WRONG_OBJECT_TYPE, message);
        self.notice(warning.with_hint("Change the ownership of the index's table, instead."));
        Ok(())
    }

    /// The object that is to have another owner, and its schema.
    async fn object_to_own(
        &mut self,
        kind: &str,
        name: &ast::ObjectName,
        arguments: Option<&[RoutineArgument]>,
    ) -> Result<(Oid, Option<Oid>)> {
        match kind {
            "SCHEMA" => {
                let name = single(name)?;
                let schema = self.catalog.schema(&name).ok_or_else(|| undefined_schema(&name))?;
                Ok((schema.oid, None))
            }
            "DATABASE" => {
                let name = single(name)?;
                Ok((self.database_called(&name)?.oid, None))
            }
            "TYPE" | "DOMAIN" => {
                let ty = self.locked_type(&Qualified::from_object_name(name)?).await?;
                Ok((ty.oid(), Some(ty.schema())))
            }
            "FUNCTION" | "PROCEDURE" | "ROUTINE" => {
                let name = Qualified::from_object_name(name)?;
                let routine = self.named_routine(OwnerStatement::routine_kind(kind), &name, arguments)?;
                Ok((routine.oid, Some(routine.schema)))
            }
            kind => self.relation_to_own(kind, &Qualified::from_object_name(name)?),
        }
    }

    /// 0A000 for the sequence of a column: it has the owner of its table.
    fn refuse_linked(&self, object: Oid) -> Result<()> {
        let Some(sequence) = self.catalog.sequence_by_oid(object) else { return Ok(()) };
        let Some((table, _)) = sequence.owner else { return Ok(()) };
        let table = self.catalog.table_by_oid(table).map_or("", |table| &table.name);
        let message = format!("cannot change owner of sequence \"{}\"", sequence.name);
        let detail = format!("Sequence \"{}\" is linked to table \"{table}\".", sequence.name);
        Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message).with_detail(detail))
    }

    fn relation_to_own(&self, kind: &str, name: &Qualified) -> Result<(Oid, Option<Oid>)> {
        self.require_usage(name)?;
        let relation = self.find(name).ok_or_else(|| undefined_table(name))?;
        let fits = match &relation {
            // ALTER TABLE takes all relations but indexes, whose owner is the table's.
            Relation::Index(..) => kind == "INDEX",
            relation => kind == "TABLE" || relation.kind().eq_ignore_ascii_case(kind),
        };
        if !fits {
            return Err(wrong_type(relation.name(), &kind.to_lowercase()));
        }
        if let Relation::Index(table, _) = &relation {
            return Ok((table.oid, Some(table.schema)));
        }
        Ok((relation.oid(), Some(relation.schema())))
    }

    fn require_owner_of(&self, object: Oid) -> Result<()> {
        if let Some(relation) = self.catalog.relation_by_oid(object) {
            return self.require_relation_owner(relation);
        }
        if let Some(routine) = self.catalog.routine_by_oid(object) {
            return self.require_routine_owner(routine);
        }
        if let Some(ty) = self.catalog.user_type_by_oid(object) {
            return self.require_type_owner(&ty);
        }
        match self.catalog.schema_by_oid(object) {
            Some(schema) => self.require_schema_owner(schema),
            None => self.require_owner(object, || format!("database {}", self.name_of_database(object))),
        }
    }

    /// Gives an object another owner, and the sequences of a table's columns with it.
    async fn own_with_parts(&mut self, object: Oid, owner: Oid) -> Result<()> {
        self.hold_role(owner).await?;
        self.lock_access(object).await?;
        if self.catalog.object(object).is_none() {
            let message = format!("object with OID {object} does not exist");
            return Err(SqlError::new(sqlstate::UNDEFINED_OBJECT, message));
        }
        self.set_owner(object, owner)?;
        let Some(table) = self.catalog.table_by_oid(object).cloned() else { return Ok(()) };
        for sequence in self.catalog.sequences_of(&table) {
            self.lock_access(sequence).await?;
            self.set_owner(sequence, owner)?;
        }
        Ok(())
    }

    /// Stores an object's owner.
    pub(super) fn set_owner(&mut self, object: Oid, owner: Oid) -> Result<()> {
        match self.owned_by(object, owner)? {
            Some(access) => self.change(access),
            None => Ok(()),
        }
    }

    /// What is said of an object that gets another owner, if anything is to be said.
    fn owned_by(&self, object: Oid, owner: Oid) -> Result<Option<Object>> {
        if self.catalog.object(object).is_some_and(Object::is_temporary) {
            return Ok(None);
        }
        let old = self.catalog.owner(object);
        let list = self.catalog.list(object).map(|list| access_list::change_owner(&list, old, owner));
        let known = self.catalog.access(object).cloned();
        let oid = match &known {
            Some(known) => known.oid,
            None if old == owner => return Ok(None),
            None => self.allocate_oid()?,
        };
        let mut columns = known.map_or_else(Vec::new, |known| known.columns.clone());
        for of in &mut columns {
            of.list = access_list::change_owner(&of.list, old, owner);
        }
        Ok(Some(Object::Access(Access { oid, object, owner, list, columns }.into())))
    }

    /// The roles that REASSIGN and DROP OWNED name, if the session counts as each. 42501, 2BP01.
    fn owners(&self, roles: &[RoleRef], verb: &str) -> Result<Vec<Oid>> {
        let mut owners = Vec::new();
        for role in roles {
            let role = self.role_named(role)?;
            let name = self.catalog.role_name(role).unwrap_or(&self.facts.user);
            if self.rights().is_some_and(|rights| !rights.has(role)) {
                return Err(denied(format!("permission denied to {verb} objects")));
            }
            if role == OWNER_OID {
                let message = format!(
                    "cannot {verb} objects owned by role {name} because they are required by the database system"
                );
                return Err(SqlError::new(sqlstate::DEPENDENT_OBJECTS_STILL_EXIST, message));
            }
            owners.push(role);
        }
        Ok(owners)
    }

    async fn reassign_owned(&mut self, from: &[RoleRef], to: &RoleRef) -> Result<()> {
        let to = self.role_named(to)?;
        let from = self.owners(from, "reassign")?;
        if self.rights().is_some_and(|rights| !rights.has(to)) {
            return Err(denied("permission denied to reassign objects"));
        }
        self.hold_role(to).await?;
        let accesses = self.catalog.accesses().filter(|access| from.contains(&access.owner));
        let objects: Vec<Oid> = accesses.map(|access| access.object).collect();
        for &object in &objects {
            self.lock_access(object).await?;
        }
        let mut changed = Vec::new();
        for object in objects {
            // Somebody else may have dropped it before.
            if self.catalog.object(object).is_some() {
                changed.extend(self.owned_by(object, to)?);
            }
        }
        self.change_all(changed)
    }

    async fn drop_owned(&mut self, of: &[RoleRef], cascade: bool) -> Result<()> {
        let of = self.owners(of, "drop")?;
        self.revoke_all(&of).await?;
        let owned: Vec<Oid> = {
            let owned = self.catalog.accesses().filter(|access| of.contains(&access.owner));
            owned
                .map(|access| access.object)
                .filter(|object| self.catalog.database_by_oid(*object).is_none())
                .collect()
        };
        self.drop_objects(&owned, cascade).await
    }

    /// Takes from roles all that they have and gave, and what was said of objects to come.
    async fn revoke_all(&mut self, of: &[Oid]) -> Result<()> {
        let is_about = |access: &&Arc<Access>| of.iter().any(|role| access.mentions(*role));
        let objects: Vec<Oid> =
            self.catalog.accesses().filter(is_about).map(|access| access.object).collect();
        for &object in &objects {
            self.lock_access(object).await?;
        }
        let mut all = Vec::new();
        for object in objects {
            let Some(mut left) = self.catalog.access(object).map(|access| Access::clone(access)) else {
                continue;
            };
            let owner = left.owner;
            let columns = left.columns.iter_mut().map(|column| &mut column.list);
            for list in left.list.iter_mut().chain(columns) {
                of.iter().for_each(|role| access_list::forget(list, owner, *role));
            }
            let mut lists = self.lists(object);
            self.put_list(&mut lists, left.list)?;
            for column in left.columns {
                self.put_column_list(&mut lists, column.column, column.list)?;
            }
            all.push(lists);
        }
        self.store_lists(all)?;
        self.revoke_defaults(of)
    }

    /// Takes from roles what was said of objects to come.
    fn revoke_defaults(&mut self, of: &[Oid]) -> Result<()> {
        let (mut gone, mut changed) = (Vec::new(), Vec::new());
        let defaults: Vec<Arc<DefaultAccess>> = self.catalog.default_accesses().cloned().collect();
        for default in defaults {
            if of.contains(&default.role) {
                gone.push(default.oid);
                continue;
            }
            let mut list = default.list.clone();
            of.iter().for_each(|role| access_list::forget(&mut list, default.role, *role));
            if list != default.list {
                let default = DefaultAccess { list, ..DefaultAccess::clone(&default) };
                changed.push(Object::DefaultAccess(default.into()));
            }
        }
        self.remove_all(gone)?;
        self.change_all(changed)
    }

    /// Drops what roles own: relations and routines, then types, then schemas.
    async fn drop_objects(&mut self, objects: &[Oid], cascade: bool) -> Result<()> {
        let schemas: Vec<Oid> =
            objects.iter().copied().filter(|oid| self.catalog.schema_by_oid(*oid).is_some()).collect();
        let types: Vec<ast::ObjectName> = objects
            .iter()
            .filter_map(|oid| self.catalog.user_type_by_oid(*oid))
            .map(|ty| quoted(&[ty.schema_name(), ty.name()]))
            .collect();
        let others: Vec<Oid> = objects
            .iter()
            .copied()
            .filter(|oid| !schemas.contains(oid) && self.catalog.user_type_by_oid(*oid).is_none())
            .collect();
        self.drop_owned_objects(&others, cascade).await?;
        if !types.is_empty() {
            let dropped = super::user_type::Dropped::Types;
            self.drop_types(dropped, &types, true, cascade).await?;
        }
        let names: Vec<ast::ObjectName> = schemas
            .iter()
            .filter_map(|oid| self.catalog.schema_by_oid(*oid))
            .map(|schema| quoted(&[&schema.name]))
            .collect();
        if names.is_empty() { Ok(()) } else { self.drop_schemas(&names, true, cascade).await }
    }
}

fn quoted(parts: &[&str]) -> ast::ObjectName {
    ast::ObjectName::from(parts.iter().map(|part| ast::Ident::with_quote('"', *part)).collect::<Vec<_>>())
}
