//! A database made of a backup (`storage::backup` has its bytes).
//!
//! What comes is taken in beside, verified, made a database of its own there, and moved to where it
//! belongs at the very end. Until then a file in the data folder says what is going on, and the
//! folder does not open:
//!
//! ```text
//! begin      RESTORING
//! put        RESTORING, restored/INCOMPLETE, restored/base/…
//! verify     RESTORING, restored/base/…, restored/log/…       opens there, to be read back
//! finish     RESTORING, base/…, log/…                         moved, file by file
//!            base/…, log/…                                    opens
//! ```
//!
//! Whatever ends this early leaves `RESTORING`: what is in the folder is removed, and it is begun
//! anew. From `begin` to the end of `finish` the folder's lock is held: a server that looked for
//! `RESTORING` just before it was there does not open either, for it looks again under the lock.
//!
//! # Whatever it was taken from, it is a database of its own
//!
//! Its log begins behind the backup's commit. Of a database of its own nothing else is to be done:
//! what is prepared is in rows, as it was before a crash. At a node of a cluster that is in the
//! image; so rows are made of it, with the mark that a crash would have left of those whom somebody
//! has come after. What has come in parts there is rows, and goes: nobody can complete it. Numbers
//! go on above those of all nodes: each node has every sixteenth id of a tree.
//! `Database::found_cluster` makes a cluster's first node of it, as of any other.

use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use cognate_env::{Disk, Lock};

use crate::image::undecided;
use crate::own::{
    ENGINE_TREE, NUMBERS_KEY, PARTS_TREE, PREPARED_TREE, SavedNumbers, overtaken_key, prepared_key,
};
use crate::prepared::record::Record;
use crate::storage::backup::{RESTORING, folder, intake, verify};
use crate::storage::images::{self, FOLDER as IMAGES};
use crate::storage::{Base, BaseOptions, Contents, Intake, Log};
use crate::store::{TREES_MAX, lock_folder};
use crate::total_order::NODE_MAX;
use crate::{Error, Key, TreeId, Value};

/// Where it is made.
const FOLDER: &str = "restored";
const BEGUN: &str = "A backup was being restored here, and that has not come to its end. Remove what is \
                     in this folder, and restore again.\n";

/// A backup that is being taken in.
#[derive(Debug)]
pub struct Restoration {
    disk: Arc<dyn Disk>,
    data: PathBuf,
    intake: Intake,
    lock: Box<dyn Lock>,
}

/// A database that was restored and verified, and is not yet where it belongs.
#[derive(Debug)]
pub struct Restored {
    disk: Arc<dyn Disk>,
    data: PathBuf,
    contents: Contents,
    /// The data folder's: no server opens what is not complete, and nobody else restores there.
    _lock: Box<dyn Lock>,
}

impl Restoration {
    /// Begins to restore into a folder, which is made if it is not there.
    ///
    /// # Errors
    /// `InvalidArgument` if there is something in it, `InUse`, `Io`.
    pub fn begin(disk: Arc<dyn Disk>, data: &Path) -> Result<Restoration, Error> {
        intake::refuse_occupied(disk.as_ref(), data)?;
        disk.create_dir_all(data).map_err(|cause| Error::io("creating", data, cause))?;
        let lock = lock_folder(disk.as_ref(), data)?;
        // A server, or another restore, may have come and gone before the lock was taken.
        intake::refuse_begun(disk.as_ref(), data)?;
        intake::write(disk.as_ref(), &data.join(RESTORING), BEGUN.as_bytes())?;
        flush(disk.as_ref(), data)?;
        let intake = Intake::begin(Arc::clone(&disk), &data.join(FOLDER))?;
        Ok(Restoration { disk, data: data.to_path_buf(), intake, lock })
    }

    /// Takes the next bytes of the backup's stream.
    ///
    /// # Errors
    /// `Undecodable` if they cannot be a backup's, `Io`, `DiskFull`.
    pub fn put(&mut self, bytes: Bytes) -> Result<(), Error> {
        self.intake.put(bytes)
    }

    /// The stream has ended: reads everything that was written, and makes a database of it.
    ///
    /// # Errors
    /// `Undecodable` if the stream was not complete, `Corrupt` naming file and offset, `Io`.
    pub fn verify(self) -> Result<Restored, Error> {
        let Restoration { disk, data, intake, lock } = self;
        let contents = intake.finish()?;
        let restored = Restored { disk, data, contents, _lock: lock };
        let (disk, folder) = (&restored.disk, restored.folder());
        verify(disk, &folder)?;
        if restored.contents.is_node && restored.contents.commit > 0 {
            restored.leave_cluster()?;
        }
        Log::begin(Arc::clone(disk), &folder.join("log"), restored.contents.commit)?;
        Ok(restored)
    }
}

impl Restored {
    /// What is in it.
    pub fn contents(&self) -> &Contents {
        &self.contents
    }

