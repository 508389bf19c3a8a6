//! Which changes a reader minds: pairs of a look and a change, each between two transactions that
//! are tied together the other way round already. So they form a cycle exactly if the change
//! matters to who has looked.
//!
//! ```text
//! a: looks, and writes a mark       b: reads the mark as it was, and changes something
//! b → a over the mark               a → b if the look minds the change: one of the two is refused
//! ```

#![allow(clippy::unwrap_used)]

use crate::script::play;

/// What becomes of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The look does not mind: both commit.
    Fine,
    /// It does: one is refused.
    Minds,
    /// It does not, but the conditions are none that are understood: one is refused nevertheless.
    Coarse,
}

use Verdict::{Coarse, Fine, Minds};

const SETUP: &str = "\
a: CREATE TABLE mark (id int PRIMARY KEY, v int); INSERT INTO mark VALUES (1, 0)
a: CREATE TABLE item (id int PRIMARY KEY, category int, name text, kind char(12), price int, amount numeric, sold boolean, code int, note text)
a: CREATE INDEX item_code ON item (code)
a: CREATE INDEX item_dear ON item (code) WHERE price > 15
a: CREATE INDEX item_lower ON item (lower(name))
a: CREATE TABLE copied (id int PRIMARY KEY, price int)
a: CREATE TABLE category (id int PRIMARY KEY, label text, place int)
a: INSERT INTO category VALUES (1, 'one', 1), (2, 'two', 2), (3, 'three', 3)
a: INSERT INTO item VALUES (1, 1, 'pear', 'fruit', 10, 1.5, true, 5, ''), (2, 1, 'plum', 'fruit', 20, 2, false, 5, ''), (3, 2, 'a long name of one', 'tool', 30, 3, false, 6, ''), (4, 2, 'a long name of two', 'tool', 40, 4, false, 7, ''), (5, 3, 'nail', 'tool', 50, 5, true, 8, ''), (6, NULL, NULL, NULL, 60, 6, NULL, 9, '')
a: CREATE TYPE mood AS ENUM ('sad', 'happy')
a: CREATE TABLE ends (id int PRIMARY KEY, f float8, n numeric, m mood, u uuid, b bytea, c char(4), v int)
a: INSERT INTO ends VALUES (1, 0, 1.0, 'sad', '00000000-0000-0000-0000-000000000001', '\\x00', 'a', 0), (2, 'NaN', 'NaN', 'happy', 'ffffffff-ffff-ffff-ffff-ffffffffffff', '\\xff', 'b ', 0)
a: ALTER TABLE ends ADD w int DEFAULT 5
a: CREATE TABLE tagged (id int PRIMARY KEY, tags int[], note text); INSERT INTO tagged VALUES (1, '{1,2}', '')
";

fn refused(look: &str, change: &str, looks_last: bool) -> bool {
    let ends = if looks_last { "b: COMMIT\na: COMMIT" } else { "a: COMMIT\nb: COMMIT" };
    let script = format!(
        "{SETUP}a: BEGIN ISOLATION LEVEL SERIALIZABLE\nb: BEGIN ISOLATION LEVEL SERIALIZABLE\na: {look}\n\
         b: SELECT v FROM mark WHERE id = 1\na: UPDATE mark SET v = 1 WHERE id = 1\nb: {change}\n{ends}\n"
    );
    let answers = play(&script);
    let (steps, last) = answers.split_at(answers.len() - 1);
    for answer in steps {
        let failed = answer.iter().any(|line| line.starts_with("ERROR"));
        assert!(!failed, "{look} | {change}: {answers:?}");
    }
    match last[0][0].as_str() {
        "COMMIT" => false,
        error if error.starts_with("ERROR 40001") => true,
        other => panic!("{look} | {change}: {other}"),
    }
}

fn check(cases: &[(&str, &str, Verdict)]) {
    for (look, change, verdict) in cases {
        for looks_last in [false, true] {
            let refused = refused(look, change, looks_last);
            assert_eq!(refused, *verdict != Fine, "{look} | {change} (looks last: {looks_last})");
        }
    }
}

