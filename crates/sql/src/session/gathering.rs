//! Statistics of columns: who gathers them, and where they are kept.
//!
//! ANALYZE reads the tables it names, whole, in its session: with the own writes, if a transaction
//! is open. And when a plan asks for what is not known of a large table, or was gathered when the
//! table was much smaller or larger, a thread of low priority reads it in the background, one table
//! at a time and with pauses; the plan is made without. Nobody who writes counts anything. The
//! thread has the database only while it reads a piece, and ends when nobody else has it, or when
//! it is told to ([`SqlDatabase::stop_gathering`]).
//!
//! What was gathered is kept in memory, by the tree that a table's rows are in: TRUNCATE and what
//! rewrites the table leave it behind. It is gone with the process, and gathered again when plans
//! ask. It is a node's own: nodes of a cluster may plan the same statement differently, and what
//! every node executes is planned without ([`NoRowCounts`](crate::bind::NoRowCounts)). It belongs
//! to no transaction: a rollback keeps it.
//!
//! Plans notice: each remembers the ordinal of what had been gathered last when it was made, and is
//! made anew when one of its tables has got a newer one (`prepared`).
//!
//! Rows are read by a catalog that was looked at after their snapshot was taken: it knows all
//! columns that they may have.
//!
//! Mutexes: none is taken while one of these is held, but for `reading`, which is held by who reads
//! a piece, whatever that takes.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cognate_engine::{Access, Isolation, Key, Transaction};
use cognate_env::priority::lower_thread_priority;
use parking_lot::{Mutex, RwLock};
use tokio::runtime::{Handle, RuntimeFlavor};

use super::database::WeakDatabase;
use super::{Session, SqlDatabase};
use crate::bind::{ColumnValues, RowCounts};
use crate::catalog::{Catalog, Index, Oid, Table};
use crate::error::Result;
use crate::function::Interrupt as _;
use crate::place;
use crate::statistics::{Gathering, TableStatistics, is_unique};

/// Tables from this size on are read in the background, when a plan asks.
const LARGE: u64 = 100_000;
/// Rows, and bytes of them, that the background reads at one snapshot, in a few milliseconds: who
/// holds one for long keeps what is outdated, and who closes the database waits for it.
const PIECE: Portion = Portion::new(4096, 4 << 20);
/// After so many ANALYZE looks whether to stop, and lets others go before.
const STEP: Portion = Portion::new(256, 64 << 10);
/// All rows of a table.
const WHOLE: Portion = Portion::new(u64::MAX, usize::MAX);
/// After each piece it rests for so long, which leaves most of a processor to others. It holds
/// nothing then, and keeps nobody from closing the database.
const REST: Duration = Duration::from_millis(20);

/// A portion of work: rows, or fewer if they are long.
#[derive(Clone, Copy)]
struct Portion {
    most_rows: u64,
    most_bytes: usize,
    rows: u64,
    bytes: usize,
}

impl Portion {
    const fn new(most_rows: u64, most_bytes: usize) -> Portion {
        Portion { most_rows, most_bytes, rows: 0, bytes: 0 }
    }

    /// Takes a row of so many bytes. Whether that was the last one; the next one begins anew.
    fn take(&mut self, bytes: usize) -> bool {
        self.rows += 1;
        self.bytes += bytes;
        let is_full = self.rows >= self.most_rows || self.bytes >= self.most_bytes;
        if is_full {
            (self.rows, self.bytes) = (0, 0);
        }
        is_full
    }
}

/// What is known of a database's tables.
#[derive(Default)]
pub(crate) struct Gathered {
    by_tree: RwLock<HashMap<u32, Arc<TableStatistics>>>,
    /// That of the last one; changed under the lock of the map.
    ordinal: AtomicU64,
    background: Mutex<Background>,
    /// Held while the background reads a piece; true when it must not read any more.
    reading: Mutex<bool>,
}

/// What is read in the background.
#[derive(Default)]
struct Background {
    /// The tables to come.
    wanted: BTreeSet<Oid>,
    /// The one that a thread reads.
    under_way: Option<Oid>,
    /// Those that could not be read. They are left alone, or every plan would have them read.
    failed: BTreeSet<Oid>,
}

impl Background {
    /// Notes tables. True if there is no thread yet: then the first of them is under way.
    fn begin(&mut self, tables: BTreeSet<Oid>) -> bool {
        let Background { wanted, under_way, failed } = self;
        wanted.extend(tables.into_iter().filter(|oid| *under_way != Some(*oid) && !failed.contains(oid)));
        under_way.is_none() && self.go_on().is_some()
    }

