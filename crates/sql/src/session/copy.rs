//! COPY FROM STDIN. Of COPY TO see `output`.
//!
//! Rows go in by the same path as INSERT's: defaults, checks, unique keys, foreign keys at the end.
//! Into a table that the transaction holds exclusively (made or truncated by it) there are no row
//! locks.
//!
//! The client sends its rows once, so a COPY is never run again as a whole. A row that meets what
//! is newer than a serializable transaction's snapshot has written nothing by then: the snapshot
//! moves for it, and it is inserted once more, behind those that came before it.

mod output;
mod target;

use std::sync::Arc;

use cognate_engine::Access;
use sqlparser::ast;

use super::again::moves;
use super::cycle::is_of_newer_row;
use super::portal::PortalState;
use super::{CommandTag, CopyFormat, CopyInFormat, Fetch, Portal, Session};
use crate::catalog::{Privileges, Table};
use crate::copy::{BinaryReader, CopyFileFormat, CopyOptions, CopyReader, Fields, extra_data};
use crate::ddl::names::Qualified;
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::Expr;
use crate::function::Interrupt;
use crate::oltp::run::Checks;
use crate::parse::{Command, Statement};
use crate::session::work::Work;
use crate::types::{Datum, FormatContext, Type, bounds};
pub(super) use output::CopyOut;
use target::{bind_where, check_forced, check_frozen, copy_columns};

/// A line is there four times: as data, as fields, as values and as a row.
const LINE_SHARE: usize = 4;
/// So much of a field or line is shown in messages.
const SHOWN_BYTES: usize = 100;
/// Rows between two questions whether to stop. Large values ask themselves.
const ROWS_UNASKED: u64 = 16;

/// A COPY FROM STDIN that waits for data.
pub(super) struct CopyIn {
    table: Arc<Table>,
    reader: Reader,
    fields: Fields,
    columns: Vec<InColumn>,
    /// Places not in the data, with their defaults.
    defaults: Vec<(usize, Expr)>,
    /// Rows that do not meet it are left out.
    condition: Option<Expr>,
    checks: Checks,
    rows: u64,
    /// How often the snapshot may still move.
    moves: u32,
}

/// What takes data apart.
enum Reader {
    Lines(CopyReader),
    Binary(BinaryReader),
}

impl Reader {
    fn feed(&mut self, data: &[u8]) {
        match self {
            Reader::Lines(reader) => reader.feed(data),
            Reader::Binary(reader) => reader.feed(data),
        }
    }

    fn finish(&mut self) {
        match self {
            Reader::Lines(reader) => reader.finish(),
            Reader::Binary(reader) => reader.finish(),
        }
    }

    fn next(&mut self, fields: &mut Fields) -> Result<bool> {
        match self {
            Reader::Lines(reader) => reader.next(fields),
            Reader::Binary(reader) => reader.next(fields),
        }
    }
}

struct InColumn {
    place: usize,
    name: String,
    ty: Type,
    force_not_null: bool,
    force_null: bool,
}

impl Session {
    /// Begins COPY.
    pub(super) async fn start_copy(
        &mut self,
        portal: &mut Portal,
        statement: &Statement,
    ) -> Result<Option<Fetch>> {
        let Command::Sql(sql) = &statement.command else { return Err(SqlError::internal("no COPY")) };
        let ast::Statement::Copy { source, to, target, options, legacy_options, values } = sql.as_ref()
        else {
            return Err(SqlError::internal("no COPY"));
        };
        if !values.is_empty() {
            return Err(SqlError::syntax("syntax error: data after COPY"));
        }
        match target {
            ast::CopyTarget::Stdin if !to => {}
            ast::CopyTarget::Stdout if *to => {}
            ast::CopyTarget::Stdin | ast::CopyTarget::Stdout => {
                return Err(SqlError::syntax("syntax error: COPY FROM STDIN or TO STDOUT"));
            }
            ast::CopyTarget::File { .. } => {
                return Err(SqlError::unsupported("COPY of a file on the server"));
            }
            ast::CopyTarget::Program { .. } => return Err(SqlError::unsupported("COPY of a program")),
        }
        let options = CopyOptions::new(*to, options, legacy_options)?;
        if *to {
            if statement.condition.is_some() {
                return Err(SqlError::syntax("WHERE clause not allowed with COPY TO"));
            }
            portal.state = PortalState::CopyOut(Box::new(self.copy_to(source, options, statement).await?));
            return Ok(None);
        }
        let ast::CopySource::Table { table_name, columns } = source else {
            return Err(SqlError::syntax("COPY query FROM is not possible"));
        };
        let condition = statement.condition.as_deref();
        let copy = self.copy_from(table_name, columns, condition, options).await?;
        let is_binary = matches!(copy.reader, Reader::Binary(_));
        let format = if is_binary { CopyFormat::Binary } else { CopyFormat::Text };
        let format = CopyInFormat { format, columns: copy.columns.len() };
        self.copy = Some(Box::new(copy));
        Ok(Some(Fetch::CopyIn(format)))
    }

