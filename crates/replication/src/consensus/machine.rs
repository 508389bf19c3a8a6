//! The state machine that openraft knows: it moves the mark of what is settled, if the storage has
//! not done so before, and hands snapshots over.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use futures_util::{Stream, StreamExt};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder};
use parking_lot::Mutex;

use super::storage::durable;
use super::{LogId, Meta, RaftSnapshot, Stored, Types, id_of, log_id, members_of, meta_of, stored};
use crate::application::{Application, Failure, SnapshotSink, SnapshotSource};
use crate::entry::{Base, EntryId, MembersAt, NodeNumber, Position};
use crate::log::OrderLog;
use crate::log::record::Install;
use crate::mark::Mark;
use crate::settings::FlushTime;

/// A snapshot on its way.
pub(crate) enum Parcel {
    /// Only its place is known.
    Nothing,
    /// To another node.
    Outgoing {
        base: Base,
        position: Position,
        source: Box<dyn SnapshotSource>,
        sending: Sending,
        /// Members as of the base, or later ones, who were removed since: they are not sent it.
        left: BTreeSet<NodeNumber>,
    },
    /// To another node, and there is nothing to be sent for now: why.
    Refused(Failure),
    /// From another node, complete.
    Incoming { base: Base, position: Position, sink: Box<dyn SnapshotSink> },
}

impl Debug for Parcel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Parcel::Nothing => "Nothing",
            Parcel::Outgoing { .. } => "Outgoing",
            Parcel::Refused(_) => "Refused",
            Parcel::Incoming { .. } => "Incoming",
        })
    }
}

/// What the machine and its owner both look at.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Up to where the application's own state is durable.
    pub(super) checkpoint: Mutex<Option<Base>>,
    /// Behind which entries snapshots stand that are being sent: one for each.
    pub(super) sending: Mutex<Vec<u64>>,
    /// Whether the start is over.
    pub(super) is_running: AtomicBool,
    /// Whether another node's snapshot has come since the start: from then on the machine alone
    /// moves the mark of what is settled, since nobody else knows when the snapshot is this node's
    /// state.
    pub(super) takes_snapshots: AtomicBool,
    /// How many entries with requests of this node are on their way: somebody here waits for them.
    pub(super) awaited: AtomicU64,
    /// Tests of the storage alone: what is applied is a checkpoint.
    pub(super) claims_applied: bool,
}

/// Somebody at this node waits for an entry to be settled, as long as this lives.
#[derive(Debug)]
#[must_use = "nobody waits any more when this is dropped"]
pub(crate) struct Awaited(Arc<Shared>);

