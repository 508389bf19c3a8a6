//! Statements made to break the server, over the real wire: each gets an answer of its own, and the
//! session goes on.

use std::fmt::Write as _;

use crate::process::Process;
use crate::wire::{Failure, Wire, message};

fn serve(arguments: &[&str]) -> (tempfile::TempDir, Process, Wire) {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::serve(&folder.path().join("data"), arguments);
    let wire = Wire::connect(process.address).expect("connected");
    (folder, process, wire)
}

/// The session and the server go on.
fn goes_on(wire: &mut Wire, after: &str) {
    let rows = wire.query("SELECT 1").unwrap_or_else(|failure| panic!("after {after}: {failure:?}"));
    assert_eq!(rows, [[Some("1".to_owned())]], "after {after}");
}

/// An answer, or the SQLSTATE of the error. The connection must not break.
fn outcome(wire: &mut Wire, what: &str, text: &str) -> String {
    let said = match wire.query(text) {
        Ok(_) => "rows".to_owned(),
        Err(failure) => {
            assert_ne!(failure, Failure::Broken, "{what}");
            failure.sqlstate().to_owned()
        }
    };
    goes_on(wire, what);
    said
}

#[test]
fn deep_statements_are_answered_or_refused() {
    let (_folder, _process, mut wire) = serve(&[]);
    wire.query("CREATE TABLE t (id int PRIMARY KEY, n int)").expect("created");
    let around = |before: &str, inner: &str, after: &str, depth: usize| {
        format!("{}{inner}{}", before.repeat(depth), after.repeat(depth))
    };
    type Shape = Box<dyn Fn(usize) -> String>;
    let shapes: Vec<(&str, Shape)> = vec![
        ("parentheses", Box::new(move |n| format!("SELECT {}", around("(", "1", ")", n)))),
        ("minus signs", Box::new(|n| format!("SELECT {}1", "- ".repeat(n)))),
        ("NOTs", Box::new(|n| format!("SELECT {}true", "NOT ".repeat(n)))),
        ("calls", Box::new(move |n| format!("SELECT {}", around("abs(", "1", ")", n)))),
        ("casts", Box::new(|n| format!("SELECT 1{}", "::int".repeat(n)))),
        ("CASEs", Box::new(move |n| format!("SELECT {}", around("CASE WHEN true THEN ", "1", " END", n)))),
        ("arrays", Box::new(move |n| format!("SELECT {}", around("ARRAY[", "1", "]", n)))),
        ("types of arrays", Box::new(|n| format!("SELECT NULL::int{}", "[]".repeat(n)))),
        (
            "a column of arrays",
            Box::new(|n| format!("CREATE TABLE IF NOT EXISTS t (a int{})", "[]".repeat(n))),
        ),
        (
            "a variable of arrays",
            Box::new(|n| format!("DO $$ DECLARE a int{}; BEGIN END $$", "[]".repeat(n))),
        ),
        (
            "blocks",
            Box::new(|n| format!("DO $$ BEGIN {}NULL;{} END $$", "BEGIN ".repeat(n), " END;".repeat(n))),
        ),
        ("subscripts", Box::new(|n| format!("SELECT (ARRAY[1]){}", "[1]".repeat(n)))),
        ("ANDs", Box::new(|n| format!("SELECT 1 FROM t WHERE id = 1{}", " AND n = 1".repeat(n)))),
        ("ORs", Box::new(|n| format!("SELECT 1 FROM t WHERE id = 1{}", " OR n = 1".repeat(n)))),
        ("sums", Box::new(|n| format!("SELECT 1{}", " + 1".repeat(n)))),
        ("joined texts", Box::new(|n| format!("SELECT 'a'{}", " || 'a'".repeat(n)))),
        ("scalar subqueries", Box::new(move |n| around("(SELECT ", "1", ")", n))),
        (
            "subqueries in FROM",
            Box::new(move |n| format!("{}SELECT 1{}", "SELECT * FROM (".repeat(n), ") AS s".repeat(n))),
        ),
        (
            "EXISTS",
            Box::new(move |n| format!("{}SELECT 1{}", "SELECT 1 WHERE EXISTS (".repeat(n), ")".repeat(n))),
        ),
        (
            "IN subqueries",
            Box::new(move |n| format!("{}SELECT 1{}", "SELECT 1 WHERE 1 IN (".repeat(n), ")".repeat(n))),
        ),
        (
            "WITHs",
            Box::new(move |n| format!("{}SELECT 1{}", "WITH a AS (".repeat(n), ") SELECT 1".repeat(n))),
        ),
        ("UNIONs", Box::new(|n| format!("SELECT 1{}", " UNION ALL SELECT 1".repeat(n)))),
        (
            "joins",
            Box::new(|n| {
                let mut text = "SELECT 1 FROM t AS t0".to_owned();
                for i in 1..=n.min(100) {
                    let _ = write!(text, " JOIN t AS t{i} ON t{i}.id = t0.id");
                }
                text
            }),
        ),
        ("EXPLAINs", Box::new(|n| format!("{}SELECT 1", "EXPLAIN ".repeat(n)))),
        ("open parentheses", Box::new(|n| format!("SELECT {}", "(".repeat(n)))),
        ("open brackets", Box::new(|n| format!("SELECT {}", "ARRAY[".repeat(n)))),
        ("closing parentheses", Box::new(|n| format!("SELECT 1{}", ")".repeat(n)))),
        ("comments", Box::new(move |n| format!("SELECT 1 {}", around("/*", "", "*/", n)))),
        ("open comments", Box::new(|n| format!("SELECT 1 {}", "/*".repeat(n)))),
        ("JSON arrays", Box::new(move |n| format!("SELECT '{}'::jsonb", around("[", "1", "]", n)))),
        (
            "JSON objects",
            Box::new(move |n| format!("SELECT '{}'::json -> 'a'", around("{\"a\":", "1", "}", n))),
        ),
        ("array literals", Box::new(move |n| format!("SELECT '{}'::int[]", around("{", "1", "}", n)))),
        (
            "DEFAULT",
            Box::new(move |n| format!("CREATE TABLE d (a int DEFAULT {})", around("(", "1", ")", n))),
        ),
        ("CHECK", Box::new(|n| format!("CREATE TABLE c (a int CHECK (a > 0{}))", " AND a > 0".repeat(n)))),
        ("VALUES", Box::new(move |n| format!("INSERT INTO t VALUES ({}, 1)", around("(", "1", ")", n)))),
        ("regular expressions", Box::new(move |n| format!("SELECT 'a' ~ '{}'", around("(", "a", ")", n)))),
        ("LIKE", Box::new(|n| format!("SELECT '{}' LIKE '{}b'", "a".repeat(n), "%a".repeat(n.min(100))))),
    ];
    for (what, shape) in &shapes {
        for depth in [20, 200, 2_000, 200_000] {
            let said = outcome(&mut wire, &format!("{depth} {what}"), &shape(depth));
            let known = [
                "rows", "54001", "54000", "54011", "54023", "53200", "42601", "22P02", "2201B", "42804",
                "0A000", "42P07", "23505",
            ];
            assert!(known.contains(&said.as_str()), "{depth} {what}: {said}");
            // What people write by hand works.
            let broken = what.starts_with("open") || what.starts_with("closing");
            let flat = ["EXPLAINs", "array literals", "subscripts", "arrays", "VALUES"];
            assert!(depth > 20 || broken || flat.contains(what) || said == "rows", "{depth} {what}: {said}");
        }
    }
}

