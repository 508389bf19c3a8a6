//! COPY FROM STDIN and TO STDOUT.
//!
//! Rows go in by the same path as INSERT's: defaults, checks, unique keys, foreign keys at the end.
//! Into a table that the transaction holds exclusively (made or truncated by it) there are no row
//! locks.

mod target;

use std::sync::Arc;

use cognate_engine::{Access, ReadView};
use sqlparser::ast;

use super::portal::PortalState;
use super::{CommandTag, CopyFormat, CopyInFormat, Fetch, OutputColumn, Portal, RowSink, Session, SinkState};
use crate::catalog::{Privileges, Table};
use crate::copy::{BinaryReader, BinaryWriter, CopyFileFormat, CopyOptions, CopyReader, CopyWriter, Fields};
use crate::ddl::names::Qualified;
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::Expr;
use crate::function::Interrupt;
use crate::oltp::Cursor;
use crate::oltp::run::Checks;
use crate::parse::{Command, Statement};
use crate::session::work::Work;
use crate::types::{Datum, FormatContext, Type, bounds};
use target::{check_forced, check_frozen, copy_columns};

/// A line is there four times: as data, as fields, as values and as a row.
const LINE_SHARE: usize = 4;
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
    checks: Checks,
    rows: u64,
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

/// A COPY TO STDOUT.
#[derive(Debug)]
pub(crate) struct CopyOut {
    rows_from: RowsFrom,
    writer: Writer,
    types: Vec<Type>,
    header: Option<Vec<String>>,
    announced: bool,
    rows: u64,
}

/// What makes data.
#[derive(Debug)]
enum Writer {
    /// Lines, with a buffer for the texts of values.
    Lines(CopyWriter, Vec<u8>),
    Binary(BinaryWriter),
}

impl Writer {
    fn row(&mut self, row: &[Datum], types: &[Type], format: &FormatContext) -> &[u8] {
        let (writer, buffer) = match self {
            Writer::Binary(writer) => return writer.row(row, types, format),
            Writer::Lines(writer, buffer) => (writer, buffer),
        };
        writer.begin();
        for (place, (value, ty)) in row.iter().zip(types).enumerate() {
            if value.is_null() {
                writer.field(place, None, row.len() == 1);
            } else {
                buffer.clear();
                value.to_text(*ty, format, buffer);
                writer.field(place, Some(buffer), row.len() == 1);
            }
        }
        writer.end()
    }

    /// As the protocol names its format.
    fn format(&self) -> CopyFormat {
        if matches!(self, Writer::Binary(_)) { CopyFormat::Binary } else { CopyFormat::Text }
    }
}

