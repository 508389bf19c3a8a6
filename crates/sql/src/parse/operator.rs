//! Where an operator ends, by PostgreSQL's rule, told to a tokenizer that has another.
//!
//! Several signs in a row are one operator, but a comment's begin ends it, and so does a sign at
//! its end: an operator of several signs ends in `+` or `-` only if one of ``~ ! @ # % ^ & | ` ?``
//! is in it. The tokenizer's rule is to take all signs that it finds, so a space is put where the
//! operator ends, and the tokens' positions are moved back afterwards.
//!
//! ```text
//! x>-1     becomes   x> -1         a@-1     stays: an operator @-
//! x<>-1    becomes   x<> -1        x>/*c*/1 becomes   x> /*c*/1
//! 2^-1     stays: an operator ^-   2 ^ -1   stays: two of them
//! ```
//!
//! The tokenizer fails at `@-`, `|&` and `|>` where these are all of an operator: it reads others
//! instead, and the tokens are mended.

use std::borrow::Cow;

use sqlparser::dialect::Dialect;
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer, TokenizerError};

use crate::pg_catalog::is_reserved;

/// Signs that operators are made of.
const SIGNS: &[u8] = b"~!@#^&|`?+-*/%<>=";
/// With one of these, an operator may end in `+` or `-`.
const FREE: &[u8] = b"~!@#^&|`?%";
/// Operators that the tokenizer fails at: it looks for another sign behind them.
const UNREAD: [&[u8]; 3] = [b"@-", b"|&", b"|>"];

/// The text as the tokenizer is to read it, and the places where spaces were put.
pub(super) struct Spaced<'a> {
    pub(super) text: Cow<'a, str>,
    /// Byte offsets in the original text, growing.
    places: Vec<usize>,
    /// Those of the operators that it cannot read.
    unread: Vec<usize>,
}

/// Puts spaces behind operators that something follows which is not part of them.
pub(super) fn space(text: &str) -> Spaced<'_> {
    let bytes = text.as_bytes();
    let suspect = |pair: &[u8]| {
        matches!(pair, [first, b'+' | b'-'] if SIGNS.contains(first))
            || matches!(pair, [b'/', b'*'])
            || UNREAD.contains(&pair)
    };
    if !bytes.windows(2).any(suspect) {
        return Spaced { text: Cow::Borrowed(text), places: Vec::new(), unread: Vec::new() };
    }
    let (places, unread) = places(bytes);
    let mut text = Cow::Borrowed(text);
    for &at in &unread {
        text.to_mut().replace_range(at + 1..at + 2, "~");
    }
    if places.is_empty() {
        return Spaced { text, places, unread };
    }
    let (mut spaced, mut from) = (String::with_capacity(text.len() + places.len()), 0);
    for &place in &places {
        spaced.push_str(&text[from..place]);
        spaced.push(' ');
        from = place;
    }
    spaced.push_str(&text[from..]);
    Spaced { text: Cow::Owned(spaced), places, unread }
}

impl Spaced<'_> {
    /// Tokens, with their positions in `original`.
    pub(super) fn tokenize(
        &self,
        original: &str,
        dialect: &dyn Dialect,
    ) -> Result<Vec<TokenWithSpan>, TokenizerError> {
        let tokens = Tokenizer::new(dialect, &self.text).tokenize_with_location().map(joined);
        if self.places.is_empty() && self.unread.is_empty() {
            return tokens;
        }
        let spaces = locations(original, &self.places, 1);
        match tokens {
            Ok(mut tokens) => {
                for token in &mut tokens {
                    token.span.start = restored(token.span.start, &spaces);
                    token.span.end = restored(token.span.end, &spaces);
                }
                self.mend_unread(original, &mut tokens);
                Ok(tokens)
            }
            Err(error) => Err(TokenizerError { location: restored(error.location, &spaces), ..error }),
        }
    }

    /// Puts the operators back that the tokenizer could not read.
    fn mend_unread(&self, original: &str, tokens: &mut [TokenWithSpan]) {
        if self.unread.is_empty() {
            return;
        }
        let starts = locations(original, &self.unread, 0);
        for token in tokens {
            let start = (token.span.start.line, token.span.start.column);
            if let Ok(number) = starts.binary_search(&start) {
                let at = self.unread[number];
                token.token = Token::CustomBinaryOperator(original[at..at + 2].to_owned());
            }
        }
    }
}

