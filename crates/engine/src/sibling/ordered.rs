//! Families of siblings at a node of a cluster: PREPARE, COMMIT, ROLLBACK, REFUSE, SHOW and FORGET
//! are requests in the order of all nodes, and every node does the same at their positions.
//!
//! What an operation comes to depends on what the order has said before, and on nothing that runs
//! at a node (`replica`). So an instance may be begun at any node, and its family is decided,
//! shown and forgotten at any other. SHOW is ordered, too: it tells whatever was acknowledged
//! before.
//!
//! BEGIN is local. It refuses by what is known here, which may be behind; what it lets through is
//! judged when its PREPARE is delivered. But that an instance is aborted is told only when the
//! order says so: whoever hears it may act on it at other sites, while another node would still let
//! the instance begin. So what was only given up here is ordered before BEGIN is refused for it.
//!
//! *Who is struck.* What runs at a node ends at the position that ends it, and not when that is
//! asked for: a request may be lost, or refused, and then nothing has happened.
//!
//! *Rows.* What a family leaves besides its prepared instances is stored as in a database of its
//! own, under the position.

use std::sync::Arc;

use super::registry::Live;
use super::stored::{collect, rows};
use super::{Answer, Begun, Effects, Family, Instance, Limits, Refusal, State, Text, Told, Xid};
use crate::delivery::Cluster;
use crate::durable::DurableWait;
use crate::level::Isolation;
use crate::manager::Manager;
use crate::order::{OnFamily, Operation, Preparing, Purpose};
use crate::own::OwnRow;
use crate::planted::{self, Planted};
use crate::prepared::Owner;
use crate::prepared::ordered::Arrived;
use crate::sequencer::Place;
use crate::transaction::Transaction;
use crate::{Csn, Database, Error, TransactionId, TreeId, Value};

/// What is asked of the order, by whoever asks.
impl Manager {
    /// COMMIT MIP, ROLLBACK MIP, REFUSE MIP or SHOW MIPT, in a cluster as elsewhere.
    pub(crate) async fn operate_in_order(&self, xid: &Xid, operation: Operation) -> Result<Told, Error> {
        let Some(cluster) = &self.cluster else {
            return match operation {
                Operation::Commit(instance) => self.commit_sibling(xid, instance),
                Operation::Rollback(instance) => self.rollback_sibling(xid, instance),
                Operation::Refuse(upto) => self.refuse_sibling(xid, upto),
                Operation::Show => self.show_family(xid),
                Operation::Forget => Err(Error::Defect("a family that is forgotten shows no table")),
            };
        };
        self.ask_in_order(cluster, xid, operation, self.given_up(xid, operation)).await
    }

    /// BEGIN MIP, in a cluster as elsewhere.
    pub(crate) async fn begin_in_order(
        self: &Arc<Manager>,
        xid: Xid,
        instance: Instance,
        isolation: Isolation,
    ) -> Result<Begun, Error> {
        match self.begin_sibling(xid.clone(), instance, isolation) {
            Err(Error::Refused(Refusal::InstanceAborted { .. })) if self.cluster.is_some() => {}
            begun => return begun,
        }
        if !self.is_ended(&xid, instance)? {
            match self.operate_in_order(&xid, Operation::Show).await {
                Ok(told) => told.durable.await?,
                // Nobody remembers it any more: it is as new.
                Err(Error::Refused(Refusal::FamilyUnknown)) => {}
                Err(error) => return Err(error),
            }
        }
        self.begin_sibling(xid, instance, isolation)
    }

    /// SHOW MIPT for who has had an instance that was not prepared, in a cluster as elsewhere: it
    /// is aborted for ever then, also if nobody remembers any more that it was begun. What was
    /// prepared under its number, by somebody else, stays.
    pub(crate) async fn show_without(&self, xid: &Xid, instance: Instance) -> Result<Told, Error> {
        let Some(cluster) = &self.cluster else { return self.show_family_without(xid, instance) };
        let mut ended = self.given_up(xid, Operation::Show);
        if !ended.contains(&instance) {
            ended.push(instance);
        }
        self.ask_in_order(cluster, xid, Operation::Show, ended).await
    }

    /// Has an operation ordered, together with what was given up here.
    async fn ask_in_order(
        &self,
        cluster: &Cluster,
        xid: &Xid,
        operation: Operation,
        ended: Vec<Instance>,
    ) -> Result<Told, Error> {
        let on = OnFamily { xid: xid.clone(), operation, ended };
        let proposed = self.propose_about(cluster, Purpose::OnFamily(Box::new(on)))?;
        let outcome = Arc::clone(&proposed.0);
        match (proposed.await, operation) {
            (Ok(csn), _) => {
                let table = outcome.table().ok_or(Error::Defect("an operation on a family has no answer"))?;
                let is_unknown = table.request.is_none() && table.floor == 0 && table.entries.is_empty();
                if is_unknown {
                    return Err(Refusal::FamilyUnknown.into());
                }
                Ok(Told { table, csn, durable: self.wait_durable(csn) })
            }
            (Err(Error::Refused(Refusal::InstanceUnknown { instance })), Operation::Commit(_))
                if self.is_active(xid, instance) =>
            {
                Err(Refusal::InstanceNotPrepared { instance }.into())
            }
            (Err(error), _) => Err(error),
        }
    }