/// Where the rows of a COPY TO come from.
#[derive(Debug)]
enum RowsFrom {
    /// They are read as they are sent.
    Cursor(Box<Cursor>, ReadView),
    /// They were all read, and locked, before the first is sent.
    Rows(std::vec::IntoIter<Vec<Datum>>),
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
        let options = CopyOptions::new(options, legacy_options)?;
        if *to {
            if options.header_match {
                let message = "cannot use \"match\" with HEADER in COPY TO";
                return Err(SqlError::new(sqlstate::FEATURE_NOT_SUPPORTED, message));
            }
            portal.state = PortalState::CopyOut(Box::new(self.copy_to(source, options, statement).await?));
            return Ok(None);
        }
        let ast::CopySource::Table { table_name, columns } = source else {
            return Err(SqlError::syntax("COPY query FROM is not possible"));
        };
        let copy = self.copy_from(table_name, columns, options).await?;
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
        options: CopyOptions,
    ) -> Result<CopyIn> {
        let name = Qualified::from_object_name(name)?;
        self.await_slow_node().await?;
        self.open_transaction(false);
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
        let mut defaults = Vec::new();
        for place in (0..table.columns.len()).filter(|place| !places.contains(place)) {
            if let Some(default) = work.bind_default(&table, place)?.filter(|_| !table.columns[place].dropped)
            {
                defaults.push((place, default));
            }
        }
        check_forced(&table, &places, &options)?;
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
        Ok(CopyIn { table, reader, fields: Fields::default(), columns, defaults, checks, rows: 0 })
    }

    async fn copy_to(
        &mut self,
        source: &ast::CopySource,
        options: CopyOptions,
        statement: &Statement,
    ) -> Result<CopyOut> {
        let query = match source {
            ast::CopySource::Query(query) => query.clone(),
            ast::CopySource::Table { table_name, columns } => self.table_query(table_name, columns)?,
        };
        let command = Command::Sql(Box::new(ast::Statement::Query(query)));
        let statement = statement.with_command(command);
        let prepared = Arc::new(self.plan_prepared(Some(statement), Vec::new())?);
        let mut inner = Portal::new(prepared, Arc::from([]), Vec::new());
        inner.leave_open();
        self.start_cursor(&mut inner).await?;
        let columns: Vec<OutputColumn> = inner.columns().unwrap_or_default().to_vec();
        let rows_from = match std::mem::replace(&mut inner.state, PortalState::Ready) {
            PortalState::Cursor { cursor, view, .. } => RowsFrom::Cursor(cursor, view),
            PortalState::Rows { rows, .. } => RowsFrom::Rows(rows),
            _ => return Err(SqlError::unsupported("COPY of this query")),
        };
        let forced = columns.iter().map(|column| options.force_quote.contains(&column.name)).collect();
        let header = options.header.then(|| columns.iter().map(|column| column.name.clone()).collect());
        let writer = match options.format {
            CopyFileFormat::Binary => Writer::Binary(BinaryWriter::default()),
            _ => Writer::Lines(CopyWriter::new(options, forced), Vec::new()),
        };
        Ok(CopyOut {
            rows_from,
            types: columns.iter().map(|column| column.ty).collect(),
            writer,
            header,
            announced: false,
            rows: 0,
        })
    }

    /// `SELECT columns FROM table`, once the columns are known to exist.
    fn table_query(&mut self, name: &ast::ObjectName, columns: &[ast::Ident]) -> Result<Box<ast::Query>> {
        let (catalog, _) = self.catalog_with_state();
        let qualified = Qualified::from_object_name(name)?;
        qualified.check_database(&catalog)?;
        let path = self.facts.lookup_path(&catalog);
        let relation = catalog.find(&path, qualified.schema.as_deref(), &qualified.name);
        let table = match relation {
            Some(crate::catalog::Relation::Table(table)) => table,
            Some(crate::catalog::Relation::View(view)) => {
                return Err(SqlError::new(
                    sqlstate::WRONG_OBJECT_TYPE,
                    format!("cannot copy from view \"{}\"", view.name),
                )
                .with_hint("Try the COPY (SELECT ...) TO variant."));
            }
            Some(other) => return Err(crate::ddl::resolve::wrong_type(other.name(), "table")),
            None => return Err(crate::ddl::resolve::undefined_table(&qualified)),
        };
        let quote = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
        let places = copy_columns(table, columns)?;
        let list: Vec<String> = places.iter().map(|&place| quote(&table.columns[place].name)).collect();
        let text =
            format!("SELECT {} FROM {}.{}", list.join(", "), quote(&table.schema_name), quote(&table.name));
        let parsed = crate::parse::parse_single(&text)?;
        match parsed.as_ref().map(|statement| &statement.command) {
            Some(Command::Sql(sql)) => match sql.as_ref() {
                ast::Statement::Query(query) => Ok(query.clone()),
                _ => Err(SqlError::internal("COPY made no query")),
            },
            _ => Err(SqlError::internal("COPY made no query")),
        }
    }

    /// Gives lines of COPY TO.
    pub(super) fn copy_out(&mut self, portal: &mut Portal, sink: &mut (dyn RowSink + Send)) -> Result<Fetch> {
        let PortalState::CopyOut(copy) = &mut portal.state else {
            return Err(SqlError::internal("the portal is no COPY"));
        };
        if !copy.announced {
            copy.announced = true;
            let format = copy.writer.format();
            return Ok(Fetch::CopyOut(CopyInFormat { format, columns: copy.types.len() }));
        }
        let interrupts = self.interrupts();
        let work = self.work(&interrupts)?;
        if let (Some(header), Writer::Lines(writer, _)) = (copy.header.take(), &mut copy.writer) {
            let names: Vec<&str> = header.iter().map(String::as_str).collect();
            if sink.copy_out(writer.names(&names)) == SinkState::Full {
                return Ok(Fetch::SinkFull);
            }
        }
        let (writer, types, rows) = (&mut copy.writer, &copy.types, &mut copy.rows);
        let mut send = |next: &mut dyn FnMut() -> Result<Option<Vec<Datum>>>| {
            loop {
                let Some(row) = next()? else { return Ok::<bool, SqlError>(true) };
                *rows += 1;
                if sink.copy_out(writer.row(&row, types, work.format)) == SinkState::Full {
                    return Ok(false);
                }
            }
        };
        let done = match &mut copy.rows_from {
            RowsFrom::Cursor(cursor, view) => work.read_at(view, |read| send(&mut || cursor.next(read)))?,
            RowsFrom::Rows(rows) => send(&mut || Ok(rows.next()))?,
        };
        if !done {
            return Ok(Fetch::SinkFull);
        }
        if let Writer::Binary(writer) = &mut copy.writer {
            // Nothing follows, so it does not matter whether the sink is full.
            sink.copy_out(writer.trailer());
        }
        let tag = CommandTag::Rows("COPY", copy.rows);
        portal.state = PortalState::Done(tag);
        Ok(Fetch::Complete(tag))
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
            Err(error) => {
                self.fail();
                Err(error)
            }
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
            Err(error) => {
                self.fail();
                Err(error)
            }
        }
    }

    #[inline(never)]
    fn end_copy(&mut self) -> super::Boxed<'_, ()> {
        Box::pin(async move {
            let interrupts = self.interrupts();
            self.work(&interrupts)?.run_checks().await
        })
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
        let mut work = self.work(&interrupts)?;
        // It may have been asked to stop while it waited for its client.
        work.interrupts.check()?;
        loop {
            let next = copy.reader.next(&mut copy.fields);
            let more = next.map_err(|error| copy.in_reading(error))?;
            if !more {
                return Ok(());
            }
            if copy.rows.is_multiple_of(ROWS_UNASKED) {
                work.interrupts.check()?;
            }
            let mut row = copy.row(&work)?;
            let is_complete = copy.complete(&work, &mut row);
            let inserted = match is_complete.and_then(|()| copy.checks.test_row(&work, &copy.table, &row)) {
                Ok(()) => work.insert_row(&copy.table, &row).await.map(drop),
                Err(error) => Err(error),
            };
            inserted.map_err(|error| copy.at_line(error, None))?;
            copy.rows += 1;
            work.check_load().await?;
        }
    }
}

