//! The command line of `cognate-bench`.

use clap::{Parser, Subcommand};

use crate::command::all::{self, AllArgs};
use crate::command::analytic::{self, AnalyticArgs};
use crate::command::bookstore::{self, BookstoreArgs};
use crate::command::composite::{self, CompositeArgs};
use crate::command::conflicts::{self, ConflictsArgs};
use crate::command::crash::{self, CrashArgs};
use crate::command::device::{self, DeviceArgs};
use crate::command::governor::{self, GovernorArgs};
use crate::command::interrupt::{self, InterruptArgs};
use crate::command::log::{self, LogArgs};
use crate::command::memory::{self, MemoryArgs};
use crate::command::mip::{self, MipArgs};
use crate::command::mixed::{self, MixedArgs};
use crate::command::oracle::{self, OracleArgs};
use crate::command::pages::{self, PagesArgs};
use crate::command::pgbench::{self, PgbenchArgs};
use crate::command::point_read::{self, PointReadArgs};
use crate::command::recovery::{self, RecoveryArgs};
use crate::command::replication::{self, ReplicationArgs};
use crate::command::snum::{self, SnumArgs};
use crate::command::statements::{self, StatementsArgs};
use crate::error::{Error, Result};

/// Benchmarks of Cognate, side by side with PostgreSQL.
///
/// Every subcommand starts the servers it needs on free loopback ports with temporary data, shows
/// progress, ends with a table, and stops what it started, also on Ctrl-C. `--peer postgres` runs
/// the same load on an installed PostgreSQL with durable settings in the same invocation: only
/// ratios taken in one run mean much.
#[derive(Debug, Parser)]
#[command(name = "cognate-bench", version, max_term_width = 110)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The TPC-W bookstore: fourteen interactions in three mixes, then a check of the store's
    /// invariants.
    Bookstore(BookstoreArgs),
    /// Stock pgbench with prepared statements: select-only, tpcb-like and simple-update, in turns;
    /// medians and ratios.
    Pgbench(PgbenchArgs),
    /// Composite transactions: the paper's trees of services, and the purchase against two-phase
    /// commits written by hand.
    Composite(CompositeArgs),
    /// What serializability costs where transactions meet: throughput and aborts of Cognate's
    /// methods and of PostgreSQL, at SERIALIZABLE and at READ COMMITTED.
    Conflicts(ConflictsArgs),
    /// kill -9 at random moments under load: every acknowledged commit is there afterwards, nothing
    /// else is.
    Crash(CrashArgs),
    /// The PSSI paper's three experiments: late and early lock release, and the governor, on a slow
    /// and a fast log device.
    Device(DeviceArgs),
    /// The self-tuning limit of executing transactions against the best fixed one, over the number
    /// of clients.
    Governor(GovernorArgs),
    /// Long statements of every kind: how soon each ends when cancelled, and what point reads wait
    /// for beside two of them.
    Interrupt(InterruptArgs),
    /// Durable commits through the engine's log against the raw device with the same bytes a batch.
    Log(LogArgs),
    /// Data four times the memory budget, random reads: the server's resident size against the
    /// budget.
    Memory(MemoryArgs),
    /// What sibling transactions cost and save: latency, fail-over, storage, retries, lookups, and
    /// pairs against PostgreSQL's.
    Mip(MipArgs),
    /// Point reads with and without a long analytic query beside them: the 99th percentile.
    Mixed(MixedArgs),
    /// Five long queries over one table, in turns: grouped sums, a filtered sum, many groups, a
    /// window, a self join.
    Analytic(AnalyticArgs),
    /// A point read by primary key in the embedded library, one thread: microseconds.
    PointRead(PointReadArgs),
    /// Log written, server killed, server started again: megabytes of log a second.
    Recovery(RecoveryArgs),
    /// A cluster under the workload of its paper: against Galera, against PostgreSQL with standbys,
    /// over the number of nodes, against one node; a commit's latency, and the leader's loss.
    Replication(ReplicationArgs),
    /// Workload sNuM on Cognate's ways to serializability and on PostgreSQL: throughput, and aborts
    /// by reason.
    Snum(SnumArgs),
    /// Random transactions recorded through SQL, and the verdict: serializable or not, which aborts
    /// were needless.
    Oracle(OracleArgs),
    /// Each statement of the bookstore on its own, for finding the one behind a slow interaction.
    Statements(StatementsArgs),
    /// Every benchmark with the settings of the project's goals, and the pages of results.
    All(AllArgs),
    /// The pages of results from the JSON files of earlier runs; nothing is measured.
    Pages(PagesArgs),
}

impl Cli {
    /// Runs the subcommand until it ends or a signal asks it to stop; whatever it started is
    /// stopped then.
    pub async fn run(self) -> Result<()> {
        // Dropping the work drops its systems, which stops their servers.
        tokio::select! {
            result = self.run_command() => result,
            () = interrupted() => Err(Error::Interrupted),
        }
    }

    /// Runs the subcommand to its end, without an eye on signals.
    pub(crate) async fn run_command(&self) -> Result<()> {
        match &self.command {
            Command::Bookstore(args) => bookstore::run(args).await,
            Command::Pgbench(args) => pgbench::run(args).await,
            Command::Composite(args) => composite::run(args).await,
            Command::Conflicts(args) => conflicts::run(args).await,
            Command::Crash(args) => crash::run(args).await,
            Command::Device(args) => device::run(args).await,
            Command::Governor(args) => governor::run(args).await,
            Command::Interrupt(args) => interrupt::run(args).await,
            Command::Log(args) => log::run(args).await,
            Command::Memory(args) => memory::run(args).await,
            Command::Mip(args) => mip::run(args).await,
            Command::Mixed(args) => mixed::run(args).await,
            Command::Analytic(args) => analytic::run(args).await,
            Command::PointRead(args) => point_read::run(args).await,
            Command::Recovery(args) => recovery::run(args).await,
            Command::Replication(args) => replication::run(args).await,
            Command::Snum(args) => snum::run(args).await,
            Command::Oracle(args) => oracle::run(args).await,
            Command::Statements(args) => statements::run(args).await,
            Command::All(args) => all::run(args).await,
            Command::Pages(args) => pages::run(args),
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
