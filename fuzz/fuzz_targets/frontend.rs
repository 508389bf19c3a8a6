//! `cargo +nightly fuzz run frontend`: everything that reads bytes of a client.
//! `crates/server/tests/codec.rs` runs the same on a bounded number of seeds.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    cognate_server::pg::fuzz::frontend(bytes);
});
