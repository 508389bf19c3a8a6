use sqlparser::ast::{self, BinaryOperator, Expr};

use super::*;

fn one(text: &str) -> Command {
    let mut statements = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(statements.len(), 1, "{text}");
    statements.remove(0).command.clone()
}

fn sql(text: &str) -> String {
    match one(text) {
        Command::Sql(statement) => statement.to_string(),
        other => panic!("{text}: {other:?}"),
    }
}

/// The tree with every operation in brackets.
fn bracketed(expr: &Expr) -> String {
    match expr {
        Expr::BinaryOp { left, op, right } => format!("({} {op} {})", bracketed(left), bracketed(right)),
        Expr::UnaryOp { op, expr } => format!("({op} {})", bracketed(expr)),
        Expr::Cast { expr, data_type, .. } => format!("({}::{data_type})", bracketed(expr)),
        Expr::IsDistinctFrom(a, b) => format!("({} DISTINCT {})", bracketed(a), bracketed(b)),
        Expr::IsNotDistinctFrom(a, b) => format!("({} SAME {})", bracketed(a), bracketed(b)),
        Expr::IsNull(a) => format!("({} NULL?)", bracketed(a)),
        Expr::Between { expr, low, high, .. } => {
            format!("({} BETWEEN {} AND {})", bracketed(expr), bracketed(low), bracketed(high))
        }
        Expr::Nested(inner) => bracketed(inner),
        other => other.to_string(),
    }
}

fn tree(text: &str) -> String {
    bracketed(&parse_expression(text).unwrap_or_else(|error| panic!("{text}: {error}")))
}

#[test]
fn precedence_is_postgresqls() {
    for (text, expected) in [
        ("- 2 ^ 2", "((- 2) ^ 2)"),
        ("-a::int", "(- (a::INT))"),
        ("- a[1]", "(- a[1])"),
        ("2 ^ 3 ^ 2", "((2 ^ 3) ^ 2)"),
        ("a - -1", "(a - (- 1))"),
        ("a IS DISTINCT FROM b AND c", "((a DISTINCT b) AND c)"),
        ("a IS NOT DISTINCT FROM b = c OR d", "((a SAME (b = c)) OR d)"),
        ("NOT a IS DISTINCT FROM b", "(NOT (a DISTINCT b))"),
        ("a ISNULL AND b", "((a NULL?) AND b)"),
        ("a BETWEEN SYMMETRIC 2 AND 1 AND c", "(((a BETWEEN 2 AND 1) OR (a BETWEEN 1 AND 2)) AND c)"),
        ("a || b = c COLLATE \"C\" AND d", "(((a || b) = c) AND d)"),
        ("a AND b OR c AND NOT d", "((a AND b) OR (c AND (NOT d)))"),
        ("a = b || c ~ d", "(a = ((b || c) ~ d))"),
        ("a OPERATOR(pg_catalog.+) b -> c", "((a OPERATOR(pg_catalog.+) b) -> c)"),
        ("a OPERATOR(*) b + c < d", "((a OPERATOR(*) (b + c)) < d)"),
        ("~ a ~ b", "((~ a) ~ b)"),
        ("a BETWEEN b ~ c AND d ~ e = f", "((a BETWEEN (b ~ c) AND (d ~ e)) = f)"),
    ] {
        assert_eq!(tree(text), expected, "{text}");
    }
}

#[test]
fn operators_without_a_precedence_of_their_own_bind_alike() {
    let operators = [
        "~", "~*", "!~", "!~*", "~~", "~~*", "!~~", "!~~*", "||", "->", "->>", "#>", "#>>", "@>", "<@", "?",
        "?|", "?&", "&&", "&", "|", "#", "<<", ">>", "@@", "#-", "^@",
    ];
    for first in operators {
        for (text, expected) in [
            (format!("a = b {first} c"), format!("(a = (b {first} c))")),
            (format!("a {first} b < c"), format!("((a {first} b) < c)")),
            (format!("a {first} b + c"), format!("(a {first} (b + c))")),
            (format!("a {first} b IS NULL"), format!("((a {first} b) NULL?)")),
            (format!("a {first} b || c"), format!("((a {first} b) || c)")),
            (format!("a || b {first} c"), format!("((a || b) {first} c)")),
        ] {
            assert_eq!(tree(&text), expected, "{text}");
        }
    }
}

#[test]
fn what_is_in_the_parentheses_of_any_is_an_expression_of_its_own() {
    for text in ["a ~ ANY(b || c)", "a = ANY(b OR c = d)", "a ~~ ALL((b || c) || d)"] {
        assert_eq!(parse_expression(text).unwrap().to_string(), text);
    }
}

#[test]
fn words_of_other_systems_are_names() {
    for text in [
        "SELECT top, div, minus FROM t AS pivot JOIN u AS semi ON pivot.xor = semi.rlike",
        "SELECT a AS \"left\", convert(a, b, c), try_cast(a) FROM directory AS anti",
        "INSERT INTO directory SELECT 1",
        "INSERT INTO local SELECT 1 ON CONFLICT DO NOTHING",
        "SELECT exists, trim, a.isnull FROM t",
        "SELECT t.user, t.current_date.true, interval - 1, (a.b).null FROM t",
    ] {
        assert_eq!(sql(text), text);
    }
    for (text, expected) in [
        (
            "SELECT 1 view, 2 end, 3 values FROM t cluster",
            "SELECT 1 AS view, 2 AS end, 3 AS values FROM t cluster",
        ),
        (
            "SELECT 1 match, 2 operator, 3 xor FROM t unpivot",
            "SELECT 1 AS match, 2 AS operator, 3 AS xor FROM t unpivot",
        ),
        ("SELECT a AS isnull FROM t start", "SELECT a AS isnull FROM t start"),
    ] {
        assert_eq!(sql(text), expected);
    }
    fails("SELECT * FROM t LEFT x JOIN u ON true", "syntax error at or near \"x\"", 22);
    fails("SELECT * FROM t RIGHT", "syntax error at end of input", 22);
}

