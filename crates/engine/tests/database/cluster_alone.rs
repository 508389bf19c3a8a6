//! Weak voting without the metaprotocol: the votes are the same. In builds of `protocol-alone`
//! there is nothing else; with `planted-faults` these tests leave its lists out.

use cognate_engine::Error;
#[cfg(feature = "planted-faults")]
use cognate_engine::{Planted, plant};

use super::cluster::{Cluster, Commitment};
use super::cluster_protocols::{deliver_all, proposed, voter};

/// Without the lists, on this thread, while it lives.
struct Alone;

impl Alone {
    fn new() -> Alone {
        #[cfg(feature = "planted-faults")]
        plant(Some(Planted::Lists));
        Alone
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        #[cfg(feature = "planted-faults")]
        plant(None);
    }
}

#[test]
fn nobody_is_in_lists_and_votes_go_out_in_one_round() {
    let _alone = Alone::new();
    let cluster = Cluster::of(3);
    let mut all: Vec<Commitment> = (0..9)
        .map(|number| voter(&cluster, 1 + number % 3, &format!("r{number}"), &format!("w{number}")))
        .collect();
    (0..9).for_each(|_| cluster.order_one(0));
    deliver_all(&cluster);
    assert_eq!(cluster.node(1).lists().log, 0);
    assert_eq!(cluster.node(1).lists().pause.map(|pause| pause.position), Some(1));
    assert_eq!(proposed(&cluster), 9, "nobody waits for anybody else's vote");
    cluster.settle();
    assert!(all.iter_mut().all(|one| one.poll().unwrap().is_ok()));
    cluster.assert_equal();
}

/// Somebody in the queue writes what it has read: it depends on the other one's vote.
#[test]
fn who_has_somebody_in_its_way_votes_when_that_one_is_decided() {
    let _alone = Alone::new();
    for first_commits in [true, false] {
        let cluster = Cluster::of(3);
        cluster.write(1, &[("a", "0"), ("b", "0"), ("c", "0")]);
        let mut first = voter(&cluster, 1, "a", "b");
        let mut second = voter(&cluster, 2, "b", "c");
        cluster.order_one(0);
        cluster.order_one(0);
        deliver_all(&cluster);
        assert_eq!(proposed(&cluster), 1, "the second one waits for what becomes of the first one");
        if !first_commits {
            let pause = cluster.node(3).lists().pause.expect("the first one waits for its vote");
            cluster.node(3).vote_against(pause.transaction);
            cluster.order_one(1);
        }
        cluster.settle();
        assert_eq!(first.poll().unwrap().is_ok(), first_commits);
        match second.poll().unwrap() {
            Ok(_) => assert!(!first_commits, "what it has read was replaced"),
            Err(refused) => {
                assert!(first_commits, "{refused:?}");
                assert!(matches!(refused, Error::SerializationFailure { .. }), "{refused:?}");
            }
        }
        cluster.write(3, &[("b", "free"), ("c", "free")]);
        cluster.assert_equal();
    }
}
