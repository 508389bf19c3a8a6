//! Common table expressions: their rows, computed as they are asked for.
//!
//! Whoever reads one asks for one chunk after the other, and the next is computed only when
//! somebody has come to the end of what there is: some rows more, or of a recursive one the next
//! step. Once memory is full the chunks there are go to disk, and are read from there by whoever
//! asks for them again. So `WITH RECURSIVE t(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM t)
//! SELECT n FROM t LIMIT 10` ends.
//!
//! The rows of one that refers to a query around the one it belongs to are those of one row there:
//! they are forgotten whenever the query it belongs to begins ([`forget`]).
//!
//! ```text
//! chunk 0   the rows of the non-recursive term
//! chunk 1   the recursive term over chunk 0
//! chunk 2   the recursive term over chunk 1       ... until one is empty
//! ```

use std::sync::Arc;

use super::Context;
use super::keyed::Keyed;
use super::memory::row_bytes;
use super::node::NodeState;
use super::packed::pack;
use super::spill::{Piece, Spill};
use crate::error::{Result, SqlError};
use crate::plan::{CtePlan, Node};
use crate::types::Datum;

/// Rows shared by all who read them.
pub(crate) type Rows = Arc<Vec<Vec<Datum>>>;

/// How far a common table expression is computed.
pub(crate) enum CteState {
    /// The chunks there are.
    Chunks(Chunks),
    /// Within its own recursive part: the rows of the last step.
    Working(Rows),
}

/// The rows of WITH queries that were computed before, as parts of the statement: by their numbers.
pub(crate) type Given = Vec<(usize, Rows)>;

impl CteState {
    /// One whose rows are all there.
    pub(crate) fn complete(rows: Rows) -> CteState {
        CteState::Chunks(Chunks { chunks: vec![Chunk::Held(rows)], complete: true, ..Chunks::default() })
    }
}

/// Chunks of rows so far.
#[derive(Default)]
pub(crate) struct Chunks {
    chunks: Vec<Chunk>,
    /// No more will come.
    complete: bool,
    /// All rows so far, if each is to come once.
    seen: Option<Keyed<()>>,
    /// Where the query is that the rows come from, if it is not recursive.
    input: Option<Box<NodeState>>,
    /// Bytes accounted for the chunks in memory, which are the last ones.
    bytes: usize,
    /// The same for what was seen.
    seen_bytes: usize,
    disk: Option<Box<Spill>>,
}

/// Some rows.
enum Chunk {
    Held(Rows),
    Away(Piece),
}

/// Rows of a chunk, if no step of a recursion says how many there are, take about so much.
const CHUNK_BYTES: usize = 256 << 10;

/// A chunk of the rows of a common table expression, as seen from where they are asked for; none
/// after the last one.
pub(crate) fn chunk(number: usize, at: usize, context: Context<'_>) -> Result<Option<Rows>> {
    let runtime = context.execution.runtime;
    match runtime.ctes.borrow().get(number) {
        Some(Some(CteState::Working(rows))) => return Ok((at == 0).then(|| rows.clone())),
        Some(Some(CteState::Chunks(known))) => {
            if let Some(chunk) = known.get(at)? {
                return Ok(Some(chunk));
            }
            if known.complete {
                return Ok(None);
            }
        }
        _ => {}
    }
    let plan = runtime.cte_plan(number).cloned();
    let plan = plan.ok_or_else(|| SqlError::internal("a WITH query is read but not planned"))?;
    // It is read where it stands, and so sees the queries around that its reader sees.
    let outer = context.outer.filter(|_| plan.correlated);
    let context = Context { execution: context.execution, outer };
    let mut known = match put(&plan, context, None)? {
        Some(CteState::Chunks(known)) => known,
        _ => Chunks::begin(&plan),
    };
    let chunk = known.grow_to(&plan, at, context).and_then(|()| known.get(at));
    put(&plan, context, Some(CteState::Chunks(known)))?;
    chunk
}

/// Puts a state in its place; gives what was there.
fn put(plan: &CtePlan, context: Context<'_>, state: Option<CteState>) -> Result<Option<CteState>> {
    match context.execution.runtime.ctes.borrow_mut().get_mut(plan.number) {
        Some(place) => Ok(std::mem::replace(place, state)),
        None => Err(SqlError::internal("a WITH query without a place")),
    }
}

/// Forgets the rows of those with these numbers: whoever asks for them has them computed anew.
pub(super) fn forget(numbers: impl Iterator<Item = usize>, context: Context<'_>) {
    for number in numbers {
        // What is forgotten may hold queries that forget others in their turn.
        let state = context.execution.runtime.ctes.borrow_mut().get_mut(number).and_then(Option::take);
        if let Some(CteState::Chunks(mut before)) = state {
            before.release(context);
        }
    }
}

