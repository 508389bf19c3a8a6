//! What a failure tells is read as well: that a key is taken, that a row is still referred to. The
//! client knows it, rolls back to a savepoint, and goes on; so the one who takes away what was told
//! comes after it. Where it is newer than the snapshot he waits, too: it stays locked, whatever is
//! rolled back.
//!
//! ```text
//! b: SAVEPOINT s; is told of a row; ROLLBACK TO s     c: reads the mark, and deletes that row
//! b: writes the mark, commits     b → c over the row, c → b over the mark: c is refused
//! ```

#![allow(clippy::unwrap_used)]

use crate::script::play;

const MARK: &str = "a: CREATE TABLE mark (id int PRIMARY KEY, v int); INSERT INTO mark VALUES (1, 0)\n";

/// Whether the deletion waits until `b` has committed, and what its own commit is answered. `told`
/// is what the failure begins with.
fn delete_what_was_told(setup: &str, ask: &str, told: &str, delete: &str) -> (bool, String) {
    let script = format!(
        "{MARK}{setup}b: SAVEPOINT s\nb: {ask}\nb: ROLLBACK TO s\nc: BEGIN ISOLATION LEVEL SERIALIZABLE\n\
         c: SELECT v FROM mark WHERE id = 1\nc: {delete}\nb: UPDATE mark SET v = 1 WHERE id = 1\n\
         b: COMMIT\nc: COMMIT\n"
    );
    let answers = play(&script);
    let [.., asked, _, _, _, deleted, _, committed, last] = answers.as_slice() else { panic!("{answers:?}") };
    assert!(asked[0].starts_with(told), "{ask}: {answers:?}");
    assert_eq!(committed[0], "COMMIT", "{ask}: {answers:?}");
    let waits = deleted[0] == "... waits";
    let done = if waits { &committed[1] } else { &deleted[0] };
    assert!(done.ends_with("DELETE 1"), "{ask}: {answers:?}");
    (waits, last[0].clone())
}

/// `is_newer`: what it tells of is newer than the snapshot of who is told.
fn check(setup: &str, is_newer: bool, (ask, told): (&str, &str), tells_of: &str, another: &str) {
    let (waits, end) = delete_what_was_told(setup, ask, told, tells_of);
    assert!(waits == is_newer && end.starts_with("ERROR 40001"), "{ask} | {tells_of}: {waits}, {end}");
    let (waits, end) = delete_what_was_told(setup, ask, told, another);
    assert!(!waits && end == "COMMIT", "{ask} | {another}: {waits}, {end}");
}

/// The row came after the snapshot, and its key in an index says who has it.
#[test]
fn a_key_that_is_taken_by_what_is_newer() {
    let setup = "\
a: CREATE TABLE t (id int PRIMARY KEY, code int UNIQUE); INSERT INTO t VALUES (1, 10), (4, 40)
b: BEGIN ISOLATION LEVEL SERIALIZABLE
b: SELECT id FROM t WHERE id = 1
a: INSERT INTO t VALUES (2, 20)
";
    let (of, another) = ("DELETE FROM t WHERE id = 2", "DELETE FROM t WHERE id = 4");
    check(setup, true, ("INSERT INTO t VALUES (3, 20)", "ERROR 23505"), of, another);
    check(setup, true, ("INSERT INTO t VALUES (2, 30)", "ERROR 23505"), of, another);
    check(setup, true, ("UPDATE t SET code = 20 WHERE id = 1", "ERROR 23505"), of, another);
}

/// The holder of a key is about to go: whoever wants the key waits, and then has it.
#[test]
fn a_newer_row_that_goes_is_waited_for() {
    let answers = play(
        "\
a: CREATE TABLE t (id int PRIMARY KEY, code int UNIQUE); INSERT INTO t VALUES (1, 10)
b: BEGIN ISOLATION LEVEL SERIALIZABLE
b: SELECT id FROM t WHERE id = 1
a: INSERT INTO t VALUES (2, 20)
a: BEGIN
a: DELETE FROM t WHERE id = 2
b: INSERT INTO t VALUES (3, 20)
a: COMMIT
b: COMMIT
",
    );
    let [.., inserted, committed, last] = answers.as_slice() else { panic!("{answers:?}") };
    assert_eq!(inserted[0], "... waits", "{answers:?}");
    assert_eq!(committed[..], ["COMMIT", "b: INSERT 0 1"], "{answers:?}");
    assert_eq!(last[0], "COMMIT", "{answers:?}");
}

#[test]
fn a_row_that_is_still_referred_to() {
    let setup = |action: &str| {
        format!(
            "a: CREATE TABLE parent (id int PRIMARY KEY); INSERT INTO parent VALUES (1), (2)\n\
             a: CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent{action})\n\
             a: CREATE INDEX child_parent ON child (parent); INSERT INTO child VALUES (10, 1), (20, 2)\n\
             b: BEGIN ISOLATION LEVEL SERIALIZABLE\n"
        )
    };
    let (of, another) = ("DELETE FROM child WHERE id = 10", "DELETE FROM child WHERE id = 20");
    for action in ["", " ON DELETE RESTRICT ON UPDATE RESTRICT"] {
        let setup = setup(action);
        check(&setup, false, ("DELETE FROM parent WHERE id = 1", "ERROR 23503"), of, another);
        check(&setup, false, ("UPDATE parent SET id = 3 WHERE id = 1", "ERROR 23503"), of, another);
        let newer = "a: INSERT INTO parent VALUES (5)\nb: SELECT id FROM parent WHERE id = 2\n\
                     a: INSERT INTO child VALUES (50, 5)\n";
        let (setup, of) = (format!("{setup}{newer}"), "DELETE FROM child WHERE id = 50");
        check(&setup, true, ("DELETE FROM parent WHERE id = 5", "ERROR 23503"), of, another);
    }
}

