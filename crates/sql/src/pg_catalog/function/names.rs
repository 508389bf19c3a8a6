//! Visibility, and from names to oids and back.

use super::super::names::{AnyRelation, CatalogNames, schema_oid};
use super::super::{Source, role, routine};
use super::{called_on_null, oid, over_catalog, plain, text};
use crate::error::Result;
use crate::function::{EvalContext, Function};
use crate::types::TypeId::{
    self, Bool, Int4, Name, Oid, Oidvector, Regclass, Regnamespace, Regproc, Regprocedure, Regrole, Regtype,
    Text,
};
use crate::types::object::procedure_oid;
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
    plain(1349, "oidvectortypes", &[Oidvector], Text, vector_types),
    over_catalog!(1642, "pg_get_userbyid", &[Oid], Name, user_by_id),
    over_catalog!(3495, "to_regclass", &[Text], Regclass, to_regclass),
    plain(3493, "to_regtype", &[Text], Regtype, to_regtype),
    over_catalog!(3494, "to_regproc", &[Text], Regproc, to_regproc),
    plain(3479, "to_regprocedure", &[Text], Regprocedure, to_regprocedure),
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

/// Types that no value here has, which still stand in the catalog, or are asked for by their names:
/// oid, oid of the array type or 0, name in `pg_type`, name in SQL.
const OTHER_TYPES: &[(u32, u32, &str, &str)] = &[
    (27, 1010, "tid", "tid"),
    (29, 1012, "cid", "cid"),
    (142, 143, "xml", "xml"),
    (194, 0, "pg_node_tree", "pg_node_tree"),
    (600, 1017, "point", "point"),
    (601, 1018, "lseg", "lseg"),
    (602, 1019, "path", "path"),
    (603, 1020, "box", "box"),
    (604, 1027, "polygon", "polygon"),
    (628, 629, "line", "line"),
    (718, 719, "circle", "circle"),
    (774, 775, "macaddr8", "macaddr8"),
    (790, 791, "money", "money"),
    (829, 1040, "macaddr", "macaddr"),
    (1033, 1034, "aclitem", "aclitem"),
    (1266, 1270, "timetz", "time with time zone"),
    (1560, 1561, "bit", "bit"),
    (1562, 1563, "varbit", "bit varying"),
    (1790, 2201, "refcursor", "refcursor"),
    (2275, 1263, "cstring", "cstring"),
    (2279, 0, "trigger", "trigger"),
    (2280, 0, "language_handler", "language_handler"),
    (2281, 0, "internal", "internal"),
    (3614, 3643, "tsvector", "tsvector"),
    (3615, 3645, "tsquery", "tsquery"),
    (3734, 3735, "regconfig", "regconfig"),
    (3769, 3770, "regdictionary", "regdictionary"),
    (3838, 0, "event_trigger", "event_trigger"),
    (3904, 3905, "int4range", "int4range"),
    (3906, 3907, "numrange", "numrange"),
    (3908, 3909, "tsrange", "tsrange"),
    (3910, 3911, "tstzrange", "tstzrange"),
    (3912, 3913, "daterange", "daterange"),
    (3926, 3927, "int8range", "int8range"),
    (4072, 4073, "jsonpath", "jsonpath"),
    (4191, 4192, "regcollation", "regcollation"),
    (4451, 6150, "int4multirange", "int4multirange"),
    (4532, 6151, "nummultirange", "nummultirange"),
    (4533, 6152, "tsmultirange", "tsmultirange"),
    (4534, 6153, "tstzmultirange", "tstzmultirange"),
    (4535, 6155, "datemultirange", "datemultirange"),
    (4536, 6157, "int8multirange", "int8multirange"),
];

/// Oid of one of them, or of an array of it.
pub(crate) fn other_type(name: &str) -> Option<u32> {
    let element = name.trim_end_matches("[]");
    let found = OTHER_TYPES.iter().find(|(_, _, internal, shown)| *internal == element || *shown == element);
    let (oid, array, ..) = found?;
    let oid = if element == name { *oid } else { *array };
    (oid != 0).then_some(oid)
}

/// The name of one of them, or of an array of it.
pub(in crate::pg_catalog) fn other_type_name(oid: u32) -> Option<String> {
    if oid == 0 {
        return None;
    }
    let (known, _, _, shown) =
        OTHER_TYPES.iter().find(|(known, array, ..)| [*known, *array].contains(&oid))?;
    Some(if *known == oid { (*shown).to_owned() } else { format!("{shown}[]") })
}

/// The name of a type without modifier.
pub(in crate::pg_catalog) fn type_name(oid: u32) -> String {
    let known = TypeId::from_oid(oid).map(|id| id.sql_name().to_owned());
    let unknown = if oid == 0 { "-" } else { "???" };
    known.or_else(|| other_type_name(oid)).unwrap_or_else(|| unknown.to_owned())
}

/// The same, of a user's type too.
pub(super) fn any_type_name(oid: u32, context: &EvalContext<'_>) -> String {
    let objects = context.format.objects.as_deref().filter(|_| TypeId::from_oid(oid).is_none());
    objects.and_then(|objects| objects.type_name(oid)).unwrap_or_else(|| type_name(oid))
}

/// The types of a function's arguments, as programs list them.
fn vector_types(arguments: &[Datum], context: &EvalContext<'_>) -> Result<Datum> {
    let Some(Datum::Array(vector)) = arguments.first() else { return Ok(Datum::Null) };
    let types = &vector.elements;
    let names: Vec<String> =
        (0..types.len()).map(|place| any_type_name(oid(types, place), context)).collect();
    Ok(names.join(", ").into())
}

fn format_type(arguments: &[Datum], context: &EvalContext<'_>) -> Result<Datum> {
    if arguments[0].is_null() {
        return Ok(Datum::Null);
    }
    let oid = oid(arguments, 0);
    let Some(id) = TypeId::from_oid(oid) else { return Ok(any_type_name(oid, context).into()) };
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

/// Unlike a function, a type that there is not is an error here, too.
fn to_regprocedure(arguments: &[Datum], context: &EvalContext<'_>) -> Result<Datum> {
    procedure_oid(text(arguments, 0), context.format).map(oid_or_null)
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
