//! Latency of a request in four ways: MIP sent as functions and as text, PREPARE TRANSACTION, plain
//! COMMIT (the paper's figure 1).
//!
//! In a round the clients of each number connect once, and then have one way after the other for a
//! short time each ([`TURNS`] times): what the machine does otherwise meets all of them alike, and
//! each round begins with another one. The ratio of a round is the mean over the curve of MIP's
//! mean latencies over the same of the other way; it is the points with many clients that weigh
//! most then. Beside it stands the mean of the points' own ratios. FORGET comes after each round's
//! part, outside of what is measured. The governor is off: its trials compare limits in blocks
//! longer than a turn, and would take one way for another limit.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::{Bench, Cell, client_threads, median, median_ratio};
use crate::chart::{Curve, Panel};
use crate::driver::{self, Outcome};
use crate::error::{Error, Result};
use crate::median::ratio_error;
use crate::report::{align, number};
use crate::workload::mip::profile::Profile;
use crate::workload::mip::site::Way;
use crate::workload::turns::{Pace, Turns};

/// Of Buy Confirm.
pub(super) const BC: &str = "bc_mip_of_two_phase";
/// Of Admin Confirm.
pub(super) const AC: &str = "ac_mip_of_two_phase";
/// The same with MIP sent as text.
pub(super) const TEXT: [(&str, &str); 2] =
    [(BC, "bc_mip_text_of_two_phase"), (AC, "ac_mip_text_of_two_phase")];

/// So often has each way its turn in a round: many short turns, since the machine changes its mood
/// within a second.
const TURNS: u32 = 16;
/// The measured part that was asked for is cut into so many of them.
const TURNS_A_PART: u32 = 4;
/// Requests that begin so soon after a change do not count.
const LEAD: Duration = Duration::from_millis(40);

/// What is compared; the goals are about the first and the last against the second.
const WAYS: [Way; 4] = [Way::Mip, Way::TwoPhase, Way::Plain, Way::MipText];

/// One cell for each of [`WAYS`].
type Ways = [Cell; WAYS.len()];

/// Measures both profiles.
pub(super) async fn measure(bench: &mut Bench<'_>) -> Result<()> {
    bench.govern("off").await?;
    for (profile, parameter) in [(Profile::BuyConfirm, BC), (Profile::AdminConfirm, AC)] {
        let curve = bench.args.clients.clone();
        let mut cells: Vec<Ways> = curve.iter().map(|_| Default::default()).collect();
        for round in 0..bench.args.rounds {
            for (place, &clients) in curve.iter().enumerate() {
                for (cell, outcome) in
                    cells[place].iter_mut().zip(in_turns(bench, profile, clients, round).await?)
                {
                    cell.add(outcome);
                }
            }
        }
        report(bench, profile, parameter, &curve, &cells).await?;
    }
    bench.govern("auto").await
}

/// One number of clients for a round: what each way did.
async fn in_turns(bench: &mut Bench<'_>, profile: Profile, clients: u32, round: u32) -> Result<Vec<Outcome>> {
    let mut of = Vec::new();
    for way in WAYS {
        of.push((way.name().to_owned(), Arc::new(bench.requests(way, profile).await?)));
    }
    let pace = Pace { lead: LEAD, part: bench.window() / TURNS_A_PART, turns: TURNS };
    let turns = Arc::new(Turns::new(of, pace, round));
    let label = format!("{}, {clients} clients", profile.name());
    let plan = turns.plan(label, clients as usize, client_threads());
    let run = driver::run(Arc::new(Arc::clone(&turns)), &plan).await?;
    for requests in turns.of() {
        requests.clean_up().await?;
    }
    let total = run.total();
    if total.errors_total() > 0 {
        return Err(Error::Violation(format!("{}: {}", plan.label, run.first_error.unwrap_or_default())));
    }
    if profile == Profile::BuyConfirm {
        bench.bought += total.acknowledged;
    }
    let outcomes = turns.each(&run);
    match WAYS.iter().zip(&outcomes).find(|(_, outcome)| outcome.total().committed == 0) {
        Some((way, _)) => {
            let text = format!("{}, {}: no request was answered", plan.label, way.name());
            Err(Error::Violation(text))
        }
        None => Ok(outcomes),
    }
}