#[test]
fn parentheses_are_left_out_around_queries_only() {
    for text in [
        "INSERT INTO t ((DEFAULT VALUES))",
        "INSERT INTO t ((a SELECT 1))",
        "INSERT INTO t (VALUES)",
        "INSERT INTO t ((SELECT 1)",
    ] {
        assert!(parse(text).is_err(), "{text}");
    }
    fails("SELECT 1 IN f((SELECT 1))", "syntax error at or near \"f\"", 13);
    fails("SELECT 1 match (2)", "syntax error at or near \"(\"", 16);
}

#[test]
fn values_in_one_word_have_no_list_but_a_precision() {
    for word in ["current_catalog", "current_date", "current_role", "current_user", "session_user", "user"] {
        for (text, before) in [("SELECT ", 8), ("SELECT * FROM ", 15)] {
            for list in ["()", "(1)"] {
                let place = before + word.len() as u32;
                fails(&format!("{text}{word}{list}"), "syntax error at or near \"(\"", place);
            }
        }
    }
    for word in ["current_time", "current_timestamp", "localtime", "localtimestamp"] {
        let inside = 9 + word.len() as u32;
        fails(&format!("SELECT {word}()"), "syntax error at or near \")\"", inside);
        fails(&format!("SELECT {word}(-1)"), "syntax error at or near \"-\"", inside);
        fails(&format!("SELECT {word}(1.5)"), "syntax error at or near \"1.5\"", inside);
        fails(&format!("SELECT {word}(1, 2)"), "syntax error at or near \",\"", inside + 1);
        fails(&format!("SELECT * FROM {word}()"), "syntax error at or near \")\"", inside + 7);
        assert!(parse(&format!("SELECT {word}(3), {word}")).is_ok(), "{word}");
    }
    for text in ["SELECT current_schema()", "SELECT \"user\"()"] {
        assert!(parse(text).is_ok(), "{text}");
    }
}

