//! Types, collations and languages: `pg_type`, `pg_collation`, `pg_language`, `pg_operator`.

use super::SystemTable;
use super::type_facts::{ARRAY_ANALYZE, ARRAY_SUBSCRIPT, JSONB_SUBSCRIPT, RAW_ARRAY_SUBSCRIPT, facts};
use super::value::NULL;
use crate::catalog::{OWNER_OID, Oid, PG_CATALOG_OID};
use crate::types::TypeId;

pub(super) const TABLES: &[&SystemTable] = &[&PG_TYPE, &PG_COLLATION, &PG_LANGUAGE, &PG_OPERATOR];

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

system_table! {
    static PG_TYPE = 1247 table "pg_catalog"."pg_type",
    |_source| TypeId::all().map(|id| (id, facts(id))) => |(id, facts)|,
    [by oid(key) => TypeId::from_oid(key).map(|id| (id, facts(id)))],
    oid: Oid = id.oid(),
    typname: Name = id.internal_name(),
    typnamespace: Oid = PG_CATALOG_OID,
    typowner: Oid = OWNER_OID,
    typlen: Int2 = id.length(),
    typbyval: Bool = facts.by_value,
    typtype: InternalChar = facts.kind,
    typcategory: InternalChar = id.category().letter(),
    typispreferred: Bool = id.is_preferred(),
    typisdefined: Bool = true,
    typdelim: InternalChar = ',',
    typrelid: Oid = 0,
    typsubscript: Regproc = subscript(id),
    typelem: Oid = element(id),
    typarray: Oid = id.array().map_or(0, TypeId::oid),
    typinput: Regproc = facts.functions[0].0,
    typoutput: Regproc = facts.functions[1].0,
    typreceive: Regproc = facts.functions[2].0,
    typsend: Regproc = facts.functions[3].0,
    typmodin: Regproc = facts.functions[4].0,
    typmodout: Regproc = facts.functions[5].0,
    typanalyze: Regproc = if id.element().is_some() && id.is_array() { ARRAY_ANALYZE.0 } else { 0 },
    typalign: InternalChar = facts.align,
    typstorage: InternalChar = facts.storage,
    typnotnull: Bool = false,
    typbasetype: Oid = 0,
    typtypmod: Int4 = -1,
    typndims: Int4 = 0,
    typcollation: Oid = facts.collation,
    typdefaultbin: Text = NULL,
    typdefault: Text = NULL,
    typacl: TextArray = NULL,
}

system_table! {
    static PG_COLLATION = 3456 table "pg_catalog"."pg_collation",
    |_source| [(100, "default", 'd', None), (950, "C", 'c', Some("C")), (951, "POSIX", 'c', Some("POSIX"))] => |(oid, name, provider, locale)|,
    oid: Oid = oid,
    collname: Name = name,
    collnamespace: Oid = PG_CATALOG_OID,
    collowner: Oid = OWNER_OID,
    collprovider: InternalChar = provider,
    collisdeterministic: Bool = true,
    collencoding: Int4 = -1,
    collcollate: Text = locale,
    collctype: Text = locale,
    colliculocale: Text = NULL,
    collversion: Text = NULL,
}

/// `pg_language.oid` of functions that are part of the server.
pub(super) const INTERNAL_LANGUAGE: Oid = 12;
/// Oid of the language of users' functions.
pub(super) const SQL_LANGUAGE: Oid = 14;

system_table! {
    static PG_LANGUAGE = 2612 table "pg_catalog"."pg_language",
    |_source| [(INTERNAL_LANGUAGE, "internal", false), (SQL_LANGUAGE, "sql", true)] => |(oid, name, trusted)|,
    oid: Oid = oid,
    lanname: Name = name,
    lanowner: Oid = OWNER_OID,
    lanispl: Bool = false,
    lanpltrusted: Bool = trusted,
    lanplcallfoid: Oid = 0,
    laninline: Oid = 0,
    lanvalidator: Oid = 0,
    lanacl: TextArray = NULL,
}

/// The equality operators: oid, type, oid of the function.
const EQUALITY: &[(Oid, TypeId, Oid)] = &[
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
    (1320, TypeId::Timestamptz, 1152),
    (1330, TypeId::Interval, 1162),
    (1752, TypeId::Numeric, 1718),
    (2988, TypeId::Record, 2981),
    (1070, TypeId::AnyArray, 744),
    (2972, TypeId::Uuid, 2956),
    (3240, TypeId::Jsonb, 4043),
];

/// Oid of the operator `=` of two values of this type.
pub(super) fn equality_operator(id: TypeId) -> Oid {
    let id = match id {
        TypeId::Varchar => TypeId::Text,
        _ if id.is_array() => TypeId::AnyArray,
        _ if id.is_oid() => TypeId::Oid,
        _ => id,
    };
    EQUALITY.iter().find(|operator| operator.1 == id).map_or(0, |operator| operator.0)
}

system_table! {
    static PG_OPERATOR = 2617 table "pg_catalog"."pg_operator",
    |_source| EQUALITY => |&(oid, ty, function)|,
    oid: Oid = oid,
    oprname: Name = "=",
    oprnamespace: Oid = PG_CATALOG_OID,
    oprowner: Oid = OWNER_OID,
    oprkind: InternalChar = 'b',
    oprcanmerge: Bool = true,
    oprcanhash: Bool = true,
    oprleft: Oid = ty.oid(),
    oprright: Oid = ty.oid(),
    oprresult: Oid = TypeId::Bool.oid(),
    oprcom: Oid = oid,
    oprnegate: Oid = 0,
    oprcode: Regproc = function,
    oprrest: Regproc = 0,
    oprjoin: Regproc = 0,
}
