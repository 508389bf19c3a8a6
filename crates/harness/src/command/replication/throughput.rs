//! The parts that compare rates: with other systems, over the number of nodes, and with an older
//! build.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::place::Place;
use super::turns::{self, Load, Way};
use super::{Bench, NODES};
use crate::command::{client_threads, turn_about};
use crate::driver;
use crate::error::{Error, Result};
use crate::workload::bookstore::Isolation;
use crate::workload::bookstore::Isolation::{RepeatableRead, Serializable};
use crate::workload::snum;
use crate::workload::turns::{Pace, Turns};

/// Updates of the paper's transactions.
pub(super) const UPDATES: usize = 20;
/// How soon PostgreSQL looks for a deadlock, so that a test of contention is none of this setting;
/// its default of a second is measured beside it.
const DEADLOCK_TIMEOUT: &str = "SET deadlock_timeout = '20ms'";
/// Turns of two builds that are compared.
const PACE: Pace = Pace { lead: Duration::from_millis(40), part: Duration::from_millis(210), turns: 0 };

/// Against Galera with clients on all nodes, and against PostgreSQL with clients on one.
pub(super) async fn peers(bench: &mut Bench<'_>) -> Result<()> {
    let args = bench.args;
    let mut places = vec![Place::cluster(args, NODES).await?];
    places[0].fill(&bench.shape(UPDATES)).await?;
    let clients = args.connections * NODES as u32;
    let (all, one) = (format!("{NODES} nodes, clients on all"), format!("{NODES} nodes, clients on one"));
    let way = |place: usize, case: &str, isolation: Isolation| {
        Way::new(place, case.to_owned(), isolation, clients, Load::Updates(UPDATES))
    };
    let on_one = |place, isolation| Way { on_one: true, ..way(place, &one, isolation) };
    let mut ways = vec![
        way(0, &all, RepeatableRead),
        way(0, &all, Serializable),
        on_one(0, RepeatableRead),
        on_one(0, Serializable),
    ];
    let mut figures = Vec::new();
    if !args.without_peers {
        if let Some(galera) = bench.filled("Galera", Place::galera(args).await).await? {
            places.push(galera);
            let peer = ways.len();
            figures.extend([(0, "of_galera", peer), (1, "serializable_of_galera", peer)]);
            ways.push(way(places.len() - 1, &all, RepeatableRead));
        }
        let started = Place::postgres(args).await;
        if let Some(postgres) = bench.filled("PostgreSQL with standbys", started).await? {
            places.push(postgres);
            let (soon, place) = (ways.len(), places.len() - 1);
            figures.extend([
                (2, "of_postgres", soon),
                (3, "serializable_of_postgres", soon),
                (2, "of_postgres_default", soon + 1),
            ]);
            let settings = vec![DEADLOCK_TIMEOUT.to_owned()];
            ways.push(Way { settings, ..on_one(place, RepeatableRead) });
            let case = format!("{one}, default deadlock_timeout");
            ways.push(Way { case, ..on_one(place, RepeatableRead) });
        }
    }
    turns::in_turns(bench, &mut places, &mut ways).await?;
    let figures: Vec<_> =
        figures.iter().map(|&(of, name, peer)| (of, name, ways[of].over(&ways[peer]))).collect();
    turns::record(bench, &places, &ways, &figures);
    Ok(())
}

/// One node, and clusters of several sizes, with so many connections to each node.
pub(super) async fn nodes(bench: &mut Bench<'_>) -> Result<()> {
    let args = bench.args;
    let mut places = vec![Place::single(args, None).await?];
    for &size in &args.nodes {
        places.push(Place::cluster(args, usize::from(size)).await?);
    }
    let mut ways = Vec::new();
    for (at, place) in places.iter().enumerate() {
        place.fill(&bench.shape(UPDATES)).await?;
        let size = place.targets.len();
        let case = match size {
            1 => format!("1 node, {} clients", args.connections),
            _ => format!("{size} nodes, {} clients each", args.connections),
        };
        for isolation in [RepeatableRead, Serializable] {
            let clients = args.connections * size as u32;
            ways.push(Way::new(at, case.clone(), isolation, clients, Load::Updates(UPDATES)));
        }
    }
    turns::in_turns(bench, &mut places, &mut ways).await?;
    let of_one = |at: usize| (at, "of_one_node", ways[at].over(&ways[at % 2]));
    let figures: Vec<_> = (2..ways.len()).map(of_one).collect();
    turns::record(bench, &places, &ways, &figures);
    Ok(())
}

/// Three reads and an update of rows that hardly ever meet: three nodes against one.
pub(super) async fn s3u1(bench: &mut Bench<'_>) -> Result<()> {
    let args = bench.args;
    let mut places = vec![Place::cluster(args, NODES).await?, Place::single(args, None).await?];
    let shape = snum::Shape {
        rows: args.snum_rows,
        hot_rows: 200,
        hot_pct: 0,
        reads: 3,
        updates: 1,
        scans: false,
        seed: args.seed,
    };
    for place in &places {
        place.execute(&shape.statements()).await?;
        place.settle().await?;
    }
    let way = |place: usize, isolation| {
        let case = if place == 0 {
            format!("s3u1 uniform, {NODES} nodes")
        } else {
            "s3u1 uniform, 1 node".to_owned()
        };
        Way::new(place, case, isolation, args.clients, Load::Snum(shape))
    };
    let mut ways =
        [way(0, Serializable), way(0, RepeatableRead), way(1, Serializable), way(1, RepeatableRead)];
    turns::in_turns(bench, &mut places, &mut ways).await?;
    let figures = [
        (0, "s3u1_of_one_node", ways[0].over(&ways[2])),
        (1, "s3u1_of_one_node_repeatable_read", ways[1].over(&ways[3])),
    ];
    turns::record(bench, &places, &ways, &figures);
    Ok(())
}