#[test]
fn spellings_the_parser_lacks() {
    for (text, expected) in [
        ("SELECT 1 FROM t FOR NO KEY UPDATE", "SELECT 1 FROM t FOR UPDATE OF \"\u{1}key\""),
        ("SELECT 1 FROM t FOR KEY SHARE OF t NOWAIT", "SELECT 1 FROM t FOR SHARE OF \"\u{1}key\".t NOWAIT"),
        (
            "SELECT 1 FROM t, s FOR UPDATE OF t, s NOWAIT",
            "SELECT 1 FROM t, s FOR UPDATE OF t NOWAIT FOR UPDATE OF s NOWAIT",
        ),
        (
            "SELECT 1 FROM t, s FOR KEY SHARE OF t, s LIMIT 1",
            "SELECT 1 FROM t, s LIMIT 1 FOR SHARE OF \"\u{1}key\".t FOR SHARE OF \"\u{1}key\".s",
        ),
        ("SELECT 1 FROM t FOR UPDATE SKIP LOCKED LIMIT 1", "SELECT 1 FROM t LIMIT 1 FOR UPDATE SKIP LOCKED"),
        (
            "SELECT 1 FROM (SELECT 2 FROM s FOR UPDATE LIMIT 1) x",
            "SELECT 1 FROM (SELECT 2 FROM s LIMIT 1 FOR UPDATE) x",
        ),
        ("SELECT 'a'\n'b'", "SELECT 'ab'"),
        ("SELECT 1 FROM ONLY t, ONLY s", "SELECT 1 FROM t, s"),
        ("UPDATE ONLY t SET a = 1", "UPDATE t SET a = 1"),
        ("SELECT a FROM t ORDER BY a USING >", "SELECT a FROM t ORDER BY a DESC"),
        ("TABLE t", "SELECT * FROM t"),
        ("(TABLE t) ORDER BY 1", "(SELECT * FROM t) ORDER BY 1"),
        ("INSERT INTO t TABLE s", "INSERT INTO t SELECT * FROM s"),
        ("INSERT INTO p.t (a, b) TABLE s", "INSERT INTO p.t (a, b) SELECT * FROM s"),
        ("PREPARE p (INT) AS TABLE t", "PREPARE p (INT) AS SELECT * FROM t"),
        ("PREPARE p AS SELECT a AS table FROM t", "PREPARE p AS SELECT a AS table FROM t"),
        ("DECLARE c CURSOR FOR TABLE t", "DECLARE c CURSOR FOR SELECT * FROM t"),
        ("EXPLAIN TABLE t", "EXPLAIN SELECT * FROM t"),
        ("EXPLAIN ANALYZE VERBOSE TABLE t", "EXPLAIN ANALYZE VERBOSE SELECT * FROM t"),
        ("EXPLAIN (VERBOSE) TABLE t", "EXPLAIN (VERBOSE) SELECT * FROM t"),
        ("EXPLAIN CREATE TABLE u AS TABLE t", "EXPLAIN CREATE TABLE u AS SELECT * FROM t"),
        ("EXPLAIN SELECT a AS table FROM t", "EXPLAIN SELECT a AS table FROM t"),
        ("TABLE t UNION DISTINCT TABLE s", "SELECT * FROM t UNION DISTINCT SELECT * FROM s"),
        (
            "SELECT * FROM (WITH a AS (SELECT (1)) TABLE a) q",
            "SELECT * FROM (WITH a AS (SELECT (1)) SELECT * FROM a) q",
        ),
        ("CREATE UNLOGGED TABLE t (a INT)", "CREATE TABLE t (a INT)"),
        ("CREATE TABLE t (a, b) AS SELECT 1, 2", "CREATE TABLE t (a TEXT, b TEXT) AS SELECT 1, 2"),
        (
            "CREATE TEMP TABLE IF NOT EXISTS s.t (a) ON COMMIT DROP AS TABLE u",
            "CREATE TEMPORARY TABLE IF NOT EXISTS s.t (a TEXT) ON COMMIT DROP AS SELECT * FROM u",
        ),
        ("DROP INDEX CONCURRENTLY i", "DROP INDEX i"),
        (
            "BEGIN ISOLATION LEVEL SERIALIZABLE, READ ONLY, DEFERRABLE",
            "BEGIN ISOLATION LEVEL SERIALIZABLE, READ ONLY",
        ),
        ("BEGIN NOT DEFERRABLE, READ ONLY", "BEGIN READ ONLY"),
        ("ABORT", "ROLLBACK"),
        ("COPY t FROM STDIN WITH (FREEZE ON)", "COPY t FROM STDIN (FREEZE TRUE)"),
        ("SELECT trim(both from a)", "SELECT TRIM(BOTH ' ' FROM a)"),
        ("SELECT a COLLATE pg_catalog.default", "SELECT a"),
        (
            "CREATE TABLE t (a text DEFAULT 'x' COLLATE pg_catalog.\"C\", CHECK (a COLLATE \"C\" > 'a'))",
            "CREATE TABLE t (a TEXT DEFAULT 'x' COLLATE \"C\", CHECK (a > 'a'))",
        ),
        ("ALTER TABLE t ADD a text COLLATE UCS_BASIC", "ALTER TABLE t ADD a TEXT COLLATE \"ucs_basic\""),
        (
            "ALTER TABLE t ALTER a TYPE text USING b COLLATE \"C\"",
            "ALTER TABLE t ALTER COLUMN a TYPE TEXT USING b",
        ),
        ("INSERT INTO t (((SELECT 1)))", "INSERT INTO t SELECT 1"),
        (
            "INSERT INTO s.t AS u (VALUES (1), (2)) RETURNING 1",
            "INSERT INTO s.t AS u VALUES (1), (2) RETURNING 1",
        ),
        ("INSERT INTO t ((SELECT 1) UNION (SELECT 2))", "INSERT INTO t (SELECT 1) UNION (SELECT 2)"),
        (
            "INSERT INTO t (WITH a AS (SELECT 1) TABLE a)",
            "INSERT INTO t WITH a AS (SELECT 1) SELECT * FROM a",
        ),
        (
            "INSERT INTO t (a) ((SELECT 1) UNION (VALUES (2)))",
            "INSERT INTO t (a) ((SELECT 1) UNION (VALUES (2)))",
        ),
        ("EXPLAIN (SELECT 1) UNION (SELECT 2)", "EXPLAIN (SELECT 1) UNION (SELECT 2)"),
        ("EXPLAIN ((SELECT 1))", "EXPLAIN ((SELECT 1))"),
        ("SHOW SESSION AUTHORIZATION", "SHOW session_authorization"),
        ("SELECT a*b FROM t* JOIN s.u* ON true", "SELECT a * b FROM t JOIN s.u ON true"),
        ("SELECT 1 FROM t WHERE a IS DISTINCT FROM b * c", "SELECT 1 FROM t WHERE a IS DISTINCT FROM b * c"),
        ("ALTER TABLE t ALTER a TYPE INT USING a * 2", "ALTER TABLE t ALTER COLUMN a TYPE INT USING a * 2"),
        ("ALTER TABLE t DROP index CASCADE", "ALTER TABLE t DROP COLUMN index CASCADE"),
        (
            "ALTER TABLE t ADD partition INT, DROP partition",
            "ALTER TABLE t ADD COLUMN partition INT, DROP COLUMN partition",
        ),
        ("SELECT 1 IN ((SELECT 2), 3)", "SELECT 1 IN ((SELECT 2), 3)"),
        ("SELECT 1 NOT IN ((SELECT 2) + 1, (SELECT 3))", "SELECT 1 NOT IN ((SELECT 2) + 1, (SELECT 3))"),
        ("SELECT 1 IN ((SELECT 2) UNION (SELECT 3))", "SELECT 1 IN ((SELECT 2) UNION (SELECT 3))"),
        ("SELECT (((SELECT 1) UNION (SELECT 2)) LIMIT 1)", "SELECT (((SELECT 1) UNION (SELECT 2)) LIMIT 1)"),
        (
            "SELECT 1 = ANY(((VALUES (1)) UNION (SELECT 2)))",
            "SELECT 1 = ANY(((VALUES (1)) UNION (SELECT 2)))",
        ),
    ] {
        assert_eq!(sql(text).replace("FREEZE)", "FREEZE TRUE)"), expected, "{text}");
    }
}

#[test]
fn own_statements() {
    assert!(matches!(one("FETCH c"), Command::Fetch { count: FetchCount::Forward(1), skip: false, .. }));
    assert!(matches!(one("fetch -2 from c"), Command::Fetch { count: FetchCount::Forward(-2), .. }));
    assert!(matches!(one("MOVE ALL IN c"), Command::Fetch { count: FetchCount::All, skip: true, .. }));
    assert!(matches!(
        one("SET CONSTRAINTS ALL DEFERRED"),
        Command::SetConstraints { names: None, deferred: true }
    ));
    assert!(matches!(one("PREPARE TRANSACTION 'x'"), Command::PrepareTransaction(name) if name == "x"));
    assert!(matches!(one("VACUUM (ANALYZE, VERBOSE) a, b (c)"),
        Command::Maintenance { command: "VACUUM", relations, .. } if relations.len() == 2));
    assert!(matches!(one("DO $$ BEGIN END $$"), Command::Do { language: None, code: Some(_) }));
    assert!(matches!(one("backup"), Command::Backup));
    assert!(parse("BACKUP t").is_err());
    let Command::CreateSequence { options, temporary: true, .. } =
        one("CREATE TEMP SEQUENCE s START 5 INCREMENT BY -2 NO MAXVALUE CACHE 3 OWNED BY t.a")
    else {
        panic!()
    };
    assert_eq!((options.start, options.increment, options.maximum), (Some(5), Some(-2), Some(None)));
    let inserted = parse("INSERT INTO t (a) OVERRIDING SYSTEM VALUE VALUES (1)").unwrap();
    assert_eq!(inserted[0].overriding.iter().map(|(_, kind)| *kind).next(), Some(Overriding::SystemValue));
}

