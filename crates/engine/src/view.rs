//! Views of the base store: which immutable state of the base belongs to which snapshot.

use crate::memory::Range;
use crate::{Csn, Error, Key, TreeId, Value};

/// One immutable state of the base store.
pub(crate) struct View {
    watermark: Csn,
}

impl View {
    pub(crate) fn empty() -> View {
        View { watermark: 0 }
    }

    pub(crate) fn watermark(&self) -> Csn {
        self.watermark
    }

    pub(crate) fn get(&self, _tree: TreeId, _key: &[u8]) -> Result<Option<Value>, Error> {
        Ok(None)
    }

    pub(crate) fn scan(&self, _tree: TreeId, _range: Range<'_>, _reverse: bool) -> Result<ViewScan, Error> {
        Ok(ViewScan::empty())
    }
}

/// A scan of a view.
pub(crate) struct ViewScan;

impl ViewScan {
    pub(crate) fn empty() -> ViewScan {
        ViewScan
    }

    pub(crate) fn next(&mut self) -> Result<Option<(Key, Value)>, Error> {
        Ok(None)
    }
}
