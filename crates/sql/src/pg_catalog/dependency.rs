//! What objects need: `pg_depend`, and `pg_shdepend` of their owners and of those who were given
//! something on them.
//!
//! ```text
//! CREATE VIEW v AS SELECT a FROM t      rule of v -> column a of t        normal
//!                                       rule of v -> v                    normal, and internal
//! CHECK (a > b)                         constraint -> columns a and b     normal, and auto
//! c int GENERATED ALWAYS AS (b * 2)     default of c -> column b          normal
//!                                       default of c -> column c          internal
//! ```
//!
//! Objects that are there from the beginning, roles among them, cannot go, so nothing is told of
//! who needs them.

use super::constraint::{ATTRDEF, AUTHID, CLASS, CONSTRAINT, DATABASE, NAMESPACE, PROC, REWRITE, TYPE};
use super::definition::{Constraint, constraints};
use super::relation::{Default, defaults};
use super::types::{row_array_type, row_type};
use super::value::attribute_number;
use super::{SystemTable, table_by_oid};
use crate::catalog::{
    AclItem, Catalog, Domain, FIRST_USER_OID, INFORMATION_SCHEMA_OID, Index, Oid, PG_CATALOG_OID, Routine,
    Securable, Table, View,
};
use crate::ddl::sequence::sequences_in;

pub(super) const TABLES: &[&SystemTable] = &[&PG_DEPEND, &PG_SHDEPEND];

/// An object: class, oid, number of the column.
type Address = (Oid, Oid, i32);

/// A row of `pg_depend`: an object and what it needs.
struct Dependency {
    object: Address,
    needs: Address,
    /// `n`ormal, `a`uto or `i`nternal.
    kind: char,
}

/// A column of a relation.
fn column(relation: Oid, place: usize) -> Address {
    (CLASS, relation, i32::from(attribute_number(place)))
}

/// An object is in a schema.
fn in_schema(object: Address, schema: Oid) -> Dependency {
    Dependency { object, needs: (NAMESPACE, schema, 0), kind: 'n' }
}

/// What takes values of a sequence. Dumps put it behind the sequence, whatever its name is.
fn on_sequence(object: Address, sequence: Oid) -> Dependency {
    Dependency { object, needs: (CLASS, sequence, 0), kind: 'n' }
}

fn dependencies(catalog: &Catalog) -> Vec<Dependency> {
    let mut all = Vec::new();
    for sequence in catalog.sequences() {
        let object = (CLASS, sequence.oid, 0);
        all.push(in_schema(object, sequence.schema));
        if let Some((table, place)) = sequence.owner {
            let kind = if sequence.identity { 'i' } else { 'a' };
            all.push(Dependency { object, needs: column(table, place), kind });
        }
    }
    for default in defaults(catalog) {
        default_dependencies(&default, &mut all);
    }
    for table in catalog.tables() {
        table_dependencies(catalog, table, &mut all);
    }
    for ty in catalog.user_types() {
        let object = (TYPE, ty.oid(), 0);
        all.push(in_schema(object, ty.schema()));
        all.push(Dependency { object: (TYPE, ty.oid() + 1, 0), needs: object, kind: 'i' });
    }
    for domain in catalog.domains() {
        domain_dependencies(domain, &mut all);
    }
    for view in catalog.views() {
        view_dependencies(catalog, view, &mut all);
    }
    for routine in catalog.routines() {
        routine_dependencies(routine, &mut all);
    }
    all
}

/// A default goes with its column. What a generated column is made of stays as long as that is
/// there.
fn default_dependencies(default: &Default<'_>, all: &mut Vec<Dependency>) {
    let (object, table) = ((ATTRDEF, default.oid, 0), default.table);
    let generated = table.columns.get(default.place).and_then(|column| column.generated.as_ref());
    let kind = if generated.is_some() { 'i' } else { 'a' };
    all.push(Dependency { object, needs: column(table.oid, default.place), kind });
    let sources = generated.into_iter().flat_map(|generated| &generated.columns);
    all.extend(sources.map(|place| Dependency { object, needs: column(table.oid, *place), kind: 'n' }));
    all.extend(sequences_in(default.text).map(|oid| on_sequence(object, oid)));
}

fn domain_dependencies(domain: &Domain, all: &mut Vec<Dependency>) {
    let object = (TYPE, domain.oid, 0);
    if domain.base.user_type().is_some() {
        all.push(Dependency { object, needs: (TYPE, domain.base.oid(), 0), kind: 'n' });
    }
    let used = domain.default.as_deref().into_iter().flat_map(sequences_in);
    all.extend(used.map(|oid| on_sequence(object, oid)));
    let of_domain = |oid| Dependency { object: (CONSTRAINT, oid, 0), needs: object, kind: 'a' };
    all.extend(domain.checks.iter().map(|check| of_domain(check.oid)));
}

