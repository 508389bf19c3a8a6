//! Statements that hold more than they may: they go on on disk, and answer as they do in memory.

use std::path::PathBuf;

use cognate::{Database, Options};
use cognate_env::sim::SimDisk;

/// A database whose statements may hold 2 MB, and one whose statements hold all that is asked here
/// in memory.
struct Pair {
    folder: tempfile::TempDir,
    small: Database,
    large: Database,
}

impl Pair {
    fn open() -> Pair {
        let folder = tempfile::tempdir().expect("a folder");
        let open = |name: &str, memory: u64| {
            Database::open_with(Options::new(folder.path().join(name)).memory(memory)).expect("opened")
        };
        let (small, large) = (open("small", 4 << 20), open("large", 1 << 30));
        Pair { folder, small, large }
    }

    fn temporary(&self, name: &str) -> PathBuf {
        self.folder.path().join(name).join("temporary")
    }

    fn answer(database: &Database, query: &str) -> Vec<String> {
        let mut session = database.session().expect("a session");
        let rows = session.query(query, &[]).unwrap_or_else(|error| panic!("{query}: {error:?}"));
        let line = |row: &cognate::Row| {
            let text = |place| row.text(place).expect("a column").unwrap_or_else(|| "-".to_owned());
            (0..row.columns().len()).map(text).collect::<Vec<_>>().join("|")
        };
        rows.iter().map(line).collect()
    }

    fn run(&self, script: &str) {
        for database in [&self.small, &self.large] {
            database.session().expect("a session").run_script(script).expect("it runs");
        }
    }

    /// The answers are the same, and only the small one has needed files, which are gone.
    fn check(&self, query: &str, is_ordered: bool) {
        let mut wanted = Pair::answer(&self.large, query);
        assert!(!self.temporary("large").exists(), "{query}: files although memory suffices");
        let mut given = Pair::answer(&self.small, query);
        let left = std::fs::read_dir(self.temporary("small")).unwrap_or_else(|_| panic!("{query}: no files"));
        assert_eq!(left.count(), 0, "{query}: files that stay");
        std::fs::remove_dir(self.temporary("small")).expect("removed");
        if !is_ordered {
            wanted.sort();
            given.sort();
        }
        assert!(given.len() > 1 && given == wanted, "{query}: {} and {} rows", given.len(), wanted.len());
    }
}

/// 30,000 rows: a key of 7,001 values, one of ten with NULLs, a number with digits, a text.
const ROWS: &str = "(SELECT n, n * 7919 % 7001 AS k, nullif(n % 10, 3) AS t, (n * 31 % 977)::numeric / 8 AS x, \
                    'row ' || n * 7907 % 30011 || repeat('.', 40) AS s FROM generate_series(1, 30000) AS g (n))";

#[test]
fn sorts_and_windows() {
    let pair = Pair::open();
    let of = |query: &str| query.replace("ROWS AS", &format!("{ROWS} AS"));
    for query in [
        "SELECT * FROM ROWS AS r ORDER BY t DESC, s, n",
        "SELECT n, s FROM ROWS AS r ORDER BY x, k DESC, t NULLS FIRST, n",
        "SELECT n, s FROM ROWS AS r ORDER BY s DESC LIMIT 20000 OFFSET 100",
        "SELECT n, row_number() OVER w, rank() OVER w, sum(x) OVER w, s FROM ROWS AS r WINDOW w AS (PARTITION BY k ORDER BY t, n) ORDER BY n",
        "SELECT n, max(x) OVER (PARTITION BY t ORDER BY n ROWS BETWEEN 3 PRECEDING AND 2 FOLLOWING), lag(s) OVER (PARTITION BY k ORDER BY n) \
         FROM ROWS AS r ORDER BY n",
        "SELECT n, sum(x) OVER (ORDER BY n ROWS BETWEEN 50 PRECEDING AND 50 FOLLOWING), first_value(s) OVER (ORDER BY n), \
         min(s) OVER (ORDER BY x GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING), lead(s, 1000) OVER (ORDER BY n) FROM ROWS AS r ORDER BY n",
        // The first rows of more partitions than are kept apart.
        "SELECT * FROM (SELECT n, s, row_number() OVER (PARTITION BY n / 2 ORDER BY x DESC, n) AS p FROM ROWS AS r) AS q WHERE p <= 1 ORDER BY n",
        "SELECT * FROM (SELECT n, s, row_number() OVER (PARTITION BY s ORDER BY x, n) AS p FROM ROWS AS r) AS q WHERE p < 3 ORDER BY n",
    ] {
        pair.check(&of(query), true);
    }
}