impl Chunks {
    fn begin(plan: &CtePlan) -> Chunks {
        let distinct = plan.recursive.as_ref().is_some_and(|(_, distinct)| *distinct);
        Chunks { seen: distinct.then(Keyed::default), ..Chunks::default() }
    }

    fn get(&self, at: usize) -> Result<Option<Rows>> {
        match (self.chunks.get(at), &self.disk) {
            (Some(Chunk::Held(rows)), _) => Ok(Some(rows.clone())),
            (Some(Chunk::Away(piece)), Some(disk)) => Ok(Some(Arc::new(disk.get(*piece)?))),
            _ => Ok(None),
        }
    }

    /// Computes chunks until there is that one, or no more.
    fn grow_to(&mut self, plan: &CtePlan, at: usize, context: Context<'_>) -> Result<()> {
        while !self.complete && self.chunks.len() <= at {
            let rows = match &plan.recursive {
                None => self.read(plan, context)?,
                Some((step, _)) => {
                    let rows = self.step(plan, step, context)?;
                    self.complete = rows.is_empty();
                    rows
                }
            };
            if self.chunks.is_empty() || !rows.is_empty() {
                self.make_room(context)?;
                let bytes = rows.iter().map(|row| row_bytes(row)).sum::<usize>();
                self.bytes += bytes;
                if self.seen.is_some() {
                    self.seen_bytes += bytes;
                }
                self.chunks.push(Chunk::Held(Arc::new(rows)));
            }
        }
        Ok(())
    }

    /// Some rows more.
    fn read(&mut self, plan: &CtePlan, context: Context<'_>) -> Result<Vec<Vec<Datum>>> {
        let input = self.input.get_or_insert_with(|| Box::new(NodeState::new(&plan.node)));
        let (mut rows, mut bytes) = (vec![], 0);
        let mut row = vec![];
        while bytes < CHUNK_BYTES {
            if !input.next(&plan.node, context, &mut row)? {
                self.complete = true;
                input.release(context);
                break;
            }
            bytes += row_bytes(&row);
            context.execution.reserve(row_bytes(&row))?;
            rows.push(std::mem::take(&mut row));
        }
        if self.complete {
            self.input = None;
        }
        Ok(rows)
    }

    /// The next step of a recursion.
    fn step(&mut self, plan: &CtePlan, step: &Node, context: Context<'_>) -> Result<Vec<Vec<Datum>>> {
        let Some(last) = self.chunks.len().checked_sub(1) else {
            return collect(&plan.node, context, self.seen.as_mut());
        };
        let Some(last) = self.get(last)? else { return Err(SqlError::internal("a step without rows")) };
        context.execution.read.interrupt.check()?;
        put(plan, context, Some(CteState::Working(last)))?;
        forget(plan.number + 1..plan.end, context);
        collect(step, context, self.seen.as_mut())
    }

    /// Gives back the memory it accounts for.
    fn release(&mut self, context: Context<'_>) {
        context.execution.runtime.release(self.bytes + self.seen_bytes);
        (self.bytes, self.seen_bytes) = (0, 0);
        if let Some(input) = &mut self.input {
            input.release(context);
        }
    }

    /// Puts the chunks in memory on disk if they are most of what the statement may hold.
    fn make_room(&mut self, context: Context<'_>) -> Result<()> {
        if self.bytes == 0 || !context.execution.is_tight(self.bytes, CHUNK_BYTES) {
            return Ok(());
        }
        if self.disk.is_none() {
            self.disk = Spill::create(context)?.map(Box::new);
        }
        let Some(disk) = &mut self.disk else { return Ok(()) };
        for chunk in &mut self.chunks {
            if let Chunk::Held(rows) = chunk {
                context.execution.tick()?;
                *chunk = Chunk::Away(disk.put(&rows[..])?);
            }
        }
        context.execution.runtime.release(self.bytes);
        self.bytes = 0;
        Ok(())
    }
}

/// All rows of a node, those in `seen` left out.
fn collect(node: &Node, context: Context<'_>, mut seen: Option<&mut Keyed<()>>) -> Result<Vec<Vec<Datum>>> {
    let mut state = NodeState::new(node);
    let mut rows = vec![];
    let mut row = vec![];
    while state.next(node, context, &mut row)? {
        if let Some(seen) = &mut seen {
            let packed = pack(row.iter());
            if seen.get(packed, &row).is_some() {
                continue;
            }
            context.execution.reserve(row_bytes(&row))?;
            seen.insert(packed, &row, ());
        }
        context.execution.reserve(row_bytes(&row))?;
        rows.push(std::mem::take(&mut row));
    }
    state.release(context);
    Ok(rows)
}
