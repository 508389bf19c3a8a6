//! Digests, encodings, and the calls of a type's name that are casts.

use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};

use sha2::Digest;

use super::EvalContext;
use super::encoding::{convert_from, convert_to};
use super::math::unexpected;
use super::registry::{Body, Function, plain, typed};
use super::string::{from_utf8, str_of};
use crate::error::{SqlError, sqlstate};
use crate::types::TypeId::{self, Bytea, Int4, Int8, Text as T};
use crate::types::bounds::{Meter, parts};
use crate::types::cast::{self, CastContext};
use crate::types::{Check, Datum, Type, bytea};

type Computed = Result<Datum, SqlError>;

pub(super) fn bytes(datum: &Datum) -> Result<&[u8], SqlError> {
    match datum {
        Datum::Bytea(bytes) => Ok(bytes),
        other => Ok(str_of(other)?.as_bytes()),
    }
}

fn hex(digest: &[u8]) -> Computed {
    let mut out = Vec::new();
    bytea::write_hex(digest, &mut out);
    from_utf8(out)
}

fn md5(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    hex(&md5_digest(bytes(&arguments[0])?, &|| context.check_interrupt())?)
}

/// SHA-2 of any length.
fn sha<D: Digest>(arguments: &[Datum]) -> Computed {
    let mut digest = D::new();
    for part in parts(bytes(&arguments[0])?) {
        digest.update(part?);
    }
    Ok(Datum::Bytea(digest.finalize().to_vec().into()))
}

fn sha224(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    sha::<sha2::Sha224>(arguments)
}

fn sha256(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    sha::<sha2::Sha256>(arguments)
}

fn sha384(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    sha::<sha2::Sha384>(arguments)
}

fn sha512(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    sha::<sha2::Sha512>(arguments)
}

/// Bytes that are digested between two questions whether to stop.
const MD5_PART: usize = 1 << 16;

/// RFC 1321.
pub(super) fn md5_digest(message: &[u8], check: Check<'_>) -> Result<[u8; 16], SqlError> {
    let mut state: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let whole = message.len() / 64 * 64;
    for part in message[..whole].chunks(MD5_PART) {
        check()?;
        md5_blocks(&mut state, part);
    }
    let mut padded = message[whole..].to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend_from_slice(&(message.len() as u64).wrapping_mul(8).to_le_bytes());
    md5_blocks(&mut state, &padded);
    let mut digest = [0u8; 16];
    for (out, word) in digest.chunks_exact_mut(4).zip(state) {
        out.copy_from_slice(&word.to_le_bytes());
    }
    Ok(digest)
}

