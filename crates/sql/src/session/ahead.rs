//! Before the commit of what is too large for one request to the other nodes: it goes ahead in
//! parts, and as long as it does, its failure is certain. So whoever waits for it may give up.

use std::time::Duration;

use cognate_engine::{Error, Transaction};

use super::interrupt::end_of;
use super::{Session, SqlDatabase};
use crate::error::Result;

/// All of it has to come within this time. It may be eight times as much as one request, and each
/// part waits for a majority.
const AHEAD_MAX: Duration = Duration::from_secs(120);

/// What the order says, if it is to say anything at all: what else may end it is the other error.
type Sent = Result<std::result::Result<(), Error>>;

impl Session {
    /// Waits until as much of a transaction has come to all nodes as has to before its commit:
    /// mostly nothing. 54000 with the limit, 40001, 25006 where it does not come, 53400 if a node
    /// is slow for too long; what interrupts the wait. The transaction has ended then.
    pub(super) async fn send_ahead(&mut self, mut engine: Transaction) -> Result<Transaction> {
        // What it has on disk is in memory once it is put together.
        let bytes = engine.request_bytes();
        let (database, interrupts) = (self.database.clone(), self.interrupts());
        let sent = interrupts.wait(in_time(&database, &mut engine)).await;
        match sent.and_then(|sent| sent.map_err(|error| self.name_failure(error))) {
            Ok(()) => Ok(engine),
            Err(failure) => {
                // It does not know any more how much it has to give back.
                end_of(bytes, || drop(engine));
                Err(failure)
            }
        }
    }
}

/// Nothing goes ahead of most transactions, and these wait for nobody.
async fn in_time(database: &SqlDatabase, engine: &mut Transaction) -> Sent {
    tokio::select! {
        biased;
        sent = tokio::time::timeout(AHEAD_MAX, all_parts(database, engine)) => {
            sent.unwrap_or(Ok(Err(Error::NotOrdered)))
        }
        () = database.nodes().until_alone() => Ok(Err(Error::NotOrdered)),
    }
}

/// Who writes waits for slow nodes, and this one writes for long: so it waits between parts, too.
async fn all_parts(database: &SqlDatabase, engine: &mut Transaction) -> Sent {
    loop {
        match engine.send_part_ahead().await {
            Ok(true) => database.nodes().flow.await_nobody_again().await?,
            Ok(false) => return Ok(Ok(())),
            Err(error) => return Ok(Err(error)),
        }
    }
}
