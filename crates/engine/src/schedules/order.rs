//! Two nodes that follow one order, each with a client and an applier of its own: what is delivered
//! comes between any two steps of a transaction, and between those of its end.
//!
//! Below SERIALIZABLE nothing but locks keeps what was read as it was. So who holds one must be
//! either struck by what is delivered, or refused for it, at every moment until the transaction is
//! sealed and after it.

use std::sync::Arc;

use bytes::Bytes;
use cognate_env::sim::SimDisk;
use shuttle::future::block_on;
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;

use super::explore;
use crate::{
    Access, Database, Error, Isolation, LockMode, Node, Options, Progress, Replication, TotalOrder,
    Transaction, TreeId, Value, WaitPolicy,
};

const TREE: TreeId = 1000;
const NODES: u16 = 2;
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

/// Delivers what there is until nothing more will come.
fn apply(node: &Database, order: &Order) {
    while let Some(request) = order.behind(node.delivered()) {
        match node.deliver(node.delivered() + 1, &request).unwrap() {
            Progress::Decided(_) => {}
            other => panic!("nothing here takes turns: {other:?}"),
        }
    }
}

fn write(t: &mut Transaction, key: &[u8], number: u64) -> Result<(), Error> {
    t.put(TREE, key, Value::copy_from_slice(&number.to_be_bytes()))
}

fn number(value: Option<Value>) -> u64 {
    value.map_or(0, |bytes| u64::from_be_bytes(bytes[..].try_into().unwrap()))
}

/// Runs `client` at each node, with its number, a few times. Who is refused has done nothing. Answers
/// how many have committed, and what the keys are at the end at every node.
fn run(
    client: impl Fn(&mut Transaction, u16) -> Result<(), Error> + Send + Sync + Copy + 'static,
) -> (u64, [u64; 2]) {
    let order = Arc::<Order>::default();
    let nodes: Vec<Database> = (1..=NODES).map(|number| open(number, &order)).collect();
    let appliers: Vec<_> = nodes
        .iter()
        .map(|node| {
            let (node, order) = (node.clone(), Arc::clone(&order));
            thread::spawn(move || apply(&node, &order))
        })
        .collect();
    let clients: Vec<_> = (1..=NODES)
        .zip(&nodes)
        .map(|(number, node)| {
            let node = node.clone();
            thread::spawn(move || {
                let mut committed = 0;
                for _ in 0..TIMES {
                    let mut t = node.begin(Isolation::ReadCommitted, Access::ReadWrite);
                    let done = client(&mut t, number);
                    let ended = done.and_then(|()| block_on(t.commit_by(Replication::Certification)));
                    match ended {
                        Ok(_) => committed += 1,
                        Err(error) if error.is_retryable() => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                committed
            })
        })
        .collect();
    let committed = clients.into_iter().map(|client| client.join().unwrap()).sum();
    order.end();
    appliers.into_iter().for_each(|applier| applier.join().unwrap());
    let finally = nodes.iter().map(|node| {
        let t = node.begin(Isolation::Snapshot, Access::ReadWrite);
        [b"a", b"b"].map(|key| number(t.get(TREE, key).unwrap()))
    });
    let finally: Vec<[u64; 2]> = finally.collect();
    assert_eq!(finally[0], finally[1], "two nodes have two states");
    nodes.into_iter().for_each(|node| node.close().unwrap());
    (committed, finally[0])
}

/// A row that is counted up at two nodes at READ COMMITTED: under its lock, from the latest value.
#[test]
fn no_count_is_lost() {
    explore("counts at two nodes", 400, |_| {
        let (committed, [count, _]) = run(|t, _| {
            block_on(t.lock(TREE, b"a", LockMode::NoKeyExclusive, WaitPolicy::Block))?;
            let latest = number(t.get_latest(TREE, b"a")?.value);
            write(t, b"a", latest + 1)
        });
        assert_eq!(count, committed, "a count was lost");
    });
}

/// What is only locked keeps its value, too: whoever writes a child has found its parent, and whoever
/// takes the parent away has found no child.
#[test]
fn no_reference_is_left_behind() {
    explore("references at two nodes", 400, |_| {
        let (_, [parent_is_gone, child]) = run(|t, node| {
            let mode = if node == 1 { LockMode::Exclusive } else { LockMode::KeyShared };
            block_on(t.lock(TREE, b"a", mode, WaitPolicy::Block))?;
            match node {
                1 if number(t.get_latest(TREE, b"b")?.value) == 0 => write(t, b"a", 1),
                2 if number(t.get_latest(TREE, b"a")?.value) == 0 => write(t, b"b", 1),
                _ => Ok(()),
            }
        });
        assert!(parent_is_gone == 0 || child == 0, "a child without its parent");
    });
}
