//! An immutable state of the catalog, and how the next one is made from it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

use super::temporary;
use super::{
    Access, DATABASE_OID, Database, DefaultAccess, Domain, EnumType, INFORMATION_SCHEMA_OID, Index, Oid,
    PG_CATALOG_OID, PUBLIC_OID, Rights, Role, RoleSettings, Routine, Schema, Sequence, Table, UserType, View,
};

/// Something with a place in the name space of relations.
#[derive(Clone, Debug)]
pub enum Relation {
    /// A table.
    Table(Arc<Table>),
    /// An index, by its oid, with its table.
    Index(Arc<Table>, Oid),
    /// A sequence.
    Sequence(Arc<Sequence>),
    /// A view.
    View(Arc<View>),
}

impl Relation {
    /// Its oid.
    pub fn oid(&self) -> Oid {
        match self {
            Relation::Table(table) => table.oid,
            Relation::Index(_, oid) => *oid,
            Relation::Sequence(sequence) => sequence.oid,
            Relation::View(view) => view.oid,
        }
    }

    /// Oid of its schema.
    pub fn schema(&self) -> Oid {
        match self {
            Relation::Table(table) | Relation::Index(table, _) => table.schema,
            Relation::Sequence(sequence) => sequence.schema,
            Relation::View(view) => view.schema,
        }
    }

    /// Name of its schema.
    pub fn schema_name(&self) -> &str {
        match self {
            Relation::Table(table) | Relation::Index(table, _) => &table.schema_name,
            Relation::Sequence(sequence) => &sequence.schema_name,
            Relation::View(view) => &view.schema_name,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Relation::Table(table) => &table.name,
            Relation::Index(table, oid) => table.index(*oid).map_or("", |index| &index.name),
            Relation::Sequence(sequence) => &sequence.name,
            Relation::View(view) => &view.name,
        }
    }

    /// The table, if it is one.
    pub fn as_table(&self) -> Option<&Arc<Table>> {
        if let Relation::Table(table) = self { Some(table) } else { None }
    }

    /// The index, if it is one.
    pub fn as_index(&self) -> Option<&Index> {
        if let Relation::Index(table, oid) = self { table.index(*oid) } else { None }
    }

    /// It is one session's, and goes with it.
    pub fn is_temporary(&self) -> bool {
        super::is_temporary(self.schema_name())
    }

    /// "table", "index", "sequence" or "view", as messages name it.
    pub fn kind(&self) -> &'static str {
        match self {
            Relation::Table(_) => "table",
            Relation::Index(..) => "index",
            Relation::Sequence(_) => "sequence",
            Relation::View(_) => "view",
        }
    }
}

/// What is stored as one document.
#[derive(Clone, Debug)]
pub enum Object {
    /// A schema.
    Schema(Arc<Schema>),
    /// A table with its indexes and constraints.
    Table(Arc<Table>),
    /// A sequence.
    Sequence(Arc<Sequence>),
    /// A view.
    View(Arc<View>),
    /// Settings of a role, or of all.
    RoleSettings(Arc<RoleSettings>),
    /// A role.
    Role(Arc<Role>),
    /// A database.
    Database(Arc<Database>),
    /// Owner and privileges of an object.
    Access(Arc<Access>),
    /// Privileges of objects to come.
    DefaultAccess(Arc<DefaultAccess>),
    /// A function or procedure.
    Routine(Arc<Routine>),
    /// An enum type.
    EnumType(Arc<EnumType>),
    /// A domain.
    Domain(Arc<Domain>),
}

/// Changed objects by oid; `None` is dropped.
pub type Changes = BTreeMap<Oid, Option<Object>>;

