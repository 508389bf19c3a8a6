//! Protocols at a cluster, as sessions see them: three databases in one process that follow one
//! order.

#![allow(clippy::unwrap_used)]

use std::task::{Context, Waker};

use cognate_sql::SqlError;
use cognate_sql::session::{
    CommandTag, Company, Fetch, Format, OutputColumn, RowSink, Session, SessionParameters, SinkState,
    TransactionStatus,
};
use cognate_sql::types::{Datum, FormatContext};

use crate::nodes::{Cluster, NODES};
use crate::script::simple_query;

/// A cluster with a session at each node.
struct World {
    runtime: tokio::runtime::Runtime,
    cluster: Cluster,
    sessions: Vec<Session>,
}

impl World {
    fn new() -> World {
        World::over(Cluster::start())
    }

    fn over(cluster: Cluster) -> World {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let sessions = cluster
            .nodes
            .iter()
            .map(|(_, sql)| {
                let parameters = SessionParameters {
                    user: "test".into(),
                    database: "test".into(),
                    ..SessionParameters::default()
                };
                Session::new(sql.clone(), parameters).unwrap()
            })
            .collect();
        World { runtime, cluster, sessions }
    }

    /// A message at a node, once that has what the others have; its answer in one line.
    fn run(&mut self, node: usize, text: &str) -> String {
        self.runtime.block_on(self.cluster.settle());
        self.runtime.block_on(simple_query(&mut self.sessions[node - 1], text)).join(" / ")
    }

    /// All nodes have come to the same.
    fn end(mut self) {
        self.runtime.block_on(self.cluster.settle());
        self.sessions.clear();
        self.cluster.assert_equal();
    }
}

#[test]
fn a_message_is_executed_at_every_node() {
    let mut world = World::new();
    world.run(
        1,
        "CREATE TABLE c (id int PRIMARY KEY, n int, at timestamptz); INSERT INTO c VALUES (1, 0, NULL)",
    );
    for node in 1..=NODES {
        assert_eq!(world.run(node, "SET cognate.replication = active"), "SET");
        let answer = world.run(
            node,
            "UPDATE c SET n = n + 1, at = now() WHERE id = 1; INSERT INTO c SELECT 10 + n, n, clock_timestamp() \
             FROM c WHERE id = 1; SELECT n, at = (SELECT at FROM c WHERE id = 1) FROM c WHERE id > 1 ORDER BY id",
        );
        let rows: Vec<String> =
            (1..=node).map(|n| format!("{n}|{}", if n == node { "t" } else { "f" })).collect();
        assert_eq!(
            answer,
            format!("UPDATE 1 / INSERT 0 1 / n|?column? / {} / SELECT {node}", rows.join(" / "))
        );
        assert_eq!(world.run(node, "SHOW cognate.last_protocol"), "cognate.last_protocol / active / SHOW");
    }
    world.end();
}

#[test]
fn a_statement_of_its_own_is_executed_at_every_node() {
    let mut world = World::new();
    world.run(1, "CREATE TABLE t (id serial PRIMARY KEY, r float8, u uuid, who text DEFAULT current_user)");
    world.run(1, "CREATE TABLE plain (a int)");
    for node in 1..=NODES {
        world.run(node, "SET cognate.replication = active");
        let answer =
            world.run(node, "INSERT INTO t (r, u) VALUES (random(), gen_random_uuid()) RETURNING id, who");
        assert!(answer.ends_with("|test / INSERT 0 1"), "{answer}");
        assert_eq!(world.run(node, "INSERT INTO plain VALUES (1), (2)"), "INSERT 0 2");
        assert_eq!(world.run(node, "SELECT lastval() = max(id) FROM t"), "?column? / t / SELECT 1");
    }
    // A sequence goes on behind what was taken, whoever took it.
    world.run(1, "SET cognate.replication = certification");
    world.run(1, "INSERT INTO t (r) VALUES (0)");
    assert_eq!(world.run(2, "SELECT count(*), count(DISTINCT id) FROM t"), "count|count / 4|4 / SELECT 1");
    world.end();
}

/// What EXECUTE names is the whole transaction, and goes to the others in its own words.
#[test]
fn what_is_prepared_by_sql_is_executed_at_every_node() {
    let mut world = World::new();
    world.run(1, "CREATE TABLE c (id int PRIMARY KEY, n int); INSERT INTO c VALUES (1, 0)");
    for (text, answer) in [
        ("PREPARE p (int) AS UPDATE c SET n = n + $1 WHERE id = 1 RETURNING n", "PREPARE"),
        ("PREPARE \"as\" /* as */ AS UPDATE c SET n = n + 5 WHERE id = 1", "PREPARE"),
        ("PREPARE r AS SELECT n FROM c", "PREPARE"),
        ("PREPARE f (int) AS UPDATE c SET n = $1 / 0 WHERE id = 1", "PREPARE"),
        ("SET cognate.replication = active", "SET"),
        ("EXECUTE p (2)", "n / 2 / UPDATE 1"),
        ("SHOW cognate.last_protocol", "cognate.last_protocol / active / SHOW"),
        ("EXECUTE \"as\"", "UPDATE 1"),
        ("EXECUTE r", "n / 7 / SELECT 1"),
    ] {
        assert_eq!(world.run(2, text), answer, "{text}");
    }
    assert!(world.run(2, "EXECUTE f (1)").contains("22012"));
    assert!(world.run(2, "EXECUTE nobody").contains("26000"));
    // Within a block nobody knows what follows.
    let refused = world.run(2, "BEGIN; EXECUTE p (1)");
    assert!(refused.contains("0A000: BEGIN cannot"), "{refused}");
    // What ends a block otherwise is named itself, and so is what declares a cursor.
    for (text, what) in [
        ("BEGIN; EXECUTE p (1); ROLLBACK", "ROLLBACK"),
        ("BEGIN; EXECUTE p (1); COMMIT AND CHAIN", "COMMIT AND CHAIN"),
        ("BEGIN; EXECUTE p (1); ROLLBACK AND CHAIN", "ROLLBACK AND CHAIN"),
        ("BEGIN; EXECUTE p (1); PREPARE TRANSACTION 'x'", "PREPARE TRANSACTION"),
        ("BEGIN; DECLARE cu CURSOR FOR SELECT n FROM c FOR UPDATE; EXECUTE p (1); COMMIT", "DECLARE CURSOR"),
    ] {
        let refused = world.run(2, text);
        assert!(refused.contains(&format!("0A000: {what} cannot be executed")), "{text}: {refused}");
        world.run(2, "ROLLBACK");
    }
    assert_eq!(world.run(2, "BEGIN"), "BEGIN");
    let refused = world.run(2, "EXECUTE p (1)");
    assert!(refused.contains("0A000") && refused.contains("not known as a whole"), "{refused}");
    world.run(2, "ROLLBACK");
    assert_eq!(world.run(2, "EXECUTE p (1)"), "n / 8 / UPDATE 1");
    assert_eq!(world.run(3, "SELECT n FROM c"), "n / 8 / SELECT 1");
    world.end();
}

/// A message is known as a whole, whatever its statements are called.
#[test]
fn a_message_may_name_what_is_prepared() {
    let mut world = World::new();
    world.run(1, "CREATE TABLE c (id int PRIMARY KEY, n int, at timestamptz)");
    world.run(1, "INSERT INTO c VALUES (1, 0, NULL)");
    world.run(2, "PREPARE p (int) AS UPDATE c SET n = n + $1 WHERE id = 1 RETURNING n");
    world.run(2, "PREPARE five AS UPDATE c SET n = n + 5 WHERE id = 1");
    world.run(2, "PREPARE r AS SELECT n FROM c");
    world.run(2, "PREPARE f (int) AS UPDATE c SET n = $1 / 0 WHERE id = 1");
    world.run(2, "PREPARE moment (timestamptz) AS UPDATE c SET at = $1 WHERE id = 1 RETURNING at = now()");
    world.run(2, "PREPARE own AS UPDATE c SET n = pg_backend_pid()");
    world.run(2, "SET cognate.replication = active");
    for (text, answer) in [
        ("BEGIN; EXECUTE p (2); COMMIT", "BEGIN / n / 2 / UPDATE 1 / COMMIT"),
        ("EXECUTE p (1 + 1); EXECUTE five", "n / 4 / UPDATE 1 / UPDATE 1"),
        (
            "BEGIN; EXECUTE r; EXECUTE p (1); EXECUTE r; COMMIT",
            "BEGIN / n / 9 / SELECT 1 / n / 10 / UPDATE 1 / n / 10 / SELECT 1 / COMMIT",
        ),
        ("UPDATE c SET n = 0; EXECUTE five; SELECT n FROM c", "UPDATE 1 / UPDATE 1 / n / 5 / SELECT 1"),
        ("EXECUTE moment (now())", "?column? / t / UPDATE 1"),
        ("EXECUTE moment (now()); EXECUTE r", "?column? / t / UPDATE 1 / n / 5 / SELECT 1"),
        ("SHOW cognate.last_protocol", "cognate.last_protocol / active / SHOW"),
        ("BEGIN; EXECUTE r; COMMIT", "BEGIN / n / 5 / SELECT 1 / COMMIT"),
        ("SET cognate.replication = auto", "SET"),
        (
            "BEGIN; SET LOCAL cognate.replication = active; EXECUTE five; COMMIT",
            "BEGIN / SET / UPDATE 1 / COMMIT",
        ),
        ("SHOW cognate.last_protocol", "cognate.last_protocol / active / SHOW"),
        ("SET cognate.replication = active", "SET"),
    ] {
        assert_eq!(world.run(2, text), answer, "{text}");
    }
    for (text, refusal) in [
        ("BEGIN; EXECUTE p (1); EXECUTE f (1); COMMIT", "22012"),
        ("BEGIN; EXECUTE p (1); EXECUTE nobody; COMMIT", "26000"),
        ("BEGIN; EXECUTE p (1); EXECUTE p; COMMIT", "wrong number of parameters"),
        ("BEGIN; EXECUTE p (1); EXECUTE own; COMMIT", "function pg_backend_pid()"),
    ] {
        let answer = world.run(2, text);
        assert!(answer.contains(refusal), "{text}: {answer}");
        world.run(2, "ROLLBACK");
    }
    assert_eq!(world.run(3, "SELECT n FROM c"), "n / 10 / SELECT 1");
    world.end();
}

