//! The base store: everything up to the watermark, in immutable sorted runs.
//!
//! ```text
//! apply (checkpoint) ──▶ newest run │ run │ run │ … │ oldest run
//!                                   └── compact_step: neighbours into one
//! get, scan: newest first; the first run that knows a key decides
//! ```
//!
//! The runs in force, with watermark and dropped trees, form a `Version`: immutable, replaced as a
//! whole after the manifest on disk was. A reader takes the version it finds and never waits; what
//! it reads stays until it lets go, because a merged run's file is removed when the last holder
//! drops it.
//!
//! Worked history: runs `[c, b, a]`; a scan opens and pins them. `compact_step` merges `b` and `a`
//! into `d`, writes a manifest with `[c, d]`, publishes it, retires `b` and `a`. The scan goes on
//! reading them. A crash before the rename leaves `d` as a leftover; one after it leaves `b` and
//! `a`; the next start removes what the manifest does not name.
//!
//! Mutexes, in this order: `applying` or `merging` (each alone, held for the whole of the work),
//! then `changing` (held while a manifest is written), then `state` (never held for I/O: whoever
//! attaches a load has the commit mutex). Readers take none.
//!
//! Failures: anything that fails before the manifest's rename changes nothing and may be tried
//! again. If the rename or the flush of the folder behind it fails, nobody knows which manifest is
//! in force; the base then refuses all further changes, keeps every file of both, and goes on
//! reading.

use std::ops::{Bound, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cognate_env::Disk;

use super::cache::BlockCache;
use super::filter;
use super::load::take_gone;
use super::manifest::{MANIFEST, Manifest};
use super::merge::{self, Omit};
use super::options::{BaseOptions, BaseStatistics};
use super::reserve;
use super::run::{Run, RunName, parse_run_file_name};
use super::run_writer::RunWriter;
use super::scan::BaseScan;
use crate::lent::Lent;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{ArcSwap, Mutex};
use crate::{Csn, Error, Key, TreeId, Value};

/// What is in force.
#[derive(Debug, Clone)]
pub(super) struct Version {
    pub(super) watermark: Csn,
    /// Newest first. The first of them are bulk loads of commits above the watermark, see
    /// [`super::load`].
    pub(super) runs: Vec<Arc<Run>>,
    /// The commits of these first runs, in their order.
    pub(super) attached: Vec<Csn>,
    /// Ascending.
    dropped: Vec<TreeId>,
}

impl Version {
    /// Trees whose entries are as good as absent, ascending.
    pub(super) fn dropped(&self) -> &[TreeId] {
        &self.dropped
    }
}

/// What the next manifest is made of.
#[derive(Debug)]
pub(super) struct State {
    pub(super) manifest: Manifest,
    /// Bulk loads that no commit has attached yet.
    pub(super) staged: Vec<Arc<Run>>,
    /// Others whose files were missing at the start. They are named until recovery has found that
    /// nobody attaches them: a file that was mislaid can be put back.
    pub(super) gone: Vec<RunName>,
    /// Numbers of loads that nobody wants any more, and that the manifest names although their
    /// files go, since it could not be written when they were given up. The next one does not.
    pub(super) unwanted: Vec<u64>,
    /// Loads that are staged and that only one of two manifests names, of which nobody knows which
    /// is in force.
    pub(super) doubted: Vec<u64>,
    /// Why no change is accepted any more.
    broken: Option<Error>,
}

/// The base store of one database.
#[derive(Debug)]
pub struct Base {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) folder: PathBuf,
    options: BaseOptions,
    pub(super) cache: Arc<BlockCache>,
    /// Bound of the cache and the pinned partitions together.
    cache_bytes: AtomicU64,
    pub(super) version: ArcSwap<Version>,
    applying: Mutex<()>,
    merging: Mutex<()>,
    changing: Mutex<()>,
    pub(super) state: Mutex<State>,
    pub(super) stop: AtomicBool,
}

