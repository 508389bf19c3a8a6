//! Components as they run: processes of the purchase example, spoken to over HTTP.

mod branches;
mod contract;
mod kills;
mod kit;
mod process;
mod tls;
mod within;
