//! Hash joins: the build side is read into a table once; each probe row looks up its partners.

use std::collections::HashMap;

use super::Context;
use super::hash::Seeded;
use super::input::{SourceState, holds};
use super::memory::row_bytes;
use crate::error::Result;
use crate::expr::{Env, Expr};
use crate::plan::HashJoin;
use crate::types::Datum;

/// State of a hash join.
pub(crate) struct HashJoinState {
    probe: SourceState,
    build: SourceState,
    /// Places of the rows with each key; keys with NULL have none.
    table: HashMap<Vec<Datum>, Vec<u32>, Seeded>,
    rows: Vec<Vec<Datum>>,
    /// Which rows have found a partner, in a full join.
    matched: Vec<bool>,
    built: bool,
    bytes: usize,
    stage: Stage,
}

enum Stage {
    /// The next probe row is to be read.
    Probe,
    /// Partners of the probe row in the frame: the places left, and whether one was found already.
    Partners { places: Vec<u32>, at: usize, found: bool },
    /// Build rows without partner, from this place.
    Rest(usize),
}

/// The key of a row; none if a part is NULL, which equals nothing.
fn key_of(exprs: &[Expr], env: &Env<'_>) -> Result<Option<Vec<Datum>>> {
    let mut key = Vec::with_capacity(exprs.len());
    for expr in exprs {
        let value = expr.eval(env)?;
        if value.is_null() {
            return Ok(None);
        }
        key.push(value);
    }
    Ok(Some(key))
}

impl HashJoinState {
    pub(crate) fn new(join: &HashJoin) -> HashJoinState {
        HashJoinState {
            probe: SourceState::new(&join.probe),
            build: SourceState::new(&join.build),
            table: HashMap::default(),
            rows: vec![],
            matched: vec![],
            built: false,
            bytes: 0,
            stage: Stage::Probe,
        }
    }

    pub(crate) fn rewind(&mut self, join: &HashJoin, context: Context<'_>) {
        // The build side may depend on an outer row that has changed.
        self.release(context);
        self.table.clear();
        self.rows.clear();
        self.matched.clear();
        self.built = false;
        self.stage = Stage::Probe;
        self.probe.rewind(&join.probe, context);
        self.build.rewind(&join.build, context);
    }

    pub(crate) fn release(&mut self, context: Context<'_>) {
        context.execution.runtime.release(self.bytes);
        self.bytes = 0;
        self.probe.release(context);
        self.build.release(context);
    }

    fn build(&mut self, join: &HashJoin, context: Context<'_>, frame: &mut [Datum]) -> Result<()> {
        while self.build.next(&join.build, context, frame)? {
            let key = key_of(&join.build_keys, &context.env(frame))?;
            if key.is_none() && !join.full {
                continue;
            }
            let row: Vec<Datum> = join.build_slots.iter().map(|slot| frame[*slot].clone()).collect();
            let bytes = row_bytes(&row) + key.as_ref().map_or(0, |key| row_bytes(key) + 24);
            context.execution.reserve(bytes)?;
            self.bytes += bytes;
            if let Some(key) = key {
                self.table.entry(key).or_default().push(self.rows.len() as u32);
            }
            self.rows.push(row);
        }
        if join.full {
            self.matched = vec![false; self.rows.len()];
        }
        self.built = true;
        Ok(())
    }

    fn put(&self, join: &HashJoin, place: usize, frame: &mut [Datum]) {
        for (slot, value) in join.build_slots.iter().zip(&self.rows[place]) {
            frame[*slot] = value.clone();
        }
    }

    pub(crate) fn next(
        &mut self,
        join: &HashJoin,
        context: Context<'_>,
        frame: &mut [Datum],
    ) -> Result<bool> {
        if !self.built {
            self.build(join, context, frame)?;
        }
        loop {
            match &mut self.stage {
                Stage::Probe => {
                    if !self.probe.next(&join.probe, context, frame)? {
                        if !join.full {
                            return Ok(false);
                        }
                        self.stage = Stage::Rest(0);
                        continue;
                    }
                    let key = key_of(&join.probe_keys, &context.env(frame))?;
                    let places = key.and_then(|key| self.table.get(&key)).cloned().unwrap_or_default();
                    self.stage = Stage::Partners { places, at: 0, found: false };
                }
                Stage::Partners { places, at, found } => {
                    let Some(place) = places.get(*at).map(|place| *place as usize) else {
                        let lonely = join.left && !*found;
                        self.stage = Stage::Probe;
                        if lonely {
                            for slot in &join.build_slots {
                                frame[*slot] = Datum::Null;
                            }
                            return Ok(true);
                        }
                        continue;
                    };
                    *at += 1;
                    let was_found = *found;
                    self.put(join, place, frame);
                    context.execution.tick()?;
                    if holds(&join.on, &context.env(frame))? {
                        if let (Stage::Partners { found, .. }, false) = (&mut self.stage, was_found) {
                            *found = true;
                        }
                        if join.full {
                            self.matched[place] = true;
                        }
                        return Ok(true);
                    }
                }
                Stage::Rest(from) => {
                    let Some(place) = (*from..self.rows.len()).find(|place| !self.matched[*place]) else {
                        return Ok(false);
                    };
                    self.stage = Stage::Rest(place + 1);
                    self.put(join, place, frame);
                    for slot in &join.probe_slots {
                        frame[*slot] = Datum::Null;
                    }
                    return Ok(true);
                }
            }
        }
    }
}
