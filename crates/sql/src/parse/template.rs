//! A statement with its literals taken out: the same text for all statements that differ in their
//! values only, so that a plan of one is a plan of all.
//!
//! Taken out is what certainly means the same as a parameter, and nothing else; of a statement in
//! which a literal may say more than a value (GROUP BY, ORDER BY, ON CONFLICT and others), nothing
//! is.
//!
//! | literal | where | the parameter's type |
//! |---|---|---|
//! | integer of up to nine digits | compared with what ends in a name or `)`, or in VALUES | inferred, and has to be that of a number |
//! | the same | added, subtracted, multiplied, divided so | `int4`, as the literal's |
//! | string `'…'` | compared or assigned, or in VALUES of one row | inferred, as the literal's |
//!
//! ```text
//! UPDATE t SET v = v + 1, w = 'it''s' WHERE k = 17
//! UPDATE t SET v = v + $1, w = $2 WHERE k = $3          1: int4, it's, 17: a number
//! ```
//!
//! Whoever uses it plans the text, looks at the inferred types ([`Template::fits`]), and reads the
//! values; if any of that fails, the statement goes on as it was written, and its error is its own.

use super::lexeme::{Kind, Lexeme, Lexemes};
use crate::types::{Type, TypeId};

/// Statements with more literals stay as they are.
const VALUES_MAX: usize = 64;
/// So do longer ones.
const BYTES_MAX: usize = 4096;
const INT4: u32 = 23;

/// Words by which a literal may say more than a value.
const NOT_WITH: [&str; 19] = [
    "group",
    "order",
    "distinct",
    "having",
    "union",
    "intersect",
    "except",
    "limit",
    "offset",
    "fetch",
    "with",
    "over",
    "window",
    "conflict",
    "explain",
    "interval",
    "extract",
    "lateral",
    "grouping",
];
/// What may follow a literal, besides the end and what joins it to others.
const BEHIND: [&str; 6] = ["and", "or", "where", "returning", "from", "then"];
const COMPARISONS: [&str; 7] = ["=", "<", ">", "<=", ">=", "<>", "!="];
const ARITHMETIC: [&str; 4] = ["+", "-", "*", "/"];

/// See the module's prose.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Template {
    /// The text, with parameters.
    pub(crate) text: String,
    /// The declared types of the parameters; 0 to be inferred.
    pub(crate) types: Vec<u32>,
    /// Their values, as texts.
    pub(crate) values: Vec<String>,
    /// Those that are numbers.
    numbers: Vec<bool>,
}

impl Template {
    /// Of the text of one statement that has no parameters.
    pub(crate) fn of(text: &str) -> Option<Template> {
        if text.len() > BYTES_MAX {
            return None;
        }
        let pieces: Vec<Lexeme<'_>> = Lexemes::new(text).collect();
        let first = pieces.first().filter(|piece| piece.kind == Kind::Word)?;
        let is_insert = first.text.eq_ignore_ascii_case("insert");
        let is_known =
            ["select", "update", "delete"].iter().any(|word| first.text.eq_ignore_ascii_case(word));
        let is_kept = |piece: &Lexeme<'_>| match piece.kind {
            Kind::Word => NOT_WITH.iter().any(|word| piece.text.eq_ignore_ascii_case(word)),
            Kind::Literal => piece.text.starts_with('$'),
            _ => false,
        };
        if !(is_insert || is_known) || pieces.iter().any(is_kept) {
            return None;
        }
        let rows = if is_insert { Rows::of(&pieces) } else { Rows::default() };
        let mut template = Template {
            text: String::with_capacity(text.len() + 16),
            types: Vec::new(),
            values: Vec::new(),
            numbers: Vec::new(),
        };
        let (mut depth, base) = (0_usize, text.as_ptr() as usize);
        let mut copied = 0;
        for (at, piece) in pieces.iter().enumerate() {
            match piece.text {
                "(" => depth += 1,
                ")" => depth = depth.saturating_sub(1),
                _ => {}
            }
            if piece.kind != Kind::Literal {
                continue;
            }
            let Some((ty, value, is_number)) = parameter(&pieces, at, depth, &rows) else { continue };
            if template.values.len() == VALUES_MAX {
                return None;
            }
            let begin = piece.text.as_ptr() as usize - base;
            template.text.push_str(&text[copied..begin]);
            template.text.push_str(&format!("${}", template.values.len() + 1));
            copied = begin + piece.text.len();
            template.types.push(ty);
            template.values.push(value);
            template.numbers.push(is_number);
        }
        template.text.push_str(&text[copied..]);
        Some(template)
    }

    /// Whether what was inferred for the parameters is what their literals are.
    pub(crate) fn fits(&self, inferred: &[Type]) -> bool {
        const NUMBERS: [TypeId; 6] =
            [TypeId::Int2, TypeId::Int4, TypeId::Int8, TypeId::Numeric, TypeId::Float4, TypeId::Float8];
        let fits = |(ty, is_number): (&Type, &bool)| !is_number || NUMBERS.contains(&ty.id);
        inferred.len() == self.values.len() && inferred.iter().zip(&self.numbers).all(fits)
    }
}

