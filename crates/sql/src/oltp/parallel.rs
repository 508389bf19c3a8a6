//! Aggregating a table with several threads.
//!
//! The first rows are read by the statement's own thread alone: most tables have no more. Then what
//! is left is divided by its keys, and the threads take part after part, each into groups of its
//! own. In the end these are put together in the order of the parts:
//!
//! ```text
//! own thread    ├─ first rows ─┤├ 0 ┤├── 2 ──┤├ 3 ┤├ 5 ┤ waits ├ puts 0 to 5 together ┤
//! helper                        ├─── 1 ───┤├──── 4 ────┤
//! ```
//!
//! **Answers** do not depend on who has read what. Only aggregates whose parts can be put together
//! exactly are computed so, over expressions that look at nothing but the row, the parameters and
//! the settings. Groups come in the order of their first rows, and of equal values the same one
//! stays, since parts are put together in the order of their keys.
//!
//! **Errors**, and what else goes wrong in a part, a panic too, are forgotten with the part: the
//! statement's thread reads it again where its turn is, over all rows before, and fails with what
//! it would have failed with. The same becomes of a part whose groups, or the values that these
//! keep, need more memory than its share; all shares are half of what the statement may hold, less
//! what it has.
//!
//! **Counts.** Where rows are counted (EXPLAIN ANALYZE) the statement's thread reads all of them: a
//! scan does not pause then (`input`).
//!
//! **Reads** are noted for the range as a whole before it is divided ([`RowScan::divide`]).
//!
//! **Others.** There are no more helpers in the process than cores that no transaction wants, as
//! far as the governor knows of them, and `max_parallel_workers_per_gather` for one scan at most.
//! Before each part a helper looks whether that is still so, and while it computes it lets others
//! have the processor like any long statement. Its priority is that of all others, though: while it
//! reads the newest versions of a tree it has a lock that whoever commits there waits for, and must
//! not be kept from its processor meanwhile. Whoever waits for a helper asks it after a while to
//! leave the rest of its part, which it does behind the row it is at, and reads that himself.
//!
//! [`RowScan::divide`]: crate::expr::RowScan::divide

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::Context;
use super::aggregate::AggregateState;
use super::group::{GroupState, Keys};
use super::input::SourceState;
use super::scan::{self, Take};
use crate::catalog::Catalog;
use crate::error::Result;
use crate::expr::{
    Execution, Expr, NoExternalFunctions, NoReader, ReadContext, RowScan, Runtime, ScanParts, Usage,
};
use crate::function::{Body, EvalContext, Interrupt, SessionView, Volatility};
use crate::plan::{AccessKind, GroupNode, Scan, SelectNode, SourceNode};
use crate::types::Datum;
use crate::types::bounds::{self, Bounds};

/// So many rows of a range the statement's thread reads alone, some milliseconds' work.
pub(super) const FIRST_ROWS: usize = 1 << 14;
/// With more groups than that in the first rows, putting parts together would be most of the work.
const FIRST_GROUPS: usize = 1 << 10;
/// Parts of a range at most. The last ones end at about the same time if there are many.
const PARTS: usize = 32;
/// A part has at least so much memory for its groups.
const LEAST_SHARE: usize = 16 << 10;
/// So long a helper may take for its last part.
const PATIENCE: Duration = Duration::from_millis(5);
/// How often who waits for helpers looks whether the statement should stop.
const GLANCE: Duration = Duration::from_millis(1);
/// Stack of a helper: as much as those have that serve connections.
const STACK_BYTES: usize = 16 << 20;

/// Cores that this process may use.
static CORES: LazyLock<usize> = LazyLock::new(|| thread::available_parallelism().map_or(1, usize::from));
/// Helpers there are.
static HIRED: AtomicUsize = AtomicUsize::new(0);

/// So many helpers that have not gone, as long as it lives.
struct Hired(AtomicUsize);

