//! A file system in memory that keeps what programs see and what the medium holds apart.
//!
//! All its methods take `&self`; clones are the same disk. [`SimDisk::restart`] ends the process or
//! the power: handles and files opened before answer errors from then on, so whatever of the old
//! process still runs in a test changes nothing that is the new one's; and what the medium holds
//! (or, for the process, the cache) is all there is.
//!
//! Folders: creations, renames and removals form one sequence per folder; power loss keeps a prefix
//! of what was not flushed. Simplified: folders themselves are durable at once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::content::Content;
use crate::disk::{Disk, File, Lock, OpenMode, Room, SECTOR};
use crate::rng::SplitMix;

/// What a restart takes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The process ends; what it wrote is still in the operating system's cache (`kill -9`).
    Process,
    /// The power goes; of what was not flushed, any part may be lost.
    Power,
}

/// See the module's description.
#[derive(Debug, Clone)]
pub struct SimDisk(Arc<Mutex<World>>, Arc<Condvar>);

type FileId = u64;

#[derive(Debug)]
struct World {
    random: SplitMix,
    contents: HashMap<FileId, Content>,
    next_file: FileId,
    folders: BTreeSet<PathBuf>,
    live: BTreeMap<PathBuf, FileId>,
    durable: BTreeMap<PathBuf, FileId>,
    /// Changes of folders that are not flushed, in order.
    pending: Vec<(PathBuf, Change)>,
    locks: BTreeSet<PathBuf>,
    /// Counts restarts; handles of an earlier life are dead.
    life: u64,
    faults: Faults,
}

#[derive(Debug, Clone)]
enum Change {
    Link(PathBuf, FileId),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf),
}

#[derive(Debug, Default)]
struct Faults {
    /// Changing operations until everything fails.
    power_off_in: Option<u64>,
    off: bool,
    /// Flushes (of files and folders) until one fails.
    sync_fails_in: Option<u64>,
    quota_bytes: Option<u64>,
    unreadable: BTreeSet<PathBuf>,
    /// Flushes of files wait until they are let go.
    held: bool,
    operations: u64,
}

impl SimDisk {
    /// An empty disk whose faults are drawn from `seed`.
    pub fn new(seed: u64) -> SimDisk {
        let world = World {
            random: SplitMix::new(seed),
            contents: HashMap::new(),
            next_file: 1,
            folders: BTreeSet::new(),
            live: BTreeMap::new(),
            durable: BTreeMap::new(),
            pending: Vec::new(),
            locks: BTreeSet::new(),
            life: 0,
            faults: Faults::default(),
        };
        SimDisk(Arc::new(Mutex::new(world)), Arc::default())
    }

    /// The same disk for one process: until the next restart.
    pub fn handle(&self) -> Arc<dyn Disk> {
        Arc::new(self.now())
    }

    fn now(&self) -> Handle {
        let life = self.0.lock().life;
        Handle { disk: self.clone(), life }
    }

    /// Ends the process or the power, and all faults except rotten bytes; the disk can then be used
    /// again.
    pub fn restart(&self, loss: Loss) {
        let mut guard = self.0.lock();
        let world = &mut *guard;
        world.life += 1;
        world.locks.clear();
        world.faults = Faults { operations: world.faults.operations, ..Faults::default() };
        if loss == Loss::Power {
            world.lose_folder_changes();
            let mut ids: Vec<FileId> = world.contents.keys().copied().collect();
            ids.sort_unstable();
            for id in ids {
                if let Some(content) = world.contents.get_mut(&id) {
                    content.lose_power(&mut world.random);
                }
            }
        }
        world.forget_unlinked();
        // Flushes that are held belong to a process that is no more.
        self.1.notify_all();
    }

    /// Holds flushes of files back until [`SimDisk::let_flushes_go`] or a restart: so a test sees
    /// what is answered before anything is durable.
    pub fn hold_flushes(&self) {
        self.0.lock().faults.held = true;
    }

    /// Ends [`SimDisk::hold_flushes`].
    pub fn let_flushes_go(&self) {
        self.0.lock().faults.held = false;
        self.1.notify_all();
    }

