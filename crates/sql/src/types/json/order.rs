//! The order of jsonb values, as bytes that order like them.
//!
//! The bytes are made in one pass over a value's normal text, whose members have their order
//! already, so that nothing of its size is held beside them:
//!
//! ```text
//! array       10, the number of elements (4 bytes), 01 if it is the whole value; the elements
//! object      11, the number of members (4 bytes); the key and the value of each
//! null        00
//! string      01, the text as a column of a key (`keys`)
//! number      02, the number likewise
//! boolean     03, the boolean likewise
//! ```
//!
//! A whole value that is none of the first two is an array of one, with 00 in the place of 01.

use std::cmp::Ordering;
use std::hash::Hasher;

use super::{MAX_DEPTH, Parser, number_of, on_deep_stack};
use crate::error::{SqlError, sqlstate};
use crate::keys::{self, KeyOrder};
use crate::types::Datum;
use crate::types::bounds::{self, Meter, check_size, give_up, hash_bytes, may_compare};

const ARRAY: u8 = 0x10;
const OBJECT: u8 = 0x11;
const NULL: u8 = 0;
const STRING: u8 = 1;
const NUMBER: u8 = 2;
const BOOLEAN: u8 = 3;

/// Most bytes that a scalar takes beside those of its text.
const SCALAR_BYTES: usize = 32;

/// Appends bytes that order as jsonb values do, given the normal text of one. More than `longest`
/// bytes are not finished: an entry that long is refused, whatever is in it. May be given up
/// (`bounds`).
pub(crate) fn write_key(text: &str, longest: usize, out: &mut Vec<u8>) {
    if !may_compare(text.len()) {
        return;
    }
    let meter = Meter::default();
    let (deepest, strict, kept) = (MAX_DEPTH, true, false);
    let mut parser = Parser { text, at: 0, depth: 0, deepest, strict, kept, meter };
    let mut writer = Writer { parser: &mut parser, longest: out.len().saturating_add(longest), out };
    let written = on_deep_stack(text, || writer.value(true)).and_then(|written| written);
    if let Err(error) = written
        && writer.out.len() <= writer.longest
    {
        give_up(error);
    }
}

/// Order of two jsonb values, given their normal texts. May be given up.
pub(crate) fn compare(a: &str, b: &str) -> Ordering {
    if a == b {
        return Ordering::Equal;
    }
    // The bytes of both are there at once.
    if let Err(error) = check_size(a.len() + b.len()) {
        give_up(error);
        return Ordering::Equal;
    }
    let (mut x, mut y) = (Vec::new(), Vec::new());
    write_key(a, usize::MAX, &mut x);
    write_key(b, usize::MAX, &mut y);
    x.cmp(&y)
}

/// Whether two jsonb values are equal, given their normal texts. Looks no further than the shorter
/// one goes. May be given up.
pub(crate) fn are_equal(a: &str, b: &str) -> bool {
    if a == b {
        return true;
    }
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let (mut x, mut y) = (Vec::new(), Vec::new());
    write_key(short, usize::MAX, &mut x);
    write_key(long, x.len(), &mut y);
    x == y
}

/// Equal values hash equally, unless it is given up.
pub(crate) fn hash<H: Hasher>(text: &str, state: &mut H) {
    let mut key = Vec::new();
    write_key(text, usize::MAX, &mut key);
    state.write_usize(key.len());
    hash_bytes(&key, state);
}

struct Writer<'p, 'a> {
    parser: &'p mut Parser<'a>,
    /// Where what is longer need not be finished.
    longest: usize,
    out: &'p mut Vec<u8>,
}

impl Writer<'_, '_> {
    fn value(&mut self, is_whole: bool) -> Result<(), SqlError> {
        self.parser.skip_blanks()?;
        let first = self.parser.peek();
        match first {
            Some(b'[') => return self.items(ARRAY, b']', is_whole),
            Some(b'{') => return self.items(OBJECT, b'}', is_whole),
            _ if is_whole => self.out.extend_from_slice(&[ARRAY, 0, 0, 0, 1, 0]),
            _ => {}
        }
        match first {
            Some(b'"') => {
                let text = self.parser.string()?;
                self.scalar(Some(STRING), text.len(), &Datum::from(text))
            }
            Some(b'-' | b'0'..=b'9') => {
                let text = self.parser.number()?;
                let number = number_of(&text).map_or(Datum::Null, Datum::Numeric);
                self.scalar(Some(NUMBER), text.len(), &number)
            }
            Some(word @ (b't' | b'f')) => {
                self.parser.at += if word == b't' { "true".len() } else { "false".len() };
                self.scalar(Some(BOOLEAN), 0, &Datum::Bool(word == b't'))
            }
            Some(b'n') => {
                self.parser.at += "null".len();
                self.out.push(NULL);
                self.parser.meter.add(1)
            }
            _ => Err(self.parser.unexpected("JSON value")),
        }
    }

    /// A value, or a member's key, whose text has so many bytes.
    fn scalar(&mut self, class: Option<u8>, bytes: usize, value: &Datum) -> Result<(), SqlError> {
        let start = self.out.len();
        bounds::make_room(bytes + SCALAR_BYTES, self.out)?;
        self.out.extend(class);
        keys::encode_into(self.out, value, KeyOrder::ASCENDING);
        self.parser.meter.add(self.out.len() - start)
    }

