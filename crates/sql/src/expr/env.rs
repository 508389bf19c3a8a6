//! What evaluation may reach: the frames, the parameters, the session's settings, the stored data.
//!
//! A [`ReadContext`] is what the session lends for one call; an [`Execution`] adds what lives as
//! long as the portal: parameter values and the [`Runtime`] (cached subquery results, common table
//! expressions, memory in use). An [`Env`] is one frame with a link to the frame around it, made on
//! the stack wherever a row is looked at.

use std::cell::{Cell, RefCell};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cognate_engine::{Columns, Interest, Lent, TemporaryFile};

use super::tally::Tally;
use super::usage::{Counts, Usage};
use crate::catalog::{Catalog, Oid};
use crate::error::{Result, SqlError, sqlstate};
use crate::function::{EvalContext, Function, Interrupt};
use crate::oltp::{CteState, Given, SubqueryResult};
use crate::plan::CtePlan;
use crate::types::{Datum, bounds};

/// The stored data at one snapshot, the transaction's own writes included.
pub trait Reader {
    /// The value of a key.
    fn get(&self, tree: u32, key: &[u8]) -> Result<Option<Bytes>>;
    /// Calls `read` with the value of a key. False if there is none. `read` must not use the
    /// reader.
    fn lend(&self, tree: u32, key: &[u8], read: &mut dyn FnMut(Lent<'_>)) -> Result<bool> {
        Ok(self.get(tree, key)?.map(|value| read(Lent::from(&value))).is_some())
    }
    /// The same for who makes use of these columns of the row only.
    fn lend_columns(
        &self,
        tree: u32,
        key: &[u8],
        columns: Columns,
        read: &mut dyn FnMut(Lent<'_>),
    ) -> Result<bool> {
        let _ = columns;
        self.lend(tree, key, read)
    }
    /// The entries between two bounds in key order, or from the last to the first. The scan does
    /// not borrow the reader.
    fn scan(
        &self,
        tree: u32,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        reverse: bool,
    ) -> Result<Box<dyn RowScan>>;
    /// The same for who makes use of a part of the rows only; `interest` says of which.
    fn scan_for(
        &self,
        tree: u32,
        (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
        reverse: bool,
        interest: &dyn Fn() -> Interest,
    ) -> Result<Box<dyn RowScan>> {
        let _ = interest;
        self.scan(tree, lower, upper, reverse)
    }
    /// A file for what a statement cannot hold in memory; none where there is no place for files.
    fn temporary_file(&self) -> Result<Option<TemporaryFile>> {
        Ok(None)
    }
}

/// An open scan.
pub trait RowScan: Send {
    /// Moves to the next entry. False at the end.
    fn advance(&mut self) -> Result<bool>;
    /// Key and value of the entry it is at.
    fn entry(&self) -> Option<(&[u8], Lent<'_>)>;
    /// Moves to the next entry that `accept` takes. False at the end.
    fn find(&mut self, accept: &mut dyn FnMut(&[u8], Lent<'_>) -> Result<bool>) -> Result<bool> {
        while self.advance()? {
            if let Some((key, value)) = self.entry()
                && accept(key, value)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
    /// Divides what is left behind the entry it is at into so many parts at most. It is not to be
    /// moved any more then. None if it cannot be divided: it goes on as before.
    fn divide(&mut self, parts: usize) -> Result<Option<Box<dyn ScanParts>>> {
        let _ = parts;
        Ok(None)
    }
}

/// Parts of a scan, in the order of their keys. Several threads may read them.
pub trait ScanParts: Send + Sync {
    /// How many there are.
    fn count(&self) -> usize;
    /// Opens one of them, from 0.
    fn open(&self, part: usize) -> Result<Box<dyn RowScan>>;
}

/// Functions that the session implements: sequences, catalog look-ups.
pub trait ExternalFunctions {
    /// Calls `function` with arguments converted to its types.
    fn call(
        &self,
        function: &'static Function,
        arguments: &[Datum],
        context: &EvalContext<'_>,
    ) -> Result<Datum>;

    /// The catalog as the statement's snapshot has it, if that is not the one the statement was
    /// bound with: what the tables of `pg_catalog` show.
    fn shown_catalog(&self) -> Result<Option<Arc<Catalog>>> {
        Ok(None)
    }
}

/// What the session lends for one call.
#[derive(Clone, Copy)]
pub struct ReadContext<'a> {
    /// The data.
    pub reader: &'a dyn Reader,
    /// Settings, times, the session as functions see it.
    pub eval: EvalContext<'a>,
    /// The catalog the statement was bound with.
    pub catalog: &'a Arc<Catalog>,
    /// Functions that need the session.
    pub external: &'a dyn ExternalFunctions,
    /// Asked every fraction of a millisecond, whatever a row costs.
    pub interrupt: &'a dyn Interrupt,
    /// Bytes that sorts, hash tables and materialized queries of one statement may hold together;
    /// beyond it the statement fails with 53200.
    pub memory_limit: usize,
    /// Where rows are counted, if they are.
    pub tally: Option<&'a Tally>,
    /// What is read of tables and indexes, where that is counted.
    pub usage: Option<&'a RefCell<Usage>>,
}

/// No data: every read is an error.
pub struct NoReader;

impl Reader for NoReader {
    fn get(&self, _: u32, _: &[u8]) -> Result<Option<Bytes>> {
        Err(SqlError::internal("an expression without a transaction reads a table"))
    }
    fn scan(&self, _: u32, _: Bound<&[u8]>, _: Bound<&[u8]>, _: bool) -> Result<Box<dyn RowScan>> {
        Err(SqlError::internal("an expression without a transaction reads a table"))
    }
}

/// None of the session's functions.
pub struct NoExternalFunctions;

impl ExternalFunctions for NoExternalFunctions {
    fn call(&self, function: &'static Function, _: &[Datum], _: &EvalContext<'_>) -> Result<Datum> {
        Err(SqlError::unsupported(format!("function {} in this place", function.name)))
    }
}

/// What lives as long as one execution of a plan: between two calls for rows too.
#[derive(Default)]
pub struct Runtime {
    /// Results of subqueries that do not depend on the queries around them, by their cache place.
    pub(crate) subqueries: RefCell<Vec<Option<Arc<SubqueryResult>>>>,
    /// Common table expressions, by number.
    pub(crate) ctes: RefCell<Vec<Option<CteState>>>,
    /// How those are computed that are read from their rows.
    cte_plans: Option<Arc<[Option<Arc<CtePlan>>]>>,
    memory: Cell<usize>,
    stride: Stride,
    /// So many calls of users' functions are around it.
    depth: usize,
}

/// How many steps may be taken until the next question whether to stop.
///
/// Steps differ: a row of a scan takes a tenth of a microsecond, one with a subquery may take
/// seconds. So the number between two questions grows while they come quickly and shrinks as soon
/// as they come late.
#[derive(Debug, Default)]
struct Stride {
    /// Steps left until the next question.
    left: Cell<u32>,
    /// Steps between two questions; zero before the first step.
    length: Cell<u32>,
    /// Where rows are counted, `left` stays zero and this is in its place.
    counted: Cell<u32>,
    /// Steps that were taken or are left.
    given: Cell<u64>,
}

impl Stride {
    /// A statement that takes no more steps than this is not asked: most point reads.
    const FREE: u32 = 8;
    const LENGTH_MAX: u32 = 256;
    /// Questions that come closer together are asked less often.
    const CLOSE: Duration = Duration::from_micros(100);
    /// Questions that come further apart are asked more often.
    const FAR: Duration = Duration::from_micros(400);
    /// Steps between two questions where steps are counted.
    const COUNTED: u32 = 32;

    /// A question was asked so long after the one before.
    fn adapt(&self, since: Duration) {
        let length = match self.length.get().max(1) {
            length if since > Self::FAR => (length / 8).max(1),
            length if since < Self::CLOSE => (length * 2).min(Self::LENGTH_MAX),
            length => length,
        };
        self.go_on(length);
    }

    /// The next question comes after so many steps.
    fn go_on(&self, length: u32) {
        self.length.set(length);
        self.left.set(length - 1);
        self.given.set(self.given.get() + u64::from(length));
    }
}

impl Runtime {
    /// A fresh one, for a plan with this many cached subqueries and common table expressions.
    pub fn new(subqueries: usize, ctes: usize) -> Runtime {
        let mut runtime = Runtime::default();
        runtime.subqueries.get_mut().resize_with(subqueries, || None);
        runtime.ctes.get_mut().resize_with(ctes, || None);
        runtime
    }

    /// With the plans of common table expressions.
    pub(crate) fn with_cte_plans(mut self, plans: Arc<[Option<Arc<CtePlan>>]>) -> Runtime {
        self.cte_plans = Some(plans);
        self
    }

    /// For a call of a user's function, with so many calls around it, itself included.
    pub(crate) fn at_depth(mut self, depth: usize) -> Runtime {
        self.depth = depth;
        self
    }

    /// How many calls of users' functions are around it.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// The plan of a common table expression that is read from its rows.
    pub(crate) fn cte_plan(&self, number: usize) -> Option<&Arc<CtePlan>> {
        self.cte_plans.as_ref()?.get(number)?.as_ref()
    }

    /// Puts rows in place that were computed before, and are accounted for elsewhere.
    pub(crate) fn give(&self, given: &Given) {
        let mut places = self.ctes.borrow_mut();
        for (number, rows) in given {
            if let Some(place) = places.get_mut(*number) {
                *place = Some(CteState::complete(rows.clone()));
            }
        }
    }

    /// Steps that it has taken: the same number each time that it does the same.
    pub(crate) fn steps(&self) -> u64 {
        let Stride { left, counted, given, .. } = &self.stride;
        given.get().saturating_sub(u64::from(left.get()) + u64::from(counted.get()))
    }

    /// Bytes accounted for now.
    pub fn memory(&self) -> usize {
        self.memory.get()
    }

    /// Gives accounted bytes back.
    pub(crate) fn release(&self, bytes: usize) {
        self.memory.set(self.memory.get().saturating_sub(bytes));
    }
}

/// One execution: the session's loan, the parameters, the runtime.
#[derive(Clone, Copy)]
pub struct Execution<'a> {
    /// The session's loan.
    pub read: &'a ReadContext<'a>,
    /// Values of the parameters.
    pub parameters: &'a [Datum],
    /// What lives as long as the execution.
    pub runtime: &'a Runtime,
}

impl<'a> Execution<'a> {
    /// Counts a step, as [`tick`](Execution::tick) does, and says where rows are counted.
    #[inline]
    pub(crate) fn step(&self) -> Result<Option<&'a Tally>> {
        let left = &self.runtime.stride.left;
        match left.get() {
            0 => self.ask().map(|()| self.read.tally),
            steps => {
                left.set(steps - 1);
                Ok(None)
            }
        }
    }

    /// Counts a step, and asks now and then whether to stop. Whoever gives, compares or moves a row
    /// says so here: no loop over rows goes without.
    #[inline]
    pub(crate) fn tick(&self) -> Result<()> {
        let left = &self.runtime.stride.left;
        match left.get() {
            0 => self.ask(),
            steps => {
                left.set(steps - 1);
                Ok(())
            }
        }
    }

    #[cold]
    fn ask(&self) -> Result<()> {
        let stride = &self.runtime.stride;
        if self.read.tally.is_none() {
            return self.ask_now();
        }
        // Every step comes here, but the question comes no more often.
        if let Some(left) = stride.counted.get().checked_sub(1) {
            stride.counted.set(left);
            return Ok(());
        }
        let asked = self.ask_now();
        stride.counted.set(stride.left.take());
        asked
    }

    fn ask_now(&self) -> Result<()> {
        let stride = &self.runtime.stride;
        if stride.length.get() == 0 {
            stride.length.set(1);
            stride.left.set(Stride::FREE);
            stride.given.set(u64::from(Stride::FREE) + 1);
            return Ok(());
        }
        bounds::check()?;
        let is_counted = self.read.interrupt.count(stride.length.get())?;
        let since = self.read.interrupt.check()?;
        match is_counted {
            true => stride.go_on(Stride::COUNTED),
            false => stride.adapt(since),
        }
        Ok(())
    }

    /// Counts what is done with a table or an index.
    #[inline]
    pub(crate) fn count(&self, relation: Oid, count: impl FnOnce(&mut Counts)) {
        if let Some(usage) = self.read.usage {
            count(usage.borrow_mut().of(relation));
        }
    }

    /// Adds what was counted in a part of it.
    pub(crate) fn count_all(&self, counted: Usage) {
        if let Some(usage) = self.read.usage {
            usage.borrow_mut().add(counted);
        }
    }

    /// Accounts for bytes about to be held. 53200 beyond the limit.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<()> {
        let total = self.runtime.memory.get() + bytes;
        self.runtime.memory.set(total);
        check_held(total, self.read.memory_limit)
    }
}

/// 53200 if a statement holds more than so many bytes.
pub(crate) fn check_held(bytes: usize, limit: usize) -> Result<()> {
    if bytes <= limit {
        return Ok(());
    }
    Err(SqlError::new(sqlstate::OUT_OF_MEMORY, "out of memory")
        .with_detail(format!(
            "The statement's sorts, hash tables and materialized rows need more than the {} kB they may use.",
            limit / 1024
        ))
        .with_hint("Reduce the rows that are sorted, grouped or joined at once, or give the server more memory (--memory)."))
}

/// A frame to evaluate over, with the frames around it.
#[derive(Clone, Copy)]
pub struct Env<'a> {
    /// The current frame.
    pub row: &'a [Datum],
    /// The frame of the enclosing query.
    pub outer: Option<&'a Env<'a>>,
    /// Everything else.
    pub execution: Execution<'a>,
    /// The value that the operand of the CASE around had, while that is tested.
    pub(crate) held: Option<&'a Datum>,
}

impl<'a> Env<'a> {
    /// A frame with no query around it.
    pub fn new(row: &'a [Datum], execution: Execution<'a>) -> Env<'a> {
        Env { row, outer: None, execution, held: None }
    }

    /// The same frame for the tests of a CASE whose operand has this value.
    pub(crate) fn holding<'b>(&self, value: &'b Datum) -> Env<'b>
    where
        'a: 'b,
    {
        Env { row: self.row, outer: self.outer, execution: self.execution, held: Some(value) }
    }

    /// The frame `depth` levels out; 0 is this one.
    #[inline]
    pub(crate) fn frame(&self, depth: usize) -> Result<&'a [Datum]> {
        let (mut row, mut outer) = (self.row, self.outer);
        for _ in 0..depth {
            let env = outer
                .ok_or_else(|| SqlError::internal("an expression refers to a query that is not around it"))?;
            (row, outer) = (env.row, env.outer);
        }
        Ok(row)
    }
}
