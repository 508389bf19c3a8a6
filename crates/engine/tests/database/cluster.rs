//! Several databases that follow one order, in one process: what each delivers, and when, is in the
//! tests' hands.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use cognate_engine::{
    Access, Commit, Database, Error, Executed, Execution, Incoming, Isolation, LockMode, LockOutcome, Node,
    Options, Progress, Replication, TotalOrder, Transaction, TransactionId, WaitPolicy, node_of,
};
use cognate_env::sim::{Loss, SimDisk};
use cognate_env::{Clock, SplitMix};

use super::support::{Seed, all, block_on, seeds, value};

pub(super) const ROW: LockMode = LockMode::NoKeyExclusive;
pub(super) const TREE: u32 = 1007;
const FOLDER: &str = "/node";

/// Requests that were proposed and are not ordered yet, with their origins, and the order.
#[derive(Default)]
pub(super) struct Order {
    pub(super) proposed: Mutex<Vec<Bytes>>,
    pub(super) ordered: Mutex<Vec<Bytes>>,
}

struct Proposals(Arc<Order>);

impl TotalOrder for Proposals {
    fn propose(&self, request: Bytes) {
        self.0.proposed.lock().unwrap().push(request);
    }

    fn request_bytes_max(&self) -> u64 {
        1 << 20
    }

    fn wait_synced(&self, _position: u64) -> bool {
        true
    }
}

/// Nodes numbered from 1 on.
pub(super) struct Cluster {
    pub(super) order: Arc<Order>,
    pub(super) nodes: Vec<Database>,
    disks: Vec<SimDisk>,
    starts: u32,
    /// The memory budget of each node.
    memory_bytes: u64,
    /// Clocks that nodes have from their next start on, if not the machine's.
    pub(super) clocks: HashMap<u16, Arc<dyn Clock>>,
    /// What the programs that were executed have read.
    pub(super) executed: Mutex<HashMap<TransactionId, Reads>>,
}

/// Keys, and who had written what was read of them.
pub(super) type Reads = Vec<(usize, Option<usize>)>;

pub(super) fn key_of(number: usize) -> String {
    format!("k{number}")
}

/// The writer of what a transaction sees.
pub(super) fn writer_of(t: &Transaction, number: usize) -> Option<usize> {
    get(t, &key_of(number)).map(|text| text.parse().unwrap())
}

/// A program that reads keys and then writes its number to others.
pub(super) fn program(id: usize, reads: &[usize], writes: &[usize]) -> Vec<u8> {
    let list = |keys: &[usize]| keys.iter().map(usize::to_string).collect::<Vec<String>>().join(",");
    format!("{id} {} {}", list(reads), list(writes)).into_bytes()
}

impl Cluster {
    pub(super) fn of(count: u16) -> Cluster {
        Cluster::with_memory(count, Options::new(FOLDER).memory_bytes)
    }

    pub(super) fn with_memory(count: u16, memory_bytes: u64) -> Cluster {
        let mut cluster = Cluster {
            order: Arc::default(),
            nodes: Vec::new(),
            disks: Vec::new(),
            starts: 1,
            memory_bytes,
            clocks: HashMap::new(),
            executed: Mutex::default(),
        };
        for number in 1..=count {
            cluster.disks.push(SimDisk::new(u64::from(number)));
            let node = cluster.open(number).unwrap();
            cluster.nodes.push(node);
        }
        cluster
    }

    pub(super) fn disk(&self, number: u16) -> &SimDisk {
        &self.disks[usize::from(number) - 1]
    }

    pub(super) fn open(&self, number: u16) -> Result<Database, Error> {
        let mut options = Options::new(FOLDER).memory(self.memory_bytes);
        let order = Arc::new(Proposals(Arc::clone(&self.order)));
        options.disk = self.disk(number).handle();
        if let Some(clock) = self.clocks.get(&number) {
            options.clock = Arc::clone(clock);
        }
        options.node = Some(Node { number, start: self.starts, order });
        Database::open(options)
    }

    pub(super) fn node(&self, number: u16) -> &Database {
        &self.nodes[usize::from(number) - 1]
    }

    /// Stops a node, as planned or by a power failure, and starts it again, also if the power fails
    /// meanwhile. Says where it begins.
    pub(super) fn start_again(&mut self, number: u16, is_planned: bool) -> u64 {
        let place = usize::from(number) - 1;
        let before = self.nodes.remove(place);
        if is_planned {
            before.close().unwrap();
        }
        drop(before);
        let again = loop {
            if !is_planned || self.disk(number).is_off() {
                self.disk(number).restart(Loss::Power);
            }
            self.starts += 1;
            match self.open(number) {
                Ok(again) => break again,
                Err(error) => assert!(self.disk(number).is_off(), "{error}"),
            }
        };
        let begins = again.applied();
        assert_eq!(begins, again.starts_at());
        self.nodes.insert(place, again);
        begins
    }

