//! Statements of PostgreSQL that there is no implementation of, and whose grammar the parser does
//! not know either: they are refused by name and not as errors of syntax.
//!
//! Asked is only what did not parse. So what is wrong in a statement of such a kind has the same
//! answer; its grammar is nobody's here.

use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::rewrite::ROWS_FROM;

/// Words one behind the other, and the names of what they begin behind CREATE, ALTER, DROP and
/// COMMENT ON.
type Kind = (&'static [&'static str], [&'static str; 4]);

/// Words one behind the other, and the name of what they say.
type Form = (&'static [&'static str], &'static str);

macro_rules! kinds {
    ($($($word:literal)+,)+) => {
        &[$((
            &[$($word),+],
            [
                concat!("CREATE" $(, " ", $word)+),
                concat!("ALTER" $(, " ", $word)+),
                concat!("DROP" $(, " ", $word)+),
                concat!("COMMENT ON" $(, " ", $word)+),
            ],
        ),)+]
    };
}

macro_rules! forms {
    ($beginning:literal: $($($word:literal)+,)+) => {
        &[$((&[$($word),+], concat!($beginning $(, " ", $word)+)),)+]
    };
}

/// Kinds of objects that there are none of. Longer beginnings stand before shorter ones.
const KINDS: &[Kind] = kinds![
    "ACCESS" "METHOD",
    "AGGREGATE",
    "ASSERTION",
    "CAST",
    "COLLATION",
    "CONSTRAINT" "TRIGGER",
    "CONSTRAINT",
    "CONVERSION",
    "DEFAULT" "CONVERSION",
    "EVENT" "TRIGGER",
    "EXTENSION",
    "FOREIGN" "DATA" "WRAPPER",
    "FOREIGN" "TABLE",
    "LANGUAGE",
    "LARGE" "OBJECT",
    "MATERIALIZED" "VIEW",
    "OPERATOR" "CLASS",
    "OPERATOR" "FAMILY",
    "OPERATOR",
    "POLICY",
    "PROCEDURAL" "LANGUAGE",
    "PUBLICATION",
    "RECURSIVE" "VIEW",
    "RULE",
    "SERVER",
    "STATISTICS",
    "SUBSCRIPTION",
    "TABLESPACE",
    "TEXT" "SEARCH" "CONFIGURATION",
    "TEXT" "SEARCH" "DICTIONARY",
    "TEXT" "SEARCH" "PARSER",
    "TEXT" "SEARCH" "TEMPLATE",
    "TRANSFORM",
    "TRIGGER",
    "TRUSTED" "LANGUAGE",
    "TRUSTED" "PROCEDURAL" "LANGUAGE",
    "USER" "MAPPING",
];

/// Clauses that some statement of the first words may have, wherever they stand in it.
const CLAUSES: &[(&[&str], &[Form])] = &[
    (
        &["CREATE", "TABLE"],
        forms!["CREATE TABLE ...":
            "PARTITION" "BY",
            "PARTITION" "OF",
            "INHERITS",
            "EXCLUDE",
            "TABLESPACE",
            "COMPRESSION",
            "USING",
            "OF",
        ],
    ),
    (
        &["ALTER", "TABLE"],
        forms!["ALTER TABLE ...":
            "ATTACH" "PARTITION",
            "DETACH" "PARTITION",
            "CLUSTER" "ON",
            "SET" "WITHOUT" "CLUSTER",
            "SET" "WITHOUT" "OIDS",
            "SET" "LOGGED",
            "SET" "UNLOGGED",
            "SET" "TABLESPACE",
            "SET" "ACCESS" "METHOD",
            "SET" "STATISTICS",
            "SET" "STORAGE",
            "SET" "COMPRESSION",
            "SET" "(",
            "RESET" "(",
            "ENABLE" "ALWAYS",
            "ENABLE" "REPLICA",
            "ENABLE" "RULE",
            "ENABLE" "ROW",
            "DISABLE" "RULE",
            "DISABLE" "ROW",
            "FORCE" "ROW",
            "INHERIT",
            "REPLICA" "IDENTITY",
            "EXCLUDE",
            "ALTER" "CONSTRAINT",
            "NOT" "OF",
            "OF",
        ],
    ),
    (&["CREATE", "INDEX"], forms!["CREATE INDEX ...": "ON" "ONLY",]),
    (&["CREATE", "UNIQUE", "INDEX"], forms!["CREATE INDEX ...": "ON" "ONLY",]),
    (&["EXPLAIN"], forms!["EXPLAIN CREATE TABLE ...": "AS" "EXECUTE",]),
    (
        &[],
        forms!["":
            "SEARCH" "DEPTH" "FIRST",
            "SEARCH" "BREADTH" "FIRST",
            "ROWS" "FROM",
            "XMLTABLE",
            "XMLCONCAT",
            "XMLELEMENT",
            "XMLFOREST",
            "XMLPARSE",
            "XMLPI",
            "XMLROOT",
            "XMLSERIALIZE",
            "XMLEXISTS",
            "IS" "DOCUMENT",
            "IS" "NOT" "DOCUMENT",
            "WITH" "TIES",
            "CURRENT" "OF",
            "SECURITY_BARRIER",
            "SECURITY_INVOKER",
            "CYCLE",
            "COLLATION" "FOR",
            "UNENCRYPTED" "PASSWORD",
        ],
    ),
];

/// The first words of other statements.
const STATEMENTS: &[Form] = &[
    (&["LOAD"], "LOAD"),
    (&["ALTER", "VIEW"], "this form of ALTER VIEW"),
    (&["ALTER", "INDEX"], "this form of ALTER INDEX"),
    (&["ALTER", "SCHEMA"], "this form of ALTER SCHEMA"),
];

/// What a statement that did not parse is, if that is known.
pub(super) fn name(tokens: &[TokenWithSpan]) -> Option<&'static str> {
    let tokens = &without_modifiers(tokens);
    let starts = |words: &[&str]| is_at(tokens, 0, words);
    if let Some((verb, from)) = verb(tokens)
        && let Some((_, names)) = KINDS.iter().find(|(kind, _)| is_at(tokens, from, kind))
    {
        return Some(names[verb]);
    }
    let fitting = CLAUSES.iter().filter(|(first, _)| starts(first)).flat_map(|(_, clauses)| *clauses);
    let mut found = fitting.filter(|(words, _)| (1..tokens.len()).any(|from| is_at(tokens, from, words)));
    if let Some((_, name)) = found.next() {
        return Some(name.trim_start());
    }
    if names_join(tokens) {
        return Some("an alias of JOIN ... USING");
    }
    if lists_columns(tokens) {
        return Some("a list of columns in ROWS FROM");
    }
    STATEMENTS.iter().find(|(words, _)| starts(words)).map(|(_, name)| *name)
}

