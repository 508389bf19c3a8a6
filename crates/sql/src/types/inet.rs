//! Addresses of hosts and networks: inet and cidr.
//!
//! Both are an address with the number of its bits that name the network. A cidr has no other bits
//! set, and is always shown with the number; an inet only where it is not that of a single host.
//! Which of them a value is, its type says.
//!
//! ```text
//! inet '192.168.1.5/24'    bits 24    network 192.168.1.0    shown as 192.168.1.5/24
//! cidr '192.168'           bits 24    network 192.168.0.0    shown as 192.168.0.0/24
//! ```
//!
//! Values order by IPv4 before IPv6, then by their networks, then by the number of bits, then by
//! the whole address: a network stands before what is in it.

use std::cmp::Ordering;
use std::io::Write as _;
use std::ops::Range;

use super::malformed::{TOO_LONG, invalid, nothing};
use super::output::write_integer;
use crate::error::{SqlError, sqlstate};

/// An address and the number of its bits that name the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Inet {
    is_v6: bool,
    bits: u8,
    /// From the highest bit on; an IPv4 address in the first four bytes, with zeros behind it.
    address: [u8; 16],
}

/// What stands for IPv4 in keys and in the binary format.
const FAMILY_V4: u8 = 2;
/// The same for IPv6.
const FAMILY_V6: u8 = 3;

impl Inet {
    /// An IPv4 address; none if it has not so many bits.
    pub fn v4(address: [u8; 4], bits: u8) -> Option<Inet> {
        let mut padded = [0; 16];
        padded[..4].copy_from_slice(&address);
        (bits <= 32).then_some(Inet { is_v6: false, bits, address: padded })
    }

    /// An IPv6 address, likewise.
    pub fn v6(address: [u8; 16], bits: u8) -> Option<Inet> {
        (bits <= 128).then_some(Inet { is_v6: true, bits, address })
    }

    /// The address as a number, aligned to the highest bit.
    pub(crate) fn word(self) -> u128 {
        u128::from_be_bytes(self.address)
    }

    /// The same value with another address and number of bits.
    pub(crate) fn with(self, word: u128, bits: u8) -> Inet {
        Inet { address: word.to_be_bytes(), bits, ..self }
    }

    /// Bits that name the network.
    pub(crate) fn bits(self) -> u8 {
        self.bits
    }

    /// Bits of the address.
    pub(crate) fn max_bits(self) -> u8 {
        if self.is_v6 { 128 } else { 32 }
    }

    pub(crate) fn is_v6(self) -> bool {
        self.is_v6
    }

    /// The network that it is in.
    pub fn network(self) -> Inet {
        self.with(self.word() & mask(self.bits), self.bits)
    }

    /// Whether both have the same first bits.
    pub(crate) fn shares(self, other: Inet, bits: u8) -> bool {
        self.is_v6 == other.is_v6 && (self.word() ^ other.word()) & mask(bits) == 0
    }

    fn bytes(&self) -> &[u8] {
        if self.is_v6 { &self.address } else { &self.address[..4] }
    }

    fn family(self) -> u8 {
        if self.is_v6 { FAMILY_V6 } else { FAMILY_V4 }
    }

    /// Reads the text form. 22P02.
    pub(crate) fn parse(text: &str, is_cidr: bool) -> Result<Inet, SqlError> {
        let read = match (text.contains(':'), is_cidr) {
            (true, _) => parse_v6(text.as_bytes()),
            (false, true) => parse_network_v4(text.as_bytes()),
            (false, false) => parse_v4(text.as_bytes()),
        };
        let value = read.ok_or_else(|| SqlError::invalid_text(type_name(is_cidr), text))?;
        if is_cidr && value.network() != value {
            let message = format!("invalid cidr value: \"{text}\"");
            return Err(SqlError::new(sqlstate::INVALID_TEXT_REPRESENTATION, message).with_detail(BITS_SET));
        }
        Ok(value)
    }

    /// Appends the text form.
    pub(crate) fn write(self, is_cidr: bool, out: &mut Vec<u8>) {
        self.write_host(out);
        if is_cidr || self.bits != self.max_bits() {
            out.push(b'/');
            write_integer(i64::from(self.bits), out);
        }
    }

    /// Appends the address alone.
    pub(crate) fn write_host(self, out: &mut Vec<u8>) {
        if self.is_v6 { write_v6(&self.address, out) } else { write_v4(&self.address[..4], out) }
    }

