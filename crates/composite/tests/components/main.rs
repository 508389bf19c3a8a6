//! Components as they run: processes of the purchase example, spoken to over HTTP.

mod branches;
mod contract;
mod fence;
mod kills;
mod kit;
mod process;
mod serial;
mod tls;
mod within;
