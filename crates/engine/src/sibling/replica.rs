//! A family at a node of a cluster: what the order of all nodes says of it, and what runs here.
//!
//! Of the former every node has the same; it is what [`Family::crash`] would leave. Instances that
//! are active, and those that were given up and of which nobody was told, are known at their own
//! node only. So the order's part is taken out ([`Family::ordered`]), changed as the order says,
//! and put back ([`Family::follow`]): what runs here and has no future by it is told so.
//!
//! ```text
//! node 1: BEGIN <x,1>           1 active                           node 2: nothing is known
//! node 2: BEGIN <x,2>           node 2: 2 active
//! order:  PREPARE <x,2>         node 1: 1 has ended, 2 prepared    node 2: 2 prepared
//! order:  ROLLBACK <x,2>        both: 2 aborted, and nothing below can be prepared
//! ```
//!
//! A number that two nodes have begun belongs to the first of them whose PREPARE is ordered.

use super::{Answer, Effects, Family, Instance, Limits, Mipt, Refusal, State, Text};
use crate::TransactionId;

/// The origin has looked at the sizes.
const UNLIMITED: Limits = Limits { request_bytes: usize::MAX, result_bytes: usize::MAX };

impl Family {
    /// What the order says of it.
    pub(super) fn ordered(&self) -> Family {
        let mut family = self.clone();
        family.crash();
        family
    }

    /// Takes over what the order says of it now. Answers the active instances that end.
    pub(super) fn follow(&mut self, mut ordered: Family) -> Vec<(Instance, TransactionId)> {
        let mut ended = Vec::new();
        for (instance, owner) in self.active.take() {
            match ordered.state(instance) {
                State::Unknown => ordered.active.insert(instance, owner),
                _ => ended.push((instance, owner)),
            }
        }
        for instance in std::mem::take(&mut self.ended) {
            if ordered.state(instance) == State::Unknown {
                ordered.ended.insert(instance);
            }
        }
        *self = ordered;
        ended
    }

    /// PREPARE of an instance that was begun at some node.
    ///
    /// # Errors
    /// As `prepare`.
    pub(super) fn prepare_ordered(
        &mut self,
        instance: Instance,
        owner: TransactionId,
        request: &Text,
        result: &Text,
    ) -> Result<Effects, Refusal> {
        if self.state(instance) == State::Unknown {
            self.active.insert(instance, owner);
        }
        self.prepare(instance, owner, request, result, UNLIMITED)
    }

    /// ROLLBACK of an instance that is prepared, or was given up, or is, at the node that asks.
    ///
    /// # Errors
    /// As `rollback`.
    pub(super) fn rollback_ordered(
        &mut self,
        instance: Instance,
        given_up: &[Instance],
    ) -> Result<Effects, Refusal> {
        match self.rollback(instance) {
            Err(Refusal::InstanceUnknown { .. }) if given_up.contains(&instance) => {
                Ok(Effects::none(Answer::RolledBack))
            }
            rolled_back => rolled_back,
        }
    }

    /// Aborts for ever what a node has given up, unless more is known of it. Whether anything has
    /// changed.
    pub(super) fn abort_given_up(&mut self, given_up: &[Instance]) -> bool {
        let before = self.aborted.len();
        for instance in given_up {
            if self.state(*instance) == State::Unknown {
                self.aborted.insert(*instance);
            }
        }
        self.aborted.len() > before
    }

    /// What was given up here and nobody was told of.
    pub(super) fn given_up(&self) -> Vec<Instance> {
        self.ended.iter().copied().collect()
    }

    /// The table as this node may show it: nothing is aborted in it that is not so at every node.
    pub(super) fn mipt_of_order(&self) -> Mipt {
        let mut shown = self.ordered();
        self.active.iter().for_each(|(instance, owner)| shown.active.insert(instance, *owner));
        shown.mipt()
    }
}
