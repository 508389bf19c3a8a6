//! Where a damaged row lies: the file and the offset that whoever restores it wants to know.
//!
//! Every byte is under a checksum, so bytes that rot are found, and named, where they are read.
//! What is looked for here is a row that came back just as it was written and still makes no sense.
//! Its version says where it is: one in memory came from a record of the log, any other from a
//! block of a run.

use std::path::{Path, PathBuf};

use crate::memory::Memory;
use crate::storage::{BaseView, Log};
use crate::{Csn, Error, Key, TreeId};

/// Where rows can be.
pub(crate) struct Places<'a> {
    pub(crate) memory: &'a Memory,
    pub(crate) log: &'a Log,
    /// The view of the base that belongs to the snapshot that is asked for.
    pub(crate) base: &'a BaseView,
    /// The data folder.
    pub(crate) folder: &'a Path,
}

impl Places<'_> {
    /// The file with the version of a row that a snapshot shows, and the offset in it: of the log's
    /// record, or of the run's block. `None` if it is nowhere yet, or there is no such row.
    pub(crate) fn find(&self, tree: TreeId, key: &[u8], snapshot: Csn) -> Option<(PathBuf, u64)> {
        let commit = self.memory.with_tree(tree, |of| of.commit_of(key, snapshot));
        // What is in the base as well may have left the log.
        commit
            .and_then(|commit| self.log.place_of(commit))
            .or_else(|| self.base.place_of(tree, key, snapshot).ok().flatten())
    }

    /// Names the place of what cannot be understood. Other errors stay what they are.
    pub(crate) fn name(&self, error: Error) -> Error {
        match &error {
            Error::Undecodable { row: Some((tree, key)), .. } => {
                let (file, offset) = self.find_newest(*tree, key);
                error.at(&file, offset)
            }
            _ => error,
        }
    }

    fn find_newest(&self, tree: TreeId, key: &Key) -> (PathBuf, u64) {
        self.find(tree, key, Csn::MAX).unwrap_or_else(|| (self.folder.to_path_buf(), 0))
    }
}