#[test]
fn statements_keep_their_text() {
    let statements =
        parse(" SELECT 1 ; -- one\n;; INSERT INTO t VALUES (';') ; SELECT $$;$$, 'ä;' /* ; */ ").unwrap();
    let texts: Vec<&str> = statements.iter().map(|statement| &*statement.text).collect();
    assert_eq!(texts, ["SELECT 1", "INSERT INTO t VALUES (';')", "SELECT $$;$$, 'ä;'"]);
    assert!(parse("  -- nothing\n ; ").unwrap().is_empty());
    assert!(parse_single("SELECT 1; SELECT 2").is_err());
}

#[track_caller]
fn fails(text: &str, message: &str, position: u32) {
    let error = parse(text).unwrap_err();
    assert_eq!(
        (error.sqlstate, error.message.as_str(), error.position),
        ("42601", message, Some(position)),
        "{text}"
    );
}

#[test]
fn syntax_errors_as_postgresql_words_them() {
    fails("SELEC 1", "syntax error at or near \"SELEC\"", 1);
    fails("SELECT 1 FROM", "syntax error at end of input", 14);
    fails("SELECT INTERVAL '1' YEAR TO DAY", "syntax error at or near \"DAY\"", 29);
    fails("SELECT INTERVAL '5' DAY(3)", "syntax error at or near \"(\"", 24);
    fails("SELECT 1 FROM t WHERE", "syntax error at end of input", 22);
    fails("SELECT 'ä', a FROM t WHERE = 1", "syntax error at or near \"=\"", 28);
    fails("SELECT 1 FROM t a b", "syntax error at or near \"b\"", 19);
    fails("SELECT 1;\nSELECT\n  * FRM t x y", "syntax error at or near \"t\"", 26);
    fails("SELECT 'abc", "unterminated quoted string at or near \"'abc\"", 8);
    fails("SELECT 1 + ; SELECT 2", "syntax error at or near \";\"", 12);
    fails("SELECT (1", "syntax error at end of input", 10);
    fails("INSERT INTO t VALUES (1,)", "syntax error at or near \")\"", 25);
}

#[test]
fn deep_statements_do_not_overflow_the_stack() {
    let worker = std::thread::Builder::new().stack_size(1024 * 1024);
    let work = || {
        let nested = format!("SELECT {}1{}", "(".repeat(5_000), ")".repeat(5_000));
        assert_eq!(parse(&nested).unwrap().len(), 1);
        let chain = format!("SELECT 1 WHERE a = 1{}", " OR a = 1".repeat(9_000));
        assert_eq!(parse(&chain).unwrap().len(), 1);
        let too_deep = format!("SELECT {}1{}", "(".repeat(50_000), ")".repeat(50_000));
        assert_eq!(parse(&too_deep).unwrap_err().sqlstate, "54001");
        let arrays = format!("SELECT NULL::int{}", "[]".repeat(200_000));
        assert_eq!(parse(&arrays).unwrap_err().sqlstate, "54001");
        let signs = format!("SELECT {}1", "- ".repeat(9_000));
        assert_eq!(parse(&signs).unwrap().len(), 1);
        // Each of them gets parentheses.
        let signs = format!("SELECT {}1", "- ".repeat(11_000));
        assert_eq!(parse(&signs).unwrap_err().sqlstate, "54001");
        let signs = format!("SELECT {}1", "- ".repeat(50_000));
        assert_eq!(parse(&signs).unwrap_err().sqlstate, "54001");
        for operator in [" NOTNULL", " SIMILAR TO a", " OVERLAPS a", " OPERATOR(pg_catalog.+) a"] {
            let chain = format!("SELECT a{}", operator.repeat(50_000));
            assert_eq!(parse(&chain).unwrap_err().sqlstate, "54001", "{operator}");
        }
    };
    worker.spawn(work).unwrap().join().unwrap();
}

#[test]
fn large_statements_parse() {
    let literal = format!("SELECT '{}'", "x".repeat(10 << 20));
    assert_eq!(parse(&literal).unwrap().len(), 1);
}

#[test]
fn operators_next_to_signs() {
    let Expr::BinaryOp { op, right, .. } = parse_expression("a=-1").unwrap() else { panic!() };
    assert_eq!(op, BinaryOperator::Eq);
    assert!(matches!(*right, Expr::UnaryOp { op: ast::UnaryOperator::Minus, .. }));
}

