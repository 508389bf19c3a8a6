//! PREPARE and its decision at a node of a cluster.
//!
//! Both are requests in the order of all nodes, and every node does the same at their positions:
//! takes the locks of what is prepared, enters it into the graph and into its table, and shows or
//! forgets it when it is decided. So any node can decide it, also if the one that prepared it is
//! gone. There is no row of it in the store: its request is kept (`order::prepared::Undecided`),
//! goes into the node's image, and restores it at a start.
//!
//! ```text
//! node 1: PREPARE TRANSACTION 'p'      proposed
//! order:  5                            every node: locks by force, strikes, a promise in the graph
//! node 2: COMMIT PREPARED 'p'          proposed
//! order:  6                            every node: versions 6, visible, then the locks go
//! ```

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use super::{Owner, Prepared};
use crate::certifier::{Candidate, Mixing, Promise};
use crate::delivery::{Cluster, FIRST_TREES};
use crate::durable::Commit;
use crate::lock::mode::FamilySlot;
use crate::lock::table::{Held, HeldLock};
use crate::manager::Manager;
use crate::order::{Preparing, Purpose, Request, Undecided};
use crate::own::OwnRow;
use crate::proposed::{Proposed, Sealed};
use crate::sequencer::{Decision, Pending, Place};
use crate::sync::atomic::Ordering;
use crate::transaction::Transaction;
use crate::txn::change::Effects;
use crate::txn::readset::ReadSet;
use crate::txn::writeset::key_writes;
use crate::{Error, TransactionId, Value};

/// A request whose place in the order has come, and to which nobody's locks are against.
pub(crate) struct Arrived<'a> {
    pub(crate) place: Place,
    /// How far its reads must hold.
    pub(crate) mixing: Option<Mixing<'a>>,
    pub(crate) request: &'a Request,
    pub(crate) locks: &'a [(HeldLock, bool)],
}

impl Transaction {
    /// Prepares, in a cluster as elsewhere: resolves once every node has it, or will.
    ///
    /// # Errors
    /// As `prepare`; `Overtaken`.
    pub async fn prepare_in_order(mut self, identifier: &str, note: Value) -> Result<Commit, Error> {
        if self.manager.cluster.is_none() {
            return self.prepare(identifier, note);
        }
        if self.member.is_some() {
            return Err(Error::CannotPrepare {
                reason: "an instance of a family is prepared by PREPARE MIP",
            });
        }
        let manager = Arc::clone(&self.manager);
        let preparing = Preparing {
            prepared_us: manager.options.clock.wall_us(),
            owner: Owner::Global(identifier.into()),
            texts: Default::default(),
            note,
        };
        let proposed = self.propose(Purpose::Prepare(Box::new(preparing)));
        drop(self);
        manager.committed(proposed?.await?)
    }
}

impl Manager {
    /// Decides about a prepared transaction, in a cluster as elsewhere. There its client may call
    /// the decision something.
    pub(crate) fn decide_in_order(
        self: &Arc<Manager>,
        identifier: &str,
        commits: bool,
        name: Option<&str>,
    ) -> impl Future<Output = Result<Commit, Error>> + Send + use<> {
        let (manager, identifier) = (Arc::clone(self), Box::from(identifier));
        let name = name.map(Box::from);
        async move {
            let csn = match &manager.cluster {
                None => {
                    let owner = Owner::Global(identifier);
                    let (winner, losers) = match commits {
                        true => (Some(&owner), [].as_slice()),
                        false => (None, std::slice::from_ref(&owner)),
                    };
                    manager.decide(winner, losers, Vec::new())?
                }
                Some(cluster) => manager.propose_decision(cluster, identifier, commits, name)?.await?,
            };
            manager.committed(csn)
        }
    }

    fn propose_decision(
        &self,
        cluster: &Cluster,
        identifier: Box<str>,
        commits: bool,
        name: Option<Box<str>>,
    ) -> Result<Proposed, Error> {
        let applied = cluster.applied.load(Ordering::Acquire);
        let mut request = self.request_about(applied, Purpose::Decide { identifier, commits });
        request.name = name;
        self.propose_request(cluster, &request)
    }

