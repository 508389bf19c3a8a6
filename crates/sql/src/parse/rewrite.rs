//! Spellings that PostgreSQL knows and the parser does not, put into its words token by token.
//!
//! White space and comments are dropped on the way. Positions stay those of the source.
//!
//! | source | becomes |
//! |---|---|
//! | `'a'` newline `'b'` | `'ab'` |
//! | `x ISNULL` | `x IS NULL` |
//! | `COLLATE "C"`, `"default"`, `"POSIX"`, ... | nothing: there is one order; of columns and indexes it stays ([`collate`]) |
//! | `ALTER COLUMN a TYPE text COLLATE "C"` | a marked name of the column: see [`split_collated`] |
//! | `FOR NO KEY UPDATE`, `FOR KEY SHARE` | `FOR UPDATE`, `FOR SHARE`, with a mark among the names ([`KEY_MARK`](super::KEY_MARK)) |
//! | `FOR UPDATE OF a, b` | `FOR UPDATE OF a FOR UPDATE OF b` |
//! | `FOR UPDATE ... LIMIT n` | `LIMIT n FOR UPDATE ...` |
//! | `LIKE ALL (x)`, `NOT LIKE ANY (x)` | `~~ ALL (x)`, `!~~ ANY (x)` |
//! | `substring(x SIMILAR p ESCAPE e)` | `substring(x FROM p FOR e)`, which means the same |
//! | `substring(x FOR n FROM m)` | `substring(x FROM m FOR n)` |
//! | `trim(both from x)`, `trim(from x)` | `trim(both ' ' from x)` |
//! | `trim(both from x, y)` | `trim(both y from x)` |
//! | `FROM ONLY t`, `UPDATE ONLY (t)`, `FROM t*` | `FROM t`, `UPDATE t`: there is no inheritance |
//! | `a JOIN b JOIN c ON x ON y` | `a JOIN (b JOIN c ON x) ON y`: see [`nested_join`] |
//! | `TABLESPACE pg_default` | nothing: there is one place |
//! | `WITH (toast.a = 1, b)` of CREATE | `WITH ("toast.a" = 1, b = true)` |
//! | `SET ROLE TO x`, `SHOW SESSION AUTHORIZATION`, `NCHAR(5)` ... | see [`forms`] |
//! | `FETCH FIRST (5) ROWS WITH TIES` | `FETCH FIRST 5 ROWS WITH TIES` |
//! | `FETCH FIRST (a + b) ROWS ONLY` | `LIMIT (a + b)` |
//! | `ORDER BY x USING <`, `USING OPERATOR(pg_catalog.<)` | `ORDER BY x ASC` |
//! | `TABLE t` as a query | `SELECT * FROM t` |
//! | `CREATE TABLE t (a, b) AS` | its columns with a type, which says nothing |
//! | `CREATE TABLE t AS query WITH [NO] DATA` | noted in the statement |
//! | `CREATE TABLE t AS EXECUTE p (1)` | `CREATE TABLE t AS SELECT` of a marked call: see [`executed_by`] |
//! | `CHECK (a) NO INHERIT` | `CHECK (a) NOT ENFORCED`, which PostgreSQL 15 does not have |
//! | `CHECK (a) NOT VALID` of a table in CREATE TABLE | without: there is no row yet |
//! | `CREATE UNLOGGED` | without the word |
//! | `DROP INDEX CONCURRENTLY` | noted in the statement |
//! | `CREATE RECURSIVE VIEW v (a) AS query` | `CREATE VIEW v (a) AS WITH RECURSIVE v (a) AS (query) SELECT a FROM v` |
//! | `[NOT] DEFERRABLE` of BEGIN, START, SET TRANSACTION | noted in the statement |
//! | `INSERT ... OVERRIDING SYSTEM VALUE` | noted in the statement |
//! | `INSERT INTO t ((SELECT ...))`, `INSERT INTO t (VALUES ...)` | without the parentheses around all of it |
//! | words of other systems where a name may stand | names: see [`words`] |
//! | `FREEZE ON`, `HEADER OFF` ... of COPY | `TRUE`, `FALSE` |
//! | `IDENTITY (START WITH 5 INCREMENT BY 2)` | its options in the order the parser wants |
//! | `IDENTITY (SEQUENCE NAME s)` | a number of CACHE with the name behind: see [`sequence_name_of`] |
//! | `PRIMARY KEY (a) INCLUDE (b) WITH (c = 1)`, `UNIQUE ...` | one list, with marked names in it: see [`split_key`] |
//! | `REFERENCES t ON DELETE SET NULL (a)` | among the referenced columns: see [`split_referenced`] |
//! | `ON CONFLICT (lower(a)) WHERE b` | one marked name in the parentheses: see [`conflict_target`](super::conflict_target) |
//! | `WHERE CURRENT OF c` | a marked name: see [`current_of`](super::current_of) |
//! | `CREATE TABLE t (LIKE u INCLUDING ALL)` | a column with a marked name: see [`like`](super::like) |
//! | `text ARRAY`, `numeric(10,2) ARRAY`, `int ARRAY[4]` as types | `text[]`, `numeric(10,2)[]`, `int[4]` |
//! | `ALTER COLUMN a DROP EXPRESSION` | `SET DEFAULT` of a marked name: see [`dropped_expression`] |
//! | `ALTER COLUMN a DROP IDENTITY`, `RESTART`, ... | the same, with what was said: see [`alter_identity`](super::alter_identity) |
//! | options of COPY, `SET SCHEMA`, `WITHOUT OIDS` | see [`copy`] |
//! | `ALTER TABLE t DROP index, ADD partition int` | with COLUMN before the names |
//! | `ABORT` | `ROLLBACK` |
//! | `RESET TIME ZONE` | `RESET TimeZone` |
//! | `GROUP BY DISTINCT x`, `GROUP BY ALL x` | a marked name before `x`; without `ALL` |
//! | `(... ROWS n PRECEDING EXCLUDE TIES)` | a marked name at the beginning of the window: see [`exclusion_of`] |
//! | `RANGE '1 day'::interval PRECEDING` | the string in parentheses |
//! | `FROM ROWS FROM (f(a), g(b))` | a call of a marked name ([`ROWS_FROM`]) |
//! | `FROM current_date`, `FROM coalesce(a, b)`, `FROM f(1) AS (a int)` | see [`from_item`] |
//! | `FROM json_to_record(a) AS (b int)` | `FROM json_to_record(a) AS json_to_record (b int)` |
//! | `f(a, VARIADIC b)` | an argument with a marked name ([`VARIADIC`](super::VARIADIC)) |
//! | `(record).*` | a field with a marked name ([`ALL_FIELDS`](super::ALL_FIELDS)) |
//! | `t.*::text`, `t.* IS NULL` | `(t.*)::text`, `(t.*) IS NULL`: see [`row_operand`](super::row_operand) |