/// Whether there is a `JOIN ... USING (a, b) AS name`.
fn names_join(tokens: &[TokenWithSpan]) -> bool {
    (1..tokens.len()).filter(|from| is_at(tokens, *from, &["USING", "("])).any(|from| {
        let list = &tokens[from + 2..];
        let is_item = |place: usize, token: &Token| match token {
            Token::Word(_) => place.is_multiple_of(2),
            Token::Comma => !place.is_multiple_of(2),
            _ => false,
        };
        let end = list.iter().enumerate().position(|(place, token)| !is_item(place, &token.token));
        end.is_some_and(|end| list[end].token == Token::RParen && is_at(list, end + 1, &["AS"]))
    })
}

/// Whether a function in ROWS FROM has a list of columns behind it: `f(a) AS (b int)`.
fn lists_columns(tokens: &[TokenWithSpan]) -> bool {
    let is_mark = |token: &Token| matches!(token, Token::Word(word) if word.value == ROWS_FROM);
    let mut marks = tokens.iter().enumerate().filter(|(_, token)| is_mark(&token.token));
    marks.any(|(mark, _)| {
        let mut depth = 0_i32;
        for (at, token) in tokens.iter().enumerate().skip(mark + 1) {
            match token.token {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                _ => {}
            }
            // Behind AS the name of a function that gives records was put.
            if depth == 1 && is_at(tokens, at, &["AS"]) {
                return (1..=2).any(|ahead| is_at(tokens, at + ahead, &["("]));
            }
            if depth <= 0 {
                return false;
            }
        }
        false
    })
}

