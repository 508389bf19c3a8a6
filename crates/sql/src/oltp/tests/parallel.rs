//! Tables that several threads read.

use std::collections::HashSet;
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::thread::{self, ThreadId};

use cognate_engine::GovernorInfo;
use parking_lot::Mutex;

use super::*;
use crate::expr::ScanParts;
use crate::pg_catalog::ServerView;
use crate::types::bounds::Bounds;

/// What becomes of a part that a helper begins.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    /// It is read.
    Read,
    /// Its storage fails. The statement's thread goes on once that is known, and leaves its own
    /// part half-way if that comes later.
    Failure,
    /// The helper panics.
    Panic,
    /// The helper hears that the statement should stop, which the statement itself does not.
    Stop,
}

/// What happens to a scan that is divided.
struct Seen {
    fate: Fate,
    /// The statement's thread.
    own: ThreadId,
    is_divided: AtomicBool,
    /// The statement's thread and a helper begin their first parts together.
    meeting: Barrier,
    /// The helper's failure is known, and the statement's thread waits for that.
    known: Barrier,
    readers: Mutex<HashSet<ThreadId>>,
}

/// The store, with scans that can be divided.
struct Divisible<'a>(&'a Store, Arc<Seen>);

struct DivisibleScan(Scan, Arc<Seen>);

/// Rows of each part.
struct Parts(Vec<Vec<(Bytes, Bytes)>>, Arc<Seen>);

impl Reader for Divisible<'_> {
    fn get(&self, tree: u32, key: &[u8]) -> Result<Option<Bytes>> {
        self.0.get(tree, key)
    }

    fn scan(
        &self,
        tree: u32,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        reverse: bool,
    ) -> Result<Box<dyn RowScan>> {
        let (mut scan, mut rows) = (self.0.scan(tree, lower, upper, reverse)?, vec![]);
        while scan.advance()? {
            if let Some((key, value)) = scan.entry() {
                rows.push((Bytes::copy_from_slice(key), value.own()));
            }
        }
        Ok(Box::new(DivisibleScan(Scan(rows.into_iter(), None), self.1.clone())))
    }
}

impl RowScan for DivisibleScan {
    fn advance(&mut self) -> Result<bool> {
        self.0.advance()
    }

    fn entry(&self) -> Option<(&[u8], Lent<'_>)> {
        self.0.entry()
    }

    fn divide(&mut self, parts: usize) -> Result<Option<Box<dyn ScanParts>>> {
        self.1.is_divided.store(true, Ordering::Relaxed);
        let rest: Vec<_> = self.0.0.by_ref().collect();
        let parts = rest.chunks(rest.len().div_ceil(parts)).map(<[_]>::to_vec).collect();
        Ok(Some(Box::new(Parts(parts, self.1.clone()))))
    }
}

impl ScanParts for Parts {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn open(&self, part: usize) -> Result<Box<dyn RowScan>> {
        let (seen, reader) = (&self.1, thread::current().id());
        let is_first = seen.readers.lock().insert(reader);
        if is_first {
            seen.meeting.wait();
            if seen.fate == Fate::Failure && reader == seen.own {
                seen.known.wait();
            }
        }
        match seen.fate {
            Fate::Failure if reader != seen.own => Err(SqlError::internal("a broken disk")),
            Fate::Panic if reader != seen.own => panic!("a helper was to panic"),
            _ => Ok(Box::new(Scan(self.0[part].clone().into_iter(), None))),
        }
    }
}

/// A session whose scans may have one helper, and how many transactions execute besides, and wait
/// until they may.
struct OneHelper {
    others: (u32, u32),
    seen: Arc<Seen>,
    /// How often the helper has looked whether there is a core for it: before each part.
    looks: AtomicU32,
}

impl ServerView for OneHelper {
    fn governor(&self) -> Option<GovernorInfo> {
        let is_helper = thread::current().id() != self.seen.own;
        let is_second = is_helper && self.looks.fetch_add(1, Ordering::Relaxed) == 1;
        if is_second && self.seen.fate == Fate::Failure {
            self.seen.known.wait();
        }
        let (executing, waiting) = self.others;
        Some(GovernorInfo { active: 1 + executing, waiting, ..GovernorInfo::default() })
    }
}

