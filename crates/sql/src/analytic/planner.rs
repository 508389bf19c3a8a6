//! Names: from the syntax tree to DataFusion's logical plan, with our catalog and the functions that [`functions`] lists.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{DFSchema, TableReference};
use datafusion::datasource::DefaultTableSource;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::planner::{ContextProvider, ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    AggregateUDF, Expr, HigherOrderUDF, LogicalPlan, ScalarUDF, TableSource, WindowUDF,
};
use datafusion::optimizer::Optimizer;
use datafusion::prelude::SessionConfig;
use datafusion::sql::planner::{NullOrdering, ParserOptions, PlannerContext, SqlToRel};
use parking_lot::Mutex;
use sqlparser::ast::Statement;
use std::sync::LazyLock;

use super::aggregate::Aggregate;
use super::call::{Named, carried};
use super::functions::Whose;
use super::provider::Provider;
use super::syntax::prefix_operator;
use super::{functions, mapping, rewrite};
use crate::catalog::{Catalog, Relation, Table};
use crate::error::{Result, SqlError, sqlstate};
use crate::types::Type;

/// Functions, planners and options; never holds tables. Built once: building it costs more than planning.
pub(super) static TEMPLATE: LazyLock<SessionState> = LazyLock::new(|| {
    let mut config = SessionConfig::new().with_target_partitions(1).with_batch_size(4096);
    let options = config.options_mut();
    options.sql_parser.parse_float_as_decimal = true;
    options.sql_parser.map_string_types_to_utf8view = false;
    options.sql_parser.default_null_ordering = "nulls_max".to_owned();
    options.execution.enable_ansi_mode = true;
    // Without a zone DataFusion takes timestamptz for timestamp. Which one does not matter: instants are in UTC, and the row
    // executor's functions know the session's.
    options.execution.time_zone = Some("UTC".to_owned());
    let mut rules = Optimizer::new().rules;
    // It computes an aggregate from the same aggregate of parts, which holds for DataFusion's own, not for PostgreSQL's.
    rules.retain(|rule| rule.name() != "single_distinct_aggregation_to_group_by");
    SessionStateBuilder::new().with_config(config).with_default_features().with_optimizer_rules(rules).build()
});

/// Binds `statement`, a query, to a logical plan.
pub(super) fn plan(
    statement: &Statement,
    catalog: &Arc<Catalog>,
    search_path: &[String],
    hints: &[Option<Type>],
) -> Result<LogicalPlan> {
    let names = Names { catalog, search_path, tables: Mutex::new(HashMap::new()), refused: Mutex::new(None) };
    let options = ParserOptions::new()
        .with_parse_float_as_decimal(true)
        .with_map_string_types_to_utf8view(false)
        .with_support_varchar_with_length(true)
        .with_default_null_ordering(NullOrdering::NullsMax);
    let planner = SqlToRel::new_with_options(&names, options);
    let types = hints
        .iter()
        .map(|hint| {
            hint.map(|ty| {
                Ok(Arc::new(datafusion::arrow::datatypes::Field::new("", mapping::arrow_type(ty)?, true)))
            })
            .transpose()
        })
        .collect::<Result<Vec<Option<FieldRef>>>>()?;
    if !matches!(statement, Statement::Query(_)) {
        return Err(SqlError::internal("only queries are planned here"));
    }
    let mut context = PlannerContext::new().with_prepare_param_data_types(types);
    planner
        .sql_statement_to_plan_with_context(statement.clone(), &mut context)
        .map_err(|error| names.explain(error))
}

/// The catalog as DataFusion's planner asks for it.
struct Names<'a> {
    catalog: &'a Arc<Catalog>,
    search_path: &'a [String],
    tables: Mutex<HashMap<u32, Known>>,
    /// A function that is not let through, to be named in the answer.
    refused: Mutex<Option<String>>,
}

/// A table that was asked for.
type Known = (Arc<Table>, Arc<dyn TableSource>);

