//! The loads of `conflicts`, and one round of each on one system.

use std::sync::Arc;
use std::time::Duration;

use super::super::{client_threads, pgbench as pgbench_command};
use super::{ConflictsArgs, Way};
use crate::driver::{self, Outcome, Plan};
use crate::error::{Error, Result};
use crate::median::median;
use crate::peer::System;
use crate::report::LatencyMs;
use crate::workload::bookstore::generator::{self, Scale};
use crate::workload::bookstore::invariants::{self, Acknowledged};
use crate::workload::bookstore::mix::{Interaction, Mix};
use crate::workload::bookstore::{Bookstore, Isolation};
use crate::workload::pgbench::{self, Script, Settings};
use crate::workload::snum::{Shape, Wire};

/// Time of each round before it is measured.
pub(super) const WARMUP: Duration = Duration::from_millis(500);

/// What transactions do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// pgbench's tpcb-like with so many branches.
    Tpcb(u32),
    /// So many reads and one update, percent of the keys hot.
    Snum(usize, u32),
    /// The bookstore's ordering mix.
    Bookstore,
}

/// The loads by their names on the command line.
pub(super) const LOADS: [(&str, Load); 6] = [
    ("tpcb-1", Load::Tpcb(1)),
    ("tpcb-10", Load::Tpcb(10)),
    ("s3u1-uniform", Load::Snum(3, 0)),
    ("s3u1-hot", Load::Snum(3, 100)),
    ("s5u1-hot", Load::Snum(5, 100)),
    ("bookstore", Load::Bookstore),
];

/// What one way did under one load, all rounds together.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    /// Committed a second in each round.
    pub(super) rates: Vec<f64>,
    /// Of the rounds of pgbench: retries in percent of all attempts, and latencies.
    runs: Vec<pgbench::Measured>,
    /// Of the other loads.
    pub(super) outcome: Option<Outcome>,
}

impl Measured {
    /// The median over the rounds.
    pub(super) fn per_s(&self) -> f64 {
        median(&self.rates)
    }

    /// Aborted attempts in percent of all.
    pub(super) fn aborted_pct(&self) -> f64 {
        match &self.outcome {
            Some(outcome) => outcome.total().aborted_pct(),
            None => median(&self.runs.iter().map(|run| run.aborted_pct).collect::<Vec<f64>>()),
        }
    }

    /// The same of the bookstore's Buy Confirm alone.
    pub(super) fn buy_confirm_aborted_pct(&self) -> Option<f64> {
        let outcome = self.outcome.as_ref()?;
        let place = outcome.kinds.iter().position(|kind| kind == Interaction::BuyConfirm.name())?;
        Some(outcome.counts[place].aborted_pct())
    }

    /// Of all rounds, or of pgbench's middle one.
    pub(super) fn latency(&self) -> LatencyMs {
        if let Some(outcome) = &self.outcome {
            return LatencyMs::from_micros(&outcome.total().latency);
        }
        let mut runs = self.runs.clone();
        runs.sort_by(|a, b| a.tps.total_cmp(&b.tps));
        runs.get(runs.len() / 2).map_or_else(LatencyMs::default, |run| run.latency)
    }

    /// Adds what other rounds came to.
    pub(super) fn join(&mut self, other: Measured) {
        let Measured { rates, runs, outcome } = other;
        self.rates.extend(rates);
        self.runs.extend(runs);
        match (&mut self.outcome, outcome) {
            (Some(sum), Some(outcome)) => sum.add(&outcome),
            (none, outcome) => *none = none.take().or(outcome),
        }
    }

    fn add(&mut self, outcome: Outcome) {
        self.rates.push(outcome.committed_per_s());
        match &mut self.outcome {
            Some(sum) => sum.add(&outcome),
            none => *none = Some(outcome),
        }
    }
}

impl Load {
    /// As results name it.
    pub(super) fn name(self, args: &ConflictsArgs) -> String {
        let clients = self.clients(args);
        match self {
            Load::Tpcb(scale) => format!("tpcb-like, scale {scale}, {clients} clients"),
            Load::Snum(reads, 0) => format!("s{reads}u1 uniform, {clients} clients"),
            Load::Snum(reads, _) => format!("s{reads}u1 hot, {clients} clients"),
            Load::Bookstore => format!("bookstore, ordering mix, {clients} clients"),
        }
    }

    /// How many connections it has.
    pub(super) fn clients(self, args: &ConflictsArgs) -> u32 {
        if matches!(self, Load::Tpcb(_)) { args.pgbench_clients } else { args.clients }
    }

