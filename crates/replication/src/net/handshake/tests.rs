use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::task::Poll;

use cognate_engine::storage::LogOptions;
use cognate_env::sim::SimDisk;

use super::*;
use crate::entry::{Ballot, Leadership};
use crate::log::OrderLog;
use crate::log::record::{Birth, LOG_VERSION};

fn identity(node: NodeNumber, numbers: &[NodeNumber], cluster: Option<u8>, incarnation: u64) -> Identity {
    let disk = SimDisk::new(node).handle();
    let options = LogOptions { prepare: false, idle_mark: None, ..LogOptions::default() };
    let log = OrderLog::open(&disk, Path::new("/log"), options, 1 << 20, 0).unwrap();
    if let Some(cluster) = cluster {
        let birth = Birth { version: LOG_VERSION, cluster: [cluster; 16], node, incarnation, began: 0 };
        drop(log.set_birth(birth).unwrap());
        let leadership = Leadership { term: 1, node };
        drop(log.save_ballot(Ballot { leadership, is_elected: false }).unwrap());
    }
    Identity::new(node, incarnation, numbers.iter().copied().collect(), Arc::new(log))
}

/// What both sides say to a connection from `dialer` to node 2.
async fn shake(
    dialer: &Identity,
    listener: &Identity,
    secrets: (&[u8], &[u8]),
) -> (Result<(), String>, Result<NodeNumber, String>) {
    let (mut near, mut far) = tokio::io::duplex(1 << 16);
    let dialed = async {
        let dialed = dial(&mut near, dialer, secrets.0, 2).await;
        drop(near);
        dialed.map_err(|error| error.to_string())
    };
    let admitted = async {
        let admitted = admit(&mut far, listener, secrets.1).await;
        drop(far);
        let lasting = |entered: Entered<'_>| {
            let node = entered.other.node;
            // Nobody says that the connection has ended.
            std::mem::forget(entered);
            node
        };
        admitted.map(lasting).map_err(|error| error.to_string())
    };
    tokio::join!(dialed, admitted)
}

const SAME: (&[u8], &[u8]) = (b"secret", b"secret");

#[tokio::test]
async fn nodes_of_one_cluster_and_newborn_ones_with_equal_lists_are_let_in() {
    for clusters in [(None, None), (Some(1), Some(1)), (None, Some(1)), (Some(1), None)] {
        let one = identity(1, &[1, 2, 3], clusters.0, 11);
        let two = identity(2, &[1, 2, 3], clusters.1, 22);
        assert_eq!(shake(&one, &two, SAME).await, (Ok(()), Ok(1)), "{clusters:?}");
    }
    // A list may have grown on one side only, once there is a cluster.
    let (one, two) = (identity(1, &[1, 2], Some(1), 11), identity(2, &[1, 2, 3], Some(1), 22));
    assert_eq!(shake(&one, &two, SAME).await, (Ok(()), Ok(1)));
}

#[tokio::test]
async fn every_refusal_says_why_on_both_sides() {
    let cases = [
        (identity(1, &[1, 2], Some(1), 1), identity(2, &[1, 2], Some(2), 2), SAME, "another cluster"),
        (identity(2, &[1, 2], Some(1), 1), identity(2, &[1, 2], Some(1), 2), SAME, "second node of number 2"),
        (identity(1, &[1, 2], Some(1), 1), identity(2, &[2, 3], Some(1), 2), SAME, "not on the list"),
        (identity(1, &[1, 3], Some(1), 1), identity(2, &[1, 2], Some(1), 2), SAME, "not on the list"),
        (identity(1, &[1, 2], None, 1), identity(2, &[1, 2, 3], None, 2), SAME, "the lists differ"),
        (
            identity(1, &[1, 2], Some(1), 1),
            identity(3, &[1, 2, 3], Some(1), 3),
            SAME,
            "node 3 is where node 2",
        ),
        (
            identity(1, &[1, 2], Some(1), 1),
            identity(2, &[1, 2], Some(1), 2),
            (b"secret".as_slice(), b"another".as_slice()),
            "secret",
        ),
    ];
    for (dialer, listener, secrets, why) in cases {
        let (dialed, admitted) = shake(&dialer, &listener, secrets).await;
        for said in [dialed.unwrap_err(), admitted.unwrap_err()] {
            assert!(said.contains(why), "{why}: {said}");
        }
    }
}