#[test]
fn columns_that_were_not_read() {
    let price = "SELECT price FROM item WHERE id = 1";
    let prices = "SELECT sum(price) FROM item";
    check(&[
        (price, "UPDATE item SET note = 'new' WHERE id = 1", Fine),
        (price, "UPDATE item SET price = 11 WHERE id = 1", Minds),
        (price, "UPDATE item SET note = 'new', price = 11 WHERE id = 1", Minds),
        (price, "DELETE FROM item WHERE id = 1", Minds),
        (price, "UPDATE item SET id = 7 WHERE id = 1", Minds),
        ("SELECT * FROM item WHERE id = 1", "UPDATE item SET note = 'new' WHERE id = 1", Minds),
        ("SELECT i FROM item i WHERE id = 1", "UPDATE item SET note = 'new' WHERE id = 1", Minds),
        ("SELECT 1 FROM item WHERE id = 7", "INSERT INTO item (id) VALUES (7)", Minds),
        (prices, "UPDATE item SET note = 'new'", Fine),
        (prices, "UPDATE item SET price = price + 1 WHERE id = 2", Minds),
        (prices, "INSERT INTO item (id) VALUES (7)", Minds),
        ("SELECT count(*) FROM item", "UPDATE item SET price = price + 1, category = 9", Fine),
        ("SELECT count(*) FROM item", "DELETE FROM item WHERE id = 6", Minds),
        ("SELECT price FROM item ORDER BY note LIMIT 1", "UPDATE item SET note = 'new' WHERE id = 1", Minds),
        // Twice in one transaction.
        (price, "UPDATE item SET note = 'new' WHERE id = 1; UPDATE item SET code = 1 WHERE id = 1", Fine),
        (price, "UPDATE item SET price = 11 WHERE id = 1; UPDATE item SET price = 10 WHERE id = 1", Minds),
        (price, "DELETE FROM item WHERE id = 1; INSERT INTO item (id, price) VALUES (1, 10)", Minds),
        // More is read later.
        (
            &format!("{price}; SELECT note FROM item WHERE id = 1"),
            "UPDATE item SET note = 'new' WHERE id = 1",
            Minds,
        ),
        // Arrays that look alike may differ; one that was left alone does not.
        ("SELECT tags FROM tagged WHERE id = 1", "UPDATE tagged SET note = 'new' WHERE id = 1", Fine),
        ("SELECT tags FROM tagged WHERE id = 1", "UPDATE tagged SET tags = '{1,3}' WHERE id = 1", Minds),
    ]);
}

/// By an index that has entries of some rows only, or of what is computed from them.
#[test]
fn entries_of_partial_indexes_and_of_expressions() {
    let dear = "SELECT sum(price) FROM item WHERE code = 5 AND price > 15";
    let named = "SELECT count(*) FROM item WHERE lower(name) = 'nail'";
    check(&[
        (dear, "UPDATE item SET note = 'new' WHERE id = 2", Fine),
        (dear, "UPDATE item SET price = 21 WHERE id = 2", Minds),
        // It comes in, or goes.
        (dear, "UPDATE item SET price = 16 WHERE id = 1", Minds),
        (dear, "UPDATE item SET price = 15 WHERE id = 2", Minds),
        (dear, "UPDATE item SET code = 5 WHERE id = 3", Minds),
        (dear, "INSERT INTO item (id, code, price) VALUES (7, 5, 16)", Minds),
        // It stays out of the index, or of the range.
        (dear, "UPDATE item SET price = 14 WHERE id = 1", Fine),
        (dear, "INSERT INTO item (id, code, price) VALUES (7, 5, 15)", Fine),
        (dear, "UPDATE item SET price = 41 WHERE id = 4", Fine),
        (named, "UPDATE item SET name = 'NAIL' WHERE id = 1", Minds),
        (named, "UPDATE item SET name = 'screw' WHERE id = 5", Minds),
        (named, "UPDATE item SET name = 'Pear' WHERE id = 1", Fine),
        (named, "UPDATE item SET price = 1 WHERE id = 5", Fine),
        (named, "INSERT INTO item (id, name) VALUES (7, 'Nail')", Minds),
        (named, "INSERT INTO item (id, name) VALUES (7, 'Nails')", Fine),
    ]);
}

