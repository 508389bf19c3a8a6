//! Hash joins: the build side is read into a table once; each probe row looks up its partners.
//!
//! A build side that does not fit into memory is divided by the hash of its keys into parts on
//! disk, and so is the probe side then: rows that are partners are in parts of the same number, so
//! that one part after the other is joined by itself. A part that is still too large is divided
//! again.
//!
//! ```text
//! build 1 2 3 4, two fit     parts: 1 3 | 2 4
//! probe 4 3 9                parts: 3 9 | 4         joined 1 3 with 3 9, then 2 4 with 4
//! ```
//!
//! So its rows come in another order than those of the probe side. Where that one is wanted the
//! probe rows are numbered, and what was joined is sorted by their numbers.

use super::Context;
use super::input::{SourceState, holds};
use super::join_table::{NONE, Table};
use super::sorter::Sorter;
use super::spill::{DEPTH, Spill, Tape, TapeReader, part_of};
use crate::bind::SortKey;
use crate::error::{Result, SqlError};
use crate::expr::{Env, Expr};
use crate::plan::HashJoin;
use crate::types::Datum;

/// Rows that are brought back into the order of the probe side begin with their probe row's number.
const BY_NUMBER: [SortKey; 1] = [SortKey { column: 0, descending: false, nulls_first: false }];

/// State of a hash join.
pub(crate) struct HashJoinState {
    probe: SourceState,
    build: SourceState,
    table: Table,
    built: bool,
    /// Bytes accounted for the table.
    bytes: usize,
    stage: Stage,
    /// The key of the probe row in the frame, and its hash if it can have partners.
    key: Vec<Datum>,
    hash: Option<u64>,
    disk: Option<Box<Disk>>,
    /// The number of the probe row in the frame, if they are numbered.
    number: i64,
    /// What was joined in parts, in the order of the probe side.
    in_order: Option<Box<Sorter>>,
}

#[derive(Clone, Copy)]
enum Stage {
    /// The next probe row is to be read.
    Probe,
    /// Partners of the probe row in the frame: the next place to look at, and whether one was found
    /// already.
    Partners { place: u32, found: bool },
    /// Build rows without partner, from this place.
    Rest(usize),
}

/// A join in parts.
struct Disk {
    spill: Spill,
    /// Those to come.
    parts: Vec<Part>,
    /// The probe rows of the part whose build rows are in the table.
    probe: Option<TapeReader>,
    row: Vec<Datum>,
}

/// Rows that can only be partners of each other: their keys, then the values of their places.
#[derive(Default)]
struct Part {
    build: Tape,
    probe: Tape,
    /// How often its rows were divided.
    depth: u32,
}

fn parts(depth: u32) -> Vec<Part> {
    Tape::parts().into_iter().map(|build| Part { build, depth, ..Part::default() }).collect()
}

/// Evaluates the key of a row into `key`.
fn key_of(exprs: &[Expr], env: &Env<'_>, key: &mut Vec<Datum>) -> Result<()> {
    key.clear();
    for expr in exprs {
        key.push(expr.eval(env)?);
    }
    Ok(())
}

fn lost() -> SqlError {
    SqlError::internal("a join in parts without its file")
}

impl HashJoinState {
    pub(crate) fn new(join: &HashJoin) -> HashJoinState {
        HashJoinState {
            probe: SourceState::new(&join.probe),
            build: SourceState::new(&join.build),
            table: Table::new(join.build_keys.len(), join.build_slots.len()),
            built: false,
            bytes: 0,
            stage: Stage::Probe,
            key: vec![],
            hash: None,
            disk: None,
            number: 0,
            in_order: None,
        }
    }

    pub(crate) fn rewind(&mut self, join: &HashJoin, context: Context<'_>) {
        // The build side may depend on an outer row that has changed.
        self.clear(context);
        self.forget_order(context);
        self.disk = None;
        self.built = false;
        self.stage = Stage::Probe;
        self.probe.rewind(&join.probe, context);
        self.build.rewind(&join.build, context);
    }