/// Where the rows of INSERT are.
#[derive(Default)]
struct Rows {
    /// The piece VALUES.
    values: Option<usize>,
    /// The piece behind the last row: what a call in RETURNING is given is no value of a row.
    end: usize,
    is_single: bool,
}

impl Rows {
    fn of(pieces: &[Lexeme<'_>]) -> Rows {
        let is_values =
            |piece: &Lexeme<'_>| piece.kind == Kind::Word && piece.text.eq_ignore_ascii_case("values");
        let Some(values) = pieces.iter().position(is_values) else { return Rows::default() };
        let (mut depth, mut rows, mut end) = (0_usize, 0, pieces.len());
        for (at, piece) in pieces.iter().enumerate().skip(values + 1) {
            match piece.text {
                "(" => {
                    rows += usize::from(depth == 0);
                    depth += 1;
                }
                ")" => depth = depth.saturating_sub(1),
                "," => {}
                _ if depth == 0 => {
                    end = at;
                    break;
                }
                _ => {}
            }
        }
        Rows { values: Some(values), end, is_single: rows == 1 }
    }
}

/// The parameter that a literal can be: its declared type, its value, and whether it is a number.
fn parameter(pieces: &[Lexeme<'_>], at: usize, depth: usize, rows: &Rows) -> Option<(u32, String, bool)> {
    let literal = pieces[at].text;
    let is_word = |piece: &Lexeme<'_>, words: &[&str]| {
        piece.kind == Kind::Word && words.iter().any(|word| piece.text.eq_ignore_ascii_case(word))
    };
    let (before, next) = (pieces[..at].last()?, pieces.get(at + 1));
    let ends = next.is_none_or(|next| matches!(next.text, ";" | ")" | ",") || is_word(next, &BEHIND));
    let goes_on =
        next.is_some_and(|next| ARITHMETIC.contains(&next.text) || COMPARISONS.contains(&next.text));
    let in_values = rows.values.is_some_and(|values| (values..rows.end).contains(&at))
        && depth == 1
        && matches!(before.text, "(" | ",")
        && next.is_some_and(|next| matches!(next.text, ")" | ","));
    // An operator with a left side, which is no literal.
    let left = at.checked_sub(2).map(|left| &pieces[left]);
    let is_joined =
        left.is_some_and(|left| matches!(left.kind, Kind::Word | Kind::Quoted) || left.text == ")");
    let is_compared = is_joined && COMPARISONS.contains(&before.text);
    let is_between = is_word(before, &["between"])
        || (is_word(before, &["and"])
            && at >= 4
            && pieces[at - 2].kind == Kind::Literal
            && is_word(&pieces[at - 3], &["between"]));
    let digits = literal.strip_prefix('-').unwrap_or(literal);
    if (1..=9).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let is_operand = is_joined && ARITHMETIC.contains(&before.text);
        return match (is_compared || is_between || in_values, is_operand) {
            (true, _) if ends || (in_values && !goes_on) => Some((0, literal.to_owned(), true)),
            (_, true) if ends || goes_on => Some((INT4, literal.to_owned(), true)),
            _ => None,
        };
    }
    let inner = literal.strip_prefix('\'')?.strip_suffix('\'').filter(|_| literal.len() >= 2)?;
    let stays = !(is_compared && ends || in_values && rows.is_single);
    if stays || inner.contains('\0') {
        return None;
    }
    Some((0, inner.replace("''", "'"), false))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> (String, Vec<(u32, String)>) {
        let template = Template::of(text).expect(text);
        (template.text, template.types.into_iter().zip(template.values).collect())
    }

