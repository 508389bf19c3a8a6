//! A simulated cluster of engines: seeded storms over a network that loses, cuts and repeats, and
//! over disks that lose power, on one thread whose clock stands still while anything is done.
//!
//! In each round something happens: nodes end and come back, directions are cut and heal, the
//! weather changes, disks become slow and nodes stand still, calendars jump, checkpoints are made
//! and logs cut, so that nodes that come back are sent others' states; nodes are removed and added
//! again with nothing. Meanwhile clients read and write at all nodes, at SERIALIZABLE, commit by
//! all protocols, prepare and decide, have siblings at two nodes of which one commits, define their
//! table anew, take blocks of numbers, and try again under the same name where they were not
//! answered; nodes say what they need no more. With every fourth seed clients do so at REPEATABLE
//! READ, where nobody prepares: what is prepared is seen later than at its place in the order. Then
//! everything heals, and it is looked whether
//! - all nodes have the same rows and the same digest at the same position;
//! - everything acknowledged is there, nothing refused is, and of one name, and of one family, one
//!   has committed; no block of numbers was given to two;
//! - one serial order of one copy explains all that was read and written, or everybody has read
//!   what one moment had, and replaced nothing that came later;
//! - new transactions commit.
//!
//! `COGNATE_SEEDS=500 cargo test -p cognate-server --test main simulation` runs as many, from
//! `COGNATE_SEED` on. All that the network does, and what is tried when, is drawn from the seed.
//! When a node calls an election is not, nor what a database's own threads do, which changes
//! nothing that can be seen: so a seed that has failed once may need some runs to fail again.

#![allow(clippy::unwrap_used)]

mod agreement;
mod definition;
mod history;
mod machine;
mod members;
mod node;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cognate_engine::sibling::{Begun, Instance, Limits, Text, Xid};
use cognate_engine::{Access, Error, Isolation, LockMode, Replication, Transaction, Value, WaitPolicy};
use cognate_env::SplitMix;
use cognate_env::sim::Loss;
use cognate_replication::{SimNetwork, Weather};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::definition::{next_block, rewrite, take_block, tree_of};
use self::history::{Deed, History, Told};
use self::machine::Machine;
use self::node::{NODES, Running, Seen, Up, program};

const TREE: u32 = 1007;
const KEYS: usize = 6;
const CLIENTS: usize = 5;
/// How long a client waits for its answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// By then every client has its answer, or has given up: two PREPAREs and three decisions.
const CLIENTS_END: Duration = Duration::from_secs(5 * 22);
/// Once everything has healed for so long, nothing is on its way any more, nor what a client has
/// given up: a request whose answer was lost is proposed again after ten seconds.
const QUIET: Duration = Duration::from_secs(30);
/// How long it goes on behind the end of the last client, which may have given something up.
const LAST: Duration = Duration::from_secs(10);
/// How long a node may lack what the others have: the last answer of a transfer of its state may
/// have been lost, and for that one a leader waits for five minutes.
const LEVEL: Duration = Duration::from_secs(1000);
/// How long a storm may take with all that comes after it.
const END: Duration = Duration::from_secs(3600);

/// What clients share.
#[derive(Default)]
struct World {
    up: Mutex<BTreeMap<u16, Up>>,
    history: Mutex<History>,
    next: Mutex<usize>,
    is_over: Mutex<bool>,
    /// What programs have read.
    seen: Seen,
    /// Blocks of numbers that somebody has.
    blocks: Mutex<BTreeSet<usize>>,
    /// Everybody works at REPEATABLE READ.
    is_of_snapshots: bool,
}

impl World {
    fn up(&self, number: u16) -> Option<Up> {
        self.up.lock().unwrap().get(&number).cloned()
    }

    fn level(&self) -> Isolation {
        if self.is_of_snapshots { Isolation::Snapshot } else { Isolation::Serializable }
    }

    fn any_up(&self, random: &mut SplitMix) -> Option<Up> {
        self.up(1 + random.below(u64::from(NODES)) as u16)
    }

    fn number(&self) -> usize {
        let mut next = self.next.lock().unwrap();
        *next += 1;
        *next
    }

    fn note(&self, deed: Deed) {
        self.history.lock().unwrap().deeds.push(deed);
    }

