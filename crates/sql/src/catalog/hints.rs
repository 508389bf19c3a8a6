//! What is said of a table that has no effect here, and is kept for who asks or dumps it.
//!
//! Statistics of columns are gathered of all rows and never more or less of them, long values are
//! stored in one way, rows are in the order of their primary key, and nothing is decoded from the
//! log by who reads changes.

use serde::{Deserialize, Serialize};

/// All that is said of one table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hints {
    /// SET STATISTICS: places of columns, and how much is to be gathered of each.
    #[serde(default)]
    pub statistics: Vec<(usize, i32)>,
    /// The same of columns of indexes: oid of the index, the column's place there, and how much.
    #[serde(default)]
    pub index_statistics: Vec<(u32, usize, i32)>,
    /// SET STORAGE: places of columns, and PostgreSQL's letter for how each is to be stored.
    #[serde(default)]
    pub storage: Vec<(usize, char)>,
    /// SET of options: places of columns, and what is said of each, as `name=value`.
    #[serde(default)]
    pub options: Vec<(usize, Vec<String>)>,
    /// CLUSTER ON: oid of the index.
    #[serde(default)]
    pub clustered: Option<u32>,
    /// REPLICA IDENTITY.
    #[serde(default)]
    pub replica_identity: ReplicaIdentity,
}

impl Hints {
    /// The options of the column at a place.
    pub(crate) fn options_of(&self, place: usize) -> &[String] {
        let known = self.options.iter().find(|(known, _)| *known == place);
        known.map(|(_, options)| options.as_slice()).unwrap_or_default()
    }

    /// How much is to be gathered of the column at a place of an index.
    pub(crate) fn statistics_of_index(&self, index: u32, place: usize) -> Option<i32> {
        let known = self.index_statistics.iter().find(|(oid, at, _)| (*oid, *at) == (index, place));
        known.map(|(_, _, target)| *target)
    }
}

/// What the log is to tell a row by that is changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplicaIdentity {
    /// The primary key.
    #[default]
    Default,
    /// Nothing.
    Nothing,
    /// All columns.
    Full,
    /// The columns of the index with this oid.
    Index(u32),
}

impl ReplicaIdentity {
    /// PostgreSQL's letter for it.
    pub fn letter(self) -> char {
        match self {
            ReplicaIdentity::Default => 'd',
            ReplicaIdentity::Nothing => 'n',
            ReplicaIdentity::Full => 'f',
            ReplicaIdentity::Index(_) => 'i',
        }
    }
}

/// Says something of the column at a place; none takes back what was said.
pub(crate) fn put<T>(hints: &mut Vec<(usize, T)>, place: usize, hint: Option<T>) {
    hints.retain(|(known, _)| *known != place);
    hints.extend(hint.map(|hint| (place, hint)));
}

/// What is said of the column at a place.
pub(crate) fn get<T: Copy>(hints: &[(usize, T)], place: usize) -> Option<T> {
    hints.iter().find(|(known, _)| *known == place).map(|(_, hint)| *hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_kept_as_they_are_said() {
        let mut hints = Hints::default();
        put(&mut hints.statistics, 2, Some(100));
        put(&mut hints.statistics, 0, Some(5));
        put(&mut hints.statistics, 2, Some(7));
        put(&mut hints.storage, 1, Some('e'));
        put(&mut hints.options, 3, Some(vec!["n_distinct=5".to_owned()]));
        hints.index_statistics.push((17, 1, 300));
        assert_eq!(hints.statistics_of_index(17, 1), Some(300));
        assert_eq!(hints.statistics_of_index(17, 0), None);
        hints.replica_identity = ReplicaIdentity::Index(17);
        assert_eq!(get(&hints.statistics, 2), Some(7));
        assert_eq!(get(&hints.statistics, 1), None);
        assert_eq!(hints.options_of(3), ["n_distinct=5"]);
        assert!(hints.options_of(0).is_empty());
        let text = serde_json::to_string(&hints).unwrap();
        assert_eq!(serde_json::from_str::<Hints>(&text).unwrap(), hints);
        put(&mut hints.statistics, 2, None);
        assert_eq!(get(&hints.statistics, 2), None);
        // Tables of before are stored without.
        assert_eq!(serde_json::from_str::<Hints>("{}").unwrap(), Hints::default());
    }
}
