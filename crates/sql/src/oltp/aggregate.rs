//! One aggregate of one group: its accumulator, and the values that it is to get once only or in an
//! order.
//!
//! Values with ORDER BY go through a sort, on disk if need be. Of values with DISTINCT those that
//! were seen are remembered; once memory is full no further ones are, and values that are not known
//! go through a sort, too, where equal ones come one after the other.
//!
//! ```text
//! count(DISTINCT v) of 1 2 3 1 4 3 4, two fit      seen: 1 2, counted at once      sorted: 3 3 4 4, counted in the end: 4
//! ```

use super::Context;
use super::keyed::Keyed;
use super::memory::row_bytes;
use super::packed::pack;
use super::sorter::Sorter;
use crate::bind::SortKey;
use crate::error::{Result, SqlError};
use crate::expr::{Env, Execution};
use crate::function::{Accumulator, is_ordered_set};
use crate::plan::AggregateNode;
use crate::types::Datum;

/// Arguments of an aggregate that are so large are asked for before they are added, not after.
const LARGE_ROW: usize = 64 << 10;

/// One aggregate of one group.
pub(super) struct AggregateState {
    accumulator: Box<dyn Accumulator>,
    /// Memory the accumulator said it has, as accounted for.
    bytes: usize,
    /// Neither DISTINCT nor ORDER BY.
    is_plain: bool,
    /// The accumulator keeps nothing of what it takes.
    is_flat: bool,
    /// It is `count(*)`, and its accumulator hears of no row.
    counts_rows: bool,
    /// Rows that it has counted itself.
    rows: i64,
    seen: Option<Box<Seen>>,
    sorted: Option<Box<Sorted>>,
}

/// Arguments seen, for DISTINCT.
#[derive(Default)]
struct Seen {
    arguments: Keyed<()>,
    /// No further ones are remembered.
    is_full: bool,
}

/// Sort keys and arguments, to be added in the end.
struct Sorted {
    sorter: Sorter,
    keys: Vec<SortKey>,
}

impl Sorted {
    fn new(node: &AggregateNode) -> Box<Sorted> {
        let order = node.order.iter().enumerate().map(|(column, &(_, descending, nulls_first))| SortKey {
            column,
            descending,
            nulls_first,
        });
        // Equal ones are to be next to each other.
        let arguments = (node.order.len()..node.order.len() + node.arguments.len()).filter(|_| node.distinct);
        let arguments = arguments.map(|column| SortKey { column, descending: false, nulls_first: false });
        Box::new(Sorted { sorter: Sorter::default(), keys: order.chain(arguments).collect() })
    }
}

impl AggregateState {
    pub(super) fn new(node: &AggregateNode) -> Result<AggregateState> {
        let accumulator = node
            .function
            .accumulator()
            .ok_or_else(|| SqlError::internal(format!("{} is no aggregate", node.function.function.name)))?;
        let is_plain = !node.distinct && node.order.is_empty();
        let counts_rows = is_plain && node.arguments.is_empty() && node.function.function.name == "count";
        Ok(AggregateState {
            is_flat: accumulator.is_flat(),
            counts_rows,
            rows: 0,
            accumulator,
            bytes: 0,
            is_plain,
            seen: node.distinct.then(Box::default),
            sorted: None,
        })
    }

    /// Whether what several of them have taken can be put together.
    pub(super) fn is_divisible(node: &AggregateNode) -> bool {
        let accumulator = node.function.accumulator();
        !node.distinct && node.order.is_empty() && accumulator.is_some_and(|fresh| fresh.partial().is_some())
    }

    /// Takes what another one has taken, of rows that come after its own; gives the bytes it holds
    /// more than before.
    pub(super) fn absorb(&mut self, later: &AggregateState) -> Result<usize> {
        self.rows += later.rows;
        let not_divisible = || SqlError::internal("an aggregate without parts was divided");
        self.accumulator.absorb(later.accumulator.partial().ok_or_else(not_divisible)?)?;
        Ok(self.grown())
    }

    /// Gives back what its sort accounts for.
    pub(super) fn release(&mut self, context: Context<'_>) {
        if let Some(mut sorted) = self.sorted.take() {
            sorted.sorter.release(context);
        }
    }

    /// Takes a row; gives the bytes it holds more than before, but for those of its sort.
    pub(super) fn add(&mut self, node: &AggregateNode, env: &Env<'_>) -> Result<usize> {
        if let Some(filter) = &node.filter
            && !filter.test(env)?
        {
            return Ok(0);
        }
        if self.counts_rows {
            self.rows += 1;
            return Ok(0);
        }
        // Most take one value, or none, and nothing else has to be done with it.
        if self.is_plain {
            match node.arguments.as_slice() {
                [] => return self.accumulate(&[], env.execution),
                [argument] => {
                    if let Some(value) = argument.stored(env) {
                        return self.accumulate(std::slice::from_ref(value), env.execution);
                    }
                    return match &argument.value(env) {
                        Ok(value) => self.accumulate(std::slice::from_ref(&**value), env.execution),
                        Err(error) => Err(error.clone()),
                    };
                }
                _ => {}
            }
        }
        self.add_many(node, env)
    }

