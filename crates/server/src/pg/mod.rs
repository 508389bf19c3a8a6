//! PostgreSQL's wire protocol, version 3: codec, start-up, authentication, and one task per
//! connection.
//!
//! Steps 1 and 9 of the corridor in ARCHITECTURE.md.
//!
//! Pure parts, bytes in and values out: [`frame`], [`message`], [`startup`], [`auth`],
//! [`response`]. Parts that touch a socket: `socket`, `transport` (buffers), `handshake` (up to the
//! session), `conversation` (the loop), `connection` (a session's part in it), with the handling of
//! messages in `simple`, `extended` and `copy`. Who comes before there is a server is told so by
//! `door`.

pub mod auth;
mod connection;
mod conversation;
mod copy;
pub(crate) mod door;
mod extended;
pub mod frame;
pub mod fuzz;
pub(crate) mod handshake;
pub mod message;
pub(crate) mod registry;
pub mod response;
mod row;
mod simple;
mod socket;
pub mod startup;
pub mod tls;
pub(crate) mod transport;
