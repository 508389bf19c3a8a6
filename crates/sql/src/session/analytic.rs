//! SELECTs that run on the analytic executor: planning them, opening their scans, handing on their rows.
//!
//! The scans are opened here, from the session's transaction, before the query starts on its own threads; so it sees
//! the transaction's snapshot and writes, and nothing of the transaction is shared with those threads.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;

use super::planning::Request;
use super::portal::PortalState;
use super::{Action, CommandTag, Fetch, OutputColumn, Planned, Portal, RowSink, Session, SinkState};
use crate::analytic::{AnalyticPlan, Surroundings};
use crate::error::{Result, SqlError};
use crate::expr::RowScan;
use crate::types::Datum;

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
    let tables = plan.tables().iter().map(|(table, _)| table.clone()).collect();
    Planned::new(Action::Analytic(Arc::new(plan)), parameters, Some(columns), tables, state)
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
        let mut scans: HashMap<u32, Vec<Box<dyn RowScan>>> = HashMap::new();
        work.read(|read| -> Result<()> {
            for (table, times) in plan.tables() {
                for _ in 0..*times {
                    let scan = read.reader.scan(table.tree, Bound::Unbounded, Bound::Unbounded, false)?;
                    scans.entry(table.oid).or_default().push(scan);
                }
            }
            Ok(())
        })?;
        let cursor =
            plan.start(runtime, scans, &Surroundings { parameters, format: &format, statement_time })?;
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
            if given == max_rows {
                return Ok(Fetch::Suspended);
            }
            if state == SinkState::Full {
                return Ok(Fetch::SinkFull);
            }
        }
    }
}