    /// The table to read next; none ends the thread.
    fn go_on(&mut self) -> Option<Oid> {
        self.under_way = self.wanted.pop_first();
        self.under_way
    }

    /// There is no thread any more.
    fn end(&mut self) {
        self.wanted.clear();
        self.under_way = None;
    }
}

impl Gathered {
    /// What is known of the table whose rows are in this tree.
    pub(crate) fn of(&self, tree: u32) -> Option<Arc<TableStatistics>> {
        self.by_tree.read().get(&tree).cloned()
    }

    /// Larger than it was: something was gathered.
    #[inline]
    pub(crate) fn ordinal(&self) -> u64 {
        self.ordinal.load(Ordering::Acquire)
    }

    /// Takes the place of what was known of a table.
    fn put(&self, catalog: &Catalog, tree: u32, mut statistics: TableStatistics) {
        let trees: HashSet<u32> = catalog.tables().map(|table| table.tree).collect();
        let mut by_tree = self.by_tree.write();
        // Tables that are gone leave theirs behind. New ones of other sessions are not known yet,
        // so it is not looked for each time.
        if by_tree.len() > 2 * trees.len() + 8 {
            by_tree.retain(|tree, _| trees.contains(tree));
        }
        statistics.ordinal = self.ordinal.load(Ordering::Relaxed) + 1;
        let ordinal = statistics.ordinal;
        by_tree.insert(tree, Arc::new(statistics));
        self.ordinal.store(ordinal, Ordering::Release);
    }
}

/// What was gathered of a table, and how many rows it has.
type LookedUp = (Option<Arc<TableStatistics>>, u64);

/// The sizes of tables as the engine knows them, and what was gathered of their columns.
pub(super) struct Sizes<'a> {
    database: &'a SqlDatabase,
    /// What is known of a table and its rows, by its tree: a planner asks many times.
    looked_up: RefCell<HashMap<u32, LookedUp>>,
    /// Large tables of which the planner wanted to know what is not known, or out of date.
    missed: RefCell<BTreeSet<Oid>>,
}

impl<'a> Sizes<'a> {
    pub(super) fn new(database: &'a SqlDatabase) -> Sizes<'a> {
        Sizes { database, looked_up: RefCell::default(), missed: RefCell::default() }
    }

    /// Has what was missed gathered in the background.
    pub(super) fn gather_missed(&self) {
        self.database.gather_soon(self.missed.take());
    }
}

impl RowCounts for Sizes<'_> {
    fn rows(&self, table: &Table) -> Option<u64> {
        Some(self.database.engine().approximate_rows(table.tree))
    }

    fn entries(&self, index: &Index) -> Option<u64> {
        Some(self.database.engine().approximate_rows(index.tree))
    }

    fn values(&self, table: &Table, column: usize) -> Option<ColumnValues> {
        let mut looked_up = self.looked_up.borrow_mut();
        let (known, rows) = looked_up.entry(table.tree).or_insert_with(|| {
            let rows = self.database.engine().approximate_rows(table.tree);
            (self.database.gathered().of(table.tree), rows)
        });
        // Unique columns need not be looked at: the planner knows what a key finds.
        if known.is_none() && is_unique(table, column) {
            return None;
        }
        let is_current = known.as_ref().is_some_and(|known| !known.is_outgrown(*rows));
        if !is_current && *rows >= LARGE && !table.temporary {
            self.missed.borrow_mut().insert(table.oid);
        }
        known.as_ref()?.values(column, *rows)
    }
}

impl SqlDatabase {
    /// Has tables read in the background, if there is a runtime with threads: where one thread does
    /// everything, nothing is to happen beside it.
    fn gather_soon(&self, tables: BTreeSet<Oid>) {
        if tables.is_empty() {
            return;
        }
        let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
        if !matches!(flavor, Ok(RuntimeFlavor::MultiThread)) {
            return;
        }
        if !self.gathered().background.lock().begin(tables) {
            return;
        }
        // Its own thread and none of the runtime's: its priority stays low, and a runtime waits for
        // its threads when it is dropped.
        let reader = Reader { of: self.downgrade(), has_ended: false };
        let thread = std::thread::Builder::new().name("statistics".to_owned());
        let body = move || {
            lower_thread_priority();
            reader.read();
        };
        if let Err(error) = thread.spawn(body) {
            tracing::warn!(%error, "there is no thread for statistics");
        }
    }

