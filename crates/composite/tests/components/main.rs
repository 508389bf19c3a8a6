//! Components as they run: processes of the purchase example, spoken to over HTTP.

mod ahead;
mod all;
mod branches;
mod contract;
mod defects;
#[cfg(feature = "fault-points")]
mod faults;
mod fence;
mod flush;
mod kills;
mod kit;
mod lost;
mod page;
mod paper;
mod postgres;
mod process;
mod proxy;
mod sent;
mod serial;
mod server;
mod settled;
mod storm;
mod tls;
mod trade;
mod votes;
mod within;