    async fn copy_from(
        &mut self,
        name: &ast::ObjectName,
        columns: &[ast::Ident],
        condition: Option<&ast::Expr>,
        options: CopyOptions,
    ) -> Result<CopyIn> {
        let name = Qualified::from_object_name(name)?;
        self.await_slow_node().await?;
        self.open_transaction(false);
        let moves = moves(self.effective.statement_retries);
        let interrupts = self.interrupts();
        let mut work = self.work(&interrupts)?;
        if work.find(&name).is_none_or(|found| !found.is_temporary()) {
            work.require_writable("COPY FROM")?;
        } else if work.engine.access() == Access::ReadOnly {
            work.engine.allow_writes();
        }
        let table = work.table(&name)?;
        work.require_on_columns(&table, &copy_columns(&table, columns)?, Privileges::INSERT)?;
        let table = work.locked_table(&name, cognate_engine::TreeMode::Write).await?;
        // They may be others by now.
        let places = copy_columns(&table, columns)?;
        work.require_on_columns(&table, &places, Privileges::INSERT)?;
        let checks = work.bind(|binder| Checks::bind(binder, &table, |_| true))?.giving(places.clone());
        let condition = condition.map(|condition| bind_where(&work, &table, condition)).transpose()?;
        let mut defaults = Vec::new();
        for place in (0..table.columns.len()).filter(|place| !places.contains(place)) {
            if let Some(default) = work.bind_default(&table, place)?.filter(|_| !table.columns[place].dropped)
            {
                defaults.push((place, default));
            }
        }
        check_forced(&table, &places, "FORCE_NOT_NULL", &options.force_not_null)?;
        check_forced(&table, &places, "FORCE_NULL", &options.force_null)?;
        if options.freeze {
            check_frozen(&table, &work)?;
        }
        let column = |&place: &usize| {
            let column = &table.columns[place];
            InColumn {
                place,
                name: column.name.clone(),
                ty: column.ty,
                force_not_null: options.force_not_null.contains(&column.name),
                force_null: options.force_null.contains(&column.name),
            }
        };
        let columns: Vec<InColumn> = places.iter().map(column).collect();
        let row_max = work.state.memory_limit / LINE_SHARE;
        let reader = match options.format {
            CopyFileFormat::Binary => Reader::Binary(BinaryReader::new(columns.len(), row_max)),
            _ => {
                let names = columns.iter().map(|column| column.name.clone());
                Reader::Lines(CopyReader::new(options).expecting(names.collect()).within(row_max))
            }
        };
        let fields = Fields::default();
        Ok(CopyIn { table, reader, fields, columns, defaults, condition, checks, rows: 0, moves })
    }

    /// Data of COPY FROM STDIN, cut anywhere.
    pub async fn copy_data(&mut self, data: &[u8]) -> Result<()> {
        let Some(mut copy) = self.copy.take() else { return self.take_lost().map_or(Ok(()), Err) };
        copy.reader.feed(data);
        let result = self.copy_rows(&mut copy).await;
        self.seat.pause();
        match result {
            Ok(()) => {
                self.copy = Some(copy);
                Ok(())
            }
            Err(error) => Err(self.fail_copy(error)),
        }
    }

    /// End of COPY FROM STDIN's data.
    pub async fn copy_done(&mut self) -> Result<CommandTag> {
        let Some(mut copy) = self.copy.take() else {
            let none = || SqlError::new(sqlstate::PROTOCOL_VIOLATION, "there is no COPY to end");
            return Err(self.take_lost().unwrap_or_else(none));
        };
        copy.reader.finish();
        let result = match self.copy_rows(&mut copy).await {
            Ok(()) => self.end_copy().await,
            Err(error) => Err(error),
        };
        self.seat.pause();
        match result {
            Ok(()) => Ok(CommandTag::Rows("COPY", copy.rows)),
            Err(error) => Err(self.fail_copy(error)),
        }
    }

