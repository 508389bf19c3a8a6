//! Two nodes that follow one order, each with a client and an applier of its own: what is delivered
//! comes between any two steps of a transaction, and between those of its end.
//!
//! At SERIALIZABLE the protocols run side by side, and one serial order must explain what was read.
//! Below it nothing but locks keeps what was read as it was. So who holds one must be
//! either struck by what is delivered, or refused for it, at every moment until the transaction is
//! sealed and after it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
// Not the scheduler's: what the tests note is no part of what is explored, and no step.
use std::sync::Mutex as StdMutex;

use bytes::Bytes;
use cognate_env::SplitMix;
use cognate_env::sim::SimDisk;
use shuttle::future::block_on;
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;

use super::explore;
use super::history::{Content, Done, History, K};
use crate::{
    Access, Database, Error, Executed, Execution, Isolation, LockMode, Node, Options, Progress, Replication,
    TotalOrder, Transaction, TransactionId, TreeId, Value, WaitPolicy,
};

const TREE: TreeId = 1000;
const NODES: u16 = 2;
/// Keys that random transactions are about.
const KEYS: u64 = 3;
/// How often a client begins a transaction.
const TIMES: usize = 2;

/// The order: what is proposed has its place at once.
#[derive(Default)]
struct Order {
    state: Mutex<Ordered>,
    changed: Condvar,
}

#[derive(Default)]
struct Ordered {
    requests: Vec<Bytes>,
    is_over: bool,
}

impl Order {
    /// The request behind `position`, unless there will be none.
    fn behind(&self, position: u64) -> Option<Bytes> {
        let state = self.state.lock().unwrap();
        let waits = |state: &mut Ordered| state.requests.len() as u64 <= position && !state.is_over;
        let state = self.changed.wait_while(state, waits).unwrap();
        state.requests.get(position as usize).cloned()
    }

    fn end(&self) {
        self.state.lock().unwrap().is_over = true;
        self.changed.notify_all();
    }
}

struct Proposals(Arc<Order>);

impl TotalOrder for Proposals {
    fn propose(&self, request: Bytes) {
        self.0.state.lock().unwrap().requests.push(request);
        self.0.changed.notify_all();
    }

    fn request_bytes_max(&self) -> u64 {
        1 << 20
    }

    fn wait_synced(&self, _position: u64) -> bool {
        true
    }
}

fn open(number: u16, order: &Arc<Order>) -> Database {
    let mut options = Options::new("data").memory(64 << 20);
    options.disk = SimDisk::new(u64::from(number)).handle();
    options.node = Some(Node { number, start: 1, order: Arc::new(Proposals(Arc::clone(order))) });
    Database::open(options).unwrap()
}

/// What programs have read, whichever node has executed them first.
type Seen = Arc<StdMutex<HashMap<TransactionId, Vec<(K, Content)>>>>;

/// Delivers what there is until nothing more will come.
fn apply(node: &Database, order: &Order, seen: &Seen) {
    while let Some(request) = order.behind(node.delivered()) {
        let mut progress = node.deliver(node.delivered() + 1, &request).unwrap();
        while let Progress::Execute(execution) = progress {
            progress = node.finish(execute(*execution, seen)).unwrap();
        }
    }
}

/// Does what a program says ([`Program::encode`]).
fn execute(execution: Execution, seen: &Seen) -> Executed {
    let Execution { id, program, mut transaction, .. } = execution;
    let (attempt, keys) = program.split_first_chunk::<8>().unwrap();
    let (reads, writes) = keys[1..].split_at(keys[0].into());
    let found: Vec<(K, Content)> =
        reads.iter().map(|key| (*key, content(transaction.get(TREE, &[*key]).unwrap()))).collect();
    for key in writes {
        transaction.put(TREE, &[*key], Value::copy_from_slice(attempt)).unwrap();
    }
    let before = seen.lock().unwrap().insert(id, found.clone());
    assert!(before.is_none_or(|before| before == found), "two nodes have read different things");
    Executed { transaction, trees: vec![TREE], commits: true }
}