    /// Gives a node the state of another one, unless its power fails. Says whether it begins there.
    pub(super) fn transfer(&mut self, from: u16, to: u16, chunk: usize) -> bool {
        self.node(from).checkpoint().unwrap();
        let Ok(mut outgoing) = self.node(from).outgoing() else {
            self.start_again(to, false);
            return false;
        };
        let disk = self.disk(to).handle();
        let take = || {
            let mut incoming = Incoming::begin(disk, FOLDER.as_ref())?;
            // What comes after it began is not in it, nor does it matter.
            self.node(from).checkpoint()?;
            while let Some(bytes) = outgoing.next(chunk)? {
                incoming.put(bytes)?;
            }
            incoming.finish()
        };
        let taken = take();
        let begins = self.start_again(to, false);
        match taken {
            Ok(()) => assert_eq!(begins, outgoing.position()),
            Err(error) => assert!(matches!(error, Error::Io { .. }), "{error}"),
        }
        begins == outgoing.position()
    }

    /// Gives one of the proposed requests the next position.
    pub(super) fn order_one(&self, which: usize) {
        let request = self.order.proposed.lock().unwrap().remove(which);
        self.order.ordered.lock().unwrap().push(request);
    }

    /// Lets a node deliver its next position. False if there is none.
    pub(super) fn deliver(&self, number: u16) -> bool {
        let position = self.node(number).delivered() as usize;
        let request = self.order.ordered.lock().unwrap().get(position).cloned();
        let Some(request) = request else { return false };
        // Some nodes decide what is light by the way, as a thread does that has other work, too.
        if number.is_multiple_of(2) && self.node(number).deliver_light(position as u64 + 1, &request).unwrap()
        {
            return true;
        }
        let mut progress = self.node(number).deliver(position as u64 + 1, &request).unwrap();
        while let Progress::Execute(execution) = progress {
            progress = self.node(number).finish(self.execute(*execution)).unwrap();
        }
        true
    }

    /// Does what a program says; its number 0 says that it fails.
    fn execute(&self, execution: Execution) -> Executed {
        let Execution { id, program, mut transaction, .. } = execution;
        let text = String::from_utf8(program.to_vec()).unwrap();
        let mut words = text.split(' ');
        let number: usize = words.next().unwrap().parse().unwrap();
        let mut keys = || -> Vec<usize> {
            words.next().unwrap().split(',').filter_map(|word| word.parse().ok()).collect()
        };
        let (reads, writes) = (keys(), keys());
        let seen: Reads = reads.iter().map(|key| (*key, writer_of(&transaction, *key))).collect();
        let before = self.executed.lock().unwrap().insert(id, seen.clone());
        assert!(before.is_none_or(|before| before == seen), "two nodes have read different things");
        writes.iter().for_each(|key| put(&mut transaction, &key_of(*key), &number.to_string()).unwrap());
        Executed { transaction, trees: vec![TREE], commits: number != 0 }
    }

    /// Orders everything as it was proposed, and delivers it everywhere.
    pub(super) fn settle(&self) {
        loop {
            while !self.order.proposed.lock().unwrap().is_empty() {
                self.order_one(0);
            }
            for number in 1..=self.nodes.len() as u16 {
                while self.deliver(number) {}
            }
            // What is delivered may be voted about.
            if self.order.proposed.lock().unwrap().is_empty() {
                return;
            }
        }
    }

    pub(super) fn begin(&self, number: u16, isolation: Isolation) -> Transaction {
        self.node(number).begin(isolation, Access::ReadWrite)
    }

    /// Ends a node, and starts it again on what it had; it delivers what it is given then.
    pub(super) fn restart(&mut self, number: u16) {
        self.start_again(number, true);
    }

    /// Commits at a node, and lets everybody know.
    pub(super) fn write(&self, number: u16, rows: &[(&str, &str)]) {
        let mut t = self.begin(number, Isolation::Snapshot);
        rows.iter().for_each(|(key, content)| put(&mut t, key, content).unwrap());
        let mut commit = Commitment::of(t);
        assert!(commit.poll().is_none(), "nobody has ordered it");
        self.settle();
        commit.poll().unwrap().unwrap();
    }

    /// The same everywhere: what there is, and what it came from.
    pub(super) fn assert_equal(&self) {
        let contents: Vec<String> =
            (1..=self.nodes.len() as u16).map(|n| all(&self.begin(n, Isolation::Snapshot), TREE)).collect();
        let digests: Vec<_> = self.nodes.iter().map(|node| node.digest().unwrap()).collect();
        assert!(contents.windows(2).all(|pair| pair[0] == pair[1]), "{contents:?}");
        assert!(digests.windows(2).all(|pair| pair[0] == pair[1]), "{digests:?}");
    }
}

/// A commit under way, or whatever else has to be ordered.
pub(super) struct Commitment<T = Commit>(Pin<Box<dyn Future<Output = Result<T, Error>>>>);

impl Commitment {
    pub(super) fn of(t: Transaction) -> Commitment {
        Commitment::on(t.commit_in_order())
    }

    pub(super) fn by(t: Transaction, protocol: Replication) -> Commitment {
        Commitment::on(t.commit_by(protocol))
    }
}

impl<T> Commitment<T> {
    pub(super) fn on(future: impl Future<Output = Result<T, Error>> + 'static) -> Commitment<T> {
        Commitment(Box::pin(future))
    }

    pub(super) fn poll(&mut self) -> Option<Result<T, Error>> {
        match self.0.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        }
    }
}

