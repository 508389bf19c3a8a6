//! Grouping: a hash table of keys, an accumulator for each aggregate.
//!
//! Once memory is full no further group is made: rows of the groups there are go on being added, and those of others go to disk, divided by the hash of
//! their keys. When the groups in memory have been given, one part after the other is grouped in the same way. No group is in two parts.
//!
//! ```text
//! rows of a b c a d b, two groups fit      a b in memory, given first      parts: c | d
//! ```

use std::cmp::Ordering;
use std::collections::HashSet;
use std::hash::BuildHasher;

use super::Context;
use super::hash::Seeded;
use super::input::{SourceState, holds};
use super::memory::row_bytes;
use super::packed::{Places, pack};
use super::sort::compare_keys;
use super::spill::{DEPTH, Spill, Tape, part_of};
use crate::error::{Result, SqlError};
use crate::expr::{Env, Expr};
use crate::function::Accumulator;
use crate::merge_sort;
use crate::plan::{AggregateNode, GroupNode, SelectNode};
use crate::types::Datum;

/// Groups, in the order their first rows came.
pub(crate) struct GroupState {
    groups: Vec<Grouped>,
    /// The groups of each set by their keys.
    places: Vec<Places>,
    seed: Seeded,
    at: usize,
    built: bool,
    bytes: usize,
    disk: Option<Box<Disk>>,
}

/// Rows of groups that are not in memory.
struct Disk {
    spill: Spill,
    /// Those that are left by the present pass. While there are any no group is made.
    left: Option<Vec<Tape>>,
    /// How often the rows of the present pass were divided.
    depth: u32,
    /// Parts to come, and how often they were divided.
    parts: Vec<(Tape, u32)>,
    row: Vec<Datum>,
}

/// One group.
struct Grouped {
    /// Its grouping set.
    set: usize,
    /// Its keys; those that the set has not are NULL.
    key: Vec<Datum>,
    states: Vec<AggregateState>,
}

/// Arguments of an aggregate that are so large are asked for before they are added, not after.
const LARGE_ROW: usize = 64 << 10;

/// One aggregate of one group.
struct AggregateState {
    accumulator: Box<dyn Accumulator>,
    /// Memory the accumulator said it has, as accounted for.
    bytes: usize,
    /// Arguments seen, for DISTINCT.
    seen: Option<HashSet<Vec<Datum>, Seeded>>,
    /// Sort keys and arguments, for ORDER BY.
    pending: Vec<(Vec<Datum>, Vec<Datum>)>,
    /// Neither DISTINCT nor ORDER BY.
    is_plain: bool,
    /// The accumulator keeps nothing of what it takes.
    is_flat: bool,
}

impl AggregateState {
    fn new(node: &AggregateNode) -> Result<AggregateState> {
        let accumulator = node
            .function
            .accumulator()
            .ok_or_else(|| SqlError::internal(format!("{} is no aggregate", node.function.function.name)))?;
        Ok(AggregateState {
            is_flat: accumulator.is_flat(),
            accumulator,
            bytes: 0,
            seen: node.distinct.then(HashSet::default),
            pending: vec![],
            is_plain: !node.distinct && node.order.is_empty(),
        })
    }

    /// Takes a row; gives the bytes it holds more than before.
    fn add(&mut self, node: &AggregateNode, env: &Env<'_>) -> Result<usize> {
        if let Some(filter) = &node.filter
            && !filter.test(env)?
        {
            return Ok(0);
        }
        // Most take one value, or none, and nothing else has to be done with it.
        if self.is_plain {
            match node.arguments.as_slice() {
                [] => return self.add_plain(&[], env),
                [argument] => {
                    if let Some(value) = argument.stored(env) {
                        return self.add_plain(std::slice::from_ref(value), env);
                    }
                    return match &argument.value(env) {
                        Ok(value) => self.add_plain(std::slice::from_ref(&**value), env),
                        Err(error) => Err(error.clone()),
                    };
                }
                _ => {}
            }
        }
        self.add_many(node, env)
    }

    #[inline]
    fn add_plain(&mut self, argument: &[Datum], env: &Env<'_>) -> Result<usize> {
        let context = &env.execution.read.eval;
        if self.is_flat {
            return self.accumulator.add(argument, context).map(|()| 0);
        }
        self.make_room(argument, env)?;
        self.accumulator.add(argument, context)?;
        Ok(self.grown())
    }

