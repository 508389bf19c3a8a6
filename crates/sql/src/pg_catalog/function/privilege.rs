//! `has_..._privilege` and `pg_has_role`.
//!
//! ```text
//! has_table_privilege('ann', 't', 'SELECT, INSERT WITH GRANT OPTION')   whether ann has one of them
//! pg_has_role('ann', 'staff', 'MEMBER')                                 whether SET ROLE would do
//! ```
//!
//! A wrong name fails, and an oid of nothing gives NULL. As long as there are no roles, the one
//! that there is may do everything with what there is. `acldefault` is what an object's privileges
//! are while nobody has changed them.

use super::super::names::{AnyRelation, schema_oid};
use super::super::value::array;
use super::super::{CatalogNames, Source, acl, is_for_superusers, role};
use super::definitions::find;
use super::{oid, over_catalog, text};
use crate::catalog::{Catalog, OWNER_OID, Oid as Number, Privileges, Relation, Rights, Securable};
use crate::ddl::database::undefined_database;
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
    let name = acl::shown(source, oid(arguments, 1));
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
    "has_sequence_privilege" on_sequence: 2181 (Name, Text, Text) 2182 (Name, Oid, Text) 2183 (Oid, Text, Text)
        2184 (Oid, Oid, Text) 2185 (Text, Text) 2186 (Oid, Text);
    "has_any_column_privilege" on_any_column: 3024 (Name, Text, Text) 3025 (Name, Oid, Text) 3026 (Oid, Text, Text)
        3027 (Oid, Oid, Text) 3028 (Text, Text) 3029 (Oid, Text);
    "has_column_privilege" on_column: 3012 (Name, Text, Text, Text) 3013 (Name, Text, Int2, Text)
        3014 (Name, Oid, Text, Text) 3015 (Name, Oid, Int2, Text) 3016 (Oid, Text, Text, Text)
        3017 (Oid, Text, Int2, Text) 3018 (Oid, Oid, Text, Text) 3019 (Oid, Oid, Int2, Text)
        3020 (Text, Text, Text) 3021 (Text, Int2, Text) 3022 (Oid, Text, Text) 3023 (Oid, Int2, Text);
    "has_schema_privilege" on_schema: 2268 (Name, Text, Text) 2269 (Name, Oid, Text) 2270 (Oid, Text, Text)
        2271 (Oid, Oid, Text) 2272 (Text, Text) 2273 (Oid, Text);
    "has_database_privilege" on_database: 2250 (Name, Text, Text) 2251 (Name, Oid, Text) 2252 (Oid, Text, Text)
        2253 (Oid, Oid, Text) 2254 (Text, Text) 2255 (Oid, Text);
    "has_function_privilege" on_function: 2256 (Name, Text, Text) 2257 (Name, Oid, Text) 2258 (Oid, Text, Text)
        2259 (Oid, Oid, Text) 2260 (Text, Text) 2261 (Oid, Text);
    "has_type_privilege" on_type: 3138 (Name, Text, Text) 3139 (Name, Oid, Text) 3140 (Oid, Text, Text)
        3141 (Oid, Oid, Text) 3142 (Text, Text) 3143 (Oid, Text);
    "has_language_privilege" always: 2262 (Name, Text, Text) 2263 (Name, Oid, Text) 2264 (Oid, Text, Text)
        2265 (Oid, Oid, Text) 2266 (Text, Text) 2267 (Oid, Text);
    "has_tablespace_privilege" on_tablespace: 2390 (Name, Text, Text) 2391 (Name, Oid, Text) 2392 (Oid, Text, Text)
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

/// What is asked for, one of which is enough: privileges, and whether it is to give them on.
type Asked = Vec<(Privileges, bool)>;