/// Signs side by side are one operator, though the tokenizer may not know it; `==` between two
/// operands is another one than `=`, and `!` and `!!` are operators like any that has no meaning.
fn joined(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let are_signs = |pair: &[TokenWithSpan]| pair.iter().all(|token| is_sign(&token.token));
    let is_same = !tokens.windows(2).any(are_signs);
    if is_same && !tokens.iter().any(|token| token.token == Token::DoubleEq || is_mark(&token.token)) {
        return tokens;
    }
    let mut joined: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    // Whether an operand ends before what comes next, and before the operator that was last; and
    // whether that is one.
    let (mut ends_operand, mut is_infix, mut is_row) = (false, false, false);
    for mut token in tokens {
        if is_sign(&token.token) {
            match joined.last_mut().filter(|last| is_sign(&last.token)) {
                Some(last) if !is_row => {
                    last.token = Token::CustomBinaryOperator(spelled(&last.token) + &spelled(&token.token));
                    last.span.end = token.span.end;
                    continue;
                }
                Some(_) => {}
                None => {
                    // The star of `t.*` is none.
                    is_row = token.token == Token::Mul
                        && matches!(joined.last(), Some(TokenWithSpan { token: Token::Period, .. }));
                    is_infix = ends_operand && !is_row;
                }
            }
            if (is_infix && token.token == Token::DoubleEq) || is_mark(&token.token) {
                token.token = Token::CustomBinaryOperator(token.token.to_string());
            }
            ends_operand = false;
        } else if !matches!(token.token, Token::Whitespace(_)) {
            ends_operand = is_end_of_operand(&token.token);
        }
        joined.push(token);
    }
    joined
}

/// Whether it is one of PostgreSQL's factorials of before, which the parser still knows.
fn is_mark(token: &Token) -> bool {
    matches!(token, Token::ExclamationMark | Token::DoubleExclamationMark)
}

/// An operator as it was written, but for `!=`, which is the same as `<>`.
fn spelled(token: &Token) -> String {
    match token {
        Token::Neq => "!=".to_owned(),
        token => token.to_string(),
    }
}

/// Whether the token is an operator, or may be a part of one.
fn is_sign(token: &Token) -> bool {
    matches!(
        token,
        Token::Plus
            | Token::Minus
            | Token::Mul
            | Token::Div
            | Token::Mod
            | Token::Caret
            | Token::Eq
            | Token::DoubleEq
            | Token::Neq
            | Token::Lt
            | Token::Gt
            | Token::LtEq
            | Token::GtEq
            | Token::Spaceship
            | Token::Tilde
            | Token::TildeEqual
            | Token::AtSign
            | Token::AtAt
            | Token::Sharp
            | Token::DoubleSharp
            | Token::Pipe
            | Token::Ampersand
            | Token::Overlap
            | Token::StringConcat
            | Token::ExclamationMark
            | Token::DoubleExclamationMark
            | Token::ShiftLeft
            | Token::ShiftRight
            | Token::PGSquareRoot
            | Token::PGCubeRoot
            | Token::ArrowAt
            | Token::AtArrow
            | Token::TwoWayArrow
            | Token::AmpersandRightAngleBracket
            | Token::AmpersandLeftAngleBracketVerticalBar
            | Token::CustomBinaryOperator(_)
    )
}

/// Whether an operand may end with the token: what follows is no operator before its operand.
fn is_end_of_operand(token: &Token) -> bool {
    match token {
        Token::Word(word) => {
            let name = word.value.to_ascii_lowercase();
            word.quote_style.is_some() || !(is_reserved(&name) || name == "by")
        }
        Token::Number(..)
        | Token::SingleQuotedString(_)
        | Token::EscapedStringLiteral(_)
        | Token::DollarQuotedString(_)
        | Token::NationalStringLiteral(_)
        | Token::Placeholder(_)
        // Of the schema, in OPERATOR(s.===).
        | Token::Period
        | Token::RParen
        | Token::RBracket => true,
        _ => false,
    }
}

/// Where the places are, lines and columns from 1, in the text with something so wide put at each.
fn locations(original: &str, places: &[usize], width: u64) -> Vec<(u64, u64)> {
    let (mut all, mut from) = (Vec::with_capacity(places.len()), 0);
    let (mut line, mut column) = (1, 1);
    for &place in places {
        for letter in original[from..place].chars() {
            (line, column) = if letter == '\n' { (line + 1, 1) } else { (line, column + 1) };
        }
        from = place;
        all.push((line, column));
        column += width;
    }
    all
}

/// A place in the text with spaces, as one in the original.
fn restored(at: Location, spaces: &[(u64, u64)]) -> Location {
    let before = spaces.partition_point(|space| *space < (at.line, at.column));
    let on_earlier_lines = spaces.partition_point(|(line, _)| *line < at.line);
    Location { line: at.line, column: at.column - (before - on_earlier_lines) as u64 }
}

/// Where operators end in the middle of signs, and where those are that the tokenizer cannot read.
fn places(bytes: &[u8]) -> (Vec<usize>, Vec<usize>) {
    let (mut places, mut unread, mut at) = (Vec::new(), Vec::new(), 0);
    while let Some(&byte) = bytes.get(at) {
        if let Some(length) = opaque(bytes, at) {
            at += length;
            continue;
        }
        let rest = &bytes[at..];
        at += match byte {
            _ if SIGNS.contains(&byte) => {
                let length = operator(rest);
                if rest.get(length).is_some_and(|next| SIGNS.contains(next)) {
                    places.push(at + length);
                }
                if UNREAD.contains(&&rest[..length]) {
                    unread.push(at);
                }
                length
            }
            _ => 1,
        };
    }
    (places, unread)
}