    /// The same for any number of arguments, DISTINCT and ORDER BY.
    fn add_many(&mut self, node: &AggregateNode, env: &Env<'_>) -> Result<usize> {
        let mut arguments = smallvec::SmallVec::<[Datum; 2]>::new();
        for argument in &node.arguments {
            arguments.push(argument.eval(env)?);
        }
        let mut held = 0;
        if let Some(seen) = &mut self.seen {
            let key = arguments.to_vec();
            let bytes = row_bytes(&key);
            if !seen.insert(key) {
                return Ok(0);
            }
            held += bytes;
        }
        if !node.order.is_empty() {
            let mut keys = Vec::with_capacity(node.order.len());
            for (key, ..) in &node.order {
                keys.push(key.eval(env)?);
            }
            held += row_bytes(&keys) + row_bytes(&arguments);
            self.pending.push((keys, arguments.into_vec()));
            return Ok(held);
        }
        self.make_room(&arguments, env)?;
        self.accumulator.add(&arguments, &env.execution.read.eval)?;
        Ok(held + self.grown())
    }

    /// Large values may make the accumulator move what it has to a place twice as large: asks first whether that may be.
    fn make_room(&self, arguments: &[Datum], env: &Env<'_>) -> Result<()> {
        let is_small = |value: &Datum| match value {
            Datum::Text(text) | Datum::Bpchar(text) | Datum::Jsonb(text) => text.len() < LARGE_ROW / 4,
            Datum::Bytea(_) | Datum::Array(_) | Datum::Record(_) => false,
            _ => true,
        };
        if arguments.iter().all(is_small) {
            return Ok(());
        }
        let coming = row_bytes(arguments);
        if coming < LARGE_ROW {
            return Ok(());
        }
        let bytes = self.bytes.max(self.accumulator.memory()) + coming;
        env.execution.reserve(bytes)?;
        env.execution.runtime.release(bytes);
        Ok(())
    }

    /// Bytes the accumulator has more than when asked before.
    fn grown(&mut self) -> usize {
        let bytes = self.accumulator.memory();
        let grown = bytes.saturating_sub(self.bytes);
        self.bytes = self.bytes.max(bytes);
        grown
    }

    fn finish(&mut self, node: &AggregateNode, context: Context<'_>) -> Result<Datum> {
        let eval = &context.execution.read.eval;
        if !node.order.is_empty() {
            let mut pending = std::mem::take(&mut self.pending);
            let go_on = || context.execution.tick();
            merge_sort::sort(&mut pending, merge_sort::RUN, go_on, |(a, _), (b, _)| {
                for ((a, b), (_, descending, nulls_first)) in a.iter().zip(b).zip(&node.order) {
                    match compare_keys(a, b, *descending, *nulls_first) {
                        Ordering::Equal => {}
                        decided => return decided,
                    }
                }
                Ordering::Equal
            })?;
            for (_, arguments) in &pending {
                context.execution.tick()?;
                self.accumulator.add(arguments, eval)?;
            }
        }
        self.accumulator.finish(eval)
    }
}

impl GroupState {
    pub(crate) fn new() -> GroupState {
        GroupState {
            groups: vec![],
            places: vec![],
            seed: Seeded::default(),
            at: 0,
            built: false,
            bytes: 0,
            disk: None,
        }
    }

    pub(crate) fn release(&mut self, context: Context<'_>) {
        context.execution.runtime.release(self.bytes);
        self.bytes = 0;
        self.disk = None;
    }

    /// A pass begins, without groups.
    fn begin(&mut self, sets: usize, context: Context<'_>) {
        context.execution.runtime.release(self.bytes);
        self.bytes = 0;
        self.groups = vec![];
        self.at = 0;
        self.places = (0..sets).map(|_| Places::new(&self.seed)).collect();
    }

    fn reserve(&mut self, bytes: usize, context: Context<'_>) -> Result<()> {
        if bytes > 0 {
            context.execution.reserve(bytes)?;
            self.bytes += bytes;
        }
        Ok(())
    }