/// Whose rights are asked for; none is everything. `count` is the number of arguments without a
/// user.
fn rights(arguments: &[Datum], count: usize, source: &Source<'_>) -> Result<Option<Rights>> {
    let catalog = source.catalog;
    if !catalog.has_roles() {
        return Ok(None);
    }
    let user = match arguments.first().filter(|_| arguments.len() > count) {
        Some(Datum::Oid(oid)) => *oid,
        // What everybody has.
        Some(name) if name.as_str() == Some("public") => return Ok(Some(Rights::default())),
        Some(name) => named_role(source, name.as_str().unwrap_or(""))?,
        None => {
            let user = source.user();
            let is_superuser = source.eval.session.setting("is_superuser").as_deref() == Some("on");
            let role = catalog.role_oid(&user).unwrap_or(if is_superuser { OWNER_OID } else { 0 });
            return Ok(Some(Rights::clone(&catalog.rights(role))));
        }
    };
    Ok(Some(Rights::clone(&catalog.rights(user))))
}

fn named_role(source: &Source<'_>, name: &str) -> Result<Number> {
    role::oid(source.catalog, &source.user(), name)
        .ok_or_else(|| SqlError::new(sqlstate::UNDEFINED_OBJECT, format!("role \"{name}\" does not exist")))
}

/// The privileges that the last argument lists. 22023 for what is none of the kind.
fn asked(arguments: &[Datum], kind: Securable) -> Result<Asked> {
    asked_of(arguments, kind.all())
}

/// The same of a column.
fn asked_of_column(arguments: &[Datum]) -> Result<Asked> {
    asked_of(arguments, Privileges::COLUMN)
}

fn asked_of(arguments: &[Datum], all: Privileges) -> Result<Asked> {
    let list = arguments.last().and_then(Datum::as_str).unwrap_or("");
    let one = |word: &str| {
        let word = word.trim();
        let upper = word.to_uppercase();
        let plain = upper.strip_suffix(" WITH GRANT OPTION");
        let known = Privileges::of_word(plain.unwrap_or(&upper).trim());
        let known = known.filter(|known| all.has_all(*known));
        let known = known.ok_or_else(|| {
            let message = format!("unrecognized privilege type: \"{word}\"");
            SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message)
        });
        known.map(|known| (known, plain.is_some()))
    };
    list.split(',').map(one).collect()
}

/// Whether somebody has one of these on an object.
fn has(catalog: &Catalog, rights: &Rights, object: Number, kind: Securable, asked: &Asked) -> bool {
    asked.iter().any(|(wanted, to_give)| match to_give {
        false => !catalog.privileges(rights, object, kind, *wanted).is_empty(),
        true => !catalog.grantable(rights, object, kind, *wanted).is_empty(),
    })
}

fn found(found: bool) -> Datum {
    if found { Datum::Bool(true) } else { Datum::Null }
}

fn relation<'a>(source: &Source<'a>, object: &Datum) -> Result<Option<AnyRelation<'a>>> {
    match object {
        Datum::Oid(oid) => Ok(AnyRelation::by_oid(source.catalog, *oid)),
        name => find(source, name.as_str().unwrap_or("")).map(Some),
    }
}

/// The same of a relation: one of the system everybody may read that is not about passwords.
fn on_any(
    arguments: &[Datum],
    source: &Source<'_>,
    relation: AnyRelation<'_>,
    rights: &Rights,
    as_sequence: bool,
) -> Result<Datum> {
    let kind = if as_sequence { Securable::Sequence } else { Securable::Table };
    let asked = asked(arguments, kind)?;
    let stored = match relation {
        AnyRelation::Stored(stored) => stored,
        AnyRelation::System(table) => return Ok(on_system(table.oid, rights, &asked)),
    };
    if stored.is_temporary() {
        return Ok(Datum::Bool(true));
    }
    let kind = match stored {
        Relation::Sequence(_) => Securable::Sequence,
        _ if as_sequence => {
            let message = format!("\"{}\" is not a sequence", stored.name());
            return Err(SqlError::new(sqlstate::WRONG_OBJECT_TYPE, message));
        }
        _ => Securable::Table,
    };
    Ok(Datum::Bool(has(source.catalog, rights, stored.oid(), kind, &asked)))
}

fn on_system(table: Number, rights: &Rights, asked: &Asked) -> Datum {
    let is_public = !is_for_superusers(table);
    let reads = asked.iter().any(|(wanted, to_give)| *wanted == Privileges::SELECT && !to_give);
    Datum::Bool(rights.superuser || (is_public && reads))
}

