//! EXPLAIN, EXECUTE and CREATE TABLE AS: statements around a statement.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlparser::ast;

use super::parameters::Given;
use super::portal::{PortalState, Tag};
use super::{
    Action, CommandTag, Fetch, Format, OutputColumn, Planned, Portal, Prepared, RowSink, Session, SinkState,
};
use crate::ddl::create_table::Kind;
use crate::ddl::names::{Qualified, single};
use crate::ddl::request::ColumnRequest;
use crate::error::{Result, SqlError, sqlstate};
use crate::explain::{PlanFormat, Summary, Telling};
use crate::expr::{Count, Tally};
use crate::identifier::fold;
use crate::oltp::memory::row_bytes;
use crate::parse::{self, Command, Statement};
use crate::types::{Datum, FormatContext, TypeId};

/// So many EXECUTEs may be around a statement: clients can prepare EXECUTE itself, also of its own
/// name.
pub(super) const EXECUTES_MAX: usize = 8;

/// 54001.
#[cold]
pub(super) fn too_many_executes() -> SqlError {
    let detail = format!("EXECUTE may run statements that are EXECUTE, {EXECUTES_MAX} levels deep.");
    SqlError::new(sqlstate::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded").with_detail(detail)
}

/// Rows on their way from a query into a table.
#[derive(Default)]
struct Batch {
    rows: Vec<Vec<Datum>>,
    bytes: usize,
}

/// A batch is stored when its rows take so much.
const BATCH_BYTES: usize = 256 << 10;

impl RowSink for Batch {
    fn row(
        &mut self,
        _: &[OutputColumn],
        _: &[Format],
        row: &[Datum],
        _: &FormatContext,
    ) -> Result<SinkState> {
        self.bytes += row_bytes(row);
        self.rows.push(row.to_vec());
        Ok(if self.bytes < BATCH_BYTES { SinkState::Ready } else { SinkState::Full })
    }

    fn copy_out(&mut self, _: &[u8]) -> SinkState {
        SinkState::Ready
    }
}

/// What EXPLAIN is to answer in. 0A000 for the format of PostgreSQL's that there is none of.
pub(super) fn plan_format(
    format: Option<&ast::AnalyzeFormatKind>,
    options: Option<&[ast::UtilityOption]>,
) -> Result<PlanFormat> {
    let mut chosen = match format {
        Some(ast::AnalyzeFormatKind::Keyword(format) | ast::AnalyzeFormatKind::Assignment(format)) => {
            format.to_string().to_lowercase()
        }
        None => "text".to_owned(),
    };
    for option in options.into_iter().flatten() {
        if let (true, Some(value)) = (option.name.value.eq_ignore_ascii_case("format"), &option.arg) {
            chosen = value.to_string().trim_matches('\'').to_lowercase();
        }
    }
    match chosen.as_str() {
        "text" => Ok(PlanFormat::Text),
        "json" => Ok(PlanFormat::Json),
        "xml" => Ok(PlanFormat::Xml),
        "yaml" => Err(SqlError::unsupported("EXPLAIN in the format yaml")),
        _ => Err(SqlError::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("unrecognized value for EXPLAIN option \"format\": \"{chosen}\""),
        )),
    }
}

/// What EXPLAIN is asked to do, besides its format.
struct Options {
    analyze: bool,
    verbose: bool,
    timing: bool,
    summary: bool,
}

impl Options {
    /// Reads the list in parentheses; `words` are ANALYZE and VERBOSE without one. 42601, 22023.
    fn read(words: (bool, bool), options: Option<&[ast::UtilityOption]>) -> Result<Options> {
        let (mut analyze, mut verbose) = words;
        let (mut timing, mut summary, mut wal) = (None, None, false);
        for option in options.into_iter().flatten() {
            let name = option.name.value.to_lowercase();
            match name.as_str() {
                "format" => {}
                "analyze" => analyze = is_on(&name, option.arg.as_ref())?,
                "verbose" => verbose = is_on(&name, option.arg.as_ref())?,
                "timing" => timing = Some(is_on(&name, option.arg.as_ref())?),
                "summary" => summary = Some(is_on(&name, option.arg.as_ref())?),
                "wal" => wal = is_on(&name, option.arg.as_ref())?,
                // There are no costs to leave out, and nothing is known of the others.
                "costs" | "settings" | "buffers" => _ = is_on(&name, option.arg.as_ref())?,
                other => return Err(SqlError::syntax(format!("unrecognized EXPLAIN option \"{other}\""))),
            }
        }
        let alone = [("WAL", wal), ("TIMING", timing == Some(true))];
        if let Some((name, _)) = alone.iter().find(|(_, on)| *on && !analyze) {
            return Err(SqlError::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                format!("EXPLAIN option {name} requires ANALYZE"),
            ));
        }
        let (timing, summary) = (timing.unwrap_or(analyze), summary.unwrap_or(analyze));
        Ok(Options { analyze, verbose, timing, summary })
    }
}