/// The catalog at one version. Cheap to share, immutable.
#[derive(Debug, Default)]
pub struct Catalog {
    /// Oid of the database that it is of.
    pub(super) database: Oid,
    version: u64,
    /// The version of the last change that concerned more than one session's temporary objects.
    shared_version: u64,
    pub(super) objects: BTreeMap<Oid, Object>,
    /// Oids of all databases.
    pub(super) databases: BTreeSet<Oid>,
    schemas: HashMap<String, Arc<Schema>>,
    relations: HashMap<Oid, HashMap<String, Relation>>,
    by_oid: HashMap<Oid, Relation>,
    role_settings: HashMap<Option<String>, Arc<RoleSettings>>,
    roles: HashMap<String, Arc<Role>>,
    /// Owners and privileges by the objects that they are of.
    access: HashMap<Oid, Arc<Access>>,
    /// Rights of roles that were asked for.
    rights: Mutex<HashMap<Oid, Arc<Rights>>>,
    /// Routines by schema and name, oldest first.
    routines: HashMap<Oid, HashMap<String, Vec<Arc<Routine>>>>,
    /// Types of users by schema and name.
    user_types: HashMap<(Oid, String), UserType>,
    /// Tables that were truncated, rewritten or indexed since the start, and the commit that did
    /// it.
    moved: HashMap<Oid, u64>,
}

impl Catalog {
    /// A catalog of the initial database: these objects and the built-in schemas.
    pub fn new(version: u64, objects: impl IntoIterator<Item = Object>) -> Catalog {
        Catalog::of_database(DATABASE_OID, version, objects)
    }

    /// A catalog of a database: these objects, its own and shared ones, and what is built in.
    pub fn of_database(database: Oid, version: u64, objects: impl IntoIterator<Item = Object>) -> Catalog {
        let mut all: BTreeMap<Oid, Object> = BTreeMap::new();
        for initial in Database::initial() {
            all.insert(initial.oid, Object::Database(Arc::new(initial)));
        }
        for (oid, name) in [
            (PG_CATALOG_OID, "pg_catalog"),
            (PUBLIC_OID, "public"),
            (INFORMATION_SCHEMA_OID, "information_schema"),
        ] {
            // As in a new database of PostgreSQL: a dump says what is not so.
            let comment = (oid == PUBLIC_OID).then(|| "standard public schema".to_owned());
            all.insert(oid, Object::Schema(Arc::new(Schema { comment, ..Schema::new(oid, name) })));
        }
        all.extend(objects.into_iter().map(|object| (object.oid(), object)));
        Catalog::build(database, version, all)
    }

    fn build(database: Oid, version: u64, mut objects: BTreeMap<Oid, Object>) -> Catalog {
        // What says of a schema that there is none any more.
        objects.retain(|_, object| !matches!(object, Object::Schema(schema) if schema.dropped));
        let mut catalog = Catalog { database, version, shared_version: version, ..Catalog::default() };
        for object in objects.values() {
            match object {
                Object::Schema(schema) => {
                    catalog.schemas.insert(schema.name.clone(), schema.clone());
                }
                Object::Table(table) => {
                    catalog.enter(Relation::Table(table.clone()));
                    for index in &table.indexes {
                        catalog.enter(Relation::Index(table.clone(), index.oid));
                    }
                }
                Object::Sequence(sequence) => catalog.enter(Relation::Sequence(sequence.clone())),
                Object::View(view) => catalog.enter(Relation::View(view.clone())),
                Object::RoleSettings(settings) => {
                    catalog.role_settings.insert(settings.role.clone(), settings.clone());
                }
                Object::Role(role) => {
                    catalog.roles.insert(role.name.clone(), role.clone());
                }
                Object::Database(database) => {
                    catalog.databases.insert(database.oid);
                }
                Object::Access(access) => {
                    catalog.access.insert(access.object, access.clone());
                }
                Object::DefaultAccess(_) => {}
                Object::EnumType(ty) => catalog.enter_type(UserType::Enum(ty.clone())),
                Object::Domain(domain) => catalog.enter_type(UserType::Domain(domain.clone())),
                Object::Routine(routine) => {
                    let names = catalog.routines.entry(routine.schema).or_default();
                    names.entry(routine.name.clone()).or_default().push(routine.clone());
                }
            }
        }
        catalog.objects = objects;
        catalog
    }

