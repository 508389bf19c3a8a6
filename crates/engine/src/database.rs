//! The database as the world sees it.

use std::path::PathBuf;
use std::sync::Arc;

use crate::active::TransactionInfo;
use crate::background::Background;
use crate::certifier::{Method, Watch};
use crate::delivery::Applied;
use crate::durable::{Commit, DurableWait};
use crate::governor::Governor;
use crate::image::found;
use crate::level::{Access, Isolation};
use crate::lock::view::LockInfo;
use crate::manager::Manager;
use crate::options::Options;
use crate::order::Operation;
use crate::prepared::{Owner, PreparedInfo};
use crate::sibling::{Begun, InDoubt, Instance, Told, Xid};
use crate::storage::{Backup, Outgoing};
use crate::sync::atomic::Ordering;
use crate::transaction::Transaction;
use crate::turns::{Executed, Lists, Progress};
use crate::upkeep::Upkeep;
use crate::{Csn, Error, Key, TransactionId, TreeId, Value};

/// An open database; clones are handles to the same one.
#[derive(Clone)]
pub struct Database {
    /// For transactions.
    pub(crate) manager: Arc<Manager>,
    /// The threads that look after the database, with what they and it need for that.
    background: Arc<Background>,
}

impl Database {
    /// Opens the folder, creating an empty database if there is none, and recovers what was
    /// committed.
    ///
    /// # Errors
    /// `Corrupt` naming file and offset, `InUse` if it is open already, `Io`.
    pub fn open(options: Options) -> Result<Database, Error> {
        let (manager, recovered) = Manager::open(options)?;
        let manager = Arc::new(manager);
        manager.restore_prepared()?;
        let upkeep = Arc::new(Upkeep::new(Arc::clone(&manager), recovered));
        let background = Arc::new(Background::start(&upkeep)?);
        Ok(Database { manager, background })
    }

    /// Makes the data of a database of its own those of a cluster's first node: opens the folder,
    /// moves everything to the base store, and closes it. From then on it opens as a node's only,
    /// and the cluster begins behind the position that is returned.
    ///
    /// # Errors
    /// As `open`; `InvalidArgument` if something is prepared, or if it is a node's already.
    pub fn found_cluster(options: Options) -> Result<Csn, Error> {
        let (disk, folder) = (Arc::clone(&options.disk), options.path.clone());
        let database = Database::open(options)?;
        let prepared = database.prepared().len();
        if prepared > 0 {
            let what = format!("{prepared} prepared transactions are not decided yet");
            return Err(Error::InvalidArgument(what));
        }
        database.close()?;
        let position = database.manager.store.base.watermark();
        drop(database);
        found(&disk, &folder, position)?;
        Ok(position)
    }

    /// For what is of no transaction, and for tests that look at the marks, or plant faults.
    pub(crate) fn manager(&self) -> &Arc<Manager> {
        &self.manager
    }

    /// For what is of the database as a whole.
    #[inline]
    pub(crate) fn upkeep(&self) -> &Arc<Upkeep> {
        self.background.upkeep()
    }

    /// Begins a transaction.
    pub fn begin(&self, isolation: Isolation, access: Access) -> Transaction {
        Transaction::begin(Arc::clone(&self.manager), isolation, access)
    }

    /// Begins a read-only transaction whose snapshot no cycle of dependencies can ever go through:
    /// it needs no certification, and never fails for others. Waits until those serializable
    /// transactions have ended that were running at the snapshot; if one of them turns out to lead
    /// to before it, begins again with a newer one.
    ///
    /// # Errors
    /// `LogPoisoned` if the snapshot cannot become durable.
    pub async fn begin_deferrable(&self) -> Result<Transaction, Error> {
        if self.is_node() {
            // What leads to before a snapshot may be at another node: it is certified at its end.
            return Ok(self.begin(Isolation::Serializable, Access::ReadOnly));
        }
        loop {
            let (transaction, watch) = Transaction::begin_watched(&self.manager);
            let watch = Watched { manager: &self.manager, watch };
            let (snapshot, decisions) = (transaction.snapshot(), self.manager.prepared.decisions());
            self.manager.wait_durable(snapshot).await?;
            self.manager.store.snapshots.certified_since(snapshot).await;
            if watch.is_safe() {
                return Ok(transaction);
            }
            drop(transaction);
            // Who leads to before the snapshot may be certified and not shown yet: the next one is
            // to show it.
            self.manager.wait_durable(self.certified()).await?;
            if self.manager.sequencer.is_in_doubt(snapshot) {
                self.manager.prepared.decided_since(decisions).await;
            }
        }
    }

