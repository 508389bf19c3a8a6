//! JSON: checking texts, the normal form of jsonb, its order, and finding parts.
//!
//! A json value keeps its text. A jsonb value is its normal text: keys ordered by length and then
//! bytes, the last of equal keys, one blank after `:` and `,`, numbers as numeric prints them. The
//! order of jsonb values is PostgreSQL's: objects after arrays after booleans after numbers after
//! strings after null, the one with fewer members first.

mod order;

use std::ops::Range;

use super::Numeric;
use super::bounds::{Meter, PIECE, ask, count_leading, give_up};
use crate::error::{SqlError, sqlstate};
use crate::merge_sort;

pub(crate) use self::order::{are_equal, compare, hash, write_key};

/// Deepest nesting of arrays and objects of a value.
const MAX_DEPTH: usize = 6000;
/// And of one that is taken apart: its tree is walked through, and dropped, on any stack.
const MAX_TREE_DEPTH: usize = 1500;
/// Stack for each level of a value that is nested deeper.
const BYTES_A_LEVEL: usize = 8192;
/// What a short text takes beside its value.
const TEXT_BYTES: usize = 32;

/// A value with its place in the text it was read from.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) span: Range<usize>,
    pub(crate) value: Value,
}

/// A JSON value.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    /// Its text; [`Node::number`] reads it.
    Number(String),
    String(String),
    Array(Vec<Node>),
    /// In text order, repeated keys included.
    Object(Vec<(String, Node)>),
}

/// Reads a text. 22P02 if it is not JSON.
pub(crate) fn parse(text: &str) -> Result<Node, SqlError> {
    read(text, true, true, MAX_TREE_DEPTH)
}

/// Reads a text for its shape. Unlike [`parse`] this lets escapes pass that no text can hold.
pub(crate) fn parse_shape(text: &str) -> Result<Node, SqlError> {
    read(text, false, true, MAX_TREE_DEPTH)
}

/// Checks a text. Unlike [`parse`] this lets halves of surrogate pairs pass, as the type json does.
pub(crate) fn validate(text: &str) -> Result<(), SqlError> {
    on_deep_stack(text, || read(text, false, false, MAX_DEPTH).map(drop))?
}

/// Whether what a text begins is nested deeper than what any stack is enough for, as far as the
/// parser would come with it.
fn is_deep(text: &str) -> Result<bool, SqlError> {
    let (mut depth, mut in_string, mut is_escaped) = (0usize, false, false);
    for piece in text.as_bytes().chunks(PIECE) {
        for byte in piece {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' if in_string => is_escaped = true,
                b'"' => in_string = !in_string,
                b'[' | b'{' if !in_string => depth += 1,
                b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth > MAX_TREE_DEPTH {
                return Ok(true);
            }
        }
        if piece.len() == PIECE {
            ask()?;
        }
    }
    Ok(false)
}

/// Does something with a text, and with what is read from it, that recurses as deep as that is
/// nested. What is made of it has to be gone when it is done.
fn on_deep_stack<T>(text: &str, work: impl FnOnce() -> T) -> Result<T, SqlError> {
    if text.len() <= MAX_TREE_DEPTH || !is_deep(text)? {
        return Ok(work());
    }
    Ok(stacker::maybe_grow(MAX_DEPTH * BYTES_A_LEVEL, (MAX_DEPTH + 100) * BYTES_A_LEVEL, work))
}

fn read(text: &str, strict: bool, kept: bool, deepest: usize) -> Result<Node, SqlError> {
    let meter = Meter::default();
    let mut parser = Parser { text, at: 0, depth: 0, deepest, strict, kept, meter };
    let node = parser.value()?;
    parser.skip_blanks()?;
    if parser.at < text.len() {
        return Err(parser.unexpected("end of input"));
    }
    Ok(node)
}

