//! Hidden columns: what can be named of a table's rows and is not among its columns.

use super::scope::{ColumnSource, NamedTable};
use super::{Level, Source};
use crate::error::SqlError;
use crate::expr::{Expr, FunctionCall, Typed};
use crate::types::{Datum, TypeId};

/// The hidden column that says which table a row is from.
pub(super) const TABLE_OID: &str = "tableoid";
/// That which says what transaction made a row.
const XMIN: &str = "xmin";
/// Hidden columns that PostgreSQL has of each stored row.
const OF_STORED_ROWS: [&str; 5] = [XMIN, "xmax", "cmin", "cmax", "ctid"];

impl Level {
    /// A hidden column of a table; none where an outer join may have to make it NULL. Of `xmin`
    /// there is that of catalogs only.
    pub(super) fn hidden(&self, name: &str, table: &NamedTable) -> Option<Typed> {
        match name {
            TABLE_OID => self.table_oid(table),
            XMIN => {
                let ColumnSource::Relation { relation, .. } = &table.columns.first()?.source else {
                    return None;
                };
                let relation = self.select.relations.get(*relation).filter(|relation| !relation.nullable)?;
                if !matches!(relation.source, Source::Virtual(_)) {
                    return None;
                }
                let function = crate::function::resolve(None, "cognate_xmin", &[]).ok()?;
                let call = FunctionCall { function, arguments: Vec::new() };
                Some(Typed::new(Expr::Function(Box::new(call)), TypeId::Xid))
            }
            _ => None,
        }
    }

    /// 0A000 for a hidden column of stored rows that there is none of here; none if the name is of
    /// something else.
    pub(super) fn lacks_hidden(&self, name: &str, table: &NamedTable) -> Option<SqlError> {
        let ColumnSource::Relation { relation, .. } = &table.columns.first()?.source else { return None };
        let relation = self.select.relations.get(*relation)?;
        let has_it = matches!(relation.source, Source::Table(_) | Source::Virtual(_));
        let is_one = has_it && OF_STORED_ROWS.contains(&name);
        is_one.then(|| SqlError::unsupported(format_args!("system column \"{name}\"")))
    }

    /// `tableoid` of a stored or computed table; none where an outer join may have to make it NULL.
    fn table_oid(&self, table: &NamedTable) -> Option<Typed> {
        let ColumnSource::Relation { relation, .. } = &table.columns.first()?.source else { return None };
        let relation = self.select.relations.get(*relation).filter(|relation| !relation.nullable)?;
        let oid = match &relation.source {
            Source::Table(table) => table.oid,
            Source::Virtual(table) => table.oid(),
            _ => return None,
        };
        Some(Typed::new(Expr::Constant(Datum::Oid(oid)), TypeId::Oid))
    }

    /// `tableoid` of a table that an outer join may have no row of: with something that is NULL
    /// there and nowhere else, a column or the row's key.
    pub(super) fn table_oid_where_it_is(&mut self, table: &NamedTable) -> Option<(u32, ColumnSource)> {
        let ColumnSource::Relation { relation, .. } = table.columns.first()?.source else { return None };
        let (oid, column) = match &self.select.relations.get(relation)?.source {
            Source::Table(table) => {
                let not_null = table.columns.iter().position(|column| column.not_null && !column.dropped);
                (table.oid, not_null)
            }
            // The first column of a catalog table is its oid, or one by which it is joined.
            Source::Virtual(table) => (table.oid(), Some(0)),
            _ => return None,
        };
        let source = match column {
            Some(column) => ColumnSource::Relation { relation, column },
            None => {
                let key = Expr::Slot(self.key_slot(relation));
                ColumnSource::Expr(Typed::new(key, TypeId::Bytea))
            }
        };
        Some((oid, source))
    }
}
