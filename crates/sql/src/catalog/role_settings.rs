//! Settings that sessions begin with: those of a role, or of all roles together.
//!
//! They are kept by the role's name, as there may be no roles but only names that somebody connects
//! with; and by the oid of the database, if they hold in one only.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{DATABASE_OID, Oid};

/// Name and value of each setting, in the order in which they came. A value is the text that SET
/// would be given, checked when it was stored and again by each session that begins with it.
pub type SettingList = Vec<(String, String)>;

/// What ALTER ROLE and ALTER DATABASE have set for a role, or for all of them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RoleSettings {
    /// Oid, which stands for the role in the system's tables, too.
    pub oid: u32,
    /// The role; none is all of them.
    #[serde(default)]
    pub role: Option<String>,
    /// `ALTER ROLE r SET`, or `ALTER ROLE ALL SET`.
    #[serde(default)]
    pub everywhere: SettingList,
    /// `ALTER ROLE r IN DATABASE d SET`, or `ALTER DATABASE d SET`, of the initial database.
    #[serde(default)]
    pub in_database: SettingList,
    /// The same of others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub in_others: BTreeMap<Oid, SettingList>,
}

impl RoleSettings {
    /// The settings in a database; without one, everywhere.
    pub fn list(&self, database: Option<Oid>) -> &[(String, String)] {
        match database {
            None => &self.everywhere,
            Some(DATABASE_OID) => &self.in_database,
            Some(other) => self.in_others.get(&other).map_or(&[], |list| list),
        }
    }

    /// Has other settings in a database, or everywhere.
    pub fn set_list(&mut self, database: Option<Oid>, list: SettingList) {
        match database {
            None => self.everywhere = list,
            Some(DATABASE_OID) => self.in_database = list,
            Some(other) if list.is_empty() => drop(self.in_others.remove(&other)),
            Some(other) => drop(self.in_others.insert(other, list)),
        }
    }

    /// The databases in which there are settings.
    pub fn databases(&self) -> impl Iterator<Item = Oid> {
        let initial = Some(DATABASE_OID).filter(|_| !self.in_database.is_empty());
        initial.into_iter().chain(self.in_others.keys().copied())
    }

    /// There is nothing to be kept.
    pub fn is_empty(&self) -> bool {
        self.everywhere.is_empty() && self.in_database.is_empty() && self.in_others.is_empty()
    }
}
