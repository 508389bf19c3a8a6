//! Components as they run: processes of the purchase example, spoken to over HTTP.

mod contract;
mod kills;
mod page;
mod process;
