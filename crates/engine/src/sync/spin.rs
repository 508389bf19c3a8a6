//! Locks that are held for about a microsecond: waiting for one by looking again is shorter than by
//! sleeping.
//!
//! parking_lot looks a few times and then gives the processor away, which costs more than most of
//! these sections take, and a sleeper wakes with the others already in line behind it. Here a
//! thread looks [`LOOKS`] times before it does that, some twenty microseconds. A free holder needs
//! much less; but often the holder is not free: the log thread, whose flush has ended, has taken
//! its processor for just so long. Who sleeps then costs two switches and a wake-up under the next
//! holder's feet, and each of these makes the next such meeting more likely.

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// How often to look before sleeping.
const LOOKS: u32 = 400;

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
