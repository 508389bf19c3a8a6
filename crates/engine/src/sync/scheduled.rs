//! The scheduler's primitives in the shapes of parking_lot's and arc-swap's.
//!
//! A poisoned mutex means that the test has failed already: it is entered all the same, as
//! parking_lot's are.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError, TryLockError};
use std::time::Duration;

use shuttle::sync as inner;

pub(crate) use shuttle::sync::atomic;
pub(crate) use shuttle::{thread, thread_local};

/// The threads of a test are one thread to the operating system, which stays as it is.
pub(crate) fn lower_thread_priority() {}

/// As `parking_lot::Mutex`.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(inner::Mutex<T>);

/// As `parking_lot::MutexGuard`; empty only while its owner waits for a condition.
pub(crate) struct MutexGuard<'a, T>(Option<inner::MutexGuard<'a, T>>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(inner::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(MutexGuard(Some(guard))),
            Err(TryLockError::Poisoned(poisoned)) => Some(MutexGuard(Some(poisoned.into_inner()))),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("not waiting")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("not waiting")
    }
}

/// As `parking_lot::Condvar`. A wait with a limit never reaches it: what only time would bring
/// about does not happen in a test.
#[derive(Debug, Default)]
pub(crate) struct Condvar(inner::Condvar);

/// Whether a wait ended by its limit.
pub(crate) struct TimedOut;

impl TimedOut {
    pub(crate) fn timed_out(&self) -> bool {
        false
    }
}

impl Condvar {
    pub(crate) fn new() -> Condvar {
        Condvar::default()
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.0.take().expect("not waiting");
        guard.0 = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) -> TimedOut {
        self.wait(guard);
        TimedOut
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// As `parking_lot::RwLock`.
#[derive(Debug, Default)]
pub(crate) struct RwLock<T>(inner::RwLock<T>);

impl<T> RwLock<T> {
    pub(crate) fn new(value: T) -> RwLock<T> {
        RwLock(inner::RwLock::new(value))
    }

    pub(crate) fn read(&self) -> inner::RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> inner::RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As `spin`: nobody looks twice here.
pub(crate) mod spin {
    use super::{Mutex, MutexGuard, RwLock, inner};

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock()
    }

    pub(crate) fn read<T>(lock: &RwLock<T>) -> inner::RwLockReadGuard<'_, T> {
        lock.read()
    }

    pub(crate) fn write<T>(lock: &RwLock<T>) -> inner::RwLockWriteGuard<'_, T> {
        lock.write()
    }
}

/// As `arc_swap::ArcSwap`: the real one, each of whose operations is one step; others may run
/// before it.
#[derive(Debug)]
pub(crate) struct ArcSwap<T> {
    real: arc_swap::ArcSwap<T>,
    step: atomic::AtomicBool,
}

impl<T> ArcSwap<T> {
    pub(crate) fn from_pointee(value: T) -> ArcSwap<T> {
        ArcSwap { real: arc_swap::ArcSwap::from_pointee(value), step: atomic::AtomicBool::new(false) }
    }

    pub(crate) fn load(&self) -> arc_swap::Guard<Arc<T>> {
        self.others_may_run();
        self.real.load()
    }

    pub(crate) fn load_full(&self) -> Arc<T> {
        self.others_may_run();
        self.real.load_full()
    }

    pub(crate) fn store(&self, value: Arc<T>) {
        self.others_may_run();
        self.real.store(value);
    }

    fn others_may_run(&self) {
        self.step.load(atomic::Ordering::SeqCst);
    }
}
