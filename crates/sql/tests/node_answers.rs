//! What several nodes of a cluster answer is one database's: numbers of sequences that are set at
//! one of them, what became of a request, and nothing of a node that differs from the others.

#![allow(clippy::unwrap_used)]

use std::future::poll_fn;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use cognate_sql::session::{Session, SessionParameters};

use crate::nodes::Cluster;
use crate::script::simple_query;

fn session(cluster: &Cluster, node: usize) -> Session {
    Session::new(cluster.nodes[node].1.clone(), SessionParameters::default()).unwrap()
}

/// The answer of a query, or of SHOW, that gives one row. Every node has seen what was done before.
async fn row(cluster: &Cluster, session: &mut Session, text: &str) -> String {
    cluster.settle().await;
    match &simple_query(session, text).await[..] {
        [_, row, tag] if tag == "SELECT 1" || tag == "SHOW" => row.clone(),
        other => panic!("{text}: {other:?}"),
    }
}

/// Numbers are given in blocks, and each node has its own. Who sets a sequence sets it for all.
#[tokio::test]
async fn a_sequence_that_is_set_at_one_node_goes_on_from_there_at_all() {
    let cluster = Cluster::start();
    let (mut one, mut two) = (session(&cluster, 0), session(&cluster, 1));
    let nextval = "SELECT nextval('s')";
    simple_query(&mut one, "CREATE SEQUENCE s").await;
    assert_eq!(row(&cluster, &mut one, nextval).await, "1");
    assert_eq!(row(&cluster, &mut two, nextval).await, "33");
    assert_eq!(row(&cluster, &mut one, "SELECT setval('s', 1000)").await, "1000");
    assert_eq!(row(&cluster, &mut two, nextval).await, "1001");
    // Blocks of other sequences concern nobody who has one.
    simple_query(&mut one, "CREATE SEQUENCE other").await;
    assert_eq!(row(&cluster, &mut one, "SELECT nextval('other')").await, "1");
    assert_eq!(row(&cluster, &mut two, nextval).await, "1002");
    assert_eq!(row(&cluster, &mut one, nextval).await, "1033");
    // Nor do programs, which take what comes behind all blocks.
    simple_query(&mut one, "CREATE TABLE t (a int PRIMARY KEY)").await;
    simple_query(&mut one, "SET cognate.replication = active").await;
    assert_eq!(simple_query(&mut one, "INSERT INTO t VALUES (nextval('s'))").await, ["INSERT 0 1"]);
    assert_eq!(row(&cluster, &mut two, "SELECT a FROM t").await, "1065");
    assert_eq!(row(&cluster, &mut two, nextval).await, "1003");
    assert_eq!(row(&cluster, &mut two, "SELECT setval('s', 5, false)").await, "5");
    assert_eq!(row(&cluster, &mut one, nextval).await, "5");
    cluster.settle().await;
    cluster.assert_equal();
}

/// Ids of different nodes have no common order, so none of them is below all that are to come.
#[tokio::test]
async fn snapshots_are_not_told_by_ids_at_a_node() {
    let cluster = Cluster::start();
    let mut one = session(&cluster, 0);
    for function in ["pg_current_snapshot", "txid_current_snapshot"] {
        let refused = simple_query(&mut one, &format!("SELECT {function}()")).await;
        let expected = format!("ERROR 0A000: {function}() at a node of a cluster is not supported");
        assert_eq!(refused[0], expected);
    }
    let known = "SELECT pg_snapshot_xmin('5:9:7')";
    assert_eq!(row(&cluster, &mut one, known).await, "5");
}

/// Loads set a sequence again and again, and a node may have had its block all the while.
#[tokio::test]
async fn a_block_is_forgotten_however_often_the_sequence_was_set() {
    let cluster = Cluster::start();
    let (mut one, mut two) = (session(&cluster, 0), session(&cluster, 1));
    simple_query(&mut one, "CREATE SEQUENCE s").await;
    assert_eq!(row(&cluster, &mut two, "SELECT nextval('s')").await, "1");
    for (times, next) in [(128, 1128), (256, 1256)] {
        let text = format!("SELECT setval('s', 1000 + n) FROM generate_series(1, {times}) n");
        assert_eq!(simple_query(&mut one, &text).await.len(), times + 2);
        assert_eq!(row(&cluster, &mut two, "SELECT nextval('s')").await, (next + 1).to_string());
    }
}

