//! Crashes under load, judged through SQL.
//!
//! `load`: what clients do and what they know to have happened; `judge`: what must be there
//! afterwards; `simulated`: rounds on a simulated disk that loses power; `observer`: clients that
//! must not be told what a crash can take back; `killed`: rounds on the real process, ended by
//! `kill -9`; `disk`: a disk that is full or fails to flush.

mod disk;
mod judge;
mod killed;
mod load;
mod observer;
mod simulated;
