//! The server: listeners, PostgreSQL's wire protocol, health and metrics over HTTP, configuration.

pub mod config;
pub mod pg;
