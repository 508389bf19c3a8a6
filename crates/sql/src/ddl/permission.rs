//! What statements that change the catalog must be allowed: to own what they change, or to have a
//! privilege on it. 42501 in PostgreSQL's words.
//!
//! ```text
//! ALTER TABLE t ...       owner of t                     must be owner of table t
//! CREATE TABLE s.t ...    CREATE on schema s             permission denied for schema s
//! REFERENCES t            REFERENCES on t                permission denied for table t
//! ```
//!
//! Whoever is a member of the owner counts as the owner. Temporary objects are nobody's but the
//! session's. As long as there are no roles all is permitted.

use std::sync::Arc;

use sqlparser::ast;

use super::names::Qualified;
use crate::bind::schema_of_type;
use crate::catalog::{
    Catalog, Oid, Privileges, Relation, Rights, Routine, Schema, Securable, Table, UserType,
};
use crate::error::{Result, SqlError, sqlstate};
use crate::session::work::Work;
use crate::types::Type;

/// 42501.
pub(crate) fn denied(message: impl Into<String>) -> SqlError {
    SqlError::new(sqlstate::INSUFFICIENT_PRIVILEGE, message)
}

/// An object as messages about its privileges name it: `table t`, `function f`.
pub(crate) fn described(catalog: &Catalog, object: Oid, kind: Securable) -> String {
    if let Some(relation) = catalog.relation_by_oid(object) {
        return format!("{} {}", relation.kind(), relation.name());
    }
    if let Some(routine) = catalog.routine_by_oid(object) {
        return format!("{} {}", routine.kind.noun(), routine.name);
    }
    if let Some(ty) = catalog.user_type_by_oid(object) {
        return format!("type {}", ty.name());
    }
    match kind {
        Securable::Schema => {
            let name = catalog.schema_by_oid(object).map(|schema| schema.name.clone());
            format!("schema {}", name.unwrap_or_default())
        }
        _ => {
            let table = crate::pg_catalog::table_by_oid(object);
            let kind = if table.is_some_and(|table| table.view) { "view" } else { "table" };
            format!("{kind} {}", table.map_or("", |table| table.name))
        }
    }
}

