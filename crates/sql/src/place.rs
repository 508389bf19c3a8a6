//! Where a stored row lies that makes no sense, and what to do about it: added to the error, for
//! whoever restores the folder.

use cognate_engine::{Csn, Database};

use crate::error::{RESTORE, SqlError};

/// The error with the file and the offset of the row.
#[cold]
pub(crate) fn located(engine: &Database, tree: u32, key: &[u8], snapshot: Csn, error: SqlError) -> SqlError {
    let Some((file, offset)) = engine.place_of(tree, key, snapshot) else { return error };
    let detail = format!("It is in file {}, at byte {offset}.", file.display());
    error.with_detail(detail).with_hint(remedy(engine))
}

/// What to do about damage: a node of a cluster has from the others what it had.
#[cold]
pub(crate) fn remedy(engine: &Database) -> String {
    let Some((node, _)) = engine.node() else { return RESTORE.to_owned() };
    format!(
        "Rebuild the node: stop it, remove its folder, start it again, and say cognate node rebuild {node}. \
         If no other node has its data, restore a backup."
    )
}
