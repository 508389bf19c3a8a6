//! What the engine synchronizes with: mutexes, condition variables, atomics, threads.
//!
//! Every module of the engine takes them from here (`cargo xtask tidy` looks), so that the same
//! code runs in two worlds:
//!
//! - Ordinarily these are names for parking_lot's, arc-swap's and the standard library's, and
//!   nothing else: no wrapper, no cost.
//! - With the feature `shuttle` they belong to a scheduler that runs all threads of a test as
//!   coroutines of one thread and decides at each of these operations who goes on (`scheduled`).
//!   The tests in `schedules` explore the commit path and the governor's gate so, the log's and the
//!   release thread included. Outside such a test nothing works then, so nobody else may switch the
//!   feature on.
//!
//! One operation that went around this module would be enough to make an exploration hang (a real
//! mutex, held by a coroutine that does not run) or to hide a step from it. Left out on purpose:
//! `Arc` (its counts order nothing that we rely on), `OnceLock` where it is only set and read, and
//! the disk of the simulation, whose calls are one step each. The scheduler knows interleavings,
//! not weak memory: each atomic operation is sequentially consistent there. What the orderings in
//! the code promise is argued where they stand.

#[cfg(feature = "shuttle")]
mod scheduled;
#[cfg(not(feature = "shuttle"))]
pub(crate) mod spin;

/// A value that shares its cache lines with nothing. A processor that writes takes the whole line
/// away from the others; what every commit writes therefore must not lie beside what every read
/// looks at.
pub(crate) use crossbeam_utils::CachePadded;
#[cfg(feature = "shuttle")]
pub(crate) use scheduled::{
    ArcSwap, Condvar, Mutex, MutexGuard, RwLock, atomic, lower_thread_priority, spin, thread, thread_local,
};

#[cfg(not(feature = "shuttle"))]
pub(crate) use {
    arc_swap::ArcSwap,
    cognate_env::priority::lower_thread_priority,
    parking_lot::{Condvar, Mutex, MutexGuard, RwLock},
    std::sync::atomic,
    std::{thread, thread_local},
};