#[test]
fn common_table_expressions() {
    let pair = Pair::open();
    let of = |query: &str| query.replace("ROWS AS", &format!("{ROWS} AS"));
    for query in [
        "WITH w AS MATERIALIZED (SELECT * FROM ROWS AS r) SELECT n, s FROM w WHERE k = 5 UNION ALL SELECT count(*), max(s) FROM w",
        "WITH w AS MATERIALIZED (SELECT * FROM ROWS AS r) SELECT sum(x) FROM w UNION ALL SELECT sum(x) + 1 FROM w a WHERE n IN (SELECT k FROM w)",
        "WITH RECURSIVE w (n, s) AS (SELECT 1, repeat('x', 1000) UNION ALL SELECT n + 1, s FROM w WHERE n < 8000) \
         SELECT count(*), sum(n), max(length(s)) FROM w UNION ALL SELECT n, n, length(s) FROM w WHERE n % 1000 = 0",
    ] {
        pair.check(&of(query), false);
    }
}

#[test]
fn aggregates_of_sorted_and_of_distinct_values() {
    let pair = Pair::open();
    let of = |query: &str| query.replace("ROWS AS", &format!("{ROWS} AS"));
    for query in [
        "SELECT t, count(DISTINCT s), sum(DISTINCT x), max(DISTINCT n) FROM ROWS AS r GROUP BY t",
        "SELECT count(DISTINCT s), count(DISTINCT k) FROM ROWS AS r UNION ALL SELECT 1, 2",
        "SELECT t, md5(string_agg(left(s, 12), ',' ORDER BY s DESC, n)), count(*) FROM ROWS AS r GROUP BY t",
        "SELECT md5(string_agg(DISTINCT left(s, 12), ',' ORDER BY left(s, 12))), count(DISTINCT s) FROM ROWS AS r \
         UNION ALL SELECT s, n FROM ROWS AS r WHERE n < 3",
    ] {
        pair.check(&of(query), false);
    }
}

#[test]
fn set_operations() {
    let pair = Pair::open();
    let of = |query: &str| query.replace("ROWS AS", &format!("{ROWS} AS"));
    let twice =
        "SELECT n % 20000, s FROM ROWS AS r UNION ALL SELECT n % 20000, s FROM ROWS AS q WHERE k < 3000";
    for query in [
        "SELECT n, s FROM ROWS AS r UNION SELECT n, s FROM ROWS AS q WHERE k % 3 = 0",
        "SELECT n, s FROM ROWS AS r INTERSECT SELECT n, s FROM ROWS AS q WHERE k % 3 = 0",
        "SELECT n, s FROM ROWS AS r EXCEPT SELECT n, s FROM ROWS AS q WHERE k % 3 = 0",
        "SELECT n, s FROM ROWS AS r EXCEPT SELECT n, s FROM ROWS AS q WHERE n < 10",
        "SELECT n, s FROM ROWS AS r WHERE n < 10 UNION ALL (SELECT n, s FROM ROWS AS q EXCEPT SELECT n + 1, s FROM ROWS AS p)",
        &format!("({twice}) INTERSECT SELECT n, s FROM ROWS AS p"),
        &format!("({twice}) INTERSECT ALL SELECT n, s FROM ROWS AS p"),
        &format!("({twice}) EXCEPT SELECT n, s FROM ROWS AS p WHERE k > 100"),
        &format!("({twice}) EXCEPT ALL SELECT n, s FROM ROWS AS p WHERE k > 100"),
        &format!("SELECT n, s FROM ROWS AS p EXCEPT ALL ({twice})"),
        &format!("({twice}) INTERSECT ALL ({twice})"),
    ] {
        pair.check(&of(query), false);
    }
}

#[test]
fn groups_and_distinct_rows() {
    let pair = Pair::open();
    let of = |query: &str| query.replace("ROWS AS", &format!("{ROWS} AS"));
    for query in [
        "SELECT s, count(*), sum(x), min(n) FROM ROWS AS r GROUP BY s",
        "SELECT s, k, string_agg(t::text, ',' ORDER BY n), count(DISTINCT x) FROM ROWS AS r GROUP BY k, s HAVING max(n) % 2 = 0",
        "SELECT s, t, grouping(s, t), count(*), avg(x) FROM ROWS AS r GROUP BY GROUPING SETS ((s), (t), (s, t), ())",
        "SELECT s, k, sum(x * 2 + n), avg(x * 2 + n), max(x * 2), avg(x), sum(x) FROM ROWS AS r GROUP BY k, s",
        "SELECT DISTINCT s, t FROM ROWS AS r",
    ] {
        pair.check(&of(query), false);
    }
    pair.check(&of("SELECT DISTINCT ON (s) s, n, x FROM ROWS AS r ORDER BY s, x DESC, n"), true);
}