#[test]
fn rows_outside_of_a_condition() {
    let sum = "SELECT sum(price) FROM item WHERE category = 1";
    let others = "SELECT sum(price) FROM item WHERE category <> 1";
    check(&[
        (sum, "UPDATE item SET price = price + 1 WHERE category = 2", Fine),
        (sum, "INSERT INTO item (id, category, price) VALUES (7, 2, 70)", Fine),
        (sum, "DELETE FROM item WHERE category = 2", Fine),
        (sum, "INSERT INTO item (id, price) VALUES (7, 70)", Fine),
        (sum, "UPDATE item SET price = price + 1 WHERE category = 1", Minds),
        (sum, "INSERT INTO item (id, category, price) VALUES (7, 1, 70)", Minds),
        (sum, "DELETE FROM item WHERE id = 2", Minds),
        (sum, "UPDATE item SET note = 'new' WHERE category = 1", Fine),
        // Rows that move.
        (sum, "UPDATE item SET category = 1 WHERE id = 3", Minds),
        (sum, "UPDATE item SET category = 2 WHERE id = 1", Minds),
        (sum, "UPDATE item SET category = 3 WHERE id = 3", Fine),
        (sum, "UPDATE item SET category = 1 WHERE category IS NULL", Minds),
        ("SELECT count(*) FROM item WHERE category = 1", "UPDATE item SET price = price + 1", Fine),
        ("SELECT count(*) FROM item WHERE category = 1", "UPDATE item SET category = 2 WHERE id = 1", Minds),
        ("SELECT EXISTS (SELECT 1 FROM item WHERE category = 1)", "UPDATE item SET price = 0", Fine),
        ("SELECT EXISTS (SELECT 1 FROM item WHERE category = 1)", "DELETE FROM item WHERE id = 1", Minds),
        // Ranges, several conditions.
        (
            "SELECT sum(price) FROM item WHERE category BETWEEN 2 AND 3",
            "UPDATE item SET price = 0 WHERE id = 1",
            Fine,
        ),
        (
            "SELECT sum(price) FROM item WHERE category BETWEEN 2 AND 3",
            "UPDATE item SET price = 0 WHERE id = 5",
            Minds,
        ),
        ("SELECT sum(price) FROM item WHERE 2 > category", "UPDATE item SET price = 0 WHERE id = 3", Fine),
        ("SELECT sum(price) FROM item WHERE 2 > category", "UPDATE item SET price = 0 WHERE id = 2", Minds),
        (
            "SELECT sum(price) FROM item WHERE category = 1 AND code = 5",
            "UPDATE item SET price = 0 WHERE id = 3",
            Fine,
        ),
        (
            "SELECT id FROM item WHERE id > 2 AND category = 1",
            "INSERT INTO item (id, category) VALUES (7, 1)",
            Minds,
        ),
        (
            "SELECT id FROM item WHERE id > 2 AND category = 1",
            "INSERT INTO item (id, category) VALUES (7, 2)",
            Fine,
        ),
        // NULL is neither one nor the other.
        (others, "UPDATE item SET price = 0 WHERE id = 1", Fine),
        (others, "UPDATE item SET price = 0 WHERE id = 3", Minds),
        (others, "UPDATE item SET price = 0 WHERE id = 6", Fine),
        (others, "UPDATE item SET category = 7 WHERE id = 6", Minds),
        (others, "UPDATE item SET category = NULL WHERE id = 3", Minds),
        (
            "SELECT sum(price) FROM item WHERE category IS NULL",
            "UPDATE item SET price = 0 WHERE id = 3",
            Fine,
        ),
        (
            "SELECT sum(price) FROM item WHERE category IS NULL",
            "UPDATE item SET price = 0 WHERE id = 6",
            Minds,
        ),
        (
            "SELECT sum(price) FROM item WHERE category IS NULL",
            "UPDATE item SET category = NULL WHERE id = 3",
            Minds,
        ),
        (
            "SELECT sum(price) FROM item WHERE category IS NOT NULL",
            "UPDATE item SET price = 0 WHERE id = 6",
            Fine,
        ),
        ("SELECT sum(price) FROM item WHERE sold", "UPDATE item SET price = 0 WHERE id IN (2, 6)", Fine),
        ("SELECT sum(price) FROM item WHERE sold", "UPDATE item SET price = 0 WHERE id = 5", Minds),
        ("SELECT sum(price) FROM item WHERE NOT sold", "UPDATE item SET price = 0 WHERE id IN (1, 6)", Fine),
        ("SELECT sum(price) FROM item WHERE NOT sold", "UPDATE item SET price = 0 WHERE id = 3", Minds),
    ]);
}

#[test]
fn texts_and_conditions_that_are_not_understood() {
    let pear = "SELECT sum(price) FROM item WHERE name = 'pear'";
    let long = "SELECT sum(price) FROM item WHERE name = 'a long name of one'";
    check(&[
        (pear, "UPDATE item SET price = 0 WHERE name = 'plum'", Fine),
        (pear, "UPDATE item SET price = 0 WHERE name = 'pear'", Minds),
        (pear, "UPDATE item SET name = 'pear' WHERE name = 'plum'", Minds),
        (pear, "UPDATE item SET price = 0 WHERE id = 6", Fine),
        (long, "UPDATE item SET price = 0 WHERE id = 3", Minds),
        (long, "UPDATE item SET price = 0 WHERE id = 5", Fine),
        // They begin alike.
        (long, "UPDATE item SET price = 0 WHERE id = 4", Coarse),
        ("SELECT sum(price) FROM item WHERE name < 'pear'", "UPDATE item SET price = 0 WHERE id = 2", Fine),
        ("SELECT sum(price) FROM item WHERE name < 'pear'", "UPDATE item SET price = 0 WHERE id = 5", Minds),
        ("SELECT sum(price) FROM item WHERE name <> 'plum'", "UPDATE item SET price = 0 WHERE id = 1", Minds),
        ("SELECT sum(price) FROM item WHERE kind = 'fruit'", "UPDATE item SET price = 0 WHERE id = 2", Minds),
        ("SELECT sum(price) FROM item WHERE kind = 'fruit'", "UPDATE item SET price = 0 WHERE id = 3", Fine),
        // Casts, functions, OR, other columns: all columns of the condition, and all rows.
        (
            "SELECT sum(price) FROM item WHERE category::text = '1'",
            "UPDATE item SET price = 0 WHERE id = 3",
            Coarse,
        ),
        (
            "SELECT sum(price) FROM item WHERE category = 1.0",
            "UPDATE item SET price = 0 WHERE id = 3",
            Coarse,
        ),
        (
            "SELECT sum(price) FROM item WHERE category::text = '1'",
            "UPDATE item SET note = 'new' WHERE id = 1",
            Fine,
        ),
        (
            "SELECT sum(price) FROM item WHERE category::text = '1'",
            "UPDATE item SET category = 1 WHERE id = 3",
            Minds,
        ),
        (
            "SELECT sum(price) FROM item WHERE category = 1 OR code = 6",
            "UPDATE item SET price = 0 WHERE id = 5",
            Coarse,
        ),
        (
            "SELECT sum(price) FROM item WHERE category = 1 OR code = 6",
            "UPDATE item SET price = 0 WHERE id = 3",
            Minds,
        ),
        (
            "SELECT sum(price) FROM item WHERE category = code",
            "UPDATE item SET price = 0 WHERE id = 5",
            Coarse,
        ),
        // What is tested before may fail: whoever makes it fail is minded.
        (
            "SELECT id FROM item WHERE 10 / price < 9 AND category = 1",
            "UPDATE item SET price = 0 WHERE id = 3",
            Minds,
        ),
        (
            "SELECT id FROM item WHERE category = 1 AND 10 / price < 9",
            "UPDATE item SET price = 0 WHERE id = 3",
            Fine,
        ),
    ]);
}

