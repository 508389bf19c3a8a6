//! A CALL in a block whose body met what is newer is run again as a whole, unless it has done what
//! cannot be done a second time.

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
