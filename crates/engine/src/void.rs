//! Voids: a name under which nothing was ordered is closed in the order of all nodes, so that who
//! asks what became of a request is told so for good.
//!
//! A request whose origin is lost before it is ordered may still be on its way, in a queue or in
//! another node's log. So that nothing was ordered so far does not say that it has not happened,
//! and never will. A void is a request of its own: from its position on nobody commits under its
//! name. Which of the two comes first the order decides, at every node alike, and what is known of
//! names is in the image (`order::Standing`).
//!
//! ```text
//! order:  8 = void of "order 7"          nothing was ordered under that name: it is closed
//!         9 = the request "order 7"      refused, at every node and whenever it comes
//! order:  8 = the request "order 7"      it commits
//!         9 = void of "order 7"          refused: who asks is told of 8
//! ```
//!
//! What was prepared is neither until it is decided, so its name is not closed before.
//!
//! *How long.* Names are forgotten after so many positions (`OUTCOMES_MAX` there). What is
//! forgotten may have been committed, so a void says since which position its request can have been
//! ordered at the earliest, and is refused if something behind that is forgotten. The other way
//! round: a request that was sealed before the void is too old before the void is forgotten. (So is
//! a program, which has no snapshot to be too old: `Standing::may_have_forgotten`.)

use crate::manager::Manager;
use crate::order::Purpose;
use crate::sync::atomic::Ordering;
use crate::{Csn, Database, Error};

impl Manager {
    async fn close_name(&self, name: &str, since: Csn) -> Result<bool, Error> {
        let Some(cluster) = &self.cluster else {
            return Err(Error::Defect("a database of its own closes no names"));
        };
        let applied = cluster.applied.load(Ordering::Acquire);
        let mut request = self.request_about(applied, Purpose::Void { name: name.into() });
        // What is refused for its age is what could have been forgotten since.
        request.bot = since.min(applied);
        match self.propose_request(cluster, &request)?.await {
            Ok(_) => Ok(true),
            Err(Error::RequestKnown { .. } | Error::RequestPrepared { .. }) => Ok(false),
            Err(error) if error.is_retryable() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Database {
    /// Closes the name of a request, which its client has given it or which is its transaction's
    /// id: unless somebody has committed under it, or is prepared, nobody will, and the outcome is
    /// that it was aborted. `since`: nothing was ordered under the name at or before this position.
    /// False, and nothing is closed, if somebody has or is, or if that position is longer ago than
    /// is remembered. What was prepared may be rolled back a moment later: then the outcome is that
    /// it was aborted, too, but the name is not closed.
    ///
    /// # Errors
    /// `RequestTooLarge`, `NotOrdered`; `Defect` in a database of its own.
    pub async fn close_name(&self, name: &str, since: Csn) -> Result<bool, Error> {
        self.manager.close_name(name, since).await
    }
}
