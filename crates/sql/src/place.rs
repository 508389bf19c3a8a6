//! Where a stored row lies that makes no sense: added to the error, for whoever restores the
//! folder.

use cognate_engine::{Csn, Database};

use crate::error::SqlError;

/// The error with the file and the offset of the row.
#[cold]
pub(crate) fn located(engine: &Database, tree: u32, key: &[u8], snapshot: Csn, error: SqlError) -> SqlError {
    let Some((file, offset)) = engine.place_of(tree, key, snapshot) else { return error };
    let detail = format!("It is in file {}, at byte {offset}.", file.display());
    error.with_detail(detail).with_hint("Restore the data folder from a backup.")
}
