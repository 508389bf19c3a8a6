//! The protocols of the metaprotocol's paper: each alone, all mixtures (the same number of clients
//! each), what the monitor makes of the load, and updates of one row at all nodes, which is where
//! active replication is at its best and certification at its worst.
//!
//! A transaction is one message, as it has to be for active replication; the statements are the
//! same for all. Transactions read nothing but the rows that they update, so no voter waits for a
//! vote.
//!
//! What the metaprotocol costs a protocol that nothing else is mixed with: certification is
//! compared with a binary from before there was a metaprotocol (`--before`), and each protocol with
//! one without the lists (`--alone`). For the latter, weak voting reads one more row, so that there
//! is something to vote about.

use std::time::Duration;

use super::place::Place;
use super::turns::{self, Load, Way};
use super::{Bench, NODES};
use crate::error::Result;
use crate::median::{mean_error, median, ratio_error};
use crate::workload::bookstore::Isolation::{RepeatableRead, Serializable};
use crate::workload::shifting;

pub(super) const MIXTURES: [(&str, &[&str]); 8] = [
    ("A", &["active"]),
    ("C", &["certification"]),
    ("W", &["weak_voting"]),
    ("A_C", &["active", "certification"]),
    ("A_W", &["active", "weak_voting"]),
    ("C_W", &["certification", "weak_voting"]),
    ("A_C_W", &["active", "certification", "weak_voting"]),
    ("auto", &["auto"]),
];
/// What is said of the first three of them, over the same without the metaprotocol: rates,
/// latencies.
const ALONE: [[&str; 2]; 3] = [
    ["active_of_alone", "active_latency_of_alone"],
    ["certification_of_alone", "certification_latency_of_alone"],
    ["weak_voting_of_alone", "weak_voting_latency_of_alone"],
];
const HOT: [(&str, &[&str]); 3] =
    [("active", &["active"]), ("certification", &["certification"]), ("auto", &["auto"])];

/// See the module's prose.
pub(super) async fn measure(bench: &mut Bench<'_>) -> Result<()> {
    let args = bench.args;
    let mut places = vec![Place::cluster(args, NODES).await?];
    places[0].fill(&bench.shape(super::throughput::UPDATES)).await?;
    // A number that all mixtures divide.
    let clients = (args.connections * NODES as u32).next_multiple_of(6 * NODES as u32);
    let mut ways = Vec::new();
    for (name, protocols) in MIXTURES {
        let case = format!("{NODES} nodes, one message each, {name}");
        let load = Load::Updates(super::throughput::UPDATES);
        ways.push(Way { protocols, whole: true, ..Way::new(0, case, Serializable, clients, load) });
    }
    let older = match &args.before {
        None => None,
        Some(older) => {
            let place = Place::older_cluster(args, NODES, older).await?;
            place.fill(&bench.shape(super::throughput::UPDATES)).await?;
            places.push(place);
            let case = format!("{NODES} nodes, one message each, certification before the metaprotocol");
            let load = Load::Updates(super::throughput::UPDATES);
            ways.push(Way { whole: true, ..Way::new(1, case, Serializable, clients, load) });
            Some(ways.len() - 1)
        }
    };
    let alone = add_alone(bench, &mut places, &mut ways, clients).await?;
    turns::in_turns(bench, &mut places, &mut ways).await?;
    let rate = |at: &usize| median(&ways[*at].rates);
    let best = (0..3).max_by(|a, b| rate(a).total_cmp(&rate(b))).unwrap_or(0);
    let mut figures = Vec::new();
    for (at, name) in [(4, "a_w_of_best"), (6, "a_c_w_of_best"), (7, "auto_of_best")] {
        figures.push((at, name, ways[at].over(&ways[best])));
    }
    figures.extend(older.map(|older| (1, "certification_of_before", ways[1].over(&ways[older]))));
    for (with, without, [rate, latency]) in alone {
        figures.push((with, rate, ways[with].over(&ways[without])));
        figures.push((with, latency, ways[with].faster_than(&ways[without])));
    }
    turns::record(bench, &places, &ways, &figures);
    places.truncate(1);
    shifting(bench, &mut places, clients).await?;
    hot(bench, places, clients).await
}

