//! EXISTS, and values, of tables without an index: runs at first, and what there is by key once
//! these have taken long.

use super::*;

const ROWS: i32 = 1000;

/// Two tables of a thousand rows, without an index but for the key.
fn world() -> World {
    let columns = || vec![column("id", TypeId::Int4), column("x", TypeId::Int4), column("y", TypeId::Int8)];
    let mut store = Store::default();
    let mut objects = Vec::new();
    for (oid, name) in [(1005, "a"), (1006, "b")] {
        let key = index(oid + 1000, &format!("{name}_pkey"), oid, &[0], true, true);
        let table = table(oid, name, columns(), vec![key]);
        for id in 0..ROWS {
            // Every seventh is NULL.
            let y = if id % 7 == 0 { Datum::Null } else { Datum::Int8(i64::from(id) / 2) };
            store.insert(&table, &[Datum::Int4(id), Datum::Int4(ROWS - id), y]);
        }
        objects.push(Object::Table(Arc::new(table)));
    }
    World { catalog: Arc::new(Catalog::new(1, objects)), store }
}

/// How often it asks whether to stop, if it asks at each step, and its answer.
fn steps(world: &World, sql: &str) -> (u32, Vec<String>) {
    let count = StopAfter { questions: AtomicU32::new(0), last: u32::MAX, since: Duration::from_millis(1) };
    let rows = world.interrupted(sql, &[], &count).expect(sql);
    (count.questions.load(Ordering::Relaxed), rows)
}

#[test]
fn a_table_without_an_index_is_not_read_for_each_row() {
    let world = world();
    let conditions = [
        ("EXISTS (SELECT FROM b WHERE b.x = a.id)", 999),
        ("NOT EXISTS (SELECT FROM b WHERE a.id = b.x)", 1),
        ("EXISTS (SELECT FROM b WHERE b.x = a.id) OR a.id < 0", 999),
        // Integers of two sizes, a condition besides, several equalities, NULLs on either side.
        ("EXISTS (SELECT FROM b WHERE b.y = a.id AND b.x > 500)", 250),
        ("EXISTS (SELECT FROM b WHERE b.y = a.y AND b.id = a.id)", 857),
        ("NOT EXISTS (SELECT FROM b WHERE b.y = a.y)", 143),
    ];
    for (condition, expected) in conditions {
        let sql = format!("SELECT count(*) FROM a WHERE {condition}");
        let (taken, rows) = steps(&world, &sql);
        assert_eq!(rows, [expected.to_string()], "{condition}");
        // Each table once, as many steps of runs, and some for each row that is looked up.
        assert!(taken < 20 * ROWS as u32, "{condition}: {taken} steps");
        // What depends on the row in another way, too, is run for each of them.
        let run = sql.replace("FROM b WHERE", "FROM b WHERE (a.id IS NULL OR b.id IS NOT NULL) AND");
        assert_eq!(steps(&world, &run).1, rows, "{run}");
    }
}

#[test]
fn a_value_is_looked_up_once_that_is_shorter() {
    let world = world();
    let values = [
        ("(SELECT b.id FROM b WHERE b.x = a.id)", "499500 999"),
        ("(SELECT b.y + 1 FROM b WHERE b.x = a.id AND b.id > 499)", "161107 429"),
        ("(SELECT b.y FROM b WHERE b.id = a.y)", "97858 785"),
    ];
    for (value, expected) in values {
        let sql = format!("SELECT sum(v), count(v) FROM (SELECT {value} AS v FROM a) s");
        let (taken, rows) = steps(&world, &sql);
        assert!(taken < 20 * ROWS as u32, "{value}: {taken} steps");
        let run = sql.replace("FROM b WHERE", "FROM b WHERE (a.id IS NULL OR b.id IS NOT NULL) AND");
        assert_eq!(steps(&world, &run).1, rows, "{run}");
        assert_eq!(rows, [expected], "{value}");
    }
    // Two rows of one key are too many for whoever asks for it, and for nobody else.
    let of_two = "SELECT count((SELECT b.id FROM b WHERE b.y = a.id)) FROM a";
    assert_eq!(world.rows(of_two, &[]).expect_err("two rows").sqlstate, "21000");
    let of_none = format!("{of_two} WHERE a.id > 499");
    assert_eq!(world.rows(&of_none, &[]).expect("none has it"), ["0"]);
}

/// Each run finds a row at once: no set of all rows is gathered for the few that ask.
#[test]
fn short_runs_stay_runs() {
    let world = world();
    let (taken, rows) =
        steps(&world, "SELECT count(*) FROM a WHERE id < 9 AND EXISTS (SELECT FROM b WHERE b.id = a.id)");
    assert_eq!(rows, ["9"]);
    assert!(taken < 200, "{taken} steps");
}

/// A row that no run comes to would fail in a set: it stays with runs.
#[test]
fn what_fails_in_a_set_does_not_fail() {
    let world = world();
    let sql = "SELECT count(*) FROM a WHERE EXISTS (SELECT FROM b WHERE b.x = a.id AND 1 / (b.id - 998) < 5)";
    let limited = sql.replace("FROM a WHERE", "FROM a WHERE id <> 2 AND");
    assert_eq!(steps(&world, &limited).1, ["998"]);
    let failed = world.rows(sql, &[]).expect_err("a division by zero");
    assert_eq!(failed.sqlstate, "22012");
}