    fn enter(&mut self, relation: Relation) {
        let names = self.relations.entry(relation.schema()).or_default();
        names.insert(relation.name().to_owned(), relation.clone());
        self.by_oid.insert(relation.oid(), relation);
    }

    fn enter_type(&mut self, ty: UserType) {
        self.user_types.insert((ty.schema(), ty.name().to_owned()), ty);
    }

    /// The catalog after `changes`. Objects that did not change are shared with this one.
    pub fn with_changes(&self, version: u64, changes: &Changes) -> Catalog {
        let mut objects = self.objects.clone();
        for (oid, change) in changes {
            match change {
                Some(object) => objects.insert(*oid, object.clone()),
                None => objects.remove(oid),
            };
        }
        Catalog::build(self.database, version, objects)
    }

    /// Notes whose rows or entries went to other trees by the commit that made this from `before`.
    pub(crate) fn note_moved(&mut self, before: &Catalog, csn: u64) {
        self.moved.clone_from(&before.moved);
        self.moved.retain(|oid, _| self.by_oid.contains_key(oid));
        let entries = |table: &Table| table.indexes.iter().map(|index| index.tree).collect::<Vec<_>>();
        for (oid, relation) in &self.by_oid {
            if let (Some(old), Relation::Table(new)) = (before.table_by_oid(*oid), relation)
                && !Arc::ptr_eq(old, new)
                && (old.tree, entries(old)) != (new.tree, entries(new))
            {
                self.moved.insert(*oid, csn);
            }
        }
    }

    /// The commit that last moved a table's rows or entries to other trees; 0 if none did since the
    /// start. A snapshot before it does not find them there.
    pub(crate) fn moved_at(&self, table: Oid) -> u64 {
        self.moved.get(&table).copied().unwrap_or(0)
    }

    /// What made this from `before` concerned one session's temporary objects only.
    pub(crate) fn keep_shared_version(&mut self, before: &Catalog) {
        self.shared_version = before.shared_version;
    }

    /// The version as sessions know it that have no temporary objects: it does not grow when those
    /// of others change.
    pub(crate) fn shared_version(&self) -> u64 {
        self.shared_version
    }

    /// The version. Grows with every committed change; private catalogs have versions of their own
    /// above those.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The schema of this name.
    pub fn schema(&self, name: &str) -> Option<&Arc<Schema>> {
        self.schemas.get(name)
    }

    /// The schema of this oid.
    pub fn schema_by_oid(&self, oid: Oid) -> Option<&Arc<Schema>> {
        match self.objects.get(&oid) {
            Some(Object::Schema(schema)) => Some(schema),
            _ => None,
        }
    }

    /// The relation `schema.name`.
    pub fn relation(&self, schema: &str, name: &str) -> Option<&Relation> {
        self.relations.get(&self.schemas.get(schema)?.oid)?.get(name)
    }

    /// The relation of this name in the first schema of `search_path` that has one, or in `schema`
    /// if one is given: `pg_temp` is the path's schema of temporary objects.
    pub fn find(&self, search_path: &[String], schema: Option<&str>, name: &str) -> Option<&Relation> {
        match schema {
            Some(schema) => self.relation(temporary::resolve(search_path, schema), name),
            None => search_path.iter().find_map(|schema| self.relation(schema, name)),
        }
    }

    /// The relations of a schema, in no order.
    pub fn relations_in(&self, schema: Oid) -> impl Iterator<Item = &Relation> {
        self.relations.get(&schema).into_iter().flat_map(HashMap::values)
    }

