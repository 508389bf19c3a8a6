//! Domains: types over another type, with a default and constraints of their own.
//!
//! ```text
//! CREATE DOMAIN code AS varchar(5) DEFAULT 'x' NOT NULL CHECK (VALUE <> '')
//! CREATE DOMAIN short AS code CHECK (length(VALUE) < 3)      what holds for code holds for it, too
//! ```
//!
//! Defaults and constraints are kept as text and bound by whoever plans a statement with them.

use serde::{Deserialize, Serialize};

use crate::types::Type;

/// A domain.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Domain {
    /// Oid. The array type over it has the next one.
    pub oid: u32,
    /// Oid of its schema.
    pub schema: u32,
    /// Name of its schema.
    pub schema_name: String,
    /// Name.
    pub name: String,
    /// The type it is over, another domain among them.
    #[serde(with = "super::store::type_document")]
    pub base: Type,
    /// Whether NULL is refused.
    pub not_null: bool,
    /// The DEFAULT expression as SQL text, if any. It is for columns that have none of their own.
    pub default: Option<String>,
    /// CHECK constraints, sorted by name as they are checked.
    pub checks: Vec<DomainCheck>,
    /// COMMENT ON DOMAIN.
    #[serde(default)]
    pub comment: Option<String>,
}

/// A CHECK constraint of a domain.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DomainCheck {
    /// Oid of the constraint.
    pub oid: u32,
    /// Name; unique among the domain's constraints.
    pub name: String,
    /// The expression as SQL text over VALUE. NULL passes.
    pub expression: String,
    /// Where its names are looked up.
    pub search_path: Vec<String>,
    /// NOT VALID: values that were there before it have not been looked at.
    #[serde(default)]
    pub not_valid: bool,
    /// COMMENT ON CONSTRAINT.
    #[serde(default)]
    pub comment: Option<String>,
}

impl Domain {
    /// The type that it is.
    pub fn ty(&self) -> Type {
        self.base.as_domain(self.oid)
    }

    /// The constraint of this name.
    pub fn check(&self, name: &str) -> Option<&DomainCheck> {
        self.checks.iter().find(|check| check.name == name)
    }

    /// Adds a constraint at its place.
    pub fn add(&mut self, check: DomainCheck) {
        let place = self.checks.partition_point(|known| known.name < check.name);
        self.checks.insert(place, check);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Object, store};
    use crate::types::{DomainUse, TypeId};

    fn read_again(base: Type) -> (Type, String) {
        let domain = Domain {
            oid: 16390,
            schema: 2200,
            schema_name: "public".to_owned(),
            name: "code".to_owned(),
            base,
            not_null: false,
            default: None,
            checks: vec![],
            comment: None,
        };
        let document = store::encode(&Object::Domain(domain.into())).unwrap();
        let text = String::from_utf8(document.to_vec()).unwrap();
        match store::decode(&document).unwrap() {
            Object::Domain(domain) => (domain.base, text),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn types_stay_what_they_are_in_documents() {
        let base = Type::varchar(5);
        // As builds that knew no domains wrote them, and read them.
        assert!(read_again(base).1.contains("\"base\":[1043,9]"));
        let domain = base.as_domain(16400);
        let array = Type { id: TypeId::VarcharArray, domain: DomainUse::Elements(16400), ..base };
        for ty in [base, domain, array, array.as_domain(16402), Type::of_enum(16404).as_domain(16406)] {
            assert_eq!(read_again(ty).0, ty);
        }
    }

    #[test]
    fn constraints_stand_in_the_order_of_their_names() {
        let check = |name: &str| DomainCheck {
            oid: 1,
            name: name.to_owned(),
            expression: "VALUE > 0".to_owned(),
            search_path: vec![],
            not_valid: false,
            comment: None,
        };
        let mut domain = read_domain();
        for name in ["b", "c", "a"] {
            domain.add(check(name));
        }
        let names: String = domain.checks.iter().map(|check| check.name.as_str()).collect();
        assert_eq!(names, "abc");
        assert!(domain.check("b").is_some() && domain.check("d").is_none());
    }

    fn read_domain() -> Domain {
        let json = "{\"oid\":1,\"schema\":2,\"schema_name\":\"public\",\"name\":\"d\",\"base\":[23,-1],\
                    \"not_null\":true,\"default\":null,\"checks\":[]}";
        serde_json::from_str(json).unwrap()
    }
}