impl Base {
    /// Opens the base store in `folder`, creating it if there is none, and checks every block of
    /// it.
    ///
    /// [`Error::Corrupt`] names file and offset of damage, and missing files.
    pub fn open(disk: Arc<dyn Disk>, folder: &Path, options: BaseOptions) -> Result<Base, Error> {
        disk.create_dir_all(folder).map_err(|cause| Error::io("creating", folder, cause))?;
        let names = disk.list(folder).map_err(|cause| Error::io("listing", folder, cause))?;
        let mut manifest = match Manifest::load(disk.as_ref(), folder)? {
            Some(manifest) => manifest,
            None => {
                if let Some(run) = names.iter().find(|name| parse_run_file_name(name).is_some()) {
                    let what = format!("the manifest is missing, but there is a run {run}");
                    return Err(Error::corrupt(&folder.join(MANIFEST), 0, what));
                }
                let manifest = Manifest { next_run: 1, ..Manifest::default() };
                manifest.prepare(disk.as_ref(), folder)?;
                Manifest::switch(disk.as_ref(), folder)?;
                manifest
            }
        };
        // The process before may have ended between renaming the manifest and flushing the folder.
        // Nothing may build on this manifest (the log's truncation, above all) before it is sure to
        // stay.
        disk.sync_dir(folder).map_err(|cause| Error::io("flushing", folder, cause))?;
        let gone = take_gone(&mut manifest, &names);
        let mut runs: Vec<Arc<Run>> = Vec::with_capacity(manifest.runs.len());
        for &name in manifest.runs.iter().chain(&manifest.staged) {
            let run = Run::open(&disk, folder, name, pinned_bytes_left(&options, &runs))?;
            if options.verify {
                run.verify()?;
            }
            runs.push(Arc::new(run));
        }
        let staged = runs.split_off(manifest.runs.len());
        manifest.remove_leftovers(disk.as_ref(), folder, &names)?;
        let (watermark, dropped) = (manifest.watermark, manifest.dropped.clone());
        let version = Version { watermark, runs, attached: Vec::new(), dropped };
        let base = Base {
            disk,
            folder: folder.to_path_buf(),
            cache: Arc::new(BlockCache::new(options.cache_bytes)),
            cache_bytes: AtomicU64::new(options.cache_bytes),
            options,
            version: ArcSwap::from_pointee(version),
            applying: Mutex::new(()),
            merging: Mutex::new(()),
            changing: Mutex::new(()),
            state: Mutex::new(State {
                manifest,
                staged,
                gone,
                unwanted: Vec::new(),
                doubted: Vec::new(),
                broken: None,
            }),
            stop: AtomicBool::new(false),
        };
        base.share_memory(&base.version.load().runs);
        Ok(base)
    }

    /// All commits up to this one are in the base store.
    pub fn watermark(&self) -> Csn {
        self.version.load().watermark
    }

    /// What is in force now, readable unchanged for as long as it is held.
    pub fn view(&self) -> BaseView {
        BaseView { version: self.version.load_full(), cache: Arc::clone(&self.cache) }
    }

    /// The value of a key; `None` if it is absent or deleted. The value is a slice of its cached
    /// block and keeps that in memory (about 4 KB).
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Value>, Error> {
        self.version.load().get(&self.cache, tree, key, Csn::MAX)
    }

    /// The present entries of a tree between two bounds, in key order or in reverse.
    pub fn scan(
        &self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        reverse: bool,
    ) -> Result<BaseScan, Error> {
        self.version.load_full().scan(&self.cache, tree, (lower, upper), reverse, Csn::MAX)
    }

    /// Writes `changes`, ascending by (tree, key), `None` for deleted, as the newest run, and moves
    /// the watermark, in one atomic step; entries of `dropped` trees are gone from then on. When it
    /// returns, all of it is durable. After an error nothing has changed.
    ///
    /// All commits up to `watermark` must be durable in the log already.
    pub fn apply(
        &self,
        watermark: Csn,
        changes: &mut dyn Iterator<Item = (TreeId, Key, Option<Value>)>,
        dropped: &[TreeId],
    ) -> Result<(), Error> {
        let _applying = self.applying.lock();
        let version = self.version.load_full();
        if watermark < version.watermark {
            let what = format!("watermark {watermark} is before {}", version.watermark);
            return Err(Error::InvalidArgument(what));
        }
        let mut all_dropped = version.dropped.clone();
        all_dropped.extend_from_slice(dropped);
        all_dropped.sort_unstable();
        all_dropped.dedup();
        // A deletion has something to hide only in what will be live below the new run. Loads above
        // the watermark concern other trees.
        let above = version.attached_above(watermark);
        let oldest = version.runs.len() == above;
        let mut changes = changes
            .filter(|(tree, _, value)| {
                !(oldest && value.is_none()) && all_dropped.binary_search(tree).is_err()
            })
            .peekable();
        let mut added = None;
        if changes.peek().is_some() {
            let mut writer = RunWriter::create(&self.disk, &self.folder, self.number()?)?;
            for (tree, key, value) in changes {
                writer.add(tree, &key, value.as_deref())?;
            }
            added = writer.finish()?;
        }
        let added = self.open_run(added, &version.runs)?;
        self.change(added.as_ref(), |_, next| {
            next.watermark = watermark;
            next.dropped.clone_from(&all_dropped);
            // Loads of commits up to the watermark become live below the new run, which knows later
            // changes of their trees.
            let above = next.attached_above(watermark);
            next.attached.truncate(above);
            next.runs.splice(above..above, added.clone());
        })
    }

