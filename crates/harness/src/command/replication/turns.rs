//! Ways of loading places, in turns, and the records of what they did.
//!
//! Of the reasons of refusals, the certifier's are, at a cluster's REPEATABLE READ, those by which
//! a request of another node was faster; Galera calls the same a deadlock.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use tokio_postgres::Config;

use super::place::Place;
use super::{Bench, WARMUP};
use crate::checker::history::Abort;
use crate::command::{client_threads, turn_about};
use crate::driver::{self, Outcome, Plan};
use crate::error::Result;
use crate::median::{median, median_ratio, ratio_error};
use crate::report::{self, LatencyMs, Record};
use crate::workload::bookstore::Isolation;
use crate::workload::shifting::{self, Shifting};
use crate::workload::snum::{self, Wire};
use crate::workload::updates::{Shape, Spread, Target, Updates};

/// What clients do.
pub(super) enum Load {
    /// So many updates a transaction.
    Updates(usize),
    /// Of sNuM, uniform.
    Snum(snum::Shape),
    /// Conflicts, large write sets and reads in turns of this length; the window is so many of
    /// them.
    Shifting { phase: Duration, phases: u32 },
}

/// Clients at a place.
pub(super) struct Way {
    /// The place's index.
    pub(super) place: usize,
    pub(super) case: String,
    pub(super) isolation: Isolation,
    pub(super) clients: u32,
    /// Whether clients connect to the first node only.
    pub(super) on_one: bool,
    /// Further statements that each session begins with.
    pub(super) settings: Vec<String>,
    /// Cognate's protocols, each of as many clients; none: as it is.
    pub(super) protocols: &'static [&'static str],
    /// Whether a transaction is one message, and all want the same row.
    pub(super) whole: bool,
    pub(super) hot: bool,
    /// Whether such a message reads one more row first, so that a weak voting transaction has to be
    /// voted about.
    pub(super) reads: bool,
    pub(super) load: Load,
    /// Committed a second in each round.
    pub(super) rates: Vec<f64>,
    /// Mean milliseconds of those, and refused attempts in percent of all, in each round.
    pub(super) means: Vec<f64>,
    pub(super) refused: Vec<f64>,
    pub(super) all: Option<Outcome>,
}

impl Way {
    pub(super) fn new(place: usize, case: String, isolation: Isolation, clients: u32, load: Load) -> Way {
        let (settings, rates, means, refused) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (on_one, whole, hot, reads) = (false, false, false, false);
        let (protocols, all): (&[&str], _) = (&[], None);
        Way {
            place,
            case,
            isolation,
            clients,
            on_one,
            settings,
            protocols,
            whole,
            hot,
            reads,
            load,
            rates,
            means,
            refused,
            all,
        }
    }

