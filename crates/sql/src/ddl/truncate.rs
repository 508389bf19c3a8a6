//! TRUNCATE: fresh trees for a table and its indexes.

use std::collections::BTreeSet;

use cognate_engine::TreeMode;
use sqlparser::ast;

use super::names::Qualified;
use crate::catalog::{Object, Oid, Privileges, Relation, Securable, Sequence, Table};
use crate::error::{Result, SqlError, sqlstate};
use crate::session::work::Work;

impl Work<'_> {
    /// TRUNCATE.
    pub(crate) async fn truncate(&mut self, statement: &ast::Truncate) -> Result<()> {
        if statement.partitions.is_some() || statement.on_cluster.is_some() {
            return Err(SqlError::unsupported("TRUNCATE of a partition"));
        }
        let cascade = matches!(statement.cascade, Some(ast::CascadeOption::Cascade));
        let restart = matches!(statement.identity, Some(ast::TruncateIdentityOption::Restart));
        let mut wanted: Vec<Oid> = Vec::new();
        for target in &statement.table_names {
            let name = Qualified::from_object_name(&target.name)?;
            self.refresh_catalog();
            if let Some(relation @ Relation::Table(_)) = self.find(&name) {
                self.require_on(&relation, Privileges::TRUNCATE)?;
            }
            let table = self.locked_table(&name, TreeMode::Exclusive).await?;
            if !wanted.contains(&table.oid) {
                wanted.push(table.oid);
            }
        }
        let mut at = 0;
        while let Some(&oid) = wanted.get(at) {
            at += 1;
            let Some(table) = self.catalog.table_by_oid(oid).cloned() else { continue };
            let children: BTreeSet<Oid> =
                table.referenced_by.iter().map(|reference| reference.table).collect();
            for child in children.into_iter().filter(|child| !wanted.contains(child)).collect::<Vec<_>>() {
                let name =
                    self.catalog.table_by_oid(child).map(|child| child.name.clone()).unwrap_or_default();
                if !cascade {
                    return Err(referenced(&table, &name));
                }
                self.notice(SqlError::notice(format!("truncate cascades to table \"{name}\"")));
                self.require(child, Securable::Table, Privileges::TRUNCATE)?;
                self.lock_table(child, TreeMode::Exclusive).await?;
                wanted.push(child);
            }
        }
        for oid in wanted {
            self.require_unused(oid, "TRUNCATE")?;
            if restart {
                self.lock_sequences_of(oid).await?;
            }
            self.empty(oid, restart)?;
        }
        Ok(())
    }

    /// Waits for whoever is changing a sequence of the table's columns: it would be stored again.
    async fn lock_sequences_of(&mut self, oid: Oid) -> Result<()> {
        let Some(table) = self.catalog.table_by_oid(oid).cloned() else { return Ok(()) };
        for sequence in self.catalog.sequences_of(&table) {
            self.lock_table(sequence, TreeMode::Exclusive).await?;
        }
        Ok(())
    }

    fn empty(&mut self, oid: Oid, restart: bool) -> Result<()> {
        let Some(table) = self.catalog.table_by_oid(oid) else { return Ok(()) };
        let mut table = Table::clone(table);
        self.replace_trees(&mut table);
        let sequences = if restart { self.catalog.sequences_of(&table) } else { Vec::new() };
        self.change(Object::Table(table.into()))?;
        for sequence in sequences {
            let Some(sequence) = self.catalog.sequence_by_oid(sequence).cloned() else { continue };
            self.require_relation_owner(&Relation::Sequence(sequence.clone()))?;
            let mut sequence = Sequence::clone(&sequence);
            let start = sequence.start;
            self.restart(&mut sequence, start)?;
            self.change(Object::Sequence(sequence.into()))?;
        }
        Ok(())
    }
}

fn referenced(table: &Table, child: &str) -> SqlError {
    SqlError::new(
        sqlstate::FEATURE_NOT_SUPPORTED,
        "cannot truncate a table referenced in a foreign key constraint",
    )
    .with_detail(format!("Table \"{child}\" references \"{}\".", table.name))
    .with_hint(format!("Truncate table \"{child}\" at the same time, or use TRUNCATE ... CASCADE."))
}
