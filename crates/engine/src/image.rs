//! A node's image: how things stand at a position of the order, as far as later verdicts depend on
//! it, so that a start, and another node, need not be given everything from the beginning.
//!
//! In it are the certifier's graph and the rest of what is a function of the order ([`Standing`]),
//! at one position. What was committed up to there is in the base store; the image says nothing of
//! it.
//!
//! # When
//!
//! A checkpoint of a node (`checkpoint`) goes to its present position, and begins with an image of
//! that: nothing is delivered between the two looks. Then the base store moves its watermark there.
//! So base and image stand at the same position, a start takes both and is delivered what comes
//! behind, and the order's log is needed from there on, and not before. An image whose checkpoint
//! did not come to its end is above the watermark, and is forgotten.
//!
//! ```text
//! checkpoint:  image at 120, watermark 120                      starts from 120; the log up to 120 may go
//! checkpoint:  image at 250, the process ends before the base   starts from 120
//! ```
//!
//! Who reads at an older snapshot meanwhile is given no view of its own in the base, as it would be
//! in a database of its own (`checkpoint`): what changed before that snapshot since the checkpoint
//! before stays in memory as long as it needs it.
//!
//! # Content
//!
//! ```text
//! version: 1 byte      3; 2, in which no name was closed, nothing comes in parts, and nobody had
//!                      begun before his snapshot, is read too
//! changed              count, positions: when each of the first trees changed last
//! standing, graph      as `order::standing` and `certifier::image` say
//! ```

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use cognate_env::Disk;

use crate::certifier::{Promise, overtaken};
use crate::delivery::{Cluster, FIRST_TREES};
use crate::hash::Seed;
use crate::manager::Manager;
use crate::order::{Preparing, Purpose, Request, Standing};
use crate::payload::{Encoder, Input};
use crate::planted::{self, Planted};
use crate::prepared::record::{Parts, Record};
use crate::storage::images::{FOLDER, Images, content};
use crate::{Csn, Error, TransactionId};

const VERSION: u8 = 3;
/// The one before has no section for what comes in parts; no name is closed in it, and nobody has
/// begun before his snapshot.
const VERSION_BEFORE: u8 = 2;

impl Manager {
    /// An image of how things stand now; `standing` is locked meanwhile.
    ///
    /// # Errors
    /// `LogPoisoned`, also if the graph is not whole.
    pub(crate) fn encode_image(&self, cluster: &Cluster, standing: &Standing) -> Result<Vec<u8>, Error> {
        let mut out = Encoder::with_capacity(1 << 16);
        out.byte(VERSION);
        out.list(&cluster.changed_at(), |out, position| out.varint(*position));
        standing.encode(&mut out);
        match planted::is(Planted::GraphNotInImage) {
            true => out.varint(0),
            false => self.sequencer.encode_graph(&mut out)?,
        }
        Ok(out.finish())
    }

    /// Begins at the image that stands where the base does, before anything is delivered.
    ///
    /// # Errors
    /// `Corrupt` naming the image, `Io`.
    pub(crate) fn restore_image(&self) -> Result<(), Error> {
        let Some(cluster) = &self.cluster else { return Ok(()) };
        let mut position = self.store.base.watermark();
        if planted::is(Planted::BeginsAtNewestImage) {
            position = cluster.images.newest().unwrap_or(position);
        }
        cluster.images.keep_only(position)?;
        if position == 0 {
            return Ok(());
        }
        let bytes = cluster.images.read(position)?;
        let damaged = |what| cluster.images.damaged(position, what);
        let prepared = self.begin_at(cluster, position, content(&bytes)).map_err(damaged)?;
        self.restore_undecided(cluster, prepared).map_err(|error| match error {
            Error::Undecodable { what, row: None } => damaged(what),
            other => other,
        })
    }