    /// Makes and fills its tables.
    ///
    /// # Errors
    /// What the system answers.
    pub(super) async fn fill(self, system: &System, args: &ConflictsArgs) -> Result<()> {
        match self {
            Load::Tpcb(scale) => {
                pgbench::initialize(system, &settings(args, scale, Isolation::ReadCommitted)).await
            }
            Load::Snum(reads, hot_pct) => {
                let spinner = crate::progress::spinner(&format!("{}: loading", system.name));
                let client = system.client().await?;
                system.execute_each(&client, &shape(args, reads, hot_pct).statements()).await?;
                system.execute_each(&client, &["VACUUM ANALYZE".to_owned(), "CHECKPOINT".to_owned()]).await?;
                spinner.finish_and_clear();
                Ok(())
            }
            Load::Bookstore => generator::load(system, &args.scale()?).await.map(drop),
        }
    }

    /// One round of one way.
    ///
    /// # Errors
    /// If transactions fail otherwise than for each other.
    pub(super) async fn run(
        self,
        way: Way,
        system: &System,
        args: &ConflictsArgs,
        round: u32,
        warmup: Duration,
        measured: &mut Measured,
    ) -> Result<()> {
        let plan = Plan {
            label: format!("{}: {}, round {}", self.name(args), way.label(), round + 1),
            clients: args.clients as usize,
            threads: client_threads(),
            warmup,
            measured: Duration::from_secs(u64::from(args.seconds_of_round())),
        };
        // No two ways and rounds draw the same requests on one server.
        let round = u64::from(round) * 2 + u64::from(way.isolation == Isolation::Serializable);
        let (name, config) = (system.name.clone(), system.config().clone());
        let isolation = way.isolation;
        let outcome = match self {
            Load::Tpcb(scale) => {
                let run = pgbench::run(system, Script::TpcbLike, &settings(args, scale, isolation)).await?;
                measured.rates.push(run.tps);
                measured.runs.push(run);
                return Ok(());
            }
            Load::Snum(reads, hot_pct) => {
                let shape = shape(args, reads, hot_pct);
                driver::run(Arc::new(Wire { system: name, config, shape, isolation, round }), &plan).await?
            }
            Load::Bookstore => {
                let (scale, mix) = (args.scale()?, Mix::Ordering);
                let store = Bookstore { system: name, config, scale, mix, isolation, round };
                driver::run(Arc::new(store), &plan).await?
            }
        };
        if let Some(error) = &outcome.first_error {
            return Err(Error::Server(format!("{}: {error}", way.label())));
        }
        measured.add(outcome);
        Ok(())
    }

    /// What has to hold of the data whatever ran: of these, which ran on one system.
    ///
    /// # Errors
    /// `Violation` if it does not.
    pub(super) async fn check(self, system: &System, args: &ConflictsArgs, ran: &[&Measured]) -> Result<()> {
        match self {
            Load::Tpcb(_) => pgbench_command::check(system).await,
            Load::Snum(..) => Ok(()),
            Load::Bookstore => {
                let place = Interaction::BuyConfirm as usize;
                let of = |what: fn(&driver::Counts) -> u64| {
                    let outcomes = ran.iter().filter_map(|measured| measured.outcome.as_ref());
                    outcomes.map(|outcome| what(&outcome.counts[place])).sum()
                };
                let acknowledged = Acknowledged {
                    orders: of(|counts| counts.acknowledged),
                    unknown_orders: of(|counts| counts.unknown),
                };
                invariants::verify(system, &args.scale()?, Some(&acknowledged)).await.map(drop)
            }
        }
    }
}

fn settings(args: &ConflictsArgs, scale: u32, isolation: Isolation) -> Settings {
    let clients = args.pgbench_clients;
    let threads = (client_threads() as u32).min(clients);
    let seconds = args.seconds_of_round();
    Settings { scale, clients, threads, seconds, isolation, durable_reads: false }
}

fn shape(args: &ConflictsArgs, reads: usize, hot_pct: u32) -> Shape {
    let (rows, seed) = (args.rows, args.seed);
    Shape { rows, hot_rows: 200, hot_pct, reads, updates: 1, scans: false, seed }
}

impl ConflictsArgs {
    /// How much the bookstore has.
    fn scale(&self) -> Result<Scale> {
        Scale::new(self.items, self.browsers, self.seed)
    }

    /// Whole seconds, as pgbench wants them.
    pub(super) fn seconds_of_round(&self) -> u32 {
        (self.seconds / self.rounds).max(1)
    }
}