#[test]
fn work_is_bounded_whatever_is_nested() {
    // What opens a level, and what closes it.
    let expressions = [
        ("CAST(", " AS int)"),
        ("EXISTS(SELECT ", ")"),
        ("POSITION(", " IN 'a')"),
        ("POSITION('a' IN ", ")"),
        ("EXTRACT(", ")"),
        ("EXTRACT(year FROM ", ")"),
        ("INTERVAL ", ""),
        ("INTERVAL(", ")"),
        ("ROW(", ")"),
        ("(SELECT ", ")"),
        ("((SELECT ", "))"),
        ("1 IN (SELECT ", ")"),
        ("1 IN ((SELECT ", "))"),
        ("1 IN (WITH a AS (SELECT ", ") SELECT 1)"),
        ("ARRAY(SELECT ", ")"),
        ("ARRAY[", "]"),
        ("ARRAY[1, ", "]"),
        ("count(*) FILTER (WHERE ", ")"),
        ("count(*) OVER (ORDER BY ", ")"),
        ("TRIM(", ")"),
        ("TRIM(BOTH FROM ", ")"),
        ("OVERLAY(", " PLACING 'a' FROM 1)"),
        ("OVERLAY('a' PLACING ", " FROM 1)"),
        ("SUBSTRING(", " FROM 1)"),
        ("SUBSTRING('a' FROM ", ")"),
        ("a.(", ")"),
        ("a.b(", ")"),
        ("COALESCE(", ")"),
        ("CASE ", " WHEN 1 THEN 2 END"),
        ("CASE WHEN true THEN ", " END"),
        ("CASE WHEN ", " THEN 1 END"),
        ("CASE 1 WHEN 1 THEN 1 ELSE ", " END"),
        ("1 = ANY(", ")"),
        ("1 = ANY(SELECT ", ")"),
        ("1 = ALL((SELECT ", "))"),
        ("(", ")"),
        ("(1, ", ")"),
        ("1 IN (", ")"),
        ("1 IN (1, ", ")"),
        ("CEIL(", ")"),
        ("FLOOR(", " TO day)"),
        ("f(a => ", ")"),
        ("f(a := ", ")"),
        ("f(DISTINCT ", ")"),
        ("f(1 ORDER BY ", ")"),
        ("f(VARIADIC ", ")"),
        ("'1'::a(", ")"),
        ("a[", "]"),
        ("a[1:", "]"),
        ("NOT ", ""),
        ("NOT(", ")"),
        ("DATE ", ""),
        ("DATE(", ")"),
        ("1 BETWEEN 0 AND ", ""),
        ("1 BETWEEN ", " AND 2"),
        ("a IS DISTINCT FROM (", ")"),
        ("a LIKE (", ")"),
        ("a OPERATOR(pg_catalog.+) (", ")"),
        ("OPERATOR(pg_catalog.-) ", ""),
        ("1 || (", ")"),
        ("XMLCONCAT(", ")"),
        ("LISTAGG(", ") WITHIN GROUP (ORDER BY 1)"),
        ("CONVERT(", " USING utf8)"),
        ("MATCH(", ")"),
        ("GROUPING(", ")"),
        ("{fn f(", ")}"),
        ("{", "}"),
        ("@ ", ""),
        ("PRIOR ", ""),
        ("CONNECT_BY_ROOT ", ""),
        ("f(", ") WITHIN GROUP (ORDER BY 1)"),
        ("1::ARRAY<", ">"),
        ("ARRAY<", ">"),
        ("TABLE(a ", ")"),
        ("TABLE (a int DEFAULT ", ")"),
        ("ENUM('a' = ", ")"),
        ("(SELECT FROM ((SELECT FROM f(", ")))) "),
        ("(VALUES (", "))"),
        ("ROLLUP(", ")"),
        ("json_object(", " : 1)"),
        ("JSON_TABLE(", ", '$' COLUMNS (a int PATH '$'))"),
        ("LAMBDA x : ", ""),
        ("x -> (", ")"),
        ("TRY_CAST(", " AS int)"),
        ("current_date(", ")"),
        ("left(", ", 1)"),
        ("STRUCT(", ")"),
        ("MAP {", "}"),
        ("case(", ")"),
        ("cast(interval ", " AS int)"),
        ("interval case ", " end"),
    ];
    let tables = [
        ("LATERAL (", ") AS a"),
        ("LATERAL (SELECT * FROM ", ") AS a"),
        ("(", ")"),
        ("(a JOIN ", " ON true)"),
        ("(a CROSS JOIN (", "))"),
        ("((a CROSS JOIN ", "))"),
        ("(SELECT * FROM ", ") AS a"),
        ("((SELECT * FROM ", ")) AS a"),
        ("((SELECT FROM ", ")) AS a"),
        ("((SELECT 1 FROM ", ")) AS a"),
        ("((TABLE ", ")) AS a"),
        ("((WITH a AS (SELECT FROM ", ") SELECT FROM a)) AS a"),
        ("((VALUES (1), (", "))) AS a"),
        ("((SELECT FROM a UNION SELECT FROM ", ")) AS a"),
        ("((((((((SELECT FROM ", ")))))))) AS a"),
        ("a, (", ")"),
        ("a JOIN (", ") ON true"),
        ("a JOIN ", " ON true"),
        ("a JOIN b ON (", ")"),
        ("UNNEST(", ")"),
        ("f(", ")"),
        ("ROWS FROM (", ")"),
        ("TABLE(", ")"),
        ("JSON_TABLE(", ", '$' COLUMNS (a int PATH '$'))"),
        ("XMLTABLE(", " PASSING a COLUMNS a int)"),
        ("a TABLESAMPLE bernoulli(", ")"),
        ("a PIVOT(", ")"),
        ("a MATCH_RECOGNIZE(", ")"),
    ];
    let statements = [
        ("WITH a AS (", ") SELECT 1"),
        ("WITH a AS (SELECT 1), b AS (", ") SELECT 1"),
        ("CREATE TABLE x (a int DEFAULT (", "))"),
        ("CREATE TABLE x (", ")"),
        ("CREATE TABLE x AS (", ")"),
        ("CREATE VIEW x AS (", ")"),
        ("INSERT INTO t (", ")"),
        ("INSERT INTO t (WITH a AS (", ") SELECT 1)"),
        ("INSERT INTO t ((", "))"),
        ("INSERT INTO t VALUES (", ")"),
        ("INSERT INTO ", ""),
        ("VALUES ((", "))"),
        ("VALUES (", ")"),
        ("EXPLAIN (", ") SELECT 1"),
        ("EXPLAIN ", ""),
        ("DESCRIBE ", ""),
        ("PREPARE a AS ", ""),
        ("PREPARE a (", ") AS SELECT 1"),
        ("UPDATE t SET a = (", ")"),
        ("UPDATE t SET (a) = (", ")"),
        ("UPDATE (", ")"),
        ("DELETE FROM ", ""),
        ("DELETE FROM (", ")"),
        ("COPY (", ") TO STDOUT"),
        ("SELECT 1 GROUP BY ROLLUP(", ")"),
        ("SELECT 1 GROUP BY GROUPING SETS(", ")"),
        ("SELECT 1 UNION (", ")"),
        ("BEGIN ", " END"),
        ("IF 1 THEN ", " END IF"),
        ("WHILE 1 BEGIN ", " END"),
        ("CASE WHEN 1 THEN ", " END CASE"),
        ("CREATE FUNCTION f() RETURNS int AS BEGIN ", " END"),
        ("CREATE PROCEDURE p AS BEGIN ", " END"),
        ("CREATE TRIGGER a BEFORE INSERT ON t ", ""),
        ("DECLARE a CURSOR FOR ", ""),
        ("MERGE INTO a USING (", ") ON true"),
        ("SET a = (", ")"),
        ("SET a = ", ""),
        ("CALL f(", ")"),
        ("EXECUTE a(", ")"),
        ("SHOW (", ")"),
        ("RETURN ", ""),
        ("RAISE ", ""),
        ("ALTER TABLE t ADD COLUMN a int DEFAULT (", ")"),
        ("ALTER TABLE t ADD CHECK (", ")"),
        ("CREATE INDEX i ON t ((", "))"),
        ("(", ")"),
        ("(SELECT ", ")"),
        ("((SELECT 1 FROM ", "))"),
        ("CREATE DOMAIN a AS int CHECK (", ")"),
        ("CREATE POLICY a ON t USING (", ")"),
        ("GRANT ", ""),
        ("ANALYZE ", ""),
        ("CACHE TABLE a AS ", ""),
        ("UNLOAD (", ") TO 'a'"),
        ("EXPORT DATA OPTIONS(", ") AS SELECT 1"),
    ];
    let everywhere = expressions
        .iter()
        .map(|shape| ("SELECT ", shape))
        .chain(tables.iter().map(|shape| ("SELECT * FROM ", shape)))
        .chain(statements.iter().map(|shape| ("", shape)));
    for (start, (open, close)) in everywhere {
        // Were the work to double with every level, none but the first would end.
        for depth in [3, 12, 24, 200, 1_000] {
            let opened = format!("{start}{}", open.repeat(depth));
            let inside = format!("{opened}1");
            let closed = format!("{inside}{}", close.repeat(depth));
            let forms = if depth <= 24 { vec![opened, inside, closed] } else { vec![closed] };
            for text in forms {
                let Err(error) = parse(&text) else { continue };
                assert!(matches!(error.sqlstate, "42601" | "54001"), "{start}{open} {depth}: {error}");
                assert!(error.sqlstate == "42601" || depth > 3, "{start}{open} {depth}: {error}");
            }
        }
    }
}

