//! Values on cache lines of their own.
//!
//! A processor that writes takes the whole line away from the others. What every commit writes therefore must not lie beside what every read
//! looks at: the reads would wait for memory without having anything to do with the write.

use std::ops::Deref;

/// A value that shares its cache lines with nothing. Two lines, since processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Apart<T>(T);

impl<T> Apart<T> {
    pub(crate) const fn new(value: T) -> Apart<T> {
        Apart(value)
    }
}

impl<T> Deref for Apart<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}
