//! Joins: inputs that fill a query level's frame, row by row.

use std::collections::HashMap;
use std::sync::Arc;

use super::relation::RelationRows;
use super::{Context, Row, row_bytes};
use crate::error::Result;
use crate::expr::Expr;
use crate::plan::Input;
use crate::types::Datum;

/// The state of an input.
pub(crate) enum InputRows {
    /// One row of nothing; true once it was given.
    Once(bool),
    Relation(Box<RelationRows>),
    Filter(Arc<Input>, Box<InputRows>),
    Loop(Box<LoopRows>),
    Hash(Box<HashRows>),
    Full(Box<FullRows>),
}

pub(crate) struct LoopRows {
    plan: Arc<Input>,
    left: InputRows,
    right: InputRows,
    /// A left row is in the frame, and the right side is open for it.
    on_left: bool,
    matched: bool,
}

pub(crate) struct HashRows {
    plan: Arc<Input>,
    left: InputRows,
    right: InputRows,
    /// Rows of the right side (its slots only) by key.
    table: HashMap<Row, Vec<Row>>,
    key: Option<Row>,
    place: usize,
    matched: bool,
}

pub(crate) struct FullRows {
    plan: Arc<Input>,
    left: InputRows,
    right: InputRows,
    rows: Vec<(Row, bool)>,
    on_left: bool,
    left_done: bool,
    matched: bool,
    place: usize,
}

