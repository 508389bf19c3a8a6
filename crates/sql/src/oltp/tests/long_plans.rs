//! Statements over very many or very wide tables, which take long to be bound and planned.

use super::*;

/// A FROM of so many tables.
fn tables(count: usize, alias: &str) -> String {
    (0..count).map(|number| format!("customer {alias}{number}")).collect::<Vec<_>>().join(", ")
}

/// What came of planning a statement that may ask so often, and how often it did.
fn planned(world: &World, sql: &str, left: usize) -> (Result<Plan>, usize) {
    let questions = Questions::new(left, usize::MAX);
    let _within = bounds::enter(questions.clone());
    (world.plan_asking(sql, &Asks(questions.clone())), questions.asked())
}

/// Conditions of which any of two tables may be joined first.
fn joined_in_any_order() -> String {
    const TABLES: usize = 24;
    let condition = |i: usize| format!("(c{i}.id = c{}.id OR c{i}.id = 1)", i + 1);
    let conditions: Vec<String> = (0..TABLES - 1).map(condition).collect();
    format!("SELECT count(*) FROM {} WHERE {}", tables(TABLES, "c"), conditions.join(" AND "))
}

/// Columns that are merged again and again.
fn merged_columns() -> String {
    let joins: Vec<String> = (1..40).map(|i| format!("NATURAL FULL JOIN customer c{i}")).collect();
    format!("SELECT * FROM customer c0 {}", joins.join(" "))
}

/// Functions that see all names to their left.
fn lateral_functions() -> String {
    let join = |i: usize| format!("CROSS JOIN generate_series(1, c0.id) AS g{i}");
    let joins: Vec<String> = (0..60).map(join).collect();
    format!("SELECT count(*) FROM customer c0 {}", joins.join(" "))
}

#[test]
fn planning_can_be_stopped_half_way() {
    let world = World::new();
    let long = [(joined_in_any_order(), 20), (merged_columns(), 8), (lateral_functions(), 2)];
    for (sql, least) in long {
        let (whole, asked) = planned(&world, &sql, usize::MAX);
        assert!(whole.is_ok() && asked >= least, "{asked} questions: {sql}");
        for left in [0, asked / 2, asked - 1] {
            let (stopped, asked) = planned(&world, &sql, left);
            assert_eq!(stopped.expect_err(&sql).sqlstate, "57014", "{sql}");
            assert_eq!(asked, left + 1, "{sql}");
        }
    }
}

#[test]
fn a_statement_of_a_few_tables_asks_nobody() {
    let world = World::new();
    let few = [
        "SELECT name FROM customer WHERE id = 1",
        "SELECT a.name, sum(b.amount) FROM customer a JOIN purchase b ON b.customer = a.id
            LEFT JOIN purchase c ON c.id = b.id JOIN customer d ON d.city = a.city
            WHERE a.id > 1 AND b.amount > 2 AND c.id IN (1, 2, 3) GROUP BY a.name ORDER BY 1",
        "SELECT * FROM customer a NATURAL FULL JOIN customer b NATURAL LEFT JOIN purchase c,
            LATERAL (SELECT a.id) d",
    ];
    for sql in few {
        let (plan, asked) = planned(&world, sql, usize::MAX);
        assert!(plan.is_ok(), "{sql}");
        assert_eq!(asked, 0, "{sql}");
    }
}

#[test]
fn too_many_tables_are_refused_before_the_others_are_looked_up() {
    let world = World::new();
    let refused = |sql: &str| {
        let error = world.plan(sql).expect_err(sql);
        assert_eq!((error.sqlstate, &*error.message), ("54001", "more than 128 tables in one FROM"), "{sql}");
    };
    refused(&format!("SELECT 1 FROM {}, nowhere", tables(129, "c")));
    let joins: Vec<String> = (1..129).map(|i| format!("CROSS JOIN customer c{i}")).collect();
    refused(&format!("SELECT 1 FROM customer c0 {} CROSS JOIN nowhere", joins.join(" ")));
    // Those of a derived table that is merged count, and those of another one do not.
    let (outer, inner) = (tables(65, "c"), tables(65, "d"));
    refused(&format!("SELECT 1 FROM {outer}, (SELECT d0.id FROM {inner}) q"));
    let error = world.plan(&format!("SELECT nowhere FROM {outer}, (SELECT random() FROM {inner}) q"));
    assert_eq!(error.expect_err("no such column").sqlstate, "42703");
}
