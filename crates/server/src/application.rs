//! What the order asks of a node's database: its durable state for a node that is too far behind,
//! to take in such a state itself, and its digest at a position.
//!
//! A state that was taken in becomes the database's at its next opening, so the node stops and
//! starts again by itself when one is complete (`cluster`, [`crate::assemble`]).

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use cognate_engine::{Database, Incoming, Outgoing};
use cognate_env::Disk;
use cognate_replication::application::{
    Answer, Application, Failure, Snapshot, SnapshotSink, SnapshotSource,
};
use cognate_replication::entry::{NodeNumber, Position};

use crate::observation::own_digest;

/// Gives and takes a node's state, and answers what other nodes ask.
pub(crate) struct NodeData {
    pub(crate) engine: Database,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) data: PathBuf,
    /// Largest chunk of a state.
    pub(crate) chunk_bytes: usize,
    /// In what this node differs from the others, once that is found.
    pub(crate) differs: Arc<OnceLock<String>>,
    /// Whether a newer state is made for another node, or was just now.
    pub(crate) is_renewing: Arc<AtomicBool>,
}

/// Pause after a state was made anew for another node, before that is done again.
const RENEW_PAUSE: Duration = Duration::from_secs(1);

/// Does what blocks on a thread that may.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, cognate_engine::Error> + Send + 'static,
) -> Result<T, Failure> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(error) => Err(format!("a defect: {error}")),
    }
}

/// Why no state could be opened. A checkpoint that is at work is no failure of the disk.
fn unopened(error: cognate_engine::Error) -> Failure {
    match &error {
        cognate_engine::Error::Io { cause, .. } if cause.kind() == io::ErrorKind::WouldBlock => {
            "a checkpoint is at work at this node: its state will be asked for again".to_owned()
        }
        _ => error.to_string(),
    }
}

impl Application for NodeData {
    fn open_snapshot(&self) -> Answer<'_, Result<Snapshot, Failure>> {
        let (engine, chunk_bytes) = (self.engine.clone(), self.chunk_bytes);
        let differs = Arc::clone(&self.differs);
        Box::pin(async move {
            // Who has it from here would differ from the others, too.
            if let Some(why) = differs.get() {
                return Err(format!("this node's state is not the others': {why}"));
            }
            let outgoing = blocking(move || Ok(engine.outgoing().map_err(unopened))).await??;
            let position = outgoing.position();
            tracing::info!(position, "another node is sent this one's state");
            let source = Box::new(Source { outgoing: Some(outgoing), chunk_bytes });
            Ok(Snapshot { position, source })
        })
    }

    fn renew_snapshot(&self) {
        // One at a time: no state can be opened during a checkpoint, and it is asked for this much
        // more often than one takes. Nor at once after one that failed, as on a full disk.
        if self.is_renewing.swap(true, Ordering::AcqRel) {
            return;
        }
        let engine = self.engine.clone();
        // Begun here, and not in the task: it ends before the database is closed.
        let made = tokio::task::spawn_blocking(move || engine.checkpoint());
        let is_renewing = Arc::clone(&self.is_renewing);
        tokio::spawn(async move {
            if let Ok(Err(error)) = made.await {
                tracing::warn!(%error, "a newer state for another node could not be made");
            }
            tokio::time::sleep(RENEW_PAUSE).await;
            is_renewing.store(false, Ordering::Release);
        });
    }

    fn begin_install(&self, position: Position) -> Answer<'_, Result<Box<dyn SnapshotSink>, Failure>> {
        let (disk, data) = (Arc::clone(&self.disk), self.data.clone());
        Box::pin(async move {
            tracing::info!(position, "this node is far behind, and is sent another one's state");
            let incoming = blocking(move || Incoming::begin(disk, &data)).await?;
            Ok(Box::new(Sink { incoming: Some(incoming) }) as Box<dyn SnapshotSink>)
        })
    }

    fn answer(&self, _from: NodeNumber, question: Bytes) -> Answer<'_, Result<Bytes, Failure>> {
        let position = question.as_ref().try_into().map(u64::from_be_bytes).ok();
        let engine = self.engine.clone();
        Box::pin(async move {
            let digest = match position {
                Some(position) => own_digest(&engine, position).await,
                None => None,
            };
            digest.map(|digest| Bytes::copy_from_slice(&digest)).ok_or_else(|| "not known here".to_owned())
        })
    }
}