    /// Commits a prepared transaction.
    ///
    /// # Errors
    /// `NotPrepared`, `LogPoisoned`, `ShuttingDown`; it stays prepared then.
    pub fn commit_prepared(&self, identifier: &str) -> Result<Commit, Error> {
        let csn = self.manager.decide(Some(&Owner::Global(identifier.into())), &[], Vec::new())?;
        Ok(Commit::new(csn, self.manager.wait_durable_with_room(csn)))
    }

    /// Rolls a prepared transaction back.
    ///
    /// # Errors
    /// As `commit_prepared`.
    pub fn rollback_prepared(&self, identifier: &str) -> Result<Commit, Error> {
        let csn = self.manager.decide(None, &[Owner::Global(identifier.into())], Vec::new())?;
        Ok(Commit::new(csn, self.manager.wait_durable(csn)))
    }

    /// Commits a prepared transaction, or rolls it back, in a cluster as elsewhere: resolves once
    /// that has its place in the order. `name`: what the client calls the decision, not what is
    /// decided; no two requests of one name are granted in a cluster (`Transaction::name_request`).
    ///
    /// # Errors
    /// As `commit_prepared`; `NotOrdered`, and for a name `RequestKnown`, `RequestPrepared`,
    /// `RequestVoid`.
    pub fn decide_prepared_in_order(
        &self,
        identifier: &str,
        commits: bool,
        name: Option<&str>,
    ) -> impl Future<Output = Result<Commit, Error>> + Send + use<> {
        self.manager.decide_in_order(identifier, commits, name)
    }

    /// By what `outcome_of` or `outcome` know a transaction that is prepared here: what its client
    /// calls it, or its id.
    pub fn prepared_name(&self, owner: &Owner) -> Option<String> {
        self.manager.prepared.name(owner)
    }

    /// The note that a transaction was prepared with, if it is prepared.
    pub fn prepared_note(&self, owner: &Owner) -> Option<Value> {
        self.manager.prepared.note(owner).map(|(note, _)| note)
    }

    /// What a prepared transaction writes in one tree; nothing if there is no such transaction.
    pub fn prepared_rows(&self, identifier: &str, tree: TreeId) -> Vec<(Key, Option<Value>)> {
        self.manager.prepared.rows(&Owner::Global(identifier.into()), tree)
    }

    /// Prepared transactions, by id.
    pub fn prepared(&self) -> Vec<PreparedInfo> {
        self.manager.prepared.list(&*self.manager.options.clock)
    }

    /// Begins an instance of a family of siblings (`sibling`), or tells that the family is decided.
    ///
    /// # Errors
    /// `Refused`; `Corrupt` or `Io` from the base store.
    pub fn begin_instance(&self, xid: Xid, instance: Instance, isolation: Isolation) -> Result<Begun, Error> {
        self.manager.begin_sibling(xid, instance, isolation)
    }

    /// Commits a prepared instance, and aborts its siblings; may be asked any number of times.
    ///
    /// # Errors
    /// As `begin_instance`; `LogPoisoned`, `ShuttingDown`.
    pub fn commit_instance(&self, xid: &Xid, instance: Instance) -> Result<Told, Error> {
        self.manager.commit_sibling(xid, instance)
    }

    /// Ends an active or a prepared instance, for ever.
    ///
    /// # Errors
    /// As `commit_instance`.
    pub fn rollback_instance(&self, xid: &Xid, instance: Instance) -> Result<Told, Error> {
        self.manager.rollback_sibling(xid, instance)
    }

    /// Aborts, for ever, all instances up to this one that are not prepared; also of a family that
    /// nothing is known of.
    ///
    /// # Errors
    /// As `commit_instance`.
    pub fn refuse_instances(&self, xid: &Xid, upto: Instance) -> Result<Told, Error> {
        self.manager.refuse_sibling(xid, upto)
    }

    /// The table of a family. What it tells as aborted is so for ever, and stored first if it was
    /// not.
    ///
    /// # Errors
    /// As `commit_instance`.
    pub fn family(&self, xid: &Xid) -> Result<Told, Error> {
        self.manager.show_family(xid)
    }

    /// Forgets a decided family, since its client has the answer. The wait is for the record of
    /// that.
    ///
    /// # Errors
    /// As `commit_instance`.
    pub fn forget_family(&self, xid: &Xid) -> Result<DurableWait, Error> {
        self.manager.forget_family(xid)
    }

