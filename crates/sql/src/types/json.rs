//! JSON texts.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

pub(crate) fn compare(a: &str, b: &str) -> Ordering {
    a.cmp(b)
}

pub(crate) fn hash<H: Hasher>(text: &str, state: &mut H) {
    text.hash(state);
}

pub(crate) fn write_key(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(text.as_bytes());
}