    /// What sessions begin with: MariaDB says it in other words.
    fn settings(&self, place: &Place) -> Vec<String> {
        let level = self.isolation.sql();
        let first = match place.system {
            "galera" => format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}"),
            _ => format!("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}"),
        };
        std::iter::once(first).chain(self.settings.iter().cloned()).collect()
    }

    /// The clients' servers.
    fn targets<'a>(&self, place: &'a Place) -> &'a [Target] {
        if self.on_one { &place.targets[..1] } else { &place.targets }
    }

    /// The clients of each server that they are spread over.
    pub(super) fn updates(
        &self,
        bench: &Bench<'_>,
        place: &Place,
        updates: usize,
        round: u64,
    ) -> Vec<Updates> {
        let shape = bench.shape(updates);
        let shape = if self.hot { Shape { rows: 1, ..shape } } else { shape };
        let one = |target: &Target, protocol: Option<&str>| Updates {
            system: place.system.to_owned(),
            target: target.clone(),
            settings: self
                .settings(place)
                .into_iter()
                .chain(protocol.map(|protocol| format!("SET cognate.replication = {protocol}")))
                .collect(),
            shape,
            whole: self.whole,
            reads: self.reads,
            round,
            kinds: vec!["updates".to_owned()],
            kind: 0,
            pace: None,
        };
        let protocols: Vec<Option<&str>> = match self.protocols {
            [] => vec![None],
            all => all.iter().copied().map(Some).collect(),
        };
        // Clients go round over the list: each protocol has as many at each node.
        let of = |protocol: Option<&str>| {
            self.targets(place).iter().map(|target| one(target, protocol)).collect::<Vec<_>>()
        };
        protocols.into_iter().flat_map(of).collect()
    }

    /// One window of it.
    pub(super) async fn round(
        &mut self,
        bench: &mut Bench<'_>,
        place: &mut Place,
        label: String,
    ) -> Result<()> {
        let round = bench.next_run();
        let plan = Plan {
            label,
            clients: self.clients as usize,
            threads: client_threads(),
            warmup: WARMUP,
            measured: match self.load {
                Load::Shifting { phase, phases } => phase * phases,
                Load::Updates(_) | Load::Snum(_) => bench.window(),
            },
        };
        let outcome = match &self.load {
            Load::Updates(updates) => {
                let spread = Spread(self.updates(bench, place, *updates, round));
                let outcome = driver::run(Arc::new(spread), &plan).await?;
                place.note(&outcome, *updates);
                outcome
            }
            Load::Shifting { phase, .. } => {
                let from = Arc::<OnceLock<Instant>>::default();
                let one = |updates: Updates| {
                    Some(Shifting {
                        config: config(&updates.target)?,
                        phase: *phase,
                        from: Arc::clone(&from),
                        system: updates.system,
                        settings: updates.settings,
                        shape: updates.shape,
                        round,
                    })
                };
                let spread =
                    Spread(self.updates(bench, place, 1, round).into_iter().filter_map(one).collect());
                let outcome = driver::run(Arc::new(spread), &plan).await?;
                for (counts, (_, updates)) in outcome.counts.iter().zip(shifting::PHASES) {
                    place.note_committed(counts.acknowledged * updates as u64);
                    place.note_unknown(counts.unknown * updates as u64);
                }
                outcome
            }
            Load::Snum(shape) => {
                let (system, isolation) = (place.system, self.isolation);
                let one = |target: &Target| {
                    Some(Wire {
                        system: system.to_owned(),
                        config: config(target)?,
                        shape: *shape,
                        isolation,
                        round,
                    })
                };
                let spread = Spread(self.targets(place).iter().filter_map(one).collect());
                driver::run(Arc::new(spread), &plan).await?
            }
        };
        // They are in the record, too.
        if let Some(error) = &outcome.first_error {
            eprintln!("{}: {} errors, the first one: {error}", self.case, outcome.total().errors_total());
        }
        self.add(outcome);
        Ok(())
    }

    /// Adds what a round counted.
    pub(super) fn add(&mut self, outcome: Outcome) {
        let total = outcome.total();
        self.rates.push(outcome.committed_per_s());
        self.means.push(LatencyMs::from_micros(&total.latency).mean);
        self.refused.push(total.aborted_pct());
        match &mut self.all {
            Some(all) => all.add(&outcome),
            none => *none = Some(outcome),
        }
    }

    /// Committed a second over another's, and its standard error.
    pub(super) fn over(&self, other: &Way) -> (f64, f64) {
        (median_ratio(&self.rates, &other.rates), ratio_error(&self.rates, &other.rates))
    }

    /// The other one's mean latency over this one's, over all rounds: more is faster, as of rates.
    /// The error is the standard error of the rounds' ratios.
    pub(super) fn faster_than(&self, other: &Way) -> (f64, f64) {
        let mean = |way: &Way| way.all.as_ref().map_or(f64::NAN, |all| all.total().latency.mean());
        (mean(other) / mean(self), ratio_error(&other.means, &self.means))
    }

    pub(super) fn record(&self, bench: &Bench<'_>, place: &Place) -> Option<Record> {
        let all = self.all.as_ref()?;
        let rates: Vec<f64> = self.rates.iter().map(|rate| rate.round()).collect();
        let mut pairs = vec![
            ("case", json!(self.case)),
            ("isolation", json!(self.isolation.name())),
            ("durable", json!(place.durable)),
            ("nodes", json!(place.targets.len())),
            ("clients", json!(self.clients)),
            ("settings", json!(self.settings(place))),
            ("protocols", json!(self.protocols)),
            ("per_s_of_rounds", json!(rates)),
            ("mean_ms_of_rounds", json!(self.means)),
            ("refused_pct_of_rounds", json!(self.refused)),
        ];
        let load: Vec<(&str, Value)> = match &self.load {
            Load::Updates(updates) => vec![("rows", json!(bench.args.rows)), ("updates", json!(updates))],
            Load::Snum(shape) => vec![("rows", json!(shape.rows)), ("reads", json!(shape.reads))],
            Load::Shifting { phase, phases } => {
                let of_phase: Map<String, Value> = all
                    .kinds
                    .iter()
                    .zip(&all.counts)
                    .map(|(kind, counts)| (kind.clone(), json!([counts.committed, counts.aborted])))
                    .collect();
                vec![
                    ("rows", json!(bench.args.rows)),
                    ("phase_s", json!(phase.as_secs_f64())),
                    ("phases", json!(phases)),
                    ("committed_and_aborted", Value::Object(of_phase)),
                ]
            }
        };
        pairs.extend(load);
        let total = all.total();
        for (name, reason) in [
            ("certifier_pct", Abort::Certifier),
            ("first_updater_pct", Abort::FirstUpdater),
            ("deadlock_pct", Abort::Deadlock),
        ] {
            pairs.push((name, json!(total.reason_pct(reason))));
        }
        pairs.extend([("committed", json!(total.committed)), ("aborted", json!(total.aborted))]);
        let params = bench.parameters(&place.version, &pairs);
        let one = Outcome { kinds: vec!["updates".to_owned()], counts: vec![total], ..all.clone() };
        let mut record = report::records(place.system, "replication", &params, &one).remove(0);
        // The middle round: a mean moves with a moment in which the machine was busy otherwise.
        record.committed_per_s = median(&self.rates);
        Some(record)
    }
}