fn on_relation(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let relation = relation(source, object(arguments, 1))?;
    match (rights(arguments, 2, source)?, relation) {
        (Some(rights), Some(relation)) => on_any(arguments, source, relation, &rights, false),
        (_, relation) => Ok(found(relation.is_some())),
    }
}

fn on_sequence(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let relation = relation(source, object(arguments, 1))?;
    match (rights(arguments, 2, source)?, relation) {
        (Some(rights), Some(relation)) => on_any(arguments, source, relation, &rights, true),
        (_, relation) => Ok(found(relation.is_some())),
    }
}

/// Whether somebody has one of these on a relation, or on the columns of it that `places` gives:
/// who has it on the relation has it on each.
fn on_columns(
    source: &Source<'_>,
    relation: &AnyRelation<'_>,
    rights: &Rights,
    asked: &Asked,
    places: impl Fn(&Relation) -> Vec<usize>,
) -> Datum {
    let catalog = source.catalog;
    let stored = match relation {
        AnyRelation::Stored(stored) => *stored,
        AnyRelation::System(table) => return on_system(table.oid, rights, asked),
    };
    if stored.is_temporary() {
        return Datum::Bool(true);
    }
    let (oid, kind) = match stored {
        Relation::Sequence(sequence) => (sequence.oid, Securable::Sequence),
        stored => (stored.oid(), Securable::Table),
    };
    let by_own = |place: usize| {
        asked.iter().any(|(wanted, to_give)| match to_give {
            false => !catalog.column_privileges(rights, oid, place, *wanted).is_empty(),
            true => !catalog.column_grantable(rights, oid, place, *wanted).is_empty(),
        })
    };
    Datum::Bool(has(catalog, rights, oid, kind, asked) || places(stored).into_iter().any(by_own))
}

fn on_any_column(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let relation = relation(source, object(arguments, 1))?;
    match (rights(arguments, 2, source)?, &relation) {
        (Some(rights), Some(relation)) => {
            let asked = asked_of_column(arguments)?;
            let places = |stored: &Relation| source.catalog.column_places(stored.oid());
            Ok(on_columns(source, relation, &rights, &asked, places))
        }
        _ => Ok(found(relation.is_some())),
    }
}

fn on_column(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let Some(relation) = relation(source, object(arguments, 2))? else { return Ok(Datum::Null) };
    let stored = match &relation {
        AnyRelation::Stored(stored) => Some(*stored),
        AnyRelation::System(_) => None,
    };
    let mut place = None;
    if let Some(stored) = stored.filter(|stored| matches!(stored, Relation::Table(_) | Relation::View(_))) {
        let (catalog, column) = (source.catalog, object(arguments, 1));
        let mut places = catalog.column_places(stored.oid()).into_iter();
        place = match column.as_str() {
            None => {
                let number = column.as_i64().and_then(|number| usize::try_from(number - 1).ok());
                places.find(|place| Some(*place) == number)
            }
            Some(name) => places.find(|place| catalog.column_name(stored.oid(), *place) == Some(name)),
        };
        match (place, column.as_str()) {
            (None, None) => return Ok(Datum::Null),
            (None, Some(name)) => {
                let message = format!("column \"{name}\" of relation \"{}\" does not exist", stored.name());
                return Err(SqlError::new(sqlstate::UNDEFINED_COLUMN, message));
            }
            (Some(_), _) => {}
        }
    }
    let Some(rights) = rights(arguments, 3, source)? else { return Ok(Datum::Bool(true)) };
    let asked = asked_of_column(arguments)?;
    Ok(on_columns(source, &relation, &rights, &asked, |_| place.into_iter().collect()))
}

fn schema_exists(catalog: &Catalog, oid: Number) -> bool {
    super::super::relation::schemas(catalog).iter().any(|(known, _)| *known == oid)
}

fn on_schema(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let schema = match object(arguments, 1) {
        Datum::Oid(oid) if schema_exists(source.catalog, *oid) => *oid,
        Datum::Oid(_) => return Ok(Datum::Null),
        name => {
            let name = name.as_str().unwrap_or("");
            let missing =
                || SqlError::new(sqlstate::INVALID_SCHEMA_NAME, format!("schema \"{name}\" does not exist"));
            schema_oid(source.catalog, name).ok_or_else(missing)?
        }
    };
    let is_temporary = source.catalog.schema_by_oid(schema).is_some_and(|schema| schema.home.is_some());
    match rights(arguments, 2, source)?.filter(|_| !is_temporary) {
        Some(rights) => {
            let asked = asked(arguments, Securable::Schema)?;
            Ok(Datum::Bool(has(source.catalog, &rights, schema, Securable::Schema, &asked)))
        }
        None => Ok(Datum::Bool(true)),
    }
}