/// The value of an option that is on or off. 42601 if it is something else.
fn is_on(name: &str, value: Option<&ast::Expr>) -> Result<bool> {
    let Some(value) = value else { return Ok(true) };
    match value.to_string().trim_matches('\'').to_lowercase().as_str() {
        "true" | "on" | "1" => Ok(true),
        "false" | "off" | "0" => Ok(false),
        _ => Err(SqlError::syntax(format!("{name} requires a Boolean value"))),
    }
}

/// How many rows a statement gave, how long it took, and the plan that ran, if it was here.
type Analyzed = (u64, Duration, Option<Arc<Planned>>);

fn milliseconds(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}

impl Session {
    /// EXPLAIN [ANALYZE].
    pub(super) async fn explain(
        &mut self,
        sql: &ast::Statement,
        statement: &Statement,
        given: &Given,
    ) -> Result<PortalState> {
        let ast::Statement::Explain { analyze, verbose, statement: inner, format, options, .. } = sql else {
            return Err(SqlError::internal("no EXPLAIN"));
        };
        let shape = plan_format(format.as_ref(), options.as_deref())?;
        let options = Options::read((*analyze, *verbose), options.as_deref())?;
        let began = Instant::now();
        let portal = self.explained_portal(inner, statement, given, options.analyze)?;
        let planning = options.summary.then(|| milliseconds(began.elapsed()));
        let prepared = portal.prepared.clone();
        let planned = self.planned_of(&prepared);
        // What EXECUTE names may be deeper than this statement.
        let depth = prepared.depth();
        if self.fits(&planned) {
            self.check_needs(&planned)?;
        }
        // What has no plan is not run for its name's sake: it may be this very statement.
        let is_named = matches!(inner.as_ref(), ast::Statement::Execute { .. });
        let runs = options.analyze && !(is_named && matches!(planned.action, Action::Utility));
        let mut summary = Summary { planning, ..Summary::default() };
        let (mut tally, mut whole, mut ran) = (None, None, None);
        if runs {
            let counted = Arc::new(Tally::new(options.timing));
            let (rows, took, plan) = self.analyze(portal, &counted).await?;
            (tally, whole, ran) = (Some(counted), Some(Count::of_statement(rows, took)), plan);
            summary.analyzed = true;
            summary.execution = options.summary.then(|| milliseconds(took));
        }
        // Where other nodes have executed it, nothing was counted here.
        let tally = tally.as_deref().filter(|tally: &&Tally| !tally.is_empty());
        let (verbose, timed) = (options.verbose, options.timing);
        let telling = Telling { verbose, timed, format: &self.format, tally, whole, is_part: false };
        // Both plans are dropped there, if nobody else holds them any more.
        let lines = parse::on_large_stack(depth, move || {
            // It may have been planned anew before it ran, and by others since. What commands and
            // procedures run is not theirs to tell.
            let is_its_own = !matches!(planned.action, Action::Utility | Action::Call(_));
            let shown = ran.filter(|_| is_its_own).unwrap_or_else(|| Arc::clone(&planned));
            match shape {
                PlanFormat::Text => crate::explain::lines(&shown, telling, summary),
                PlanFormat::Json => vec![crate::explain::json(&shown, telling, summary)],
                PlanFormat::Xml => vec![crate::explain::xml::document(&shown, telling, summary)],
            }
        });
        let rows: Vec<Vec<Datum>> = lines.into_iter().map(|line| vec![Datum::from(line)]).collect();
        Ok(PortalState::Rows {
            rows: rows.into_iter(),
            sent: 0,
            tag: Tag::Fixed(CommandTag::Plain("EXPLAIN")),
        })
    }

