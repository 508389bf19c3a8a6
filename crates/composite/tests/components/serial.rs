//! Recorded runs, checked: roots that begin at different components and change the same things in
//! different orders, also while components come, move and go.
//!
//! Each call changes a cell so that the order shows (`value * 31 + n`), and enters its root and the
//! cell's next number into a history, in the same local transaction; its undo takes both back. In
//! the end:
//!
//! - *atomic*: a root whose client was answered is in the histories with all its calls, any other
//!   with none;
//! - *globally serializable*: the orders of all cells together have no cycle;
//! - *undo exact*: the committed roots, done one after the other in such an order, lead to the same
//!   values.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use cognate_composite::matrix::{never, same_item};
use cognate_composite::{Call, Component, Error, Result, Running, Service, Undo, service};
use cognate_env::SplitMix;
use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::process::{END, Failure, post, request};

const NAMES: [&str; 3] = ["a", "b", "c"];
const CELLS: i32 = 4;
const CLIENTS: usize = 6;
const ROOTS: usize = 25;
/// While components move, whose locks may be held until a root's time is over.
const ROOTS_MOVING: usize = 12;

/// A root: its number, the cells that it changes, whether at the same time, and whether it refuses
/// in the end.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Plan {
    n: i64,
    steps: Vec<(usize, i32)>,
    is_parallel: bool,
    refuses: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Mix {
    n: i64,
    cell: i32,
}

/// What a component has in the end: its history (root, cell, number) and its cells.
type Dump = (Vec<(i64, i32, i64)>, Vec<(i32, i64)>);

fn mixed(value: i64, n: i64) -> i64 {
    (value * 31 + n) % 1_000_003
}

async fn go(call: Call, plan: Plan) -> Result<i64> {
    let n = plan.n;
    let step = |(place, cell): (usize, i32)| {
        let call = call.clone();
        async move { call.call(Service::<Mix, ()>::named(NAMES[place], "mix"), Mix { n, cell }).await }
    };
    if plan.is_parallel {
        try_join_all(plan.steps.into_iter().map(step)).await?;
    } else {
        for one in plan.steps {
            step(one).await?;
        }
    }
    if plan.refuses { Err(Error::refuse("as planned")) } else { Ok(n) }
}

async fn mix(call: Call, Mix { n, cell }: Mix) -> Result<()> {
    let row = call.sql().query_one("SELECT value, number FROM cell WHERE id = $1", &[&cell]).await?;
    let (value, number): (i64, i64) = (row.get(0), row.get(1));
    let change = "UPDATE cell SET value = $2, number = $3 WHERE id = $1";
    call.sql().execute(change, &[&cell, &mixed(value, n), &(number + 1)]).await?;
    call.sql().execute("INSERT INTO history VALUES ($1, $2, $3)", &[&n, &cell, &(number + 1)]).await?;
    call.undo(&(n, cell, value))
}

async fn back(undo: Undo, (n, cell, value): (i64, i32, i64)) -> Result<()> {
    undo.sql().execute("DELETE FROM history WHERE root = $1 AND cell = $2", &[&n, &cell]).await?;
    let restore = "UPDATE cell SET value = $2, number = number - 1 WHERE id = $1";
    undo.sql().execute(restore, &[&cell, &value]).await.map(drop)
}

async fn dump(call: Call, (): ()) -> Result<Dump> {
    let history = call.sql().query("SELECT root, cell, number FROM history", &[]).await?;
    let cells = call.sql().query("SELECT id, value FROM cell", &[]).await?;
    let history = history.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
    Ok((history, cells.iter().map(|row| (row.get(0), row.get(1))).collect()))
}

