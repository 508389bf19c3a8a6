//! Lists of privileges as clients read them, and the catalog tables about memberships and
//! privileges of objects to come.
//!
//! ```text
//! {ann=arwdDxt/ann,bob=r*/ann,=r/ann}      bob may give SELECT on, and everybody has it
//! ```

use super::value::{NULL, array};
use super::{Source, SystemTable, role};
use crate::catalog::{AclItem, Membership, OWNER_OID, Oid, Privileges, Role};
use crate::error::{Result, SqlError, sqlstate};
use crate::function::EvalContext;
use crate::types::{Array, Datum, Type, TypeId};

pub(super) const TABLES: &[&SystemTable] = &[&PG_AUTH_MEMBERS, &PG_DEFAULT_ACL];

/// A role's name as lists print it: in quotes unless it is plain.
pub(super) fn shown(source: &Source<'_>, role: Oid) -> String {
    let name = role_name(source, role);
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if plain { name } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// A role's name, or its oid if there is none.
pub(super) fn role_name(source: &Source<'_>, role: Oid) -> String {
    role::name(source.catalog, &source.user(), role).unwrap_or_else(|| role.to_string())
}

/// A list.
pub(super) fn list(source: &Source<'_>, items: &[AclItem]) -> Datum {
    let item = |item: &AclItem| {
        let grantee = if item.grantee == 0 { String::new() } else { shown(source, item.grantee) };
        format!("{grantee}={}/{}", item.letters(), shown(source, item.grantor))
    };
    array(TypeId::Text, items.iter().map(item))
}

/// The list of an object; NULL if it has none.
pub(super) fn of(source: &Source<'_>, object: Oid) -> Datum {
    source.catalog.list(object).map_or(NULL, |items| list(source, &items))
}

/// The list of a column, by its number; NULL if it has none.
pub(super) fn of_column(source: &Source<'_>, relation: Oid, number: i16) -> Datum {
    let place = usize::try_from(number - 1).ok();
    let found = source.catalog.column_lists(relation).find(|of| Some(of.column) == place);
    found.map_or(NULL, |of| list(source, &of.list))
}

/// The name of an object's owner.
pub(super) fn owner(source: &Source<'_>, object: Oid) -> String {
    role_name(source, source.catalog.owner(object))
}

/// The columns of `aclexplode`'s rows.
pub(crate) const EXPLODED: [(&str, Type); 4] = [
    ("grantor", Type::new(TypeId::Oid)),
    ("grantee", Type::new(TypeId::Oid)),
    ("privilege_type", Type::new(TypeId::Text)),
    ("is_grantable", Type::new(TypeId::Bool)),
];

/// The type of one of them as a value: what a record is made of is in its modifier.
pub(crate) const EXPLODED_ROW: Type = Type::modified(TypeId::Record, 2);

/// The letters of all privileges, in the order in which lists have them.
const ALL_LETTERS: &str = "arwdDxtXUCTcsA";

/// So much memory a row takes.
const ROW_BYTES: usize = 256;

/// The rows of `aclexplode`: who has given which privilege to whom, and whether that may be given
/// on. 22P02 for what is no list.
pub(crate) fn explode(list: &Array, eval: &EvalContext<'_>) -> Result<Vec<Vec<Datum>>> {
    let wrong = |message: String| SqlError::new(sqlstate::INVALID_TEXT_REPRESENTATION, message);
    let mut rows = Vec::new();
    for item in list.elements.iter().filter_map(Datum::as_str) {
        let mut is_quoted = false;
        let equals = item.find(|letter: char| {
            is_quoted ^= letter == '"';
            letter == '=' && !is_quoted
        });
        let (grantee, rest) = item.split_at(equals.ok_or_else(|| wrong("missing \"=\" sign".to_owned()))?);
        let (letters, grantor) = match rest[1..].split_once('/') {
            Some((letters, grantor)) => (letters, Some(grantor)),
            None => (&rest[1..], None),
        };
        let words = words_of(letters)?;
        let grantee = role_in_list(grantee, eval)?;
        let grantor = match grantor {
            // Who has given it is the first superuser where nobody is named.
            None => OWNER_OID,
            Some("") => return Err(wrong("a name must follow the \"/\" sign".to_owned())),
            Some(grantor) => role_in_list(grantor, eval)?,
        };
        for (word, is_grantable) in words {
            eval.check_size((rows.len() + 1) * ROW_BYTES)?;
            let (grantor, grantee) = (Datum::Oid(grantor), Datum::Oid(grantee));
            rows.push(vec![grantor, grantee, word.into(), Datum::Bool(is_grantable)]);
        }
    }
    Ok(rows)
}

/// What the letters of an item stand for, once each and in the order of lists, and whether that may
/// be given on. 22P02 for a letter that stands for nothing.
fn words_of(letters: &str) -> Result<Vec<(&'static str, bool)>> {
    let (mut given, mut grantable, mut last) = (0u32, 0u32, 0u32);
    for letter in letters.chars() {
        match letter {
            '*' => grantable |= last,
            // Rules had a privilege once.
            'R' => last = 0,
            letter => {
                let place = ALL_LETTERS.find(letter).ok_or_else(|| {
                    let message = format!("invalid mode character: must be one of \"{ALL_LETTERS}\"");
                    SqlError::new(sqlstate::INVALID_TEXT_REPRESENTATION, message)
                })?;
                last = 1 << place;
            }
        }
        given |= last;
    }
    let places = ALL_LETTERS.chars().enumerate().map(|(place, letter)| (1u32 << place, letter));
    let words = places.filter(|(bit, _)| given & bit != 0);
    Ok(words.filter_map(|(bit, letter)| Some((Privileges::word_of(letter)?, grantable & bit != 0))).collect())
}

/// Oid of a role as lists print it: nothing is everybody, and who is gone is a number.
fn role_in_list(shown: &str, eval: &EvalContext<'_>) -> Result<Oid> {
    if shown.is_empty() {
        return Ok(0);
    }
    // A list has names as they are, also where SQL would make small letters of them.
    let name = if shown.starts_with('"') { shown.to_owned() } else { format!("\"{shown}\"") };
    let found = eval.objects.as_deref().and_then(|objects| objects.role_oid(&name));
    found
        .or_else(|| shown.parse().ok())
        .ok_or_else(|| SqlError::new(sqlstate::UNDEFINED_OBJECT, format!("role \"{shown}\" does not exist")))
}

fn memberships<'a>(source: &Source<'a>) -> impl Iterator<Item = (&'a Role, &'a Membership)> {
    let roles = source.catalog.roles().map(|role| &**role);
    roles.flat_map(|role: &Role| role.member_of.iter().map(move |membership| (role, membership)))
}

system_table! {
    static PG_AUTH_MEMBERS = 1261 table "pg_catalog"."pg_auth_members",
    |source| memberships(source) => |(role, membership)|,
    roleid: Oid = membership.role,
    member: Oid = role.oid,
    grantor: Oid = membership.grantor,
    admin_option: Bool = membership.admin,
}

system_table! {
    static PG_DEFAULT_ACL = 826 table "pg_catalog"."pg_default_acl",
    |source| source.catalog.default_accesses().map(|default| (source, default)) => |(source, default)|,
    oid: Oid = default.oid,
    defaclrole: Oid = default.role,
    defaclnamespace: Oid = default.schema,
    defaclobjtype: InternalChar = default.kind.letter(),
    defaclacl: TextArray = list(source, &default.list),
}