impl SessionView for OneHelper {
    fn setting(&self, name: &str) -> Option<String> {
        name.starts_with("max_parallel_workers").then(|| "1".to_owned())
    }
    fn set_setting(&self, name: &str, value: Option<&str>, local: bool) -> Result<String> {
        NoSession.set_setting(name, value, local)
    }
    fn user(&self) -> String {
        NoSession.user()
    }
    fn session_user(&self) -> String {
        NoSession.session_user()
    }
    fn database(&self) -> String {
        NoSession.database()
    }
    fn search_path(&self, implicit: bool) -> Vec<String> {
        NoSession.search_path(implicit)
    }
    fn process_id(&self) -> i32 {
        NoSession.process_id()
    }
    fn transaction_id(&self) -> u64 {
        NoSession.transaction_id()
    }
    fn clock(&self) -> i64 {
        NoSession.clock()
    }
    fn random(&self) -> f64 {
        NoSession.random()
    }
    fn set_seed(&self, seed: f64) {
        NoSession.set_seed(seed);
    }
    fn random_bytes(&self) -> [u8; 16] {
        NoSession.random_bytes()
    }
    fn version(&self) -> String {
        NoSession.version()
    }
    fn server(&self) -> &dyn ServerView {
        self
    }
}

/// The bounds of a statement that others may compute for.
struct Sharing(Fate);

impl Bounds for Sharing {
    fn go_on(&self) -> Result<()> {
        Ok(())
    }
    fn memory(&self) -> usize {
        usize::MAX
    }
    fn is_shared(&self) -> bool {
        true
    }
    fn stop(&self) -> Result<()> {
        match self.0 {
            Fate::Stop => Err(SqlError::new(sqlstate::QUERY_CANCELED, "stopped")),
            _ => Ok(()),
        }
    }
}

/// wide(id, g, v): as many rows as the statement's thread reads alone, and some more. Many values
/// are equal and look different.
fn world() -> World {
    let columns = vec![column("id", TypeId::Int4), column("g", TypeId::Int4), column("v", TypeId::Numeric)];
    let wide = table(1004, "wide", columns, vec![index(2005, "wide_pkey", 1004, &[0], true, true)]);
    let mut store = Store::default();
    let values = ["7.5", "7.50", "-3", "-3.000", "0.25", "1234567890123456789.5"]
        .map(|text| Datum::Numeric(Numeric::parse(text).expect("a number")));
    for id in 0..22_000 {
        let g = if id % 11 == 0 { Datum::Null } else { Datum::Int4(id * 31 % 23 + id / 20_000) };
        let v = if id % 13 == 0 { Datum::Null } else { values[id as usize % values.len()].clone() };
        store.insert(&wide, &[Datum::Int4(id), g, v]);
    }
    World { catalog: Arc::new(Catalog::new(1, [Object::Table(Arc::new(wide))])), store }
}

/// The rows, or what went wrong.
type Answer = std::result::Result<Vec<String>, String>;

/// The answer by one thread.
fn alone(world: &World, sql: &str) -> Answer {
    world.rows(sql, &[]).map_err(|error| error.message.clone())
}

/// The same where another thread may help.
fn helped(world: &World, sql: &str, fate: Fate) -> (Answer, Arc<Seen>) {
    helped_among(world, sql, fate, (0, 0))
}

/// The same where so many other transactions execute, and wait.
fn helped_among(world: &World, sql: &str, fate: Fate, others: (u32, u32)) -> (Answer, Arc<Seen>) {
    let seen = Arc::new(Seen {
        fate,
        own: thread::current().id(),
        is_divided: AtomicBool::new(false),
        meeting: Barrier::new(2),
        known: Barrier::new(2),
        readers: Mutex::default(),
    });
    let reader = Divisible(&world.store, seen.clone());
    let _within = bounds::enter(Arc::new(Sharing(fate)));
    let session = OneHelper { others, seen: seen.clone(), looks: AtomicU32::new(0) };
    let answer = world.read_in(&session, &reader, sql, &[], &NeverInterrupted);
    (answer.map_err(|error| error.message.clone()), seen)
}

