//! Statements whose input or result is large beside a small memory budget. Each is answered
//! rightly, or refused with an error of its own; the server's resident size stays under a bound all
//! the while, and the session goes on.
//!
//! The bound is the budget, which the engine and the statements share in different halves, plus
//! what has no part in it: the program, messages on their way in and out, and what the allocator
//! keeps of memory that was given back.

use std::fmt::Write as _;

use crate::process::Process;
use crate::wire::{Failure, Wire, message};

const BUDGET_MB: u64 = 64;
/// What a server needs beyond its budget.
const BESIDE_MB: u64 = 192;
/// What large values have given back and is still with the process: the allocator keeps large
/// pieces for a moment, so how much it is differs from run to run (their peak was 245 to 299 MB in
/// eight runs).
const RETURNED_MB: u64 = 128;

/// What a statement may come to.
enum Outcome {
    /// These rows and nothing else.
    Is(&'static str),
    /// These rows or 53200.
    IsOrMemory(&'static str),
    /// It cannot be done in so much memory.
    Memory,
    /// Limits that PostgreSQL has too, and as the last resort 53200.
    Limit,
    /// It fails for another reason.
    Fails(&'static str),
}
use Outcome::{Fails, Is, IsOrMemory, Limit, Memory};

fn serve() -> (tempfile::TempDir, Process, Wire) {
    let folder = tempfile::tempdir().expect("a folder");
    let memory = format!("{BUDGET_MB}MB");
    let process = Process::serve(&folder.path().join("data"), &["--memory", &memory]);
    let wire = Wire::connect(process.address).expect("connected");
    (folder, process, wire)
}

/// `count` items, each made of its number.
fn list(count: usize, separator: &str, item: impl Fn(usize) -> String) -> String {
    let mut list = String::new();
    for number in 0..count {
        let separator = if number == 0 { "" } else { separator };
        write!(list, "{separator}{}", item(number)).expect("written");
    }
    list
}

/// Statements that are long.
fn long_texts() -> Vec<(&'static str, String, Outcome)> {
    let rows = |count: usize| list(count, ", ", |n| format!("({n}, 'name of {n}')"));
    let wide = |count: usize| list(count, ",", |n| format!("({n},'{}')", "w".repeat(400)));
    vec![
        ("rows to insert", format!("INSERT INTO long VALUES {}", rows(20_000)), Is("")),
        (
            "rows inserted",
            "SELECT count(*), min(name), max(id) FROM long".into(),
            Is("20000,name of 0,19999"),
        ),
        ("more rows", format!("INSERT INTO long VALUES {}", rows(400_000)), Limit),
        ("wide rows", format!("INSERT INTO wide VALUES {}", wide(10_000)), Is("")),
        ("wide rows inserted", "SELECT sum(length(name)), sum(id) FROM wide".into(), Is("4000000,49995000")),
        (
            "rows with RETURNING",
            format!("INSERT INTO wide VALUES {} RETURNING length(name)", wide(10_000)),
            Limit,
        ),
        (
            "rows selected",
            format!("SELECT count(*), sum(column1) FROM (VALUES {}) v", rows(20_000)),
            IsOrMemory("20000,199990000"),
        ),
        (
            "rows with an expression in each",
            format!("INSERT INTO wide VALUES {}", list(100_000, ",", |n| format!("({n}+1,now()::text)"))),
            Memory,
        ),
        ("an IN list", format!("SELECT 7 IN ({})", list(10_000, ",", |n| n.to_string())), Is("t")),
        ("a long IN list", format!("SELECT 7 IN ({})", list(1_000_000, ",", |n| n.to_string())), Memory),
        ("an AND chain", format!("SELECT {}", list(1_000_000, " AND ", |_| "true".into())), Limit),
        ("an OR chain", format!("SELECT {}", list(5_000, " OR ", |n| format!("{n} = 1"))), Is("t")),
        ("an array", format!("SELECT (ARRAY[{}])[8]", list(1_000_000, ",", |n| n.to_string())), Memory),
        (
            "an array's text",
            format!("SELECT cardinality('{{{}}}'::int[])", list(100_000, ",", |n| n.to_string())),
            IsOrMemory("100000"),
        ),
        (
            "a long array's text",
            format!("SELECT cardinality('{{{}}}'::int[])", list(1_000_000, ",", |n| n.to_string())),
            Limit,
        ),
        ("a target list", format!("SELECT {}", list(3_000, ",", |n| n.to_string())), Limit),
        ("a string", format!("SELECT length('{}')", "x".repeat(4 << 20)), IsOrMemory("4194304")),
        ("blanks", format!("SELECT 1{}", " ".repeat(8 << 20)), Is("1")),
        ("semicolons", format!("SELECT 1{}", ";".repeat(1 << 20)), Memory),
        ("comments", format!("SELECT 1{}", "/**/".repeat(1 << 20)), Memory),
        ("signs", format!("SELECT 1{}", "+1".repeat(1 << 20)), Memory),
        ("names", format!("SELECT a{}", ".a".repeat(1 << 20)), Memory),
        ("open brackets", format!("SELECT {}", "(".repeat(1 << 20)), Limit),
        ("casts of an array", format!("SELECT '{{{}}}'::text[]", list(500_000, ",", |_| "a".into())), Limit),
        (
            "JSON",
            format!("SELECT jsonb_array_length('[{}]'::jsonb)", list(50_000, ",", |n| n.to_string())),
            IsOrMemory("50000"),
        ),
        (
            "much JSON",
            format!("SELECT jsonb_array_length('[{}]'::jsonb)", list(4_000_000, ",", |_| "1".into())),
            Limit,
        ),
        (
            "JSON as text",
            format!("SELECT length(('[{}]'::json)::text)", list(1_000_000, ",", |_| "1".into())),
            Is("2000001"),
        ),
        (
            "a prepared text",
            format!("PREPARE p AS SELECT 7 IN ({})", list(500_000, ",", |n| n.to_string())),
            Memory,
        ),
        (
            "a view",
            format!("CREATE VIEW long_view AS VALUES {}", list(200_000, ",", |n| format!("({n})"))),
            Memory,
        ),
        (
            "conditions of an UPDATE",
            format!("UPDATE long SET id = id WHERE id IN ({})", list(5_000, ",", |n| n.to_string())),
            Is(""),
        ),
    ]
}

/// Statements that compute much from little.
fn large_results() -> Vec<(&'static str, &'static str, Outcome)> {
    vec![
        (
            "string_agg",
            "SELECT length(string_agg(repeat('x', 1000), ',')) FROM generate_series(1, 9000000) n",
            Memory,
        ),
        ("array_agg", "SELECT cardinality(array_agg(n)) FROM generate_series(1, 9000000) n", Memory),
        (
            "json_agg",
            "SELECT length(json_agg(repeat('x', 1000))::text) FROM generate_series(1, 9000000) n",
            Memory,
        ),
        ("repeat", "SELECT length(repeat('x', 1000000000))", Memory),
        ("repeated repeat", "SELECT length(repeat(repeat('x', 30000000), 30))", Memory),
        ("many large values", "SELECT count(repeat('x', 1000000)) FROM generate_series(1, 100)", Is("100")),
        ("lpad", "SELECT length(lpad('x', 1000000000))", Limit),
        ("replace", "SELECT length(replace(repeat('x', 5000000), 'x', 'yyyyyyyy'))", Memory),
        (
            "regexp_replace",
            "SELECT length(regexp_replace(repeat('x', 1000000), 'x', repeat('y', 1000), 'g'))",
            Memory,
        ),
        ("regexp_split", "SELECT cardinality(regexp_split_to_array(repeat('x ', 3000000), ' '))", Memory),
        ("string_to_array", "SELECT cardinality(string_to_array(repeat('x,', 10000000), ','))", Memory),
        ("array_fill", "SELECT cardinality(array_fill(1, ARRAY[100000000]))", Limit),
        ("concatenation", "SELECT length(x || x || x || x) FROM (SELECT repeat('x', 20000000) x) s", Memory),
        ("a factorial", "SELECT length((10::numeric ^ 100000)::text)", Limit),
        ("JSON parsed", "SELECT jsonb_array_length(('[' || repeat('1,', 2000000) || '1]')::jsonb)", Memory),
        (
            "JSON elements",
            "SELECT count(*) FROM jsonb_array_elements(('[' || repeat('1,', 20000) || '1]')::jsonb)",
            IsOrMemory("20001"),
        ),
        ("a sort", "SELECT n FROM generate_series(1, 300000) n ORDER BY -n OFFSET 299999", IsOrMemory("1")),
        (
            "DISTINCT",
            "SELECT count(*) FROM (SELECT DISTINCT n FROM generate_series(1, 300000) n) s",
            IsOrMemory("300000"),
        ),
        (
            "a union",
            "SELECT count(*) FROM (SELECT generate_series(1, 300000) UNION SELECT generate_series(1, 300)) s",
            Is("300000"),
        ),
        (
            "a difference",
            "SELECT count(*) FROM (SELECT generate_series(1, 300000) EXCEPT SELECT generate_series(9, 300000)) s",
            Is("8"),
        ),
        (
            "a count of distinct values",
            "SELECT count(DISTINCT n * 7) FROM generate_series(1, 300000) n",
            Is("300000"),
        ),
        (
            "values in an order",
            "SELECT length(string_agg('x', '' ORDER BY -n)) FROM generate_series(1, 200000) n",
            Is("200000"),
        ),
        (
            "a common table expression",
            "WITH w AS MATERIALIZED (SELECT repeat('x', 1000) x FROM generate_series(1, 60000)) \
             SELECT count(*), sum(length(x)) FROM w UNION ALL SELECT count(*), 0 FROM w",
            Is("60000,60000000;60000,0"),
        ),
        ("a subquery's array", "SELECT cardinality(ARRAY(SELECT generate_series(1, 9000000)))", Memory),
        ("IN of a subquery", "SELECT 1 IN (SELECT generate_series(2, 9000000))", Memory),
        ("rows of a function", "SELECT count(*) FROM unnest(array_fill(1, ARRAY[100000]))", Is("100000")),
        (
            "rows inserted",
            "INSERT INTO filled SELECT n, repeat('x', 100) FROM generate_series(1, 20000) n",
            Is(""),
        ),
        (
            "many rows inserted",
            "INSERT INTO filled SELECT n, repeat('x', 100) FROM generate_series(1, 3000000) n",
            Limit,
        ),
        (
            "a table of a query",
            "CREATE TABLE made AS SELECT n, repeat('x', 1000) x FROM generate_series(1, 100000) n",
            Is(""),
        ),
        ("its rows", "SELECT count(*), sum(length(x)) FROM made", Is("100000,100000000")),
        (
            "the largest of each group",
            "SELECT count(*), sum(length(a) + length(b)) \
             FROM (SELECT n, max(x || 'a') a, min(x || 'b') b FROM made GROUP BY n) s",
            Is("100000,200200000"),
        ),
        (
            "a table of its name",
            "CREATE TABLE made AS SELECT 1 FROM generate_series(1, 10000000)",
            Fails("42P07"),
        ),
        (
            "a table of a failing query",
            "CREATE TABLE failed AS SELECT 1 / (n - 50000) FROM generate_series(1, 60000) n",
            Fails("22012"),
        ),
        ("it is not there", "SELECT count(*) FROM pg_class WHERE relname = 'failed'", Is("0")),
        ("rows updated", "UPDATE filled SET name = repeat('y', 100)", Is("")),
        ("wide rows updated", "UPDATE filled SET name = repeat('y', 10000)", Limit),
        ("rows updated and returned", "UPDATE filled SET id = id RETURNING repeat(name, 1000)", Memory),
        ("rows deleted and returned", "DELETE FROM filled RETURNING repeat(name, 1000)", Memory),
        ("rows deleted", "DELETE FROM filled", Is("")),
    ]
}

/// Functions that make one large value of another.
fn large_values() -> Vec<(&'static str, &'static str, Outcome)> {
    vec![
        ("encoded bytes", "SELECT length(encode(convert_to(repeat('x', 20000000), 'UTF8'), 'hex'))", Memory),
        ("bytes as text", "SELECT length(convert_to(repeat('x', 20000000), 'UTF8')::text)", Memory),
        (
            "bytes joined",
            "SELECT length(x || x) FROM (SELECT convert_to(repeat('x', 20000000), 'UTF8') x) s",
            Memory,
        ),
        ("concat", "SELECT length(concat(x, x)) FROM (SELECT repeat('x', 20000000) x) s", Memory),
        ("a literal", "SELECT length(quote_literal(repeat('''', 20000000)))", Memory),
        ("an array as text", "SELECT length(array_fill(repeat('x', 1000), ARRAY[100000])::text)", Memory),
        (
            "an array as JSON",
            "SELECT length(to_json(array_fill(repeat('x', 1000), ARRAY[100000]))::text)",
            Memory,
        ),
        ("a text as JSON", "SELECT length(to_json(repeat(E'\\n', 20000000))::text)", Memory),
        (
            "a row as JSON",
            "SELECT length(row_to_json(s)::text) FROM (SELECT x, x y FROM (SELECT repeat('x', 20000000) x) s) s",
            Memory,
        ),
        (
            "JSON in lines",
            "SELECT length(jsonb_pretty((repeat('[', 1000) || '1' || repeat(',1', 20000) || repeat(']', 1000))::jsonb))",
            Memory,
        ),
        ("a filled array", "SELECT cardinality(array_fill(1, ARRAY[9000000]))", Memory),
        (
            "arrays joined",
            "SELECT cardinality(x || x) FROM (SELECT array_fill(1, ARRAY[600000]) x) s",
            Memory,
        ),
        (
            "arrays in an array",
            "SELECT cardinality(ARRAY[x, x]) FROM (SELECT array_fill(1, ARRAY[600000]) x) s",
            Memory,
        ),
        ("an array's rows", "SELECT count(*) FROM unnest(array_fill(1, ARRAY[500000]))", Is("500000")),
        (
            "a match's parts within each other",
            "SELECT cardinality(regexp_match(repeat('x', 2000000), repeat('(', 50) || '.*' || repeat(')', 50)))",
            Memory,
        ),
        (
            "matches of many parts",
            "SELECT count(*) FROM regexp_matches(repeat('x', 2000000), repeat('(', 50) || 'x{200}' || repeat(')', 50), 'g')",
            Memory,
        ),
        (
            "a match again and again",
            "SELECT length(regexp_replace(repeat('x', 1000000), '(.*)', repeat('\\1', 1000)))",
            Memory,
        ),
        (
            "references to references",
            "SELECT 'x' ~ ('(x)' || string_agg('(\\' || n || '\\' || n || ')', '' ORDER BY n)) FROM generate_series(1, 40) n",
            Fails("2201B"),
        ),
        ("a text's rows", "SELECT count(*) FROM string_to_table(repeat('x,', 300000), ',')", Is("300001")),
    ]
}

/// The rows as one line, or the SQLSTATE.
fn run(wire: &mut Wire, text: &str) -> Result<String, String> {
    match wire.query(text) {
        Ok(rows) => {
            let row = |row: &Vec<Option<String>>| {
                row.iter().map(|value| value.as_deref().unwrap_or("NULL")).collect::<Vec<_>>().join(",")
            };
            Ok(rows.iter().map(row).collect::<Vec<_>>().join(";"))
        }
        Err(Failure::Broken) => panic!("the connection broke"),
        Err(failure) => Err(failure.sqlstate().to_owned()),
    }
}

fn judge(what: &str, outcome: &Outcome, said: &Result<String, String>) {
    let refused = said.as_ref().err().map(String::as_str);
    let right = match outcome {
        Is(rows) => said.as_deref() == Ok(rows),
        IsOrMemory(rows) => said.as_deref() == Ok(rows) || refused == Some("53200"),
        Memory => refused == Some("53200"),
        Fails(sqlstate) => refused == Some(sqlstate),
        Limit => {
            refused.is_none_or(|sqlstate| ["53200", "53400", "54000", "54001", "54011"].contains(&sqlstate))
        }
    };
    let said = format!("{said:?}");
    assert!(right, "{what}: {}", said.chars().take(200).collect::<String>());
}

/// Runs statements one after the other in one session.
fn walk(
    process: &Process,
    wire: &mut Wire,
    statements: impl Iterator<Item = (&'static str, String, Outcome)>,
    beside: u64,
) {
    for (what, text, outcome) in statements {
        let started = std::time::Instant::now();
        let said = run(wire, &text);
        println!("{:4} MB, {:6} ms: {what}", process.peak_bytes() >> 20, started.elapsed().as_millis());
        judge(what, &outcome, &said);
        assert_eq!(run(wire, "SELECT 1").as_deref(), Ok("1"), "after {what}");
    }
    check_peak(process, "all of them", beside);
}

#[test]
fn no_statement_takes_more_than_its_share() {
    let (_folder, process, mut wire) = serve();
    for table in ["long", "wide", "filled"] {
        wire.query(&format!("CREATE TABLE {table} (id int, name text)")).expect("a table");
    }
    let short = large_results().into_iter().map(|(what, text, outcome)| (what, text.to_owned(), outcome));
    walk(&process, &mut wire, long_texts().into_iter().chain(short), BESIDE_MB);
}

#[test]
fn no_value_takes_more_than_its_share() {
    let (_folder, process, mut wire) = serve();
    let values = large_values().into_iter().map(|(what, text, outcome)| (what, text.to_owned(), outcome));
    walk(&process, &mut wire, values, BESIDE_MB + RETURNED_MB);
}

/// A row that is more than its statement may hold is refused while it is written, whichever way it
/// goes: nothing of it is sent, and the session goes on.
#[test]
fn no_row_takes_more_than_its_share() {
    let (_folder, process, mut wire) = serve();
    let many = list(40, ", ", |_| "x".into());
    let from = "FROM (SELECT repeat('a', 10000000) x OFFSET 0) q";
    let queries = [
        format!("SELECT {many} {from}"),
        format!("SELECT ROW({many}) {from}"),
        format!("SELECT ARRAY[{many}] {from}"),
        "SELECT array_fill(repeat('a', 1000), ARRAY[400000])".to_owned(),
        format!("SELECT {}", list(40, ", ", |n| format!("repeat('a', 10000000 + {n})"))),
    ];
    let in_binary = [string(""), string(""), vec![0, 0, 0, 0, 0, 1, 0, 1]].concat();
    for query in &queries {
        assert_eq!(run(&mut wire, query), Err("53200".to_owned()), "{query}");
        let messages = [parse("", query), message(b'B', &in_binary), execute("", 0)];
        assert_eq!(exchange(&mut wire, &messages).as_deref(), Some("53200"), "{query}");
        for format in ["text", "csv", "binary"] {
            let copy = format!("COPY ({query}) TO STDOUT (FORMAT {format})");
            assert_eq!(run(&mut wire, &copy), Err("53200".to_owned()), "{copy}");
        }
        assert_eq!(run(&mut wire, "SELECT 1").as_deref(), Ok("1"), "after {query}");
    }
    check_peak(&process, "rows", BESIDE_MB + RETURNED_MB);
    // The row before it stays whole.
    let two = "SELECT repeat('a', n), repeat('b', n) FROM (VALUES (3), (20000000)) v (n)";
    for (text, tags) in [(two.to_owned(), b"TDEZ"), (format!("COPY ({two}) TO STDOUT"), b"HdEZ")] {
        wire.send(&message(b'Q', &string(&text))).expect("sent");
        let mut seen = Vec::new();
        while seen.last() != Some(&b'Z') {
            seen.push(wire.message().expect("a message").0);
        }
        assert_eq!(seen, tags, "{text}");
    }
}

/// The answers of one message's statements leave before they are many, however small each is.
#[test]
fn answers_of_many_statements_do_not_gather() {
    let (_folder, process, mut wire) = serve();
    wire.query("CREATE TABLE t AS SELECT repeat('x', 256000) s").expect("a table");
    let count = 700;
    wire.send(&message(b'Q', &string(&"SELECT s FROM t;".repeat(count)))).expect("sent");
    let mut rows = 0;
    loop {
        match wire.message().expect("a message") {
            (b'Z', _) => break,
            (b'D', _) => rows += 1,
            (b'E', body) => panic!("after {rows} rows: {}", String::from_utf8_lossy(&body)),
            _ => {}
        }
    }
    assert_eq!(rows, count);
    check_peak(&process, "answers of many statements", 96);
}

/// A run of rows that stays text comes to the same as rows that are parsed one by one, also where
/// it is refused.
#[test]
fn rows_that_stay_text_mean_what_parsed_rows_mean() {
    let (_folder, _process, mut wire) = serve();
    let columns = "(a smallint, b bigint, c numeric(6,2), d varchar(5), e date, f timestamptz, g boolean, \
                   h jsonb, i text[], j regclass, k int GENERATED ALWAYS AS IDENTITY, l text DEFAULT 'none')";
    for table in ["kept", "parsed"] {
        wire.query(&format!("CREATE TABLE {table} {columns}")).expect("a table");
    }
    let row = |n: usize| match n % 3 {
        0 => format!(
            "({n}, 50000000{n}, {n}.125, 'ü{n}', '2024-02-{:02}', '2024-01-01 00:00:{:02}+02', true, '{{\"a\":{n}}}', '{{x,\"y z\"}}', 'kept')",
            n % 28 + 1,
            n % 60
        ),
        1 => format!("('{n}' , -{n},1e2,'a''b', NULL, NULL , FALSE, '[1, {n}]', '{{}}', NULL)"),
        _ => format!("(NULL, {n}, '{n}.5', 7, 'today', 'now', 't', 'null', NULL, 'parsed')"),
    };
    let list = "(a, b, c, d, e, f, g, h, i, j)";
    wire.query(&format!("BEGIN; INSERT INTO kept {list} VALUES {}", self::list(300, ", ", row)))
        .expect("kept");
    for n in 0..300 {
        wire.query(&format!("INSERT INTO parsed {list} VALUES {}", row(n))).expect("parsed");
    }
    wire.query("COMMIT").expect("committed");
    let differ = "SELECT count(*) FROM (SELECT * FROM kept EXCEPT SELECT * FROM parsed) d";
    assert_eq!(run(&mut wire, differ).as_deref(), Ok("0"));
    assert_eq!(run(&mut wire, "SELECT count(*), max(k) FROM kept").as_deref(), Ok("300,300"));
    let plain = self::list(300, ", ", |n| format!("({n}, {n})"));
    for (odd, sqlstate) in [
        ("('x', 1)", "22P02"),
        ("(99999, 1)", "22003"),
        ("(true, 1)", "42804"),
        ("(1)", "42601"),
        ("(1, 2, 3)", "42601"),
        ("(1, 2", "42601"),
    ] {
        for text in [
            format!("INSERT INTO kept (a, b) VALUES {plain}, {odd}, {plain}"),
            format!("INSERT INTO kept (a, b) VALUES (1, 2), {odd}"),
        ] {
            assert_eq!(run(&mut wire, &text), Err(sqlstate.to_owned()), "{odd}");
        }
    }
    let mixed =
        format!("SELECT count(*), sum(column1) FROM (VALUES {plain}, (1 + 1, now()::text), {plain}) v");
    assert_eq!(run(&mut wire, &mixed), Err("42804".to_owned()));
    let mixed = format!("SELECT count(*), sum(column1) FROM (VALUES {plain}, (1 + 1, 0.5), {plain}) v");
    assert_eq!(run(&mut wire, &mixed).as_deref(), Ok("601,89702"));
}

/// A string of the protocol.
fn string(text: &str) -> Vec<u8> {
    [text.as_bytes(), b"\0"].concat()
}

fn parse(name: &str, text: &str) -> Vec<u8> {
    message(b'P', &[string(name), string(text), vec![0, 0]].concat())
}

/// Binds texts as parameters.
fn bind(portal: &str, statement: &str, values: &[&str]) -> Vec<u8> {
    let mut body = [string(portal), string(statement), vec![0, 0]].concat();
    body.extend((values.len() as u16).to_be_bytes());
    for value in values {
        body.extend((value.len() as u32).to_be_bytes());
        body.extend(value.as_bytes());
    }
    body.extend([0, 0]);
    message(b'B', &body)
}

fn execute(portal: &str, rows: u32) -> Vec<u8> {
    message(b'E', &[string(portal), rows.to_be_bytes().to_vec()].concat())
}

/// Sends messages and a Sync; the SQLSTATE if one of them fails.
fn exchange(wire: &mut Wire, messages: &[Vec<u8>]) -> Option<String> {
    wire.send(&[messages.concat(), message(b'S', b"")].concat()).expect("sent");
    wire.answer().err().map(|failure| failure.sqlstate().to_owned())
}

/// How often something succeeds before it is refused for want of memory.
fn until_refused(what: &str, most: usize, mut once: impl FnMut(usize) -> Option<String>) -> usize {
    for number in 0..most {
        if let Some(sqlstate) = once(number) {
            assert_eq!(sqlstate, "53200", "{what} {number}");
            println!("{number} {what}");
            return number;
        }
    }
    panic!("{what}: {most} are not too many")
}

fn check_peak(process: &Process, what: &str, beside: u64) {
    let peak = process.peak_bytes() >> 20;
    println!("{peak:4} MB: {what}");
    assert!(peak <= BUDGET_MB + beside, "{what}: {peak} MB of {BUDGET_MB} MB and {beside} MB beside");
}

/// COPY with data in chunks; the SQLSTATE if it fails.
fn copy(wire: &mut Wire, command: &str, chunks: impl Iterator<Item = Vec<u8>>) -> Option<String> {
    wire.send(&message(b'Q', &string(command))).expect("sent");
    for chunk in chunks {
        wire.send(&message(b'd', &chunk)).expect("sent");
    }
    wire.send(&message(b'c', b"")).expect("sent");
    wire.answer().err().map(|failure| failure.sqlstate().to_owned())
}

/// COPY takes rows of any number and lines of bounded length; what it sends is never all in memory.
#[test]
fn what_is_copied_has_its_share() {
    let (_folder, process, mut wire) = serve();
    wire.query("CREATE TABLE copied (id int, name text)").expect("a table");
    let (text, csv) = ("COPY copied FROM STDIN", "COPY copied FROM STDIN (FORMAT csv)");
    let rows =
        |part: usize| list(100, "", |n| format!("{}\t{}\n", part * 100 + n, "w".repeat(400))).into_bytes();
    assert_eq!(copy(&mut wire, text, (0..500).map(rows)), None);
    let counted = run(&mut wire, "SELECT count(*), sum(length(name)) FROM copied");
    assert_eq!(counted.as_deref(), Ok("50000,20000000"));
    check_peak(&process, "rows copied", BESIDE_MB);
    let endless = (0..1000).map(|_| vec![b'x'; 100_000]);
    assert_eq!(copy(&mut wire, text, endless).as_deref(), Some("53200"));
    check_peak(&process, "a line that does not end", BESIDE_MB);
    let quoted = (0..1000).map(|part| if part == 0 { b"1,\"".to_vec() } else { vec![b'\n'; 100_000] });
    assert_eq!(copy(&mut wire, csv, quoted).as_deref(), Some("53200"));
    check_peak(&process, "a quote that is not closed", BESIDE_MB);
    let commas = std::iter::once([vec![b','; 7_000_000], vec![b'\n']].concat());
    assert_eq!(copy(&mut wire, csv, commas).as_deref(), Some("22P04"));
    check_peak(&process, "a line of commas", BESIDE_MB);
    wire.query("COPY copied TO STDOUT").expect("all rows");
    wire.query("COPY (SELECT repeat('x', 5000000) FROM generate_series(1, 40)) TO STDOUT")
        .expect("large rows");
    check_peak(&process, "rows copied out", BESIDE_MB);
    assert_eq!(run(&mut wire, "SELECT count(*) FROM copied").as_deref(), Ok("50000"));
}

/// Statements, portals and cursors that stay while others run are charged for what they hold, and
/// give it back.
#[test]
fn what_is_kept_has_its_share() {
    let (_folder, process, mut wire) = serve();
    let large = "p".repeat(4 << 20);
    let sort = "SELECT g FROM generate_series(1, 40000) g ORDER BY -g";
    let messages = [parse("length", "SELECT length($1)"), parse("sort", sort)];
    assert_eq!(exchange(&mut wire, &messages), None);
    wire.query("BEGIN").expect("a block");
    let bound = until_refused("portals with parameters", 100, |number| {
        exchange(&mut wire, &[bind(&format!("portal {number}"), "length", &[&large])])
    });
    assert!(bound >= 5, "{bound} portals of 4 MB");
    check_peak(&process, "large parameters", BESIDE_MB);
    wire.query("ROLLBACK").expect("they are gone");
    wire.query("BEGIN").expect("a block");
    let suspended = until_refused("suspended sorts", 200, |number| {
        let portal = format!("portal {number}");
        exchange(&mut wire, &[bind(&portal, "sort", &[]), execute(&portal, 1)])
    });
    assert!(suspended >= 3, "{suspended} suspended sorts");
    check_peak(&process, "suspended sorts", BESIDE_MB);
    wire.query("ROLLBACK").expect("they are gone");
    wire.query("BEGIN").expect("a block");
    let declared = until_refused("cursors", 200, |number| {
        let text = format!("DECLARE c{number} CURSOR FOR {sort}; FETCH 1 FROM c{number}");
        wire.query(&text).err().map(|failure| failure.sqlstate().to_owned())
    });
    assert!(declared >= 3, "{declared} cursors");
    check_peak(&process, "cursors", BESIDE_MB);
    wire.query("ROLLBACK").expect("they are gone");
    let condition = list(100, " OR ", |n| format!("$1 = {n}"));
    let named = until_refused("prepared statements", 2000, |number| {
        exchange(&mut wire, &[parse(&format!("s{number}"), &format!("SELECT {number} WHERE {condition}"))])
    });
    assert!(named >= 100, "{named} prepared statements");
    check_peak(&process, "prepared statements", BESIDE_MB);
    wire.query("DEALLOCATE ALL").expect("forgotten");
    assert_eq!(exchange(&mut wire, &[parse("more", &format!("SELECT 0 WHERE {condition}"))]), None);
}

/// Rows of cursors that are held in memory are charged for.
#[test]
fn cursors_that_are_held_have_their_share() {
    let (_folder, process, mut wire) = serve();
    let hold = |wire: &mut Wire, name: &str, kind: &str, rows: usize| {
        let query = format!("SELECT g, repeat('x', 1000) FROM generate_series(1, {rows}) g");
        let text = format!("BEGIN; DECLARE {name} {kind} CURSOR WITH HOLD FOR {query}; COMMIT");
        let held = run(wire, &text).err();
        wire.query("ROLLBACK").expect("out of the block");
        held
    };
    assert_eq!(hold(&mut wire, "huge", "", 100_000).as_deref(), Some("53200"));
    assert_eq!(hold(&mut wire, "huge", "SCROLL", 100_000).as_deref(), Some("53200"));
    check_peak(&process, "a huge cursor", BESIDE_MB);
    assert_eq!(hold(&mut wire, "large", "SCROLL", 20_000), None);
    let moved = run(&mut wire, "MOVE ALL FROM large; MOVE ABSOLUTE 0 FROM large");
    assert_eq!(moved.as_deref(), Ok(""));
    let fetched = run(&mut wire, "FETCH ALL FROM large");
    assert_eq!(fetched.map_err(|sqlstate| sqlstate == "53200"), Err(true), "they would be there twice");
    let held =
        until_refused("held cursors", 100, |number| hold(&mut wire, &format!("h{number}"), "SCROLL", 2000));
    assert!(held >= 5, "{held} held cursors of 2 MB");
    let moved = run(&mut wire, "CLOSE h2; MOVE ABSOLUTE 1999 FROM h1; FETCH NEXT FROM h1");
    assert_eq!(moved, Ok(format!("2000,{}", "x".repeat(1000))));
    wire.query("CLOSE ALL").expect("closed");
    assert_eq!(hold(&mut wire, "again", "SCROLL", 2000), None);
    assert_eq!(run(&mut wire, "FETCH ALL FROM again").map(|rows| rows.matches(';').count()), Ok(1999));
    check_peak(&process, "held cursors", BESIDE_MB);
}
