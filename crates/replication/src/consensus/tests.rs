use super::*;
use crate::application::SnapshotSource;
use crate::application::{Answer, Failure, Snapshot};
use crate::log::record::{Birth, LOG_VERSION};
use crate::messages::{Kind, SnapshotAnswer, answer};
use crate::net::CallError;
use bytes::Bytes;
use openraft::StorageError;
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::storage::{IOFlushed, RaftLogStorage, RaftStateMachine};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::type_config::TypeConfigExt;
use std::sync::atomic::AtomicBool;

/// An application of which only snapshots matter, and they are empty.
struct Empty;

impl SnapshotSource for Empty {
    fn next(&mut self) -> Answer<'_, Result<Option<Bytes>, Failure>> {
        Box::pin(async { Ok(None) })
    }
}

impl SnapshotSink for Empty {
    fn put(&mut self, _: Bytes) -> Answer<'_, Result<(), Failure>> {
        Box::pin(async { Ok(()) })
    }

    fn finish(self: Box<Self>) -> Answer<'static, Result<(), Failure>> {
        Box::pin(async { Ok(()) })
    }
}

impl Application for Empty {
    fn open_snapshot(&self) -> Answer<'_, Result<Snapshot, Failure>> {
        Box::pin(async { Ok(Snapshot { position: 0, source: Box::new(Empty) }) })
    }

    fn begin_install(&self, _: Position) -> Answer<'_, Result<Box<dyn SnapshotSink>, Failure>> {
        Box::pin(async { Ok(Box::new(Empty) as Box<dyn SnapshotSink>) })
    }
}

struct Stores {
    flushes_inline: bool,
}

impl StoreBuilder<Types, Storage, Machine> for Stores {
    async fn build(&self) -> Result<((), Storage, Machine), StorageError<Types>> {
        let disk = cognate_env::sim::SimDisk::new(1).handle();
        let options =
            cognate_engine::storage::LogOptions { prepare: false, idle_mark: None, ..Default::default() };
        let log = OrderLog::open(&disk, std::path::Path::new("/log"), options, 1 << 20, 0);
        let log = Arc::new(log.expect("an empty disk"));
        let flushes_inline = self.flushes_inline.then(FlushTime::default);
        let shared = Shared { claims_applied: true, is_running: true.into(), ..Shared::default() };
        let shared = Arc::new(shared);
        let settled = Arc::new(Mark::new(Settled::default()));
        let storage = Storage {
            log: Arc::clone(&log),
            flushes_inline: flushes_inline.clone(),
            append_bytes: 1 << 20,
            unconfirmed: Unconfirmed::start(),
            shared: Arc::clone(&shared),
            settled: Arc::downgrade(&settled),
        };
        let machine = Machine {
            log,
            application: Arc::new(Empty),
            settled,
            shared,
            flushes_inline,
            applied: None,
            members: MembersAt::default(),
            snapshot: None,
        };
        Ok(((), storage, machine))
    }
}

#[tokio::test(start_paused = true)]
async fn the_log_passes_the_suite_of_openraft() {
    for flushes_inline in [false, true] {
        Suite::test_all(Stores { flushes_inline }).await.expect("the suite");
    }
}

/// Many wait at a time, and some are alone, since everything before them is settled: all of them
/// are confirmed. So it is at the leader, too, which wakes the log's thread for a lone one later.
#[tokio::test]
async fn whatever_is_appended_is_confirmed() {
    for (node, flushes_inline) in [(1, false), (2, false), (1, true)] {
        let stores = Stores { flushes_inline };
        let ((), mut storage, _machine) = stores.build().await.expect("an empty log");
        let birth = Birth { version: LOG_VERSION, cluster: [1; 16], node, incarnation: 1, began: 0 };
        storage.log.set_birth(birth).expect("it is written").wait().expect("it is durable");
        all_is_confirmed(&mut storage).await;
    }
}

/// Appends entries of node 1's leadership.
async fn all_is_confirmed(storage: &mut Storage) {
    let mut told = Vec::new();
    for index in 0..200 {
        let (tell, answer) = Types::oneshot::<std::io::Result<()>>();
        let id = EntryId { leadership: Leadership { term: 1, node: 1 }, index };
        let entry = raft_entry(Entry { id, content: Content::Blank });
        storage.append([entry], IOFlushed::<Types>::signal(tell)).await.expect("it follows");
        if index % 3 == 0 {
            storage.save_committed(Some(log_id(id))).await.expect("it is noted");
        }
        told.push(answer);
    }
    for answer in told {
        answer.await.expect("it is told").expect("it is durable");
    }
}