/// Sums over the curve of the mean latencies, by round.
fn sums(cells: &[Ways], way: usize) -> Vec<f64> {
    let rounds = cells.first().map_or(0, |cell| cell[way].means.len());
    (0..rounds).map(|round| cells.iter().map(|cell| cell[way].means[round]).sum()).collect()
}

async fn report(
    bench: &mut Bench<'_>,
    profile: Profile,
    parameter: &str,
    curve: &[u32],
    cells: &[Ways],
) -> Result<()> {
    let mut rows = vec![
        ["clients", "MIP ms", "two-phase ms", "plain ms", "as text ms", "MIP / two-phase", "MIP / plain"]
            .map(str::to_owned),
    ];
    let mut of_points = Vec::new();
    for (clients, cell) in curve.iter().zip(cells) {
        let ratio = median_ratio(&cell[0].means, &cell[1].means);
        of_points.push(ratio);
        rows.push([
            clients.to_string(),
            number(median(&cell[0].means)),
            number(median(&cell[1].means)),
            number(median(&cell[2].means)),
            number(median(&cell[3].means)),
            format!("{ratio:.3}"),
            format!("{:.3}", median_ratio(&cell[0].means, &cell[2].means)),
        ]);
    }
    println!("{}: mean latency\n{}", profile.name(), align(&rows, 0));
    let by_round: Vec<f64> = sums(cells, 0).iter().zip(sums(cells, 1)).map(|(mip, two)| mip / two).collect();
    let (ratio, of_plain) = (median(&by_round), median_ratio(&sums(cells, 0), &sums(cells, 2)));
    let points = of_points.iter().sum::<f64>() / of_points.len().max(1) as f64;
    let error = ratio_error(&sums(cells, 0), &sums(cells, 1));
    let as_text = median_ratio(&sums(cells, 3), &sums(cells, 1));
    let text_error = ratio_error(&sums(cells, 3), &sums(cells, 1));
    println!(
        "MIP / two-phase over the curve: {ratio:.3} (standard error {error:.3}; rounds {by_round:.3?}); mean of the points' ratios {points:.3}; as text {as_text:.3} (standard error {text_error:.3}); MIP / plain {of_plain:.3}\n"
    );
    bench.store().await?;
    let Some(system) = bench.store.take() else { return Ok(()) };
    for (clients, cell) in curve.iter().zip(cells) {
        for (way, cell) in WAYS.iter().zip(cell) {
            let case = format!("{}, {}, {clients} clients", profile.name(), way.name());
            bench.record(&system, case, *clients, cell);
        }
    }
    bench.store = Some(system);
    if let Some(record) = bench.records.last_mut() {
        record.measured(parameter, ratio, error);
        if let Some((_, text)) = TEXT.iter().find(|(functions, _)| *functions == parameter) {
            record.measured(text, as_text, text_error);
        }
        record.params.insert("mean_of_point_ratios".to_owned(), json!(points));
        record.params.insert("mip_of_two_phase_by_round".to_owned(), json!(by_round));
        record.params.insert("mip_of_plain".to_owned(), json!(of_plain));
    }
    let points = |way: usize| {
        let points = curve.iter().zip(cells).map(|(x, cell)| (f64::from(*x), median(&cell[way].means)));
        Curve { name: WAYS[way].name().to_owned(), points: points.collect() }
    };
    let curves = (0..WAYS.len()).map(points).collect();
    bench.panels.push(Panel { title: format!("{}: mean latency, ms", profile.name()), curves });
    Ok(())
}
