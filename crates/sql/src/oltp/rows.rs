//! Rows of one query: its body, then ORDER BY, OFFSET and LIMIT, conversions; common table expressions first.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::select::SelectRows;
use super::sort::Sorter;
use super::{Context, CteState, Row, row_bytes};
use crate::bind::{Distinct, SetKind};
use crate::error::{Result, SqlError, sqlstate};
use crate::expr::{Env, Expr};
use crate::plan::{Body, CtePlan, Node};
use crate::types::Datum;

/// The state of one query's execution.
pub(crate) struct Rows {
    plan: Arc<Node>,
    body: BodyRows,
    sorted: Option<std::vec::IntoIter<Row>>,
    held: usize,
    skip: u64,
    left: Option<u64>,
}

enum BodyRows {
    Select(Box<SelectRows>),
    Values(usize),
    Set(Box<SetRows>),
}

impl Rows {
    pub(crate) fn new(plan: &Arc<Node>) -> Rows {
        let body = match &plan.body {
            Body::Select(_) => BodyRows::Select(Box::new(SelectRows::new(plan))),
            Body::Values(_) => BodyRows::Values(0),
            Body::SetOperation { left, right, .. } => BodyRows::Set(Box::new(SetRows {
                left: Rows::new(left),
                right: Rows::new(right),
                on_right: false,
                seen: HashSet::new(),
                counts: HashMap::new(),
            })),
        };
        Rows { plan: plan.clone(), body, sorted: None, held: 0, skip: 0, left: None }
    }

    /// Starts, or starts again, with the frames around as they are now.
    pub(crate) fn open(&mut self, context: &Context<'_>) -> Result<()> {
        context.execution.runtime.release(std::mem::take(&mut self.held));
        for cte in &self.plan.ctes {
            materialize(cte, context)?;
        }
        let env = context.env(&[]);
        (self.skip, self.left) = limits(self.plan.limit.as_ref(), self.plan.offset.as_ref(), &env)?;
        self.sorted = None;
        match &mut self.body {
            BodyRows::Select(select) => select.open(context)?,
            BodyRows::Values(place) => *place = 0,
            BodyRows::Set(set) => set.open(context)?,
        }
        if !self.plan.sort.is_empty() && self.left != Some(0) {
            self.sort(context)?;
        }
        Ok(())
    }

    /// Lets go of what it holds.
    pub(crate) fn close(&mut self) {
        *self = Rows::new(&self.plan.clone());
    }

    fn sort(&mut self, context: &Context<'_>) -> Result<()> {
        let plan = self.plan.clone();
        let sifted = matches!(&plan.body, Body::Select(select) if matches!(select.distinct, Distinct::On(_)));
        let wanted = self.left.filter(|_| !sifted).map(|left| left.saturating_add(self.skip));
        let mut sorter = Sorter::new(&plan.sort, wanted);
        while let Some(row) = self.body_next(context)? {
            sorter.add(row, context)?;
        }
        self.held += sorter.held();
        let mut rows = sorter.finish();
        if let Body::Select(select) = &plan.body
            && let Distinct::On(columns) = &select.distinct
        {
            let mut seen: HashSet<Row> = HashSet::new();
            rows.retain(|row| seen.insert(columns.iter().map(|column| row[*column].clone()).collect()));
        }
        self.sorted = Some(rows.into_iter());
        Ok(())
    }

    /// The next row.
    pub(crate) fn next(&mut self, context: &Context<'_>) -> Result<Option<Row>> {
        while self.skip > 0 {
            if self.unlimited(context)?.is_none() {
                return Ok(None);
            }
            self.skip -= 1;
        }
        match &mut self.left {
            Some(0) => return Ok(None),
            Some(left) => *left -= 1,
            None => {}
        }
        let Some(mut row) = self.unlimited(context)? else { return Ok(None) };
        row.truncate(self.plan.width);
        for (value, conversion) in row.iter_mut().zip(&self.plan.conversions) {
            if let Some(cast) = conversion {
                *value = cast.apply(value, context.execution.read.eval.format)?;
            }
        }
        Ok(Some(row))
    }

    fn unlimited(&mut self, context: &Context<'_>) -> Result<Option<Row>> {
        match &mut self.sorted {
            Some(rows) => Ok(rows.next()),
            None => self.body_next(context),
        }
    }

    fn body_next(&mut self, context: &Context<'_>) -> Result<Option<Row>> {
        match &mut self.body {
            BodyRows::Select(select) => select.next(context),
            BodyRows::Values(place) => {
                let Body::Values(rows) = &self.plan.body else { return Ok(None) };
                let Some(row) = rows.get(*place) else { return Ok(None) };
                *place += 1;
                let env = context.env(&[]);
                row.iter().map(|expr| expr.eval(&env)).collect::<Result<Row>>().map(Some)
            }
            BodyRows::Set(set) => {
                let Body::SetOperation { kind, all, .. } = &self.plan.body else { return Ok(None) };
                set.next(*kind, *all, context)
            }
        }
    }
}