    fn states(group: &GroupNode) -> Result<Vec<AggregateState>> {
        group.aggregates.iter().filter(|node| node.has_state()).map(AggregateState::new).collect()
    }

    /// Makes the group of a key, if it is not there yet; its place. None if its rows are to go to disk.
    fn place(
        &mut self,
        set: usize,
        key: &[Datum],
        group: &GroupNode,
        context: Context<'_>,
    ) -> Result<Option<usize>> {
        let packed = pack(key.iter());
        if let Some(place) = self.places[set].get(packed, key) {
            return Ok(Some(place));
        }
        let aggregates = group.aggregates.iter().filter(|node| node.has_state()).count();
        let bytes = 2 * row_bytes(key) + 64 + 96 * aggregates;
        if self.is_full(bytes, context)? {
            return Ok(None);
        }
        let place = self.groups.len();
        let states = GroupState::states(group)?;
        self.reserve(bytes, context)?;
        self.places[set].insert(packed, key, place);
        self.groups.push(Grouped { set, key: key.to_vec(), states });
        Ok(Some(place))
    }

    /// Whether no further group can be made in this pass.
    fn is_full(&mut self, bytes: usize, context: Context<'_>) -> Result<bool> {
        if let Some(disk) = &self.disk
            && (disk.left.is_some() || disk.depth > DEPTH)
        {
            return Ok(disk.left.is_some());
        }
        if self.groups.is_empty() || !context.execution.is_tight(self.bytes, bytes) {
            return Ok(false);
        }
        if self.disk.is_none() {
            let disk = |spill| Disk { spill, left: None, depth: 0, parts: vec![], row: vec![] };
            self.disk = Spill::create(context)?.map(disk).map(Box::new);
        }
        let Some(disk) = &mut self.disk else { return Ok(false) };
        disk.left = Some(Tape::parts());
        Ok(true)
    }

    /// Adds a row to its group of a set, or puts it on disk. `frame` is what the aggregates look at.
    fn add(
        &mut self,
        set: usize,
        key: &[Datum],
        group: &GroupNode,
        context: Context<'_>,
        frame: &[Datum],
    ) -> Result<()> {
        let Some(place) = self.place(set, key, group, context)? else {
            return self.put_aside(set, key, frame);
        };
        self.add_to(place, group, context, frame)
    }

    /// Adds a row to the group at a place.
    #[inline]
    fn add_to(
        &mut self,
        place: usize,
        group: &GroupNode,
        context: Context<'_>,
        frame: &[Datum],
    ) -> Result<()> {
        let env = context.env(frame);
        let mut held = 0;
        let nodes = group.aggregates.iter().filter(|node| node.has_state());
        for (state, node) in self.groups[place].states.iter_mut().zip(nodes) {
            held += state.add(node, &env)?;
        }
        self.reserve(held, context)
    }

    #[cold]
    fn put_aside(&mut self, set: usize, key: &[Datum], frame: &[Datum]) -> Result<()> {
        let hash = self.seed.hash_one(key);
        let Some(disk) = &mut self.disk else { return Err(lost()) };
        let Disk { spill, left: Some(tapes), depth, row, .. } = &mut **disk else { return Err(lost()) };
        row.clear();
        row.push(Datum::Int8(set as i64));
        row.extend(key.iter().chain(frame).cloned());
        tapes[part_of(hash, *depth)].write(row, spill)
    }

