//! The row executor and the analytic executor give the same answers: each query runs on both, in one transaction that
//! has written rows of its own, and rows, names and types of columns, and SQLSTATEs must be the same.
//!
//! Rows are compared in order where the query orders them wholly, else as a bag. `executors/same.sql` holds queries that both must run,
//! `executors/refused.sql` those that the analytic executor must refuse by name. Others are generated; the seed is printed, and taken from
//! `COGNATE_SEED` if that is set.

#![allow(clippy::unwrap_used)]

mod generate;

use std::fmt::Write as _;

use cognate_engine::{Database, Options};
use cognate_sql::session::{
    Fetch, Format, OutputColumn, RowSink, Session, SessionParameters, SinkState, SqlDatabase,
};
use cognate_sql::types::{Datum, FormatContext};

#[derive(Default)]
struct Rows(Vec<String>);

impl RowSink for Rows {
    fn row(
        &mut self,
        columns: &[OutputColumn],
        _: &[Format],
        row: &[Datum],
        context: &FormatContext,
    ) -> SinkState {
        let texts = row.iter().zip(columns).map(|(value, column)| match value {
            Datum::Null => "NULL".to_owned(),
            value => value.to_text_string(column.ty, context),
        });
        self.0.push(texts.collect::<Vec<_>>().join("|"));
        SinkState::Ready
    }

    fn copy_out(&mut self, _: &[u8]) -> SinkState {
        SinkState::Ready
    }
}

/// What a query answers.
#[derive(Clone, Debug, PartialEq)]
enum Answer {
    Rows { columns: Vec<String>, rows: Vec<String> },
    Error { sqlstate: String, message: String },
}

impl Answer {
    fn sqlstate(&self) -> Option<&str> {
        match self {
            Answer::Error { sqlstate, .. } => Some(sqlstate),
            Answer::Rows { .. } => None,
        }
    }

    fn is_refusal(&self) -> bool {
        self.sqlstate() == Some("0A000")
    }

    /// The same but for what may differ: the order where there is none, and the words of messages.
    fn comparable(&self, ordered: bool) -> Answer {
        match self.clone() {
            Answer::Rows { columns, mut rows } => {
                if !ordered {
                    rows.sort();
                }
                Answer::Rows { columns, rows }
            }
            Answer::Error { sqlstate, .. } => Answer::Error { sqlstate, message: String::new() },
        }
    }
}

struct World {
    _folder: tempfile::TempDir,
    session: Session,
    runtime: tokio::runtime::Runtime,
}

const COMMITTED: &str = include_str!("executors/committed.sql");
const OWN: &str = include_str!("executors/own.sql");

impl World {
    /// Tables with committed rows, and an open transaction that changed some and added others.
    fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        let engine = Database::open(Options::new(folder.path().join("data"))).unwrap();
        let database = SqlDatabase::open(engine).unwrap();
        let parameters = SessionParameters {
            user: "postgres".into(),
            database: "postgres".into(),
            ..SessionParameters::default()
        };
        let session = Session::new(database, parameters).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let mut world = World { _folder: folder, session, runtime };
        for statement in statements(COMMITTED).chain(["BEGIN"]).chain(statements(OWN)) {
            match world.run(statement) {
                Answer::Rows { .. } => {}
                error => panic!("{statement}: {error:?}"),
            }
        }
        world
    }

    fn run(&mut self, sql: &str) -> Answer {
        let World { session, runtime, .. } = self;
        let mut sink = Rows::default();
        let ran = runtime.block_on(async {
            let prepared = session.prepare(sql, &[])?;
            let mut portal = session.bind(&prepared, &[], &[], &[])?;
            loop {
                if let Fetch::Complete(_) = session.fetch(&mut portal, &mut sink, 0).await? {
                    break;
                }
            }
            let columns = portal.columns().unwrap_or_default().iter();
            let columns = columns.map(|column| format!("{} {}", column.name, column.ty.format()));
            Ok::<Vec<String>, cognate_sql::SqlError>(columns.collect())
        });
        match ran {
            Ok(columns) => {
                if session.status() == cognate_sql::session::TransactionStatus::Idle {
                    runtime.block_on(session.sync()).unwrap();
                }
                Answer::Rows { columns, rows: sink.0 }
            }
            Err(error) => {
                session.fail();
                let detail = error.detail.iter().map(|detail| format!("; {detail}")).collect::<String>();
                Answer::Error {
                    sqlstate: error.sqlstate.to_string(),
                    message: error.message.clone() + &detail,
                }
            }
        }
    }

    fn run_on(&mut self, executor: &str, sql: &str) -> Answer {
        self.run(&format!("SET cognate.executor = {executor}"));
        self.run("SAVEPOINT before");
        let answer = self.run(sql);
        self.run("ROLLBACK TO before");
        self.run("RELEASE before");
        answer
    }
}

/// The statements of a file, each ended by a semicolon at a line's end.
fn statements(file: &str) -> impl Iterator<Item = &str> {
    file.split(";\n").map(str::trim).filter(|statement| !statement.is_empty())
}

/// What differs, if something does.
fn difference(sql: &str, row: &Answer, analytic: &Answer) -> Option<String> {
    let ordered = sql.to_lowercase().contains("order by") && !sql.contains("/* bag */");
    if row.comparable(ordered) == analytic.comparable(ordered) {
        return None;
    }
    let mut text = format!("{sql}\n");
    for (name, answer) in [("row", row), ("analytic", analytic)] {
        match answer {
            Answer::Rows { columns, rows } => {
                let _ = writeln!(text, "  {name}: {}", columns.join(", "));
                rows.iter().take(20).for_each(|row| {
                    let _ = writeln!(text, "    {row}");
                });
            }
            Answer::Error { sqlstate, message } => {
                let _ = writeln!(text, "  {name}: ERROR {sqlstate} {message}");
            }
        }
    }
    Some(text)
}

