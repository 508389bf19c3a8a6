//! Rows that came back as they were written and make no sense: a table's, the catalog's, a
//! counter's. They are damage, named with file and offset.

#![allow(clippy::unwrap_used)]

use std::ops::Bound;

use cognate_engine::{Access, Database, Isolation, Options, Owner, Transaction};
use cognate_env::sim::SimDisk;
use cognate_sql::session::{Session, SessionParameters, SqlDatabase, verify_catalogs};

use crate::nodes::Cluster;
use crate::script::simple_query;

struct World {
    disk: SimDisk,
    engine: Database,
    sql: SqlDatabase,
}

impl World {
    fn new() -> World {
        let disk = SimDisk::new(1);
        let (engine, sql) = World::open(&disk).unwrap();
        World { disk, engine, sql }
    }

    fn open(disk: &SimDisk) -> Result<(Database, SqlDatabase), cognate_sql::SqlError> {
        let engine = Database::open(Options { disk: disk.handle(), ..Options::new("data") }).unwrap();
        Ok((engine.clone(), SqlDatabase::open(engine)?))
    }

    fn run(&self, text: &str) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let mut session = Session::new(self.sql.clone(), SessionParameters::default()).unwrap();
        runtime.block_on(simple_query(&mut session, text)).join("\n")
    }

    /// Changes the row at a place of a tree, whoever the tree belongs to.
    fn spoil(&self, tree: u32, at: usize, change: impl Fn(&[u8]) -> Vec<u8>) {
        let mut t = self.begin();
        let (key, row) = rows(&t, tree)[at].clone();
        t.put(tree, &key, change(&row).into()).unwrap();
        self.engine.wait_durable(t.commit().unwrap().csn).wait().unwrap();
    }

    fn begin(&self) -> Transaction {
        self.engine.begin(Isolation::Snapshot, Access::ReadWrite)
    }

    /// The trees of tables and indexes that have rows.
    fn user_trees(&self) -> Vec<u32> {
        let t = self.begin();
        (1000..1100).filter(|tree| !rows(&t, *tree).is_empty()).collect()
    }
}

fn rows(t: &Transaction, tree: u32) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut scan = t.scan(tree, Bound::Unbounded, Bound::Unbounded, false).unwrap();
    let mut all = Vec::new();
    while let Some((key, row)) = scan.next().unwrap() {
        all.push((key.to_vec(), row.to_vec()));
    }
    all
}

#[test]
fn a_row_that_cannot_be_read_is_named() {
    for is_checkpointed in [false, true] {
        for query in [
            "SELECT * FROM t",
            "SELECT n FROM t WHERE id = 2",
            "UPDATE t SET n = n + 1",
            "COPY t TO STDOUT",
            "SELECT sum(n) FROM t",
        ] {
            let world = World::new();
            world.run("CREATE TABLE t (id int PRIMARY KEY, n int, name text)");
            world.run("INSERT INTO t VALUES (1, 10, 'one'), (2, 20, 'two'), (3, 30, 'three')");
            let tree = world.user_trees()[0];
            world.spoil(tree, 1, |row| row[..5].to_vec());
            if is_checkpointed {
                world.engine.checkpoint().unwrap();
            }
            let answer = world.run(query);
            assert!(answer.contains("ERROR XX001: malformed row"), "{query}: {answer}");
            let file = if is_checkpointed { ".run, at byte " } else { ".log, at byte " };
            assert!(answer.contains(file), "{query}: {answer}");
            assert!(world.run("SELECT n FROM t WHERE id = 3").contains("30"), "the rest can be read");
        }
    }
}

/// The statement's own table is sound: the damaged row is one that refers to what it deletes.
#[test]
fn a_row_that_a_reference_leads_to_is_named() {
    let world = World::new();
    world.run("CREATE TABLE parent (id int PRIMARY KEY)");
    world
        .run("CREATE TABLE child (id int PRIMARY KEY, p int REFERENCES parent ON DELETE CASCADE, name text)");
    world.run("INSERT INTO parent VALUES (1), (2)");
    world.run("INSERT INTO child VALUES (10, 1, 'one'), (20, 2, 'two')");
    let child = world.user_trees()[1];
    world.spoil(child, 0, |row| row[..5].to_vec());
    let answer = world.run("DELETE FROM parent WHERE id = 1");
    assert!(answer.contains("ERROR XX001: malformed row"), "{answer}");
    assert!(answer.contains(".log, at byte "), "{answer}");
}

