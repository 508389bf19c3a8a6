//! Queries as operands where the parser crate takes what they begin with for something else: VALUES
//! for a function, and the first part of `(SELECT ...) UNION (SELECT ...)` for an operand.

use sqlparser::ast::Expr;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

use super::dialect::is_word;

/// Whether what comes next is the operand of ANY, SOME or ALL, whose bracket was taken already. The
/// crate takes VALUES there for a function.
pub(super) fn is_quantified(parser: &Parser<'_>) -> bool {
    let bracket = parser.get_current_index();
    if parser.token_at(bracket).token != Token::LParen {
        return false;
    }
    let mut before = (0..bracket).rev().map(|at| &parser.token_at(at).token);
    let Some(Token::Word(word)) = before.find(|token| !matches!(token, Token::Whitespace(_))) else {
        return false;
    };
    matches!(word.keyword, Keyword::ANY | Keyword::SOME | Keyword::ALL)
}

/// Whether the parentheses `ahead` hold the first part of a query, which goes on behind them.
pub(super) fn begins_query(parser: &mut Parser<'_>, ahead: usize) -> bool {
    const FIRST: [Keyword; 4] = [Keyword::SELECT, Keyword::WITH, Keyword::VALUES, Keyword::TABLE];
    const NEXT: [&str; 7] = ["UNION", "INTERSECT", "EXCEPT", "ORDER", "LIMIT", "OFFSET", "FETCH"];
    if parser.peek_nth_token_ref(ahead).token != Token::LParen {
        return false;
    }
    let mut found = false;
    let looked: Result<Option<()>, ParserError> = parser.maybe_parse(|parser| {
        (0..ahead).for_each(|_| parser.advance_token());
        let (mut open, mut is_query) = (0_usize, false);
        loop {
            parser.advance_token();
            match &parser.get_current_token().token {
                Token::LParen => open += 1,
                Token::RParen if open == 1 => break,
                Token::RParen => open -= 1,
                Token::Word(word) if FIRST.contains(&word.keyword) => is_query = true,
                Token::EOF => break,
                _ if is_query => {}
                _ => break,
            }
        }
        found = is_query && NEXT.iter().any(|word| is_word(parser, 0, word));
        // So that the parser goes back.
        Err(ParserError::ParserError(String::new()))
    });
    looked.is_ok() && found
}

/// A query in parentheses as a value.
pub(super) fn query_in_parentheses(parser: &mut Parser<'_>) -> Result<Expr, ParserError> {
    parser.advance_token();
    let query = parser.parse_query()?;
    parser.expect_token(&Token::RParen)?;
    Ok(Expr::Subquery(query))
}
