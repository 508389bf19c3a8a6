//! Names that no text may say, since only the binder makes them up: that of the key of a row
//! ([`ROW_KEY`]), and those of the columns of a table that a view over it does not show
//! ([`hidden_column`]). Whoever said one would read, or set, what nobody has granted.

use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::ROW_KEY;
use super::error::Source;
use crate::error::Result;

const MARK: char = '\u{1}';

/// Names a column, by its place, of a table that is changed through a view without it.
pub(crate) fn hidden_column(place: usize) -> String {
    format!("{MARK}{place}")
}

fn is_hidden(name: &str) -> bool {
    let place = name.strip_prefix(MARK).filter(|place| !place.is_empty());
    place.is_some_and(|place| place.bytes().all(|byte| byte.is_ascii_digit()))
}

/// 42601 for the first of them.
pub(super) fn refuse(tokens: &[TokenWithSpan], places: &Source<'_>) -> Result<()> {
    let is_reserved = |token: &&TokenWithSpan| match &token.token {
        Token::Word(word) => word.value == ROW_KEY || is_hidden(&word.value),
        _ => false,
    };
    match tokens.iter().find(is_reserved) {
        Some(token) => Err(places.inside(token.span.start, 0, "this name is reserved")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{parse_expression, parse_single};

    #[test]
    fn what_only_the_binder_names_is_refused_however_it_is_written() {
        for name in [ROW_KEY.to_owned(), hidden_column(0), hidden_column(12)] {
            let escaped = name.replace(MARK, "\\0001");
            for written in [format!("\"{name}\""), format!("U&\"{escaped}\"")] {
                let refused = parse_single(&format!("SELECT {written} FROM t")).expect_err(&written);
                assert_eq!((refused.message.as_str(), refused.position), ("this name is reserved", Some(8)));
                assert!(parse_expression(&format!("{written} IS NULL")).is_err(), "{written}");
            }
        }
        for other in ["\"1\"", "\"row key\"", "\"\u{1}\"", "\"\u{1}1a\"", "'\u{1}1'"] {
            assert!(parse_single(&format!("SELECT {other} FROM t")).is_ok(), "{other:?}");
        }
    }
}
