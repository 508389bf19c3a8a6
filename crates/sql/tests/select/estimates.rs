//! What the planner makes of how many different values columns have.

use super::perform;

const TABLES: &str = "CREATE TABLE fact (id int PRIMARY KEY, kind int, v int, x int);\n\
                      CREATE TABLE part (id int PRIMARY KEY, kind int, v int);\n\
                      CREATE INDEX fact_kind ON fact (kind);\n";

/// The plan of a query over large tables whose columns have so many different values each.
fn plan(query: &str, values: Option<f64>) -> String {
    let script = format!("{TABLES}EXPLAIN {query};\n");
    perform(&script, Some(1_000_000), values).pop().expect("a plan").1
}

/// A value that a third of the rows have is not looked up in an index; one of many is, and so it
/// is if nothing is known.
#[test]
fn an_index_is_read_where_its_columns_are_selective() {
    let queries = [
        "SELECT v FROM fact WHERE kind = 1",
        "SELECT v FROM fact WHERE kind IN (1, 2)",
        "SELECT v FROM fact WHERE kind = ANY ('{1,2}'::int[])",
        "SELECT sum(v) FROM fact WHERE kind = 1 LIMIT 1",
        "SELECT b.v FROM fact a JOIN fact b ON b.kind = a.x WHERE a.id = 1",
    ];
    for query in queries {
        for (values, is_read) in [(None, true), (Some(100_000.0), true), (Some(3.0), false)] {
            let plan = plan(query, values);
            assert_eq!(plan.contains("Index Scan using fact_"), is_read, "{query}\n{values:?}\n{plan}");
        }
    }
}

/// Nobody reads all rows to take some that an index finds: what they have may be rare by now.
#[test]
fn what_is_taken_is_looked_up_however_frequent_it_was() {
    let queries = [
        "SELECT v FROM fact WHERE kind = 1 LIMIT 1",
        "SELECT v FROM fact WHERE kind = 1 FOR UPDATE",
        "SELECT v FROM fact WHERE kind IN (1, 2) FOR UPDATE SKIP LOCKED",
        "SELECT v FROM fact WHERE kind = ANY ('{1,2}'::int[]) LIMIT 3",
        "SELECT v FROM fact WHERE kind = 1 ORDER BY v FOR SHARE",
        "SELECT min(id) FROM fact WHERE kind = 1",
    ];
    for query in queries {
        for values in [None, Some(1.0), Some(2.0), Some(3.0), Some(100_000.0)] {
            let plan = plan(query, values);
            assert!(plan.contains("Index Cond: (kind"), "{query}\n{values:?}\n{plan}");
        }
    }
}

/// An index that is not unique has the rows of one value in the order of the primary key: the first
/// ones end the reading, and all rows are not read in that order until some are met.
#[test]
fn the_first_rows_of_a_value_are_read_in_the_order_of_the_primary_key() {
    let script = "CREATE INDEX fact_order ON fact (x, id);\nCREATE UNIQUE INDEX fact_once ON fact (v);\n";
    let plan = |query: &str, values| {
        let script = format!("{TABLES}{script}EXPLAIN {query};\n");
        perform(&script, Some(1_000_000), values).pop().expect("a plan").1
    };
    let in_order = [
        "SELECT id FROM fact WHERE kind = 1 ORDER BY id LIMIT 1",
        "SELECT id FROM fact WHERE kind = 1 ORDER BY kind, id LIMIT 1",
        "SELECT id FROM fact WHERE kind IS NULL ORDER BY id LIMIT 1",
        "SELECT id FROM fact WHERE kind = 1 ORDER BY id FOR UPDATE",
        "SELECT id FROM fact WHERE kind = 1 ORDER BY id DESC LIMIT 1",
        "SELECT id FROM fact WHERE x = 1 ORDER BY id LIMIT 1",
    ];
    for query in in_order {
        for values in [None, Some(1.0), Some(2.0), Some(100_000.0)] {
            let plan = plan(query, values);
            let is_by_index = plan.contains("Index Cond: (") && !plan.contains("Sort");
            assert!(is_by_index, "{query}\n{values:?}\n{plan}");
            assert_eq!(plan.contains("Backward"), query.contains("DESC"), "{query}\n{plan}");
        }
    }
    // Entries of a unique index are taken to be in no such order, and several values have several.
    let unordered = [
        "SELECT id FROM fact WHERE v IS NULL ORDER BY id",
        "SELECT id FROM fact WHERE kind IN (1, 2) ORDER BY id",
    ];
    for query in unordered {
        let plan = plan(query, Some(100_000.0));
        assert!(plan.contains("Sort") && plan.contains("Index Cond: ("), "{query}\n{plan}");
    }
}

/// With keys that are taken to be unique, a join of few rows finds few; if they are known not to
/// be, there are as many that look for the third table's.
#[test]
fn a_join_multiplies_rows_where_its_keys_are_not_unique() {
    let query = "SELECT c.v FROM part a JOIN part b ON b.kind = a.kind JOIN part c ON c.id = b.v \
                 WHERE a.v = 1";
    let (unknown, known) = (plan(query, None), plan(query, Some(1000.0)));
    assert!(unknown.contains("Point Lookup"), "{unknown}");
    assert!(!known.contains("Point Lookup") && known.contains("Hash Join"), "{known}");
}

/// The sides of outer joins in one another are planned once for each level, not twice as often with
/// each: with thirty levels nobody would see the end of that.
#[test]
fn outer_joins_in_one_another_are_planned_level_by_level() {
    const LEVELS: usize = 30;
    let left = |level: usize, right: String| {
        format!("part p{level} LEFT JOIN {right} ON p{level}.kind = p{}.id", level + 1)
    };
    let full = |level: usize, right: String| {
        let join = format!("part p{level} FULL JOIN {right} ON p{level}.kind = p{}.id", level + 1);
        format!("part q{level} CROSS JOIN ({join})")
    };
    let kinds: [&dyn Fn(usize, String) -> String; 2] = [&left, &full];
    for nested in kinds {
        let innermost = nested(LEVELS - 1, format!("part p{LEVELS}"));
        let from = (0..LEVELS - 1).rev().fold(innermost, |from, level| nested(level, format!("({from})")));
        let plan = plan(&format!("SELECT p0.v FROM {from}"), None);
        assert!(plan.contains(&format!("part p{LEVELS}")), "{plan}");
    }
}
