//! The monitor's parts one by one, and the whole in a simulated cluster.

mod bounds;
mod choices;
mod estimates;
mod fingerprints;
mod simulation;
mod simulator;

use std::sync::Arc;

use super::*;

/// The class of these statements.
fn class(statements: &[&str]) -> Class {
    let mut class = Class::new();
    for text in statements {
        class.add(Fingerprint::of(text), &Arc::from(*text));
    }
    class
}

/// Where random cases begin; printed, and set by `COGNATE_SEED`.
fn first_seed() -> u64 {
    let given = std::env::var("COGNATE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or(1);
    println!("COGNATE_SEED={seed}");
    seed
}
