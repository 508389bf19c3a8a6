//! What the planner is told of the sizes of tables and the values of columns: estimates, which
//! change how a statement is run and never what it answers.

use crate::catalog::{Index, Table};

/// How many rows tables have, roughly, and how many different values.
pub trait RowCounts {
    /// An estimate of the number of rows of a table; none if there is no idea.
    fn rows(&self, table: &Table) -> Option<u64>;

    /// The same of the entries of an index.
    fn entries(&self, index: &Index) -> Option<u64>;

    /// What is known of the values of a table's column; none if nothing is.
    fn values(&self, table: &Table, column: usize) -> Option<ColumnValues>;

    /// Whether an index leads to all rows that are to be read.
    fn leads_to_all(&self, _index: &Index) -> bool {
        true
    }
}

/// What is known of the values of a column, roughly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ColumnValues {
    /// How many different ones there are.
    pub distinct: f64,
    /// Share of the rows that have NULL there.
    pub null_share: f64,
    /// Share of the rows that have the rarest one.
    pub rarest: f64,
    /// Share of the rows that have a value, or NULL, at most that a statement looks for: what was
    /// counted may be of another moment.
    pub most_sought: f64,
}

impl ColumnValues {
    /// The share of the rows that have one value of which nothing is known: each is taken to be as
    /// frequent as the others.
    pub fn share_of_one(self) -> f64 {
        (1.0 - self.null_share) / self.distinct.max(1.0)
    }

    /// The same of a value that a statement looks for. It is taken to be one of the rare ones (jobs
    /// that wait, among those that are done): to look up too many rows takes a few times as long as
    /// to read them all, and to read them all for a few takes thousands of times as long.
    pub fn share_of_sought(self) -> f64 {
        self.rarest.min(self.share_of_one()).min(self.most_sought)
    }

    /// The same of any of so many such values. Where rows are taken, some of the states may have
    /// become rare, but not all that there are.
    pub fn share_of_list(self, items: f64) -> f64 {
        let share = (self.share_of_sought() * items).min(1.0);
        let are_rare = self.are_states_taken() && items < self.distinct;
        if are_rare { share.min(self.most_sought) } else { share }
    }

    /// The same of one element of an array that has about so many, if it reads no other relation.
    pub fn share_of_element(self, elements: f64) -> f64 {
        let share = self.share_of_one();
        if self.are_states_taken() { share.min(self.most_sought / elements) } else { share }
    }

    /// The same of NULL.
    pub fn share_of_null(self) -> f64 {
        self.null_share.min(self.most_sought)
    }

    /// The same values, where rows are taken that have what is looked for.
    pub fn taken(self) -> ColumnValues {
        ColumnValues { most_sought: self.most_sought.min(MOST_TAKEN), ..self }
    }

    fn are_states_taken(self) -> bool {
        self.most_sought <= MOST_TAKEN && self.distinct <= STATES
    }
}

/// Share of the rows that have a value or NULL at most that is looked for where rows are taken,
/// whoever has counted: half of the jobs waited then, hardly any does now, and as the table is as
/// large as before nobody counts again. With it, what an index serves costs less by the index than
/// by all rows, sorted or not, and any other index is more selective. That takes a few times as
/// long at most, if the value still is as frequent as it was.
pub(crate) const MOST_TAKEN: f64 = 0.05;
/// A column of so few different values has states, of which a list may name those that are rare.
const STATES: f64 = 20.0;

/// What is known of tables from which rows are taken, like jobs from a queue: some of them with
/// LIMIT, or to lock, change or delete them.
pub(crate) struct Taken<'a>(pub(crate) &'a dyn RowCounts);

impl RowCounts for Taken<'_> {
    fn rows(&self, table: &Table) -> Option<u64> {
        self.0.rows(table)
    }

    fn entries(&self, index: &Index) -> Option<u64> {
        self.0.entries(index)
    }

    fn values(&self, table: &Table, column: usize) -> Option<ColumnValues> {
        self.0.values(table, column).map(ColumnValues::taken)
    }

    fn leads_to_all(&self, index: &Index) -> bool {
        self.0.leads_to_all(index)
    }
}

/// What is known of tables, and that nothing is to be read by some indexes.
pub(crate) struct WithoutIndexes<'a> {
    pub(crate) counts: &'a dyn RowCounts,
    /// The trees of those indexes. Mostly there are none.
    pub(crate) trees: Vec<u32>,
}

impl RowCounts for WithoutIndexes<'_> {
    fn rows(&self, table: &Table) -> Option<u64> {
        self.counts.rows(table)
    }

    fn entries(&self, index: &Index) -> Option<u64> {
        self.counts.entries(index)
    }

    fn values(&self, table: &Table, column: usize) -> Option<ColumnValues> {
        self.counts.values(table, column)
    }

    fn leads_to_all(&self, index: &Index) -> bool {
        !self.trees.contains(&index.tree)
    }
}

/// No idea about any table.
pub struct NoRowCounts;

impl RowCounts for NoRowCounts {
    fn rows(&self, _: &Table) -> Option<u64> {
        None
    }

    fn entries(&self, _: &Index) -> Option<u64> {
        None
    }

    fn values(&self, _: &Table, _: usize) -> Option<ColumnValues> {
        None
    }
}