    /// The statement that EXPLAIN is about, with the values of its parameters if it is to run.
    fn explained_portal(
        &mut self,
        inner: &ast::Statement,
        statement: &Statement,
        given: &Given,
        analyze: bool,
    ) -> Result<Portal> {
        match inner {
            ast::Statement::Execute { name: Some(name), .. } if !analyze => {
                Ok(given.portal(self.named_statement(&single(name)?)?.clone()))
            }
            ast::Statement::Execute { .. } => {
                let (prepared, values) = self.executed(inner)?;
                Ok(Portal::new(prepared, values.into(), Vec::new()))
            }
            // Nothing is made: the plan is that of the rows.
            ast::Statement::CreateTable(ast::CreateTable { query: Some(query), .. }) if !analyze => {
                let executed = parse::executed_by(query)?;
                let rows = executed.unwrap_or_else(|| ast::Statement::Query(query.clone()));
                self.explained_portal(&rows, statement, given, false)
            }
            _ => {
                let mut inner = statement.with_command(Command::Sql(Box::new(inner.clone())));
                inner.without_rows = statement.without_rows;
                Ok(given.portal(Arc::new(self.plan_prepared(Some(inner), given.types())?)))
            }
        }
    }

    /// Runs a portal for how many rows it gives, and how long it takes; the rows of its nodes are
    /// counted meanwhile. With the plan whose nodes these are: as long as it is held no other node
    /// is where one of them is.
    async fn analyze(&mut self, mut portal: Portal, tally: &Arc<Tally>) -> Result<Analyzed> {
        self.tally = Some(Arc::clone(tally));
        self.counted = None;
        let began = Instant::now();
        let rows = self.count_rows(&mut portal).await;
        let took = began.elapsed();
        self.tally = None;
        let ran = self.counted.take();
        match rows {
            Ok(rows) => Ok((rows as u64, took, ran)),
            Err(error) => {
                parse::on_large_stack(portal.prepared.depth(), || drop(ran));
                Err(error)
            }
        }
    }

    /// EXECUTE: a portal within the portal.
    pub(super) fn execute(&mut self, sql: &ast::Statement, portal: &mut Portal) -> Result<PortalState> {
        if portal.depth >= EXECUTES_MAX {
            return Err(too_many_executes());
        }
        let (prepared, values) = self.executed(sql)?;
        portal.check_gives(prepared.columns())?;
        let mut inner = Portal::new(prepared, values.into(), portal.formats.clone());
        inner.depth = portal.depth + 1;
        Ok(PortalState::Inner(Box::new(inner)))
    }

    /// The statement that EXECUTE names, and the values of its parameters.
    pub(super) fn executed(&mut self, sql: &ast::Statement) -> Result<(Arc<Prepared>, Vec<Datum>)> {
        let ast::Statement::Execute { name: Some(name), parameters, into, using, immediate, .. } = sql else {
            return Err(SqlError::syntax("syntax error in EXECUTE"));
        };
        if *immediate || !into.is_empty() || !using.is_empty() {
            return Err(SqlError::syntax("syntax error in EXECUTE"));
        }
        let name = single(name)?;
        let prepared = self.named_statement(&name)?.clone();
        let types = prepared.parameter_types().to_vec();
        if types.len() != parameters.len() {
            return Err(SqlError::syntax(format!(
                "wrong number of parameters for prepared statement \"{name}\""
            ))
            .with_detail(format!(
                "Expected {} parameters but got {}.",
                types.len(),
                parameters.len()
            )));
        }
        let mut values: Vec<Datum> = Vec::with_capacity(types.len());
        for (place, (argument, ty)) in parameters.iter().zip(types).enumerate() {
            values.push(self.evaluate_argument(argument, ty, place + 1)?);
        }
        Ok((prepared, values))
    }