#[tokio::test]
async fn a_number_that_comes_again_with_other_data_is_refused() {
    let two = identity(2, &[1, 2], Some(1), 22);
    let once = identity(1, &[1, 2], Some(1), 11);
    assert_eq!(shake(&once, &two, SAME).await, (Ok(()), Ok(1)));
    assert_eq!(shake(&once, &two, SAME).await, (Ok(()), Ok(1)), "the same node again");
    for emptied in [identity(1, &[1, 2], Some(1), 12), identity(1, &[1, 2], None, 13)] {
        let (dialed, _) = shake(&emptied, &two, SAME).await;
        assert!(dialed.unwrap_err().contains("was here before with other data"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_a_node_is_refused_while_the_node_is_heard() {
    let two = identity(2, &[1, 2], Some(1), 22);
    let (once, copy) = (identity(1, &[1, 2], Some(1), 11), identity(1, &[1, 2], Some(1), 11));
    assert_eq!(shake(&once, &two, SAME).await, (Ok(()), Ok(1)));
    let (dialed, admitted) = shake(&copy, &two, SAME).await;
    for said in [dialed.unwrap_err(), admitted.unwrap_err()] {
        assert!(said.contains("a second node of number 1"), "{said}");
    }
    // Its connection ends with its process.
    two.leave(1, once.life());
    assert_eq!(shake(&copy, &two, SAME).await, (Ok(()), Ok(1)));
}

/// It is given up in the middle of its last word, when the dialer was let in already.
#[tokio::test(start_paused = true)]
async fn a_handshake_that_is_given_up_leaves_nobody_behind() {
    let two = identity(2, &[1, 2], Some(1), 22);
    let (once, copy) = (identity(1, &[1, 2], Some(1), 11), identity(1, &[1, 2], Some(1), 11));
    // Room for one byte: whoever writes more waits for the other side.
    let (mut near, mut far) = tokio::io::duplex(1);
    let mut admitting = Box::pin(admit(&mut far, &two, b"secret"));
    let all_but_the_welcome = async {
        let hello = Hello::of(&once, 2).encode_all();
        send(&mut near, &[&hello]).await.unwrap();
        let challenge = receive(&mut near, 2).await.unwrap();
        let challenge = challenge.slice(..challenge.len() - 32);
        let proof = proof(b"secret", DIALER, &hello, &challenge).finalize().into_bytes();
        send(&mut near, &[&proof]).await.unwrap();
    };
    tokio::select! {
        biased;
        _ = &mut admitting => panic!("the welcome cannot have been written"),
        () = all_but_the_welcome => {}
    }
    // Whoever has read much in one turn is made to wait for the next one.
    tokio::task::yield_now().await;
    let poll = std::future::poll_fn(|context| Poll::Ready(admitting.as_mut().poll(context).is_pending()));
    assert!(poll.await, "nobody reads the welcome");
    assert!(two.enter(1, copy.life()).is_err(), "the node is let in");
    drop(admitting);
    assert!(two.enter(1, copy.life()).is_ok(), "no connection is left");
}

#[tokio::test]
async fn another_version_is_refused_whatever_follows() {
    let two = identity(2, &[1, 2], None, 22);
    let (mut near, mut far) = tokio::io::duplex(1 << 16);
    let mut hello = vec![0];
    hello.extend_from_slice(&MAGIC);
    (PROTOCOL + 1).put(&mut hello);
    hello.extend_from_slice(b"what only later versions understand");
    frame::write(&mut near, &[&hello]).await.unwrap();
    let admitted = admit(&mut far, &two, b"secret").await;
    let named = format!("speaks version {}", PROTOCOL + 1);
    assert!(admitted.unwrap_err().to_string().contains(&named));
    let refused = receive(&mut near, 2).await.unwrap_err();
    assert!(refused.to_string().contains(&named), "{refused}");
}

/// As one whose folder was emptied.
#[tokio::test]
async fn who_has_lost_what_it_confirmed_is_refused_until_it_comes_as_another_one() {
    let one = identity(1, &[1, 2], Some(1), 11);
    let two = identity(2, &[1, 2], Some(1), 22);
    assert_eq!(shake(&one, &two, SAME).await, (Ok(()), Ok(1)));
    assert!(!two.has_lost(1));
    two.disown(1, Some(11));
    assert!(two.has_lost(1));
    let (told, refused) = shake(&one, &two, SAME).await;
    assert!(told.unwrap_err().contains("lost what it had confirmed"));
    assert!(refused.unwrap_err().contains("lost what it had confirmed"));
    assert!(again(&two).has_lost(1), "another start has not forgotten it");
    // It is no member any more, and comes again with an empty folder.
    two.log.forget_others(&BTreeSet::from([2])).unwrap();
    assert!(!two.has_lost(1));
    two.leave(1, one.life());
    let rebuilt = identity(1, &[1, 2], Some(1), 12);
    assert_eq!(shake(&rebuilt, &two, SAME).await, (Ok(()), Ok(1)));
}

/// Who starts again with the log that it had.
fn again(before: &Identity) -> Identity {
    Identity::new(before.node(), before.incarnation(), before.numbers(), Arc::clone(&before.log))
}

/// What another node says may be from before a node was rebuilt, and does not concern it then.
#[tokio::test]
async fn who_was_disowned_elsewhere_is_refused_unless_it_has_come_again_since() {
    let two = identity(2, &[1, 2, 3], Some(1), 22);
    let three = identity(3, &[1, 2, 3], Some(1), 33);
    for incarnation in [11, 12] {
        assert!(two.log.meet(1, incarnation) && three.log.meet(1, incarnation));
        let lost = BTreeMap::from([(1, incarnation)]);
        two.disown(1, Some(incarnation));
        assert_eq!(two.lost(), lost);
        three.learn_lost(&BTreeMap::from([(1, incarnation + 1), (2, 22)]));
        assert!(three.lost().is_empty());
        three.learn_lost(&two.lost());
        assert!(three.has_lost(1) && three.lost() == lost);
        // It is removed, and comes again.
        for node in [&two, &three] {
            node.log.forget_others(&BTreeSet::from([2, 3])).unwrap();
            assert!(!node.has_lost(1) && node.lost().is_empty());
        }
        three.learn_lost(&lost);
        assert!(three.lost().is_empty(), "it is no member, and nobody knows it");
    }
}

/// Who was rebuilt has not said what its folder of before had.
#[test]
fn what_a_node_has_said_counts_for_its_incarnation() {
    let one = identity(1, &[1, 2], Some(7), 5);
    assert!(one.log.meet(2, 11));
    let said = [(Some(11), Some(9)), (Some(11), Some(4)), (Some(11), None), (None, Some(20))];
    said.into_iter().for_each(|(incarnation, last)| one.note_kept(2, incarnation, last));
    assert_eq!(one.kept(2), Some((11, 9)));
    one.log.forget_others(&BTreeSet::from([1])).expect("it is removed");
    assert!(one.kept(2).is_none() && one.log.meet(2, 12) && one.kept(2).is_none());
    one.note_kept(2, Some(12), Some(3));
    assert_eq!(one.kept(2), Some((12, 3)));
}
