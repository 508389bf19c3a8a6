//! Types, collations, languages and the extension that has one: `pg_type`, `pg_enum`,
//! `pg_collation`, `pg_language`, `pg_extension`.

use super::type_facts::{
    ARRAY_ANALYZE, ARRAY_SUBSCRIPT, JSONB_SUBSCRIPT, RAW_ARRAY_SUBSCRIPT, TypeFacts, domain_facts,
    enum_facts, facts,
};
use super::value::NULL;
use super::{SystemTable, acl, domain};
use crate::catalog::{
    Catalog, Collation, Domain, EnumLabel, FIRST_USER_OID, OWNER_OID, Oid, PG_CATALOG_OID, Relation, UserType,
};
use crate::ddl::extension::{EXTENSION, EXTENSIONS, available};
use crate::types::{Category, Type, TypeId};

pub(super) const TABLES: &[&SystemTable] = &[
    &PG_TYPE,
    &PG_ENUM,
    &PG_COLLATION,
    &PG_LANGUAGE,
    &PG_EXTENSION,
    &PG_AVAILABLE_EXTENSIONS,
    &PG_AVAILABLE_EXTENSION_VERSIONS,
];

fn subscript(id: TypeId) -> Oid {
    match id {
        TypeId::Name => RAW_ARRAY_SUBSCRIPT.0,
        TypeId::Jsonb => JSONB_SUBSCRIPT.0,
        _ if id.element().is_some() => ARRAY_SUBSCRIPT.0,
        _ => 0,
    }
}

fn element(id: TypeId) -> Oid {
    match id {
        TypeId::Name => TypeId::InternalChar.oid(),
        _ => id.element().map_or(0, TypeId::oid),
    }
}

/// Where the oids begin of the types of relations' rows, and of the array types over them. They are
/// no objects of their own here: their oids follow from those of the relations, far from those of
/// users' objects, which are given out from below. Clients that read oids as signed numbers can
/// read these.
const ROWS: Oid = 0x4000_0000;
const ROW_ARRAYS: Oid = 0x6000_0000;

/// The category of types of rows.
const COMPOSITE: char = 'C';

/// Oid of the type of the rows of a user's table or view; 0 where there is none.
pub(super) fn row_type(relation: Oid) -> Oid {
    if (FIRST_USER_OID..ROW_ARRAYS - ROWS).contains(&relation) { ROWS + relation } else { 0 }
}

/// Oid of the type of arrays of such rows, where these have a type.
pub(super) fn row_array_type(relation: Oid) -> Oid {
    ROW_ARRAYS + relation
}

/// The relation whose rows are of the type of this oid, and whether it is the array type over that.
pub(super) fn row_relation(oid: Oid) -> Option<(Oid, bool)> {
    let is_array = oid >= ROW_ARRAYS;
    let relation = oid.checked_sub(if is_array { ROW_ARRAYS } else { ROWS })?;
    (row_type(relation) != 0).then_some((relation, is_array))
}

/// The type of the rows of a table or view.
#[derive(Clone)]
struct RowType {
    relation: Oid,
    schema: Oid,
    name: String,
}

impl RowType {
    fn new(relation: Oid, schema: Oid, name: &str) -> RowType {
        RowType { relation, schema, name: name.to_owned() }
    }

    fn of(relation: &Relation) -> Option<RowType> {
        match relation {
            Relation::Table(table) => Some(RowType::new(table.oid, table.schema, &table.name)),
            Relation::View(view) => Some(RowType::new(view.oid, view.schema, &view.name)),
            _ => None,
        }
    }

    fn all(catalog: &Catalog) -> impl Iterator<Item = RowType> {
        let of_tables = catalog.tables().map(|table| RowType::new(table.oid, table.schema, &table.name));
        let of_views = catalog.views().map(|view| RowType::new(view.oid, view.schema, &view.name));
        of_tables.chain(of_views).filter(|row| row_type(row.relation) != 0)
    }
}

