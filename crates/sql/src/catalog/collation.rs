//! Collations of columns and of parts of indexes.

use serde::{Deserialize, Serialize};

/// Collations, which are names only: texts are ordered by their bytes with each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Collation {
    /// The database's, which is C.
    Default,
    /// By the bytes.
    C,
    /// The same under another name, as all that follow.
    Posix,
    /// The standard's name.
    UcsBasic,
    /// Of Linux.
    Utf8,
    /// The same, spelled otherwise.
    DashedUtf8,
    /// Of PostgreSQL 16.
    Unicode,
    /// Of ICU.
    Undefined,
}

impl Collation {
    /// All.
    pub const ALL: [Collation; 8] = [
        Collation::Default,
        Collation::C,
        Collation::Posix,
        Collation::UcsBasic,
        Collation::Utf8,
        Collation::DashedUtf8,
        Collation::Unicode,
        Collation::Undefined,
    ];

    /// The collation of `pg_catalog` that has this name.
    pub fn named(name: &str) -> Option<Collation> {
        Collation::ALL.into_iter().find(|collation| collation.name() == name)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Collation::Default => "default",
            Collation::C => "C",
            Collation::Posix => "POSIX",
            Collation::UcsBasic => "ucs_basic",
            Collation::Utf8 => "C.utf8",
            Collation::DashedUtf8 => "C.UTF-8",
            Collation::Unicode => "unicode",
            Collation::Undefined => "und-x-icu",
        }
    }

    /// `pg_collation.oid`.
    pub fn oid(self) -> u32 {
        match self {
            Collation::Default => 100,
            Collation::C => 950,
            Collation::Posix => 951,
            Collation::UcsBasic => 12340,
            Collation::Utf8 => 12341,
            Collation::Undefined => 12342,
            Collation::DashedUtf8 => 12343,
            Collation::Unicode => 12344,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collations_are_found_by_their_names_and_kept() {
        for collation in Collation::ALL {
            assert_eq!(Collation::named(collation.name()), Some(collation));
            let others = Collation::ALL.into_iter().filter(|other| other.oid() == collation.oid());
            assert_eq!(others.count(), 1, "{collation:?}");
            let text = serde_json::to_string(&collation).expect("a document");
            assert_eq!(serde_json::from_str::<Collation>(&text).expect(&text), collation);
        }
        assert_eq!(Collation::named("c"), None);
    }
}
