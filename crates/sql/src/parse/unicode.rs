//! `U&'...'` and `U&"..."`: strings and names with escapes, which begin with a backslash, or with
//! what UESCAPE says. The tokenizer is told nothing of them and takes them apart; here they are put
//! together, as a string and a name without escapes.
//!
//! ```text
//! U&'d\0061t\+000061'              'data'
//! U&"d!0061t\" UESCAPE '!'         "dat\"
//! ```

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Span, Token, TokenWithSpan, Word};

use super::error::Source;
use super::is_line_break;
use super::rewrite::is;
use crate::error::Result;

const NO_ESCAPE: &str = "invalid Unicode escape";
const NO_VALUE: &str = "invalid Unicode escape value";
const NO_PAIR: &str = "invalid Unicode surrogate pair";
const HINT: &str = "Unicode escapes must be \\XXXX or \\+XXXXXX.";

/// The tokens with such strings and names read. 42601.
pub(super) fn decode(tokens: Vec<TokenWithSpan>, places: &Source<'_>) -> Result<Vec<TokenWithSpan>> {
    if !(0..tokens.len()).any(|at| begins(&tokens, at)) {
        return Ok(tokens);
    }
    let mut out = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        if begins(&tokens, at) {
            let (read, end) = literal(&tokens, at, places)?;
            out.push(read);
            at = end;
        } else {
            out.push(token.clone());
            at += 1;
        }
    }
    Ok(out)
}

/// Whether `U`, `&` and something in quotes stand here side by side.
fn begins(tokens: &[TokenWithSpan], at: usize) -> bool {
    if !is(tokens.get(at), "u") {
        return false;
    }
    let [u, and, quoted, ..] = &tokens[at..] else { return false };
    let is_quoted = match &quoted.token {
        Token::SingleQuotedString(_) => true,
        Token::Word(word) => word.quote_style == Some('"'),
        _ => false,
    };
    is_quoted
        && and.token == Token::Ampersand
        && u.span.end == and.span.start
        && and.span.end == quoted.span.start
}

/// The string or name that begins at a place, and where it ends.
fn literal(tokens: &[TokenWithSpan], start: usize, places: &Source<'_>) -> Result<(TokenWithSpan, usize)> {
    let mut end = start + 3;
    let (mut raw, is_name) = match &tokens[start + 2].token {
        Token::Word(word) => (word.value.clone(), true),
        Token::SingleQuotedString(text) => (text.clone(), false),
        _ => (String::new(), false),
    };
    if !is_name {
        while let Some((more, behind)) = continuation(tokens, end) {
            raw.push_str(more);
            end = behind;
        }
    }
    let (escape, end) = escape(tokens, end, places)?;
    let begin = tokens[start].span.start;
    let text = unescaped(&raw, escape).map_err(|(place, message)| {
        // Before it stand U, & and the quote.
        let error = places.inside(begin, place + 3, message);
        if message == NO_ESCAPE { error.with_hint(HINT) } else { error }
    })?;
    let token = match is_name {
        true => Token::Word(Word { value: text, quote_style: Some('"'), keyword: Keyword::NoKeyword }),
        false => Token::UnicodeStringLiteral(text),
    };
    let span = Span { start: begin, end: tokens[end - 1].span.end };
    Ok((TokenWithSpan { token, span }, end))
}

fn behind_blanks(tokens: &[TokenWithSpan], from: usize) -> usize {
    let is_blank = |token: &&TokenWithSpan| matches!(token.token, Token::Whitespace(_));
    from + tokens[from..].iter().take_while(is_blank).count()
}

/// The string that goes on behind a line break, and where it ends.
fn continuation(tokens: &[TokenWithSpan], from: usize) -> Option<(&str, usize)> {
    let at = behind_blanks(tokens, from);
    let breaks = tokens[from..at].iter().any(|token| is_line_break(&token.token));
    match &tokens.get(at)?.token {
        Token::SingleQuotedString(more) if breaks => Some((more.as_str(), at + 1)),
        _ => None,
    }
}