    /// As `commit_instance`, in a cluster, too: resolves once it has its place in the order.
    ///
    /// # Errors
    /// As `commit_instance`; `NotOrdered`.
    pub async fn commit_instance_in_order(&self, xid: &Xid, instance: Instance) -> Result<Told, Error> {
        self.manager.operate_in_order(xid, Operation::Commit(instance)).await
    }

    /// As `rollback_instance`, in a cluster as elsewhere.
    ///
    /// # Errors
    /// As `commit_instance_in_order`.
    pub async fn rollback_instance_in_order(&self, xid: &Xid, instance: Instance) -> Result<Told, Error> {
        self.manager.operate_in_order(xid, Operation::Rollback(instance)).await
    }

    /// As `refuse_instances`, in a cluster as elsewhere.
    ///
    /// # Errors
    /// As `commit_instance_in_order`.
    pub async fn refuse_instances_in_order(&self, xid: &Xid, upto: Instance) -> Result<Told, Error> {
        self.manager.operate_in_order(xid, Operation::Refuse(upto)).await
    }

    /// As `family`, in a cluster as elsewhere: whatever was acknowledged at any node is in it.
    ///
    /// # Errors
    /// As `commit_instance_in_order`.
    pub async fn family_in_order(&self, xid: &Xid) -> Result<Told, Error> {
        self.manager.operate_in_order(xid, Operation::Show).await
    }

    /// As `forget_family`, in a cluster as elsewhere.
    ///
    /// # Errors
    /// As `commit_instance_in_order`.
    pub async fn forget_family_in_order(&self, xid: &Xid) -> Result<DurableWait, Error> {
        self.manager.forget_in_order(xid).await
    }

    /// Delivers the next position of a cluster's order: decides it as every node does, and shows it
    /// if it commits. To be called by one thread at a time, for position after position from 1 on,
    /// and after [`Progress::Execute`] not before [`Database::finish`].
    ///
    /// # Errors
    /// `Undecodable` if the bytes are no request, `LogPoisoned`. The node must not go on then.
    pub fn deliver(&self, position: Csn, request: &[u8]) -> Result<Progress, Error> {
        self.manager.deliver(position, request)
    }

    /// An active transaction was executed: it commits or has come to nothing, and those that wait
    /// behind it are decided.
    ///
    /// # Errors
    /// As `deliver`, and whatever kept the transaction's changes from being made. The node must not
    /// go on then.
    pub fn finish(&self, executed: Executed) -> Result<Progress, Error> {
        self.manager.finish(executed)
    }

    /// An id for [`Database::order_program`], so that whoever executes it can be told of it before.
    pub fn program_id(&self) -> TransactionId {
        self.manager.transaction_id()
    }

    /// Has a program ordered, to be executed at every node when it is its turn. Resolves to its
    /// place once it was executed here and commits.
    ///
    /// # Errors
    /// `RequestTooLarge`; when it resolves, `Overtaken` by a prepared transaction, `RequestKnown`,
    /// `SerializationFailure` for one that came to nothing when it was executed, `NotOrdered`.
    pub fn order_program(
        &self,
        id: TransactionId,
        isolation: Isolation,
        name: Option<&str>,
        program: &[u8],
    ) -> Result<impl Future<Output = Result<Commit, Error>> + Send + use<>, Error> {
        let proposed = self.manager.order_program(id, isolation, name, program)?;
        let (manager, outcome) = (Arc::clone(&self.manager), Arc::clone(&proposed.0));
        Ok(async move {
            let commit = manager.committed(proposed.await?)?;
            Ok(Commit { was_met: outcome.was_met(), ..commit })
        })
    }

    /// The last position of the order that was delivered here; 0 in a database of its own.
    pub fn delivered(&self) -> Csn {
        self.manager.delivered()
    }

    /// How long the lists of the metaprotocol are, and who keeps the others waiting.
    pub fn lists(&self) -> Lists {
        self.manager.lists()
    }

    /// To be called now and then at a node: tells the others that it does not need any more what
    /// they remember for it, if it has had nothing to say since. As long as they do, reads of more
    /// than one key are ordered.
    pub fn announce_late(&self) {
        self.manager.announce_late();
    }

    /// Votes against a transaction that waits for the vote of a node which does not give it.
    /// Whichever vote is ordered first counts.
    pub fn vote_against(&self, transaction: TransactionId) {
        self.manager.vote_against(transaction);
    }

