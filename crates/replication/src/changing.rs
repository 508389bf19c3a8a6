//! Changes of the membership, at the node that leads: one after the other.
//!
//! Before a change it is looked whether those are there whom it will need. Who is counted on by one
//! change must not leave by another that was looked at meanwhile: of four nodes of which one is
//! lost, two could each be spared while the other one stays, and not both. So a change is looked at
//! and made before the next one is looked at.
//!
//! Invariant: whoever has the mutex sees the members as all changes before have left them. One that
//! was given up half way, its caller being gone, leaves two sets of voters, of which [`leaving`]
//! looks at the last; while its entry is not committed, the consensus refuses the next change.

use tokio::time::timeout;

use crate::learner;
use crate::leaving;
use crate::messages::{Change, Nothing};
use crate::order::Inner;

/// Changes the membership, if this node leads; or else says why not.
pub(crate) async fn change(inner: &Inner, change: Change) -> Result<Nothing, String> {
    if let Change::Promote(node) = change {
        // It may take long until that one is near, and others need not wait for it.
        learner::until_near(inner, node).await?;
    }
    let turn = timeout(inner.settings.timing.answer, inner.changing.lock()).await;
    let _turn = turn.map_err(|_| "the cluster is undergoing a configuration change already".to_owned())?;
    match change {
        Change::AddLearner(node) if !inner.settings.peers.contains_key(&node) => {
            let own = inner.identity.node();
            return Err(format!("node {node} is not on the list of node {own}, which leads"));
        }
        Change::Promote(node) => learner::until_near(inner, node).await?,
        Change::Remove(node) => leaving::until_spared(inner, node).await?,
        Change::AddLearner(_) => {}
    }
    inner.consensus.change(change).await
}
