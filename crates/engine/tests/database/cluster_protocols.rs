//! Weak voting and active replication beside certification: what each of them promises, and all
//! small histories of them together.

use bytes::Bytes;
use cognate_engine::{Error, Executed, Isolation, Key, Object, Progress, Replication, Transaction, node_of};

use super::cluster::{
    Cluster, Commitment, Done, TREE, Totals, assert_acyclic, get, key_of, overtaken_by, program, put,
    random_history_of, writer_of,
};
use super::cluster_prepared::{decide, prepare};
use super::support::{Seed, all, seeds, value};

const SERIALIZABLE: Isolation = Isolation::Serializable;

/// Reads a key and writes another one at a node, and has that ordered by weak voting.
pub(super) fn voter(cluster: &Cluster, node: u16, reads: &str, writes: &str) -> Commitment {
    let mut t = cluster.begin(node, SERIALIZABLE);
    get(&t, reads);
    put(&mut t, writes, "w").unwrap();
    let mut commit = Commitment::by(t, Replication::WeakVoting);
    assert!(commit.poll().is_none());
    commit
}

pub(super) fn proposed(cluster: &Cluster) -> usize {
    cluster.order.proposed.lock().unwrap().len()
}

pub(super) fn deliver_all(cluster: &Cluster) {
    for node in 1..=cluster.nodes.len() as u16 {
        while cluster.deliver(node) {}
    }
}

#[test]
fn a_voter_commits_where_its_write_set_is_once_its_vote_is_ordered() {
    let cluster = Cluster::of(3);
    cluster.write(1, &[("a", "0"), ("b", "0")]);
    let mut w = voter(&cluster, 2, "a", "b");
    cluster.order_one(0);
    deliver_all(&cluster);
    assert!(w.poll().is_none(), "its origin has voted, and nobody has ordered that");
    assert_eq!(proposed(&cluster), 1);
    let lists = cluster.node(1).lists();
    assert_eq!((lists.log, lists.to_commit, lists.c_pending, lists.w_pending), (1, 1, 1, 0));
    assert_eq!(lists.pause.map(|pause| pause.position), Some(2));
    // Somebody comes behind it, and waits, but for those who have nothing to do with it.
    let mut behind = cluster.begin(3, SERIALIZABLE);
    put(&mut behind, "c", "3").unwrap();
    let mut behind = Commitment::of(behind);
    assert!(behind.poll().is_none());
    cluster.order_one(1);
    deliver_all(&cluster);
    assert!(behind.poll().is_none());
    assert_eq!((cluster.node(3).applied(), cluster.node(3).delivered()), (1, 3));
    assert_eq!(get(&cluster.begin(3, SERIALIZABLE), "c"), None, "what clients see stays in the order");
    cluster.settle();
    assert_eq!(w.poll().unwrap().unwrap().csn, 2);
    assert_eq!(behind.poll().unwrap().unwrap().csn, 3);
    assert_eq!(all(&cluster.begin(1, SERIALIZABLE), TREE), "a=0 b=w c=3");
    cluster.assert_equal();
}

#[test]
fn votes_of_many_go_out_in_one_round() {
    let cluster = Cluster::of(3);
    let mut all: Vec<Commitment> = (0..9)
        .map(|number| voter(&cluster, 1 + number % 3, &format!("r{number}"), &format!("w{number}")))
        .collect();
    (0..9).for_each(|_| cluster.order_one(0));
    deliver_all(&cluster);
    assert_eq!(proposed(&cluster), 9, "nobody waits for anybody else's vote");
    cluster.settle();
    assert!(all.iter_mut().all(|one| one.poll().unwrap().is_ok()));
}

#[test]
fn a_voter_whose_read_was_replaced_is_voted_against() {
    let cluster = Cluster::of(2);
    cluster.write(1, &[("a", "0")]);
    let mut w = voter(&cluster, 1, "a", "b");
    let mut other = writer(&cluster, 2, "a");
    cluster.order_one(1);
    cluster.settle();
    other.poll().unwrap().unwrap();
    assert_replaced(&w.poll().unwrap().unwrap_err(), 2, "a");
    cluster.write(2, &[("b", "free")]);
    cluster.assert_equal();
}

