//! What is one class and what is not.

use super::super::normal_form::spelled;
use super::*;

fn same(texts: &[&str]) {
    let first = Fingerprint::of(texts[0]);
    for text in texts {
        assert_eq!(Fingerprint::of(text), first, "{text}\n{}", texts[0]);
    }
}

fn different(texts: &[&str]) {
    for (at, one) in texts.iter().enumerate() {
        for other in &texts[at + 1..] {
            assert_ne!(Fingerprint::of(one), Fingerprint::of(other), "{one}\n{other}");
        }
    }
}

#[test]
fn literals_do_not_make_classes() {
    same(&[
        "UPDATE t SET a = 1 WHERE b = 'x'",
        "UPDATE t SET a = $1 WHERE b = $2",
        "UPDATE t SET a = -1.5e-3 WHERE b = E'it\\'s ''that'' -- no comment'",
        "UPDATE t SET a = .5 WHERE b = $tag$ ' $x$ ; $tag$",
        "UPDATE t SET a = 0xff WHERE b = U&'\\0041'",
        "UPDATE t SET a = NULL WHERE b = $$$$",
        "UPDATE t SET a = DEFAULT WHERE b = B'101'",
        "UPDATE t SET a =-1 WHERE b =true",
    ]);
}

#[test]
fn spelling_does_not_make_classes() {
    same(&[
        "SELECT a FROM t WHERE b = 1",
        "select A from T\n\twhere  b=2;",
        "/* from /* within */ here */ SELECT a -- to here\nFROM t WHERE b = 3 ; ",
        "SELECT a/**/FROM t WHERE b=1--",
    ]);
}

#[test]
fn lengths_of_lists_do_not_make_classes() {
    same(&[
        "DELETE FROM t WHERE a IN (1)",
        "DELETE FROM t WHERE a IN (1, 2)",
        "DELETE FROM t WHERE a IN ($1,$2,$3,'x',NULL,-7)",
    ]);
    same(&[
        "INSERT INTO t (a, b) VALUES (1, 'x')",
        "INSERT INTO t (a, b) VALUES (1, 'x'), (2, 'y')",
        "INSERT INTO t (a, b) VALUES ($1,$2),($3,$4) , ($5,$6)",
        "INSERT INTO t (a, b) VALUES (DEFAULT, -1), (1, NULL)",
    ]);
    same(&["SELECT ARRAY[1]", "SELECT ARRAY[1, -2, NULL]"]);
    // Lists of which only a beginning is read.
    let list =
        |length: usize| format!("SELECT a FROM t WHERE b IN ({})", vec!["'1234567'"; length].join(","));
    same(&[&list(3000), &list(9000)]);
    let rows = |length: usize| format!("INSERT INTO t VALUES {}", vec!["(1, 'ü')"; length].join(","));
    same(&[&rows(1), &rows(2000), &rows(2001), &rows(5000)]);
}

#[test]
fn what_a_statement_does_makes_classes() {
    different(&[
        "SELECT a FROM t WHERE b = 1",
        "SELECT a FROM u WHERE b = 1",
        "SELECT a FROM \"T\" WHERE b = 1",
        "SELECT a FROM t WHERE c = 1",
        "SELECT a FROM t WHERE b < 1",
        "SELECT a FROM t WHERE b IS NULL",
        "SELECT a FROM t WHERE b IS NOT NULL",
        "SELECT a FROM t WHERE b = 1 FOR UPDATE",
        "SELECT a FROM t",
        "SELECT a, b FROM t",
        "SELECT ab FROM t",
        "SELECT a b FROM t",
        "SELECT a - 1 FROM t",
        "SELECT a + 1 FROM t",
        "SELECT a FROM t WHERE b IN (1, c)",
        "SELECT a FROM t WHERE b IN (c, 1)",
        "SELECT a FROM t WHERE b IN (1, c, 2)",
        "SELECT a FROM t WHERE b IN (1) OR b IN (2)",
        "SELECT f(1), f(2)",
        "SELECT f(1)",
        "",
    ]);
}

