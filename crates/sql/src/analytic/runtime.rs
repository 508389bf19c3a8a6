//! Threads, memory and cancellation of analytic queries.
//!
//! All queries share one small runtime of its own, so that connections' threads never run a long scan. Finished
//! batches go to the session through a channel of two: a client that does not read stops its query, not the server. A
//! dropped cursor aborts its query.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::SessionConfig;
use futures_util::StreamExt;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::planner::TEMPLATE;
use super::provider::Loan;
use super::stored::Source;
use super::{Surroundings, call, decode, failure, mapping};
use crate::error::{Result, SqlError};
use crate::types::{Datum, Type};

/// Stack of each thread. Only what is used of it takes memory.
pub(super) const STACK_BYTES: usize = 64 << 20;

/// Where analytic queries run.
pub struct AnalyticRuntime {
    runtime: Option<Runtime>,
    environment: Arc<RuntimeEnv>,
}

impl fmt::Debug for AnalyticRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnalyticRuntime")
    }
}

impl AnalyticRuntime {
    /// `threads` threads, each prepared by `on_start` (to lower its priority); all queries together may hold
    /// `memory_bytes`.
    pub fn new(threads: usize, memory_bytes: usize, on_start: fn()) -> Result<AnalyticRuntime> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads.max(1))
            .thread_name("analytic")
            .thread_stack_size(STACK_BYTES)
            .on_thread_start(on_start)
            .build()
            .map_err(|error| SqlError::internal(format!("cannot start the analytic threads: {error}")))?;
        let environment = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(GreedyMemoryPool::new(memory_bytes)))
            .build_arc()
            .map_err(failure)?;
        Ok(AnalyticRuntime { runtime: Some(runtime), environment })
    }

    pub(super) fn start(
        &self,
        plan: LogicalPlan,
        types: Vec<Type>,
        source: Arc<dyn Source>,
        surroundings: &Surroundings<'_>,
    ) -> Result<AnalyticCursor> {
        let state = self.state(source, surroundings);
        let (sender, receiver) = mpsc::channel(2);
        let runtime =
            self.runtime.as_ref().ok_or_else(|| SqlError::internal("the analytic threads have ended"))?;
        let task = runtime.spawn(async move {
            // The receiver is gone only if nobody wants the answer.
            let _ = match run(plan, state, &sender).await {
                Ok(()) => sender.send(Ok(None)).await,
                Err(error) => sender.send(Err(error)).await,
            };
        });
        Ok(AnalyticCursor {
            receiver,
            types,
            pending: Vec::new().into_iter(),
            task: task.abort_handle(),
            ended: false,
        })
    }

    fn state(&self, source: Arc<dyn Source>, surroundings: &Surroundings<'_>) -> SessionState {
        let mut config: SessionConfig = TEMPLATE.config().clone().with_extension(Arc::new(Loan(source)));
        call::at_moment(config.options_mut(), surroundings);
        let mut state = SessionStateBuilder::new_from_existing(TEMPLATE.clone())
            .with_config(config)
            .with_runtime_env(self.environment.clone())
            .build();
        // Functions get the configuration from here, not from the state.
        let options = state.config_options().clone();
        state.execution_props_mut().mark_start_execution(options);
        let micros = surroundings.format.transaction_time.saturating_add(mapping::EPOCH_MICROS);
        state.execution_props_mut().query_execution_start_time =
            chrono::DateTime::from_timestamp_micros(micros);
        state
    }
}

impl Drop for AnalyticRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Dropping a runtime inside another one's thread would block it.
            runtime.shutdown_timeout(Duration::ZERO);
        }
    }
}

async fn run(plan: LogicalPlan, state: SessionState, sender: &mpsc::Sender<Message>) -> DataFusionResult<()> {
    let optimized = state.optimize(&plan)?;
    let physical = state.query_planner().create_physical_plan(&optimized, &state).await?;
    let mut stream = execute_stream(physical, state.task_ctx())?;
    while let Some(batch) = stream.next().await {
        if sender.send(batch.map(Some)).await.is_err() {
            return Ok(());
        }
        // Long scans never wait; give the other queries their turn.
        tokio::task::yield_now().await;
    }
    Ok::<(), DataFusionError>(())
}

/// What a running query says: rows, its end (none), or why it failed.
type Message = DataFusionResult<Option<RecordBatch>>;

/// A running query's rows.
pub struct AnalyticCursor {
    receiver: mpsc::Receiver<Message>,
    types: Vec<Type>,
    /// Rows of the last batch that were not given yet.
    pending: std::vec::IntoIter<Vec<Datum>>,
    task: AbortHandle,
    /// The end was reached.
    ended: bool,
}

impl fmt::Debug for AnalyticCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnalyticCursor")
    }
}

impl AnalyticCursor {
    /// The next row, or `None` at the end. Cancel-safe.
    pub async fn next_row(&mut self) -> Result<Option<Vec<Datum>>> {
        loop {
            if let Some(row) = self.pending.next() {
                return Ok(Some(row));
            }
            match self.next().await? {
                Some(rows) => self.pending = rows.into_iter(),
                None => return Ok(None),
            }
        }
    }

    /// The next rows, never none of them, or `None` at the end. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<Vec<Vec<Datum>>>> {
        loop {
            match self.receiver.recv().await {
                Some(Ok(None)) => {
                    self.ended = true;
                    return Ok(None);
                }
                None if self.ended => return Ok(None),
                // A query that ended without saying so must not pass for a complete answer.
                None => return Err(SqlError::internal("the analytic query ended too early")),
                Some(Err(error)) => return Err(failure(error)),
                Some(Ok(Some(batch))) if batch.num_rows() == 0 => {}
                Some(Ok(Some(batch))) => return decode::rows(&batch, &self.types).map(Some),
            }
        }
    }
}

impl Drop for AnalyticCursor {
    fn drop(&mut self) {
        self.task.abort();
    }
}
