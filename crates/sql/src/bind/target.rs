//! Levels for statements that are no SELECT: rows that are given, and the target of UPDATE and
//! DELETE.
//!
//! In such a level the columns of a row stand at fixed places: all of them, dropped ones too, in
//! the order of the stored row. So whoever has a row at hand can evaluate over it, and whoever has
//! computed a new row can put it in the place of the old one.
//!
//! ```text
//! INSERT ... ON CONFLICT DO UPDATE SET n = t.n + excluded.n      frame: t's columns, then excluded's
//! UPDATE t SET n = s.n FROM s WHERE t.id = s.id RETURNING t.n    frame: t's columns, t's row key, then what is read of s
//! ```

use std::sync::Arc;

use super::from::Item;
use super::scope::{ColumnSource, NamedColumn, NamedTable, Namespace};
use super::{Binder, From, Relation, Select, Slot, SlotPart, Source};
use crate::catalog::Table;
use crate::error::Result;

impl Binder<'_> {
    /// Opens an empty level, for expressions over no row.
    pub fn open_level(&mut self) {
        self.push_level();
    }

    /// Closes the innermost level; gives what was bound into it.
    pub fn close_level(&mut self) -> Result<Select> {
        Ok(self.pop_level()?.select)
    }

    /// Adds a row of `table` under this name to the open level; its columns stand at the returned
    /// place and after. Nothing reads the table: the row is put into the frame by whoever
    /// evaluates.
    pub fn add_given_row(&mut self, table: &Arc<Table>, name: &str) -> Result<usize> {
        let base = self.level()?.select.slots.len();
        let (_, names) = self.fixed_row(Source::Given, table, None, name)?;
        self.level()?.namespace.extend(names)?;
        Ok(base)
    }

    /// Adds the target of an UPDATE or DELETE to a fresh level: its columns from place 0, its row
    /// key after them. Its rows are read.
    pub fn add_target(&mut self, table: &Arc<Table>, alias: Option<&str>) -> Result<()> {
        self.note_table(table);
        let schema = if alias.is_some() { None } else { Some(table.schema_name.as_str()) };
        let name = alias.unwrap_or(&table.name);
        let (tree, names) = self.fixed_row(Source::Table(table.clone()), table, schema, name)?;
        let level = self.level()?;
        level.namespace.extend(names)?;
        level.select.from.push(tree);
        level.key_slot(0);
        Ok(())
    }

    fn fixed_row(&mut self, source: Source, table: &Table, schema: Option<&str>, name: &str) -> Result<Item> {
        let level = self.level()?;
        let relation = level.select.relations.len();
        let base = level.select.slots.len();
        let types: Vec<_> = table.columns.iter().map(|column| column.ty).collect();
        for (column, ty) in types.iter().enumerate() {
            level.select.slots.push(Slot { relation, part: SlotPart::Column(column), ty: *ty });
        }
        level.select.relations.push(Relation {
            alias: name.to_owned(),
            source,
            slots: (0..types.len()).map(|column| Some(base + column)).collect(),
            types,
            key_slot: None,
            nullable: false,
        });
        let columns = table.visible_columns().map(|(column, definition)| NamedColumn {
            name: definition.name.clone(),
            source: ColumnSource::Relation { relation, column },
            read: None,
        });
        let columns = columns.collect();
        let (schema, name) = (schema.map(str::to_owned), name.to_owned());
        let names = NamedTable { schema, name, columns, fields: vec![] };
        Ok((From::Relation(relation), Namespace::of(names)))
    }
}