fn on_database(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let database = match object(arguments, 1) {
        Datum::Oid(oid) if source.catalog.database_by_oid(*oid).is_none() => return Ok(Datum::Null),
        Datum::Oid(oid) => *oid,
        name => {
            let name = name.as_str().unwrap_or("");
            source.database_named(name).ok_or_else(|| undefined_database(name))?
        }
    };
    match rights(arguments, 2, source)? {
        Some(rights) => {
            let asked = asked(arguments, Securable::Database)?;
            Ok(Datum::Bool(has(source.catalog, &rights, database, Securable::Database, &asked)))
        }
        None => Ok(Datum::Bool(true)),
    }
}

/// Those that are built in everybody may call.
fn on_function(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let Some(rights) = rights(arguments, 2, source)? else { return Ok(Datum::Bool(true)) };
    let oid = match object(arguments, 1) {
        Datum::Oid(oid) => *oid,
        name => {
            let name = name.as_str().unwrap_or("");
            let names = CatalogNames::new(source.catalog.clone(), source.search_path(), source.user());
            let bare = name.split('(').next().unwrap_or(name);
            crate::types::ObjectNames::function_oid(&names, bare).ok_or_else(|| {
                SqlError::new(sqlstate::UNDEFINED_FUNCTION, format!("function \"{name}\" does not exist"))
            })?
        }
    };
    let asked = asked(arguments, Securable::Routine)?;
    let is_own = source.catalog.routine_by_oid(oid).is_some();
    Ok(Datum::Bool(!is_own || has(source.catalog, &rights, oid, Securable::Routine, &asked)))
}

/// Those that are built in everybody may use.
fn on_type(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let Some(rights) = rights(arguments, 2, source)? else { return Ok(Datum::Bool(true)) };
    let oid = match object(arguments, 1) {
        Datum::Oid(oid) => *oid,
        name => {
            let names = CatalogNames::new(source.catalog.clone(), source.search_path(), source.user());
            let name = name.as_str().unwrap_or("");
            crate::types::ObjectNames::named_type_oid(&names, name).unwrap_or(0)
        }
    };
    let asked = asked(arguments, Securable::Type)?;
    let is_own = source.catalog.user_type_by_oid(oid).is_some();
    Ok(Datum::Bool(!is_own || has(source.catalog, &rights, oid, Securable::Type, &asked)))
}

/// What is in it is where the database is: only superusers say so.
fn on_tablespace(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    Ok(Datum::Bool(rights(arguments, 2, source)?.is_none_or(|rights| rights.superuser)))
}

fn on_role(arguments: &[Datum], source: &Source<'_>) -> Result<Datum> {
    let role = match object(arguments, 1) {
        Datum::Oid(oid) => *oid,
        name => named_role(source, name.as_str().unwrap_or(""))?,
    };
    let Some(rights) = rights(arguments, 2, source)? else { return Ok(Datum::Bool(true)) };
    let catalog = source.catalog;
    let list = arguments.last().and_then(Datum::as_str).unwrap_or("");
    let mut is_so = false;
    for word in list.split(',') {
        let upper = word.trim().to_uppercase();
        is_so |= match upper.as_str() {
            "USAGE" => rights.has(role),
            "MEMBER" => rights.superuser || catalog.memberships(rights.role, false).contains(&role),
            "USAGE WITH GRANT OPTION"
            | "USAGE WITH ADMIN OPTION"
            | "MEMBER WITH GRANT OPTION"
            | "MEMBER WITH ADMIN OPTION" => rights.superuser || catalog.is_admin_of(rights.role, role),
            _ => {
                let message = format!("unrecognized privilege type: \"{}\"", word.trim());
                return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, message));
            }
        };
    }
    Ok(Datum::Bool(is_so))
}
