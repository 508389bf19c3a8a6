//! Bulk loads: changes too many for memory go straight into runs, and one commit makes them visible.
//!
//! Only for trees that nobody else can see: created by the loading transaction, and not committed yet. Such a tree has no history that a snapshot could
//! ask for, so its rows need no versions.
//!
//! ```text
//! load            stage 1 ── stage 2 ── stage 3      sorted portions, each a run, durable, named in the manifest as staged
//! own reads       view_of [1 2 3]                    as any view of the base; later portions win
//! commit          log record (csn, [1 2 3])          attach [1 2 3] before csn becomes visible: in memory only
//! checkpoint ≥ csn                                   the same manifest has the watermark and names the runs as live
//! ```
//!
//! A crash before the record is durable: the runs are staged and attached by nobody; recovery ends with [`Base::discard_unattached`]. A crash
//! after it, before the checkpoint: replay of the record attaches them again. So nothing but the log record decides, and a commit with a load of any size
//! costs one ordinary flush.

use std::sync::Arc;

use super::base::{Base, BaseView, Version};
use super::run::Run;
use super::run_writer::RunWriter;
use crate::{Csn, Error, Key, TreeId, Value};

/// One portion of a load: durable, and not yet part of the base.
#[derive(Debug, Clone)]
pub struct StagedRun {
    run: Arc<Run>,
}

impl StagedRun {
    /// Its number, which the commit's log record names.
    pub fn number(&self) -> u64 {
        self.run.name().number
    }

    /// Bytes of its file.
    pub fn bytes(&self) -> u64 {
        self.run.name().length
    }
}

impl Base {
    /// Writes one portion of a load, ascending by (tree, key), `None` for the deletion of what an earlier portion holds. Durable when it returns; `None` if there was nothing in it.
    pub fn stage(
        &self,
        changes: &mut dyn Iterator<Item = (TreeId, Key, Option<Value>)>,
    ) -> Result<Option<StagedRun>, Error> {
        let mut writer = RunWriter::create(&self.disk, &self.folder, self.number()?)?;
        for (tree, key, value) in changes {
            writer.add(tree, &key, value.as_deref())?;
        }
        let name = writer.finish()?;
        let Some(run) = self.open_run(name, &self.version.load().runs)? else { return Ok(None) };
        self.change(Some(&run), |staged, _| staged.push(Arc::clone(&run)))?;
        Ok(Some(StagedRun { run }))
    }

    /// What these portions hold together, for the loading transaction's own reads. Oldest first; later ones win.
    pub fn view_of(&self, staged: &[StagedRun]) -> BaseView {
        let runs = staged.iter().rev().map(|portion| Arc::clone(&portion.run)).collect();
        BaseView { version: Arc::new(Version::of(runs)), cache: Arc::clone(&self.cache) }
    }

    /// Makes the portions of a load (oldest first) part of the base, for the commit `csn`, which is above the watermark. Nothing is written: until a checkpoint reaches `csn`, the
    /// commit's log record must name them, and recovery must call this again. Attaching twice does nothing.
    ///
    /// [`Error::InvalidArgument`] if a portion is neither staged nor attached.
    pub fn attach(&self, numbers: &[u64], csn: Csn) -> Result<(), Error> {
        let mut state = self.state.lock();
        let mut version = Version::clone(&self.version.load());
        let mut staged = state.staged.clone();
        for &number in numbers {
            if let Some(index) = staged.iter().position(|run| run.name().number == number) {
                version.runs.insert(0, staged.remove(index));
                version.attached.insert(0, csn);
            } else if !version.runs.iter().any(|run| run.name().number == number) {
                return Err(Error::InvalidArgument(format!(
                    "commit {csn} names run {number}, which is not staged"
                )));
            }
        }
        state.staged = staged;
        self.publish(version);
        Ok(())
    }

    /// Forgets the portions of a load that was rolled back, and removes their files.
    pub fn discard(&self, staged: &[StagedRun]) -> Result<(), Error> {
        let numbers: Vec<u64> = staged.iter().map(StagedRun::number).collect();
        self.discard_where(|number| numbers.contains(&number))
    }

    /// Forgets all portions that no commit has attached, and removes their files: the end of recovery.
    pub fn discard_unattached(&self) -> Result<(), Error> {
        self.discard_where(|_| true)
    }

    fn discard_where(&self, gone: impl Fn(u64) -> bool) -> Result<(), Error> {
        if !self.state.lock().staged.iter().any(|run| gone(run.name().number)) {
            return Ok(());
        }
        let mut removed = Vec::new();
        self.change(None, |staged, _| {
            removed = staged.extract_if(.., |run| gone(run.name().number)).collect();
        })?;
        removed.iter().for_each(|run: &Arc<Run>| run.retire());
        Ok(())
    }
}
