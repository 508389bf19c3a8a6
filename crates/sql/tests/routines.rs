//! Calls through the session's face: parameters, rows in portions, what a call would run.

#![allow(clippy::unwrap_used)]

use cognate_engine::{Database, Options};
use cognate_sql::SqlError;
use cognate_sql::session::{
    Fetch, Format, OutputColumn, RowSink, Session, SessionParameters, SinkState, SqlDatabase,
};
use cognate_sql::types::{Datum, FormatContext, TypeId};

/// Writes rows down as text.
#[derive(Default)]
struct Lines(Vec<String>);

impl RowSink for Lines {
    fn row(
        &mut self,
        columns: &[OutputColumn],
        _: &[Format],
        row: &[Datum],
        context: &FormatContext,
    ) -> Result<SinkState, SqlError> {
        let texts = row.iter().zip(columns).map(|(value, column)| value.to_text_string(column.ty, context));
        self.0.push(texts.collect::<Vec<_>>().join("|"));
        Ok(SinkState::Ready)
    }

    fn copy_out(&mut self, _: &[u8]) -> SinkState {
        SinkState::Ready
    }
}

struct World {
    _folder: tempfile::TempDir,
    session: Session,
}

impl World {
    fn new(definitions: &[&str]) -> World {
        let folder = tempfile::tempdir().unwrap();
        let engine = Database::open(Options::new(folder.path().join("data"))).unwrap();
        let database = SqlDatabase::open(engine).unwrap();
        let session = Session::new(database, SessionParameters::default()).unwrap();
        let mut world = World { _folder: folder, session };
        definitions.iter().for_each(|text| drop(world.run(text, &[])));
        world
    }

    /// Prepares, binds and runs a statement, as the extended protocol does; its rows and its tag.
    fn run(&mut self, text: &str, parameters: &[&str]) -> (Vec<String>, String) {
        let session = &mut self.session;
        block_on(async {
            let prepared = session.prepare(text, &[]).unwrap();
            let values: Vec<Option<&[u8]>> = parameters.iter().map(|value| Some(value.as_bytes())).collect();
            let mut portal = session.bind(&prepared, &values, &[], &[]).unwrap();
            let mut lines = Lines::default();
            let fetched = session.fetch(&mut portal, &mut lines, 0).await.unwrap();
            let Fetch::Complete(tag) = fetched else { panic!("{fetched:?}") };
            session.sync().await.unwrap();
            (lines.0, tag.to_string())
        })
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

const TABLE: &str = "CREATE TABLE t (id int PRIMARY KEY, n int)";
const PUT: &str = "CREATE PROCEDURE put(id int, n int) LANGUAGE sql AS $$
    DELETE FROM t WHERE t.id = put.id; INSERT INTO t VALUES (id, n); $$";
const PUT_TWO: &str = "CREATE PROCEDURE put_two(id int, OUT total bigint) LANGUAGE sql AS $$
    CALL put(id, 1); CALL put(id + 1, 2); SELECT sum(n) FROM t $$";

#[test]
fn parameters_take_the_types_of_arguments() {
    let mut world = World::new(&[TABLE, PUT, PUT_TWO]);
    let prepared = world.session.prepare("CALL put($1, $2)", &[]).unwrap();
    assert_eq!(prepared.parameter_types(), [TypeId::Int4.into(), TypeId::Int4.into()]);
    assert_eq!(prepared.columns(), None);
    assert_eq!(world.run("CALL put($1, n => $2)", &["5", "7"]), (vec![], "CALL".to_owned()));
    let prepared = world.session.prepare("CALL put_two($1, $2)", &[]).unwrap();
    assert_eq!(prepared.parameter_types(), [TypeId::Int4.into(), TypeId::Int8.into()]);
    let names: Vec<&str> = prepared.columns().unwrap().iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["total"]);
    assert_eq!(world.run("CALL put_two($1, $2)", &["1", "0"]), (vec!["10".to_owned()], "CALL".to_owned()));
    assert_eq!(world.run("SELECT count(*) FROM t", &[]).0, ["3"]);
}

#[test]
fn a_kept_call_follows_the_catalog() {
    let mut world = World::new(&[TABLE, PUT]);
    let kept = world.session.prepare("CALL put($1, $2)", &[]).unwrap();
    let call = |world: &mut World| {
        let session = &mut world.session;
        block_on(async {
            let mut portal = session.bind(&kept, &[Some(b"1"), Some(b"2")], &[], &[]).unwrap();
            session.fetch(&mut portal, &mut Lines::default(), 0).await.unwrap();
            session.sync().await.unwrap();
        });
    };
    call(&mut world);
    world.run(
        "CREATE OR REPLACE PROCEDURE put(id int, n int) LANGUAGE sql AS 'UPDATE t SET n = 100 + put.n'",
        &[],
    );
    call(&mut world);
    assert_eq!(world.run("SELECT * FROM t", &[]).0, ["1|102"]);
    world.run("ALTER TABLE t ADD COLUMN more int DEFAULT 3", &[]);
    call(&mut world);
    assert_eq!(world.run("SELECT * FROM t", &[]).0, ["1|102|3"]);
}

#[test]
fn rows_of_a_function_that_changes_rows_come_in_portions() {
    let mut world = World::new(&[
        TABLE,
        "CREATE FUNCTION fill(number int) RETURNS SETOF t LANGUAGE sql AS $$
            INSERT INTO t SELECT n, n FROM generate_series(1, number) n; SELECT * FROM t ORDER BY id $$",
    ]);
    let session = &mut world.session;
    let mut lines = Lines::default();
    block_on(async {
        let prepared = session.prepare("SELECT * FROM fill($1)", &[]).unwrap();
        let mut portal = session.bind(&prepared, &[Some(b"3")], &[], &[]).unwrap();
        assert_eq!(session.fetch(&mut portal, &mut lines, 2).await.unwrap(), Fetch::Suspended);
        assert_eq!(lines.0, ["1|1", "2|2"]);
        let last = session.fetch(&mut portal, &mut lines, 0).await.unwrap();
        assert!(matches!(last, Fetch::Complete(_)));
        session.sync().await.unwrap();
    });
    assert_eq!(lines.0, ["1|1", "2|2", "3|3"]);
}