async fn start(
    place: usize,
    folder: &std::path::Path,
    addresses: &[SocketAddr],
) -> std::result::Result<Running, Failure> {
    let name = NAMES[place];
    let folder = folder.join(name);
    let mut component = Component::named(name)
        .database(&format!("embedded:{}", folder.join("database").display()))
        .data(folder.join("journal"))
        .setup([
            "CREATE TABLE IF NOT EXISTS cell (id int PRIMARY KEY, value bigint NOT NULL, number bigint NOT NULL)"
                .to_owned(),
            format!("INSERT INTO cell SELECT i, 0, 0 FROM generate_series(1, {CELLS}) i ON CONFLICT DO NOTHING"),
            "CREATE TABLE IF NOT EXISTS history (root bigint, cell int, number bigint, PRIMARY KEY (root, cell))"
                .to_owned(),
        ])
        .serve(Service::<Plan, i64>::named(name, "go"), service(go).begins_only())
        .serve(Service::<Mix, ()>::named(name, "mix"), service(mix).item(|mix: &Mix| mix.cell).undo(back))
        .serve(Service::<(), Dump>::named(name, "dump"), service(dump).reads())
        .conflicts([never("go", "go"), never("go", "mix"), never("go", "dump"), same_item("mix", "mix")]);
    for (peer, address) in NAMES.iter().zip(addresses) {
        component = component.peer(peer, &format!("http://{address}"));
    }
    Ok(component.start().await?)
}

/// The components, and the two places where each is found.
struct World {
    running: Vec<Running>,
    doors: Vec<[SocketAddr; 2]>,
    /// Whether they come, move and go.
    is_moving: bool,
    _folder: tempfile::TempDir,
}

impl World {
    async fn start(is_moving: bool) -> std::result::Result<World, Failure> {
        let folder = tempfile::tempdir()?;
        let (mut listeners, mut doors) = (Vec::new(), Vec::new());
        for _ in NAMES {
            let bind = || tokio::net::TcpListener::bind("127.0.0.1:0");
            let both = [bind().await?, bind().await?];
            doors.push([both[0].local_addr()?, both[1].local_addr()?]);
            listeners.push(both);
        }
        let addresses: Vec<SocketAddr> = doors.iter().map(|doors| doors[0]).collect();
        let mut running = Vec::new();
        for (place, both) in listeners.into_iter().enumerate() {
            let component = start(place, folder.path(), &addresses).await?;
            for listener in both {
                tokio::spawn(axum::serve(listener, component.router()).into_future());
            }
            running.push(component);
        }
        Ok(World { running, doors, is_moving, _folder: folder })
    }

    /// A component is not there any more for another one, or comes back, or has moved.
    fn stir(&self, random: &mut SplitMix) -> std::result::Result<(), Failure> {
        let (at, of) = (random.below(3) as usize, random.below(3) as usize);
        match random.below(4) as usize {
            0 => self.running[at].remove_peer(NAMES[of]),
            door => self.meet(at, of, door % 2)?,
        }
        Ok(())
    }

    fn meet(&self, at: usize, of: usize, door: usize) -> std::result::Result<(), Failure> {
        Ok(self.running[at].set_peer(NAMES[of], &format!("http://{}", self.doors[of][door]))?)
    }

    /// How many roots each client begins.
    fn roots(&self) -> usize {
        if self.is_moving { ROOTS_MOVING } else { ROOTS }
    }