    /// Reads all input rows.
    fn build(
        &mut self,
        select: &SelectNode,
        group: &GroupNode,
        source: &mut SourceState,
        context: Context<'_>,
        frame: &mut [Datum],
    ) -> Result<()> {
        let all = [vec![true; group.keys.len()]];
        let sets: &[Vec<bool>] = group.sets.as_deref().unwrap_or(&all);
        self.begin(sets.len(), context);
        // A set without keys has one group, even without a row.
        let no_key = vec![Datum::Null; group.keys.len()];
        for (set, keys) in sets.iter().enumerate() {
            if !keys.contains(&true) {
                self.place(set, &no_key, group, context)?;
            }
        }
        let mut values = Vec::with_capacity(group.keys.len());
        let mut key = Vec::with_capacity(group.keys.len());
        let slots = if group.sets.is_none() { slots(&group.keys) } else { None };
        while source.next(&select.source, context, frame)? {
            for (part, place) in group.computed.iter().zip(select.frame..) {
                match part.word(&context.env(frame)) {
                    Some(word) => frame[place] = Datum::Numeric(word.into()),
                    None => frame[place] = part.eval(&context.env(frame))?,
                }
            }
            // A key that is in the frame is copied for a new group only.
            let packed = slots.as_ref().and_then(|slots| pack(slots.iter().map(|slot| &frame[*slot])));
            let place = packed.and_then(|packed| self.places[0].get(Some(packed), &[]));
            if let Some(place) = place {
                self.add_to(place, group, context, frame)?;
                continue;
            }
            values.clear();
            for expr in &group.keys {
                values.push(expr.eval(&context.env(frame))?);
            }
            if group.sets.is_none() {
                self.add(0, &values, group, context, frame)?;
                continue;
            }
            for (set, keys) in sets.iter().enumerate() {
                key.clear();
                let given = values.iter().zip(keys);
                key.extend(given.map(|(value, has)| if *has { value.clone() } else { Datum::Null }));
                self.add(set, &key, group, context, frame)?;
            }
        }
        self.built = true;
        self.end_pass()
    }

    /// What the pass has left becomes parts.
    fn end_pass(&mut self) -> Result<()> {
        let Some(disk) = &mut self.disk else { return Ok(()) };
        for mut tape in disk.left.take().into_iter().flatten().filter(|tape| tape.rows() > 0) {
            tape.close(&mut disk.spill)?;
            disk.parts.push((tape, disk.depth + 1));
        }
        Ok(())
    }

    /// Groups the next part. False if there is none.
    fn next_part(&mut self, group: &GroupNode, context: Context<'_>, frame: &mut [Datum]) -> Result<bool> {
        let Some(disk) = &mut self.disk else { return Ok(false) };
        let Some((part, depth)) = disk.parts.pop() else { return Ok(false) };
        disk.depth = depth;
        self.begin(group.sets.as_ref().map_or(1, Vec::len), context);
        let mut part = part.read();
        let (mut row, mut key) = (vec![], vec![]);
        while part.next(&self.disk.as_ref().ok_or_else(lost)?.spill, &mut row)? {
            context.execution.tick()?;
            let mut values = row.drain(..);
            let set = values.next().and_then(|set| set.as_i64()).unwrap_or_default();
            key.clear();
            key.extend(values.by_ref().take(group.keys.len()));
            for (place, value) in frame.iter_mut().zip(values) {
                *place = value;
            }
            self.add(set as usize, &key, group, context, frame)?;
        }
        self.end_pass()?;
        Ok(true)
    }

    /// Puts the next group that satisfies HAVING into `grouped`, its keys first.
    pub(crate) fn next(
        &mut self,
        select: &SelectNode,
        group: &GroupNode,
        source: &mut SourceState,
        context: Context<'_>,
        frame: &mut [Datum],
        grouped: &mut [Datum],
    ) -> Result<bool> {
        if !self.built {
            self.build(select, group, source, context, frame)?;
        }
        loop {
            while let Some(Grouped { set, key, states }) = self.groups.get_mut(self.at) {
                self.at += 1;
                for (place, value) in grouped.iter_mut().zip(key.iter_mut()) {
                    *place = std::mem::take(value);
                }
                let mut at = 0;
                for (place, node) in grouped[group.keys.len()..].iter_mut().zip(&group.aggregates) {
                    *place = match (&node.grouping, node.average_of) {
                        (Some(values), _) => Datum::Int4(values[*set]),
                        (None, Some(sum)) => states[sum].accumulator.average(&context.execution.read.eval)?,
                        (None, None) => {
                            at += 1;
                            states[at - 1].finish(node, context)?
                        }
                    };
                }
                if holds(&group.having, &context.env(grouped))? {
                    return Ok(true);
                }
            }
            if !self.next_part(group, context, frame)? {
                return Ok(false);
            }
        }
    }
}

/// The places of keys that are all places of the frame.
fn slots(keys: &[Expr]) -> Option<Vec<usize>> {
    keys.iter().map(|key| if let Expr::Slot(slot) = key { Some(*slot) } else { None }).collect()
}

fn lost() -> SqlError {
    SqlError::internal("rows of groups on disk without their file")
}