    fn is_over(&self) -> bool {
        *self.is_over.lock().unwrap()
    }
}

fn key(number: usize) -> Vec<u8> {
    format!("k{number}").into_bytes()
}

fn writer_of(value: &[u8]) -> usize {
    std::str::from_utf8(value).unwrap().parse().unwrap()
}

/// Reads and writes a few keys, and notes what it saw.
async fn work(t: &mut Transaction, random: &mut SplitMix, deed: &mut Deed) -> Result<(), Error> {
    let tree = tree_of(t).await?;
    for _ in 0..=random.below(4) {
        let number = random.below(KEYS as u64) as usize;
        if deed.wrote.contains(&number) {
            continue;
        }
        if random.one_in(2) {
            let found = t.get(tree, &key(number))?;
            deed.read.push((number, found.map(|value| writer_of(&value))));
        } else {
            t.lock(tree, &key(number), LockMode::NoKeyExclusive, WaitPolicy::NoWait).await?;
            t.check_unchanged(tree, &key(number))?;
            t.put(tree, &key(number), Value::copy_from_slice(deed.id.to_string().as_bytes()))?;
            deed.wrote.push(number);
        }
    }
    Ok(())
}

/// What an answer means; `None`: there was none.
fn told<T>(answer: Option<Result<T, Error>>) -> Told {
    match answer {
        Some(Ok(_)) => Told::Committed,
        Some(Err(_)) => Told::Refused,
        None => Told::Unknown,
    }
}

/// Waits for an answer, but not for ever, and not for a node that has ended.
async fn answer<T>(up: &Up, asked: impl Future<Output = Result<T, Error>>) -> Option<Result<T, Error>> {
    let mut down = up.down.clone();
    tokio::select! {
        biased;
        answer = asked => Some(answer),
        _ = down.wait_for(|down| *down) => None,
        () = tokio::time::sleep(PATIENCE) => None,
    }
}

async fn client(world: Arc<World>, mut random: SplitMix) {
    let mut again: Option<String> = None;
    while !world.is_over() {
        tokio::time::sleep(Duration::from_millis(random.below(150))).await;
        if !world.is_of_snapshots && random.one_in(16) {
            siblings(&world, &mut random).await;
            continue;
        }
        match random.below(24) {
            0 => {
                rewrite(&world, &mut random).await;
                continue;
            }
            1 => {
                take_block(&world, &mut random).await;
                continue;
            }
            _ => {}
        }
        let Some(up) = world.any_up(&mut random) else { continue };
        let id = world.number();
        let name = again.take().unwrap_or_else(|| format!("request {id}"));
        let (read, wrote) = (Vec::new(), Vec::new());
        let mut deed = Deed {
            id,
            name: name.clone(),
            read,
            wrote,
            told: Told::Refused,
            decision: None,
            transaction: 0,
            protocol: "certification",
        };
        if random.one_in(4) {
            let keys = |random: &mut SplitMix| -> Vec<usize> {
                (0..=random.below(2)).map(|_| random.below(KEYS as u64) as usize).collect()
            };
            let (read, wrote) = (keys(&mut random), keys(&mut random));
            deed.transaction = up.engine.program_id();
            deed.protocol = "active";
            let text = program(id, &read, &wrote);
            deed.wrote = wrote;
            deed.wrote.sort_unstable();
            deed.wrote.dedup();
            let (transaction, level) = (deed.transaction, world.level());
            let ordered = up.engine.order_program(transaction, level, Some(&name), &text).unwrap();
            deed.told = told(answer(&up, ordered).await);
            world.note(deed);
            continue;
        }
        let mut t = up.engine.begin(world.level(), Access::ReadWrite);
        if work(&mut t, &mut random, &mut deed).await.is_err() {
            continue;
        }
        if random.one_in(3) {
            tokio::time::sleep(Duration::from_millis(random.below(50))).await;
        }
        deed.transaction = t.id();
        t.name_request(&name);
        if random.one_in(8) && !deed.wrote.is_empty() && !world.is_of_snapshots {
            prepare(&world, &mut random, &up, t, deed).await;
            continue;
        }
        let protocol = match random.one_in(2) {
            true => Replication::WeakVoting,
            false => Replication::Certification,
        };
        if protocol == Replication::WeakVoting {
            deed.protocol = "weak voting";
        }
        deed.told = told(answer(&up, t.commit_by(protocol)).await);
        if deed.told == Told::Unknown && random.one_in(2) {
            again = Some(name);
        }
        world.note(deed);
    }
}

