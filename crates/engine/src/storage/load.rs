//! Bulk loads: changes too many for memory go straight into runs, and one commit makes them
//! visible.
//!
//! Only for trees that nobody else can see: created by the loading transaction, and not committed
//! yet. Such a tree has no history that a snapshot could ask for, so its rows need no versions.
//!
//! ```text
//! load            stage 1 ── stage 2 ── stage 3      sorted portions, each a run, durable, named in the manifest as staged
//!                 restage [1 2 3] ── 4               neighbours into one, so that a load of any size has few files
//! own reads       view_of [1 2 3]                    as any view of the base; later portions win
//! commit          log record (csn, [1 2 3])          attach [1 2 3] before csn becomes visible: in memory only
//! checkpoint ≥ csn                                   the same manifest has the watermark and names the runs as live
//! ```
//!
//! A crash before the record is durable: the runs are staged and attached by nobody; recovery ends
//! with [`Base::discard_unattached`]. A crash after it, before the checkpoint: replay of the record
//! attaches them again. So nothing but the log record decides, and a commit with a load of any size
//! costs one ordinary flush.
//!
//! Until a checkpoint has passed `csn`, a portion is read by snapshots from `csn` on only, as if
//! its rows were versions: so an older snapshot never sees a part of a later commit.

use std::sync::Arc;

use super::base::{Base, BaseView, State, Version};
use super::manifest::Manifest;
use super::merge::{self, Omit};
use super::run::{Run, RunName, run_file_name};
use super::run_writer::RunWriter;
use crate::sync::atomic::Ordering;
use crate::{Csn, Error, Key, TreeId, Value};

/// Takes the next entry of a portion.
pub type Add<'a> = dyn FnMut(TreeId, &[u8], Option<&[u8]>) -> Result<(), Error> + 'a;

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

    /// Its run, to be held.
    pub(super) fn run(&self) -> Arc<Run> {
        Arc::clone(&self.run)
    }

    /// The trees that it has rows of.
    pub(crate) fn trees(&self) -> impl Iterator<Item = TreeId> + '_ {
        self.run.top().trees.iter().map(|share| share.tree)
    }

    /// Bytes of its file.
    pub fn bytes(&self) -> u64 {
        self.run.name().length
    }
}

impl Base {
    /// Writes one portion of a load, ascending by (tree, key), `None` for the deletion of what an
    /// earlier portion holds. Durable when it returns; `None` if there was nothing in it.
    pub fn stage(
        &self,
        changes: &mut dyn Iterator<Item = (TreeId, Key, Option<Value>)>,
    ) -> Result<Option<StagedRun>, Error> {
        self.stage_with(&mut |add| {
            for (tree, key, value) in &mut *changes {
                add(tree, &key, value.as_deref())?;
            }
            Ok(())
        })
    }

