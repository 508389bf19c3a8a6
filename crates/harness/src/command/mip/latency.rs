//! Latency of a request in three ways: MIP, PREPARE TRANSACTION, plain COMMIT (the paper's figure 1).
//!
//! In a round every way is measured at every number of clients. The ratio of a round is the mean over the curve of MIP's mean latencies over the same of the other way; it is the
//! points with many clients that weigh most then. Beside it stands the mean of the points' own ratios. FORGET comes after each part, outside of what is measured.

use serde_json::json;

use super::{Bench, Cell, median, median_ratio};
use crate::chart::{Curve, Panel};
use crate::error::Result;
use crate::report::{align, number};
use crate::workload::mip::profile::Profile;
use crate::workload::mip::site::Way;

/// Of Buy Confirm.
pub(super) const BC: &str = "bc_mip_of_two_phase";
/// Of Admin Confirm.
pub(super) const AC: &str = "ac_mip_of_two_phase";

const WAYS: [Way; 3] = [Way::Mip, Way::TwoPhase, Way::Plain];

/// Measures both profiles.
pub(super) async fn measure(bench: &mut Bench<'_>) -> Result<()> {
    for (profile, parameter) in [(Profile::BuyConfirm, BC), (Profile::AdminConfirm, AC)] {
        let curve = bench.args.clients.clone();
        let mut cells: Vec<[Cell; 3]> = curve.iter().map(|_| Default::default()).collect();
        for round in 0..bench.args.rounds as usize {
            for (place, &clients) in curve.iter().enumerate() {
                let mut order = [0, 1, 2];
                order.rotate_left((round + place) % 3);
                if round % 2 == 1 {
                    order.reverse();
                }
                for index in order {
                    let label = format!("{}, {}, {clients} clients", profile.name(), WAYS[index].name());
                    let requests = bench.requests(WAYS[index], profile).await?;
                    cells[place][index].add(bench.measure(requests, clients, &label).await?);
                }
            }
        }
        report(bench, profile, parameter, &curve, &cells).await?;
    }
    Ok(())
}

/// Sums over the curve of the mean latencies, by round.
fn sums(cells: &[[Cell; 3]], way: usize) -> Vec<f64> {
    let rounds = cells.first().map_or(0, |cell| cell[way].means.len());
    (0..rounds).map(|round| cells.iter().map(|cell| cell[way].means[round]).sum()).collect()
}

async fn report(
    bench: &mut Bench<'_>,
    profile: Profile,
    parameter: &str,
    curve: &[u32],
    cells: &[[Cell; 3]],
) -> Result<()> {
    let mut rows = vec![
        ["clients", "MIP ms", "two-phase ms", "plain ms", "MIP / two-phase", "MIP / plain"]
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
            format!("{ratio:.3}"),
            format!("{:.3}", median_ratio(&cell[0].means, &cell[2].means)),
        ]);
    }
    println!("{}: mean latency\n{}", profile.name(), align(&rows, 0));
    let by_round: Vec<f64> = sums(cells, 0).iter().zip(sums(cells, 1)).map(|(mip, two)| mip / two).collect();
    let (ratio, of_plain) = (median(&by_round), median_ratio(&sums(cells, 0), &sums(cells, 2)));
    let points = of_points.iter().sum::<f64>() / of_points.len().max(1) as f64;
    println!(
        "MIP / two-phase over the curve: {ratio:.3} (rounds {by_round:.3?}); mean of the points' ratios {points:.3}; MIP / plain {of_plain:.3}\n"
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
        record.params.insert(parameter.to_owned(), json!(ratio));
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
