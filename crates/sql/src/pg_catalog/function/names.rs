//! Visibility, and from names to oids and back.

use super::super::names::{AnyRelation, CatalogNames, schema_oid};
use super::super::{Source, role, routine};
use super::{called_on_null, oid, over_catalog, plain, text};
use crate::error::Result;
use crate::function::{EvalContext, Function};
use crate::types::TypeId::{
    self, Bool, Int4, Name, Oid, Regclass, Regnamespace, Regproc, Regprocedure, Regrole, Regtype, Text,
};
use crate::types::{Datum, ObjectNames, Type};

pub(super) static FUNCTIONS: &[Function] = &[
    over_catalog!(2079, "pg_table_is_visible", &[Oid], Bool, relation_is_visible),
    plain(2080, "pg_type_is_visible", &[Oid], Bool, type_is_visible),
    over_catalog!(2081, "pg_function_is_visible", &[Oid], Bool, function_is_visible),
    plain(2082, "pg_operator_is_visible", &[Oid], Bool, is_visible),
    plain(2083, "pg_opclass_is_visible", &[Oid], Bool, is_visible),
    plain(3829, "pg_opfamily_is_visible", &[Oid], Bool, is_visible),
    plain(3815, "pg_collation_is_visible", &[Oid], Bool, is_visible),
    plain(2093, "pg_conversion_is_visible", &[Oid], Bool, is_visible),
    plain(3403, "pg_statistics_obj_is_visible", &[Oid], Bool, is_visible),
    plain(3758, "pg_ts_config_is_visible", &[Oid], Bool, is_visible),
    plain(3757, "pg_ts_dict_is_visible", &[Oid], Bool, is_visible),
    plain(3756, "pg_ts_parser_is_visible", &[Oid], Bool, is_visible),
    plain(3768, "pg_ts_template_is_visible", &[Oid], Bool, is_visible),
    called_on_null(plain(1081, "format_type", &[Oid, Int4], Text, format_type)),
    over_catalog!(1642, "pg_get_userbyid", &[Oid], Name, user_by_id),
    over_catalog!(3495, "to_regclass", &[Text], Regclass, to_regclass),
    plain(3493, "to_regtype", &[Text], Regtype, to_regtype),
    over_catalog!(3494, "to_regproc", &[Text], Regproc, to_regproc),
    over_catalog!(3479, "to_regprocedure", &[Text], Regprocedure, to_regprocedure),
    over_catalog!(4086, "to_regnamespace", &[Text], Regnamespace, to_regnamespace),
    over_catalog!(4093, "to_regrole", &[Text], Regrole, to_regrole),
];

/// Objects that live in `pg_catalog` only are always visible.
fn is_visible(_: &[Datum], _: &EvalContext<'_>) -> Result<Datum> {
    Ok(Datum::Bool(true))
}

fn function_is_visible(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let routine = source.catalog.routine_by_oid(oid(arguments, 0));
    let path = source.search_path();
    Ok(Datum::Bool(routine.is_none_or(|found| routine::is_visible(source.catalog, &path, found))))
}

fn type_is_visible(arguments: &[Datum], context: &EvalContext<'_>) -> Result<Datum> {
    let oid = oid(arguments, 0);
    let objects = context.format.objects.as_deref();
    let of_user = || {
        let ty = objects?.type_name(oid)?;
        // A name that is printed with its schema does not lead there alone.
        Some(super::super::names::split(ty.trim_end_matches("[]"))?.len() == 1)
    };
    Ok(TypeId::from_oid(oid).map(|_| true).or_else(of_user).into())
}

fn relation_is_visible(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let relation = AnyRelation::by_oid(source.catalog, oid(arguments, 0));
    Ok(relation.map(|relation| relation.is_visible(source.catalog, &source.search_path())).into())
}

/// Names of types that no value here has, which still stand in the catalog.
const OTHER_TYPES: &[(u32, &str)] = &[
    (27, "tid"),
    (28, "xid"),
    (29, "cid"),
    (1263, "cstring[]"),
    (2275, "cstring"),
    (2279, "trigger"),
    (2281, "internal"),
];

/// Oid of one of them.
pub(in crate::pg_catalog) fn other_type(name: &str) -> Option<u32> {
    OTHER_TYPES.iter().find(|(_, known)| *known == name).map(|(oid, _)| *oid)
}

/// The name of a type without modifier.
pub(in crate::pg_catalog) fn type_name(oid: u32) -> String {
    let other = || OTHER_TYPES.iter().find(|(known, _)| *known == oid).map(|(_, name)| *name);
    let known = TypeId::from_oid(oid).map(TypeId::sql_name).or_else(other);
    known.unwrap_or(if oid == 0 { "-" } else { "???" }).to_owned()
}

fn format_type(arguments: &[Datum], context: &EvalContext<'_>) -> Result<Datum> {
    if arguments[0].is_null() {
        return Ok(Datum::Null);
    }
    let oid = oid(arguments, 0);
    let Some(id) = TypeId::from_oid(oid) else {
        let of_user = context.format.objects.as_deref().and_then(|objects| objects.type_name(oid));
        return Ok(of_user.unwrap_or_else(|| type_name(oid)).into());
    };
    Ok(match arguments[1].as_i64().map(i32::try_from) {
        Some(Ok(modifier)) => Type::modified(id, modifier).format().into(),
        // Without a modifier at all, `bpchar` is what the standard calls it.
        _ => id.sql_name().into(),
    })
}

fn user_by_id(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let oid = oid(arguments, 0);
    Ok(role::name(source.catalog, &source.user(), oid)
        .unwrap_or_else(|| format!("unknown (OID={oid})"))
        .into())
}

fn names(source: &Source<'_>) -> CatalogNames {
    CatalogNames::new(source.catalog.clone(), source.search_path(), source.user())
}

fn oid_or_null(oid: Option<u32>) -> Datum {
    oid.map_or(Datum::Null, Datum::Oid)
}

fn to_regclass(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    Ok(oid_or_null(names(source).relation_oid(text(arguments, 0))))
}

fn to_regproc(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    Ok(oid_or_null(names(source).function_oid(text(arguments, 0))))
}

fn to_regprocedure(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    Ok(oid_or_null(names(source).procedure_oid(text(arguments, 0))))
}

fn to_regnamespace(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let name = super::super::names::split(text(arguments, 0));
    let found = name.as_deref().and_then(|parts| match parts {
        [name] => schema_oid(source.catalog, name),
        _ => None,
    });
    Ok(oid_or_null(found))
}

fn to_regrole(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    Ok(oid_or_null(names(source).role_oid(text(arguments, 0))))
}

/// A number is no name here, unlike in the input of `regtype`.
fn to_regtype(arguments: &[Datum], context: &EvalContext<'_>) -> Result<Datum> {
    let name = text(arguments, 0);
    if name.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(Datum::Null);
    }
    Ok(Datum::from_text(Type::new(Regtype), name, context.format).unwrap_or(Datum::Null))
}