#[test]
fn numbers_with_fractions_and_lists_of_values() {
    let sum = |condition: &str| format!("SELECT sum(price) FROM item WHERE {condition}");
    let free = |id: u8| format!("UPDATE item SET price = 0 WHERE id = {id}");
    for (condition, id, verdict) in [
        ("amount = 1.5", 3, Fine),
        ("amount = 1.5", 1, Minds),
        ("amount > 4.0", 3, Fine),
        ("amount > 4.0", 5, Minds),
        // Which is greater by less than a ten-thousandth is not known.
        ("amount > 4.0", 4, Coarse),
        // A value that is computed, of nothing of the row.
        ("category = (now() < 'infinity')::int", 3, Fine),
        ("category = (now() < 'infinity')::int", 1, Minds),
        // It may be another one when the next row is looked at.
        ("category = (statement_timestamp() < 'infinity')::int", 3, Coarse),
        ("category = length(current_setting('search_path')) * 0 + 1", 3, Coarse),
        ("category = ('2020-01-02'::date - '2020-01-01'::date)", 3, Fine),
        ("category = ('2020-01-02'::date - '2020-01-01'::date)", 1, Minds),
        ("category IN (1, 2)", 5, Fine),
        ("category IN (1, 2)", 3, Minds),
        ("category IN (1, 2, NULL)", 5, Fine),
        // Between the least and the greatest.
        ("category IN (1, 3)", 3, Coarse),
        ("category = ANY (ARRAY[1, 2])", 5, Fine),
        ("category = ANY (ARRAY[1, 2])", 3, Minds),
        ("name IN ('pear', 'plum')", 5, Fine),
        ("name IN ('pear', 'plum')", 2, Minds),
        // Those that are not among the values may be anywhere.
        ("category NOT IN (1, 2)", 3, Coarse),
        ("category <> ALL (ARRAY[1, 2])", 5, Minds),
    ] {
        check(&[(&sum(condition), &free(id), verdict)]);
    }
    check(&[
        (&sum("amount = 2.5"), "UPDATE item SET amount = 2.5 WHERE id = 2", Minds),
        (&sum("category IN (7, 8)"), "UPDATE item SET category = 7 WHERE id = 2", Minds),
        (&sum("category IN (7, 8)"), "UPDATE item SET category = 9 WHERE id = 2", Fine),
    ]);
    // The least and the greatest are not looked for in long lists.
    let listed = |count: i32| -> Vec<String> { (7..7 + count).map(|value| value.to_string()).collect() };
    let (short, long) = (listed(100).join(", "), listed(101).join(", "));
    check(&[
        (&sum(&format!("category IN ({short})")), &free(3), Fine),
        (&sum(&format!("category IN ({long})")), &free(3), Coarse),
        (&sum(&format!("category = ANY ('{{{}}}'::int[])", short.replace(' ', ""))), &free(3), Fine),
        (&sum(&format!("category = ANY ('{{{}}}'::int[])", long.replace(' ', ""))), &free(3), Coarse),
    ]);
}

/// A cursor goes on under other settings than those that it was opened under.
#[test]
fn values_that_change_while_a_cursor_is_open() {
    let look = "SET app.category = '1'; \
        DECLARE c CURSOR FOR SELECT id FROM item WHERE category = current_setting('app.category')::int; \
        FETCH 1 FROM c; SET app.category = '2'; FETCH 2 FROM c";
    check(&[
        (look, "UPDATE item SET category = 3 WHERE id = 3", Minds),
        (look, "UPDATE item SET note = 'new' WHERE id = 3", Fine),
    ]);
}