    #[inline(never)]
    fn end_copy(&mut self) -> super::Boxed<'_, ()> {
        Box::pin(async move {
            let interrupts = self.interrupts();
            self.work(&interrupts)?.run_checks().await
        })
    }

    /// The COPY has failed, like any statement (`fetch`): the error in terms of tables.
    #[cold]
    fn fail_copy(&mut self, error: SqlError) -> SqlError {
        let error = match self.overtaken_instead(&error) {
            Some(overtaken) => overtaken,
            None => self.name_newer(self.name_deadlock(error)),
        };
        self.note_failure(&error, self.facts.transaction());
        self.note_conflict(&error);
        self.note_lost(&error);
        self.fail_by(&error);
        error
    }

    /// The client gave up COPY FROM STDIN; returns the error to report.
    pub async fn copy_fail(&mut self, message: &str) -> SqlError {
        (self.copy, self.lost) = (None, None);
        self.fail();
        SqlError::new(sqlstate::QUERY_CANCELED, format!("COPY from stdin failed: {message}"))
    }

    /// Inserts the complete rows there are.
    async fn copy_rows(&mut self, copy: &mut CopyIn) -> Result<()> {
        self.go().await?;
        let interrupts = self.interrupts();
        let mut met = None;
        loop {
            let mut work = self.work(&interrupts)?;
            // It may have been asked to stop while it waited for its client.
            work.interrupts.check()?;
            let Some((row, error)) = copy.insert(&mut work, met.take()).await? else { return Ok(()) };
            // What it reads with holds the snapshot.
            drop(work);
            self.move_past(error, &mut copy.moves).map_err(|error| copy.at_number(error))?;
            met = Some(row);
        }
    }
}

impl CopyIn {
    /// Inserts the complete rows there are, after `met`. Gives back the first that has met what is
    /// newer than the snapshot, and the error.
    async fn insert(
        &mut self,
        work: &mut Work<'_>,
        mut met: Option<Vec<Datum>>,
    ) -> Result<Option<(Vec<Datum>, SqlError)>> {
        loop {
            let next = match met.take() {
                None => self.next_row(work)?,
                again => again,
            };
            let Some(row) = next else { return Ok(None) };
            let inserted = work.insert_row(&self.table, &row).await;
            match inserted {
                Ok(_) => self.rows += 1,
                Err(error) if is_of_newer_row(&error) => return Ok(Some((row, error))),
                Err(error) => return Err(self.at_number(error)),
            }
            work.check_load().await?;
        }
    }

    /// The next row that is wanted, complete and tested; none if its data has not come yet.
    fn next_row(&mut self, work: &Work<'_>) -> Result<Option<Vec<Datum>>> {
        loop {
            let next = self.reader.next(&mut self.fields);
            let more = next.map_err(|error| self.in_reading(error))?;
            if !more {
                return Ok(None);
            }
            if self.rows.is_multiple_of(ROWS_UNASKED) {
                work.interrupts.check()?;
            }
            let mut row = self.row(work)?;
            if !self.is_wanted(work, &row)? {
                work.interrupts.check()?;
                continue;
            }
            let is_complete = self.complete(work, &mut row);
            let tested = is_complete.and_then(|()| self.checks.test_row(work, &self.table, &row));
            tested.map_err(|error| self.at_line(error, None))?;
            return Ok(Some(row));
        }
    }

    /// Whether a row meets WHERE, which names no generated column.
    fn is_wanted(&self, work: &Work<'_>, row: &[Datum]) -> Result<bool> {
        let Some(condition) = &self.condition else { return Ok(true) };
        let met = work.evaluate(condition, row).map_err(|error| self.at_line(error, None))?;
        Ok(met.as_bool() == Some(true))
    }

    /// Gives a row the values of its generated columns.
    fn complete(&self, work: &Work<'_>, row: &mut [Datum]) -> Result<()> {
        if !self.table.has_generated() {
            return Ok(());
        }
        work.generate(&self.table, row)?;
        let generated = self.table.visible_columns().filter(|(_, column)| column.generated.is_some());
        for (place, _) in generated {
            if let Some(check) = self.checks.domain(place) {
                work.read(|read| check.test(&row[place], read))?;
            }
        }
        Ok(())
    }

    /// The row of the present fields.
    fn row(&self, work: &Work<'_>) -> Result<Vec<Datum>> {
        if self.fields.len() > self.columns.len() {
            return Err(self.at_line(extra_data(), None));
        }
        bounds::within(work.interrupts.clone(), || {
            let mut row = vec![Datum::Null; self.table.columns.len()];
            for (at, column) in self.columns.iter().enumerate() {
                // What stands before it is looked at first, as in PostgreSQL.
                if at == self.fields.len() {
                    let message = format!("missing data for column \"{}\"", column.name);
                    return Err(self.at_line(SqlError::new(sqlstate::BAD_COPY_FILE_FORMAT, message), None));
                }
                let bytes = self.fields.get_forced(at, column.force_not_null, column.force_null);
                let value = match (bytes, &self.reader) {
                    (None, _) => Datum::Null,
                    (Some(bytes), Reader::Lines(_)) => self.text_value(column, bytes, work.format)?,
                    (Some(bytes), Reader::Binary(_)) => self.binary_value(column, bytes, work.format)?,
                };
                self.check_domain(work, column.place, &value)
                    .map_err(|error| self.at_value(error, column, bytes))?;
                row[column.place] = value;
            }
            for (place, default) in &self.defaults {
                row[*place] = work.evaluate(default, &[])?;
                self.check_domain(work, *place, &row[*place]).map_err(|error| self.at_line(error, None))?;
            }
            Ok(row)
        })
    }

