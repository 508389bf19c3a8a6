//! Grouping: a hash table of keys, an accumulator for each aggregate.
//!
//! Once memory is full no further group is made: rows of the groups there are go on being added,
//! and those of others go to disk, divided by the hash of their keys. When the groups in memory
//! have been given, one part after the other is grouped in the same way. No group is in two parts.
//!
//! ```text
//! rows of a b c a d b, two groups fit      a b in memory, given first      parts: c | d
//! ```

use std::hash::BuildHasher;

use super::Context;
use super::aggregate::AggregateState;
use super::hash::Seeded;
use super::input::{SourceState, holds};
use super::keyed::Keyed;
use super::memory::row_bytes;
use super::packed::{is_packed_stored, pack, pack_stored};
use super::parallel;
use super::scan::LateColumns;
use super::segmented::Segmented;
use super::spill::{DEPTH, Spill, Tape, part_of};
use crate::error::{Result, SqlError};
use crate::expr::Expr;
use crate::plan::{AccessKind, GroupNode, SelectNode, SourceNode};
use crate::row::Row;
use crate::types::Datum;

/// Groups, in the order their first rows came.
pub(crate) struct GroupState {
    groups: Segmented<Grouped>,
    /// The groups of each set by their keys.
    places: Vec<Keyed<usize>>,
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

/// The keys of input rows.
pub(super) struct Keys<'a> {
    /// Which of them each grouping set has.
    sets: &'a [Vec<bool>],
    /// Their places, if they are all places of the frame, and all rows have all of them.
    slots: Option<&'a [usize]>,
    /// What they are in the stored row.
    stored: Option<&'a StoredKeys<'a>>,
    /// Their values of a row whose group may be new, and those of them that a set has.
    values: Vec<Datum>,
    key: Vec<Datum>,
}

/// Keys that are columns of a table that is scanned. The group of a row is told by what is stored
/// of them, and what only groups are told by is read for a new one.
struct StoredKeys<'a> {
    columns: Vec<usize>,
    late: LateColumns<'a>,
}

impl<'a> StoredKeys<'a> {
    /// None if some of these places are something else, or are all needed of each row.
    fn new(source: &'a SourceNode, group: &GroupNode, slots: &[usize]) -> Option<StoredKeys<'a>> {
        let SourceNode::Scan(scan) = source else { return None };
        // Only rows of ranges of the table are given as they are stored.
        if slots.is_empty() || scan.access.unique || !matches!(scan.access.kind, AccessKind::Table) {
            return None;
        }
        let column = |slot: &usize| {
            let column = scan.columns.iter().find(|column| column.slot == *slot)?.column;
            is_packed_stored(scan.table.columns[column].ty.id).then_some(column)
        };
        let columns = slots.iter().map(column).collect::<Option<Vec<usize>>>()?;
        let mut read = vec![];
        let mut reads = |expr: &Expr| expr.for_each_slot(&mut |slot| read.push(slot));
        group.computed.iter().for_each(&mut reads);
        for node in &group.aggregates {
            let order = node.order.iter().map(|(expr, ..)| expr);
            node.arguments.iter().chain(&node.filter).chain(order).for_each(&mut reads);
        }
        let late = LateColumns::new(scan, |slot| slots.contains(&slot) && !read.contains(&slot))?;
        Some(StoredKeys { columns, late })
    }
}

impl<'a> Keys<'a> {
    /// The same for the rows that another thread reads.
    pub(super) fn again(&self) -> Keys<'a> {
        let Keys { sets, slots, stored, .. } = *self;
        Keys { sets, slots, stored, values: vec![], key: vec![] }
    }

    /// The columns that are left to who takes a row.
    pub(super) fn late(&self) -> Option<&'a LateColumns<'a>> {
        self.stored.map(|stored| &stored.late)
    }
}

