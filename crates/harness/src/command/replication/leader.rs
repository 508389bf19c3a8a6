//! Loss of the leader: it is killed under load, and the longest time is looked for in which
//! nobody's commit was acknowledged.
//!
//! Clients are at all three nodes. Who loses his connection, or is refused for want of a majority,
//! goes on at the next node, as a client with a list of addresses does. After each kill the node
//! comes back, and the sum over the table tells that what was acknowledged is there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinSet;

use super::place::{Place, Servers};
use super::throughput::UPDATES;
use super::turns::{Load, Way};
use super::{Bench, NODES};
use crate::driver::Failure;
use crate::error::{Error, Result};
use crate::median::{mean_error, median};
use crate::random::Random;
use crate::report::{LatencyMs, Record};
use crate::workload::bookstore::Isolation;
use crate::workload::pace::Pace;
use crate::workload::updates::{Connection, Step, UNKNOWN, Updates};

/// Load before the kill, and after it: longer than any limit within which a cluster answers.
const BEFORE: Duration = Duration::from_secs(2);
const AFTER: Duration = Duration::from_secs(6);
/// Between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(5);
/// How long a client may take to hear that the load is over.
const LIMIT: Duration = Duration::from_secs(30);

/// What clients that go from node to node saw.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) over: AtomicBool,
    /// When transactions are due; none: one after the other.
    pub(super) pace: Option<Pace>,
    /// When commits were acknowledged, by all of them.
    pub(super) commits: Mutex<Vec<Instant>>,
    /// Transactions whose end their client does not know.
    pub(super) unknown: Mutex<u64>,
    /// Errors other than broken connections and refusals to be tried again, by SQLSTATE.
    pub(super) errors: Mutex<std::collections::BTreeMap<String, u64>>,
}

/// Measures it.
pub(super) async fn measure(bench: &mut Bench<'_>) -> Result<()> {
    let mut place = Place::cluster(bench.args, NODES).await?;
    place.fill(&bench.shape(UPDATES)).await?;
    let clients = bench.args.connections * NODES as u32;
    let way = Way::new(0, String::new(), Isolation::Serializable, clients, Load::Updates(UPDATES));
    let (mut gaps, mut usual) = (Vec::new(), Vec::new());
    let mut errors = std::collections::BTreeMap::new();
    for kill in 0..bench.args.kills {
        let spinner =
            crate::progress::spinner(&format!("kill -9 of the leader, {} of {}", kill + 1, bench.args.kills));
        let all = way.updates(bench, &place, UPDATES, bench.run);
        bench.next_run();
        let (seen, killed) = one(&mut place, &all, clients).await?;
        spinner.finish_and_clear();
        let commits = seen.commits.lock().clone();
        place.note_committed(commits.len() as u64 * UPDATES as u64);
        place.note_unknown(*seen.unknown.lock() * UPDATES as u64);
        place.check().await?;
        let (before, after) = longest(&commits, killed);
        eprintln!("{:.0} ms without commits, {:.0} ms at most before", 1000.0 * after, 1000.0 * before);
        usual.push(1000.0 * before);
        gaps.push(1000.0 * after);
        for (state, count) in seen.errors.lock().iter() {
            *errors.entry(state.clone()).or_insert(0) += count;
        }
    }
    let worst = gaps.iter().copied().fold(0.0, f64::max);
    println!("the leader lost: {:.0} ms without commits, {worst:.0} ms the longest", median(&gaps));
    let params = bench.parameters(
        &place.version,
        &[
            ("case", json!("the leader is lost")),
            ("isolation", json!(way.isolation.name())),
            ("durable", json!(place.durable)),
            ("nodes", json!(NODES)),
            ("clients", json!(clients)),
            ("updates", json!(UPDATES)),
            ("kills", json!(bench.args.kills)),
            ("gaps_ms", json!(gaps)),
            ("usual_gaps_ms", json!(usual)),
            ("errors", json!(errors)),
        ],
    );
    let mut record = Record {
        system: "cognate".to_owned(),
        workload: "replication".to_owned(),
        params,
        committed_per_s: 0.0,
        aborted_pct: 0.0,
        latency_ms: LatencyMs::default(),
    };
    record.measured("without_commits_s", worst / 1000.0, f64::NAN);
    record.measured("without_commits_median_s", median(&gaps) / 1000.0, mean_error(&gaps) / 1000.0);
    bench.records.push(record);
    Ok(())
}

