//! Settings that sessions begin with: those of a role, or of all roles together.
//!
//! They are kept by the role's name, as there may be no roles but only names that somebody connects
//! with. There is one database, whatever name clients call it by, so a setting holds everywhere or in
//! it.

use serde::{Deserialize, Serialize};

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
    /// `ALTER ROLE r IN DATABASE d SET`, or `ALTER DATABASE d SET`.
    #[serde(default)]
    pub in_database: SettingList,
}

impl RoleSettings {
    /// The settings in the database, or everywhere.
    pub fn list(&self, in_database: bool) -> &[(String, String)] {
        if in_database { &self.in_database } else { &self.everywhere }
    }

    /// The same, to be changed.
    pub fn list_mut(&mut self, in_database: bool) -> &mut SettingList {
        if in_database { &mut self.in_database } else { &mut self.everywhere }
    }

    /// There is nothing to be kept.
    pub fn is_empty(&self) -> bool {
        self.everywhere.is_empty() && self.in_database.is_empty()
    }
}
