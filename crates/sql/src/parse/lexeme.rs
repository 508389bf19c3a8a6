//! A statement's text in pieces, for its normal form.
//!
//! This knows where words, literals and operators begin and end, and nothing of what they say: it
//! is no second parser. It takes every text, also one that no parser would.

/// What a piece is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A name or a word of the language, whose case says nothing.
    Word,
    /// A name in quotes.
    Quoted,
    /// A number, string or parameter; or NULL, a truth value or DEFAULT in a list.
    Literal,
    /// Anything else: an operator, a bracket, a comma.
    Mark,
}

/// A piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lexeme<'a> {
    pub(crate) kind: Kind,
    pub(crate) text: &'a str,
    /// White space or a comment comes before it.
    pub(crate) spaced: bool,
}

/// What is left of a text.
pub(crate) struct Lexemes<'a> {
    rest: &'a str,
    /// The last piece was an operand, so that a sign behind it is an operator.
    behind_operand: bool,
}

impl<'a> Lexemes<'a> {
    pub(crate) fn new(text: &'a str) -> Lexemes<'a> {
        Lexemes { rest: text, behind_operand: false }
    }

    /// Nothing is left, not even white space.
    pub(crate) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Goes on behind white space and comments; says whether there were any.
    fn skip(&mut self) -> bool {
        let before = self.rest.len();
        loop {
            self.rest = self.rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\u{b}');
            let bytes = self.rest.as_bytes();
            let comment = match bytes {
                [b'-', b'-', ..] => bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len()),
                [b'/', b'*', ..] => block_comment(bytes),
                _ => return self.rest.len() < before,
            };
            self.rest = &self.rest[comment..];
        }
    }
}

impl<'a> Iterator for Lexemes<'a> {
    type Item = Lexeme<'a>;

    fn next(&mut self) -> Option<Lexeme<'a>> {
        let spaced = self.skip();
        let (mut kind, length) = piece(self.rest, self.behind_operand)?;
        let (text, rest) = self.rest.split_at(length);
        self.rest = rest;
        let constants = ["null", "true", "false", "default"];
        // In a list, or compared; IS NULL is something else.
        if kind == Kind::Word && !self.behind_operand {
            let is_constant = constants.iter().any(|constant| text.eq_ignore_ascii_case(constant));
            kind = if is_constant { Kind::Literal } else { kind };
        }
        self.behind_operand = kind != Kind::Mark || text == ")" || text == "]";
        Some(Lexeme { kind, text, spaced })
    }
}

/// What a text prepares, if it is `PREPARE name [(types)] AS ...`.
pub(crate) fn prepared(text: &str) -> Option<&str> {
    let mut pieces = Lexemes::new(text);
    let is_word =
        |piece: &Lexeme<'_>, word| piece.kind == Kind::Word && piece.text.eq_ignore_ascii_case(word);
    pieces.next().filter(|piece| is_word(piece, "prepare"))?;
    // The name, which may be any word.
    pieces.next()?;
    let mut depth = 0_usize;
    while let Some(piece) = pieces.next() {
        match piece.text {
            "(" => depth += 1,
            ")" => depth = depth.saturating_sub(1),
            _ if depth == 0 && is_word(&piece, "as") => {
                Lexemes::skip(&mut pieces);
                return Some(pieces.rest);
            }
            _ => {}
        }
    }
    None
}

/// Kind and length of the piece that a text begins with.
fn piece(text: &str, behind_operand: bool) -> Option<(Kind, usize)> {
    let bytes = text.as_bytes();
    let literal = |length| Some((Kind::Literal, length));
    match bytes {
        [] => None,
        [b'\'', ..] => literal(quoted(bytes, 0, b'\'', false)),
        [b'"', ..] => Some((Kind::Quoted, quoted(bytes, 0, b'"', false))),
        [b'$', b'0'..=b'9', ..] => literal(1 + run(&bytes[1..], |byte| byte.is_ascii_digit())),
        [b'$', ..] => Some(dollar(text)),
        [b'0'..=b'9', ..] | [b'.', b'0'..=b'9', ..] => literal(number(bytes)),
        [b'+' | b'-', b'0'..=b'9', ..] | [b'+' | b'-', b'.', b'0'..=b'9', ..] if !behind_operand => {
            literal(1 + number(&bytes[1..]))
        }
        [byte, ..] if is_letter(*byte) => Some(word(bytes)),
        [b':', b':' | b'=', ..] => Some((Kind::Mark, 2)),
        [byte, ..] if is_operator(*byte) => Some((Kind::Mark, operator(bytes))),
        [_, ..] => Some((Kind::Mark, 1)),
    }
}

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80
}