/// Values that are equal and look different, are nothing, or lie at the end of what codes tell.
#[test]
fn values_at_the_ends_of_their_types() {
    let sum = |condition: &str| format!("SELECT sum(v) FROM ends WHERE {condition}");
    let other = |id: u8| format!("UPDATE ends SET v = 1 WHERE id = {id}");
    for (condition, id, verdict) in [
        ("f = '-0'::float8", 1, Minds),
        ("f = '-0'::float8", 2, Fine),
        ("f > 'Infinity'::float8", 1, Fine),
        ("f > 'Infinity'::float8", 2, Minds),
        ("n = 1.000", 1, Minds),
        ("n = 1.000", 2, Fine),
        ("n = 'NaN'::numeric", 1, Fine),
        ("n = 'NaN'::numeric", 2, Minds),
        // Of too many digits for a code.
        ("n > 1e60", 1, Coarse),
        ("n > 1e60", 2, Minds),
        ("m = 'sad'", 1, Minds),
        ("m < 'happy'", 1, Minds),
        ("u = '00000000-0000-0000-0000-000000000001'", 1, Minds),
        ("u = '00000000-0000-0000-0000-000000000001'", 2, Fine),
        ("b = '\\x00'", 1, Minds),
        ("b = '\\x00'", 2, Fine),
        // Zeros at the end are not told from the end.
        ("b = '\\x0000'", 1, Coarse),
        ("c = 'a  '", 1, Minds),
        ("c = 'a'", 2, Fine),
        ("c = 'b'", 2, Minds),
        // The row is older than the column.
        ("w = 5", 1, Minds),
        ("w = 6", 1, Fine),
        ("w IN (5, NULL)", 1, Minds),
    ] {
        check(&[(&sum(condition), &other(id), verdict)]);
    }
    check(&[
        (&sum("n = 2.5"), "UPDATE ends SET n = 2.50 WHERE id = 1", Minds),
        (&sum("n = 1"), "UPDATE ends SET n = 7 WHERE id = 1", Minds),
        (&sum("n = 2.5"), "UPDATE ends SET n = 7 WHERE id = 1", Fine),
        (&sum("w = 5"), "UPDATE ends SET w = 6 WHERE id = 1", Minds),
        (&sum("w = 6"), "UPDATE ends SET w = 6 WHERE id = 1", Minds),
        (&sum("w = 7"), "UPDATE ends SET w = 6 WHERE id = 1", Fine),
        // Both as numbers of type numeric, which is a conversion of the column.
        (&sum("w = 6.0"), "UPDATE ends SET w = 6 WHERE id = 1", Minds),
        (&sum("w = 6.0"), &other(1), Coarse),
    ]);
}

#[test]
fn a_write_of_what_was_there() {
    check(&[
        ("SELECT * FROM item", "UPDATE item SET price = price WHERE id = 1", Fine),
        ("SELECT * FROM item WHERE id = 1", "UPDATE item SET name = 'pear', price = 10 WHERE id = 1", Fine),
        ("SELECT amount FROM item WHERE id = 1", "UPDATE item SET amount = 1.5 WHERE id = 1", Fine),
        // It looks different.
        ("SELECT amount FROM item WHERE id = 1", "UPDATE item SET amount = 1.50 WHERE id = 1", Minds),
    ]);
}

#[test]
fn a_row_that_is_put_back_as_it_was() {
    let again =
        "DELETE FROM item WHERE id = 5; INSERT INTO item VALUES (5, 3, 'nail', 'tool', 50, 5, true, 8, '')";
    let other =
        "DELETE FROM item WHERE id = 5; INSERT INTO item VALUES (5, 3, 'nail', 'tool', 50, 5, true, 8, 'x')";
    for look in ["SELECT * FROM item WHERE id = 5", "SELECT id FROM item WHERE code = 8", "TABLE item"] {
        check(&[(look, again, Fine), (look, other, Minds)]);
    }
}

