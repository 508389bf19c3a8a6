//! Requests a second lost when every request has a first sibling that is left prepared (the paper's
//! figure 2).
//!
//! The paper: "we execute the original transaction by leaving it pending in the precommit state.
//! Next, we activate a fail-over sibling transaction, by also committing it, and we evaluate its
//! execution latency. In such a case, the volume of requests we consider along the x-axis expresses
//! half of the real transaction workload on the database (since each request is actually served via
//! two sibling transactions). […] the system throughput gets actually reduced by only the 33% for
//! the BC transaction profile, and the 25% for the AC".
//!
//! In each of these a request counts once, and both siblings are part of the load; the peak over
//! the curve is compared with that of requests without a first sibling ([`Siblings::Alone`]).
//!
//! - *Found*, the goal: the retry does what the application server of `cognate-client` does. It
//!   looks first, finds the first instance prepared, and commits that ([`Siblings::Found`]). It
//!   costs a message more, and what it means that a first one's connection stays with a prepared
//!   transaction.
//! - *Executed again*, the paper's experiment ([`Siblings::Each`]): what is left if the first
//!   instance cannot be used, because another site has not prepared it. With W for executing and
//!   preparing and C for committing that loses W / (2W + C), which is 20 % only if C is three times
//!   W. The paper's 33 % ("only") come from a store on disk whose buffers the second execution
//!   finds warm.
//! - *Messages only* is no experiment but a bound for one ([`Siblings::MessagesOnly`]): what would
//!   be lost if nothing of W were left in the retry but its messages and the PREPARE of an instance
//!   that has neither read nor written anything. A server that kept the first instance's answers
//!   and adopted its writes would have to compare the statements, find the answers, and prepare
//!   what was adopted. (It would not have to carry out a SELECT without a table for each; so the
//!   bound is as good as that is small against a message.) Nobody should take it for a fail-over:
//!   its second instance is empty, and the first one is committed. `docs/decisions` 23 says what it
//!   is for.
//!
//! The other thing that one could want to know is what prepared siblings cost *their retries*: the
//! first instances are prepared before the window, on connections that are closed (their server is
//! dead), and the window has the retries only, which execute ([`Siblings::Ahead`]); a request
//! executes once in the window then.

use std::time::Duration;

use serde_json::json;

use super::{Bench, Cell, median, median_ratio};
use crate::chart::{Curve, Panel};
use crate::error::{Error, Result};
use crate::median::mean_error;
use crate::report::{align, number};
use crate::workload::mip::profile::{LINES, Profile};
use crate::workload::mip::requests::Siblings;
use crate::workload::mip::site::Way;

/// Of Buy Confirm.
pub(super) const BC: &str = "bc_failover_lost_pct";
/// Of Admin Confirm.
pub(super) const AC: &str = "ac_failover_lost_pct";
/// The same if the retry executes again, and if it exchanges messages only, which is a bound.
const FURTHER: [(&str, [&str; 2]); 2] = [
    (BC, ["bc_failover_again_lost_pct", "bc_failover_messages_only_lost_pct"]),
    (AC, ["ac_failover_again_lost_pct", "ac_failover_messages_only_lost_pct"]),
];

/// What is compared over the curve, with its name in tables.
const WAYS: [(Siblings, &str); 4] = [
    (Siblings::Alone, "one instance"),
    (Siblings::Found, "two siblings, the first found"),
    (Siblings::Each, "two siblings, executed again"),
    (Siblings::MessagesOnly, "a bound: two siblings, the second's messages only"),
];

/// Clients of the measurement with first siblings that were prepared ahead.
const CLIENTS_AHEAD: u32 = 25;
/// Its window, at most: what was prepared has to last on a fast machine, too.
const WINDOW_AHEAD: Duration = Duration::from_millis(200);

/// Measures both profiles.
pub(super) async fn measure(bench: &mut Bench<'_>) -> Result<()> {
    // Two families that want one item would wait for each other's decision.
    let wanted = u64::from(bench.args.ahead) * u64::from(CLIENTS_AHEAD) * LINES;
    if wanted > u64::from(bench.args.items.unsigned_abs()) {
        return Err(Error::Usage(format!(
            "--ahead {}: needs {wanted} items, and there are {}",
            bench.args.ahead, bench.args.items
        )));
    }
    for (profile, parameter) in [(Profile::BuyConfirm, BC), (Profile::AdminConfirm, AC)] {
        let curve = bench.args.clients.clone();
        let mut cells: Vec<Ways> = curve.iter().map(|_| Default::default()).collect();
        for round in 0..bench.args.rounds as usize {
            for (place, &clients) in curve.iter().enumerate() {
                for turn in 0..WAYS.len() {
                    let index = (turn + round + place) % WAYS.len();
                    let window = bench.window();
                    cells[place][index].add(one(bench, profile, WAYS[index].0, clients, window).await?);
                }
            }
        }
        let mut ahead: [Cell; 2] = Default::default();
        for round in 0..bench.args.rounds as usize {
            for turn in 0..2 {
                let index = (turn + round) % 2;
                let siblings = [Siblings::Alone, Siblings::Ahead][index];
                let window = bench.window().min(WINDOW_AHEAD);
                ahead[index].add(one(bench, profile, siblings, CLIENTS_AHEAD, window).await?);
            }
        }
        report(bench, profile, parameter, &curve, &cells, &ahead).await?;
    }
    Ok(())
}