/// The tokens without what says of a new table only how long it lives.
fn without_modifiers(tokens: &[TokenWithSpan]) -> Vec<TokenWithSpan> {
    let mut tokens = tokens.to_vec();
    let is_modifier = |tokens: &[TokenWithSpan]| {
        let words = ["LOCAL", "GLOBAL", "TEMP", "TEMPORARY"];
        words.into_iter().any(|word| is_at(tokens, 0, &["CREATE", word]))
    };
    while is_modifier(&tokens) {
        tokens.remove(1);
    }
    tokens
}

/// Whether these words stand at a place; a parenthesis counts as one.
fn is_at(tokens: &[TokenWithSpan], from: usize, words: &[&str]) -> bool {
    let is = |token: &Token, expected: &str| match token {
        Token::Word(word) => word.quote_style.is_none() && word.value.eq_ignore_ascii_case(expected),
        Token::LParen => expected == "(",
        _ => false,
    };
    let mut here = words.iter().enumerate();
    here.all(|(ahead, expected)| tokens.get(from + ahead).is_some_and(|token| is(&token.token, expected)))
}

/// Which verb a statement about an object begins with, and where the kind of the object stands.
fn verb(tokens: &[TokenWithSpan]) -> Option<(usize, usize)> {
    let verbs: [(&[&str], usize); 5] = [
        (&["CREATE", "OR", "REPLACE"], 0),
        (&["CREATE"], 0),
        (&["ALTER"], 1),
        (&["DROP"], 2),
        (&["COMMENT", "ON"], 3),
    ];
    let (words, verb) = verbs.iter().find(|(words, _)| is_at(tokens, 0, words))?;
    Some((*verb, words.len()))
}

#[cfg(test)]
mod tests {
    use crate::parse::{Command, parse};

    #[test]
    fn what_postgresql_has_is_refused_by_name() {
        for (text, name) in [
            ("CREATE RULE r AS ON INSERT TO t DO INSTEAD NOTHING", "CREATE RULE"),
            ("SELECT j.a FROM t JOIN u USING (a, b) AS j", "an alias of JOIN ... USING"),
            ("CREATE OR REPLACE RULE r AS ON INSERT TO t DO INSTEAD NOTHING", "CREATE RULE"),
            (
                "CREATE CONSTRAINT TRIGGER c AFTER INSERT ON t DEFERRABLE FOR EACH ROW EXECUTE FUNCTION f()",
                "CREATE CONSTRAINT TRIGGER",
            ),
            ("CREATE EVENT TRIGGER e ON ddl_command_start EXECUTE FUNCTION f()", "CREATE EVENT TRIGGER"),
            ("CREATE TABLE p PARTITION OF t FOR VALUES IN (1)", "CREATE TABLE ... PARTITION OF"),
            ("CREATE TABLE p PARTITION OF t DEFAULT", "CREATE TABLE ... PARTITION OF"),
            ("CREATE TABLE t (a int, EXCLUDE USING gist (a WITH =))", "CREATE TABLE ... EXCLUDE"),
            (
                "ALTER TABLE t ATTACH PARTITION p FOR VALUES FROM (1) TO (2)",
                "ALTER TABLE ... ATTACH PARTITION",
            ),
            ("ALTER TABLE t DETACH PARTITION p CONCURRENTLY", "ALTER TABLE ... DETACH PARTITION"),
            ("ALTER TABLE t NO INHERIT p", "ALTER TABLE ... INHERIT"),
            ("ALTER TABLE t ALTER a SET STATISTICS 100, ADD b int", "ALTER TABLE ... SET STATISTICS"),
            ("ALTER TABLE t ALTER COLUMN a SET STATISTICS 100, ADD b int", "ALTER TABLE ... SET STATISTICS"),
            ("ALTER TABLE t ALTER COLUMN a SET STATISTICS -1, ADD b int", "ALTER TABLE ... SET STATISTICS"),
            ("ALTER TABLE t ENABLE ALWAYS TRIGGER x", "ALTER TABLE ... ENABLE ALWAYS"),
            ("COMMENT ON TRIGGER x ON t IS 'y'", "COMMENT ON TRIGGER"),
            ("COMMENT ON OPERATOR CLASS x USING btree IS 'y'", "COMMENT ON OPERATOR CLASS"),
            ("ALTER OPERATOR FAMILY f USING btree ADD FUNCTION 1 g(int)", "ALTER OPERATOR FAMILY"),
            ("DROP TEXT SEARCH CONFIGURATION c", "DROP TEXT SEARCH CONFIGURATION"),
            ("DROP USER MAPPING FOR u SERVER s", "DROP USER MAPPING"),
            ("CREATE SERVER s FOREIGN DATA WRAPPER w OPTIONS (a 'b')", "CREATE SERVER"),
            ("LOAD 'x'", "LOAD"),
            (
                "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SEARCH DEPTH FIRST BY n SET o SELECT 1",
                "SEARCH DEPTH FIRST",
            ),
            (
                "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) CYCLE n SET c USING p SELECT 1",
                "CYCLE",
            ),
            ("DELETE FROM t WHERE CURRENT OF c", "CURRENT OF"),
            ("ALTER TABLE t ALTER a SET (n_distinct = 5), ADD b int", "ALTER TABLE ... SET ("),
            ("CREATE INDEX i ON ONLY t (a)", "CREATE INDEX ... ON ONLY"),
            ("CREATE ASSERTION c CHECK (true)", "CREATE ASSERTION"),
            ("CREATE ROLE r UNENCRYPTED PASSWORD 'x'", "UNENCRYPTED PASSWORD"),
            ("SELECT COLLATION FOR (a) FROM t", "COLLATION FOR"),
            ("ALTER TABLE t ALTER a RESET (n_distinct), ADD b int", "ALTER TABLE ... RESET ("),
        ] {
            let found = match parse(text) {
                // What the parser knows is refused when it is planned.
                Ok(mut statements) => match &statements.remove(0).command {
                    Command::Unsupported(found) => (*found).to_owned(),
                    _ => continue,
                },
                Err(error) => error.message.clone(),
            };
            assert_eq!(found, name, "{text}");
        }
    }