    /// Where it can be opened already. It has to be closed before [`Restored::finish`].
    pub fn folder(&self) -> PathBuf {
        self.data.join(FOLDER)
    }

    /// Makes a node's data those of a database of its own.
    fn leave_cluster(&self) -> Result<(), Error> {
        let (folder, position) = (self.folder(), self.contents.commit);
        let path = folder.join(IMAGES).join(images::file_name(position));
        let image = folder::read(self.disk.as_ref(), &path)?;
        let (_, content) = images::decode(&image).map_err(|(at, what)| Error::corrupt(&path, at, what))?;
        let prepared = undecided(content).map_err(|what| Error::corrupt(&path, 0, what))?;
        // All of it was verified just now.
        let options = BaseOptions { verify: false, ..BaseOptions::default() };
        let base = Base::open(Arc::clone(&self.disk), &folder.join("base"), options)?;
        let saved = base.get(ENGINE_TREE, NUMBERS_KEY)?;
        let saved = saved.as_deref().and_then(SavedNumbers::decode);
        let saved = saved.ok_or_else(|| Error::corrupt(&folder.join("base"), 0, "no allocators' marks"))?;
        let greatest = prepared.iter().map(|(record, _)| record.id).max().unwrap_or(0);
        let numbers = SavedNumbers {
            transaction: saved.transaction.max(greatest + 1),
            next_tree: saved.next_tree.saturating_mul(u64::from(NODE_MAX) + 1),
        };
        if numbers.next_tree >= TREES_MAX {
            let what = "no ids are left for new tables; dump the cluster, and load it anew";
            return Err(Error::InvalidArgument(what.to_owned()));
        }
        let mut rows = parts_gone(&base)?.into_iter().chain(own_rows(prepared, numbers));
        base.apply(position, &mut rows, &[])
    }

    /// Moves it to where it belongs, where it opens from then on.
    ///
    /// # Errors
    /// `Io`; it has to be restored again then.
    pub fn finish(self) -> Result<Contents, Error> {
        let (disk, folder) = (self.disk.as_ref(), self.folder());
        for home in ["base", "log"] {
            let (from, to) = (folder.join(home), self.data.join(home));
            disk.create_dir_all(&to).map_err(|cause| Error::io("creating", &to, cause))?;
            for name in list(disk, &from)? {
                let moved = disk.rename(&from.join(&name), &to.join(&name));
                moved.map_err(|cause| Error::io("moving", &to.join(&name), cause))?;
            }
            flush(disk, &to)?;
            flush(disk, &from)?;
        }
        for folder in [folder.join(IMAGES), folder] {
            if disk.exists(&folder).map_err(|cause| Error::io("listing", &folder, cause))? {
                for name in list(disk, &folder)? {
                    remove(disk, &folder.join(name))?;
                }
            }
        }
        remove(disk, &self.data.join(RESTORING))?;
        flush(disk, &self.data)?;
        Ok(self.contents)
    }
}

/// The rows of what has come in parts go. Their tree is below those of [`own_rows`].
fn parts_gone(base: &Base) -> Result<Vec<(TreeId, Key, Option<Value>)>, Error> {
    let mut rows = Vec::new();
    let mut parts = base.scan(PARTS_TREE, Bound::Unbounded, Bound::Unbounded, false)?;
    while let Some((key, _)) = parts.next()? {
        // Each lies in one buffer with its part, which need not stay for it.
        rows.push((PARTS_TREE, Key::copy_from_slice(&key), None));
    }
    Ok(rows)
}

/// The rows of prepared transactions, with the marks of those that were overtaken, and the
/// allocators' marks, in their order.
fn own_rows(prepared: Vec<(Record, bool)>, numbers: SavedNumbers) -> Vec<(TreeId, Key, Option<Value>)> {
    let mut rows = Vec::with_capacity(2 * prepared.len() + 1);
    for (record, is_overtaken) in &prepared {
        let row = Key::copy_from_slice(&prepared_key(record.id));
        rows.push((PREPARED_TREE, row, Some(record.encode(0))));
        if *is_overtaken {
            let mark = Key::copy_from_slice(&overtaken_key(record.id));
            rows.push((PREPARED_TREE, mark, Some(Value::new())));
        }
    }
    rows.push((ENGINE_TREE, Key::from_static(NUMBERS_KEY), Some(numbers.encode())));
    rows.sort_by(|(tree, key, _), (other, of_other, _)| (tree, key).cmp(&(other, of_other)));
    rows
}

fn list(disk: &dyn Disk, folder: &Path) -> Result<Vec<String>, Error> {
    disk.list(folder).map_err(|cause| Error::io("listing", folder, cause))
}

fn flush(disk: &dyn Disk, folder: &Path) -> Result<(), Error> {
    disk.sync_dir(folder).map_err(|cause| Error::io("flushing", folder, cause))
}

fn remove(disk: &dyn Disk, path: &Path) -> Result<(), Error> {
    disk.remove(path).map_err(|cause| Error::io("removing", path, cause))
}