fn config(target: &Target) -> Option<Config> {
    match target {
        Target::Postgres(config) => Some(config.as_ref().clone()),
        #[cfg(feature = "galera")]
        Target::Galera(_) => None,
    }
}

/// Each way in turn, forwards and backwards, and then the check of each place.
pub(super) async fn in_turns(bench: &mut Bench<'_>, places: &mut [Place], ways: &mut [Way]) -> Result<()> {
    for round in 0..bench.args.rounds {
        for at in turn_about(round, ways.len()) {
            let way = &mut ways[at];
            let place = &mut places[way.place];
            let level = way.isolation.name();
            let label = format!("{}, {} at {level}, round {}", place.system, way.case, round + 1);
            way.round(bench, place, label).await?;
        }
    }
    for place in places.iter().filter(|_| ways.iter().all(|way| !matches!(way.load, Load::Snum(_)))) {
        place.check().await?;
    }
    Ok(())
}

/// A record of each way; `figures` are added to those of the ways at these indices.
pub(super) fn record(
    bench: &mut Bench<'_>,
    places: &[Place],
    ways: &[Way],
    figures: &[(usize, &str, (f64, f64))],
) {
    for (at, way) in ways.iter().enumerate() {
        let Some(mut record) = way.record(bench, &places[way.place]) else { continue };
        for (_, name, (value, error)) in figures.iter().filter(|(of, ..)| *of == at) {
            let shown = if error.is_finite() { format!(" ± {error:.3}") } else { String::new() };
            println!("{}: {name} {value:.3}{shown}", way.case);
            record.measured(name, *value, *error);
        }
        bench.records.push(record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Counts;

    /// A way whose rounds had so many commits of so many milliseconds each, and refusals.
    fn way(rounds: &[(u64, u64, u64)]) -> Way {
        let mut way = Way::new(0, String::new(), Isolation::Serializable, 1, Load::Updates(1));
        for &(committed, ms, aborted) in rounds {
            let mut counts = Counts { committed, aborted, ..Counts::new() };
            counts.latency.record_n(1000 * ms, committed).unwrap();
            let (kinds, counts) = (vec!["updates".to_owned()], vec![counts]);
            way.add(Outcome { seconds: 1.0, kinds, counts, first_error: None });
        }
        way
    }

    #[test]
    fn a_ratio_of_latencies_is_that_of_all_rounds_and_has_the_scatter_of_each() {
        let ours = way(&[(10, 2, 0), (30, 2, 0), (20, 2, 0)]);
        let theirs = way(&[(10, 2, 0), (30, 4, 0), (20, 6, 0)]);
        let (ratio, error) = ours.faster_than(&theirs);
        // 260 ms against 120 ms for as many commits; and 1, 2 and 3 in the rounds.
        assert!((ratio - 260.0 / 120.0).abs() < 0.01, "{ratio}");
        assert!((error - (1.0_f64 / 3.0).sqrt()).abs() < 0.01, "{error}");
        let one = way(&[(10, 2, 0)]);
        assert!(one.faster_than(&one).1.is_nan(), "one round has no scatter");
    }

    #[test]
    fn each_round_has_its_share_of_refusals() {
        assert_eq!(way(&[(75, 1, 25), (50, 1, 50), (10, 1, 0)]).refused, [25.0, 50.0, 0.0]);
    }
}