fn content(value: Option<Value>) -> Content {
    value.map(|bytes| u64::from_be_bytes(bytes[..].try_into().unwrap()))
}

/// Runs `client` at each node, in a thread of its own beside an applier, and then `finally` at
/// each.
fn run<T: Send + 'static>(
    client: impl Fn(Database, u16, Seen) -> T + Send + Sync + Clone + 'static,
    finally: impl Fn(&Transaction) -> u64,
) -> (Vec<T>, u64) {
    let (order, seen) = (Arc::<Order>::default(), Seen::default());
    let nodes: Vec<Database> = (1..=NODES).map(|number| open(number, &order)).collect();
    let appliers: Vec<_> = nodes
        .iter()
        .map(|node| {
            let (node, order, seen) = (node.clone(), Arc::clone(&order), Arc::clone(&seen));
            thread::spawn(move || apply(&node, &order, &seen))
        })
        .collect();
    let clients: Vec<_> = (1..=NODES)
        .zip(&nodes)
        .map(|(number, node)| {
            let (client, node, seen) = (client.clone(), node.clone(), Arc::clone(&seen));
            thread::spawn(move || client(node, number, seen))
        })
        .collect();
    let results = clients.into_iter().map(|client| client.join().unwrap()).collect();
    order.end();
    appliers.into_iter().for_each(|applier| applier.join().unwrap());
    // A vote may have come when the other node's applier had ended.
    nodes.iter().for_each(|node| apply(node, &order, &seen));
    let ends = nodes.iter().map(|node| finally(&node.begin(Isolation::Snapshot, Access::ReadWrite)));
    let ends: Vec<u64> = ends.collect();
    assert_eq!(ends[0], ends[1], "two nodes have two states");
    assert_eq!(nodes[0].digest(), nodes[1].digest(), "two nodes have two histories");
    nodes.into_iter().for_each(|node| node.close().unwrap());
    (results, ends[0])
}

/// A few transactions at READ COMMITTED; how many have committed.
fn repeat(node: &Database, step: impl Fn(&mut Transaction) -> Result<(), Error>) -> u64 {
    let mut committed = 0;
    for _ in 0..TIMES {
        let mut t = node.begin(Isolation::ReadCommitted, Access::ReadWrite);
        let done = step(&mut t);
        match done.and_then(|()| block_on(t.commit_by(Replication::Certification))) {
            Ok(_) => committed += 1,
            Err(error) if error.is_retryable() => {}
            Err(error) => panic!("{error}"),
        }
    }
    committed
}

fn number(value: Option<Value>) -> u64 {
    content(value).unwrap_or(0)
}

fn write(t: &mut Transaction, key: &[u8], number: u64) -> Result<(), Error> {
    t.put(TREE, key, Value::copy_from_slice(&number.to_be_bytes()))
}

/// A row that is counted up at two nodes at READ COMMITTED: under its lock, from the latest value.
#[test]
fn no_count_is_lost() {
    explore("counts at two nodes", 400, |_| {
        let client = |node: Database, _, _| {
            repeat(&node, |t| {
                block_on(t.lock(TREE, b"a", LockMode::NoKeyExclusive, WaitPolicy::Block))?;
                let latest = number(t.get_latest(TREE, b"a")?.value);
                write(t, b"a", latest + 1)
            })
        };
        let (committed, count) = run(client, |t| number(t.get(TREE, b"a").unwrap()));
        assert_eq!(count, committed.iter().sum::<u64>(), "a count was lost");
    });
}

/// What is only locked keeps its value, too: whoever writes a child has found its parent, and
/// whoever takes the parent away has found no child.
#[test]
fn no_reference_is_left_behind() {
    explore("references at two nodes", 400, |_| {
        let client = |node: Database, number_of_node: u16, _| {
            repeat(&node, |t| {
                let takes = number_of_node == 1;
                let mode = if takes { LockMode::Exclusive } else { LockMode::KeyShared };
                block_on(t.lock(TREE, b"parent is gone", mode, WaitPolicy::Block))?;
                // What decides, and what is written then.
                let (other, own) = match takes {
                    true => (&b"child"[..], &b"parent is gone"[..]),
                    false => (&b"parent is gone"[..], &b"child"[..]),
                };
                match number(t.get_latest(TREE, other)?.value) {
                    0 => write(t, own, 1),
                    _ => Ok(()),
                }
            })
        };
        let both = |t: &Transaction| {
            let there = |key: &[u8]| number(t.get(TREE, key).unwrap());
            there(b"parent is gone") + there(b"child")
        };
        let (_, found) = run(client, both);
        assert!(found < 2, "a child without its parent");
    });
}

