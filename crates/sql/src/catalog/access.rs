//! Who owns an object, and what others may do with it.
//!
//! ```text
//! CREATE TABLE t ...           by ann        owner ann, no list: what the kind gives by default
//! GRANT SELECT ON t TO bob                   {ann=arwdDxt/ann, bob=r/ann}
//! ```
//!
//! An [`Access`] is an object of the catalog beside the one that it is about, so that a GRANT does
//! not touch the table, and tables say nothing of owners. It is there only if it says something: an
//! object without one belongs to the bootstrap superuser and has no list. It goes with its object.
//!
//! A [`DefaultAccess`] is what ALTER DEFAULT PRIVILEGES has said for objects to come.

use std::ops::{BitAnd, BitOr, Not};

use serde::{Deserialize, Serialize};

use super::role::{DATABASE_OWNER_OID, READ_ALL_OID, WRITE_ALL_OID};
use super::{
    Catalog, ColumnAccess, INFORMATION_SCHEMA_OID, OWNER_OID, Object, Oid, PG_CATALOG_OID, PUBLIC_OID, Rights,
};

/// A set of privileges: a bit for each, in PostgreSQL's order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Privileges(u16);

/// The letters of the bits, from the lowest.
const LETTERS: &str = "arwdDxtXUCTc";
/// Their words.
const WORDS: [&str; 12] = [
    "INSERT",
    "SELECT",
    "UPDATE",
    "DELETE",
    "TRUNCATE",
    "REFERENCES",
    "TRIGGER",
    "EXECUTE",
    "USAGE",
    "CREATE",
    "TEMPORARY",
    "CONNECT",
];

#[allow(missing_docs)]
impl Privileges {
    pub const NONE: Privileges = Privileges(0);
    pub const INSERT: Privileges = Privileges(1);
    pub const SELECT: Privileges = Privileges(1 << 1);
    pub const UPDATE: Privileges = Privileges(1 << 2);
    pub const DELETE: Privileges = Privileges(1 << 3);
    pub const TRUNCATE: Privileges = Privileges(1 << 4);
    pub const REFERENCES: Privileges = Privileges(1 << 5);
    pub const TRIGGER: Privileges = Privileges(1 << 6);
    pub const EXECUTE: Privileges = Privileges(1 << 7);
    pub const USAGE: Privileges = Privileges(1 << 8);
    pub const CREATE: Privileges = Privileges(1 << 9);
    pub const TEMPORARY: Privileges = Privileges(1 << 10);
    pub const CONNECT: Privileges = Privileges(1 << 11);
    /// All that can be given on a column: to read, to insert, to update, and to refer to it.
    pub const COLUMN: Privileges = Privileges(0x27);

    /// The privilege that a word names, in any case.
    pub fn of_word(word: &str) -> Option<Privileges> {
        let word = if word.eq_ignore_ascii_case("temp") { "TEMPORARY" } else { word };
        let at = WORDS.iter().position(|known| known.eq_ignore_ascii_case(word))?;
        Some(Privileges(1 << at))
    }

    /// The word for a letter of a list, also for those that nothing here has.
    pub fn word_of(letter: char) -> Option<&'static str> {
        match letter {
            's' => Some("SET"),
            'A' => Some("ALTER SYSTEM"),
            letter => LETTERS.chars().position(|known| known == letter).map(|at| WORDS[at]),
        }
    }

    /// Their words, in order.
    pub fn words(self) -> impl Iterator<Item = &'static str> {
        WORDS.into_iter().enumerate().filter(move |(at, _)| self.0 & (1 << at) != 0).map(|(_, word)| word)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn has_all(self, wanted: Privileges) -> bool {
        self & wanted == wanted
    }

    pub fn has_any(self, wanted: Privileges) -> bool {
        !(self & wanted).is_empty()
    }
}

impl BitOr for Privileges {
    type Output = Privileges;
    fn bitor(self, other: Privileges) -> Privileges {
        Privileges(self.0 | other.0)
    }
}

impl BitAnd for Privileges {
    type Output = Privileges;
    fn bitand(self, other: Privileges) -> Privileges {
        Privileges(self.0 & other.0)
    }
}

impl Not for Privileges {
    type Output = Privileges;
    fn not(self) -> Privileges {
        Privileges(!self.0)
    }
}

/// What kind of thing privileges are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Securable {
    /// A table or view.
    Table,
    /// A sequence.
    Sequence,
    /// A schema.
    Schema,
    /// A function or procedure.
    Routine,
    /// A type.
    Type,
    /// A database.
    Database,
}