/// Takes in whole blocks.
fn md5_blocks(state: &mut [u32; 4], blocks: &[u8]) {
    const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
    // The constants are the integer parts of 2^32 times the sine's magnitude.
    static CONSTANTS: LazyLock<[u32; 64]> = LazyLock::new(|| {
        std::array::from_fn(|step| (((step + 1) as f64).sin().abs() * 4_294_967_296.0) as u32)
    });
    let constants: &[u32; 64] = &CONSTANTS;
    for block in blocks.chunks_exact(64) {
        let mut words = [0u32; 16];
        for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        let [mut a, mut b, mut c, mut d] = *state;
        for step in 0..64usize {
            let (mixed, index) = match step / 16 {
                0 => ((b & c) | (!b & d), step),
                1 => ((d & b) | (!d & c), (5 * step + 1) % 16),
                2 => (b ^ c ^ d, (3 * step + 5) % 16),
                _ => (c ^ (b | !d), 7 * step % 16),
            };
            let sum = a.wrapping_add(mixed).wrapping_add(constants[step]).wrapping_add(words[index]);
            a = d;
            d = c;
            c = b;
            b = b.wrapping_add(sum.rotate_left(SHIFTS[step / 16][step % 4]));
        }
        for (total, part) in state.iter_mut().zip([a, b, c, d]) {
            *total = total.wrapping_add(part);
        }
    }
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Base 64 in lines of 76.
fn write_base64(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), SqlError> {
    let mut meter = Meter::default();
    for (i, chunk) in bytes.chunks(3).enumerate() {
        meter.add(4)?;
        let group = chunk.iter().fold(0u32, |n, b| n << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            if place <= chunk.len() {
                out.push(BASE64[(group >> (18 - 6 * place) & 63) as usize]);
            } else {
                out.push(b'=');
            }
        }
        // A line that is full ends, also where nothing follows.
        if i % 19 == 18 && chunk.len() == 3 {
            out.push(b'\n');
        }
    }
    Ok(())
}

fn read_base64(text: &str) -> Result<Vec<u8>, SqlError> {
    let invalid = |what: String| SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, what);
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    // The first `=` says how many bytes a group is, and so is every one after it. What else is
    // padding has no meaning of its own.
    let (mut group, mut count, mut bytes) = (0u32, 0, None);
    let mut meter = Meter::default();
    for c in text.chars().filter(|c| !matches!(c, ' ' | '\t' | '\n' | '\r')) {
        let value = if c == '=' {
            if bytes.is_none() {
                bytes = match count {
                    2 => Some(1),
                    3 => Some(2),
                    _ => return Err(invalid("unexpected \"=\" while decoding base64 sequence".to_owned())),
                };
            }
            0
        } else {
            BASE64.iter().position(|b| char::from(*b) == c).ok_or_else(|| {
                invalid(format!("invalid symbol \"{c}\" found while decoding base64 sequence"))
            })?
        };
        meter.add(0)?;
        group = group << 6 | value as u32;
        count += 1;
        if count == 4 {
            out.extend_from_slice(&group.to_be_bytes()[1..1 + bytes.unwrap_or(3)]);
            (group, count) = (0, 0);
        }
    }
    if count != 0 {
        return Err(invalid("invalid base64 end sequence".to_owned())
            .with_hint("Input data is missing padding, is truncated, or is otherwise corrupted."));
    }
    Ok(out)
}

fn unknown_encoding(name: &str) -> SqlError {
    SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, format!("unrecognized encoding: \"{name}\""))
}

fn encode(arguments: &[Datum], context: &EvalContext<'_>) -> Computed {
    let (bytes, name) = (bytes(&arguments[0])?, str_of(&arguments[1])?);
    let encoding = name.to_ascii_lowercase();
    // Base 64 makes four letters of three bytes, and a line end after 76.
    let length = match encoding.as_str() {
        "hex" => 2 * bytes.len(),
        "base64" => bytes.len().div_ceil(3) * 4 + bytes.len() / 57,
        "escape" => escaped_length(bytes)?,
        _ => return Err(unknown_encoding(name)),
    };
    context.check_size(length)?;
    let mut out = Vec::with_capacity(length);
    if encoding == "base64" {
        write_base64(bytes, &mut out)?;
        return from_utf8(out);
    }
    for part in parts(bytes) {
        match encoding.as_str() {
            "hex" => bytea::write_hex(part?, &mut out),
            _ => write_escaped(part?, &mut out),
        }
    }
    from_utf8(out)
}

/// Unlike in a bytea's own text, only NULs, high bytes and backslashes are escaped.
fn write_escaped(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            0 | 0x80.. => {
                let octal = [byte >> 6, byte >> 3 & 7, byte & 7].map(|digit| b'0' + digit);
                out.push(b'\\');
                out.extend_from_slice(&octal);
            }
            _ => out.push(byte),
        }
    }
}

/// How many letters that are.
fn escaped_length(bytes: &[u8]) -> Result<usize, SqlError> {
    let mut length = 0;
    for part in parts(bytes) {
        let letters = |byte: &u8| match byte {
            b'\\' => 2,
            0 | 0x80.. => 4,
            _ => 1,
        };
        length += part?.iter().map(letters).sum::<usize>();
    }
    Ok(length)
}

fn decode(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let (text, name) = (str_of(&arguments[0])?, str_of(&arguments[1])?);
    let bytes = match name.to_ascii_lowercase().as_str() {
        "hex" => bytea::parse_hex(text)?,
        "base64" => read_base64(text)?,
        "escape" => bytea::parse_escaped(text)?,
        _ => return Err(unknown_encoding(name)),
    };
    Ok(Datum::Bytea(bytes.into()))
}