async fn one(
    bench: &mut Bench<'_>,
    profile: Profile,
    siblings: Siblings,
    clients: u32,
    window: Duration,
) -> Result<crate::driver::Outcome> {
    let mut requests = bench.requests(Way::Mip, profile).await?;
    requests.siblings = siblings;
    if siblings == Siblings::Ahead {
        requests.prepare_ahead(clients as usize, bench.args.ahead as usize).await?;
    }
    let label = format!("{}, {siblings:?}, {clients} clients", profile.name());
    bench.measure_for(requests, clients, &label, window).await
}

/// One cell for each of [`WAYS`].
type Ways = [Cell; WAYS.len()];

/// The highest rate over the curve, by round.
fn peaks(cells: &[Ways], of: usize) -> Vec<f64> {
    let rounds = cells.first().map_or(0, |cell| cell[of].rates.len());
    (0..rounds).map(|round| cells.iter().map(|cell| cell[of].rates[round]).fold(0.0, f64::max)).collect()
}

/// How much of the first one's peak another loses in per cent, by round.
fn lost_at_peak(cells: &[Ways], of: usize) -> Vec<f64> {
    let (one, other) = (peaks(cells, 0), peaks(cells, of));
    other.iter().zip(&one).map(|(other, one)| 100.0 * (1.0 - other / one)).collect()
}

fn lost(below: &[f64], above: &[f64]) -> f64 {
    100.0 * (1.0 - median_ratio(below, above))
}

fn print(profile: Profile, curve: &[u32], cells: &[Ways]) {
    let head = ["clients", "one/s", "found/s", "lost %", "again/s", "lost %", "messages/s", "lost %"];
    let mut rows = vec![head.map(str::to_owned)];
    for (clients, [one, found, again, messages]) in curve.iter().zip(cells) {
        rows.push([
            clients.to_string(),
            number(median(&one.rates)),
            number(median(&found.rates)),
            format!("{:.1}", lost(&found.rates, &one.rates)),
            number(median(&again.rates)),
            format!("{:.1}", lost(&again.rates, &one.rates)),
            number(median(&messages.rates)),
            format!("{:.1}", lost(&messages.rates, &one.rates)),
        ]);
    }
    println!("{}: each request served by two siblings\n{}", profile.name(), align(&rows, 0));
}

async fn report(
    bench: &mut Bench<'_>,
    profile: Profile,
    parameter: &str,
    curve: &[u32],
    cells: &[Ways],
    ahead: &[Cell; 2],
) -> Result<()> {
    print(profile, curve, cells);
    let [found, again, messages] = [1, 2, 3].map(|of| lost_at_peak(cells, of));
    let retries = lost(&ahead[1].rates, &ahead[0].rates);
    println!(
        "requests a second lost at the peak: {:.1} % if the first is found (rounds {found:.1?}), {:.1} % if it is executed again (rounds {again:.1?}), {:.1} % as a bound if only messages are exchanged (rounds {messages:.1?}); retries of {CLIENTS_AHEAD} clients whose first siblings were prepared ahead: {retries:.1} % ({} of {} a second)\n",
        median(&found),
        median(&again),
        median(&messages),
        number(median(&ahead[1].rates)),
        number(median(&ahead[0].rates)),
    );
    bench.store().await?;
    let Some(system) = bench.store.take() else { return Ok(()) };
    for (clients, cell) in curve.iter().zip(cells) {
        for ((_, name), cell) in WAYS.iter().zip(cell) {
            bench.record(&system, format!("{}, {name}, {clients} clients", profile.name()), *clients, cell);
        }
    }
    for (name, cell) in ["without", "with"].iter().zip(ahead) {
        let case = format!("{}, {name} siblings prepared ahead, {CLIENTS_AHEAD} clients", profile.name());
        bench.record(&system, case, CLIENTS_AHEAD, cell);
    }
    bench.store = Some(system);
    if let Some(record) = bench.records.last_mut() {
        record.measured(parameter, median(&found), mean_error(&found));
        if let Some((_, names)) = FURTHER.iter().find(|(found, _)| *found == parameter) {
            record.measured(names[0], median(&again), mean_error(&again));
            record.measured(names[1], median(&messages), mean_error(&messages));
        }
        record.params.insert("lost_pct_by_round".to_owned(), json!(found));
        record.params.insert("executed_again_lost_pct_by_round".to_owned(), json!(again));
        record.params.insert("messages_only_lost_pct_by_round".to_owned(), json!(messages));
        record.params.insert("retries_lost_pct".to_owned(), json!(retries));
    }
    let curves = WAYS.iter().enumerate().map(|(of, (_, name))| {
        let points = curve.iter().zip(cells).map(|(x, cell)| (f64::from(*x), median(&cell[of].rates)));
        Curve { name: (*name).to_owned(), points: points.collect() }
    });
    let curves = curves.collect();
    bench.panels.push(Panel { title: format!("{}: requests/s", profile.name()), curves });
    Ok(())
}