    /// Oids of the sequences that belong to a table's columns. Earlier builds let them go to other
    /// schemas than its own.
    pub fn sequences_of(&self, table: &Table) -> Vec<Oid> {
        let is_own = |of: &&Arc<Sequence>| of.owner.is_some_and(|owner| owner.0 == table.oid);
        let mut all: Vec<Oid> = self.sequences().filter(is_own).map(|sequence| sequence.oid).collect();
        all.sort_unstable();
        all
    }

    /// The relation of this oid.
    pub fn relation_by_oid(&self, oid: Oid) -> Option<&Relation> {
        self.by_oid.get(&oid)
    }

    /// The table of this oid.
    pub fn table_by_oid(&self, oid: Oid) -> Option<&Arc<Table>> {
        self.by_oid.get(&oid)?.as_table()
    }

    /// The sequence of this oid.
    pub fn sequence_by_oid(&self, oid: Oid) -> Option<&Arc<Sequence>> {
        match self.by_oid.get(&oid)? {
            Relation::Sequence(sequence) => Some(sequence),
            _ => None,
        }
    }

    /// The routines of this name in the schemas of `search_path`, or in `schema` if one is given,
    /// each with the place of its schema in the path. Those of a schema of temporary objects are
    /// found only if that is given: a call never means one by accident.
    pub fn routines_named<'a>(
        &'a self,
        search_path: &'a [String],
        schema: Option<&'a str>,
        name: &'a str,
    ) -> impl Iterator<Item = (usize, &'a Arc<Routine>)> {
        // Mostly there are none at all, and each call of a function asks.
        let are_some = !self.routines.is_empty();
        let path: &[String] = if are_some && schema.is_none() { search_path } else { &[] };
        let given = schema.filter(|_| are_some).map(|schema| temporary::resolve(search_path, schema));
        let searched = path.iter().map(String::as_str).filter(|schema| !super::is_temporary(schema));
        let schemas = given.into_iter().chain(searched).enumerate();
        schemas.flat_map(move |(place, schema)| {
            let schema = self.schemas.get(schema).map(|schema| schema.oid);
            let named = schema.and_then(|oid| self.routines.get(&oid)?.get(name));
            named.into_iter().flatten().map(move |routine| (place, routine))
        })
    }

    /// The routine of this oid.
    pub fn routine_by_oid(&self, oid: Oid) -> Option<&Arc<Routine>> {
        match self.objects.get(&oid)? {
            Object::Routine(routine) => Some(routine),
            _ => None,
        }
    }

    /// All routines by oid.
    pub fn routines(&self) -> impl Iterator<Item = &Arc<Routine>> {
        self.objects.values().filter_map(|object| match object {
            Object::Routine(routine) => Some(routine),
            _ => None,
        })
    }

    /// The type of a user that has this name in the first schema of `search_path` that has one, or
    /// in `schema` if one is given.
    pub fn user_type(&self, search_path: &[String], schema: Option<&str>, name: &str) -> Option<&UserType> {
        if self.user_types.is_empty() {
            return None;
        }
        let in_schema = |schema: &str| {
            let schema = self.schemas.get(schema)?;
            self.user_types.get(&(schema.oid, name.to_owned()))
        };
        match schema {
            Some(schema) => in_schema(temporary::resolve(search_path, schema)),
            None => search_path.iter().find_map(|schema| in_schema(schema)),
        }
    }

    /// The type of a user that has this oid.
    pub fn user_type_by_oid(&self, oid: Oid) -> Option<UserType> {
        match self.objects.get(&oid)? {
            Object::EnumType(ty) => Some(UserType::Enum(ty.clone())),
            Object::Domain(domain) => Some(UserType::Domain(domain.clone())),
            _ => None,
        }
    }

    /// All types of users by oid.
    pub fn user_types(&self) -> impl Iterator<Item = UserType> {
        self.objects.keys().filter_map(|oid| self.user_type_by_oid(*oid))
    }

    /// The enum type of this oid.
    pub fn enum_by_oid(&self, oid: Oid) -> Option<&Arc<EnumType>> {
        match self.objects.get(&oid)? {
            Object::EnumType(ty) => Some(ty),
            _ => None,
        }
    }

    /// All enum types by oid.
    pub fn enum_types(&self) -> impl Iterator<Item = &Arc<EnumType>> {
        self.objects.values().filter_map(|object| match object {
            Object::EnumType(ty) => Some(ty),
            _ => None,
        })
    }

    /// The object of this oid.
    pub(crate) fn object(&self, oid: Oid) -> Option<&Object> {
        self.objects.get(&oid)
    }

    /// The domain of this oid.
    pub fn domain_by_oid(&self, oid: Oid) -> Option<&Arc<Domain>> {
        match self.objects.get(&oid)? {
            Object::Domain(domain) => Some(domain),
            _ => None,
        }
    }

    /// All domains by oid.
    pub fn domains(&self) -> impl Iterator<Item = &Arc<Domain>> {
        self.objects.values().filter_map(|object| match object {
            Object::Domain(domain) => Some(domain),
            _ => None,
        })
    }

    /// All objects by oid.
    pub fn objects(&self) -> impl Iterator<Item = &Object> {
        self.objects.values()
    }

    /// All schemas by oid.
    pub fn schemas(&self) -> impl Iterator<Item = &Arc<Schema>> {
        self.objects.values().filter_map(|object| match object {
            Object::Schema(schema) => Some(schema),
            _ => None,
        })
    }

    /// All tables by oid.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.objects.values().filter_map(|object| match object {
            Object::Table(table) => Some(table),
            _ => None,
        })
    }

    /// All sequences by oid.
    pub fn sequences(&self) -> impl Iterator<Item = &Arc<Sequence>> {
        self.objects.values().filter_map(|object| match object {
            Object::Sequence(sequence) => Some(sequence),
            _ => None,
        })
    }

    /// The settings of a role; of all roles together where none is named.
    pub fn role_settings(&self, role: Option<&str>) -> Option<&Arc<RoleSettings>> {
        self.role_settings.get(&role.map(str::to_owned))
    }

    /// All settings of roles by oid.
    pub fn all_role_settings(&self) -> impl Iterator<Item = &Arc<RoleSettings>> {
        self.objects.values().filter_map(|object| match object {
            Object::RoleSettings(settings) => Some(settings),
            _ => None,
        })
    }

    /// Whether anybody has made a role. Until then everybody may do everything.
    #[inline]
    pub fn has_roles(&self) -> bool {
        !self.roles.is_empty()
    }

    /// The role of this name.
    pub fn role(&self, name: &str) -> Option<&Arc<Role>> {
        self.roles.get(name)
    }

    /// The role of this oid.
    pub fn role_by_oid(&self, oid: Oid) -> Option<&Arc<Role>> {
        match self.objects.get(&oid)? {
            Object::Role(role) => Some(role),
            _ => None,
        }
    }

    /// All roles by oid.
    pub fn roles(&self) -> impl Iterator<Item = &Arc<Role>> {
        self.objects.values().filter_map(|object| match object {
            Object::Role(role) => Some(role),
            _ => None,
        })
    }

    /// Owner and privileges of an object, if anything is said of them.
    pub fn access(&self, object: Oid) -> Option<&Arc<Access>> {
        self.access.get(&object)
    }

    /// All owners and privileges by oid.
    pub fn accesses(&self) -> impl Iterator<Item = &Arc<Access>> {
        self.objects.values().filter_map(|object| match object {
            Object::Access(access) => Some(access),
            _ => None,
        })
    }

    /// All privileges of objects to come, by oid.
    pub fn default_accesses(&self) -> impl Iterator<Item = &Arc<DefaultAccess>> {
        self.objects.values().filter_map(|object| match object {
            Object::DefaultAccess(access) => Some(access),
            _ => None,
        })
    }

    /// The rights of a role.
    pub fn rights(&self, role: Oid) -> Arc<Rights> {
        if let Some(known) = self.rights.lock().get(&role) {
            return known.clone();
        }
        let made = Arc::new(self.make_rights(role));
        self.rights.lock().entry(role).or_insert(made).clone()
    }

    /// All views by oid.
    pub fn views(&self) -> impl Iterator<Item = &Arc<View>> {
        self.objects.values().filter_map(|object| match object {
            Object::View(view) => Some(view),
            _ => None,
        })
    }
}

