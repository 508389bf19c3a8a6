//! Answers what other nodes ask.

use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use tokio::time::Instant;

use crate::application::{Answer, Failure, SnapshotSink};
use crate::codec::Coded;
use crate::entry::{Ballot, Base, NodeNumber, Position, Requests};
use crate::founding;
use crate::messages::{
    Append, Appended, AskVote, Change, HandOver, Kind, Newborn, Nothing, SnapshotBegin, SnapshotChunk,
    SnapshotEnd, answer, open_request,
};
use crate::net::Serve;
use crate::order::Inner;
use crate::proposer;

/// A snapshot that is coming.
pub(crate) struct Coming {
    from: NodeNumber,
    transfer: u64,
    base: Base,
    position: Position,
    chunks: u64,
    sink: Box<dyn SnapshotSink>,
}

/// What the network is given before there is an order.
#[derive(Default)]
pub(crate) struct Server(OnceLock<Weak<Inner>>);

impl Server {
    pub(crate) fn set(&self, inner: &Arc<Inner>) {
        let _ = self.0.set(Arc::downgrade(inner));
    }
}

impl Serve for Server {
    fn serve(&self, from: NodeNumber, request: Bytes) -> Answer<'static, Bytes> {
        let inner = self.0.get().and_then(Weak::upgrade);
        Box::pin(async move {
            match inner {
                Some(inner) => serve(&inner, from, request).await,
                None => answer(Err::<Nothing, _>("this node is starting or has ended".to_owned())),
            }
        })
    }
}

fn body<T: Coded>(body: Bytes) -> Result<T, String> {
    T::decode(body).map_err(|malformed| malformed.to_string())
}

async fn serve(inner: &Inner, from: NodeNumber, request: Bytes) -> Bytes {
    let (kind, cluster, bytes) = match open_request(request) {
        Ok(open) => open,
        Err(malformed) => return answer(Err::<Nothing, _>(malformed.to_string())),
    };
    if kind == Kind::Newborn {
        return match body::<Newborn>(bytes) {
            Ok(other) => answer(Ok(founding::answer(inner, other).await)),
            Err(why) => answer(Err::<Nothing, _>(why)),
        };
    }
    if cluster.is_none() || cluster != inner.identity.cluster() {
        return answer(Err::<Nothing, _>("the node belongs to another cluster, or to none yet".to_owned()));
    }
    if *inner.stopped.borrow() {
        return answer(Err::<Nothing, _>("this node has ended".to_owned()));
    }
    match kind {
        Kind::Append => answer(append(inner, bytes).await),
        Kind::Vote => answer(vote(inner, bytes, false).await),
        Kind::PreVote => answer(vote(inner, bytes, true).await),
        Kind::HandOver => answer(hand_over(inner, bytes).await),
        Kind::SnapshotBegin => answer(begin(inner, from, bytes).await),
        Kind::SnapshotChunk => answer(chunk(inner, from, bytes).await),
        Kind::SnapshotEnd => answer(end(inner, from, bytes).await),
        Kind::Propose => match body::<Requests>(bytes) {
            Ok(requests) => answer(Ok(proposer::accept(inner, requests).await)),
            Err(why) => answer(Err::<Nothing, _>(why)),
        },
        Kind::ReadIndex => answer(inner.consensus.read_index().await),
        Kind::Change => match body::<Change>(bytes) {
            Ok(change) => answer(inner.change(change).await),
            Err(why) => answer(Err::<Nothing, _>(why)),
        },
        Kind::Report => answer(Ok(inner.report())),
        Kind::Question => match body::<Bytes>(bytes) {
            Ok(question) => answer(inner.application.answer(from, question).await),
            Err(why) => answer(Err::<Nothing, _>(why)),
        },
        Kind::Newborn => answer(Err::<Nothing, _>("no request of this cluster".to_owned())),
    }
}

async fn append(inner: &Inner, bytes: Bytes) -> Result<Appended, String> {
    let append: Append = body(bytes)?;
    // A leader that asks what is here finds nothing, and sends a snapshot.
    if append.previous.is_none() && !append.entries.is_empty() && inner.needs_snapshot() {
        return Err("this node waits for a snapshot: it has not what the cluster began with".to_owned());
    }
    let is_leader = append.ballot.is_elected;
    let appended = inner.consensus.append(append).await?;
    if is_leader && !matches!(appended, Appended::Higher(_)) {
        *inner.contact.lock() = Some(Instant::now());
    }
    Ok(appended)
}

