//! The command line of `cognate-bench`.

use clap::{Parser, Subcommand};

use crate::command::bookstore::{self, BookstoreArgs};
use crate::error::{Error, Result};

/// Benchmarks of Cognate, side by side with PostgreSQL.
///
/// Every subcommand starts the servers it needs on free loopback ports with temporary data, shows progress, ends with
/// a table, and stops what it started, also on Ctrl-C. `--peer postgres` runs the same load on an installed PostgreSQL
/// with durable settings in the same invocation: only ratios taken in one run mean much.
#[derive(Debug, Parser)]
#[command(name = "cognate-bench", version, max_term_width = 110)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The TPC-W bookstore: fourteen interactions in three mixes, then a check of the store's invariants.
    Bookstore(BookstoreArgs),
}

impl Cli {
    /// Runs the subcommand until it ends or a signal asks it to stop; whatever it started is stopped then.
    pub async fn run(self) -> Result<()> {
        let work = async {
            match &self.command {
                Command::Bookstore(args) => bookstore::run(args).await,
            }
        };
        // Dropping the work drops its systems, which stops their servers.
        tokio::select! {
            result = work => result,
            () = interrupted() => Err(Error::Interrupted),
        }
    }
}

async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut terminate), Ok(mut hang_up)) =
        (signal(SignalKind::terminate()), signal(SignalKind::hangup()))
    else {
        let _ = tokio::signal::ctrl_c().await;
        return;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
        _ = hang_up.recv() => {}
    }
}