/// Where a node's own numbers have come to the end, the sequence may have been set elsewhere.
#[tokio::test]
async fn a_sequence_at_its_end_goes_on_once_it_is_set_elsewhere() {
    let cluster = Cluster::start();
    let (mut one, mut two) = (session(&cluster, 0), session(&cluster, 1));
    simple_query(&mut one, "CREATE SEQUENCE s MAXVALUE 2").await;
    for number in ["1", "2"] {
        assert_eq!(row(&cluster, &mut two, "SELECT nextval('s')").await, number);
    }
    let refused = simple_query(&mut two, "SELECT nextval('s')").await;
    assert!(refused[0].starts_with("ERROR 2200H"), "{refused:?}");
    assert_eq!(row(&cluster, &mut one, "SELECT setval('s', 1, false)").await, "1");
    assert_eq!(row(&cluster, &mut two, "SELECT nextval('s')").await, "1");
}

/// A dump tells by the last value where its sequences go on: a node must not show one from before
/// what others have given out, whenever it has looked first.
#[tokio::test]
async fn the_last_value_of_a_sequence_covers_what_any_node_has_given() {
    let cluster = Cluster::start();
    let (mut one, mut two) = (session(&cluster, 0), session(&cluster, 1));
    let (state, nextval) = ("SELECT last_value, is_called FROM s", "SELECT nextval('s')");
    simple_query(&mut one, "CREATE SEQUENCE s START 10").await;
    assert_eq!(row(&cluster, &mut two, state).await, "10|f");
    assert_eq!(row(&cluster, &mut one, nextval).await, "10");
    assert_eq!(row(&cluster, &mut one, state).await, "10|t");
    assert_eq!(row(&cluster, &mut two, state).await, "41|t");
    assert_eq!(row(&cluster, &mut two, nextval).await, "42");
    assert_eq!(row(&cluster, &mut two, state).await, "42|t");
    assert_eq!(row(&cluster, &mut one, state).await, "73|t");
    assert_eq!(row(&cluster, &mut two, "SELECT setval('s', 7, false)").await, "7");
    for session in [&mut one, &mut two] {
        assert_eq!(row(&cluster, session, state).await, "7|f");
    }
}

/// A request that was ordered, and even acknowledged, is not unknown at a node that lags behind;
/// where nobody can say what is ordered, the node tells what it has.
#[tokio::test]
async fn an_outcome_is_that_of_the_order_and_not_of_the_node() {
    let cluster = Cluster::start();
    let (mut one, mut two) = (session(&cluster, 0), session(&cluster, 1));
    simple_query(&mut one, "CREATE TABLE t (a int PRIMARY KEY)").await;
    simple_query(&mut one, "SET cognate.request_id = 'r'").await;
    cluster.settle().await;
    let nodes = cluster.nodes[1].1.nodes();
    // As if a majority had the next request already.
    let next = cluster.nodes[1].0.applied() + 1;
    nodes.ask_by(Box::new(move || Box::pin(async move { Ok(next) })));
    {
        let mut answer = Box::pin(simple_query(&mut two, "SELECT cognate_outcome('r')"));
        let waits = poll_fn(|context| Poll::Ready(answer.as_mut().poll(context).is_pending())).await;
        assert!(waits, "what is ordered has not come");
        simple_query(&mut one, "INSERT INTO t VALUES (1)").await;
        assert_eq!(answer.await, ["cognate_outcome", "committed", "SELECT 1"]);
    }
    nodes.cut_off(true);
    let answer = simple_query(&mut two, "SELECT cognate_outcome('another')").await;
    assert_eq!(answer, ["cognate_outcome", "unknown", "SELECT 1"]);
    nodes.cut_off(false);
    // A node that loses its majority meanwhile does not go on waiting for it. Who only has the name
    // in a text does not wait, and who writes it in capitals does.
    let mut three = session(&cluster, 2);
    let nodes = cluster.nodes[2].1.nodes();
    nodes.ask_by(Box::new(|| Box::pin(std::future::pending::<Result<u64, String>>())));
    let answer = simple_query(&mut three, "SELECT 'cognate_outcome' AS a").await;
    assert_eq!(answer, ["a", "cognate_outcome", "SELECT 1"]);
    {
        let mut answer = Box::pin(simple_query(&mut three, "SELECT COGNATE_OUTCOME('another')"));
        let waits = poll_fn(|context| Poll::Ready(answer.as_mut().poll(context).is_pending())).await;
        assert!(waits, "nobody has said how far the order is");
        nodes.cut_off(true);
        assert_eq!(answer.await, ["cognate_outcome", "unknown", "SELECT 1"]);
    }
    nodes.cut_off(false);
    cluster.settle().await;
    cluster.assert_equal();
}