    /// Merges some neighbouring runs, if their number or sizes call for it; `false` if there is
    /// nothing to do. Readers and [`Base::apply`] go on meanwhile. [`Error::ShuttingDown`] after
    /// [`Base::stop`], [`Error::DiskFull`] if there is no room for what should be merged.
    pub fn compact_step(&self) -> Result<bool, Error> {
        let _merging = self.merging.lock();
        let version = self.version.load_full();
        let sizes: Vec<u64> = version.live().iter().map(|run| run.name().length).collect();
        let dropped: Vec<u64> = version.live().iter().map(|run| version.dropped_bytes(run)).collect();
        let choose = |room| merge::choose(&sizes, &dropped, self.options.runs_max.max(2), room);
        match choose(reserve::room(self.disk.as_ref(), &self.folder)) {
            Some(window) => self.merge(&version, window).map(|()| true),
            None if choose(u64::MAX).is_none() => Ok(false),
            None => Err(Error::DiskFull { file: self.folder.clone(), operation: "merging runs in" }),
        }
    }

    /// Merges all runs into one, leaving out deletions and dropped trees.
    pub fn compact_all(&self) -> Result<(), Error> {
        let _merging = self.merging.lock();
        let version = self.version.load_full();
        if version.live().len() > 1 || !version.dropped.is_empty() {
            self.merge(&version, 0..version.live().len())
        } else {
            Ok(())
        }
    }

    fn merge(&self, version: &Version, window: Range<usize>) -> Result<(), Error> {
        let live = version.live();
        let merged = &live[window.clone()];
        let writer = RunWriter::create(&self.disk, &self.folder, self.number()?)?.leaving_reserve();
        let omit = Omit { dropped: &version.dropped, deletions: window.end == live.len() };
        let name = merge::merge(merged, writer, omit, &mut || self.check_open())?;
        let others = [&live[..window.start], &live[window.end..]].concat();
        let run = self.open_run(name, &others)?;
        self.change(run.as_ref(), |_, next| {
            // `apply` may have put newer runs in front meanwhile.
            if let Some(first) = merged.first()
                && let Some(start) = next.runs.iter().position(|run| Arc::ptr_eq(run, first))
            {
                next.runs.splice(start..start + merged.len(), run.clone());
            }
        })?;
        merged.iter().for_each(|run| run.retire());
        Ok(())
    }

    /// Makes a running and all later merges end soon, for shutdown.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Changes the bound of the block cache.
    pub fn resize_cache(&self, bytes: u64) {
        self.cache_bytes.store(bytes, Ordering::Relaxed);
        self.share_memory(&self.version.load().runs);
    }

    /// Gives the cache what the runs' pinned partitions leave of the bound.
    fn share_memory(&self, runs: &[Arc<Run>]) {
        let pinned: u64 = runs.iter().map(|run| run.pinned_bytes()).sum();
        self.cache.resize(self.cache_bytes.load(Ordering::Relaxed).saturating_sub(pinned));
    }

    /// Opens a run just written, which will stand beside `others`.
    pub(super) fn open_run(
        &self,
        name: Option<RunName>,
        others: &[Arc<Run>],
    ) -> Result<Option<Arc<Run>>, Error> {
        let Some(name) = name else { return Ok(None) };
        let run = Run::open(&self.disk, &self.folder, name, pinned_bytes_left(&self.options, others));
        let run = run.inspect_err(|_| {
            // Nobody will name it; and what failed is tried again, with another one.
            if let Err(error) = self.disk.remove(&self.run_path(name.number)) {
                tracing::debug!(%error, "could not remove a run that could not be opened");
            }
        })?;
        Ok(Some(Arc::new(run)))
    }

    /// Sizes and counts now.
    pub fn statistics(&self) -> BaseStatistics {
        let version = self.version.load();
        BaseStatistics {
            runs: version.live().len() as u64,
            attached: version.attached.len() as u64,
            bytes: version.runs.iter().map(|run| run.name().length).sum(),
            cache_bytes: self.cache.bytes(),
            index_bytes: version.runs.iter().map(|run| run.memory_bytes() + run.pinned_bytes()).sum(),
        }
    }

    /// The failure after which nobody knows which manifest is in force, if there was one.
    pub(crate) fn doubt(&self) -> Option<Error> {
        self.state.lock().broken.clone()
    }