/// Likewise if whoever has replaced it was delivered, and not decided, when the voter was.
#[test]
fn a_voter_is_told_of_who_waited_before_it() {
    let cluster = Cluster::of(3);
    cluster.write(1, &[("a", "0")]);
    let mut first = voter(&cluster, 3, "x", "y");
    let mut other = writer(&cluster, 2, "a");
    let mut w = voter(&cluster, 1, "a", "b");
    (0..3).for_each(|_| cluster.order_one(0));
    deliver_all(&cluster);
    assert!(other.poll().is_none(), "it waits behind the first one");
    cluster.settle();
    first.poll().unwrap().unwrap();
    other.poll().unwrap().unwrap();
    assert_replaced(&w.poll().unwrap().unwrap_err(), 2, "a");
    cluster.assert_equal();
}

/// Writes a key at a node, by certification.
fn writer(cluster: &Cluster, node: u16, writes: &str) -> Commitment {
    let mut t = cluster.begin(node, SERIALIZABLE);
    put(&mut t, writes, "1").unwrap();
    let mut commit = Commitment::of(t);
    assert!(commit.poll().is_none());
    commit
}

/// Whoever is refused is told that a transaction of this node has replaced what he had read.
fn assert_replaced(refused: &Error, node: u16, key: &'static str) {
    let Error::SerializationFailure { read: Some(read), .. } = refused else { panic!("{refused:?}") };
    let object = Some(Object::Key(TREE, Key::from_static(key.as_bytes())));
    assert_eq!((node_of(read.writer), &read.object), (node, &object));
}

/// Who has read nothing but what it writes needs no vote: whoever is in its way wants the same
/// rows.
#[test]
fn nobody_votes_about_who_reads_what_it_writes() {
    for (isolation, reads) in
        [(SERIALIZABLE, "b"), (Isolation::Snapshot, "a"), (Isolation::ReadCommitted, "a")]
    {
        let cluster = Cluster::of(2);
        cluster.write(1, &[("a", "0"), ("b", "0")]);
        let mut t = cluster.begin(1, isolation);
        get(&t, reads);
        put(&mut t, "b", "1").unwrap();
        let mut commit = Commitment::by(t, Replication::WeakVoting);
        assert!(commit.poll().is_none());
        cluster.order_one(0);
        deliver_all(&cluster);
        assert_eq!(proposed(&cluster), 0);
        commit.poll().unwrap().unwrap();
    }
}

/// The origin is lost between write set and vote: whoever waits has the others vote against it. The
/// first vote in the order counts, wherever the second one comes from.
#[test]
fn the_loss_of_the_origin_is_resolved_by_an_ordered_vote() {
    for against_first in [true, false] {
        let cluster = Cluster::of(3);
        cluster.write(1, &[("a", "0"), ("b", "0")]);
        let mut w = voter(&cluster, 1, "a", "b");
        cluster.order_one(0);
        deliver_all(&cluster);
        let pause = cluster.node(2).lists().pause.expect("it waits for a vote");
        cluster.node(2).vote_against(pause.transaction);
        cluster.order_one(usize::from(against_first));
        cluster.settle();
        assert_eq!(w.poll().unwrap().is_err(), against_first);
        assert_eq!(
            get(&cluster.begin(3, SERIALIZABLE), "b").as_deref(),
            Some(if against_first { "0" } else { "w" })
        );
        cluster.write(3, &[("b", "free")]);
        cluster.assert_equal();
    }
}