/// Prepares at one node, and decides at another one.
async fn prepare(world: &World, random: &mut SplitMix, up: &Up, t: Transaction, mut deed: Deed) {
    let identifier = format!("p{}", deed.id);
    let prepared = told(answer(up, t.prepare_in_order(&identifier, Value::new())).await);
    if prepared == Told::Refused {
        return world.note(deed);
    }
    let commits = random.one_in(2);
    deed.decision = Some(commits);
    deed.told = Told::Unknown;
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(random.below(2000))).await;
        let Some(other) = world.any_up(random) else { continue };
        let asked = other.engine.decide_prepared_in_order(&identifier, commits, None);
        if matches!(answer(&other, asked).await, Some(Ok(_))) {
            deed.told = if commits { Told::Committed } else { Told::Refused };
            break;
        }
    }
    world.note(deed);
}

/// Two siblings, each at whichever node, share rows; one of those that were prepared is to commit,
/// which some node is told.
async fn siblings(world: &World, random: &mut SplitMix) {
    let name = format!("family {}", world.number());
    let xid = Xid::new(name.as_str()).unwrap();
    let mut prepared: Vec<(Instance, Deed)> = Vec::new();
    for number in 1..=2 {
        let instance = Instance::new(number).unwrap();
        let Some(up) = world.any_up(random) else { continue };
        let level = world.level();
        let Ok(Begun::Active(t)) = up.engine.begin_instance(xid.clone(), instance, level) else { continue };
        let mut t = *t;
        let mut deed = Deed {
            id: world.number(),
            name: name.clone(),
            read: Vec::new(),
            wrote: Vec::new(),
            told: Told::Refused,
            decision: None,
            transaction: t.id(),
            protocol: "sibling",
        };
        if work(&mut t, random, &mut deed).await.is_err() {
            continue;
        }
        let (request, result) = (Text::from("a request"), Text::from("a result"));
        let asked = t.prepare_instance_in_order(&request, &result, Value::new(), Limits::default());
        if told(answer(&up, asked).await) == Told::Refused {
            world.note(deed);
            continue;
        }
        deed.told = Told::Unknown;
        prepared.push((instance, deed));
    }
    let Some(last) = prepared.len().checked_sub(1) else { return };
    let chosen = random.below(last as u64 + 1) as usize;
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(random.below(2000))).await;
        let Some(up) = world.any_up(random) else { continue };
        let asked = up.engine.commit_instance_in_order(&xid, prepared[chosen].0);
        if matches!(answer(&up, asked).await, Some(Ok(_))) {
            for (at, (_, deed)) in prepared.iter_mut().enumerate() {
                deed.told = if at == chosen { Told::Committed } else { Told::Refused };
            }
            break;
        }
    }
    prepared.into_iter().for_each(|(_, deed)| world.note(deed));
}

/// What there was in a storm.
#[derive(Debug, Default)]
struct Counts {
    committed: usize,
    /// Of the committed ones, how many have moved all rows.
    defined: usize,
    /// Blocks of numbers that somebody has.
    blocks: usize,
    others: usize,
    replaced: usize,
    renewed: usize,
}

struct Storm {
    seed: u64,
    random: SplitMix,
    network: SimNetwork,
    machines: BTreeMap<u16, Machine>,
    running: BTreeMap<u16, Running>,
    starts: u32,
    /// How often a node went on with another one's state.
    replaced: usize,
    /// Who was removed, perhaps, and is to be added again.
    coming: Option<u16>,
    /// How often a node was removed and came back with nothing.
    renewed: usize,
    world: Arc<World>,
}

impl Storm {
    fn new(seed: u64) -> Storm {
        Storm {
            seed,
            random: SplitMix::new(seed),
            network: SimNetwork::new(seed),
            machines: (1..=NODES).map(|node| (node, Machine::new(seed ^ (u64::from(node) << 32)))).collect(),
            running: BTreeMap::new(),
            starts: 0,
            replaced: 0,
            coming: None,
            renewed: 0,
            world: Arc::new(World { is_of_snapshots: seed % 4 == 3, ..World::default() }),
        }
    }

