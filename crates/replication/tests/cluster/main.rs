//! Three nodes in one process: over loopback TCP with a real disk, and over a simulated network
//! with disks that lose power.

#![allow(clippy::unwrap_used)]

mod changes;
#[cfg(feature = "planted-faults")]
mod faults;
mod founding;
mod lost;
mod pace;
mod proxy;
mod recorder;
mod sim;
mod snapshots;
mod support;
mod tcp;
mod unreached;