/// Keys that have gone and come again while the rest of their rows has changed: who knows only that
/// they are there does not mind.
#[test]
fn a_key_that_is_put_back() {
    let setup = "\
a: CREATE TABLE mark (id int PRIMARY KEY, v int); INSERT INTO mark VALUES (1, 0)
a: CREATE TABLE parent (id int PRIMARY KEY, code int UNIQUE, note text); INSERT INTO parent VALUES (1, 7, '')
a: CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent)
a: CREATE TABLE named (id int PRIMARY KEY, parent int REFERENCES parent (code))
";
    let refused = |look: &str, change: &str| {
        let script = format!(
            "{setup}b: BEGIN ISOLATION LEVEL SERIALIZABLE\nb: SELECT v FROM mark WHERE id = 1\n\
             a: BEGIN ISOLATION LEVEL SERIALIZABLE\n{look}a: UPDATE mark SET v = 1 WHERE id = 1\na: COMMIT\n\
             {change}b: COMMIT\n"
        );
        let answers = play(&script);
        let failed = |answer: &Vec<String>| answer.iter().any(|line| line.starts_with("ERROR"));
        let (last, steps) = answers.split_last().unwrap();
        assert!(!steps.iter().any(failed), "{look}{change}: {answers:?}");
        failed(last)
    };
    let arbiter = "a: INSERT INTO parent VALUES (2, 7, '') ON CONFLICT (code) DO NOTHING\n";
    let by_key = "a: SAVEPOINT s\na: INSERT INTO child VALUES (1, 1)\na: ROLLBACK TO s\n";
    let by_code = "a: SAVEPOINT s\na: INSERT INTO named VALUES (1, 7)\na: ROLLBACK TO s\n";
    let reads = "a: SELECT note FROM parent WHERE id = 1\n";
    let gone = "b: DELETE FROM parent WHERE id = 1\n";
    let again = format!("{gone}b: INSERT INTO parent VALUES (1, 7, 'new')\n");
    let undone = format!("b: SAVEPOINT s\n{gone}b: ROLLBACK TO s\nb: INSERT INTO parent VALUES (3, 3, '')\n");
    let moved = format!("{gone}b: INSERT INTO parent VALUES (2, 8, '')\n");
    for look in [arbiter, by_key, by_code] {
        assert!(refused(look, gone) && refused(look, &moved), "{look}");
        assert!(!refused(look, &again) && !refused(look, &undone), "{look}");
    }
    assert!(refused(reads, &again) && !refused(reads, &undone));
    // By another key than the row's own it only matters that it is there. Who looks whether to
    // change the row has read all of it.
    let noted = "b: UPDATE parent SET note = 'new' WHERE id = 1\n";
    let looked = "a: INSERT INTO parent VALUES (2, 7, '') ON CONFLICT (code) DO UPDATE SET note = 'y' \
                  WHERE parent.note = 'x'\n";
    assert!(!refused(arbiter, noted) && !refused(by_key, noted) && refused(looked, noted));
    assert!(refused(reads, noted));
    // Who makes a row has seen that its keys are free, though it takes the row away again.
    let made = "a: INSERT INTO parent VALUES (9, 9, '')\na: DELETE FROM parent WHERE id = 9\n";
    let taken =
        |id: u8, code: u8| refused(made, &format!("b: INSERT INTO parent VALUES ({id}, {code}, '')\n"));
    assert!(taken(9, 10) && taken(10, 9) && !taken(10, 10));
}

#[test]
fn all_kinds_of_statements_that_read() {
    let update = "UPDATE item SET price = price + 1 WHERE category = 1";
    let insert = "INSERT INTO copied SELECT id, price FROM item WHERE category = 1";
    let join = "SELECT i.price, c.place FROM item i JOIN category c ON c.id = i.category WHERE c.place = 1";
    let left =
        "SELECT i.price, c.place FROM item i LEFT JOIN category c ON c.id = i.category AND c.place = 1";
    let by_index = "SELECT price FROM item WHERE code = 6";
    check(&[
        (update, "UPDATE item SET price = price + 1 WHERE category = 2", Fine),
        (update, "DELETE FROM item WHERE category = 2", Fine),
        (update, "UPDATE item SET category = 1 WHERE id = 3", Minds),
        (update, "INSERT INTO item (id, category) VALUES (7, 1)", Minds),
        ("DELETE FROM item WHERE category = 1", "UPDATE item SET price = 0 WHERE category = 2", Fine),
        ("DELETE FROM item WHERE category = 1", "UPDATE item SET category = 1 WHERE id = 3", Minds),
        (insert, "UPDATE item SET price = 0 WHERE category = 2", Fine),
        (insert, "UPDATE item SET price = 0 WHERE id = 1", Minds),
        (insert, "UPDATE item SET note = 'new' WHERE id = 1", Fine),
        (join, "UPDATE category SET label = 'new'", Fine),
        (join, "UPDATE category SET place = 9 WHERE id = 1", Minds),
        (join, "UPDATE item SET note = 'new'", Fine),
        (join, "UPDATE item SET category = 3 WHERE id = 1", Minds),
        (left, "UPDATE category SET label = 'new'", Fine),
        (left, "UPDATE category SET place = 1 WHERE id = 2", Minds),
        (by_index, "UPDATE item SET note = 'new' WHERE id = 3", Fine),
        (by_index, "UPDATE item SET price = 0 WHERE id = 3", Minds),
        (by_index, "UPDATE item SET code = 7 WHERE id = 3", Minds),
        (by_index, "UPDATE item SET code = 6 WHERE id = 1", Minds),
        (by_index, "UPDATE item SET code = 8 WHERE id = 1", Fine),
        ("SELECT max(code) FROM item", "UPDATE item SET price = 0 WHERE id = 6", Fine),
        ("SELECT max(code) FROM item", "UPDATE item SET code = 99 WHERE id = 6", Minds),
        ("SELECT price FROM item WHERE id = 1 FOR SHARE", "UPDATE item SET price = 0 WHERE id = 2", Fine),
        (
            "WITH c AS (SELECT price FROM item WHERE category = 1) SELECT sum(price) FROM c",
            "UPDATE item SET price = 0 WHERE id = 3",
            Fine,
        ),
        (
            "SELECT (SELECT sum(price) FROM item WHERE category = c.id) FROM category c WHERE c.id = 1",
            "UPDATE item SET price = 0 WHERE id = 1",
            Minds,
        ),
        (
            "PREPARE p (int) AS SELECT sum(price) FROM item WHERE category = $1; EXECUTE p (1)",
            "UPDATE item SET price = 0 WHERE id = 3",
            Fine,
        ),
        (
            "PREPARE p (int) AS SELECT sum(price) FROM item WHERE category = $1; EXECUTE p (1)",
            "UPDATE item SET price = 0 WHERE id = 1",
            Minds,
        ),
        (
            "PREPARE p (int) AS SELECT sum(price) FROM item WHERE category = $1; EXECUTE p (2); EXECUTE p (1)",
            "UPDATE item SET price = 0 WHERE id = 3",
            Minds,
        ),
    ]);
}