    async fn start(&mut self, number: u16) {
        self.starts += 1;
        let (machine, seed) = (&self.machines[&number], self.seed);
        match Running::start(number, self.starts, seed, machine, &self.network, &self.world.seen).await {
            Ok(running) => {
                self.world.up.lock().unwrap().insert(number, running.up.clone());
                self.running.insert(number, running);
            }
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }

    async fn crash(&mut self, number: u16) {
        self.world.up.lock().unwrap().remove(&number);
        let Some(running) = self.running.remove(&number) else { return };
        let loss = if self.random.one_in(3) { Loss::Process } else { Loss::Power };
        running.kill(&self.network, &self.machines[&number].disk, loss).await;
    }

    /// Nodes that were sent another one's state start again by themselves.
    async fn start_replaced(&mut self) {
        let replaced = |(_, running): &(&u16, &Running)| *running.replaced.borrow();
        let numbers: Vec<u16> = self.running.iter().filter(replaced).map(|(number, _)| *number).collect();
        for number in numbers {
            self.replaced += 1;
            self.crash(number).await;
            self.start(number).await;
        }
    }

    async fn round(&mut self) {
        let any = 1 + self.random.below(u64::from(NODES)) as u16;
        match self.random.below(20) {
            0 | 1 => self.crash(any).await,
            2 if self.random.one_in(4) => {
                for number in 1..=NODES {
                    self.crash(number).await;
                }
            }
            3..=6 => {
                let down: Vec<u16> = (1..=NODES).filter(|node| !self.running.contains_key(node)).collect();
                if let Some(number) = down.first() {
                    self.start(*number).await;
                }
            }
            7 => {
                let (from, to) = (u64::from(any), 1 + self.random.below(u64::from(NODES)));
                self.network.cut(from, to);
                if self.random.one_in(2) {
                    self.network.cut(to, from);
                }
            }
            8 | 9 => self.network.heal(),
            10 => {
                let most = 500 + self.random.below(30_000);
                let (losses, repetitions) = (self.random.below(60), self.random.below(60));
                self.network.set_weather(Weather { delay_us: (50, most), losses, repetitions });
            }
            11..=13 => {
                if let Some(running) = self.running.get(&any) {
                    running.checkpoint().await;
                }
            }
            14 => self.renew(any).await,
            15 | 16 => self.machines[&any].slow_down(&mut self.random),
            17 => self.machines[&any].stand_still(&mut self.random),
            18 => self.machines[&any].jump(&mut self.random),
            _ => {}
        }
        self.start_replaced().await;
        self.add_again().await;
        tokio::time::sleep(Duration::from_millis(self.random.below(500))).await;
    }

    /// Waits until clients have their answers or have given up, nothing is on its way any more, and
    /// every node has what the others have.
    async fn level(&mut self, clients: &[JoinHandle<()>]) {
        let healed = Instant::now();
        let mut ended: Option<Instant> = None;
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.start_replaced().await;
            let applied: Vec<u64> =
                self.running.values().map(|running| running.up.engine.applied()).collect();
            let is_level = applied.windows(2).all(|pair| pair[0] == pair[1]);
            if clients.iter().all(JoinHandle::is_finished) || healed.elapsed() >= CLIENTS_END {
                let since_ended = ended.get_or_insert_with(Instant::now).elapsed();
                if is_level && since_ended >= LAST && healed.elapsed() >= QUIET {
                    return;
                }
            }
            assert!(healed.elapsed() < LEVEL, "seed {}: a node stays behind: {applied:?}", self.seed);
        }
    }