    /// Proposes a request that is about others than a transaction of its own.
    pub(crate) fn propose_about(&self, cluster: &Cluster, purpose: Purpose) -> Result<Proposed, Error> {
        let request = self.request_about(cluster.applied.load(Ordering::Acquire), purpose);
        self.propose_request(cluster, &request)
    }

    /// The same of a request that there is.
    pub(crate) fn propose_request(&self, cluster: &Cluster, request: &Request) -> Result<Proposed, Error> {
        let bytes = request.encode(0);
        let limit = cluster.node.order.request_bytes_max();
        if bytes.len() as u64 > limit {
            return Err(Error::RequestTooLarge { limit });
        }
        let sealed = Sealed::default();
        let proposed = Proposed(Arc::clone(&sealed.outcome));
        cluster.sealed.lock().insert(request.id, sealed);
        cluster.node.order.propose(bytes.into());
        Ok(proposed)
    }

    /// Second part of the verdict about what is no commit, and what comes of it.
    pub(crate) fn decide_prepared(
        &self,
        cluster: &Cluster,
        undecided: &Undecided,
        arrived: &Arrived<'_>,
    ) -> Result<(), Error> {
        match &arrived.request.purpose {
            Purpose::Commit
            | Purpose::Voting
            | Purpose::Vote { .. }
            | Purpose::Execute(_)
            | Purpose::Void { .. }
            | Purpose::Part(_)
            | Purpose::Whole(_)
            | Purpose::GiveUp { .. } => Err(Error::Defect("a commit is delivered as one")),
            Purpose::Prepare(preparing) => match &preparing.owner {
                owner @ Owner::Global(_) if undecided.has(owner) => Err(Error::AlreadyPrepared),
                Owner::Global(_) => self.prepare_at(cluster, arrived, preparing, None),
                Owner::Instance(xid, instance) => {
                    self.prepare_member_at(cluster, arrived, preparing, xid, *instance)
                }
            },
            Purpose::Decide { identifier, commits } => {
                let owner = Owner::Global(identifier.clone());
                match (undecided.has(&owner), commits) {
                    (false, _) => Err(Error::NotPrepared),
                    (true, true) => {
                        self.decide_at(cluster, arrived.place, Some(owner), Vec::new(), Vec::new())
                    }
                    (true, false) => self.decide_at(cluster, arrived.place, None, vec![owner], Vec::new()),
                }
            }
            Purpose::OnFamily(on) => self.operate_at(cluster, arrived, on),
        }
    }

    /// A transaction is prepared at this place, unless its reads fit into no order.
    pub(crate) fn prepare_at(
        &self,
        cluster: &Cluster,
        arrived: &Arrived<'_>,
        preparing: &Preparing,
        family: Option<FamilySlot>,
    ) -> Result<(), Error> {
        let Arrived { place, mixing, request, locks } = arrived;
        let (id, parts) = (request.id, &request.parts);
        let candidate = self.sequencer.certifies().then(|| {
            let (reads, notes) = (parts.reads.as_ref().map(ReadSet::copy), parts.notes.clone());
            let writes = key_writes(&self.seed, &parts.changes, notes);
            Candidate::new(id, request.snapshot, reads, writes, request.dropped.clone())
                .with_effects(Effects::of_list(request.effects.list()))
                .begun_at(request.began)
                .of_family(family)
        });
        let mut held = Held::default();
        let grant = || held = self.grant(cluster, place.csn, id, family, locks);
        let promise = self.sequencer.deliver_prepare(*place, candidate, mixing.as_ref(), grant)?;
        self.keep_prepared(cluster, arrived, preparing, held, promise);
        Ok(())
    }

