//! The moment of a backup: which commit it goes up to, and what has to be kept for it
//! (`storage::backup` has the bytes).
//!
//! A backup begins with a checkpoint to the durable mark `W`, like any other: commits go on above
//! it. Then the base store stands at exactly `W`, and a view of it is the backup: whatever was
//! acknowledged before the backup began is in it. The view's runs are held as long as the backup is
//! read; merges and further checkpoints go on, and leave the files to it. The log is not needed.
//!
//! # Prepared transactions
//!
//! In a database of its own they are rows, and so are families and what is forgotten of them: all
//! of these are in the base. What a prepared transaction has loaded in bulk is in staged runs,
//! which no view has: those go along that the rows at `W` name. One of them may be gone already, if
//! its transaction was rolled back just now, above `W`: then the moment is chosen again.
//!
//! At a node of a cluster prepared transactions are requests, which its image has; so the image at
//! `W`, which the checkpoint has made, goes along. A node that is too far behind to be given the
//! order is sent the same: the base where it stands, and the image there. No checkpoint is made for
//! that.
//!
//! ```text
//! visible 120, durable 118        P is prepared at 110, its load is run 9
//! checkpoint                      the base stands at 118
//! 121: COMMIT PREPARED P          attaches run 9 above 118
//! the backup                      the base at 118 with the row of P, and run 9, staged
//! ```

use std::io;
use std::ops::Bound;

use crate::hash::Seed;
use crate::own::PREPARED_TREE;
use crate::prepared::record::Record;
use crate::storage::{Backup, BaseView, Outgoing, StagedRun};
use crate::upkeep::Upkeep;
use crate::{Csn, Error, TransactionId};

/// So often the moment is chosen again before nothing comes of it.
const ATTEMPTS: usize = 100;

impl Upkeep {
    /// A backup of everything that is durable now. Blocks, for as long as a checkpoint takes.
    ///
    /// # Errors
    /// As a checkpoint.
    pub(crate) fn backup(&self) -> Result<Backup, Error> {
        let manager = &self.manager;
        // The base stays where this checkpoint moves it until what is to be kept is held.
        let _one = self.checkpointing.lock();
        for _ in 0..ATTEMPTS {
            self.checkpoint_further_if(|| true)?;
            let wall_us = manager.options.clock.wall_us();
            let (view, loads) = manager.store.base.view_with_loads();
            let wanted = prepared_loads(&view, &manager.seed);
            let wanted = wanted.map_err(|error| manager.store.name_place(error))?;
            let held: Vec<StagedRun> =
                loads.into_iter().filter(|load| wanted.contains(&load.number())).collect();
            if held.len() < wanted.len() {
                // The rollback is to be below the next moment.
                manager.wait_durable(manager.store.visible()).wait()?;
                continue;
            }
            let position = view.watermark();
            let image = self.image_at(position)?;
            tracing::info!(commit = position, "a backup begins");
            return Ok(Backup::of_base(&view, &held, manager.cluster.is_some(), image, wall_us));
        }
        Err(Error::Defect("prepared transactions with loads are rolled back all the time"))
    }

    /// The image at a position, as its file is; none before the first one, when there is nothing.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    fn image_at(&self, position: Csn) -> Result<Option<Vec<u8>>, Error> {
        match &self.manager.cluster {
            Some(cluster) if position > 0 => cluster.images.read(position).map(Some),
            _ => Ok(None),
        }
    }

    /// The durable state of this node, for one that is too far behind to be given the order. Does
    /// not wait for a checkpoint: whoever asks may have others wait for the answer.
    ///
    /// # Errors
    /// `Io`, also while a checkpoint is at work: it is to be asked for again; `Defect` before the
    /// first image counts: then the order has everything.
    pub(crate) fn outgoing(&self) -> Result<Outgoing, Error> {
        let Some(cluster) = &self.manager.cluster else {
            return Err(Error::Defect("a database of its own sends nothing to others"));
        };
        // No image goes meanwhile: a checkpoint would forget it.
        let Some(_one) = self.checkpointing.try_lock() else {
            let busy = io::Error::new(io::ErrorKind::WouldBlock, "a checkpoint is at work");
            return Err(Error::io("reading", &self.manager.options.path, busy));
        };
        let view = self.manager.store.base.view();
        let position = view.watermark();
        if position == 0 {
            return Err(Error::Defect("there is no image yet: the order has everything"));
        }
        Outgoing::new(&view, position, cluster.images.read(position)?)
    }
}

/// Numbers of the staged runs that the prepared transactions of a view would attach.
fn prepared_loads(view: &BaseView, seed: &Seed) -> Result<Vec<u64>, Error> {
    let all = (Bound::Unbounded, Bound::Unbounded);
    let mut rows = view.scan_at(PREPARED_TREE, all, false, view.watermark())?;
    let mut loads = Vec::new();
    while let Some((key, row)) = rows.next()? {
        // The longer keys are marks.
        if key.len() == size_of::<TransactionId>() {
            let record = Record::decode(&row, seed).map_err(|what| {
                Error::undecodable_row(
                    PREPARED_TREE,
                    &key,
                    format!("the row of a prepared transaction: {what}"),
                )
            })?;
            loads.extend(record.loads);
        }
    }
    loads.sort_unstable();
    loads.dedup();
    Ok(loads)
}