/// The index of a byte or bit, of which there are so many. 2202E.
fn index(datum: &Datum, count: usize) -> Result<usize, SqlError> {
    let index = datum.as_i64().unwrap_or(-1);
    usize::try_from(index).ok().filter(|index| *index < count).ok_or_else(|| {
        SqlError::new(
            sqlstate::ARRAY_SUBSCRIPT_ERROR,
            format!("index {index} out of valid range, 0..{}", count as i64 - 1),
        )
    })
}

fn get_byte(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let bytes = bytes(&arguments[0])?;
    Ok(Datum::Int4(i32::from(bytes[index(&arguments[1], bytes.len())?])))
}

fn set_byte(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let mut bytes = bytes(&arguments[0])?.to_vec();
    let place = index(&arguments[1], bytes.len())?;
    // Of a larger number the lowest byte counts.
    bytes[place] = arguments[2].as_i64().unwrap_or(0) as u8;
    Ok(Datum::Bytea(bytes.into()))
}

fn get_bit(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let bytes = bytes(&arguments[0])?;
    let place = index(&arguments[1], bytes.len() * 8)?;
    Ok(Datum::Int4(i32::from(bytes[place / 8] >> (place % 8) & 1)))
}

fn set_bit(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let mut bytes = bytes(&arguments[0])?.to_vec();
    let place = index(&arguments[1], bytes.len() * 8)?;
    match arguments[2].as_i64() {
        Some(0) => bytes[place / 8] &= !(1 << (place % 8)),
        Some(1) => bytes[place / 8] |= 1 << (place % 8),
        _ => return Err(SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, "new bit must be 0 or 1")),
    }
    Ok(Datum::Bytea(bytes.into()))
}

fn bit_count(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let mut count = 0;
    for part in parts(bytes(&arguments[0])?) {
        count += part?.iter().map(|byte| i64::from(byte.count_ones())).sum::<i64>();
    }
    Ok(Datum::Int8(count))
}

/// Without the bytes of a set at its ends.
fn trim(arguments: &[Datum], at_start: bool, at_end: bool) -> Computed {
    let (mut rest, set) = (bytes(&arguments[0])?, bytes(&arguments[1])?);
    // The set may be as long as what is trimmed: it is gone through once.
    let mut is_cut = [false; 256];
    for part in parts(set) {
        for byte in part? {
            is_cut[usize::from(*byte)] = true;
        }
    }
    let mut meter = Meter::default();
    while let ([first, behind @ ..], true) = (rest, at_start)
        && is_cut[usize::from(*first)]
    {
        meter.add(0)?;
        rest = behind;
    }
    while let ([before @ .., last], true) = (rest, at_end)
        && is_cut[usize::from(*last)]
    {
        meter.add(0)?;
        rest = before;
    }
    Ok(Datum::Bytea(rest.to_vec().into()))
}