impl CopyIn {
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
        if self.fields.len() < self.columns.len() {
            let missing = &self.columns[self.fields.len()].name;
            let error = SqlError::new(
                sqlstate::BAD_COPY_FILE_FORMAT,
                format!("missing data for column \"{missing}\""),
            );
            return Err(self.at_line(error, None));
        }
        if self.fields.len() > self.columns.len() {
            let error =
                SqlError::new(sqlstate::BAD_COPY_FILE_FORMAT, "extra data after last expected column");
            return Err(self.at_line(error, None));
        }
        let _within = bounds::enter(work.interrupts.clone());
        let mut row = vec![Datum::Null; self.table.columns.len()];
        for (at, column) in self.columns.iter().enumerate() {
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
            self.at_line(error, None)
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

    /// The error with where it happened: `COPY t, line 3, column a: "x"`. Binary values are not
    /// shown.
    fn at_line(&self, error: SqlError, column: Option<(&InColumn, Option<&str>)>) -> SqlError {
        let line = match &self.reader {
            Reader::Lines(reader) => reader.line(),
            Reader::Binary(reader) => reader.row(),
        };
        let mut place = format!("COPY {}, line {line}", self.table.name);
        match column {
            Some((column, Some(text))) => place.push_str(&format!(", column {}: \"{text}\"", column.name)),
            Some((column, None)) => place.push_str(&format!(", column {}", column.name)),
            None => {}
        }
        match &error.context {
            Some(inner) => {
                let context = format!("{inner}\n{place}");
                error.with_context(context)
            }
            None => error.with_context(place),
        }
    }
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