    /// Gives up what has come in parts, and not as a whole, from nodes that are no members of the
    /// cluster any more; what they have reserved for it is free once that is ordered. How many
    /// transactions those are; to be asked again until there is none. Waits for who delivers.
    pub fn give_up_of_others(&self, is_member: impl Fn(u16) -> bool) -> usize {
        self.manager.give_up_of_others(is_member)
    }

    /// The last position of the order that is judged and shown here; 0 in a database of its own.
    pub fn applied(&self) -> Csn {
        self.manager.applied()
    }

    /// The durable state of a node, for another one that is too far behind to be given the order.
    /// As long as it is held, no checkpoint removes its files.
    ///
    /// # Errors
    /// `Io`, also while a checkpoint is at work: it is to be asked for again; `Defect` in a
    /// database of its own, and before the first checkpoint.
    pub fn outgoing(&self) -> Result<Outgoing, Error> {
        self.upkeep().outgoing()
    }

    /// Where delivery would begin if a node of a cluster were started now: what its order has up to
    /// there is not needed here any more. 0 in a database of its own.
    pub fn starts_at(&self) -> Csn {
        self.manager.starts_at()
    }

    /// The last position, and a digest of all requests and verdicts up to it: equal at all nodes.
    /// `None` in a database of its own.
    pub fn digest(&self) -> Option<(Csn, [u8; 32])> {
        self.manager.digest()
    }

    /// The digest up to a position, if that is one of the last.
    pub fn digest_at(&self, position: Csn) -> Option<[u8; 32]> {
        self.manager.digest_at(position)
    }