/// The normal text of a jsonb value.
pub(crate) fn normalize(text: &str) -> Result<String, SqlError> {
    let mut out = Vec::with_capacity(text.len() + 8);
    on_deep_stack(text, || {
        read(text, true, true, MAX_DEPTH)?.write_normal(&mut out, &mut Meter::default())
    })??;
    Ok(String::from_utf8(out).unwrap_or_default())
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    /// How deep it may be nested.
    deepest: usize,
    /// Halves of surrogate pairs are errors.
    strict: bool,
    /// What is read is kept; otherwise arrays and objects come out empty.
    kept: bool,
    meter: Meter,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_blanks(&mut self) -> Result<(), SqlError> {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
            self.meter.add(0)?;
        }
        Ok(())
    }

    #[cold]
    fn error(&self, detail: String) -> SqlError {
        let before = &self.text[..self.at.min(self.text.len())];
        let line = before.matches('\n').count() + 1;
        SqlError::new(sqlstate::INVALID_TEXT_REPRESENTATION, "invalid input syntax for type json")
            .with_detail(detail)
            .with_context(format!("JSON data, line {line}: {}", before.lines().last().unwrap_or_default()))
    }

    /// The token at the current place, for messages.
    fn token(&self) -> &str {
        let rest = &self.text[self.at..];
        let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        match rest.chars().next() {
            Some('"') => rest[1..].find('"').map_or(rest, |end| &rest[..end + 2]),
            Some(_) if word > 0 => &rest[..word],
            Some(c) => &rest[..c.len_utf8()],
            None => "",
        }
    }

    #[cold]
    fn unexpected(&self, expected: &str) -> SqlError {
        let token = self.token();
        let known = token.starts_with(['"', '{', '}', '[', ']', ',', ':', '-'])
            || token.starts_with(|c: char| c.is_ascii_digit())
            || matches!(token, "true" | "false" | "null");
        if token.is_empty() {
            self.error("The input string ended unexpectedly.".to_owned())
        } else if known {
            self.error(format!("Expected {expected}, but found \"{token}\"."))
        } else {
            self.error(format!("Token \"{token}\" is invalid."))
        }
    }

    fn value(&mut self) -> Result<Node, SqlError> {
        self.skip_blanks()?;
        let start = self.at;
        self.meter.add(if self.kept { size_of::<(String, Node)>() + TEXT_BYTES } else { 0 })?;
        let value = match self.peek() {
            Some(b'{') => self.nested(Self::object)?,
            Some(b'[') => self.nested(Self::array)?,
            Some(b'"') => Value::String(self.string()?),
            Some(b'-' | b'0'..=b'9') => Value::Number(self.number()?),
            _ => match self.token() {
                "true" => self.word(Value::Bool(true), 4),
                "false" => self.word(Value::Bool(false), 5),
                "null" => self.word(Value::Null, 4),
                _ => return Err(self.unexpected("JSON value")),
            },
        };
        Ok(Node { span: start..self.at, value })
    }

    fn word(&mut self, value: Value, length: usize) -> Value {
        self.at += length;
        value
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<Value, SqlError>) -> Result<Value, SqlError> {
        self.depth += 1;
        if self.depth > self.deepest {
            return Err(SqlError::new(sqlstate::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded")
                .with_detail(format!("JSON is nested deeper than {} levels.", self.deepest)));
        }
        self.at += 1;
        self.skip_blanks()?;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn object(&mut self) -> Result<Value, SqlError> {
        let mut members = Vec::new();
        let mut is_first = true;
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Object(members));
        }
        loop {
            self.skip_blanks()?;
            if self.peek() != Some(b'"') {
                return Err(self.unexpected(if is_first { "string or \"}\"" } else { "string" }));
            }
            let key = self.string()?;
            self.skip_blanks()?;
            if self.peek() != Some(b':') {
                return Err(self.unexpected("\":\""));
            }
            self.at += 1;
            let value = self.value()?;
            if self.kept {
                members.push((key, value));
            }
            is_first = false;
            self.skip_blanks()?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Value::Object(members));
                }
                _ => return Err(self.unexpected("\",\" or \"}\"")),
            }
        }
    }

    fn array(&mut self) -> Result<Value, SqlError> {
        let mut elements = Vec::new();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::Array(elements));
        }
        loop {
            let value = self.value()?;
            if self.kept {
                elements.push(value);
            }
            self.skip_blanks()?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Value::Array(elements));
                }
                _ => return Err(self.unexpected("\",\" or \"]\"")),
            }
        }
    }

    /// Where the digits from here on end, if there are some.
    fn digits(&self, from: usize) -> Result<Option<usize>, SqlError> {
        let count = count_leading(&self.text.as_bytes()[from..], |byte| byte.is_ascii_digit())?;
        Ok((count > 0).then_some(from + count))
    }

    /// Where the number from here on ends, if it is one.
    fn end_of_number(&self) -> Result<Option<usize>, SqlError> {
        let bytes = self.text.as_bytes();
        let mut at = self.at + usize::from(bytes[self.at] == b'-');
        if bytes.get(at) == Some(&b'0') {
            at += 1;
        } else {
            let Some(end) = self.digits(at)? else { return Ok(None) };
            at = end;
        }
        if bytes.get(at) == Some(&b'.') {
            let Some(end) = self.digits(at + 1)? else { return Ok(None) };
            at = end;
        }
        if matches!(bytes.get(at), Some(b'e' | b'E')) {
            at += 1 + usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
            let Some(end) = self.digits(at)? else { return Ok(None) };
            at = end;
        }
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
        Ok(if bytes.get(at).copied().is_some_and(is_word) { None } else { Some(at) })
    }

    fn number(&mut self) -> Result<String, SqlError> {
        let start = self.at;
        let Some(end) = self.end_of_number()? else {
            let rest = &self.text[start..];
            let end = rest.find([' ', ',', '}', ']', ':', '\n', '\t']).unwrap_or(rest.len());
            return Err(self.error(format!("Token \"{}\" is invalid.", &rest[..end])));
        };
        self.at = end;
        self.meter.add(if self.kept { end - start } else { 0 })?;
        Ok(self.text[start..end].to_owned())
    }

    fn string(&mut self) -> Result<String, SqlError> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let rest = &rest[..rest.floor_char_boundary(PIECE)];
            let plain = rest.bytes().position(|b| matches!(b, b'"' | b'\\' | 0..=0x1f)).unwrap_or(rest.len());
            out.push_str(&rest[..plain]);
            self.at += plain;
            self.meter.add(if self.kept { plain } else { 0 })?;
            match self.peek() {
                _ if plain == rest.len() && self.at < self.text.len() => {}
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => self.escape(&mut out)?,
                Some(byte) => {
                    return Err(self.error(format!("Character with value 0x{byte:02x} must be escaped.")));
                }
                None => {
                    return Err(self.error("The input string ended unexpectedly.".to_owned()));
                }
            }
        }
    }

    fn escape(&mut self, out: &mut String) -> Result<(), SqlError> {
        self.at += 1;
        let Some(character) = self.text[self.at..].chars().next() else {
            return Err(self.error("The input string ended unexpectedly.".to_owned()));
        };
        self.at += character.len_utf8();
        out.push(match character {
            '"' | '\\' | '/' => character,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => self.unicode()?,
            other => return Err(self.error(format!("Escape sequence \"\\{other}\" is invalid."))),
        });
        Ok(())
    }

    fn hex4(&mut self) -> Result<u32, SqlError> {
        let code = self.text.get(self.at..self.at + 4).filter(|h| h.bytes().all(|b| b.is_ascii_hexdigit()));
        let code = code.and_then(|h| u32::from_str_radix(h, 16).ok());
        let code = code
            .ok_or_else(|| self.error("\"\\u\" must be followed by four hexadecimal digits.".to_owned()))?;
        self.at += 4;
        Ok(code)
    }

    #[cold]
    fn nul(&self) -> SqlError {
        let more = if self.at < self.text.len() { "..." } else { "" };
        let mut error = self.error("\\u0000 cannot be converted to text.".to_owned());
        error.sqlstate = sqlstate::UNTRANSLATABLE_CHARACTER;
        error.message = "unsupported Unicode escape sequence".into();
        error.context = error.context.take().map(|context| context + more);
        error
    }

    fn unicode(&mut self) -> Result<char, SqlError> {
        let first = self.hex4()?;
        let code = match first {
            0 if self.strict => return Err(self.nul()),
            0xd800..=0xdfff if !self.strict => 0xfffd,
            0xd800..=0xdbff => {
                let second = if self.text[self.at..].starts_with("\\u") {
                    self.at += 2;
                    self.hex4()?
                } else {
                    0
                };
                if !(0xdc00..=0xdfff).contains(&second) {
                    return Err(
                        self.error("Unicode high surrogate must not follow a high surrogate.".to_owned())
                    );
                }
                0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
            }
            0xdc00..=0xdfff => {
                return Err(self.error("Unicode low surrogate must follow a high surrogate.".to_owned()));
            }
            other => other,
        };
        Ok(char::from_u32(code).unwrap_or('\u{fffd}'))
    }
}

