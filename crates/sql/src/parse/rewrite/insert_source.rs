//! `INSERT INTO t ((SELECT ...))`, `INSERT INTO t (VALUES ...)`, `INSERT INTO t (WITH ...)`: the
//! parser takes what is in the parentheses for names of columns, unless it is SELECT. So those
//! around the whole query are left out.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::is;

/// The tokens without such parentheses.
pub(super) fn rewrite(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let sources: Vec<usize> = (0..tokens.len()).filter_map(|at| source(&tokens, at)).collect();
    if sources.is_empty() {
        return tokens;
    }
    let closed = closed(&tokens);
    let mut left_out = vec![false; tokens.len()];
    for first in sources {
        let Some(end) = closed[first].filter(|end| ends_source(tokens.get(end + 1))) else { continue };
        for at in (0_usize..).take_while(|at| closed[first + at] == Some(end - at)) {
            left_out[first + at] = true;
            left_out[end - at] = true;
        }
    }
    let mut left_out = left_out.into_iter();
    tokens.retain(|_| left_out.next() != Some(true));
    tokens
}

fn keyword(token: Option<&TokenWithSpan>) -> Keyword {
    match token.map(|token| &token.token) {
        Some(Token::Word(word)) => word.keyword,
        _ => Keyword::NoKeyword,
    }
}

fn is_token(token: Option<&TokenWithSpan>, expected: &Token) -> bool {
    token.is_some_and(|token| token.token == *expected)
}

/// Where the parenthesis behind the table of INSERT at a place is, if there is a query in it which
/// the parser would not see.
fn source(tokens: &[TokenWithSpan], insert: usize) -> Option<usize> {
    if keyword(tokens.get(insert)) != Keyword::INSERT || keyword(tokens.get(insert + 1)) != Keyword::INTO {
        return None;
    }
    let mut at = insert + 3;
    while is_token(tokens.get(at), &Token::Period) {
        at += 2;
    }
    if is(tokens.get(at), "AS") {
        at += 2;
    }
    let open = tokens.get(at..)?.iter().take_while(|token| token.token == Token::LParen).count();
    let is_query = match keyword(tokens.get(at + open)) {
        Keyword::WITH => open > 0,
        Keyword::VALUES => open > 0 && is_token(tokens.get(at + open + 1), &Token::LParen),
        Keyword::SELECT | Keyword::TABLE => open > 1,
        _ => false,
    };
    is_query.then_some(at)
}

/// Where each parenthesis is closed, at the place of the token that opens it.
fn closed(tokens: &[TokenWithSpan]) -> Vec<Option<usize>> {
    let mut closed = vec![None; tokens.len()];
    let mut open = vec![];
    for (at, token) in tokens.iter().enumerate() {
        if token.token == Token::LParen {
            open.push(at);
        } else if token.token == Token::RParen
            && let Some(first) = open.pop()
        {
            closed[first] = Some(at);
        }
    }
    closed
}

/// Whether this may stand behind the query of an INSERT.
fn ends_source(behind: Option<&TokenWithSpan>) -> bool {
    match behind.map(|token| &token.token) {
        None | Some(Token::RParen | Token::SemiColon | Token::EOF) => true,
        Some(_) => matches!(keyword(behind), Keyword::ON | Keyword::RETURNING),
    }
}
