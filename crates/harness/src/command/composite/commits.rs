//! Commits that the databases count, and flushes of the journals, for each subtransaction of
//! purchases without failures.
//!
//! PostgreSQL counts a backend's commits for good when the backend ends, and a start has commits of
//! its own. So two runs are made, each with a start and an end, the second one longer: what it has
//! more is due to its purchases.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Bench, client_threads, compare};
use crate::error::{DatabaseContext, Error, Result};
use crate::report;
use crate::workload::composite::host::Components;
use crate::workload::composite::http::Posts;
use crate::workload::composite::place::{DatabaseKind, Place};
use crate::workload::composite::purchase::{self, SITES};

const PREFIX: &str = "commits_";
/// How long backends may take to end.
const PATIENCE: Duration = Duration::from_secs(30);
/// The second run has so many windows.
const WINDOWS: u32 = 3;

/// What a run did.
struct Episode {
    commits: i64,
    flushes: u64,
    subtransactions: u64,
    outcome: crate::driver::Outcome,
}

/// Measures it.
pub(super) async fn measure(bench: &mut Bench<'_>, place: &mut Place) -> Result<()> {
    let short = episode(bench, place, 1).await?;
    let long = episode(bench, place, WINDOWS).await?;
    let subtransactions = long.subtransactions as f64 - short.subtransactions as f64;
    if subtransactions <= 0.0 {
        return Err(Error::Violation("a longer run made fewer purchases".to_owned()));
    }
    let commits = (long.commits - short.commits) as f64 / subtransactions;
    let flushes = (long.flushes as f64 - short.flushes as f64) / subtransactions;
    println!("purchase: {commits:.3} commits and {flushes:.3} flushes of a journal for each subtransaction");
    let params = bench.parameters(
        place,
        DatabaseKind::Postgres,
        &[
            ("case", json!("purchase, commits")),
            ("clients", json!(bench.args.clients)),
            ("commits_a_subtransaction", json!(commits)),
            ("flushes_a_subtransaction", json!(flushes)),
        ],
    );
    bench.records.push(report::records("composite", "composite", &params, &long.outcome).remove(0));
    Ok(())
}

/// A start, so many windows, and an end.
async fn episode(bench: &mut Bench<'_>, place: &mut Place, windows: u32) -> Result<Episode> {
    let parts = (0..SITES.len()).map(|site| (SITES[site], purchase::component(site)));
    let before = commits(place).await?;
    let components = Components::start(place, PREFIX, client_threads(), parts.collect()).await?;
    let flushed = components.journal_flushes();
    let mut all: Option<crate::driver::Outcome> = None;
    for _ in 0..windows {
        let posts = Posts {
            name: "purchase".to_owned(),
            address: components.address(),
            path: "/services/buy",
            body: purchase::body,
            run: bench.next_run(),
        };
        let label = "purchase: commits".to_owned();
        let outcome = bench.drive(Arc::new(posts), bench.args.clients, label).await?;
        match &mut all {
            Some(all) => all.add(&outcome),
            none => *none = Some(outcome),
        }
    }
    components.settle().await?;
    let outcome = all.ok_or_else(|| Error::Usage("no window".to_owned()))?;
    let (begun, acknowledged) = (components.roots_begun(), outcome.total().acknowledged);
    if begun != acknowledged {
        return Err(Error::Violation(format!("{begun} roots were begun for {acknowledged} purchases")));
    }
    let flushes = components.journal_flushes() - flushed;
    components.stop().await?;
    let commits = commits(place).await? - before;
    compare::check(place, PREFIX, acknowledged).await?;
    Ok(Episode { commits, flushes, subtransactions: SITES.len() as u64 * acknowledged, outcome })
}

/// Commits in the databases, once nobody is connected to them.
async fn commits(place: &Place) -> Result<i64> {
    let connected = format!("SELECT count(*) FROM pg_stat_activity WHERE datname LIKE '{PREFIX}%'");
    let client = place.client("postgres").await?;
    let until = Instant::now() + PATIENCE;
    loop {
        let row = client.query_one(&connected, &[]).await.at("postgres", "counting connections")?;
        match row.get::<_, i64>(0) {
            0 => break,
            left if Instant::now() >= until => {
                return Err(Error::Timeout(format!("{left} connections of components do not end")));
            }
            _ => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    let sum = format!(
        "SELECT coalesce(sum(xact_commit), 0)::bigint FROM pg_stat_database WHERE datname LIKE '{PREFIX}%'"
    );
    Ok(client.query_one(&sum, &[]).await.at("postgres", "counting commits")?.get(0))
}