/// A voter whose name is taken by then is refused at its turn, although it was voted for. Who was
/// in its way only commits, and nobody may have voted for who has read what that replaces.
#[test]
fn who_was_in_the_way_of_a_refused_voter_only_commits() {
    let cluster = Cluster::of(3);
    cluster.write(1, &[("x", "0"), ("y", "0"), ("z", "0")]);
    let named = |node: u16, writes: &str| {
        let mut t = cluster.begin(node, SERIALIZABLE);
        t.name_request("n");
        get(&t, "a");
        put(&mut t, writes, "w").unwrap();
        let mut commit = Commitment::by(t, Replication::WeakVoting);
        assert!(commit.poll().is_none());
        commit
    };
    let (mut first, mut second) = (named(3, "b"), named(2, "x"));
    let mut c = cluster.begin(3, SERIALIZABLE);
    get(&c, "z");
    put(&mut c, "x", "c").unwrap();
    put(&mut c, "y", "c").unwrap();
    let mut c = Commitment::of(c);
    assert!(c.poll().is_none());
    let mut skew = voter(&cluster, 1, "y", "z");
    (0..4).for_each(|_| cluster.order_one(0));
    deliver_all(&cluster);
    assert_eq!(proposed(&cluster), 2, "the votes for the first and for the second one");
    // The second one's comes before the first one's.
    cluster.order_one(0);
    deliver_all(&cluster);
    assert_eq!(proposed(&cluster), 1, "nobody knows yet what becomes of who was in its way");
    cluster.settle();
    first.poll().unwrap().unwrap();
    let refused = second.poll().unwrap().unwrap_err();
    assert!(matches!(refused, Error::RequestKnown { .. }), "{refused:?}");
    c.poll().unwrap().unwrap();
    let refused = skew.poll().unwrap().unwrap_err();
    assert!(matches!(refused, Error::SerializationFailure { .. }), "{refused:?}");
    assert_eq!(all(&cluster.begin(2, SERIALIZABLE), TREE), "b=w x=c y=c z=0");
    cluster.assert_equal();
}

/// A node that starts again has forgotten what its voters had read, and votes against them.
#[test]
fn a_node_that_starts_again_votes_against_its_own() {
    let mut cluster = Cluster::of(3);
    cluster.write(1, &[("a", "0"), ("b", "0")]);
    drop(voter(&cluster, 1, "a", "b"));
    cluster.order_one(0);
    cluster.restart(1);
    deliver_all(&cluster);
    assert_eq!(proposed(&cluster), 1);
    cluster.settle();
    assert_eq!(all(&cluster.begin(2, SERIALIZABLE), TREE), "a=0 b=0");
    cluster.assert_equal();
}

/// Images are taken at decided positions: what waits is delivered again behind them.
#[test]
fn who_waits_is_not_in_the_image() {
    let mut cluster = Cluster::of(3);
    cluster.write(1, &[("a", "0"), ("b", "0")]);
    let mut w = voter(&cluster, 1, "a", "b");
    cluster.order_one(0);
    deliver_all(&cluster);
    cluster.node(2).checkpoint().unwrap();
    cluster.restart(2);
    assert_eq!((cluster.node(2).applied(), cluster.node(2).delivered()), (1, 1));
    cluster.settle();
    w.poll().unwrap().unwrap();
    cluster.node(3).checkpoint().unwrap();
    cluster.restart(3);
    cluster.write(3, &[("a", "1")]);
    cluster.assert_equal();
}

fn order_program(cluster: &Cluster, node: u16, text: &[u8]) -> Commitment {
    let engine = cluster.node(node);
    let mut commit =
        Commitment::on(engine.order_program(engine.program_id(), SERIALIZABLE, None, text).unwrap());
    assert!(commit.poll().is_none());
    commit
}

#[test]
fn programs_are_executed_everywhere_in_their_order_and_never_lose() {
    let cluster = Cluster::of(3);
    let mut programs: Vec<Commitment> =
        (1..=9).map(|id| order_program(&cluster, 1 + (id % 3) as u16, &program(id, &[0], &[0]))).collect();
    // Somebody who wants the same row gives way.
    let mut loser = cluster.begin(2, SERIALIZABLE);
    put(&mut loser, &key_of(0), "99").unwrap();
    cluster.settle();
    assert!(programs.iter_mut().all(|one| one.poll().unwrap().is_ok()));
    let refused = Commitment::of(loser).poll().unwrap().unwrap_err();
    assert!(matches!(refused, Error::Overtaken { .. }), "{refused:?}");
    assert_eq!(writer_of(&cluster.begin(1, SERIALIZABLE), 0), Some(9));
    cluster.assert_equal();
}