impl Object {
    /// Oid of its schema, its own if it is one; 0 if it is in none.
    pub(crate) fn schema(&self) -> Oid {
        match self {
            Object::Schema(schema) => schema.oid,
            Object::Table(table) => table.schema,
            Object::Sequence(sequence) => sequence.schema,
            Object::View(view) => view.schema,
            Object::Routine(routine) => routine.schema,
            Object::EnumType(ty) => ty.schema,
            Object::Domain(domain) => domain.schema,
            Object::RoleSettings(_) | Object::Role(_) | Object::Database(_) => 0,
            Object::Access(_) | Object::DefaultAccess(_) => 0,
        }
    }

    /// It is one session's, and goes with it.
    pub(crate) fn is_temporary(&self) -> bool {
        match self {
            Object::Schema(schema) => schema.home.is_some(),
            Object::Table(table) => table.temporary,
            Object::Sequence(sequence) => sequence.is_temporary(),
            Object::View(view) => super::is_temporary(&view.schema_name),
            Object::Routine(routine) => super::is_temporary(&routine.schema_name),
            Object::RoleSettings(_) | Object::EnumType(_) | Object::Domain(_) => false,
            Object::Role(_) | Object::Database(_) | Object::Access(_) | Object::DefaultAccess(_) => false,
        }
    }

