//! All small histories at REPEATABLE READ, by every mixture of protocols: one copy under snapshot
//! isolation must explain them. Everybody who commits has read what had committed at its snapshot,
//! and nothing else, and of two that have written one row, the later one has seen the earlier one.
//!
//! Three transactions, each at a node of its own, read both rows and write one of them or both.
//! Nobody judges reads at this level, so who reads everything stands for whoever reads less.

use bytes::Bytes;
use cognate_engine::{Isolation, Replication, TransactionId};
#[cfg(feature = "planted-faults")]
use cognate_engine::{Planted, plant};

use super::cluster::{Cluster, Commitment, Reads, key_of, program, put, writer_of};
use super::cluster_prepared::{decide, prepare};

const SNAPSHOT: Isolation = Isolation::Snapshot;
/// What a transaction may write of two rows.
const WRITES: [&[usize]; 3] = [&[0], &[1], &[0, 1]];
/// How many of the others each of three has seen, who come into the order as they stand here.
const SEEN: [[usize; 3]; 6] = [[0, 0, 0], [0, 0, 1], [0, 0, 2], [0, 1, 0], [0, 1, 1], [0, 1, 2]];

/// How a transaction comes to the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Certified,
    Voter,
    Active,
    Prepared,
}

const KINDS: [Kind; 4] = [Kind::Certified, Kind::Voter, Kind::Active, Kind::Prepared];

/// A transaction of a history.
#[derive(Debug, Clone, Copy)]
struct Small {
    kind: Kind,
    writes: &'static [usize],
    /// How many of the others it has seen.
    seen: usize,
}

/// One that is on its way.
struct Going {
    id: usize,
    kind: Kind,
    transaction: TransactionId,
    snapshot: u64,
    read: Reads,
    wrote: Vec<usize>,
    commit: Commitment,
}

/// One that has committed.
#[derive(Debug)]
struct Done {
    id: usize,
    snapshot: u64,
    read: Reads,
    wrote: Vec<usize>,
    position: u64,
}

/// Begins a transaction at a node, does what it does, and has it proposed. Nothing if it meets one
/// that is prepared.
fn propose(cluster: &Cluster, node: u16, id: usize, base: usize, small: Small) -> Option<Going> {
    let wrote: Vec<usize> = small.writes.iter().map(|key| base + key).collect();
    let keys = [base, base + 1];
    if small.kind == Kind::Active {
        let engine = cluster.node(node);
        let transaction = engine.program_id();
        let text = program(id, &keys, &wrote);
        let ordered = engine.order_program(transaction, SNAPSHOT, None, &text).unwrap();
        let (commit, read) = (Commitment::on(ordered), Reads::new());
        return Some(Going { id, kind: small.kind, transaction, snapshot: 0, read, wrote, commit });
    }
    let mut t = cluster.begin(node, SNAPSHOT);
    let (transaction, snapshot) = (t.id(), t.snapshot());
    let read: Reads = keys.iter().map(|key| (*key, writer_of(&t, *key))).collect();
    if wrote.iter().any(|key| put(&mut t, &key_of(*key), &id.to_string()).is_err()) {
        return None;
    }
    let mut commit = match small.kind {
        Kind::Prepared => prepare(t, &format!("p{id}")),
        Kind::Voter => Commitment::by(t, Replication::WeakVoting),
        Kind::Certified | Kind::Active => Commitment::by(t, Replication::Certification),
    };
    assert!(commit.poll().is_none(), "nobody has ordered it");
    Some(Going { id, kind: small.kind, transaction, snapshot, read, wrote, commit })
}

