//! How the command is linked.
//!
//! A program that can be loaded anywhere has a list of the places that hold addresses: 24 bytes for
//! each of eighty thousand. C libraries that know the packed form of it (glibc from 2.36 on) need
//! three bits for most. The list is as the library of the machine that builds understands it.

use std::env;
use std::process::Command;

/// The first glibc 2 that loads packed relocations.
const FIRST_MINOR: u32 = 36;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if is_for_this_machine() && glibc_minor().is_some_and(|minor| minor >= FIRST_MINOR) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// Only where the linkers are known that come with the compiler and the system.
fn is_for_this_machine() -> bool {
    let target = env::var("TARGET");
    target.as_deref() == Ok("x86_64-unknown-linux-gnu") && target == env::var("HOST")
}

/// `glibc 2.36` is 36.
fn glibc_minor() -> Option<u32> {
    let said = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    String::from_utf8(said.stdout).ok()?.trim().strip_prefix("glibc 2.")?.parse().ok()
}