    /// Appends the binary form.
    pub(super) fn write_binary(self, is_cidr: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.family(), self.bits, u8::from(is_cidr), self.max_bits() / 8]);
        out.extend_from_slice(self.bytes());
    }

    /// Reads the binary form. 22P03, 08P01.
    pub(super) fn read_binary(bytes: &[u8], is_cidr: bool) -> Result<Inet, SqlError> {
        let name = type_name(is_cidr);
        let wrong = |what: &str| invalid(format!("invalid {what} in external \"{name}\" value"));
        let mut rest = bytes;
        let mut byte = || -> Result<u8, SqlError> {
            let (first, tail) = rest.split_first().ok_or_else(nothing)?;
            rest = tail;
            Ok(*first)
        };
        let is_v6 = match byte()? {
            FAMILY_V4 => false,
            FAMILY_V6 => true,
            _ => return Err(wrong("address family")),
        };
        let mut value = Inet { is_v6, bits: byte()?, address: [0; 16] };
        if value.bits > value.max_bits() {
            return Err(wrong("bits"));
        }
        // Whether the sender took it for a cidr does not matter.
        byte()?;
        let length = byte()?;
        if length != value.max_bits() / 8 {
            return Err(wrong("length"));
        }
        for place in &mut value.address[..usize::from(length)] {
            *place = byte()?;
        }
        if !rest.is_empty() {
            return Err(invalid(TOO_LONG));
        }
        if is_cidr && value.network() != value {
            return Err(invalid("invalid external \"cidr\" value").with_detail(BITS_SET));
        }
        Ok(value)
    }

    /// Appends what orders as values do: the family, the network, the number of bits, the address.
    pub(crate) fn write_key(self, out: &mut Vec<u8>) {
        out.push(self.family());
        out.extend_from_slice(self.network().bytes());
        out.push(self.bits);
        out.extend_from_slice(self.bytes());
    }

    /// All of it in a fixed number of bytes.
    pub(crate) fn to_bytes(self) -> [u8; 18] {
        let mut bytes = [0; 18];
        bytes[0] = self.family();
        bytes[1] = self.bits;
        bytes[2..].copy_from_slice(&self.address);
        bytes
    }

    /// A value from these.
    pub(crate) fn from_bytes(bytes: [u8; 18]) -> Inet {
        let mut address = [0; 16];
        address.copy_from_slice(&bytes[2..]);
        Inet { is_v6: bytes[0] == FAMILY_V6, bits: bytes[1], address }
    }
}

impl Ord for Inet {
    fn cmp(&self, other: &Inet) -> Ordering {
        (self.is_v6.cmp(&other.is_v6))
            .then_with(|| self.network().word().cmp(&other.network().word()))
            .then_with(|| self.bits.cmp(&other.bits))
            .then_with(|| self.address.cmp(&other.address))
    }
}

impl PartialOrd for Inet {
    fn partial_cmp(&self, other: &Inet) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

const BITS_SET: &str = "Value has bits set to right of mask.";

fn type_name(is_cidr: bool) -> &'static str {
    if is_cidr { "cidr" } else { "inet" }
}

/// So many ones from the highest bit on.
pub(crate) fn mask(bits: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0)
}

fn write_v4(octets: &[u8], out: &mut Vec<u8>) {
    for (i, octet) in octets.iter().enumerate() {
        if i > 0 {
            out.push(b'.');
        }
        write_integer(i64::from(*octet), out);
    }
}

/// The longest run of zeros is `::`; an IPv4 address behind it is written as such.
fn write_v6(address: &[u8; 16], out: &mut Vec<u8>) {
    let words: [u16; 8] =
        std::array::from_fn(|place| u16::from_be_bytes([address[2 * place], address[2 * place + 1]]));
    let zeros = longest_zeros(&words);
    for (place, word) in words.iter().enumerate() {
        if zeros.contains(&place) {
            if place == zeros.start {
                out.push(b':');
            }
            continue;
        }
        if place != 0 {
            out.push(b':');
        }
        let is_mapped = zeros.len() == 6 || zeros.len() == 5 && words[5] == 0xffff;
        if place == 6 && zeros.start == 0 && is_mapped {
            return write_v4(&address[12..], out);
        }
        // Memory takes everything.
        let _ = write!(out, "{word:x}");
    }
    if !zeros.is_empty() && zeros.end == words.len() {
        out.push(b':');
    }
}

/// The first of the longest runs of two zeros or more.
fn longest_zeros(words: &[u16; 8]) -> Range<usize> {
    let mut best = 0..0;
    let mut at = 0;
    while at < words.len() {
        let length = words[at..].iter().take_while(|word| **word == 0).count();
        if length >= 2 && length > best.len() {
            best = at..at + length;
        }
        at += length.max(1);
    }
    best
}

/// Takes a decimal number off the front: one digit at least, and no more than the limit.
fn number(bytes: &mut &[u8], limit: u32) -> Option<u8> {
    let length = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = bytes.split_at(length);
    *bytes = rest;
    if digits.is_empty() {
        return None;
    }
    let value = digits.iter().try_fold(0u32, |value, digit| {
        Some(value * 10 + u32::from(digit - b'0')).filter(|value| *value <= limit)
    })?;
    u8::try_from(value).ok()
}