impl Securable {
    /// All privileges that there are on such a thing, which its owner has from the beginning.
    pub fn all(self) -> Privileges {
        match self {
            Securable::Table => Privileges(0x7f),
            Securable::Sequence => Privileges::USAGE | Privileges::SELECT | Privileges::UPDATE,
            Securable::Schema => Privileges::USAGE | Privileges::CREATE,
            Securable::Routine => Privileges::EXECUTE,
            Securable::Type => Privileges::USAGE,
            Securable::Database => Privileges::CREATE | Privileges::TEMPORARY | Privileges::CONNECT,
        }
    }

    /// What everybody has from the beginning.
    pub fn public(self) -> Privileges {
        match self {
            Securable::Table | Securable::Sequence | Securable::Schema => Privileges::NONE,
            Securable::Routine => Privileges::EXECUTE,
            Securable::Type => Privileges::USAGE,
            Securable::Database => Privileges::TEMPORARY | Privileges::CONNECT,
        }
    }

    /// The letter in `pg_default_acl.defaclobjtype`.
    pub fn letter(self) -> char {
        match self {
            Securable::Table => 'r',
            Securable::Sequence => 'S',
            Securable::Schema => 'n',
            Securable::Routine => 'f',
            Securable::Type => 'T',
            Securable::Database => 'd',
        }
    }

    /// The list that says what is so without any.
    pub fn default_list(self, owner: Oid) -> Vec<AclItem> {
        let item = |grantee, privileges| AclItem {
            grantee,
            grantor: owner,
            privileges,
            grantable: Privileges::NONE,
        };
        let public = Some(item(0, self.public())).filter(|item| !item.privileges.is_empty());
        public.into_iter().chain([item(owner, self.all())]).collect()
    }
}

/// What one role was given by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AclItem {
    /// Oid of who has it; 0 is everybody.
    pub grantee: u32,
    /// Oid of who gave it.
    pub grantor: u32,
    /// What.
    pub privileges: Privileges,
    /// What of that it may give to others.
    #[serde(default)]
    pub grantable: Privileges,
}

impl AclItem {
    /// Whether a role has it, or gave it.
    pub fn is_about(&self, role: Oid) -> bool {
        [self.grantee, self.grantor].contains(&role)
    }

    /// The privileges as PostgreSQL prints them: a star behind what may be given on.
    pub fn letters(&self) -> String {
        let mut letters = String::new();
        for (at, letter) in LETTERS.chars().enumerate() {
            let bit = Privileges(1 << at);
            if self.privileges.has_all(bit) {
                letters.push(letter);
                if self.grantable.has_all(bit) {
                    letters.push('*');
                }
            }
        }
        letters
    }
}

/// Owner and privileges of an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Access {
    /// Oid of this.
    pub oid: u32,
    /// Oid of the object.
    pub object: u32,
    /// Oid of the role that owns it.
    pub owner: u32,
    /// Who may do what; none is what the kind gives by default.
    #[serde(default)]
    pub list: Option<Vec<AclItem>>,
    /// What is given on single columns of a table or view, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<ColumnAccess>,
}

/// Privileges of objects that a role will make.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DefaultAccess {
    /// Oid of this.
    pub oid: u32,
    /// Oid of the role.
    pub role: u32,
    /// Oid of the schema that it is for; 0 is all.
    pub schema: u32,
    /// What kind of object.
    pub kind: Securable,
    /// For all schemas the whole list, for one what comes in addition.
    pub list: Vec<AclItem>,
}

impl Object {
    /// What kind of thing privileges on it are on; none if nobody can have any.
    pub fn securable(&self) -> Option<Securable> {
        match self {
            Object::Schema(_) => Some(Securable::Schema),
            Object::Table(_) | Object::View(_) => Some(Securable::Table),
            Object::Sequence(_) => Some(Securable::Sequence),
            Object::Routine(_) => Some(Securable::Routine),
            Object::EnumType(_) | Object::Domain(_) => Some(Securable::Type),
            Object::Database(_) => Some(Securable::Database),
            Object::RoleSettings(_) | Object::Role(_) | Object::Access(_) | Object::DefaultAccess(_) => None,
        }
    }
}

impl Catalog {
    /// What kind of thing an object is to who asks for privileges.
    pub fn securable(&self, object: Oid) -> Option<Securable> {
        self.object(object).and_then(Object::securable)
    }