    /// The same for entries that `write` hands over one by one.
    pub fn stage_with(
        &self,
        write: &mut dyn FnMut(&mut Add<'_>) -> Result<(), Error>,
    ) -> Result<Option<StagedRun>, Error> {
        let mut writer: Option<RunWriter> = None;
        write(&mut |tree, key, value| {
            let writer = match &mut writer {
                Some(writer) => writer,
                None => {
                    let new = RunWriter::create(&self.disk, &self.folder, self.number()?)?;
                    writer.insert(new.leaving_reserve())
                }
            };
            writer.add(tree, key, value)
        })?;
        let Some(writer) = writer else { return Ok(None) };
        self.put_aside(writer.finish()?, &[])
    }

    /// Merges neighbouring portions (oldest first) into one that takes their place. `oldest`: the
    /// load has none before them, so deletions have nothing to hide. Ends with the error that
    /// `go_on` answers, and nothing has changed then.
    pub fn restage(
        &self,
        portions: &[StagedRun],
        oldest: bool,
        go_on: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<Option<StagedRun>, Error> {
        let runs: Vec<Arc<Run>> = portions.iter().rev().map(|portion| Arc::clone(&portion.run)).collect();
        let writer = RunWriter::create(&self.disk, &self.folder, self.number()?)?.leaving_reserve();
        let omit = Omit { dropped: &[], deletions: oldest };
        let name = merge::merge(&runs, writer, omit, &mut || self.check_open().and_then(|()| go_on()))?;
        self.put_aside(name, &runs)
    }

    /// Fails once the base is to do nothing more.
    pub(super) fn check_open(&self) -> Result<(), Error> {
        if self.stop.load(Ordering::Relaxed) { Err(Error::ShuttingDown) } else { Ok(()) }
    }

    /// Names a new run in the manifest as staged, in place of others.
    fn put_aside(&self, name: Option<RunName>, replaced: &[Arc<Run>]) -> Result<Option<StagedRun>, Error> {
        let others = [&self.version.load().runs[..], &self.state.lock().staged[..]].concat();
        let run = self.open_run(name, &others)?;
        if run.is_some() || !replaced.is_empty() {
            self.change(run.as_ref(), |staged, _| {
                staged.retain(|run| !replaced.iter().any(|gone| Arc::ptr_eq(run, gone)));
                staged.extend(run.clone());
            })?;
            replaced.iter().for_each(|run| run.retire());
        }
        Ok(run.map(|run| StagedRun { run }))
    }

    /// What these portions hold together, for the loading transaction's own reads. Oldest first;
    /// later ones win.
    pub fn view_of(&self, staged: &[StagedRun]) -> BaseView {
        let runs = staged.iter().rev().map(|portion| Arc::clone(&portion.run)).collect();
        BaseView { version: Arc::new(Version::of(runs)), cache: Arc::clone(&self.cache) }
    }

    /// Makes the portions of a load (oldest first) part of the base, for the commit `csn`, which is
    /// above the watermark. Nothing is written: until a checkpoint reaches `csn`, the commit's log
    /// record must name them, and recovery must call [`Base::attach`].
    pub fn attach_staged(&self, portions: &[StagedRun], csn: Csn) {
        let mut state = self.state.lock();
        let mut version = Version::clone(&self.version.load());
        for StagedRun { run } in portions {
            state.staged.retain(|staged| !Arc::ptr_eq(staged, run));
            version.runs.insert(0, Arc::clone(run));
            version.attached.insert(0, csn);
        }
        self.publish(version);
    }

    /// Attaches again the portions that the log record of commit `csn` names. Attaching twice does
    /// nothing.
    ///
    /// [`Error::Corrupt`] if a portion is neither staged nor attached.
    pub fn attach(&self, numbers: &[u64], csn: Csn) -> Result<(), Error> {
        let staged = self.state.lock().staged.clone();
        let mut portions = Vec::with_capacity(numbers.len());
        for &number in numbers {
            let named = |run: &&Arc<Run>| run.name().number == number;
            if let Some(run) = staged.iter().find(named) {
                portions.push(StagedRun { run: Arc::clone(run) });
            } else if self.version.load().runs.iter().find(named).is_none() {
                let what = format!("commit {csn} attaches this run, which is missing or not in the manifest");
                return Err(Error::corrupt(&self.run_path(number), 0, what));
            }
        }
        self.attach_staged(&portions, csn);
        Ok(())
    }

    /// Fails if a commit must not name these portions: where nobody knows which manifest is in
    /// force, those that only one of them names may be gone at the next start, which would refuse
    /// to open without them.
    pub(crate) fn check_named(&self, portions: &[StagedRun]) -> Result<(), Error> {
        let Some(error) = self.doubt() else { return Ok(()) };
        let state = self.state.lock();
        match portions.iter().any(|portion| state.doubted.contains(&portion.number())) {
            true => Err(error),
            false => Ok(()),
        }
    }

    /// The first commit with a load that no checkpoint has reached yet.
    pub fn first_attached(&self) -> Option<Csn> {
        self.version.load().attached.last().copied()
    }

    /// How many portions of loads up to this commit no checkpoint has reached yet.
    pub fn attached_until(&self, csn: Csn) -> usize {
        self.version.load().attached.iter().filter(|at| **at <= csn).count()
    }

    /// Forgets the portions of a load that was rolled back, and removes their files: also if no
    /// manifest can be written that leaves them out. A full disk has no room for one, and may be
    /// full of them. The error says so; the next change of the manifest leaves them out, or
    /// [`Base::discard_unwanted`] does.
    pub fn discard(&self, staged: &[StagedRun]) -> Result<(), Error> {
        let numbers: Vec<u64> = staged.iter().map(StagedRun::number).collect();
        self.discard_where(|number| numbers.contains(&number))
    }

    /// Forgets all portions that no commit has attached, but those of these numbers, and removes
    /// their files: the end of recovery.
    pub fn discard_unattached(&self, kept: &[u64]) -> Result<(), Error> {
        {
            let mut state = self.state.lock();
            let State { gone, unwanted, .. } = &mut *state;
            unwanted.extend(gone.extract_if(.., |run| !kept.contains(&run.number)).map(|run| run.number));
        }
        self.discard_where(|number| !kept.contains(&number))
    }

    /// Tries again to leave out of the manifest what was given up when it could not be written.
    pub fn discard_unwanted(&self) -> Result<(), Error> {
        if self.state.lock().unwanted.is_empty() { Ok(()) } else { self.change(None, |_, _| {}) }
    }

    /// What is in force now, and all portions that no commit up to its watermark has attached:
    /// those that are staged, and those of later commits.
    pub(crate) fn view_with_loads(&self) -> (BaseView, Vec<StagedRun>) {
        let state = self.state.lock();
        let view = self.view();
        let attached = &view.version.runs[..view.version.attached.len()];
        let runs = state.staged.iter().chain(attached);
        let loads = runs.map(|run| StagedRun { run: Arc::clone(run) }).collect();
        (view, loads)
    }

    /// Where the run of this number is, or should be.
    pub(crate) fn run_path(&self, number: u64) -> std::path::PathBuf {
        self.folder.join(run_file_name(number))
    }

    /// The staged portions of these numbers; those that are not there are left out.
    pub fn staged(&self, numbers: &[u64]) -> Vec<StagedRun> {
        let state = self.state.lock();
        let named = |number: &u64| state.staged.iter().find(|run| run.name().number == *number);
        numbers.iter().filter_map(named).map(|run| StagedRun { run: Arc::clone(run) }).collect()
    }

    fn discard_where(&self, gone: impl Fn(u64) -> bool) -> Result<(), Error> {
        if !self.state.lock().staged.iter().any(|run| gone(run.name().number)) {
            return Ok(());
        }
        let mut removed = Vec::new();
        let changed = self.change(None, |staged, _| {
            removed = staged.extract_if(.., |run| gone(run.name().number)).collect();
        });
        let Err(error) = changed else {
            removed.iter().for_each(|run: &Arc<Run>| run.retire());
            return Ok(());
        };
        if self.doubt().is_some() {
            return Err(error);
        }
        let given_up: Vec<Arc<Run>> = {
            let mut state = self.state.lock();
            let given_up: Vec<_> = state.staged.extract_if(.., |run| gone(run.name().number)).collect();
            state.unwanted.extend(given_up.iter().map(|run| run.name().number));
            given_up
        };
        given_up.iter().for_each(|run| run.retire());
        drop((removed, given_up));
        // What they took may be the room that a manifest needs.
        self.discard_unwanted()
    }
}

/// Takes the staged runs out whose files have gone: they were given up when no manifest could be
/// written ([`Base::discard`]). If a commit names one all the same it is missed when that is
/// replayed, and one of a prepared transaction when that is restored.
pub(super) fn take_gone(manifest: &mut Manifest, names: &[String]) -> Vec<RunName> {
    let gone = |run: &mut RunName| !names.contains(&run_file_name(run.number));
    manifest.staged.extract_if(.., gone).collect()
}