/// One node of this build against one of an older binary. The same clients are connected to both,
/// and have them in turns of a quarter of a second: a change of two per cent is to show.
pub(super) async fn before(bench: &mut Bench<'_>) -> Result<()> {
    let args = bench.args;
    let Some(older) = &args.before else {
        let none = Error::Missing("no older binary was given, see --before".to_owned());
        return bench.unless_missing::<()>("one node, this build / before", Err(none)).map(drop);
    };
    let mut places = vec![Place::single(args, None).await?, Place::single(args, Some(older)).await?];
    for place in &places {
        place.fill(&bench.shape(UPDATES)).await?;
    }
    for (updates, name) in [(UPDATES, "of_before"), (1, "one_update_of_before")] {
        let mut ways = ["this build", "before"].map(|build| {
            let place = usize::from(build == "before");
            let case = format!("1 node, {updates} updates, {build}");
            Way::new(place, case, Serializable, args.connections, Load::Updates(updates))
        });
        for round in 0..args.rounds {
            compare(bench, &mut places, &mut ways, updates, round).await?;
        }
        for place in &places {
            place.check().await?;
        }
        let figures = [(0, name, ways[0].over(&ways[1]))];
        turns::record(bench, &places, &ways, &figures);
    }
    drop(places);
    Box::pin(before_snum(bench, older)).await
}

/// The same with reads, single ones and of ranges, which is where what is noted of them shows.
/// Servers are started for each round: how fast one is differs from start to start.
async fn before_snum(bench: &mut Bench<'_>, older: &Path) -> Result<()> {
    let args = bench.args;
    let loads =
        [(false, "s3u1 uniform", "s3u1_of_before"), (true, "ranges of 1,000 rows", "scans_of_before")];
    for (scans, what, name) in loads {
        let (rows, seed) = (args.snum_rows, args.seed);
        let shape = snum::Shape { rows, hot_rows: 200, hot_pct: 0, reads: 3, updates: 1, scans, seed };
        let way = |place: usize| {
            let build = if place == 0 { "this build" } else { "before" };
            let case = format!("{what}, 1 node, {build}");
            Way::new(place, case, Serializable, args.clients, Load::Snum(shape))
        };
        let mut ways = [way(0), way(1)];
        let mut places = Vec::new();
        for round in 0..args.rounds {
            places.clear();
            places.extend(both_builds(bench, older, &shape.statements(), round).await?);
            // Who was started first is not always measured first.
            for at in turn_about(round / 2, 2) {
                let label = format!("{}, round {}", ways[at].case, round + 1);
                // What was started a moment ago is cold: a window that does not count.
                way(at).round(bench, &mut places[at], format!("{label}, warming up")).await?;
                ways[at].round(bench, &mut places[at], label).await?;
            }
        }
        let figures = [(0, name, ways[0].over(&ways[1]))];
        turns::record(bench, &places, &ways, &figures);
    }
    Ok(())
}

/// A node of this build and one of the older binary, with the table.
async fn both_builds(bench: &Bench<'_>, older: &Path, table: &[String], round: u32) -> Result<Vec<Place>> {
    let mut places = Vec::new();
    let order = if round % 2 == 1 { [1, 0] } else { [0, 1] };
    for place in order {
        let started = Place::single(bench.args, (place == 1).then_some(older)).await?;
        started.execute(table).await?;
        started.settle().await?;
        places.push(started);
    }
    if order[0] == 1 {
        places.reverse();
    }
    Ok(places)
}

/// A round of both builds in short turns.
async fn compare(
    bench: &mut Bench<'_>,
    places: &mut [Place],
    ways: &mut [Way],
    updates: usize,
    round: u32,
) -> Result<()> {
    let run = bench.next_run();
    let workloads = ways.iter().flat_map(|way| {
        let mut all = way.updates(bench, &places[way.place], updates, run);
        all.drain(..1).map(|one| (way.case.clone(), one)).collect::<Vec<_>>()
    });
    let count = bench.window().as_millis() / (PACE.lead + PACE.part).as_millis();
    let pace = Pace { turns: (count as u32).max(2), ..PACE };
    let turns = Arc::new(Turns::new(workloads.collect(), pace, round));
    let label = format!("1 node, {updates} updates, this build and before, round {}", round + 1);
    let plan = turns.plan(label, bench.args.connections as usize, client_threads());
    let outcome = driver::run(Arc::new(Arc::clone(&turns)), &plan).await?;
    if let Some(error) = &outcome.first_error {
        return Err(Error::Server(error.clone()));
    }
    // What clients sent outside of the parts belongs to one of both places, and nobody knows to
    // which: the sums are checked of what is known.
    for (way, part) in ways.iter_mut().zip(turns.each(&outcome)) {
        places[way.place].note(&part, updates);
        way.add(part);
    }
    let outside = outcome.counts.last().map_or(0, |counts| counts.acknowledged);
    for place in places.iter_mut() {
        place.note_unknown(outside * updates as u64);
    }
    Ok(())
}
