//! Every window function with every frame, over several keys, partitions and NULLs: a product too
//! large to be written by hand.
//!
//! `product.out` has PostgreSQL's answers in the order of [`statements`], each with a number;
//! [`write_product`] asks for them.

use std::fmt::Write as _;

use super::{folder, perform, psql};

const TABLE: &str = "CREATE TABLE p (id int PRIMARY KEY, g int, k int, n numeric, f float8, d date, t timestamp, x text, b bool, i interval);\n\
INSERT INTO p VALUES (1, 1, 1, 1.5, 0.5, '2024-01-31', '2024-01-31 10:00', 'b', true, '1 day'), \
(2, 1, 1, 1.50, 'NaN', '2024-01-31', '2024-02-01 10:00', 'a', false, '2 days'), \
(3, 2, 3, 2.25, 1.5, '2024-02-29', '2024-02-01 10:00', NULL, true, '1 mon'), \
(4, 1, NULL, NULL, 2.5, NULL, '2024-02-02 00:00', 'c', NULL, NULL), \
(5, 2, 4, -1, '-Infinity', '2024-03-01', NULL, 'd', false, '3 days'), \
(6, NULL, 7, 3.75, 2.5, '2024-03-31', '2024-03-05 12:00', '', true, '31 days'), \
(7, 1, 4, 'NaN', NULL, '2024-03-01', '2024-03-31 00:00', 'b', true, '-1 day'), \
(8, 2, NULL, 10, 'Infinity', '2024-02-28', '2024-03-31 00:00', 'e', NULL, '2 mons'), \
(9, 1, 3, NULL, 0.5, NULL, NULL, 'f', false, '0'), \
(10, NULL, -2, 3.7500, -1, '2024-01-01', '2024-02-29 23:59:59', 'g', true, '1 day 1 hour');\n";

/// Functions whose answers do not depend on the order of rows that sort alike.
const UNORDERED: &[&str] = &[
    "count(*)",
    "count(x)",
    "sum(k)",
    "sum(n)",
    "avg(k)",
    "avg(n)",
    "sum(i)",
    "avg(i)",
    "min(x)",
    "max(round(n, 2))",
    "min(f)",
    "bool_and(b)",
    "bool_or(b)",
    "bit_or(k)",
    "stddev(k)",
    "var_pop(id)",
    "rank()",
    "dense_rank()",
    "percent_rank()",
    "cume_dist()",
];

/// The others, and FILTER.
const ORDERED: &[&str] = &[
    "row_number()",
    "ntile(3)",
    "lag(k)",
    "lag(x, 2, 'none')",
    "lead(n)",
    "lead(k, -1, k)",
    "first_value(x)",
    "last_value(n)",
    "nth_value(k, 2)",
    "array_agg(k)",
    "string_agg(x, '-')",
    "jsonb_agg(n)",
    "sum(id)",
    "sum(n)",
    "count(*)",
    "variance(n)",
    "max(d)",
    "every(b)",
];

const FILTERED: [&str; 3] = ["count(*)", "sum(k)", "string_agg(x, '')"];

/// Ends of frames of ROWS and GROUPS, as far as they can be together.
fn bounds() -> Vec<String> {
    let starts =
        ["UNBOUNDED PRECEDING", "2 PRECEDING", "1 PRECEDING", "CURRENT ROW", "1 FOLLOWING", "2 FOLLOWING"];
    let ends =
        ["2 PRECEDING", "1 PRECEDING", "CURRENT ROW", "1 FOLLOWING", "2 FOLLOWING", "UNBOUNDED FOLLOWING"];
    let rank =
        |bound: &str| usize::from(!bound.contains("PRECEDING")) + usize::from(bound.contains("FOLLOWING"));
    let mut bounds = vec![];
    for start in starts {
        bounds.extend(
            ends.iter()
                .filter(|end| rank(start) <= rank(end))
                .map(|end| format!("BETWEEN {start} AND {end}")),
        );
    }
    bounds
}

const EXCLUSIONS: [&str; 4] = ["", " EXCLUDE CURRENT ROW", " EXCLUDE GROUP", " EXCLUDE TIES"];

/// Sort keys with offsets that fit them.
const DISTANCES: &[(&str, &str, &str)] = &[
    ("k", "2", "1"),
    ("k DESC", "1", "3"),
    ("k NULLS FIRST", "0", "2"),
    ("k::int8", "9223372036854775807", "9223372036854775807"),
    ("k::int2", "1::int8", "70000::int4"),
    ("n", "0.5", "2"),
    ("n DESC NULLS LAST", "0.75", "1.5"),
    ("n", "'Infinity'::numeric", "1"),
    ("f", "1", "0.5"),
    ("f DESC", "2", "'Infinity'::float8"),
    ("f::float4", "1", "1"),
    ("d", "'1 month'::interval", "'1 day'"),
    ("d DESC", "'2 days'", "'1 month 1 day'"),
    ("t", "'12 hours'", "'30 days'"),
    ("t DESC NULLS LAST", "'1 day'::interval", "'2 days'::interval"),
    ("t::timestamptz", "'1 day'", "'1 month'"),
    ("t::time", "'2 hours'", "'14 hours'"),
    ("i", "'1 day'", "'1 mon'"),
];

