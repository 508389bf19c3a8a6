//! A server dies between PREPARE and COMMIT of a hot item's purchase: how the crowd fares.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::{Bench, Cell, client_threads, median};
use crate::command::turn_about;
use crate::driver::{self, Plan};
use crate::error::{DatabaseContext, Error, Result};
use crate::median::mean_error;
use crate::peer::System;
use crate::report::number;
use crate::workload::mip::crowd::{AFTER, BEFORE, Crowd, WARMUP};
use crate::workload::mip::profile::crowd_tables;
use crate::workload::mip::site::Way;

/// Third second over before, on Cognate.
pub(super) const RATIO: &str = "crowd_of_before";

/// The same where no server dies.
pub(super) const WITHOUT: &str = "crowd_without_death";

const CLIENTS: usize = 25;

/// A run of one system, and its rounds.
struct Runs<'a> {
    system: &'a System,
    dies: bool,
    cell: Cell,
    ratios: Vec<f64>,
}

/// Measures it on every system, and on the first also without a death, in turns; each takes six
/// seconds.
pub(super) async fn measure(bench: &mut Bench<'_>, systems: &[System]) -> Result<()> {
    for system in systems {
        let client = system.client().await?;
        system.execute_each(&client, &crowd_tables()).await?;
    }
    let start = |system, dies| Runs { system, dies, cell: Cell::default(), ratios: Vec::new() };
    let mut all: Vec<Runs<'_>> = systems.iter().map(|system| start(system, true)).collect();
    all.extend(systems.first().map(|system| start(system, false)));
    for round in 0..bench.args.rounds {
        for index in turn_about(round, all.len()) {
            run(bench, &mut all[index]).await?;
        }
    }
    println!();
    for Runs { system, dies, cell, ratios } in &all {
        let (case, parameter) = match (*dies, system.name.as_str()) {
            (true, "postgres") => ("crowd", "postgres_crowd_of_before"),
            (true, _) => ("crowd", RATIO),
            (false, _) => ("crowd, nobody dies", WITHOUT),
        };
        let case = format!("{case}, {}", way(system).name());
        let record = bench.record(system, case, CLIENTS as u32, cell);
        record.measured(parameter, median(ratios), mean_error(ratios));
        record.params.insert("isolation".to_owned(), json!("read-committed"));
        record.params.insert("ratios_of_rounds".to_owned(), json!(ratios));
    }
    Ok(())
}

async fn run(bench: &mut Bench<'_>, runs: &mut Runs<'_>) -> Result<()> {
    bench.run += 1;
    let (system, dies) = (runs.system, runs.dies);
    let crowd = Arc::new(Crowd::new(system, (way(system), dies), bench.scale, bench.run));
    let label = if dies { "a crowd of buyers" } else { "a crowd of buyers, nobody dies" };
    let plan = Plan {
        label: format!("{}: {label}", system.name),
        clients: CLIENTS,
        threads: client_threads(),
        warmup: WARMUP,
        measured: BEFORE + AFTER,
    };
    let (outcome, resolved) =
        tokio::join!(driver::run(Arc::new(Arc::clone(&crowd)), &plan), resolve(&crowd, system));
    resolved?;
    runs.cell.add(outcome?);
    let (before, [first, second, third]) =
        crowd.events(|events| events.rates()).ok_or_else(|| Error::Violation("no server died".to_owned()))?;
    let answer = crowd.events(|events| {
        let (_, died) = events.died.as_ref()?;
        Some(events.retried? - *died)
    });
    println!(
        "{}: {} a second before, {}, {} and {} in the three seconds after {}",
        system.name,
        number(before),
        number(first),
        number(second),
        number(third),
        match (dies, answer) {
            (false, _) => "that, in which nobody died".to_owned(),
            (true, None) => "a server died; its client's answer never came".to_owned(),
            (true, Some(after)) =>
                format!("a server died; its client's answer came after {} ms", after.as_millis()),
        },
    );
    runs.ratios.push(third / before);
    Ok(())
}

fn way(system: &System) -> Way {
    if system.name == "postgres" { Way::TwoPhase } else { Way::Mip }
}

/// Where there are no siblings, somebody has to end what the dead server prepared, or the run would
/// never be over: once it counts no more.
async fn resolve(crowd: &Arc<Crowd>, system: &System) -> Result<()> {
    tokio::time::sleep(WARMUP + BEFORE).await;
    let mut patience = 200;
    let (attempt, died) = loop {
        match crowd.events(|events| events.died.clone()) {
            Some(died) => break died,
            None if patience == 0 => return Ok(()),
            None => patience -= 1,
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    if way(system) == Way::Mip {
        return Ok(());
    }
    tokio::time::sleep_until(tokio::time::Instant::from_std(died + AFTER)).await;
    // Who is answered from here on is not to be taken for an answer in time.
    let client = system.client().await?;
    let statement = format!("ROLLBACK PREPARED '{}'", attempt.gid());
    client.batch_execute(&statement).await.at(&system.name, statement)
}