    pub(crate) fn release(&mut self, context: Context<'_>) {
        self.clear(context);
        self.forget_order(context);
        self.disk = None;
        self.probe.release(context);
        self.build.release(context);
    }

    fn forget_order(&mut self, context: Context<'_>) {
        if let Some(mut sorter) = self.in_order.take() {
            sorter.release(context);
        }
    }

    /// Empties the table, and asks for what is given back.
    fn give_back(&mut self, context: Context<'_>) -> Result<()> {
        self.table.give_back(|| context.execution.tick())?;
        self.clear(context);
        Ok(())
    }

    /// Empties the table.
    fn clear(&mut self, context: Context<'_>) {
        context.execution.runtime.release(self.bytes);
        self.bytes = 0;
        self.table.clear();
    }

    fn build(&mut self, join: &HashJoin, context: Context<'_>, frame: &mut [Datum]) -> Result<()> {
        let mut parts: Option<Vec<Part>> = None;
        let mut values = Vec::with_capacity(join.build_slots.len());
        while self.build.next(&join.build, context, frame)? {
            key_of(&join.build_keys, &context.env(frame), &mut self.key)?;
            let hash = self.table.hash(&self.key);
            if hash.is_none() && !join.full {
                continue;
            }
            values.clear();
            values.extend(join.build_slots.iter().map(|slot| frame[*slot].clone()));
            let bytes = Table::bytes_of(&self.key, &values);
            if parts.is_none() && context.execution.is_tight(self.bytes, bytes) {
                parts = self.divide_table(0, context)?;
            }
            match (&mut parts, &mut self.disk) {
                (Some(parts), Some(disk)) => {
                    let part = &mut parts[hash.map_or(0, |hash| part_of(hash, 0))];
                    disk.write(&mut part.build, &self.key, &values)?;
                }
                _ => self.hold(hash, bytes, &mut values, context)?,
            }
        }
        match parts {
            Some(parts) => self.divide_probe(join, parts, context, frame)?,
            None => self.table.index(join.full, || context.execution.tick())?,
        }
        self.built = true;
        Ok(())
    }

    /// Puts a row into the table, its key from `self.key`.
    fn hold(
        &mut self,
        hash: Option<u64>,
        bytes: usize,
        values: &mut Vec<Datum>,
        context: Context<'_>,
    ) -> Result<()> {
        context.execution.reserve(bytes)?;
        self.bytes += bytes;
        self.table.push(hash, &mut self.key, values);
        Ok(())
    }

    /// Writes the rows of the table into parts. None if there is no place for files.
    fn divide_table(&mut self, depth: u32, context: Context<'_>) -> Result<Option<Vec<Part>>> {
        if self.disk.is_none() {
            let disk = |spill| Box::new(Disk { spill, parts: vec![], probe: None, row: vec![] });
            self.disk = Spill::create(context)?.map(disk);
        }
        let Some(disk) = &mut self.disk else { return Ok(None) };
        let mut parts = parts(depth);
        for place in 0..self.table.len() {
            context.execution.tick()?;
            let part = &mut parts[self.table.hash_at(place).map_or(0, |hash| part_of(hash, depth))];
            disk.write(&mut part.build, self.table.key(place), self.table.values(place))?;
        }
        self.give_back(context)?;
        Ok(Some(parts))
    }

