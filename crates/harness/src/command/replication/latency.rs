//! What one client waits for its COMMIT at three nodes, against what no order of commits can do
//! without: two flushes and one round trip over loopback.
//!
//! The floor is measured in the same run, in turns with the commits: flushes as the log makes them
//! (a page written past the operating system's cache, durable when the call returns) and the echo
//! of a short message between two threads. All figures are medians of a round's.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use serde_json::json;

use super::place::{Place, Servers};
use super::turns::{Load, Way};
use super::{Bench, NODES};
use crate::error::{Error, IoContext, Result};
use crate::median::{median, median_ratio, ratio_error};
use crate::peer;
use crate::random::Random;
use crate::report::{LatencyMs, Record};
use crate::workload::bookstore::Isolation;
use crate::workload::log::RawDevice;
use crate::workload::updates::{Connection, Step, Updates};

/// Rounds, whatever the other parts have: they are short.
const ROUNDS: usize = 24;
/// Of each in a round.
const FLUSHES: u64 = 60;
const TRIPS: usize = 200;
const COMMITS: usize = 60;
/// A message between nodes is hardly smaller.
const MESSAGE: usize = 100;
/// No echo takes as long.
const LIMIT: Duration = Duration::from_secs(10);

/// Microseconds, by round.
#[derive(Default)]
struct Rounds {
    flush: Vec<f64>,
    trip: Vec<f64>,
    floor: Vec<f64>,
    /// Of commits at the leader, and at the next node.
    commits: [Vec<f64>; 2],
}

/// Measures it.
pub(super) async fn measure(bench: &mut Bench<'_>) -> Result<()> {
    let mut place = Place::cluster(bench.args, NODES).await?;
    place.fill(&bench.shape(1)).await?;
    let Servers::Cluster(cluster) = &place.servers else { return Ok(()) };
    let leader = cluster.leader(0).await?;
    let way = Way::new(0, String::new(), Isolation::Serializable, 1, Load::Updates(1));
    let run = bench.next_run();
    let all = way.updates(bench, &place, 1, run);
    let ends = [all[leader].clone(), all[(leader + 1) % NODES].clone()];
    let directory = bench.args.server.directory.clone();
    let spinner = crate::progress::spinner("commits of one client, flushes and round trips in turns");
    // A thread of its own: it blocks, and Ctrl-C must still be heard.
    let measured = tokio::task::spawn_blocking(move || rounds(&ends, directory.as_deref())).await;
    spinner.finish_and_clear();
    let (rounds, committed) =
        measured.map_err(|panic| Error::Server(format!("the measurement failed: {panic}")))??;
    place.note_committed(committed);
    place.check().await?;
    for (at, (case, name)) in
        [("commit, client at the leader", "of_floor"), ("commit, client at a follower", "follower_of_floor")]
            .into_iter()
            .enumerate()
    {
        let commits = &rounds.commits[at];
        let (ratio, error) = (median_ratio(commits, &rounds.floor), ratio_error(commits, &rounds.floor));
        let (flush, trip) = (median(&rounds.flush), median(&rounds.trip));
        println!(
            "{case}: {:.0} µs, {ratio:.2} ± {error:.2} of two flushes of {flush:.0} µs and a round trip of {trip:.0} µs",
            median(commits)
        );
        let params = bench.parameters(
            &place.version,
            &[
                ("case", json!(case)),
                ("isolation", json!(Isolation::Serializable.name())),
                ("durable", json!(place.durable)),
                ("nodes", json!(NODES)),
                ("clients", json!(1)),
                ("updates", json!(1)),
                ("rounds", json!(ROUNDS)),
                ("flush_us", json!(flush)),
                ("trip_us", json!(trip)),
            ],
        );
        let middle = median(commits) / 1000.0;
        let mut record = Record {
            system: "cognate".to_owned(),
            workload: "replication".to_owned(),
            params,
            committed_per_s: 0.0,
            aborted_pct: 0.0,
            latency_ms: LatencyMs { p50: middle, ..LatencyMs::default() },
        };
        record.measured(name, ratio, error);
        bench.records.push(record);
    }
    Ok(())
}

