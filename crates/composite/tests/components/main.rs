//! Components as they run: processes of the purchase example, spoken to over HTTP.

mod contract;
#[cfg(feature = "fault-points")]
mod faults;
mod kills;
mod process;
mod proxy;
mod storm;
mod trade;
