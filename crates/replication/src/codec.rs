//! How values become bytes, in the log and between nodes: little-endian numbers, lengths in front
//! of what has none of its own, one byte in front of a choice.
//!
//! Nothing that is read is trusted: a length is compared with what is there before anything is
//! taken or reserved, and what is left over at the end is an error.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Buf, Bytes};

/// Bytes that do not say what they should.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed: {0}")]
pub struct Malformed(pub &'static str);

/// Takes values from the front of some bytes.
#[derive(Debug)]
pub struct Reader {
    rest: Bytes,
}

impl Reader {
    /// Reads from the beginning of `bytes`. Byte strings that are taken share its memory.
    pub fn new(bytes: Bytes) -> Reader {
        Reader { rest: bytes }
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Result<Bytes, Malformed> {
        if count > self.rest.len() {
            return Err(Malformed("it ends too early"));
        }
        Ok(self.rest.split_to(count))
    }

    /// All that is left.
    pub fn rest(&mut self) -> Bytes {
        std::mem::take(&mut self.rest)
    }

    /// Bytes that are left.
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// A count of things of which each takes a byte at least.
    fn count(&mut self) -> Result<usize, Malformed> {
        let count = u32::get(self)? as usize;
        if count > self.rest.len() { Err(Malformed("a count is too large")) } else { Ok(count) }
    }
}

/// A value that can be written to bytes and read back.
pub trait Coded: Sized {
    /// Appends the value.
    fn put(&self, out: &mut Vec<u8>);

    /// Takes a value.
    fn get(from: &mut Reader) -> Result<Self, Malformed>;

    /// The value's bytes.
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.put(&mut out);
        out
    }

    /// The value that all of `bytes` say.
    fn decode(bytes: Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let value = Self::get(&mut reader)?;
        if reader.left() > 0 { Err(Malformed("there are bytes too many")) } else { Ok(value) }
    }
}

/// Writes a struct as its fields, one after the other.
macro_rules! coded_fields {
    ($name:ident { $($field:ident),* $(,)? }) => {
        impl $crate::codec::Coded for $name {
            #[allow(unused_variables)]
            fn put(&self, out: &mut Vec<u8>) {
                $($crate::codec::Coded::put(&self.$field, out);)*
            }

            #[allow(unused_variables)]
            fn get(
                from: &mut $crate::codec::Reader,
            ) -> Result<Self, $crate::codec::Malformed> {
                $(let $field = $crate::codec::Coded::get(from)?;)*
                Ok($name { $($field),* })
            }
        }
    };
}
pub(crate) use coded_fields;

impl Coded for u8 {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }

    fn get(from: &mut Reader) -> Result<u8, Malformed> {
        Ok(from.take(1)?.get_u8())
    }
}

impl Coded for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn get(from: &mut Reader) -> Result<bool, Malformed> {
        match u8::get(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("neither yes nor no")),
        }
    }
}

impl Coded for u32 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }

    fn get(from: &mut Reader) -> Result<u32, Malformed> {
        Ok(from.take(4)?.get_u32_le())
    }
}

impl Coded for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }

    fn get(from: &mut Reader) -> Result<u64, Malformed> {
        Ok(from.take(8)?.get_u64_le())
    }
}

impl<const N: usize> Coded for [u8; N] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn get(from: &mut Reader) -> Result<[u8; N], Malformed> {
        let mut array = [0; N];
        array.copy_from_slice(&from.take(N)?);
        Ok(array)
    }
}

impl Coded for Bytes {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        out.extend_from_slice(self);
    }

    fn get(from: &mut Reader) -> Result<Bytes, Malformed> {
        let count = from.count()?;
        from.take(count)
    }
}

impl Coded for String {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        out.extend_from_slice(self.as_bytes());
    }

    fn get(from: &mut Reader) -> Result<String, Malformed> {
        let bytes = Bytes::get(from)?;
        String::from_utf8(bytes.to_vec()).map_err(|_| Malformed("a text that is none"))
    }
}

impl<T: Coded> Coded for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn get(from: &mut Reader) -> Result<Option<T>, Malformed> {
        if bool::get(from)? { T::get(from).map(Some) } else { Ok(None) }
    }
}

impl<T: Coded> Coded for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        self.iter().for_each(|value| value.put(out));
    }

    fn get(from: &mut Reader) -> Result<Vec<T>, Malformed> {
        let count = from.count()?;
        (0..count).map(|_| T::get(from)).collect()
    }
}

impl<T: Coded + Ord> Coded for BTreeSet<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        self.iter().for_each(|value| value.put(out));
    }

    fn get(from: &mut Reader) -> Result<BTreeSet<T>, Malformed> {
        let count = from.count()?;
        (0..count).map(|_| T::get(from)).collect()
    }
}

impl<K: Coded + Ord, V: Coded> Coded for BTreeMap<K, V> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        for (key, value) in self {
            key.put(out);
            value.put(out);
        }
    }

    fn get(from: &mut Reader) -> Result<BTreeMap<K, V>, Malformed> {
        let count = from.count()?;
        (0..count).map(|_| Ok((K::get(from)?, V::get(from)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again<T: Coded + PartialEq + std::fmt::Debug>(value: T) {
        assert_eq!(T::decode(Bytes::from(value.encode())).unwrap(), value);
    }

    #[test]
    fn what_is_written_is_read() {
        again(7_u64);
        again(Some(vec![String::from("a"), String::new()]));
        again(BTreeMap::from([(1_u64, BTreeSet::from([2_u64, 3])), (4, BTreeSet::new())]));
        again(Bytes::from_static(b"bytes"));
        again([true, false].map(u8::from));
    }

    #[test]
    fn a_count_beyond_what_is_there_reserves_nothing() {
        let mut bytes = u32::MAX.encode();
        bytes.push(1);
        let found = Vec::<u64>::decode(Bytes::from(bytes));
        assert_eq!(found, Err(Malformed("a count is too large")));
    }

    #[test]
    fn every_cut_is_an_error() {
        let whole = Some(vec![String::from("abc")]).encode();
        for length in 0..whole.len() {
            let cut = Bytes::copy_from_slice(&whole[..length]);
            assert!(Option::<Vec<String>>::decode(cut).is_err(), "{length}");
        }
        let mut longer = whole;
        longer.push(0);
        assert!(Option::<Vec<String>>::decode(Bytes::from(longer)).is_err());
    }
}