/// Who waits for a commit is woken before the other nodes are told of it. A snapshot is this node's
/// state once the machine says so, and what follows it is settled after that.
#[tokio::test]
async fn what_is_settled_is_known_at_once_unless_a_snapshot_may_come_before_it() {
    let stores = Stores { flushes_inline: true };
    let ((), mut storage, machine) = stores.build().await.expect("an empty log");
    let id = |index| Some(log_id(EntryId { leadership: Leadership { term: 1, node: 1 }, index }));
    let mut settled = machine.settled.subscribe();
    storage.save_committed(id(3)).await.expect("it is noted");
    assert_eq!(settled.borrow_and_update().index, Some(3));
    storage.save_committed(id(2)).await.expect("it is noted");
    assert!(!settled.has_changed().expect("the machine is there"), "nobody is woken in vain");
    assert_eq!(settled.borrow().index, Some(3));
    storage.shared.takes_snapshots.store(true, Ordering::Release);
    storage.save_committed(id(5)).await.expect("it is noted");
    assert_eq!(settled.borrow().index, Some(3), "the machine knows");
    drop(machine);
    assert!(settled.changed().await.is_err(), "the mark ends with the machine");
}

/// The runtime has one thread, whose tasks have no turn before the test waits.
#[tokio::test]
async fn other_nodes_are_told_before_it_is_known_here_unless_somebody_here_waits() {
    let stores = Stores { flushes_inline: true };
    let ((), mut storage, machine) = stores.build().await.expect("an empty log");
    let birth = Birth { version: LOG_VERSION, cluster: [1; 16], node: 1, incarnation: 1, began: 0 };
    storage.log.set_birth(birth).expect("it is written").wait().expect("it is durable");
    let id = |node, index| Some(log_id(EntryId { leadership: Leadership { term: 1, node }, index }));
    let who_is_woken = || {
        let settled = machine.settled.subscribe();
        tokio::spawn(async move { settled.borrow().index })
    };
    let woken = who_is_woken();
    storage.save_committed(id(1, 3)).await.expect("it is noted");
    assert_eq!(woken.await.expect("it runs"), None, "others are told first");
    assert_eq!(machine.settled.subscribe().borrow().index, Some(3));
    let awaited = Awaited::of(&storage.shared);
    let woken = who_is_woken();
    storage.save_committed(id(1, 4)).await.expect("it is noted");
    assert_eq!(woken.await.expect("it runs"), Some(4), "somebody here waits");
    drop(awaited);
    let woken = who_is_woken();
    storage.save_committed(id(2, 5)).await.expect("it is noted");
    assert_eq!(woken.await.expect("it runs"), Some(5), "another node tells the others");
}

/// A node that is sent a snapshot has not seen who was removed: that one may come again with other
/// data, and nobody else may.
#[tokio::test]
async fn who_has_left_before_a_snapshot_may_come_again_with_other_data() {
    let stores = Stores { flushes_inline: true };
    let ((), storage, mut machine) = stores.build().await.expect("an empty log");
    let log = Arc::clone(&storage.log);
    assert!(log.meet(2, 7) && log.meet(3, 7) && !log.meet(3, 8), "they are known");
    let id = |index| EntryId { leadership: Leadership { term: 1, node: 1 }, index };
    let nodes = BTreeSet::from([1, 2]);
    let members = MembersAt { at: Some(id(6)), members: Members { voters: vec![nodes.clone()], nodes } };
    let base = Base { id: Some(id(9)), position: 9, members };
    let meta = meta_of(&base);
    let parcel = Parcel::Incoming { base, position: 9, sink: Box::new(Empty) };
    machine.install_snapshot(&meta, parcel).await.expect("it is taken in");
    assert!(log.meet(3, 8), "it has left");
    assert!(!log.meet(2, 8), "it has stayed");
}

/// A node that needs no snapshot, and has given its vote to the leader of a later term.
struct Deserter;

impl Wire for Deserter {
    fn call(&self, _: NodeNumber, request: Bytes) -> Answer<'static, Result<Bytes, CallError>> {
        let ballot = Ballot { leadership: Leadership { term: 2, node: 2 }, is_elected: true };
        let answered = match Kind::of(&request) {
            Some(Kind::SnapshotBegin) => answer(Ok(SnapshotAnswer::Here)),
            Some(Kind::Append) => answer(Ok(Appended::Higher(ballot))),
            kind => panic!("it is asked {kind:?}"),
        };
        Box::pin(async move { Ok(answered) })
    }

    fn problem(&self, _: NodeNumber) -> Option<String> {
        None
    }

    fn close(&self) -> Answer<'static, ()> {
        Box::pin(async {})
    }
}

