//! The outside world behind traits: disk, clock and randomness.
//!
//! Everything above this crate reaches the machine only through [`Disk`], [`Clock`] and [`Rng`], so
//! that the same code runs on the real machine ([`RealDisk`], [`RealClock`], [`RealRng`]) and
//! inside a seeded simulation ([`sim`]) that loses power, tears writes, fails flushes and fills up,
//! and does it again the same way for the same seed.

pub mod clock;
pub mod descriptors;
pub mod disk;
pub mod priority;
pub mod real;
pub mod rng;
pub mod sim;

pub use clock::Clock;
pub use disk::{Disk, File, Lock, OpenMode, Room};
pub use real::{RealClock, RealDisk, RealRng};
pub use rng::{Rng, SplitMix};