#[test]
fn what_is_read_without_tokens_is_what_the_grammar_reads() {
    let plain = [
        "BEGIN",
        " begin ; ",
        "Commit",
        "COMMIT;",
        "rollback",
        "PREPARE TRANSACTION 'x'",
        "commit\n prepared 'a b, \u{e9}' ; ",
        "  ROLLBACK\tPREPARED ''",
        "COMMIT PREPARED '--/*'",
        "BEGIN MIP <'x', 1>",
        "begin mip 'x',1;",
        "COMMIT  MIP < '\u{e9} ;' ,\n0012 > ; ",
        "ROLLBACK MIP <'x',99999999999999999999>",
        "PREPARE MIP <'x', 1> 'buy <7>, 8' 'order'",
        "PREPARE MIP 'x', 1 '','' ;",
        "PREPARE MIP <'x', 1>'a'\n'b'",
    ];
    for text in plain {
        let statement = super::plain::parse(text).expect(text);
        let expected =
            super::parse_tokens(text, super::Survey::default(), None, None).expect(text).pop().expect(text);
        let shown = |statement: &super::Statement| {
            (statement.text.clone(), statement.source.clone(), format!("{:?}", statement.command))
        };
        assert_eq!(shown(&statement), shown(&expected));
    }
    let others = [
        "",
        "COMMIT WORK",
        "COMMIT; COMMIT",
        "COMMIT AND CHAIN",
        "START TRANSACTION",
        "BEGIN READ ONLY",
        "ROLLBACK TO s",
        "END",
        "COMMIT PREPARED",
        "COMMIT PREPARED x",
        "COMMITPREPARED 'x'",
        "COMMIT PREPARED'x'",
        "COMMIT PREPARED '",
        "COMMIT PREPARED 'it''s'",
        "COMMIT PREPARED 'a' 'b'",
        "COMMIT PREPARED 'a'; COMMIT PREPARED 'b'",
        "COMMIT PREPARED E'a\\n'",
        "COMMIT PREPARED 'a\\n'",
        "COMMIT PREPARED 'a';;",
        "COMMIT /* now */ PREPARED 'a'",
        "PREPARE p AS SELECT 'a'",
        "PREPARE mip AS SELECT 'a'",
        "PREPARE mip (int) AS SELECT 'a'",
        "BEGIN MIP",
        "BEGIN MIP<'x', 1>",
        "BEGIN MIP <x, 1>",
        "BEGIN MIP <'x', $1>",
        "BEGIN MIP <'x', -1>",
        "BEGIN MIP <'x', 1",
        "BEGIN MIP 'x', 1>",
        "BEGIN MIP <'x', 1 2>",
        "BEGIN MIP <'x'>",
        "BEGIN MIP <'it''s', 1>",
        "BEGIN MIP <E'x', 1>",
        "BEGIN MIP <'x', 1> 'request'",
        "BEGIN MIP <'x', 1>; SELECT 1",
        "BEGIN MIP <'x', /* one */ 1>",
        "PREPARE MIP <'x', 1> 'a'",
        "PREPARE MIP <'x', 1> 'a' 'b' 'c'",
        "PREPARE MIP <'x', 1> 'it''s' 'b'",
        "PREPARE MIP <'x', 1> 'a' $1",
        "SHOW MIPT 'x'",
        "\u{e9}",
    ];
    for text in others {
        assert!(super::plain::parse(text).is_none(), "{text}");
    }
}