mod collate;
mod copy;
mod expression;
mod fetch;
mod forms;
mod from_item;
mod identity;
mod include;
mod insert_source;
mod lock;
mod nested_join;
mod new_table;
mod operator;
mod rows_from;
mod set_columns;
mod spread;
mod table;
mod tablespace;
mod text_calls;
mod whole_table;
mod window;
pub(super) mod words;

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Span, Token, TokenWithSpan, Word};

pub(crate) use collate::split_collated;
pub(crate) use copy::{HEADER_MATCH, NO_CHARACTER};
pub(crate) use expression::dropped_expression;
pub(crate) use identity::sequence_name_of;
pub(crate) use include::{KeyLists, split_key};
pub(crate) use new_table::executed_by;
pub(crate) use set_columns::split_referenced;
pub(crate) use tablespace::known_tablespace;
pub(crate) use window::exclusion_of;

use super::like::Like;
use super::{ALL_FIELDS, KEY_MARK, Notes, Overriding, is_line_break};
use crate::error::Result;
use crate::identifier::fold_word;

/// The upper-case word of an unquoted word token; empty for anything else.
fn word(token: Option<&TokenWithSpan>) -> &str {
    match token.map(|token| &token.token) {
        Some(Token::Word(word)) if word.quote_style.is_none() => &word.value,
        _ => "",
    }
}

/// Whether a token is this word, without quotes and in any case.
pub(super) fn is(token: Option<&TokenWithSpan>, expected: &str) -> bool {
    word(token).eq_ignore_ascii_case(expected)
}

