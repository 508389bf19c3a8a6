//! Sets of places in a text.

/// A set of places in a text, from a first one on.
#[derive(Debug)]
pub(super) struct Places {
    base: usize,
    /// A bit for each place, as far as there are any.
    words: Vec<u64>,
}

impl Places {
    /// None yet.
    pub(super) fn from_base(base: usize) -> Places {
        Places { base, words: Vec::new() }
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&self.words[..])
    }

    pub(super) fn add(&mut self, at: usize) {
        let offset = at - self.base;
        if offset / 64 >= self.words.len() {
            self.words.resize(offset / 64 + 1, 0);
        }
        self.words[offset / 64] |= 1 << (offset % 64);
    }

    pub(super) fn has(&self, at: usize) -> bool {
        let offset = at - self.base;
        self.words.get(offset / 64).is_some_and(|word| word >> (offset % 64) & 1 == 1)
    }

    /// Keeps what another set of the same base has, too.
    pub(super) fn keep(&mut self, other: &Places) {
        self.words.truncate(other.words.len());
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word &= other;
        }
    }

    pub(super) fn retain(&mut self, mut wanted: impl FnMut(usize) -> bool) {
        let mut next = self.from(self.base);
        while let Some(at) = next {
            if !wanted(at) {
                let offset = at - self.base;
                self.words[offset / 64] &= !(1 << (offset % 64));
            }
            next = self.from(at + 1);
        }
    }

    /// The first place from here on.
    pub(super) fn from(&self, at: usize) -> Option<usize> {
        let offset = at.checked_sub(self.base)?;
        let mut index = offset / 64;
        let mut word = *self.words.get(index)? & (u64::MAX << (offset % 64));
        while word == 0 {
            index += 1;
            word = *self.words.get(index)?;
        }
        Some(self.base + index * 64 + word.trailing_zeros() as usize)
    }

    /// The last place before here.
    pub(super) fn before(&self, at: usize) -> Option<usize> {
        let offset = at.checked_sub(self.base)?;
        let mut index = offset / 64;
        let mut word = match self.words.get(index) {
            Some(word) => word & !(u64::MAX << (offset % 64)),
            None => {
                index = self.words.len().checked_sub(1)?;
                self.words[index]
            }
        };
        while word == 0 {
            index = index.checked_sub(1)?;
            word = self.words[index];
        }
        Some(self.base + index * 64 + 63 - word.leading_zeros() as usize)
    }
}
