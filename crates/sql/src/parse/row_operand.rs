//! `t.*::text`, `t.* IS NULL`: a row as an operand. In a select list, and as an argument, the
//! parser takes a star behind a name for the end of the item; within parentheses it is an operand.
//!
//! ```text
//! SELECT md5(t.*::text), u.* IS NULL FROM ...
//! SELECT md5((t.*)::text), (u.*) IS NULL FROM ...
//! ```

use sqlparser::tokenizer::{Token, TokenWithSpan};

/// Whether a star behind a name is an operand of what comes next.
fn takes_row(next: &Token) -> bool {
    match next {
        Token::DoubleColon
        | Token::StringConcat
        | Token::Eq
        | Token::Neq
        | Token::Lt
        | Token::LtEq
        | Token::Gt
        | Token::GtEq => true,
        Token::Word(word) if word.quote_style.is_none() => {
            ["IS", "IN", "NOT"].iter().any(|known| word.value.eq_ignore_ascii_case(known))
        }
        _ => false,
    }
}

/// Whether a star stands at this place, behind a name and before what takes it as an operand.
fn is_operand(tokens: &[TokenWithSpan], at: usize) -> bool {
    let Some(next) = tokens.get(at + 1) else { return false };
    tokens[at].token == Token::Mul && is_qualifier(&tokens[..at]) && takes_row(&next.token)
}

/// Whether the last tokens are a name and a period.
fn is_qualifier(tokens: &[TokenWithSpan]) -> bool {
    let [.., name, dot] = tokens else { return false };
    matches!(name.token, Token::Word(_)) && dot.token == Token::Period
}

/// Puts parentheses around such rows.
pub(super) fn rewrite(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if !(0..tokens.len()).any(|at| is_operand(&tokens, at)) {
        return tokens;
    }
    let mut out: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len() + 2);
    for (at, token) in tokens.iter().enumerate() {
        out.push(token.clone());
        if !is_operand(&tokens, at) {
            continue;
        }
        // The name may have a schema's before it.
        let mut from = out.len() - 3;
        while is_qualifier(&out[..from]) {
            from -= 2;
        }
        let span = out[from].span;
        out.insert(from, TokenWithSpan { token: Token::LParen, span });
        out.push(TokenWithSpan { token: Token::RParen, span: token.span });
    }
    out
}