    /// Ends for good what reads tables in the background, and waits until it has let go of the
    /// engine: who closes it may open the folder again.
    pub fn stop_gathering(&self) {
        for database in self.all() {
            *database.gathered().reading.lock() = true;
        }
    }
}

/// Reads table after table, as long as somebody has the database.
struct Reader {
    of: WeakDatabase,
    /// The last table is read: another one may have begun.
    has_ended: bool,
}

impl Reader {
    fn read(mut self) {
        loop {
            let under_way = self.of.gathered().background.lock().under_way;
            let Some(oid) = under_way else { return };
            match gather_slowly(&self.of, oid) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    tracing::warn!(table = oid, %error, "statistics could not be gathered");
                    self.of.gathered().background.lock().failed.insert(oid);
                }
            }
            if self.of.gathered().background.lock().go_on().is_none() {
                self.has_ended = true;
                return;
            }
        }
    }
}

impl Drop for Reader {
    /// However it ends, and if it never began, another one may begin. A table at which it has
    /// panicked is left alone.
    fn drop(&mut self) {
        if !self.has_ended {
            let mut background = self.of.gathered().background.lock();
            let under_way = background.under_way;
            background.failed.extend(under_way.filter(|_| std::thread::panicking()));
            background.end();
        }
    }
}

/// Reads a table piece by piece, each at a snapshot of its own: the numbers need not be those of
/// one moment. Gives up a table that is changed meanwhile, until a plan asks again. False if the
/// database is gone, or about to go.
fn gather_slowly(weak: &WeakDatabase, oid: Oid) -> Result<bool> {
    let mut begun: Option<(Arc<Table>, Gathering)> = None;
    let mut last: Option<Key> = None;
    loop {
        {
            // Held until the database is let go of, which is dropped before it.
            let stopped = weak.gathered().reading.lock();
            if *stopped {
                return Ok(false);
            }
            let Some(database) = weak.upgrade() else { return Ok(false) };
            let transaction = database.engine().begin(Isolation::Snapshot, Access::ReadOnly);
            let catalog = database.catalog();
            let Some(now) = catalog.table_by_oid(oid) else { return Ok(true) };
            let (table, gathering) = begun.get_or_insert_with(|| (Arc::clone(now), Gathering::new(now)));
            if now.tree != table.tree || now.columns.len() != table.columns.len() {
                return Ok(true);
            }
            last = take_in(&database, &transaction, table, last, PIECE, gathering, &mut |_| Ok(()))?;
            if last.is_none() {
                if let Some((table, gathering)) = begun.take() {
                    let approximate = database.engine().approximate_rows(table.tree);
                    keep(&database, &catalog, &table, gathering, (approximate, true));
                }
                return Ok(true);
            }
        }
        std::thread::sleep(REST);
    }
}