/// They are told in few words, by a statement that is not deep itself.
#[test]
fn plans_of_deep_statements_are_explained() {
    let (_folder, _process, mut wire) = serve(&[]);
    wire.query("CREATE TABLE t (id int PRIMARY KEY, n int, s text)").expect("created");
    let depth = 1_000;
    let conditions = [
        format!("SELECT id FROM t WHERE n{} > 1", " + id".repeat(depth)),
        format!("SELECT id FROM t WHERE {}(n > id){}", "NOT coalesce(".repeat(depth), ")".repeat(depth)),
        format!("SELECT id FROM t WHERE s{} = '{}'", " || s".repeat(depth), "x".repeat(1 << 16)),
        format!("SELECT id FROM t{}", " UNION ALL SELECT id FROM t WHERE n = 1".repeat(depth / 10)),
    ];
    for (number, query) in conditions.iter().enumerate() {
        let what = format!("deep query {number}");
        assert_eq!(
            outcome(&mut wire, &what, &format!("PREPARE deep{number} AS {query}")),
            "rows",
            "{number}"
        );
        for way in ["EXPLAIN", "EXPLAIN (VERBOSE)", "EXPLAIN (FORMAT JSON)"] {
            assert_eq!(outcome(&mut wire, &what, &format!("{way} EXECUTE deep{number}")), "rows", "{way}");
            assert_eq!(outcome(&mut wire, &what, &format!("{way} {query}")), "rows", "{way}");
        }
    }
}

