//! Over loopback TCP, with logs in temporary folders.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cognate_env::RealDisk;
use cognate_replication::{
    Change, NodeNumber, NodeRow, NodeState, OrderError, Position, ProposeError, Role, Settings, StartError,
    TcpNetwork, Tls, TotalOrder,
};

use crate::proxy::{Hold, Proxy};
use crate::recorder::Recorder;
use crate::support::{Running, trace, until};

/// Three nodes, of which some run.
pub(crate) struct Trio {
    folder: tempfile::TempDir,
    pub(crate) addresses: BTreeMap<NodeNumber, SocketAddr>,
    /// Listeners that are open already, so that nobody else takes their ports.
    listeners: BTreeMap<NodeNumber, TcpListener>,
    /// Where a node (first) finds another (second), if not at its address.
    pub(crate) detours: BTreeMap<(NodeNumber, NodeNumber), SocketAddr>,
    recorders: BTreeMap<NodeNumber, Recorder>,
    running: BTreeMap<NodeNumber, Running>,
    tls: Option<Tls>,
    kept_bytes: u64,
}

const SECRET: &[u8] = b"a secret of the tests";

impl Trio {
    pub(crate) fn new(nodes: NodeNumber) -> Trio {
        trace();
        let open = |node| (node, TcpListener::bind("127.0.0.1:0").unwrap());
        let listeners: BTreeMap<_, _> = (1..=nodes).map(open).collect();
        let address = |(node, listener): (&NodeNumber, &TcpListener)| (*node, listener.local_addr().unwrap());
        Trio {
            folder: tempfile::tempdir().unwrap(),
            addresses: listeners.iter().map(address).collect(),
            listeners,
            detours: BTreeMap::new(),
            recorders: (1..=nodes).map(|node| (node, Recorder::new(0))).collect(),
            running: BTreeMap::new(),
            tls: None,
            kept_bytes: 64 << 20,
        }
    }

    fn settings(&self, node: NodeNumber) -> Settings {
        let found = |(&other, address): (&NodeNumber, &SocketAddr)| {
            (other, self.detours.get(&(node, other)).unwrap_or(address).to_string())
        };
        let mut settings = Settings::new(node, self.addresses.iter().map(found).collect());
        settings.limits.kept_bytes = self.kept_bytes;
        settings.log.segment_bytes = 64 << 10;
        settings
    }

    pub(crate) fn path(&self, node: NodeNumber) -> PathBuf {
        self.folder.path().join(node.to_string())
    }

    async fn try_start(&mut self, settings: Settings, secret: &'static [u8]) -> Result<Running, StartError> {
        let node = settings.node;
        let recorder = self.recorders[&node].clone();
        let applied = recorder.applied();
        let network = TcpNetwork {
            peers: settings.peers.clone(),
            secret: Bytes::from_static(secret),
            tls: self.tls.clone(),
            frame_bytes: settings.limits.frame_bytes(),
            listener: self.listeners.remove(&node),
        };
        let (order, delivery) = TotalOrder::start(
            settings,
            Arc::new(RealDisk),
            &self.path(node),
            applied,
            Arc::new(recorder.clone()),
            Box::new(network),
        )
        .await?;
        Ok(Running::new(order, delivery, recorder, |_, _| {}))
    }

    pub(crate) async fn start(&mut self, node: NodeNumber) {
        let settings = self.settings(node);
        let running = self.try_start(settings, SECRET).await.unwrap();
        self.running.insert(node, running);
    }

    pub(crate) async fn start_all(&mut self) {
        for node in self.addresses.keys().copied().collect::<Vec<_>>() {
            self.start(node).await;
        }
    }

    pub(crate) async fn kill(&mut self, node: NodeNumber) -> Position {
        self.running.remove(&node).unwrap().kill().await.crash()
    }

    pub(crate) fn node(&self, node: NodeNumber) -> &Running {
        &self.running[&node]
    }

