//! SELECTs that run on the analytic executor: planning them, lending them what they read, handing on their rows.
//!
//! The query's own threads read from a view of the session's transaction: its snapshot and its writes as they are when the statement begins. Nothing
//! of the transaction is shared with them but the read set, in which they note what they read before they hand it on. If the transaction ends before
//! the query, the view still holds the snapshot, and what is read then comes to nobody.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use cognate_engine::{Database, Lent, ReadView};

use super::planning::{Request, Sizes};
use super::portal::PortalState;
use super::work::ViewReader;
use super::{Action, CommandTag, Fetch, OutputColumn, Planned, Portal, RowSink, Session};
use crate::analytic::{AnalyticPlan, Surroundings};
use crate::bind::RowCounts;
use crate::catalog::Table;
use crate::error::{Result, SqlError};
use crate::expr::{Reader, RowScan};
use crate::types::Datum;

/// What a query's threads read.
struct Sight {
    view: ReadView,
    engine: Database,
}

impl Reader for Sight {
    fn get(&self, tree: u32, key: &[u8]) -> Result<Option<Bytes>> {
        ViewReader(&self.view).get(tree, key)
    }

    fn lend(&self, tree: u32, key: &[u8], read: &mut dyn FnMut(Lent<'_>)) -> Result<bool> {
        ViewReader(&self.view).lend(tree, key, read)
    }

    fn scan(
        &self,
        tree: u32,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        reverse: bool,
    ) -> Result<Box<dyn RowScan>> {
        ViewReader(&self.view).scan(tree, lower, upper, reverse)
    }
}

impl RowCounts for Sight {
    fn rows(&self, table: &Table) -> Option<u64> {
        Sizes(&self.engine).rows(table)
    }
}

/// Plans a query that the row executor cannot run; `lacking` is what it said.
pub(super) fn plan(request: &Request<'_>, lacking: SqlError) -> Result<Planned> {
    let mut plan =
        AnalyticPlan::new(request.statement, request.catalog, request.search_path, request.declared)
            .map_err(|error| refusal(&lacking, error))?;
    plan.set_lacking(lacking);
    let columns = plan
        .columns()
        .iter()
        .map(|(name, ty)| OutputColumn { name: name.clone(), ty: *ty, table_oid: 0, attribute_number: 0 })
        .collect();
    Ok(planned(plan, columns, request.state))
}

/// Plans a query that the row executor can run too: names, types and errors of its columns are those found there. 0A000
/// for what the analytic executor does not do exactly alike.
pub(super) fn plan_bound(request: &Request<'_>, columns: Vec<OutputColumn>) -> Result<Planned> {
    let mut plan =
        AnalyticPlan::new(request.statement, request.catalog, request.search_path, request.declared)
            .map_err(|error| match error.sqlstate {
                "0A000" | "22012" | "22003" | "22P02" | "22007" | "22008" => error,
                // The query is right; what stands against it is not PostgreSQL's.
                _ => SqlError::unsupported("this query on the analytic executor")
                    .with_detail(error.message.clone()),
            })?;
    plan.set_columns(columns.iter().map(|column| (column.name.clone(), column.ty)).collect())?;
    Ok(planned(plan, columns, request.state))
}

/// What neither executor can do is named by the row executor, in PostgreSQL's words.
fn refusal(lacking: &SqlError, error: SqlError) -> SqlError {
    if error.sqlstate == "0A000" { lacking.clone().with_detail(error.message.clone()) } else { error }
}

fn planned(plan: AnalyticPlan, columns: Vec<OutputColumn>, state: u64) -> Planned {
    let parameters = plan.parameters().to_vec();
    let tables = plan.tables().to_vec();
    Planned::new(Action::Analytic(Arc::new(plan)), parameters, Some(columns.into()), tables, state)
}

impl Session {
    /// Starts a query on the analytic threads.
    pub(super) fn start_analytic(
        &mut self,
        plan: &Arc<AnalyticPlan>,
        parameters: &Arc<[Datum]>,
    ) -> Result<PortalState> {
        let database = self.database.clone();
        let runtime = database.analytic()?;
        let format = self.format.clone();
        let interrupts = self.interrupts();
        let work = self.work(&interrupts)?;
        let statement_time = work.statement_time;
        let source = Arc::new(Sight { view: work.view.clone(), engine: database.engine().clone() });
        let cursor =
            plan.start(runtime, source, &Surroundings { parameters, format: &format, statement_time })?;
        Ok(PortalState::Analytic { cursor: Box::new(cursor), rows: 0 })
    }

    /// Gives rows from the analytic executor.
    pub(super) async fn pump_analytic(
        &mut self,
        portal: &mut Portal,
        sink: &mut (dyn RowSink + Send),
        max_rows: u64,
    ) -> Result<Fetch> {
        let interrupts = self.interrupts();
        let PortalState::Analytic { cursor, rows } = &mut portal.state else {
            return Err(SqlError::internal("the portal has no analytic cursor"));
        };
        let columns = portal.columns.as_deref().unwrap_or_default();
        let mut given = 0;
        loop {
            let next = interrupts.lock(cursor.next_row()).await.map_err(|error| {
                match &portal.prepared.planned().action {
                    Action::Analytic(plan) => match plan.lacking() {
                        Some(lacking) => refusal(lacking, error),
                        None => error,
                    },
                    _ => error,
                }
            });
            let Some(row) = next? else {
                let tag = CommandTag::Rows("SELECT", *rows);
                portal.state = PortalState::Done(tag);
                return Ok(Fetch::Complete(tag));
            };
            given += 1;
            *rows += 1;
            let state = sink.row(columns, &portal.formats, &row, &self.format);
            if let Some(stop) = Fetch::stop(given, max_rows, state) {
                return Ok(stop);
            }
        }
    }
}