/// Each of them was bound twice by the one around it.
#[test]
fn queries_within_queries_take_no_time_that_doubles() {
    let (_folder, _process, mut wire) = serve(&[]);
    let shapes: [fn(usize, &str) -> String; 3] = [
        |_, inner| format!("SELECT count(*) AS n FROM ({inner}) AS q"),
        |_, inner| format!("SELECT n, row_number() OVER () AS place FROM ({inner}) AS q"),
        |level, inner| {
            format!(
                "WITH RECURSIVE w{level} (n) AS (SELECT n FROM ({inner}) AS q UNION ALL SELECT 2 WHERE false) \
                 SELECT n FROM w{level}"
            )
        },
    ];
    for shape in shapes {
        let query = (0..40).fold("SELECT 1 AS n".to_owned(), |inner, level| shape(level, &inner));
        let rows = wire.query(&query).unwrap_or_else(|failure| panic!("{query}: {failure:?}"));
        assert_eq!((rows.len(), rows[0][0].as_deref()), (1, Some("1")), "{query}");
    }
    wire.query("CREATE VIEW v0 AS SELECT 1 AS n").expect("created");
    for level in 1..=25 {
        let view = format!("CREATE VIEW v{level} AS SELECT count(*) AS n FROM v{}", level - 1);
        wire.query(&view).expect("created");
    }
    assert_eq!(wire.query("SELECT n FROM v25").expect("a row"), [[Some("1".to_owned())]]);
}

#[test]
fn long_statements_and_values_are_taken_whole() {
    let (_folder, _process, mut wire) = serve(&["--memory", "256MB"]);
    wire.query("CREATE TABLE t (id int PRIMARY KEY, body text)").expect("created");
    const LONG: usize = 10 << 20;
    // One literal.
    wire.query(&format!("INSERT INTO t VALUES (1, '{}')", "x".repeat(LONG))).expect("a literal of 10 MB");
    let rows = wire.query("SELECT length(body), body FROM t").expect("rows");
    assert_eq!(rows[0][0].as_deref(), Some("10485760"));
    assert_eq!(rows[0][1].as_ref().map(String::len), Some(LONG));
    // Many short ones; names; white space; comments.
    let list = (0..400_000).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    assert!(list.len() > 2 << 20);
    let said = outcome(&mut wire, "a list of 3 MB", &format!("SELECT id FROM t WHERE id IN ({list})"));
    assert!(["rows", "54000", "54001", "53200"].contains(&said.as_str()), "{said}");
    let said = outcome(&mut wire, "a name of 10 MB", &format!("SELECT {} FROM t", "n".repeat(LONG)));
    assert!(["42703", "42622"].contains(&said.as_str()), "{said}");
    assert_eq!(outcome(&mut wire, "1 MB of space", &format!("SELECT 1{}", " ".repeat(LONG / 10))), "rows");
    assert_eq!(outcome(&mut wire, "10 MB of comment", &format!("SELECT 1 /*{}*/", "c".repeat(LONG))), "rows");
    assert_eq!(outcome(&mut wire, "a number of 1 MB", &format!("SELECT {}", "9".repeat(1 << 20))), "22003");
    let said = outcome(&mut wire, "many statements", &"SELECT 1;".repeat(5_000));
    assert_eq!(said, "rows");
    let said = outcome(&mut wire, "garbage", &"\u{1}".repeat(LONG / 10));
    assert!(["42601", "53200"].contains(&said.as_str()), "{said}");
    // More than a message may have: the connection ends with the reason, the server goes on.
    let mut other = wire;
    let failure = other.query(&" ".repeat(65 << 20)).expect_err("too long");
    assert!(["54000", ""].contains(&failure.sqlstate()), "{failure:?}");
}

fn string(text: &str) -> Vec<u8> {
    [text.as_bytes(), b"\0"].concat()
}

/// Parse, Bind and Execute with `count` integer parameters, each of which is `1`.
fn with_parameters(text: &str, count: usize, declared: u16) -> Vec<u8> {
    let parse = [string(""), string(text), vec![0, 0]].concat();
    let mut bind = [string(""), string(""), vec![0, 0]].concat();
    bind.extend(declared.to_be_bytes());
    bind.extend([0, 0, 0, 1, b'1'].repeat(count));
    bind.extend([0, 0]);
    let execute = [string(""), vec![0; 4]].concat();
    [message(b'P', &parse), message(b'B', &bind), message(b'E', &execute), message(b'S', b"")].concat()
}