    /// A number for a new run.
    pub(super) fn number(&self) -> Result<u64, Error> {
        let mut state = self.state.lock();
        if let Some(error) = &state.broken {
            return Err(error.clone());
        }
        state.manifest.next_run += 1;
        Ok(state.manifest.next_run - 1)
    }

    /// Lets `edit` make the next version, and loads staged, of the present ones; writes the
    /// manifest of that and publishes it. `added` is a run that is new in it.
    ///
    /// `edit` is called before the manifest is written and after: loads may be attached meanwhile,
    /// which the manifest names as it did before.
    pub(super) fn change(
        &self,
        added: Option<&Arc<Run>>,
        mut edit: impl FnMut(&mut Vec<Arc<Run>>, &mut Version),
    ) -> Result<(), Error> {
        let _changing = self.changing.lock();
        let result = self.try_change(&mut edit);
        // Unless the new manifest may be in force, nothing needs the new run's file.
        if result.is_err() && self.state.lock().broken.is_none() {
            added.into_iter().for_each(|run| run.retire());
        }
        result
    }

    fn try_change(&self, edit: &mut dyn FnMut(&mut Vec<Arc<Run>>, &mut Version)) -> Result<(), Error> {
        let (mut next, unwanted) = {
            let state = self.state.lock();
            if let Some(error) = &state.broken {
                return Err(error.clone());
            }
            let (version, staged) = self.edited(&state, edit);
            let names = |runs: &[Arc<Run>]| runs.iter().map(|run| run.name()).collect::<Vec<RunName>>();
            let (attached, live) = version.runs.split_at(version.attached.len());
            let next = Manifest {
                generation: state.manifest.generation + 1,
                watermark: version.watermark,
                next_run: state.manifest.next_run,
                runs: names(live),
                staged: [names(&staged), state.gone.clone(), names(attached)].concat(),
                dropped: version.dropped.clone(),
            };
            (next, state.unwanted.clone())
        };
        next.prepare(self.disk.as_ref(), &self.folder)?;
        if let Err(error) = Manifest::switch(self.disk.as_ref(), &self.folder) {
            tracing::error!(%error, "the base store's manifest is in doubt; no more checkpoints");
            let mut state = self.state.lock();
            let left_out = |run: &&Arc<Run>| !next.staged.contains(&run.name());
            let doubted = state.staged.iter().filter(left_out).map(|run| run.name().number).collect();
            (state.doubted, state.broken) = (doubted, Some(error.clone()));
            return Err(error);
        }
        let mut state = self.state.lock();
        let (version, staged) = self.edited(&state, edit);
        // Runs have been numbered meanwhile.
        next.next_run = state.manifest.next_run;
        // Those that nobody wants only since then are named still.
        state.unwanted.retain(|number| !unwanted.contains(number));
        state.manifest = next;
        let before = std::mem::replace(&mut state.staged, staged);
        self.publish(version);
        drop(state);
        // Nobody waits for the files that go with them.
        drop(before);
        Ok(())
    }

    /// What `edit` makes of the present version and the loads that are staged.
    fn edited(
        &self,
        state: &State,
        edit: &mut dyn FnMut(&mut Vec<Arc<Run>>, &mut Version),
    ) -> (Version, Vec<Arc<Run>>) {
        let (mut version, mut staged) = (Version::clone(&self.version.load()), state.staged.clone());
        edit(&mut staged, &mut version);
        let known = |tree: &TreeId| version.runs.iter().chain(&staged).any(|run| run.has_tree(*tree));
        version.dropped = version.dropped.iter().copied().filter(|tree| known(tree)).collect();
        (version, staged)
    }

    /// Makes a version the one in force. The caller holds `state`.
    pub(super) fn publish(&self, version: Version) {
        self.share_memory(&version.runs);
        self.version.store(Arc::new(version));
    }
}

/// The base store as it was at one moment. Holding it keeps the files of its runs.
#[derive(Debug, Clone)]
pub struct BaseView {
    pub(super) version: Arc<Version>,
    pub(super) cache: Arc<BlockCache>,
}

impl BaseView {
    /// All commits up to this one are in the view, and of later ones only loads.
    pub fn watermark(&self) -> Csn {
        self.version.watermark
    }

    /// All loads that are attached belong to this commit or one before it; so does everything else.
    pub fn newest(&self) -> Csn {
        self.version.attached.first().copied().unwrap_or(0).max(self.version.watermark)
    }

    /// Entries of a tree, summed over the runs.
    pub fn entries(&self, tree: TreeId) -> u64 {
        self.version.runs.iter().map(|run| run.entries(tree)).sum()
    }