    /// Resolves once `position` is judged and shown here.
    ///
    /// # Errors
    /// None yet; waiting for what never comes is the caller's to bound.
    pub fn wait_applied(&self, position: Csn) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        Applied::new(Arc::clone(&self.manager), position)
    }

    /// Says at this node's start which snapshots it has, and resolves once all nodes know it.
    /// Without that, what begins here counts as too old as soon as the others have gone on.
    ///
    /// # Errors
    /// `NotOrdered`.
    pub async fn introduce(&self) -> Result<(), Error> {
        self.manager.introduce().await
    }

    /// A proposal was never ordered, and never will be: its transaction is rolled back.
    pub fn not_ordered(&self, request: &[u8]) {
        self.manager.not_ordered(request);
    }

    /// The position of a transaction that was delivered, and whether it committed, as long as that
    /// is remembered.
    pub fn outcome(&self, transaction: TransactionId) -> Option<(Csn, bool)> {
        self.manager.outcome(transaction)
    }

    /// The last position that changed one of the first trees, which are the system's; 0 in a
    /// database of its own.
    pub fn changed_at(&self, tree: TreeId) -> Csn {
        self.manager.changed_at(tree)
    }

    /// Which transaction was the last to change a key, or to have a tree to itself (`None`), as
    /// long as somebody may be refused for it; none in a database of its own. May block for as long
    /// as a request is judged.
    pub fn last_at(&self, tree: TreeId, key: Option<&[u8]>) -> Option<TransactionId> {
        self.manager.last_at(tree, key)
    }

    /// The same of a request by the name that its client has given it
    /// (`Transaction::name_request`).
    pub fn outcome_of(&self, name: &str) -> Option<(Csn, bool)> {
        self.manager.outcome_of(name)
    }

    /// Whether it is a node of a cluster.
    pub fn is_node(&self) -> bool {
        self.manager.cluster.is_some()
    }

    /// Which node of a cluster it is, and how often that was started before.
    pub fn node(&self) -> Option<(u16, u32)> {
        self.manager.cluster.as_ref().map(|cluster| (cluster.node.number, cluster.node.start))
    }

    /// Families that wait for their decision, the oldest first.
    pub fn in_doubt(&self) -> Vec<InDoubt> {
        self.manager.in_doubt()
    }

    /// The last commit that new transactions see.
    pub fn visible(&self) -> Csn {
        self.manager.store.visible()
    }

    /// The last commit that has its place in the order: whatever anybody knows of this database
    /// rests on it or on earlier ones.
    pub fn certified(&self) -> Csn {
        self.manager.store.log.last()
    }

    /// The last commit that a crash cannot take back.
    pub fn durable(&self) -> Csn {
        self.manager.store.durable()
    }

    /// Resolves when commit `csn` is durable.
    pub fn wait_durable(&self, csn: Csn) -> DurableWait {
        self.manager.wait_durable(csn)
    }

    /// Whether the log has failed: what is not durable now never will be.
    pub fn is_poisoned(&self) -> bool {
        self.manager.store.log.poisoned().is_some()
    }

    /// The file with the version of a row that a snapshot shows, and the offset of the record or
    /// the block that has it: for who finds that the row makes no sense. Reads what it takes to
    /// find it.
    pub fn place_of(&self, tree: TreeId, key: &[u8], snapshot: Csn) -> Option<(PathBuf, u64)> {
        self.manager.store.place_of(tree, key, snapshot)
    }

    /// A tree id that was never used and will never be given out again.
    pub fn allocate_tree(&self) -> TreeId {
        self.manager.store.allocate_tree()
    }

    /// Limits how many transactions execute at a time; callers take seats and keep to it.
    pub fn governor(&self) -> &Arc<Governor> {
        &self.upkeep().governor
    }

    /// The memory budget it was opened with, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.manager.options.memory_bytes
    }

    /// What one transaction may write, in bytes.
    pub fn transaction_bytes(&self) -> u64 {
        self.manager.options.transaction_bytes
    }

    /// How transactions at `SERIALIZABLE` are made so.
    pub fn serializable(&self) -> Method {
        self.manager.options.serializable
    }

    /// Whether the transaction of this commit may still be in the certifier's graph.
    #[inline]
    pub fn is_in_graph(&self, commit: Csn) -> bool {
        commit >= self.manager.sequencer.quiet_below()
    }

    /// The memory that the certifier was to use when the database was opened.
    pub fn configured_certifier_bytes(&self) -> u64 {
        self.manager.options.certifier_bytes
    }

    /// Changes the memory that the certifier may use.
    pub fn set_certifier_bytes(&self, bytes: u64) {
        self.manager.set_certifier_bytes(bytes);
    }

    /// About how many rows a tree has. Rows that changed lately, or often, may count more than
    /// once.
    pub fn approximate_rows(&self, tree: TreeId) -> u64 {
        self.manager.store.approximate_rows(tree)
    }

    /// Equal to what it was: no tree has grown or shrunk by much since.
    #[inline]
    pub fn growth(&self) -> u64 {
        let checkpoints = self.upkeep().checkpoints.load(Ordering::Relaxed);
        (checkpoints << 32) + self.manager.store.memory.entries() / 8192
    }

    /// Moves what is committed so far into the base store and cuts the log. Blocks: run it on a
    /// thread of its own.
    ///
    /// # Errors
    /// `LogPoisoned`, `DiskFull` or `Io`; nothing is lost then.
    pub fn checkpoint(&self) -> Result<(), Error> {
        self.manager.wait_durable(self.manager.store.visible()).wait()?;
        self.upkeep().checkpoint(0).map(drop)
    }

    /// A backup of everything that is durable now, to be read while others go on; of a cluster's
    /// node, too. As long as it is held, its files stay. Blocks, for as long as a checkpoint takes.
    ///
    /// # Errors
    /// As `checkpoint`.
    pub fn backup(&self) -> Result<Backup, Error> {
        self.upkeep().backup()
    }

    /// Checkpoints and stops the background threads. Blocks.
    ///
    /// # Errors
    /// As `checkpoint`.
    pub fn close(&self) -> Result<(), Error> {
        let checkpoint = self.checkpoint();
        self.background.stop();
        self.manager.close().and(checkpoint)
    }

    /// Running transactions, by id.
    pub fn transactions(&self) -> Vec<TransactionInfo> {
        let now = self.manager.options.clock.monotonic();
        let running = self.manager.active.list().into_iter();
        let info = running.map(|r| TransactionInfo {
            id: r.id,
            isolation: r.isolation,
            access: r.access,
            snapshot: r.snapshot,
            age: now.saturating_sub(r.began),
            waits_for: self.manager.locks.waiting(r.id),
        });
        info.collect()
    }

    /// The lock that a transaction waits for: its tree, and its key if it is not on all of that.
    pub fn awaited_lock(&self, transaction: TransactionId) -> Option<(TreeId, Option<Key>)> {
        self.manager.locks.waiting(transaction)
    }

    /// Locks held and waited for.
    pub fn locks(&self) -> Vec<LockInfo> {
        self.manager.locks.list()
    }
}

/// Ends a watch, also if nobody waits for it any more.
struct Watched<'a> {
    manager: &'a Manager,
    watch: Watch,
}

impl Watched<'_> {
    fn is_safe(&self) -> bool {
        self.manager.sequencer.is_safe(self.watch)
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.manager.sequencer.is_safe(self.watch);
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("path", &self.manager.options.path).finish_non_exhaustive()
    }
}
