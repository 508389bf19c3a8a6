//! The tables as the binder and the executor take them.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use super::{Source, SystemTable, all};
use crate::bind::{VirtualTable, VirtualTables};
use crate::catalog::Catalog;
use crate::error::Result;
use crate::expr::ReadContext;
use crate::types::{Datum, Type};

/// Finds the tables of `pg_catalog` and `information_schema`.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemTables;

type ByName = HashMap<(&'static str, &'static str), Arc<dyn VirtualTable>>;

static SHARED: LazyLock<ByName> = LazyLock::new(|| {
    all().map(|table| ((table.schema, table.name), Arc::new(Bound(table)) as Arc<dyn VirtualTable>)).collect()
});

impl VirtualTables for SystemTables {
    fn find(&self, schema: Option<&str>, name: &str) -> Option<Arc<dyn VirtualTable>> {
        // The keys' lifetime is that of the arguments: the map's are static, and so live longer.
        let shared: &HashMap<(&str, &str), Arc<dyn VirtualTable>> = &SHARED;
        shared.get(&(schema.unwrap_or("pg_catalog"), name)).cloned()
    }
}

struct Bound(&'static SystemTable);

/// What rows are made from. Their catalog is that of the snapshot, as with rows of any other table.
fn source<'a>(context: &'a ReadContext<'a>, shown: Option<&'a Arc<Catalog>>) -> Source<'a> {
    let catalog = shown.unwrap_or(context.catalog);
    Source { catalog, eval: context.eval, server: context.eval.session.server() }
}

impl VirtualTable for Bound {
    fn oid(&self) -> u32 {
        self.0.oid
    }

    fn schema(&self) -> &str {
        self.0.schema
    }

    fn name(&self) -> &str {
        self.0.name
    }

    fn columns(&self) -> &[(&'static str, Type)] {
        self.0.columns
    }

    fn rows(&self, context: &ReadContext<'_>) -> Result<Vec<Vec<Datum>>> {
        let shown = context.external.shown_catalog()?;
        Ok((self.0.rows)(&source(context, shown.as_ref())))
    }

    fn rows_by_key(
        &self,
        column: usize,
        value: &Datum,
        context: &ReadContext<'_>,
    ) -> Option<Result<Vec<Vec<Datum>>>> {
        let (name, _) = self.0.columns.get(column)?;
        match value {
            Datum::Oid(oid) => match context.external.shown_catalog() {
                Ok(shown) => (self.0.rows_by_oid)(&source(context, shown.as_ref()), name, *oid).map(Ok),
                Err(error) => Some(Err(error)),
            },
            Datum::Null => Some(Ok(Vec::new())),
            _ => None,
        }
    }
}