async fn vote(inner: &Inner, bytes: Bytes, is_trial: bool) -> Result<crate::messages::Vote, String> {
    let ask: AskVote = body(bytes)?;
    inner.consensus.vote(ask, is_trial).await
}

async fn hand_over(inner: &Inner, bytes: Bytes) -> Result<Nothing, String> {
    let asked: HandOver = body(bytes)?;
    inner.consensus.hand_over(asked).await
}

async fn begin(inner: &Inner, from: NodeNumber, bytes: Bytes) -> Result<Nothing, String> {
    let SnapshotBegin { transfer, base, position } = body(bytes)?;
    // All of it would be sent in vain.
    if let Some(why) = inner.consensus.view().failure {
        return Err(format!("its order has ended: {why}"));
    }
    if position < base.position {
        return Err("a snapshot from before its own base".to_owned());
    }
    let mut coming = inner.coming.lock().await;
    // What was coming before is given up first: the application takes in one at a time.
    *coming = None;
    let sink = inner.application.begin_install(position).await.map_err(not_kept)?;
    *coming = Some(Coming { from, transfer, base, position, chunks: 0, sink });
    Ok(Nothing {})
}

/// Takes out the snapshot that a part belongs to: the one behind so many others. A part that does
/// not follow ends its snapshot. One of another snapshot, which was given up, only comes late, and
/// is no matter of the one that is coming now.
fn take(coming: &mut Option<Coming>, from: NodeNumber, transfer: u64, chunks: u64) -> Option<Coming> {
    let is_of = |one: &mut Coming| (one.from, one.transfer) == (from, transfer);
    coming.take_if(is_of).filter(|taken| taken.chunks == chunks)
}

async fn chunk(inner: &Inner, from: NodeNumber, bytes: Bytes) -> Result<Nothing, String> {
    let SnapshotChunk { transfer, number, bytes } = body(bytes)?;
    let mut coming = inner.coming.lock().await;
    let Some(mut taken) = take(&mut coming, from, transfer, number) else {
        return Err("a part of a snapshot that does not follow".to_owned());
    };
    taken.sink.put(bytes).await.map_err(not_kept)?;
    taken.chunks += 1;
    *coming = Some(taken);
    Ok(Nothing {})
}

/// Says why a snapshot cannot be taken in: here, too, where somebody can do something about it.
fn not_kept(why: Failure) -> String {
    tracing::error!(why, "this node cannot keep the state that another one sends; it is sent again later");
    why
}

async fn end(inner: &Inner, from: NodeNumber, bytes: Bytes) -> Result<Ballot, String> {
    let SnapshotEnd { transfer, chunks, ballot } = body(bytes)?;
    // Until it is the application's state: nothing else may come meanwhile. Its leader may have
    // given it up, or be another one by now, and begin anew.
    let mut coming = inner.coming.lock().await;
    let Some(Coming { base, position, sink, .. }) = take(&mut coming, from, transfer, chunks) else {
        return Err("the end of a snapshot of which parts are missing".to_owned());
    };
    inner.consensus.install(ballot, base, position, sink).await
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nowhere;

    impl SnapshotSink for Nowhere {
        fn put(&mut self, _: Bytes) -> Answer<'_, Result<(), Failure>> {
            Box::pin(async { Ok(()) })
        }

        fn finish(self: Box<Self>) -> Answer<'static, Result<(), Failure>> {
            Box::pin(async { Ok(()) })
        }
    }

    /// A leader that was replaced has sent a part that comes when its successor's are coming.
    #[test]
    fn a_late_part_of_another_snapshot_ends_nothing() {
        let (from, transfer, chunks) = (1, 70, 2);
        let begun = || {
            let (base, sink) = (Base::default(), Box::new(Nowhere));
            Some(Coming { from, transfer, base, position: 9, chunks, sink })
        };
        let mut coming = begun();
        assert!(take(&mut coming, 2, 70, 2).is_none() && take(&mut coming, 1, 69, 2).is_none());
        let taken = take(&mut coming, 1, 70, 2);
        assert!(taken.is_some_and(|taken| taken.chunks == 2) && coming.is_none());
        // What does not follow leaves nothing that could become a state.
        let mut coming = begun();
        assert!(take(&mut coming, 1, 70, 1).is_none() && coming.is_none());
    }
}
