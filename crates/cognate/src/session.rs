//! A session of an embedding program: statements with parameters, prepared once and run often.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use cognate_sql::SqlError;
use cognate_sql::session::{
    CommandTag, Fetch, Format, OutputColumn, Portal, Prepared, RowSink, Session as SqlSession, SinkState,
    TransactionStatus,
};
use cognate_sql::types::{Datum, FormatContext, Type, TypeId};

use crate::value::Parameter;
use crate::wait::Timers;
use crate::{Error, Result, Row, sqlstate};

/// Texts whose statements a session remembers.
const REMEMBERED_MAX: usize = 256;

/// One session: runs one statement at a time. Dropping it rolls back what is open.
pub struct Session {
    session: SqlSession,
    timers: Arc<Timers>,
    remembered: HashMap<Box<str>, Statement>,
    /// Encoded parameters; kept so that a statement allocates nothing for them.
    encoded: Vec<u8>,
}

/// A prepared statement. Clones are the same statement; it belongs to the database, not to the
/// session.
#[derive(Clone, Debug)]
pub struct Statement {
    prepared: Arc<Prepared>,
    columns: Arc<[OutputColumn]>,
}

/// What can be run: a text, or a [`Statement`] prepared before.
pub trait AsStatement {
    /// The statement in this session. What runs it ends an error of it as one of the run.
    ///
    /// # Errors
    /// Of [`Session::prepare`].
    fn statement(&self, session: &mut Session) -> Result<Statement>;
}

impl AsStatement for &Statement {
    fn statement(&self, _: &mut Session) -> Result<Statement> {
        Ok((*self).clone())
    }
}

impl AsStatement for &str {
    fn statement(&self, session: &mut Session) -> Result<Statement> {
        session.find_or_prepare(self)
    }
}

impl Session {
    pub(crate) fn new(session: SqlSession, timers: Arc<Timers>) -> Session {
        Session { session, timers, remembered: HashMap::new(), encoded: Vec::new() }
    }

    /// Prepares one statement. The session remembers texts, so preparing one again costs a look-up.
    ///
    /// # Errors
    /// 42601 for syntax (with position), 42P01 for an unknown table, and so on.
    pub fn prepare(&mut self, text: &str) -> Result<Statement> {
        match self.find_or_prepare(text) {
            Ok(statement) => Ok(statement),
            Err(error) => {
                let timers = self.timers.clone();
                timers.block_on(async { Err(self.session.failed(error).await) })
            }
        }
    }

    /// [`Session::prepare`], but an error of it is still to be given to the session (`end`).
    fn find_or_prepare(&mut self, text: &str) -> Result<Statement> {
        if let Some(statement) = self.remembered.get(text) {
            return Ok(statement.clone());
        }
        let prepared = self.session.prepare(text, &[])?;
        let columns = prepared.columns().unwrap_or_default().into();
        let statement = Statement { prepared, columns };
        if self.remembered.len() >= REMEMBERED_MAX {
            self.remembered.clear();
        }
        self.remembered.insert(text.into(), statement.clone());
        Ok(statement)
    }

    /// Runs a statement; returns how many rows it changed (or returned).
    ///
    /// # Errors
    /// The statement's; outside a transaction nothing of it stays, inside one the transaction can
    /// only be rolled back.
    pub fn execute(&mut self, statement: impl AsStatement, parameters: &[&dyn Parameter]) -> Result<u64> {
        let timers = self.timers.clone();
        timers.block_on(self.execute_async(statement, parameters))
    }

    /// Runs a statement; returns its rows.
    ///
    /// # Errors
    /// As [`Session::execute`].
    pub fn query(&mut self, statement: impl AsStatement, parameters: &[&dyn Parameter]) -> Result<Vec<Row>> {
        let timers = self.timers.clone();
        timers.block_on(self.query_async(statement, parameters))
    }