/// Whatever is cut off or flipped: an answer or damage, never another error.
#[test]
fn no_damaged_row_passes_for_a_mistake_of_the_client() {
    let world = World::new();
    world.run(
        "CREATE TABLE t (id int PRIMARY KEY, n numeric, name text, a int[], b bool, j jsonb, z interval)",
    );
    world.run("INSERT INTO t VALUES (1, 12345.678, 'one', '{1,2,3}', true, '{\"a\": [1, 2]}', '3 days')");
    let tree = world.user_trees()[0];
    let (_, sound) = rows(&world.begin(), tree)[0].clone();
    let cut = (0..sound.len()).map(|end| sound[..end].to_vec());
    let flipped = (0..sound.len()).flat_map(|at| {
        [1, 16, 128].map(|mask| {
            let mut row = sound.clone();
            row[at] ^= mask;
            row
        })
    });
    for row in cut.chain(flipped).collect::<Vec<_>>() {
        world.spoil(tree, 0, |_| row.clone());
        let answer = world.run("SELECT id, n, name, a, b, z FROM t");
        assert!(!answer.contains("ERROR") || answer.contains("ERROR XX001"), "{row:?}: {answer}");
    }
}

/// As a restored database is read, before it may be opened.
#[test]
fn what_is_read_back_and_makes_no_sense_is_named() {
    let world = World::new();
    world.run("CREATE TABLE t (id int PRIMARY KEY, n int, name text)");
    world.run("CREATE INDEX t_n ON t (n)");
    world.run("INSERT INTO t VALUES (1, 10, 'one'), (2, 20, 'two')");
    let read = world.sql.read_back().unwrap();
    assert_eq!((read.rows, read.entries), (2, 2));
    let trees = world.user_trees();
    // First an entry of the index, then, before it is looked at, a row of the table.
    for (tree, sqlstate) in [(trees[1], "XX002"), (trees[0], "XX001")] {
        world.spoil(tree, 1, |stored| stored[..stored.len().min(5) - 1].to_vec());
        let error = world.sql.read_back().unwrap_err();
        assert_eq!((error.sqlstate, error.table.as_deref()), (sqlstate, Some("t")), "{error:?}");
        assert!(error.detail.as_ref().is_some_and(|detail| detail.contains(".log, at byte ")), "{error:?}");
    }
}

#[test]
fn a_catalog_that_cannot_be_read_is_named() {
    let world = World::new();
    world.run("CREATE TABLE t (id int PRIMARY KEY)");
    world.spoil(1, 0, |document| document[..document.len() - 1].to_vec());
    let World { disk, engine, sql } = world;
    drop((engine, sql));
    let error = World::open(&disk).err().expect("damage");
    assert_eq!(error.sqlstate, "XX001");
    assert!(error.detail.as_ref().is_some_and(|detail| detail.contains(", at byte ")), "{error:?}");
}

/// Also by who only looks whether all is sound.
#[test]
fn an_object_whose_document_lacks_a_field_is_named() {
    let world = World::new();
    world.run("CREATE TABLE t (id int PRIMARY KEY)");
    let documents = rows(&world.begin(), 1);
    let at = documents.iter().position(|(_, document)| document.starts_with(b"r")).unwrap();
    let lacks = |document: &[u8]| {
        let text = String::from_utf8(document.to_vec()).unwrap();
        text.replace("\"columns\"", "\"pillars\"").into_bytes()
    };
    assert_ne!(lacks(&documents[at].1), documents[at].1);
    verify_catalogs(&world.engine).unwrap();
    world.spoil(1, at, lacks);
    let World { disk, engine, sql } = world;
    let checked = verify_catalogs(&engine).unwrap_err();
    drop((engine, sql));
    let opened = World::open(&disk).err().expect("damage");
    for error in [checked, opened] {
        assert_eq!(error.sqlstate, "XX001");
        assert!(error.message.starts_with("table \"t\" with OID "), "{error:?}");
        assert!(error.message.contains("missing field `columns`"), "{error:?}");
        assert!(error.detail.as_ref().is_some_and(|detail| detail.contains(", at byte ")), "{error:?}");
    }
}

/// A node of a cluster does not go on with the catalog before, but shows nobody what it has.
#[tokio::test]
async fn a_catalog_that_is_delivered_and_cannot_be_read_closes_its_node() {
    let cluster = Cluster::start();
    let (engine, sql) = cluster.nodes[0].clone();
    let mut session = Session::new(sql.clone(), SessionParameters::default()).unwrap();
    simple_query(&mut session, "CREATE TABLE t (id int PRIMARY KEY)").await;
    assert_eq!(sql.nodes().difference(), None);
    let mut t = engine.begin(Isolation::Snapshot, Access::ReadWrite);
    let (key, document) = rows(&t, 1)[0].clone();
    t.put(1, &key, document[..document.len() - 1].to_vec().into()).unwrap();
    let commit = t.commit_in_order().await.unwrap();
    engine.wait_applied(commit.csn).await.unwrap();
    for text in ["SELECT * FROM t", "INSERT INTO t VALUES (1)", "SELECT * FROM t"] {
        let answer = simple_query(&mut session, text).await;
        assert!(answer[0].starts_with("ERROR 25006"), "{text}: {answer:?}");
        assert!(answer[1].contains("cannot be read") && answer[1].contains("XX001"), "{text}: {answer:?}");
    }
    assert!(sql.nodes().difference().is_some_and(|why| why.contains("XX001")));
}