/// What the monitor asks: would they have been refused, had they run at their own nodes? There,
/// locks keep the transactions of one node apart.
#[test]
fn a_program_tells_whether_another_node_was_faster() {
    let cluster = Cluster::of(2);
    let texts = [(1, 0), (2, 0), (1, 1), (1, 1), (2, 2)];
    let programs: Vec<Commitment> = (1..)
        .zip(texts)
        .map(|(id, (node, key))| order_program(&cluster, node, &program(id, &[], &[key])))
        .collect();
    cluster.settle();
    let mut later = order_program(&cluster, 1, &program(6, &[], &[0]));
    cluster.settle();
    let was_met = |mut one: Commitment| one.poll().unwrap().unwrap().was_met;
    let met: Vec<Option<bool>> = programs.into_iter().map(was_met).collect();
    assert_eq!(met, [Some(false), Some(true), Some(false), Some(false), Some(false)]);
    assert_eq!(later.poll().unwrap().unwrap().was_met, Some(false), "it was submitted behind the others");
    cluster.assert_equal();
}

#[test]
fn a_program_that_fails_has_changed_nothing() {
    let cluster = Cluster::of(2);
    let mut failed = order_program(&cluster, 1, &program(0, &[], &[1]));
    let mut good = order_program(&cluster, 1, &program(7, &[], &[2]));
    cluster.settle();
    assert!(failed.poll().unwrap().is_err());
    good.poll().unwrap().unwrap();
    assert_eq!(all(&cluster.begin(2, SERIALIZABLE), TREE), "k2=7");
    cluster.assert_equal();
}

/// It waits for a voter before it, and sees what that wrote.
#[test]
fn a_program_is_executed_when_everything_before_it_is_decided() {
    let cluster = Cluster::of(2);
    let mut t = cluster.begin(1, SERIALIZABLE);
    get(&t, "a");
    put(&mut t, &key_of(3), "5").unwrap();
    let mut w = Commitment::by(t, Replication::WeakVoting);
    assert!(w.poll().is_none());
    let mut a = order_program(&cluster, 2, &program(8, &[3], &[4]));
    let second = voter(&cluster, 1, "z", "y");
    (0..3).for_each(|_| cluster.order_one(0));
    deliver_all(&cluster);
    assert_eq!(proposed(&cluster), 1, "the second voter may have read what the program writes");
    assert_eq!(cluster.node(2).lists().w_pending, 1);
    drop(second);
    cluster.settle();
    w.poll().unwrap().unwrap();
    a.poll().unwrap().unwrap();
    let read: Vec<_> = cluster.executed.lock().unwrap().values().cloned().collect();
    assert_eq!(read, [vec![(3, Some(5))]]);
    cluster.assert_equal();
}

/// What is prepared keeps a program out, alike everywhere, if it holds what that wants, or has
/// written into tables that it looks at.
#[test]
fn a_program_gives_way_to_what_is_prepared() {
    for (writes, isolation) in [("k1", Isolation::Snapshot), ("k2", SERIALIZABLE)] {
        let cluster = Cluster::of(2);
        let mut p = cluster.begin(1, SERIALIZABLE);
        put(&mut p, writes, "1").unwrap();
        let mut p = prepare(p, "p");
        assert!(p.poll().is_none());
        cluster.settle();
        p.poll().unwrap().unwrap();
        let engine = cluster.node(2);
        let ordered = engine.order_program(engine.program_id(), isolation, None, &program(5, &[], &[1]));
        let mut a = Commitment::on(ordered.unwrap());
        assert!(a.poll().is_none());
        cluster.settle();
        assert_eq!(overtaken_by(&a.poll().unwrap().unwrap_err()), 1);
        let mut decided = decide(&cluster, 2, "p", true);
        assert!(decided.poll().is_none());
        cluster.settle();
        let mut a = order_program(&cluster, 2, &program(6, &[1], &[1]));
        cluster.settle();
        a.poll().unwrap().unwrap();
        cluster.assert_equal();
    }
}

