//! Window functions that number rows: `row_number`, `rank` and `dense_rank`. Others are left to the analytic executor.

use sqlparser::ast::{Function as FunctionSyntax, FunctionArguments, WindowType};

use super::order::sort_direction;
use super::{Binder, Clause, Ranking, RowsCall, SetReturning};
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{Expr, Typed};
use crate::types::TypeId;

fn ranking(name: &str) -> Option<Ranking> {
    Some(match name {
        "row_number" => Ranking::RowNumber,
        "rank" => Ranking::Rank,
        "dense_rank" => Ranking::DenseRank,
        _ => return None,
    })
}

impl Binder<'_> {
    /// A call with OVER. Its results take places behind the frame's, as those of set-returning calls do.
    pub(super) fn window_function(&mut self, name: &str, syntax: &FunctionSyntax) -> Result<Typed> {
        let plain = syntax.filter.is_none()
            && matches!(&syntax.args, FunctionArguments::List(list) if list.args.is_empty() && list.clauses.is_empty());
        let spec = match &syntax.over {
            Some(WindowType::WindowSpec(spec)) if spec.window_name.is_none() => spec,
            _ => return Err(self.lacks("a window function")),
        };
        let Some(ranking) = ranking(name).filter(|_| plain) else {
            return Err(self.lacks("a window function"));
        };
        self.check_window_allowed()?;
        let mut keys = vec![];
        for expr in &spec.partition_by {
            let typed = self.settled_expression(expr)?;
            self.check_sortable(typed.ty, "equality")?;
            keys.push(typed.expr);
        }
        let partition = keys.len();
        let mut order = vec![];
        for key in &spec.order_by {
            let typed = self.settled_expression(&key.expr)?;
            self.check_sortable(typed.ty, "ordering")?;
            keys.push(typed.expr);
            order.push(sort_direction(&key.options));
        }
        if keys.iter().any(|expr| expr.any(&mut |inner| matches!(inner, Expr::SetResult(_)))) {
            return Err(windowing("window function calls cannot be nested"));
        }
        let level = self.level()?;
        if level.set_returning.iter().any(|set| !matches!(set.call, RowsCall::Ranking { .. })) {
            return Err(self.lacks("a window function beside a set-returning function"));
        }
        let place = level.set_returning.len();
        let call = RowsCall::Ranking { ranking, keys, partition, order };
        level.set_returning.push(SetReturning { call, ty: TypeId::Int8.into() });
        Ok(Typed::new(Expr::SetResult(place), TypeId::Int8))
    }

    fn check_window_allowed(&self) -> Result<()> {
        match self.clause() {
            Clause::Targets | Clause::OrderBy if !self.levels.is_empty() => Ok(()),
            clause => Err(windowing(format!("window functions are not allowed in {}", clause.name()))),
        }
    }
}

fn windowing(message: impl Into<String>) -> SqlError {
    SqlError::new(sqlstate::WINDOWING_ERROR, message.into())
}