    /// Reads the whole probe side into the parts.
    fn divide_probe(
        &mut self,
        join: &HashJoin,
        mut parts: Vec<Part>,
        context: Context<'_>,
        frame: &mut [Datum],
    ) -> Result<()> {
        let disk = self.disk.as_mut().ok_or_else(lost)?;
        let mut values = Vec::with_capacity(join.probe_slots.len() + 1);
        let mut numbers = 0i64..;
        while self.probe.next(&join.probe, context, frame)? {
            key_of(&join.probe_keys, &context.env(frame), &mut self.key)?;
            let hash = self.table.hash(&self.key);
            if hash.is_none() && !join.left {
                continue;
            }
            values.clear();
            values.extend(join.probe_slots.iter().map(|slot| frame[*slot].clone()));
            values.extend(numbers.next().filter(|_| join.keeps_order).map(Datum::Int8));
            let part = &mut parts[hash.map_or(0, |hash| part_of(hash, 0))];
            disk.write(&mut part.probe, &self.key, &values)?;
        }
        disk.keep(join, parts)?;
        self.next_part(join, context)?;
        Ok(())
    }

    /// Puts the build rows of the next part into the table. False if there is none.
    fn next_part(&mut self, join: &HashJoin, context: Context<'_>) -> Result<bool> {
        self.give_back(context)?;
        loop {
            let disk = self.disk.as_mut().ok_or_else(lost)?;
            let Some(part) = disk.parts.pop() else { return Ok(false) };
            let mut build = part.build.read();
            let mut split = None;
            let mut row = vec![];
            while build.next(&self.disk.as_ref().ok_or_else(lost)?.spill, &mut row)? {
                context.execution.tick()?;
                let mut values = row.split_off(join.build_keys.len());
                self.key.clear();
                self.key.append(&mut row);
                let hash = self.table.hash(&self.key);
                let bytes = Table::bytes_of(&self.key, &values);
                let too_large = part.depth < DEPTH && context.execution.is_tight(self.bytes, bytes);
                if split.is_none() && too_large && self.table.len() > 0 {
                    split = self.divide_table(part.depth + 1, context)?;
                }
                match (&mut split, &mut self.disk) {
                    (Some(parts), Some(disk)) => {
                        let place = hash.map_or(0, |hash| part_of(hash, part.depth + 1));
                        disk.write(&mut parts[place].build, &self.key, &values)?;
                    }
                    _ => self.hold(hash, bytes, &mut values, context)?,
                }
            }
            let disk = self.disk.as_mut().ok_or_else(lost)?;
            let mut probe = part.probe.read();
            let Some(mut parts) = split else {
                disk.probe = Some(probe);
                self.table.index(join.full, || context.execution.tick())?;
                return Ok(true);
            };
            while probe.next(&disk.spill, &mut row)? {
                context.execution.tick()?;
                let hash = self.table.hash(&row[..join.probe_keys.len()]);
                let place = hash.map_or(0, |hash| part_of(hash, part.depth + 1));
                parts[place].probe.write(&row, &mut disk.spill)?;
            }
            disk.keep(join, parts)?;
        }
    }

    /// Reads the next probe row into the frame, and its key.
    #[inline]
    fn next_probe(&mut self, join: &HashJoin, context: Context<'_>, frame: &mut [Datum]) -> Result<bool> {
        match &mut self.disk {
            None => {
                if !self.probe.next(&join.probe, context, frame)? {
                    return Ok(false);
                }
                key_of(&join.probe_keys, &context.env(frame), &mut self.key)?;
            }
            Some(disk) => {
                context.execution.tick()?;
                let Some(probe) = &mut disk.probe else { return Ok(false) };
                if !probe.next(&disk.spill, &mut disk.row)? {
                    return Ok(false);
                }
                let mut values = disk.row.drain(..);
                self.key.clear();
                self.key.extend(values.by_ref().take(join.probe_keys.len()));
                for (slot, value) in join.probe_slots.iter().zip(values.by_ref()) {
                    frame[*slot] = value;
                }
                if let Some(Datum::Int8(number)) = values.next() {
                    self.number = number;
                }
            }
        }
        self.hash = self.table.hash(&self.key);
        Ok(true)
    }

