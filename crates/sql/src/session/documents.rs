//! The catalog's documents as they are stored, with the place of one that cannot be read.

use std::ops::Bound;

use cognate_engine::{Access, Csn, Database, Isolation, Owner, Transaction};

use super::databases::Stored;
use crate::catalog::{Object, Oid, store};
use crate::error::{Result, SqlError};
use crate::place;

/// Reads all documents of the catalogs, and changes nothing: for who verifies a database that
/// nobody uses.
///
/// # Errors
/// XX001, which names the object that cannot be read, and in its detail file and offset.
pub fn verify_catalogs(engine: &Database) -> Result<()> {
    stored_objects(engine, &engine.begin(Isolation::Snapshot, Access::ReadOnly)).map(drop)
}

/// The objects of all catalogs as a transaction's snapshot has them.
pub(super) fn stored_objects(engine: &Database, transaction: &Transaction) -> Result<Stored> {
    let mut scan = transaction.scan_unnoted(store::CATALOG_TREE, Bound::Unbounded, Bound::Unbounded)?;
    let mut objects = Vec::new();
    while let Some((key, document)) = scan.next()? {
        objects.push(decode_placed(engine, &key, &document, transaction.snapshot())?);
    }
    Ok(Stored::new(objects))
}

/// An object of the catalog, and the database that its key says. XX001 with file and offset if it
/// cannot be read.
pub(super) fn decode_placed(
    engine: &Database,
    key: &[u8],
    document: &[u8],
    snapshot: Csn,
) -> Result<(Oid, Object)> {
    let placed = decode(key, document).and_then(|object| Ok((store::place_of(key)?.0, object)));
    placed.map_err(|error| place::located(engine, store::CATALOG_TREE, key, snapshot, error))
}

/// An object of the catalog. XX001 that names it if it cannot be read.
pub(super) fn decode(key: &[u8], document: &[u8]) -> Result<Object> {
    store::decode(document).map_err(|error| {
        let message = format!("{}: {}", store::describe(key, document), error.message);
        SqlError::new(error.sqlstate, message)
    })
}

/// The error with the file and the offset of what a prepared transaction writes.
#[cold]
pub(super) fn place_prepared(engine: &Database, identifier: &str, error: SqlError) -> SqlError {
    let owner = Owner::Global(identifier.into());
    match engine.prepared().into_iter().find(|prepared| prepared.owner == owner) {
        Some(prepared) => {
            let (tree, key) = prepared.row();
            place::located(engine, tree, &key, Csn::MAX, error)
        }
        None => error,
    }
}
