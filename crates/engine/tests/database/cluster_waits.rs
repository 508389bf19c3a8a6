//! Who waits until a node has come to a position of the order, or for a lock of what comes there.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::{io, thread};

use cognate_engine::{Error, Isolation, LockMode, Replication, WaitPolicy};

use super::cluster::{Cluster, Commitment, TREE, get, put};
use super::cluster_prepared::{decide, prepare};
use super::support::{all, value};

/// A task that notes that it was woken.
#[derive(Default)]
struct Task(AtomicBool);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A client may wait for a position that never comes, be interrupted, and do so again: nothing may
/// be left of it, nor may it be there once for each look.
#[test]
fn who_waits_for_a_position_and_gives_up_is_forgotten() {
    let cluster = Cluster::of(1);
    let task = Arc::new(Task::default());
    let waker = Waker::from(Arc::clone(&task));
    let mut context = Context::from_waker(&waker);
    let mut next = Box::pin(cluster.node(1).wait_applied(1));
    let mut never = Box::pin(cluster.node(1).wait_applied(1_000_000));
    for _ in 0..3 {
        assert!(next.as_mut().poll(&mut context).is_pending());
        assert!(never.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(Arc::strong_count(&task), 4, "here, in its waker, and once for each wait");
    cluster.write(1, &[("key", "content")]);
    assert!(task.0.load(Ordering::Relaxed), "it is woken");
    assert!(matches!(next.as_mut().poll(&mut context), Poll::Ready(Ok(()))));
    assert_eq!(Arc::strong_count(&task), 3);
    drop(never);
    assert_eq!(Arc::strong_count(&task), 2);
}

/// Who was overtaken begins anew without its locks, where the faster one can be seen; it may be
/// overtaken once more, and commits in the end.
#[test]
fn who_was_overtaken_begins_anew_behind_who_was_faster() {
    let cluster = Cluster::of(2);
    cluster.write(1, &[("x", "0")]);
    for isolation in [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable] {
        let mut slow = cluster.begin(1, isolation);
        for content in ["1", "2"] {
            put(&mut slow, "x", "slow").unwrap();
            assert_eq!(slow.overtaken_at(), None);
            cluster.write(2, &[("x", content)]);
            assert_eq!(slow.overtaken_at(), Some(cluster.node(1).applied()));
            assert!(matches!(slow.check_member(), Err(Error::Overtaken { .. })));
            slow.restart_overtaken();
            assert_eq!((slow.overtaken_at(), slow.lock_count()), (None, 0));
            slow.check_member().unwrap();
            assert_eq!(get(&slow, "x").as_deref(), Some(content));
        }
        put(&mut slow, "x", "slow").unwrap();
        let mut commit = Commitment::of(slow);
        assert!(commit.poll().is_none(), "nobody has ordered it");
        cluster.settle();
        commit.poll().unwrap().unwrap();
        cluster.assert_equal();
    }
}

/// A node that has never proposed anything, and whose first transaction lasts.
#[test]
fn who_introduces_himself_is_waited_for_and_nobody_else() {
    for introduced in [false, true] {
        let cluster = Cluster::of(2);
        cluster.write(1, &[("a", "0"), ("b", "0")]);
        if introduced {
            let node = cluster.node(2).clone();
            let mut introducing = Commitment::on(async move { node.introduce().await });
            assert!(introducing.poll().is_none(), "nobody knows it yet");
            cluster.settle();
            introducing.poll().unwrap().unwrap();
        }
        let mut slow = cluster.begin(2, Isolation::Serializable);
        put(&mut slow, "a", "slow").unwrap();
        for number in 1..10 {
            cluster.write(1, &[("b", &number.to_string())]);
        }
        let mut commit = Commitment::of(slow);
        assert!(commit.poll().is_none());
        cluster.settle();
        let committed = commit.poll().unwrap();
        match introduced {
            true => assert!(committed.is_ok(), "{:?}", committed.err()),
            false => assert!(matches!(committed, Err(Error::SerializationFailure { .. }))),
        }
        cluster.assert_equal();
    }
}

/// A task that goes on at once, in the thread that wakes it.
pub(super) struct AtOnce(Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>);

impl AtOnce {
    pub(super) fn begin(work: impl Future<Output = ()> + Send + 'static) {
        let task = AtOnce(Mutex::new(Some(Box::pin(work))));
        Arc::new(task).wake();
    }
}

impl Wake for AtOnce {
    fn wake(self: Arc<Self>) {
        let waker = Waker::from(Arc::clone(&self));
        let mut work = self.0.lock().unwrap();
        let Some(going) = work.as_mut() else { return };
        if going.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            *work = None;
        }
    }
}

/// Who is given a lock that a delivered transaction had sees what that wrote. So it must not be
/// refused for it, however soon it is sealed then.
#[test]
fn who_is_given_the_lock_of_a_delivered_transaction_is_sealed_above_it() {
    for is_prepared in [false, true] {
        let cluster = Cluster::of(2);
        cluster.write(1, &[("x", "0")]);
        // Who has x first: a transaction that is prepared, or one that runs at the same node.
        let mut first = cluster.begin(if is_prepared { 2 } else { 1 }, Isolation::ReadCommitted);
        put(&mut first, "x", "2").unwrap();
        let holds = if is_prepared {
            let mut p = prepare(first, "p");
            assert!(p.poll().is_none());
            cluster.settle();
            p.poll().unwrap().unwrap();
            None
        } else {
            Some(first)
        };
        let mut waits = cluster.begin(1, Isolation::ReadCommitted);
        let (sender, answer) = mpsc::channel();
        AtOnce::begin(async move {
            waits.lock(TREE, b"x", LockMode::NoKeyExclusive, WaitPolicy::Block).await.unwrap();
            let seen = waits.get_latest(TREE, b"x").unwrap().value;
            waits.put(TREE, b"x", value("3")).unwrap();
            sender.send((seen, waits.commit_in_order().await)).unwrap();
        });
        assert!(answer.try_recv().is_err(), "it waits");
        if let Some(holds) = holds {
            // It lets go as soon as it is struck: then the delivered one has x alone.
            AtOnce::begin(async move {
                holds.doomed().unwrap().await;
                drop(holds);
            });
            cluster.write(2, &[("x", "2")]);
        } else {
            let mut decided = decide(&cluster, 2, "p", true);
            assert!(decided.poll().is_none());
            cluster.settle();
            decided.poll().unwrap().unwrap();
        }
        let (seen, committed) = answer.try_recv().unwrap();
        assert_eq!(seen, Some(value("2")));
        committed.unwrap();
        assert_eq!(all(&cluster.begin(2, Isolation::Snapshot), TREE), "x=3");
        cluster.assert_equal();
    }
}

/// Who sends the state to another node may keep the whole order waiting until it knows what to
/// send. So it does not wait for a checkpoint, but asks again.
#[test]
fn nobody_waits_for_a_checkpoint_to_send_a_state() {
    let cluster = Cluster::of(1);
    let node = cluster.node(1);
    cluster.write(1, &[("x", "1")]);
    node.checkpoint().unwrap();
    assert_eq!(node.outgoing().unwrap().position(), 1);
    cluster.write(1, &[("x", "2")]);
    cluster.disk(1).hold_flushes();
    let refused = thread::scope(|scope| {
        let checkpoint = scope.spawn(|| node.checkpoint());
        // It comes to no end before its flushes do.
        let refused = loop {
            match node.outgoing() {
                Ok(_) => thread::yield_now(),
                Err(error) => break error,
            }
        };
        cluster.disk(1).let_flushes_go();
        checkpoint.join().unwrap().unwrap();
        refused
    });
    let is_busy = |cause: &io::Error| cause.kind() == io::ErrorKind::WouldBlock;
    assert!(matches!(&refused, Error::Io { cause, .. } if is_busy(cause)), "{refused:?}");
    assert_eq!(node.outgoing().unwrap().position(), 2);
}

/// Who has other work delivers what takes as long as its bytes say, and waits for nobody. The rest
/// is left as it is: a vote about reads that only one node knows, what comes behind that, and what
/// was prepared before.
#[test]
fn what_is_light_is_decided_by_the_way_and_the_rest_is_left() {
    let cluster = Cluster::of(2);
    let is_light = |node: u16| {
        let position = cluster.node(node).delivered();
        let request = cluster.order.ordered.lock().unwrap()[position as usize].clone();
        cluster.node(node).deliver_light(position + 1, &request).unwrap()
    };
    let write = |node: u16, key: &str| {
        let mut t = cluster.begin(node, Isolation::Serializable);
        put(&mut t, key, "1").unwrap();
        let mut commit = Commitment::of(t);
        assert!(commit.poll().is_none(), "nobody has ordered it");
        cluster.order_one(0);
        commit
    };
    let mut first = write(1, "a");
    assert!(is_light(2) && is_light(1));
    assert_eq!(first.poll().unwrap().unwrap().csn, 1);
    cluster.assert_equal();
    // It has read what it does not write, so there is a vote.
    let mut t = cluster.begin(1, Isolation::Serializable);
    get(&t, "a");
    put(&mut t, "b", "1").unwrap();
    let mut voted = Commitment::by(t, Replication::WeakVoting);
    assert!(voted.poll().is_none());
    cluster.order_one(0);
    assert!(!is_light(1) && !is_light(2), "there will be a vote");
    assert!(cluster.deliver(1) && cluster.deliver(2));
    let vote = cluster.order.proposed.lock().unwrap().remove(0);
    let mut behind = write(2, "c");
    assert!(!is_light(1) && !is_light(2), "somebody waits for a vote");
    cluster.order.proposed.lock().unwrap().push(vote);
    cluster.settle();
    assert!(voted.poll().unwrap().is_ok() && behind.poll().unwrap().is_ok());
    // The decision is short, and what it decides need not be.
    let mut t = cluster.begin(1, Isolation::Snapshot);
    put(&mut t, "d", "1").unwrap();
    let mut asked = prepare(t, "name");
    assert!(asked.poll().is_none());
    cluster.settle();
    asked.poll().unwrap().unwrap();
    let mut decided = decide(&cluster, 2, "name", true);
    assert!(decided.poll().is_none());
    cluster.order_one(0);
    assert!(!is_light(1) && !is_light(2), "it was prepared before");
    cluster.settle();
    decided.poll().unwrap().unwrap();
    cluster.assert_equal();
}

/// The horizon waits for no snapshot for ever, and the graph forgets what was before it. Who has
/// read below it cannot be judged any more, also if it has written nothing: what it has seen may
/// fit into no order.
#[test]
fn who_only_reads_below_the_horizon_is_refused() {
    let cluster = Cluster::of(2);
    cluster.write(2, &[("x", "0"), ("y", "0")]);
    let mut before = cluster.begin(2, Isolation::Serializable);
    assert_eq!(get(&before, "x").as_deref(), Some("0"));
    cluster.write(2, &[("x", "1")]);
    // It comes behind who has written x, before whom the next one comes, whose y it does not see.
    let reader = cluster.begin(1, Isolation::Serializable);
    assert_eq!(get(&reader, "x").as_deref(), Some("1"));
    assert_eq!(get(&reader, "y").as_deref(), Some("0"));
    put(&mut before, "y", "1").unwrap();
    let mut before = Commitment::of(before);
    assert!(before.poll().is_none(), "nobody has ordered it");
    cluster.settle();
    before.poll().unwrap().unwrap();
    // Node 1 has never been heard of, so nobody waits for what runs there.
    for round in 0..200 {
        cluster.write(2, &[("z", &round.to_string())]);
    }
    let mut reader = Commitment::of(reader);
    assert!(reader.poll().is_none(), "it does not know by itself");
    cluster.settle();
    let refused = reader.poll().unwrap();
    assert!(matches!(refused, Err(Error::SerializationFailure { .. })), "{refused:?}");
    cluster.assert_equal();
}

/// Who has introduced himself is waited for, and the graph keeps what its readers depend on: they
/// are not refused, however much comes behind them.
#[test]
fn who_only_reads_above_the_horizon_is_not_refused() {
    let mut cluster = Cluster::of(2);
    cluster.write(2, &[("x", "0"), ("y", "0")]);
    for is_restarted in [false, true] {
        if is_restarted {
            cluster.restart(1);
        }
        let node = cluster.node(1).clone();
        let mut introducing = Commitment::on(async move { node.introduce().await });
        assert!(introducing.poll().is_none(), "nobody knows it yet");
        cluster.settle();
        introducing.poll().unwrap().unwrap();
        drop(introducing);
        let reader = cluster.begin(1, Isolation::Serializable);
        assert!(get(&reader, "x").is_some() && get(&reader, "y").is_some());
        for round in 0..200 {
            cluster.write(2, &[("x", &round.to_string())]);
        }
        let mut reader = Commitment::of(reader);
        let ended = match reader.poll() {
            Some(ended) => ended,
            None => {
                cluster.settle();
                reader.poll().unwrap()
            }
        };
        assert!(ended.is_ok(), "restarted: {is_restarted}: {:?}", ended.err());
    }
    cluster.assert_equal();
}

/// What was written is remembered for those who have said nothing since. When they have said that
/// they need none of it, reads of more than one key have no place in the order; and they say so
/// once.
#[test]
fn who_has_nothing_to_say_says_once_that_nothing_is_needed() {
    let cluster = Cluster::of(3);
    for node in [1, 2, 3] {
        let node = cluster.node(node).clone();
        let mut introducing = Commitment::on(async move { node.introduce().await });
        assert!(introducing.poll().is_none());
        cluster.settle();
        introducing.poll().unwrap().unwrap();
    }
    cluster.write(2, &[("x", "0"), ("y", "0")]);
    let read = |is_ordered: bool| {
        let reader = cluster.begin(1, Isolation::Serializable);
        assert!(get(&reader, "x").is_some() && get(&reader, "y").is_some());
        let mut reader = Commitment::of(reader);
        let ended = reader.poll();
        assert_eq!(ended.is_none(), is_ordered);
        let ended = ended.unwrap_or_else(|| {
            cluster.settle();
            reader.poll().unwrap()
        });
        ended.unwrap();
    };
    read(true);
    let all_announce = || {
        for node in [1, 2, 3] {
            cluster.node(node).announce_late();
            cluster.settle();
        }
        cluster.node(1).applied()
    };
    let applied = all_announce();
    read(false);
    assert_eq!(all_announce(), applied, "nothing has been added to the graph");
    cluster.write(3, &[("x", "1")]);
    read(true);
    cluster.assert_equal();
}
