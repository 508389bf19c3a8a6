//! A node that has lost what it had confirmed, without knowing it: an older copy of its folder was
//! put in its place.

use std::fs;
use std::path::Path;

use cognate_replication::{Change, NodeNumber, NodeRow, Position};

use crate::support::FOR_EVER;
use crate::tcp::Trio;

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// What a node says of another one, as of now.
async fn row(trio: &Trio, asked: NodeNumber, node: NodeNumber) -> NodeRow {
    let rows = trio.node(asked).order.status().await;
    rows.into_iter().find(|row| row.node == node).unwrap()
}

/// Puts an older copy of its folder in the place of a node's that follows, and waits until the one
/// that leads notices: tells both. Nobody notices if another one comes to lead just then.
async fn replace(trio: &mut Trio, last: &mut Position) -> Option<(NodeNumber, NodeNumber)> {
    let leader = trio.leader().await;
    let term = trio.node(leader).order.term();
    let lost = 1 + leader % 3;
    trio.kill(lost).await;
    let older = trio.path(lost).with_extension("older");
    copy(&trio.path(lost), &older);
    trio.start(lost).await;
    for _ in 0..8 {
        *last += 1;
        assert_eq!(trio.node(lost).order(&last.to_string()).await, *last);
    }
    trio.same(*last).await;
    // It has confirmed all of it.
    while row(trio, leader, lost).await.lag_bytes != Some(0) {
        tokio::task::yield_now().await;
    }
    trio.kill(lost).await;
    fs::remove_dir_all(trio.path(lost)).unwrap();
    fs::rename(&older, trio.path(lost)).unwrap();
    trio.start(lost).await;
    while !row(trio, leader, lost).await.has_lost_data() {
        if trio.node(leader).order.term() != term {
            return None;
        }
        tokio::task::yield_now().await;
    }
    Some((leader, lost))
}

/// Its vote would make a leader of one that lacks what was acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_with_an_older_copy_of_its_folder_is_refused_by_all_until_it_is_rebuilt() {
    let mut trio = Trio::new(3);
    trio.start_all().await;
    let mut last = 1;
    assert_eq!(trio.node(1).order("first").await, last);
    trio.same(last).await;
    let (leader, lost) = loop {
        if let Some(found) = replace(&mut trio, &mut last).await {
            break found;
        }
    };
    let third = 6 - leader - lost;
    while !row(&trio, third, lost).await.has_lost_data() {
        tokio::task::yield_now().await;
    }
    // Nobody forgets it at a start, also if there is nobody to say so.
    for node in [lost, leader, third] {
        trio.kill(node).await;
    }
    for node in [leader, third] {
        trio.start(node).await;
        assert!(row(&trio, node, lost).await.has_lost_data(), "node {node}");
        trio.kill(node).await;
    }
    trio.start(leader).await;
    trio.start(third).await;
    trio.leader().await;
    trio.node(third).order.change(Change::Remove(lost)).await.unwrap();
    fs::remove_dir_all(trio.path(lost)).unwrap();
    trio.start(lost).await;
    trio.node(leader).order.change(Change::AddLearner(lost)).await.unwrap();
    trio.node(lost).until(last).await;
    trio.node(third).order.change(Change::Promote(lost)).await.unwrap();
    assert_eq!(trio.node(lost).order("last").await, last + 1);
    trio.same(last + 1).await;
    for node in [leader, third] {
        while row(&trio, node, lost).await.has_lost_data() {
            tokio::task::yield_now().await;
        }
    }
}

/// The node that leads had its word, and is away with all that it knows. Another one has heard how
/// much the node had, and would lead by its vote without what was acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_the_vote_of_who_has_less_than_it_said_nobody_leads() {
    let mut trio = Trio::new(3);
    trio.start_all().await;
    let (lost, mut last) = (3, 1);
    assert_eq!(trio.node(1).order("first").await, last);
    trio.same(last).await;
    trio.kill(lost).await;
    let older = trio.path(lost).with_extension("older");
    copy(&trio.path(lost), &older);
    trio.start(lost).await;
    for _ in 0..8 {
        last += 1;
        assert_eq!(trio.node(lost).order(&last.to_string()).await, last);
    }
    trio.same(last).await;
    let third = if trio.leader().await == 1 { 2 } else { 1 };
    let away = 6 - lost - third;
    let heard = async {
        // What it says that it has is on its disk, which may be later than that it is settled.
        while row(&trio, third, lost).await.lag_bytes != Some(0) {
            tokio::task::yield_now().await;
        }
        while row(&trio, third, lost).await.committed != Some(last) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(FOR_EVER, heard).await.expect("it is heard how much it has");
    for node in [away, lost] {
        trio.kill(node).await;
    }
    fs::remove_dir_all(trio.path(lost)).unwrap();
    fs::rename(&older, trio.path(lost)).unwrap();
    trio.start(lost).await;
    let noticed = async {
        while !row(&trio, third, lost).await.has_lost_data() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(FOR_EVER, noticed).await.expect("it is noticed");
    trio.start(away).await;
    assert_eq!(trio.node(third).order("after").await, last + 1);
    // Nor is it forgotten at a start.
    trio.kill(third).await;
    trio.start(third).await;
    assert!(row(&trio, third, lost).await.has_lost_data());
}
