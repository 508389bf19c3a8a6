//! The registry of snapshots in use: what garbage collection must not take away.
//!
//! A snapshot is one commit sequence number. It is pinned while a transaction or a cursor reads at
//! it.
//!
//! # Why no reader can be overtaken
//!
//! A begin reads the mark (visible or durable) *inside* the lock of its shard and inserts it there.
//! A collector first reads the marks (`floor`), then visits the shards one after the other. If the
//! begin came to its shard before the collector, the collector sees the pin. If it came after, it
//! read the mark after the collector did, and marks only grow: its snapshot is at or above `floor`,
//! and everything from `floor` on is kept anyway. An older set of needs is always safe to use
//! later: it keeps more.
//!
//! The checkpoint pins an *old* snapshot (the oldest active one). `gate` orders that against
//! collectors: the pin is made while the reader is seen in the registry, so every set computed
//! before has the reader, and every set computed after has the pin.
//!
//! A pin says whether its transaction will be certified: only those can still get edges in the
//! dependency graph to what committed after their snapshots.
//!
//! Mutex order: `gate`, then one shard at a time.

use std::cell::Cell;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::Csn;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{CachePadded, Mutex, thread_local};

/// Shards for each core. A thread pins in a shard of its own, as far as there are enough, whose
/// lines stay with its processor; collectors look at all of them.
const SHARDS_PER_CORE: usize = 2;
const FREE: Csn = Csn::MAX;

thread_local! {
    /// The thread's number, once it has pinned a snapshot.
    static THREAD: Cell<Option<usize>> = const { Cell::new(None) };
}

/// One shard: pinned csns in slots, `FREE` where none is. Padded, so that shards do not share a
/// cache line.
type Shard = CachePadded<Mutex<Slots>>;

#[derive(Default)]
struct Slots {
    /// Each with whether it is to be certified.
    pins: Vec<(Csn, bool)>,
    free: Vec<u32>,
}

/// All pinned snapshots.
pub(crate) struct Snapshots {
    shards: Box<[Shard]>,
    /// Threads that were numbered here.
    threads: AtomicUsize,
    gate: Mutex<()>,
    /// Those who wait for old snapshots to go; the number of them, so that nobody else need look.
    waiters: Mutex<Vec<Waker>>,
    waiting: AtomicUsize,
}

/// A pinned snapshot; dropping it lets go.
pub(crate) struct Pin {
    csn: Csn,
    shard: u32,
    slot: u32,
    registry: Arc<Snapshots>,
}

impl Pin {
    pub(crate) fn csn(&self) -> Csn {
        self.csn
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut slots = self.registry.shards[self.shard as usize].lock();
        let (_, certified) = std::mem::replace(&mut slots.pins[self.slot as usize], (FREE, false));
        slots.free.push(self.slot);
        drop(slots);
        if certified && self.registry.waiting.load(Ordering::Acquire) > 0 {
            let waiters = std::mem::take(&mut *self.registry.waiters.lock());
            waiters.into_iter().for_each(Waker::wake);
        }
    }
}

/// Resolves when no transaction to be certified has a snapshot below a mark.
pub(crate) struct CertifiedSince {
    registry: Arc<Snapshots>,
    mark: Csn,
}

impl Future for CertifiedSince {
    type Output = ();

