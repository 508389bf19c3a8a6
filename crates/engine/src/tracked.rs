//! What one statement reads, for who locks it afterwards (strict two-phase locking).

use crate::reads::Reads;
use crate::{Key, ReadView, TreeId};

/// A view that remembers what was read through it.
#[derive(Debug)]
pub struct TrackedView {
    view: ReadView,
}

impl TrackedView {
    pub(crate) fn new(view: ReadView) -> TrackedView {
        TrackedView { view }
    }

    pub(crate) fn reads(&self) -> Option<&Reads> {
        self.view.reads()
    }

    /// The view to read through.
    pub fn view(&self) -> &ReadView {
        &self.view
    }

    /// The keys that were read, found or not, and the trees of which more than single keys were
    /// read.
    pub fn seen(&self) -> (Vec<(TreeId, Key)>, Vec<TreeId>) {
        self.reads().map(Reads::seen).unwrap_or_default()
    }
}
