//! Rows as indexes see them: their columns, and what the table's indexes compute of them. And the
//! columns that are computed from others.
//!
//! A predicate is computed first. Where it does not hold the index's expressions are not computed,
//! so that one that would fail there does not keep the row from being written.

use std::sync::Arc;

use crate::bind::{BoundComputed, BoundIndex, bind_computed, bound_computed};
use crate::catalog::{Index, IndexKey, Table};
use crate::error::Result;
use crate::oltp::run::evaluate;
use crate::session::work::Work;
use crate::types::Datum;

/// A row with what indexes compute of it, which is nothing for most tables.
#[derive(Clone, Copy)]
pub(crate) struct Indexed<'a> {
    row: &'a [Datum],
    /// By the places that the catalog gives out.
    computed: &'a [Datum],
}

impl<'a> Indexed<'a> {
    /// A row with what [`Work::computed`] gives for it.
    pub(crate) fn new(row: &'a [Datum], computed: &'a [Datum]) -> Indexed<'a> {
        Indexed { row, computed }
    }

    /// A row of which indexes that compute nothing are to see something.
    pub(crate) fn plain(row: &'a [Datum]) -> Indexed<'a> {
        Indexed { row, computed: &[] }
    }

    /// A part of a key.
    pub(crate) fn value(&self, key: IndexKey) -> &'a Datum {
        match key {
            IndexKey::Column(place) => &self.row[place],
            IndexKey::Expression(place) => &self.computed[place],
        }
    }

    /// Whether the row has an entry in an index.
    pub(crate) fn is_in(&self, index: &Index) -> bool {
        let holds = |place: usize| matches!(self.computed[place], Datum::Bool(true));
        index.predicate.as_ref().is_none_or(|predicate| holds(predicate.place))
    }
}

impl Work<'_> {
    /// What the table's indexes compute of a row. An expression's error is the statement's.
    pub(crate) fn computed(&self, table: &Table, row: &[Datum]) -> Result<Vec<Datum>> {
        if !table.has_computed() {
            return Ok(Vec::new());
        }
        let bound = self.bound_computed(table)?;
        self.compute(&bound, bound.indexes.iter(), row)
    }

    /// What one of them computes; only the columns it is made from need be there.
    pub(crate) fn computed_by(&self, table: &Table, index: &Index, row: &[Datum]) -> Result<Vec<Datum>> {
        if index.is_plain() {
            return Ok(Vec::new());
        }
        let bound = self.bound_computed(table)?;
        self.compute(&bound, bound.of(index).into_iter(), row)
    }

    /// Puts the values of generated columns into a row whose other values are there.
    pub(crate) fn generate(&self, table: &Table, row: &mut [Datum]) -> Result<()> {
        if !table.has_generated() {
            return Ok(());
        }
        let bound = self.bound_computed(table)?;
        self.read(|read| {
            for (place, expression) in &bound.generated {
                row[*place] = evaluate(expression, row, read)?;
            }
            Ok(())
        })
    }

    fn bound_computed(&self, table: &Table) -> Result<Arc<BoundComputed>> {
        match bound_computed(table) {
            Some(bound) => Ok(bound),
            None => self.bind(|binder| bind_computed(binder.context, table)),
        }
    }

    fn compute<'b>(
        &self,
        bound: &BoundComputed,
        indexes: impl Iterator<Item = &'b BoundIndex>,
        row: &[Datum],
    ) -> Result<Vec<Datum>> {
        self.read(|read| {
            let mut computed = vec![Datum::Null; bound.places];
            for index in indexes {
                if let Some((place, predicate)) = &index.predicate {
                    let holds = evaluate(predicate, row, read)?.as_bool() == Some(true);
                    computed[*place] = Datum::Bool(holds);
                    if !holds {
                        continue;
                    }
                }
                for (place, expression) in &index.expressions {
                    computed[*place] = evaluate(expression, row, read)?;
                }
            }
            Ok(computed)
        })
    }
}