/// The length of the comment, the quoted text or the quoted name that begins here; none if none
/// does.
pub(super) fn opaque(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    match rest.first()? {
        b'-' if rest.starts_with(b"--") => Some(until(rest, b"\n")),
        b'/' if rest.starts_with(b"/*") => Some(comment(rest)),
        b'\'' => Some(quoted(rest, ends_in_escape_mark(&bytes[..at]))),
        b'"' => Some(quoted(rest, false)),
        b'$' if !at.checked_sub(1).is_some_and(|before| is_name(bytes[before])) => Some(dollar_quoted(rest)),
        _ => None,
    }
}

/// Whether the byte may be part of a name.
pub(super) fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Whether a quotation mark behind this begins a string with escapes: E''.
fn ends_in_escape_mark(before: &[u8]) -> bool {
    matches!(before, [.., b'e' | b'E']) && !before.len().checked_sub(2).is_some_and(|at| is_name(before[at]))
}

/// The length up to and with `end`.
fn until(bytes: &[u8], end: &[u8]) -> usize {
    bytes.windows(end.len()).position(|window| window == end).map_or(bytes.len(), |at| at + end.len())
}

/// The length of a comment, with those in it.
fn comment(bytes: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < bytes.len() {
        let rest = &bytes[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

/// The length of what stands in quotation marks. A doubled one looks like two texts, which comes to
/// the same.
fn quoted(bytes: &[u8], escapes: bool) -> usize {
    let mut at = 1;
    while let Some(&byte) = bytes.get(at) {
        at += match byte {
            b'\\' if escapes => 2,
            byte if byte == bytes[0] => return at + 1,
            _ => 1,
        };
    }
    bytes.len()
}

fn dollar_quoted(bytes: &[u8]) -> usize {
    let tag = bytes[1..].iter().take_while(|byte| is_name(**byte)).count();
    let mark = &bytes[..(tag + 2).min(bytes.len())];
    if !mark.ends_with(b"$") || mark.len() < 2 || mark[1].is_ascii_digit() {
        return 1;
    }
    mark.len() + until(&bytes[mark.len()..], mark)
}

/// How many of the signs at the begin are one operator.
fn operator(bytes: &[u8]) -> usize {
    let run = bytes.iter().take_while(|byte| SIGNS.contains(byte)).count();
    let begins_comment = |pair: &[u8]| pair == b"--" || pair == b"/*";
    let run = bytes[..run].windows(2).position(begins_comment).unwrap_or(run);
    let mut length = run;
    while length > 1
        && matches!(bytes[length - 1], b'+' | b'-')
        && !bytes[..run - 1].iter().any(|sign| FREE.contains(sign))
    {
        length -= 1;
    }
    length
}

#[cfg(test)]
mod tests {
    use super::{Token, TokenWithSpan, space};

    #[test]
    fn an_operator_ends_where_postgresql_ends_it() {
        for (text, expected) in [
            ("x>-1", "x> -1"),
            ("x<>-1 or x>=-1", "x<> -1 or x>= -1"),
            ("1+-1*-+2", "1+ -1* - +2"),
            ("a @- b, a->-1, a#-1", "a @~ b, a-> -1, a#-1"),
            ("1>/*-*/2", "1> /*-*/2"),
            ("1--2\n+-3", "1--2\n+ -3"),
            ("'>-' || E'\\'>-' || \">-\" || $a$>-$a$ >-1", "'>-' || E'\\'>-' || \">-\" || $a$>-$a$ > -1"),
            ("/* >- /* */ >- */ $1>-$2", "/* >- /* */ >- */ $1> -$2"),
            ("f(a=>-1)", "f(a=> -1)"),
        ] {
            assert_eq!(space(text).text, expected);
        }
    }

    #[test]
    fn operators_that_the_tokenizer_does_not_know_are_read() {
        let dialect = super::super::dialect::CognateDialect::default();
        for (text, operator, column) in [
            ("1@-1", "@-", 2),
            ("x<-1, a |& b", "|&", 9),
            ("1>-1|>1", "|>", 5),
            ("'é@-', 1 @-1", "@-", 10),
            ("|/-4", "|/-", 1),
            ("5!", "!", 2),
            ("!!5", "!!", 1),
            ("~-1", "~-", 1),
        ] {
            let tokens = space(text).tokenize(text, &dialect).expect("tokens");
            let is_it = |token: &&TokenWithSpan| token.span.start.column == column;
            let found = tokens.iter().find(is_it).expect("a token there");
            assert_eq!(found.token, Token::CustomBinaryOperator(operator.to_owned()), "{text}");
        }
    }
}