impl Hired {
    /// As many as wanted, as far as there are no more than `most` then.
    fn hire(wanted: usize, most: usize) -> Hired {
        let granted = |hired: usize| wanted.min(most.saturating_sub(hired));
        let hire = |hired: usize| Some(hired + granted(hired));
        let before = HIRED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, hire);
        Hired(AtomicUsize::new(before.map_or(0, granted)))
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// One of them goes: others may hire it, however long the statement goes on.
    fn let_go(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
        HIRED.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Hired {
    fn drop(&mut self) {
        HIRED.fetch_sub(self.count(), Ordering::Relaxed);
    }
}

/// Helpers that a scan of a session may have.
fn allowed(session: &dyn SessionView) -> usize {
    let of = |name| session.setting(name).and_then(|value| value.parse::<usize>().ok()).unwrap_or(0);
    of("max_parallel_workers_per_gather").min(of("max_parallel_workers"))
}

/// Cores that are left by the transactions that execute, one of which is that of those who are
/// helped, and by those that wait until they may: these may have its slot by now.
fn free_cores(session: &dyn SessionView) -> usize {
    let governor = session.server().governor();
    let wanted = governor.map_or(0, |governor| governor.active.saturating_add(governor.waiting));
    CORES.saturating_sub(wanted.max(1) as usize)
}

/// Whether any thread can evaluate it that has the row.
fn is_of_row(expr: &Expr) -> bool {
    !expr.any(&mut |part| match part {
        Expr::Function(call) => {
            let function = call.function.function;
            let is_plain = matches!(function.body, Body::Plain(_) | Body::Typed(_));
            function.volatility != Volatility::Immutable || !is_plain
        }
        Expr::Routine(_)
        | Expr::Domain(_)
        | Expr::Subquery(_)
        | Expr::Outer { .. }
        | Expr::Aggregate { .. }
        | Expr::SetResult(_)
        | Expr::WindowResult(_) => true,
        _ => false,
    })
}

/// Whether parts of a scan can be aggregated apart.
fn is_divisible(scan: &Scan, group: &GroupNode) -> bool {
    let aggregates = || group.aggregates.iter().filter(|node| node.has_state());
    let looked_at = aggregates().flat_map(|node| node.arguments.iter().chain(&node.filter));
    let mut exprs = scan.filter.iter().chain(&group.keys).chain(&group.computed).chain(looked_at);
    matches!(scan.access.kind, AccessKind::Table)
        && group.sets.is_none()
        && exprs.all(is_of_row)
        && aggregates().all(AggregateState::is_divisible)
}

/// Adds the rows to the groups that are left of a source, with other threads if that may be.
pub(super) fn take_rest(
    groups: &mut GroupState,
    (select, group): (&SelectNode, &GroupNode),
    keys: &mut Keys<'_>,
    source: &mut SourceState,
    context: Context<'_>,
    frame: &mut [Datum],
) -> Result<()> {
    if groups.count() <= FIRST_GROUPS
        && let Some(shared) = Shared::new(select, group, keys, source, context, frame.len())?
    {
        let done = shared.read();
        shared.put_together(done, groups, keys, context, frame)?;
    }
    // All of it, or further ranges.
    let late = keys.late();
    source.for_each(&select.source, late, usize::MAX, context, frame, &mut |row, frame| {
        groups.take(select, group, keys, row, context, frame)
    })?;
    Ok(())
}

/// What came of a part.
struct Part {
    groups: GroupState,
    /// What they take, as accounted for.
    bytes: usize,
    /// What was read for them.
    usage: Usage,
    /// Rows that were left.
    rest: Option<Box<dyn RowScan>>,
}

/// A scan that several threads read.
struct Shared<'a> {
    select: &'a SelectNode,
    group: &'a GroupNode,
    scan: &'a Scan,
    keys: Keys<'a>,
    /// Places of the frame.
    frame: usize,
    parameters: &'a [Datum],
    eval: EvalContext<'a>,
    catalog: &'a Arc<Catalog>,
    /// What the statement's own thread asks, and the others.
    interrupt: &'a dyn Interrupt,
    bounds: Arc<dyn Bounds>,
    /// Memory of a part.
    share: usize,
    hired: Hired,
    parts: Box<dyn ScanParts>,
    /// The next part.
    next: AtomicUsize,
    /// The first part of which nothing came. Those behind it are not begun any more.
    failed: AtomicUsize,
    /// What is begun is to be left.
    is_over: AtomicBool,
    done: Mutex<Vec<Option<Part>>>,
    /// Helpers that have not gone.
    helping: Mutex<usize>,
    gone: Condvar,
}

impl<'a> Shared<'a> {
    /// What is left of a range, if it can be shared, and there are helpers.
    fn new(
        select: &'a SelectNode,
        group: &'a GroupNode,
        keys: &Keys<'a>,
        source: &mut SourceState,
        context: Context<'a>,
        frame: usize,
    ) -> Result<Option<Shared<'a>>> {
        let (SourceNode::Scan(scan), SourceState::Scan(state)) = (&select.source, source) else {
            return Ok(None);
        };
        let Execution { read, parameters, runtime } = context.execution;
        let share = (read.memory_limit / 2).saturating_sub(runtime.memory()) / PARTS;
        if share < LEAST_SHARE || !is_divisible(scan, group) {
            return Ok(None);
        }
        let Some(bounds) = bounds::elsewhere() else { return Ok(None) };
        let session = read.eval.session;
        let hired = Hired::hire(allowed(session), free_cores(session));
        if hired.count() == 0 {
            return Ok(None);
        }
        let Some(parts) = state.divide(PARTS)? else { return Ok(None) };
        Ok(Some(Shared {
            select,
            group,
            scan,
            keys: keys.again(),
            frame,
            parameters,
            eval: read.eval,
            catalog: read.catalog,
            interrupt: read.interrupt,
            bounds,
            share,
            hired,
            next: AtomicUsize::new(0),
            failed: AtomicUsize::new(usize::MAX),
            is_over: AtomicBool::new(false),
            done: Mutex::new((0..parts.count()).map(|_| None).collect()),
            helping: Mutex::new(0),
            gone: Condvar::new(),
            parts,
        }))
    }