    /// FORGET MIP, in a cluster as elsewhere.
    pub(crate) async fn forget_in_order(&self, xid: &Xid) -> Result<DurableWait, Error> {
        let Some(cluster) = &self.cluster else { return self.forget_family(xid) };
        let on = OnFamily { xid: xid.clone(), operation: Operation::Forget, ended: Vec::new() };
        let csn = self.propose_about(cluster, Purpose::OnFamily(Box::new(on)))?.await?;
        Ok(self.wait_durable(csn))
    }

    /// What was given up here. Who rolls an active instance back gives it up, and it ends where
    /// that is ordered.
    fn given_up(&self, xid: &Xid, operation: Operation) -> Vec<Instance> {
        let mut shard = self.families.shard(xid);
        let Some(live) = shard.get(xid) else { return Vec::new() };
        let mut given_up = live.family.given_up();
        if let Operation::Rollback(instance) = operation
            && live.family.state(instance) == State::Active
        {
            given_up.push(instance);
        }
        given_up
    }

    fn is_active(&self, xid: &Xid, instance: Instance) -> bool {
        let mut shard = self.families.shard(xid);
        shard.get(xid).is_some_and(|live| live.family.state(instance) == State::Active)
    }

    /// Whether the order has ended an instance.
    fn is_ended(&self, xid: &Xid, instance: Instance) -> Result<bool, Error> {
        let mut shard = self.families.shard(xid);
        let state = self.family(&mut shard, xid)?.family.ordered().state(instance);
        shard.part(xid, 0);
        Ok(matches!(state, State::Aborted | State::Committed))
    }
}

impl Database {
    /// As `begin_instance`, in a cluster, too: resolves once a refusal that tells of an abort is
    /// what every node says.
    ///
    /// # Errors
    /// As `begin_instance`; `NotOrdered`.
    pub async fn begin_instance_in_order(
        &self,
        xid: Xid,
        instance: Instance,
        isolation: Isolation,
    ) -> Result<Begun, Error> {
        self.manager.begin_in_order(xid, instance, isolation).await
    }

    /// As `family_in_order`, for who has had an instance that has ended and was not prepared: it is
    /// aborted for ever, and its siblings are as they were.
    ///
    /// # Errors
    /// As `commit_instance_in_order`.
    pub async fn family_without_in_order(&self, xid: &Xid, instance: Instance) -> Result<Told, Error> {
        self.manager.show_without(xid, instance).await
    }
}

impl Transaction {
    /// Prepares an instance of a family, in a cluster as elsewhere: see `prepare_instance`.
    ///
    /// # Errors
    /// As `prepare_instance`; `Overtaken`.
    pub async fn prepare_instance_in_order(
        mut self,
        request: &Text,
        result: &Text,
        note: Value,
        limits: Limits,
    ) -> Result<Told, Error> {
        if self.manager.cluster.is_none() {
            return self.prepare_instance(request, result, note, limits);
        }
        let manager = Arc::clone(&self.manager);
        let Some((xid, instance)) = self.instance().map(|(xid, instance)| (xid.clone(), instance)) else {
            return Err(Error::CannotPrepare { reason: "the transaction is no instance of a family" });
        };
        limits.check(request, result)?;
        let preparing = Preparing {
            prepared_us: manager.options.clock.wall_us(),
            owner: Owner::Instance(xid.clone(), instance),
            texts: (request.clone(), result.clone()),
            note,
        };
        let proposed = self.propose(Purpose::Prepare(Box::new(preparing)));
        drop(self);
        let proposed = proposed?;
        let outcome = Arc::clone(&proposed.0);
        match proposed.await {
            Ok(csn) if manager.given_up(&xid, Operation::Show).is_empty() => {
                let table = outcome.table().ok_or(Error::Defect("a prepared instance has no answer"))?;
                Ok(Told { table, csn, durable: manager.wait_durable_with_room(csn) })
            }
            Ok(_) => manager.operate_in_order(&xid, Operation::Show).await,
            Err(Error::Refused(Refusal::InstanceAborted { .. } | Refusal::DecidedOtherwise { .. })) => {
                manager.operate_in_order(&xid, Operation::Show).await
            }
            // What it met was a sibling, perhaps.
            Err(error) if error.is_retryable() && manager.is_ended(&xid, instance)? => {
                manager.operate_in_order(&xid, Operation::Show).await
            }
            Err(error) => Err(error),
        }
    }
}

