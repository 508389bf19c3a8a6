//! A server dies between PREPARE and COMMIT of a hot item's purchase: how the crowd fares.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::{Bench, Cell, client_threads, median};
use crate::driver::{self, Plan};
use crate::error::{DatabaseContext, Error, Result};
use crate::peer::System;
use crate::report::number;
use crate::workload::mip::crowd::{AFTER, BEFORE, Crowd, WARMUP};
use crate::workload::mip::profile::crowd_tables;
use crate::workload::mip::site::Way;

/// Third second over before, on Cognate.
pub(super) const RATIO: &str = "crowd_of_before";

const CLIENTS: usize = 25;
/// Rounds; each takes six seconds a system.
const ROUNDS: u32 = 5;

/// Measures it on every system, in turns.
pub(super) async fn measure(bench: &mut Bench<'_>, systems: &[System]) -> Result<()> {
    for system in systems {
        let client = system.client().await?;
        system.execute_each(&client, &crowd_tables()).await?;
    }
    let mut cells: Vec<Cell> = systems.iter().map(|_| Cell::default()).collect();
    let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); systems.len()];
    for _ in 0..ROUNDS.min(bench.args.rounds) {
        for (index, system) in systems.iter().enumerate() {
            bench.run += 1;
            let way = way(system);
            let crowd = Arc::new(Crowd::new(system, way, bench.scale, bench.run));
            let plan = Plan {
                label: format!("{}: a crowd of buyers", system.name),
                clients: CLIENTS,
                threads: client_threads(),
                warmup: WARMUP,
                measured: BEFORE + AFTER,
            };
            let (outcome, resolved) =
                tokio::join!(driver::run(Arc::new(Arc::clone(&crowd)), &plan), resolve(&crowd, system));
            resolved?;
            cells[index].add(outcome?);
            let (before, third) = crowd
                .events(|events| events.rates())
                .ok_or_else(|| Error::Violation("no server died".to_owned()))?;
            let answer = crowd.events(|events| {
                let (_, died) = events.died.as_ref()?;
                Some(events.retried? - *died)
            });
            println!(
                "{}: {} a second before, {} in the third second after a server died; its client's answer {}",
                system.name,
                number(before),
                number(third),
                answer
                    .map_or("never came".to_owned(), |after| format!("came after {} ms", after.as_millis())),
            );
            ratios[index].push(third / before);
        }
    }
    println!();
    for ((system, cell), ratios) in systems.iter().zip(&cells).zip(&ratios) {
        let record = bench.record(system, format!("crowd, {}", way(system).name()), CLIENTS as u32, cell);
        let parameter = if system.name == "postgres" { "postgres_crowd_of_before" } else { RATIO };
        record.params.insert(parameter.to_owned(), json!(median(ratios)));
        record.params.insert("isolation".to_owned(), json!("read-committed"));
        record.params.insert("ratios_of_rounds".to_owned(), json!(ratios));
    }
    Ok(())
}

fn way(system: &System) -> Way {
    if system.name == "postgres" { Way::TwoPhase } else { Way::Mip }
}

/// Where there are no siblings, somebody has to end what the dead server prepared, or the run would never be over: once it counts no more.
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
