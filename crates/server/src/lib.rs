//! The server: listeners, PostgreSQL's wire protocol, health, metrics and a live page over HTTP,
//! configuration.

mod amount;
mod application;
mod applier;
pub mod assemble;
mod cluster;
pub mod config;
mod crew;
pub mod embedded;
mod http;
mod listener;
pub mod membership;
mod node_tls;
mod observation;
pub mod pg;
mod reload;
mod server;
mod stub;
