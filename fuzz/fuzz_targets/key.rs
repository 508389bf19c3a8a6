//! `cargo +nightly fuzz run key`: the codec of ordered keys.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cognate_sql::fuzz::fuzz_key(bytes));