    /// Waits for a leader that all who run agree on.
    pub(crate) async fn leader(&self) -> NodeNumber {
        let agreed = || {
            let leaders: Vec<_> = self.running.values().map(|node| node.order.leader()).collect();
            leaders[0].filter(|_| leaders.iter().all(|leader| *leader == leaders[0]))
        };
        until("a leader", || agreed().is_some()).await;
        self.running.values().find_map(|node| node.order.leader()).unwrap()
    }

    /// Waits until all who run have everything, and looks that it is the same.
    pub(crate) async fn same(&self, end: Position) -> Vec<Bytes> {
        for node in self.running.values() {
            node.until(end).await;
        }
        let histories: Vec<_> = self.running.values().map(|node| node.recorder.history()).collect();
        assert!(histories.iter().all(|history| *history == histories[0]), "{histories:?}");
        histories[0].clone()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_find_each_other_and_deliver_the_same() {
    let mut trio = Trio::new(3);
    trio.start_all().await;
    let mut proposals = tokio::task::JoinSet::new();
    for (node, running) in &trio.running {
        for number in 0..50 {
            let (order, request) = (running.order.clone(), Bytes::from(format!("{node}:{number}")));
            proposals.spawn(async move { (order.propose(request.clone()).await.unwrap(), request) });
        }
    }
    let acknowledged = proposals.join_all().await;
    let history = trio.same(150).await;
    assert_eq!(history.len(), 150);
    for (position, request) in acknowledged {
        assert_eq!(history[position as usize - 1], request);
    }
    // What every node says of itself and of the others.
    let leader = trio.leader().await;
    loop {
        let rows = trio.node(leader).order.status().await;
        assert_eq!(rows.len(), 3);
        let serves = |row: &NodeRow| row.state == Some(NodeState::Serving) && row.applied == Some(150);
        let lags = |row: &NodeRow| row.node != leader && row.lag_bytes != Some(0);
        let leaders = rows.iter().filter(|row| row.role == Some(Role::Leader)).count();
        if leaders == 1 && rows.iter().all(|row| serves(row) && !lags(row)) {
            break;
        }
        tokio::task::yield_now().await;
    }
    let answer = trio.node(1).order.ask(2, Bytes::from_static(b"how")).await.unwrap();
    assert_eq!(answer, "1 asks how");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_killed_loses_nothing_and_comes_back() {
    let mut trio = Trio::new(3);
    trio.start_all().await;
    let leader = trio.leader().await;
    trio.node(leader).order("before").await;
    trio.kill(leader).await;
    let other = *trio.running.keys().next().unwrap();
    trio.node(other).order("meanwhile").await;
    trio.start(leader).await;
    trio.node(leader).order("after").await;
    assert_eq!(trio.same(3).await, ["before", "meanwhile", "after"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_killed_at_once_find_everything_again() {
    let mut trio = Trio::new(3);
    trio.start_all().await;
    for number in 0..20 {
        trio.node(1 + number % 3).order(&number.to_string()).await;
    }
    let before = trio.same(20).await;
    for node in 1..=3 {
        assert_eq!(trio.kill(node).await, 0, "the recorder had no checkpoint: all comes from the log");
    }
    trio.start_all().await;
    assert_eq!(trio.same(20).await, before);
    assert_eq!(trio.node(2).order("more").await, 21);
    trio.same(21).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_nothing_is_ordered_and_proposals_are_refused() {
    let mut trio = Trio::new(3);
    trio.start_all().await;
    trio.node(1).order("one").await;
    trio.same(1).await;
    trio.kill(2).await;
    trio.kill(3).await;
    trio.node(1).until_state(NodeState::Minority).await;
    match trio.node(1).propose("nothing").await {
        Err(ProposeError::NotProposed(why)) => assert!(why.contains("no "), "{why}"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(trio.node(1).order.read_barrier().await, Err(OrderError::NoLeader(_))));
    trio.start(2).await;
    assert_eq!(trio.node(1).order("two").await, 2);
    trio.same(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_away_for_long_is_sent_a_snapshot() {
    let mut trio = Trio::new(3);
    trio.kept_bytes = 0;
    trio.start_all().await;
    trio.node(3).order("early").await;
    trio.same(1).await;
    trio.kill(3).await;
    let long = "x".repeat(10_000);
    for number in 0..40 {
        trio.node(1 + number % 2).order(&format!("{number}{long}")).await;
    }
    trio.same(41).await;
    for node in 1..=2 {
        let running = trio.node(node);
        let synced = || running.order.marks().synced >= 40;
        until("it is synced", synced).await;
        running.recorder.checkpoint(40);
        running.order.checkpointed(40).await.unwrap();
    }
    let segments = |node| std::fs::read_dir(trio.path(node)).unwrap().count();
    until("old segments are removed", || segments(1) < 5 && segments(2) < 5).await;
    trio.start(3).await;
    assert_eq!(trio.node(3).order("late").await, 42);
    let history = trio.same(42).await;
    assert_eq!((history.len(), history[0].clone()), (42, Bytes::from("early")));
    assert_eq!(trio.node(3).recorder.snapshots().1, 1, "it has taken one");
    // And again from its own disk.
    let at = trio.kill(3).await;
    assert_eq!(at, 40, "what is in the snapshot is durable");
    trio.start(3).await;
    trio.same(42).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_can_send_and_not_hear_is_replaced() {
    let mut trio = Trio::new(3);
    let mut proxies = BTreeMap::new();
    for from in 1..=3 {
        for to in (1..=3).filter(|to| *to != from) {
            let proxy = Proxy::to(trio.addresses[&to]).await;
            trio.detours.insert((from, to), proxy.address);
            proxies.insert((from, to), proxy);
        }
    }
    trio.start_all().await;
    let leader = trio.leader().await;
    trio.node(leader).order("before").await;
    for ((from, to), proxy) in &proxies {
        if *from == leader {
            proxy.hold(Hold::Answers);
        }
        if *to == leader {
            proxy.hold(Hold::Everything);
        }
    }
    let other = (1..=3).find(|node| *node != leader).unwrap();
    until("another one leads", || trio.node(other).order.leader().is_some_and(|now| now != leader)).await;
    trio.node(other).order("meanwhile").await;
    proxies.values().for_each(|proxy| proxy.hold(Hold::Nothing));
    trio.node(leader).order("after").await;
    assert_eq!(trio.same(3).await, ["before", "meanwhile", "after"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_node_with_data_grows_and_shrinks() {
    let mut trio = Trio::new(3);
    // Node 1 is a cluster of its own first, and holds what no log has.
    trio.recorders.insert(1, Recorder::new(100));
    let mut alone = trio.settings(1);
    alone.peers.retain(|node, _| *node == 1);
    let running = trio.try_start(alone, SECRET).await.unwrap();
    assert_eq!(running.order("first").await, 101);
    running.until(101).await;
    let recorder = running.kill().await;
    recorder.crash();
    trio.start(1).await;
    trio.start(2).await;
    trio.start(3).await;
    for node in [2, 3] {
        trio.node(1).order.change(Change::AddLearner(node)).await.unwrap();
        trio.node(node).until(101).await;
        assert_eq!(trio.node(node).order.role(), Role::Learner);
        assert_eq!(trio.node(node).recorder.snapshots().1, 1, "what the cluster began with is in no log");
        trio.node(2).order.change(Change::Promote(node)).await.unwrap();
    }
    assert_eq!(trio.node(3).order("second").await, 102);
    trio.same(102).await;
    until("all vote", || trio.running.values().all(|node| node.order.role() != Role::Learner)).await;
    // The first node leaves; the others go on.
    trio.node(2).order.change(Change::Remove(1)).await.unwrap();
    until("another one leads", || trio.node(2).order.leader().is_some_and(|leader| leader != 1)).await;
    trio.kill(1).await;
    assert_eq!(trio.node(2).order("third").await, 103);
    trio.same(103).await;
    let refused = trio.node(2).order.change(Change::Promote(9)).await;
    assert!(matches!(refused, Err(OrderError::Refused(_))), "{refused:?}");
}

/// With the vote of a node that is not there, or that has nothing yet, a cluster of one would order
/// nothing more, not even that the vote is taken back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_lacks_everything_does_not_vote() {
    let mut trio = Trio::new(2);
    trio.recorders.insert(1, Recorder::new(100));
    let mut alone = trio.settings(1);
    alone.peers.retain(|node, _| *node == 1);
    let running = trio.try_start(alone, SECRET).await.unwrap();
    assert_eq!(running.order("first").await, 101);
    running.until(101).await;
    running.kill().await.crash();
    let mut settings = trio.settings(1);
    settings.timing.answer = Duration::from_secs(1);
    let running = trio.try_start(settings, SECRET).await.unwrap();
    trio.running.insert(1, running);
    // A leader, before it is asked.
    assert_eq!(trio.node(1).order("second").await, 102);
    trio.node(1).order.change(Change::AddLearner(2)).await.unwrap();
    let promoted = trio.node(1).order.change(Change::Promote(2)).await;
    assert!(
        matches!(&promoted, Err(OrderError::Refused(why)) if why.contains("does not answer")),
        "{promoted:?}"
    );
    trio.recorders[&2].hold_finish(true);
    trio.start(2).await;
    until("it has a snapshot", || trio.recorders[&2].is_finishing()).await;
    let promoted = trio.node(1).order.change(Change::Promote(2)).await;
    assert!(
        matches!(&promoted, Err(OrderError::Refused(why)) if why.contains("lacks the state")),
        "{promoted:?}"
    );
    assert_eq!(trio.node(1).order("third").await, 103);
    trio.recorders[&2].hold_finish(false);
    trio.node(2).until(103).await;
    trio.node(1).order.change(Change::Promote(2)).await.unwrap();
    assert_eq!(trio.node(2).order("fourth").await, 104);
    trio.same(104).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_stops_hands_over_first_and_reads_see_what_was_acknowledged() {
    let mut trio = Trio::new(3);
    trio.start_all().await;
    let leader = trio.leader().await;
    let acknowledged = trio.node(leader).order("one").await;
    for node in trio.running.values() {
        let barrier = node.order.read_barrier().await.unwrap();
        assert!(barrier >= acknowledged);
        node.order.until_applied(barrier).await.unwrap();
        assert!(node.recorder.applied() >= acknowledged);
    }
    let stopping = trio.running.remove(&leader).unwrap();
    let next = stopping.order.hand_over().await.unwrap();
    assert!(next.is_some_and(|next| next != leader), "{next:?}");
    stopping.order.stop().await;
    let other = trio.running.values().next().unwrap();
    other.order("two").await;
    trio.same(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_belong_is_refused_with_its_reason() {
    let mut trio = Trio::new(3);
    trio.start(1).await;
    trio.start(2).await;
    trio.node(1).order("one").await;
    let too_large = Bytes::from(vec![0; 17 << 20]);
    let refused = trio.node(1).order.propose(too_large).await;
    assert!(matches!(refused, Err(ProposeError::TooLarge { limit, .. }) if limit == 16 << 20), "{refused:?}");
    // Another secret.
    let settings = trio.settings(3);
    let stranger = trio.try_start(settings, b"something else").await.unwrap();
    let reason = |rows: Vec<NodeRow>, node| {
        let row = rows.into_iter().find(|row: &NodeRow| row.node == node);
        row.and_then(|row| row.reason).unwrap_or_default()
    };
    let said = || async { reason(stranger.order.status().await, 1) };
    while !said().await.contains("secret") {
        tokio::task::yield_now().await;
    }
    stranger.kill().await;
    // Another node's folder.
    let at = trio.kill(2).await;
    assert_eq!(at, 0);
    let mut settings = trio.settings(3);
    settings.node = 3;
    std::fs::rename(trio.path(2), trio.path(3))
        .or_else(|_| {
            std::fs::remove_dir_all(trio.path(3)).and_then(|()| std::fs::rename(trio.path(2), trio.path(3)))
        })
        .unwrap();
    match trio.try_start(settings, SECRET).await {
        Err(StartError::Foreign(why)) => assert!(why.contains("belongs to node 2"), "{why}"),
        other => panic!("{other:?}"),
    }
    // Settings that contradict themselves.
    let mut settings = trio.settings(3);
    settings.peers.remove(&3);
    assert!(matches!(trio.try_start(settings, SECRET).await, Err(StartError::Settings(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lost_its_data_is_refused_until_it_was_removed() {
    let mut trio = Trio::new(3);
    trio.start_all().await;
    for number in 0..5 {
        trio.node(1 + number % 3).order(&number.to_string()).await;
    }
    trio.same(5).await;
    trio.kill(3).await;
    std::fs::remove_dir_all(trio.path(3)).unwrap();
    trio.recorders.insert(3, Recorder::new(0));
    trio.start(3).await;
    let said = |rows: Vec<NodeRow>| {
        let reasons = rows.into_iter().filter(|row| row.node != 3).filter_map(|row| row.reason);
        reasons.filter(|reason| reason.contains("other data")).count()
    };
    while said(trio.node(3).order.status().await) < 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(trio.node(3).order.cluster(), None, "it belongs to none, and votes for nobody");
    trio.node(1).order.change(Change::Remove(3)).await.unwrap();
    trio.node(2).order.change(Change::AddLearner(3)).await.unwrap();
    trio.node(3).until(5).await;
    trio.node(1).order.change(Change::Promote(3)).await.unwrap();
    assert_eq!(trio.node(3).order("more").await, 6);
    trio.same(6).await;
}

/// A state of when it was all of the cluster would have it lead itself, and settle other requests
/// than the others have: it is sent one that knows who the members are now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_alone_and_lost_its_data_is_sent_a_state_that_knows_the_others() {
    let mut trio = Trio::new(3);
    trio.kept_bytes = 0;
    let mut alone = trio.settings(1);
    alone.peers.retain(|node, _| *node == 1);
    let running = trio.try_start(alone, SECRET).await.unwrap();
    trio.running.insert(1, running);
    let long = "x".repeat(10_000);
    for number in 0..40 {
        trio.node(1).order(&format!("{number}{long}")).await;
    }
    let first = trio.node(1);
    until("it has them", || first.recorder.applied().min(first.order.marks().synced) >= 40).await;
    first.recorder.checkpoint(40);
    first.order.checkpointed(40).await.unwrap();
    until("old segments are removed", || std::fs::read_dir(trio.path(1)).unwrap().count() < 5).await;
    trio.kill(1).await;
    trio.start_all().await;
    for node in [2, 3] {
        trio.node(1).order.change(Change::AddLearner(node)).await.unwrap();
        trio.node(node).until(40).await;
        trio.node(1).order.change(Change::Promote(node)).await.unwrap();
    }
    assert_eq!(trio.node(2).order("of three").await, 41);
    trio.kill(1).await;
    std::fs::remove_dir_all(trio.path(1)).unwrap();
    trio.recorders.insert(1, Recorder::new(0));
    trio.start(1).await;
    assert_eq!(trio.node(2).order("of two").await, 42);
    trio.node(2).order.change(Change::Remove(1)).await.unwrap();
    trio.node(3).order.change(Change::AddLearner(1)).await.unwrap();
    trio.node(1).until(42).await;
    trio.node(2).order.change(Change::Promote(1)).await.unwrap();
    let at = trio.kill(1).await;
    assert!(at >= 42, "its state is of {at}, when the others were no members");
    trio.start(1).await;
    assert_eq!(trio.node(1).order("of three again").await, 43);
    trio.same(43).await;
}

/// Its connections are older than its coming again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_removed_and_added_again_is_refused_once_its_data_are_lost() {
    let mut trio = Trio::new(3);
    trio.start_all().await;
    trio.node(1).order.change(Change::Remove(3)).await.unwrap();
    trio.node(2).order.change(Change::AddLearner(3)).await.unwrap();
    for (number, request) in [(1, "one"), (2, "two")] {
        trio.node(2).order(request).await;
        trio.same(number).await;
    }
    for node in [1, 2] {
        trio.node(3).order.ask(node, Bytes::from_static(b"how")).await.unwrap();
    }
    trio.kill(3).await;
    std::fs::remove_dir_all(trio.path(3)).unwrap();
    trio.recorders.insert(3, Recorder::new(0));
    trio.start(3).await;
    let refuses = |row: &NodeRow| row.reason.as_ref().is_some_and(|reason| reason.contains("other data"));
    while trio.node(3).order.status().await.iter().filter(|row| row.node != 3 && refuses(row)).count() < 2 {
        tokio::task::yield_now().await;
    }
}

/// It leads for a moment still, without a vote, and is asked just then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_removed_is_added_again_at_once() {
    let mut trio = Trio::new(3);
    trio.start_all().await;
    for round in 1..=3 {
        assert_eq!(trio.node(1).order(&round.to_string()).await, round);
        let leads = |node: &NodeNumber| trio.node(*node).order.leader() == Some(*node);
        until("one leads", || [1, 2, 3].iter().any(leads)).await;
        let leader = [1, 2, 3].into_iter().find(leads).unwrap();
        let (here, there) = (&trio.node(leader).order, &trio.node(leader % 3 + 1).order);
        here.change(Change::Remove(leader)).await.unwrap();
        let add = Change::AddLearner(leader);
        let elsewhere = async {
            until("it leads no more", || !leads(&leader)).await;
            there.change(add).await
        };
        // Once it is a member again it hears who leads now, and asks there.
        let (asked, added) = tokio::join!(here.change(add), elsewhere);
        println!("round {round}: {asked:?} at node {leader} itself");
        added.unwrap();
        there.change(Change::Promote(leader)).await.unwrap();
        let votes = |node: NodeNumber| trio.node(node).order.members().is_voter(leader);
        until("all vote", || [1, 2, 3].into_iter().all(votes)).await;
    }
    trio.same(3).await;
}

/// Who is well does not leave before who is lost: nothing would be ordered any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_leaves_whose_leaving_would_end_the_cluster() {
    let mut trio = Trio::new(3);
    trio.start_all().await;
    assert_eq!(trio.node(1).order("one").await, 1);
    trio.kill(2).await;
    let leads = |node| trio.node(node).order.leader().is_some_and(|leader| leader != 2);
    until("another one leads", || leads(1) && leads(3)).await;
    for node in [1, 3] {
        let refused = trio.node(1).order.change(Change::Remove(node)).await;
        assert!(
            matches!(&refused, Err(OrderError::Refused(why)) if why.contains("1 of the 2 that would vote")),
            "{refused:?}"
        );
    }
    assert_eq!(trio.node(3).order("two").await, 2);
    trio.node(3).order.change(Change::Remove(2)).await.unwrap();
    trio.node(3).order.change(Change::Remove(1)).await.unwrap();
    let alone = || trio.node(3).order.members().nodes.len() == 1;
    until("one is left", alone).await;
    until("it leads", || trio.node(3).order.leader() == Some(3)).await;
    let refused = trio.node(3).order.change(Change::Remove(3)).await;
    assert!(
        matches!(&refused, Err(OrderError::Refused(why)) if why.contains("only one that votes")),
        "{refused:?}"
    );
    assert_eq!(trio.node(3).order("three").await, 3);
    // The one that was removed is told so by the one that is left.
    loop {
        let rows = trio.node(1).order.status().await;
        let reason = rows.into_iter().find(|row| row.node == 1).and_then(|row| row.reason);
        if reason.is_some_and(|reason| reason.starts_with("it is no member of the cluster")) {
            break;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_between_nodes() {
    use tokio_rustls::rustls::pki_types::{PrivateKeyDer, ServerName};
    use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
    let made = rcgen::generate_simple_self_signed(vec!["cluster".to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let server =
        ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate.clone()], key);
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let mut trio = Trio::new(3);
    trio.tls = Some(Tls {
        acceptor: tokio_rustls::TlsAcceptor::from(Arc::new(server.unwrap())),
        connector: tokio_rustls::TlsConnector::from(Arc::new(client)),
        name: ServerName::try_from("cluster").unwrap(),
    });
    trio.start_all().await;
    trio.node(2).order("hidden").await;
    assert_eq!(trio.same(1).await, ["hidden"]);
}
