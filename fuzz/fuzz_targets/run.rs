//! `cargo +nightly fuzz run run`: blocks, indexes and manifest of the base store.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cognate_engine::storage::fuzz::fuzz_run(bytes));