    /// From the `operations`-th changing operation on (0: the next one), everything fails until
    /// [`SimDisk::restart`]. The operation at which it happens is half done, if it is a write.
    pub fn power_off_after(&self, operations: u64) {
        self.0.lock().faults.power_off_in = Some(operations);
    }

    /// Whether the power went off.
    pub fn is_off(&self) -> bool {
        self.0.lock().faults.off
    }

    /// Number of changing operations so far, to choose among in [`SimDisk::power_off_after`].
    pub fn operations(&self) -> u64 {
        self.0.lock().faults.operations
    }

    /// The flush after `flushes` more successful ones fails, once.
    pub fn fail_sync_after(&self, flushes: u64) {
        self.0.lock().faults.sync_fails_in = Some(flushes);
    }

    /// Limits the sum of all files' lengths; `None` lifts the limit.
    pub fn set_quota(&self, bytes: Option<u64>) {
        self.0.lock().faults.quota_bytes = bytes;
    }

    /// Sum of all files' lengths.
    pub fn used_bytes(&self) -> u64 {
        self.0.lock().used_bytes()
    }

    /// Reading `path` fails from now on, until a restart.
    pub fn fail_reads(&self, path: &Path) {
        self.0.lock().faults.unreadable.insert(path.to_path_buf());
    }

    /// Flips the bits of `mask` in one byte, on the medium too.
    pub fn flip(&self, path: &Path, offset: u64, mask: u8) {
        let mut world = self.0.lock();
        if let Some(id) = world.live.get(path).copied()
            && let Some(content) = world.contents.get_mut(&id)
        {
            content.flip(offset, mask);
        }
    }

    /// All files as programs see them: path and bytes.
    pub fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let world = self.0.lock();
        world.live.iter().map(|(path, id)| (path.clone(), world.contents[id].live.clone())).collect()
    }
}

impl World {
    /// Counts a changing operation; fails if the power is off. `Ok(true)`: it goes off during this
    /// one.
    fn change(&mut self) -> io::Result<bool> {
        if self.faults.off {
            return Err(off());
        }
        self.faults.operations += 1;
        match &mut self.faults.power_off_in {
            Some(0) => {
                self.faults.off = true;
                Ok(true)
            }
            Some(left) => {
                *left -= 1;
                Ok(false)
            }
            None => Ok(false),
        }
    }

    /// As [`World::change`], for operations that are not done at all when the power goes.
    fn whole_change(&mut self) -> io::Result<()> {
        if self.change()? { Err(off()) } else { Ok(()) }
    }