    /// Runs a statement that returns one row.
    ///
    /// # Errors
    /// As [`Session::execute`]; P0002 if there is no row, P0003 if there are more.
    pub fn query_one(&mut self, statement: impl AsStatement, parameters: &[&dyn Parameter]) -> Result<Row> {
        let timers = self.timers.clone();
        timers.block_on(self.query_one_async(statement, parameters))
    }

    /// Runs statements separated by semicolons, without parameters, in one transaction unless they
    /// say otherwise.
    ///
    /// # Errors
    /// Of the first statement that fails.
    pub fn run_script(&mut self, text: &str) -> Result<()> {
        let timers = self.timers.clone();
        timers.block_on(self.run_script_async(text))
    }

    /// Begins a transaction in the session's isolation level. Dropping it rolls back.
    ///
    /// # Errors
    /// If one is open already.
    pub fn begin(&mut self) -> Result<Transaction<'_>> {
        let timers = self.timers.clone();
        timers.block_on(self.begin_async())?;
        Ok(Transaction { session: self, open: true })
    }

    /// [`Session::execute`] for an executor.
    ///
    /// # Errors
    /// As there.
    pub async fn execute_async(
        &mut self,
        statement: impl AsStatement,
        parameters: &[&dyn Parameter],
    ) -> Result<u64> {
        let statement = self.resolve(statement).await?;
        let command_tag = self.run(&statement, parameters, &mut Discard).await?;
        Ok(match command_tag {
            Some(CommandTag::Rows(_, rows) | CommandTag::Insert(rows)) => rows,
            _ => 0,
        })
    }

    /// [`Session::query`] for an executor.
    ///
    /// # Errors
    /// As there.
    pub async fn query_async(
        &mut self,
        statement: impl AsStatement,
        parameters: &[&dyn Parameter],
    ) -> Result<Vec<Row>> {
        let statement = self.resolve(statement).await?;
        let mut collect = Collect { columns: statement.columns.clone(), rows: Vec::new() };
        self.run(&statement, parameters, &mut collect).await?;
        Ok(collect.rows)
    }

    /// [`Session::query_one`] for an executor.
    ///
    /// # Errors
    /// As there.
    pub async fn query_one_async(
        &mut self,
        statement: impl AsStatement,
        parameters: &[&dyn Parameter],
    ) -> Result<Row> {
        let mut rows = self.query_async(statement, parameters).await?;
        match (rows.pop(), rows.is_empty()) {
            (Some(row), true) => Ok(row),
            (None, _) => Err(Error::new("P0002", "query returned no rows")),
            (Some(_), false) => Err(Error::new("P0003", "query returned more than one row")),
        }
    }

    /// [`Session::run_script`] for an executor.
    ///
    /// # Errors
    /// As there.
    pub async fn run_script_async(&mut self, text: &str) -> Result<()> {
        let ran = self.script(text).await;
        self.end(ran).await
    }

    /// Begins a transaction for an executor; end it with the statements COMMIT or ROLLBACK.
    ///
    /// # Errors
    /// As [`Session::begin`].
    pub async fn begin_async(&mut self) -> Result<()> {
        if self.session.status() != TransactionStatus::Idle {
            return Err(Error::new(
                sqlstate::ACTIVE_SQL_TRANSACTION,
                "there is already a transaction in progress",
            ));
        }
        self.execute_async("BEGIN", &[]).await.map(|_| ())
    }

    /// Notices and warnings since the last call.
    pub fn take_notices(&mut self) -> Vec<Error> {
        self.session.take_notices()
    }

    async fn resolve(&mut self, statement: impl AsStatement) -> Result<Statement> {
        match statement.statement(self) {
            Ok(statement) => Ok(statement),
            Err(error) => Err(self.session.failed(error).await),
        }
    }

    async fn script(&mut self, text: &str) -> Result<()> {
        for statement in self.session.split(text)? {
            let prepared = self.session.prepare_statement(statement)?;
            self.run_prepared(&prepared, &[], &mut Discard).await?;
        }
        Ok(())
    }

    /// Runs a statement and ends its implicit transaction. `None`: the text was empty.
    async fn run(
        &mut self,
        statement: &Statement,
        parameters: &[&dyn Parameter],
        sink: &mut dyn Answer,
    ) -> Result<Option<CommandTag>> {
        let mut left = if self.session.is_fresh() { self.session.retries() } else { 0 };
        loop {
            let ran = self.run_prepared(&statement.prepared, parameters, sink).await;
            match self.sync(ran).await {
                // Nothing of it was seen yet.
                Err(error) if left > 0 && self.session.may_run_again(&error) => {
                    left -= 1;
                    self.session.abandon();
                    sink.forget();
                }
                Err(error) => return Err(self.session.failed(error).await),
                Ok(ended) => return Ok(ended),
            }
        }
    }

    async fn run_prepared(
        &mut self,
        prepared: &Arc<Prepared>,
        parameters: &[&dyn Parameter],
        sink: &mut (dyn RowSink + Send),
    ) -> Result<Option<CommandTag>> {
        let mut portal = match numbers(parameters, prepared.parameter_types()) {
            Some(values) => self.session.bind_values(prepared, values)?,
            None => self.bind_encoded(prepared, parameters)?,
        };
        loop {
            match self.session.fetch(&mut portal, sink, 0).await? {
                Fetch::Complete(command_tag) => return Ok(Some(command_tag)),
                Fetch::Empty => return Ok(None),
                Fetch::SinkFull | Fetch::Suspended => {}
                Fetch::CopyIn(_) => return Err(self.session.copy_fail("there is no client").await),
                Fetch::CopyOut(_) => return Err(Error::unsupported("COPY TO STDOUT without a client")),
            }
        }
    }

    fn bind_encoded(&mut self, prepared: &Arc<Prepared>, parameters: &[&dyn Parameter]) -> Result<Portal> {
        self.encoded.clear();
        let encoded = encode(parameters, prepared.parameter_types(), &mut self.encoded)?;
        let values: Vec<_> = encoded.iter().map(|place| place.bytes(&self.encoded)).collect();
        let formats: Vec<_> = encoded.iter().map(|place| place.format).collect();
        self.session.bind(prepared, &values, &formats, &[])
    }

    /// Ends the implicit transaction of what went well. An error is still to be given to the
    /// session.
    async fn sync<T>(&mut self, ran: Result<T>) -> Result<T> {
        let value = ran?;
        self.session.sync().await?;
        Ok(value)
    }

    async fn end<T>(&mut self, ran: Result<T>) -> Result<T> {
        match self.sync(ran).await {
            Ok(value) => Ok(value),
            Err(error) => Err(self.session.failed(error).await),
        }
    }
}

