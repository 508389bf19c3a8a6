//! Requests a second lost when every request has a first sibling that is left prepared (the paper's figure 2).
//!
//! The paper: "we execute the original transaction by leaving it pending in the precommit state. Next, we activate a fail-over sibling transaction, by also committing it, and we
//! evaluate its execution latency. In such a case, the volume of requests we consider along the x-axis expresses half of the real transaction workload on the database (since each request
//! is actually served via two sibling transactions). […] the system throughput gets actually reduced by only the 33% for the BC transaction profile, and the 25% for the AC".
//!
//! Read as: both siblings are part of the load, and a request counts once. So the highest volume of requests that the system serves falls, by half if the second execution
//! cost as much as the whole first one ("only": the fail-over finds the buffers warm). The goal takes it at its word: **requests a second, the peak over the curve, each
//! served by two siblings, against each served by one** ([`Siblings::Each`] and [`Siblings::Alone`]). The latency drawn over the volume is the fail-over's alone, as in the figure.
//!
//! The other thing that one could want to know is what prepared siblings cost *their retries*: the first instances are prepared before the window, on connections that are closed (their server is
//! dead), and the window has the retries only ([`Siblings::Ahead`]). That is reported beside it and is not the goal; a request executes once in the window then.

use serde_json::json;

use super::{Bench, Cell, median, median_ratio};
use crate::chart::{Curve, Panel};
use crate::error::{Error, Result};
use crate::report::{align, number};
use crate::workload::mip::profile::{LINES, Profile};
use crate::workload::mip::requests::Siblings;
use crate::workload::mip::site::Way;

/// Of Buy Confirm.
pub(super) const BC: &str = "bc_failover_lost_pct";
/// Of Admin Confirm.
pub(super) const AC: &str = "ac_failover_lost_pct";

/// Clients of the measurement with first siblings that were prepared ahead.
const CLIENTS_AHEAD: u32 = 25;

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
        let mut cells: Vec<[Cell; 2]> = curve.iter().map(|_| Default::default()).collect();
        for round in 0..bench.args.rounds as usize {
            for (place, &clients) in curve.iter().enumerate() {
                for turn in 0..2 {
                    let index = (turn + round + place) % 2;
                    let outcome =
                        one(bench, profile, [Siblings::Alone, Siblings::Each][index], clients).await?;
                    cells[place][index].add(outcome);
                }
            }
        }
        let mut ahead: [Cell; 2] = Default::default();
        for round in 0..bench.args.rounds as usize {
            for turn in 0..2 {
                let index = (turn + round) % 2;
                let siblings = [Siblings::Alone, Siblings::Ahead][index];
                ahead[index].add(one(bench, profile, siblings, CLIENTS_AHEAD).await?);
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
) -> Result<crate::driver::Outcome> {
    let mut requests = bench.requests(Way::Mip, profile).await?;
    requests.siblings = siblings;
    if siblings == Siblings::Ahead {
        requests.prepare_ahead(clients as usize, bench.args.ahead as usize).await?;
    }
    let label = format!("{}, {siblings:?}, {clients} clients", profile.name());
    bench.measure(requests, clients, &label).await
}

/// The highest rate over the curve, by round.
fn peaks(cells: &[[Cell; 2]], of: usize) -> Vec<f64> {
    let rounds = cells.first().map_or(0, |cell| cell[of].rates.len());
    (0..rounds).map(|round| cells.iter().map(|cell| cell[of].rates[round]).fold(0.0, f64::max)).collect()
}

async fn report(
    bench: &mut Bench<'_>,
    profile: Profile,
    parameter: &str,
    curve: &[u32],
    cells: &[[Cell; 2]],
    ahead: &[Cell; 2],
) -> Result<()> {
    let lost = |below: &[f64], above: &[f64]| 100.0 * (1.0 - median_ratio(below, above));
    let mut rows = vec![
        ["clients", "one/s", "two siblings/s", "lost %", "one ms", "fail-over ms", "ratio"]
            .map(str::to_owned),
    ];
    for (clients, [one, two]) in curve.iter().zip(cells) {
        rows.push([
            clients.to_string(),
            number(median(&one.rates)),
            number(median(&two.rates)),
            format!("{:.1}", lost(&two.rates, &one.rates)),
            number(median(&one.means)),
            number(median(&two.means)),
            format!("{:.3}", median_ratio(&two.means, &one.means)),
        ]);
    }
    println!("{}: each request served by two siblings\n{}", profile.name(), align(&rows, 0));
    let (one, two) = (peaks(cells, 0), peaks(cells, 1));
    let by_round: Vec<f64> = two.iter().zip(&one).map(|(two, one)| 100.0 * (1.0 - two / one)).collect();
    let (at_peak, retries) = (median(&by_round), lost(&ahead[1].rates, &ahead[0].rates));
    println!(
        "requests a second lost at the peak: {at_peak:.1} % (rounds {by_round:.1?}); retries of {CLIENTS_AHEAD} clients whose first siblings were prepared ahead: {retries:.1} % ({} of {} a second)\n",
        number(median(&ahead[1].rates)),
        number(median(&ahead[0].rates)),
    );
    bench.store().await?;
    let Some(system) = bench.store.take() else { return Ok(()) };
    for (clients, cell) in curve.iter().zip(cells) {
        for (name, cell) in ["one instance", "two siblings"].iter().zip(cell) {
            bench.record(&system, format!("{}, {name}, {clients} clients", profile.name()), *clients, cell);
        }
    }
    for (name, cell) in ["without", "with"].iter().zip(ahead) {
        let case = format!("{}, {name} siblings prepared ahead, {CLIENTS_AHEAD} clients", profile.name());
        bench.record(&system, case, CLIENTS_AHEAD, cell);
    }
    bench.store = Some(system);
    if let Some(record) = bench.records.last_mut() {
        record.params.insert(parameter.to_owned(), json!(at_peak));
        record.params.insert("lost_pct_by_round".to_owned(), json!(by_round));
        record.params.insert("retries_lost_pct".to_owned(), json!(retries));
    }
    let points = |of: usize| {
        let points = curve.iter().zip(cells).map(|(x, cell)| (f64::from(*x), median(&cell[of].rates)));
        points.collect()
    };
    let curves = vec![
        Curve { name: "one instance".to_owned(), points: points(0) },
        Curve { name: "two siblings".to_owned(), points: points(1) },
    ];
    bench.panels.push(Panel { title: format!("{}: requests/s", profile.name()), curves });
    Ok(())
}