/// Nothing was ordered under a name: whoever asks with a token has it closed, and everybody is told
/// so from then on.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_was_closed_is_told_as_aborted_and_commits_nothing() {
    let cluster = Cluster::start();
    cluster.nodes.iter().for_each(|(_, sql)| sql.nodes().identify("c1".to_owned()));
    let (mut one, mut two) = (session(&cluster, 0), session(&cluster, 1));
    simple_query(&mut one, "CREATE TABLE t (a int PRIMARY KEY)").await;
    let token = row(&cluster, &mut one, "SELECT cognate_token()").await;
    assert_eq!(token, format!("c1/{}", cluster.nodes[0].0.applied()));
    assert_eq!(row(&cluster, &mut two, "SELECT cognate_outcome('r')").await, "unknown");
    let closing = |name: &str| format!("SELECT cognate_outcome('{name}', '{token}')");
    assert_eq!(row(&cluster, &mut two, &closing("r")).await, "aborted");
    simple_query(&mut one, "SET cognate.request_id = 'r'").await;
    for protocol in ["certification", "weak_voting", "active"] {
        simple_query(&mut one, &format!("SET cognate.replication = {protocol}")).await;
        let refused = simple_query(&mut one, "INSERT INTO t VALUES (1)").await;
        assert!(refused[0].starts_with("ERROR 55000"), "{protocol}: {refused:?}");
    }
    simple_query(&mut one, "SET cognate.request_id = 's'").await;
    assert_eq!(simple_query(&mut one, "INSERT INTO t VALUES (1)").await, ["INSERT 0 1"]);
    simple_query(&mut one, "SET cognate.request_id = ''").await;
    for session in [&mut one, &mut two] {
        assert_eq!(row(&cluster, session, "SELECT cognate_outcome('r')").await, "aborted");
        assert_eq!(row(&cluster, session, &closing("s")).await, "committed");
        assert_eq!(row(&cluster, session, "SELECT count(*) FROM t").await, "1");
    }
    // Of what is prepared nobody knows, and what was rolled back is closed only if somebody asks.
    simple_query(&mut one, "SET cognate.replication = certification").await;
    simple_query(&mut one, "SET cognate.request_id = 'p'").await;
    simple_query(&mut one, "BEGIN; INSERT INTO t VALUES (2); PREPARE TRANSACTION 'p'").await;
    assert_eq!(row(&cluster, &mut two, &closing("p")).await, "unknown");
    assert_eq!(simple_query(&mut two, "ROLLBACK PREPARED 'p'").await, ["ROLLBACK PREPARED"]);
    assert_eq!(row(&cluster, &mut two, &closing("p")).await, "aborted");
    let refused = simple_query(&mut one, "INSERT INTO t VALUES (2)").await;
    assert!(refused[0].starts_with("ERROR 55000"), "{refused:?}");
    for wrong in ["", "c2/1", "c1/x"] {
        let refused = simple_query(&mut two, &format!("SELECT cognate_outcome('r', '{wrong}')")).await;
        assert!(refused[0].starts_with("ERROR 22023"), "{wrong}: {refused:?}");
    }
    // Nor is a position one that nothing has: what was before it, nobody knows.
    cluster.nodes[1].1.nodes().ask_by(Box::new(|| Box::pin(async { Ok(1) })));
    let refused = simple_query(&mut two, "SELECT cognate_outcome('never', 'c1/1000000')").await;
    assert!(refused[0].starts_with("ERROR 22023") && refused[0].contains("position 1000000"), "{refused:?}");
    assert_eq!(row(&cluster, &mut one, "SELECT cognate_outcome('never')").await, "unknown");
    // Where nobody can close anything, nothing is said for good.
    cluster.nodes[1].1.nodes().cut_off(true);
    assert_eq!(simple_query(&mut two, &closing("q")).await[1], "unknown");
    cluster.nodes[1].1.nodes().cut_off(false);
    cluster.settle().await;
    cluster.assert_equal();
}

/// What a line says behind this and the number of a transaction.
fn behind_number<'l>(line: &'l str, before: &str) -> &'l str {
    let rest = line.strip_prefix(before).unwrap_or_else(|| panic!("{line}"));
    let behind = rest.trim_start_matches(|letter: char| letter.is_ascii_digit());
    assert!(behind.len() < rest.len(), "{line}");
    behind
}

