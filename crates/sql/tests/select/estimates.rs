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
        "SELECT b.v FROM fact a JOIN fact b ON b.kind = a.x WHERE a.id = 1",
    ];
    for query in queries {
        for (values, is_read) in [(None, true), (Some(100_000.0), true), (Some(3.0), false)] {
            let plan = plan(query, values);
            assert_eq!(plan.contains("Index Scan using fact_"), is_read, "{query}\n{values:?}\n{plan}");
        }
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