/// A child that is about to go is waited for; then nobody refers to the row.
#[test]
fn a_child_that_goes_is_waited_for() {
    let answers = play(
        "\
a: CREATE TABLE parent (id int PRIMARY KEY); INSERT INTO parent VALUES (1)
a: CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent); INSERT INTO child VALUES (10, 1)
a: BEGIN
a: DELETE FROM child WHERE id = 10
b: BEGIN ISOLATION LEVEL SERIALIZABLE
b: DELETE FROM parent WHERE id = 1
a: COMMIT
b: COMMIT
",
    );
    let [.., deleted, committed, last] = answers.as_slice() else { panic!("{answers:?}") };
    assert_eq!(deleted[0], "... waits", "{answers:?}");
    assert_eq!(committed[..], ["COMMIT", "b: DELETE 1"], "{answers:?}");
    assert_eq!(last[0], "COMMIT", "{answers:?}");
}

#[test]
fn a_key_that_is_taken_when_the_statement_has_ended() {
    let setup = "\
a: CREATE TABLE q (id int PRIMARY KEY, place int UNIQUE DEFERRABLE); INSERT INTO q VALUES (1, 1), (2, 2)
b: BEGIN ISOLATION LEVEL SERIALIZABLE
";
    let (of, another) = ("DELETE FROM q WHERE id = 1", "DELETE FROM q WHERE id = 2");
    check(setup, false, ("INSERT INTO q VALUES (3, 1)", "ERROR 23505"), of, another);
}

/// A row that takes over the primary key of one that the snapshot still shows would be met by that
/// one's index entries.
#[test]
fn a_key_that_the_snapshot_still_shows_is_not_moved_to() {
    let at = |level: &str| {
        play(&format!(
            "\
a: CREATE TABLE t (id int PRIMARY KEY, code int); CREATE INDEX t_code ON t (code)
a: INSERT INTO t VALUES (1, 10), (2, 20)
b: BEGIN ISOLATION LEVEL {level}
b: SELECT code FROM t WHERE id = 1
a: DELETE FROM t WHERE id = 2
b: UPDATE t SET id = 2 WHERE id = 1
b: SELECT id FROM t WHERE code = 20
b: COMMIT
"
        ))
    };
    let answers = at("REPEATABLE READ");
    let [.., updated, _, _] = answers.as_slice() else { panic!("{answers:?}") };
    assert!(updated[0].starts_with("ERROR 40001"), "{answers:?}");
    // Here the snapshot moves past the deletion.
    let answers = at("SERIALIZABLE");
    let [.., updated, found, last] = answers.as_slice() else { panic!("{answers:?}") };
    assert_eq!((&updated[0][..], &last[0][..]), ("UPDATE 1", "COMMIT"), "{answers:?}");
    assert_eq!(found[..], ["id", "SELECT 0"], "{answers:?}");
}

/// A READ ONLY block keeps nobody from changing definitions: rows that would look otherwise than
/// before are refused. What does not show does no harm.
#[test]
fn rows_look_alike_all_through_a_read_only_block() {
    let second = |level: &str, change: &str| {
        let answers = play(&format!(
            "\
a: CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 5)
a: CREATE TABLE other (id int PRIMARY KEY)
b: BEGIN ISOLATION LEVEL {level}, READ ONLY
b: SELECT * FROM t
a: {change}
b: SELECT * FROM t
b: COMMIT
"
        ));
        let [.., first, changed, second, _] = answers.as_slice() else { panic!("{answers:?}") };
        assert_eq!(first[..], ["id|v", "1|5", "SELECT 1"], "{answers:?}");
        assert!(!changed[0].starts_with("ERROR"), "{answers:?}");
        second.join(" / ")
    };
    for level in ["SERIALIZABLE", "REPEATABLE READ"] {
        for change in [
            "ALTER TABLE t ADD COLUMN more int DEFAULT 7",
            "ALTER TABLE t DROP COLUMN v",
            "ALTER TABLE t RENAME COLUMN v TO w",
        ] {
            let second = second(level, change);
            assert!(second.starts_with("ERROR 40001"), "{level} | {change}: {second}");
        }
        for change in [
            "ALTER TABLE other ADD COLUMN more int DEFAULT 7",
            "ALTER TABLE t ALTER COLUMN v SET DEFAULT 3",
            "COMMENT ON TABLE t IS 'a table'",
            "UPDATE t SET v = 6",
        ] {
            assert_eq!(second(level, change), "id|v / 1|5 / SELECT 1", "{level} | {change}");
        }
    }
    let committed = "id|v|more / 1|5|7 / SELECT 1";
    assert_eq!(second("READ COMMITTED", "ALTER TABLE t ADD COLUMN more int DEFAULT 7"), committed);
}