/// A history over rows of its own. They are ordered as they stand, and what is prepared commits at
/// the end.
fn history(cluster: &Cluster, base: usize, history: [Small; 3]) {
    let mut sealed: [Option<Bytes>; 3] = Default::default();
    let (mut going, mut ordered) = (Vec::new(), 0);
    let order_upto = |sealed: &mut [Option<Bytes>], ordered: &mut usize, upto: usize| {
        let requests = sealed[*ordered..upto].iter_mut().filter_map(Option::take);
        cluster.order.ordered.lock().unwrap().extend(requests);
        *ordered = upto;
        cluster.settle();
    };
    // Who sees more begins later.
    let mut turns: [usize; 3] = [0, 1, 2];
    turns.sort_by_key(|at| history[*at].seen);
    for at in turns {
        if history[at].seen > ordered {
            order_upto(&mut sealed, &mut ordered, history[at].seen);
        }
        let one = propose(cluster, at as u16 + 1, base + at + 1, base, history[at]);
        sealed[at] = cluster.order.proposed.lock().unwrap().pop();
        assert_eq!(one.is_some(), sealed[at].is_some());
        assert!(cluster.order.proposed.lock().unwrap().is_empty(), "nobody votes at this level");
        going.extend(one);
    }
    order_upto(&mut sealed, &mut ordered, history.len());
    let (mut done, mut prepared) = (Vec::new(), Vec::new());
    for mut one in going {
        let Ok(commit) = one.commit.poll().expect("everything is ordered") else { continue };
        let Going { id, kind, transaction, mut snapshot, mut read, wrote, .. } = one;
        match kind {
            Kind::Prepared => {
                prepared.push(Done { id, snapshot, read, wrote, position: 0 });
                continue;
            }
            // It has seen everything before its place.
            Kind::Active => {
                snapshot = commit.csn - 1;
                read.extend(cluster.executed.lock().unwrap()[&transaction].iter().copied());
            }
            Kind::Certified | Kind::Voter => {}
        }
        done.push(Done { id, snapshot, read, wrote, position: commit.csn });
    }
    for one in prepared {
        let mut decided = decide(cluster, 1, &format!("p{}", one.id), true);
        assert!(decided.poll().is_none());
        cluster.settle();
        let position = decided.poll().unwrap().unwrap().csn;
        done.push(Done { position, ..one });
    }
    assert_of_one_copy(&done);
}

fn assert_of_one_copy(done: &[Done]) {
    for one in done {
        for (key, writer) in &one.read {
            let seen = done.iter().filter(|other| {
                other.wrote.contains(key) && other.position <= one.snapshot && other.id != one.id
            });
            let last = seen.max_by_key(|other| other.position).map(|other| other.id);
            assert_eq!(*writer, last, "{} has read something else of {key}: {done:?}", one.id);
        }
        for earlier in done.iter().filter(|other| other.position < one.position) {
            let is_met = earlier.wrote.iter().any(|key| one.wrote.contains(key));
            let has_seen = earlier.position <= one.snapshot;
            assert!(!is_met || has_seen, "{} has replaced what it had not seen: {done:?}", one.id);
        }
    }
}

/// Every mixture of protocols, with every choice of what is written and seen.
fn all_histories() {
    let (mut cluster, mut number) = (Cluster::of(3), 0_usize);
    for choice in 0..(KINDS.len() * WRITES.len()).pow(3) {
        for seen in SEEN {
            number += 1;
            if number.is_multiple_of(500) {
                cluster.assert_equal();
                cluster = Cluster::of(3);
            }
            let small = |at: usize| {
                let choice = choice / (KINDS.len() * WRITES.len()).pow(at as u32);
                let kind = KINDS[choice % KINDS.len()];
                Small { kind, writes: WRITES[choice / KINDS.len() % WRITES.len()], seen: seen[at] }
            };
            history(&cluster, 10 * number, [small(0), small(1), small(2)]);
        }
    }
    cluster.assert_equal();
}

#[test]
fn all_small_histories_are_of_one_copy_under_snapshot_isolation() {
    all_histories();
}

/// The model sees that a change is lost if what was delivered since the snapshot does not count.
#[cfg(feature = "planted-faults")]
#[test]
fn a_lost_change_is_noticed() {
    plant(Some(Planted::LooksAtDelivery));
    let found = std::panic::catch_unwind(all_histories).is_err();
    plant(None);
    assert!(found, "no history has shown it");
}