/// Locks a row, looks whether the snapshot may overwrite it, and writes.
pub(super) fn put(t: &mut Transaction, key: &str, content: &str) -> Result<(), Error> {
    let locked = block_on(t.lock(TREE, key.as_bytes(), ROW, WaitPolicy::NoWait))?;
    assert_eq!(locked, LockOutcome::Granted { waited: false });
    t.check_unchanged(TREE, key.as_bytes())?;
    t.put(TREE, key.as_bytes(), value(content))
}

pub(super) fn get(t: &Transaction, key: &str) -> Option<String> {
    let found = t.get(TREE, key.as_bytes()).unwrap();
    found.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
}

pub(super) fn overtaken_by(error: &Error) -> u16 {
    match error {
        Error::Overtaken { by, .. } => node_of(*by),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_one_node_commits_all_have() {
    let cluster = Cluster::of(3);
    cluster.write(1, &[("a", "1"), ("b", "1")]);
    cluster.write(2, &[("b", "2")]);
    cluster.write(3, &[("c", "3")]);
    assert_eq!(all(&cluster.begin(1, Isolation::Snapshot), TREE), "a=1 b=2 c=3");
    cluster.assert_equal();
}

#[test]
fn of_two_that_were_proposed_the_first_in_the_order_commits() {
    let cluster = Cluster::of(2);
    cluster.write(1, &[("x", "0")]);
    for isolation in [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable] {
        let (mut one, mut two) = (cluster.begin(1, isolation), cluster.begin(2, isolation));
        put(&mut one, "x", "one").unwrap();
        put(&mut two, "x", "two").unwrap();
        let (mut one, mut two) = (Commitment::of(one), Commitment::of(two));
        assert!(one.poll().is_none() && two.poll().is_none());
        cluster.order_one(1);
        cluster.settle();
        two.poll().unwrap().unwrap();
        assert_eq!(overtaken_by(&one.poll().unwrap().unwrap_err()), 2);
        assert_eq!(get(&cluster.begin(1, Isolation::Snapshot), "x").as_deref(), Some("two"));
        cluster.assert_equal();
    }
}

#[test]
fn who_holds_a_lock_against_a_delivered_request_is_struck_in_every_state() {
    let cluster = Cluster::of(2);
    cluster.write(1, &[("x", "0"), ("y", "0")]);
    // One computes, one is about to commit, and one waits for the first one's other lock.
    let mut computes = cluster.begin(1, Isolation::ReadCommitted);
    let mut commits = cluster.begin(1, Isolation::ReadCommitted);
    let mut waits = cluster.begin(1, Isolation::ReadCommitted);
    put(&mut computes, "x", "computes").unwrap();
    put(&mut commits, "y", "commits").unwrap();
    let mut doomed = Box::pin(computes.doomed().unwrap());
    let mut context = Context::from_waker(Waker::noop());
    assert!(doomed.as_mut().poll(&mut context).is_pending());
    put(&mut waits, "z", "waits").unwrap();
    let mut waiting = Box::pin(waits.lock(TREE, b"x", ROW, WaitPolicy::Block));
    assert!(waiting.as_mut().poll(&mut context).is_pending());

    cluster.write(2, &[("x", "2"), ("y", "2"), ("z", "2")]);
    assert!(doomed.as_mut().poll(&mut context).is_ready(), "its session is told, whatever it does");
    assert_eq!(overtaken_by(&computes.put(TREE, b"w", value("")).unwrap_err()), 2);
    let Poll::Ready(waited) = waiting.as_mut().poll(&mut context) else { panic!("it waits on") };
    assert_eq!(overtaken_by(&waited.unwrap_err()), 2);
    let mut commits = Commitment::of(commits);
    assert_eq!(overtaken_by(&commits.poll().unwrap().unwrap_err()), 2);
    drop(waiting);
    drop((computes, waits));
    // Nothing of them is left in the way.
    cluster.write(1, &[("x", "3"), ("y", "3"), ("z", "3")]);
    cluster.assert_equal();
}

#[test]
fn who_waits_for_a_struck_one_goes_on_and_sees_what_was_delivered() {
    let cluster = Cluster::of(2);
    cluster.write(1, &[("x", "0")]);
    let (mut holds, mut waits) =
        (cluster.begin(1, Isolation::ReadCommitted), cluster.begin(1, Isolation::ReadCommitted));
    put(&mut holds, "x", "lost").unwrap();
    let mut context = Context::from_waker(Waker::noop());
    {
        let mut waiting = Box::pin(waits.lock(TREE, b"x", ROW, WaitPolicy::Block));
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        cluster.write(2, &[("x", "2")]);
        assert!(waiting.as_mut().poll(&mut context).is_pending(), "the struck one still has it");
        drop(holds);
        assert!(waiting.as_mut().poll(&mut context).is_ready());
    }
    let latest = waits.get_latest(TREE, b"x").unwrap();
    assert_eq!(latest.value, Some(value("2")));
}

#[test]
fn a_skew_over_two_nodes_is_refused_at_both_alike() {
    let cluster = Cluster::of(2);
    cluster.write(1, &[("x", "50"), ("y", "50")]);
    let (mut one, mut two) =
        (cluster.begin(1, Isolation::Serializable), cluster.begin(2, Isolation::Serializable));
    assert!(get(&one, "x").is_some() && get(&one, "y").is_some());
    assert!(get(&two, "x").is_some() && get(&two, "y").is_some());
    put(&mut one, "x", "-10").unwrap();
    put(&mut two, "y", "-10").unwrap();
    let (mut one, mut two) = (Commitment::of(one), Commitment::of(two));
    assert!(one.poll().is_none() && two.poll().is_none());
    cluster.settle();
    one.poll().unwrap().unwrap();
    assert!(matches!(two.poll().unwrap(), Err(Error::DependencyCycle { .. })));
    cluster.assert_equal();
}

#[test]
fn a_request_that_comes_twice_counts_once() {
    let cluster = Cluster::of(2);
    cluster.write(1, &[("x", "1")]);
    let again = cluster.order.ordered.lock().unwrap()[0].clone();
    cluster.write(2, &[("x", "2")]);
    cluster.order.ordered.lock().unwrap().push(again);
    cluster.settle();
    assert_eq!(get(&cluster.begin(1, Isolation::Snapshot), "x").as_deref(), Some("2"));
    cluster.assert_equal();
}

#[test]
fn a_node_that_starts_again_comes_to_the_same() {
    let mut cluster = Cluster::of(2);
    for round in 0..20 {
        cluster.write(1 + round % 2, &[("x", &round.to_string()), (&format!("k{round}"), "1")]);
        if round == 9 {
            cluster.node(1).checkpoint().unwrap();
        }
    }
    for is_planned in [false, true, true] {
        let begins = cluster.start_again(1, is_planned);
        assert_eq!(begins, if is_planned { cluster.node(2).applied() } else { 10 });
        cluster.settle();
        cluster.assert_equal();
        cluster.write(1, &[("x", "after")]);
        cluster.assert_equal();
    }
}

/// A skew whose first half was delivered before the node stopped: only the image knows of it.
#[test]
fn what_was_read_before_an_image_counts_after_it() {
    let mut cluster = Cluster::of(2);
    cluster.write(1, &[("x", "50"), ("y", "50")]);
    let (mut one, mut two) =
        (cluster.begin(1, Isolation::Serializable), cluster.begin(1, Isolation::Serializable));
    assert!(get(&one, "x").is_some() && get(&one, "y").is_some());
    assert!(get(&two, "x").is_some() && get(&two, "y").is_some());
    put(&mut one, "x", "-10").unwrap();
    put(&mut two, "y", "-10").unwrap();
    let mut one = Commitment::of(one);
    assert!(one.poll().is_none());
    cluster.settle();
    one.poll().unwrap().unwrap();
    assert_eq!(cluster.start_again(2, true), 2);
    let mut two = Commitment::of(two);
    assert!(two.poll().is_none());
    cluster.settle();
    assert!(matches!(two.poll().unwrap(), Err(Error::DependencyCycle { .. })));
    cluster.assert_equal();
}

#[test]
fn a_reader_keeps_no_image_from_counting() {
    let mut cluster = Cluster::of(2);
    cluster.write(1, &[("x", "1")]);
    let reader = cluster.begin(2, Isolation::Snapshot);
    cluster.write(1, &[("x", "2")]);
    cluster.node(2).checkpoint().unwrap();
    assert_eq!(cluster.node(2).starts_at(), 2);
    assert_eq!(get(&reader, "x").as_deref(), Some("1"));
    drop(reader);
    cluster.write(1, &[("x", "3")]);
    assert_eq!(cluster.start_again(2, false), 2);
    cluster.settle();
    assert_eq!(get(&cluster.begin(2, Isolation::Snapshot), "x").as_deref(), Some("3"));
    cluster.assert_equal();
}

#[test]
fn an_incomplete_state_of_another_node_counts_for_nothing() {
    let mut cluster = Cluster::of(2);
    cluster.write(1, &[("x", "1")]);
    cluster.node(1).checkpoint().unwrap();
    let mut outgoing = cluster.node(1).outgoing().unwrap();
    let mut incoming = Incoming::begin(cluster.disk(2).handle(), FOLDER.as_ref()).unwrap();
    let first = outgoing.next(100).unwrap().unwrap();
    incoming.put(first.clone()).unwrap();
    assert!(matches!(incoming.finish(), Err(Error::Undecodable { .. })));
    assert_eq!(cluster.start_again(2, false), 0);
    cluster.settle();
    cluster.assert_equal();
    for (at, byte) in [(0, b'X'), (11, 0xff), (14, b'/')] {
        let mut incoming = Incoming::begin(cluster.disk(2).handle(), FOLDER.as_ref()).unwrap();
        let mut wrong = first.to_vec();
        wrong[at] = byte;
        let put = incoming.put(wrong.into());
        assert!(matches!(put, Err(Error::Undecodable { .. })), "byte {at}: {put:?}");
    }
}

/// Who takes it in would give up what it has for another node's damage.
#[test]
fn a_state_that_has_rotted_is_not_sent() {
    let cluster = Cluster::of(2);
    cluster.write(1, &[("x", "1")]);
    cluster.node(1).checkpoint().unwrap();
    let mut outgoing = cluster.node(1).outgoing().unwrap();
    let is_run = |path: &std::path::Path| path.extension().is_some_and(|extension| extension == "run");
    let (run, content) = cluster.disk(1).files().into_iter().find(|(path, _)| is_run(path)).unwrap();
    cluster.disk(1).flip(&run, content.len() as u64 / 2, 1);
    let failed = loop {
        match outgoing.next(100) {
            Ok(Some(_)) => {}
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    let Some(Error::Corrupt { file, .. }) = failed else { panic!("{failed:?}") };
    assert_eq!(file, run);
}

/// What was kept of a state that does not fit on the disk gives it back at once: the next one comes
/// later, and the node needs its disk for other things.
#[test]
fn a_state_of_another_node_for_which_there_is_no_space_leaves_nothing() {
    let mut cluster = Cluster::of(2);
    cluster.write(1, &[("x", "1")]);
    cluster.node(1).checkpoint().unwrap();
    let mut outgoing = cluster.node(1).outgoing().unwrap();
    let mut incoming = Incoming::begin(cluster.disk(2).handle(), FOLDER.as_ref()).unwrap();
    let used = cluster.disk(2).used_bytes();
    cluster.disk(2).set_quota(Some(used + 50));
    let mut put = Ok(());
    while put.is_ok() {
        let bytes = outgoing.next(100).unwrap().expect("it does not fit");
        put = incoming.put(bytes);
    }
    assert_eq!(cluster.disk(2).used_bytes(), used, "{put:?}");
    cluster.disk(2).set_quota(None);
    drop(incoming);
    assert!(cluster.transfer(1, 2, 100));
    cluster.settle();
    cluster.assert_equal();
}

/// Whenever the power fails, it is a single database or a node's afterwards, with everything.
#[test]
fn a_database_that_becomes_a_node_is_one_or_the_other_at_any_time() {
    let mut interrupted = 0;
    for operations in 0..60 {
        let cluster = Cluster::of(1);
        let disk = SimDisk::new(operations);
        let mut options = Options::new(FOLDER);
        options.disk = disk.handle();
        let alone = Database::open(options.clone()).unwrap();
        let mut t = alone.begin(Isolation::Snapshot, Access::ReadWrite);
        put(&mut t, "x", "1").unwrap();
        t.commit().unwrap();
        alone.close().unwrap();
        drop(alone);
        disk.power_off_after(operations);
        let found = Database::found_cluster(options.clone());
        interrupted += usize::from(found.is_err());
        disk.restart(Loss::Power);
        options.disk = disk.handle();
        let began = match (found, Database::found_cluster(options.clone())) {
            (Ok(began), Err(_)) | (Err(_), Ok(began)) => Some(began),
            // It had come to its end, and could not say so.
            (Err(_), Err(Error::InvalidArgument(_))) => None,
            other => panic!("after {operations}: {other:?}"),
        };
        let order = Arc::new(Proposals(Arc::clone(&cluster.order)));
        options.node = Some(Node { number: 1, start: 1, order });
        let node = Database::open(options).unwrap();
        assert!(began.is_none_or(|began| node.applied() == began), "after {operations}");
        let t = node.begin(Isolation::Snapshot, Access::ReadWrite);
        assert_eq!(get(&t, "x").as_deref(), Some("1"), "after {operations}");
    }
    assert!(interrupted > 5, "{interrupted} were interrupted");
}

/// A node that has lost its folder, and with it how often it was started, may give a number to a
/// transaction that it has given before. Nobody may take the new one for the old one: its client is
/// told that it was not ordered, and its locks are free.
#[test]
fn who_has_the_number_of_an_earlier_one_is_not_that_one() {
    number_given_twice();
}

pub(super) fn number_given_twice() {
    let mut cluster = Cluster::of(2);
    for number in 0..5 {
        cluster.write(2, &[("x", &number.to_string())]);
    }
    cluster.disks[1] = SimDisk::new(9);
    // As at its first start.
    cluster.starts = 0;
    assert!(cluster.transfer(1, 2, 1000));
    let mut refused = 0;
    loop {
        let mut t = cluster.begin(2, Isolation::Snapshot);
        block_on(t.lock(TREE, b"x", ROW, WaitPolicy::NoWait)).unwrap();
        put(&mut t, "x", "after").unwrap();
        let mut commit = Commitment::of(t);
        assert!(commit.poll().is_none(), "nobody has ordered it");
        cluster.settle();
        match commit.poll().expect("it was delivered") {
            Ok(_) => break,
            Err(error) => assert!(matches!(error, Error::NotOrdered), "{error}"),
        }
        refused += 1;
    }
    let last = get(&cluster.begin(1, Isolation::Snapshot), "x");
    assert_eq!(last.as_deref(), Some("after"), "it was told of another one's commit");
    assert!(refused > 0, "no number was given twice");
    cluster.assert_equal();
}

/// Another state may come before the first one was taken over, and not come to its end.
#[test]
fn a_complete_state_stays_until_another_one_is_complete() {
    let mut cluster = Cluster::of(2);
    let transfer = |cluster: &Cluster, is_whole: bool| {
        cluster.node(1).checkpoint().unwrap();
        let mut outgoing = cluster.node(1).outgoing().unwrap();
        let mut incoming = Incoming::begin(cluster.disk(2).handle(), FOLDER.as_ref()).unwrap();
        while let Some(bytes) = outgoing.next(70).unwrap() {
            incoming.put(bytes).unwrap();
            if !is_whole {
                return outgoing.position();
            }
        }
        incoming.finish().unwrap();
        outgoing.position()
    };
    cluster.write(1, &[("x", "1")]);
    let first = transfer(&cluster, true);
    cluster.write(1, &[("x", "2")]);
    transfer(&cluster, false);
    assert_eq!(cluster.start_again(2, false), first);
    let second = transfer(&cluster, true);
    cluster.write(1, &[("x", "3")]);
    let third = transfer(&cluster, true);
    assert!(first < second && second < third);
    assert_eq!(cluster.start_again(2, false), third);
    cluster.settle();
    cluster.assert_equal();
}

/// What a single database has is what a cluster begins with; neither opens as the other.
#[test]
fn a_single_database_becomes_the_first_node() {
    let mut cluster = Cluster::of(2);
    let disk = SimDisk::new(7);
    let single = || {
        let mut options = Options::new(FOLDER);
        options.disk = disk.handle();
        options
    };
    let alone = Database::open(single()).unwrap();
    for number in 0..10 {
        let mut t = alone.begin(Isolation::Snapshot, Access::ReadWrite);
        put(&mut t, "x", &number.to_string()).unwrap();
        t.commit().unwrap();
    }
    alone.close().unwrap();
    drop(alone);
    cluster.disks[0] = disk.clone();
    cluster.nodes.clear();
    let refused = cluster.open(1);
    assert!(
        matches!(&refused, Err(Error::InvalidArgument(what)) if what.contains("node init")),
        "{refused:?}"
    );
    let began = Database::found_cluster(single()).unwrap();
    assert!(matches!(Database::open(single()), Err(Error::InvalidArgument(_))));
    assert!(matches!(Database::found_cluster(single()), Err(Error::InvalidArgument(_))));
    let empty = vec![Bytes::new(); began as usize];
    cluster.order.ordered.lock().unwrap().extend(empty);
    for number in 1..=2 {
        let node = cluster.open(number).unwrap();
        cluster.nodes.push(node);
    }
    assert_eq!(cluster.node(1).applied(), began);
    // The other one cannot be given what is in no order.
    assert!(cluster.transfer(1, 2, 1000));
    cluster.write(2, &[("y", "2")]);
    cluster.write(1, &[("x", "new")]);
    assert_eq!(all(&cluster.begin(2, Isolation::Snapshot), TREE), "x=new y=2");
    cluster.assert_equal();
}

#[test]
fn a_damaged_image_is_named() {
    let mut cluster = Cluster::of(1);
    cluster.write(1, &[("x", "1")]);
    cluster.nodes.remove(0).close().unwrap();
    let files = cluster.disk(1).files();
    let (file, _) = files.into_iter().find(|(path, _)| path.ends_with("00000000000000000001.image")).unwrap();
    cluster.disk(1).flip(&file, 60, 1);
    let Err(Error::Corrupt { file: named, .. }) = cluster.open(1) else { panic!("it opened") };
    assert_eq!(named, file);
}

/// What a transaction that committed has read and written: versions by their writers.
pub(super) struct Done {
    pub(super) id: usize,
    pub(super) read: Vec<(usize, Option<usize>)>,
    pub(super) wrote: Vec<usize>,
    pub(super) position: u64,
}

const KEYS: usize = 6;

/// Transactions at random nodes, ordered and delivered at random; whoever committed fits into one
/// serial order, whoever was refused for a cycle would have closed one, and all nodes have the
/// same.
#[test]
fn random_histories_over_three_nodes_are_serializable_as_one_copy() {
    let mut totals = Totals::default();
    for seed in seeds(60) {
        let _seed = Seed(seed);
        random_history(seed, 400, &mut totals);
    }
    // Long enough for the graph to be pruned.
    for seed in seeds(2) {
        let _seed = Seed(seed);
        random_history(seed, 3000, &mut totals);
    }
    let Totals { committed, refused, cycles, images, transfers } = totals;
    assert!(committed > 500 && refused > 50, "{committed} committed, {refused} refused");
    assert!(cycles > 10, "{cycles} were refused for a cycle");
    assert!(
        images > 50 && transfers > 50,
        "{images} starts began at an image, {transfers} at another node's"
    );
}

#[derive(Debug, Default)]
pub(super) struct Totals {
    committed: usize,
    refused: usize,
    /// How many of those that were refused would have closed a cycle.
    cycles: usize,
    images: usize,
    transfers: usize,
}

struct Going {
    id: usize,
    commit: Commitment,
    read: Vec<(usize, Option<usize>)>,
    wrote: Vec<usize>,
    transaction: TransactionId,
}

/// Some have a name in common, and some requests come twice.
/// On a fourth node nothing runs but readers: it stops and starts all the time, also with the state
/// of another one.
pub(super) fn random_history(seed: u64, steps: usize, totals: &mut Totals) {
    random_history_of(seed, steps, false, totals);
}

/// The same; `mixed`: by all three protocols.
pub(super) fn random_history_of(seed: u64, steps: usize, mixed: bool, totals: &mut Totals) {
    let mut rng = SplitMix::new(seed);
    let mut pick = |below: usize| rng.below(below as u64) as usize;
    let mut cluster = Cluster::of(4);
    let (mut reader, mut known) = (None, Vec::new());
    let key = key_of;
    let (mut running, mut going): (Vec<(usize, Transaction, SoFar)>, VecDeque<Going>) = Default::default();
    let (mut done, mut refused, mut next) = (Vec::new(), 0, 0);
    let mut cycles: Vec<(TransactionId, Done)> = Vec::new();
    for _ in 0..steps {
        match pick(12) {
            0..=2 if running.len() < 6 => {
                let node = 1 + pick(3) as u16;
                running.push((next, cluster.begin(node, Isolation::Serializable), SoFar::default()));
                next += 1;
            }
            3..=5 if !running.is_empty() => {
                let at = pick(running.len());
                let (id, mut t, mut so_far) = running.swap_remove(at);
                let number = pick(KEYS);
                let step = match pick(3) {
                    0 => put(&mut t, &key(number), &id.to_string()).map(|()| {
                        if !so_far.wrote.contains(&number) {
                            so_far.wrote.push(number);
                        }
                    }),
                    _ if so_far.wrote.contains(&number) => Ok(()),
                    _ => {
                        let found = get(&t, &key(number)).map(|text| text.parse().unwrap());
                        so_far.read.push((number, found));
                        Ok(())
                    }
                };
                match step {
                    Ok(()) => running.push((id, t, so_far)),
                    Err(_) => refused += 1,
                }
            }
            6 if !running.is_empty() => {
                let at = pick(running.len());
                let (id, mut t, SoFar { read, wrote }) = running.swap_remove(at);
                if let Some(name) = name_of(id) {
                    t.name_request(&name);
                }
                let transaction = t.id();
                let protocol = match mixed && pick(2) == 0 {
                    true => Replication::WeakVoting,
                    false => Replication::Certification,
                };
                going.push_back(Going { id, commit: Commitment::by(t, protocol), read, wrote, transaction });
            }
            // A program, whose reads are known once it is executed.
            6 if mixed => {
                let (node, reads) = (1 + pick(3) as u16, vec![pick(KEYS), pick(KEYS)]);
                let wrote = vec![pick(KEYS)];
                let engine = cluster.node(node);
                let transaction = engine.program_id();
                let (text, name) = (program(next, &reads, &wrote), name_of(next));
                let ordered = engine
                    .order_program(transaction, Isolation::Serializable, name.as_deref(), &text)
                    .unwrap();
                let (id, commit) = (next, Commitment::on(ordered));
                going.push_back(Going { id, commit, read: Vec::new(), wrote, transaction });
                next += 1;
            }
            // Somebody has no patience.
            7 if mixed && pick(12) == 0 => {
                let engine = cluster.node(1 + pick(4) as u16);
                if let Some(pause) = engine.lists().pause {
                    engine.vote_against(pause.transaction);
                }
            }
            7 => {
                let proposed = cluster.order.proposed.lock().unwrap().len();
                let mut ordered = cluster.order.ordered.lock().unwrap();
                if pick(8) == 0 && !ordered.is_empty() {
                    let again = ordered[pick(ordered.len())].clone();
                    ordered.push(again);
                }
                drop(ordered);
                if proposed > 0 {
                    cluster.order_one(pick(proposed));
                }
            }
            8 => match pick(6) {
                0 => {
                    reader = None;
                    let is_planned = pick(3) == 0;
                    if !is_planned {
                        cluster.disk(4).power_off_after(pick(40) as u64);
                        // The power may fail in the middle of it.
                        let _ = cluster.node(4).checkpoint();
                    }
                    let begins = cluster.start_again(4, is_planned);
                    totals.images += usize::from(begins > 0);
                }
                1 => cluster.node(4).checkpoint().unwrap(),
                2 => {
                    reader = None;
                    if pick(2) == 0 {
                        cluster.disk(4).power_off_after(pick(40) as u64);
                    }
                    let (from, chunk) = (1 + pick(3) as u16, 1 + pick(4000));
                    totals.transfers += usize::from(cluster.transfer(from, 4, chunk));
                }
                3 => reader = Some(cluster.begin(4, Isolation::Snapshot)),
                _ => reader = None,
            },
            _ => {
                cluster.deliver(1 + pick(4) as u16);
            }
        }
        going.retain_mut(|one| match one.commit.poll() {
            None => true,
            Some(Ok(commit)) => {
                let (mut read, wrote) = (std::mem::take(&mut one.read), std::mem::take(&mut one.wrote));
                read.extend(cluster.executed.lock().unwrap().get(&one.transaction).into_iter().flatten());
                known.push((one.transaction, wrote.is_empty()));
                done.push(Done { id: one.id, read, wrote, position: commit.csn });
                false
            }
            Some(Err(error)) => {
                refused += 1;
                cycles.extend(condemned(one, &error));
                false
            }
        });
    }
    drop((running, reader));
    cluster.settle();
    for mut one in going {
        match one.commit.poll().expect("everything was delivered") {
            Ok(commit) => {
                known.push((one.transaction, one.wrote.is_empty()));
                one.read.extend(cluster.executed.lock().unwrap().get(&one.transaction).into_iter().flatten());
                done.push(Done { id: one.id, read: one.read, wrote: one.wrote, position: commit.csn });
            }
            Err(error) => {
                refused += 1;
                cycles.extend(condemned(&mut one, &error));
            }
        }
    }
    cluster.assert_equal();
    assert_acyclic(&done);
    assert_last(&cluster, &done);
    // Beside those whose reads are not shared some are refused without need.
    if !mixed {
        totals.cycles += cycles.len();
        for (transaction, mut one) in cycles {
            let outcome = cluster.node(1).outcome(transaction);
            one.position = outcome.expect("its verdict is in the order").0;
            assert_needed(&done, &one);
        }
    }
    for (transaction, _) in known.into_iter().filter(|(_, only_reads)| !only_reads) {
        let outcome = cluster.node(1).outcome(transaction);
        assert_eq!(outcome.map(|outcome| outcome.1), Some(true), "{transaction} has committed");
    }
    totals.committed += done.len();
    totals.refused += refused;
}

#[derive(Default)]
struct SoFar {
    read: Vec<(usize, Option<usize>)>,
    wrote: Vec<usize>,
}

/// A transaction of which was said that its commit would close a cycle, as if it had committed; its
/// position is known once all is delivered. None of those that were refused for another reason, or
/// for what the graph only has a summary of.
fn condemned(one: &mut Going, error: &Error) -> Option<(TransactionId, Done)> {
    let Error::DependencyCycle { cycle } = error else { return None };
    let (read, wrote) = (std::mem::take(&mut one.read), std::mem::take(&mut one.wrote));
    let done = Done { id: one.id, read, wrote, position: 0 };
    (!cycle.is_summarized).then_some((one.transaction, done))
}

/// Every fourth transaction has a name in common with the next one.
fn name_of(id: usize) -> Option<String> {
    (id % 4 < 2).then(|| format!("name {}", id / 4))
}

/// Who is seen is who wrote last; and of one name one has committed.
fn assert_last(cluster: &Cluster, done: &[Done]) {
    let t = cluster.begin(1, Isolation::Snapshot);
    for number in 0..KEYS {
        let writers = done.iter().filter(|one| one.wrote.contains(&number));
        let last = writers.max_by_key(|one| one.position).map(|one| one.id.to_string());
        assert_eq!(get(&t, &format!("k{number}")), last, "the last writer of key {number}");
    }
    // Who has only read need not have been ordered.
    let writers = done.iter().filter(|one| !one.wrote.is_empty());
    let mut names: Vec<String> = writers.filter_map(|one| name_of(one.id)).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "two of one name have committed");
}

/// Nobody is in a cycle.
pub(super) fn assert_acyclic(done: &[Done]) {
    let left = in_cycles(&done.iter().collect::<Vec<&Done>>());
    assert!(left.is_empty(), "a cycle among {left:?}");
}

/// Somebody who was refused would have closed a cycle with those that had committed by then.
fn assert_needed(done: &[Done], refused: &Done) {
    let before = done.iter().filter(|one| one.position < refused.position);
    let all: Vec<&Done> = before.chain([refused]).collect();
    let Done { id, read, wrote, position } = refused;
    assert!(
        !in_cycles(&all).is_empty(),
        "{id} was refused at {position} without need: it had read {read:?} and written {wrote:?}"
    );
}

/// Who is in cycles, or behind them. Edges by the definition, from versions: whoever wrote before
/// whoever read or replaced it.
fn in_cycles(done: &[&Done]) -> Vec<usize> {
    let mut versions: BTreeMap<usize, Vec<(u64, usize)>> = BTreeMap::new();
    for one in done {
        one.wrote.iter().for_each(|key| versions.entry(*key).or_default().push((one.position, one.id)));
    }
    versions.values_mut().for_each(|list| list.sort_unstable());
    let mut edges: HashMap<usize, Vec<usize>> = HashMap::new();
    for list in versions.values() {
        list.windows(2).for_each(|pair| edges.entry(pair[0].1).or_default().push(pair[1].1));
    }
    for one in done {
        for (key, writer) in &one.read {
            let list = versions.get(key).map_or(&[][..], |list| list);
            let place =
                writer.map(|writer| list.iter().position(|(_, id)| *id == writer).expect("it committed"));
            if let Some(writer) = writer {
                edges.entry(*writer).or_default().push(one.id);
            }
            let after = place.map_or(0, |place| place + 1);
            if let Some((_, next)) = list.get(after).filter(|(_, next)| *next != one.id) {
                edges.entry(one.id).or_default().push(*next);
            }
        }
    }
    // Taken away one by one, as long as somebody has no edge into it.
    let mut left: Vec<usize> = done.iter().map(|one| one.id).collect();
    loop {
        let into: std::collections::HashSet<usize> =
            left.iter().flat_map(|id| edges.get(id).into_iter().flatten().copied()).collect();
        let before = left.len();
        left.retain(|id| into.contains(id));
        if left.len() == before {
            return left;
        }
    }
}