    /// Bytes of a tree's keys and values, summed over the runs.
    pub fn tree_bytes(&self, tree: TreeId) -> u64 {
        self.version.runs.iter().map(|run| run.tree_bytes(tree)).sum()
    }

    /// As [`Base::get`].
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Value>, Error> {
        self.version.get(&self.cache, tree, key, Csn::MAX)
    }

    /// The same without loads of commits after `snapshot`.
    pub fn get_at(&self, tree: TreeId, key: &[u8], snapshot: Csn) -> Result<Option<Value>, Error> {
        self.version.get(&self.cache, tree, key, snapshot)
    }

    /// The file that has the value of a key, and where the block with it begins. For reports of
    /// damage.
    pub fn place_of(&self, tree: TreeId, key: &[u8], snapshot: Csn) -> Result<Option<(PathBuf, u64)>, Error> {
        self.version.find(tree, key, snapshot, |run, hash| {
            let offset = run.offset_of(&self.cache, tree, key, hash)?;
            Ok(offset.map(|offset| (run.path().to_path_buf(), offset)))
        })
    }

    /// Lends `read` the value; false if there is none.
    pub fn lend_at(
        &self,
        tree: TreeId,
        key: &[u8],
        snapshot: Csn,
        read: &mut dyn FnMut(Lent<'_>),
    ) -> Result<bool, Error> {
        let found = self
            .version
            .find(tree, key, snapshot, |run, hash| run.lend(&self.cache, tree, key, hash, read))?;
        Ok(found.unwrap_or(false))
    }

    /// As [`Base::scan`].
    pub fn scan(
        &self,
        tree: TreeId,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        reverse: bool,
    ) -> Result<BaseScan, Error> {
        self.version.scan(&self.cache, tree, (lower, upper), reverse, Csn::MAX)
    }

    /// The same without loads of commits after `snapshot`.
    pub fn scan_at(
        &self,
        tree: TreeId,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        reverse: bool,
        snapshot: Csn,
    ) -> Result<BaseScan, Error> {
        self.version.scan(&self.cache, tree, range, reverse, snapshot)
    }
}

impl Version {
    /// Only these runs, newest first: what a transaction has loaded so far.
    pub(super) fn of(runs: Vec<Arc<Run>>) -> Version {
        Version { watermark: 0, runs, attached: Vec::new(), dropped: Vec::new() }
    }

    /// The runs that the manifest names as live, newest first.
    fn live(&self) -> &[Arc<Run>] {
        &self.runs[self.attached.len()..]
    }

    /// How many of the attached loads belong to commits above a watermark. Newest first, so these
    /// are in front.
    fn attached_above(&self, watermark: Csn) -> usize {
        self.attached.iter().take_while(|&&csn| csn > watermark).count()
    }

    fn get(
        &self,
        cache: &BlockCache,
        tree: TreeId,
        key: &[u8],
        snapshot: Csn,
    ) -> Result<Option<Value>, Error> {
        Ok(self.find(tree, key, snapshot, |run, hash| run.get(cache, tree, key, hash))?.flatten())
    }

    /// What the newest run says that knows the key.
    fn find<T>(
        &self,
        tree: TreeId,
        key: &[u8],
        snapshot: Csn,
        mut ask: impl FnMut(&Run, u64) -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        if self.runs.is_empty() || self.dropped.binary_search(&tree).is_ok() {
            return Ok(None);
        }
        let hash = filter::hash(tree, key);
        for run in &self.runs[self.attached_above(snapshot)..] {
            if let Some(found) = ask(run, hash)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn scan(
        &self,
        cache: &Arc<BlockCache>,
        tree: TreeId,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        reverse: bool,
        snapshot: Csn,
    ) -> Result<BaseScan, Error> {
        if self.dropped.binary_search(&tree).is_ok() {
            return Ok(BaseScan::empty());
        }
        BaseScan::new(&self.runs[self.attached_above(snapshot)..], cache, tree, range.0, range.1, reverse)
    }

    /// Bytes of a run that belong to dropped trees.
    fn dropped_bytes(&self, run: &Run) -> u64 {
        let gone = |tree| self.dropped.binary_search(tree).is_ok();
        run.top()
            .trees
            .iter()
            .filter(|share| gone(&share.tree))
            .map(|share| share.bytes + share.entries * 8)
            .sum()
    }
}

/// What the runs already open leave of the memory for pinned partitions: a sixth of the cache's
/// bound at most.
fn pinned_bytes_left(options: &BaseOptions, runs: &[Arc<Run>]) -> u64 {
    let pinned: u64 = runs.iter().map(|run| run.pinned_bytes()).sum();
    (options.cache_bytes / 6).saturating_sub(pinned)
}
