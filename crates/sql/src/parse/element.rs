//! `SET a[1] = x`, which the parser does not know: an assignment to the column of the value that a
//! marked function gives. And `INSERT INTO t (a[1])` and `SET (a[1], b) = ...`: a marked name, with
//! the subscripts as text, which is parsed where it is needed.
//!
//! ```text
//! UPDATE t SET a[1] = x, a[2] = y, b = z WHERE ...
//! UPDATE t SET a = "\u{1}put"(a[1], x), a = "\u{1}put"(a[2], y), b = z WHERE ...
//! UPDATE t SET (a[1], b) = ...
//! UPDATE t SET ("\u{1}put\u{1}a\u{1}[ 1 ]", b) = ...
//! INSERT INTO t (a[1:2], b) ...
//! INSERT INTO t ("\u{1}put\u{1}a\u{1}[ 1 : 2 ]", b) ...
//! ```

use sqlparser::ast::{AccessExpr, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use super::SHALLOW;
use crate::error::{Result, SqlError};
use crate::identifier::fold_word;

/// The function's name: nothing can be called so.
const PUT: &str = "\u{1}put";
/// Begins the name of a column of which a part is meant.
const PART: &str = "\u{1}put\u{1}";
/// Stands before the subscripts.
const SUBSCRIPTS: char = '\u{1}';
/// Subscripts of more tokens are not looked for.
const SUBSCRIPT_TOKENS: usize = 256;

/// The column and the subscripts that a name in the list of an INSERT or of SET stands for, if it
/// is no plain name.
pub(crate) fn part_of_column(name: &ObjectName) -> Result<Option<(ObjectName, Vec<AccessExpr>)>> {
    let [part] = name.0.as_slice() else { return Ok(None) };
    let Some(marked) = part.as_ident() else { return Ok(None) };
    let said = marked.value.strip_prefix(PART).and_then(|said| said.split_once(SUBSCRIPTS));
    let Some((column, subscripts)) = said else { return Ok(None) };
    // Positions in this text would say nothing to whoever wrote the statement.
    let parsed = super::parse_part(&format!("x{subscripts}"), SHALLOW, |parser| parser.parse_expr());
    let parsed = parsed.map_err(|mut error| {
        error.position = None;
        error
    })?;
    let Expr::CompoundFieldAccess { access_chain, .. } = parsed else {
        return Err(SqlError::syntax("syntax error in the subscripts of a column"));
    };
    let column = Ident { value: column.to_owned(), quote_style: Some('"'), span: marked.span };
    Ok(Some((ObjectName::from(vec![column]), access_chain)))
}

/// The subscripts and the value of what is assigned to an element, if the value stands for that.
pub(crate) fn element(value: &Expr) -> Option<(&[AccessExpr], &Expr)> {
    let Expr::Function(call) = value else { return None };
    let FunctionArguments::List(list) = &call.args else { return None };
    if call.name.0.first().and_then(|part| part.as_ident()).is_none_or(|name| name.value != PUT) {
        return None;
    }
    match list.args.as_slice() {
        [
            FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::CompoundFieldAccess { access_chain, .. })),
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)),
        ] => Some((access_chain, value)),
        _ => None,
    }
}

fn is(token: Option<&TokenWithSpan>, keyword: Keyword) -> bool {
    matches!(token.map(|token| &token.token),
        Some(Token::Word(word)) if word.keyword == keyword && word.quote_style.is_none())
}

/// One assignment: where its `=` is if an element is assigned to, and where it ends.
struct Assignment {
    equals: Option<usize>,
    end: usize,
}

/// The tokens with such assignments rewritten.
pub(super) fn rewrite(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if !tokens.iter().any(|token| token.token == Token::LBracket) {
        return tokens;
    }
    let begins = [
        Keyword::UPDATE,
        Keyword::INSERT,
        Keyword::WITH,
        Keyword::EXPLAIN,
        Keyword::PREPARE,
        Keyword::MERGE,
        Keyword::COPY,
    ];
    if !begins.iter().any(|keyword| is(tokens.first(), *keyword)) {
        return tokens;
    }
    let mut out = Vec::with_capacity(tokens.len() + 8);
    let mut at = 0;
    while at < tokens.len() {
        out.push(tokens[at].clone());
        at += 1;
        if is(tokens.get(at - 1), Keyword::SET) {
            at = list(&tokens, at, &mut out);
        } else if is(tokens.get(at - 1), Keyword::INTO)
            && let Some(open) = list_behind(&tokens, at)
            && let Some((named, end)) = columns(&tokens, open)
        {
            out.extend_from_slice(&tokens[at..open]);
            out.extend(named);
            at = end;
        }
    }
    out
}

/// Where the parenthesis is that opens the list of columns of a table that is named here.
fn list_behind(tokens: &[TokenWithSpan], from: usize) -> Option<usize> {
    let is_word = |at: usize| matches!(tokens.get(at).map(|token| &token.token), Some(Token::Word(_)));
    let mut at = from;
    while is_word(at) && tokens.get(at + 1).is_some_and(|token| token.token == Token::Period) {
        at += 2;
    }
    at += 1;
    if is(tokens.get(at), Keyword::AS) {
        at += 2;
    }
    tokens.get(at).is_some_and(|token| token.token == Token::LParen).then_some(at)
}