/// A number that is all there is.
fn whole_number(mut bytes: &[u8], limit: u32) -> Option<u8> {
    number(&mut bytes, limit).filter(|_| bytes.is_empty())
}

/// The same without zeros before it, as IPv6 has it.
fn strict_number(bytes: &[u8], limit: u32) -> Option<u8> {
    match bytes {
        [b'0', _, ..] => None,
        _ => whole_number(bytes, limit),
    }
}

/// `1.2.3.4`, `1.2.3.4/24`, and with a number of bits also fewer octets: `10.1/16`.
fn parse_v4(text: &[u8]) -> Option<Inet> {
    let mut rest = text;
    let (mut octets, mut count) = ([0; 4], 0);
    while rest.first().is_some_and(u8::is_ascii_digit) {
        let octet = number(&mut rest, 255)?;
        *octets.get_mut(count)? = octet;
        count += 1;
        match rest {
            [] | [b'/', ..] => break,
            [b'.', after @ ..] => rest = after,
            _ => return None,
        }
    }
    let bits = match rest {
        [] if count == 4 => 32,
        [b'/', bits @ ..] if count > 0 => whole_number(bits, 32)?,
        _ => return None,
    };
    if usize::from(bits / 8) > count {
        return None;
    }
    Inet::v4(octets, bits)
}

/// A network: octets that are left out are zeros, and without a number of bits there are as many
/// as the class of the address has, or as the octets that are written.
fn parse_network_v4(text: &[u8]) -> Option<Inet> {
    let mut rest = text;
    let (octets, count) = match text {
        [b'0', b'x' | b'X', digits @ ..] if digits.first().is_some_and(u8::is_ascii_hexdigit) => {
            rest = digits;
            hexadecimal_octets(&mut rest)?
        }
        _ => decimal_octets(&mut rest)?,
    };
    let bits = match rest {
        [] => {
            let class: u8 = match octets[0] {
                240.. => 32,
                224.. => 8,
                192.. => 24,
                128.. => 16,
                _ => 8,
            };
            let bits = class.max(8 * count as u8);
            if bits == 8 && octets[0] == 224 { 4 } else { bits }
        }
        [b'/', bits @ ..] => whole_number(bits, 32)?,
        _ => return None,
    };
    Inet::v4(octets, bits)
}

fn decimal_octets(rest: &mut &[u8]) -> Option<([u8; 4], usize)> {
    let (mut octets, mut count) = ([0; 4], 0);
    loop {
        let octet = number(rest, 255)?;
        *octets.get_mut(count)? = octet;
        count += 1;
        match *rest {
            [b'.', after @ ..] => *rest = after,
            _ => return Some((octets, count)),
        }
    }
}

fn hexadecimal_octets(rest: &mut &[u8]) -> Option<([u8; 4], usize)> {
    let (mut octets, mut digits) = ([0u8; 4], 0usize);
    while let Some(digit) = rest.first().and_then(|byte| char::from(*byte).to_digit(16)) {
        *rest = &rest[1..];
        let shift = if digits % 2 == 0 { 4 } else { 0 };
        *octets.get_mut(digits / 2)? |= (digit as u8) << shift;
        digits += 1;
    }
    Some((octets, digits.div_ceil(2)))
}

/// What is known of an IPv6 address that is being read.
#[derive(Default)]
struct Groups {
    address: [u8; 16],
    length: usize,
    /// Where `::` stands.
    gap: Option<usize>,
}

impl Groups {
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        self.address.get_mut(self.length..self.length + bytes.len())?.copy_from_slice(bytes);
        self.length += bytes.len();
        Some(())
    }

    /// Moves what stands behind `::` to the end.
    fn finish(mut self) -> Option<[u8; 16]> {
        let Some(gap) = self.gap else {
            return (self.length == 16).then_some(self.address);
        };
        if self.length == 16 {
            return None;
        }
        let behind = 16 - (self.length - gap);
        self.address.copy_within(gap..self.length, behind);
        self.address[gap..behind].fill(0);
        Some(self.address)
    }
}