/// A view needs its schema and the types of its columns, and its rule what the text names; the rule
/// has the view's oid here.
fn view_dependencies(catalog: &Catalog, view: &View, all: &mut Vec<Dependency>) {
    all.push(in_schema((CLASS, view.oid, 0), view.schema));
    row_dependencies(view.oid, all);
    for (place, of) in view.columns.iter().enumerate().filter(|(_, of)| of.ty.user_type().is_some()) {
        let needs = (TYPE, of.ty.oid(), 0);
        all.push(Dependency { object: column(view.oid, place), needs, kind: 'n' });
    }
    let object = (REWRITE, view.oid, 0);
    all.extend(['i', 'n'].map(|kind| Dependency { object, needs: (CLASS, view.oid, 0), kind }));
    for (oid, columns) in view.names() {
        let class = match catalog.user_type_by_oid(oid) {
            Some(_) => TYPE,
            None if catalog.routine_by_oid(oid).is_some() => PROC,
            None if catalog.relation_by_oid(oid).is_some() => CLASS,
            // Groups that rest on a primary key can be made once the key is there.
            None => CONSTRAINT,
        };
        if columns.is_empty() {
            all.push(Dependency { object, needs: (class, oid, 0), kind: 'n' });
        }
        all.extend(columns.iter().map(|place| Dependency { object, needs: column(oid, *place), kind: 'n' }));
    }
}

/// The type of a relation's rows goes with the relation, and that of arrays of them with it.
fn row_dependencies(relation: Oid, all: &mut Vec<Dependency>) {
    let row = row_type(relation);
    if row != 0 {
        let object = (TYPE, row, 0);
        all.push(Dependency { object, needs: (CLASS, relation, 0), kind: 'i' });
        all.push(Dependency { object: (TYPE, row_array_type(relation), 0), needs: object, kind: 'i' });
    }
}

/// A routine needs the types of its arguments and of its result. What its body reads is looked up
/// when it is called.
fn routine_dependencies(routine: &Routine, all: &mut Vec<Dependency>) {
    let object = (PROC, routine.oid, 0);
    all.push(in_schema(object, routine.schema));
    let types = routine.arguments.iter().map(|argument| argument.ty).chain([routine.result]);
    let of_users = types.filter(|ty| ty.user_type().is_some()).map(|ty| ty.oid());
    let mut needed: Vec<Oid> = of_users.chain(routine.row_of.map(row_type)).collect();
    needed.sort_unstable();
    needed.dedup();
    let known = needed.into_iter().filter(|oid| *oid != 0);
    all.extend(known.map(|oid| Dependency { object, needs: (TYPE, oid, 0), kind: 'n' }));
}

fn table_dependencies(catalog: &Catalog, table: &Table, all: &mut Vec<Dependency>) {
    all.push(in_schema((CLASS, table.oid, 0), table.schema));
    row_dependencies(table.oid, all);
    for (place, of) in table.visible_columns().filter(|(_, column)| column.ty.user_type().is_some()) {
        let object = column(table.oid, place);
        all.push(Dependency { object, needs: (TYPE, of.ty.oid(), 0), kind: 'n' });
    }
    for constraint in constraints(table) {
        constraint_dependencies(catalog, table, &constraint, all);
    }
    for index in &table.indexes {
        index_dependencies(table, index, all);
    }
}

/// A constraint goes with its columns. The condition of a CHECK needs them besides, and one without
/// columns goes with the table.
fn constraint_dependencies(
    catalog: &Catalog,
    table: &Table,
    constraint: &Constraint<'_>,
    all: &mut Vec<Dependency>,
) {
    let object = (CONSTRAINT, constraint.oid(), 0);
    let mut places = constraint.columns();
    if let Constraint::Key(index) = constraint {
        let is_part = |place: usize| index.key_columns().any(|key| key == place);
        places.extend(index.included.iter().filter(|place| !is_part(**place)));
    }
    let columns: Vec<Address> = places.iter().map(|place| column(table.oid, *place)).collect();
    all.extend(columns.iter().map(|needs| Dependency { object, needs: *needs, kind: 'a' }));
    if let Constraint::Check(_) = constraint {
        all.extend(columns.iter().map(|needs| Dependency { object, needs: *needs, kind: 'n' }));
        if columns.is_empty() {
            all.push(Dependency { object, needs: (CLASS, table.oid, 0), kind: 'a' });
        }
    }
    if let Constraint::Foreign(key) = constraint {
        let referenced = key.referenced_columns.iter().map(|place| Dependency {
            object,
            needs: column(key.referenced_table, *place),
            kind: 'n',
        });
        all.extend(referenced);
        if catalog.relation_by_oid(key.referenced_index).is_some() {
            all.push(Dependency { object, needs: (CLASS, key.referenced_index, 0), kind: 'n' });
        }
    }
}

