//! One query level: frames from the inputs, grouped, projected, made distinct.

use std::collections::HashSet;
use std::sync::Arc;

use super::aggregate::Groups;
use super::input::InputRows;
use super::table_function::CallRows;
use super::{Context, Row, row_bytes};
use crate::bind::Distinct;
use crate::error::{Result, SqlError};
use crate::plan::{Body, Node, Select};
use crate::types::Datum;

/// The state of one query level.
pub(crate) struct SelectRows {
    plan: Arc<Node>,
    frame: Row,
    input: InputRows,
    groups: Option<std::vec::IntoIter<Row>>,
    sets: Vec<CallRows>,
    set_open: bool,
    seen: HashSet<Row>,
    held: usize,
}

fn select(plan: &Node) -> Result<&Select> {
    match &plan.body {
        Body::Select(select) => Ok(select),
        _ => Err(SqlError::internal("a query level without a SELECT")),
    }
}

impl SelectRows {
    pub(crate) fn new(plan: &Arc<Node>) -> SelectRows {
        let (frame, input) = match &plan.body {
            Body::Select(select) => (vec![Datum::Null; select.frame], InputRows::new(&select.input)),
            _ => (vec![], InputRows::Once(true)),
        };
        SelectRows {
            plan: plan.clone(),
            frame,
            input,
            groups: None,
            sets: vec![],
            set_open: false,
            seen: HashSet::new(),
            held: 0,
        }
    }

    pub(crate) fn open(&mut self, context: &Context<'_>) -> Result<()> {
        context.execution.runtime.release(std::mem::take(&mut self.held));
        self.seen.clear();
        self.set_open = false;
        self.groups = None;
        let plan = self.plan.clone();
        let select = select(&plan)?;
        self.frame.clear();
        self.frame.resize(select.frame, Datum::Null);
        self.input.open(&mut self.frame, context)?;
        if let Some(group) = &select.group {
            let mut groups = Groups::new(group);
            while self.input.next(&mut self.frame, context)? {
                context.execution.tick()?;
                groups.add(&self.frame, context)?;
            }
            self.groups = Some(groups.finish(context)?.into_iter());
        }
        Ok(())
    }

    pub(crate) fn next(&mut self, context: &Context<'_>) -> Result<Option<Row>> {
        let plan = self.plan.clone();
        let select = select(&plan)?;
        loop {
            let row = if select.set_returning.is_empty() {
                if !self.frame_next(select, context)? {
                    return Ok(None);
                }
                let env = context.env(&self.frame);
                let mut row = Vec::with_capacity(select.targets.len());
                for target in &select.targets {
                    row.push(target.eval(&env)?);
                }
                row
            } else {
                match self.set_next(select, context)? {
                    Some(row) => row,
                    None => return Ok(None),
                }
            };
            if self.is_new(select, &row, context)? {
                return Ok(Some(row));
            }
        }
    }

    /// Puts the next frame (or group) into `self.frame`.
    fn frame_next(&mut self, select: &Select, context: &Context<'_>) -> Result<bool> {
        let Some(groups) = &mut self.groups else {
            let found = self.input.next(&mut self.frame, context)?;
            context.execution.tick()?;
            return Ok(found);
        };
        let having = select.group.as_ref().map_or(&[][..], |group| &group.having);
        for group in groups {
            self.frame = group;
            let env = context.env(&self.frame);
            let mut holds = true;
            for condition in having {
                if !condition.test(&env)? {
                    holds = false;
                    break;
                }
            }
            if holds {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A row of a select list with set-returning calls: they advance together, the shorter ones padded with NULLs.
    fn set_next(&mut self, select: &Select, context: &Context<'_>) -> Result<Option<Row>> {
        loop {
            if !self.set_open {
                if !self.frame_next(select, context)? {
                    return Ok(None);
                }
                let env = context.env(&self.frame);
                self.sets = select
                    .set_returning
                    .iter()
                    .map(|set| CallRows::open(&set.call, &env))
                    .collect::<Result<_>>()?;
                self.set_open = true;
            }
            let mut frame = self.frame.clone();
            let mut any = false;
            for set in &mut self.sets {
                match set.next(context)? {
                    Some(mut values) => {
                        any = true;
                        frame.push(if values.is_empty() { Datum::Null } else { values.swap_remove(0) });
                    }
                    None => frame.push(Datum::Null),
                }
            }
            if any {
                let env = context.env(&frame);
                return select
                    .targets
                    .iter()
                    .map(|target| target.eval(&env))
                    .collect::<Result<Row>>()
                    .map(Some);
            }
            self.set_open = false;
        }
    }

    fn is_new(&mut self, select: &Select, row: &[Datum], context: &Context<'_>) -> Result<bool> {
        let key: Row = match &select.distinct {
            Distinct::No => return Ok(true),
            Distinct::All => row[..select.visible].to_vec(),
            // Which of equal rows stays is decided by the order: then the sorted rows are sifted, by `Rows`.
            Distinct::On(_) if !self.plan.sort.is_empty() => return Ok(true),
            Distinct::On(columns) => columns.iter().map(|column| row[*column].clone()).collect(),
        };
        if self.seen.contains(&key) {
            return Ok(false);
        }
        let bytes = row_bytes(&key);
        context.execution.reserve(bytes)?;
        self.held += bytes;
        self.seen.insert(key);
        Ok(true)
    }
}