/// Appends a string in quotes, with escapes where JSON wants them.
pub(crate) fn write_string(text: &str, out: &mut Vec<u8>, meter: &mut Meter) -> Result<(), SqlError> {
    out.push(b'"');
    for part in text.as_bytes().chunks(PIECE) {
        let start = out.len();
        meter.make_room(part.len() + 2, out)?;
        for &byte in part {
            write_character(byte, out);
        }
        meter.add(out.len() - start)?;
    }
    out.push(b'"');
    Ok(())
}

fn write_character(byte: u8, out: &mut Vec<u8>) {
    match byte {
        b'"' => out.extend_from_slice(b"\\\""),
        b'\\' => out.extend_from_slice(b"\\\\"),
        0x08 => out.extend_from_slice(b"\\b"),
        0x0c => out.extend_from_slice(b"\\f"),
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\r' => out.extend_from_slice(b"\\r"),
        b'\t' => out.extend_from_slice(b"\\t"),
        0..=0x1f => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
        _ => out.push(byte),
    }
}

/// Members as jsonb keeps them: by length of key and then bytes, the last of equal keys.
pub(crate) fn ordered_members<'a>(
    members: &'a [(String, Node)],
    meter: &mut Meter,
) -> Result<Vec<&'a (String, Node)>, SqlError> {
    let mut places: Vec<usize> = (0..members.len()).collect();
    let order = |a: &str, b: &str| a.len().cmp(&b.len()).then_with(|| a.cmp(b));
    merge_sort::sort(
        &mut places,
        merge_sort::RUN,
        || meter.add(0),
        |a, b| order(&members[*a].0, &members[*b].0),
    )?;
    // Equal keys keep their order, so the last of them is the last in the text.
    let mut kept: Vec<&(String, Node)> = Vec::with_capacity(places.len());
    for place in places {
        let member = &members[place];
        match kept.last_mut() {
            Some(last) if last.0 == member.0 => *last = member,
            _ => kept.push(member),
        }
    }
    Ok(kept)
}

