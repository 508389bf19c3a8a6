//! The first start: nodes with empty folders become a cluster by themselves, once a majority of
//! their list is there.
//!
//! ```text
//! nobody has a cluster, all are there, or a majority for a        found one: draw its id
//! while, and this is the smallest number of them
//! somebody has one                                                join it
//! this one has one, not begun; a majority has not joined          invite
//! this one has one, not begun; a majority has joined              begin: the first entry
//! this one has one, not begun, and another one has begun          join that one instead
//! every node has one, and none of these a majority                join the smallest of them
//! the own one has begun                                           wait for the leader
//! ```
//!
//! Two nodes that do not hear each other may both found a cluster. At most one begins: each must be
//! joined by a majority before, a node joins durably before it says so, and it leaves a cluster
//! only for one that has begun already, or out of a tie. Two majorities have a node in common (of
//! an even number, too: half of the nodes are none); it would have had to leave one of them before
//! anything had begun. What begins is the same entry, whichever node writes it, since the lists are
//! equal; the consensus resolves the rest.
//!
//! A *tie* is what two founders of four nodes may come to, who do not hear each other: every node
//! has joined one of them, and none has a majority, nor will ever have. Who has heard all nodes
//! sees it, and since nobody leaves before, whoever sees it sees the same; so all go on with the
//! smallest id, and no other cluster is joined by anybody any more.
//!
//! A node whose folder was emptied must not join again as the one that it was: it has forgotten its
//! votes, and what it confirmed. Whoever has met it refuses it, and it joins nobody while somebody
//! does. It comes back by being removed and added. Nor does it found a cluster then, or accept an
//! invitation: where a majority has lost its folders, these nodes would begin an empty one, and
//! whoever asks them would find nothing of what the others still have.
//!
//! A node that joins a cluster which began with data (of the single node that it was) is given a
//! snapshot before any entry.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::entry::{ClusterId, NodeNumber, Position};
use crate::log::record::{Birth, LOG_VERSION};
use crate::messages::{Kind, Newborn, Nothing, Report};
use crate::net::OTHER_DATA;
use crate::order::Inner;

/// How often the others are asked.
const PAUSE: Duration = Duration::from_millis(50);
/// How long they may take.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often a majority that is not all must have been there before it founds a cluster.
const ROUNDS: u32 = 20;

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Found,
    Join(ClusterId, Position),
    Invite(Vec<NodeNumber>),
    Begin,
    Wait,
}

/// Decides what `node` does, by what it and the others say of themselves.
/// `rounds` says how often it has looked.
fn decide(node: NodeNumber, own: &Newborn, others: &BTreeMap<NodeNumber, Newborn>, rounds: u32) -> Step {
    let majority = if rounds < ROUNDS { own.numbers.len() } else { own.numbers.len() / 2 + 1 };
    let alike = |other: &Newborn| other.numbers == own.numbers && other.began == own.began;
    let begun = others.values().filter(|other| other.is_initialized);
    let begun = begun.filter_map(|other| Some((other.cluster?, other.began))).next();
    if let Some((cluster, began)) = begun {
        return if own.cluster == Some(cluster) { Step::Wait } else { Step::Join(cluster, began) };
    }
    let Some(cluster) = own.cluster else {
        let joined = others.values().filter(|other| alike(other)).find_map(|other| other.cluster);
        if let Some(cluster) = joined {
            return Step::Join(cluster, own.began);
        }
        let is_smallest = others.iter().all(|(number, other)| !alike(other) || *number > node);
        let present = 1 + others.values().filter(|other| alike(other)).count();
        return if is_smallest && present >= majority { Step::Found } else { Step::Wait };
    };
    let ours = others.values().filter(|other| other.cluster == Some(cluster) && alike(other));
    if 1 + ours.count() > own.numbers.len() / 2 {
        return Step::Begin;
    }
    if let Some(least) = end_of_tie(own, others).filter(|least| *least != cluster) {
        return Step::Join(least, own.began);
    }
    let strangers = others.iter().filter(|(_, other)| other.cluster.is_none() && alike(other));
    Step::Invite(strangers.map(|(number, _)| *number).collect())
}

