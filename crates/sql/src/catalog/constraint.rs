//! CHECK and FOREIGN KEY constraints. PRIMARY KEY and UNIQUE belong to their
//! [`Index`](super::Index).

use serde::{Deserialize, Serialize};

/// A CHECK constraint.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Check {
    /// Oid of the constraint.
    pub oid: u32,
    /// Name; unique among the table's constraints.
    pub name: String,
    /// The expression as SQL text over the table's columns. NULL passes.
    pub expression: String,
    /// Places in [`Table::columns`](super::Table::columns) that the expression reads.
    pub columns: Vec<usize>,
    /// NOT VALID: rows that were there before it have not been looked at.
    #[serde(default)]
    pub not_valid: bool,
    /// NO INHERIT, which is told and means nothing: there is no inheritance.
    #[serde(default)]
    pub no_inherit: bool,
    /// COMMENT ON CONSTRAINT.
    #[serde(default)]
    pub comment: Option<String>,
}

/// A FOREIGN KEY constraint, stored with the referencing table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ForeignKey {
    /// Oid of the constraint.
    pub oid: u32,
    /// Name; unique among the table's constraints.
    pub name: String,
    /// Referencing columns: places in this table's columns.
    pub columns: Vec<usize>,
    /// Oid of the referenced table.
    pub referenced_table: u32,
    /// Referenced columns: places in the referenced table's columns, in the order of `columns`.
    pub referenced_columns: Vec<usize>,
    /// Oid of the unique index of the referenced table that holds exactly these columns.
    pub referenced_index: u32,
    /// What happens when the referenced row goes.
    pub on_delete: ReferentialAction,
    /// What happens when the referenced key changes.
    pub on_update: ReferentialAction,
    /// May be checked at the end of the transaction.
    #[serde(default)]
    pub deferrable: bool,
    /// Is checked at the end of the transaction unless SET CONSTRAINTS says otherwise.
    #[serde(default)]
    pub initially_deferred: bool,
    /// MATCH FULL: all referencing columns are NULL, or none is. Else one that is NULL is enough to
    /// refer to nothing.
    #[serde(default)]
    pub match_full: bool,
    /// NOT VALID: rows that were there before it have not been looked at.
    #[serde(default)]
    pub not_valid: bool,
    /// DISABLE TRIGGER ALL of the referencing table: new rows are not looked at.
    #[serde(default)]
    pub unchecked: bool,
    /// COMMENT ON CONSTRAINT.
    #[serde(default)]
    pub comment: Option<String>,
    /// Of `columns` those that ON DELETE sets; empty: all.
    #[serde(default)]
    pub on_delete_columns: Vec<usize>,
}

impl ForeignKey {
    /// The columns that ON DELETE SET NULL or SET DEFAULT sets.
    pub fn set_on_delete(&self) -> &[usize] {
        if self.on_delete_columns.is_empty() { &self.columns } else { &self.on_delete_columns }
    }
}

/// What a foreign key does when the referenced row is deleted or its key changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReferentialAction {
    /// Refuse, at the end of the statement.
    NoAction,
    /// Refuse at once.
    Restrict,
    /// Delete or update the referencing rows too.
    Cascade,
    /// Set the referencing columns to NULL.
    SetNull,
    /// Set the referencing columns to their defaults.
    SetDefault,
}

impl ReferentialAction {
    /// The letter in `pg_constraint.confdeltype` and `confupdtype`.
    pub fn letter(self) -> char {
        match self {
            ReferentialAction::NoAction => 'a',
            ReferentialAction::Restrict => 'r',
            ReferentialAction::Cascade => 'c',
            ReferentialAction::SetNull => 'n',
            ReferentialAction::SetDefault => 'd',
        }
    }

    /// The SQL words.
    pub fn sql(self) -> &'static str {
        match self {
            ReferentialAction::NoAction => "NO ACTION",
            ReferentialAction::Restrict => "RESTRICT",
            ReferentialAction::Cascade => "CASCADE",
            ReferentialAction::SetNull => "SET NULL",
            ReferentialAction::SetDefault => "SET DEFAULT",
        }
    }
}

/// The other end of a foreign key, stored with the referenced table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    /// Oid of the referencing table.
    pub table: u32,
    /// Oid of the foreign key among that table's.
    pub constraint: u32,
    /// DISABLE TRIGGER ALL of the referenced table: who refers to a row that goes or changes is not
    /// looked at.
    #[serde(default)]
    pub unheeded: bool,
}