#[test]
fn what_looked_like_a_list_comes_out_whole() {
    let shown = |text| spelled(text, 1000);
    assert_eq!(shown("SELECT a FROM t WHERE b IN (1, 2, -3)"), "SELECT a FROM t WHERE b IN (?)");
    assert_eq!(shown("insert into t values (1, 'a'), (2, $1) -- two"), "insert into t values (?)");
    assert_eq!(shown("values (1, 2), (3, 4), (5, a)"), "values (?), (?, a)");
    assert_eq!(shown("values (1), (2, b), (a, 3)"), "values (?), (?, b), (a, ?)");
    assert_eq!(shown("values (1), (a), (2)"), "values (?), (a), (?)");
    assert_eq!(shown("values (1), (), (2)"), "values (?), (), (?)");
    assert_eq!(shown("values (1), (2"), "values (?), (?");
    assert_eq!(shown("values (1), (2,"), "values (?), (?,");
    assert_eq!(shown("values (1), ("), "values (?), (");
    assert_eq!(shown("values (1),"), "values (?),");
    assert_eq!(shown("f((1), 2)"), "f((?), ?)");
    assert_eq!(shown("select 1, 2, a, 3"), "select ?, a, ?");
    assert_eq!(shown("a[1:2] := b::int"), "a[?:?] := b::int");
}

#[test]
fn every_text_has_a_form() {
    let first = first_seed();
    let pieces = [
        "'", "\"", "$", "$a$", "--", "/*", "*/", "\\", "(", ")", ",", "1", "e", "E'", "U&", "-", "+", ";",
        " ", "\n", "ü", "\u{a0}", "😀", "null", "x", ".", "1e", "[", "]", ":", "=", "\0", "?", "<>", "!",
    ];
    for seed in first..first + 3000 {
        let mut random = cognate_env::SplitMix::new(seed);
        let length = random.below(30);
        let text: String = (0..length).map(|_| pieces[random.below(pieces.len() as u64) as usize]).collect();
        let form = spelled(&text, 4096);
        assert_eq!(Fingerprint::of(&text), Fingerprint::of(&text));
        assert!(form.len() <= 2 * text.len() + 1, "COGNATE_SEED={seed}: {text:?} became {form:?}");
        for bytes in 0..8 {
            assert!(spelled(&text, bytes).len() <= bytes + 1 + '…'.len_utf8(), "COGNATE_SEED={seed}");
        }
    }
    // Where a long text is cut is not where a letter begins.
    for shift in 0..4 {
        let text = format!("{}{}", "x".repeat(shift), "😀".repeat(10_000));
        assert!(spelled(&text, 100).len() < 110);
        let _ = Fingerprint::of(&text);
    }
}

#[test]
fn a_transaction_is_what_it_executes_first() {
    let (update, insert) = ("UPDATE t SET a = 1", "INSERT INTO u VALUES (1)");
    let both = class(&[update, insert]);
    assert_eq!(both.id(), class(&[update, update, insert, update, insert]).id(), "loops");
    assert_ne!(both.id(), class(&[insert, update]).id());
    assert_ne!(both.id(), class(&[update]).id());
    assert_eq!(both.text(), "UPDATE t SET a = ?; INSERT INTO u VALUES (?)");

    let statements: Vec<String> = (0..30).map(|table| format!("DELETE FROM t{table}")).collect();
    let statements: Vec<&str> = statements.iter().map(String::as_str).collect();
    let sixteen = class(&statements[..16]);
    assert_ne!(sixteen.id(), OTHERS);
    assert!(sixteen.text().ends_with("; and 12 more"), "{}", sixteen.text());
    assert_eq!(class(&statements[..17]).id(), OTHERS);
    assert_eq!(class(&statements).id(), OTHERS);
    assert_eq!(class(&statements).text(), OTHERS_TEXT);
    assert_eq!(Class::new().id(), OTHERS);

    let long = format!("SELECT {}", "a, ".repeat(1000));
    let shown = class(&[&long, update, insert, "SELECT 1", "SELECT b"]).text();
    assert!(shown.len() < 300, "{shown}");
}