/// A hash of a text that spreads well; not the one of PostgreSQL.
fn hash_text(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for part in parts(bytes(&arguments[0])?) {
        hash = part?.iter().fold(hash, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
    }
    Ok(Datum::Int4((hash ^ hash >> 32) as i32))
}

pub(super) static FUNCTIONS: &[Function] = &[
    plain(2311, "md5", &[T], T, md5),
    plain(2321, "md5", &[Bytea], T, md5),
    plain(3419, "sha224", &[Bytea], Bytea, sha224),
    plain(3420, "sha256", &[Bytea], Bytea, sha256),
    plain(3421, "sha384", &[Bytea], Bytea, sha384),
    plain(3422, "sha512", &[Bytea], Bytea, sha512),
    plain(1946, "encode", &[Bytea, T], T, encode),
    plain(1947, "decode", &[T, T], Bytea, decode),
    plain(1714, "convert_from", &[Bytea, TypeId::Name], T, convert_from),
    plain(1717, "convert_to", &[T, TypeId::Name], Bytea, convert_to),
    plain(721, "get_byte", &[Bytea, Int4], Int4, get_byte),
    plain(722, "set_byte", &[Bytea, Int4, Int4], Bytea, set_byte),
    plain(723, "get_bit", &[Bytea, Int8], Int4, get_bit),
    plain(724, "set_bit", &[Bytea, Int8, Int4], Bytea, set_bit),
    plain(6163, "bit_count", &[Bytea], Int8, bit_count),
    plain(2015, "btrim", &[Bytea, Bytea], Bytea, |a, _| trim(a, true, true)),
    plain(6195, "ltrim", &[Bytea, Bytea], Bytea, |a, _| trim(a, true, false)),
    plain(6196, "rtrim", &[Bytea, Bytea], Bytea, |a, _| trim(a, false, true)),
    plain(400, "hashtext", &[T], Int4, hash_text),
    plain(949, "hashint8", &[Int8], Int4, hash_int),
];

fn hash_int(arguments: &[Datum], _: &EvalContext<'_>) -> Computed {
    let value = arguments[0].as_i64().ok_or_else(|| unexpected(&[&arguments[0]]))?;
    let hash = (value as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Ok(Datum::Int4((hash >> 32) as i32))
}

/// A cast written as a call: the function's one argument has the source type, its result is the
/// target.
macro_rules! cast_functions {
    ($($name:literal $id:ident;)*) => {
        static CASTS: &[Function] = &[$({
            fn body(arguments: &[Datum], types: &[Type], context: &EvalContext<'_>) -> Computed {
                cast::cast(&arguments[0], types[0], Type::new(TypeId::$id), CastContext::Explicit, context)
            }
            typed(0, $name, &[TypeId::Any], TypeId::$id, body).stable()
        }),*];
    };
}
cast_functions! {
    "bool" Bool;
    "int2" Int2;
    "int4" Int4;
    "int8" Int8;
    "float4" Float4;
    "float8" Float8;
    "numeric" Numeric;
    "text" Text;
    "varchar" Varchar;
    "bpchar" Bpchar;
    "name" Name;
    "bytea" Bytea;
    "date" Date;
    "time" Time;
    "timestamp" Timestamp;
    "timestamptz" Timestamptz;
    "interval" Interval;
    "uuid" Uuid;
    "inet" Inet;
    "cidr" Cidr;
    "json" Json;
    "jsonb" Jsonb;
    "oid" Oid;
    "regclass" Regclass;
    "regtype" Regtype;
    "regproc" Regproc;
}

/// The cast to the type of this name, as a function.
pub(super) fn cast_function(name: &str) -> Option<&'static Function> {
    static BY_NAME: OnceLock<HashMap<&'static str, &'static Function>> = OnceLock::new();
    let by_name = BY_NAME.get_or_init(|| CASTS.iter().map(|function| (function.name, function)).collect());
    let found = by_name.get(name).copied();
    debug_assert!(found.is_none_or(|f| matches!(f.body, Body::Typed(_))));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests() {
        assert_eq!(
            hex(&md5_digest(b"", &|| Ok(())).unwrap()).unwrap().as_str(),
            Some("d41d8cd98f00b204e9800998ecf8427e")
        );
        assert_eq!(
            hex(&md5_digest(b"abc", &|| Ok(())).unwrap()).unwrap().as_str(),
            Some("900150983cd24fb0d6963f7d28e17f72")
        );
        let long = "12345678901234567890123456789012345678901234567890123456789012345678901234567890";
        assert_eq!(
            hex(&md5_digest(long.as_bytes(), &|| Ok(())).unwrap()).unwrap().as_str(),
            Some("57edf4a22be3c955ac49da2e2107b67a")
        );
    }

    #[test]
    fn base64_round_trips() {
        for length in 0..100u8 {
            let bytes: Vec<u8> = (0..length).collect();
            let mut text = Vec::new();
            write_base64(&bytes, &mut text).expect("nothing bounds it");
            let text = String::from_utf8(text).expect("base 64 is ASCII");
            assert_eq!(read_base64(&text).expect("it reads back"), bytes);
        }
    }
}