/// A type of the table: a built-in one or a user's.
enum AnyType {
    BuiltIn(TypeId),
    User(UserType),
    /// The array type over one.
    Array(UserType),
    /// That of a relation's rows.
    Row(RowType),
    /// The array type over one.
    RowArray(RowType),
}

impl AnyType {
    /// The built-in type of which holds what is said of it, but for its name and category.
    fn like(&self) -> Option<TypeId> {
        match self {
            AnyType::BuiltIn(id) => Some(*id),
            AnyType::User(UserType::Enum(_)) => None,
            AnyType::User(UserType::Domain(domain)) if domain.base.id == TypeId::Enum => None,
            AnyType::User(UserType::Domain(domain)) => Some(domain.base.id),
            // There is no type of arrays over one of them: it is told as another one.
            AnyType::Array(ty) => Some(ty.ty().id.array().unwrap_or(ty.ty().id)),
            AnyType::Row(_) => Some(TypeId::Record),
            AnyType::RowArray(_) => Some(TypeId::RecordArray),
        }
    }

    fn user(&self) -> Option<&UserType> {
        match self {
            AnyType::BuiltIn(_) | AnyType::Row(_) | AnyType::RowArray(_) => None,
            AnyType::User(ty) | AnyType::Array(ty) => Some(ty),
        }
    }

    fn row(&self) -> Option<&RowType> {
        if let AnyType::Row(row) | AnyType::RowArray(row) = self { Some(row) } else { None }
    }

    fn schema(&self) -> Oid {
        let of_user = self.user().map(UserType::schema);
        of_user.or_else(|| self.row().map(|row| row.schema)).unwrap_or(PG_CATALOG_OID)
    }

    /// The object whose owner is the type's.
    fn owned_with(&self) -> Option<Oid> {
        self.user().map(UserType::oid).or_else(|| self.row().map(|row| row.relation))
    }

    fn domain(&self) -> Option<&Domain> {
        if let AnyType::User(UserType::Domain(domain)) = self { Some(domain) } else { None }
    }

    fn facts(&self) -> TypeFacts {
        let facts = self.like().map_or_else(enum_facts, facts);
        match self {
            AnyType::Row(_) => TypeFacts { kind: 'c', ..facts },
            AnyType::RowArray(_) => TypeFacts { kind: 'b', ..facts },
            _ if self.domain().is_some() => domain_facts(facts),
            _ => facts,
        }
    }

    fn name(&self) -> String {
        match self {
            AnyType::BuiltIn(id) => id.internal_name().to_owned(),
            AnyType::User(ty) => ty.name().to_owned(),
            AnyType::Array(ty) => format!("_{}", ty.name()),
            AnyType::Row(row) => row.name.clone(),
            AnyType::RowArray(row) => format!("_{}", row.name),
        }
    }

    fn category(&self) -> char {
        match self {
            AnyType::BuiltIn(TypeId::Enum | TypeId::RecordArray) => Category::Pseudo.letter(),
            AnyType::BuiltIn(id) => id.category().letter(),
            AnyType::User(ty) => ty.ty().id.category().letter(),
            AnyType::Array(_) | AnyType::RowArray(_) => Category::Array.letter(),
            AnyType::Row(_) => COMPOSITE,
        }
    }

    fn oid(&self) -> Oid {
        match self {
            AnyType::BuiltIn(id) => id.oid(),
            AnyType::User(ty) => ty.oid(),
            AnyType::Array(ty) => ty.oid() + 1,
            AnyType::Row(row) => row_type(row.relation),
            AnyType::RowArray(row) => row_array_type(row.relation),
        }
    }

    fn element(&self) -> Oid {
        match self {
            AnyType::BuiltIn(id) => element(*id),
            AnyType::User(_) | AnyType::Row(_) => 0,
            AnyType::Array(ty) => ty.oid(),
            AnyType::RowArray(row) => row_type(row.relation),
        }
    }

