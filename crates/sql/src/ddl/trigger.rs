//! ALTER TABLE ... ENABLE and DISABLE TRIGGER.
//!
//! Users make no triggers, but PostgreSQL checks foreign keys by triggers of both tables, which ALL
//! names, too: without those of the referencing table its new rows are not looked at, and without
//! those of the referenced table nothing is done about who refers to a row that goes. So test
//! suites and `pg_dump --disable-triggers` load tables in any order. Keys are always unique, and
//! ADD and VALIDATE CONSTRAINT look at all rows.

use sqlparser::ast;

use super::permission::denied;
use crate::catalog::{Object, Oid, Table};
use crate::error::{Result, SqlError, sqlstate};
use crate::identifier::fold;
use crate::session::work::Work;

impl Work<'_> {
    /// ENABLE or DISABLE TRIGGER of a table that is locked.
    pub(super) fn alter_triggers(&mut self, oid: Oid, name: &ast::Ident, enable: bool) -> Result<()> {
        let mut table = self.table_copy(oid)?;
        let is_word = |word: &str| name.quote_style.is_none() && name.value.eq_ignore_ascii_case(word);
        if is_word("user") {
            return Ok(());
        }
        if !is_word("all") {
            let message = format!("trigger \"{}\" for table \"{}\" does not exist", fold(name), table.name);
            return Err(SqlError::new(sqlstate::UNDEFINED_OBJECT, message));
        }
        if let Some(trigger) = first_trigger(&table).filter(|_| !self.is_superuser()) {
            return Err(denied(format!("permission denied: \"{trigger}\" is a system trigger")));
        }
        let same = table.foreign_keys.iter().all(|key| key.unchecked != enable)
            && table.referenced_by.iter().all(|reference| reference.unheeded != enable);
        if same {
            return Ok(());
        }
        for key in &mut table.foreign_keys {
            key.unchecked = !enable;
        }
        for reference in &mut table.referenced_by {
            reference.unheeded = !enable;
        }
        self.change(Object::Table(table.into()))
    }
}

/// The first by its name of those that PostgreSQL would check the table's foreign keys by.
fn first_trigger(table: &Table) -> Option<String> {
    let acting = table.referenced_by.iter().map(|reference| ("a", reference.constraint)).min();
    let (side, oid) = acting.or_else(|| table.foreign_keys.iter().map(|key| ("c", key.oid)).min())?;
    Some(format!("RI_ConstraintTrigger_{side}_{oid}"))
}
