//! What GROUP BY has besides expressions.

use sqlparser::ast::Expr;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

use super::dialect::is_word;

/// GROUPING SETS, ROLLUP and CUBE, each within another, and `()`: the crate knows them at the top
/// of GROUP BY only, and takes `(a + b) * c` there for a list. Each item of GROUPING SETS is a list
/// of its own.
pub(super) fn grouping_sets(parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
    let opens = |at: usize| parser.peek_nth_token_ref(at).token == Token::LParen;
    if opens(0) && parser.peek_nth_token_ref(1).token == Token::RParen {
        parser.advance_token();
        parser.advance_token();
        return Some(Ok(Expr::Tuple(vec![])));
    }
    let length = if is_word(parser, 0, "GROUPING") && is_word(parser, 1, "SETS") && opens(2) {
        3
    } else if (is_word(parser, 0, "ROLLUP") || is_word(parser, 0, "CUBE")) && opens(1) {
        2
    } else {
        return None;
    };
    let make = match &parser.peek_token_ref().token {
        _ if length == 3 => Expr::GroupingSets,
        Token::Word(word) if word.keyword == Keyword::CUBE => Expr::Cube,
        _ => Expr::Rollup,
    };
    (0..length).for_each(|_| parser.advance_token());
    let items = parser.parse_comma_separated(Parser::parse_expr).and_then(|items| {
        parser.expect_token(&Token::RParen)?;
        Ok(items)
    });
    Some(items.map(|items| match length {
        3 => make(lists(items)),
        _ => make(items.into_iter().map(|item| vec![item]).collect()),
    }))
}

/// The lists of GROUPING SETS. Each is printed in parentheses, so it loses those that it was
/// written in: what is read and printed again and again would get more of them each time.
fn lists(items: Vec<Expr>) -> Vec<Vec<Expr>> {
    let mut lists = Vec::with_capacity(items.len());
    for mut item in items {
        while let Expr::Nested(inner) = item {
            item = *inner;
        }
        match item {
            Expr::Tuple(columns) => lists.push(columns),
            Expr::GroupingSets(inner) => lists.extend(inner),
            item => lists.push(vec![item]),
        }
    }
    lists
}
