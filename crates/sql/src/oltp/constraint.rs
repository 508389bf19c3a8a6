//! NOT NULL, CHECK and unique constraints: what is asked of a row before it is written, and how a
//! violation reads.
//!
//! What is in a row is said to who may read its table. Others are told of the columns that they may
//! read, or that their statement has given values; a key they are told if they may read all of it.
//!
//! ```text
//! DETAIL: Failing row contains (1, null, x).          DETAIL: Key (a, b)=(1, x) already exists.
//! DETAIL: Failing row contains (a, b) = (1, null).
//! ```

use bytes::Bytes;
use cognate_engine::{Isolation, LockMode, LockOutcome, WaitPolicy};

use super::indexed::Indexed;
use crate::catalog::{Index, IndexKey, Table};
use crate::error::{Result, SqlError, sqlstate};
use crate::identifier::quote_identifier;
use crate::pg_catalog::{Style, index_expression};
use crate::session::work::Work;
use crate::types::{Datum, FormatContext, Type};

/// `Key (a, b)=(1, x)`, as details name a key.
pub(crate) fn key_detail(table: &Table, index: &Index, row: Indexed<'_>, format: &FormatContext) -> String {
    let parts = index.columns.iter().map(|column| {
        let ty = table.key_type(index, column.key);
        (key_part(table, index, column.key, format), row.value(column.key), ty)
    });
    detail(parts, format)
}

/// A part of a key as details name it: a column's name, in quotes if it must be, or an expression.
fn key_part(table: &Table, index: &Index, key: IndexKey, format: &FormatContext) -> String {
    match key {
        IndexKey::Column(place) => quote_identifier(&table.columns[place].name),
        IndexKey::Expression(place) => match index.expression(place) {
            Some(expression) => index_expression(table, expression, Style::Pretty, format),
            None => String::new(),
        },
    }
}

fn detail<'a>(parts: impl Iterator<Item = (String, &'a Datum, Type)>, format: &FormatContext) -> String {
    let (names, texts): (Vec<String>, Vec<String>) = parts
        .map(|(name, value, ty)| {
            let text = match value {
                Datum::Null => "null".to_owned(),
                value => value.to_text_string(ty, format),
            };
            (name, text)
        })
        .unzip();
    format!("Key ({})=({})", names.join(", "), texts.join(", "))
}

/// The same for columns of a table and values for them. PostgreSQL quotes no names in what it says
/// of foreign keys.
pub(crate) fn named_key_detail(
    table: &Table,
    places: &[usize],
    values: &[Datum],
    format: &FormatContext,
) -> String {
    let parts = places.iter().zip(values).map(|(&place, value)| {
        let column = &table.columns[place];
        (column.name.clone(), value, column.ty)
    });
    detail(parts, format)
}

/// `Failing row contains (1, null, x).`
fn failing_row(table: &Table, row: &[Datum], format: &FormatContext) -> String {
    let places = table.visible_columns().map(|(place, _)| place);
    format!("Failing row contains ({}).", values(table, places, row, format))
}

fn values(
    table: &Table,
    places: impl Iterator<Item = usize>,
    row: &[Datum],
    format: &FormatContext,
) -> String {
    let texts = places.map(|place| match &row[place] {
        Datum::Null => "null".to_owned(),
        value => {
            let mut text = value.to_text_string(table.columns[place].ty, format);
            if text.len() > 64 {
                crate::identifier::cut(&mut text, 64);
                text.push_str("...");
            }
            text
        }
    });
    texts.collect::<Vec<_>>().join(", ")
}

/// The same of some columns, if there are any.
fn failing_columns(table: &Table, places: &[usize], row: &[Datum], format: &FormatContext) -> Option<String> {
    if places.is_empty() {
        return None;
    }
    let names: Vec<&str> = places.iter().map(|place| table.columns[*place].name.as_str()).collect();
    let values = values(table, places.iter().copied(), row, format);
    Some(format!("Failing row contains ({}) = ({values}).", names.join(", ")))
}