/// That a snapshot is not needed is no sign that its sender still leads: reads would rely on it.
#[tokio::test]
async fn who_needs_no_snapshot_still_says_whom_it_follows() {
    let stores = Stores { flushes_inline: true };
    let ((), storage, mut machine) = stores.build().await.expect("an empty log");
    let _builder = machine.get_snapshot_builder().await;
    let snapshot = machine.get_current_snapshot().await.expect("it is opened").expect("there is one");
    let identity = Identity::new(1, 1, BTreeSet::from([1, 3]), Arc::clone(&storage.log));
    let (wire, identity) = (Arc::new(Deserter), Arc::new(identity));
    let mut links = Links { wire, identity, states: machine.states() };
    let mut link = links.new_client(3, &EmptyNode::new()).await;
    let vote = vote_of(Ballot { leadership: Leadership { term: 1, node: 1 }, is_elected: true });
    let option = RPCOption::new(Duration::from_secs(60));
    let sent = link.full_snapshot(vote, snapshot, std::future::pending(), option).await;
    assert_eq!(ballot_of(sent.expect("an answer").vote).leadership.term, 2);
}

/// A node that confirms once, and has nothing of it any more then.
struct Forgetful(AtomicBool);

impl Wire for Forgetful {
    fn call(&self, _: NodeNumber, _: Bytes) -> Answer<'static, Result<Bytes, CallError>> {
        let appended = match self.0.swap(true, Ordering::Relaxed) {
            true => Appended::Conflict,
            false => Appended::All,
        };
        let answered = answer(Ok(appended));
        Box::pin(async move { Ok(answered) })
    }

    fn problem(&self, _: NodeNumber) -> Option<String> {
        None
    }

    fn close(&self) -> Answer<'static, ()> {
        Box::pin(async {})
    }
}

/// That somebody lacks what comes behind is how his log is searched through; that he lacks what he
/// has confirmed is another matter.
#[tokio::test]
async fn who_has_lost_what_he_confirmed_is_sent_nothing_any_more() {
    let stores = Stores { flushes_inline: true };
    let ((), storage, machine) = stores.build().await.expect("an empty log");
    let leadership = Leadership { term: 1, node: 1 };
    let asked = |index| AppendEntriesRequest::<Types> {
        vote: vote_of(Ballot { leadership, is_elected: true }),
        prev_log_id: Some(log_id(EntryId { leadership, index })),
        entries: Vec::new(),
        leader_commit: None,
    };
    let option = || RPCOption::new(Duration::from_secs(60));
    for is_heartbeat in [false, true] {
        let identity = Identity::new(1, 1, BTreeSet::from([1, 3]), Arc::clone(&storage.log));
        let identity = Arc::new(identity);
        let wire = Arc::new(Forgetful(AtomicBool::new(is_heartbeat)));
        let mut links = Links { wire, identity: Arc::clone(&identity), states: machine.states() };
        let mut link = match is_heartbeat {
            true => links.new_heartbeat_client(3, &EmptyNode::new()).await,
            false => links.new_client(3, &EmptyNode::new()).await,
        };
        if !is_heartbeat {
            let confirmed = link.append_entries(asked(5), option()).await;
            assert!(matches!(confirmed, Ok(AppendEntriesResponse::Success)));
            let searched = link.append_entries(asked(6), option()).await;
            assert!(matches!(searched, Ok(AppendEntriesResponse::Conflict)));
        }
        assert!(!identity.has_lost(3));
        let refused = link.append_entries(asked(5), option()).await.expect_err("it has lost that");
        assert!(refused.to_string().contains("lost what it had confirmed"), "{refused}");
        assert!(identity.has_lost(3));
        let vote = VoteRequest::new(asked(5).vote, None);
        assert!(link.vote(vote, option()).await.is_err(), "its vote is worth no more");
        storage.log.forget_others(&BTreeSet::from([1])).expect("it is removed");
        assert!(!identity.has_lost(3));
    }
}

/// Its last metrics say that it runs.
#[tokio::test]
async fn a_consensus_that_has_panicked_says_so() {
    let stores = Stores { flushes_inline: true };
    let ((), storage, _machine) = stores.build().await.expect("an empty log");
    let log = Arc::clone(&storage.log);
    let identity = Arc::new(Identity::new(1, 1, BTreeSet::from([1, 3]), Arc::clone(&log)));
    let settled = Mark::new(Settled::default());
    let (application, wire) = (Arc::new(Empty), Arc::new(Deserter));
    let flushes_inline = Some(FlushTime::default());
    let parts = Parts { log, application, wire, identity, settled, flushes_inline };
    let (timing, limits) = (Timing::default(), Limits::default());
    let consensus = Consensus::start(parts, &timing, &limits).await.expect("it starts");
    assert_eq!(consensus.view().failure, None);
    let is_settled = storage.log.committed().is_some();
    let asked = consensus.raft.with_raft_state(move |_| assert!(is_settled, "on purpose")).await;
    assert!(asked.is_err(), "it has ended");
    while consensus.view().failure.is_none() {
        // Who notes it has not had its turn.
        tokio::task::yield_now().await;
    }
    let failure = consensus.view().failure.unwrap_or_default();
    assert!(failure.contains("panicked"), "{failure}");
    consensus.stop().await;
    assert_eq!(consensus.view().failure, Some(failure));
}
