//! How catalog objects are stored: one JSON document each, in trees with fixed numbers.
//!
//! ```text
//! tree 1  catalog    oid, u32 big-endian            kind letter ++ JSON document: what is shared, and the initial database's
//!                    database ++ oid, two u32       the same: another database's
//! tree 2  counters   counter number, u32 big-endian i64 little-endian (see `sequence`)
//! tree 3  names      schema oid ++ name             (never stored: locked by who creates a relation or type of that name, or a routine)
//!                    1260 ++ role                   (never stored: locked by who changes a role or its settings)
//!                    1261 ++ oid                    (never stored: locked by who changes owner or privileges)
//!                    1262 ++ name                   (never stored: locked by who makes, renames or drops a database)
//!                    3079 ++ name             (never stored: locked by who makes or drops an extension)
//!                    1263 ++ oid of a database      (never stored: shared by who makes objects in it, locked by who drops it)
//!                    database ++ any of these       (never stored: the same in another than the initial database)
//! ```

use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use smallvec::SmallVec;

use super::{DATABASE_OID, Object, Oid};
use crate::error::{Result, SqlError, sqlstate};

/// Tree of catalog documents.
pub const CATALOG_TREE: u32 = 1;
/// Tree of counters: sequences' values, oids, row ids.
pub const COUNTER_TREE: u32 = 2;
/// Lock space of relation names.
pub const NAME_TREE: u32 = 3;
/// Stands for a schema in the locks on roles: the oid of `pg_authid`, which no schema has.
pub(crate) const ROLE_NAMES: Oid = 1260;
/// The same in the locks on owners and privileges.
pub(crate) const ACCESS_LISTS: Oid = 1261;

/// The same in the locks on names of databases.
pub(crate) const DATABASE_NAMES: Oid = 1262;
/// The same in the locks on databases themselves.
pub(crate) const DATABASES: Oid = 1263;
/// The same in the locks on extensions: the oid of `pg_extension`.
pub(crate) const EXTENSION_NAMES: Oid = 3079;

/// A key of the catalog, or of a lock on a name.
pub type Key = SmallVec<[u8; 8]>;

/// How keys begin of what belongs to a database: with nothing, if that is the initial one, or 0,
/// which stands for all.
pub(crate) fn prefix(database: Oid) -> Key {
    match database {
        0 | DATABASE_OID => Key::new(),
        database => Key::from_slice(&database.to_be_bytes()),
    }
}

/// Key of the document of an object that belongs to a database; to 0 belongs what is shared.
pub fn key(database: Oid, oid: Oid) -> Key {
    let mut key = prefix(database);
    key.extend_from_slice(&oid.to_be_bytes());
    key
}

/// The database and the oid of a key. To the initial database may belong what is shared, too.
pub fn place_of(key: &[u8]) -> Result<(Oid, Oid)> {
    let oid = |bytes: &[u8]| {
        let damaged = |_| SqlError::new(sqlstate::DATA_CORRUPTED, "a key of the catalog is no oid");
        bytes.try_into().map(Oid::from_be_bytes).map_err(damaged)
    };
    match key.split_at_checked(4) {
        Some((database, rest)) if !rest.is_empty() => Ok((oid(database)?, oid(rest)?)),
        _ => Ok((DATABASE_OID, oid(key)?)),
    }
}

/// An object as a document.
pub fn encode(object: &Object) -> Result<Bytes> {
    fn document<T: Serialize>(kind: u8, object: &T) -> Result<Bytes> {
        let mut bytes = vec![kind];
        serde_json::to_writer(&mut bytes, object)
            .map_err(|error| SqlError::internal(format!("cannot store a catalog object: {error}")))?;
        Ok(bytes.into())
    }
    match object {
        Object::Schema(schema) => document(b'n', schema.as_ref()),
        Object::Table(table) => document(b'r', table.as_ref()),
        Object::Sequence(sequence) => document(b'S', sequence.as_ref()),
        Object::View(view) => document(b'v', view.as_ref()),
        Object::RoleSettings(settings) => document(b'c', settings.as_ref()),
        Object::Role(role) => document(b'o', role.as_ref()),
        Object::Database(database) => document(b'D', database.as_ref()),
        Object::Access(access) => document(b'a', access.as_ref()),
        Object::DefaultAccess(access) => document(b'A', access.as_ref()),
        Object::Routine(routine) => document(b'f', routine.as_ref()),
        Object::EnumType(ty) => document(b'e', ty.as_ref()),
        Object::Domain(domain) => document(b'd', domain.as_ref()),
    }
}