/// Whether all conditions are TRUE over the frame.
#[inline]
pub(crate) fn holds(conditions: &[Expr], frame: &[Datum], context: &Context<'_>) -> Result<bool> {
    if conditions.is_empty() {
        return Ok(true);
    }
    let env = context.env(frame);
    for condition in conditions {
        if !condition.test(&env)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn take(slots: &[usize], frame: &[Datum]) -> Row {
    slots.iter().map(|slot| frame[*slot].clone()).collect()
}

fn put(slots: &[usize], row: &[Datum], frame: &mut [Datum]) {
    for (slot, value) in slots.iter().zip(row) {
        frame[*slot] = value.clone();
    }
}

fn clear(slots: &[usize], frame: &mut [Datum]) {
    for slot in slots {
        frame[*slot] = Datum::Null;
    }
}

impl InputRows {
    pub(crate) fn new(plan: &Arc<Input>) -> InputRows {
        match &**plan {
            Input::Once => InputRows::Once(true),
            Input::Relation(_) => InputRows::Relation(Box::new(RelationRows::new(plan.clone()))),
            Input::Filter { input, .. } => InputRows::Filter(plan.clone(), Box::new(InputRows::new(input))),
            Input::Loop { left, right, .. } => InputRows::Loop(Box::new(LoopRows {
                plan: plan.clone(),
                left: InputRows::new(left),
                right: InputRows::new(right),
                on_left: false,
                matched: false,
            })),
            Input::Hash { left, right, .. } => InputRows::Hash(Box::new(HashRows {
                plan: plan.clone(),
                left: InputRows::new(left),
                right: InputRows::new(right),
                table: HashMap::new(),
                key: None,
                place: 0,
                matched: false,
            })),
            Input::Full { left, right, .. } => InputRows::Full(Box::new(FullRows {
                plan: plan.clone(),
                left: InputRows::new(left),
                right: InputRows::new(right),
                rows: vec![],
                on_left: false,
                left_done: false,
                matched: false,
                place: 0,
            })),
        }
    }

    /// Starts (again), seeing what is in the frame already.
    pub(crate) fn open(&mut self, frame: &mut Row, context: &Context<'_>) -> Result<()> {
        match self {
            InputRows::Once(given) => {
                *given = false;
                Ok(())
            }
            InputRows::Relation(relation) => relation.open(frame, context),
            InputRows::Filter(_, input) => input.open(frame, context),
            InputRows::Loop(rows) => {
                rows.on_left = false;
                rows.left.open(frame, context)
            }
            InputRows::Hash(rows) => rows.open(frame, context),
            InputRows::Full(rows) => rows.open(frame, context),
        }
    }

    /// Fills the frame with the next row; false after the last.
    pub(crate) fn next(&mut self, frame: &mut Row, context: &Context<'_>) -> Result<bool> {
        match self {
            InputRows::Once(given) => Ok(!std::mem::replace(given, true)),
            InputRows::Relation(relation) => relation.next(frame, context),
            InputRows::Filter(plan, input) => {
                let Input::Filter { conditions, .. } = &**plan else { return Ok(false) };
                while input.next(frame, context)? {
                    context.execution.tick()?;
                    if holds(conditions, frame, context)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            InputRows::Loop(rows) => rows.next(frame, context),
            InputRows::Hash(rows) => rows.next(frame, context),
            InputRows::Full(rows) => rows.next(frame, context),
        }
    }
}

impl LoopRows {
    fn next(&mut self, frame: &mut Row, context: &Context<'_>) -> Result<bool> {
        let Input::Loop { missing, .. } = &*self.plan else { return Ok(false) };
        loop {
            if !self.on_left {
                if !self.left.next(frame, context)? {
                    return Ok(false);
                }
                self.right.open(frame, context)?;
                self.on_left = true;
                self.matched = false;
            }
            if self.right.next(frame, context)? {
                self.matched = true;
                return Ok(true);
            }
            self.on_left = false;
            if let Some(missing) = missing
                && !self.matched
            {
                clear(missing, frame);
                return Ok(true);
            }
        }
    }
}

impl HashRows {
    fn open(&mut self, frame: &mut Row, context: &Context<'_>) -> Result<()> {
        let plan = self.plan.clone();
        let Input::Hash { right_keys, fills, .. } = &*plan else { return Ok(()) };
        self.key = None;
        let mut table: HashMap<Row, Vec<Row>> = HashMap::new();
        self.right.open(frame, context)?;
        while self.right.next(frame, context)? {
            let env = context.env(frame);
            let key = right_keys.iter().map(|expr| expr.eval(&env)).collect::<Result<Row>>()?;
            // NULL equals nothing.
            if key.iter().any(Datum::is_null) {
                continue;
            }
            let row = take(fills, frame);
            context.execution.reserve(row_bytes(&key) + row_bytes(&row))?;
            table.entry(key).or_default().push(row);
        }
        self.table = table;
        self.left.open(frame, context)
    }

    fn next(&mut self, frame: &mut Row, context: &Context<'_>) -> Result<bool> {
        let plan = self.plan.clone();
        let Input::Hash { left_keys, conditions, fills, outer, .. } = &*plan else { return Ok(false) };
        loop {
            if let Some(key) = &self.key {
                let rows = self.table.get(key).map_or(&[][..], |rows| rows);
                while let Some(row) = rows.get(self.place) {
                    self.place += 1;
                    put(fills, row, frame);
                    if holds(conditions, frame, context)? {
                        self.matched = true;
                        return Ok(true);
                    }
                }
                self.key = None;
                if *outer && !self.matched {
                    clear(fills, frame);
                    return Ok(true);
                }
            }
            if !self.left.next(frame, context)? {
                return Ok(false);
            }
            context.execution.tick()?;
            let env = context.env(frame);
            self.key = Some(left_keys.iter().map(|expr| expr.eval(&env)).collect::<Result<Row>>()?);
            self.place = 0;
            self.matched = false;
        }
    }
}

impl FullRows {
    fn open(&mut self, frame: &mut Row, context: &Context<'_>) -> Result<()> {
        let plan = self.plan.clone();
        let Input::Full { right_slots, .. } = &*plan else { return Ok(()) };
        self.rows.clear();
        self.right.open(frame, context)?;
        while self.right.next(frame, context)? {
            let row = take(right_slots, frame);
            context.execution.reserve(row_bytes(&row))?;
            self.rows.push((row, false));
        }
        (self.on_left, self.left_done, self.place) = (false, false, 0);
        self.left.open(frame, context)
    }

    fn next(&mut self, frame: &mut Row, context: &Context<'_>) -> Result<bool> {
        let plan = self.plan.clone();
        let Input::Full { conditions, left_slots, right_slots, .. } = &*plan else { return Ok(false) };
        while !self.left_done {
            if !self.on_left {
                if !self.left.next(frame, context)? {
                    self.left_done = true;
                    self.place = 0;
                    break;
                }
                (self.on_left, self.matched, self.place) = (true, false, 0);
            }
            while self.place < self.rows.len() {
                context.execution.tick()?;
                let (row, used) = &mut self.rows[self.place];
                self.place += 1;
                put(right_slots, row, frame);
                if holds(conditions, frame, context)? {
                    *used = true;
                    self.matched = true;
                    return Ok(true);
                }
            }
            self.on_left = false;
            if !self.matched {
                clear(right_slots, frame);
                return Ok(true);
            }
        }
        while let Some((row, used)) = self.rows.get(self.place) {
            self.place += 1;
            if !*used {
                clear(left_slots, frame);
                put(right_slots, row, frame);
                return Ok(true);
            }
        }
        Ok(false)
    }
}
