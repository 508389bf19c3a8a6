//! Joins within joins without parentheses: which join a condition belongs to is told by counting,
//! as with brackets. The parser takes every join for one of all that stands before it.
//!
//! ```text
//! a JOIN b LEFT JOIN c ON x ON y     becomes   a JOIN (b LEFT JOIN c ON x) ON y
//! a JOIN b CROSS JOIN c USING (x)    becomes   a JOIN (b CROSS JOIN c) USING (x)
//! ```

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// Words before JOIN: NATURAL LEFT OUTER.
const WORDS_MAX: usize = 3;

/// A join whose condition is still to come.
struct Open {
    /// Where what it joins begins.
    place: usize,
    /// Another join comes before its condition.
    holds_join: bool,
}

fn keyword(token: &TokenWithSpan) -> Keyword {
    match &token.token {
        Token::Word(word) => word.keyword,
        _ => Keyword::NoKeyword,
    }
}

/// Whether the join behind these tokens has no condition.
fn is_bare(before: &[TokenWithSpan]) -> bool {
    let words = before.iter().rev().take(WORDS_MAX).map(keyword);
    let mut kind = words.take_while(|word| {
        matches!(
            word,
            Keyword::CROSS
                | Keyword::NATURAL
                | Keyword::INNER
                | Keyword::LEFT
                | Keyword::RIGHT
                | Keyword::FULL
                | Keyword::OUTER
        )
    });
    kind.any(|word| matches!(word, Keyword::CROSS | Keyword::NATURAL))
}

/// Puts the parentheses.
pub(super) fn rewrite(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if tokens.iter().filter(|token| keyword(token) == Keyword::JOIN).nth(1).is_none() {
        return tokens;
    }
    let mut signs = signs(&tokens);
    if signs.is_empty() {
        return tokens;
    }
    signs.sort_by_key(|(place, _)| *place);
    let mut out = Vec::with_capacity(tokens.len() + signs.len());
    let mut signs = signs.into_iter().peekable();
    for (at, token) in tokens.into_iter().enumerate() {
        while let Some((_, sign)) = signs.next_if(|(place, _)| *place == at) {
            out.push(TokenWithSpan { token: sign, span: token.span });
        }
        out.push(token);
    }
    out
}

/// The parentheses, and the places of the tokens that they come before.
fn signs(tokens: &[TokenWithSpan]) -> Vec<(usize, Token)> {
    let mut signs = Vec::new();
    // What is open in the innermost parentheses, and in those around them.
    let (mut open, mut around): (Vec<Open>, Vec<Vec<Open>>) = (Vec::new(), Vec::new());
    for (at, token) in tokens.iter().enumerate() {
        match token.token {
            Token::LParen => around.push(std::mem::take(&mut open)),
            Token::RParen => open = around.pop().unwrap_or_default(),
            Token::Comma => open.clear(),
            _ => {}
        }
        match keyword(token) {
            Keyword::JOIN => {
                if let Some(outer) = open.last_mut() {
                    outer.holds_join = true;
                }
                if !is_bare(&tokens[..at]) {
                    open.push(Open { place: at + 1, holds_join: false });
                }
            }
            Keyword::ON | Keyword::USING => {
                if let Some(Open { place, holds_join: true }) = open.pop() {
                    signs.extend([(place, Token::LParen), (at, Token::RParen)]);
                }
            }
            Keyword::FROM if at > 0 && keyword(&tokens[at - 1]) == Keyword::DISTINCT => {}
            Keyword::FROM | Keyword::SELECT | Keyword::WHERE => open.clear(),
            _ => {}
        }
    }
    signs
}

#[cfg(test)]
mod tests {
    use crate::parse::{Command, parse};

    #[test]
    fn conditions_are_of_the_innermost_join_without_one() {
        for (text, meant) in [
            ("a JOIN b JOIN c ON x ON y", "a JOIN (b JOIN c ON x) ON y"),
            ("a LEFT JOIN b INNER JOIN c ON x ON y", "a LEFT JOIN (b INNER JOIN c ON x) ON y"),
            ("a JOIN b CROSS JOIN c ON x", "a JOIN (b CROSS JOIN c) ON x"),
            ("a JOIN b NATURAL LEFT JOIN c ON x", "a JOIN (b NATURAL LEFT JOIN c) ON x"),
            ("a JOIN b JOIN c USING (d) USING (d)", "a JOIN (b JOIN c USING(d)) USING(d)"),
            (
                "a JOIN b JOIN c ON x JOIN d ON y ON z JOIN e ON w",
                "a JOIN (b JOIN c ON x JOIN d ON y) ON z JOIN e ON w",
            ),
            ("a JOIN b JOIN c JOIN d ON x ON y ON z", "a JOIN (b JOIN (c JOIN d ON x) ON y) ON z"),
            (
                "a JOIN b JOIN c ON b.d IS DISTINCT FROM c.d ON x",
                "a JOIN (b JOIN c ON b.d IS DISTINCT FROM c.d) ON x",
            ),
            ("a JOIN b ON x JOIN c ON y CROSS JOIN d", "a JOIN b ON x JOIN c ON y CROSS JOIN d"),
            ("a CROSS JOIN b JOIN c ON x, d JOIN e ON y", "a CROSS JOIN b JOIN c ON x, d JOIN e ON y"),
        ] {
            let statements =
                parse(&format!("SELECT 1 FROM {text}")).unwrap_or_else(|e| panic!("{text}: {e}"));
            let Command::Sql(sql) = &statements[0].command else { panic!("{text}") };
            assert_eq!(sql.to_string(), format!("SELECT 1 FROM {meant}"));
        }
    }
}