impl Work<'_> {
    /// What the session may do; none is everything.
    pub(crate) fn rights(&self) -> Option<Arc<Rights>> {
        self.facts.rights(&self.catalog)
    }

    fn owns(&self, object: Oid) -> bool {
        self.rights().is_none_or(|rights| rights.has(self.catalog.owner(object)))
    }

    /// 42501 unless the session owns an object. `what` is its kind and name.
    pub(crate) fn require_owner(&self, object: Oid, what: impl FnOnce() -> String) -> Result<()> {
        if self.owns(object) { Ok(()) } else { Err(denied(format!("must be owner of {}", what()))) }
    }

    /// The same of a relation. An index is its table's owner's.
    pub(crate) fn require_relation_owner(&self, relation: &Relation) -> Result<()> {
        if relation.is_temporary() {
            return Ok(());
        }
        let owned = match relation {
            Relation::Index(table, _) => table.oid,
            relation => relation.oid(),
        };
        self.require_owner(owned, || format!("{} {}", relation.kind(), relation.name()))
    }

    /// The same of a routine.
    pub(crate) fn require_routine_owner(&self, routine: &Routine) -> Result<()> {
        if crate::catalog::is_temporary(&routine.schema_name) {
            return Ok(());
        }
        self.require_owner(routine.oid, || format!("{} {}", routine.kind.noun(), routine.name))
    }

    /// The same of a type.
    pub(crate) fn require_type_owner(&self, ty: &UserType) -> Result<()> {
        self.require_owner(ty.oid(), || format!("type {}", ty.name()))
    }

    /// The same of a schema.
    pub(crate) fn require_schema_owner(&self, schema: &Schema) -> Result<()> {
        if schema.home.is_some() {
            return Ok(());
        }
        self.require_owner(schema.oid, || format!("schema {}", schema.name))
    }

    /// Who owns an object or the schema that it is in may drop it.
    pub(crate) fn require_droppable(&self, relation: &Relation) -> Result<()> {
        match self.owns(relation.schema()) && !relation.is_temporary() {
            true => Ok(()),
            false => self.require_relation_owner(relation),
        }
    }

    /// The same of a routine.
    pub(crate) fn require_routine_droppable(&self, routine: &Routine) -> Result<()> {
        if self.owns(routine.schema) { Ok(()) } else { self.require_routine_owner(routine) }
    }

    /// The same of a type.
    pub(crate) fn require_type_droppable(&self, ty: &UserType) -> Result<()> {
        if self.owns(ty.schema()) { Ok(()) } else { self.require_type_owner(ty) }
    }

    /// 42501 unless the session has these privileges on an object.
    pub(crate) fn require(&self, object: Oid, kind: Securable, wanted: Privileges) -> Result<()> {
        let Some(rights) = self.rights() else { return Ok(()) };
        match self.catalog.privileges(&rights, object, kind, wanted).has_all(wanted) {
            true => Ok(()),
            false => Err(denied(format!("permission denied for {}", described(&self.catalog, object, kind)))),
        }
    }

    /// 42501 unless the session may make something of these types.
    pub(crate) fn require_types(&self, types: &[Type]) -> Result<()> {
        let mut users = types.iter().filter_map(|ty| ty.user_type());
        users.try_for_each(|ty| self.require(ty, Securable::Type, Privileges::USAGE))
    }

    /// The same of a table or view.
    pub(crate) fn require_on(&self, relation: &Relation, wanted: Privileges) -> Result<()> {
        let kind = match relation {
            Relation::Sequence(_) => Securable::Sequence,
            _ => Securable::Table,
        };
        if relation.is_temporary() { Ok(()) } else { self.require(relation.oid(), kind, wanted) }
    }

    /// 42501 unless the session has a privilege on a table, or on each of these columns of it; on
    /// any column, if these are none.
    pub(crate) fn require_on_columns(
        &self,
        table: &Table,
        places: &[usize],
        wanted: Privileges,
    ) -> Result<()> {
        let Some(rights) = self.rights().filter(|_| !table.temporary) else { return Ok(()) };
        let of_table = self.catalog.privileges(&rights, table.oid, Securable::Table, wanted);
        let places = places.iter().copied();
        match of_table.has_all(wanted) || self.catalog.has_on_columns(&rights, table.oid, places, wanted) {
            true => Ok(()),
            false => Err(denied(format!("permission denied for table {}", table.name))),
        }
    }

    /// The columns of a table that the session may read, if it may not read all of it.
    pub(crate) fn readable(&self, table: &Table) -> Option<Vec<usize>> {
        let rights = self.rights().filter(|_| !table.temporary)?;
        let (catalog, wanted) = (&self.catalog, Privileges::SELECT);
        if !catalog.privileges(&rights, table.oid, Securable::Table, wanted).is_empty() {
            return None;
        }
        let columns = table.visible_columns().map(|(place, _)| place);
        Some(columns.filter(|place| catalog.has_on_column(&rights, table.oid, *place, wanted)).collect())
    }

    /// 42501 unless the session has one of these privileges on a table.
    pub(crate) fn require_any(&self, table: &Table, wanted: Privileges) -> Result<()> {
        let Some(rights) = self.rights().filter(|_| !table.temporary) else { return Ok(()) };
        match self.catalog.privileges(&rights, table.oid, Securable::Table, wanted).is_empty() {
            true => Err(denied(format!("permission denied for table {}", table.name))),
            false => Ok(()),
        }
    }

    /// 42501 unless the session may make objects in a schema.
    pub(crate) fn require_create(&self, schema: &Schema) -> Result<()> {
        match schema.home {
            Some(_) => Ok(()),
            None => self.require(schema.oid, Securable::Schema, Privileges::CREATE),
        }
    }

    /// 42501 unless the session may use a schema that a statement names; 0A000 if that is in
    /// another database.
    pub(crate) fn require_usage(&self, name: &Qualified) -> Result<()> {
        name.check_database(&self.catalog)?;
        let schema = name.schema.as_deref().and_then(|schema| self.catalog.schema(schema));
        match schema.filter(|schema| schema.home.is_none()) {
            Some(schema) => self.require(schema.oid, Securable::Schema, Privileges::USAGE),
            None => Ok(()),
        }
    }

    /// The same of a schema that stands before the name of a type.
    pub(crate) fn require_usage_for_type(&self, data_type: &ast::DataType) -> Result<()> {
        match schema_of_type(data_type) {
            Some(schema) => self.require_usage(&Qualified::within(&schema, "")),
            None => Ok(()),
        }
    }

    /// 42501 unless the session has a privilege on the database. `to` says what for.
    pub(crate) fn require_on_database(&self, wanted: Privileges, to: Option<&str>) -> Result<()> {
        let Some(rights) = self.rights() else { return Ok(()) };
        let database = self.database.oid();
        if self.catalog.privileges(&rights, database, Securable::Database, wanted).has_all(wanted) {
            return Ok(());
        }
        let database = self.name_of_database(database);
        Err(denied(match to {
            Some(to) => format!("permission denied to {to} in database \"{database}\""),
            None => format!("permission denied for database {database}"),
        }))
    }

    /// Whether the session is a superuser's.
    pub(crate) fn is_superuser(&self) -> bool {
        self.facts.is_superuser(&self.catalog)
    }
}

impl Catalog {
    /// Whether a role may look names up in a schema.
    pub(crate) fn may_use(&self, rights: &Rights, schema: &Schema) -> bool {
        schema.home.is_some()
            || !self.privileges(rights, schema.oid, Securable::Schema, Privileges::USAGE).is_empty()
    }
}