    /// Oid of the role that owns an object. An index belongs to its table's owner.
    pub fn owner(&self, object: Oid) -> Oid {
        if let Some(access) = self.access(object) {
            return access.owner;
        }
        match object {
            PUBLIC_OID => DATABASE_OWNER_OID,
            _ => OWNER_OID,
        }
    }

    /// The list of an object, if it has one.
    pub fn list(&self, object: Oid) -> Option<Vec<AclItem>> {
        if let Some(access) = self.access(object) {
            return access.list.clone();
        }
        if object != PUBLIC_OID {
            return None;
        }
        let grantor = DATABASE_OWNER_OID;
        let item =
            |grantee, privileges| AclItem { grantee, grantor, privileges, grantable: Privileges::NONE };
        Some(vec![item(grantor, Securable::Schema.all()), item(0, Privileges::USAGE)])
    }

    /// The list of an object, or what is so without one.
    pub fn list_or_default(&self, object: Oid, kind: Securable) -> Vec<AclItem> {
        self.list(object).unwrap_or_else(|| kind.default_list(self.owner(object)))
    }

    /// Which of these privileges a role has on an object.
    pub fn privileges(
        &self,
        rights: &Rights,
        object: Oid,
        kind: Securable,
        wanted: Privileges,
    ) -> Privileges {
        if rights.superuser {
            return wanted;
        }
        let of_list = |items: &[AclItem]| {
            let own = items.iter().filter(|item| item.grantee == 0 || rights.acts_as(item.grantee));
            own.fold(Privileges::NONE, |found, item| found | item.privileges)
        };
        let of_owner =
            |owner: Oid| kind.public() | if rights.acts_as(owner) { kind.all() } else { Privileges::NONE };
        let mut found = match self.access(object) {
            Some(access) => access.list.as_deref().map_or_else(|| of_owner(access.owner), of_list),
            None if object == PUBLIC_OID => of_list(&self.list_or_default(object, kind)),
            None => of_owner(self.owner(object)),
        };
        if [PG_CATALOG_OID, INFORMATION_SCHEMA_OID].contains(&object) {
            found = found | Privileges::USAGE;
        }
        (found | Catalog::of_predefined(rights, kind)) & wanted
    }

    /// What members of `pg_read_all_data` and `pg_write_all_data` have on everything.
    fn of_predefined(rights: &Rights, kind: Securable) -> Privileges {
        let (reads, writes) = (rights.acts_as(READ_ALL_OID), rights.acts_as(WRITE_ALL_OID));
        match kind {
            Securable::Schema if reads || writes => Privileges::USAGE,
            Securable::Table | Securable::Sequence => {
                let read = if reads { Privileges::SELECT } else { Privileges::NONE };
                let write = Privileges::INSERT | Privileges::UPDATE | Privileges::DELETE;
                read | if writes { write } else { Privileges::NONE }
            }
            _ => Privileges::NONE,
        }
    }

    /// Which of these privileges a role may give to others.
    pub fn grantable(&self, rights: &Rights, object: Oid, kind: Securable, wanted: Privileges) -> Privileges {
        if rights.has(self.owner(object)) {
            return wanted;
        }
        let list = self.list_or_default(object, kind);
        let own = list.iter().filter(|item| rights.acts_as(item.grantee));
        own.fold(Privileges::NONE, |found, item| found | item.grantable) & wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_print_as_postgresql_prints_them() {
        let item = AclItem {
            grantee: 0,
            grantor: 10,
            privileges: Securable::Table.all(),
            grantable: Privileges::SELECT | Privileges::TRIGGER,
        };
        assert_eq!(item.letters(), "ar*wdDxt*");
        assert_eq!(Privileges::of_word("temp"), Some(Privileges::TEMPORARY));
        let words: Vec<_> = Securable::Database.all().words().collect();
        assert_eq!(words, ["CREATE", "TEMPORARY", "CONNECT"]);
    }

    #[test]
    fn what_kinds_give_by_default() {
        let letters = |kind: Securable| {
            let list = kind.default_list(7);
            list.iter().map(|item| format!("{}={}", item.grantee, item.letters())).collect::<Vec<_>>()
        };
        assert_eq!(letters(Securable::Table), ["7=arwdDxt"]);
        assert_eq!(letters(Securable::Sequence), ["7=rwU"]);
        assert_eq!(letters(Securable::Database), ["0=Tc", "7=CTc"]);
        assert_eq!(letters(Securable::Routine), ["0=X", "7=X"]);
    }
}
