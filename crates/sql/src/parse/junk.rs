//! Numbers and parameters that run into words (`123abc`, `1_000`, `$1a`), and names of no letters
//! (`""`). The tokenizer takes them apart, or takes them; PostgreSQL refuses them.

use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::error::Source;
use crate::error::Result;

/// 42601 for the first of them.
pub(super) fn refuse(tokens: &[TokenWithSpan], places: &Source) -> Result<()> {
    for (place, token) in tokens.iter().enumerate() {
        match &token.token {
            Token::Number(digits, _) => {
                let word = match tokens.get(place + 1) {
                    Some(TokenWithSpan { token: Token::Word(word), span })
                        if word.quote_style.is_none() && span.start == token.span.end =>
                    {
                        word.value.as_str()
                    }
                    _ => "",
                };
                if !word.is_empty() || digits.contains('_') {
                    let shown = format!("{digits}{word}");
                    return Err(places.junk(token.span.start, "numeric literal", &shown));
                }
            }
            Token::Word(word) if word.quote_style.is_some() && word.value.is_empty() => {
                return Err(places.no_name(token.span.start));
            }
            Token::Placeholder(name) => {
                let digits = name[1..].bytes().take_while(u8::is_ascii_digit).count();
                if digits > 0 && name.len() > 1 + digits {
                    return Err(places.junk(token.span.start, "parameter", name));
                }
            }
            _ => {}
        }
    }
    Ok(())
}