/// Its number is that of its request: what counts from it comes to the same everywhere, and not to
/// what it would be outside a transaction.
#[test]
fn a_program_has_one_number_at_every_node() {
    let mut world = World::new();
    world.run(1, "CREATE TABLE t (id int PRIMARY KEY, n int)");
    world.run(2, "SET cognate.replication = active");
    for id in 1..=2 {
        let text = format!("INSERT INTO t VALUES ({id}, age('3'::xid))");
        assert_eq!(world.run(2, &text), "INSERT 0 1");
        assert_eq!(world.run(2, "SHOW cognate.last_protocol"), "cognate.last_protocol / active / SHOW");
    }
    let numbers = world.run(3, "SELECT count(DISTINCT n), bool_or(n = -3) FROM t");
    assert_eq!(numbers, "count|bool_or / 2|f / SELECT 1");
    world.end();
}

/// BEGIN and SET TRANSACTION may say at which level, as long as that is all that they say.
#[test]
fn a_message_is_executed_at_the_level_that_it_names() {
    let mut world = World::new();
    world.run(1, "CREATE TABLE t (id int PRIMARY KEY, level text)");
    world.run(2, "SET cognate.replication = active");
    for (id, begin, shown) in [
        (1, "BEGIN ISOLATION LEVEL SERIALIZABLE", "BEGIN"),
        (2, "START TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ WRITE", "START TRANSACTION"),
        (3, "BEGIN READ WRITE", "BEGIN"),
        (4, "BEGIN; SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "BEGIN / SET"),
        (
            5,
            "BEGIN; SET LOCAL cognate.replication = active; SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            "BEGIN / SET / SET",
        ),
    ] {
        let answer = world.run(2, &format!("{begin}; INSERT INTO t VALUES ({id}, 'a'); COMMIT"));
        assert_eq!(answer, format!("{shown} / INSERT 0 1 / COMMIT"));
        assert_eq!(world.run(2, "SHOW cognate.last_protocol"), "cognate.last_protocol / active / SHOW");
    }
    for text in [
        "BEGIN; INSERT INTO t VALUES (6, 'a'); SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; COMMIT",
        "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; INSERT INTO t VALUES (6, 'a')",
    ] {
        let refused = world.run(2, text);
        assert!(refused.contains("0A000"), "{text}: {refused}");
        world.run(2, "ROLLBACK");
    }
    // Who must not write is told that, and not that every node would have to be alike.
    let local = "SET LOCAL cognate.replication = active";
    for begin in [
        "BEGIN READ ONLY".to_owned(),
        "BEGIN; SET TRANSACTION READ ONLY".to_owned(),
        format!("BEGIN READ ONLY; {local}"),
    ] {
        let refused = world.run(2, &format!("{begin}; INSERT INTO t VALUES (6, 'a'); COMMIT"));
        assert!(refused.contains("ERROR 25006: cannot execute INSERT"), "{begin}: {refused}");
        world.run(2, "ROLLBACK");
    }
    assert_eq!(world.run(3, "SELECT count(*) FROM t"), "count / 5 / SELECT 1");
    world.end();
}

/// Whoever has become a role is still who he was.
#[test]
fn a_program_knows_who_has_become_the_role_that_it_acts_as() {
    let mut world = World::new();
    world.run(1, "CREATE TABLE t (a int PRIMARY KEY, s text, c text); CREATE ROLE ann");
    world.run(1, "GRANT SELECT, INSERT ON t TO ann");
    assert_eq!(world.run(2, "SET ROLE ann; SET cognate.replication = active"), "SET / SET");
    assert_eq!(world.run(2, "INSERT INTO t VALUES (1, session_user, current_user)"), "INSERT 0 1");
    assert_eq!(world.run(2, "SHOW cognate.last_protocol"), "cognate.last_protocol / active / SHOW");
    assert_eq!(world.run(3, "SELECT s, c FROM t"), "s|c / test|ann / SELECT 1");
    world.end();
}

#[test]
fn what_fails_at_one_node_fails_at_all_and_changes_nothing() {
    let mut world = World::new();
    world.run(1, "CREATE TABLE t (id int PRIMARY KEY, n int CHECK (n < 3), p int REFERENCES t)");
    world.run(1, "INSERT INTO t VALUES (1, 1, NULL)");
    world.run(2, "SET cognate.replication = active");
    for (text, state) in [
        ("UPDATE t SET n = n + 1; INSERT INTO t VALUES (1, 0, NULL)", "23505"),
        ("UPDATE t SET n = n + 2", "23514"),
        ("INSERT INTO t VALUES (2, 0, 9)", "23503"),
        ("UPDATE t SET n = 1 / 0", "22012"),
        ("UPDATE t SET n = 2; SELECT * FROM nowhere", "42P01"),
    ] {
        let answer = world.run(2, text);
        assert!(answer.contains(state), "{text}: {answer}");
    }
    assert_eq!(world.run(3, "SELECT * FROM t"), "id|n|p / 1|1|NULL / SELECT 1");
    world.end();
}

#[test]
fn what_is_not_the_same_everywhere_is_refused_by_name() {
    let mut world = World::new();
    world.run(1, "CREATE TABLE t (id int PRIMARY KEY, n int); CREATE TABLE p (n int); CREATE SEQUENCE s");
    let made = world.run(1, "CREATE VIEW v AS SELECT pg_backend_pid() AS n FROM p");
    assert_eq!(made, "CREATE VIEW");
    world.run(1, "SET cognate.replication = active");
    for (text, names) in [
        ("INSERT INTO t VALUES (1, pg_backend_pid())", "function pg_backend_pid()"),
        ("INSERT INTO t VALUES (1, txid_current())", "function txid_current()"),
        ("UPDATE t SET n = random()", "random() outside INSERT ... VALUES"),
        ("UPDATE t SET n = nextval('s')", "nextval() outside INSERT ... VALUES"),
        ("INSERT INTO t SELECT oid::int, 1 FROM pg_class", "system view \"pg_class\""),
        ("INSERT INTO t SELECT 1, n FROM v", "function pg_backend_pid()"),
        ("INSERT INTO p SELECT 1", "INSERT ... SELECT into table \"p\", which has no primary key"),
        ("DELETE FROM t WHERE id IN (SELECT id FROM t LIMIT 1)", "LIMIT without ORDER BY"),
        ("CREATE TABLE z (a int); INSERT INTO z VALUES (1)", "CREATE TABLE"),
        ("INSERT INTO t VALUES (1, 1); TRUNCATE t", "TRUNCATE TABLE"),
        ("INSERT INTO t VALUES (1, 1); COMMIT", "COMMIT"),
        ("BEGIN; DECLARE c CURSOR FOR SELECT id FROM t; UPDATE t SET n = 1; COMMIT", "DECLARE CURSOR"),
        ("INSERT INTO t VALUES (1, 1); FETCH c", "FETCH"),
        ("UPDATE t SET n = 1 WHERE CURRENT OF c", "WHERE CURRENT OF"),
        ("DELETE FROM t WHERE CURRENT OF c", "WHERE CURRENT OF"),
        ("INSERT INTO t VALUES (1, 1); SAVEPOINT a", "SAVEPOINT"),
        ("INSERT INTO t VALUES (1, 1); PREPARE TRANSACTION 'x'", "PREPARE TRANSACTION"),
        ("INSERT INTO t VALUES (1, 1); LISTEN x", "LISTEN"),
        ("INSERT INTO t VALUES (1, 1); COPY t FROM STDIN", "COPY"),
        ("INSERT INTO t VALUES (1, 1); SET search_path = x", "SET"),
        ("INSERT INTO t VALUES (1, setval('s', 9))", "function setval()"),
        ("UPDATE t SET n = (SELECT count(*) FROM cognate_nodes)", "system view \"cognate_nodes\""),
        ("WITH d AS (DELETE FROM t RETURNING id) INSERT INTO t SELECT id, 1 FROM d", "a statement in parts"),
        ("WITH d AS (DELETE FROM t RETURNING id) SELECT * FROM d", "a statement in parts"),
        ("UPDATE t SET n = 1 WHERE id = (SELECT id FROM t WHERE id = 1 FOR UPDATE)", "a statement in parts"),
        ("MERGE INTO t USING p ON t.id = p.n WHEN MATCHED THEN DELETE", "MERGE"),
        ("WITH s AS (SELECT 1 AS x) INSERT INTO t SELECT x, x FROM s", "WITH before INSERT"),
    ] {
        let answer = world.run(1, text);
        assert!(answer.contains("0A000") && answer.contains(names), "{text}: {answer}");
        if text.starts_with("BEGIN") {
            assert_eq!(world.run(1, "ROLLBACK"), "ROLLBACK");
        }
    }
    // A block is not known as a whole.
    assert_eq!(world.run(1, "BEGIN"), "BEGIN");
    let answer = world.run(1, "INSERT INTO t VALUES (1, 1)");
    assert!(answer.contains("0A000") && answer.contains("not known as a whole"), "{answer}");
    assert_eq!(world.run(1, "ROLLBACK"), "ROLLBACK");
    // One that comes as a whole is.
    assert_eq!(
        world.run(1, "BEGIN; INSERT INTO t VALUES (7, 7); DELETE FROM t WHERE id = 7; COMMIT"),
        "BEGIN / INSERT 0 1 / DELETE 1 / COMMIT"
    );
    assert_eq!(world.run(1, "SHOW cognate.last_protocol"), "cognate.last_protocol / active / SHOW");
    // What only reads, or is about the session, runs here.
    assert_eq!(world.run(1, "SELECT count(*) FROM pg_class WHERE relname = 't'"), "count / 1 / SELECT 1");
    assert_eq!(
        world.run(1, "BEGIN; SELECT count(*) FROM t; COMMIT"),
        "BEGIN / count / 0 / SELECT 1 / COMMIT"
    );
    assert!(world.run(1, "SET LOCAL cognate.replication = nonsense").contains("22023"));
    world.end();
}

#[test]
fn temporary_objects_stay_at_their_node() {
    let mut world = World::new();
    world.run(1, "CREATE TABLE t (id int PRIMARY KEY)");
    for node in 1..=NODES {
        let made = world.run(node, "CREATE TEMP TABLE own (id int PRIMARY KEY); CREATE TEMP SEQUENCE s");
        assert_eq!(made, "CREATE TABLE / CREATE SEQUENCE");
        assert_eq!(world.run(node, "CREATE TEMP VIEW v AS SELECT 1 AS id"), "CREATE VIEW");
        let made = world.run(
            node,
            "CREATE FUNCTION pg_temp.twice(n int) RETURNS int LANGUAGE sql AS 'SELECT n * 2'; \
             CREATE PROCEDURE pg_temp.fill() LANGUAGE sql AS 'INSERT INTO t VALUES (4)'",
        );
        assert_eq!(made, "CREATE FUNCTION / CREATE PROCEDURE");
        assert_eq!(world.run(node, &format!("INSERT INTO own VALUES ({node})")), "INSERT 0 1");
    }
    let count = "SELECT count(*) FROM pg_class WHERE relname = 'own'";
    assert_eq!(world.run(2, count), "count / 3 / SELECT 1");
    world.run(1, "SET cognate.replication = active");
    for (text, names) in [
        ("INSERT INTO own VALUES (9)", "temporary table \"own\""),
        ("UPDATE own SET id = 9", "temporary table \"own\""),
        ("INSERT INTO t SELECT id FROM own", "temporary table \"own\""),
        ("DELETE FROM t WHERE id IN (SELECT id FROM pg_temp.own)", "temporary table \"own\""),
        ("INSERT INTO t SELECT id FROM v", "temporary view \"v\""),
        ("INSERT INTO t VALUES (nextval('s'))", "nextval() in a session that has temporary sequences"),
        ("INSERT INTO t VALUES (pg_temp.twice(4))", "temporary function \"twice\""),
        ("INSERT INTO t SELECT id FROM pg_temp.twice(4) id", "temporary function \"twice\""),
        ("CALL pg_temp.fill()", "temporary procedure \"fill\""),
        ("CREATE TEMP TABLE z (a int); INSERT INTO t VALUES (1)", "CREATE TABLE"),
    ] {
        let answer = world.run(1, text);
        let refusal = format!("ERROR 0A000: {names} cannot be executed at every node alike");
        assert!(answer.starts_with(&refusal), "{text}: {answer}");
    }
    assert_eq!(world.run(1, "INSERT INTO t VALUES (5)"), "INSERT 0 1");
    world.run(1, "SET cognate.replication = auto");
    assert_eq!(world.run(1, "INSERT INTO own SELECT id FROM t"), "INSERT 0 1");
    assert_eq!(world.run(1, "TABLE own"), "id / 1 / 5 / SELECT 2");
    // What was refused before goes to every node, but for this.
    for text in ["INSERT INTO t VALUES (pg_temp.twice(4))", "DELETE FROM t WHERE id = pg_temp.twice(4)"] {
        world.sessions[0].abandon();
        world.sessions[0].set_company(Company::None);
        let answer = world.run(1, text);
        assert!(answer == "INSERT 0 1" || answer == "DELETE 1", "{text}: {answer}");
    }
    world.sessions[0].set_company(Company::Unknown);
    assert_eq!(world.run(3, "TABLE own"), "id / 3 / SELECT 1");
    // What an ended session leaves is swept at its node.
    world.sessions.truncate(1);
    assert_eq!(world.run(1, count), "count / 3 / SELECT 1");
    for (_, sql) in &world.cluster.nodes[1..] {
        assert!(sql.has_left_behind());
        world.runtime.block_on(sql.sweep_temporary()).unwrap();
    }
    assert_eq!(world.run(1, count), "count / 1 / SELECT 1");
    world.end();
}

#[test]
fn a_procedure_is_executed_at_every_node() {
    let mut world = World::new();
    world.run(1, "CREATE TABLE account (id int PRIMARY KEY, balance int CHECK (balance >= 0)); INSERT INTO account VALUES (1, 10), (2, 0)");
    world.run(1, "CREATE TABLE note (id serial PRIMARY KEY, who int, at timestamptz)");
    world.run(
        1,
        "CREATE PROCEDURE noted(who int) LANGUAGE sql AS $$ INSERT INTO note (who, at) VALUES (who, now()) $$",
    );
    let made = world.run(
        2,
        "CREATE PROCEDURE move(source int, target int, amount int) LANGUAGE sql AS $$ \
         UPDATE account SET balance = balance - amount WHERE id = source; \
         UPDATE account SET balance = balance + amount WHERE id = target; CALL noted(target) $$",
    );
    assert_eq!(made, "CREATE PROCEDURE");
    for node in 1..=NODES {
        world.run(node, "SET cognate.replication = active");
        assert_eq!(world.run(node, "CALL move(1, 2, 3)"), "CALL");
        assert_eq!(world.run(node, "SHOW cognate.last_protocol"), "cognate.last_protocol / active / SHOW");
    }
    let refused = world.run(2, "CALL move(1, 2, 3)");
    assert!(refused.contains("23514"), "{refused}");
    assert_eq!(world.run(3, "SELECT balance FROM account ORDER BY id"), "balance / 1 / 9 / SELECT 2");
    assert_eq!(world.run(3, "SELECT count(DISTINCT id), count(*) FROM note"), "count|count / 3|3 / SELECT 1");
    for (body, names) in [
        ("UPDATE account SET balance = pg_backend_pid()", "function pg_backend_pid()"),
        ("UPDATE account SET balance = balance + reads(1)", "function reads(), which reads"),
        ("INSERT INTO account SELECT oid::int, 1 FROM pg_class", "system view"),
    ] {
        world.run(1, "SET cognate.replication = certification");
        world.run(1, "CREATE OR REPLACE FUNCTION reads(a int) RETURNS int LANGUAGE sql STABLE AS 'SELECT max(balance) FROM account'");
        assert_eq!(
            world.run(1, &format!("CREATE OR REPLACE PROCEDURE unfit() LANGUAGE sql AS $$ {body} $$")),
            "CREATE PROCEDURE"
        );
        world.run(1, "SET cognate.replication = active");
        let answer = world.run(1, "CALL unfit()");
        assert!(answer.contains("0A000") && answer.contains(names), "{body}: {answer}");
    }
    world.run(1, "SET cognate.replication = certification");
    for (body, command) in [
        ("CREATE TABLE made (a int)", "CREATE TABLE"),
        ("TRUNCATE account", "TRUNCATE TABLE"),
        ("DROP TABLE account", "DROP TABLE"),
    ] {
        let answer = world.run(1, &format!("CREATE PROCEDURE changes() LANGUAGE sql AS $$ {body} $$"));
        assert!(answer.contains("0A000") && answer.contains(command), "{body}: {answer}");
    }
    world.run(1, "CREATE PROCEDURE endless() LANGUAGE sql AS 'SELECT 1'");
    world.run(1, "CREATE OR REPLACE PROCEDURE endless() LANGUAGE sql AS 'CALL endless()'");
    world.run(1, "SET cognate.replication = active");
    let answer = world.run(1, "CALL endless()");
    assert!(answer.contains("54001"), "{answer}");
    world.end();
}

/// An internal error is of the statement, and not of a node: it is refused everywhere, and all go
/// on.
#[test]
fn an_internal_error_is_an_answer() {
    let mut world = World::new();
    world.run(1, "CREATE TABLE account (id int PRIMARY KEY, balance int)");
    world.run(1, "INSERT INTO account VALUES (1, 10)");
    let made = world.run(
        1,
        "CREATE PROCEDURE take(which int, OUT rest int) LANGUAGE sql AS \
         $$ UPDATE account SET balance = balance - 1 WHERE id = which RETURNING balance $$",
    );
    assert_eq!(made, "CREATE PROCEDURE");
    for node in 1..=NODES {
        world.run(node, "SET cognate.replication = active");
        assert_eq!(world.run(node, "CALL take(1, NULL)"), format!("rest / {} / CALL", 10 - node));
        let refused = world.run(node, "CALL take(2, NULL)");
        assert_eq!(refused, "ERROR XX000: procedure returned null record");
        let refused = world.run(node, "UPDATE account SET balance = 0; CALL take(2, NULL)");
        assert_eq!(refused, "ERROR XX000: procedure returned null record");
        assert_eq!(world.run(node, "SHOW cognate.last_protocol"), "cognate.last_protocol / active / SHOW");
    }
    assert_eq!(world.run(2, "SELECT balance FROM account"), "balance / 7 / SELECT 1");
    // This one is PostgreSQL's answer, too, and no defect that an operator is to hear of.
    let known: Vec<_> = world.cluster.nodes.iter().map(|(_, sql)| sql.nodes().defects()).collect();
    assert!(known.iter().all(Vec::is_empty), "{known:?}");
    world.end();
}

/// Active is asked for by its name, and is not to be certification without a word.
#[test]
fn a_block_that_has_run_at_its_node_is_not_made_active_at_its_end() {
    let mut world = World::new();
    world.run(1, "CREATE TABLE t (id int PRIMARY KEY, n int)");
    for asks in [
        "SET LOCAL cognate.replication = active",
        "SET cognate.replication = active",
        "SELECT set_config('cognate.replication', 'active', true)",
    ] {
        world.run(2, "BEGIN");
        world.run(2, "SET LOCAL cognate.replication = weak_voting");
        assert_eq!(world.run(2, "INSERT INTO t VALUES (1, 1)"), "INSERT 0 1");
        world.run(2, asks);
        let refused = world.run(2, "COMMIT");
        let refusal = "ERROR 0A000: COMMIT in a transaction that is not known as a whole when it begins";
        assert!(refused.starts_with(refusal), "{asks}: {refused}");
        assert_eq!(world.run(2, "SELECT count(*) FROM t"), "count / 0 / SELECT 1");
        let left = world.run(2, "SHOW cognate.replication");
        assert_eq!(left, "cognate.replication / auto / SHOW", "{asks}");
    }
    // Nor is what is prepared, or what was changed before a savepoint that is gone back to.
    let insert = "INSERT INTO t VALUES (1, 1)";
    let active = "SET LOCAL cognate.replication = active";
    for (begin, end, refused) in [
        ("BEGIN", "PREPARE TRANSACTION 'p'", "PREPARE TRANSACTION"),
        ("BEGIN MIP <'f', 1>", "PREPARE MIP <'f', 1> 'asked' 'done'", "PREPARE MIP"),
        ("BEGIN", "COMMIT", "COMMIT"),
    ] {
        for text in [begin, insert, "SAVEPOINT s", "UPDATE t SET n = 2", "ROLLBACK TO s", active] {
            let answer = world.run(2, text);
            assert!(!answer.contains("ERROR"), "{text}: {answer}");
        }
        let answer = world.run(2, end);
        let refusal = format!("ERROR 0A000: {refused} in a transaction that is not known as a whole");
        assert!(answer.starts_with(&refusal), "{end}: {answer}");
        assert_eq!(world.run(2, "SELECT count(*) FROM t"), "count / 0 / SELECT 1", "{end}");
    }
    // What defines something commits in such a block, also behind what was undone.
    for text in ["BEGIN", "SAVEPOINT s", insert, "ROLLBACK TO s", active, "CREATE TABLE u (a int)"] {
        let answer = world.run(2, text);
        assert!(!answer.contains("ERROR"), "{text}: {answer}");
    }
    assert_eq!(world.run(2, "COMMIT"), "COMMIT");
    world.run(2, "DROP TABLE u");
    for asks in ["SET LOCAL cognate.replication = active", "SET LOCAL cognate.replication = certification"] {
        world.run(2, "BEGIN");
        world.run(2, asks);
        assert_eq!(world.run(2, "CREATE TABLE u (a int)"), "CREATE TABLE");
        world.run(2, "SET LOCAL cognate.replication = active");
        assert_eq!(world.run(2, "COMMIT"), "COMMIT", "{asks}");
        world.run(2, "DROP TABLE u");
    }
    world.end();
}

#[test]
fn a_voter_commits_and_says_so() {
    let mut world = World::new();
    world.run(1, "CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 1), (2, 2)");
    for node in 1..=NODES {
        world.run(node, "SET cognate.replication = weak_voting");
        assert_eq!(
            world.run(node, "UPDATE t SET n = n + (SELECT n FROM t WHERE id = 2) WHERE id = 1"),
            "UPDATE 1"
        );
        assert_eq!(
            world.run(node, "SHOW cognate.last_protocol"),
            "cognate.last_protocol / weak_voting / SHOW"
        );
    }
    assert_eq!(world.run(1, "SELECT n FROM t ORDER BY id"), "n / 7 / 2 / SELECT 2");
    // Write skew: each reads what the other one writes.
    world.run(1, "BEGIN; SELECT n FROM t WHERE id = 1");
    world.run(2, "BEGIN; SELECT n FROM t WHERE id = 2");
    world.run(1, "UPDATE t SET n = 0 WHERE id = 2");
    world.run(2, "UPDATE t SET n = 0 WHERE id = 1");
    assert_eq!(world.run(1, "COMMIT"), "COMMIT");
    let answer = world.run(2, "COMMIT");
    assert!(answer.contains("40001"), "{answer}");
    world.end();
}

#[test]
fn one_counter_at_all_nodes_loses_nothing() {
    let mut world = World::new();
    world.run(1, "CREATE TABLE c (id int PRIMARY KEY, n int); INSERT INTO c VALUES (1, 0)");
    for protocol in ["active", "certification", "weak_voting", "auto"] {
        for node in 1..=NODES {
            world.run(node, &format!("SET cognate.replication = {protocol}"));
            assert_eq!(world.run(node, "UPDATE c SET n = n + 1 WHERE id = 1"), "UPDATE 1");
        }
    }
    assert_eq!(world.run(2, "SELECT n FROM c"), "n / 12 / SELECT 1");
    world.end();
}

/// A role's settings are in force where its session is; what other nodes execute for it goes by
/// what the session says, be a role's limits what they may.
#[test]
fn a_session_begins_with_the_protocol_of_its_role() {
    let mut world = World::new();
    world.run(1, "CREATE TABLE t (id int PRIMARY KEY)");
    let stored = "ALTER ROLE test SET cognate.replication = active; \
                  ALTER DATABASE test SET statement_timeout = 1; ALTER ROLE ALL SET lock_timeout = 1";
    assert_eq!(world.run(1, stored), "ALTER ROLE / ALTER DATABASE / ALTER ROLE");
    world.runtime.block_on(world.cluster.settle());
    let parameters = SessionParameters {
        user: "test".into(),
        database: "test".into(),
        options: vec![("statement_timeout".into(), "0".into())],
        ..SessionParameters::default()
    };
    world.sessions[1] = Session::new(world.cluster.nodes[1].1.clone(), parameters).unwrap();
    let shown = world.run(2, "SHOW cognate.replication; SHOW lock_timeout; SHOW statement_timeout");
    assert_eq!(
        shown,
        "cognate.replication / active / SHOW / lock_timeout / 1ms / SHOW / statement_timeout / 0 / SHOW"
    );
    let answer = world.run(2, "INSERT INTO t SELECT * FROM generate_series(1, 5000)");
    assert_eq!(answer, "INSERT 0 5000");
    assert_eq!(world.run(2, "SHOW cognate.last_protocol"), "cognate.last_protocol / active / SHOW");
    // It is no statement that every node could execute alike; by itself it runs as ever.
    let answer = world.run(2, "ALTER ROLE test RESET ALL; INSERT INTO t VALUES (0)");
    assert!(answer.contains("0A000") && answer.contains("ALTER ROLE"), "{answer}");
    assert_eq!(world.run(2, "ALTER ROLE test RESET ALL"), "ALTER ROLE");
    assert_eq!(world.run(3, "SELECT count(*) FROM pg_db_role_setting"), "count / 2 / SELECT 1");
    world.end();
}

/// What a role has asked for is ordered behind what gives its name to another one.
#[test]
fn a_program_has_the_rights_of_its_role_whatever_that_is_called_by_then() {
    let mut world = World::new();
    world.run(1, "CREATE TABLE t (a int PRIMARY KEY); CREATE ROLE ann; GRANT SELECT, INSERT ON t TO ann");
    assert_eq!(world.run(2, "SET ROLE ann; SET cognate.replication = active"), "SET / SET");
    assert_eq!(world.run(2, "INSERT INTO t VALUES (1)"), "INSERT 0 1");
    world.runtime.block_on(world.cluster.settle());
    let World { runtime, cluster, sessions } = &mut world;
    let [first, second, ..] = &mut sessions[..] else { panic!("too few nodes") };
    let inside = runtime.enter();
    let held = cluster.hold();
    let mut renamed = Box::pin(simple_query(first, "ALTER ROLE ann RENAME TO eve; CREATE ROLE ann"));
    let mut inserted = Box::pin(simple_query(second, "INSERT INTO t VALUES (2)"));
    let mut context = Context::from_waker(Waker::noop());
    assert!(renamed.as_mut().poll(&mut context).is_pending());
    assert!(inserted.as_mut().poll(&mut context).is_pending());
    drop((held, inside));
    assert_eq!(runtime.block_on(renamed).join(" / "), "ALTER ROLE / CREATE ROLE");
    assert_eq!(runtime.block_on(inserted).join(" / "), "INSERT 0 1");
    assert_eq!(world.run(2, "INSERT INTO t VALUES (3)"), "INSERT 0 1");
    assert_eq!(world.run(3, "SELECT a FROM t ORDER BY a"), "a / 1 / 2 / 3 / SELECT 3");
    world.end();
}

/// Every node keeps the names of requests, whichever way these have come.
#[test]
fn the_name_of_a_request_has_its_limit() {
    let mut world = World::new();
    world.run(1, "CREATE TABLE t (a int PRIMARY KEY)");
    world.run(1, &format!("SET cognate.request_id = '{}'", "x".repeat(257)));
    for protocol in ["certification", "weak_voting", "active"] {
        world.run(1, &format!("SET cognate.replication = {protocol}"));
        let answer = world.run(1, "INSERT INTO t VALUES (1)");
        assert!(answer.contains("22023") && answer.contains("256 bytes"), "{protocol}: {answer}");
    }
    world.end();
}

/// A message that every node executes says first what its request is called: for itself, or for the
/// session.
#[test]
fn a_message_names_its_request() {
    let mut world = World::new();
    world.run(1, "CREATE TABLE t (a int PRIMARY KEY)");
    world.run(1, "CREATE PROCEDURE put(k int) LANGUAGE sql AS 'INSERT INTO t VALUES (k)'");
    let outcome = |world: &mut World, name: &str| world.run(3, &format!("SELECT cognate_outcome('{name}')"));
    let told = |what: &str| format!("cognate_outcome / {what} / SELECT 1");
    let (active, name) = ("SET LOCAL cognate.replication = active", "SET LOCAL cognate.request_id =");
    for (text, shown) in [
        (format!("BEGIN; {active}; {name} 'Order 1'; INSERT INTO t VALUES (1); COMMIT"), "INSERT 0 1"),
        (format!("BEGIN; {name} 'Order 2'; {active}; CALL put(2); COMMIT"), "CALL"),
    ] {
        assert_eq!(world.run(2, &text), format!("BEGIN / SET / SET / {shown} / COMMIT"));
        assert_eq!(world.run(2, "SHOW cognate.last_protocol"), "cognate.last_protocol / active / SHOW");
    }
    for request in ["Order 1", "Order 2"] {
        assert_eq!(outcome(&mut world, request), told("committed"));
    }
    assert_eq!(outcome(&mut world, "Order 3"), told("unknown"));
    assert_eq!(world.run(2, "SHOW cognate.request_id"), "cognate.request_id /  / SHOW");
    // It counts once.
    let again = format!("BEGIN; {active}; {name} 'Order 1'; INSERT INTO t VALUES (3); COMMIT");
    let answer = world.run(2, &again);
    assert!(answer.contains("42710"), "{answer}");
    world.run(2, "ROLLBACK");
    let long = "x".repeat(257);
    let answer = world.run(2, &format!("{active}; {name} '{long}'; INSERT INTO t VALUES (3)"));
    assert!(answer.contains("22023") && answer.contains("256 bytes"), "{answer}");
    // For the session, unless the message fails.
    world.run(2, "SET cognate.replication = active");
    let answer = world.run(2, "SET cognate.request_id = 'Order 4'; INSERT INTO t VALUES (1)");
    assert!(answer.contains("23505"), "{answer}");
    assert_eq!(world.run(2, "SHOW cognate.request_id"), "cognate.request_id /  / SHOW");
    let answer = world.run(2, "SET cognate.request_id = 'Order 4'; INSERT INTO t VALUES (3)");
    assert_eq!(answer, "SET / INSERT 0 1");
    assert_eq!(world.run(2, "SHOW cognate.request_id"), "cognate.request_id / Order 4 / SHOW");
    assert_eq!(outcome(&mut world, "Order 4"), told("committed"));
    assert_eq!(world.run(3, "SELECT a FROM t ORDER BY a"), "a / 1 / 2 / 3 / SELECT 3");
    world.end();
}

#[test]
fn what_is_hidden_in_a_body_is_found() {
    let mut world = World::new();
    world.run(
        1,
        "CREATE TABLE c (id int PRIMARY KEY, n int); INSERT INTO c VALUES (1, 0), (2, 0); CREATE SEQUENCE s",
    );
    for body in [
        "FUNCTION process() RETURNS int LANGUAGE sql AS 'SELECT pg_backend_pid()'",
        "FUNCTION through() RETURNS int LANGUAGE sql AS 'SELECT process() + 1'",
        "FUNCTION drawn() RETURNS bigint LANGUAGE sql AS $$ SELECT nextval('s') $$",
        "FUNCTION any_row() RETURNS int LANGUAGE sql STABLE AS 'SELECT id FROM c'",
        "FUNCTION pair(x int) RETURNS SETOF int LANGUAGE sql AS 'VALUES (x), (x + 1)'",
        "FUNCTION c(x int) RETURNS SETOF int LANGUAGE sql AS 'SELECT * FROM pair(process())'",
        "FUNCTION of_default(x int DEFAULT pg_backend_pid()) RETURNS int LANGUAGE sql AS 'SELECT x'",
        "FUNCTION take() RETURNS int LANGUAGE sql AS 'UPDATE c SET n = n - 1 WHERE id = 1 RETURNING n'",
        "FUNCTION node() RETURNS int LANGUAGE sql STABLE AS 'SELECT count(*) FROM pg_class; SELECT 1'",
        "PROCEDURE cut() LANGUAGE sql AS 'DELETE FROM c WHERE id IN (SELECT id FROM c LIMIT 1)'",
        "PROCEDURE outer_cut() LANGUAGE sql AS 'CALL cut()'",
        "PROCEDURE by_default(x int DEFAULT pg_backend_pid()) LANGUAGE sql AS 'UPDATE c SET n = x'",
        "PROCEDURE fits(x int) LANGUAGE sql AS 'UPDATE c SET n = p FROM pair(x) p WHERE id = p'",
        "PROCEDURE twice() LANGUAGE sql AS \
         $$ INSERT INTO c VALUES (9, drawn()); UPDATE c SET n = drawn() $$",
    ] {
        let made = world.run(1, &format!("CREATE {body}"));
        assert!(made.starts_with("CREATE"), "{body}: {made}");
    }
    world.run(2, "SET cognate.replication = active");
    for (text, what) in [
        ("UPDATE c SET n = process()", "0A000: function pg_backend_pid() cannot"),
        ("UPDATE c SET n = through() WHERE id = 1", "0A000: function pg_backend_pid() cannot"),
        ("UPDATE c SET n = of_default()", "0A000: function pg_backend_pid() cannot"),
        ("UPDATE c SET n = drawn()", "0A000: nextval() outside INSERT ... VALUES cannot"),
        ("UPDATE c SET n = any_row()", "0A000: function any_row(), which reads"),
        ("UPDATE c SET n = f FROM c(1) f", "0A000: function pg_backend_pid() cannot"),
        ("DELETE FROM c WHERE id IN (SELECT f FROM any_row() f)", "0A000: function any_row(), which reads"),
        ("CALL cut()", "0A000: LIMIT without ORDER BY"),
        ("CALL outer_cut()", "0A000: LIMIT without ORDER BY"),
        ("CALL by_default()", "0A000: function pg_backend_pid() cannot"),
        // Where it was looked at first, it may be.
        ("CALL twice()", "0A000: nextval() outside INSERT ... VALUES cannot"),
        ("SELECT node(); UPDATE c SET n = 1", "0A000: system view \"pg_class\" cannot"),
    ] {
        let answer = world.run(2, text);
        assert!(answer.contains(what), "{text}: {answer}");
    }
    // A function that is the whole statement is executed as a procedure is; one that must not write
    // runs here.
    assert_eq!(world.run(2, "SELECT take()"), "take / -1 / SELECT 1");
    assert_eq!(world.run(2, "SHOW cognate.last_protocol"), "cognate.last_protocol / active / SHOW");
    let answer = world.run(2, "SELECT take(); SELECT take() AS rest");
    assert_eq!(answer, "take / -2 / SELECT 1 / rest / -3 / SELECT 1");
    assert_eq!(world.run(2, "SELECT node()"), "node / 1 / SELECT 1");
    assert_eq!(world.run(2, "CALL fits(1)"), "CALL");
    // A chain that is longer than any call may be.
    world.run(1, "CREATE PROCEDURE p0() LANGUAGE sql AS 'UPDATE c SET n = 5 WHERE id = 9'");
    for number in 1..=300 {
        let before = number - 1;
        world.run(1, &format!("CREATE PROCEDURE p{number}() LANGUAGE sql AS 'CALL p{before}()'"));
    }
    assert_eq!(world.run(2, "CALL p50()"), "CALL");
    let answer = world.run(2, "CALL p300()");
    assert!(answer.contains("54001"), "{answer}");
    assert_eq!(world.run(3, "SELECT n FROM c ORDER BY id"), "n / 1 / 2 / SELECT 2");
    world.end();
}

#[test]
fn every_node_executes_in_the_database_where_it_is_asked() {
    let mut world = World::new();
    world.run(1, "CREATE TABLE t (a int); INSERT INTO t VALUES (7)");
    assert_eq!(world.run(1, "CREATE DATABASE shop"), "CREATE DATABASE");
    world.runtime.block_on(world.cluster.settle());
    for (session, (_, sql)) in world.sessions.iter_mut().zip(&world.cluster.nodes).skip(1) {
        let parameters = SessionParameters {
            user: "test".into(),
            database: "shop".into(),
            ..SessionParameters::default()
        };
        *session = Session::new(sql.clone(), parameters).unwrap();
    }
    // Who had called the initial one by another name finds its own name now.
    assert_eq!(world.run(1, "SELECT current_database()"), "current_database / postgres / SELECT 1");
    assert_eq!(world.run(2, "CREATE TABLE t (a int PRIMARY KEY, b text)"), "CREATE TABLE");
    for protocol in ["active", "weak_voting", "certification"] {
        world.run(3, &format!("SET cognate.replication = {protocol}"));
        let answer = world.run(3, &format!("INSERT INTO t SELECT count(*), '{protocol}' FROM t"));
        assert_eq!(answer, "INSERT 0 1", "{protocol}");
    }
    assert_eq!(world.run(2, "SELECT a, b FROM t ORDER BY a"), world.run(3, "SELECT a, b FROM t ORDER BY a"));
    assert_eq!(world.run(2, "SELECT count(*), max(b) FROM t"), "count|max / 3|weak_voting / SELECT 1");
    assert_eq!(world.run(1, "TABLE t"), "a / 7 / SELECT 1");
    // What makes the sessions of other nodes end is their server's; nothing is there any more.
    assert_eq!(world.run(1, "DROP DATABASE shop"), "DROP DATABASE");
    for node in 2..=3 {
        let answer = world.run(node, "TABLE t");
        assert!(answer.starts_with("ERROR 42P01"), "{answer}");
        let answer = world.run(node, "CREATE TABLE t (a int)");
        assert!(answer.starts_with("ERROR 3D000"), "{answer}");
    }
    assert_eq!(world.run(1, "TABLE t"), "a / 7 / SELECT 1");
    world.end();
}

#[test]
fn who_must_not_write_has_nobody_write_for_him() {
    let mut world = World::new();
    world.run(1, "CREATE TABLE t (id int PRIMARY KEY)");
    world.run(1, "SET cognate.replication = active");
    world.run(1, "SET default_transaction_read_only = on");
    for text in ["INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (1); DELETE FROM t WHERE id = 2"] {
        let answer = world.run(1, text);
        assert!(answer.starts_with("ERROR 25006"), "{text}: {answer}");
    }
    assert_eq!(world.run(2, "SELECT count(*) FROM t"), "count / 0 / SELECT 1");
    world.run(1, "SET default_transaction_read_only = off");
    assert_eq!(world.run(1, "INSERT INTO t VALUES (1)"), "INSERT 0 1");
    world.end();
}

#[test]
fn what_a_table_adds_by_itself_is_looked_at() {
    let mut world = World::new();
    world.run(1, "CREATE TABLE t (id int PRIMARY KEY, n int, pid int DEFAULT pg_backend_pid())");
    world.run(1, "CREATE TABLE met (id int PRIMARY KEY CHECK (id <> pg_backend_pid()))");
    assert_eq!(world.run(1, "CREATE VIEW v AS SELECT id, n FROM t"), "CREATE VIEW");
    world.run(1, "SET cognate.replication = active");
    for (text, name) in [
        ("INSERT INTO t VALUES (1, 1)", "pg_backend_pid"),
        ("INSERT INTO t (id) VALUES (1)", "pg_backend_pid"),
        ("INSERT INTO t (id, pid) VALUES (1, DEFAULT)", "pg_backend_pid"),
        ("INSERT INTO t (id, n) SELECT 1, 1", "pg_backend_pid"),
        ("INSERT INTO v VALUES (1, 1)", "pg_backend_pid"),
        ("UPDATE t SET pid = DEFAULT", "pg_backend_pid"),
        ("INSERT INTO met VALUES (1)", "pg_backend_pid"),
        ("UPDATE met SET id = 2", "pg_backend_pid"),
        ("INSERT INTO t (id, pid) SELECT p, p FROM pg_backend_pid() p", "pg_backend_pid"),
        ("INSERT INTO t (id, pid, n) VALUES (1, 1, inet_client_port())", "inet_client_port"),
    ] {
        let answer = world.run(1, text);
        let refusal = format!("ERROR 0A000: function {name}() cannot be executed at every node alike");
        assert!(answer.starts_with(&refusal), "{text}: {answer}");
    }
    // What it says itself is nothing that the table adds.
    assert_eq!(world.run(1, "INSERT INTO t (id, pid) VALUES (1, 1)"), "INSERT 0 1");
    assert_eq!(world.run(1, "INSERT INTO t (id, pid) SELECT 2, 2"), "INSERT 0 1");
    assert_eq!(world.run(1, "UPDATE t SET n = DEFAULT"), "UPDATE 2");
    assert_eq!(world.run(1, "SHOW cognate.last_protocol"), "cognate.last_protocol / active / SHOW");
    world.end();
}

/// The last digit of these is up to the mathematical library that a node has, and to its processor.
#[test]
fn what_nodes_may_round_otherwise_is_not_executed_at_every_node() {
    let mut world = World::new();
    for text in [
        "CREATE TABLE t (id int PRIMARY KEY, x float8, n numeric)",
        "CREATE TABLE g (id int PRIMARY KEY, x float8, y float8 GENERATED ALWAYS AS (exp(x)) STORED)",
        "CREATE TABLE i (id int PRIMARY KEY, x float8)",
        "CREATE INDEX of_i ON i (sin(x))",
        "CREATE TABLE p (id int PRIMARY KEY)",
        "CREATE TABLE c (id int PRIMARY KEY, p int REFERENCES p ON DELETE CASCADE)",
        "CREATE INDEX of_c ON c (id) WHERE atan2(id, p) > 0.5",
        "CREATE TABLE d (id int PRIMARY KEY, x float8 DEFAULT cbrt(5), CHECK (x ^ 2.0 < 100))",
        "CREATE SCHEMA own",
        "CREATE FUNCTION own.log(a int) RETURNS int LANGUAGE sql AS 'SELECT a + 1'",
        "INSERT INTO t VALUES (1, 2, 3)",
        "INSERT INTO g (id, x) VALUES (1, 1)",
        "PREPARE put (float8) AS UPDATE t SET x = $1 WHERE id = 2",
        "SET cognate.replication = active",
    ] {
        let answer = world.run(1, text);
        assert!(!answer.contains("ERROR"), "{text}: {answer}");
    }
    for (text, what) in [
        ("UPDATE t SET x = sin(x)", "function sin()"),
        ("UPDATE t SET x = pg_catalog.exp(x) WHERE id = 1", "function exp()"),
        ("UPDATE t SET n = power(n, 0.5)", "function power()"),
        ("UPDATE t SET x = x ^ 0.5", "operator ^"),
        ("UPDATE t SET x = x OPERATOR(pg_catalog.^) 0.5", "operator ^"),
        ("UPDATE t SET x = ||/ x", "operator ||/"),
        ("DELETE FROM t WHERE ln(x) > 1", "function ln()"),
        ("INSERT INTO t SELECT 2, p FROM power(2, 0.5) p", "function power()"),
        // An error at its end is one at all nodes, or at none.
        ("UPDATE t SET x = 1; SELECT exp(709.78)", "function exp()"),
        ("INSERT INTO g (id, x) VALUES (2, 1)", "function exp()"),
        ("UPDATE g SET x = 2", "function exp()"),
        ("INSERT INTO i VALUES (1, 1)", "function sin()"),
        ("DELETE FROM i", "function sin()"),
        ("DELETE FROM p", "function atan2()"),
        ("INSERT INTO d (id) VALUES (1)", "function cbrt()"),
        ("UPDATE d SET x = 1", "operator ^"),
    ] {
        let answer = world.run(1, text);
        let refusal = format!("ERROR 0A000: {what} cannot be executed at every node alike");
        assert!(answer.contains(&refusal), "{text}: {answer}");
    }
    for (text, answer) in [
        // Every processor rounds these alike, and a function of the user's may have any name.
        ("UPDATE t SET x = sqrt(x) * (|/ x) / 3, id = own.log(id)", "UPDATE 1"),
        // What is computed where it is given goes to the others as a value.
        ("EXECUTE put (exp(1::float8))", "UPDATE 1"),
        // Rows go with what was stored of them.
        ("DELETE FROM g WHERE id = 1", "DELETE 1"),
    ] {
        assert_eq!(world.run(1, text), answer, "{text}");
        let shown = world.run(1, "SHOW cognate.last_protocol");
        assert_eq!(shown, "cognate.last_protocol / active / SHOW", "{text}");
    }
    // Where nobody asks for it, such a statement runs where it was given.
    assert_eq!(world.run(1, "SET cognate.replication = auto"), "SET");
    assert_eq!(world.run(1, "UPDATE t SET x = sin(x)"), "UPDATE 1");
    assert_eq!(world.run(2, "SELECT id FROM t WHERE x < 1"), "id / 2 / SELECT 1");
    world.end();
}

/// Names within a view, or within what a domain asks for, are those of where it was made.
#[test]
fn what_views_and_domains_name_is_looked_at_where_they_were_made() {
    let mut world = World::new();
    for text in [
        "CREATE TABLE t (id int PRIMARY KEY, n int); CREATE SCHEMA s",
        "CREATE FUNCTION s.own() RETURNS int LANGUAGE sql AS 'SELECT pg_backend_pid()'",
        "CREATE FUNCTION public.own() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "SET search_path = s, public",
        "CREATE VIEW s.v AS SELECT own() AS n",
        "SET search_path = public",
        "CREATE VIEW w AS SELECT own() AS n",
        "CREATE DOMAIN few AS int CHECK (VALUE < 10)",
        "CREATE DOMAIN odd AS int CHECK (VALUE <> pg_backend_pid())",
        "CREATE FUNCTION taken(x odd) RETURNS int LANGUAGE sql AS 'SELECT x::int'",
        "SET cognate.replication = active",
    ] {
        let answer = world.run(1, text);
        assert!(!answer.contains("ERROR"), "{text}: {answer}");
    }
    for text in [
        "INSERT INTO t SELECT 1, n FROM s.v",
        "INSERT INTO t VALUES (1, 7::odd)",
        "INSERT INTO t VALUES (1, CAST('7' AS public.odd))",
        "INSERT INTO t VALUES (1, array_length('{1,2}'::odd[], 1))",
        "INSERT INTO t VALUES (1, taken(7))",
    ] {
        let answer = world.run(1, text);
        let refusal = "ERROR 0A000: function pg_backend_pid() cannot be executed at every node alike";
        assert!(answer.starts_with(refusal), "{text}: {answer}");
    }
    // Nor need the statement say of which domain a parameter is.
    for (domain, is_fit) in [("odd", false), ("few", true)] {
        let prepared = world.run(1, &format!("PREPARE {domain} ({domain}) AS INSERT INTO t VALUES (3, $1)"));
        assert_eq!(prepared, "PREPARE");
        let answer = world.run(1, &format!("EXECUTE {domain} (7)"));
        let is_refused = answer.starts_with("ERROR 0A000: function pg_backend_pid() cannot");
        assert_eq!((is_refused, answer == "INSERT 0 1"), (!is_fit, is_fit), "{domain}: {answer}");
    }
    assert_eq!(world.run(1, "DELETE FROM t WHERE id = 3"), "DELETE 1");
    assert_eq!(world.run(1, "INSERT INTO t SELECT 1, n FROM w"), "INSERT 0 1");
    assert_eq!(world.run(1, "INSERT INTO t VALUES (2, 7::few)"), "INSERT 0 1");
    assert_eq!(world.run(1, "SHOW cognate.last_protocol"), "cognate.last_protocol / active / SHOW");
    assert_eq!(world.run(2, "SELECT n FROM t ORDER BY id"), "n / 1 / 7 / SELECT 2");
    // What is locked elsewhere is locked there only.
    let answer = world.run(1, "SELECT id FROM t FOR UPDATE SKIP LOCKED; UPDATE t SET n = 0");
    assert!(answer.contains("0A000: SKIP LOCKED cannot"), "{answer}");
    world.end();
}

/// Rows that refer to others change with them, by what their own table says.
#[test]
fn what_rows_get_that_refer_to_others_is_looked_at() {
    let mut world = World::new();
    for text in [
        "CREATE TABLE p (id int PRIMARY KEY, code int UNIQUE, n int)",
        "CREATE TABLE c (id int PRIMARY KEY, p int REFERENCES p ON DELETE CASCADE)",
        "CREATE TABLE d (id int PRIMARY KEY, \
         c int DEFAULT pg_backend_pid() REFERENCES c ON DELETE SET DEFAULT)",
        "CREATE TABLE e (id int PRIMARY KEY, \
         code int DEFAULT pg_backend_pid() REFERENCES p (code) ON UPDATE SET DEFAULT)",
        "CREATE VIEW v AS SELECT id AS a, code AS b FROM p",
        "INSERT INTO p VALUES (1, 1, 1), (2, 2, 2)",
        "INSERT INTO e VALUES (1, 1)",
        "SET cognate.replication = active",
    ] {
        let answer = world.run(1, text);
        assert!(!answer.contains("ERROR"), "{text}: {answer}");
    }
    for text in [
        "DELETE FROM c",
        "DELETE FROM p WHERE id = 2",
        "UPDATE p SET code = 3",
        "UPDATE p SET (n, code) = (3, 3)",
        "UPDATE v SET b = 3",
        "INSERT INTO p VALUES (1, 1, 1) ON CONFLICT (id) DO UPDATE SET code = 3",
    ] {
        let answer = world.run(1, text);
        let refusal = "ERROR 0A000: function pg_backend_pid() cannot be executed at every node alike";
        assert!(answer.starts_with(refusal), "{text}: {answer}");
    }
    // Nobody refers to these.
    assert_eq!(world.run(1, "UPDATE p SET n = 3"), "UPDATE 2");
    assert_eq!(world.run(1, "DELETE FROM d; DELETE FROM e"), "DELETE 0 / DELETE 1");
    assert_eq!(world.run(1, "SHOW cognate.last_protocol"), "cognate.last_protocol / active / SHOW");
    world.end();
}

/// A message knows itself as a whole, also if it says by which protocol it goes.
#[test]
fn a_message_may_say_first_by_which_protocol_it_goes() {
    let mut world = World::new();
    world.run(1, "CREATE TABLE c (id int PRIMARY KEY, n int); INSERT INTO c VALUES (1, 0)");
    let count = "UPDATE c SET n = n + 1 WHERE id = 1";
    let local = "SET LOCAL cognate.replication = active";
    let by = |world: &mut World, protocol: &str| {
        let shown = world.run(1, "SHOW cognate.last_protocol");
        assert_eq!(shown, format!("cognate.last_protocol / {protocol} / SHOW"));
    };
    assert_eq!(
        world.run(1, &format!("{local}; {count}; SELECT n FROM c")),
        "SET / UPDATE 1 / n / 1 / SELECT 1"
    );
    by(&mut world, "active");
    world.run(1, "SET cognate.replication = certification");
    let answer = world.run(1, &format!("BEGIN; {local}; {count}; COMMIT"));
    assert_eq!(answer, "BEGIN / SET / UPDATE 1 / COMMIT");
    by(&mut world, "active");
    let chosen = |world: &mut World| world.run(1, "SHOW cognate.replication");
    assert_eq!(chosen(&mut world), "cognate.replication / certification / SHOW");
    let answer = world.run(1, &format!("{local}; CREATE TABLE z (a int); {count}"));
    assert!(answer.contains("0A000") && answer.contains("CREATE TABLE"), "{answer}");
    assert_eq!(world.run(1, &format!("{local}; CREATE TABLE z (a int)")), "SET / CREATE TABLE");
    // For the session, unless the message fails.
    let answer = world.run(1, "SET cognate.replication = active; UPDATE c SET n = 1 / 0");
    assert!(answer.contains("22012"), "{answer}");
    assert_eq!(chosen(&mut world), "cognate.replication / certification / SHOW");
    assert_eq!(world.run(1, &format!("SET cognate.replication = active; {count}")), "SET / UPDATE 1");
    by(&mut world, "active");
    assert_eq!(chosen(&mut world), "cognate.replication / active / SHOW");
    // What every node cannot execute alike says that it is not to.
    let answer =
        world.run(1, "BEGIN; SET LOCAL cognate.replication = certification; TRUNCATE c; COMMIT; SELECT 1");
    assert!(answer.contains("0A000"), "it is no transaction alone: {answer}");
    let answer = world.run(1, "BEGIN; SET LOCAL cognate.replication = certification; TRUNCATE c; COMMIT");
    assert_eq!(answer, "BEGIN / SET / TRUNCATE TABLE / COMMIT");
    assert_eq!(world.run(3, "SELECT count(*) FROM c"), "count / 0 / SELECT 1");
    world.end();
}

/// All wait for a program, and nobody can stop it: it ends by itself, at the same step everywhere.
#[test]
fn a_program_that_takes_too_many_steps_ends_alike_everywhere() {
    let mut world = World::new();
    world.run(1, "CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 0)");
    world.run(2, "SET cognate.replication = active");
    world.run(2, "SET cognate.active_steps = 1000");
    for text in [
        "UPDATE t SET n = (SELECT count(*) FROM generate_series(1, 100000))",
        "UPDATE t SET n = 1; SELECT count(*) FROM generate_series(1, 300) a, generate_series(1, 300) b",
    ] {
        let answer = world.run(2, text);
        assert!(answer.contains("54000") && answer.contains("takes more steps"), "{text}: {answer}");
    }
    assert_eq!(world.run(2, "UPDATE t SET n = n + 1"), "UPDATE 1");
    let text = "UPDATE t SET n = (SELECT count(*) FROM generate_series(1, 20000))";
    world.run(2, "RESET cognate.active_steps");
    assert_eq!(world.run(2, text), "UPDATE 1");
    world.run(2, "SET cognate.replication = certification; SET cognate.active_steps = 1000");
    assert_eq!(world.run(2, text), "UPDATE 1");
    assert_eq!(world.run(3, "SELECT n FROM t"), "n / 20000 / SELECT 1");
    world.end();
}

/// As where it runs at one node: its client has to end the block that it has begun.
#[test]
fn a_message_that_fails_at_every_node_leaves_a_failed_block() {
    let mut world = World::new();
    world.run(1, "CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 1)");
    for protocol in ["active", "certification"] {
        world.run(2, &format!("SET cognate.replication = {protocol}"));
        for (text, state) in [
            ("BEGIN; UPDATE t SET n = 2; UPDATE t SET n = 1 / 0; COMMIT", "22012"),
            ("BEGIN; UPDATE t SET n = 2; UPDATE nowhere SET n = 2; COMMIT", "42P01"),
        ] {
            let answer = world.run(2, text);
            assert!(answer.contains(state), "{protocol}: {text}: {answer}");
            assert_eq!(world.sessions[1].status(), TransactionStatus::Failed, "{protocol}: {text}");
            let answer = world.run(2, "UPDATE t SET n = 3");
            assert!(answer.contains("25P02"), "{protocol}: {text}: {answer}");
            assert_eq!(world.run(2, "ROLLBACK"), "ROLLBACK");
        }
        let answer = world.run(2, "UPDATE t SET n = 2; UPDATE t SET n = 1 / 0");
        assert!(answer.contains("22012"), "{protocol}: {answer}");
        assert_eq!(world.sessions[1].status(), TransactionStatus::Idle, "{protocol}: it has begun none");
        // What is not even ordered has not come to its COMMIT either.
        let close = |world: &World, why: Option<&str>| {
            world.cluster.nodes[1].1.nodes().close(why.map(str::to_owned));
        };
        close(&world, Some("it is to be"));
        let answer = world.run(2, "BEGIN; UPDATE t SET n = 2; UPDATE t SET n = 3; COMMIT");
        assert!(answer.contains("25006"), "{protocol}: {answer}");
        assert_eq!(world.sessions[1].status(), TransactionStatus::Failed, "{protocol}: it is closed");
        assert_eq!(world.run(2, "ROLLBACK"), "ROLLBACK");
        close(&world, None);
    }
    assert_eq!(world.run(3, "SELECT n FROM t"), "n / 1 / SELECT 1");
    world.end();
}

/// The monitor has it executed at every node, and nobody has asked for that: what it fails for
/// there, and only there, does not concern its client.
#[test]
fn what_comes_to_nothing_at_every_node_runs_here_under_auto() {
    let mut world = World::new();
    world.run(1, "CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 0)");
    let long = "UPDATE t SET n = (SELECT count(*) FROM generate_series(1, 20000))";
    let by = |world: &mut World, node: usize| world.run(node, "SHOW cognate.last_protocol");
    world.run(2, "SET cognate.active_steps = 1000");
    world.run(3, "SET cognate.active_steps = 1000");
    // Too many steps: a message, and a statement. As if others had been faster before.
    {
        let World { runtime, sessions, .. } = &mut world;
        let session = &mut sessions[1];
        session.begin_message();
        session.abandon();
        let statements = session.split(&format!("BEGIN; {long}; COMMIT")).unwrap();
        assert!(session.wants_all_active(&statements));
        assert!(runtime.block_on(session.run_active(&statements)).unwrap().is_none());
        assert_eq!(session.status(), TransactionStatus::Idle);
        session.abandon();
        assert!(!session.wants_all_active(&statements), "it would come to nothing again");
        runtime.block_on(session.sync()).unwrap();
    }
    // Nothing of it has committed.
    assert_eq!(by(&mut world, 2), "cognate.last_protocol /  / SHOW");
    world.sessions[2].abandon();
    world.sessions[2].set_company(Company::None);
    assert_eq!(world.run(3, long), "UPDATE 1");
    assert_eq!(by(&mut world, 3), "cognate.last_protocol / certification / SHOW");
    // Who is prepared is waited for, and not refused for.
    world.run(1, "BEGIN; UPDATE t SET n = n + 1; PREPARE TRANSACTION 'p'");
    world.run(2, "SET lock_timeout = 1");
    world.sessions[1].abandon();
    world.sessions[1].set_company(Company::None);
    let answer = world.run(2, "UPDATE t SET n = n + 1");
    assert!(answer.contains("55P03"), "{answer}");
    assert_eq!(world.run(1, "COMMIT PREPARED 'p'"), "COMMIT PREPARED");
    assert_eq!(world.run(3, "SELECT n FROM t"), "n / 20001 / SELECT 1");
    world.end();
}

/// While every node executes it, nobody's commits are decided.
#[test]
fn what_takes_long_and_was_refused_is_run_again_where_it_was() {
    let mut world = World::new();
    world.run(1, "CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 0)");
    for (node, before, protocol) in
        [(2, "SHOW TimeZone", "active"), (3, "SELECT pg_sleep(1.1)", "certification")]
    {
        world.run(node, before);
        world.sessions[node - 1].abandon();
        world.sessions[node - 1].set_company(Company::None);
        assert_eq!(world.run(node, "UPDATE t SET n = n + 1"), "UPDATE 1");
        let shown = world.run(node, "SHOW cognate.last_protocol");
        assert_eq!(shown, format!("cognate.last_protocol / {protocol} / SHOW"), "{before}");
    }
    assert_eq!(world.run(1, "SELECT n FROM t"), "n / 2 / SELECT 1");
    world.end();
}

/// Each node holds the rows of a program until its end: no more of them than a statement may hold.
#[test]
fn a_program_gives_no_more_rows_than_a_node_may_hold() {
    let mut cluster = Cluster::start();
    cluster.restart(Some(16 << 10));
    let mut world = World::over(cluster);
    world.run(1, "CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 0)");
    world.run(2, "SET cognate.replication = active");
    let rows = |count: usize| format!("SELECT repeat('x', 100000) FROM generate_series(1, {count})");
    for text in
        [format!("UPDATE t SET n = 1; {}", rows(200)), format!("{0}; {0}; UPDATE t SET n = 1", rows(60))]
    {
        let answer = world.run(2, &text);
        assert!(answer.contains("53200"), "{}", &answer[..answer.len().min(200)]);
    }
    assert_eq!(world.run(3, "SELECT n FROM t"), "n / 0 / SELECT 1");
    let answer = world.run(2, &format!("UPDATE t SET n = 1; {}", rows(3)));
    assert!(answer.starts_with("UPDATE 1") && answer.ends_with("SELECT 3"));
    // Nobody holds them where it runs at one node: what only the monitor has wanted runs there.
    let World { runtime, sessions, .. } = &mut world;
    let session = &mut sessions[2];
    session.begin_message();
    session.abandon();
    let statements = session.split(&format!("UPDATE t SET n = 2; {}", rows(200))).unwrap();
    assert!(session.wants_all_active(&statements));
    assert!(runtime.block_on(session.run_active(&statements)).unwrap().is_none());
    runtime.block_on(session.sync()).unwrap();
    world.end();
}

/// What a program may hold goes by where it was asked for, whatever the others have.
#[test]
fn nodes_with_other_memory_come_to_the_same() {
    let mut cluster = Cluster::start();
    cluster.restart_each(|at| Some(if at == 0 { 64 << 10 } else { 16 << 10 }));
    let mut world = World::over(cluster);
    world.run(1, "CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 0)");
    let text = "UPDATE t SET n = n + 1; SELECT repeat('x', 100000) FROM generate_series(1, 120)";
    for node in 1..=2 {
        world.run(node, "SET cognate.replication = active");
        let answer = world.run(node, text);
        let holds = answer.starts_with("UPDATE 1") && answer.ends_with("SELECT 120");
        assert_eq!((holds, answer.contains("53200")), (node == 1, node == 2));
    }
    assert_eq!(world.run(3, "SELECT n FROM t"), "n / 1 / SELECT 1");
    world.end();
}

/// What others take at a node decides nothing: they do not take it at the other ones.
#[test]
fn a_node_without_memory_for_its_own_comes_to_the_same() {
    let mut cluster = Cluster::start();
    cluster.restart_each(|at| Some(if at == 1 { 16 << 10 } else { 64 << 10 }));
    let mut world = World::over(cluster);
    world.run(1, "CREATE TABLE t (id int PRIMARY KEY, s text)");
    world.run(1, "SET cognate.replication = active");
    world.run(2, "BEGIN");
    let many = "SAVEPOINT s; ".repeat(100);
    let refused = (0..1000).map(|_| world.run(2, &many)).find(|answer| answer.contains("ERROR"));
    assert!(refused.is_some_and(|answer| answer.contains("53200")), "others have node 2's memory");
    let long = "x".repeat(50_000);
    assert_eq!(world.run(1, &format!("INSERT INTO t VALUES (1, '{long}')")), "INSERT 0 1");
    assert_eq!(world.run(1, "SHOW cognate.last_protocol"), "cognate.last_protocol / active / SHOW");
    assert_eq!(world.run(3, "SELECT length(s) FROM t"), "length / 50000 / SELECT 1");
    world.end();
}

/// Takes nothing.
struct Nothing;

impl RowSink for Nothing {
    fn row(
        &mut self,
        _: &[OutputColumn],
        _: &[Format],
        _: &[Datum],
        _: &FormatContext,
    ) -> Result<SinkState, SqlError> {
        Ok(SinkState::Ready)
    }

    fn copy_out(&mut self, _: &[u8]) -> SinkState {
        SinkState::Ready
    }
}

/// Is full after each row.
struct Narrow;

impl RowSink for Narrow {
    fn row(
        &mut self,
        _: &[OutputColumn],
        _: &[Format],
        _: &[Datum],
        _: &FormatContext,
    ) -> Result<SinkState, SqlError> {
        Ok(SinkState::Full)
    }

    fn copy_out(&mut self, _: &[u8]) -> SinkState {
        SinkState::Full
    }
}

/// Who cancels it when its rows are on their way is too late: an error would say that nothing was
/// changed. Where the rows come before the commit it is in time.
#[test]
fn what_is_committed_is_not_cancelled_while_its_rows_are_sent() {
    let mut world = World::new();
    world.run(1, "CREATE TABLE t (id int PRIMARY KEY)");
    for (protocol, first, rows) in [("active", 1, 3), ("certification", 11, 0)] {
        world.run(1, &format!("SET cognate.replication = {protocol}"));
        let World { runtime, sessions, .. } = &mut world;
        let session = &mut sessions[0];
        session.begin_message();
        let text = format!("INSERT INTO t SELECT generate_series({first}, {}) RETURNING id", first + 2);
        let prepared = session.prepare(&text, &[]).unwrap();
        let mut portal = session.bind(&prepared, &[], &[], &[]).unwrap();
        let fetched = runtime.block_on(session.fetch(&mut portal, &mut Narrow, 0)).unwrap();
        assert_eq!(fetched, Fetch::SinkFull, "{protocol}");
        session.cancel_handle().cancel();
        let ended = loop {
            match runtime.block_on(session.fetch(&mut portal, &mut Narrow, 0)) {
                Ok(Fetch::SinkFull) => {}
                ended => break ended,
            }
        };
        match rows {
            0 => assert_eq!(ended.unwrap_err().sqlstate, "57014", "{protocol}"),
            _ => assert_eq!(ended.unwrap(), Fetch::Complete(CommandTag::Insert(rows)), "{protocol}"),
        }
        session.begin_message();
        runtime.block_on(session.sync()).unwrap();
        drop(portal);
        let count = format!("SELECT count(*) FROM t WHERE id >= {first}");
        assert_eq!(world.run(2, &count), format!("count / {rows} / SELECT 1"), "{protocol}");
    }
    world.end();
}

/// What a client sends is what is stored, whatever it wants to see of it.
#[test]
fn parameters_go_along_with_their_last_digits() {
    let mut world = World::new();
    world.run(1, "CREATE TABLE f (x float8 PRIMARY KEY, at timestamptz)");
    world.run(1, "SET cognate.replication = active");
    world.run(1, "SET extra_float_digits = 0");
    world.run(1, "SET DateStyle = 'SQL, DMY'");
    world.run(1, "SET TimeZone = 'Asia/Kolkata'");
    let (x, at) = ((0.1_f64 + 0.2).to_be_bytes(), 0_i64.to_be_bytes());
    let World { runtime, sessions, .. } = &mut world;
    let session = &mut sessions[0];
    session.begin_message();
    let prepared = session.prepare("INSERT INTO f VALUES ($1, $2)", &[701, 1184]).unwrap();
    let values = [Some(&x[..]), Some(&at[..])];
    let mut portal = session.bind(&prepared, &values, &[Format::Binary], &[]).unwrap();
    runtime.block_on(session.fetch(&mut portal, &mut Nothing, 0)).unwrap();
    runtime.block_on(session.sync()).unwrap();
    drop(portal);
    assert_eq!(world.run(1, "SHOW cognate.last_protocol"), "cognate.last_protocol / active / SHOW");
    let same = "SELECT x = 0.1::float8 + 0.2::float8, at = '2000-01-01 00:00:00+00' FROM f";
    assert_eq!(world.run(2, same), "?column?|?column? / t|t / SELECT 1");
    world.end();
}
