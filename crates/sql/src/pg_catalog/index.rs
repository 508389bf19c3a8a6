//! Indexes and what they are made of: `pg_index`, `pg_am`, `pg_opclass`, `pg_opfamily`.

use super::deparse::{self, Style};
use super::relation::{BTREE, HASH, indexes};
use super::type_facts::facts;
use super::value::{NULL, attribute_number, vector};
use super::{Source, SystemTable};
use crate::catalog::{
    Collation, Index, IndexColumn, IndexKey, OWNER_OID, Oid, PG_CATALOG_OID, Relation, ReplicaIdentity, Table,
};
use crate::types::{Datum, Type, TypeId};

pub(super) const TABLES: &[&SystemTable] = &[&PG_INDEX, &PG_AM, &PG_OPCLASS, &PG_OPFAMILY];

/// Something of each part of the key, by its type.
fn of_types(table: &Table, index: &Index, value: fn(&IndexColumn, Type) -> Oid) -> Datum {
    let types = index.columns.iter().map(|column| value(column, table.key_type(index, column.key)));
    vector(TypeId::Oid, types)
}

/// The collation of a part of the key where none is said: the column's, or that of its type.
pub(super) fn collation_beneath(table: &Table, index: &Index, key: IndexKey) -> Oid {
    let column = key.column().and_then(|place| table.columns.get(place)?.collation);
    column.map_or_else(|| facts(table.key_type(index, key).id).collation, Collation::oid)
}

/// The texts of its expressions, one behind the other.
fn expressions(source: &Source<'_>, table: &Table, index: &Index) -> Datum {
    if index.expressions.is_empty() {
        return NULL;
    }
    let texts = index.expressions.iter();
    let texts = texts.map(|one| deparse::again(source, table, &one.text, Style::Plain));
    texts.collect::<Vec<_>>().join(", ").into()
}

fn predicate(source: &Source<'_>, table: &Table, index: &Index) -> Datum {
    let print = |one| deparse::predicate(table, one, Style::Plain, &deparse::format(source));
    index.predicate.as_ref().map(print).into()
}

system_table! {
    static PG_INDEX = 2610 table "pg_catalog"."pg_index",
    |source| indexes(source.catalog) => |(table, index)|,
    [by indrelid(key) => source.catalog.table_by_oid(key).into_iter().flat_map(|table| {
        table.indexes.iter().map(move |index| (table, index))
    })],
    [by indexrelid(key) => match source.catalog.relation_by_oid(key) {
        Some(Relation::Index(table, oid)) => table.index(*oid).map(|index| (table, index)),
        _ => None,
    }],
    indexrelid: Oid = index.oid,
    indrelid: Oid = table.oid,
    indnatts: Int2 = attribute_number(index.shown().count() - 1),
    indnkeyatts: Int2 = attribute_number(index.columns.len() - 1),
    indisunique: Bool = index.is_unique(),
    indnullsnotdistinct: Bool = index.nulls_not_distinct,
    indisprimary: Bool = index.primary,
    indisexclusion: Bool = false,
    indimmediate: Bool = index.deferrable.is_none(),
    indisclustered: Bool = table.hints.clustered == Some(index.oid),
    indisvalid: Bool = true,
    indcheckxmin: Bool = false,
    indisready: Bool = true,
    indislive: Bool = true,
    indisreplident: Bool = table.hints.replica_identity == ReplicaIdentity::Index(index.oid),
    indkey: Int2vector = vector(TypeId::Int2, index.shown().map(|key| key.column().map_or(0, attribute_number))),
    indcollation: Oidvector = vector(
        TypeId::Oid,
        index.columns.iter().map(|part| {
            let said = part.collation.map(Collation::oid);
            said.unwrap_or_else(|| collation_beneath(table, index, part.key))
        }),
    ),
    indclass: Oidvector = of_types(table, index, |column, ty| match column.class {
        Some(class) => class_named(class.name()),
        None => operator_class(ty.id),
    }),
    indoption: Int2vector = vector(
        TypeId::Int2,
        index.columns.iter().map(|key| i16::from(key.descending) + 2 * i16::from(key.nulls_first)),
    ),
    indexprs: Text = expressions(source, table, index),
    indpred: Text = predicate(source, table, index),
}

system_table! {
    static PG_AM = 2601 table "pg_catalog"."pg_am",
    |_source| [(2, "heap", 3, 't'), (BTREE, "btree", 330, 'i'), (HASH, "hash", 331, 'i')]
        => |(oid, name, handler, kind)|,
    oid: Oid = oid,
    amname: Name = name,
    amhandler: Regproc = handler,
    amtype: InternalChar = kind,
}

