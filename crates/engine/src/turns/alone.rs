//! One protocol without the metaprotocol, in builds of the feature `protocol-alone`: so what the
//! lists cost can be told from what the protocol costs. Tests that plant faults can have it, too
//! (`Planted::Lists`).
//!
//! The queue is all that there is. What is certified is decided when it is its turn, and what is
//! active is executed then. Of what is weak voting, the node where it ran looks at its reads when
//! it is delivered: they must hold against what is decided, and nobody in the queue may be in its
//! way. Then the node votes for it; if somebody in the queue is in its way, it votes when
//! everything before is decided. So nobody is in lists, nobody depends on anybody, and nothing is
//! resolved in cascade.

use super::{Turns, Waiting};
use crate::delivery::Cluster;
use crate::manager::Manager;
use crate::order::metaprotocol::weak_voting::WeakVoting;
use crate::order::metaprotocol::{Footprint as _, Protocol as _, Turn};
use crate::order::{Footprint, Purpose, Standing};
use crate::planted::{self, Planted};
use crate::total_order::node_of;
use crate::txn::writeset::key_writes;
use crate::{Csn, Error, TransactionId};

/// What is known of who waits.
#[derive(Debug)]
pub(super) struct Alone {
    footprint: Footprint,
    /// Its vote was delivered.
    is_voted: bool,
    /// This node votes about it when it is first.
    owes_vote: bool,
}

/// Whether each protocol is alone: in this build, or by what a test has planted.
pub(super) fn is_alone() -> bool {
    cfg!(feature = "protocol-alone") || planted::is(Planted::Lists)
}

/// Whether it is the turn of the first in the queue, who waits for its vote. Nobody need vote about
/// what is refused anyway.
pub(super) fn turn_of(first: &Waiting, standing: &Standing) -> Option<Turn> {
    let is_voted = first.alone.as_ref().is_none_or(|alone| alone.is_voted);
    (is_voted || standing.judge(&first.request, &first.locks).is_err()).then_some(Turn::Install)
}

/// Who is first, if it waits for its vote.
pub(super) fn pauses(turns: &Turns) -> Option<(Csn, TransactionId, &'static str)> {
    let is_waiting = |first: &&Waiting| is_alone() && matches!(first.request.purpose, Purpose::Voting);
    let first = turns.queue.front().filter(is_waiting)?;
    Some((first.position, first.request.id, WeakVoting.name()))
}

/// A vote is delivered; the first one counts.
fn note_vote(turns: &mut Turns, of: TransactionId, commits: bool) {
    let voting = |one: &&mut Waiting| one.request.id == of && matches!(one.request.purpose, Purpose::Voting);
    let Some(waiting) = turns.queue.iter_mut().find(voting) else { return };
    if let Some(alone) = waiting.alone.as_mut().filter(|alone| !alone.is_voted) {
        alone.is_voted = true;
        waiting.is_refused = !commits;
    }
}

impl Manager {
    /// Puts a request behind those that wait.
    pub(super) fn line_up_alone(
        &self,
        cluster: &Cluster,
        turns: &mut Turns,
        mut waiting: Waiting,
        is_repeated: bool,
    ) -> Result<(), Error> {
        if let Purpose::Vote { of, commits } = waiting.request.purpose {
            note_vote(turns, of, commits);
        }
        let is_voting = matches!(waiting.request.purpose, Purpose::Voting);
        if !is_repeated && (is_voting || matches!(waiting.request.purpose, Purpose::Commit)) {
            let request = &waiting.request;
            let writes = key_writes(&self.seed, &request.parts.changes, request.parts.notes.clone());
            let footprint = Footprint::new(&waiting.locks, writes, &request.dropped);
            let mut alone = Alone { footprint, is_voted: false, owes_vote: false };
            if is_voting && node_of(request.id) == cluster.node.number {
                waiting.since = Some(self.options.clock.monotonic());
                alone = self.vote_at_delivery(cluster, turns, &waiting, alone.footprint)?;
            }
            waiting.alone = Some(Box::new(alone));
        }
        turns.queue.push_back(waiting);
        Ok(())
    }

    /// Votes about a transaction of this node, unless somebody in the queue is in its way.
    fn vote_at_delivery(
        &self,
        cluster: &Cluster,
        turns: &Turns,
        waiting: &Waiting,
        footprint: Footprint,
    ) -> Result<Alone, Error> {
        let id = waiting.request.id;
        let Some(reads) = self.look_back(cluster, &waiting.request, &waiting.locks)? else {
            self.vote(cluster, id, false);
            return Ok(Alone { footprint, is_voted: false, owes_vote: false });
        };
        let mut footprint = footprint.with_reads(reads);
        let is_in_its_way = |earlier: &Waiting| {
            earlier.alone.as_ref().is_some_and(|earlier| footprint.meets(&earlier.footprint))
        };
        let owes_vote = turns.queue.iter().any(is_in_its_way);
        let reads = footprint.take_reads();
        if !owes_vote {
            self.vote(cluster, id, true);
        } else if let Some(sealed) = cluster.sealed.lock().get_mut(&id) {
            sealed.reads = reads;
        }
        Ok(Alone { footprint, is_voted: false, owes_vote })
    }

    /// Votes about the first in the queue, if that is owed: everything before it is decided now.
    pub(super) fn vote_at_turn(&self, cluster: &Cluster, turns: &mut Turns) -> Result<(), Error> {
        let Some(first) = turns.queue.front_mut() else { return Ok(()) };
        let Some(alone) = first.alone.as_mut().filter(|alone| alone.owes_vote) else { return Ok(()) };
        alone.owes_vote = false;
        let holds = self.look_back(cluster, &first.request, &first.locks)?.is_some();
        self.vote(cluster, first.request.id, holds);
        Ok(())
    }
}