/// Who replaces a view waits for whoever has read it at the same node, and for nobody at others:
/// they do not go on with another definition.
#[tokio::test]
async fn who_reads_a_view_that_another_node_replaces_does_not_commit() {
    let cluster = Cluster::start();
    let (mut one, mut two) = (session(&cluster, 0), session(&cluster, 1));
    simple_query(&mut one, "CREATE TABLE t (k int PRIMARY KEY); INSERT INTO t VALUES (1), (2)").await;
    simple_query(&mut one, "CREATE TABLE told (n int)").await;
    simple_query(&mut one, "CREATE VIEW vw AS SELECT k FROM t").await;
    for (level, shown) in [("REPEATABLE READ", "k > 1"), ("SERIALIZABLE", "k > 0")] {
        cluster.settle().await;
        simple_query(&mut one, &format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM vw")).await;
        let replace = format!("CREATE OR REPLACE VIEW vw AS SELECT k FROM t WHERE {shown}");
        assert_eq!(simple_query(&mut two, &replace).await, ["CREATE VIEW"]);
        cluster.settle().await;
        let mut told = simple_query(&mut one, "INSERT INTO told SELECT count(*) FROM vw").await;
        told.extend(simple_query(&mut one, "COMMIT").await);
        assert!(told.iter().any(|line| line.starts_with("ERROR 40001")), "{level}: {told:?}");
    }
    assert_eq!(row(&cluster, &mut two, "SELECT count(*) FROM told").await, "0");
    cluster.assert_equal();
}

/// Whoever is refused for what another node has done, and had nothing locked there, is told which
/// transaction of which node that was, and where the two met.
#[tokio::test]
async fn who_meets_what_another_node_has_done_is_told_whose_it_is() {
    let cluster = Cluster::start();
    let (mut one, mut two) = (session(&cluster, 0), session(&cluster, 1));
    for session in [&mut one, &mut two] {
        simple_query(session, "SET cognate.replication = certification").await;
    }
    simple_query(&mut one, "CREATE TABLE item (id int PRIMARY KEY, stock int)").await;
    simple_query(&mut one, "CREATE TABLE other (id int PRIMARY KEY); INSERT INTO other VALUES (1)").await;
    simple_query(&mut one, "INSERT INTO item VALUES (1, 10), (2, 10)").await;
    let newer = "ERROR 40001: could not serialize access due to concurrent update";
    let update = "UPDATE item SET stock = stock - 1 WHERE id = 1";
    let place = "key (id)=(1) of table \"item\"";
    let replaced = format!(" of node 2: {place}.");
    // A row is newer than the snapshot.
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        cluster.settle().await;
        simple_query(&mut one, &format!("BEGIN ISOLATION LEVEL {level}")).await;
        simple_query(&mut one, "SELECT stock FROM item WHERE id = 1").await;
        simple_query(&mut two, update).await;
        cluster.settle().await;
        let told = simple_query(&mut one, update).await;
        assert_eq!(told[0], newer, "{level}");
        match level {
            "SERIALIZABLE" => {
                let before = "DETAIL: What was read before has been replaced by transaction ";
                assert_eq!(behind_number(&told[1], before), replaced);
            }
            _ => {
                let faster = format!(" of node 2 was faster: {place}.");
                assert_eq!(behind_number(&told[1], "DETAIL: Transaction "), faster);
            }
        }
        simple_query(&mut one, "ROLLBACK").await;
    }
    // A table is.
    simple_query(&mut one, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT stock FROM item").await;
    simple_query(&mut two, "TRUNCATE other").await;
    cluster.settle().await;
    let told = simple_query(&mut one, "SELECT id FROM other").await;
    assert!(told[0].ends_with("due to a concurrent change of table \"other\""), "{told:?}");
    let faster = " of node 2 was faster: table \"other\".";
    assert_eq!(behind_number(&told[1], "DETAIL: Transaction "), faster);
    simple_query(&mut one, "ROLLBACK").await;
    cluster.settle().await;
    cluster.assert_equal();
}

/// Likewise at its end: by the certifier of all nodes, and by the vote of its own one.
#[tokio::test]
async fn who_is_refused_at_its_end_is_told_whose_transaction_is_in_the_way() {
    let cluster = Cluster::start();
    let (mut one, mut two) = (session(&cluster, 0), session(&cluster, 1));
    simple_query(&mut two, "SET cognate.replication = certification").await;
    simple_query(&mut one, "CREATE TABLE item (id int PRIMARY KEY, stock int)").await;
    simple_query(&mut one, "INSERT INTO item VALUES (1, 10), (2, 10)").await;
    let place = "key (id)=(1) of table \"item\"";
    for protocol in ["certification", "weak_voting"] {
        simple_query(&mut one, &format!("SET cognate.replication = {protocol}")).await;
        cluster.settle().await;
        for (session, read, written) in [(&mut one, 1, 2), (&mut two, 2, 1)] {
            simple_query(session, "BEGIN ISOLATION LEVEL SERIALIZABLE").await;
            simple_query(session, &format!("SELECT stock FROM item WHERE id = {read}")).await;
            simple_query(session, &format!("UPDATE item SET stock = stock + 1 WHERE id = {written}")).await;
        }
        assert_eq!(simple_query(&mut two, "COMMIT").await, ["COMMIT"]);
        cluster.settle().await;
        let told = simple_query(&mut one, "COMMIT").await;
        assert!(told[0].starts_with("ERROR 40001"), "{protocol}: {told:?}");
        match protocol {
            "certification" => {
                let behind = behind_number(&told[1], "DETAIL: Cycle: ");
                let behind = behind_number(behind, " (this transaction) -rw-> ");
                let first = format!(" of node 2: {place}; ");
                let second = behind.strip_prefix(first.as_str()).unwrap_or_else(|| panic!("{told:?}"));
                let second = behind_number(second, "");
                assert!(second.starts_with(" of node 2 -rw-> "), "{told:?}");
            }
            _ => {
                let before = "DETAIL: What was read before has been replaced by transaction ";
                let behind = behind_number(&told[1], before);
                assert_eq!(behind, format!(" of node 2: {place}. Its node has voted against it."));
            }
        }
    }
    cluster.settle().await;
    cluster.assert_equal();
}

/// What was refused leaves the protocol of the last one that committed, and is itself forgotten.
#[tokio::test]
async fn the_last_protocol_is_that_of_what_has_committed() {
    let cluster = Cluster::start();
    let (mut one, mut two) = (session(&cluster, 0), session(&cluster, 1));
    simple_query(&mut two, "SET cognate.replication = certification").await;
    simple_query(&mut one, "CREATE TABLE item (id int PRIMARY KEY, stock int)").await;
    simple_query(&mut one, "INSERT INTO item VALUES (1, 10), (2, 10)").await;
    let (show, update) = ("SHOW cognate.last_protocol", "UPDATE item SET stock = 0 WHERE id = 1");
    simple_query(&mut one, "SET cognate.replication = active").await;
    assert_eq!(simple_query(&mut one, update).await, ["UPDATE 1"]);
    let mut last = "active";
    for protocol in ["certification", "weak_voting"] {
        simple_query(&mut one, &format!("SET cognate.replication = {protocol}")).await;
        assert_eq!(row(&cluster, &mut one, show).await, last);
        for (session, read, written) in [(&mut one, 1, 2), (&mut two, 2, 1)] {
            simple_query(session, "BEGIN ISOLATION LEVEL SERIALIZABLE").await;
            simple_query(session, &format!("SELECT stock FROM item WHERE id = {read}")).await;
            simple_query(session, &format!("UPDATE item SET stock = stock + 1 WHERE id = {written}")).await;
        }
        assert_eq!(simple_query(&mut two, "COMMIT").await, ["COMMIT"]);
        cluster.settle().await;
        let refused = simple_query(&mut one, "COMMIT").await;
        assert!(refused[0].starts_with("ERROR 40001"), "{protocol}: {refused:?}");
        assert_eq!(row(&cluster, &mut one, show).await, last);
        assert_eq!(simple_query(&mut one, update).await, ["UPDATE 1"]);
        assert_eq!(row(&cluster, &mut one, show).await, protocol);
        last = protocol;
    }
}

/// A client may give all requests of its session one name.
#[tokio::test]
async fn a_request_id_is_of_what_writes() {
    let cluster = Cluster::start();
    let (mut one, mut two) = (session(&cluster, 0), session(&cluster, 1));
    simple_query(&mut one, "CREATE TABLE t (a int PRIMARY KEY)").await;
    simple_query(&mut one, "INSERT INTO t VALUES (1), (2)").await;
    let (reads, outcome) = ("BEGIN; SELECT count(*) FROM t; COMMIT", "SELECT cognate_outcome('r')");
    simple_query(&mut one, "SET cognate.request_id = 'r'").await;
    assert_eq!(simple_query(&mut one, reads).await, ["BEGIN", "count", "2", "SELECT 1", "COMMIT"]);
    assert_eq!(row(&cluster, &mut two, outcome).await, "unknown");
    assert_eq!(simple_query(&mut one, "INSERT INTO t VALUES (3)").await, ["INSERT 0 1"]);
    assert_eq!(row(&cluster, &mut two, outcome).await, "committed");
    assert_eq!(simple_query(&mut one, reads).await, ["BEGIN", "count", "3", "SELECT 1", "COMMIT"]);
    cluster.settle().await;
    cluster.assert_equal();
}

/// Asks for something that is done, and whose answer does not come in time: DETAIL and HINT.
#[expect(clippy::await_holding_lock, reason = "who waits for the order does so beside this thread")]
async fn unanswered(cluster: &Cluster, session: &mut Session, text: &str) -> [String; 2] {
    cluster.settle().await;
    let next = cluster.nodes[0].0.applied() + 1;
    let held = cluster.hold();
    // Nothing else is waited for, so the time that it may take passes at once.
    tokio::time::pause();
    let answer = simple_query(session, text).await;
    tokio::time::resume();
    drop(held);
    for (engine, _) in &cluster.nodes {
        engine.wait_applied(next).await.unwrap();
    }
    match &answer[..] {
        [.., error, detail, hint] if error.starts_with("ERROR 08007") => [detail.clone(), hint.clone()],
        other => panic!("{text}: {other:?}"),
    }
}

/// The id that a DETAIL names.
fn request_of(detail: &str) -> &str {
    let id = detail.strip_prefix("DETAIL: The request is \"").and_then(|rest| rest.strip_suffix("\"."));
    id.unwrap_or_else(|| panic!("{detail}"))
}

/// The error has the id, and any node knows what became of it: of a commit, and of a decision,
/// which is that of the prepared transaction if its client has not named it.
#[tokio::test]
async fn who_gets_no_answer_is_told_what_to_ask_for() {
    let cluster = Cluster::start();
    let (mut one, mut two) = (session(&cluster, 0), session(&cluster, 1));
    for session in [&mut one, &mut two] {
        simple_query(session, "SET cognate.replication = certification").await;
    }
    simple_query(&mut one, "CREATE TABLE t (a int PRIMARY KEY)").await;
    let outcome = |id: &str| format!("SELECT cognate_outcome('{id}')");
    let [detail, hint] = unanswered(&cluster, &mut one, "BEGIN; INSERT INTO t VALUES (1); COMMIT").await;
    assert_eq!(row(&cluster, &mut two, &outcome(request_of(&detail))).await, "committed");
    assert!(hint.contains(&outcome(request_of(&detail))), "{hint}");
    // It is the prepared transaction's.
    for (decision, told) in [("COMMIT PREPARED 'p'", "committed"), ("ROLLBACK PREPARED 'p'", "aborted")] {
        simple_query(&mut one, "BEGIN; INSERT INTO t VALUES (2); PREPARE TRANSACTION 'p'").await;
        let [detail, hint] = unanswered(&cluster, &mut one, decision).await;
        assert_eq!(row(&cluster, &mut two, &outcome(request_of(&detail))).await, told);
        assert!(hint.contains("42704"), "{hint}");
        simple_query(&mut one, "DELETE FROM t WHERE a = 2").await;
    }
    // It is the decision's own.
    simple_query(&mut one, "SET cognate.request_id = 'd'").await;
    simple_query(&mut two, "BEGIN; INSERT INTO t VALUES (2); PREPARE TRANSACTION 'p'").await;
    let [detail, _] = unanswered(&cluster, &mut one, "ROLLBACK PREPARED 'p'").await;
    assert_eq!(request_of(&detail), "d");
    assert_eq!(row(&cluster, &mut two, &outcome("d")).await, "committed");
    let again = simple_query(&mut one, "ROLLBACK PREPARED 'p'").await;
    assert!(again[0].starts_with("ERROR 42710: a request of this name has committed"), "{again:?}");
    // A family has a name of its own.
    simple_query(&mut two, "BEGIN MIP <'f', 1>").await;
    simple_query(&mut two, "INSERT INTO t VALUES (2)").await;
    simple_query(&mut two, "PREPARE MIP <'f', 1> 'buy' 'done'").await;
    let [detail, hint] = unanswered(&cluster, &mut two, "COMMIT MIP <'f', 1>").await;
    assert_eq!(detail, "DETAIL: The family is \"f\".");
    assert!(hint.contains("SHOW MIPT"), "{hint}");
    let shown = simple_query(&mut one, "SHOW MIPT 'f'").await;
    assert!(shown.iter().any(|line| line.starts_with("1|committed")), "{shown:?}");
    cluster.settle().await;
    cluster.assert_equal();
}

/// What is prepared under a name keeps that, and is decided in the same session.
#[tokio::test]
async fn a_request_of_which_the_first_attempt_is_prepared_is_told_so() {
    let cluster = Cluster::start();
    let mut one = session(&cluster, 0);
    simple_query(&mut one, "CREATE TABLE t (a int PRIMARY KEY)").await;
    simple_query(&mut one, "SET cognate.request_id = 's'").await;
    simple_query(&mut one, "BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 's'").await;
    let refused = simple_query(&mut one, "INSERT INTO t VALUES (2)").await;
    assert!(refused[0].starts_with("ERROR 42710: a request of this name is prepared"), "{refused:?}");
    assert!(refused.iter().any(|line| line.starts_with("HINT: COMMIT PREPARED")), "{refused:?}");
    assert_eq!(simple_query(&mut one, "COMMIT PREPARED 's'").await, ["COMMIT PREPARED"]);
    assert_eq!(row(&cluster, &mut one, "SELECT cognate_outcome('s')").await, "committed");
    let refused = simple_query(&mut one, "INSERT INTO t VALUES (2)").await;
    assert!(refused[0].starts_with("ERROR 42710: a request of this name has committed"), "{refused:?}");
    cluster.settle().await;
    cluster.assert_equal();
}

/// Whose commit has something to say waits for the order, and others who have something to say wait
/// behind it. Nothing of theirs is ordered, so whoever asks for it ends their wait.
#[tokio::test]
async fn who_waits_behind_a_notification_can_be_canceled() {
    let cluster = Cluster::start();
    let (mut one, mut two) = (session(&cluster, 0), session(&cluster, 0));
    simple_query(&mut one, "CREATE TABLE t (a int PRIMARY KEY)").await;
    for text in ["BEGIN", "INSERT INTO t VALUES (1)", "NOTIFY c"] {
        simple_query(&mut one, text).await;
    }
    for text in ["BEGIN", "LISTEN c"] {
        simple_query(&mut two, text).await;
    }
    cluster.settle().await;
    let cancel = two.cancel_handle();
    let mut told = Box::pin(simple_query(&mut one, "COMMIT"));
    let mut heard = Box::pin(simple_query(&mut two, "COMMIT"));
    {
        let _held = cluster.hold();
        let mut context = Context::from_waker(Waker::noop());
        assert!(told.as_mut().poll(&mut context).is_pending(), "nothing is ordered");
        assert!(heard.as_mut().poll(&mut context).is_pending(), "it is behind the other one");
    }
    // The first one stays where it is as long as nobody goes on with it.
    cancel.cancel();
    let answer = tokio::time::timeout(Duration::from_secs(60), heard).await.expect("it is deaf");
    assert!(answer.iter().any(|line| line.starts_with("ERROR 57014")), "{answer:?}");
    assert_eq!(told.await, ["COMMIT"]);
    assert_eq!(simple_query(&mut two, "LISTEN c").await, ["LISTEN"]);
    assert_eq!(row(&cluster, &mut two, "SELECT count(*) FROM t").await, "1");
    cluster.settle().await;
    cluster.assert_equal();
}

/// What was read and written at a node that differs must not come into the order, whichever way.
#[tokio::test]
async fn an_instance_that_has_begun_is_not_prepared_at_a_node_that_accepts_no_writes() {
    let cluster = Cluster::start();
    let mut one = session(&cluster, 0);
    simple_query(&mut one, "CREATE TABLE t (a int PRIMARY KEY)").await;
    simple_query(&mut one, "BEGIN MIP <'family', 1>").await;
    assert_eq!(simple_query(&mut one, "INSERT INTO t VALUES (1)").await, ["INSERT 0 1"]);
    let nodes = cluster.nodes[0].1.nodes();
    nodes.close(Some("Node 1 is diverged".to_owned()));
    let refused = simple_query(&mut one, "PREPARE MIP <'family', 1> 'buy' 'done'").await;
    assert!(refused[0].starts_with("ERROR 25006") && refused[1].contains("diverged"), "{refused:?}");
    nodes.close(None);
    cluster.settle().await;
    assert!(cluster.nodes[0].0.prepared().is_empty());
    assert_eq!(row(&cluster, &mut one, "SELECT count(*) FROM t").await, "0");
    cluster.settle().await;
    cluster.assert_equal();
}

/// A node whose state is not the others' shows it to nobody. It can be asked how it is, and follows
/// the order.
#[tokio::test]
async fn a_node_that_differs_shows_nobody_its_rows() {
    let cluster = Cluster::start();
    let (mut one, mut two) = (session(&cluster, 0), session(&cluster, 1));
    simple_query(&mut one, "CREATE TABLE t (a int PRIMARY KEY)").await;
    simple_query(&mut one, "INSERT INTO t VALUES (1)").await;
    cluster.settle().await;
    cluster.nodes[1].1.nodes().differ("its digest at position 7 differs".to_owned());
    for text in ["SELECT count(*) FROM t", "COPY t TO STDOUT", "UPDATE t SET a = 2", "BACKUP"] {
        let refused = simple_query(&mut two, text).await;
        assert!(refused[0].starts_with("ERROR 25006"), "{text}: {refused:?}");
        assert!(refused[1].contains("position 7"), "{text}: {refused:?}");
    }
    let closed = cluster.nodes[1].1.nodes().closed();
    assert!(closed.is_some_and(|why| why.contains("position 7")), "it accepts no writes either");
    assert_eq!(row(&cluster, &mut two, "SELECT count(*) FROM cognate_replication").await, "1");
    simple_query(&mut one, "SET cognate.replication = active").await;
    assert_eq!(simple_query(&mut one, "UPDATE t SET a = 3").await, ["UPDATE 1"]);
    assert_eq!(row(&cluster, &mut one, "SELECT a FROM t").await, "3");
    cluster.settle().await;
    cluster.assert_equal();
}

/// Nothing is judged at a node to which nothing comes any more: who only reads does not wait for
/// that, and is told so.
#[tokio::test]
async fn a_node_that_has_left_answers_who_only_reads() {
    let cluster = Cluster::start();
    let (mut one, mut old, mut two) = (session(&cluster, 0), session(&cluster, 0), session(&cluster, 1));
    simple_query(&mut one, "CREATE TABLE t (a int PRIMARY KEY)").await;
    simple_query(&mut old, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t").await;
    simple_query(&mut one, "INSERT INTO t VALUES (1), (2)").await;
    cluster.settle().await;
    cluster.nodes[1].1.nodes().leave("its disk is full".to_owned());
    let answer = simple_query(&mut two, "SELECT count(*) FROM t").await;
    assert!(answer.iter().any(|line| line == "2"), "{answer:?}");
    let is_told = |line: &String| line.starts_with("WARNING 01000: nothing comes to this node any more");
    assert!(answer.iter().any(is_told), "{answer:?}");
    simple_query(&mut old, "ROLLBACK").await;
}

/// Whoever asks for the values behind a transaction does not know that every node has executed it.
#[tokio::test]
async fn all_sequences_that_a_program_calls_are_known_afterwards() {
    let cluster = Cluster::start();
    let mut one = session(&cluster, 0);
    for table in ["a", "b"] {
        simple_query(&mut one, &format!("CREATE TABLE {table} (id serial PRIMARY KEY, n int)")).await;
        simple_query(&mut one, &format!("INSERT INTO {table} (n) VALUES (0)")).await;
    }
    simple_query(&mut one, "SET cognate.replication = active").await;
    let both = "INSERT INTO a (n) VALUES (1); INSERT INTO b (n) VALUES (1)";
    assert_eq!(simple_query(&mut one, both).await, ["INSERT 0 1", "INSERT 0 1"]);
    assert_eq!(row(&cluster, &mut one, "SHOW cognate.last_protocol").await, "active");
    for (asked, table) in [("currval('a_id_seq')", "a"), ("currval('b_id_seq')", "b"), ("lastval()", "b")] {
        let text = format!("SELECT {asked} = max(id) FROM {table}");
        assert_eq!(row(&cluster, &mut one, &text).await, "t", "{text}");
    }
}