    fn sync_fails(&mut self) -> bool {
        match &mut self.faults.sync_fails_in {
            Some(0) => {
                self.faults.sync_fails_in = None;
                true
            }
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }

    fn link(&mut self, path: &Path, change: Change) {
        self.pending.push((folder_of(path), change.clone()));
        apply(&mut self.live, change);
    }

    fn flush_folder(&mut self, folder: &Path) {
        for (at, change) in std::mem::take(&mut self.pending) {
            if at == folder {
                apply(&mut self.durable, change);
            } else {
                self.pending.push((at, change));
            }
        }
    }

    fn lose_folder_changes(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        let folders: BTreeSet<PathBuf> = pending.iter().map(|(folder, _)| folder.clone()).collect();
        for folder in folders {
            let changes: Vec<Change> =
                pending.iter().filter(|(at, _)| *at == folder).map(|(_, change)| change.clone()).collect();
            let kept = self.random.below(changes.len() as u64 + 1) as usize;
            for change in changes.into_iter().take(kept) {
                apply(&mut self.durable, change);
            }
        }
        self.live.clone_from(&self.durable);
    }

    fn forget_unlinked(&mut self) {
        let kept: BTreeSet<FileId> = self.live.values().chain(self.durable.values()).copied().collect();
        self.contents.retain(|id, _| kept.contains(id));
    }

    fn used_bytes(&self) -> u64 {
        self.live
            .values()
            .filter_map(|id| self.contents.get(id))
            .map(|content| content.live.len() as u64)
            .sum()
    }

    /// How much of a write that ends at `end` of file `id` the quota allows.
    fn room(&self, id: FileId, end: u64) -> u64 {
        let length = self.contents.get(&id).map_or(0, |content| content.live.len() as u64);
        match self.faults.quota_bytes {
            Some(quota) if end > length => {
                let free = quota.saturating_sub(self.used_bytes());
                (length + free).min(end)
            }
            _ => end,
        }
    }

    fn content(&mut self, id: FileId, life: u64) -> io::Result<&mut Content> {
        if life != self.life {
            return Err(ended());
        }
        self.contents.get_mut(&id).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn apply(links: &mut BTreeMap<PathBuf, FileId>, change: Change) {
    match change {
        Change::Link(path, id) => {
            links.insert(path, id);
        }
        Change::Unlink(path) => {
            links.remove(&path);
        }
        Change::Rename(from, to) => {
            if let Some(id) = links.remove(&from) {
                links.insert(to, id);
            }
        }
    }
}

fn folder_of(path: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new("")).to_path_buf()
}

/// How much of a write of `count` bytes at `offset` is done if it ends early: up to the end of a
/// sector.
fn whole_sectors(offset: u64, count: u64) -> usize {
    ((offset + count) / SECTOR * SECTOR).saturating_sub(offset) as usize
}

fn off() -> io::Error {
    io::Error::other("the power is off")
}

fn ended() -> io::Error {
    io::Error::other("the process that opened this has ended")
}

/// What a process has of the disk.
#[derive(Debug)]
struct Handle {
    disk: SimDisk,
    life: u64,
}

impl Handle {
    fn world(&self) -> io::Result<MutexGuard<'_, World>> {
        let world = self.disk.0.lock();
        if world.life == self.life { Ok(world) } else { Err(ended()) }
    }
}

impl Disk for Handle {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut world = self.world()?;
        if world.faults.off {
            return Err(off());
        }
        let known = world.live.get(path).copied();
        let id = match (mode, known) {
            (OpenMode::Read | OpenMode::ReadWrite, Some(id)) => id,
            (OpenMode::Read | OpenMode::ReadWrite, None) => return Err(io::ErrorKind::NotFound.into()),
            (OpenMode::CreateNew, Some(_)) => return Err(io::ErrorKind::AlreadyExists.into()),
            (OpenMode::Truncate, Some(id)) => {
                world.whole_change()?;
                if let Some(content) = world.contents.get_mut(&id) {
                    content.set_len(0);
                }
                id
            }
            (OpenMode::CreateNew | OpenMode::Truncate, None) => {
                if !world.folders.contains(&folder_of(path)) {
                    return Err(io::ErrorKind::NotFound.into());
                }
                world.whole_change()?;
                let id = world.next_file;
                world.next_file += 1;
                world.contents.insert(id, Content::default());
                world.link(path, Change::Link(path.to_path_buf(), id));
                id
            }
        };
        let life = world.life;
        let writable = mode != OpenMode::Read;
        Ok(Arc::new(SimFile { disk: self.disk.clone(), path: path.to_path_buf(), id, life, writable }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut world = self.world()?;
        world.whole_change()?;
        if !world.live.contains_key(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        world.link(to, Change::Rename(from.to_path_buf(), to.to_path_buf()));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut world = self.world()?;
        world.whole_change()?;
        if !world.live.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        world.link(path, Change::Unlink(path.to_path_buf()));
        Ok(())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let world = self.world()?;
        if !world.folders.contains(folder) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let inside = world.live.keys().filter(|path| path.parent() == Some(folder));
        Ok(inside
            .filter_map(|path| path.file_name())
            .map(|name| name.to_string_lossy().into_owned())
            .collect())
    }

    fn list_others(&self, folder: &Path) -> io::Result<Vec<String>> {
        let world = self.world()?;
        let inside = world.folders.iter().filter(|path| path.parent() == Some(folder));
        Ok(inside
            .filter_map(|path| path.file_name())
            .map(|name| name.to_string_lossy().into_owned())
            .collect())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let world = self.world()?;
        Ok(world.live.contains_key(path) || world.folders.contains(path))
    }

    fn create_dir_all(&self, folder: &Path) -> io::Result<()> {
        let mut world = self.world()?;
        let missing: Vec<PathBuf> = folder.ancestors().map(Path::to_path_buf).collect();
        world.folders.extend(missing);
        Ok(())
    }

    fn sync_dir(&self, folder: &Path) -> io::Result<()> {
        let mut world = self.world()?;
        world.whole_change()?;
        if world.sync_fails() {
            return Err(io::Error::other("flushing the folder failed"));
        }
        world.flush_folder(folder);
        Ok(())
    }

    fn room(&self, _folder: &Path) -> Option<Room> {
        let world = self.world().ok()?;
        let total = world.faults.quota_bytes?;
        Some(Room { free: total.saturating_sub(world.used_bytes()), total })
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        let mut world = self.world()?;
        if !world.locks.insert(path.to_path_buf()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(SimLock { disk: self.disk.clone(), path: path.to_path_buf(), life: world.life }))
    }
}

/// For tests themselves, which belong to whichever process there is.
impl Disk for SimDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        self.now().open(path, mode)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.now().rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.now().remove(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.now().list(folder)
    }

    fn list_others(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.now().list_others(folder)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.now().exists(path)
    }

    fn create_dir_all(&self, folder: &Path) -> io::Result<()> {
        self.now().create_dir_all(folder)
    }

    fn sync_dir(&self, folder: &Path) -> io::Result<()> {
        self.now().sync_dir(folder)
    }

    fn room(&self, folder: &Path) -> Option<Room> {
        self.now().room(folder)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        self.now().lock(path)
    }
}

#[derive(Debug)]
struct SimLock {
    disk: SimDisk,
    path: PathBuf,
    life: u64,
}

impl Lock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut world = self.disk.0.lock();
        if world.life == self.life {
            world.locks.remove(&self.path);
        }
    }
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    path: PathBuf,
    id: FileId,
    life: u64,
    writable: bool,
}

