//! `LIKE table INCLUDING ...` among the columns of CREATE TABLE. The parser knows it as the only
//! one, and without most of its options; so it goes through the parser as a column whose name
//! nothing else can have.

use sqlparser::ast::Ident;

/// Begins such a name, and stands between its parts.
const MARK: char = '\u{1}';

/// A table whose columns are taken over, and what else of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Like {
    /// The folded parts of its name.
    pub(crate) table: Vec<String>,
    pub(crate) comments: bool,
    pub(crate) constraints: bool,
    pub(crate) defaults: bool,
    pub(crate) generated: bool,
    pub(crate) identity: bool,
    pub(crate) indexes: bool,
    pub(crate) storage: bool,
}

impl Like {
    /// Notes INCLUDING or EXCLUDING of a word. False if it is none of PostgreSQL's.
    pub(super) fn choose(&mut self, word: &str, including: bool) -> bool {
        match word.to_ascii_uppercase().as_str() {
            "ALL" => {
                *self = Like {
                    table: std::mem::take(&mut self.table),
                    comments: including,
                    constraints: including,
                    defaults: including,
                    generated: including,
                    identity: including,
                    indexes: including,
                    storage: including,
                };
            }
            "COMMENTS" => self.comments = including,
            "CONSTRAINTS" => self.constraints = including,
            "DEFAULTS" => self.defaults = including,
            "GENERATED" => self.generated = including,
            "IDENTITY" => self.identity = including,
            "INDEXES" => self.indexes = including,
            "STORAGE" => self.storage = including,
            // No table has any of these, so there is nothing to take over.
            "COMPRESSION" | "STATISTICS" => {}
            _ => return false,
        }
        true
    }

    /// As a column's name.
    pub(super) fn written(&self) -> String {
        let flags = [
            self.comments,
            self.constraints,
            self.defaults,
            self.generated,
            self.identity,
            self.indexes,
            self.storage,
        ];
        let flags: String = flags.map(|flag| if flag { '1' } else { '0' }).iter().collect();
        let mark = MARK.to_string();
        format!("{MARK}{flags}{MARK}{}", self.table.join(&mark))
    }

    /// What a column's name stands for, if it is not one.
    pub(crate) fn read(name: &Ident) -> Option<Like> {
        let mut parts = name.value.strip_prefix(MARK)?.split(MARK);
        let mut flags = parts.next()?.chars().map(|flag| flag == '1');
        let mut flag = || flags.next().unwrap_or(false);
        Some(Like {
            comments: flag(),
            constraints: flag(),
            defaults: flag(),
            generated: flag(),
            identity: flag(),
            indexes: flag(),
            storage: flag(),
            table: parts.map(str::to_owned).collect(),
        })
    }
}
