use super::*;
use crate::application::SnapshotSource;
use crate::application::{Answer, Failure, Snapshot};
use bytes::Bytes;
use openraft::StorageError;
use openraft::storage::RaftStateMachine;
use openraft::testing::log::{StoreBuilder, Suite};

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
        let flushes_inline = self.flushes_inline;
        let storage = Storage { log: Arc::clone(&log), flushes_inline, append_bytes: 1 << 20 };
        let shared = Shared { claims_applied: true, is_running: true.into(), ..Shared::default() };
        let machine = Machine {
            log,
            application: Arc::new(Empty),
            settled: watch::channel(Settled::default()).0,
            shared: Arc::new(shared),
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