/// Takes in the rows behind a key, a portion of them; the last one's key, if there may be more.
/// `go_on` is told the bytes of each, and may stop it.
fn take_in(
    database: &SqlDatabase,
    transaction: &Transaction,
    table: &Table,
    behind: Option<Key>,
    mut portion: Portion,
    gathering: &mut Gathering,
    go_on: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<Option<Key>> {
    let lower = behind.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    let mut scan = transaction.scan_unnoted(table.tree, lower, Bound::Unbounded)?;
    while let Some((key, stored)) = scan.next()? {
        gathering.add(table, &stored).map_err(|error| {
            place::located(database.engine(), table.tree, &key, transaction.snapshot(), error)
        })?;
        go_on(stored.len())?;
        if portion.take(stored.len()) {
            return Ok(Some(key));
        }
    }
    Ok(None)
}

/// Keeps what the rows of a table have told, which then had about so many.
fn keep(
    database: &SqlDatabase,
    catalog: &Catalog,
    table: &Table,
    gathering: Gathering,
    (approximate, automatic): (u64, bool),
) {
    let statistics = gathering.finish(table, approximate, database.now(), automatic);
    database.gathered().put(catalog, table.tree, statistics);
}

impl Session {
    /// ANALYZE of a table: as the open transaction sees it, or if there is none, as it is now. Its
    /// rows are not counted as read. What every node executes does not do it: no plan of it asks.
    pub(super) fn gather(&mut self, table: Oid) -> Result<()> {
        if self.is_ordered() {
            return Ok(());
        }
        let interrupts = self.interrupts();
        let database = self.database.clone();
        let fresh = match &self.open {
            Some(_) => None,
            None => Some(database.engine().begin(Isolation::Snapshot, Access::ReadWrite)),
        };
        let (catalog, _) = self.catalog_with_state();
        let transaction = fresh.as_ref().or(self.open.as_ref().map(|open| &open.engine));
        // It may be gone since the statement began.
        let (Some(table), Some(transaction)) = (catalog.table_by_oid(table), transaction) else {
            return Ok(());
        };
        let mut gathering = Gathering::new(table);
        let mut step = STEP;
        let mut check = |bytes: usize| -> Result<()> {
            if step.take(bytes) {
                interrupts.check()?;
            }
            Ok(())
        };
        take_in(&database, transaction, table, None, WHOLE, &mut gathering, &mut check)?;
        // What the engine believes is of now. The snapshot of an open transaction may be old, and
        // then the table may have grown since: of it no more is said than was seen.
        let approximate = match &fresh {
            Some(_) => database.engine().approximate_rows(table.tree),
            None => 0,
        };
        keep(&database, &catalog, table, gathering, (approximate, false));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use cognate_engine::{Database, Options};
    use cognate_env::sim::SimDisk;

    use super::*;

    fn oids(oids: &[Oid]) -> BTreeSet<Oid> {
        oids.iter().copied().collect()
    }

    #[test]
    fn the_background_reads_one_table_at_a_time_and_none_twice() {
        let mut background = Background::default();
        assert!(!background.begin(oids(&[])));
        assert!(background.begin(oids(&[7, 5])));
        assert_eq!(background.under_way, Some(5));
        // A plan that is made meanwhile asks for the same.
        assert!(!background.begin(oids(&[5, 9])));
        assert_eq!((background.go_on(), background.go_on(), background.go_on()), (Some(7), Some(9), None));
        assert!(background.begin(oids(&[5])));
    }

    #[test]
    fn what_cannot_be_read_is_not_read_again() {
        let mut background = Background::default();
        assert!(background.begin(oids(&[5])));
        background.failed.insert(5);
        assert_eq!(background.go_on(), None);
        assert!(!background.begin(oids(&[5])));
        assert!(background.begin(oids(&[5, 6])));
        assert_eq!(background.under_way, Some(6));
    }

    fn open() -> SqlDatabase {
        let options = Options { disk: SimDisk::new(1).handle(), ..Options::new("data") };
        SqlDatabase::open(Database::open(options).unwrap()).unwrap()
    }

    #[test]
    fn another_reader_may_begin_however_one_has_ended() {
        let database = open();
        let reader = |has_ended| Reader { of: database.downgrade(), has_ended };
        let begin = || database.gathered().background.lock().begin(oids(&[5]));
        assert!(begin() && !begin());
        // Its thread could not begin.
        drop(reader(false));
        assert!(begin() && !begin());
        // It finds no such table, and nothing is left to do.
        reader(false).read();
        assert!(begin());
        // Another one is under way by now.
        drop(reader(true));
        assert!(!begin());
    }

    #[test]
    fn a_table_at_which_a_reader_panics_is_left_alone() {
        let database = open();
        let begin = |oid| database.gathered().background.lock().begin(oids(&[oid]));
        assert!(begin(5));
        let reader = Reader { of: database.downgrade(), has_ended: false };
        let read = move || -> Result<bool> {
            let _reader = reader;
            panic!("a row was to panic")
        };
        assert!(catch_unwind(AssertUnwindSafe(read)).is_err());
        assert!(!begin(5), "every plan would have it read");
        assert!(begin(6));
    }

    #[test]
    fn a_portion_has_fewer_rows_if_they_are_long() {
        let rows_of = |mut portion: Portion, bytes| (1..).find(|_| portion.take(bytes));
        assert_eq!((rows_of(PIECE, 100), rows_of(PIECE, 1 << 20)), (Some(4096), Some(4)));
        assert_eq!((rows_of(STEP, 100), rows_of(STEP, 1 << 20)), (Some(256), Some(1)));
        let mut step = STEP;
        assert!(step.take(1 << 20) && !step.take(100), "it begins anew");
    }

    #[test]
    fn the_background_stops_when_it_is_told_to_and_with_the_database() {
        let database = open();
        let weak = database.downgrade();
        assert!(gather_slowly(&weak, 5).unwrap(), "there is no such table, and the next one may come");
        database.stop_gathering();
        assert!(!gather_slowly(&weak, 5).unwrap());
        let database = open();
        let weak = database.downgrade();
        drop(database);
        assert!(!gather_slowly(&weak, 5).unwrap());
    }
}
