//! Rows of plain literals in long lists behind VALUES, which stay text.
//!
//! A token and its part of a syntax tree take a hundred times the memory of the text they were made
//! of, so a long list of rows is not read as a whole. [`survey`] finds runs of rows that consist of
//! plain literals (numbers, texts, NULL, truth values). The parser sees a [mark](mark) in the place
//! of each run; whoever binds the list gets the run back by [`marked`] and reads it row by row with
//! a [`Reader`]. The first row, and every row that is anything else, goes through the parser.
//!
//! ```text
//! INSERT INTO t VALUES (1, 'a'), (2, 'b'), ... (999, 'z'), (1 + 1, 'c')
//! is parsed as         (1, 'a'), ("\u{1}rows 29 990 998 2"), (1 + 1, 'c')
//! ```
//!
//! A run is written down as a place in the statement's source, which the binder has. So marks are
//! only made in statements that are bound with their source at hand: those that begin with one of
//! [`STATEMENTS`]. A mark that somebody else wrote is harmless: what is at its place is read as
//! rows or not at all.

use std::borrow::Cow;

use sqlparser::ast;
use sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan, Word};

use super::operator::{is_name, opaque};

/// Shorter runs are left to the parser.
const RUN_BYTES: usize = 2048;
/// More blanks in a row are left out.
const BLANK_BYTES: usize = 256;
/// Statements in which rows stay text.
const STATEMENTS: [&str; 4] = ["INSERT", "VALUES", "SELECT", "WITH"];
/// What a statement takes beside its tokens, in tokens.
const STATEMENT_TOKENS: usize = 16;
/// Begins the name in a run's place.
const MARK: &str = "\u{1}rows";

/// A plain literal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Literal<'a> {
    Null,
    Bool(bool),
    /// Digits, perhaps with a sign, a point and an exponent.
    Number(&'a str),
    /// What is between the quotation marks.
    Text(Cow<'a, str>),
}

/// Rows of literals that follow each other, each with the comma before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Byte offsets in the source.
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// How many rows.
    pub(crate) rows: usize,
    /// Literals in each.
    pub(crate) width: usize,
}

/// What a text consists of.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// What the tokenizer is not to see: rows, and, without a width, blanks.
    pub(super) runs: Vec<Run>,
    /// A bound on the tokens beside the runs.
    pub(super) tokens: usize,
}