fn is_operator(byte: u8) -> bool {
    b"+-*/<>=~!@#%^&|`?".contains(&byte)
}

fn run(bytes: &[u8], belongs: impl Fn(u8) -> bool) -> usize {
    bytes.iter().take_while(|&&byte| belongs(byte)).count()
}

/// A word, or a literal that a letter says the form of: `E'…'`, `B'…'`, `X'…'`, `N'…'`, `U&'…'`.
fn word(bytes: &[u8]) -> (Kind, usize) {
    match bytes {
        [b'e' | b'E', b'\'', ..] => (Kind::Literal, quoted(bytes, 1, b'\'', true)),
        [b'b' | b'B' | b'x' | b'X' | b'n' | b'N', b'\'', ..] => {
            (Kind::Literal, quoted(bytes, 1, b'\'', false))
        }
        [b'u' | b'U', b'&', b'\'', ..] => (Kind::Literal, quoted(bytes, 2, b'\'', false)),
        [b'u' | b'U', b'&', b'"', ..] => (Kind::Quoted, quoted(bytes, 2, b'"', false)),
        _ => (Kind::Word, run(bytes, |byte| is_letter(byte) || byte.is_ascii_digit() || byte == b'$')),
    }
}

/// Length up to behind the closing quote, or to the end if there is none. A doubled quote is one of
/// the text.
fn quoted(bytes: &[u8], opening: usize, quote: u8, escapes: bool) -> usize {
    let mut at = opening + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if escapes => at += 1,
            byte if byte == quote => match bytes.get(at + 1) {
                Some(&next) if next == quote => at += 1,
                _ => return at + 1,
            },
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

/// `$tag$ … $tag$`, or a lonely dollar.
fn dollar(text: &str) -> (Kind, usize) {
    let tag = 1 + run(&text.as_bytes()[1..], |byte| is_letter(byte) || byte.is_ascii_digit());
    if text.as_bytes().get(tag) != Some(&b'$') {
        return (Kind::Mark, 1);
    }
    let (delimiter, body) = text.split_at(tag + 1);
    let length = body.find(delimiter).map_or(text.len(), |end| 2 * delimiter.len() + end);
    (Kind::Literal, length)
}

/// Digits with whatever runs into them, and an exponent's sign.
fn number(bytes: &[u8]) -> usize {
    let mut length = 0;
    loop {
        length += run(&bytes[length..], |byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.');
        let is_exponent = matches!(bytes[..length], [.., b'0'..=b'9' | b'.', b'e' | b'E']);
        match bytes[length..] {
            [b'+' | b'-', b'0'..=b'9', ..] if is_exponent => length += 1,
            _ => return length,
        }
    }
}

/// Characters of an operator, up to a comment. As PostgreSQL has it, one that ends with a sign has
/// an unusual character before, or the sign is the number's.
fn operator(bytes: &[u8]) -> usize {
    let all = run(bytes, is_operator);
    let comment = |pair: &[u8]| pair == b"--" || pair == b"/*";
    let mut length = bytes[..all].windows(2).position(comment).unwrap_or(all);
    let is_unusual = |length: usize| bytes[..length].iter().any(|byte| b"~!@#%^&|`?".contains(byte));
    while length > 1 && matches!(bytes[length - 1], b'+' | b'-') && !is_unusual(length) {
        length -= 1;
    }
    // A comment at the very beginning was skipped.
    length.max(1)
}

/// Length of a comment, which may have others within.
fn block_comment(bytes: &[u8]) -> usize {
    let (mut at, mut depth) = (2, 1);
    while at < bytes.len() && depth > 0 {
        match bytes[at..] {
            [b'/', b'*', ..] => (at, depth) = (at + 2, depth + 1),
            [b'*', b'/', ..] => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
    }
    at.min(bytes.len())
}
