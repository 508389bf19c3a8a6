//! Views of the base store: which of its states belongs to which snapshot.
//!
//! A checkpoint moves the base to a new watermark. Snapshots below that go on with an earlier view,
//! which the base keeps readable (its runs never change); so an old reader holds disk space, not
//! memory, and does not hold up checkpoints. The view of a snapshot is the newest whose watermark
//! is not above it.
//!
//! ```text
//! views      0          500              900
//! snapshots     [.. 499]   [500 .. 899]      [900 ..
//! no active snapshot in 500..=899: that view is let go
//! ```
//!
//! The list is replaced as a whole, so that looking up takes no lock.

use std::sync::Arc;

use crate::Csn;
use crate::storage::{Base, BaseView};
use crate::sync::{ArcSwap, Mutex};

/// The views that some snapshot may need, ascending by watermark; never empty.
pub(crate) struct Views {
    list: ArcSwap<Vec<BaseView>>,
    publishing: Mutex<()>,
}

impl Views {
    pub(crate) fn new(base: &Base) -> Views {
        Views { list: ArcSwap::from_pointee(vec![base.view()]), publishing: Mutex::new(()) }
    }

    /// Runs `f` on the view of a snapshot. To be called after memory was looked at, never before.
    #[inline]
    pub(crate) fn with<R>(&self, snapshot: Csn, f: impl FnOnce(&BaseView) -> R) -> R {
        let list = self.list.load();
        let at = list.partition_point(|view| view.watermark() <= snapshot);
        f(&list[at.saturating_sub(1)])
    }

    /// Watermarks, ascending.
    pub(crate) fn watermarks(&self) -> Vec<Csn> {
        self.list.load().iter().map(BaseView::watermark).collect()
    }

    /// Makes the base's present state the view of the newest snapshots. One of the same watermark
    /// (after a merge of runs) replaces the last.
    pub(crate) fn publish(&self, base: &Base) {
        let publishing = self.publishing.lock();
        let before = self.list.load_full();
        let mut list = Vec::clone(&before);
        let view = base.view();
        if list.last().is_some_and(|last| last.watermark() == view.watermark()) {
            list.pop();
        }
        list.push(view);
        self.list.store(Arc::new(list));
        // What goes may be the last to hold runs that were merged, whose files are removed then:
        // whoever commits a load waits for the mutex, and all others for him.
        drop(publishing);
        drop(before);
    }

    /// Lets go of views that no snapshot needs: neither one of `active` (ascending) nor a newer
    /// one.
    pub(crate) fn prune(&self, active: &[Csn]) {
        let publishing = self.publishing.lock();
        let list = self.list.load_full();
        let mut kept = Vec::with_capacity(list.len());
        for (at, view) in list.iter().enumerate() {
            let needed = list.get(at + 1).is_none_or(|next| {
                let first = active.partition_point(|&s| s < view.watermark());
                active.get(first).is_some_and(|&s| s < next.watermark())
            });
            if needed {
                kept.push(view.clone());
            }
        }
        if kept.len() < list.len() {
            self.list.store(Arc::new(kept));
        }
        // As above.
        drop(publishing);
        drop(list);
    }
}

#[cfg(test)]
mod tests {
    use cognate_env::RealDisk;

    use super::*;
    use crate::storage::BaseOptions;

    #[test]
    fn a_snapshot_keeps_its_view_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let base = Base::open(Arc::new(RealDisk), folder.path(), BaseOptions::default()).unwrap();
        let views = Views::new(&base);
        for watermark in [500, 900, 900] {
            base.apply(watermark, &mut std::iter::empty(), &[]).unwrap();
            views.publish(&base);
        }
        assert_eq!(views.watermarks(), [0, 500, 900]);
        for (snapshot, watermark) in [(0, 0), (499, 0), (500, 500), (899, 500), (900, 900), (Csn::MAX, 900)] {
            assert_eq!(views.with(snapshot, BaseView::watermark), watermark);
        }
        views.prune(&[0, 499, 950]);
        assert_eq!(views.watermarks(), [0, 900]);
        views.prune(&[]);
        assert_eq!(views.watermarks(), [900]);
    }
}