    fn begin_at(
        &self,
        cluster: &Cluster,
        position: Csn,
        content: &[u8],
    ) -> Result<HashMap<TransactionId, Promise>, String> {
        let mut input = Input::of(content);
        let has_parts = has_parts(input.byte()?)?;
        let changed = input.list(Input::varint)?;
        let standing = Standing::decode(&mut input, &self.seed, has_parts)?;
        if standing.applied() != position {
            return Err(format!("an image of position {}", standing.applied()));
        }
        let prepared = self.sequencer.restore_graph(&mut input, &self.seed)?;
        input.end()?;
        cluster.begin_at(standing, &changed);
        Ok(prepared)
    }

    /// Where a start would begin now: what the order has up to there is not needed here any more.
    pub(crate) fn starts_at(&self) -> Csn {
        self.cluster.as_ref().map_or(0, |_| self.store.base.watermark())
    }
}

/// Whether an image of this version has a section for what comes in parts.
fn has_parts(version: u8) -> Result<bool, String> {
    match version {
        VERSION => Ok(true),
        VERSION_BEFORE => Ok(false),
        other => Err(format!("an image in the unknown version {other}")),
    }
}

/// What was prepared and not decided where an image was made, as a database of its own keeps it;
/// with each, whether somebody has committed who comes after it.
///
/// # Errors
/// What is wrong with the image's content, in words.
pub(crate) fn undecided(content: &[u8]) -> Result<Vec<(Record, bool)>, String> {
    let mut input = Input::of(content);
    let has_parts = has_parts(input.byte()?)?;
    input.list(Input::varint)?;
    // Nobody looks up here what they have read.
    let seed = Seed::of_database();
    let requests = Standing::decode(&mut input, &seed, has_parts)?.undecided().requests();
    let overtaken = overtaken(&mut input, &seed)?;
    input.end()?;
    let record = |(_, bytes): (Csn, bytes::Bytes)| {
        let request = Request::decode(&bytes, &seed)?;
        let locks = request.all_locks().into_iter().map(|(lock, _)| lock).collect();
        let Request { id, snapshot, dropped, parts, purpose, .. } = request;
        let Purpose::Prepare(preparing) = purpose else { return Err("no PREPARE".to_owned()) };
        let Preparing { prepared_us, owner, texts, note } = *preparing;
        let Parts { notes, reads, changes, .. } = parts;
        let record = Record {
            id,
            snapshot,
            prepared_us,
            owner,
            texts,
            note,
            // A node's are no runs: they went along with the request.
            loads: Vec::new(),
            dropped,
            locks,
            notes,
            reads,
            changes,
        };
        Ok((record, overtaken.contains(&id)))
    };
    requests.into_iter().map(record).collect()
}

/// Opens the images of a database.
///
/// # Errors
/// `Io`.
pub(crate) fn open_images(disk: &Arc<dyn Disk>, folder: &Path) -> Result<Images, Error> {
    Images::open(Arc::clone(disk), &folder.join(FOLDER))
}

/// Makes a closed database, which has everything in its base store up to `position`, one of a node:
/// nothing that happened before concerns any verdict.
///
/// # Errors
/// `Io`; nothing has changed then, or it is to be asked for again.
pub(crate) fn found(disk: &Arc<dyn Disk>, folder: &Path, position: Csn) -> Result<(), Error> {
    let mut out = Encoder::with_capacity(1 << 10);
    out.byte(VERSION);
    out.list(&[position; FIRST_TREES], |out, position| out.varint(*position));
    Standing::at(position).encode(&mut out);
    // No graph.
    out.varint(0);
    open_images(disk, folder)?.write(position, &out.finish())?;
    // The oldest first, as ever; with the last of it gone it is a node's.
    let log = folder.join("log");
    let fail = |cause| Error::io("removing", &log, cause);
    for name in disk.list(&log).map_err(fail)? {
        disk.remove(&log.join(name)).map_err(fail)?;
    }
    disk.sync_dir(&log).map_err(fail)
}
