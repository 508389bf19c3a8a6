//! Tests of the log and the base store.

mod base;
mod crash;
mod decode;
mod full;
mod log;
mod speed;