/// What begins the escapes of a literal that ends at a place, and where what says so ends.
fn escape(tokens: &[TokenWithSpan], from: usize, places: &Source<'_>) -> Result<(char, usize)> {
    let word = behind_blanks(tokens, from);
    if !is(tokens.get(word), "uescape") {
        return Ok(('\\', from));
    }
    let at = behind_blanks(tokens, word + 1);
    let text = match tokens.get(at).map(|token| &token.token) {
        Some(Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text)) => text.as_bytes(),
        _ => {
            let place = tokens.get(at).map_or(tokens[word].span.end, |token| token.span.start);
            return Err(places.complaint("UESCAPE must be followed by a simple string literal", place));
        }
    };
    match *text {
        [byte] if !byte.is_ascii_hexdigit() && !b"+'\" \t\n\r\x0c".contains(&byte) => {
            Ok((char::from(byte), at + 1))
        }
        _ => Err(places.complaint("invalid Unicode escape character", tokens[at].span.start)),
    }
}

/// The text with its escapes read; else at which character it is wrong, and why.
fn unescaped(raw: &str, escape: char) -> std::result::Result<String, (usize, &'static str)> {
    let characters: Vec<char> = raw.chars().collect();
    let mut text = String::with_capacity(raw.len());
    // The first half of a pair.
    let mut first: Option<u32> = None;
    let mut at = 0;
    while let Some(&character) = characters.get(at) {
        let is_doubled = characters.get(at + 1) == Some(&escape);
        if character != escape || is_doubled {
            if first.is_some() {
                return Err((at, NO_PAIR));
            }
            text.push(character);
            at += if character == escape { 2 } else { 1 };
            continue;
        }
        let Some((code, length)) = code_point(&characters[at..]) else { return Err((at, NO_ESCAPE)) };
        if code == 0 || code > u32::from(char::MAX) {
            return Err((at, NO_VALUE));
        }
        let code = match (first.take(), code) {
            (Some(first), 0xDC00..=0xDFFF) => 0x1_0000 + ((first & 0x3FF) << 10) + (code & 0x3FF),
            (Some(_), _) | (None, 0xDC00..=0xDFFF) => return Err((at, NO_PAIR)),
            (None, code) => code,
        };
        match char::from_u32(code) {
            Some(character) => text.push(character),
            None => first = Some(code),
        }
        at += length;
    }
    if first.is_some() { Err((at, NO_PAIR)) } else { Ok(text) }
}

/// The number that an escape says, and the escape's length in characters.
fn code_point(escape: &[char]) -> Option<(u32, usize)> {
    let (digits, length) = match escape.get(1) {
        Some('+') => (escape.get(2..8)?, 8),
        _ => (escape.get(1..5)?, 5),
    };
    let mut code = 0;
    for digit in digits {
        code = code * 16 + digit.to_digit(16)?;
    }
    Some((code, length))
}

#[cfg(test)]
mod tests {
    use super::unescaped;

    #[test]
    fn escapes() {
        for (raw, escape, text) in [
            ("d\\0061t\\+000061", '\\', "data"),
            ("a\\\\b", '\\', "a\\b"),
            ("d!0061t\\", '!', "dat\\"),
            ("!!", '!', "!"),
            ("\\d83d\\DE00", '\\', "\u{1F600}"),
        ] {
            assert_eq!(unescaped(raw, escape).as_deref(), Ok(text), "{raw}");
        }
    }

    #[test]
    fn what_is_no_escape() {
        for (raw, place, message) in [
            ("wrong: \\061", 7, "invalid Unicode escape"),
            ("wrong: \\+0061", 7, "invalid Unicode escape"),
            ("\\db99", 5, "invalid Unicode surrogate pair"),
            ("\\db99xy", 5, "invalid Unicode surrogate pair"),
            ("\\db99\\0061", 5, "invalid Unicode surrogate pair"),
            ("\\de00", 0, "invalid Unicode surrogate pair"),
            ("\\+2FFFFF", 0, "invalid Unicode escape value"),
            ("\\0000", 0, "invalid Unicode escape value"),
        ] {
            assert_eq!(unescaped(raw, '\\'), Err((place, message)), "{raw}");
        }
    }
}
