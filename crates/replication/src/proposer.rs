//! How a node's requests come into the order: whatever waits is packed into one entry, and a few
//! such entries are under way at a time.
//!
//! ```text
//! propose a ─┐                       leader: this node      the consensus
//! propose b ─┼─▶ [a b c] ─▶ entry ─┬──────────────────────▶
//! propose c ─┘                     └─ another: forwarded ─▶ net
//! ```
//!
//! Who proposes waits for room first, so what waits is bounded. An entry that was certainly not
//! proposed is tried again until a bounded time has passed; one whose answer is lost never is.
//! Requests that wait at the same time may come into the order in any sequence.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::{Instant, timeout};

use crate::entry::{NodeNumber, Position, Requests};
use crate::error::ProposeError;
use crate::messages::{Kind, Proposed, open_answer, request};
use crate::net::CallError;
use crate::order::Inner;

/// How long to wait before a leader is looked for again.
const PAUSE: Duration = Duration::from_millis(10);

/// A request that waits.
pub(crate) struct Waiting {
    pub(crate) request: Bytes,
    pub(crate) reply: oneshot::Sender<Result<Position, ProposeError>>,
    /// Given back when the answer is there.
    pub(crate) room: OwnedSemaphorePermit,
}

/// Proposes what comes, until the order ends. Entries under way have no tasks of their own: there
/// is nothing to do for them but to wait.
pub(crate) async fn run(inner: Arc<Inner>, mut queue: mpsc::UnboundedReceiver<Waiting>) {
    let limits = &inner.settings.limits;
    let mut flights = FuturesUnordered::new();
    let mut carried = None;
    loop {
        tokio::select! {
            biased;
            // Who waits for an answer is told that it is lost.
            () = inner.until_stopped() => return,
            Some(()) = flights.next() => {}
            Some(first) = next(&mut carried, &mut queue), if flights.len() < limits.entries_in_flight => {
                let mut bytes = first.request.len();
                let mut batch = vec![first];
                while let Ok(next) = queue.try_recv() {
                    bytes += next.request.len() + Requests::OVERHEAD;
                    if bytes > limits.entry_bytes {
                        carried = Some(next);
                        break;
                    }
                    batch.push(next);
                }
                flights.push(fly(&inner, batch));
            }
        }
    }
}

/// The next request: the one that had no room in the entry before, or the first of those that wait.
async fn next(
    carried: &mut Option<Waiting>,
    queue: &mut mpsc::UnboundedReceiver<Waiting>,
) -> Option<Waiting> {
    match carried.take() {
        Some(carried) => Some(carried),
        None => queue.recv().await,
    }
}

/// Brings a batch into the order as one entry, and answers those who have proposed it.
async fn fly(inner: &Inner, batch: Vec<Waiting>) {
    let requests = Requests::pack(batch.iter().map(|waiting| &waiting.request));
    let _awaited = inner.consensus.expect();
    let outcome = submit(inner, &requests).await;
    for (place, waiting) in batch.into_iter().enumerate() {
        drop(waiting.room);
        // Who proposed may have gone.
        let _ = waiting.reply.send(outcome.clone().map(|first| first + place as u64));
    }
}

/// Brings an entry to the leader. Returns the position of its first request.
async fn submit(inner: &Inner, requests: &Requests) -> Result<Position, ProposeError> {
    let deadline = Instant::now() + inner.settings.timing.no_leader;
    loop {
        let outcome = match inner.leader() {
            Some(leader) if leader == inner.identity.node() => {
                let written = inner.consensus.write(requests.clone());
                let written = timeout(inner.settings.timing.answer, written).await;
                written.unwrap_or_else(|_| Proposed::Unknown("no majority confirmed it in time".to_owned()))
            }
            Some(leader) => forward(inner, leader, requests).await,
            None => Proposed::NotLeader(None),
        };
        match outcome {
            Proposed::At(position) => return Ok(position),
            Proposed::Unknown(why) => return Err(ProposeError::Unknown(why)),
            Proposed::NotLeader(_) if Instant::now() >= deadline => {
                let (_, why) = inner.state();
                let why = if why.is_empty() { "the leader changes".to_owned() } else { why };
                return Err(ProposeError::NotProposed(why));
            }
            // Time must pass: the question alone may change what the consensus says of itself.
            Proposed::NotLeader(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn forward(inner: &Inner, leader: NodeNumber, requests: &Requests) -> Proposed {
    let call = inner.wire.call(leader, request(Kind::Propose, inner.identity.cluster(), requests));
    let answer = tokio::select! {
        biased;
        answer = timeout(inner.settings.timing.answer, call) => answer,
        // One that stands still answers only after it was replaced, if ever.
        () = another_leads(inner, leader) => {
            return Proposed::Unknown(format!("node {leader} does not lead any more"));
        }
    };
    match answer {
        Ok(Ok(bytes)) => open_answer(bytes).unwrap_or(Proposed::NotLeader(None)),
        Ok(Err(CallError::NotSent(_))) => Proposed::NotLeader(None),
        Ok(Err(CallError::Lost(why))) => Proposed::Unknown(why),
        Err(_) => Proposed::Unknown(format!("node {leader} did not answer in time")),
    }
}

/// Resolves once another node than this one leads.
async fn another_leads(inner: &Inner, leader: NodeNumber) {
    // Until then there is nothing to look at, although what the consensus says of itself changes
    // several times with each entry, and every entry that is under way would look.
    inner.consensus.until_other_leader(leader).await;
    let mut changes = inner.consensus.changes();
    while inner.leader().is_none_or(|now| now == leader) {
        if !changes.next().await {
            std::future::pending::<()>().await;
        }
    }
}

/// A leader's answer to what another node has forwarded.
pub(crate) async fn accept(inner: &Inner, requests: Requests) -> Proposed {
    let leader = inner.leader();
    if leader != Some(inner.identity.node()) {
        return Proposed::NotLeader(leader);
    }
    let written = timeout(inner.settings.timing.answer, inner.consensus.write(requests)).await;
    written.unwrap_or_else(|_| Proposed::Unknown("no majority confirmed it in time".to_owned()))
}
