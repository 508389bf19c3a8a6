//! Tests of the log and the base store.

mod base;
mod crash;
mod log;
mod speed;
