//! The time to an answer of a retry, when the first instance is prepared and its server dead,
//! against that of a request; one client.
//!
//! A plain request and a retry take turns. The first instance of the latter is executed and
//! prepared on a connection of its own, which is closed before the time begins. The retry is what
//! an application server does: begin instance 2, execute, prepare, look at the table, and commit
//! the smallest prepared instance, the first one.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{Bench, Cell};
use crate::driver::{Counts, Outcome};
use crate::error::{DatabaseContext, Result};
use crate::progress;
use crate::workload::mip::profile::{Draw, Profile, Worker};
use crate::workload::mip::site::{Attempt, Site, Way};

/// The ratio of the means.
pub(super) const RATIO: &str = "retry_of_request";

/// Pairs at the beginning that do not count.
const WARMUP: u32 = 20;

/// Measures it.
pub(super) async fn measure(bench: &mut Bench<'_>) -> Result<()> {
    bench.run += 1;
    let (run, scale, isolation) = (bench.run, bench.scale, bench.args.isolation);
    let mut draw = Draw::new(scale, run, 0, &bench.walk);
    let retries = bench.args.retries;
    let system = bench.store().await?;
    let name = system.name.clone();
    let open = async || -> Result<(Site, Worker)> {
        let site = Site::open(system.config(), Way::Mip, isolation).await.at(&name, "connecting")?;
        let worker = Worker::open(&site.client, Profile::BuyConfirm).await.at(&name, "preparing")?;
        Ok((site, worker))
    };
    let (site, worker) = open().await?;
    let mut counts = [Counts::new(), Counts::new()];
    let bar = progress::steps("retries", u64::from(WARMUP + retries));
    for n in 1..=WARMUP + retries {
        for (index, counts) in counts.iter_mut().enumerate() {
            let request = draw.request();
            let xid = format!("retry{run}.{index}/{n}");
            let mut attempt = Attempt { xid, instance: 1 };
            if index == 1 {
                let (dead, worker) = open().await?;
                dead.begin(&attempt).await.at(&name, "BEGIN")?;
                let result = worker.execute(&dead.client, &request).await.at(&name, "executing")?;
                dead.prepare(&attempt, worker.name(), &result).await.at(&name, "PREPARE")?;
                drop(dead);
                // Until the server has noticed.
                tokio::time::sleep(Duration::from_millis(2)).await;
                attempt = attempt.next();
            }
            let since = Instant::now();
            site.begin(&attempt).await.at(&name, "BEGIN")?;
            let result = worker.execute(&site.client, &request).await.at(&name, "executing")?;
            let instance = site.prepare(&attempt, worker.name(), &result).await.at(&name, "PREPARE")?;
            let chosen = Attempt { instance, ..attempt };
            site.commit(&chosen).await.at(&name, "COMMIT")?;
            let took = since.elapsed();
            if n > WARMUP {
                counts.committed += 1;
                let _ = counts.latency.record(took.as_micros() as u64);
            }
            let forget = format!("FORGET MIP <'{}'>", chosen.xid);
            site.client.batch_execute(&forget).await.at(&name, "FORGET")?;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    bench.bought += u64::from(2 * (WARMUP + retries));
    report(bench, counts);
    Ok(())
}

fn report(bench: &mut Bench<'_>, counts: [Counts; 2]) {
    let [request, retry] = counts.map(|counts| {
        let mut cell = Cell::default();
        cell.add(Outcome {
            seconds: counts.latency.mean() * counts.committed as f64 / 1e6,
            kinds: vec!["Buy Confirm".to_owned()],
            counts: vec![counts],
            first_error: None,
        });
        cell
    });
    let ratio = retry.means[0] / request.means[0];
    let p50 = |cell: &Cell| cell.all.as_ref().map_or(0, |all| all.counts[0].latency.value_at_quantile(0.5));
    println!(
        "Buy Confirm, one client: {:.3} ms a request, {:.3} ms a retry after its server died: {ratio:.3} × (medians {:.3} ×)\n",
        request.means[0],
        retry.means[0],
        p50(&retry) as f64 / p50(&request).max(1) as f64,
    );
    let Some(system) = bench.store.take() else { return };
    bench.record(&system, "a request, one client".to_owned(), 1, &request);
    let record = bench.record(&system, "a retry after its server died, one client".to_owned(), 1, &retry);
    record.params.insert(RATIO.to_owned(), json!(ratio));
    bench.store = Some(system);
}