/// One kill under load, and the node's return; returns what clients saw, and when it was.
async fn one(place: &mut Place, all: &[Updates], clients: u32) -> Result<(Arc<Seen>, Instant)> {
    let seen = Arc::new(Seen::default());
    let Servers::Cluster(cluster) = &mut place.servers else {
        return Err(Error::Usage("a leader is one of a cluster".to_owned()));
    };
    let mut tasks = JoinSet::new();
    for index in 0..clients as usize {
        tasks.spawn(client(all.to_vec(), index, Arc::clone(&seen)));
    }
    tokio::time::sleep(BEFORE).await;
    let leader = cluster.leader(0).await?;
    let killed = Instant::now();
    cluster.kill(leader)?;
    tokio::time::sleep(AFTER).await;
    seen.over.store(true, Ordering::Relaxed);
    let ended = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(LIMIT, ended).await.is_err() {
        return Err(Error::Timeout("clients were still busy long after the leader was lost".to_owned()));
    }
    cluster.restart(leader).await?;
    Ok((seen, killed))
}

/// The longest time between two commits before the kill, and from it on, in seconds.
fn longest(commits: &[Instant], killed: Instant) -> (f64, f64) {
    let mut moments = commits.to_vec();
    moments.sort();
    let (mut before, mut after) = (0.0_f64, 0.0_f64);
    let mut last = None;
    for moment in moments {
        if moment > killed {
            // The first one counts from the kill: what came before was the old leader's.
            let since = last.filter(|last| *last > killed).unwrap_or(killed);
            after = after.max((moment - since).as_secs_f64());
        } else if let Some(last) = last {
            before = before.max((moment - last).as_secs_f64());
        }
        last = Some(moment);
    }
    // Also the time until the load was over.
    let end = killed + AFTER;
    let since = last.filter(|last| *last > killed).unwrap_or(killed);
    (before, after.max(end.saturating_duration_since(since).as_secs_f64()))
}

/// One client, which goes to the next node when its own is lost.
pub(super) async fn client(all: Vec<Updates>, index: usize, seen: Arc<Seen>) {
    let mut random = Random::stream(all[0].shape.seed, 500 + all[0].round, index as u64);
    let mut at = index;
    while !seen.over.load(Ordering::Relaxed) {
        let updates = &all[at % all.len()];
        at += 1;
        if let Ok(mut connection) =
            Connection::open(&updates.system, &updates.target, &updates.settings).await
        {
            while !seen.over.load(Ordering::Relaxed) {
                if let Some(pace) = &seen.pace {
                    tokio::time::sleep_until(pace.take().into()).await;
                }
                let keys = updates.shape.keys(&mut random);
                if transaction(&mut connection, &keys, &seen).await.is_err() {
                    break;
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Runs a transaction until it has committed; an error means that this node is of no use now.
async fn transaction(connection: &mut Connection, keys: &[i32], seen: &Seen) -> Result<(), Failure> {
    while !seen.over.load(Ordering::Relaxed) {
        let (failure, committing) = match updates(connection, keys).await {
            Err(failure) => (failure, false),
            Ok(()) => match connection.send(Step::Commit).await {
                Ok(()) => {
                    seen.commits.lock().push(Instant::now());
                    return Ok(());
                }
                Err(failure) => (failure, true),
            },
        };
        if committing && (failure.unknown || failure.state == UNKNOWN) {
            *seen.unknown.lock() += 1;
        }
        if failure.abort.is_none() {
            if !failure.unknown {
                *seen.errors.lock().entry(failure.state.clone()).or_insert(0) += 1;
            }
            return Err(failure);
        }
        connection.send(Step::Rollback).await?;
    }
    Ok(())
}

async fn updates(connection: &mut Connection, keys: &[i32]) -> Result<(), Failure> {
    connection.send(Step::Begin).await?;
    for &key in keys {
        connection.send(Step::Update(key)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_time_without_commits_counts_from_the_kill() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let commits = [at(0), at(40), at(90), at(600), at(650), at(6_100)];
        let killed = at(100);
        let (before, after) = longest(&commits[..5], killed);
        assert!((before - 0.05).abs() < 1e-9);
        assert!((after - 5.45).abs() < 1e-9, "until the load was over: {after}");
        let (_, after) = longest(&[at(90), at(600), at(5_900)], killed);
        assert!((after - 5.3).abs() < 1e-9, "{after}");
        assert!((longest(&[], killed).1 - 6.0).abs() < 1e-9);
    }
}