/// The cluster that all go on with if every node has joined one and none of these has a majority.
fn end_of_tie(own: &Newborn, others: &BTreeMap<NodeNumber, Newborn>) -> Option<ClusterId> {
    let alike = others.values().filter(|other| other.numbers == own.numbers && other.began == own.began);
    let joined: Vec<ClusterId> =
        alike.map(|other| other.cluster).chain([own.cluster]).collect::<Option<_>>()?;
    let members = |cluster: &ClusterId| joined.iter().filter(|other| *other == cluster).count();
    let has_majority = joined.iter().any(|cluster| members(cluster) > own.numbers.len() / 2);
    let is_tie = joined.len() == own.numbers.len() && !has_majority;
    joined.iter().min().copied().filter(|_| is_tie)
}

/// The same for a node of which others know that it has lost what it had: it would vote twice, or
/// begin anew what is not over.
fn unless_refused(step: Step, is_refused: bool) -> Step {
    match step {
        Step::Found | Step::Join(..) if is_refused => Step::Wait,
        step => step,
    }
}

/// What this node says of itself.
pub(crate) fn introduce(inner: &Inner, invites: bool) -> Newborn {
    // What it is about to join is not said before it is durable.
    let cluster = inner.identity.cluster();
    let birth = inner.log.birth().filter(|birth| Some(birth.cluster) == cluster);
    Newborn {
        numbers: inner.identity.numbers(),
        cluster: birth.map(|birth| birth.cluster),
        is_initialized: inner.log.last().is_some(),
        began: birth.map_or(inner.started_at, |birth| birth.began),
        invites,
    }
}

/// Answers another node's introduction, and accepts its invitation.
pub(crate) async fn answer(inner: &Inner, other: Newborn) -> Newborn {
    let own = introduce(inner, false);
    if let (true, None, Some(cluster)) = (other.invites, own.cluster, other.cluster)
        && other.numbers == own.numbers
        && other.began == own.began
        && !is_refused(inner)
    {
        join(inner, cluster, other.began, None).await;
    }
    introduce(inner, false)
}

/// Writes down that this node belongs to a cluster, before it says so to anybody. That was decided
/// when it belonged to `instead_of`: if it has joined another one meanwhile, which counts on it by
/// now, it stays there. So of two invitations at once the first is accepted.
async fn join(inner: &Inner, cluster: ClusterId, began: Position, instead_of: Option<ClusterId>) {
    let _one = inner.founding.lock().await;
    let own = inner.log.birth().map(|birth| birth.cluster);
    // What has begun is not left any more; nor is one's own joined again.
    if !inner.log.is_untouched() || own != instead_of || own == Some(cluster) {
        return;
    }
    if inner.started_at != began && inner.started_at > 0 {
        tracing::error!(
            "this node has data up to position {}, and the cluster began at {began}: it cannot join",
            inner.started_at
        );
        return;
    }
    let (node, incarnation) = (inner.identity.node(), inner.identity.incarnation());
    let birth = Birth { version: LOG_VERSION, cluster, node, incarnation, began };
    let written = match inner.log.set_birth(birth) {
        Ok(wait) if inner.settings.flushes_inline.is_some() => wait.wait(),
        Ok(wait) => wait.await,
        Err(error) => Err(error),
    };
    match written {
        Ok(()) => inner.identity.set_cluster(cluster),
        Err(error) => tracing::error!(%error, "this node cannot join a cluster"),
    }
}

