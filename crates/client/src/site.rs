//! What a site does for the protocol, apart from how it is reached: [`Site`] opens connections,
//! [`Connection`] does one step over one of them.
//!
//! Tests put an in-process site here; `postgres` has the real one.
//!
//! # What an implementation owes
//!
//! - *No step twice.* A step is sent once; if it is not known what became of it, the reply is
//!   [`SiteReply::Unreachable`]. Repeating is the protocol's business.
//! - *Drop is the end.* Once a connection is dropped, whatever it had active at the site is rolled
//!   back in the end, also in the middle of a step. What it prepared stays.
//! - *No clock.* Steps wait as long as they do; the callers put bounds around them, and drop a
//!   connection whose step they did not await.

use std::collections::BTreeMap;
use std::future::Future;

use crate::etransaction::{SiteReply, Text};

/// One instance of a request: what every step at every site needs to know.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Job {
    /// The request's identifier.
    pub xid: Text,
    /// The instance's number.
    pub instance: i64,
    /// The request.
    pub request: Text,
}

/// What a site knows of a family, apart from its results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    /// Nothing.
    Unknown,
    /// The instances that are prepared, with the tokens of the executions that prepared them.
    Undecided(BTreeMap<i64, String>),
    /// The winner.
    Committed(i64),
    /// It was decided, acknowledged and forgotten.
    Forgotten,
}

/// No reply, or one that is an error, in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Trouble(pub Text);

/// A database site.
pub trait Site: Send + Sync + 'static {
    /// A connection to it.
    type Connection: Connection;

    /// Opens a connection.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, Trouble>> + Send;
}

/// A connection to a site. One step at a time; outside the request's logic only the driver of a run
/// uses it.
pub trait Connection: Send + Sync + 'static {
    /// Whether it is known to be lost.
    fn is_closed(&self) -> bool;

    /// What kind of site this is, for people.
    fn describe(&self) -> String;

    /// SHOW MIPT, outside any transaction: `Table` or `Decided`. A site without siblings shows an
    /// empty table.
    fn show(&self, xid: &str) -> impl Future<Output = SiteReply> + Send;

    /// BEGIN MIP. `Begun`: inside the instance's transaction. Any other reply: outside any
    /// transaction.
    fn begin(&self, job: &Job) -> impl Future<Output = SiteReply> + Send;

    /// PREPARE MIP with a stored result (see [`crate::etransaction::stored_result`]). `Table` and
    /// `Decided`: outside any transaction.
    fn prepare(&self, job: &Job, stored: &str) -> impl Future<Output = SiteReply> + Send;

    /// REFUSE MIP up to an instance, outside any transaction: `Table` or `Decided`. `stored` is
    /// what PREPARE of this job was sent with, if it was: a site without siblings can tell of this
    /// execution only, and only once its PREPARE was refused.
    fn refuse(&self, job: &Job, upto: i64, stored: Option<&str>) -> impl Future<Output = SiteReply> + Send;

    /// ROLLBACK MIP of a prepared instance, with what is stored of it, outside any transaction.
    /// `Withdrawn`: it is not prepared any more.
    fn withdraw(&self, xid: &str, instance: i64, stored: &str) -> impl Future<Output = SiteReply> + Send;

    /// COMMIT MIP, outside any transaction.
    fn commit(&self, xid: &str, winner: i64) -> impl Future<Output = SiteReply> + Send;

    /// Plain ROLLBACK, inside a transaction or not. False if the connection's state is not known
    /// afterwards.
    fn rollback(&self) -> impl Future<Output = bool> + Send;

    /// What the site knows of a family.
    fn look(&self, xid: &str) -> impl Future<Output = Result<Look, Trouble>> + Send;

    /// FORGET MIP of a family that is decided here. What is forgotten already is fine.
    fn forget(&self, xid: &str) -> impl Future<Output = Result<(), Trouble>> + Send;
}