/// What is looked at on the way to the answer, and what is not there.
#[test]
fn reads_that_do_not_show() {
    let price = "UPDATE item SET price = 99 WHERE id = 1";
    check(&[
        ("SAVEPOINT s; SELECT price FROM item WHERE id = 1; ROLLBACK TO s", price, Minds),
        ("DECLARE c CURSOR FOR SELECT price FROM item ORDER BY id; FETCH 2 FROM c", price, Minds),
        ("DECLARE c CURSOR WITH HOLD FOR SELECT price FROM item", price, Minds),
        ("COPY item (id, price) TO STDOUT", price, Minds),
        ("SELECT id FROM item ORDER BY id LIMIT 1", "UPDATE item SET id = 0 WHERE id = 5", Minds),
        ("SELECT price FROM item WHERE id IN (3, 7)", "INSERT INTO item (id) VALUES (7)", Minds),
        ("SELECT price FROM item WHERE id = 1 FOR KEY SHARE", price, Minds),
        ("SELECT id FROM item WHERE id = 2 FOR UPDATE SKIP LOCKED", price, Fine),
        // Nothing meets the conditions yet.
        ("SELECT sum(price) FROM item WHERE category = 9", "UPDATE item SET category = 9", Minds),
        ("SELECT sum(price) FROM item WHERE category = 9", "UPDATE item SET category = 8", Fine),
        ("SELECT id FROM item WHERE category = 9 LIMIT 1", "UPDATE item SET category = 9", Minds),
        ("SELECT EXISTS (SELECT 1 FROM item WHERE code = 99)", "UPDATE item SET code = 99", Minds),
        ("UPDATE item SET price = 0 WHERE code = 99", "UPDATE item SET code = 99 WHERE id = 1", Minds),
        ("UPDATE item SET price = 0 WHERE id = 7", "INSERT INTO item (id) VALUES (7)", Minds),
        ("DELETE FROM item WHERE price > 100", "UPDATE item SET price = 101 WHERE id = 1", Minds),
        ("INSERT INTO copied SELECT id, price FROM item WHERE price > 90", price, Minds),
        ("INSERT INTO copied VALUES (1, 1) RETURNING (SELECT max(price) FROM item)", price, Minds),
        (
            "SELECT id FROM category c WHERE NOT EXISTS (SELECT 1 FROM item i WHERE i.category = c.id)",
            "DELETE FROM item WHERE category = 3",
            Minds,
        ),
        (
            "DELETE FROM item USING category c WHERE item.category = c.id AND c.place = 99",
            "UPDATE category SET place = 99 WHERE id = 3",
            Minds,
        ),
        (
            "MERGE INTO copied c USING category AS s ON c.id = s.id WHEN MATCHED THEN DO NOTHING",
            "INSERT INTO copied VALUES (1, 1)",
            Minds,
        ),
        // Values that are compared as others.
        ("SELECT count(*) FROM item WHERE code = 5.0", "UPDATE item SET code = 5 WHERE id = 3", Minds),
        ("SELECT count(*) FROM item WHERE code > 8.5", "UPDATE item SET code = 9 WHERE id = 1", Minds),
        ("SELECT count(*) FROM item WHERE category IN (7, 8)", "UPDATE item SET category = 8", Minds),
        ("SELECT count(*) FROM item WHERE name LIKE 'pe%'", "UPDATE item SET name = 'pea'", Minds),
        ("SELECT count(*) FROM item WHERE kind = 'tool   '", "UPDATE item SET kind = 'tool'", Minds),
    ]);
}