    /// 23502 or 23514 for a value that is not of its column's domain. As in PostgreSQL nobody asks
    /// for that of columns which the data has not and which have no default.
    fn check_domain(&self, work: &Work<'_>, place: usize, value: &Datum) -> Result<()> {
        match self.checks.domain(place) {
            Some(check) => work.read(|read| check.test(value, read)),
            None => Ok(()),
        }
    }

    /// The error with the field it is about: `null input` instead of the text of NULL.
    fn at_value(&self, error: SqlError, column: &InColumn, bytes: Option<&[u8]>) -> SqlError {
        match (bytes.map(String::from_utf8_lossy), &self.reader) {
            (_, Reader::Binary(_)) => self.at_line(error, Some((column, None))),
            (Some(text), _) => self.at_line(error, Some((column, Some(text.as_ref())))),
            (None, Reader::Lines(reader)) => {
                let (table, line) = (&self.table.name, reader.line());
                error.with_context(format!("COPY {table}, line {line}, column {}: null input", column.name))
            }
        }
    }

    fn text_value(&self, column: &InColumn, bytes: &[u8], format: &FormatContext) -> Result<Datum> {
        let text = std::str::from_utf8(bytes).map_err(|_| {
            let error = SqlError::new(
                sqlstate::CHARACTER_NOT_IN_REPERTOIRE,
                "invalid byte sequence for encoding \"UTF8\"",
            );
            self.at_number(error)
        })?;
        Datum::from_text(column.ty, text, format)
            .and_then(|value| column.fit(value))
            .map_err(|error| self.at_line(error, Some((column, Some(text)))))
    }

    fn binary_value(&self, column: &InColumn, bytes: &[u8], format: &FormatContext) -> Result<Datum> {
        Datum::receive(column.ty, bytes, format)
            .and_then(|value| column.fit(value))
            .map_err(|error| self.at_line(error, Some((column, None))))
    }

    /// What is wrong with the data itself. Binary data has a header that is no line.
    fn in_reading(&self, error: SqlError) -> SqlError {
        match &self.reader {
            Reader::Lines(_) => self.at_line(error, None),
            Reader::Binary(reader) if reader.row() == 0 => error,
            Reader::Binary(reader) => {
                let column = reader.field().and_then(|place| self.columns.get(place));
                self.at_line(error, column.map(|column| (column, None)))
            }
        }
    }

    /// The error with where it happened: `COPY t, line 3, column a: "x"`, or
    /// `COPY t, line 3: "x,y"` if it is about the whole line. Binary values are not shown.
    fn at_line(&self, error: SqlError, column: Option<(&InColumn, Option<&str>)>) -> SqlError {
        let mut place = self.place();
        match (column, &self.reader) {
            (Some((column, text)), _) => {
                place.push_str(&format!(", column {}", column.name));
                if let Some(text) = text {
                    place.push_str(&format!(": \"{}\"", shown(text.as_bytes())));
                }
            }
            (None, Reader::Lines(reader)) => {
                if let Some(text) = reader.text() {
                    place.push_str(&format!(": \"{}\"", shown(text)));
                }
            }
            (None, Reader::Binary(_)) => {}
        }
        within(error, place)
    }

    /// The error of a row that is not to be in the table beside others, which does not show its
    /// line: PostgreSQL stores rows when it has gathered many.
    fn at_number(&self, error: SqlError) -> SqlError {
        within(error, self.place())
    }

    fn place(&self) -> String {
        let line = match &self.reader {
            Reader::Lines(reader) => reader.line(),
            Reader::Binary(reader) => reader.row(),
        };
        format!("COPY {}, line {line}", self.table.name)
    }
}

/// The error with one more place around those that it has.
fn within(error: SqlError, place: String) -> SqlError {
    match &error.context {
        Some(inner) => {
            let context = format!("{inner}\n{place}");
            error.with_context(context)
        }
        None => error.with_context(place),
    }
}

/// Data as messages show them: no more than is to be read.
fn shown(data: &[u8]) -> String {
    // A line may be long: of what is left out only that it is there matters.
    let text = String::from_utf8_lossy(&data[..data.len().min(2 * SHOWN_BYTES)]);
    if text.len() <= SHOWN_BYTES {
        return text.into_owned();
    }
    let end = (0..=SHOWN_BYTES).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    format!("{}...", &text[..end])
}

impl InColumn {
    /// A value as the column holds it.
    fn fit(&self, value: Datum) -> Result<Datum> {
        match self.ty.modifier {
            -1 => Ok(value),
            _ => crate::types::cast::apply_modifier(value, self.ty, false),
        }
    }
}
