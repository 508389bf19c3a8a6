//! A CALL or a DO in a block whose body met what is newer is run again as a whole, unless it has
//! done what cannot be done a second time.

#![allow(clippy::unwrap_used)]

use crate::script::play;

const TABLE: &str = "a: CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 0), (2, 0)\n";

/// What `b` is answered whose call reads a row, does something, and changes the row, which `a` has
/// changed meanwhile; and what it is answered afterwards.
fn call(between: &str, before: &str, after: &str) -> (String, Vec<String>) {
    let script = format!(
        "{TABLE}a: CREATE PROCEDURE work() LANGUAGE SQL AS $$ SELECT n FROM t WHERE id = 1; {between}; \
         UPDATE t SET n = n + 1 WHERE id = 1 $$\n\
         b: {before}\na: BEGIN; UPDATE t SET n = 5 WHERE id = 1\n\
         b: BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT n FROM t WHERE id = 2\nb: CALL work()\n\
         a: COMMIT\nb: COMMIT\nb: {after}\n"
    );
    let answers = play(&script);
    let [.., called, committed, _, last] = answers.as_slice() else { panic!("{answers:?}") };
    assert_eq!((called[0].as_str(), committed[0].as_str()), ("... waits", "COMMIT"), "{answers:?}");
    (committed[1].clone(), last.clone())
}

#[test]
fn what_was_let_go_of_is_not_let_go_of_twice() {
    let unlock = "SELECT pg_advisory_unlock(7)";
    let (called, left) = call(unlock, "SELECT pg_advisory_lock(7), pg_advisory_lock(7)", unlock);
    assert!(called.starts_with("b: ERROR 40001"), "{called}");
    assert_eq!(left[1], "t", "it was held twice: {left:?}");
}

#[test]
fn what_was_locked_is_counted_once() {
    let unlock = "SELECT pg_advisory_unlock(7), pg_advisory_unlock(7)";
    let (called, left) = call("SELECT pg_advisory_lock(7)", "SELECT 1", unlock);
    assert_eq!((called.as_str(), left[1].as_str()), ("b: CALL", "t|f"), "{left:?}");
}

/// What `b` is answered whose DO, after `before` in its block, reads a row, does something, and
/// changes the row, which `a` has changed meanwhile; and the row afterwards.
fn run_block(before: &str, between: &str) -> (Vec<String>, String) {
    let script = format!(
        "{TABLE}a: BEGIN; UPDATE t SET n = 5 WHERE id = 1\n\
         b: BEGIN ISOLATION LEVEL SERIALIZABLE{before}\n\
         b: DO $$ DECLARE seen int; BEGIN SELECT n INTO seen FROM t WHERE id = 1; {between}; \
         UPDATE t SET n = seen + 1 WHERE id = 1; END $$\n\
         a: COMMIT\nb: COMMIT\nb: SELECT n FROM t WHERE id = 1\n"
    );
    let answers = play(&script);
    let [.., ran, committed, _, row] = answers.as_slice() else { panic!("{answers:?}") };
    assert_eq!((ran[0].as_str(), committed[0].as_str()), ("... waits", "COMMIT"), "{answers:?}");
    (committed[1..].to_vec(), row[1].clone())
}

#[test]
fn a_block_is_run_again_for_its_own_reads() {
    for before in ["", "; SELECT n FROM t WHERE id = 2"] {
        for between in ["NULL", "BEGIN PERFORM 1; EXCEPTION WHEN division_by_zero THEN NULL; END"] {
            let (ran, row) = run_block(before, between);
            assert_eq!((ran, row.as_str()), (vec!["b: DO".to_owned()], "6"), "{before}, {between}");
        }
    }
}

#[test]
fn a_block_that_is_run_again_has_said_nothing_before() {
    let (ran, row) = run_block("", "RAISE NOTICE 'seen %', seen");
    let told: Vec<&String> = ran.iter().filter(|line| line.contains("NOTICE")).collect();
    assert!(told.len() == 1 && told[0].ends_with("seen 5"), "{ran:?}");
    assert_eq!(row, "6");
}

/// What it takes for the session is counted once, though a savepoint within it was rolled back to
/// and the transaction had locks before; and no handler is for what it is run again for.
#[test]
fn what_a_block_has_locked_is_counted_once() {
    let script = format!(
        "{TABLE}a: BEGIN; UPDATE t SET n = 5 WHERE id = 1\n\
         b: BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT n FROM t WHERE id = 2; \
         SELECT pg_advisory_xact_lock(8)\n\
         b: DO $$ DECLARE seen int; BEGIN SELECT n INTO seen FROM t WHERE id = 1; \
         PERFORM pg_advisory_lock(7); \
         BEGIN PERFORM pg_advisory_xact_lock(9); RAISE division_by_zero; \
         EXCEPTION WHEN division_by_zero THEN NULL; END; \
         BEGIN UPDATE t SET n = seen + 1 WHERE id = 1; EXCEPTION WHEN OTHERS THEN NULL; END; END $$\n\
         a: COMMIT\nb: COMMIT\nb: SELECT n FROM t WHERE id = 1\n\
         b: SELECT pg_advisory_unlock(7), pg_advisory_unlock(7)\n"
    );
    let answers = play(&script);
    let [.., ran, committed, _, row, left] = answers.as_slice() else { panic!("{answers:?}") };
    assert_eq!((ran[0].as_str(), committed[1].as_str()), ("... waits", "b: DO"), "{answers:?}");
    assert_eq!((row[1].as_str(), left[1].as_str()), ("6", "t|f"), "{answers:?}");
}

#[test]
fn a_block_is_not_run_again_for_what_was_read_before_it_or_with_ddl() {
    let definition = ("; SELECT n FROM t WHERE id = 2", "CREATE TABLE u (id int)");
    for (before, between) in [("; SELECT n FROM t WHERE id = 1", "NULL"), definition] {
        let (ran, row) = run_block(before, between);
        assert!(ran[0].starts_with("b: ERROR 40001"), "{before}, {between}: {ran:?}");
        assert_eq!(row, "5", "{before}, {between}");
    }
}