fn is_white(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn skip_white(bytes: &[u8], at: usize) -> usize {
    at + bytes[at..].iter().take_while(|&&byte| is_white(byte)).count()
}

fn count_digits(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// The end of the plain number that begins here.
fn number(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start + usize::from(bytes.get(start) == Some(&b'-'));
    let digits = count_digits(bytes, at);
    at += digits;
    if bytes.get(at) == Some(&b'.') {
        let fraction = count_digits(bytes, at + 1);
        at += if fraction == 0 { return None } else { fraction + 1 };
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
        let exponent = count_digits(bytes, at + 1 + sign);
        at += if exponent == 0 { return None } else { 1 + sign + exponent };
    }
    (digits > 0).then_some(at)
}

/// The text literal that begins here, and its end.
fn quoted(text: &str, start: usize) -> Option<(Literal<'_>, usize)> {
    let inside = text.get(start + 1..)?;
    let (mut at, mut doubled) = (0, false);
    loop {
        at += inside.as_bytes()[at..].iter().position(|&byte| byte == b'\'')?;
        if inside.as_bytes().get(at + 1) != Some(&b'\'') {
            break;
        }
        doubled = true;
        at += 2;
    }
    let found = &inside[..at];
    let value = if doubled { Cow::Owned(found.replace("''", "'")) } else { Cow::Borrowed(found) };
    Some((Literal::Text(value), start + 1 + at + 1))
}

/// The literal that begins here, and its end.
fn literal(text: &str, start: usize) -> Option<(Literal<'_>, usize)> {
    let bytes = text.as_bytes();
    match bytes.get(start)? {
        b'\'' => quoted(text, start),
        b'-' | b'0'..=b'9' => {
            let end = number(bytes, start)?;
            Some((Literal::Number(&text[start..end]), end))
        }
        _ => {
            let end = start + bytes[start..].iter().take_while(|&&byte| is_name(byte)).count();
            let word = &bytes[start..end];
            let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            let value = match () {
                () if is("null") => Literal::Null,
                () if is("true") => Literal::Bool(true),
                () if is("false") => Literal::Bool(false),
                () => return None,
            };
            Some((value, end))
        }
    }
}

/// Gives `take` the literals of the row whose comma begins here, and returns the row's end; none if
/// it is no such row.
fn row<'a>(text: &'a str, start: usize, mut take: impl FnMut(Literal<'a>)) -> Option<usize> {
    let bytes = text.as_bytes();
    let mark = |at: usize, expected: u8| (bytes.get(at) == Some(&expected)).then_some(at + 1);
    let mut at = mark(skip_white(bytes, start), b',')?;
    at = mark(skip_white(bytes, at), b'(')?;
    loop {
        let (value, end) = literal(text, skip_white(bytes, at))?;
        take(value);
        at = skip_white(bytes, end);
        match bytes.get(at)? {
            b',' => at += 1,
            b')' => return Some(at + 1),
            _ => return None,
        }
    }
}

/// The rows of one width that follow from here on.
fn run(text: &str, start: usize) -> Run {
    let mut run = Run { start, end: start, rows: 0, width: 0 };
    loop {
        let mut width = 0;
        match row(text, run.end, |_| width += 1) {
            Some(end) if run.rows == 0 || width == run.width => {
                run = Run { end, rows: run.rows + 1, width, ..run };
            }
            _ => return run,
        }
    }
}

/// Goes through a text once, as the tokenizer will.
struct Walk {
    at: usize,
    /// Brackets that are open.
    depth: usize,
    /// A statement begins here.
    begins: bool,
    /// Rows of this statement may stay text.
    fits: bool,
    /// Brackets open around the list behind VALUES that it is in.
    list: Option<usize>,
    /// Nothing before this is a run.
    tried: usize,
    survey: Survey,
}

/// Finds runs of literal rows, and counts what else there is.
pub(super) fn survey(text: &str) -> Survey {
    let bytes = text.as_bytes();
    let survey = Survey::default();
    let mut walk = Walk { at: 0, depth: 0, begins: true, fits: false, list: None, tried: 0, survey };
    while let Some(&byte) = bytes.get(walk.at) {
        walk.survey.tokens += 1;
        if let Some(length) = opaque(bytes, walk.at) {
            walk.at += length;
        } else if is_white(byte) {
            walk.blanks(bytes);
        } else if is_name(byte) {
            walk.word(text);
        } else {
            walk.at += 1;
            walk.sign(text, byte);
        }
    }
    walk.survey
}

impl Walk {
    /// Each blank is a token, so of many in a row only one is kept: the first line break, which
    /// joins texts.
    fn blanks(&mut self, bytes: &[u8]) {
        let (start, end) = (self.at, skip_white(bytes, self.at));
        let kept = bytes[start..end].iter().position(|&byte| byte == b'\n').unwrap_or(0) + 1;
        self.at = end;
        if end - start - kept >= BLANK_BYTES {
            self.survey.tokens += kept;
            self.survey.runs.push(Run { start: start + kept, end, rows: 0, width: 0 });
        } else {
            self.survey.tokens += end - start;
        }
    }

    fn word(&mut self, text: &str) {
        let rest = &text.as_bytes()[self.at..];
        let word = &rest[..rest.iter().take_while(|&&byte| is_name(byte)).count()];
        self.at += word.len();
        if std::mem::take(&mut self.begins) {
            self.fits = STATEMENTS.iter().any(|known| word.eq_ignore_ascii_case(known.as_bytes()));
        }
        if self.fits && word.eq_ignore_ascii_case(b"VALUES") {
            self.list = Some(self.depth);
        } else if self.list == Some(self.depth) {
            self.list = None;
        }
    }

    /// A sign was passed.
    fn sign(&mut self, text: &str, sign: u8) {
        match sign {
            b'(' => self.depth += 1,
            b')' => {
                self.depth = self.depth.saturating_sub(1);
                if self.list == Some(self.depth) && self.at >= self.tried {
                    let run = run(text, self.at);
                    self.tried = run.end;
                    if run.end - run.start >= RUN_BYTES {
                        self.at = run.end;
                        self.survey.runs.push(run);
                    }
                } else if self.list.is_some_and(|depth| depth > self.depth) {
                    self.list = None;
                }
            }
            // A value may be for a part of a column then.
            b'[' if self.list.is_none() => self.fits = false,
            b';' if self.depth == 0 => {
                self.survey.tokens += STATEMENT_TOKENS;
                (self.begins, self.fits, self.list) = (true, false, None);
            }
            _ => {}
        }
    }
}

/// The tokens in the place of a run that lies between these locations.
pub(super) fn mark(run: &Run, start: Location, end: Location) -> [TokenWithSpan; 4] {
    let value = format!("{MARK} {} {} {} {}", run.start, run.end, run.rows, run.width);
    let word = Word { value, quote_style: Some('"'), keyword: sqlparser::keywords::Keyword::NoKeyword };
    let at = |token, end| TokenWithSpan { token, span: Span { start, end } };
    [at(Token::Comma, start), at(Token::LParen, start), at(Token::Word(word), start), at(Token::RParen, end)]
}

/// The run that a row of a list behind VALUES stands for, if it stands for one.
pub(crate) fn marked(row: &[ast::Expr]) -> Option<Run> {
    let [ast::Expr::Identifier(name)] = row else { return None };
    let mut numbers = name.value.strip_prefix(MARK)?.split_ascii_whitespace().map(str::parse);
    let mut next = || numbers.next()?.ok();
    Some(Run { start: next()?, end: next()?, rows: next()?, width: next()? })
}

/// Reads a run row by row.
pub(crate) struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(source: &'a str, run: Run) -> Reader<'a> {
        Reader { rest: source.get(run.start..run.end).unwrap_or_default() }
    }

    /// Puts the next row's literals in the place of what is in `into`. False at the end.
    pub(crate) fn next_row(&mut self, into: &mut Vec<Literal<'a>>) -> bool {
        into.clear();
        let end = row(self.rest, 0, |literal| into.push(literal));
        self.rest = end.map_or("", |end| &self.rest[end..]);
        end.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::{Literal, RUN_BYTES, Reader, survey};

    /// So many rows, each with its comma.
    fn rows(row: &str) -> String {
        format!(", {row}").repeat(RUN_BYTES / row.len())
    }

    #[test]
    fn runs_are_found_where_values_are_listed_and_nowhere_else() {
        let plain = rows("(1, 'a''b')");
        for (before, after, found) in [
            ("INSERT INTO t VALUES (1 + 1, f())", "", true),
            ("insert into t (a, b) values (1, 2)", " ON CONFLICT DO NOTHING", true),
            ("SELECT * FROM (VALUES (1, 'x')", ") v", true),
            ("SELECT 'VALUES (1)' AS \"VALUES\", (1)", "", false),
            ("SELECT 1 -- VALUES\n WHERE (1, 'a') IN ((1, 'a')", ")", false),
            ("CREATE VIEW v AS VALUES (1, 'x')", "", false),
            ("BEGIN; INSERT INTO t VALUES (1, 'x')", "; COMMIT", true),
            ("INSERT INTO t VALUES (1, ')')", ", (2, $$'$$)", true),
        ] {
            let text = format!("{before}{plain}{after}");
            let runs = survey(&text).runs;
            assert_eq!(runs.len(), usize::from(found), "{before}");
            for run in runs {
                assert_eq!((run.start, run.end), (before.len(), before.len() + plain.len()), "{before}");
                assert_eq!(run.width, 2);
            }
        }
    }

    #[test]
    fn a_row_that_is_not_plain_or_of_another_width_ends_a_run() {
        for odd in ["(1, 2)", "(now())", "(1 -- c\n)", "(E'a')", "('a' 'b')", "(1e)", "(.5)", "(- 1)", "()"] {
            let text = format!("VALUES (0){}, {odd}{}", rows("(12)"), rows("(34)"));
            assert_eq!(survey(&text).runs.len(), 2, "{odd}");
        }
        assert!(survey("VALUES (1), (2), (3)").runs.is_empty());
    }

    #[test]
    fn literals_are_read_as_they_are_meant() {
        let row = "( -1.5e-3 ,NULL,True, 'it''s \\ ü', 7)";
        let text = format!("VALUES (1,2,3,4,5){}", rows(row));
        let run = survey(&text).runs[0];
        let (mut reader, mut row, mut count) = (Reader::new(&text, run), Vec::new(), 0);
        while reader.next_row(&mut row) {
            let text = Literal::Text("it's \\ ü".into());
            let number = Literal::Number;
            assert_eq!(row, [number("-1.5e-3"), Literal::Null, Literal::Bool(true), text, number("7")]);
            count += 1;
        }
        assert_eq!(count, run.rows);
    }

    #[test]
    fn of_many_blanks_one_is_kept() {
        let text = format!("SELECT 'a'{}\n{}'b'", " ".repeat(300), "\t".repeat(5000));
        let super::Survey { runs, tokens } = survey(&text);
        assert_eq!((runs[0].start, runs[0].end, runs.len()), (311, 5311, 1));
        assert!(tokens < 400);
    }

    #[test]
    fn tokens_are_counted_from_above() {
        use sqlparser::tokenizer::Tokenizer;
        for text in
            ["SELECT a+b , 'x''y', 1.5e3 -- c\n FROM \"t\" WHERE x <> ALL($1)", "", "a.b.c::int[][1:2]"]
        {
            let dialect = sqlparser::dialect::PostgreSqlDialect {};
            let tokens = Tokenizer::new(&dialect, text).tokenize().expect("tokens").len();
            assert!(survey(text).tokens >= tokens, "{text}");
        }
    }
}