    /// Everybody finds everybody, and every root ends. Answers what each has then.
    fn end(&self) -> std::result::Result<Vec<Dump>, Failure> {
        for at in 0..NAMES.len() {
            (0..NAMES.len()).try_for_each(|of| self.meet(at, of, 0))?;
        }
        let begun = Instant::now();
        for [address, _] in &self.doors {
            loop {
                let (_, status) = request(*address, "GET", "/status", &[], b"")?;
                if status["roots"] == json!([]) {
                    break;
                }
                if begun.elapsed() > END {
                    return Err(format!("roots do not end: {}", status["roots"]).into());
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        let dump = |[address, _]: &[SocketAddr; 2]| {
            let (status, answer) = post(*address, "/services/dump", &[], &json!(null))?;
            assert_eq!(status, 200, "{answer}");
            Ok::<Dump, Failure>(serde_json::from_value(answer)?)
        };
        self.doors.iter().map(dump).collect()
    }
}

/// A client's roots, one after the other; answers those that were committed.
fn client(world: &World, seed: u64, next: &AtomicI64) -> std::result::Result<Vec<Plan>, Failure> {
    let mut random = SplitMix::new(seed);
    let mut committed = Vec::new();
    // What an abort does not reach is undone at its deadline.
    let short = [("Cognate-Deadline-Ms", "1500")];
    let headers: &[(&str, &str)] = if world.is_moving { &short } else { &[] };
    for _ in 0..world.roots() {
        if world.is_moving && random.below(3) == 0 {
            world.stir(&mut random)?;
        }
        let mut steps = BTreeSet::new();
        while steps.len() < 3 {
            steps.insert((random.below(3) as usize, 1 + random.below(CELLS as u64) as i32));
        }
        let mut steps: Vec<(usize, i32)> = steps.into_iter().collect();
        if random.below(2) == 0 {
            steps.reverse();
        }
        let plan = Plan {
            n: next.fetch_add(1, Ordering::SeqCst),
            steps,
            is_parallel: random.below(2) == 0,
            refuses: random.below(5) == 0,
        };
        let at = world.doors[random.below(3) as usize][random.below(2) as usize];
        match post(at, "/services/go", headers, &serde_json::to_value(&plan)?)? {
            (200, answer) => {
                assert_eq!((answer, plan.refuses), (json!(plan.n), false));
                committed.push(plan);
            }
            // It leaves nothing.
            (400 | 409 | 504, _) => {}
            (503, problem) if world.is_moving && problem["reason"] == "away" => {}
            (status, problem) => return Err(format!("{status} {problem}").into()),
        }
    }
    Ok(committed)
}

fn check(committed: &[Plan], dumps: &[Dump]) {
    let mut found: BTreeMap<i64, BTreeSet<(usize, i32)>> = BTreeMap::new();
    let mut orders: BTreeMap<(usize, i32), BTreeMap<i64, i64>> = BTreeMap::new();
    for (place, (history, _)) in dumps.iter().enumerate() {
        for &(n, cell, number) in history {
            found.entry(n).or_default().insert((place, cell));
            let before = orders.entry((place, cell)).or_default().insert(number, n);
            assert_eq!(before, None, "two roots have one place at cell {cell} of {place}");
        }
    }
    let expected: BTreeMap<i64, BTreeSet<(usize, i32)>> =
        committed.iter().map(|plan| (plan.n, plan.steps.iter().copied().collect())).collect();
    assert_eq!(found, expected, "atomic");
    // One root after the other, as soon as nothing before it is left.
    let mut queues: Vec<Vec<i64>> =
        orders.values().map(|order| order.values().rev().copied().collect()).collect();
    let mut values: BTreeMap<(usize, i32), i64> = BTreeMap::new();
    let mut left: BTreeSet<i64> = expected.keys().copied().collect();
    while !left.is_empty() {
        let is_next = |n: &i64| queues.iter().all(|queue| !queue.contains(n) || queue.last() == Some(n));
        let n = *left.iter().find(|n| is_next(n)).expect("serializable: the orders have no cycle");
        left.remove(&n);
        for queue in queues.iter_mut().filter(|queue| queue.last() == Some(&n)) {
            queue.pop();
        }
        for place in &expected[&n] {
            let value = values.entry(*place).or_default();
            *value = mixed(*value, n);
        }
    }
    for (place, (_, cells)) in dumps.iter().enumerate() {
        for &(cell, value) in cells {
            assert_eq!(
                value,
                values.get(&(place, cell)).copied().unwrap_or(0),
                "undo exact: {cell} of {place}"
            );
        }
    }
}

async fn run(is_moving: bool) -> std::result::Result<(), Failure> {
    let seed: u64 = match std::env::var("SEED") {
        Ok(text) => text.parse()?,
        Err(_) => rand::random::<u32>().into(),
    };
    println!("SEED={seed}");
    let world = Arc::new(World::start(is_moving).await?);
    let next = Arc::new(AtomicI64::new(1));
    let clients: Vec<_> = (0..CLIENTS as u64)
        .map(|number| {
            let (world, next) = (Arc::clone(&world), Arc::clone(&next));
            tokio::task::spawn_blocking(move || client(&world, seed * 100 + number, &next))
        })
        .collect();
    let mut committed = Vec::new();
    for client in clients {
        committed.extend(client.await??);
    }
    let ending = Arc::clone(&world);
    let dumps = tokio::task::spawn_blocking(move || ending.end()).await??;
    println!("{} of {} roots are committed", committed.len(), CLIENTS * world.roots());
    assert!(!committed.is_empty());
    check(&committed, &dumps);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roots_of_all_components_have_one_order() -> std::result::Result<(), Failure> {
    run(false).await
}

/// Each finds the others by their names, wherever these are at the moment, or not at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roots_have_one_order_while_components_come_move_and_go() -> std::result::Result<(), Failure> {
    run(true).await
}