    fn subscript(&self) -> Oid {
        if self.domain().is_some() { 0 } else { self.like().map_or(0, subscript) }
    }

    fn is_array(&self) -> bool {
        self.like().is_some_and(TypeId::is_array)
    }

    fn array(&self) -> Oid {
        match self {
            AnyType::BuiltIn(TypeId::Enum) | AnyType::Array(_) | AnyType::RowArray(_) => 0,
            AnyType::BuiltIn(id) => id.array().map_or(0, TypeId::oid),
            AnyType::User(ty) => ty.oid() + 1,
            AnyType::Row(row) => row_array_type(row.relation),
        }
    }

    fn length(&self) -> i16 {
        self.like().map_or(Type::new(TypeId::Enum), Type::new).shown_length()
    }
}

fn type_by_oid(catalog: &Catalog, oid: Oid) -> Option<AnyType> {
    let built_in = TypeId::from_oid(oid).filter(|id| *id != TypeId::EnumArray);
    (built_in.map(AnyType::BuiltIn))
        .or_else(|| catalog.user_type_by_oid(oid).map(AnyType::User))
        .or_else(|| catalog.user_type_by_oid(oid.checked_sub(1)?).map(AnyType::Array))
        .or_else(|| {
            let (relation, is_array) = row_relation(oid)?;
            let row = RowType::of(catalog.relation_by_oid(relation)?)?;
            Some(if is_array { AnyType::RowArray(row) } else { AnyType::Row(row) })
        })
}

fn all_types(catalog: &Catalog) -> impl Iterator<Item = AnyType> {
    let built_in = TypeId::all().filter(|id| *id != TypeId::EnumArray).map(AnyType::BuiltIn);
    let of_user = catalog.user_types();
    let rows = RowType::all(catalog).flat_map(|row| [AnyType::Row(row.clone()), AnyType::RowArray(row)]);
    built_in.chain(of_user.flat_map(|ty| [AnyType::User(ty.clone()), AnyType::Array(ty)])).chain(rows)
}

system_table! {
    static PG_TYPE = 1247 table "pg_catalog"."pg_type",
    |source| all_types(source.catalog).map(|ty| (source, ty.facts(), ty)) => |(source, facts, ty)|,
    [by oid(key) => type_by_oid(source.catalog, key).map(|ty| (source, ty.facts(), ty))],
    oid: Oid = ty.oid(),
    typname: Name = ty.name(),
    typnamespace: Oid = ty.schema(),
    typowner: Oid = ty.owned_with().map_or(OWNER_OID, |oid| source.catalog.owner(oid)),
    typlen: Int2 = ty.length(),
    typbyval: Bool = facts.by_value,
    typtype: InternalChar = facts.kind,
    typcategory: InternalChar = ty.category(),
    typispreferred: Bool = matches!(ty, AnyType::BuiltIn(id) if id.is_preferred()),
    typisdefined: Bool = true,
    typdelim: InternalChar = ',',
    typrelid: Oid = if let AnyType::Row(row) = &ty { row.relation } else { 0 },
    typsubscript: Regproc = ty.subscript(),
    typelem: Oid = ty.element(),
    typarray: Oid = ty.array(),
    typinput: Regproc = facts.functions[0].0,
    typoutput: Regproc = facts.functions[1].0,
    typreceive: Regproc = facts.functions[2].0,
    typsend: Regproc = facts.functions[3].0,
    typmodin: Regproc = facts.functions[4].0,
    typmodout: Regproc = facts.functions[5].0,
    typanalyze: Regproc = if ty.is_array() { ARRAY_ANALYZE.0 } else { 0 },
    typalign: InternalChar = facts.align,
    typstorage: InternalChar = facts.storage,
    typnotnull: Bool = ty.domain().is_some_and(|domain| domain.not_null),
    typbasetype: Oid = ty.domain().map_or(0, |domain| domain.base.oid()),
    typtypmod: Int4 = ty.domain().map_or(-1, |domain| domain.base.shown_modifier()),
    typndims: Int4 = match ty.domain() {
        Some(domain) => i32::from(domain.base.id.is_array() && domain.base.domain_oid().is_none()),
        None => 0,
    },
    typcollation: Oid = facts.collation,
    typdefaultbin: Text = ty.domain().and_then(|domain| domain::default(source, domain)),
    typdefault: Text = ty.domain().and_then(|domain| domain::default(source, domain)),
    typacl: TextArray = match &ty {
        AnyType::User(ty) => acl::of(source, ty.oid()),
        // Nothing is granted on the type of arrays.
        _ => NULL,
    },
}