/// All nodes come to the same about it, whatever else one of them has in memory.
#[test]
fn a_program_may_write_as_much_at_a_node_that_is_full_of_what_others_write() {
    let cluster = Cluster::with_memory(2, 16 << 20);
    let large = value(&"x".repeat(1 << 16));
    // As much as one may, and as much as all may.
    let full: Vec<Transaction> = (0..2)
        .map(|number| {
            let mut t = cluster.begin(1, Isolation::Snapshot);
            let mut keys = (0..1000).map(|at| format!("full {number} {at}"));
            let refused = keys.find_map(|key| t.put(TREE, key.as_bytes(), large.clone()).err());
            assert!(matches!(refused, Some(Error::TransactionTooLarge { .. })), "{refused:?}");
            t
        })
        .collect();
    let keys: Vec<usize> = (0..3000).collect();
    let mut a = order_program(&cluster, 2, &program(8, &[], &keys));
    cluster.settle();
    a.poll().unwrap().unwrap();
    drop(full);
    cluster.assert_equal();
}

#[test]
fn a_program_that_comes_twice_is_executed_once() {
    let cluster = Cluster::of(2);
    let mut a = order_program(&cluster, 1, &program(3, &[0], &[0]));
    let again = cluster.order.proposed.lock().unwrap()[0].clone();
    cluster.order.proposed.lock().unwrap().push(again);
    cluster.settle();
    assert_eq!(a.poll().unwrap().unwrap().csn, 1);
    assert_eq!(cluster.node(1).applied(), 2);
    cluster.assert_equal();
}

/// While a program is executed nothing else is delivered.
#[test]
fn a_program_is_given_back_before_the_next_delivery() {
    let cluster = Cluster::of(1);
    let a = order_program(&cluster, 1, &program(3, &[0], &[0]));
    drop(a);
    cluster.order_one(0);
    let request = cluster.order.ordered.lock().unwrap()[0].clone();
    let progress = cluster.node(1).deliver(1, &request).unwrap();
    let Progress::Execute(execution) = progress else { panic!("{progress:?}") };
    assert!(execution.is_here && execution.position == 1 && execution.transaction.snapshot() == 0);
    assert_eq!(cluster.node(1).applied(), 0);
    let lists = cluster.node(1).lists();
    assert_eq!(lists.pause, None, "nobody need vote about it");
    let executing = lists.executing.expect("everybody behind it waits");
    assert_eq!((executing.position, executing.protocol), (1, "active"));
    assert_eq!(executing.transaction, execution.id);
    let executed = Executed { transaction: execution.transaction, trees: Vec::new(), commits: false };
    cluster.node(1).finish(executed).unwrap();
    assert_eq!((cluster.node(1).applied(), cluster.node(1).lists().executing), (1, None));
}

#[test]
fn mixed_histories_are_serializable_and_equal_everywhere() {
    let mut totals = Totals::default();
    for seed in seeds(20) {
        let _seed = Seed(seed);
        random_history_of(seed, 900, true, &mut totals);
    }
    println!("{totals:?}");
}

/// How a transaction of a small history comes to the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Certified,
    Voter,
    Active,
    Prepared,
}

/// A transaction of a small history.
#[derive(Debug, Clone)]
struct Small {
    kind: Kind,
    reads: Vec<usize>,
    writes: Vec<usize>,
    /// How many of the others it has seen.
    snapshot: usize,
}