/// All rounds, and how many updates were committed.
fn rounds(ends: &[Updates; 2], directory: Option<&std::path::Path>) -> Result<(Rounds, u64)> {
    let folder = peer::fresh_folder(directory)?;
    let device = RawDevice::create(&folder.path().join("raw"))?;
    let mut echo = Echo::start()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.doing("starting a client's runtime")?;
    let mut random = Random::stream(ends[0].shape.seed, 500 + ends[0].round, 0);
    let mut measured = Rounds::default();
    let mut committed = 0;
    let mut clients = Vec::new();
    for end in ends {
        let opened = Connection::open(&end.system, &end.target, &end.settings);
        clients.push(runtime.block_on(opened)?);
    }
    for _ in 0..ROUNDS {
        let mut flushes = Vec::new();
        for _ in 0..FLUSHES {
            flushes.push(micros(device.write(1, MESSAGE as u64, true)?));
        }
        let trips = (0..TRIPS).map(|_| echo.trip()).collect::<Result<Vec<f64>>>()?;
        let (flush, trip) = (median(&flushes), median(&trips));
        measured.flush.push(flush);
        measured.trip.push(trip);
        measured.floor.push(2.0 * flush + trip);
        for (at, client) in clients.iter_mut().enumerate() {
            let mut waits = Vec::new();
            for _ in 0..COMMITS {
                let key = ends[at].shape.keys(&mut random)[0];
                waits.push(micros(runtime.block_on(commit(client, key))?));
            }
            committed += COMMITS as u64;
            measured.commits[at].push(median(&waits));
        }
    }
    Ok((measured, committed))
}

/// One transaction; returns what its COMMIT took. Nobody else is there, but a follower that lags
/// may still refuse one whose row another node's client has just changed: it is made again.
async fn commit(client: &mut Connection, key: i32) -> Result<Duration> {
    loop {
        let refused = match attempt(client, key).await {
            Ok(took) => return Ok(took),
            Err(failure) => failure,
        };
        let rolled_back = client.send(Step::Rollback).await;
        if let (None, _) | (_, Err(_)) = (refused.abort, rolled_back) {
            return Err(Error::Server(format!("one client's commit: {}", refused.message)));
        }
    }
}

async fn attempt(client: &mut Connection, key: i32) -> Result<Duration, crate::driver::Failure> {
    client.send(Step::Begin).await?;
    client.send(Step::Update(key)).await?;
    let since = Instant::now();
    client.send(Step::Commit).await?;
    Ok(since.elapsed())
}

fn micros(took: Duration) -> f64 {
    took.as_nanos() as f64 / 1000.0
}

/// A thread that sends back what it gets, over loopback.
struct Echo(TcpStream);

impl Echo {
    fn start() -> Result<Echo> {
        let doing = "preparing the round trips";
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).doing(doing)?;
        let here = TcpStream::connect(listener.local_addr().doing(doing)?).doing(doing)?;
        let (mut there, _) = listener.accept().doing(doing)?;
        for end in [&here, &there] {
            end.set_nodelay(true).doing(doing)?;
            end.set_read_timeout(Some(LIMIT)).doing(doing)?;
        }
        let answer = move || {
            let mut message = [0; MESSAGE];
            // Ends with the connection.
            while there.read_exact(&mut message).is_ok() && there.write_all(&message).is_ok() {}
        };
        std::thread::Builder::new().name("echo".to_owned()).spawn(answer).doing(doing)?;
        Ok(Echo(here))
    }

    /// Microseconds of one round trip.
    fn trip(&mut self) -> Result<f64> {
        let (mut message, since) = ([0; MESSAGE], Instant::now());
        self.0.write_all(&message).doing("sending over loopback")?;
        self.0.read_exact(&mut message).doing("waiting for an echo")?;
        Ok(micros(since.elapsed()))
    }
}