    /// What gives the rows of a CREATE TABLE AS: its query, or the one that it EXECUTEs. 42809 if
    /// that is none.
    fn rows_portal(&mut self, query: &ast::Query, statement: &Statement, given: &Given) -> Result<Portal> {
        let Some(execute) = parse::executed_by(query)? else {
            let query = ast::Statement::Query(Box::new(query.clone()));
            let inner = statement.with_command(Command::Sql(Box::new(query)));
            return Ok(given.portal(Arc::new(self.plan_prepared(Some(inner), given.types())?)));
        };
        let (prepared, values) = self.executed(&execute)?;
        let is_query = |of: &Statement| match &of.command {
            Command::Sql(sql) => matches!(sql.as_ref(), ast::Statement::Query(_)),
            _ => false,
        };
        if !prepared.statement().is_some_and(is_query) {
            let message = "prepared statement is not a SELECT";
            return Err(SqlError::new(sqlstate::WRONG_OBJECT_TYPE, message));
        }
        Ok(Portal::new(prepared, values.into(), Vec::new()))
    }

    /// CREATE TABLE AS.
    pub(super) async fn create_table_as(
        &mut self,
        create: &ast::CreateTable,
        statement: &Statement,
        given: &Given,
    ) -> Result<PortalState> {
        let Some(query) = &create.query else { return Err(SqlError::internal("no CREATE TABLE AS")) };
        crate::ddl::create_table::refuse(create)?;
        let kind = Kind::of(create);
        let name = Qualified::from_object_name(&create.name)?;
        let mut portal = self.rows_portal(query, statement, given)?;
        let outputs = portal.prepared.columns().unwrap_or_default();
        if create.columns.len() > outputs.len() {
            return Err(SqlError::syntax("too many column names were specified"));
        }
        let column = |(place, output): (usize, &OutputColumn)| {
            column_of(output, create.columns.get(place).map(|column| fold(&column.name)))
        };
        let columns: Vec<ColumnRequest> = outputs.iter().enumerate().map(column).collect();
        let options = crate::ddl::create_table::storage_options(&create.table_options)?;
        self.await_slow_node().await?;
        self.open_transaction(false);
        let interrupts = self.interrupts();
        let mut work = self.work(&interrupts)?;
        work.require_writable("CREATE TABLE AS")?;
        work.hold_own_role().await?;
        work.warn_of_global(create);
        let schema = work.creation_schema(&name, kind.temporary)?;
        if create.if_not_exists && work.is_taken(&schema.name, &name.name) {
            let message = format!("relation \"{}\" already exists, skipping", name.name);
            work.notice(SqlError::notice(message).with_sqlstate(sqlstate::DUPLICATE_TABLE));
            return Ok(PortalState::Done(CommandTag::Plain("CREATE TABLE AS")));
        }
        if statement.without_rows {
            work.make_table(&name, columns, Vec::new(), options, kind, false).await?;
            let tag = match parse::executed_by(query)? {
                Some(_) => CommandTag::Rows("SELECT", 0),
                None => CommandTag::Plain("CREATE TABLE AS"),
            };
            return Ok(PortalState::Done(tag));
        }
        // The query begins first: it must not see the table.
        let mut batch = Batch::default();
        let mut fetch = Box::pin(self.advance(&mut portal, &mut batch, 0)).await?;
        let mut work = self.work(&interrupts)?;
        let Some(name) = work.make_table(&name, columns, Vec::new(), options, kind, false).await? else {
            return Err(SqlError::internal("CREATE TABLE AS made no table"));
        };
        let table = work.table(&name)?;
        let mut count = 0;
        loop {
            let mut work = self.work(&interrupts)?;
            batch.bytes = 0;
            for row in batch.rows.drain(..) {
                work.insert_row(&table, &row).await?;
                count += 1;
            }
            if fetch != Fetch::SinkFull {
                break;
            }
            fetch = Box::pin(self.advance(&mut portal, &mut batch, 0)).await?;
        }
        Ok(PortalState::Done(CommandTag::Rows("SELECT", count)))
    }
}

/// A column of the table that a query's output becomes, called so if the statement says how.
fn column_of(output: &OutputColumn, name: Option<String>) -> ColumnRequest {
    ColumnRequest {
        name: name.unwrap_or_else(|| output.name.clone()),
        ty: if output.ty.id == TypeId::Unknown { TypeId::Text.into() } else { output.ty },
        collation: None,
        not_null: None,
        default: None,
        serial: false,
        identity: None,
        generated: None,
    }
}
