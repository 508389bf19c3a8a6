//! Integration tests of the engine.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test fails by panicking"))]

mod database;
mod storage;
