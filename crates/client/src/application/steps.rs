//! One step of a run at one site, with its bounds: which connection it goes over, and in what state
//! that is afterwards.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::Patience;
use crate::etransaction::{Instances, Refused, SiteReply, Text};
use crate::pool::{Lease, Pool};
use crate::site::{Connection, Job, Site};

/// Where a connection stands that has answered all it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Outside any transaction.
    Idle,
    /// Perhaps inside one: to be rolled back before anything else.
    Open,
}

/// A connection of a run, and where it stands.
pub(super) type Held<S> = (Lease<S>, Standing);

/// What a step has come to.
pub(super) struct Done<S: Site> {
    pub(super) site: usize,
    pub(super) held: Option<Held<S>>,
    pub(super) reply: SiteReply,
}

/// A step over any connection.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Look,
    Begin,
    /// Up to an instance; and what PREPARE of this run's own was sent with, if it was.
    Refuse(i64, Option<Text>),
    Withdraw(Instances),
    Commit(i64),
}

/// SHOW MIPT over a connection of the pool.
pub(super) async fn look<S: Site>(
    pool: Arc<Pool<S>>,
    job: Arc<Job>,
    patience: Patience,
) -> (Option<Held<S>>, SiteReply) {
    over_any(&pool, &job, &Step::Look, patience).await
}

/// BEGIN: over the connection that looked, if there is one, or over one of the pool.
pub(super) async fn begin<S: Site>(
    pool: Arc<Pool<S>>,
    looked: Option<Held<S>>,
    job: Arc<Job>,
    patience: Patience,
) -> (Option<Held<S>>, SiteReply) {
    match looked {
        Some((lease, Standing::Idle)) => over(lease, &job, &Step::Begin, patience.begin).await,
        _ => over_any(&pool, &job, &Step::Begin, patience).await,
    }
}

/// PREPARE over the connection of BEGIN.
pub(super) async fn prepare<S: Site>(
    lease: Lease<S>,
    job: Arc<Job>,
    stored: Text,
    patience: Patience,
) -> (Option<Held<S>>, SiteReply) {
    match timeout(patience.prepare, lease.connection().prepare(&job, &stored)).await {
        Err(_) | Ok(SiteReply::Unreachable) => (None, SiteReply::Unreachable),
        Ok(reply @ (SiteReply::Table(_) | SiteReply::Decided(_))) => (Some((lease, Standing::Idle)), reply),
        // Most refusals have ended the transaction, but some statements do not fit it.
        Ok(reply) => (Some((lease, Standing::Open)), reply),
    }
}

/// A step outside of transactions, after a pause: over the run's own connection, if it has one, or
/// over any.
pub(super) async fn outside<S: Site>(
    pool: Arc<Pool<S>>,
    held: Option<Held<S>>,
    job: Arc<Job>,
    step: Step,
    pause: Duration,
    patience: Patience,
) -> (Option<Held<S>>, SiteReply) {
    tokio::time::sleep(pause).await;
    let own = match held {
        Some((lease, Standing::Open)) => roll_back(lease, patience).await,
        held => held.map(|(lease, _)| lease),
    };
    match own {
        Some(lease) => over(lease, &job, &step, patience.commit).await,
        None => over_any(&pool, &job, &step, patience).await,
    }
}

/// Ends whatever transaction the connection is in. `None` if that cannot be known: the connection
/// is closed.
pub(super) async fn roll_back<S: Site>(lease: Lease<S>, patience: Patience) -> Option<Lease<S>> {
    match timeout(patience.commit, lease.connection().rollback()).await {
        Ok(true) => Some(lease),
        Ok(false) | Err(_) => None,
    }
}

/// Over a connection of the pool; once more over a new one if that was idle before and proves to be
/// lost. A BEGIN that was lost with it and arrived after all only makes the second one be refused.
async fn over_any<S: Site>(
    pool: &Arc<Pool<S>>,
    job: &Job,
    step: &Step,
    patience: Patience,
) -> (Option<Held<S>>, SiteReply) {
    let bound = match step {
        Step::Begin => patience.begin,
        _ => patience.commit,
    };
    let Some(lease) = within(patience.connect, pool.take()).await else {
        return (None, SiteReply::Unreachable);
    };
    let is_reused = lease.is_reused();
    let done = over(lease, job, step, bound).await;
    if !is_reused || done.1 != SiteReply::Unreachable {
        return done;
    }
    match within(patience.connect, pool.take_fresh()).await {
        Some(lease) => over(lease, job, step, bound).await,
        None => done,
    }
}

async fn over<S: Site>(
    lease: Lease<S>,
    job: &Job,
    step: &Step,
    bound: Duration,
) -> (Option<Held<S>>, SiteReply) {
    let connection = lease.connection();
    let sent = async {
        match step {
            Step::Look => connection.show(&job.xid).await,
            Step::Begin => connection.begin(job).await,
            Step::Refuse(upto, stored) => connection.refuse(job, *upto, stored.as_deref()).await,
            Step::Withdraw(instances) => withdraw(connection, &job.xid, instances).await,
            Step::Commit(winner) => connection.commit(&job.xid, *winner).await,
        }
    };
    let reply = timeout(bound, sent).await.unwrap_or(SiteReply::Unreachable);
    let standing = match &reply {
        SiteReply::Unreachable | SiteReply::Refused(Refused::Failed(_)) => return (None, reply),
        SiteReply::Begun => Standing::Open,
        _ => Standing::Idle,
    };
    (Some((lease, standing)), reply)
}

/// Each of them, up to the first that does not go.
async fn withdraw<C: Connection>(connection: &C, xid: &str, instances: &Instances) -> SiteReply {
    for (instance, stored) in instances.iter() {
        match connection.withdraw(xid, *instance, stored).await {
            SiteReply::Withdrawn => {}
            other => return other,
        }
    }
    SiteReply::Withdrawn
}

async fn within<S: Site>(
    bound: Duration,
    lease: impl Future<Output = Result<Lease<S>, crate::site::Trouble>>,
) -> Option<Lease<S>> {
    match timeout(bound, lease).await {
        Ok(Ok(lease)) => Some(lease),
        Ok(Err(trouble)) => {
            tracing::debug!("no connection: {trouble}");
            None
        }
        Err(_) => {
            tracing::debug!("no connection within {bound:?}");
            None
        }
    }
}