impl GroupState {
    pub(crate) fn new() -> GroupState {
        GroupState {
            groups: Segmented::default(),
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
        self.groups.iter_mut().flat_map(|group| &mut group.states).for_each(|state| state.release(context));
        self.disk = None;
    }

    /// A pass begins, without groups.
    fn begin(&mut self, sets: usize, context: Context<'_>) -> Result<()> {
        self.groups.give_back(|| context.execution.tick())?;
        for places in &mut self.places {
            places.give_back(|| context.execution.tick())?;
        }
        context.execution.runtime.release(self.bytes);
        self.bytes = 0;
        self.at = 0;
        self.places = (0..sets).map(|_| Keyed::new(&self.seed)).collect();
        Ok(())
    }

    /// The first pass begins.
    pub(super) fn start(&mut self, group: &GroupNode, keys: &Keys<'_>, context: Context<'_>) -> Result<()> {
        self.begin(keys.sets.len(), context)?;
        // A set without keys has one group, even without a row.
        let no_key = vec![Datum::Null; group.keys.len()];
        for (set, has) in keys.sets.iter().enumerate() {
            if !has.contains(&true) {
                self.place(set, &no_key, group, context)?;
            }
        }
        Ok(())
    }

    /// How many groups are in memory.
    pub(super) fn count(&self) -> usize {
        self.groups.len()
    }

    /// Whether all groups are.
    pub(super) fn is_in_memory(&self) -> bool {
        self.disk.is_none()
    }

    /// Takes the groups of rows that come after its own, of one grouping set. There is room for
    /// them.
    pub(super) fn absorb(
        &mut self,
        mut later: GroupState,
        group: &GroupNode,
        context: Context<'_>,
    ) -> Result<()> {
        for Grouped { key, states, .. } in later.groups.iter_mut() {
            context.execution.tick()?;
            let place = self.place(0, key, group, context)?.ok_or_else(lost)?;
            let mut held = 0;
            for (state, later) in self.groups[place].states.iter_mut().zip(states.iter()) {
                held += state.absorb(later)?;
            }
            self.reserve(held, context)?;
        }
        Ok(())
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

    /// Makes the group of a key, if it is not there yet; its place. None if its rows are to go to
    /// disk.
    fn place(
        &mut self,
        set: usize,
        key: &[Datum],
        group: &GroupNode,
        context: Context<'_>,
    ) -> Result<Option<usize>> {
        let packed = pack(key.iter());
        if let Some(&place) = self.places[set].get(packed, key) {
            return Ok(Some(place));
        }
        let aggregates = group.aggregates.iter().filter(|node| node.has_state()).count();
        let bytes = 2 * row_bytes(key) + 64 + 96 * aggregates;
        // What its aggregates sort is accounted for by the sorts.
        let sorts = group.aggregates.iter().any(|node| node.distinct || !node.order.is_empty());
        let own = if sorts { context.execution.runtime.memory() } else { self.bytes };
        if self.is_full(own, bytes, context)? {
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
    fn is_full(&mut self, own: usize, bytes: usize, context: Context<'_>) -> Result<bool> {
        if let Some(disk) = &self.disk
            && (disk.left.is_some() || disk.depth > DEPTH)
        {
            return Ok(disk.left.is_some());
        }
        if self.groups.is_empty() || !context.execution.is_tight(own, bytes) {
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

    /// Adds a row to its group of a set, or puts it on disk. `frame` is what the aggregates look
    /// at.
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
        let slots = if group.sets.is_none() { slots(&group.keys) } else { None };
        let slots = slots.as_deref();
        let stored = slots.and_then(|slots| StoredKeys::new(&select.source, group, slots));
        let (stored, values) = (stored.as_ref(), Vec::with_capacity(group.keys.len()));
        let mut keys = Keys { sets, slots, stored, values, key: vec![] };
        self.start(group, &keys, context)?;
        let (late, first) = (keys.late(), parallel::FIRST_ROWS);
        let is_more = source.for_each(&select.source, late, first, context, frame, &mut |row, frame| {
            self.take(select, group, &mut keys, row, context, frame)
        })?;
        if is_more {
            parallel::take_rest(self, (select, group), &mut keys, source, context, frame)?;
        }
        self.built = true;
        self.end_pass()
    }

    /// Adds an input row to its groups.
    #[inline]
    pub(super) fn take(
        &mut self,
        select: &SelectNode,
        group: &GroupNode,
        keys: &mut Keys<'_>,
        row: Option<&Row<'_>>,
        context: Context<'_>,
        frame: &mut [Datum],
    ) -> Result<()> {
        for (part, place) in group.computed.iter().zip(select.frame..) {
            match part.word(&context.env(frame)) {
                // Mostly there is that of the row before, and nothing has to be let go of.
                Some(word) => match &mut frame[place] {
                    Datum::Numeric(number) => *number = word.into(),
                    other => *other = Datum::Numeric(word.into()),
                },
                None => frame[place] = part.eval(&context.env(frame))?,
            }
        }
        if let Some(place) = self.known(keys, row, frame) {
            return self.add_to(place, group, context, frame);
        }
        if let (Some(row), Some(stored)) = (row, keys.stored) {
            stored.late.read(row, frame)?;
        }
        self.take_new(group, keys, context, frame)
    }

    /// The place of the row's group, if it can be told without a copy of its keys.
    #[inline]
    fn known(&self, keys: &Keys<'_>, row: Option<&Row<'_>>, frame: &[Datum]) -> Option<usize> {
        let slots = keys.slots?;
        // All rows are of the group that there is without a row.
        if slots.is_empty() {
            return Some(0);
        }
        let packed = match (row, keys.stored) {
            (Some(row), Some(stored)) => pack_stored(row, &stored.columns)?,
            _ => pack(slots.iter().map(|slot| &frame[*slot]))?,
        };
        self.places[0].get(Some(packed), &[]).copied()
    }

    /// The same for groups that may be new.
    fn take_new(
        &mut self,
        group: &GroupNode,
        keys: &mut Keys<'_>,
        context: Context<'_>,
        frame: &[Datum],
    ) -> Result<()> {
        let Keys { sets, values, key, .. } = keys;
        values.clear();
        for expr in &group.keys {
            values.push(expr.eval(&context.env(frame))?);
        }
        if group.sets.is_none() {
            return self.add(0, values, group, context, frame);
        }
        for (set, has) in sets.iter().enumerate() {
            key.clear();
            let given = values.iter().zip(has);
            key.extend(given.map(|(value, has)| if *has { value.clone() } else { Datum::Null }));
            self.add(set, key, group, context, frame)?;
        }
        Ok(())
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
        self.begin(group.sets.as_ref().map_or(1, Vec::len), context)?;
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
                        (None, Some(sum)) => states[sum].average(context)?,
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