    /// Elements or members up to the end of them, with their number before them.
    fn items(&mut self, class: u8, end: u8, is_whole: bool) -> Result<(), SqlError> {
        self.out.push(class);
        let number = self.out.len();
        self.out.extend_from_slice(&[0; 4]);
        if is_whole && class == ARRAY {
            self.out.push(1);
        }
        let mut count = 0u32;
        self.parser.at += 1;
        loop {
            self.parser.skip_blanks()?;
            match self.parser.peek() {
                Some(byte) if byte == end => break,
                Some(b',') => self.parser.at += 1,
                _ => {
                    self.item(class)?;
                    count += 1;
                }
            }
            if self.out.len() > self.longest {
                return Err(SqlError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "the key is too long"));
            }
        }
        self.parser.at += 1;
        self.out[number..number + 4].copy_from_slice(&count.to_be_bytes());
        self.parser.meter.add(0)
    }

    fn item(&mut self, class: u8) -> Result<(), SqlError> {
        if class == OBJECT {
            if self.parser.peek() != Some(b'"') {
                return Err(self.parser.unexpected("string"));
            }
            let key = self.parser.string()?;
            self.scalar(None, key.len(), &Datum::from(key))?;
            self.parser.skip_blanks()?;
            if self.parser.peek() != Some(b':') {
                return Err(self.parser.unexpected("\":\""));
            }
            self.parser.at += 1;
        }
        self.value(false)
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, RandomState};

    use super::super::normalize;
    use super::*;
    use crate::types::bounds::tests::Questions;
    use crate::types::bounds::within;

    fn key(text: &str) -> Vec<u8> {
        let mut key = Vec::new();
        write_key(&normalize(text).expect(text), usize::MAX, &mut key);
        key
    }

    #[test]
    fn the_bytes_are_those_that_entries_have() {
        assert_eq!(key("null"), [0x10, 0, 0, 0, 1, 0, 0]);
        assert_eq!(key("true"), [0x10, 0, 0, 0, 1, 0, 3, 1, 1]);
        assert_eq!(key("[]"), [0x10, 0, 0, 0, 0, 1]);
        assert_eq!(key("{}"), [0x11, 0, 0, 0, 0]);
        let nested = b"\x10\0\0\0\x01\x01\x11\0\0\0\x01\x01a\0\x01\x10\0\0\0\x02\0\x01\x01a\0\x01";
        assert_eq!(key("[{\"a\": [null, \"a\"]}]"), nested);
    }

    #[test]
    fn values_come_in_their_order() {
        // PostgreSQL has the empty array before all else.
        let sorted = "[]|null|\"a\"|\"b\"|-1|1.50|2|false|true|[null]|[[]]|[1, 2]|{}|{\"a\": 1}|{\"a\": [1]}";
        let sorted: Vec<&str> = sorted.split('|').chain(["{\"b\": 0}", "{\"a\": 0, \"b\": 0}"]).collect();
        for (at, a) in sorted.iter().enumerate() {
            for (place, b) in sorted.iter().enumerate() {
                assert_eq!(compare(a, b), at.cmp(&place), "{a} and {b}");
                assert_eq!(are_equal(a, b), at == place, "{a} and {b}");
            }
        }
        assert!(compare("[1.0]", "[1.00]").is_eq() && are_equal("[1.0]", "[1.00]"));
        let state = RandomState::new();
        let hashed = |text: &str| state.hash_one(Datum::Jsonb(text.into()));
        assert_eq!(hashed("[1.0, {}]"), hashed("[1.00, {}]"));
    }

    #[test]
    fn a_long_comparison_is_given_up() {
        let [a, b] = ["1]", "1.0]"].map(|last| format!("[{}{last}", "1, ".repeat(100_000)));
        let questions = Questions::new(usize::MAX, usize::MAX);
        let equal = within(questions.clone(), || Ok(compare(&a, &b)));
        assert!(equal.expect("nobody stops it").is_eq());
        // One for the length of each text, and one for some hundred numbers.
        let asked = questions.asked();
        assert!(asked > 100, "{asked}");
        for left in [0, asked / 2, asked - 1] {
            let stopped = within(Questions::new(left, usize::MAX), || Ok(compare(&a, &b)));
            assert_eq!(stopped.expect_err("it was stopped").sqlstate, "57014");
        }
        let state = RandomState::new();
        let hash = || Ok(state.hash_one(Datum::Jsonb(a.as_str().into())));
        let stopped = within(Questions::new(3, usize::MAX), hash);
        assert_eq!(stopped.expect_err("it was stopped").sqlstate, "57014");
        for memory in [a.len(), a.len() + b.len()] {
            let large = within(Questions::new(usize::MAX, memory), || Ok(compare(&a, &b)));
            assert_eq!(large.expect_err("a number takes more than in its text").sqlstate, "53200");
        }
        assert!(compare(&a, &b).is_eq(), "where nothing bounds it, it goes on to its end");
    }

    #[test]
    fn a_key_that_is_too_long_is_not_finished() {
        let text = format!("[{}1]", "\"abc\", ".repeat(100_000));
        let mut key = vec![7];
        let written = within(Questions::new(usize::MAX, usize::MAX), || {
            write_key(&text, 1000, &mut key);
            Ok(())
        });
        written.expect("nothing is given up");
        assert!((1001..1100).contains(&key.len()), "{}", key.len());
    }
}