/// A document as an object; XX001 if it is none.
pub fn decode(document: &[u8]) -> Result<Object> {
    fn object<T: DeserializeOwned>(json: &[u8]) -> Result<Arc<T>> {
        serde_json::from_slice(json).map(Arc::new).map_err(|error| {
            SqlError::new(sqlstate::DATA_CORRUPTED, format!("catalog document cannot be read: {error}"))
        })
    }
    match document.split_first() {
        Some((b'n', json)) => Ok(Object::Schema(object(json)?)),
        Some((b'r', json)) => Ok(Object::Table(object(json)?)),
        Some((b'S', json)) => Ok(Object::Sequence(object(json)?)),
        Some((b'v', json)) => Ok(Object::View(object(json)?)),
        Some((b'c', json)) => Ok(Object::RoleSettings(object(json)?)),
        Some((b'o', json)) => Ok(Object::Role(object(json)?)),
        Some((b'D', json)) => Ok(Object::Database(object(json)?)),
        Some((b'a', json)) => Ok(Object::Access(object(json)?)),
        Some((b'A', json)) => Ok(Object::DefaultAccess(object(json)?)),
        Some((b'f', json)) => Ok(Object::Routine(object(json)?)),
        Some((b'e', json)) => Ok(Object::EnumType(object(json)?)),
        Some((b'd', json)) => Ok(Object::Domain(object(json)?)),
        _ => Err(SqlError::new(sqlstate::DATA_CORRUPTED, "catalog document of unknown kind")),
    }
}

/// What a document is of, in words: kind, name and oid, as far as one that is damaged tells them.
#[cold]
pub(crate) fn describe(key: &[u8], document: &[u8]) -> String {
    let (kind, json) = document.split_at(document.len().min(1));
    let kind = match kind {
        b"n" => "schema",
        b"r" => "table",
        b"S" => "sequence",
        b"v" => "view",
        b"c" => "settings of role",
        b"o" => "role",
        b"D" => "database",
        b"a" => "privileges",
        b"A" => "default privileges",
        b"f" => "routine",
        b"e" => "enum type",
        b"d" => "domain",
        _ => "object",
    };
    let fields = serde_json::from_slice::<serde_json::Value>(json).unwrap_or_default();
    let name = fields.get("name").and_then(|name| name.as_str());
    let name = name.map(|name| format!(" \"{name}\"")).unwrap_or_default();
    let oid = place_of(key).map(|(_, oid)| format!(" with OID {oid}")).unwrap_or_default();
    format!("{kind}{name}{oid}")
}

/// Types in documents: oid and modifier. An enum type has the oid of `anyenum`, and its own as the
/// modifier. A domain has those of the type under it, and behind them its own oid; an array of a
/// domain that oid's negative.
pub(super) mod type_document {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::types::{DomainUse, Type, TypeId};

    pub(in crate::catalog) fn serialize<S: Serializer>(ty: &Type, serializer: S) -> Result<S::Ok, S::Error> {
        let (oid, modifier) = (ty.id.oid(), ty.modifier);
        match ty.domain {
            DomainUse::None => (oid, modifier).serialize(serializer),
            DomainUse::Value(domain) => (oid, modifier, i64::from(domain)).serialize(serializer),
            DomainUse::Elements(domain) => (oid, modifier, -i64::from(domain)).serialize(serializer),
        }
    }

    pub(in crate::catalog) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Type, D::Error> {
        let numbers = <Vec<i64>>::deserialize(deserializer)?;
        let (oid, modifier, domain) = match *numbers.as_slice() {
            [oid, modifier] => (oid, modifier, 0),
            [oid, modifier, domain] => (oid, modifier, domain),
            _ => return Err(D::Error::custom("a type is two or three numbers")),
        };
        let small = |number: i64| u32::try_from(number).map_err(D::Error::custom);
        let id = TypeId::from_oid(small(oid)?);
        let id = id.ok_or_else(|| D::Error::custom(format!("no type has oid {oid}")))?;
        let domain = match domain {
            0 => DomainUse::None,
            1.. => DomainUse::Value(small(domain)?),
            _ => DomainUse::Elements(small(-domain)?),
        };
        Ok(Type { id, modifier: i32::try_from(modifier).map_err(D::Error::custom)?, domain })
    }
}

/// Values in documents: the key of none, or type oid and text. That of an enum value has its type's
/// oid and its position: `16385:1099511627776`.
pub(super) mod datum_document {
    use serde::de::Error as _;
    use serde::ser::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::types::{Datum, FormatContext, Type, TypeId};

    /// Not every value that these hold reads back as one of them.
    fn is_narrow(id: TypeId) -> bool {
        matches!(id, TypeId::InternalChar | TypeId::Name | TypeId::Cidr)
    }

    /// A type that can hold the value: reading it back as that type gives the same value.
    fn type_of(datum: &Datum) -> Option<TypeId> {
        if let Datum::Array(array) = datum {
            return array.element.array();
        }
        TypeId::all().find(|id| !is_narrow(*id) && id.holds(datum))
    }

    pub(in crate::catalog) fn serialize<S: Serializer>(
        datum: &Datum,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let document = match type_of(datum) {
            _ if datum.is_null() => None,
            None => return Err(S::Error::custom("a value of unknown type")),
            Some(id) => {
                let mut text = Vec::new();
                datum.to_text(Type::new(id), &FormatContext::default(), &mut text);
                Some((id.oid(), String::from_utf8(text).map_err(S::Error::custom)?))
            }
        };
        document.serialize(serializer)
    }

    pub(in crate::catalog) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Datum, D::Error> {
        let Some((oid, text)) = <Option<(u32, String)>>::deserialize(deserializer)? else {
            return Ok(Datum::Null);
        };
        let id = TypeId::from_oid(oid).ok_or_else(|| D::Error::custom(format!("no type has oid {oid}")))?;
        Datum::from_text(Type::new(id), &text, &FormatContext::default()).map_err(D::Error::custom)
    }
}