/// On a machine with one core nobody helps.
fn is_alone() -> bool {
    thread::available_parallelism().map_or(1, usize::from) == 1
}

#[test]
fn two_threads_give_the_answer_of_one_whatever_becomes_of_the_other() {
    let world = world();
    let queries = [
        "SELECT sum(v), count(*), count(g), min(v), max(v), avg(v), sum(id), avg(id) FROM wide \
         WHERE id % 7 <> 3",
        "SELECT bool_and(g < 23), bool_or(g = 5), bit_and(id), bit_or(g), bit_xor(id), min(g) FROM wide",
        "SELECT count(*) FROM wide WHERE id < 0 OR v > 1e30",
        // In the order of their first rows, one of which comes late.
        "SELECT g, count(*), sum(v * (1 + v)), max(v), min(v) FILTER (WHERE id > 9000) FROM wide GROUP BY g",
        "SELECT v, count(*) FROM wide GROUP BY v",
        "SELECT g % 3, min(v), sum(id) FROM wide GROUP BY 1 HAVING count(*) > 10",
        // The values that a part keeps are more than its share.
        "SELECT g, length(max(repeat(id::text, 2000))) FROM wide GROUP BY g",
        // The first error of many.
        "SELECT sum(10 / (id % 20000 - 19990)), sum(1 / (g - 5)) FROM wide WHERE id + 0 > 19000",
        "SELECT sum(CASE WHEN id = 21000 THEN 1 / (g - g) WHEN id > 21500 THEN id * 100000 END) FROM wide",
    ];
    for sql in queries {
        let wanted = alone(&world, sql);
        assert_eq!(wanted.is_err(), sql.contains(" / "), "{sql}: {wanted:?}");
        for fate in [Fate::Read, Fate::Failure, Fate::Panic, Fate::Stop] {
            let (answer, seen) = helped(&world, sql, fate);
            assert_eq!(answer, wanted, "{fate:?}: {sql}");
            let readers = seen.readers.lock().len();
            assert_eq!(readers, if is_alone() { 0 } else { 2 }, "{fate:?}: {sql}");
        }
    }
}

#[test]
fn what_depends_on_more_than_the_rows_or_on_their_order_is_read_by_one_thread() {
    let world = world();
    let queries = [
        "SELECT sum(v::float8) FROM wide",
        "SELECT count(DISTINCT g) FROM wide",
        "SELECT length(string_agg('x', '')) FROM wide",
        "SELECT count(*) FROM wide WHERE random() < 2",
        "SELECT count(*) FROM wide WHERE EXISTS (SELECT FROM wide x WHERE x.id = wide.id)",
        "SELECT g, count(*) FROM wide GROUP BY ROLLUP (g)",
        "SELECT id, count(*) FROM wide GROUP BY id HAVING count(*) > 1",
        "SELECT count(*) FROM wide a JOIN wide b ON a.id = b.id",
        "SELECT count(*) FROM (SELECT id FROM wide LIMIT 20000) x",
    ];
    for sql in queries {
        let (answer, seen) = helped(&world, sql, Fate::Read);
        assert_eq!(answer, alone(&world, sql), "{sql}");
        assert!(!seen.is_divided.load(Ordering::Relaxed), "{sql}");
    }
}

#[test]
fn nobody_helps_where_other_transactions_want_the_cores() {
    let world = world();
    let cores = thread::available_parallelism().map_or(1, usize::from) as u32;
    let sql = "SELECT count(*), sum(id) FROM wide";
    for others in [(cores - 1, 0), (cores, 0), (1000, 0), (0, cores - 1), (0, 1000)] {
        let (answer, seen) = helped_among(&world, sql, Fate::Read, others);
        assert_eq!(answer, alone(&world, sql), "{others:?} others");
        assert!(!seen.is_divided.load(Ordering::Relaxed), "{others:?} others");
    }
}
