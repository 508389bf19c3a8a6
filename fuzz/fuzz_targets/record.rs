//! `cargo +nightly fuzz run record`: the log's batch and record codec.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cognate_engine::storage::fuzz::fuzz_record(bytes));
