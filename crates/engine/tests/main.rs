//! Integration tests of the engine.

mod storage;