/// An open transaction; runs statements like the session it is of. Dropping it rolls back.
pub struct Transaction<'a> {
    session: &'a mut Session,
    open: bool,
}

impl Transaction<'_> {
    /// Commits; durable when it returns.
    ///
    /// # Errors
    /// 40001 if it cannot be serialized with others (retry it all), 25P02 if one of its statements
    /// had failed; either way nothing of it stays.
    pub fn commit(mut self) -> Result<()> {
        self.open = false;
        let failed = self.session.session.status() == TransactionStatus::Failed;
        self.session.execute("COMMIT", &[])?;
        if failed {
            return Err(Error::new(
                sqlstate::IN_FAILED_SQL_TRANSACTION,
                "the transaction was rolled back because one of its statements had failed",
            ));
        }
        Ok(())
    }

    /// Rolls back.
    ///
    /// # Errors
    /// None in practice.
    pub fn rollback(mut self) -> Result<()> {
        self.open = false;
        self.session.execute("ROLLBACK", &[]).map(|_| ())
    }
}

impl Deref for Transaction<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.session
    }
}

impl DerefMut for Transaction<'_> {
    fn deref_mut(&mut self) -> &mut Session {
        self.session
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if self.open {
            // It cannot be told to anybody, and the transaction is gone in any case.
            let _ = self.session.execute("ROLLBACK", &[]);
        }
    }
}

/// Where an encoded parameter is; `None` is NULL.
struct Place {
    range: Option<std::ops::Range<usize>>,
    format: Format,
}