fn make(keyword: &str, span: Span) -> TokenWithSpan {
    TokenWithSpan { token: Token::make_keyword(keyword), span }
}

/// The place of the innermost parenthesis that is open behind these tokens.
fn innermost_open(tokens: &[TokenWithSpan]) -> Option<usize> {
    let mut depth = 0;
    tokens.iter().rposition(|token| {
        match token.token {
            Token::RParen => depth += 1,
            Token::LParen if depth == 0 => return true,
            Token::LParen => depth -= 1,
            _ => {}
        }
        false
    })
}

/// Drops white space; joins string literals that only a line break separates; makes names of other
/// systems' words.
fn compact(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut out: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut line_break = false;
    for mut token in tokens {
        if matches!(token.token, Token::Whitespace(_)) {
            line_break |= is_line_break(&token.token);
            continue;
        }
        if let Token::Word(word) = &mut token.token {
            words::unreserve(word, &out);
        }
        if line_break
            && let Token::SingleQuotedString(more) = &token.token
            && let Some(TokenWithSpan {
                token: Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text),
                ..
            }) = out.last_mut()
        {
            text.push_str(more);
        } else if token.token == Token::Mul
            && let [.., before, dot] = out.as_slice()
            && (&before.token, &dot.token) == (&Token::RParen, &Token::Period)
        {
            let all = Word { value: ALL_FIELDS.into(), quote_style: Some('"'), keyword: Keyword::NoKeyword };
            out.push(TokenWithSpan { token: Token::Word(all), ..token });
        } else if token.token != Token::Mul || !whole_table::ends_table(&out) {
            out.push(token);
        }
        line_break = false;
    }
    out
}

/// One pass over a statement's tokens.
pub(super) fn rewrite(tokens: Vec<TokenWithSpan>, notes: &mut Notes) -> Result<Vec<TokenWithSpan>> {
    let tokens = super::element::rewrite(insert_source::rewrite(from_item::rewrite(compact(tokens))));
    let tokens = super::conflict_target::rewrite(tokens);
    let tokens = super::row_operand::rewrite(super::current_of::rewrite(tokens));
    if !forms::is_of_pass(&tokens) && !tokens.iter().any(needs_rewriting) {
        return Ok(nested_join::rewrite(tokens));
    }
    let first = word(tokens.first()).to_ascii_uppercase();
    let (out, tail) = (Vec::with_capacity(tokens.len()), Vec::new());
    let mut pass = Pass { tokens: &tokens, at: 0, out, tail, first, notes };
    while pass.at < pass.tokens.len() {
        pass.step()?;
    }
    pass.out.append(&mut pass.tail);
    Ok(nested_join::rewrite(pass.out))
}

/// Whether one of the patterns may begin here.
fn needs_rewriting(token: &TokenWithSpan) -> bool {
    let Token::Word(word) = &token.token else { return false };
    if word.quote_style.is_some() {
        return false;
    }
    if word.keyword == Keyword::NoKeyword {
        let words = ["ISNULL", "OVERRIDING"];
        return words.iter().any(|known| word.value.eq_ignore_ascii_case(known))
            || rows_from::gives_records(&word.value);
    }
    matches!(
        word.keyword,
        Keyword::COLLATE
            | Keyword::MERGE
            | Keyword::FOR
            | Keyword::BOTH
            | Keyword::LEADING
            | Keyword::TRAILING
            | Keyword::ONLY
            | Keyword::USING
            | Keyword::TABLE
            | Keyword::UNLOGGED
            | Keyword::CONCURRENTLY
            | Keyword::DEFERRABLE
            | Keyword::FREEZE
            | Keyword::ENCODING
            | Keyword::INHERIT
            | Keyword::ENFORCED
            | Keyword::DEFERRED
            | Keyword::INCLUDE
            | Keyword::VALID
            | Keyword::HEADER
            | Keyword::FORCE_QUOTE
            | Keyword::FORCE
            | Keyword::SCHEMA
            | Keyword::IDENTITY
            | Keyword::LIKE
            | Keyword::ILIKE
            | Keyword::SIMILAR
            | Keyword::RECURSIVE
            | Keyword::ABORT
            | Keyword::ARRAY
            | Keyword::RESET
            | Keyword::GROUP
            | Keyword::EXCLUDE
            | Keyword::PRECEDING
            | Keyword::FOLLOWING
            | Keyword::OPERATOR
            | Keyword::CEIL
            | Keyword::FLOOR
            | Keyword::SUBSTR
            | Keyword::SUBSTRING
            | Keyword::VARIADIC
            | Keyword::ROWS
            | Keyword::FETCH
            | Keyword::BINARY
            | Keyword::TRIM
            | Keyword::NATIONAL
            | Keyword::NCHAR
            | Keyword::LOCAL
    )
}

