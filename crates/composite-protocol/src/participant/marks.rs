//! The roots of which no call is taken any more.
//!
//! There are as many as end within the time in which messages can be late: tens of thousands under
//! load, and each root is looked up several times. In an order of names every comparison on the way
//! would read a text that lies somewhere else, so they are found by their hashes.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::{Deref, DerefMut};

use super::event::Mark;
use crate::name::RootId;

/// Marks by their roots.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Marks(HashMap<RootId, Mark>);

impl Deref for Marks {
    type Target = HashMap<RootId, Mark>;
    fn deref(&self) -> &HashMap<RootId, Mark> {
        &self.0
    }
}

impl DerefMut for Marks {
    fn deref_mut(&mut self) -> &mut HashMap<RootId, Mark> {
        &mut self.0
    }
}

impl FromIterator<(RootId, Mark)> for Marks {
    fn from_iter<I: IntoIterator<Item = (RootId, Mark)>>(marks: I) -> Marks {
        Marks(marks.into_iter().collect())
    }
}

/// Equal ones have equal hashes, in whatever order they lie: each is hashed by itself.
impl Hash for Marks {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let one = |mark: (&RootId, &Mark)| {
            let mut hasher = DefaultHasher::new();
            mark.hash(&mut hasher);
            hasher.finish()
        };
        state.write_usize(self.0.len());
        state.write_u64(self.0.iter().map(one).fold(0, u64::wrapping_add));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNDONE: Mark = Mark::Undone(Some(7));

    fn hash(marks: &Marks) -> u64 {
        let mut hasher = DefaultHasher::new();
        marks.hash(&mut hasher);
        hasher.finish()
    }

    #[test]
    fn equal_marks_have_equal_hashes_in_whatever_order_they_came() {
        let mark = |name: &str, mark: Mark| (RootId::new(name).unwrap(), mark);
        let all = [mark("a", Mark::Empty), mark("b", UNDONE), mark("c", Mark::Committed)];
        let marks: Marks = all.iter().cloned().collect();
        let backwards: Marks = all.iter().rev().cloned().collect();
        assert_eq!((&marks, hash(&marks)), (&backwards, hash(&backwards)));
        let others: Marks = [mark("a", UNDONE), mark("b", Mark::Empty)].into_iter().collect();
        assert_ne!(hash(&others), hash(&all[..2].iter().cloned().collect()));
    }
}
