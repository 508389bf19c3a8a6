//! What the newest transactions in the graph read, or what they wrote, as two flat arrays.
//!
//! Most transactions leave the graph a few commits after they came. Entering them into a hash table and taking them out again costs more than
//! looking through what all of them touched: four bytes of each key's hash lie side by side, and the processor compares sixteen of them at a time.
//!
//! ```text
//! marks  [ 4f.. | 09.. | 4f.. | c1.. ]     who wrote 4f…?  items 0 and 2
//! items  [ T1 at 9 | T2 at 10 | T3 at 11 | T3 at 11 ]
//! ```

use super::node::NodeId;
use crate::Csn;
use crate::txn::readset::KeyHash;

/// One key that one transaction read, or wrote.
#[derive(Debug, Clone, Copy)]
pub(super) struct Touch {
    pub(super) hash: KeyHash,
    /// For a write the commit's number; for a read the last number that it could see.
    pub(super) at: Csn,
    pub(super) node: NodeId,
}

/// See the module's prose. In the order in which transactions were admitted.
#[derive(Debug, Default)]
pub(super) struct Young {
    marks: Vec<u32>,
    touches: Vec<Touch>,
}

impl Young {
    pub(super) fn len(&self) -> usize {
        self.touches.len()
    }

    #[inline]
    pub(super) fn push(&mut self, touch: Touch) {
        self.marks.push(touch.hash as u32);
        self.touches.push(touch);
    }

    /// Visits everything about a key.
    #[inline]
    pub(super) fn each(&self, hash: KeyHash, mut visit: impl FnMut(&Touch)) {
        let mark = hash as u32;
        let (groups, rest) = self.marks.as_chunks::<16>();
        for (at, group) in groups.iter().enumerate() {
            let hits = group.iter().fold(0_u32, |hits, other| hits | u32::from(*other == mark));
            if hits != 0 {
                let touches = &self.touches[16 * at..16 * at + 16];
                touches.iter().filter(|touch| touch.hash == hash).for_each(&mut visit);
            }
        }
        let touches = &self.touches[self.touches.len() - rest.len()..];
        touches.iter().filter(|touch| touch.hash == hash).for_each(visit);
    }

    /// Keeps what belongs to the nodes that `keep` names.
    pub(super) fn retain(&mut self, keep: &dyn Fn(NodeId) -> bool) {
        self.touches.retain(|touch| keep(touch.node));
        self.marks.clear();
        self.marks.extend(self.touches.iter().map(|touch| touch.hash as u32));
    }

    /// Takes all out, in order.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Touch> {
        self.marks.clear();
        self.touches.drain(..)
    }
}