/// What is done at the positions.
impl Manager {
    /// PREPARE MIP.
    pub(crate) fn prepare_member_at(
        &self,
        cluster: &Cluster,
        arrived: &Arrived<'_>,
        preparing: &Preparing,
        xid: &Xid,
        instance: Instance,
    ) -> Result<(), Error> {
        let (place, id) = (arrived.place, arrived.request.id);
        let mut shard = self.families.shard(xid);
        let live = self.family(&mut shard, xid)?;
        let mut next = judged_by(live);
        let (request, result) = &preparing.texts;
        let refusal = match next.prepare_ordered(instance, id, request, result) {
            Ok(Effects { answer: Answer::Prepared, .. }) => None,
            Ok(Effects { answer: Answer::Decided(outcome), .. }) => {
                Some(Refusal::DecidedOtherwise { winner: outcome.winner })
            }
            Ok(_) => {
                let highest = Instance::new(live.family.ordered().highest()).unwrap_or(instance);
                Some(Refusal::InstanceAborted { instance, highest })
            }
            Err(refusal) => Some(refusal),
        };
        if let Some(refusal) = refusal {
            shard.part(xid, 0);
            return Err(refusal.into());
        }
        // Where it ran it is a member already.
        let is_member = cluster.sealed.lock().get(&id).is_some_and(|own| own.member.is_some());
        let slot = shard.join(xid).ok_or(Error::NotPrepared)?;
        let prepared = self.prepare_at(cluster, arrived, preparing, Some(slot));
        if prepared.is_err() || is_member {
            shard.part(xid, 1);
        }
        prepared?;
        let live = shard.get(xid).ok_or(Error::NotPrepared)?;
        live.release(id);
        follow(cluster, place, id, live, next);
        Ok(())
    }

    /// COMMIT, ROLLBACK, REFUSE, SHOW and FORGET.
    pub(crate) fn operate_at(
        &self,
        cluster: &Cluster,
        arrived: &Arrived<'_>,
        on: &OnFamily,
    ) -> Result<(), Error> {
        let OnFamily { xid, operation, ended } = on;
        let place = arrived.place;
        let mut shard = self.families.shard(xid);
        let live = self.family(&mut shard, xid)?;
        let mut next = judged_by(live);
        let effects = match operation {
            Operation::Commit(instance) => next.commit(*instance),
            Operation::Rollback(instance) => next.rollback_ordered(*instance, ended),
            Operation::Refuse(upto) => Ok(next.refuse(*upto)),
            Operation::Show => Ok(Effects::none(Answer::Refused)),
            Operation::Forget => next.forget(),
        };
        let effects = match effects {
            Ok(effects) => effects,
            Err(refusal) => {
                shard.part(xid, 0);
                return Err(refusal.into());
            }
        };
        let has_changed = next.abort_given_up(ended) || effects.log.is_some();
        let rows = match (has_changed, operation) {
            (false, _) => Vec::new(),
            (true, Operation::Forget) => self.rows_of_forgotten(xid, &next)?,
            (true, _) => rows(xid, &next),
        };
        live.is_stored |= !rows.is_empty();
        let owner = |instance| Owner::Instance(xid.clone(), instance);
        let losers: Vec<Owner> = effects.abort_prepared.iter().map(|loser| owner(*loser)).collect();
        let gone = usize::from(effects.commit.is_some()) + losers.len();
        self.decide_at(cluster, place, effects.commit.map(owner), losers, rows)?;
        if *operation == Operation::Forget {
            shard.remove(xid);
            return Ok(());
        }
        let live = shard.get(xid).ok_or(Error::NotPrepared)?;
        follow(cluster, place, arrived.request.id, live, next);
        shard.part(xid, gone);
        Ok(())
    }

    fn rows_of_forgotten(&self, xid: &Xid, family: &Family) -> Result<Vec<OwnRow>, Error> {
        let mut rows = rows(xid, family);
        rows.iter_mut().for_each(|(.., value)| *value = None);
        let get = |tree: TreeId, key: &[u8]| self.own_row(tree, key);
        rows.extend(collect(xid, &get).map_err(|error| self.store.name_place(error))?);
        Ok(rows)
    }
}

/// What an operation is judged by: what the order says of its family, and nothing that runs here.
fn judged_by(live: &Live) -> Family {
    match planted::is(Planted::FamiliesByMemory) {
        true => live.family.clone(),
        false => live.family.ordered(),
    }
}

/// The family is as the order says now: who has no future by it is told, and so is who asked.
fn follow(cluster: &Cluster, place: Place, by: TransactionId, live: &mut Live, next: Family) {
    let ended = live.family.follow(next);
    live.last = Csn::max(live.last, place.csn);
    live.strike(&ended);
    if let Some(own) = cluster.sealed.lock().get(&by) {
        own.outcome.show(live.family.mipt_of_order());
    }
}