impl Place {
    fn bytes<'a>(&self, encoded: &'a [u8]) -> Option<&'a [u8]> {
        self.range.clone().map(|range| &encoded[range])
    }
}

/// The parameters, if they are just the numbers and truth values that the statement has: these need
/// neither be encoded nor be looked at. Most keys are such.
fn numbers(parameters: &[&dyn Parameter], types: &[Type]) -> Option<Arc<[Datum]>> {
    use TypeId::{Bool, Float4, Float8, Int2, Int4, Int8};
    let is_number = |ty: &Type| matches!(ty.id, Bool | Int2 | Int4 | Int8 | Float4 | Float8);
    if parameters.len() != types.len() || !types.iter().all(is_number) {
        return None;
    }
    // In their last place at once.
    let mut values: Arc<[Datum]> = types.iter().map(|_| Datum::Null).collect();
    for (place, (parameter, ty)) in Arc::get_mut(&mut values)?.iter_mut().zip(parameters.iter().zip(types)) {
        let (value, own) = parameter.to_value();
        if own != ty.id && !value.is_null() {
            return None;
        }
        *place = value;
    }
    Some(values)
}

/// Encodes parameters for `types`: in binary where a value has the type already, in text where it
/// is to be converted.
fn encode(parameters: &[&dyn Parameter], types: &[Type], out: &mut Vec<u8>) -> Result<Vec<Place>> {
    if parameters.len() != types.len() {
        return Err(Error::new(
            sqlstate::PROTOCOL_VIOLATION,
            format!("{} parameters were given, but the statement has {}", parameters.len(), types.len()),
        ));
    }
    let encode_one = |(parameter, ty): (&&dyn Parameter, &Type)| {
        let (value, own) = parameter.to_value();
        let start = out.len();
        let format = if own == ty.id { Format::Binary } else { Format::Text };
        match (&value, format) {
            (Datum::Null, _) => return Place { range: None, format },
            (value, Format::Binary) => value.to_binary(*ty, out),
            (value, Format::Text) => value.to_text(Type::new(own), &FormatContext::default(), out),
        }
        Place { range: Some(start..out.len()), format }
    };
    Ok(parameters.iter().zip(types).map(encode_one).collect())
}

/// Counts nothing and keeps nothing.
struct Discard;

impl RowSink for Discard {
    fn row(
        &mut self,
        _: &[OutputColumn],
        _: &[Format],
        _: &[Datum],
        _: &FormatContext,
    ) -> Result<SinkState, SqlError> {
        Ok(SinkState::Ready)
    }

    fn copy_out(&mut self, _: &[u8]) -> SinkState {
        SinkState::Ready
    }
}

/// Takes rows, and can begin anew.
trait Answer: RowSink + Send {
    /// Forgets the rows so far.
    fn forget(&mut self);
}

impl Answer for Discard {
    fn forget(&mut self) {}
}

impl Answer for Collect {
    fn forget(&mut self) {
        self.rows.clear();
    }
}

/// Keeps all rows.
struct Collect {
    columns: Arc<[OutputColumn]>,
    rows: Vec<Row>,
}

impl RowSink for Collect {
    fn row(
        &mut self,
        columns: &[OutputColumn],
        _: &[Format],
        row: &[Datum],
        context: &FormatContext,
    ) -> Result<SinkState, SqlError> {
        // Values of enum types are taken as their labels, which the catalog knows now.
        let is_enum = |value: &Datum| matches!(value, Datum::Enum(_));
        let labelled = row.iter().any(is_enum).then(|| {
            let values = row.iter().zip(columns).map(|(value, column)| match value {
                Datum::Enum(_) => Datum::from(value.to_text_string(column.ty, context)),
                value => value.clone(),
            });
            values.collect::<Vec<_>>()
        });
        self.rows.push(Row::new(self.columns.clone(), labelled.as_deref().unwrap_or(row)));
        Ok(SinkState::Ready)
    }

    fn copy_out(&mut self, _: &[u8]) -> SinkState {
        SinkState::Ready
    }
}