    /// Reads the parts with the helpers. Nothing comes of some of them.
    fn read(&self) -> Vec<Option<Part>> {
        let hired = self.hired.count();
        thread::scope(|scope| {
            let _over = Over(&self.is_over);
            for _ in 0..hired {
                *self.helping.lock() += 1;
                let builder = thread::Builder::new().name("parallel".to_owned()).stack_size(STACK_BYTES);
                if builder.spawn_scoped(scope, || self.help()).is_err() {
                    self.leave();
                }
            }
            self.take_parts(self.interrupt, || true);
            self.wait();
        });
        std::mem::take(&mut *self.done.lock())
    }

    /// What a helper does.
    fn help(&self) {
        let _leaving = Leaving(self);
        let bounds = Arc::clone(&self.bounds);
        let helper = Helper { bounds, begun: Instant::now(), checked_us: AtomicU64::new(0) };
        let has_core = || HIRED.load(Ordering::Relaxed) <= free_cores(self.eval.session);
        // Nothing comes of a part in which it panics: the statement's thread does the same, and
        // panics as any does. Nor of one in which a comparison is given up: that is known by then.
        drop(bounds::within(Arc::clone(&self.bounds), || {
            drop(catch_unwind(AssertUnwindSafe(|| self.take_parts(&helper, has_core))));
            Ok(())
        }));
    }

    /// A helper goes.
    fn leave(&self) {
        self.hired.let_go();
        *self.helping.lock() -= 1;
        self.gone.notify_one();
    }