    #[test]
    fn values_are_taken_out() {
        for (text, expected, values) in [
            (
                "UPDATE t SET v = v + 1, w = 'it''s' WHERE k = 17",
                "UPDATE t SET v = v + $1, w = $2 WHERE k = $3",
                &[(23, "1"), (0, "it's"), (0, "17")][..],
            ),
            (
                "delete from t where a>=-5 and (b)<>7;",
                "delete from t where a>=$1 and (b)<>$2;",
                &[(0, "-5"), (0, "7")],
            ),
            (
                "SELECT sum(v) FROM t WHERE k BETWEEN 5 AND 504",
                "SELECT sum(v) FROM t WHERE k BETWEEN $1 AND $2",
                &[(0, "5"), (0, "504")],
            ),
            (
                "INSERT INTO t VALUES (1, 'a', NULL, f(2))",
                "INSERT INTO t VALUES ($1, $2, NULL, f(2))",
                &[(0, "1"), (0, "a")],
            ),
            (
                "INSERT INTO t (a) VALUES (1, 'a'), (2, 'b')",
                "INSERT INTO t (a) VALUES ($1, 'a'), ($2, 'b')",
                &[(0, "1"), (0, "2")],
            ),
            (
                "INSERT INTO t VALUES (1, 'a') RETURNING abs(2), coalesce(b, 3)",
                "INSERT INTO t VALUES ($1, $2) RETURNING abs(2), coalesce(b, 3)",
                &[(0, "1"), (0, "a")],
            ),
            ("SELECT 1", "SELECT 1", &[]),
        ] {
            let values: Vec<(u32, String)> =
                values.iter().map(|(ty, value)| (*ty, (*value).to_owned())).collect();
            assert_eq!(of(text), (expected.to_owned(), values), "{text}");
        }
    }

    #[test]
    fn what_may_say_more_than_a_value_stays() {
        for text in [
            "SELECT a FROM t WHERE x = 1 GROUP BY a",
            "SELECT a + 1 FROM t ORDER BY 1",
            "SELECT a FROM t WHERE b = 1 LIMIT 1",
            "INSERT INTO t VALUES (1) ON CONFLICT (a) WHERE b = 1 DO NOTHING",
            "EXPLAIN SELECT 1",
            "CREATE TABLE t (a int CHECK (a > 1))",
            "SELECT $1 FROM t WHERE a = 1",
            "WITH x AS (SELECT 1) UPDATE t SET a = 1",
        ] {
            assert_eq!(Template::of(text), None, "{text}");
        }
        for text in [
            "SELECT numeric(10,2) '1.5'",
            "UPDATE t SET a = 1.5, b = 1e3, c = E'a', d = 12345678901",
            "SELECT a[1], round(b, 2), -1, 1 = 1, 'a' || b FROM t WHERE 1 = a",
            "UPDATE t SET a = '1'::date, b = 'a' 'b', c = 'x' COLLATE \"C\", d = 5::text",
            "UPDATE t SET j = j -> 1 WHERE j ->> 'a' IS NULL",
            "SELECT CASE a WHEN 1 THEN 2 END FROM t",
        ] {
            assert_eq!(of(text), (text.to_owned(), Vec::new()), "{text}");
        }
    }
}
