//! COPY TO STDOUT: the rows of a table or query, as data.

use std::sync::Arc;

use cognate_engine::ReadView;
use sqlparser::ast;

use super::target::{check_forced, check_quoted, copy_columns};
use crate::copy::{BinaryWriter, CopyFileFormat, CopyOptions, CopyWriter};
use crate::ddl::names::Qualified;
use crate::error::{Result, SqlError, sqlstate};
use crate::oltp::Cursor;
use crate::parse::{Command, Statement, selects_into};
use crate::session::portal::PortalState;
use crate::session::{
    CommandTag, CopyFormat, CopyInFormat, Fetch, OutputColumn, Portal, RowSink, Session, SinkState,
};
use crate::types::{Datum, FormatContext, Type};

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
    fn row(&mut self, row: &[Datum], types: &[Type], format: &FormatContext) -> Result<&[u8]> {
        let (writer, buffer) = match self {
            Writer::Binary(writer) => return writer.row(row, types, format),
            Writer::Lines(writer, buffer) => (writer, buffer),
        };
        writer.begin();
        for (place, (value, ty)) in row.iter().zip(types).enumerate() {
            if value.is_null() {
                writer.field(place, None, row.len() == 1)?;
            } else {
                buffer.clear();
                value.write_text(*ty, format, buffer)?;
                writer.field(place, Some(buffer), row.len() == 1)?;
            }
        }
        Ok(writer.end())
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
    /// Begins COPY TO: the rows, and how they are written.
    pub(super) async fn copy_to(
        &mut self,
        source: &ast::CopySource,
        options: CopyOptions,
        statement: &Statement,
    ) -> Result<CopyOut> {
        let query = match source {
            ast::CopySource::Query(query) if selects_into(&query.body) => {
                return Err(SqlError::unsupported("COPY (SELECT INTO)"));
            }
            ast::CopySource::Query(query) => query.clone(),
            ast::CopySource::Table { table_name, columns } => {
                self.table_query(table_name, columns, &options)?
            }
        };
        let command = Command::Sql(Box::new(ast::Statement::Query(query)));
        let statement = statement.with_command(command);
        let prepared = Arc::new(self.plan_prepared(Some(statement), Vec::new())?);
        if !prepared.parameter_types().is_empty() {
            return Err(SqlError::new(sqlstate::UNDEFINED_PARAMETER, "there is no parameter $1"));
        }
        let mut inner = Portal::new(prepared, Arc::from([]), Vec::new());
        inner.leave_open();
        self.start_cursor(&mut inner).await?;
        let columns: Vec<OutputColumn> = inner.columns().unwrap_or_default().to_vec();
        let rows_from = match std::mem::replace(&mut inner.state, PortalState::Ready) {
            PortalState::Cursor { cursor, view, .. } => RowsFrom::Cursor(cursor, view),
            PortalState::Rows { rows, .. } => RowsFrom::Rows(rows),
            _ => return Err(SqlError::unsupported("COPY of this query")),
        };
        if let ast::CopySource::Query(_) = source {
            check_quoted(&columns, &options)?;
        }
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
    fn table_query(
        &mut self,
        name: &ast::ObjectName,
        columns: &[ast::Ident],
        options: &CopyOptions,
    ) -> Result<Box<ast::Query>> {
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
        check_forced(table, &places, "FORCE_QUOTE", &options.force_quote)?;
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
    pub(in crate::session) fn copy_out(
        &mut self,
        portal: &mut Portal,
        sink: &mut (dyn RowSink + Send),
    ) -> Result<Fetch> {
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
            if sink.copy_out(writer.names(&names)?) == SinkState::Full {
                return Ok(Fetch::SinkFull);
            }
        }
        let (writer, types, rows) = (&mut copy.writer, &copy.types, &mut copy.rows);
        let mut send = |next: &mut dyn FnMut() -> Result<Option<Vec<Datum>>>| {
            loop {
                let Some(row) = next()? else { return Ok::<bool, SqlError>(true) };
                *rows += 1;
                if sink.copy_out(writer.row(&row, types, work.format)?) == SinkState::Full {
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
}