/// 23502 if a NOT NULL column is NULL.
pub(crate) fn check_not_null(table: &Table, row: &[Datum], format: &FormatContext) -> Result<()> {
    let missing =
        |(place, column): &(usize, &crate::catalog::Column)| column.not_null && row[*place].is_null();
    match table.visible_columns().find(missing).map(|(_, column)| column) {
        None => Ok(()),
        Some(column) => Err(SqlError::new(
            sqlstate::NOT_NULL_VIOLATION,
            format!(
                "null value in column \"{}\" of relation \"{}\" violates not-null constraint",
                column.name, table.name
            ),
        )
        .with_detail(failing_row(table, row, format))
        .with_table(&table.schema_name, &table.name)
        .with_column(&column.name)),
    }
}

/// 23514.
#[cold]
pub(crate) fn check_violation(table: &Table, name: &str, row: &[Datum], format: &FormatContext) -> SqlError {
    SqlError::new(
        sqlstate::CHECK_VIOLATION,
        format!("new row for relation \"{}\" violates check constraint \"{name}\"", table.name),
    )
    .with_detail(failing_row(table, row, format))
    .with_table(&table.schema_name, &table.name)
    .with_constraint(name)
}

/// 44000.
#[cold]
pub(crate) fn view_violation(table: &Table, view: &str, row: &[Datum], format: &FormatContext) -> SqlError {
    SqlError::new(
        sqlstate::WITH_CHECK_OPTION_VIOLATION,
        format!("new row violates check option for view \"{view}\""),
    )
    .with_detail(failing_row(table, row, format))
}

/// 23505.
#[cold]
pub(crate) fn unique_violation(
    table: &Table,
    index: &Index,
    row: Indexed<'_>,
    format: &FormatContext,
) -> SqlError {
    SqlError::new(
        sqlstate::UNIQUE_VIOLATION,
        format!("duplicate key value violates unique constraint \"{}\"", index.name),
    )
    .with_detail(format!("{} already exists.", key_detail(table, index, row, format)))
    .with_table(&table.schema_name, &table.name)
    .with_constraint(&index.name)
}

