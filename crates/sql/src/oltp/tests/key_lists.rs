//! Keys with several values for several of their columns.

use super::*;
use crate::types::Array;

/// Rows of all combinations of some values, by which they are found.
fn world() -> World {
    let columns = vec![column("a", TypeId::Int4), column("b", TypeId::Text), column("c", TypeId::Int4)];
    let key = index(2005, "triples_pkey", 1004, &[0, 1, 2], true, true);
    let triples = table(1004, "triples", columns, vec![key]);
    let mut store = Store::default();
    for a in -1..4 {
        for b in ["", "x", "xy", "é"] {
            for c in [7, 70, 700] {
                store.insert(&triples, &[Datum::Int4(a), Datum::text(b), Datum::Int4(c)]);
            }
        }
    }
    World { catalog: Arc::new(Catalog::new(1, [Object::Table(Arc::new(triples))])), store }
}

/// So many numbers that no row has.
fn absent(count: i32) -> Datum {
    Array::new(TypeId::Int4, (1..=count).map(|n| Datum::Int4(-9 * n)).collect()).into()
}

#[test]
fn each_combination_is_looked_up_once_in_the_order_of_keys() {
    let world = world();
    let conditions = [
        "a IN (3, 0, 3, 99, NULL) AND b = 'x' AND c IN (700, 7)",
        "a = 2 AND b IN ('xy', '', 'é', 'none') AND c IN (70, 70, 7)",
        "a IN (1, 2) AND b IN ('x', 'xy') AND c IN (7, 700, 9)",
        "a = ANY ('{-1,3}'::int8[]) AND b >= 'x' AND c > 7",
        "a IN (SELECT 3 UNION SELECT 0) AND b = ANY ('{x,é}') AND c = 7",
        "a IN (99, 98) AND b IN ('x', 'xy') AND c = 7",
        "a IN (1, 2) AND b = ANY (NULL::text[]) AND c = 7",
    ];
    for condition in conditions {
        let by_key = format!("SELECT a, b, c FROM triples WHERE {condition}");
        let plan = world.plan(&by_key).expect("a plan").explain(false, &FormatContext::default());
        assert!(plan.iter().any(|line| line.contains("triples_pkey")), "{plan:?}");
        // Nothing that is computed is a part of a key.
        let computed = "SELECT a + 0 AS a, b || '' AS b, c + 0 AS c FROM triples";
        let all = format!("SELECT a, b, c FROM ({computed}) s WHERE {condition}");
        let wanted = world.rows(&all, &[]).expect(&all);
        assert_eq!(world.rows(&by_key, &[]).expect(&by_key), wanted, "{by_key}");
    }
}

#[test]
fn many_combinations_take_the_memory_of_their_values_and_can_be_left_half_way() {
    let world = world();
    let sql = "SELECT c FROM triples WHERE a = ANY ($1::int[]) AND b = 'x' AND c = ANY ($2::int[])";
    let slow = StopAfter { questions: AtomicU32::new(0), last: 20_000, since: Duration::from_millis(1) };
    let error = world.interrupted(sql, &[absent(3000), absent(3000)], &slow).expect_err(sql);
    assert_eq!((error.sqlstate, slow.questions.load(Ordering::Relaxed)), ("57014", 20_001));
    let sql = "SELECT c FROM triples WHERE a = ANY ($1::int[])";
    let error = world.rows(sql, &[absent(400_000)]).expect_err("too many values");
    assert_eq!(error.sqlstate, "53200");
}

#[test]
fn values_that_no_row_has_are_steps_too() {
    const COUNT: u32 = 2000;
    let (triples, shop) = (world(), World::new());
    // By ranges of the table, by whole keys, by ranges of another index.
    let queries = [
        (&triples, "SELECT c FROM triples WHERE a = ANY ($1::int[])"),
        (&shop, "SELECT name FROM customer WHERE id = ANY ($1::int[])"),
        (&shop, "SELECT id FROM purchase WHERE customer = ANY ($1::int[])"),
    ];
    for (world, sql) in queries {
        let since = Duration::from_millis(1);
        let count = StopAfter { questions: AtomicU32::new(0), last: u32::MAX, since };
        let found = world.interrupted(sql, &[absent(COUNT as i32)], &count).expect(sql);
        assert!(found.is_empty(), "{sql}");
        // Each is taken in, compared at least once with the one before, and looked for.
        let asked = count.questions.load(Ordering::Relaxed);
        assert!(asked > 3 * COUNT, "{asked} questions: {sql}");
    }
}
