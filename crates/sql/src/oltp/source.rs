//! Rows that feed a statement, and the planning of its expressions.
//!
//! A statement that changes rows is planned in pieces: the query that finds or makes rows, and the
//! expressions evaluated over them. Subqueries in all of them share one numbering of kept results,
//! which the [`Pieces`] count.

use std::sync::Arc;

use sqlparser::ast;

use crate::bind::{Binder, Cte, Query, RowCounts, Taken};
use crate::catalog::Table;
use crate::error::{Result, SqlError};
use crate::expr::Expr;
use crate::plan::{self, CtePlan, CtePlans, Plan};

/// The pieces of a statement planned so far.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    subqueries: usize,
    ctes: usize,
    cte_plans: Vec<Option<Arc<CtePlan>>>,
}

/// Places a statement needs while it runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    pub(crate) subqueries: usize,
    pub(crate) ctes: usize,
    /// The WITH queries of subqueries in the statement's expressions. Its query has its own.
    pub(crate) cte_plans: CtePlans,
}

impl Pieces {
    /// Plans the statement's query. It comes before the expressions.
    pub(crate) fn query(&mut self, binder: &Binder<'_>, query: Query) -> Result<Plan> {
        self.query_by(binder, query, binder.context.row_counts)
    }

    /// The same of a query whose rows are changed or deleted.
    pub(crate) fn query_of_taken(&mut self, binder: &Binder<'_>, query: Query) -> Result<Plan> {
        self.query_by(binder, query, &Taken(binder.context.row_counts))
    }

    fn query_by(&mut self, binder: &Binder<'_>, query: Query, row_counts: &dyn RowCounts) -> Result<Plan> {
        let tables: Vec<Arc<Table>> = binder.tables().to_vec();
        let parameters = binder.parameter_types().unwrap_or_default();
        let plan = plan::plan(query, binder.cte_count(), parameters, tables, row_counts)?;
        self.subqueries = plan.subqueries;
        Ok(plan)
    }

    /// Makes expressions ready to be evaluated.
    pub(crate) fn expressions(&mut self, binder: &Binder<'_>, exprs: &mut [Expr]) -> Result<()> {
        let (ctes, row_counts) = (binder.cte_count(), binder.context.row_counts);
        let planned = plan::plan_expressions(exprs, &mut self.subqueries, ctes, row_counts)?;
        put_among(&mut self.cte_plans, &planned);
        Ok(())
    }

    /// Ends planning: the places needed.
    pub(crate) fn finish(mut self, binder: &Binder<'_>) -> Places {
        self.ctes = binder.cte_count();
        let Pieces { subqueries, ctes, cte_plans } = self;
        Places { subqueries, ctes, cte_plans: cte_plans.into() }
    }
}

/// Puts plans of WITH queries among those that are known, by their numbers.
fn put_among(known: &mut Vec<Option<Arc<CtePlan>>>, more: &[Option<Arc<CtePlan>>]) {
    if known.len() < more.len() {
        known.resize(more.len(), None);
    }
    for (place, plan) in known.iter_mut().zip(more) {
        if plan.is_some() {
            place.clone_from(plan);
        }
    }
}

/// The WITH queries that a statement's query has.
#[derive(Default)]
pub(crate) struct WithQueries<'a> {
    /// Those written before it.
    pub(crate) own: Option<&'a ast::With>,
    /// Those of the statement around it that nobody else reads: in sight already.
    pub(crate) given: Vec<Cte>,
}

impl WithQueries<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.own.is_none() && self.given.is_empty()
    }

    /// Binds the query with these in sight.
    pub(crate) fn bind(
        self,
        binder: &mut Binder<'_>,
        bind: impl FnOnce(&mut Binder<'_>) -> Result<Query>,
    ) -> Result<Query> {
        let mut query = match self.own {
            Some(with) => binder.with_ctes(with, bind)?,
            None => bind(binder)?,
        };
        binder.carry(&mut query, self.given);
        Ok(query)
    }
}

/// Shares a query's plan, once the whole statement's places are known.
pub(crate) fn share(mut plan: Plan, places: &Places) -> Arc<Plan> {
    plan.subqueries = places.subqueries;
    plan.ctes = places.ctes;
    if places.cte_plans.iter().any(Option::is_some) {
        let mut cte_plans = plan.cte_plans.to_vec();
        put_among(&mut cte_plans, &places.cte_plans);
        plan.cte_plans = cte_plans.into();
    }
    Arc::new(plan)
}

/// XX000: a statement that runs without having been planned.
pub(crate) fn unplanned() -> SqlError {
    SqlError::internal("the statement is not planned")
}