/// The row is back where it was when the reader commits; in between somebody has moved it into the
/// condition, and has seen the mark as it was before the reader's.
#[test]
fn a_row_that_was_in_the_condition_for_a_while() {
    let script = |look: &str| {
        format!(
            "{SETUP}a: BEGIN ISOLATION LEVEL SERIALIZABLE\na: {look}\n\
             b: BEGIN ISOLATION LEVEL SERIALIZABLE\nb: SELECT v FROM mark WHERE id = 1\n\
             b: UPDATE item SET category = 1 WHERE id = 3\nb: COMMIT\n\
             c: UPDATE item SET category = 2 WHERE id = 3\n\
             a: UPDATE mark SET v = 1 WHERE id = 1\na: COMMIT\n"
        )
    };
    let last = |look: &str| play(&script(look)).pop().unwrap().remove(0);
    assert!(last("SELECT sum(price) FROM item WHERE category = 1").starts_with("ERROR 40001"));
    assert!(last("SELECT category FROM item WHERE id = 3").starts_with("ERROR 40001"));
    assert_eq!(last("SELECT sum(price) FROM item WHERE category = 3"), "COMMIT");
    assert_eq!(last("SELECT price FROM item WHERE id = 3"), "COMMIT");
}

/// The first writer after the reader leaves alone what was read, and the second one does not: it is
/// the second who comes after the reader, whichever of the two is asked last.
#[test]
fn the_first_writer_who_matters_counts() {
    let refusals = |first: &str, second: &str, early: bool| {
        let commit = |now: bool| if now { "a: COMMIT\n" } else { "" };
        let script = format!(
            "{SETUP}a: BEGIN ISOLATION LEVEL SERIALIZABLE\na: SELECT price FROM item WHERE id = 1\n\
             a: UPDATE mark SET v = 1 WHERE id = 1\nc: {first}\n\
             b: BEGIN ISOLATION LEVEL SERIALIZABLE\nb: SELECT v FROM mark WHERE id = 1\n\
             {}b: {second}\nb: COMMIT\n{}",
            commit(early),
            commit(!early)
        );
        play(&script).iter().flatten().filter(|line| line.starts_with("ERROR")).count()
    };
    let notes = "UPDATE item SET note = note || 'x' WHERE id = 1";
    for early in [false, true] {
        assert_eq!(refusals(notes, "UPDATE item SET price = 11 WHERE id = 1", early), 1);
        assert_eq!(refusals(notes, notes, early), 0);
        // The first one matters: the second one comes behind it.
        assert_eq!(refusals("UPDATE item SET price = 11 WHERE id = 1", notes, early), 1);
    }
}

/// What a prepared transaction has read, it has read after a restart, too: these columns, and rows
/// that meet these conditions.
#[test]
fn a_prepared_transaction_minds_what_it_minded() {
    let refused = |look: &str, change: &str, restart: &str| {
        let script = format!(
            "{SETUP}a: BEGIN ISOLATION LEVEL SERIALIZABLE\na: {look}\na: UPDATE mark SET v = 1 WHERE id = 1\n\
             a: PREPARE TRANSACTION 'p'\n{restart}b: BEGIN ISOLATION LEVEL SERIALIZABLE\n\
             b: SELECT v FROM mark WHERE id = 1\nb: {change}\nb: COMMIT\nb: COMMIT PREPARED 'p'\n"
        );
        let answers = play(&script);
        let [.., commit, decision] = answers.as_slice() else { panic!("{answers:?}") };
        assert_eq!(decision[0], "COMMIT PREPARED", "{answers:?}");
        commit[0].starts_with("ERROR 40001")
    };
    let (price, sum) =
        ("SELECT price FROM item WHERE id = 1", "SELECT sum(price) FROM item WHERE category = 1");
    for restart in ["", "restart\n"] {
        assert!(refused(price, "UPDATE item SET price = 11 WHERE id = 1", restart));
        assert!(!refused(price, "UPDATE item SET note = 'new' WHERE id = 1", restart));
        assert!(refused(sum, "UPDATE item SET category = 1 WHERE id = 3", restart));
        assert!(!refused(sum, "UPDATE item SET price = 0 WHERE category = 2", restart));
    }
}

/// A key is a part of a row, which may be one that another has written.
#[test]
fn keys_are_said_to_who_may_read_them() {
    let detail = |role: &str| {
        let script = format!(
            "{SETUP}a: INSERT INTO mark VALUES (2, 7); CREATE ROLE eve; GRANT SELECT (v), UPDATE (v) ON mark TO eve\n\
             b: {role}\na: BEGIN ISOLATION LEVEL SERIALIZABLE\nb: BEGIN ISOLATION LEVEL SERIALIZABLE\n\
             a: SELECT sum(v) FROM mark\nb: SELECT sum(v) FROM mark\na: UPDATE mark SET v = 1 WHERE id = 1\n\
             b: UPDATE mark SET v = 8 WHERE v = 7\na: COMMIT\nb: COMMIT\n"
        );
        let answers = play(&script);
        let last = answers.last().unwrap();
        assert!(last[0].starts_with("ERROR 40001"), "{answers:?}");
        last[1].clone()
    };
    let all = detail("RESET ROLE");
    assert!(all.starts_with("DETAIL: Cycle: ") && all.contains("(id)=("), "{all}");
    let less = detail("SET ROLE eve");
    assert!(less.starts_with("DETAIL: Cycle: ") && !less.contains("=("), "{less}");
    assert!(less.contains("of table \"mark\""), "{less}");
}