impl Names<'_> {
    /// What really was wrong when planning failed.
    fn explain(&self, error: DataFusionError) -> SqlError {
        if let Some(name) = self.refused.lock().take() {
            return SqlError::unsupported(format!("function {name} in this kind of query"));
        }
        if let DataFusionError::SchemaError(what, _) = error.find_root()
            && let datafusion::common::SchemaError::FieldNotFound { field, .. } = what.as_ref()
        {
            for (table, _) in self.tables.lock().values() {
                let column = table.visible_columns().find(|(_, column)| column.name == field.name);
                if let Some(Err(refused)) = column.map(|(_, column)| mapping::arrow_type(column.ty)) {
                    return refused;
                }
            }
            return SqlError::new(
                sqlstate::UNDEFINED_COLUMN,
                format!("column \"{}\" does not exist", field.name),
            );
        }
        super::failure(error)
    }

    fn choose<T>(
        &self,
        whose: Whose,
        name: &str,
        ours: impl FnOnce() -> T,
        theirs: Option<&Arc<T>>,
    ) -> Option<Arc<T>> {
        match whose {
            Whose::Ours => Some(Arc::new(ours())),
            Whose::Theirs => theirs.cloned(),
            Whose::Refused => {
                *self.refused.lock() = Some(name.to_owned());
                None
            }
            Whose::Nobodys => None,
        }
    }
}

impl ContextProvider for Names<'_> {
    fn get_table_source(&self, name: TableReference) -> DataFusionResult<Arc<dyn TableSource>> {
        let fail = |error: SqlError| DataFusionError::External(Box::new(error));
        let relation = self.catalog.find(self.search_path, name.schema(), name.table());
        let table = match relation {
            Some(Relation::Table(table)) => table,
            Some(other) => {
                return Err(fail(SqlError::unsupported(format!("a {} in this kind of query", other.kind()))));
            }
            None => {
                return Err(fail(SqlError::new(
                    sqlstate::UNDEFINED_TABLE,
                    format!("relation \"{}\" does not exist", name.table()),
                )));
            }
        };
        let mut tables = self.tables.lock();
        if let Some((_, source)) = tables.get(&table.oid) {
            return Ok(source.clone());
        }
        let provider = Arc::new(Provider::new(table).map_err(fail)?);
        let source: Arc<dyn TableSource> = Arc::new(DefaultTableSource::new(provider));
        tables.insert(table.oid, (table.clone(), source.clone()));
        Ok(source)
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &PLANNERS
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        let ours = || ScalarUDF::new_from_impl(Named::new(name));
        if prefix_operator(name).is_some() {
            return Some(Arc::new(ours()));
        }
        self.choose(functions::scalar(name), name, ours, None)
    }

    fn get_higher_order_meta(&self, _name: &str) -> Option<Arc<HigherOrderUDF>> {
        None
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        let ours = || AggregateUDF::new_from_impl(Aggregate::new(name));
        self.choose(functions::aggregate(name), name, ours, TEMPLATE.aggregate_functions().get(name))
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        TEMPLATE.window_functions().get(name).filter(|_| functions::window(name)).cloned()
    }

    fn get_variable_type(&self, _names: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        TEMPLATE.config_options()
    }

    fn udf_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udaf_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udwf_names(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Ours first.
static PLANNERS: LazyLock<Vec<Arc<dyn ExprPlanner>>> = LazyLock::new(|| {
    let mut planners: Vec<Arc<dyn ExprPlanner>> = vec![Arc::new(OwnExpressions)];
    planners.extend(TEMPLATE.expr_planners().iter().cloned());
    planners
});

/// Expressions that are the row executor's.
#[derive(Debug)]
struct OwnExpressions;

type Planned<T> = DataFusionResult<PlannerResult<T>>;

impl ExprPlanner for OwnExpressions {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Planned<RawBinaryExpr> {
        use sqlparser::ast::BinaryOperator;
        if matches!(expr.op, BinaryOperator::And | BinaryOperator::Or) {
            return Ok(PlannerResult::Original(expr));
        }
        let name = crate::bind::operator_name(&expr.op).map_err(carried)?;
        rewrite::operate(&name, expr.left, expr.right, schema).map(PlannerResult::Planned)
    }

    fn plan_extract(&self, arguments: Vec<Expr>) -> Planned<Vec<Expr>> {
        Ok(PlannerResult::Planned(Named::expr("extract", arguments)))
    }

    fn plan_position(&self, arguments: Vec<Expr>) -> Planned<Vec<Expr>> {
        // Of `POSITION(part IN whole)` the whole comes first.
        Ok(PlannerResult::Planned(Named::expr("strpos", arguments)))
    }

    fn plan_substring(&self, arguments: Vec<Expr>) -> Planned<Vec<Expr>> {
        Ok(PlannerResult::Planned(Named::expr("substring", arguments)))
    }

    fn plan_overlay(&self, arguments: Vec<Expr>) -> Planned<Vec<Expr>> {
        Ok(PlannerResult::Planned(Named::expr("overlay", arguments)))
    }
}
