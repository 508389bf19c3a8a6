//! `has_..._privilege`: the one role may do everything with what there is.
//!
//! The object is still looked up, so that a wrong name fails as in PostgreSQL, and an oid of
//! nothing gives NULL. `acldefault` is what an object's privileges are while nobody has changed them,
//! which here nobody can.

use super::super::names::{AnyRelation, schema_oid};
use super::super::role::DATABASE_OID;
use super::super::value::array;
use super::super::{Source, role};
use super::definitions::find;
use super::{oid, over_catalog, text};
use crate::catalog::{Catalog, Oid as Number};
use crate::error::{Result, SqlError, sqlstate};
use crate::function::Function;
use crate::types::Datum;
use crate::types::TypeId::{Bool, Int2, InternalChar, Name, Oid, Text, TextArray};

/// Functions of one name that differ in how the user and the object are named.
macro_rules! privileges {
    ($($name:literal $body:ident: $($oid:literal ($($ty:ident),*))*;)*) => {
        &[$($(over_catalog!($oid, $name, &[$($ty),*], Bool, $body)),*),*]
    };
}

/// What owner and others may do with an object whose privileges nobody has changed.
pub(super) static DEFAULTS: &[Function] =
    &[over_catalog!(3943, "acldefault", &[InternalChar, Oid], TextArray, default_privileges)];

/// As PostgreSQL's `acldefault` has them, for each kind of object: what the public may do, and what
/// the owner may.
fn default_privileges(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let kind = text(arguments, 0);
    let (public, owner) = match kind {
        "c" => ("", ""),
        "r" => ("", "arwdDxt"),
        "s" => ("", "rwU"),
        "d" => ("Tc", "CTc"),
        "f" => ("X", "X"),
        "l" | "T" => ("U", "U"),
        "L" => ("", "rw"),
        "n" => ("", "UC"),
        "t" => ("", "C"),
        "F" | "S" => ("", "U"),
        "p" => ("", "sA"),
        _ => {
            let message = format!("unrecognized objtype abbreviation: {kind}");
            return Err(SqlError::new(sqlstate::INTERNAL_ERROR, message));
        }
    };
    let number = oid(arguments, 1);
    let name = role::name(source.catalog, &source.user(), number).unwrap_or_else(|| number.to_string());
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let name = if plain { name } else { format!("\"{}\"", name.replace('"', "\"\"")) };
    let mut items = Vec::new();
    if !public.is_empty() {
        items.push(format!("={public}/{name}"));
    }
    if !owner.is_empty() {
        items.push(format!("{name}={owner}/{name}"));
    }
    Ok(array(Text, items))
}

pub(super) static FUNCTIONS: &[Function] = privileges! {
    "has_table_privilege" on_relation: 1922 (Name, Text, Text) 1923 (Name, Oid, Text) 1924 (Oid, Text, Text)
        1925 (Oid, Oid, Text) 1926 (Text, Text) 1927 (Oid, Text);
    "has_sequence_privilege" on_relation: 2181 (Name, Text, Text) 2182 (Name, Oid, Text) 2183 (Oid, Text, Text)
        2184 (Oid, Oid, Text) 2185 (Text, Text) 2186 (Oid, Text);
    "has_any_column_privilege" on_relation: 3024 (Name, Text, Text) 3025 (Name, Oid, Text) 3026 (Oid, Text, Text)
        3027 (Oid, Oid, Text) 3028 (Text, Text) 3029 (Oid, Text);
    "has_column_privilege" on_column: 3012 (Name, Text, Text, Text) 3013 (Name, Text, Int2, Text)
        3014 (Name, Oid, Text, Text) 3015 (Name, Oid, Int2, Text) 3016 (Oid, Text, Text, Text)
        3017 (Oid, Text, Int2, Text) 3018 (Oid, Oid, Text, Text) 3019 (Oid, Oid, Int2, Text)
        3020 (Text, Text, Text) 3021 (Text, Int2, Text) 3022 (Oid, Text, Text) 3023 (Oid, Int2, Text);
    "has_schema_privilege" on_schema: 2268 (Name, Text, Text) 2269 (Name, Oid, Text) 2270 (Oid, Text, Text)
        2271 (Oid, Oid, Text) 2272 (Text, Text) 2273 (Oid, Text);
    "has_database_privilege" on_database: 2250 (Name, Text, Text) 2251 (Name, Oid, Text) 2252 (Oid, Text, Text)
        2253 (Oid, Oid, Text) 2254 (Text, Text) 2255 (Oid, Text);
    "has_function_privilege" always: 2256 (Name, Text, Text) 2257 (Name, Oid, Text) 2258 (Oid, Text, Text)
        2259 (Oid, Oid, Text) 2260 (Text, Text) 2261 (Oid, Text);
    "has_type_privilege" always: 3138 (Name, Text, Text) 3139 (Name, Oid, Text) 3140 (Oid, Text, Text)
        3141 (Oid, Oid, Text) 3142 (Text, Text) 3143 (Oid, Text);
    "has_language_privilege" always: 2262 (Name, Text, Text) 2263 (Name, Oid, Text) 2264 (Oid, Text, Text)
        2265 (Oid, Oid, Text) 2266 (Text, Text) 2267 (Oid, Text);
    "has_tablespace_privilege" always: 2390 (Name, Text, Text) 2391 (Name, Oid, Text) 2392 (Oid, Text, Text)
        2393 (Oid, Oid, Text) 2394 (Text, Text) 2395 (Oid, Text);
    "pg_has_role" on_role: 2705 (Name, Name, Text) 2706 (Name, Oid, Text) 2707 (Oid, Name, Text)
        2708 (Oid, Oid, Text) 2709 (Name, Text) 2710 (Oid, Text);
};