    /// It has its locks and its node in the graph: from here on it can be decided.
    fn keep_prepared(
        &self,
        cluster: &Cluster,
        arrived: &Arrived<'_>,
        preparing: &Preparing,
        mut held: Held,
        promise: Promise,
    ) {
        let Arrived { place, request, .. } = arrived;
        let (id, parts) = (request.id, &request.parts);
        let mut writes = None;
        if let Some(own) = cluster.sealed.lock().get_mut(&id) {
            // What ran here has most of them already.
            held.append(std::mem::take(&mut own.held));
            writes = own.writes.take();
        }
        let changes = parts.changes.iter().map(|(tree, changes)| (*tree, changes.copy())).collect();
        let (loads, dropped) = (Vec::new(), request.dropped.clone());
        let part = Pending { id, held, promise, loads, dropped, changes };
        let prepared = Prepared {
            note: preparing.note.clone(),
            name: request.name.clone(),
            prepared_us: preparing.prepared_us,
            known_since: self.options.clock.monotonic(),
            csn: place.csn,
            locks: parts.locks.len(),
            part,
            _writes: writes,
        };
        self.prepared.enter(preparing.owner.clone(), prepared);
    }

    /// After a start at an image: what was prepared there is as it was, with its locks and with the
    /// nodes that it has in the graph.
    ///
    /// # Errors
    /// `Undecodable`; from the base store.
    pub(crate) fn restore_undecided(
        &self,
        cluster: &Cluster,
        mut promises: HashMap<TransactionId, Promise>,
    ) -> Result<(), Error> {
        let requests = cluster.standing.lock().undecided().requests();
        for (position, bytes) in requests {
            let wrong =
                |what| Error::undecodable(format!("what was prepared at position {position}: {what}"));
            let request = Request::decode(&bytes, &self.seed).map_err(wrong)?;
            let Purpose::Prepare(preparing) = &request.purpose else {
                return Err(wrong("no PREPARE".to_owned()));
            };
            let family = match &preparing.owner {
                Owner::Global(_) => None,
                Owner::Instance(xid, instance) => {
                    Some(self.adopt_sibling(xid, *instance, &preparing.texts)?)
                }
            };
            let promise = match self.sequencer.certifies() {
                false => Promise::default(),
                true => promises.remove(&request.id).ok_or_else(|| wrong("not in the graph".to_owned()))?,
            };
            self.sequencer.name_family(&promise, family)?;
            let locks: Vec<HeldLock> = request.all_locks().into_iter().map(|(lock, _)| lock).collect();
            let held = self.locks.restore(request.id, family, &locks);
            let place = Place { csn: position, bytes: bytes.len() as u64, horizon: None };
            let arrived = Arrived { place, mixing: None, request: &request, locks: &[] };
            self.keep_prepared(cluster, &arrived, preparing, held, promise);
        }
        Ok(())
    }

    /// Commits `winner` and rolls `losers` back at this place, together with `rows`.
    pub(crate) fn decide_at(
        &self,
        cluster: &Cluster,
        place: Place,
        winner: Option<Owner>,
        losers: Vec<Owner>,
        rows: Vec<OwnRow>,
    ) -> Result<(), Error> {
        let commits = winner.is_some();
        let mut decided: Vec<(Owner, Prepared)> = Vec::with_capacity(losers.len() + 1);
        for owner in winner.into_iter().chain(losers) {
            let prepared = self.prepared.take(&owner);
            let prepared =
                prepared.ok_or(Error::Defect("what is undecided in the order is prepared here"))?;
            decided.push((owner, prepared));
        }
        let changed: Vec<usize> = match decided.first().filter(|_| commits) {
            None => Vec::new(),
            Some((_, winner)) => winner.part.changes.iter().map(|(tree, _)| *tree as usize).collect(),
        };
        let parts = decided.iter_mut().map(|(_, prepared)| &mut prepared.part).collect();
        self.sequencer.deliver_decision(place, Decision { commits, decided: parts, rows }, || {
            for tree in changed.into_iter().filter(|tree| *tree < FIRST_TREES) {
                cluster.changed[tree].store(place.csn, Ordering::Release);
            }
        })?;
        cluster.note_struck(place.csn);
        for (owner, prepared) in decided {
            self.prepared.unreserve(&owner);
            self.release(prepared.part.id, prepared.part.held);
        }
        self.prepared.note_decision();
        Ok(())
    }
}