#[test]
fn sixty_five_thousand_parameters_and_one_more() {
    let (_folder, _process, mut wire) = serve(&["--memory", "1GB"]);
    wire.query("CREATE TABLE t (id int PRIMARY KEY)").expect("created");
    let list = |count: usize| (1..=count).map(|n| format!("${n}::int")).collect::<Vec<_>>().join(", ");
    let text = format!("SELECT count(*) FROM (SELECT 1 WHERE 1 IN ({})) AS s", list(65_535));
    wire.send(&with_parameters(&text, 65_535, 65_535)).expect("sent");
    assert_eq!(wire.answer().expect("an answer"), [[Some("1".to_owned())]]);
    let rows = (1..=65_535).map(|n| format!("(${n}::int + {n})")).collect::<Vec<_>>().join(", ");
    wire.send(&with_parameters(&format!("INSERT INTO t VALUES {rows}"), 65_535, 65_535)).expect("sent");
    wire.answer().expect("inserted");
    assert_eq!(wire.query("SELECT count(*) FROM t").expect("a row"), [[Some("65535".to_owned())]]);
    // The count of Bind has two bytes, so one more cannot even be said.
    let text = format!("SELECT 1 WHERE 1 IN ({})", list(65_536));
    wire.send(&with_parameters(&text, 65_536, 0)).expect("sent");
    let failure = wire.answer().expect_err("too many");
    assert!(["54023", "08P01", "42P02", "54000"].contains(&failure.sqlstate()), "{failure:?}");
    for wrong in ["SELECT $0", "SELECT $65536", "SELECT $99999999999999999999", "SELECT $1 + $70000"] {
        wire.send(&with_parameters(wrong, 0, 0)).expect("sent");
        let failure = wire.answer().expect_err(wrong);
        assert!(
            ["54023", "42P02", "42601", "54000", "08P01"].contains(&failure.sqlstate()),
            "{wrong}: {failure:?}"
        );
    }
    goes_on(&mut wire, "too many parameters");
}

#[test]
fn tables_and_views_have_no_more_columns_than_a_row() {
    let (_folder, _process, mut wire) = serve(&[]);
    let names = |count: usize, after: &str| {
        let names: Vec<String> = (0..count).map(|n| format!("{after} c{n}")).collect();
        names.join(", ")
    };
    let typed = |count: usize| names(count, "").replace(',', " int,") + " int";
    wire.query(&format!("CREATE TABLE wide ({})", typed(1599))).expect("made");
    assert_eq!(outcome(&mut wire, "another column", "ALTER TABLE wide ADD x int DEFAULT 7"), "rows");
    for (what, statement) in [
        ("one more", "ALTER TABLE wide ADD y int".to_owned()),
        ("a new table", format!("CREATE TABLE wider ({})", typed(1601))),
        ("a table of a query", format!("CREATE TABLE wider AS SELECT {}", names(1601, "1 AS"))),
        ("a view", format!("CREATE VIEW wider AS SELECT {}", names(1601, "1 AS"))),
    ] {
        assert_eq!(outcome(&mut wire, what, &statement), "54011", "{what}");
    }
    // What is dropped keeps its place in the rows.
    wire.query("ALTER TABLE wide DROP c0").expect("dropped");
    assert_eq!(outcome(&mut wire, "in the place of another", "ALTER TABLE wide ADD y int"), "54011");
    wire.query("INSERT INTO wide (c1, c1598) VALUES (1, 2)").expect("inserted");
    let rows = wire.query("SELECT c1, c1598, x FROM wide").expect("rows");
    assert_eq!(rows, [["1", "2", "7"].map(|text| Some(text.to_owned()))]);
}