    fn poll(self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // Registered before the look: whoever lets go after it wakes this.
        self.registry.waiters.lock().push(context.waker().clone());
        match self.registry.oldest_certified(|| FREE) < self.mark {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    }
}

impl Drop for CertifiedSince {
    fn drop(&mut self) {
        if self.registry.waiting.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        // Nobody is woken while nobody waits, so what is left would stay. Who comes meanwhile is
        // counted before it registers.
        let mut waiters = self.registry.waiters.lock();
        let left = match self.registry.waiting.load(Ordering::Acquire) {
            0 => std::mem::take(&mut *waiters),
            _ => Vec::new(),
        };
        drop(waiters);
        drop(left);
    }
}

impl Snapshots {
    /// None yet, on so many cores.
    pub(crate) fn new(cores: u32) -> Snapshots {
        let shards = SHARDS_PER_CORE * cores.max(1) as usize;
        Snapshots {
            shards: (0..shards).map(|_| Shard::default()).collect(),
            threads: AtomicUsize::new(0),
            gate: Mutex::new(()),
            waiters: Mutex::default(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Waits until no transaction to be certified has a snapshot below `mark`. New ones begin above
    /// it.
    pub(crate) fn certified_since(self: &Arc<Self>, mark: Csn) -> CertifiedSince {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        CertifiedSince { registry: Arc::clone(self), mark }
    }

    /// Pins the mark that `read` returns; `read` runs inside the shard's lock.
    pub(crate) fn pin(self: &Arc<Self>, read: impl FnOnce() -> Csn) -> Pin {
        self.pin_as(false, read)
    }

    /// The same for a transaction that will (or will not) be certified.
    pub(crate) fn pin_as(self: &Arc<Self>, certified: bool, read: impl FnOnce() -> Csn) -> Pin {
        let shard = self.shard();
        let mut slots = self.shards[shard].lock();
        let csn = read();
        let slot = match slots.free.pop() {
            Some(slot) => {
                slots.pins[slot as usize] = (csn, certified);
                slot
            }
            None => {
                slots.pins.push((csn, certified));
                slots.pins.len() as u32 - 1
            }
        };
        drop(slots);
        Pin { csn, shard: shard as u32, slot, registry: Arc::clone(self) }
    }

    /// The present thread's shard.
    #[inline]
    fn shard(&self) -> usize {
        let number = |thread: &Cell<Option<usize>>| match thread.get() {
            Some(number) => number,
            None => {
                let number = self.threads.fetch_add(1, Ordering::Relaxed);
                thread.set(Some(number));
                number
            }
        };
        // A thread that is ending has none any more, and any shard will do.
        THREAD.try_with(number).unwrap_or(0) % self.shards.len()
    }

    /// Pins a snapshot that is pinned already. No collector can see neither of both.
    pub(crate) fn pin_again(self: &Arc<Self>, pin: &Pin) -> Pin {
        let _gate = self.gate.lock();
        self.pin(|| pin.csn())
    }

    /// Pins the oldest snapshot in use, or what `floor` reads if none is older.
    pub(crate) fn pin_oldest(self: &Arc<Self>, floor: impl Fn() -> Csn) -> Pin {
        let _gate = self.gate.lock();
        let (active, floor) = self.collect(&floor);
        let oldest = active.first().copied().unwrap_or(floor);
        self.pin(|| oldest)
    }

    /// Active snapshots below `floor` (ascending, without repetition), and the floor; `floor` is
    /// read first.
    pub(crate) fn active(&self, floor: impl Fn() -> Csn) -> (Vec<Csn>, Csn) {
        let _gate = self.gate.lock();
        self.collect(&floor)
    }

    /// The oldest snapshot that a transaction to be certified has, or will have; `floor` as in
    /// `active`.
    pub(crate) fn oldest_certified(&self, floor: impl Fn() -> Csn) -> Csn {
        let mut oldest = floor();
        for shard in &self.shards {
            let slots = shard.lock();
            let certified = slots.pins.iter().filter(|(_, certified)| *certified).map(|&(csn, _)| csn);
            oldest = certified.min().unwrap_or(oldest).min(oldest);
        }
        oldest
    }

    fn collect(&self, floor: &impl Fn() -> Csn) -> (Vec<Csn>, Csn) {
        let floor = floor();
        let mut active = Vec::new();
        for shard in &self.shards {
            let slots = shard.lock();
            active.extend(slots.pins.iter().map(|&(csn, _)| csn).filter(|&csn| csn < floor));
        }
        active.sort_unstable();
        active.dedup();
        (active, floor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_to_be_certified_count_for_the_certifier() {
        let registry = Arc::new(Snapshots::new(2));
        let (plain, certified) = (registry.pin(|| 3), registry.pin_as(true, || 5));
        assert_eq!(registry.oldest_certified(|| 9), 5);
        drop(certified);
        assert_eq!(registry.oldest_certified(|| 9), 9);
        drop(plain);
    }

    #[test]
    fn who_need_not_wait_leaves_nothing() {
        let registry = Arc::new(Snapshots::new(2));
        let mut context = Context::from_waker(Waker::noop());
        let mut poll = |wait: &mut CertifiedSince| std::pin::Pin::new(wait).poll(&mut context);
        let mut first = registry.certified_since(5);
        assert!(poll(&mut first).is_ready());
        let certified = registry.pin_as(true, || 3);
        let mut second = registry.certified_since(5);
        assert!(poll(&mut second).is_pending());
        drop(first);
        assert!(!registry.waiters.lock().is_empty(), "the second one still waits");
        drop(certified);
        assert!(poll(&mut second).is_ready());
        drop(second);
        assert!(registry.waiters.lock().is_empty());
    }

    #[test]
    fn pins_are_seen_until_dropped() {
        let registry = Arc::new(Snapshots::new(2));
        let five = registry.pin(|| 5);
        let seven = registry.pin(|| 7);
        assert_eq!(registry.active(|| 7), (vec![5], 7));
        let oldest = registry.pin_oldest(|| 9);
        drop(five);
        assert_eq!((oldest.csn(), seven.csn()), (5, 7));
        assert_eq!(registry.active(|| 9), (vec![5, 7], 9));
        drop((oldest, seven));
        assert_eq!(registry.pin_oldest(|| 9).csn(), 9);
    }
}
