//! Tables as DataFusion sees them.
//!
//! A [`TableSource`] knows only the table's definition. Its rows come, at execution, from the [`ScanSet`] that
//! travels in the query's session configuration: one scan for each mention of the table, opened by the session.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::array::RecordBatchOptions;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::{DefaultTableSource, TableType};
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use parking_lot::Mutex;

use super::encode::Builder;
use super::mapping::arrow_type;
use crate::catalog::Table;
use crate::error::{Result, SqlError};
use crate::expr::RowScan;

/// Rows in a batch.
const BATCH_ROWS: usize = 4096;

/// The scans of one query, by table oid. Each is taken once.
pub(super) struct ScanSet(Mutex<HashMap<u32, Vec<Box<dyn RowScan>>>>);

impl ScanSet {
    pub(super) fn new(rows: HashMap<u32, Vec<Box<dyn RowScan>>>) -> Arc<ScanSet> {
        Arc::new(ScanSet(Mutex::new(rows)))
    }

    fn take(&self, oid: u32) -> Option<Box<dyn RowScan>> {
        self.0.lock().get_mut(&oid)?.pop()
    }
}

/// A table's definition for DataFusion, without the columns that Arrow cannot hold exactly.
pub(super) struct Provider {
    table: Arc<Table>,
    places: Vec<usize>,
    schema: SchemaRef,
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table {}", self.table.name)
    }
}

impl Provider {
    pub(super) fn new(table: &Arc<Table>) -> Result<Provider> {
        let mut places = Vec::new();
        let mut fields = Vec::new();
        for (place, column) in table.visible_columns() {
            // A column that cannot be held is left out; the planner says why when it is named.
            let Ok(ty) = arrow_type(column.ty) else { continue };
            places.push(place);
            fields.push(Field::new(&column.name, ty, !column.not_null));
        }
        Ok(Provider { table: table.clone(), places, schema: Arc::new(Schema::new(fields)) })
    }
}

#[async_trait::async_trait]
impl TableProvider for Provider {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let (schema, places) = match projection {
            None => (self.schema.clone(), self.places.clone()),
            Some(chosen) => (
                Arc::new(self.schema.project(chosen)?),
                chosen.iter().filter_map(|place| self.places.get(*place).copied()).collect(),
            ),
        };
        let partition = Partition { table: self.table.clone(), places, schema: schema.clone() };
        Ok(Arc::new(StreamingTableExec::try_new(
            schema,
            vec![Arc::new(partition)],
            None,
            None,
            false,
            limit,
        )?))
    }
}

/// Reads one scan into batches.
struct Partition {
    table: Arc<Table>,
    places: Vec<usize>,
    schema: SchemaRef,
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "scan of {}", self.table.name)
    }
}

impl PartitionStream for Partition {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let scan =
            context.session_config().get_extension::<ScanSet>().and_then(|scans| scans.take(self.table.oid));
        let reader = Batches {
            table: self.table.clone(),
            places: self.places.clone(),
            schema: self.schema.clone(),
            scan,
            done: false,
        };
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), futures_util::stream::iter(reader)))
    }
}

struct Batches {
    table: Arc<Table>,
    places: Vec<usize>,
    schema: SchemaRef,
    scan: Option<Box<dyn RowScan>>,
    done: bool,
}

impl Batches {
    fn read(&mut self) -> Result<Option<RecordBatch>> {
        let scan = self
            .scan
            .as_mut()
            .ok_or_else(|| SqlError::internal("a table is scanned more often than planned"))?;
        let layout = self.table.layout();
        let mut builders = self
            .places
            .iter()
            .map(|place| Builder::new(self.table.columns[*place].ty, BATCH_ROWS))
            .collect::<Result<Vec<_>>>()?;
        let mut rows = 0;
        while rows < BATCH_ROWS {
            let entry = if scan.advance()? { scan.entry() } else { None };
            let Some((_, stored)) = entry else { break };
            let row = layout.open(stored)?;
            for (place, builder) in self.places.iter().zip(&mut builders) {
                match row.get(*place)? {
                    Some(datum) => builder.append(&datum)?,
                    None => builder.append(&self.table.columns[*place].missing)?,
                }
            }
            rows += 1;
        }
        if rows == 0 {
            return Ok(None);
        }
        let columns = builders.iter_mut().map(Builder::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map(Some)
            .map_err(|error| SqlError::internal(error.to_string()))
    }
}

impl Iterator for Batches {
    type Item = DataFusionResult<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        match self.read() {
            Ok(Some(batch)) => Some(Ok(batch)),
            Ok(None) => {
                self.done = true;
                None
            }
            Err(error) => {
                self.done = true;
                Some(Err(DataFusionError::External(Box::new(error))))
            }
        }
    }
}

/// The tables of a plan, subqueries included, and how often each is mentioned.
pub(super) fn mentioned(plan: &LogicalPlan) -> Result<Vec<(Arc<Table>, usize)>> {
    let mut found: Vec<(Arc<Table>, usize)> = Vec::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Some(source) = (scan.source.as_ref() as &dyn Any).downcast_ref::<DefaultTableSource>()
            && let Some(provider) = (source.table_provider.as_ref() as &dyn Any).downcast_ref::<Provider>()
        {
            match found.iter_mut().find(|(table, _)| table.oid == provider.table.oid) {
                Some((_, count)) => *count += 1,
                None => found.push((provider.table.clone(), 1)),
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .map_err(super::failure)?;
    Ok(found)
}
