//! A node's image: how things stand at a position of the order, as far as later verdicts depend on
//! it, so that a start, and another node, need not be given everything from the beginning.
//!
//! In it are the certifier's graph and the rest of what is a function of the order ([`Standing`]),
//! at one position. What was committed up to there is in the base store, or comes to be there; the
//! image says nothing of it.
//!
//! # When
//!
//! A checkpoint begins with an image of the present position `I`, and then moves the base store to
//! a watermark `W`, which may be below `I` since somebody may still read at `W`. The image *counts*
//! once the watermark has reached it, with that checkpoint or a later one. A start takes the newest
//! that counts and is delivered everything behind it; up to the watermark it is judged, as before,
//! and not installed again. So the order's log is needed from there on, and not before.
//!
//! ```text
//! checkpoint 1:  image at 120, watermark 100      starts from the beginning: 120 > 100
//! checkpoint 2:  image at 250, watermark 231      starts from 120; the log up to 120 may go
//! stop:          image at 300, watermark 300      starts from 300
//! ```
//!
//! # Content
//!
//! ```text
//! version: 1 byte      1
//! changed              count, positions: when each of the first trees changed last
//! standing, graph      as `order::standing` and `certifier::image` say
//! ```

use std::path::Path;
use std::sync::Arc;

use cognate_env::Disk;

use crate::delivery::{Cluster, FIRST_TREES};
use crate::manager::Manager;
use crate::order::Standing;
use crate::payload::{Encoder, Input};
use crate::storage::Outgoing;
use crate::storage::images::{FOLDER, Images, decode};
use crate::{Csn, Error};

const VERSION: u8 = 1;

impl Manager {
    /// Keeps an image of the present position, unless one waits that the watermark will not have
    /// reached.
    ///
    /// # Errors
    /// `Io`, `DiskFull`.
    pub(crate) fn keep_image(&self, watermark: Csn) -> Result<(), Error> {
        let Some(cluster) = &self.cluster else { return Ok(()) };
        if cluster.images.has_later(watermark) {
            return Ok(());
        }
        let (position, content) = {
            // Nothing is delivered meanwhile.
            let standing = cluster.standing.lock();
            let position = standing.applied();
            if cluster.images.newest_upto(position) == Some(position) {
                return Ok(());
            }
            let mut out = Encoder::with_capacity(1 << 16);
            out.byte(VERSION);
            out.list(&cluster.changed_at(), |out, position| out.varint(*position));
            standing.encode(&mut out);
            self.sequencer.encode_graph(&mut out);
            (position, out.finish())
        };
        cluster.images.write(position, &content)
    }

    /// Begins at the newest image that counts, before anything is delivered.
    ///
    /// # Errors
    /// `Corrupt` naming the image, `Io`.
    pub(crate) fn restore_image(&self) -> Result<(), Error> {
        let Some(cluster) = &self.cluster else { return Ok(()) };
        let Some(position) = cluster.images.newest_upto(self.store.base.watermark()) else { return Ok(()) };
        let bytes = cluster.images.read(position)?;
        let damaged = |what| cluster.images.damaged(position, what);
        let (_, content) = decode(&bytes).map_err(|(_, what)| damaged(what))?;
        self.begin_at(cluster, position, content).map_err(damaged)
    }

    fn begin_at(&self, cluster: &Cluster, position: Csn, content: &[u8]) -> Result<(), String> {
        let mut input = Input::of(content);
        let version = input.byte()?;
        if version != VERSION {
            return Err(format!("an image in the unknown version {version}"));
        }
        let changed = input.list(Input::varint)?;
        let standing = Standing::decode(&mut input)?;
        if standing.applied() != position {
            return Err(format!("an image of position {}", standing.applied()));
        }
        let prepared = self.sequencer.restore_graph(&mut input)?;
        if !prepared.is_empty() {
            return Err("an image with prepared transactions, whose rows are not known".to_owned());
        }
        input.end()?;
        cluster.begin_at(standing, &changed);
        Ok(())
    }

    /// The durable state of this node, for one that is too far behind to be given the order.
    ///
    /// # Errors
    /// `Io`; `Defect` before the first image counts: then the order has everything.
    pub(crate) fn outgoing(&self) -> Result<Outgoing, Error> {
        let Some(cluster) = &self.cluster else {
            return Err(Error::Defect("a database of its own sends nothing to others"));
        };
        // No image goes meanwhile: a checkpoint would forget it.
        let _one = self.checkpointing.lock();
        let view = self.store.base.view();
        let position = cluster.images.newest_upto(view.watermark());
        let position = position.ok_or(Error::Defect("there is no image yet: the order has everything"))?;
        Outgoing::new(&view, position, cluster.images.read(position)?)
    }

    /// Where a start would begin now: what the order has up to there is not needed here any more.
    pub(crate) fn starts_at(&self) -> Csn {
        let image = |cluster: &Cluster| cluster.images.newest_upto(self.store.base.watermark());
        self.cluster.as_ref().and_then(image).unwrap_or(0)
    }
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
    // From here on it is a node's.
    let log = folder.join("log");
    let fail = |cause| Error::io("removing", &log, cause);
    for name in disk.list(&log).map_err(fail)? {
        disk.remove(&log.join(name)).map_err(fail)?;
    }
    disk.sync_dir(&log).map_err(fail)
}