fn parse_v6(text: &[u8]) -> Option<Inet> {
    // Of a colon pair at the beginning the second one is read as any other.
    let mut rest = match text {
        [b':', after @ ..] => Some(after).filter(|after| after.first() == Some(&b':'))?,
        _ => text,
    };
    let mut groups = Groups::default();
    let (mut group, mut value, mut digits, mut bits) = (rest, 0u16, 0, 128);
    while let [byte, after @ ..] = rest {
        rest = after;
        if let Some(digit) = char::from(*byte).to_digit(16) {
            digits += 1;
            if digits > 4 {
                return None;
            }
            value = value << 4 | digit as u16;
            continue;
        }
        match byte {
            b':' if digits == 0 => {
                if groups.gap.replace(groups.length).is_some() {
                    return None;
                }
                group = rest;
            }
            b':' if !rest.is_empty() => {
                groups.put(&value.to_be_bytes())?;
                (group, value, digits) = (rest, 0, 0);
            }
            b'.' => {
                let (octets, its_bits) = embedded_v4(group)?;
                groups.put(&octets)?;
                (bits, digits) = (its_bits, 0);
                break;
            }
            b'/' => {
                bits = strict_number(rest, 128)?;
                break;
            }
            _ => return None,
        }
    }
    if digits > 0 {
        groups.put(&value.to_be_bytes())?;
    }
    Inet::v6(groups.finish()?, bits)
}

/// The end of an IPv6 address as an IPv4 address, with the bits of the whole. Octets may be left
/// out, but for the last one of those that there are.
fn embedded_v4(text: &[u8]) -> Option<([u8; 4], u8)> {
    let (body, bits) = match text.iter().position(|byte| *byte == b'/') {
        Some(at) => (&text[..at], Some(strict_number(&text[at + 1..], 128)?)),
        None => (text, None),
    };
    if bits.is_none() && body.last() == Some(&b'.') {
        return None;
    }
    let mut octets = [0; 4];
    for (place, octet) in body.split(|byte| *byte == b'.').enumerate() {
        let value = if octet.is_empty() { 0 } else { strict_number(octet, 255)? };
        *octets.get_mut(place)? = value;
    }
    Some((octets, bits.unwrap_or(128)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, is_cidr: bool) -> Option<String> {
        let mut out = Vec::new();
        Inet::parse(text, is_cidr).ok()?.write(is_cidr, &mut out);
        String::from_utf8(out).ok()
    }

    #[test]
    fn hosts_read_and_print() {
        for (text, expected) in [
            ("1.2.3.4", "1.2.3.4"),
            ("1.2.3.4/32", "1.2.3.4"),
            ("192.168.1.5/24", "192.168.1.5/24"),
            ("10/8", "10.0.0.0/8"),
            ("::1", "::1"),
            ("::", "::"),
            ("1::", "1::"),
            ("2001:DB8:0:0:1:0:0:1/64", "2001:db8::1:0:0:1/64"),
            ("::ffff:1.2.3.4", "::ffff:1.2.3.4"),
            ("::1.2.3.4/96", "::1.2.3.4/96"),
            ("1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8"),
            ("1:0:3:4:5:6:7:8", "1:0:3:4:5:6:7:8"),
        ] {
            assert_eq!(shown(text, false).as_deref(), Some(expected), "{text}");
        }
        let wrong = "|1.2.3|1.2.3.4.5|1.2.3.256|1.2.3.4/33|10/16| 1.2.3.4|1.2.3.4 |a|:1|1:|:::|1::2::3|\
                     1:2:3:4:5:6:7|1:2:3:4:5:6:7:8:9|12345::|::1/129|::1/01|::1/|::1.2.3.4.5|::1.2.3.|\
                     1:2:3:4:5:6:7:8::";
        for text in wrong.split('|') {
            assert_eq!(shown(text, false), None, "{text}");
        }
    }

    #[test]
    fn networks_read_and_print() {
        for (text, expected) in [
            ("192.168.1", "192.168.1.0/24"),
            ("192.168", "192.168.0.0/24"),
            ("128.1", "128.1.0.0/16"),
            ("10", "10.0.0.0/8"),
            ("10.1.2", "10.1.2.0/24"),
            ("224", "224.0.0.0/4"),
            ("1.2.3.4", "1.2.3.4/32"),
            ("0x0a01", "10.1.0.0/16"),
            ("10.1.2.3/32", "10.1.2.3/32"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("::1", "::1/128"),
        ] {
            assert_eq!(shown(text, true).as_deref(), Some(expected), "{text}");
        }
        for text in ["", "1.2.3.4/24", "10.", "10.1./16", "2001:db8::1/32", "1.2.3.4/33"] {
            assert_eq!(shown(text, true), None, "{text}");
        }
    }

    #[test]
    fn a_network_stands_before_what_is_in_it() {
        let texts = "9.0.0.0/32 10.0.0.0/8 10.9.0.0/8 10.0.0.0/16 10.0.0.0 10.1.0.0/16 ::";
        let values: Vec<Inet> = texts.split(' ').map(|text| Inet::parse(text, false).expect(text)).collect();
        assert!(values.is_sorted(), "{values:?}");
        let keys = values.iter().map(|value| {
            let mut key = Vec::new();
            value.write_key(&mut key);
            key
        });
        assert!(keys.is_sorted());
    }
}