/// Names of types behind which no expression can begin.
const ELEMENT_TYPES: [&str; 20] = [
    "INT", "INTEGER", "INT2", "INT4", "INT8", "SMALLINT", "BIGINT", "TEXT", "VARCHAR", "NUMERIC", "REAL",
    "FLOAT4", "FLOAT8", "BOOLEAN", "BOOL", "UUID", "DATE", "BYTEA", "JSON", "JSONB",
];

/// Begins the list of a GROUP BY DISTINCT: the parser has no place for the word.
pub(crate) const DISTINCT_SETS: &str = "\u{1}distinct";

/// Names the call that stands for ROWS FROM, whose arguments are the functions.
pub(crate) const ROWS_FROM: &str = "\u{1}rows from";

/// The parts of the dotted name that the tokens begin with, in small letters unless quoted, and how
/// many tokens it has.
fn dotted(tokens: &[TokenWithSpan]) -> (Vec<String>, usize) {
    let mut parts = vec![];
    let mut length = 0;
    while let Some(Token::Word(word)) = tokens.get(length).map(|token| &token.token) {
        parts.push(fold_word(word));
        length += 1;
        if !matches!(tokens.get(length).map(|token| &token.token), Some(Token::Period)) {
            break;
        }
        length += 1;
    }
    (parts, length)
}

struct Pass<'a> {
    tokens: &'a [TokenWithSpan],
    at: usize,
    out: Vec<TokenWithSpan>,
    /// What comes behind everything else.
    tail: Vec<TokenWithSpan>,
    /// First word of the statement.
    first: String,
    notes: &'a mut Notes,
}