    /// Waits until all helpers have gone. None of them is needed: they leave what takes long, and
    /// all they have once the statement should stop.
    fn wait(&self) {
        let begun = Instant::now();
        let mut helping = self.helping.lock();
        while *helping > 0 {
            self.gone.wait_for(&mut helping, GLANCE);
            if *helping == 0 {
                return;
            }
            let should_stop = MutexGuard::unlocked(&mut helping, || self.interrupt.check().is_err());
            if should_stop || begun.elapsed() > PATIENCE {
                self.is_over.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Reads part after part, as long as there are some, and it may go on.
    fn take_parts(&self, interrupt: &dyn Interrupt, goes_on: impl Fn() -> bool) {
        while goes_on() {
            let part = self.next.fetch_add(1, Ordering::Relaxed);
            if part >= self.parts.count() || self.is_to_leave(part) {
                return;
            }
            let done = self.aggregate(part, interrupt);
            // Others take it from here: it must not rest on a comparison that was given up.
            match done.and_then(|done| bounds::check().map(|()| done)) {
                Ok(done) => self.done.lock()[part] = Some(done),
                Err(_) => {
                    self.failed.fetch_min(part, Ordering::Relaxed);
                }
            }
        }
    }

    fn is_to_leave(&self, part: usize) -> bool {
        self.is_over.load(Ordering::Relaxed) || part > self.failed.load(Ordering::Relaxed)
    }

    /// The groups of a part.
    fn aggregate(&self, part: usize, interrupt: &dyn Interrupt) -> Result<Part> {
        let (runtime, usage) = (Runtime::default(), RefCell::default());
        let read = ReadContext {
            reader: &NoReader,
            eval: EvalContext { interrupt, ..self.eval },
            catalog: self.catalog,
            external: &NoExternalFunctions,
            interrupt,
            memory_limit: self.share,
            tally: None,
            usage: Some(&usage),
        };
        let execution = Execution { read: &read, parameters: self.parameters, runtime: &runtime };
        let context = Context { execution, outer: None };
        let (mut groups, mut keys) = (GroupState::new(), self.keys.again());
        groups.start(self.group, &keys, context)?;
        let mut frame = vec![Datum::Null; self.frame];
        let mut open = self.parts.open(part)?;
        let late = keys.late();
        let leaves = || self.is_to_leave(part);
        let take: &mut Take<'_> =
            &mut |row, frame| groups.take(self.select, self.group, &mut keys, row, context, frame);
        let is_more = scan::read(self.scan, &mut *open, late, leaves, context, &mut frame, take)?;
        let rest = is_more.then_some(open);
        Ok(Part { groups, bytes: runtime.memory(), usage: usage.take(), rest })
    }

    /// Adds to the groups what came of the parts, and reads what was left of them. A part's memory
    /// is given back as its groups are made: they take no more than half of what there may be.
    fn put_together(
        &self,
        done: Vec<Option<Part>>,
        groups: &mut GroupState,
        keys: &mut Keys<'_>,
        context: Context<'_>,
        frame: &mut [Datum],
    ) -> Result<()> {
        let Execution { read, runtime, .. } = context.execution;
        let (late, never) = (keys.late(), || false);
        for (part, done) in done.into_iter().enumerate() {
            let fits = |done: &Part| runtime.memory() + done.bytes <= read.memory_limit / 2;
            let rest = match done.filter(|done| groups.is_in_memory() && fits(done)) {
                Some(done) => {
                    context.execution.count_all(done.usage);
                    groups.absorb(done.groups, self.group, context)?;
                    done.rest
                }
                None => Some(self.parts.open(part)?),
            };
            let Some(mut rest) = rest else { continue };
            scan::read(self.scan, &mut *rest, late, never, context, frame, &mut |row, frame| {
                groups.take(self.select, self.group, keys, row, context, frame)
            })?;
        }
        Ok(())
    }
}

/// A helper goes when it is dropped.
struct Leaving<'b, 'a>(&'b Shared<'a>);

impl Drop for Leaving<'_, '_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Helpers leave what they do when it is dropped: nobody waits for it any more, after a panic of
/// whoever they help.
struct Over<'b>(&'b AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What a helper asks.
struct Helper {
    bounds: Arc<dyn Bounds>,
    begun: Instant,
    /// When it asked last, since then.
    checked_us: AtomicU64,
}

impl Interrupt for Helper {
    fn check(&self) -> Result<Duration> {
        self.bounds.go_on()?;
        thread::yield_now();
        let now = self.begun.elapsed().as_micros() as u64;
        let before = self.checked_us.swap(now, Ordering::Relaxed);
        Ok(Duration::from_micros(now.saturating_sub(before)))
    }
}