#[test]
fn a_transaction_beyond_its_limit_fails_alone() {
    let (_folder, process, mut wire) = serve(&["--memory", "32MB"]);
    let mut other = Wire::connect(process.address).expect("connected");
    wire.query("CREATE TABLE t (id int PRIMARY KEY, body text)").expect("created");
    wire.query("INSERT INTO t VALUES (0, 'kept')").expect("inserted");
    other.query("BEGIN; INSERT INTO t VALUES (-1, 'small')").expect("inserted");
    let large = "INSERT INTO t SELECT n, repeat('x', 1000) FROM generate_series(1, 100000) AS s (n)";
    let failure = wire.query(large).expect_err("too large");
    assert!(["53200", "53400", "54000"].contains(&failure.sqlstate()), "{failure:?}");
    goes_on(&mut wire, "a statement that was too large");
    // In a block, the block is lost and nothing else.
    wire.query("BEGIN").expect("begun");
    let failure = loop {
        let rows = "INSERT INTO t SELECT (SELECT max(id) FROM t) + n, repeat('x', 1000) FROM generate_series(1, 1000) AS s (n)";
        if let Err(failure) = wire.query(rows) {
            break failure;
        }
    };
    assert!(["53200", "53400", "54000"].contains(&failure.sqlstate()), "{failure:?}");
    assert_eq!(wire.query("SELECT 1").expect_err("aborted").sqlstate(), "25P02");
    other.query("COMMIT").expect("the other one commits");
    wire.query("ROLLBACK").expect("rolled back");
    let rows = wire.query("SELECT id FROM t ORDER BY id").expect("rows");
    assert_eq!(rows, [[Some("-1".to_owned())], [Some("0".to_owned())]] as [[Option<String>; 1]; 2]);
    wire.query("INSERT INTO t VALUES (1, 'goes on')").expect("inserted");
}

#[test]
fn long_results_are_streamed_also_to_a_slow_reader() {
    let (_folder, process, mut wire) = serve(&["--memory", "64MB"]);
    wire.query("CREATE TABLE t (id int PRIMARY KEY, body text)").expect("created");
    for part in 0..5 {
        let first = part * 10;
        let rows = format!(
            "INSERT INTO t SELECT {first} + n, repeat('x', 1000000) FROM generate_series(1, 10) AS s (n)"
        );
        wire.query(&rows).expect("inserted");
    }
    let before = process.resident_bytes();
    // Asks for 400 MB and does not read.
    let mut slow = Wire::connect(process.address).expect("connected");
    let all = "SELECT a.body FROM t AS a CROSS JOIN generate_series(1, 8) AS s (n)";
    slow.send(&message(b'Q', &string(all))).expect("sent");
    assert_eq!(slow.message().map(|(tag, _)| tag), Some(b'T'));
    // Others are served meanwhile.
    for _ in 0..100 {
        goes_on(&mut wire, "a reader that does not read");
    }
    let growth = process.resident_bytes().saturating_sub(before);
    assert!(growth < 96 << 20, "{growth} bytes more for a reader that does not read");
    let mut rows = 0;
    let mut most = 0;
    while let Some((tag, body)) = slow.message() {
        match tag {
            b'D' => {
                assert_eq!(body.len(), 2 + 4 + 1_000_000);
                rows += 1;
                most = most.max(process.resident_bytes());
            }
            b'Z' => break,
            _ => assert_eq!(tag, b'C'),
        }
    }
    assert_eq!(rows, 400);
    let growth = most.saturating_sub(before);
    assert!(growth < 128 << 20, "{growth} bytes more while streaming");
    goes_on(&mut slow, "a long result");
    // One that leaves in the middle leaves nothing.
    let mut leaver = Wire::connect(process.address).expect("connected");
    leaver.send(&message(b'Q', &string(all))).expect("sent");
    assert_eq!(leaver.message().map(|(tag, _)| tag), Some(b'T'));
    drop(leaver);
    goes_on(&mut wire, "a reader that left");
    // Values beyond any limit.
    for (text, sqlstates) in [
        ("SELECT repeat('x', 2000000000)", ["54000", "53200"]),
        ("SELECT repeat(repeat('x', 1000000), 10000)", ["54000", "53200"]),
        ("SELECT lpad('x', 2000000000)", ["54000", "53200"]),
        ("SELECT string_agg(repeat('x', 10000000), '') FROM generate_series(1, 1000)", ["54000", "53200"]),
        ("SELECT array_agg(repeat('x', 10000000)) FROM generate_series(1, 1000)", ["54000", "53200"]),
    ] {
        let said = outcome(&mut wire, text, text);
        assert!(sqlstates.contains(&said.as_str()), "{text}: {said}");
    }
    let growth = process.resident_bytes().saturating_sub(before);
    assert!(growth < 200 << 20, "{growth} bytes more after values beyond the limit");
}
