//! Answers what other nodes ask.

use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use tokio::time::Instant;

use crate::application::Answer;
use crate::changing;
use crate::codec::Coded;
use crate::entry::{NodeNumber, Requests};
use crate::founding;
use crate::intake;
use crate::messages::{
    Append, Appended, AskVote, Change, HandOver, Kind, Newborn, Nothing, Vote, answer, open_request,
};
use crate::net::Serve;
use crate::order::Inner;
use crate::proposer;

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

/// What a request's body says.
pub(crate) fn body<T: Coded>(body: Bytes) -> Result<T, String> {
    T::decode(body).map_err(|malformed| malformed.to_string())
}

async fn serve(inner: &Arc<Inner>, from: NodeNumber, request: Bytes) -> Bytes {
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
        Kind::Vote => answer(vote(inner, from, bytes, false).await),
        Kind::PreVote => answer(vote(inner, from, bytes, true).await),
        Kind::HandOver => answer(hand_over(inner, bytes).await),
        Kind::SnapshotBegin => answer(intake::begin(inner, from, bytes).await),
        Kind::SnapshotChunk => answer(intake::chunk(inner, from, bytes).await),
        Kind::SnapshotEnd => answer(intake::end(inner, from, bytes).await),
        Kind::Propose => match body::<Requests>(bytes) {
            Ok(requests) => answer(Ok(proposer::accept(inner, requests).await)),
            Err(why) => answer(Err::<Nothing, _>(why)),
        },
        Kind::ReadIndex => answer(inner.consensus.read_index().await),
        Kind::Change => match body::<Change>(bytes) {
            Ok(change) => answer(changing::change(inner, change).await),
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

async fn vote(inner: &Inner, from: NodeNumber, bytes: Bytes, is_trial: bool) -> Result<Vote, String> {
    let ask: AskVote = body(bytes)?;
    // The question may only have been under way for long; so this is no reason to disown it.
    let lacks = |(_, last): (u64, u64)| ask.last.is_none_or(|id| id.index < last);
    if inner.identity.kept(from).is_some_and(lacks) {
        return Err(format!("node {from} had more than it has in its question for a vote"));
    }
    inner.consensus.vote(ask, is_trial).await
}

async fn hand_over(inner: &Inner, bytes: Bytes) -> Result<Nothing, String> {
    let asked: HandOver = body(bytes)?;
    inner.consensus.hand_over(asked).await
}