/// A statement: the functions over one window, a row for each row.
fn statement(functions: &[String], window: &str) -> String {
    let calls: Vec<String> = functions.iter().map(|function| format!("{function} OVER w")).collect();
    format!("SELECT id, {} FROM p WINDOW w AS ({window}) ORDER BY id;", calls.join(", "))
}

/// All statements, by one rule in one order.
fn statements() -> Vec<String> {
    let owned = |functions: &[&str]| functions.iter().map(|f| (*f).to_owned()).collect::<Vec<String>>();
    let mut ordered = owned(ORDERED);
    ordered.extend(FILTERED.iter().map(|function| format!("{function} FILTER (WHERE b)")));
    let unordered = owned(UNORDERED);
    let keys = ["k", "n DESC", "f NULLS FIRST", "d DESC NULLS LAST", "t", "x", "b", "i DESC"];
    let partitions = ["", "PARTITION BY g ", "PARTITION BY b, g "];
    let mut all = vec![];
    for bounds in bounds() {
        for exclusion in EXCLUSIONS {
            let (key, partition) = (keys[all.len() % keys.len()], partitions[all.len() % partitions.len()]);
            all.push(statement(&ordered, &format!("{partition}ORDER BY {key}, id ROWS {bounds}{exclusion}")));
            all.push(statement(&unordered, &format!("{partition}ORDER BY {key} GROUPS {bounds}{exclusion}")));
        }
    }
    for bounds in [
        "UNBOUNDED PRECEDING",
        "CURRENT ROW",
        "BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
        "BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    ] {
        for exclusion in EXCLUSIONS {
            for (number, key) in keys.iter().enumerate() {
                let partition = partitions[number % partitions.len()];
                all.push(statement(
                    &unordered,
                    &format!("{partition}ORDER BY {key} RANGE {bounds}{exclusion}"),
                ));
            }
        }
    }
    for (number, (key, before, after)) in DISTANCES.iter().enumerate() {
        let partition = partitions[number % partitions.len()];
        for bounds in [
            format!("BETWEEN {before} PRECEDING AND {after} FOLLOWING"),
            format!("BETWEEN {after} PRECEDING AND {before} PRECEDING"),
            format!("BETWEEN {before} FOLLOWING AND {after} FOLLOWING"),
            format!("BETWEEN CURRENT ROW AND {after} FOLLOWING"),
            format!("BETWEEN UNBOUNDED PRECEDING AND {before} PRECEDING"),
            format!("BETWEEN {after} PRECEDING AND UNBOUNDED FOLLOWING"),
        ] {
            let exclusion = EXCLUSIONS[all.len() % EXCLUSIONS.len()];
            all.push(statement(&unordered, &format!("{partition}ORDER BY {key} RANGE {bounds}{exclusion}")));
        }
    }
    for partition in partitions {
        all.push(statement(&unordered, partition));
        all.push(statement(&ordered, &format!("{partition}ORDER BY id DESC")));
    }
    all
}

fn path() -> std::path::PathBuf {
    folder().join("product.out")
}

#[test]
fn every_function_with_every_frame() {
    let known = std::fs::read_to_string(path()).expect("answers");
    let known: Vec<&str> = known.split("\n@").map(|answer| answer.trim_start_matches('@')).collect();
    let statements = statements();
    assert_eq!(known.len(), statements.len(), "answers for other statements");
    let answers = perform(&(TABLE.to_owned() + &statements.join("\n")), None, None).split_off(2);
    let mut wrong = String::new();
    for (number, ((statement, answer), known)) in answers.iter().zip(known).enumerate() {
        let expected = known.strip_prefix(&format!("{number}\n")).expect("the number").trim_end();
        if expected != answer.split_once('\n').map_or(answer.as_str(), |(_, rows)| rows).trim_end() {
            writeln!(wrong, "{statement}\nPostgreSQL:\n{expected}\nhere:\n{answer}").expect("a string");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Asks PostgreSQL as [`write_answers`](super::write_answers) does.
#[test]
#[ignore = "needs a PostgreSQL server"]
fn write_product() {
    let mut script = String::from(
        "\\pset format unaligned\n\\pset null ~\n\\pset footer off\n\\pset tuples_only on\nset timezone to 'UTC';\n\
         set client_min_messages to error;\ndrop schema public cascade;\ncreate schema public;\n",
    );
    script.push_str(TABLE);
    for (number, statement) in statements().iter().enumerate() {
        writeln!(script, "\\echo @{number}\n{statement}").expect("a string");
    }
    let answers = psql(&script);
    assert!(!answers.contains("ERROR"), "{answers}");
    std::fs::write(path(), answers).expect("written");
}