/// The other nodes have what was in it. Nothing is hidden: what can be read of the rest is right.
#[tokio::test]
async fn a_damaged_file_of_a_node_is_told_and_the_node_to_be_rebuilt() {
    let mut cluster = Cluster::start();
    let mut session = Session::new(cluster.nodes[0].1.clone(), SessionParameters::default()).unwrap();
    simple_query(&mut session, "CREATE TABLE t (id int PRIMARY KEY, v text)").await;
    let filled = "INSERT INTO t SELECT n, md5(n::text) FROM generate_series(1, 5000) AS s (n)";
    let answer = simple_query(&mut session, filled).await.join("\n");
    assert!(answer.contains("5000") && !answer.contains("ERROR"), "{answer}");
    cluster.settle().await;
    drop(session);
    cluster.nodes[0].0.checkpoint().unwrap();
    // Nothing of it is in memory then.
    cluster.restart(None);
    let sql = cluster.nodes[0].1.clone();
    let is_run = |path: &std::path::Path| path.extension().is_some_and(|extension| extension == "run");
    let runs = cluster.disk(0).files().into_iter().filter(|(path, _)| is_run(path));
    let (run, content) = runs.max_by_key(|(_, content)| content.len()).unwrap();
    cluster.disk(0).flip(&run, content.len() as u64 / 2, 1);
    assert_eq!(sql.nodes().damage(), None);
    let mut session = Session::new(sql.clone(), SessionParameters::default()).unwrap();
    let answer = simple_query(&mut session, "SELECT sum(length(v)) FROM t").await.join("\n");
    assert!(answer.contains("ERROR XX001") && answer.contains("cognate node rebuild 1"), "{answer}");
    let damage = sql.nodes().damage().unwrap_or_default();
    assert!(damage.contains(".run: at byte ") && damage.contains("rebuild this node"), "{damage}");
    assert_eq!(sql.nodes().difference(), None);
    let mut other = Session::new(cluster.nodes[1].1.clone(), SessionParameters::default()).unwrap();
    let answer = simple_query(&mut other, "SELECT sum(length(v)) FROM t").await.join("\n");
    assert!(answer.contains("160000"), "{answer}");
    assert_eq!(cluster.nodes[1].1.nodes().damage(), None);
}

/// So is one that a prepared transaction has written, by who is to commit that.
#[test]
fn a_definition_that_is_prepared_and_cannot_be_read_is_named() {
    for is_checkpointed in [false, true] {
        let world = World::new();
        world.run("CREATE TABLE t (id int PRIMARY KEY)");
        world.run("BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'sound'");
        let note = world.engine.prepared_note(&Owner::Global("sound".into())).unwrap();
        let mut t = world.begin();
        let (key, document) = rows(&t, 1)[0].clone();
        t.put(1, &key, document[..document.len() - 1].to_vec().into()).unwrap();
        world.engine.wait_durable(t.prepare("spoilt", note).unwrap().csn).wait().unwrap();
        if is_checkpointed {
            world.engine.checkpoint().unwrap();
        }
        let answer = world.run("COMMIT PREPARED 'spoilt'");
        assert!(answer.contains("ERROR XX001") && answer.contains(", at byte "), "{answer}");
        assert_eq!(world.run("COMMIT PREPARED 'sound'"), "COMMIT PREPARED");
    }
}

/// The document is one, and lies where no object's is.
#[test]
fn a_key_of_the_catalog_that_makes_no_sense_is_named() {
    let world = World::new();
    world.run("CREATE TABLE t (id int PRIMARY KEY)");
    let mut t = world.begin();
    let (_, document) = rows(&t, 1)[0].clone();
    t.put(1, b"odd", document.into()).unwrap();
    world.engine.wait_durable(t.commit().unwrap().csn).wait().unwrap();
    let World { disk, engine, sql } = world;
    drop((engine, sql));
    let error = World::open(&disk).err().expect("damage");
    assert_eq!(error.sqlstate, "XX001");
    assert!(error.detail.as_ref().is_some_and(|detail| detail.contains(", at byte ")), "{error:?}");
}

#[test]
fn a_sequence_that_cannot_be_read_is_named() {
    let world = World::new();
    world.run("CREATE SEQUENCE s; SELECT nextval('s')");
    let last = rows(&world.begin(), 2).len() - 1;
    world.spoil(2, last, |row| row[..4].to_vec());
    let World { disk, engine, sql } = world;
    drop((engine, sql));
    let (engine, sql) = World::open(&disk).expect("opened");
    let answer = World { disk, engine, sql }.run("SELECT nextval('s')");
    assert!(answer.contains("ERROR XX001") && answer.contains(", at byte "), "{answer}");
}