/// Takes part in the first start, until this node belongs to a cluster that has begun.
pub(crate) async fn run(inner: Arc<Inner>) {
    let mut rounds = 0;
    while inner.log.birth().is_none() || inner.log.is_untouched() {
        let own = introduce(&inner, false);
        let others = ask(&inner, &own, inner.identity.numbers()).await;
        let step = decide(inner.identity.node(), &own, &others, rounds);
        match unless_refused(step, is_refused(&inner)) {
            Step::Found => {
                tracing::info!("founding a cluster");
                join(&inner, inner.draw_cluster(), own.began, own.cluster).await;
            }
            Step::Join(cluster, began) => join(&inner, cluster, began, own.cluster).await,
            Step::Invite(nodes) => {
                let own = Newborn { invites: true, ..own };
                ask(&inner, &own, nodes).await;
            }
            Step::Begin => {
                if let Err(why) = inner.consensus.initialize(inner.identity.numbers()).await {
                    tracing::debug!(why, "the cluster has begun already");
                }
            }
            Step::Wait => {}
        }
        rounds += 1;
        tokio::select! {
            biased;
            () = inner.until_stopped() => return,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
    tokio::join!(greet(&inner), hide_the_beginning(&inner));
}

/// Whether somebody knows that this node has lost what it had.
fn is_refused(inner: &Inner) -> bool {
    let others = inner.identity.numbers();
    let problems = others.into_iter().filter_map(|node| inner.wire.problem(node));
    problems.filter(|problem| problem.contains(OTHER_DATA)).count() > 0
}

/// Speaks to every other node once, so that each knows this one by its incarnation, and would know
/// another one in its place.
async fn greet(inner: &Inner) {
    let mut left = inner.identity.numbers();
    left.remove(&inner.identity.node());
    while !left.is_empty() {
        for node in left.clone() {
            if inner.call::<Report>(node, Kind::Report, &Nothing {}, PATIENCE).await.is_ok() {
                left.remove(&node);
            }
        }
        tokio::select! {
            biased;
            () = inner.until_stopped() => return,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}

/// A cluster that began with data has no entries for them: so that nobody begins with the first
/// entry, it leaves the log.
async fn hide_the_beginning(inner: &Inner) {
    let Some(birth) = inner.log.birth().filter(|birth| birth.began > 0) else { return };
    let mut settled = inner.settled.clone();
    while inner.log.base().id.is_none() {
        let is_settled = settled.borrow_and_update().index >= Some(1);
        if is_settled && let Some(base) = inner.log.base_at(birth.began.max(inner.started_at)) {
            let upto = base.id.map_or(0, |id| id.index);
            if let Err(why) = inner.consensus.compact(base, upto).await {
                tracing::warn!(why, "the beginning stays in the log");
            }
        }
        tokio::select! {
            biased;
            () = inner.until_stopped() => return,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}

async fn ask(
    inner: &Inner,
    own: &Newborn,
    nodes: impl IntoIterator<Item = NodeNumber>,
) -> BTreeMap<NodeNumber, Newborn> {
    let others: Vec<NodeNumber> = nodes.into_iter().filter(|node| *node != inner.identity.node()).collect();
    let calls = others.iter().map(|node| inner.call::<Newborn>(*node, Kind::Newborn, own, PATIENCE));
    let answers = futures_util::future::join_all(calls).await;
    others.into_iter().zip(answers).filter_map(|(node, answer)| Some((node, answer.ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn newborn(cluster: Option<u8>, is_initialized: bool) -> Newborn {
        let cluster = cluster.map(|byte| [byte; 16]);
        Newborn { numbers: [1, 2, 3].into(), cluster, is_initialized, began: 0, invites: false }
    }

    #[test]
    fn the_smallest_of_all_founds_or_after_a_while_of_a_majority() {
        let nobody = newborn(None, false);
        let others = |numbers: &[u64]| numbers.iter().map(|number| (*number, nobody.clone())).collect();
        let decided = |node, numbers: &[u64], rounds| decide(node, &nobody, &others(numbers), rounds);
        assert_eq!(decided(1, &[2, 3], 0), Step::Found);
        assert_eq!(decided(2, &[1, 3], 0), Step::Wait);
        assert_eq!(decided(1, &[2], ROUNDS - 1), Step::Wait);
        assert_eq!(decided(1, &[2], ROUNDS), Step::Found);
        assert_eq!(decided(1, &[], ROUNDS), Step::Wait);
        assert_eq!(decided(2, &[1], ROUNDS), Step::Wait);
        assert_eq!(decided(2, &[3], ROUNDS), Step::Found);
        let other_list = Newborn { numbers: [1, 3].into(), ..nobody.clone() };
        assert_eq!(decide(1, &nobody, &BTreeMap::from([(3, other_list)]), ROUNDS), Step::Wait);
        let with_data = Newborn { began: 5, ..nobody.clone() };
        assert_eq!(decide(1, &nobody, &BTreeMap::from([(2, with_data)]), ROUNDS), Step::Wait);
    }

    #[test]
    fn who_founded_invites_until_a_majority_has_joined_and_then_begins() {
        let (own, nobody) = (newborn(Some(7), false), newborn(None, false));
        let joined = |one: &Newborn, two: &Newborn| BTreeMap::from([(2, one.clone()), (3, two.clone())]);
        assert_eq!(decide(1, &own, &joined(&nobody, &nobody), 0), Step::Invite(vec![2, 3]));
        assert_eq!(decide(1, &own, &joined(&own, &nobody), 0), Step::Begin);
        let elsewhere = newborn(Some(8), false);
        assert_eq!(decide(1, &own, &joined(&elsewhere, &nobody), 0), Step::Invite(vec![3]));
        assert_eq!(decide(1, &own, &joined(&newborn(Some(7), true), &nobody), 0), Step::Wait);
        let begun = newborn(Some(8), true);
        assert_eq!(decide(1, &own, &joined(&begun, &own), 0), Step::Join([8; 16], 0));
    }

    /// Half of the nodes are no majority, and two halves do not wait for each other for ever.
    #[test]
    fn of_four_nodes_two_begin_nothing_and_a_tie_goes_on_with_the_smallest() {
        let of_four = |cluster| Newborn { numbers: [1, 2, 3, 4].into(), ..newborn(cluster, false) };
        let others = |clusters: &[(NodeNumber, Option<u8>)]| {
            clusters.iter().map(|(number, cluster)| (*number, of_four(*cluster))).collect()
        };
        let decided =
            |own, clusters: &[(NodeNumber, Option<u8>)]| decide(1, &of_four(own), &others(clusters), ROUNDS);
        assert_eq!(decided(None, &[(2, None)]), Step::Wait);
        assert_eq!(decided(None, &[(2, None), (3, None)]), Step::Found);
        assert_eq!(decided(Some(7), &[(2, Some(7)), (3, None)]), Step::Invite(vec![3]));
        assert_eq!(decided(Some(7), &[(2, Some(7)), (3, Some(7))]), Step::Begin);
        // Somebody who is not heard may be the majority of one of them.
        assert_eq!(decided(Some(8), &[(2, Some(8)), (3, Some(7))]), Step::Invite(vec![]));
        assert_eq!(decided(Some(8), &[(2, Some(8)), (3, Some(7)), (4, None)]), Step::Invite(vec![4]));
        let tie = [(2, Some(8)), (3, Some(7)), (4, Some(7))];
        assert_eq!(decided(Some(8), &tie), Step::Join([7; 16], 0));
        assert_eq!(decided(Some(6), &tie), Step::Invite(vec![]), "it is joined by the others");
        assert_eq!(decided(Some(7), &tie), Step::Begin, "three have joined it");
        assert_eq!(decided(Some(8), &[(2, Some(7)), (3, Some(7)), (4, Some(7))]), Step::Invite(vec![]));
    }

    /// Two of three have lost their folders, and the third one is there: they wait for somebody who
    /// knows what is to be done.
    #[test]
    fn who_has_lost_its_data_founds_no_cluster_and_joins_none() {
        for step in [Step::Found, Step::Join([9; 16], 0)] {
            assert_eq!(unless_refused(step.clone(), true), Step::Wait);
            assert_eq!(unless_refused(step.clone(), false), step);
        }
        assert_eq!(unless_refused(Step::Begin, true), Step::Begin, "it has written down where it belongs");
    }

    #[test]
    fn who_has_no_cluster_joins_the_one_that_is_there() {
        let nobody = newborn(None, false);
        let others = BTreeMap::from([(2, newborn(Some(9), true)), (3, newborn(None, false))]);
        assert_eq!(decide(1, &nobody, &others, 0), Step::Join([9; 16], 0));
        let founded = BTreeMap::from([(2, newborn(Some(9), false))]);
        assert_eq!(decide(1, &nobody, &founded, 0), Step::Join([9; 16], 0));
    }
}