/// Three transactions, each at a node of its own, ordered one after the other, then the votes, then
/// the decisions about those that are prepared: what has committed must be serializable.
fn small_history(cluster: &Cluster, base: usize, history: &[Small]) {
    let own = |keys: &[usize]| keys.iter().map(|key| base + key).collect::<Vec<usize>>();
    let (mut going, mut prepared, mut done) = (Vec::new(), Vec::new(), Vec::new());
    let mut sealed: Vec<Option<Bytes>> = vec![None; history.len()];
    let mut ordered = 0;
    let order_upto = |sealed: &mut [Option<Bytes>], ordered: &mut usize, upto: usize| {
        let requests = sealed[*ordered..upto].iter_mut().filter_map(Option::take);
        cluster.order.ordered.lock().unwrap().extend(requests);
        *ordered = upto;
    };
    // In the order of what they see: nobody has seen more when it is sealed than when it began, and
    // whoever has not begun yet sees as much at least.
    let mut turns: Vec<usize> = (0..history.len()).collect();
    turns.sort_by_key(|at| history[*at].snapshot);
    for at in turns {
        let (small, node) = (&history[at], at as u16 + 1);
        let (reads, wrote, id) = (own(&small.reads), own(&small.writes), base + at + 1);
        if small.snapshot > ordered {
            order_upto(&mut sealed, &mut ordered, small.snapshot);
            cluster.settle();
        }
        if small.kind == Kind::Active {
            let engine = cluster.node(node);
            let transaction = engine.program_id();
            let text = program(id, &reads, &wrote);
            let ordered = engine.order_program(transaction, SERIALIZABLE, None, &text).unwrap();
            going.push((id, Vec::new(), wrote, transaction, Commitment::on(ordered)));
        } else {
            let mut t = cluster.begin(node, SERIALIZABLE);
            let read = reads.iter().map(|key| (*key, writer_of(&t, *key))).collect::<Vec<_>>();
            if wrote.iter().any(|key| put(&mut t, &key_of(*key), &id.to_string()).is_err()) {
                // It waits for one that is prepared.
                continue;
            }
            let transaction = t.id();
            if small.kind == Kind::Prepared {
                let mut commit = prepare(t, &format!("p{id}"));
                assert!(commit.poll().is_none());
                prepared.push((id, read, wrote, commit));
            } else {
                let protocol = match small.kind {
                    Kind::Voter => Replication::WeakVoting,
                    _ => Replication::Certification,
                };
                let mut commit = Commitment::by(t, protocol);
                if let Some(Ok(commit)) = commit.poll() {
                    // Who has read what nobody can have replaced concerns nobody else.
                    assert!(wrote.is_empty(), "{small:?}");
                    done.push(Done { id, read, wrote, position: commit.csn });
                    continue;
                }
                going.push((id, read, wrote, transaction, commit));
            }
        }
        sealed[at] = cluster.order.proposed.lock().unwrap().pop();
        assert!(sealed[at].is_some() && proposed(cluster) == 0);
    }
    order_upto(&mut sealed, &mut ordered, history.len());
    cluster.settle();
    for (id, mut read, wrote, transaction, mut commit) in going {
        if let Ok(commit) = commit.poll().expect("everything is ordered") {
            read.extend(cluster.executed.lock().unwrap().get(&transaction).into_iter().flatten());
            done.push(Done { id, read, wrote, position: commit.csn });
        }
    }
    for (id, read, wrote, mut commit) in prepared {
        if commit.poll().expect("everything is ordered").is_ok() {
            let mut decided = decide(cluster, 1, &format!("p{id}"), true);
            assert!(decided.poll().is_none());
            cluster.settle();
            let position = decided.poll().unwrap().unwrap().csn;
            done.push(Done { id, read, wrote, position });
        }
    }
    assert_acyclic(&done);
}

/// The key that a transaction reads, and the one that it writes.
type ReadAndWritten = (Option<usize>, usize);