    fn put(&self, join: &HashJoin, place: usize, frame: &mut [Datum]) {
        for (slot, value) in join.build_slots.iter().zip(self.table.values(place)) {
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
        match join.keeps_order && self.disk.is_some() {
            true => self.next_in_order(join, context, frame),
            false => self.next_pair(join, context, frame),
        }
    }

    /// The next row of a join in parts, in the order of the probe side: all are joined first.
    fn next_in_order(&mut self, join: &HashJoin, context: Context<'_>, frame: &mut [Datum]) -> Result<bool> {
        let slots = || join.probe_slots.iter().chain(&join.build_slots);
        if self.in_order.is_none() {
            let mut sorter = Box::<Sorter>::default();
            while self.next_pair(join, context, frame)? {
                let values = slots().map(|slot| frame[*slot].clone());
                let row = std::iter::once(Datum::Int8(self.number)).chain(values).collect();
                sorter.push(row, &BY_NUMBER, None, context)?;
            }
            sorter.finish(&BY_NUMBER, context)?;
            self.in_order = Some(sorter);
        }
        let mut row = vec![];
        let Some(sorter) = &mut self.in_order else { return Ok(false) };
        if !sorter.next(&BY_NUMBER, context, &mut row)? {
            return Ok(false);
        }
        for (slot, value) in slots().zip(row.into_iter().skip(1)) {
            frame[*slot] = value;
        }
        Ok(true)
    }

    fn next_pair(&mut self, join: &HashJoin, context: Context<'_>, frame: &mut [Datum]) -> Result<bool> {
        loop {
            match self.stage {
                Stage::Probe => {
                    if self.next_probe(join, context, frame)? {
                        let place = self.hash.map_or(NONE, |hash| self.table.first(hash));
                        self.stage = Stage::Partners { place, found: false };
                    } else if join.full {
                        self.stage = Stage::Rest(0);
                    } else if self.disk.is_none() || !self.next_part(join, context)? {
                        return Ok(false);
                    }
                }
                Stage::Partners { place, found } => {
                    let hash = self.hash.unwrap_or_default();
                    let Some(place) = self.table.partner(place, hash, &self.key) else {
                        self.stage = Stage::Probe;
                        if join.left && !found {
                            for slot in &join.build_slots {
                                frame[*slot] = Datum::Null;
                            }
                            return Ok(true);
                        }
                        continue;
                    };
                    self.stage = Stage::Partners { place: self.table.following(place), found };
                    self.put(join, place, frame);
                    context.execution.tick()?;
                    if holds(&join.on, &context.env(frame))? {
                        self.stage = Stage::Partners { place: self.table.following(place), found: true };
                        if join.full {
                            self.table.mark(place);
                        }
                        return Ok(true);
                    }
                }
                Stage::Rest(from) => {
                    if let Some(place) = self.table.unmarked(from) {
                        self.stage = Stage::Rest(place + 1);
                        self.put(join, place, frame);
                        for slot in &join.probe_slots {
                            frame[*slot] = Datum::Null;
                        }
                        return Ok(true);
                    }
                    if self.disk.is_none() || !self.next_part(join, context)? {
                        return Ok(false);
                    }
                    self.stage = Stage::Probe;
                }
            }
        }
    }
}

impl Disk {
    fn write(&mut self, tape: &mut Tape, key: &[Datum], values: &[Datum]) -> Result<()> {
        self.row.clear();
        self.row.extend(key.iter().chain(values).cloned());
        tape.write(&self.row, &mut self.spill)
    }

    /// Keeps the parts from which rows can come.
    fn keep(&mut self, join: &HashJoin, parts: Vec<Part>) -> Result<()> {
        for mut part in parts {
            let gives_rows = match (part.build.rows(), part.probe.rows()) {
                (0, 0) => false,
                (0, _) => join.left,
                (_, 0) => join.full,
                _ => true,
            };
            if gives_rows {
                part.build.close(&mut self.spill)?;
                part.probe.close(&mut self.spill)?;
                self.parts.push(part);
            }
        }
        Ok(())
    }
}
