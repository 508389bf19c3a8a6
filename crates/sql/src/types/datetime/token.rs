//! Splits the text of a date, time or interval into fields.

use super::field::FieldError;

/// What a field looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Digits, perhaps with a fraction.
    Number,
    /// Words, or digits and words, joined by `-`, `/` or `.`.
    Date,
    /// Digits with `:`.
    Time,
    /// A word, lower case.
    Word,
    /// A word after a sign.
    SignedWord,
    /// A sign and digits: an offset from UTC, or a signed number.
    Signed,
}

#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) text: String,
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    fn peek(&self) -> u8 {
        self.bytes.get(self.at).copied().unwrap_or(0)
    }

    fn take_while(&mut self, out: &mut String, test: impl Fn(u8) -> bool) {
        while self.at < self.bytes.len() && test(self.peek()) {
            out.push(char::from(self.peek().to_ascii_lowercase()));
            self.at += 1;
        }
    }

    fn skip_blanks(&mut self) {
        while self.peek().is_ascii_whitespace() {
            self.at += 1;
        }
    }

    /// A field that starts with a digit.
    fn digits(&mut self) -> Token {
        let mut text = String::new();
        self.take_while(&mut text, |b| b.is_ascii_digit());
        match self.peek() {
            b':' => {
                self.take_while(&mut text, |b| b.is_ascii_digit() || matches!(b, b':' | b'.'));
                Token { kind: Kind::Time, text }
            }
            delimiter @ (b'-' | b'/' | b'.') => {
                text.push(char::from(delimiter));
                self.at += 1;
                if self.peek().is_ascii_digit() {
                    let mut kind = if delimiter == b'.' { Kind::Number } else { Kind::Date };
                    self.take_while(&mut text, |b| b.is_ascii_digit());
                    // Three numbers make a date whatever joins them.
                    if self.peek() == delimiter {
                        kind = Kind::Date;
                        self.take_while(&mut text, |b| b.is_ascii_digit() || b == delimiter);
                    }
                    Token { kind, text }
                } else if delimiter == b'.' && !self.peek().is_ascii_alphabetic() {
                    Token { kind: Kind::Number, text }
                } else {
                    self.take_while(&mut text, |b| b.is_ascii_alphanumeric() || b == delimiter);
                    Token { kind: Kind::Date, text }
                }
            }
            _ => Token { kind: Kind::Number, text },
        }
    }

    /// A field that starts with a letter.
    fn word(&mut self) -> Token {
        let mut text = String::new();
        self.take_while(&mut text, |b| b.is_ascii_alphabetic());
        let next = self.peek();
        // A date such as Jan-08-1999, or the name of a zone with /, _, - or digits.
        let joined = matches!(next, b'-' | b'/' | b'.' | b'_');
        // `UTC+3` is a zone, `FEB10` is not.
        let named_zone = (next == b'+' || next.is_ascii_digit()) && !super::words::is_keyword(&text);
        if !joined && !named_zone {
            return Token { kind: Kind::Word, text };
        }
        if matches!(next, b'+' | b'-') && !self.bytes.get(self.at + 1).is_some_and(u8::is_ascii_alphanumeric)
        {
            return Token { kind: Kind::Word, text };
        }
        self.take_while(&mut text, |b| {
            b.is_ascii_alphanumeric() || matches!(b, b'-' | b'/' | b'.' | b'_' | b'+' | b':')
        });
        Token { kind: Kind::Date, text }
    }
}

/// The fields of a text.
pub(super) fn tokenize(text: &str) -> Result<Vec<Token>, FieldError> {
    let mut scanner = Scanner { bytes: text.as_bytes(), at: 0 };
    let mut tokens = Vec::new();
    while scanner.at < scanner.bytes.len() {
        let token = match scanner.peek() {
            byte if byte.is_ascii_whitespace() => {
                scanner.skip_blanks();
                continue;
            }
            byte if byte.is_ascii_digit() => scanner.digits(),
            b'.' => {
                let mut text = ".".to_owned();
                scanner.at += 1;
                scanner.take_while(&mut text, |b| b.is_ascii_digit());
                Token { kind: Kind::Number, text }
            }
            byte if byte.is_ascii_alphabetic() => scanner.word(),
            sign @ (b'+' | b'-') => {
                let mut text = char::from(sign).to_string();
                scanner.at += 1;
                scanner.skip_blanks();
                if scanner.peek().is_ascii_digit() || scanner.peek() == b'.' {
                    scanner.take_while(&mut text, |b| b.is_ascii_digit() || matches!(b, b':' | b'.' | b'-'));
                    Token { kind: Kind::Signed, text }
                } else if scanner.peek().is_ascii_alphabetic() {
                    scanner.take_while(&mut text, |b| b.is_ascii_alphabetic());
                    Token { kind: Kind::SignedWord, text }
                } else {
                    return Err(FieldError::Format);
                }
            }
            byte if byte.is_ascii_punctuation() => {
                scanner.at += 1;
                continue;
            }
            _ => return Err(FieldError::Format),
        };
        tokens.push(token);
        if tokens.len() > 25 {
            return Err(FieldError::Format);
        }
    }
    Ok(tokens)
}