    /// The same for any number of arguments, DISTINCT and ORDER BY.
    fn add_many(&mut self, node: &AggregateNode, env: &Env<'_>) -> Result<usize> {
        let mut arguments = smallvec::SmallVec::<[Datum; 2]>::new();
        for argument in &node.arguments {
            arguments.push(argument.eval(env)?);
        }
        let mut held = 0;
        let mut is_late = false;
        if let Some(seen) = &mut self.seen {
            let packed = pack(arguments.iter());
            if seen.arguments.get(packed, &arguments).is_some() {
                return Ok(0);
            }
            // What is left is for the sorts of all groups.
            let is_much = env.execution.runtime.memory() > env.execution.read.memory_limit / 4 * 3;
            seen.is_full |= is_much && !seen.arguments.is_empty();
            is_late = seen.is_full;
            if !is_late {
                seen.arguments.insert(packed, &arguments, ());
                held = row_bytes(&arguments);
            }
        }
        if is_late || !node.order.is_empty() {
            let mut row = Vec::with_capacity(node.order.len() + arguments.len());
            for (key, ..) in &node.order {
                row.push(key.eval(env)?);
            }
            row.extend(arguments);
            let sorted = self.sorted.get_or_insert_with(|| Sorted::new(node));
            let context = Context { execution: env.execution, outer: env.outer };
            sorted.sorter.push(row, &sorted.keys, None, context)?;
            return Ok(held);
        }
        Ok(held + self.accumulate(&arguments, env.execution)?)
    }

    /// Adds arguments to the accumulator; gives the bytes that it has more than before.
    #[inline]
    fn accumulate(&mut self, arguments: &[Datum], execution: Execution<'_>) -> Result<usize> {
        if self.is_flat {
            return self.accumulator.add(arguments, &execution.read.eval).map(|()| 0);
        }
        self.make_room(arguments, execution)?;
        self.accumulator.add(arguments, &execution.read.eval)?;
        Ok(self.grown())
    }

    /// The bytes that the accumulator has more than it ever had.
    #[inline]
    fn grown(&mut self) -> usize {
        let bytes = self.accumulator.memory();
        let grown = bytes.saturating_sub(self.bytes);
        self.bytes = self.bytes.max(bytes);
        grown
    }

    /// Large values may make the accumulator move what it has to a place twice as large: asks first
    /// whether that may be.
    fn make_room(&self, arguments: &[Datum], execution: Execution<'_>) -> Result<()> {
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
        execution.reserve(bytes)?;
        execution.runtime.release(bytes);
        Ok(())
    }

    /// The average, where the accumulator has kept a sum and a count for two aggregates.
    pub(super) fn average(&self, context: Context<'_>) -> Result<Datum> {
        self.accumulator.average(&context.execution.read.eval)
    }

    /// The aggregate's value: all rows are there.
    pub(super) fn finish(&mut self, node: &AggregateNode, context: Context<'_>) -> Result<Datum> {
        if self.counts_rows {
            return Ok(Datum::Int8(self.rows));
        }
        if let Some(mut sorted) = self.sorted.take() {
            let held = self.add_sorted(node, &mut sorted, context);
            sorted.sorter.release(context);
            // What the accumulator holds is a value now.
            context.execution.runtime.release(held?);
        } else if !self.is_plain && is_ordered_set(node.function.function.name) {
            self.add_direct(node, context)?;
        }
        self.accumulator.finish(&context.execution.read.eval)
    }

    /// Tells an ordered-set aggregate that has met no row what stands before its WITHIN GROUP,
    /// which is tested all the same.
    fn add_direct(&mut self, node: &AggregateNode, context: Context<'_>) -> Result<()> {
        let Some((_, direct)) = node.arguments.split_last() else { return Ok(()) };
        // What several aggregates have in common is computed with rows only.
        let mut reads_row = false;
        direct.iter().for_each(|argument| argument.for_each_slot(&mut |_| reads_row = true));
        if reads_row {
            return Ok(());
        }
        let env = context.env(&[]);
        let mut arguments = direct.iter().map(|argument| argument.eval(&env)).collect::<Result<Vec<_>>>()?;
        arguments.push(Datum::Null);
        self.accumulator.add(&arguments, &context.execution.read.eval)
    }

    /// Adds what was sorted; gives the bytes accounted for that.
    fn add_sorted(
        &mut self,
        node: &AggregateNode,
        sorted: &mut Sorted,
        context: Context<'_>,
    ) -> Result<usize> {
        let Sorted { sorter, keys } = sorted;
        sorter.finish(keys, context)?;
        let (mut row, mut before) = (vec![], None::<Vec<Datum>>);
        let mut held = 0;
        while sorter.next(keys, context, &mut row)? {
            context.execution.tick()?;
            let arguments = &row[node.order.len()..];
            if node.distinct && before.as_deref() == Some(arguments) {
                continue;
            }
            let grown = self.accumulate(arguments, context.execution)?;
            context.execution.reserve(grown)?;
            held += grown;
            if node.distinct {
                before = Some(arguments.to_vec());
            }
        }
        Ok(held)
    }
}