/// Adds each protocol without the metaprotocol, if there is a binary for that, and says which ways
/// are to be compared: with it, without it, and what their ratios are called.
async fn add_alone(
    bench: &Bench<'_>,
    places: &mut Vec<Place>,
    ways: &mut Vec<Way>,
    clients: u32,
) -> Result<Vec<(usize, usize, [&'static str; 2])>> {
    let Some(alone) = &bench.args.alone else { return Ok(Vec::new()) };
    let place = Place::older_cluster(bench.args, NODES, alone).await?;
    place.fill(&bench.shape(super::throughput::UPDATES)).await?;
    places.push(place);
    let (last, mut pairs) = (places.len() - 1, Vec::new());
    for (at, names) in ALONE.into_iter().enumerate() {
        let (name, protocols) = MIXTURES[at];
        let reads = protocols == ["weak_voting"];
        let name = if reads { format!("{name} with a read") } else { name.to_owned() };
        let way = |place: usize, how: &str| {
            let case = format!("{NODES} nodes, one message each, {name}{how}");
            let load = Load::Updates(super::throughput::UPDATES);
            Way { protocols, reads, whole: true, ..Way::new(place, case, Serializable, clients, load) }
        };
        let mut with = at;
        if reads {
            with = ways.len();
            ways.push(way(0, ""));
        }
        pairs.push((with, ways.len(), names));
        ways.push(way(last, ", without the metaprotocol"));
    }
    Ok(pairs)
}

/// A load that shifts, under `auto` and each protocol that is fixed.
async fn shifting(bench: &mut Bench<'_>, places: &mut [Place], clients: u32) -> Result<()> {
    let phase = Duration::from_secs(u64::from(bench.args.phase_seconds));
    let way = |name: &str, protocols: &'static [&'static str], settings: Vec<String>| {
        let case = format!("{NODES} nodes, a load that shifts, {name}");
        let load = Load::Shifting { phase, phases: 2 * shifting::PHASES.len() as u32 };
        Way { protocols, settings, ..Way::new(0, case, Serializable, clients, load) }
    };
    // Whoever is refused is told so.
    let tells = || vec!["SET cognate.statement_retries = 0".to_owned()];
    let mixtures = [0, 1, 2, 7].map(|at: usize| MIXTURES[at]);
    let mut ways: Vec<Way> = mixtures.iter().map(|(name, protocols)| way(name, protocols, tells())).collect();
    // As it is by default: the server runs it again first.
    ways.push(way("auto, run again by the server", &["auto"], Vec::new()));
    turns::in_turns(bench, places, &mut ways).await?;
    let rate = |at: &usize| median(&ways[*at].rates);
    let best = (0..3).max_by(|a, b| rate(a).total_cmp(&rate(b))).unwrap_or(0);
    let (auto, again) = (&ways[3], &ways[4]);
    let mut figures = vec![
        (3, "auto_of_best_shifting", auto.over(&ways[best])),
        (4, "auto_again_of_best_shifting", again.over(&ways[best])),
    ];
    // Of the attempts; where the best refuses nothing there is no ratio, and points tell it. One
    // refusal is more than none, whatever the scatter of the rounds is: points above none have no
    // error.
    let refused = |way: &Way| way.all.as_ref().map_or(0.0, |all| all.total().aborted_pct());
    let (ours, theirs) = (refused(auto), refused(&ways[best]));
    let of_rounds = &ways[best].refused;
    figures.push(match theirs > 0.0 {
        true => (3, "auto_refused_of_best", (ours / theirs, ratio_error(&auto.refused, of_rounds))),
        false => (3, "auto_refused_points", (ours, f64::NAN)),
    });
    let above: Vec<f64> = again.refused.iter().zip(of_rounds).map(|(again, best)| again - best).collect();
    figures.push((4, "auto_again_refused_points", (refused(again) - theirs, mean_error(&above))));
    turns::record(bench, places, &ways, &figures);
    Ok(())
}

/// One row that everybody counts up.
async fn hot(bench: &mut Bench<'_>, mut places: Vec<Place>, clients: u32) -> Result<()> {
    let args = bench.args;
    let way = |place: usize, name: &str, level| {
        let case = format!("{NODES} nodes, one hot row, {name}");
        Way { whole: true, hot: true, ..Way::new(place, case, level, clients, Load::Updates(1)) }
    };
    let mut ways: Vec<Way> =
        HOT.iter().map(|(name, protocols)| Way { protocols, ..way(0, name, Serializable) }).collect();
    let mut figures = Vec::new();
    if !args.without_peers
        && let Some(galera) = bench.filled("Galera", Place::galera(args).await).await?
    {
        places.push(galera);
        ways.push(way(1, "Galera", RepeatableRead));
        figures.extend([(0, "hot_of_galera", 3), (2, "hot_auto_of_galera", 3)]);
    }
    turns::in_turns(bench, &mut places, &mut ways).await?;
    let figures: Vec<_> =
        figures.iter().map(|&(of, name, peer)| (of, name, ways[of].over(&ways[peer]))).collect();
    turns::record(bench, &places, &ways, &figures);
    if let Some(record) = bench.records.iter_mut().rfind(|record| {
        record
            .params
            .get("case")
            .is_some_and(|case| case.as_str().is_some_and(|case| case.ends_with("row, active")))
    }) {
        let aborted = ways[0].all.as_ref().map_or(0, |all| all.total().aborted);
        record.measured("hot_aborts_seen", aborted as f64, f64::NAN);
    }
    Ok(())
}
