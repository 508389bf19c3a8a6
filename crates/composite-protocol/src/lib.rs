//! The protocol of composite transactions, as one component follows it: pure, so that all orders of
//! what can happen are explored (`tests/protocol`).
//!
//! It is a crate of its own because the exploration visits millions of states and is optimized for
//! that, also where the rest is built for tests and is not. `cognate-composite` does the effects,
//! and shows these modules as its own.
//!
//! Floors, from the ground: `name`; `matrix` (which services conflict); `locks` (call-level locks);
//! `participant` (a component's part in everything).

pub mod locks;
pub mod matrix;
pub mod name;
pub mod participant;