/// The list of columns that a parenthesis opens, with marked names for those that have subscripts,
/// and where it ends. None if it is something else, or has no subscripts.
fn columns(tokens: &[TokenWithSpan], open: usize) -> Option<(Vec<TokenWithSpan>, usize)> {
    let mut list = vec![tokens.get(open)?.clone()];
    let mut at = open + 1;
    let mut has_parts = false;
    loop {
        let TokenWithSpan { token: Token::Word(column), span } = tokens.get(at)? else { return None };
        let end = subscripts_end(tokens, at + 1)?;
        if end == at + 1 {
            list.push(tokens[at].clone());
        } else {
            has_parts = true;
            let name = fold_word(column);
            let subscripts: Vec<String> = tokens[at + 1..end].iter().map(written).collect();
            let value = format!("{PART}{name}{SUBSCRIPTS}{}", subscripts.join(" "));
            let marked = Word { value, quote_style: Some('"'), keyword: Keyword::NoKeyword };
            list.push(TokenWithSpan { token: Token::Word(marked), span: *span });
        }
        let next = tokens.get(end)?;
        list.push(next.clone());
        at = end + 1;
        match next.token {
            Token::Comma => {}
            Token::RParen => return has_parts.then_some((list, at)),
            _ => return None,
        }
    }
}

/// The same of a list that SET assigns to, and where its `=` is.
fn assigned_columns(tokens: &[TokenWithSpan], at: usize) -> Option<(Vec<TokenWithSpan>, usize)> {
    let has = |at: usize, token: Token| tokens.get(at).is_some_and(|found| found.token == token);
    let listed = has(at, Token::LParen).then(|| columns(tokens, at)).flatten();
    listed.filter(|(_, equals)| has(*equals, Token::Eq))
}

/// Where the subscripts end that may begin here, if they are not very long.
fn subscripts_end(tokens: &[TokenWithSpan], from: usize) -> Option<usize> {
    let (mut at, mut depth) = (from, 0);
    while at - from < SUBSCRIPT_TOKENS {
        match &tokens.get(at)?.token {
            Token::LBracket => depth += 1,
            _ if depth == 0 => return Some(at),
            Token::RBracket => depth -= 1,
            _ => {}
        }
        at += 1;
    }
    None
}

/// A token as it can be read again.
fn written(token: &TokenWithSpan) -> String {
    match &token.token {
        Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => {
            format!("'{}'", text.replace('\'', "''"))
        }
        token => token.to_string(),
    }
}

/// Rewrites the assignments that begin at a place; where they end.
fn list(tokens: &[TokenWithSpan], from: usize, out: &mut Vec<TokenWithSpan>) -> usize {
    let mut at = from;
    loop {
        let Assignment { equals, end } = assignment(tokens, at);
        match equals {
            Some(equals) => {
                let (span, behind) = (tokens[at].span, tokens[end - 1].span);
                let make = |token, span| TokenWithSpan { token, span };
                let name =
                    Word { value: PUT.to_owned(), quote_style: Some('"'), keyword: Keyword::NoKeyword };
                out.push(tokens[at].clone());
                out.extend([Token::Eq, Token::Word(name), Token::LParen].map(|token| make(token, span)));
                out.extend_from_slice(&tokens[at..equals]);
                out.push(make(Token::Comma, tokens[equals].span));
                out.extend_from_slice(&tokens[equals + 1..end]);
                out.push(make(Token::RParen, behind));
            }
            None => match assigned_columns(tokens, at) {
                Some((named, equals)) => {
                    out.extend(named);
                    out.extend_from_slice(&tokens[equals..end]);
                }
                None => out.extend_from_slice(&tokens[at..end]),
            },
        }
        match tokens.get(end).filter(|token| token.token == Token::Comma) {
            Some(comma) => out.push(comma.clone()),
            None => return end,
        }
        at = end + 1;
    }
}

/// The assignment that begins at a place. It ends with a comma, a clause or a parenthesis.
fn assignment(tokens: &[TokenWithSpan], start: usize) -> Assignment {
    let mut depth = 0;
    let mut equals = None;
    let mut end = start;
    while let Some(token) = tokens.get(end) {
        match &token.token {
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen | Token::RBracket if depth == 0 => break,
            Token::RParen | Token::RBracket => depth -= 1,
            Token::Comma if depth == 0 => break,
            Token::Eq if depth == 0 && equals.is_none() => equals = Some(end),
            Token::Word(_) if depth == 0 => {
                let is_distinct = || is(tokens.get(end.wrapping_sub(1)), Keyword::DISTINCT);
                let is_matched = |from: usize| is(tokens.get(from), Keyword::MATCHED);
                let begins_when =
                    is_matched(end + 1) || (is(tokens.get(end + 1), Keyword::NOT) && is_matched(end + 2));
                let clause = is(Some(token), Keyword::WHERE)
                    || (is(Some(token), Keyword::WHEN) && begins_when)
                    || is(Some(token), Keyword::RETURNING)
                    || (is(Some(token), Keyword::FROM) && !is_distinct());
                if clause {
                    break;
                }
            }
            _ => {}
        }
        end += 1;
    }
    let opens = tokens.get(start + 1).is_some_and(|token| token.token == Token::LBracket);
    let closes = |equals: &usize| *equals > 0 && tokens[equals - 1].token == Token::RBracket;
    let is_column = matches!(tokens.get(start).map(|token| &token.token), Some(Token::Word(_)));
    Assignment { equals: equals.filter(closes).filter(|_| is_column && opens), end }
}
