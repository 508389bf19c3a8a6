//! Composite transactions: services of autonomous components call each other in any shape, and the
//! whole is atomic, serializable and recoverable, without a coordinator.
//!
//! The protocol is that of the paper "CheeTah: a Lightweight Transaction Server for Plug-and-Play
//! Internet Data Management" (VLDB 2000): each call is a local transaction of its own that commits
//! early; call-level locks hold its place in the order until the root ends; what has to be taken
//! back is undone by the service's own undo; and the end is agreed on by a two-phase commit that
//! follows the calls.
//!
//! ```no_run
//! use cognate_composite::matrix::never;
//! use cognate_composite::{Call, Component, Result, Service, Undo, service};
//!
//! /// The contract, shared by caller and callee.
//! const TAKE: Service<i32, i32> = Service::named("stock", "take");
//!
//! async fn take(call: Call, item: i32) -> Result<i32> {
//!     let row = call.sql().query_one("UPDATE item SET stock = stock - 1 WHERE id = $1 RETURNING stock", &[&item]).await?;
//!     call.undo(&item)?;
//!     Ok(row.get(0))
//! }
//!
//! async fn put_back(undo: Undo, item: i32) -> Result<()> {
//!     undo.sql().execute("UPDATE item SET stock = stock + 1 WHERE id = $1", &[&item]).await.map(drop)
//! }
//!
//! # async fn start() -> std::result::Result<(), Box<dyn std::error::Error>> {
//! let stock = Component::named("stock")
//!     .database("embedded:stock-data/database")
//!     .data("stock-data/journal")
//!     .serve(TAKE, service(take).item(|item: &i32| *item).undo(put_back))
//!     .conflicts([never("take", "take")])
//!     .start()
//!     .await?;
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8701").await?;
//! stock.serve(listener).await;
//! # Ok(())
//! # }
//! ```
//!
//! Floors, from the ground: the protocol, pure, in a crate of its own (`name`, `matrix`, `locks`,
//! `participant`); `problem`, `wire`; `journal`, `database`, `branch`, `statements`, `sessions`,
//! `slots`, `sql` (what is remembered); `service`, `call` (what a developer has); `node`, `votes`,
//! `undo`, `settle`, `lost`, `ahead`, `run`, `answers` (effects are done); `tls`, `openapi`,
//! `headers`, `body`, `http`, `connections`, `serve`, `hold`, `kit`, `component`. Beside them all:
//! `fault` (where tests make a process die).

mod ahead;
mod along;
mod answers;
mod body;
mod branch;
mod call;
mod component;
mod connections;
mod courier;
mod database;
mod fault;
mod headers;
mod hold;
mod http;
mod journal;
mod kit;
mod link;
mod lost;
mod messages;
mod node;
mod openapi;
mod options;
mod peers;
mod problem;
mod run;
mod serve;
mod service;
mod sessions;
mod settle;
mod shape;
mod slots;
mod sql;
mod statements;
mod tls;
mod undo;
mod votes;
mod whole;
pub mod wire;

pub use call::{Call, Undo};
pub use cognate_composite_protocol::{locks, matrix, name, participant};
pub use component::{Component, Running, StartError};
pub use http::Tokens;
pub use kit::{Difference, Finding, Kit};
pub use problem::{Error, Problem, Result};
pub use service::{Handler, Service, service};
pub use sql::Sql;
pub use tls::{Tls, TlsListener};

/// What the README shows is compiled with the other examples.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