#[test]
fn joins() {
    let pair = Pair::open();
    let a = ROWS;
    let b = ROWS.replace("30000", "29000").replace("nullif(n % 10, 3)", "nullif(n % 1000, 7)");
    for query in [
        "SELECT a.n, b.n, b.s FROM A AS a JOIN B AS b ON b.s = a.s",
        "SELECT a.n, b.n, b.s FROM A AS a LEFT JOIN B AS b ON b.s = a.s AND b.x > 20",
        "SELECT a.n, b.n, a.s FROM A AS a RIGHT JOIN B AS b ON b.s = a.s AND b.x > a.t",
        "SELECT a.n, a.t, b.n, b.t FROM A AS a FULL JOIN B AS b ON b.t = a.n AND b.s < a.s || b.x",
        "SELECT count(*), sum(a.n), sum(b.n), b.t FROM A AS a FULL JOIN B AS b USING (s) GROUP BY b.t",
    ] {
        pair.check(&query.replace("A AS", &format!("{a} AS")).replace("B AS", &format!("{b} AS")), false);
    }
}

/// The right side of a left join without a key is read once, and its rows are gone through for each
/// row on the left.
#[test]
fn loops() {
    let pair = Pair::open();
    pair.run("CREATE SEQUENCE q");
    let of = |query: &str| query.replace("ROWS AS", &format!("{ROWS} AS"));
    for query in [
        "SELECT a.n, count(b.n), max(b.s), sum(b.x) FROM (VALUES (1), (2), (3), (9)) AS a (n) \
         LEFT JOIN ROWS AS b ON b.k > a.n * 1400 GROUP BY a.n",
        // A page of so many rows would be all that there is.
        "SELECT a.n, count(b.n), max(b.n), max(left(b.s, 20)) FROM (VALUES (1), (2)) AS a (n) \
         LEFT JOIN (SELECT n, repeat(n || ' ', 30000) AS s FROM generate_series(1, 150) AS g (n)) AS b \
         ON b.n > a.n * 10 AND b.s > '2' GROUP BY a.n",
        // Of another size for each row of the query around.
        "SELECT c.n, (SELECT md5(string_agg(left(b.s, 12), ',' ORDER BY b.n, a.n)) FROM (VALUES (1), (2)) AS a (n) \
         LEFT JOIN (SELECT n, k, s FROM ROWS AS r WHERE n > c.n * 1000) AS b ON b.k > a.n * 3000) \
         FROM (VALUES (1), (2), (3)) AS c (n)",
        // What a volatile function has given stays, on disk, too.
        "SELECT a.n, count(b.v), sum(b.v) FROM (VALUES (1), (2), (3)) AS a (n) \
         LEFT JOIN (SELECT nextval('q') AS v, s FROM ROWS AS r) AS b ON b.v % 5 > a.n AND b.s > 'row' GROUP BY a.n",
    ] {
        pair.check(&of(query), false);
    }
    for database in [&pair.small, &pair.large] {
        assert_eq!(Pair::answer(database, "SELECT last_value FROM q"), ["30000"]);
    }
}

/// Nothing sorts where the key's order is there already: a join in parts must not lose it.
#[test]
fn joins_in_the_order_of_a_key() {
    let pair = Pair::open();
    // Each together, since what fills a table of its own may be of any size.
    for (table, columns) in
        [("p (id int PRIMARY KEY, k int, s text)", "n, k, s"), ("b (k int, s text)", "n, s")]
    {
        let name = &table[..1];
        pair.run(&format!("CREATE TABLE {table}; INSERT INTO {name} SELECT {columns} FROM {ROWS} AS r"));
    }
    for query in [
        "SELECT p.id, b.s FROM p LEFT JOIN b ON b.k = p.k ORDER BY p.id",
        "SELECT p.id, b.s FROM p JOIN b ON b.k = p.k ORDER BY p.id",
        "SELECT p.id, p.s, b.s FROM p LEFT JOIN b ON b.k = p.k AND b.s > p.s ORDER BY p.id DESC",
        "SELECT p.id, b.s, c.s FROM p LEFT JOIN b ON b.k = p.k LEFT JOIN b AS c ON c.s = p.s ORDER BY p.id",
        "SELECT p.id, b.s FROM p LEFT JOIN b ON b.k = p.id ORDER BY p.id LIMIT 20000 OFFSET 5",
    ] {
        pair.check(query, true);
    }
}