    /// Its oid.
    pub fn oid(&self) -> Oid {
        match self {
            Object::Schema(schema) => schema.oid,
            Object::Table(table) => table.oid,
            Object::Sequence(sequence) => sequence.oid,
            Object::View(view) => view.oid,
            Object::RoleSettings(settings) => settings.oid,
            Object::Role(role) => role.oid,
            Object::Database(database) => database.oid,
            Object::Access(access) => access.oid,
            Object::DefaultAccess(access) => access.oid,
            Object::Routine(routine) => routine.oid,
            Object::EnumType(ty) => ty.oid,
            Object::Domain(domain) => domain.oid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Hints;

    fn table(oid: Oid, tree: u32) -> (Oid, Option<Object>) {
        let table = Table {
            oid,
            schema: PUBLIC_OID,
            schema_name: "public".to_owned(),
            name: format!("t{oid}"),
            tree,
            columns: vec![],
            indexes: vec![],
            checks: vec![],
            foreign_keys: vec![],
            referenced_by: vec![],
            temporary: false,
            on_commit: None,
            options: vec![],
            comment: None,
            hints: Hints::default(),
            derived: Default::default(),
        };
        (oid, Some(Object::Table(Arc::new(table))))
    }

    #[test]
    fn of_tables_that_are_gone_nobody_knows_that_they_were_moved() {
        let mut catalog = Catalog::new(1, []);
        let mut change = |changes: Changes, csn: u64| {
            let mut after = catalog.with_changes(csn, &changes);
            after.note_moved(&catalog, csn);
            let known = (after.moved_at(20_000), after.moved_at(20_001), after.moved.len());
            catalog = after;
            known
        };
        assert_eq!(change(Changes::from([table(20_000, 1), table(20_001, 2)]), 5), (0, 0, 0));
        assert_eq!(change(Changes::from([table(20_000, 3), table(20_001, 4)]), 6), (6, 6, 2));
        assert_eq!(change(Changes::from([table(20_001, 5)]), 7), (6, 7, 2));
        assert_eq!(change(Changes::from([(20_001, None)]), 8), (6, 0, 1));
    }
}
