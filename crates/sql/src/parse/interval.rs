//! Literals of intervals: `INTERVAL 'text' [fields]`, `INTERVAL(digits) 'text'`.
//!
//! The crate reads any two fields and digits behind each of them, and fields that PostgreSQL does
//! not have. Here they are those of its grammar, which the crate knows in types:
//!
//! ```text
//! YEAR [TO MONTH]    MONTH    DAY [TO HOUR | MINUTE | SECOND]
//! HOUR [TO MINUTE | SECOND]   MINUTE [TO SECOND]   SECOND         SECOND with digits, or without
//! ```
//!
//! What follows the text otherwise is not the literal's: in `SELECT INTERVAL '1' week` a name.

use sqlparser::ast::{DataType, DateTimeField, Expr, Interval, TypedString};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

use super::dialect::is_word;

/// The literal of an interval that comes next.
pub(super) fn interval_literal(parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
    if !is_word(parser, 0, "INTERVAL") {
        return None;
    }
    if let Some(precision) = digits_before_text(parser) {
        // The crate reads `interval(p)` as a type, and then the literal without it.
        (0..4).for_each(|_| parser.advance_token());
        let data_type = DataType::Interval { fields: None, precision: Some(precision) };
        let literal = |value| Expr::TypedString(TypedString { data_type, value, uses_odbc_syntax: false });
        return Some(parser.parse_value().map(literal));
    }
    let is_literal = matches!(
        parser.peek_nth_token_ref(1).token,
        Token::SingleQuotedString(_) | Token::EscapedStringLiteral(_) | Token::DollarQuotedString(_)
    );
    is_literal.then(|| text_and_fields(parser))
}

/// The digits of `interval(p) 'text'`.
fn digits_before_text(parser: &Parser<'_>) -> Option<u64> {
    let token = |ahead: usize| &parser.peek_nth_token_ref(ahead).token;
    match (token(1), token(2), token(3), token(4)) {
        (Token::LParen, Token::Number(digits, _), Token::RParen, Token::SingleQuotedString(_)) => {
            digits.parse().ok()
        }
        _ => None,
    }
}

fn text_and_fields(parser: &mut Parser<'_>) -> Result<Expr, ParserError> {
    parser.advance_token();
    let value = Box::new(Expr::Value(parser.parse_value()?));
    let leading = parser.parse_one_of_keywords(&[
        Keyword::YEAR,
        Keyword::MONTH,
        Keyword::DAY,
        Keyword::HOUR,
        Keyword::MINUTE,
        Keyword::SECOND,
    ]);
    let smaller: &[Keyword] = match leading {
        Some(Keyword::YEAR) => &[Keyword::MONTH],
        Some(Keyword::DAY) => &[Keyword::HOUR, Keyword::MINUTE, Keyword::SECOND],
        Some(Keyword::HOUR) => &[Keyword::MINUTE, Keyword::SECOND],
        Some(Keyword::MINUTE) => &[Keyword::SECOND],
        _ => &[],
    };
    let last = match leading.is_some() && parser.peek_keyword(Keyword::TO) {
        true if smaller.is_empty() => return parser.expected_ref("no TO", parser.peek_token_ref()),
        true => {
            parser.advance_token();
            Some(parser.expect_one_of_keywords(smaller)?)
        }
        false => None,
    };
    let mut digits = |field: Option<Keyword>| match field {
        Some(Keyword::SECOND) => parser.parse_optional_precision(),
        _ => Ok(None),
    };
    Ok(Expr::Interval(Interval {
        value,
        leading_field: leading.and_then(field),
        leading_precision: digits(leading)?,
        last_field: last.and_then(field),
        fractional_seconds_precision: digits(last)?,
    }))
}

fn field(word: Keyword) -> Option<DateTimeField> {
    match word {
        Keyword::YEAR => Some(DateTimeField::Year),
        Keyword::MONTH => Some(DateTimeField::Month),
        Keyword::DAY => Some(DateTimeField::Day),
        Keyword::HOUR => Some(DateTimeField::Hour),
        Keyword::MINUTE => Some(DateTimeField::Minute),
        Keyword::SECOND => Some(DateTimeField::Second),
        _ => None,
    }
}