impl Work<'_> {
    /// An error about a row, with as much of the row as whoever runs the statement may see. The
    /// statement has given these columns their values.
    #[cold]
    pub(crate) fn tell_row(
        &self,
        mut error: SqlError,
        table: &Table,
        row: &[Datum],
        given: &[usize],
    ) -> SqlError {
        let Some(mut seen) = self.readable(table) else { return error };
        let is_there = |place: &&usize| table.columns.get(**place).is_some_and(|column| !column.dropped);
        seen.extend(given.iter().filter(is_there));
        seen.sort_unstable();
        seen.dedup();
        error.detail = failing_columns(table, &seen, row, self.format);
        error
    }

    /// An error about a key, which is said only to who may read its columns. What an expression
    /// reads is not looked for.
    #[cold]
    pub(crate) fn tell_key(&self, mut error: SqlError, table: &Table, index: &Index) -> SqlError {
        if let Some(seen) = self.readable(table)
            && !index.columns.iter().all(|part| part.key.column().is_some_and(|place| seen.contains(&place)))
        {
            error.detail = None;
        }
        error
    }

    /// `Key (a, b)=(1, x)` of columns and values for them; `Key` alone for who may not read them.
    pub(crate) fn told_key(&self, table: &Table, places: &[usize], values: &[Datum]) -> String {
        match self.readable(table) {
            Some(seen) if !places.iter().all(|place| seen.contains(place)) => "Key".to_owned(),
            _ => named_key_detail(table, places, values, self.format),
        }
    }

    /// Locks a key of a unique index (or the row key of a clustered table) and looks who has it:
    /// the newest committed entry or the own one, whatever the snapshot. `None` if it is free; it
    /// then stays free for this transaction. Others may go on referring to a row that is there.
    ///
    /// Who deletes the row or gives it another key has the row's lock, not the key's, and is waited
    /// for: that lock does not go together with `against`, and its holder has said that the key
    /// goes. The key is given back meanwhile: the other may come for it, to put it there again.
    ///
    /// Whoever is to change the row waits for anybody who has it locked, and keeps it while it asks
    /// for the key: if each of several had to leave the row to the next then, none would come to
    /// its end.
    pub(crate) async fn lock_unique_key(
        &mut self,
        table: &Table,
        tree: u32,
        key: &[u8],
        against: LockMode,
    ) -> Result<Option<Bytes>> {
        let locks = self.engine.lock_count();
        let mut awaited: Option<Bytes> = None;
        loop {
            self.lock_key(tree, key, LockMode::NoKeyExclusive).await?;
            let holder = self.key_holder(tree, key)?;
            if awaited.is_some() && holder != awaited {
                // The row that was waited for is not the one to be changed.
                self.engine.unlock_since(locks);
                awaited = None;
                continue;
            }
            let Some(row_key) = holder.as_ref().filter(|_| tree != table.tree) else {
                return Ok(holder);
            };
            if self.state.locks_reads {
                self.lock_key(table.tree, row_key, LockMode::Shared).await?;
            } else if !self.try_holder(table, row_key, against).await? {
                self.engine.unlock_since(locks);
                self.lock_key(table.tree, row_key, against).await?;
                match against < LockMode::NoKeyExclusive {
                    true => self.engine.unlock_since(locks),
                    false => awaited = holder,
                }
                continue;
            }
            // Whoever had the row may have ended after the key was looked at.
            if self.key_holder(tree, key)? == holder {
                return Ok(holder);
            }
            if !self.state.locks_reads {
                self.engine.unlock_since(locks);
            }
        }
    }

    /// Whether a row has this row key, whoever has it locked: nobody takes it away at the moment.
    /// It is what the snapshot shows, unless newer commits count, so no lock need keep it so. Who
    /// locks what he reads has to lock it.
    pub(crate) fn has_row_at(&self, table: &Table, key: &[u8]) -> Result<bool> {
        let tree = table.tree;
        if self.state.locks_reads || self.key_holder(tree, key)?.is_none() {
            return Ok(false);
        }
        if self.engine.own(tree, key)?.is_some() {
            return Ok(true);
        }
        // Whoever took it away may have ended after it was looked at first.
        Ok(!self.engine.is_leaving(tree, key, LockMode::KeyShared)
            && (self.engine.isolation() == Isolation::ReadCommitted
                || self.engine.changed(tree, key)?.is_none())
            && self.key_holder(tree, key)?.is_some())
    }

    /// Whether a row that has a key need not be waited for. If it is to be changed, it is locked
    /// then.
    async fn try_holder(&mut self, table: &Table, row_key: &[u8], against: LockMode) -> Result<bool> {
        // In the turn of all nodes there is nobody to wait for.
        let alone = self.engine.is_ordered() || self.engine.has_created(table.tree);
        if alone || self.engine.own(table.tree, row_key)?.is_some() {
            return Ok(true);
        }
        if against < LockMode::NoKeyExclusive {
            return Ok(!self.engine.is_leaving(table.tree, row_key, against));
        }
        let request = self.engine.lock(table.tree, row_key, against, WaitPolicy::SkipLocked);
        Ok(self.interrupts.lock(request).await? != LockOutcome::Skipped)
    }

    /// The present value of a key: own write, else the newest committed version.
    pub(crate) fn key_holder(&self, tree: u32, key: &[u8]) -> Result<Option<Bytes>> {
        match self.engine.own(tree, key)? {
            Some(own) => Ok(own),
            None => Ok(self.engine.get_latest(tree, key)?.value),
        }
    }
}
