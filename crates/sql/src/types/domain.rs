//! What types know of domains.
//!
//! A domain's values are values of the type under it, and are computed with, stored and printed as
//! such. So a [`Type`] of a domain *is* the type under it, with its id and modifier, and says
//! beside that which domain it is. Only where a value becomes one of the domain does that matter:
//! there it is checked (`bind/domain`).
//!
//! ```text
//! CREATE DOMAIN code AS varchar(5)      code     varchar(5), Value(code)
//!                                       code[]   varchar(5)[], Elements(code)
//! CREATE DOMAIN codes AS code[]         codes    varchar(5)[], Value(codes)
//! ```
//!
//! As with enum types, the array type over a domain has the oid behind the domain's.

use super::Type;

/// Which domain a type is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DomainUse {
    /// None.
    #[default]
    None,
    /// The domain with this oid.
    Value(u32),
    /// An array of the domain with this oid.
    Elements(u32),
}

impl Type {
    /// The domain with this oid over this type.
    pub const fn as_domain(self, oid: u32) -> Type {
        Type { domain: DomainUse::Value(oid), ..self }
    }

    /// The oid of the domain that it is.
    pub fn domain_oid(self) -> Option<u32> {
        if let DomainUse::Value(oid) = self.domain { Some(oid) } else { None }
    }

    /// The oid of the domain that it is or has elements of.
    pub fn domain_named(self) -> Option<u32> {
        match self.domain {
            DomainUse::None => None,
            DomainUse::Value(oid) | DomainUse::Elements(oid) => Some(oid),
        }
    }

    /// The type under a domain; an array of a domain is none.
    pub fn base(self) -> Type {
        if let DomainUse::Value(_) = self.domain { self.bare() } else { self }
    }

    /// The same without a word of domains.
    pub const fn bare(self) -> Type {
        Type { domain: DomainUse::None, ..self }
    }

    /// The type of a parameter of this type: without a modifier.
    pub fn parameter(self) -> Type {
        Type { domain: self.domain, ..self.plain() }
    }

    /// The type of a routine's argument or result: without a modifier, unless a domain brings it.
    pub fn of_routine(self) -> Type {
        if self.domain_named().is_some() { self } else { self.plain() }
    }

    /// The oid of the type made by a user that it is or has elements of: a domain or an enum type.
    pub fn user_type(self) -> Option<u32> {
        self.domain_named().or_else(|| self.enum_named())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::TypeId;

    #[test]
    fn a_domain_is_the_type_under_it() {
        let base = Type::varchar(5);
        let code = base.as_domain(20000);
        assert_eq!((code.oid(), code.base(), code.shown_modifier()), (20000, base, -1));
        assert_eq!((code.id, code.character_limit()), (TypeId::Varchar, Some(5)));
        assert_eq!(code.plain(), Type::new(TypeId::Varchar));
        assert_eq!((code.of_routine(), base.of_routine()), (code, code.plain()));
        let codes = crate::bind::array_type(code).unwrap();
        assert_eq!((codes.id, codes.oid(), codes.base()), (TypeId::VarcharArray, 20001, codes));
        assert_eq!(codes.element(), Some(code));
        let over_array = codes.as_domain(20002);
        assert_eq!((over_array.oid(), over_array.element()), (20002, Some(base)));
        assert_eq!(over_array.user_type(), Some(20002));
        assert_eq!(Type::of_enum(20004).as_domain(20006).user_type(), Some(20006));
        assert!(crate::bind::array_type(over_array).is_err());
    }
}