system_table! {
    static PG_ENUM = 3501 table "pg_catalog"."pg_enum",
    |source| labels(source.catalog) => |(ty, sort_order, label)|,
    oid: Oid = label.oid,
    enumtypid: Oid = ty,
    enumsortorder: Float4 = sort_order,
    enumlabel: Name = label.label.clone(),
}

/// The labels of all enum types, each with its type's oid and a number that grows with its place.
fn labels(catalog: &Catalog) -> impl Iterator<Item = (Oid, f32, &EnumLabel)> {
    catalog
        .enum_types()
        .flat_map(|ty| ty.labels.iter().enumerate().map(|(place, label)| (ty.oid, (place + 1) as f32, label)))
}

/// `pg_collation.collencoding` of what is for UTF8 only.
const UTF8: i32 = 6;

/// The locale of a collation: all but the database's say how they order.
fn locale(collation: Collation) -> Option<&'static str> {
    match collation {
        Collation::Default => None,
        Collation::Posix => Some("POSIX"),
        Collation::Utf8 => Some("C.utf8"),
        _ => Some("C"),
    }
}

system_table! {
    static PG_COLLATION = 3456 table "pg_catalog"."pg_collation",
    |_source| Collation::ALL => |collation|,
    oid: Oid = collation.oid(),
    collname: Name = collation.name(),
    collnamespace: Oid = PG_CATALOG_OID,
    collowner: Oid = OWNER_OID,
    collprovider: InternalChar = if collation == Collation::Default { 'd' } else { 'c' },
    collisdeterministic: Bool = true,
    collencoding: Int4 = match collation {
        Collation::Default | Collation::C | Collation::Posix => -1,
        _ => UTF8,
    },
    collcollate: Text = locale(collation),
    collctype: Text = locale(collation),
    colliculocale: Text = NULL,
    collversion: Text = NULL,
}

/// `pg_language.oid` of functions that are part of the server.
pub(super) const INTERNAL_LANGUAGE: Oid = 12;
/// Oid of the language of users' functions.
pub(super) const SQL_LANGUAGE: Oid = 14;
/// That of the extension that is always there.
const EXTENSION_LANGUAGE: Oid = 13_563;
/// The languages: oid, name, whether it is procedural, whether everybody may use it.
const LANGUAGES: [(Oid, &str, bool, bool); 3] = [
    (INTERNAL_LANGUAGE, "internal", false, false),
    (SQL_LANGUAGE, "sql", false, true),
    (EXTENSION_LANGUAGE, EXTENSION, true, true),
];

system_table! {
    static PG_LANGUAGE = 2612 table "pg_catalog"."pg_language",
    |_source| LANGUAGES => |(oid, name, procedural, trusted)|,
    oid: Oid = oid,
    lanname: Name = name,
    lanowner: Oid = OWNER_OID,
    lanispl: Bool = procedural,
    lanpltrusted: Bool = trusted,
    lanplcallfoid: Oid = 0,
    laninline: Oid = 0,
    lanvalidator: Oid = 0,
    lanacl: TextArray = NULL,
}

/// `pg_extension.oid` of the extension that is always there.
const EXTENSION_OID: Oid = 13_990;