impl Node {
    /// A value that was not read from a text.
    pub(crate) fn new(value: Value) -> Node {
        Node { span: 0..0, value }
    }

    /// The number, if it is one.
    pub(crate) fn number(&self) -> Option<Numeric> {
        if let Value::Number(text) = &self.value { number_of(text) } else { None }
    }

    /// Appends the normal form. 22P05 for a string with U+0000, 22003 for a number beyond numeric.
    pub(crate) fn write_normal(&self, out: &mut Vec<u8>, meter: &mut Meter) -> Result<(), SqlError> {
        let start = out.len();
        match &self.value {
            Value::Null => out.extend_from_slice(b"null"),
            Value::Bool(true) => out.extend_from_slice(b"true"),
            Value::Bool(false) => out.extend_from_slice(b"false"),
            Value::Number(text) => Numeric::parse(text)?.write_text(out),
            Value::String(text) => {
                check_nul(text)?;
                return write_string(text, out, meter);
            }
            Value::Array(elements) => {
                out.push(b'[');
                for (i, element) in elements.iter().enumerate() {
                    if i > 0 {
                        out.extend_from_slice(b", ");
                    }
                    element.write_normal(out, meter)?;
                }
                out.push(b']');
                return Ok(());
            }
            Value::Object(members) => {
                out.push(b'{');
                for (i, (key, value)) in ordered_members(members, meter)?.into_iter().enumerate() {
                    if i > 0 {
                        out.extend_from_slice(b", ");
                    }
                    check_nul(key)?;
                    write_string(key, out, meter)?;
                    out.extend_from_slice(b": ");
                    value.write_normal(out, meter)?;
                }
                out.push(b'}');
                return Ok(());
            }
        }
        meter.add(out.len() - start)
    }

    /// The member of this key (the last of several), if it is an object.
    pub(crate) fn member(&self, key: &str) -> Option<&Node> {
        match &self.value {
            Value::Object(members) => members.iter().rev().find(|(k, _)| k == key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// The element of this index (from the end if negative), if it is an array.
    pub(crate) fn element(&self, index: i64) -> Option<&Node> {
        let Value::Array(elements) = &self.value else { return None };
        let index = if index < 0 { index + elements.len() as i64 } else { index };
        elements.get(usize::try_from(index).ok()?)
    }

    /// The part that a path of keys and indexes leads to.
    pub(crate) fn path<'a>(&self, steps: impl Iterator<Item = &'a str>) -> Option<&Node> {
        let mut node = self;
        for step in steps {
            node = match &node.value {
                Value::Object(_) => node.member(step)?,
                Value::Array(_) => node.element(step.trim_start().parse().ok()?)?,
                _ => return None,
            };
        }
        Some(node)
    }

    /// `object`, `array`, `string`, `number`, `boolean` or `null`.
    pub(crate) fn type_name(&self) -> &'static str {
        match self.value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        }
    }
}

/// The number that a text is; none beyond numeric. May be given up (`bounds`): nobody who looks for
/// a number in a value expects an error.
fn number_of(text: &str) -> Option<Numeric> {
    match Numeric::parse(text) {
        Ok(number) => Some(number),
        Err(error) => {
            if !matches!(
                error.sqlstate,
                sqlstate::NUMERIC_VALUE_OUT_OF_RANGE | sqlstate::INVALID_TEXT_REPRESENTATION
            ) {
                give_up(error);
            }
            None
        }
    }
}

fn check_nul(text: &str) -> Result<(), SqlError> {
    if text.contains('\0') {
        return Err(SqlError::new(sqlstate::UNTRANSLATABLE_CHARACTER, "unsupported Unicode escape sequence")
            .with_detail("\\u0000 cannot be converted to text."));
    }
    Ok(())
}
