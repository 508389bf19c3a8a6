//! SET and RESET of storage parameters by ALTER TABLE and ALTER INDEX. They are hints without an
//! effect: what is said of them is checked and kept.
//!
//! The table is locked as for ALTER TABLE ... SET (`alter_table`), also where it is an index that
//! changes: its definition is a part of the table's. Readers and writers go on.

use cognate_engine::TreeMode;
use sqlparser::ast;

use super::alter_relation::action_not_for;
use super::create_index;
use super::create_table::{merged_options, option_name, storage_options};
use super::names::Qualified;
use super::resolve::{undefined_table, wrong_type};
use crate::catalog::{Object, Relation};
use crate::error::{Result, SqlError};
use crate::identifier::fold;
use crate::parse::{AlterRelation, RelationChange};
use crate::session::work::Work;

impl Work<'_> {
    /// SET or RESET of options, by ALTER TABLE or ALTER INDEX. 42809 if it is of another kind.
    pub(super) async fn alter_storage(
        &mut self,
        name: &Qualified,
        found: &Relation,
        alter: &AlterRelation,
    ) -> Result<()> {
        let change = &alter.change;
        match found {
            Relation::Index(table, oid) => {
                self.lock_table(table.oid, TreeMode::ShareUpdateExclusive).await?;
                self.require_settled(table.oid, alter.tag())?;
                self.state.is_temporary |= table.temporary;
                // Both may be gone by now.
                let mut table = self.table_copy(table.oid).map_err(|_| undefined_table(name))?;
                let Some(index) = table.indexes.iter_mut().find(|index| index.oid == *oid) else {
                    return Err(undefined_table(name));
                };
                index.options = changed_options(&index.options, change, create_index::storage_options)?;
                self.change(Object::Table(table.into()))
            }
            _ if alter.is_index => Err(wrong_type(found.name(), "index")),
            Relation::Table(_) => {
                let oid = self.locked_table(name, TreeMode::ShareUpdateExclusive).await?.oid;
                if oid != found.oid() {
                    return Err(undefined_table(name));
                }
                self.require_unused(oid, alter.tag())?;
                let mut table = self.table_copy(oid)?;
                let check = |given: &[ast::SqlOption]| {
                    storage_options(&ast::CreateTableOptions::With(given.to_vec()))
                };
                table.options = changed_options(&table.options, change, check)?;
                self.change(Object::Table(table.into()))
            }
            Relation::View(_) => {
                let relation = self.held(name, found).await?;
                match change {
                    RelationChange::SetOptions(options) => self.set_view_options(&relation, options),
                    RelationChange::ResetOptions(options) => self.reset_view_options(&relation, options),
                    _ => Ok(()),
                }
            }
            Relation::Sequence(_) => match change {
                RelationChange::SetOptions(_) => Err(action_not_for(found, "SET")),
                _ => Err(action_not_for(found, "RESET")),
            },
        }
    }
}

/// The options behind a SET or RESET of some; `check` makes them what is kept. Names that no option
/// has do not matter to RESET.
fn changed_options(
    known: &[String],
    change: &RelationChange,
    check: impl Fn(&[ast::SqlOption]) -> Result<Vec<String>>,
) -> Result<Vec<String>> {
    match change {
        RelationChange::SetOptions(given) => Ok(merged_options(known, check(given)?)),
        RelationChange::ResetOptions(names) => without_options(known, names),
        _ => Ok(known.to_vec()),
    }
}

/// The options behind a RESET of some. 42601 if one of those has a value.
pub(super) fn without_options(known: &[String], reset: &[ast::SqlOption]) -> Result<Vec<String>> {
    let mut names = Vec::with_capacity(reset.len());
    for option in reset {
        let ast::SqlOption::Ident(name) = option else {
            return Err(SqlError::syntax("RESET must not include values for parameters"));
        };
        names.push(fold(name));
    }
    let is_kept = |option: &&String| !names.iter().any(|name| name == option_name(option));
    Ok(known.iter().filter(is_kept).cloned().collect())
}