    /// None of these is read in any other way.
    #[test]
    fn what_the_parser_would_read_otherwise_is_refused_by_name() {
        for (text, name) in [
            ("SELECT xmlparse(document '<a/>')", "XMLPARSE"),
            ("SELECT XMLCONCAT('<a/>', '<b/>')", "XMLCONCAT"),
            ("SELECT a FROM t WHERE (xmlelement(name a)) IS NULL", "XMLELEMENT"),
            ("SELECT * FROM xmlforest(1 AS a)", "XMLFOREST"),
            ("SELECT xmlpi(name php, 'x')", "XMLPI"),
            ("SELECT xmlroot('<a/>', version '1.0')", "XMLROOT"),
            ("SELECT xmlserialize(content a AS text) FROM t", "XMLSERIALIZE"),
            ("SELECT xmlexists('//a' PASSING b) FROM t", "XMLEXISTS"),
            ("SELECT '<a/>' IS DOCUMENT", "IS DOCUMENT"),
            ("SELECT '<a/>' IS NOT DOCUMENT AND true", "IS NOT DOCUMENT"),
            (
                "SELECT * FROM ROWS FROM (json_to_record('{}') AS (x int), generate_series(1, 2)) AS r",
                "a list of columns in ROWS FROM",
            ),
            ("SELECT * FROM t, ROWS FROM (f(1) AS (x int))", "a list of columns in ROWS FROM"),
            ("ALTER AGGREGATE x(int) RENAME TO y", "ALTER AGGREGATE"),
            ("CREATE FOREIGN DATA WRAPPER w", "CREATE FOREIGN DATA WRAPPER"),
            ("CREATE FOREIGN TABLE t (a int) SERVER s", "CREATE FOREIGN TABLE"),
            ("CREATE UNIQUE INDEX i ON ONLY t (a)", "CREATE INDEX ... ON ONLY"),
        ] {
            match &parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))[0].command {
                Command::Unsupported(found) => assert_eq!(*found, name, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_nobody_has_stays_an_error_of_syntax() {
        for text in ["SELECT 1 FROM", "CREATE TABLE t (a int", "ALTER TABLE t FLY", "MERGE t"] {
            assert_eq!(parse(text).expect_err(text).sqlstate, "42601", "{text}");
        }
    }
}