/// The state that is sent. It is away while it is read.
struct Source {
    outgoing: Option<Outgoing>,
    chunk_bytes: usize,
}

impl SnapshotSource for Source {
    fn next(&mut self) -> Answer<'_, Result<Option<Bytes>, Failure>> {
        Box::pin(async move {
            let mut outgoing = self.outgoing.take().ok_or("reading the state failed before")?;
            let chunk_bytes = self.chunk_bytes;
            let (outgoing, chunk) = blocking(move || {
                let chunk = outgoing.next(chunk_bytes)?;
                Ok((outgoing, chunk))
            })
            .await?;
            self.outgoing = Some(outgoing);
            Ok(chunk)
        })
    }
}

/// The state that is taken in. It is away while it is written.
struct Sink {
    incoming: Option<Incoming>,
}

impl SnapshotSink for Sink {
    fn put(&mut self, chunk: Bytes) -> Answer<'_, Result<(), Failure>> {
        Box::pin(async move {
            let mut incoming = self.incoming.take().ok_or("writing the state failed before")?;
            let incoming = blocking(move || incoming.put(chunk).map(|()| incoming)).await?;
            self.incoming = Some(incoming);
            Ok(())
        })
    }

    fn finish(mut self: Box<Self>) -> Answer<'static, Result<(), Failure>> {
        Box::pin(async move {
            let incoming = self.incoming.take().ok_or("writing the state failed before")?;
            blocking(move || incoming.finish()).await
        })
    }
}

#[cfg(test)]
mod tests {
    use cognate_engine::{Node, Options, TotalOrder};
    use cognate_env::sim::SimDisk;

    use super::*;

    /// An order that nothing comes back from.
    struct Nowhere;

    impl TotalOrder for Nowhere {
        fn propose(&self, _request: Bytes) {}

        fn request_bytes_max(&self) -> u64 {
            1 << 20
        }

        fn wait_synced(&self, _position: u64) -> bool {
            true
        }
    }

    #[test]
    fn a_checkpoint_at_work_is_not_said_to_be_a_failure_of_the_disk() {
        let unread = |kind: io::ErrorKind| {
            let cause = Arc::new(io::Error::new(kind, "why"));
            unopened(cognate_engine::Error::Io { file: PathBuf::from("/node"), operation: "reading", cause })
        };
        let busy = unread(io::ErrorKind::WouldBlock);
        assert!(busy.contains("asked for again") && !busy.contains("error"), "{busy}");
        assert_eq!(unread(io::ErrorKind::Other), "input/output error while reading /node: why");
    }

    /// A node that is far behind is sent the state of the one that leads, and would have from it
    /// what the others have not.
    #[tokio::test]
    async fn who_differs_sends_nobody_its_state() {
        let mut options = Options::new("/node");
        options.disk = SimDisk::new(1).handle();
        options.node = Some(Node { number: 1, start: 1, order: Arc::new(Nowhere) });
        let data = NodeData {
            engine: Database::open(options).expect("opened"),
            disk: SimDisk::new(2).handle(),
            data: PathBuf::from("/node"),
            chunk_bytes: 1 << 10,
            differs: Arc::default(),
            is_renewing: Arc::default(),
        };
        let before = data.open_snapshot().await.expect_err("the order has everything");
        assert!(before.contains("no image yet"), "{before}");
        data.differs.set("its digest at position 7 differs".to_owned()).expect("nothing is said yet");
        let refused = data.open_snapshot().await.expect_err("it differs");
        assert!(refused.contains("position 7"), "{refused}");
    }
}