#[test]
fn picked_queries_give_the_same_answers() {
    let mut world = World::new();
    let mut differences = Vec::new();
    for sql in statements(include_str!("executors/same.sql")) {
        let (row, analytic) = (world.run_on("row", sql), world.run_on("analytic", sql));
        if row.is_refusal() || analytic.is_refusal() {
            differences.push(format!("{sql}\n  row: {row:?}\n  analytic: {analytic:?}"));
        } else {
            differences.extend(difference(sql, &row, &analytic));
        }
    }
    assert!(differences.is_empty(), "{} differ\n\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn what_would_differ_is_refused_by_name() {
    let mut world = World::new();
    let mut wrong = Vec::new();
    for sql in statements(include_str!("executors/refused.sql")) {
        let (row, analytic) = (world.run_on("row", sql), world.run_on("analytic", sql));
        if !matches!(row, Answer::Rows { .. }) || !analytic.is_refusal() {
            wrong.push(format!("{sql}\n  row: {row:?}\n  analytic: {analytic:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn generated_queries_give_the_same_answers() {
    let seed = std::env::var("COGNATE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_260);
    println!("COGNATE_SEED={seed}");
    let mut generator = generate::Generator::new(seed);
    let mut world = World::new();
    let (mut refused, mut failed, mut differences) = (0, 0, Vec::new());
    const QUERIES: usize = 300;
    for _ in 0..QUERIES {
        let sql = generator.query();
        let (row, analytic) = (world.run_on("row", &sql), world.run_on("analytic", &sql));
        if analytic.is_refusal() {
            println!("refused: {sql}: {analytic:?}");
            refused += 1;
            continue;
        }
        // Which rows an expression is computed for, and so whether it fails, is the planner's choice.
        if matches!(row, Answer::Error { .. }) || matches!(analytic, Answer::Error { .. }) {
            failed += 1;
            let failing = [&row, &analytic].into_iter().filter_map(Answer::sqlstate);
            assert!(failing.clone().all(|state| state.starts_with("22")), "{sql}\n{row:?}\n{analytic:?}");
            continue;
        }
        differences.extend(difference(&sql, &row, &analytic));
    }
    println!("of {QUERIES}, {refused} were refused and {failed} failed");
    assert!(differences.is_empty(), "{} differ\n\n{}", differences.len(), differences.join("\n"));
    assert!(refused < QUERIES / 5 && failed < QUERIES / 2, "{refused} refused, {failed} failed");
}

/// The analytic executor reads ranges of keys where the row executor does; both find what they find by reading everything.
#[test]
fn conditions_on_keys_give_the_same_answers() {
    let seed = std::env::var("COGNATE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_260);
    println!("COGNATE_SEED={seed}");
    let mut generator = generate::Generator::new(seed);
    let mut world = World::new();
    let (mut compared, mut found, mut differences) = (0, 0, Vec::new());
    const QUERIES: usize = 400;
    for _ in 0..QUERIES {
        let [open, hidden] = generator.by_key();
        let analytic = world.run_on("analytic", &open);
        for (executor, sql) in [("row", &open), ("analytic", &hidden)] {
            let other = world.run_on(executor, sql);
            if other.is_refusal() || analytic.is_refusal() {
                continue;
            }
            compared += 1;
            differences.extend(difference(&open, &other, &analytic));
        }
        if let Answer::Rows { rows, .. } = &analytic {
            found += usize::from(!rows.is_empty());
        }
    }
    println!("of {QUERIES} queries, {found} found rows; {compared} comparisons");
    assert!(differences.is_empty(), "{} differ\n\n{}", differences.len(), differences.join("\n"));
    assert!(compared > QUERIES && found > QUERIES / 4, "{compared} compared, {found} found rows");
}

#[test]
fn long_and_nested_conditions_are_run_or_refused() {
    let mut world = World::new();
    let list = (0..20_000).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let chain = (0..4_000).map(|n| format!("a = {n}")).collect::<Vec<_>>().join(" OR ");
    let short = (0..1_000).map(|n| format!("{n}.5")).collect::<Vec<_>>().join(", ");
    for (condition, runs) in [
        (format!("id IN ({list})"), true),
        (format!("id NOT IN ({list})"), true),
        (format!("u NOT IN ({short})"), true),
        (format!("n IN ({list})"), false),
        (chain, false),
    ] {
        let sql = format!("SELECT count(*) FROM t WHERE {condition}");
        let (row, analytic) = (world.run_on("row", &sql), world.run_on("analytic", &sql));
        let start = &condition[..30];
        if runs {
            assert_eq!(row, analytic, "{start}");
        } else {
            assert!(analytic.is_refusal(), "{start}: {analytic:?}");
        }
    }
    // Each level needs the one below it twice.
    let between = (0..40).fold("ok".to_owned(), |inner, _| format!("({inner} BETWEEN false AND true)"));
    let case =
        (0..40).fold("a".to_owned(), |inner, _| format!("CASE {inner} WHEN 1 THEN 2 WHEN 2 THEN 1 END"));
    for expression in [between, case] {
        for executor in ["row", "analytic"] {
            let answer = world.run_on(executor, &format!("SELECT {expression} FROM t"));
            assert_eq!(answer.sqlstate(), Some("54001"), "{answer:?}");
        }
        let sql = format!("SELECT {expression}, lag(id) OVER (ORDER BY id) FROM t");
        let answer = world.run_on("auto", &sql);
        assert!(matches!(answer.sqlstate(), Some("54001" | "0A000")), "{answer:?}");
    }
}
