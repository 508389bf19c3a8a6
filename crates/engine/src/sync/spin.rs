//! Locks that are held for about a microsecond: waiting for one by looking again is shorter than by sleeping.
//!
//! parking_lot looks a few times and then gives the processor away, which costs more than most of these sections take, and a sleeper wakes
//! with the others already in line behind it. Here a thread looks [`LOOKS`] times, a few microseconds, before it does that: enough unless the
//! holder itself lost its processor.

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// How often to look before sleeping.
const LOOKS: u32 = 64;

fn look<T>(mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    for _ in 0..LOOKS {
        if let Some(guard) = attempt() {
            return Some(guard);
        }
        std::hint::spin_loop();
    }
    None
}

/// Locks a mutex.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    look(|| mutex.try_lock()).unwrap_or_else(|| mutex.lock())
}

/// Locks for reading.
#[inline]
pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    look(|| lock.try_read()).unwrap_or_else(|| lock.read())
}

/// Locks for writing.
#[inline]
pub(crate) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    look(|| lock.try_write()).unwrap_or_else(|| lock.write())
}
