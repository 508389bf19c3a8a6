//! Components as they run: processes of the purchase example, spoken to over HTTP.

mod branches;
mod contract;
#[cfg(feature = "fault-points")]
mod faults;
mod fence;
mod kills;
mod kit;
mod page;
mod process;
mod proxy;
mod serial;
mod storm;
mod tls;
mod trade;
mod within;