#[test]
fn rows_of_one_key_beyond_memory_are_an_error() {
    let pair = Pair::open();
    let mut session = pair.small.session().expect("a session");
    let query =
        format!("SELECT count(a.s || b.s) FROM {ROWS} AS a JOIN {ROWS} AS b ON b.n / 100000 = a.n / 100000");
    assert_eq!(session.query(query.as_str(), &[]).expect_err("one key").sqlstate, "53200");
    // What the statement held is given back after its error was told.
    let begun = std::time::Instant::now();
    while std::fs::read_dir(pair.temporary("small")).expect("a folder").count() > 0 {
        assert!(begun.elapsed().as_secs() < 20, "files that stay");
        std::thread::yield_now();
    }
    assert_eq!(session.query("SELECT 1", &[]).expect("goes on").len(), 1);
}

/// Each row of the query around needs a little, and all of them far more than there is.
#[test]
fn what_is_held_for_one_row_is_given_back_before_the_next() {
    let pair = Pair::open();
    for query in [
        "SELECT sum(cardinality(ARRAY(SELECT m + n FROM generate_series(1, 100) AS h (m)))) \
         FROM generate_series(1, 2000) AS g (n)",
        "SELECT sum((WITH w AS (SELECT m + n AS v FROM generate_series(1, 100) AS h (m)) SELECT max(v) FROM w)) \
         FROM generate_series(1, 2000) AS g (n)",
        "SELECT sum((WITH RECURSIVE w (v) AS (SELECT n UNION SELECT v + 1 FROM w WHERE v < n + 50) \
         SELECT count(*) FROM w)) FROM generate_series(1, 2000) AS g (n)",
        "SELECT sum((SELECT count(b.m) FROM (VALUES (1), (2)) AS a (n) LEFT JOIN \
         (SELECT m + g.n AS m FROM generate_series(1, 100) AS h (m)) AS b ON b.m > a.n * 50)) \
         FROM generate_series(1, 2000) AS g (n)",
        "SELECT count(b.m), sum(b.m) FROM generate_series(1, 2000) AS g (n) LEFT JOIN LATERAL \
         (SELECT c.m FROM (VALUES (1), (2)) AS a (n) LEFT JOIN \
         (SELECT m + g.n AS m FROM generate_series(1, 100) AS h (m)) AS c ON c.m > a.n * 50) AS b ON true",
        // So it is with the steps of a recursion.
        "WITH RECURSIVE x (a) AS (SELECT 1 UNION ALL (WITH z AS MATERIALIZED \
         (SELECT a, m FROM x, generate_series(1, 100) AS h (m)) SELECT a + 1 FROM z WHERE m = 7 AND a < 2000)) \
         SELECT count(*), max(a) FROM x",
        // One NULL says as much as all.
        "SELECT count(*) FROM generate_series(1, 10) AS g (n) \
         WHERE n NOT IN (SELECT nullif(m, m) FROM generate_series(1, 100000) AS h (m))",
    ] {
        let wanted = Pair::answer(&pair.large, query);
        assert_eq!((wanted.len(), Pair::answer(&pair.small, query)), (1, wanted), "{query}");
    }
}

#[test]
fn a_full_disk_ends_the_statement_and_nothing_else() {
    let disk = SimDisk::new(1);
    let options = Options { disk: disk.handle(), ..Options::new("/data").memory(4 << 20) };
    let database = Database::open_with(options).expect("opened");
    let mut session = database.session().expect("a session");
    session.run_script("CREATE TABLE t (n int PRIMARY KEY); INSERT INTO t VALUES (1)").expect("a table");
    let query = format!("SELECT * FROM {ROWS} AS r ORDER BY s");
    disk.set_quota(Some(disk.used_bytes() + 1_000_000));
    assert_eq!(session.query(query.as_str(), &[]).expect_err("a full disk").sqlstate, "53100");
    // Its file has gone, so there is room again.
    session.execute("INSERT INTO t VALUES (2)", &[]).expect("the log goes on");
    disk.set_quota(None);
    assert_eq!(session.query(query.as_str(), &[]).expect("rows").len(), 30_000);
}

#[test]
fn what_a_crash_left_is_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let temporary = folder.path().join("data/temporary");
    std::fs::create_dir_all(&temporary).expect("a folder");
    std::fs::write(temporary.join("7"), "rows of nobody").expect("a file");
    let database = Database::open(folder.path().join("data")).expect("opened");
    assert_eq!(std::fs::read_dir(&temporary).expect("a folder").count(), 0);
    database.close().expect("closed");
}