/// What a transaction reads, and then writes.
#[derive(Debug, Clone)]
struct Program {
    protocol: Option<Replication>,
    reads: Vec<K>,
    writes: Vec<K>,
}

impl Program {
    fn random(random: &mut SplitMix) -> Program {
        let mut some = |most: u64| -> Vec<K> {
            let count = random.below(most + 1);
            let keys: BTreeSet<K> = (0..count).map(|_| random.below(KEYS) as K).collect();
            keys.into_iter().collect()
        };
        let (reads, writes) = (some(2), some(2));
        let protocols = [None, Some(Replication::Certification), Some(Replication::WeakVoting)];
        Program { protocol: protocols[random.below(3) as usize], reads, writes }
    }

    /// The attempt's number, how many keys it reads, and all keys.
    fn encode(&self, attempt: u64) -> Vec<u8> {
        [&attempt.to_be_bytes()[..], &[self.reads.len() as u8], &self.reads, &self.writes].concat()
    }

    /// Runs it. Who is refused has done nothing.
    fn run(&self, node: &Database, attempt: u64, seen: &Seen) -> Result<Done, Error> {
        let writes = self.writes.iter().map(|key| (*key, Some(attempt))).collect();
        let Some(protocol) = self.protocol else {
            let manager = node.manager();
            let id = manager.transaction_id();
            let program = self.encode(attempt);
            let position = block_on(manager.order_program(id, Isolation::Serializable, None, &program)?)?;
            let reads = seen.lock().unwrap()[&id].clone();
            return Ok(Done {
                attempt,
                snapshot: position - 1,
                commit: Some(position),
                known: 0,
                reads,
                writes,
            });
        };
        let mut t = node.begin(Isolation::Serializable, Access::ReadWrite);
        let mut reads = Vec::new();
        for key in &self.reads {
            reads.push((*key, content(t.get(TREE, &[*key])?)));
        }
        for key in &self.writes {
            block_on(t.lock(TREE, &[*key], LockMode::NoKeyExclusive, WaitPolicy::Block))?;
            t.check_unchanged(TREE, &[*key])?;
            write(&mut t, &[*key], attempt)?;
        }
        let snapshot = t.snapshot();
        let commit = block_on(t.commit_by(protocol))?;
        let commit = (!self.writes.is_empty()).then_some(commit.csn);
        Ok(Done { attempt, snapshot, commit, known: 0, reads, writes })
    }
}

/// The three protocols side by side at two nodes: one serial order explains everything, whatever is
/// delivered between two steps.
#[test]
fn protocols_side_by_side_are_serializable() {
    explore("protocols at two nodes", 600, |random| {
        let mut programs = || (0..TIMES).map(|_| Program::random(random)).collect::<Vec<Program>>();
        let programs = Arc::new([programs(), programs()]);
        let client = move |node: Database, number: u16, seen: Seen| {
            let mut done = Vec::new();
            for (at, program) in programs[usize::from(number) - 1].iter().enumerate() {
                match program.run(&node, u64::from(number) * 100 + at as u64, &seen) {
                    Ok(one) => done.push(one),
                    Err(error) if error.is_retryable() => {}
                    Err(error) => panic!("{error}"),
                }
            }
            done
        };
        let (done, _) = run(client, |t| (0..KEYS as K).map(|key| number(t.get(TREE, &[key]).unwrap())).sum());
        let history = History { done: done.concat(), moves: 0 };
        history.judge_reads(false).unwrap_or_else(|wrong| panic!("{wrong}"));
    });
}