/// Operator class, name, family, type: the default ones of btree, and those that types share.
const CLASSES: &[(Oid, &str, Oid, TypeId, bool)] = &[
    (4217, "text_pattern_ops", 2095, TypeId::Text, false),
    (4218, "varchar_pattern_ops", 2095, TypeId::Text, false),
    (4219, "bpchar_pattern_ops", 2097, TypeId::Bpchar, false),
    (1978, "int4_ops", 1976, TypeId::Int4, true),
    (1979, "int2_ops", 1976, TypeId::Int2, true),
    (1981, "oid_ops", 1989, TypeId::Oid, true),
    (3122, "date_ops", 434, TypeId::Date, true),
    (3123, "float8_ops", 1970, TypeId::Float8, true),
    (3124, "int8_ops", 1976, TypeId::Int8, true),
    (3125, "numeric_ops", 1988, TypeId::Numeric, true),
    (3126, "text_ops", 1994, TypeId::Text, true),
    (3127, "timestamptz_ops", 434, TypeId::Timestamptz, true),
    (3128, "timestamp_ops", 434, TypeId::Timestamp, true),
    (10000, "array_ops", 397, TypeId::AnyArray, true),
    (10003, "bool_ops", 424, TypeId::Bool, true),
    (10004, "bpchar_ops", 426, TypeId::Bpchar, true),
    (10006, "bytea_ops", 428, TypeId::Bytea, true),
    (10007, "char_ops", 429, TypeId::InternalChar, true),
    (10009, "cidr_ops", 1974, TypeId::Inet, false),
    (10015, "inet_ops", 1974, TypeId::Inet, true),
    (10012, "float4_ops", 1970, TypeId::Float4, true),
    (10022, "interval_ops", 1982, TypeId::Interval, true),
    (10028, "name_ops", 1994, TypeId::Name, true),
    (10032, "oidvector_ops", 1991, TypeId::Oidvector, true),
    (10036, "record_ops", 2994, TypeId::Record, true),
    (10038, "time_ops", 1996, TypeId::Time, true),
    (10044, "varchar_ops", 1994, TypeId::Text, false),
    (10065, "uuid_ops", 2968, TypeId::Uuid, true),
    (10050, "xid8_ops", 5067, TypeId::Xid8, true),
    (10067, "pg_lsn_ops", 3253, TypeId::PgLsn, true),
    (10069, "enum_ops", 3522, TypeId::Enum, true),
    (10088, "jsonb_ops", 4033, TypeId::Jsonb, true),
];

/// Operator families by oid.
const FAMILIES: &[(Oid, &str)] = &[
    (397, "array_ops"),
    (424, "bool_ops"),
    (426, "bpchar_ops"),
    (428, "bytea_ops"),
    (429, "char_ops"),
    (434, "datetime_ops"),
    (1970, "float_ops"),
    (1974, "network_ops"),
    (1976, "integer_ops"),
    (1982, "interval_ops"),
    (1988, "numeric_ops"),
    (1989, "oid_ops"),
    (1991, "oidvector_ops"),
    (1994, "text_ops"),
    (2095, "text_pattern_ops"),
    (2097, "bpchar_pattern_ops"),
    (1996, "time_ops"),
    (2968, "uuid_ops"),
    (2994, "record_ops"),
    (3253, "pg_lsn_ops"),
    (3522, "enum_ops"),
    (4033, "jsonb_ops"),
    (5067, "xid8_ops"),
];

/// The btree operator class of a type.
fn operator_class(id: TypeId) -> Oid {
    let id = match id {
        TypeId::Varchar => TypeId::Text,
        TypeId::Cidr => TypeId::Inet,
        _ if id.is_array() => TypeId::AnyArray,
        _ if id.is_oid() => TypeId::Oid,
        _ => id,
    };
    CLASSES.iter().find(|class| class.3 == id && class.4).map_or(0, |class| class.0)
}

fn class_named(name: &str) -> Oid {
    CLASSES.iter().find(|class| class.1 == name).map_or(0, |class| class.0)
}

/// Whether values of a type have an order that an index can keep.
pub(crate) fn has_operator_class(id: TypeId) -> bool {
    operator_class(id) != 0
}

/// Whether the operator class of btree of this name takes values of a type: of its own, or of one
/// that PostgreSQL stores alike.
pub(crate) fn class_accepts(name: &str, id: TypeId) -> bool {
    let Some(class) = CLASSES.iter().find(|class| class.1 == name) else { return false };
    match class.3 {
        TypeId::Text => matches!(id, TypeId::Text | TypeId::Varchar),
        TypeId::Bpchar => matches!(id, TypeId::Text | TypeId::Varchar | TypeId::Bpchar),
        TypeId::Inet => matches!(id, TypeId::Inet | TypeId::Cidr),
        TypeId::Oid => id == TypeId::Int4 || id.is_oid(),
        TypeId::AnyArray => id.is_array(),
        own => own == id,
    }
}

/// Whether an operator class of btree has this name.
pub(crate) fn is_operator_class(name: &str) -> bool {
    class_named(name) != 0
}

system_table! {
    static PG_OPCLASS = 2616 table "pg_catalog"."pg_opclass",
    |_source| CLASSES => |&(oid, name, family, ty, default)|,
    oid: Oid = oid,
    opcmethod: Oid = BTREE,
    opcname: Name = name,
    opcnamespace: Oid = PG_CATALOG_OID,
    opcowner: Oid = OWNER_OID,
    opcfamily: Oid = family,
    opcintype: Oid = ty.oid(),
    opcdefault: Bool = default,
    opckeytype: Oid = 0,
}

system_table! {
    static PG_OPFAMILY = 2753 table "pg_catalog"."pg_opfamily",
    |_source| FAMILIES => |&(oid, name)|,
    oid: Oid = oid,
    opfmethod: Oid = BTREE,
    opfname: Name = name,
    opfnamespace: Oid = PG_CATALOG_OID,
    opfowner: Oid = OWNER_OID,
}