#[test]
fn settings_of_roles_and_databases() {
    let alter = |text: &str| match one(text) {
        Command::AlterSettings(alter) => {
            let scope = match &alter.scope {
                SettingScope::Database(name) => format!("database {name}"),
                SettingScope::Role { role: RoleName::Named(name), database: None } => name.to_string(),
                SettingScope::Role { role, database: None } => format!("{role:?}"),
                SettingScope::Role { role: RoleName::Named(name), database: Some(database) } => {
                    format!("{name} in {database}")
                }
                SettingScope::Role { role, database: Some(database) } => format!("{role:?} in {database}"),
            };
            let change = match &alter.change {
                SettingChange::Set(name, values) => {
                    let values: Vec<String> = values.iter().map(ToString::to_string).collect();
                    format!("{name} = {}", values.join(" & "))
                }
                SettingChange::FromCurrent(name) => format!("{name} from current"),
                SettingChange::Reset(name) => format!("reset {name}"),
                SettingChange::ResetAll => "reset all".to_owned(),
            };
            format!("{}: {scope}: {change}", alter.tag())
        }
        other => panic!("{text}: {other:?}"),
    };
    for (text, expected) in [
        ("ALTER ROLE a SET x = 1", "ALTER ROLE: a: x = 1"),
        ("alter user a set x to 'y', z", "ALTER ROLE: a: x = 'y' & z"),
        ("ALTER ROLE ALL SET my.own TO DEFAULT", "ALTER ROLE: All: my.own = DEFAULT"),
        ("ALTER ROLE \"all\" SET x = on", "ALTER ROLE: \"all\": x = on"),
        ("ALTER ROLE current_user RESET ALL", "ALTER ROLE: Current: reset all"),
        ("ALTER USER ALL IN DATABASE d RESET x", "ALTER ROLE: All in d: reset x"),
        ("ALTER ROLE a IN DATABASE \"D\" SET x FROM CURRENT", "ALTER ROLE: a in \"D\": x from current"),
        ("ALTER ROLE session_user SET TIME ZONE LOCAL", "ALTER ROLE: Current: timezone = default"),
        ("ALTER ROLE a SET TIME ZONE INTERVAL '1' HOUR", "ALTER ROLE: a: timezone = INTERVAL '1' HOUR"),
        ("ALTER DATABASE d SET NAMES 'utf8'", "ALTER DATABASE: database d: client_encoding = 'utf8'"),
        ("ALTER DATABASE d SET names = 1", "ALTER DATABASE: database d: names = 1"),
        ("ALTER DATABASE d SET tablespace = x", "ALTER DATABASE: database d: tablespace = x"),
        ("ALTER DATABASE d RESET TIME ZONE", "ALTER DATABASE: database d: reset timezone"),
        ("ALTER ROLE a RESET \"ALL\"", "ALTER ROLE: a: reset \"ALL\""),
    ] {
        assert_eq!(alter(text), expected, "{text}");
    }
    let tablespace = one("ALTER DATABASE d SET TABLESPACE x");
    assert!(matches!(tablespace, Command::Unsupported("ALTER DATABASE")));
    assert!(matches!(one("ALTER DATABASE d OWNER TO x"), Command::Owner(_)));
    for text in ["ALTER USER a PASSWORD 'x'", "ALTER ROLE a PASSWORD 'x'"] {
        assert!(matches!(one(text), Command::Role(_)), "{text}");
    }
    for (text, near) in [
        ("ALTER ROLE a SET LOCAL x = 1", "near \"x\""),
        ("ALTER ROLE a SET x", "at end of input"),
        ("ALTER ROLE a SET x FROM", "at end of input"),
        ("ALTER ROLE a SET x FROM y", "near \"y\""),
        ("ALTER ROLE a RESET", "at end of input"),
        ("ALTER ROLE a RESET x y", "near \"y\""),
        ("ALTER ROLE a RESET ALL x", "near \"x\""),
        ("ALTER DATABASE d SET x = 1 2", "near \"2\""),
    ] {
        let error = parse(text).expect_err(text);
        assert_eq!(error.sqlstate, "42601", "{text}");
        assert!(error.message.ends_with(near), "{text}: {}", error.message);
    }
}
fn routine(text: &str) -> CreateRoutine {
    match one(text) {
        Command::CreateRoutine(create) => *create,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn arguments_have_directions_names_and_types_in_any_order() {
    let shown = |text: &str| {
        let create = routine(&format!("CREATE PROCEDURE p({text}) LANGUAGE sql AS ''"));
        let arguments = create.arguments.iter().map(|argument| {
            let name = argument.name.as_ref().map_or("-", |name| &name.value);
            format!("{} {name} {}", argument.mode.letter(), argument.data_type).to_lowercase()
        });
        arguments.collect::<Vec<_>>().join(", ")
    };
    for (text, expected) in [
        ("", ""),
        ("int", "i - int"),
        ("a int", "i a int"),
        ("IN a int, OUT b text, INOUT c date", "i a int, o b text, b c date"),
        ("a IN int, b OUT text, IN OUT c date", "i a int, o b text, b c date"),
        ("OUT int, double precision", "o - int, i - double precision"),
        (
            "a double precision, timestamp with time zone",
            "i a double precision, i - timestamp with time zone",
        ),
        ("x character varying(5), numeric(3,2)", "i x character varying(5), i - numeric(3,2)"),
        ("a int DEFAULT 1, b int = 2 + 3, int[] DEFAULT '{}'", "i a int, i b int, i - int[]"),
        ("interval, a interval", "i - interval, i a interval"),
    ] {
        assert_eq!(shown(text), expected, "{text}");
    }
}

#[test]
fn options_of_a_routine_come_in_any_order() {
    let create = routine(
        "CREATE OR REPLACE FUNCTION s.f() RETURNS SETOF int AS $$ SELECT 1 $$ STRICT STABLE LANGUAGE 'sql'",
    );
    assert!(create.or_replace && create.strict == Some(true) && !create.redundant);
    assert!(matches!(create.returns, Some(RoutineReturns::Set(_))));
    assert!(matches!(create.body, Some(RoutineBody::Text(texts)) if texts == [" SELECT 1 "]));
    let create = routine(
        "CREATE FUNCTION f() RETURNS TABLE (a int, b text) LANGUAGE sql CALLED ON NULL INPUT COST 5 RETURN 1 + 1",
    );
    assert!(matches!(create.returns, Some(RoutineReturns::Table(columns)) if columns.len() == 2));
    assert_eq!(create.strict, Some(false));
    assert!(matches!(create.body, Some(RoutineBody::Return(_))));
    assert!(routine("CREATE FUNCTION f() RETURNS int LANGUAGE sql LANGUAGE sql AS ''").redundant);
    for text in [
        "CREATE FUNCTION f RETURNS int LANGUAGE sql AS ''",
        "CREATE FUNCTION f(,) RETURNS int LANGUAGE sql AS ''",
        "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS",
        "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 1",
        "CREATE PROCEDURE p() RETURNS int LANGUAGE sql AS ''",
        "CREATE PROCEDURE p() LANGUAGE sql AS '' nonsense",
        "CREATE PROCEDURE p() BEGIN ATOMIC SELECT 1",
        "DROP FUNCTION",
        "DROP FUNCTION f(",
    ] {
        assert_eq!(parse(text).map(drop).unwrap_err().sqlstate, "42601", "{text}");
    }
}

#[test]
fn semicolons_of_a_body_do_not_end_its_statement() {
    let text = "SELECT 1; CREATE PROCEDURE p() BEGIN ATOMIC SELECT CASE WHEN true THEN 1 END; SELECT 2; END; SELECT 3";
    let statements = parse(text).unwrap();
    assert_eq!(statements.len(), 3);
    let Command::CreateRoutine(create) = &statements[1].command else { panic!("{:?}", statements[1]) };
    let Some(RoutineBody::Atomic(body)) = &create.body else { panic!("{create:?}") };
    assert_eq!(body, " SELECT CASE WHEN true THEN 1 END; SELECT 2; ");
    assert_eq!(&*statements[2].text, "SELECT 3");
    // Others that say BEGIN are not concerned.
    assert_eq!(parse("BEGIN; SELECT 1; END; CREATE TABLE function (atomic int); SELECT 2").unwrap().len(), 5);
    let quoted = parse("CREATE PROCEDURE p() LANGUAGE sql AS $$ SELECT 1; SELECT 2; $$; SELECT 3").unwrap();
    assert_eq!(quoted.len(), 2);
}

#[test]
fn routines_are_dropped_by_name_or_arguments() {
    let Command::DropRoutine(drop) = one("DROP FUNCTION IF EXISTS f, s.g(a int, OUT text), h() CASCADE")
    else {
        panic!("no DROP FUNCTION");
    };
    let counts: Vec<Option<usize>> =
        drop.routines.iter().map(|(_, arguments)| arguments.as_ref().map(Vec::len)).collect();
    assert_eq!(counts, [None, Some(2), Some(0)]);
    assert!(drop.if_exists && drop.cascade);
}

#[test]
fn values_in_from_stand_side_by_side() {
    for (text, read) in [
        ("SELECT * FROM current_date d", "SELECT * FROM \"\u{1}rows from\"(current_date) d"),
        ("SELECT * FROM t, coalesce(a, b) c", "SELECT * FROM t, \"\u{1}rows from\"(coalesce(a, b)) c"),
        (
            "SELECT 1 FROM t JOIN (SELECT user, coalesce(a, b) FROM trim(a)) s ON a IS DISTINCT FROM user",
            "SELECT 1 FROM t JOIN (SELECT user, coalesce(a, b) FROM \"\u{1}rows from\"(trim(a))) s \
             ON a IS DISTINCT FROM user",
        ),
        ("SELECT * FROM f(1) AS (a int)", "SELECT * FROM f(1) AS f(a int)"),
        ("SELECT * FROM (VALUES (1), (coalesce(1, 2))) v", "SELECT * FROM (VALUES (1), (coalesce(1, 2))) v"),
        (
            "SELECT extract(year FROM current_date), t.user FROM t ORDER BY a, coalesce(b, c)",
            "SELECT extract(year FROM current_date), t.user FROM t ORDER BY a, coalesce(b, c)",
        ),
    ] {
        assert_eq!(sql(text), sql(read), "{text}");
    }
}