/// Oid, name and schema of the extensions that were made, and of the one that is always there.
pub(super) fn extensions(catalog: &Catalog) -> Vec<(Oid, String, Oid)> {
    let always = (EXTENSION_OID, EXTENSION.to_owned(), PG_CATALOG_OID);
    let made = catalog.schemas().flat_map(|schema| {
        schema.extensions.iter().map(move |made| (made.oid, made.name.clone(), schema.oid))
    });
    std::iter::once(always).chain(made).collect()
}

system_table! {
    static PG_EXTENSION = 3079 table "pg_catalog"."pg_extension",
    |source| extensions(source.catalog) => |(oid, name, schema)|,
    oid: Oid = oid,
    extname: Name = name.clone(),
    extowner: Oid = OWNER_OID,
    extnamespace: Oid = schema,
    extrelocatable: Bool = name != EXTENSION,
    extversion: Text = available(&name).map(|known| known.version),
    extconfig: OidArray = NULL,
    extcondition: TextArray = NULL,
}

system_table! {
    static PG_AVAILABLE_EXTENSIONS = 12081 view "pg_catalog"."pg_available_extensions",
    |source| EXTENSIONS.iter().map(|known| (source, known)) => |(source, known)|,
    name: Name = known.name,
    default_version: Text = known.version,
    installed_version: Text = extensions(source.catalog)
        .iter()
        .any(|(_, name, _)| name == known.name)
        .then_some(known.version),
    comment: Text = known.comment,
}

system_table! {
    static PG_AVAILABLE_EXTENSION_VERSIONS = 12085 view "pg_catalog"."pg_available_extension_versions",
    |source| EXTENSIONS.iter().map(|known| (source, known)) => |(source, known)|,
    name: Name = known.name,
    version: Text = known.version,
    installed: Bool = extensions(source.catalog).iter().any(|(_, name, _)| name == known.name),
    superuser: Bool = true,
    trusted: Bool = true,
    relocatable: Bool = known.name != EXTENSION,
    schema: Name = (known.name == EXTENSION).then_some("pg_catalog"),
    requires: NameArray = NULL,
    comment: Text = known.comment,
}

/// The equality operators: oid, type, oid of the function.
pub(super) const EQUALITY: &[(Oid, TypeId, Oid)] = &[
    (91, TypeId::Bool, 60),
    (1955, TypeId::Bytea, 1948),
    (92, TypeId::InternalChar, 61),
    (93, TypeId::Name, 62),
    (410, TypeId::Int8, 467),
    (94, TypeId::Int2, 63),
    (96, TypeId::Int4, 65),
    (98, TypeId::Text, 67),
    (607, TypeId::Oid, 184),
    (649, TypeId::Oidvector, 679),
    (620, TypeId::Float4, 287),
    (670, TypeId::Float8, 293),
    (1054, TypeId::Bpchar, 1048),
    (1093, TypeId::Date, 1086),
    (1108, TypeId::Time, 1145),
    (2060, TypeId::Timestamp, 2052),
    (1201, TypeId::Inet, 920),
    (1320, TypeId::Timestamptz, 1152),
    (1330, TypeId::Interval, 1162),
    (1752, TypeId::Numeric, 1718),
    (2988, TypeId::Record, 2981),
    (1070, TypeId::AnyArray, 744),
    (2972, TypeId::Uuid, 2956),
    (352, TypeId::Xid, 68),
    (3222, TypeId::PgLsn, 3158),
    (3240, TypeId::Jsonb, 4043),
    (5068, TypeId::Xid8, 5084),
    (3516, TypeId::Enum, 3508),
];

/// Oid of the operator `=` of two values of this type.
pub(super) fn equality_operator(id: TypeId) -> Oid {
    let id = match id {
        TypeId::Varchar => TypeId::Text,
        TypeId::Cidr => TypeId::Inet,
        _ if id.is_array() => TypeId::AnyArray,
        _ if id.is_oid() => TypeId::Oid,
        _ => id,
    };
    EQUALITY.iter().find(|operator| operator.1 == id).map_or(0, |operator| operator.0)
}