impl Awaited {
    pub(super) fn of(shared: &Arc<Shared>) -> Awaited {
        shared.awaited.fetch_add(1, Ordering::Relaxed);
        Awaited(Arc::clone(shared))
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.0.awaited.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A snapshot that is being sent, as long as this lives: who is sent it goes on behind it in the
/// log, and would need another one, again and again, if the log were cut there meanwhile.
pub(crate) struct Sending {
    shared: Arc<Shared>,
    index: u64,
}

impl Sending {
    fn of(shared: &Arc<Shared>, base: &Base) -> Sending {
        let index = base.id.map_or(0, |id| id.index);
        shared.sending.lock().push(index);
        Sending { shared: Arc::clone(shared), index }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        let mut sending = self.shared.sending.lock();
        if let Some(place) = sending.iter().position(|index| *index == self.index) {
            sending.swap_remove(place);
        }
    }
}

/// Opens the application's state, to be sent. Links have it, which may outlive the consensus for a
/// moment, and the application must not.
#[derive(Clone)]
pub(super) struct States {
    application: Weak<dyn Application>,
    log: Arc<OrderLog>,
    shared: Arc<Shared>,
}

impl States {
    /// The last change of the members that a node can have had before it left.
    pub(super) fn last_before_it_left(&self, node: NodeNumber) -> Option<EntryId> {
        self.log.last_before_it_left(node)
    }

    /// Has a newer one made, or the first.
    pub(super) fn renew(&self) {
        if let Some(application) = self.application.upgrade() {
            application.renew_snapshot();
        }
    }

    /// Opens it. `claimed` is its base in tests of the storage alone.
    pub(super) async fn open(&self, claimed: Option<Base>) -> Result<(Base, Parcel), Failure> {
        let application = self.application.upgrade().ok_or("this node has ended")?;
        let opened = application.open_snapshot().await?;
        let base = claimed.or_else(|| self.log.base_at(opened.position));
        let base = base.ok_or("a snapshot from before the beginning of the log")?;
        // Who comes again with other data has forgotten what it confirmed. By a membership from
        // before it left it may be a majority by itself, and would lead over what is settled. All
        // others can have this state, and must, since a change of the members that is under way may
        // wait for one of them.
        let left = self.log.left_since(&base);
        if !left.is_disjoint(&self.log.members_at(u64::MAX).members.nodes) {
            application.renew_snapshot();
        }
        let sending = Sending::of(&self.shared, &base);
        let (position, source) = (opened.position, opened.source);
        let parcel = Parcel::Outgoing { base: base.clone(), position, source, sending, left };
        Ok((base, parcel))
    }
}

/// The state machine that openraft knows: it moves the mark of what is settled.
pub(crate) struct Machine {
    pub(super) log: Arc<OrderLog>,
    pub(super) application: Arc<dyn Application>,
    pub(super) settled: Arc<Mark>,
    pub(super) shared: Arc<Shared>,
    pub(super) flushes_inline: Option<FlushTime>,
    pub(super) applied: Option<EntryId>,
    pub(super) members: MembersAt,
    pub(super) snapshot: Option<Base>,
}

/// Says where the last checkpoint stands; openraft takes it for the making of a snapshot.
pub(crate) struct Builder(Base);

impl RaftSnapshotBuilder<Types> for Builder {
    type SnapshotData = Parcel;

    async fn build_snapshot(&mut self) -> io::Result<RaftSnapshot> {
        Ok(RaftSnapshot { meta: meta_of(&self.0), snapshot: Parcel::Nothing })
    }
}

impl Machine {
    fn applied_base(&self) -> Base {
        let position = self.applied.and_then(|id| self.log.end_of(id.index)).unwrap_or_default();
        Base { id: self.applied, position, members: self.members.clone() }
    }

    /// Whence states are opened that are sent.
    pub(super) fn states(&self) -> States {
        let (application, log) = (Arc::downgrade(&self.application), Arc::clone(&self.log));
        States { application, log, shared: Arc::clone(&self.shared) }
    }

    /// Sends what a snapshot holds to the application of this node.
    async fn pump(
        &self,
        position: Position,
        mut source: Box<dyn SnapshotSource>,
    ) -> io::Result<Box<dyn SnapshotSink>> {
        let mut sink = self.application.begin_install(position).await.map_err(io::Error::other)?;
        while let Some(chunk) = source.next().await.map_err(io::Error::other)? {
            sink.put(chunk).await.map_err(io::Error::other)?;
        }
        Ok(sink)
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotData = Parcel;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, Stored)> {
        Ok((self.applied.map(log_id), stored(&self.members)))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> io::Result<()>
    where
        Strm: Stream<Item = Result<EntryResponder<Types>, io::Error>> + Unpin + OptionalSend,
    {
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            let id = id_of(entry.log_id);
            if let EntryPayload::Membership(membership) = &entry.payload {
                self.members = MembersAt { at: Some(id), members: members_of(membership) };
                self.log.forget_others(&self.members.members.nodes).map_err(io::Error::other)?;
            }
            self.applied = Some(id);
            if let Some(responder) = responder {
                responder.send(self.log.first_position(id.index).unwrap_or_default());
            }
        }
        self.settled.settle(self.applied.map(|id| id.index));
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        let base = if self.shared.claims_applied {
            self.applied_base()
        } else {
            self.shared.checkpoint.lock().clone().unwrap_or_else(|| self.log.base())
        };
        if self.snapshot.as_ref().is_none_or(|snapshot| snapshot.id < base.id) {
            self.snapshot = Some(base.clone());
        }
        Builder(base)
    }

    async fn install_snapshot(&mut self, meta: &Meta, snapshot: Parcel) -> io::Result<()> {
        let (base, position, sink) = match snapshot {
            Parcel::Nothing => return Err(io::Error::other("a snapshot of which only the place is known")),
            Parcel::Outgoing { base, position, source, .. } => {
                (base, position, self.pump(position, source).await?)
            }
            Parcel::Refused(why) => return Err(io::Error::other(why)),
            Parcel::Incoming { base, position, sink } => (base, position, sink),
        };
        let install = Install { base: base.clone(), position };
        let wait = self.log.begin_install(install).map_err(io::Error::other)?;
        durable(wait, self.flushes_inline.as_ref()).await?;
        sink.finish().await.map_err(io::Error::other)?;
        self.applied = meta.last_log_id.map(id_of);
        self.members = base.members.clone();
        // As where a change of the members is applied: who has left may come again with other data.
        // Who has left *and* come again in between is refused here until that is done once more; to
        // forget those who have stayed would let in one who has lost what it confirmed.
        self.log.forget_others(&self.members.members.nodes).map_err(io::Error::other)?;
        let next_index = base.next_index();
        self.snapshot = Some(base);
        self.settled.install(self.applied.map(|id| id.index), position, next_index);
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<RaftSnapshot>> {
        let Some(known) = self.snapshot.clone() else { return Ok(None) };
        if !self.shared.is_running.load(Ordering::Acquire) {
            return Ok(Some(RaftSnapshot { meta: meta_of(&known), snapshot: Parcel::Nothing }));
        }
        let claimed = self.shared.claims_applied.then(|| known.clone());
        let (base, parcel) = match self.states().open(claimed).await {
            Ok(opened) => opened,
            Err(why) => {
                // It is the other node's affair: this one goes on, and tries it again soon.
                tracing::warn!(why, "a node is too far behind, and cannot be sent this one's state for now");
                (known, Parcel::Refused(why))
            }
        };
        Ok(Some(RaftSnapshot { meta: meta_of(&base), snapshot: parcel }))
    }
}
