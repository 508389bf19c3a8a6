//! The manager's part of naming damage (`damage`): where its rows are at a snapshot.

use std::path::PathBuf;

use crate::damage::Places;
use crate::manager::Manager;
use crate::{Csn, Error, TreeId};

impl Manager {
    /// The file with the version of a row that a snapshot shows, and the offset of the record or the block that has it.
    pub(crate) fn place_of(&self, tree: TreeId, key: &[u8], snapshot: Csn) -> Option<(PathBuf, u64)> {
        self.with_places(snapshot, |places| places.find(tree, key, snapshot))
    }

    /// Names the place of a row of the engine's own that cannot be understood.
    #[cold]
    pub(crate) fn name_place(&self, error: Error) -> Error {
        self.with_places(Csn::MAX, |places| places.name(error))
    }

    fn with_places<R>(&self, snapshot: Csn, ask: impl FnOnce(&Places<'_>) -> R) -> R {
        let (memory, log, folder) = (&self.memory, &self.log, &*self.options.path);
        self.views.with(snapshot, |base| ask(&Places { memory, log, base, folder }))
    }
}