/// The index of a constraint belongs to it. Another one goes with its columns, or with the table if
/// it has expressions only; and with the columns that its expressions and its predicate read.
fn index_dependencies(table: &Table, index: &Index, all: &mut Vec<Dependency>) {
    let object = (CLASS, index.oid, 0);
    if let Some(constraint) = index.constraint {
        all.push(Dependency { object, needs: (CONSTRAINT, constraint, 0), kind: 'i' });
        return;
    }
    let mut add = |mut places: Vec<usize>| {
        places.sort_unstable();
        places.dedup();
        let needed = places.into_iter().map(|place| column(table.oid, place));
        all.extend(needed.map(|needs| Dependency { object, needs, kind: 'a' }));
    };
    let own: Vec<usize> = index.key_columns().chain(index.included.iter().copied()).collect();
    let has_columns = !own.is_empty();
    add(own);
    add(index.expressions.iter().flat_map(|expression| expression.columns.iter().copied()).collect());
    add(index.predicate.iter().flat_map(|predicate| predicate.columns.iter().copied()).collect());
    if !has_columns {
        all.push(Dependency { object, needs: (CLASS, table.oid, 0), kind: 'a' });
    }
}

system_table! {
    static PG_DEPEND = 2608 table "pg_catalog"."pg_depend",
    |source| dependencies(source.catalog) => |dependency|,
    [by objid(key) => dependencies(source.catalog).into_iter().filter(move |d| d.object.1 == key)],
    [by refobjid(key) => dependencies(source.catalog).into_iter().filter(move |d| d.needs.1 == key)],
    classid: Oid = dependency.object.0,
    objid: Oid = dependency.object.1,
    objsubid: Int4 = dependency.object.2,
    refclassid: Oid = dependency.needs.0,
    refobjid: Oid = dependency.needs.1,
    refobjsubid: Int4 = dependency.needs.2,
    deptype: InternalChar = dependency.kind,
}

/// A row of `pg_shdepend`: an object and a role that it needs.
struct RoleDependency {
    object: Address,
    role: Oid,
    /// Its `o`wner, or one who is in a list of its privileges (`a`).
    kind: char,
}

/// Whether a role may go: those from the beginning cannot.
fn is_told(role: Oid) -> bool {
    role >= FIRST_USER_OID
}

fn add_owner(object: Address, owner: Oid, all: &mut Vec<RoleDependency>) {
    if is_told(owner) {
        all.push(RoleDependency { object, role: owner, kind: 'o' });
    }
}

/// Adds who has or gave something by a list, but for the owner, who is told already.
fn add_list(object: Address, owner: Oid, list: &[AclItem], all: &mut Vec<RoleDependency>) {
    let named = list.iter().flat_map(|item| [item.grantee, item.grantor]);
    let mut roles: Vec<Oid> = named.filter(|role| is_told(*role) && *role != owner).collect();
    roles.sort_unstable();
    roles.dedup();
    all.extend(roles.into_iter().map(|role| RoleDependency { object, role, kind: 'a' }));
}

/// Oid of the table that an object with an owner is told in.
fn class_of(catalog: &Catalog, object: Oid) -> Option<Oid> {
    match catalog.securable(object) {
        Some(Securable::Table | Securable::Sequence) => Some(CLASS),
        Some(Securable::Schema) => Some(NAMESPACE),
        Some(Securable::Routine) => Some(PROC),
        Some(Securable::Type) => Some(TYPE),
        Some(Securable::Database) => Some(DATABASE),
        None if [PG_CATALOG_OID, INFORMATION_SCHEMA_OID].contains(&object) => Some(NAMESPACE),
        None => table_by_oid(object).map(|_| CLASS),
    }
}

fn role_dependencies(catalog: &Catalog) -> Vec<RoleDependency> {
    let mut all = Vec::new();
    for access in catalog.accesses() {
        let Some(class) = class_of(catalog, access.object) else { continue };
        let (object, owner) = ((class, access.object, 0), access.owner);
        add_owner(object, owner, &mut all);
        add_list(object, owner, access.list.as_deref().unwrap_or_default(), &mut all);
        for of in catalog.column_lists(access.object) {
            add_list(column(access.object, of.column), owner, &of.list, &mut all);
        }
    }
    for default in catalog.default_accesses() {
        let object = (DEFAULT_ACL, default.oid, 0);
        add_owner(object, default.role, &mut all);
        add_list(object, default.role, &default.list, &mut all);
    }
    all
}

/// Oid of `pg_default_acl`.
const DEFAULT_ACL: Oid = 826;

system_table! {
    static PG_SHDEPEND = 1214 table "pg_catalog"."pg_shdepend",
    |source| role_dependencies(source.catalog).into_iter().map(|dependency| (source, dependency)) =>
        |(source, dependency)|,
    // What all databases share is in none.
    dbid: Oid = if dependency.object.0 == DATABASE { 0 } else { source.catalog.database_oid() },
    classid: Oid = dependency.object.0,
    objid: Oid = dependency.object.1,
    objsubid: Int4 = dependency.object.2,
    refclassid: Oid = AUTHID,
    refobjid: Oid = dependency.role,
    deptype: InternalChar = dependency.kind,
}
