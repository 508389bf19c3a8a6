//! Types that users make, of either kind. They share one name space.

use std::sync::Arc;

use super::{Domain, EnumType, Object, Oid};
use crate::types::Type;

/// A type that a user has made.
#[derive(Clone, Debug)]
pub enum UserType {
    /// An enum type.
    Enum(Arc<EnumType>),
    /// A domain.
    Domain(Arc<Domain>),
}

impl UserType {
    /// Its oid. The array type over it has the next one.
    pub fn oid(&self) -> Oid {
        match self {
            UserType::Enum(ty) => ty.oid,
            UserType::Domain(domain) => domain.oid,
        }
    }

    /// Oid of its schema.
    pub fn schema(&self) -> Oid {
        match self {
            UserType::Enum(ty) => ty.schema,
            UserType::Domain(domain) => domain.schema,
        }
    }

    /// Name of its schema.
    pub fn schema_name(&self) -> &str {
        match self {
            UserType::Enum(ty) => &ty.schema_name,
            UserType::Domain(domain) => &domain.schema_name,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            UserType::Enum(ty) => &ty.name,
            UserType::Domain(domain) => &domain.name,
        }
    }

    /// The type that it is.
    pub fn ty(&self) -> Type {
        match self {
            UserType::Enum(ty) => Type::of_enum(ty.oid),
            UserType::Domain(domain) => domain.ty(),
        }
    }

    /// The same in a schema that has got another name.
    pub fn in_schema(&self, schema_name: &str) -> Object {
        let schema_name = schema_name.to_owned();
        match self {
            UserType::Enum(ty) => Object::EnumType(EnumType { schema_name, ..EnumType::clone(ty) }.into()),
            UserType::Domain(domain) => {
                Object::Domain(Domain { schema_name, ..Domain::clone(domain) }.into())
            }
        }
    }
}