impl File for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut world = self.disk.0.lock();
        if world.faults.off {
            return Err(off());
        }
        if world.faults.unreadable.contains(&self.path) {
            return Err(io::Error::other("the medium cannot be read"));
        }
        let live = &world.content(self.id, self.life)?.live;
        let start = (offset as usize).min(live.len());
        let count = buffer.len().min(live.len() - start);
        buffer[..count].copy_from_slice(&live[start..start + count]);
        Ok(count)
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        if !self.writable {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut world = self.disk.0.lock();
        world.content(self.id, self.life)?;
        let end = offset + data.len() as u64;
        let (mut done, mut failure) = (data.len(), None);
        if world.change()? {
            done = whole_sectors(offset, world.random.below(data.len() as u64 + 1));
            failure = Some(off());
        } else if let room = world.room(self.id, end)
            && room < end
        {
            done = whole_sectors(offset, room.saturating_sub(offset));
            failure = Some(io::ErrorKind::StorageFull.into());
        }
        if done > 0 {
            world.content(self.id, self.life)?.write(&data[..done], offset);
        }
        failure.map_or(Ok(()), Err)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut guard = self.disk.0.lock();
        while guard.faults.held && !guard.faults.off && guard.life == self.life {
            self.disk.1.wait(&mut guard);
        }
        let world = &mut *guard;
        world.content(self.id, self.life)?;
        world.whole_change()?;
        let fails = world.sync_fails();
        if let Some(content) = world.contents.get_mut(&self.id) {
            if fails {
                content.fail_flush(&mut world.random);
                return Err(io::Error::other("flushing the file failed"));
            }
            content.flush();
        }
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut world = self.disk.0.lock();
        world.content(self.id, self.life)?;
        world.whole_change()?;
        if world.room(self.id, length) < length {
            return Err(io::ErrorKind::StorageFull.into());
        }
        world.content(self.id, self.life)?.set_len(length);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        let mut world = self.disk.0.lock();
        Ok(world.content(self.id, self.life)?.live.len() as u64)
    }
}