    /// Lets everything heal, and looks at what is there.
    async fn calm(mut self, clients: &[JoinHandle<()>]) -> Counts {
        *self.world.is_over.lock().unwrap() = true;
        self.network.heal();
        self.network.set_weather(Weather::fair());
        self.machines.values().for_each(Machine::recover);
        for number in 1..=NODES {
            if !self.running.contains_key(&number) {
                self.start(number).await;
            }
        }
        self.gather().await;
        self.level(clients).await;
        let engine = |number: u16| self.running[&number].up.engine.clone();
        for info in engine(1).prepared() {
            let cognate_engine::Owner::Global(identifier) = info.owner else { continue };
            let id: usize = identifier.trim_start_matches('p').parse().unwrap();
            let decision = {
                let history = self.world.history.lock().unwrap();
                history.deeds.iter().find(|deed| deed.id == id).and_then(|deed| deed.decision)
            };
            let commits = decision.unwrap_or(false);
            engine(2).decide_prepared_in_order(&identifier, commits, None).await.unwrap();
        }
        for family in engine(1).in_doubt() {
            let last = *family.instances.last().unwrap();
            engine(2).commit_instance_in_order(&family.xid, last).await.unwrap();
        }
        let mut last = engine(3).begin(Isolation::Serializable, Access::ReadWrite);
        last.put(TREE, b"last", Value::new()).unwrap();
        let last = last.commit_in_order().await.unwrap().csn;
        let (seed, finally) = (self.seed, self.agreed(last).await);
        let next = next_block(&engine(1).begin(Isolation::Snapshot, Access::ReadWrite)).unwrap();
        let last = self.world.blocks.lock().unwrap().last().copied();
        assert!(
            last.is_none_or(|last| last < next),
            "seed {seed}: block {last:?} was taken, and {next} is next"
        );
        let mut history = std::mem::take(&mut *self.world.history.lock().unwrap());
        for deed in &mut history.deeds {
            deed.read.extend(self.world.seen.lock().unwrap().get(&deed.transaction).into_iter().flatten());
        }
        let outcome = |deed: &Deed| Some((deed.id, engine(2).outcome(deed.transaction)?));
        let outcomes: HashMap<usize, (u64, bool)> = history.deeds.iter().filter_map(outcome).collect();
        history.check(&finally, &outcomes, self.world.is_of_snapshots);
        let committed = outcomes.values().filter(|(_, committed)| *committed).count();
        let is_defined = |deed: &&Deed| {
            deed.protocol == "definition" && outcomes.get(&deed.id).is_some_and(|(_, committed)| *committed)
        };
        let defined = history.deeds.iter().filter(is_defined).count();
        for (number, running) in std::mem::take(&mut self.running) {
            running.kill(&self.network, &self.machines[&number].disk, Loss::Process).await;
        }
        Counts {
            committed,
            defined,
            blocks: self.world.blocks.lock().unwrap().len(),
            others: history.deeds.len() - committed,
            replaced: self.replaced,
            renewed: self.renewed,
        }
    }
}

fn run(seed: u64, rounds: u64) -> Counts {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut storm = Storm::new(seed);
        for number in 1..=NODES {
            storm.start(number).await;
        }
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let random = SplitMix::new(seed.wrapping_mul(1000) + number as u64);
                tokio::spawn(client(Arc::clone(&storm.world), random))
            })
            .collect();
        for _ in 0..rounds {
            storm.round().await;
        }
        let end = async {
            let counts = storm.calm(&clients).await;
            for client in clients {
                client.await.expect("a client ends");
            }
            counts
        };
        tokio::time::timeout(END, end).await.unwrap_or_else(|_| panic!("seed {seed}: it does not end"))
    })
}

#[test]
fn storms_pass_and_one_copy_is_left() {
    let seeds = std::env::var("COGNATE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(10);
    let first = std::env::var("COGNATE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let (next, totals) = (AtomicU64::new(first), Mutex::new(Counts::default()));
    let storms = || loop {
        let seed = next.fetch_add(1, Ordering::SeqCst);
        if seed >= first + seeds {
            return;
        }
        println!("seed {seed}");
        let Counts { committed, defined, blocks, others, replaced, renewed } = run(seed, 60);
        println!(
            "seed {seed}: {committed} committed, {others} did not, {replaced} states were sent, {renewed} \
             came back with nothing"
        );
        let mut totals = totals.lock().unwrap();
        totals.committed += committed;
        totals.defined += defined;
        totals.blocks += blocks;
        totals.others += others;
        totals.replaced += replaced;
        totals.renewed += renewed;
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(storms))));
    let totals = totals.into_inner().unwrap();
    println!("{totals:?}");
    assert!(totals.committed > 10 * seeds as usize, "so little was done: {totals:?}");
    assert!(totals.defined > 0 && totals.blocks > 0 || seeds < 10, "nothing was defined: {totals:?}");
    assert!(totals.renewed > 0 || seeds < 10, "nobody came back with nothing: {totals:?}");
}