/// Histories with transactions that write nothing, by every mixture of protocols and with every
/// snapshot: one that sees the end of a chain of such as have each read what the next one replaces,
/// and perhaps not its beginning; and one between two that do not see each other.
#[test]
fn who_only_reads_closes_no_cycle() {
    let kinds = [Kind::Certified, Kind::Voter, Kind::Active, Kind::Prepared];
    let histories: [&[(&[usize], &[usize])]; 3] = [
        &[(&[0], &[1]), (&[2], &[0]), (&[3], &[2]), (&[1, 2], &[])],
        &[(&[0], &[1]), (&[2], &[0]), (&[1, 0], &[])],
        &[(&[], &[0]), (&[0, 1], &[]), (&[0], &[1])],
    ];
    let (mut cluster, mut number) = (Cluster::of(4), 0_usize);
    for deeds in histories {
        let mixtures = kinds.len().pow(deeds.len() as u32);
        for (mixture, seen) in (0..mixtures).flat_map(|mixture| (0..24).map(move |seen| (mixture, seen))) {
            let small = |at: usize| Small {
                kind: kinds[mixture / kinds.len().pow(at as u32) % kinds.len()],
                reads: deeds[at].0.to_vec(),
                writes: deeds[at].1.to_vec(),
                snapshot: [0, seen % 2, seen / 2 % 3, seen / 6][at],
            };
            let history: Vec<Small> = (0..deeds.len()).map(small).collect();
            // Nothing is prepared, or voted about, that writes nothing.
            let is_none =
                |small: &Small| small.writes.is_empty() && matches!(small.kind, Kind::Voter | Kind::Prepared);
            if history.iter().any(is_none) || (deeds.len() == 3 && seen >= 6) {
                continue;
            }
            number += 1;
            if number.is_multiple_of(200) {
                cluster = Cluster::of(4);
            }
            println!("{history:?}");
            small_history(&cluster, 10 * number, &history);
        }
    }
}

/// What three transactions read, at most one key each, and write, one key each: all ways but for
/// the names of the keys, which come up in the order of their numbers.
fn footprints() -> Vec<[ReadAndWritten; 3]> {
    let mut all: Vec<(Vec<ReadAndWritten>, usize)> = vec![(Vec::new(), 0)];
    for _ in 0..3 {
        let mut longer = Vec::new();
        for (so_far, known) in &all {
            for write in 0..=*known.min(&2) {
                let known = *known.max(&(write + 1));
                for read in std::iter::once(None).chain((0..=known.min(2)).map(Some)) {
                    let known = read.map_or(known, |read| known.max(read + 1));
                    let mut next = so_far.clone();
                    next.push((read, write));
                    longer.push((next, known));
                }
            }
        }
        all = longer;
    }
    all.into_iter().filter_map(|(three, _)| three.try_into().ok()).collect()
}

/// Every history of three transactions over three keys, each of which reads at most one and writes
/// one, by every mixture of protocols and with every snapshot; `part` of sixteen parts of them.
pub(super) fn small_histories(part: u64) {
    let kinds = [Kind::Certified, Kind::Voter, Kind::Active, Kind::Prepared];
    let mixtures = kinds.iter().flat_map(|a| kinds.iter().flat_map(move |b| kinds.map(|c| [*a, *b, c])));
    let mixtures: Vec<[Kind; 3]> = mixtures.collect();
    let (mut number, mut cluster) = (0_u64, Cluster::of(3));
    for footprints in footprints() {
        for mixture in &mixtures {
            for snapshots in [[0, 0, 0], [0, 0, 1], [0, 0, 2], [0, 1, 0], [0, 1, 1], [0, 1, 2]] {
                number += 1;
                if number % 16 != part % 16 {
                    continue;
                }
                let small = |at: usize| Small {
                    kind: mixture[at],
                    reads: footprints[at].0.into_iter().collect(),
                    writes: vec![footprints[at].1],
                    snapshot: snapshots[at],
                };
                if number / 16 % 500 == 0 {
                    cluster = Cluster::of(3);
                }
                small_history(&cluster, number as usize * 10, &[small(0), small(1), small(2)]);
            }
        }
    }
}

#[test]
fn all_small_histories_are_serializable() {
    (0..16).for_each(small_histories);
}
