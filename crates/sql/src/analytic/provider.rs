//! Tables as DataFusion sees them.
//!
//! A [`TableSource`] knows only the table's definition. Its rows come, at execution, from the [`Loan`] that travels in the query's session
//! configuration: what the session's transaction sees. Each mention of a table reads by the conditions that DataFusion pushes down to it
//! ([`filter`](super::filter)), and notes as read what it reads.

use std::any::Any;
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
use datafusion::logical_expr::{Expr, LogicalPlan, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};

use cognate_engine::Lent;

use super::encode::Builder;
use super::filter::Columns;
use super::mapping::arrow_type;
use super::stored::{Source, StoredRows};
use crate::catalog::Table;
use crate::error::{Result, SqlError};
use crate::plan::{Access, KeyCondition, access_by_constants};
use crate::row::RowLayout;

/// Rows in a batch.
const BATCH_ROWS: usize = 4096;

/// What one query reads, as an extension of its configuration.
pub(super) struct Loan(pub(super) Arc<dyn Source>);

/// The size of a table that nothing is known of.
const USUAL_ROWS: u64 = 1000;

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

    fn condition(&self, filter: &Expr) -> Option<(usize, KeyCondition)> {
        Columns { table: &self.table, places: &self.places, schema: &self.schema }.condition(filter)
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

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> DataFusionResult<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| match self.condition(filter) {
            Some(_) => TableProviderFilterPushDown::Inexact,
            None => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(support).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let (schema, places) = match projection {
            None => (self.schema.clone(), self.places.clone()),
            Some(chosen) => (
                Arc::new(self.schema.project(chosen)?),
                chosen.iter().filter_map(|place| self.places.get(*place).copied()).collect(),
            ),
        };
        let loan = state.config().get_extension::<Loan>();
        let rows = loan.and_then(|loan| loan.0.rows(&self.table)).unwrap_or(USUAL_ROWS);
        let conditions: Vec<_> = filters.iter().filter_map(|filter| self.condition(filter)).collect();
        let access = access_by_constants(&self.table, rows as f64, &conditions);
        let partition = Partition { table: self.table.clone(), access, places, schema: schema.clone() };
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

/// One mention of a table.
struct Partition {
    table: Arc<Table>,
    access: Access,
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
        let loan = context.session_config().get_extension::<Loan>();
        let rows = loan
            .ok_or_else(|| SqlError::internal("a query has nothing to read from"))
            .and_then(|loan| StoredRows::new(loan.0.clone(), self.table.clone(), &self.access));
        let reader = Batches {
            table: self.table.clone(),
            places: self.places.clone(),
            schema: self.schema.clone(),
            rows,
            done: false,
        };
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), futures_util::stream::iter(reader)))
    }
}

struct Batches {
    table: Arc<Table>,
    places: Vec<usize>,
    schema: SchemaRef,
    rows: Result<StoredRows>,
    done: bool,
}

impl Batches {
    fn read(&mut self) -> Result<Option<RecordBatch>> {
        let stored = self.rows.as_mut().map_err(|error| error.clone())?;
        let layout = self.table.layout();
        let mut builders = self
            .places
            .iter()
            .map(|place| Builder::new(self.table.columns[*place].ty, BATCH_ROWS))
            .collect::<Result<Vec<_>>>()?;
        let mut rows = 0;
        while rows < BATCH_ROWS {
            let mut appended = Ok(());
            let found = stored.next(&mut |row| {
                appended = append(&self.table, layout, row, &self.places, &mut builders);
            })?;
            appended?;
            if !found {
                break;
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

fn append(
    table: &Table,
    layout: &RowLayout,
    row: Lent<'_>,
    places: &[usize],
    builders: &mut [Builder],
) -> Result<()> {
    let row = layout.open(row)?;
    for (place, builder) in places.iter().zip(builders) {
        match row.get(*place)? {
            Some(datum) => builder.append(&datum)?,
            None => builder.append(&table.columns[*place].missing)?,
        }
    }
    Ok(())
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

/// The tables of a plan, subqueries included.
pub(super) fn mentioned(plan: &LogicalPlan) -> Result<Vec<Arc<Table>>> {
    let mut found: Vec<Arc<Table>> = Vec::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Some(source) = (scan.source.as_ref() as &dyn Any).downcast_ref::<DefaultTableSource>()
            && let Some(provider) = (source.table_provider.as_ref() as &dyn Any).downcast_ref::<Provider>()
            && found.iter().all(|table| table.oid != provider.table.oid)
        {
            found.push(provider.table.clone());
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .map_err(super::failure)?;
    Ok(found)
}
