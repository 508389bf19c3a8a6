//! The roots of which no call is taken any more.
//!
//! # Why a mark may end
//!
//! It lasts until the root's time is over at its component, and ten seconds longer. A message that
//! comes later still (a network was parted for minutes, or something in between has kept a copy)
//! meets a component that knows nothing. It leaves nothing for ever:
//!
//! - A *call* is executed once more: it has a lock, a slot, and a time of its own, of 60 seconds at
//!   most. When that is over it is undone, unless a yes was given for it; then, or if its process
//!   has ended meanwhile, its parent is asked. That one does not know the root any more, or does
//!   not know the call that has called (`Participant::outcome`), or has decided by another nonce:
//!   each means that it is aborted. What it has called in turn ends in the same way; and if that
//!   one has the root from others, to whom it has promised it, it takes their word and no other
//!   (`Root::is_called_by`): what is given up here is not what they know.
//! - A *question for a vote* of calls that are not here is a no. Of what a late call has executed
//!   it may be a yes, which nobody waits for.
//! - A *commit* names a nonce, which is none of what was executed late (`commit_told`). An *abort*,
//!   or an outcome that was asked for, can only say what the parent has decided once.
//!
//! So the one thing to be kept out is a parent that takes the yes to what was executed late for the
//! yes to what it was answered:
//!
//! ```text
//! shop     r.1 ─▶ stock, 2xx                            (its process is stopped)       prepare(1)
//! stock    r.1 runs, answered     deadline: undone, mark     mark over     r.1 again     yes
//! ```
//!
//! The nonce tells them apart where answers announce it, which is optional. Time always does: calls
//! are given what is left of their root's time, so that no component is at its deadline before the
//! root is where it began (but for milliseconds that are rounded off); there no vote counts that
//! comes after its time (`Node::decide` in `cognate-composite`), and what is voted before it is
//! voted while the mark is there. A mark of something of which no time is known lasts as long as
//! any root may take, and ten seconds.
//!
//! # How they are found
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
