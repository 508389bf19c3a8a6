//! PREPARE TRANSACTION and COMMIT PREPARED of updates of one random row: pairs a second, against
//! PostgreSQL's.
//!
//! A pair is three messages, as pgjdbc's XA data source sends them: BEGIN with the update, then the
//! two statements. A MIP transaction, which is measured beside it on Cognate, is four, since its
//! BEGIN may be refused.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use serde_json::json;

use super::{Bench, Cell, median_ratio};
use crate::command::turn_about;
use crate::error::Result;
use crate::median::ratio_error;
use crate::peer::System;
use crate::workload::bookstore::Isolation;
use crate::workload::mip::profile::{Profile, UPDATE_ROWS};
use crate::workload::mip::requests::Requests;
use crate::workload::mip::site::Way;
use crate::workload::s3u1::Table;

/// Cognate over PostgreSQL.
pub(super) const RATIO: &str = "pairs_of_postgres";
/// The same with MIP on Cognate.
const MIP_RATIO: &str = "mip_pairs_of_postgres";

const CLIENTS: u32 = 16;
/// Short rounds for each of the other rows': the log of one disturbs the next.
const ROUNDS: usize = 3;

/// Measures it on every system, in turns, and on Cognate the same as MIP transactions.
pub(super) async fn measure(bench: &mut Bench<'_>, systems: &[System]) -> Result<()> {
    let table = Table { rows: UPDATE_ROWS, hot_rows: 1, hot_pct: 0, seed: bench.args.seed };
    for system in systems {
        let client = system.client().await?;
        system.execute_each(&client, &table.statements()).await?;
        client.batch_execute("CHECKPOINT").await.ok();
    }
    let mut runs: Vec<(&System, Way, Cell)> =
        systems.iter().map(|system| (system, Way::TwoPhase, Cell::default())).collect();
    runs.push((&systems[0], Way::Mip, Cell::default()));
    let walk = Arc::new(AtomicU64::new(0));
    for round in 0..ROUNDS * bench.args.rounds as usize {
        for index in turn_about(round as u64, runs.len()) {
            let (system, way, _) = runs[index];
            bench.run += 1;
            let level = Isolation::ReadCommitted;
            let mut requests =
                Requests::new(system, way, Profile::Update, bench.scale, level, (bench.run, &walk));
            requests.begins_with_statement = way == Way::TwoPhase;
            let label = format!("{}: pairs, {}", system.name, way.name());
            let outcome = bench.measure(requests, CLIENTS, &label).await?;
            runs[index].2.add(outcome);
        }
    }
    let first = runs[0].2.rates.clone();
    let siblings = runs[runs.len() - 1].2.rates.clone();
    for (system, way, cell) in &runs {
        let case = format!("update, {}, {CLIENTS} clients", way.name());
        let record = bench.record(system, case, CLIENTS, cell);
        record.params.insert("isolation".to_owned(), json!("read-committed"));
        if system.name == "postgres" {
            for (name, ours) in [(RATIO, &first), (MIP_RATIO, &siblings)] {
                record.measured(name, median_ratio(ours, &cell.rates), ratio_error(ours, &cell.rates));
            }
        }
    }
    Ok(())
}