fn always(_: &[Datum], _: &Source<'_>) -> Result<Datum> {
    Ok(Datum::Bool(true))
}

/// The argument `from_end` places before the last, which is the object.
fn object(arguments: &[Datum], from_end: usize) -> &Datum {
    arguments.len().checked_sub(from_end + 1).map_or(&Datum::Null, |place| &arguments[place])
}

fn relation<'a>(source: &Source<'a>, object: &Datum) -> Result<Option<AnyRelation<'a>>> {
    match object {
        Datum::Oid(oid) => Ok(AnyRelation::by_oid(source.catalog, *oid)),
        name => find(source, name.as_str().unwrap_or("")).map(Some),
    }
}

fn on_relation(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    Ok(found(relation(source, object(arguments, 1))?.is_some()))
}

fn found(found: bool) -> Datum {
    if found { Datum::Bool(true) } else { Datum::Null }
}

fn on_column(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let Some(relation) = relation(source, object(arguments, 2))? else { return Ok(Datum::Null) };
    let AnyRelation::Stored(stored) = relation else { return Ok(Datum::Bool(true)) };
    let Some(table) = stored.as_table() else { return Ok(Datum::Bool(true)) };
    let column = object(arguments, 1);
    let Some(name) = column.as_str() else {
        let place = column.as_i64().and_then(|number| usize::try_from(number - 1).ok());
        let column = place.and_then(|place| table.columns.get(place));
        return Ok(found(column.is_some_and(|column| !column.dropped)));
    };
    if table.column_place(name).is_none() {
        let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
        return Err(SqlError::new(sqlstate::UNDEFINED_COLUMN, message));
    }
    Ok(Datum::Bool(true))
}

fn schema_exists(catalog: &Catalog, oid: Number) -> bool {
    super::super::relation::schemas(catalog).iter().any(|(known, _)| *known == oid)
}

fn on_schema(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let object = object(arguments, 1);
    if let Datum::Oid(oid) = object {
        return Ok(found(schema_exists(source.catalog, *oid)));
    }
    let name = object.as_str().unwrap_or("");
    match schema_oid(source.catalog, name) {
        Some(_) => Ok(Datum::Bool(true)),
        None => {
            Err(SqlError::new(sqlstate::INVALID_SCHEMA_NAME, format!("schema \"{name}\" does not exist")))
        }
    }
}

fn on_database(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    match object(arguments, 1) {
        Datum::Oid(oid) => Ok(found(*oid == DATABASE_OID)),
        name if name.as_str() == Some(&source.database()) => Ok(Datum::Bool(true)),
        name => {
            let message = format!("database \"{}\" does not exist", name.as_str().unwrap_or(""));
            Err(SqlError::new(sqlstate::INVALID_CATALOG_NAME, message))
        }
    }
}

fn on_role(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    match object(arguments, 1) {
        Datum::Oid(_) => Ok(Datum::Bool(true)),
        name => {
            let name = name.as_str().unwrap_or("");
            match role::oid(source.catalog, &source.user(), name) {
                Some(_) => Ok(Datum::Bool(true)),
                None => {
                    let message = format!("role \"{name}\" does not exist");
                    Err(SqlError::new(sqlstate::UNDEFINED_OBJECT, message))
                }
            }
        }
    }
}