/// OFFSET and LIMIT. 2201W and 2201X if negative.
pub(crate) fn limits(
    limit: Option<&Expr>,
    offset: Option<&Expr>,
    env: &Env<'_>,
) -> Result<(u64, Option<u64>)> {
    let count = |expr: Option<&Expr>, what: &str, code: &'static str| -> Result<Option<u64>> {
        let Some(expr) = expr else { return Ok(None) };
        match expr.eval(env)? {
            Datum::Null => Ok(None),
            value => match value.as_i64().map(u64::try_from) {
                Some(Ok(count)) => Ok(Some(count)),
                _ => Err(SqlError::new(code, format!("{what} must not be negative"))),
            },
        }
    };
    let skip = count(offset, "OFFSET", sqlstate::INVALID_ROW_COUNT_IN_RESULT_OFFSET_CLAUSE)?.unwrap_or(0);
    Ok((skip, count(limit, "LIMIT", sqlstate::INVALID_ROW_COUNT_IN_LIMIT_CLAUSE)?))
}

/// Evaluates a common table expression and leaves its rows for those who read it.
fn materialize(cte: &CtePlan, context: &Context<'_>) -> Result<()> {
    let put = |rows: Arc<Vec<Row>>| -> Result<()> {
        let mut states = context.execution.runtime.ctes.borrow_mut();
        match states.get_mut(cte.number) {
            Some(state) => *state = Some(CteState(rows)),
            None => return Err(SqlError::internal("a common table expression without a place")),
        }
        Ok(())
    };
    let mut all = collect(&cte.node, context)?;
    if let Some((recursive, distinct)) = &cte.recursive {
        let mut seen: HashSet<Row> = HashSet::new();
        if *distinct {
            all.retain(|row| seen.insert(row.clone()));
        }
        let mut working = all.clone();
        while !working.is_empty() {
            put(Arc::new(working))?;
            working = collect(recursive, context)?;
            if *distinct {
                working.retain(|row| seen.insert(row.clone()));
            }
            all.extend(working.iter().cloned());
            context.execution.read.interrupt.check()?;
        }
    }
    put(Arc::new(all))
}

/// All rows of a query.
pub(crate) fn collect(plan: &Arc<Node>, context: &Context<'_>) -> Result<Vec<Row>> {
    let mut rows = Rows::new(plan);
    rows.open(context)?;
    let mut all = Vec::new();
    while let Some(row) = rows.next(context)? {
        context.execution.reserve(row_bytes(&row))?;
        all.push(row);
    }
    context.execution.runtime.release(rows.held);
    Ok(all)
}

/// UNION, INTERSECT, EXCEPT.
struct SetRows {
    left: Rows,
    right: Rows,
    on_right: bool,
    seen: HashSet<Row>,
    /// Rows of the right side, for INTERSECT and EXCEPT.
    counts: HashMap<Row, usize>,
}

impl SetRows {
    fn open(&mut self, context: &Context<'_>) -> Result<()> {
        self.on_right = false;
        self.seen.clear();
        self.counts.clear();
        self.left.open(context)
    }

    fn next(&mut self, kind: SetKind, all: bool, context: &Context<'_>) -> Result<Option<Row>> {
        match kind {
            SetKind::Union => self.union(all, context),
            SetKind::Intersect | SetKind::Except => self.compare(kind == SetKind::Intersect, all, context),
        }
    }

    fn union(&mut self, all: bool, context: &Context<'_>) -> Result<Option<Row>> {
        loop {
            let side = if self.on_right { &mut self.right } else { &mut self.left };
            match side.next(context)? {
                None if self.on_right => return Ok(None),
                None => {
                    self.on_right = true;
                    self.right.open(context)?;
                }
                Some(row) if all => return Ok(Some(row)),
                Some(row) => {
                    if !self.seen.contains(&row) {
                        context.execution.reserve(row_bytes(&row))?;
                        self.seen.insert(row.clone());
                        return Ok(Some(row));
                    }
                }
            }
        }
    }

    fn compare(&mut self, intersect: bool, all: bool, context: &Context<'_>) -> Result<Option<Row>> {
        if !self.on_right {
            self.on_right = true;
            self.right.open(context)?;
            while let Some(row) = self.right.next(context)? {
                context.execution.reserve(row_bytes(&row))?;
                *self.counts.entry(row).or_insert(0) += 1;
            }
        }
        while let Some(row) = self.left.next(context)? {
            if !all {
                if self.counts.contains_key(&row) == intersect && self.seen.insert(row.clone()) {
                    context.execution.reserve(row_bytes(&row))?;
                    return Ok(Some(row));
                }
                continue;
            }
            // Each row of the right side answers for one of the left.
            let matched = match self.counts.get_mut(&row) {
                Some(count) if *count > 0 => {
                    *count -= 1;
                    true
                }
                _ => false,
            };
            if matched == intersect {
                return Ok(Some(row));
            }
        }
        Ok(None)
    }
}