impl<'a> Pass<'a> {
    fn peek(&self, ahead: usize) -> Option<&'a TokenWithSpan> {
        self.tokens.get(self.at + ahead)
    }

    fn is(&self, ahead: usize, expected: &str) -> bool {
        is(self.peek(ahead), expected)
    }

    fn after(&self, words: &[&str]) -> bool {
        words.iter().any(|expected| is(self.out.last(), expected))
    }

    /// Whether UNLOGGED stands where it can: nothing may come between it and what is made.
    fn makes_unlogged(&self) -> bool {
        self.after(&["CREATE"]) && (self.is(1, "TABLE") || self.is(1, "SEQUENCE"))
    }

    fn copy(&mut self) {
        self.out.push(self.tokens[self.at].clone());
        self.at += 1;
    }

    fn step(&mut self) -> Result<()> {
        let span = self.tokens[self.at].span;
        let upper = word(self.peek(0)).to_ascii_uppercase();
        match upper.as_str() {
            _ if self.other_form(&upper, span)? => {}
            "ISNULL" if !self.after(&["AS"]) && !self.after_period() => self.null_test(span),
            "COLLATE" => self.collate()?,
            "FOR" => self.lock_clause(),
            "ONLY" if self.names_table() => self.only_table(),
            "USING" => self.using_operator()?,
            "TABLE" if self.names_only() => self.typed_names(),
            "TABLE" => self.table_query(),
            "UNLOGGED" if self.makes_unlogged() => self.at += 1,
            "CONCURRENTLY" if self.first == "DROP" && self.after(&["INDEX"]) => self.concurrently(),
            "DEFERRABLE" if matches!(self.first.as_str(), "BEGIN" | "START" | "SET") => self.deferrable(),
            "BINARY" if self.first == "COPY" && self.at == 1 => self.copy_binary(span),
            "FREEZE" | "ENCODING" if self.begins_old_option() => self.old_option(span),
            option if self.first == "COPY" && copy::is_option(option) => self.copy_option()?,
            "SCHEMA" | "WITHOUT" if self.respells(span) => {}
            "INCLUDE" if self.include(span)? => {}
            "ARRAY" if self.ends_type() => self.array_type(span),
            "DROP" if self.drops_expression() => self.drop_expression(span),
            "DROP" | "SET" | "RESTART" if self.alters_identity() => self.alter_identity(span),
            "INDEX" | "PARTITION" if self.changes_column() => self.column_name(span),
            "ABORT" if self.at == 0 => self.put("ROLLBACK", span),
            "OPERATOR" => self.quantified_operator(),
            "CEIL" | "FLOOR" | "SUBSTR" | "SUBSTRING" if self.after_period() => self.qualified_function(),
            "RESET" if self.at == 0 && self.is(1, "TIME") && self.is(2, "ZONE") => self.reset_zone(span),
            "IDENTITY" if matches!(self.peek(1).map(|token| &token.token), Some(Token::LParen)) => {
                self.identity_options();
            }
            "LIKE" | "ILIKE" if self.quantifies() => self.quantified_like(span),
            "RECURSIVE" if self.is(1, "VIEW") && self.begins_view() => self.recursive_view(span),
            "SIMILAR" if !self.is(1, "TO") => self.similar_substring(span),
            "LIKE" if self.first == "CREATE" && self.begins_column() => self.like(),
            "DISTINCT" if self.after(&["BY"]) && self.after_group() => self.distinct_sets(span),
            "ALL" if self.after(&["BY"]) && self.after_group() => self.at += 1,
            "ROWS" if self.begins_functions() => self.rows_from(span),
            "AS" if self.begins_record_columns() => self.record_columns(),
            "EXECUTE" if self.makes_of_execute() => self.execute(span),
            "FETCH" if self.at > 0 => self.fetch_first(span),
            "ROWS" | "RANGE" | "GROUPS" => {
                self.copy();
                if self.is(0, "BETWEEN") {
                    self.copy();
                }
                self.frame_offset();
            }
            "AND" if self.after(&["PRECEDING", "FOLLOWING", "ROW"]) => {
                self.copy();
                self.frame_offset();
            }
            "EXCLUDE" => self.exclusion(),
            "VARIADIC" if self.begins_spread() => self.spread(span),
            "NO" | "NOT" | "ENFORCED" | "DEFERRABLE" | "INITIALLY" if self.behind_check(span)? => {}
            "WITH" if self.says_data() => self.with_data(),
            "WITH" if self.key_options(span) || self.bare_options(span) => {}
            "NULL" | "DEFAULT" if self.set_columns(span)? => {}
            "OVERRIDING" => self.overriding(),
            "MERGE" if self.is(1, "INTO") && !self.out.is_empty() => {
                super::merge::check_place(&self.out)?;
                self.copy();
            }
            _ => self.copy(),
        }
        Ok(())
    }

    /// Whether the word ARRAY stands behind a type: there is a name or a parenthesis before it, and
    /// neither elements nor a query behind it.
    fn ends_type(&self) -> bool {
        let is_behind = match self.out.last().map(|token| &token.token) {
            Some(Token::Word(_)) => !self.after(&["AS"]),
            Some(Token::RParen) => true,
            _ => false,
        };
        match self.peek(1).map(|token| &token.token) {
            // Elements, unless what is before can only be a type: then it is a length.
            Some(Token::LBracket) => self.after(&ELEMENT_TYPES),
            Some(Token::LParen) => false,
            _ => is_behind,
        }
    }

    fn array_type(&mut self, span: Span) {
        self.at += 1;
        if !matches!(self.peek(0).map(|token| &token.token), Some(Token::LBracket)) {
            let brackets = [Token::LBracket, Token::RBracket];
            self.out.extend(brackets.map(|token| TokenWithSpan { token, span }));
        }
    }

    /// ISNULL as a test of a value: behind a period and AS it is a name.
    fn null_test(&mut self, span: Span) {
        self.out.extend([make("IS", span), make("NULL", span)]);
        self.at += 1;
    }

    /// A column's name with COLUMN before it: alone it would begin something else.
    fn column_name(&mut self, span: Span) {
        self.out.push(make("COLUMN", span));
        self.copy();
    }

    /// Whether the word is the name of a column that ALTER TABLE adds or drops.
    fn changes_column(&self) -> bool {
        let behind = self.peek(1).map(|token| &token.token);
        let how = ["CASCADE", "RESTRICT"].iter().any(|word| self.is(1, word));
        let ends = how || matches!(behind, None | Some(Token::Comma));
        let is_dropped = self.after(&["DROP"]) && ends;
        let is_added = self.after(&["ADD"]) && matches!(behind, Some(Token::Word(_)));
        self.first == "ALTER" && is(self.tokens.get(1), "TABLE") && (is_dropped || is_added)
    }

    fn after_period(&self) -> bool {
        matches!(self.out.last().map(|token| &token.token), Some(Token::Period))
    }

    /// The word DISTINCT of GROUP BY, as the first item of the list.
    fn distinct_sets(&mut self, span: Span) {
        let value = DISTINCT_SETS.to_owned();
        let marked = Word { value, quote_style: Some('"'), keyword: Keyword::NoKeyword };
        self.out.push(TokenWithSpan { token: Token::Word(marked), span });
        self.out.push(TokenWithSpan { token: Token::Comma, span });
        self.at += 1;
    }

    /// Whether what was copied last is GROUP BY.
    fn after_group(&self) -> bool {
        let before = self.out.len().checked_sub(2).and_then(|at| self.out.get(at));
        is(before, "GROUP")
    }

    /// Whether the open parenthesis before is a call's.
    fn after_function(&self) -> bool {
        let before = self.out.len().checked_sub(2).and_then(|at| self.out.get(at));
        matches!(before.map(|token| &token.token), Some(Token::Word(word)) if word.keyword == Keyword::NoKeyword)
    }

    fn concurrently(&mut self) {
        self.notes.concurrently = true;
        self.at += 1;
    }

    fn deferrable(&mut self) {
        let negated = self.after(&["NOT"]);
        if negated {
            self.out.pop();
        }
        self.notes.deferrable = Some(!negated);
        if matches!(self.out.last().map(|token| &token.token), Some(Token::Comma)) {
            self.out.pop();
        }
        self.at += 1;
        // A mode before a comma that follows goes with it if it was the first one.
        let began = self.after(&["BEGIN", "TRANSACTION", "WORK"]);
        if began && matches!(self.peek(0).map(|token| &token.token), Some(Token::Comma)) {
            self.at += 1;
        }
    }

    /// Whether a column's definition may begin here.
    fn begins_column(&self) -> bool {
        let table = ["TABLE", "EXISTS"].iter().any(|word| {
            let before = |token: &TokenWithSpan| is(Some(token), word);
            self.out.iter().take(6).any(before)
        });
        let last = self.out.last().map(|token| &token.token);
        table && matches!(last, Some(Token::LParen | Token::Comma))
    }

    /// `LIKE table` with its options, among the columns of CREATE TABLE.
    fn like(&mut self) {
        let span = self.tokens[self.at].span;
        let (table, length) = dotted(&self.tokens[self.at + 1..]);
        let mut like = Like { table, ..Like::default() };
        let mut ahead = 1 + length;
        while self.is(ahead, "INCLUDING") || self.is(ahead, "EXCLUDING") {
            if !like.choose(word(self.peek(ahead + 1)), self.is(ahead, "INCLUDING")) {
                return self.copy();
            }
            ahead += 2;
        }
        if like.table.is_empty() {
            return self.copy();
        }
        let marked = Word { value: like.written(), quote_style: Some('"'), keyword: Keyword::NoKeyword };
        self.out.push(TokenWithSpan { token: Token::Word(marked), span });
        self.out.push(make("INTEGER", span));
        self.at += ahead;
    }

    fn overriding(&mut self) {
        let kind = if self.is(1, "SYSTEM") {
            Overriding::SystemValue
        } else if self.is(1, "USER") {
            Overriding::UserValue
        } else {
            return self.copy();
        };
        if !self.is(2, "VALUE") {
            return self.copy();
        }
        let Some(insert) = self.out.iter().rev().find(|token| is(Some(token), "INSERT")) else {
            return self.copy();
        };
        self.notes.overriding.push((insert.span.start, kind));
        self.at += 3;
    }
}
