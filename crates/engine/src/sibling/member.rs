//! A transaction that is an instance of a family: how it locks, how it learns that it has no
//! future, and how it is prepared.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use super::doom::{Doom, Doomed};
use super::{Instance, Limits, Refusal, Text, Told, Xid};
use crate::delivery::overtaken;
use crate::fate::Stricken;
use crate::lock::mode::{FamilySlot, LockMode, Mode};
use crate::lock::wait::LockWait;
use crate::manager::Request;
use crate::transaction::Transaction;
use crate::txn::writeset::WriteSet;
use crate::{Error, Value};

/// A transaction's part in its family.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) xid: Xid,
    pub(crate) instance: Instance,
    pub(crate) slot: FamilySlot,
    pub(crate) doom: Arc<Doom>,
}

impl Member {
    /// An error if it must not go on.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), Error> {
        let instance = self.instance;
        match self.doom.struck() {
            None => Ok(()),
            Some(highest) => Err(Refusal::InstanceAborted { instance, highest }.into()),
        }
    }

    pub(crate) fn doomed(&self) -> Doomed {
        Doomed(Arc::clone(&self.doom))
    }
}

/// What tells, while a statement computes and its transaction is lent to it, whether the
/// transaction has a future. It keeps nothing alive but this knowledge.
#[derive(Debug, Clone)]
pub struct Prospect(Member);

impl Prospect {
    /// Asks, between two steps.
    ///
    /// # Errors
    /// `Refused` if a sibling was prepared above it or committed.
    pub fn check(&self) -> Result<(), Error> {
        self.0.check()
    }

    /// Resolves when there is no future any more.
    pub fn doomed(&self) -> Doomed {
        self.0.doomed()
    }
}

impl Transaction {
    /// What tells a statement that computes for long whether it should go on, in an instance of a
    /// family.
    pub fn prospect(&self) -> Option<Prospect> {
        self.member.as_deref().cloned().map(Prospect)
    }

    /// Makes it an instance of a family.
    pub(crate) fn join(&mut self, member: Member) {
        self.member = Some(Box::new(member));
    }

    /// The family and the instance, of a sibling transaction.
    pub fn instance(&self) -> Option<(&Xid, Instance)> {
        self.member.as_ref().map(|member| (&member.xid, member.instance))
    }

    /// Resolves when the transaction cannot end well any more, because of a sibling or of another
    /// node's transaction. `None` if neither can be.
    pub fn doomed(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        let mut sibling = self.member.as_ref().map(|member| member.doomed());
        let mut stricken = self.fate.clone().map(Stricken);
        if sibling.is_none() && stricken.is_none() {
            return None;
        }
        Some(Box::pin(std::future::poll_fn(move |context| {
            let doomed = sibling.as_mut().is_some_and(|one| Pin::new(one).poll(context).is_ready());
            let struck = stricken.as_mut().is_some_and(|one| Pin::new(one).poll(context).is_ready());
            if doomed || struck { Poll::Ready(()) } else { Poll::Pending }
        })))
    }

    /// Asks, between two operations, whether the transaction may go on.
    ///
    /// # Errors
    /// `Refused` if a sibling was prepared above it or committed, `Overtaken` if another node's
    /// transaction was.
    #[inline]
    pub fn check_member(&self) -> Result<(), Error> {
        if let Some(stroke) = self.fate.as_ref().and_then(|fate| fate.struck()) {
            return Err(overtaken(stroke));
        }
        self.member.as_ref().map_or(Ok(()), |member| member.check())
    }

    pub(crate) fn row_mode(&self, mode: LockMode) -> Mode {
        match &self.member {
            None => Mode::Row(mode),
            Some(member) => Mode::Sibling(mode, member.slot),
        }
    }

    /// Waits for a lock, unless the wait has become pointless.
    pub(crate) async fn await_lock(&self, mut waiting: LockWait) -> Result<(), Error> {
        let Some(mut doomed) = self.doomed() else {
            waiting.await;
            return Ok(());
        };
        std::future::poll_fn(|context| match Pin::new(&mut waiting).poll(context) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => doomed.as_mut().poll(context),
        })
        .await;
        self.check_member()
    }

    /// Prepares an instance of a family, with the request that the family is for and the result to
    /// be kept; `note` is kept with it. The answer is the family's table: the instance is prepared
    /// in it, or aborted because a sibling was prepared above it, or the family is decided. In the
    /// last two cases the transaction was rolled back.
    ///
    /// # Errors
    /// `Refused`, and as `commit`; the transaction is rolled back then.
    pub fn prepare_instance(
        mut self,
        request: &Text,
        result: &Text,
        note: Value,
        limits: Limits,
    ) -> Result<Told, Error> {
        let manager = Arc::clone(&self.manager);
        let Some(member) = self.member.take() else {
            return Err(Error::CannotPrepare { reason: "the transaction is no instance of a family" });
        };
        let own = Request { family: Some(member.slot), ..self.request() };
        let writes = std::mem::replace(&mut self.writes, WriteSet::new(Arc::clone(&manager.budget)));
        let told = manager.prepare_sibling(&member, own, writes, note, (request, result), limits);
        self.end();
        told
    }
}
