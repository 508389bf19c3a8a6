//! Takes in the snapshot that another node sends.
//!
//! ```text
//! sender                 receiver
//! begin             ───▶ taken        or: all of it is here; or: another one becomes the state
//! part 0, part 1 …  ───▶ taken        or: not known
//! end               ───▶ installing   the end is sent again, as often as this is the answer,
//! end               ───▶ installed    or there is none in time; or: not known
//! ```
//!
//! A snapshot becomes the state by itself, whether somebody waits for it or not, so the question
//! for it is short, and what is lost of questions and answers costs no more than that. A node that
//! has started again, or was sent another snapshot meanwhile, does not know the one that it is
//! asked for: then its sender begins anew, at once.
//!
//! Invariants: one snapshot at most is coming, and one at most is becoming the state; none begins
//! to come while one is becoming the state; and each becomes it once, however often its end comes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{MutexGuard, watch};
use tokio::time::{Instant, timeout, timeout_at};

use crate::application::{Failure, SnapshotSink};
use crate::entry::{Ballot, Base, NodeNumber, Position};
use crate::messages::{SnapshotAnswer, SnapshotBegin, SnapshotChunk, SnapshotEnd};
use crate::order::Inner;
use crate::serve::body;

/// How long whoever asks waits for a snapshot to become the state, until it is told that this goes
/// on: well within what it waits for an answer.
const ANSWER: Duration = Duration::from_secs(2);

/// What became of a snapshot of which the end has come: nothing, as long as it is becoming the
/// state.
type Outcome = watch::Receiver<Option<Result<Ballot, String>>>;

/// A snapshot that is coming.
struct Coming {
    from: NodeNumber,
    transfer: u64,
    base: Base,
    position: Position,
    chunks: u64,
    sink: Box<dyn SnapshotSink>,
}

/// A snapshot of which the end has come.
struct Ended {
    from: NodeNumber,
    transfer: u64,
    outcome: Outcome,
}

/// The snapshot that is coming, and the last one of which the end has come.
#[derive(Default)]
pub(crate) struct Intake {
    coming: Option<Coming>,
    ended: Option<Ended>,
}

impl Intake {
    /// Takes out the snapshot that a part belongs to: the one behind so many others. A part that
    /// does not follow ends its snapshot. One of another snapshot, which was given up, only comes
    /// late, and is no matter of the one that is coming now.
    fn take(&mut self, from: NodeNumber, transfer: u64, chunks: u64) -> Option<Coming> {
        let is_of = |one: &mut Coming| (one.from, one.transfer) == (from, transfer);
        self.coming.take_if(is_of).filter(|taken| taken.chunks == chunks)
    }

    /// The outcome of a snapshot of which the end has come before.
    fn outcome(&self, from: NodeNumber, transfer: u64) -> Option<Outcome> {
        let ended = self.ended.as_ref()?;
        ((ended.from, ended.transfer) == (from, transfer)).then(|| ended.outcome.clone())
    }

    /// The outcome of the snapshot that is becoming the state.
    fn installing(&self) -> Option<Outcome> {
        let outcome = &self.ended.as_ref()?.outcome;
        // Nobody will say it any more if the task has panicked.
        let is_open = outcome.has_changed().is_ok() && outcome.borrow().is_none();
        is_open.then(|| outcome.clone())
    }
}

/// Waits, for a bounded time, until no snapshot is becoming the state: its leader may have given it
/// up, or be another one by now, and begin anew, and the application takes in one at a time.
async fn until_free(inner: &Inner) -> Option<MutexGuard<'_, Intake>> {
    let deadline = Instant::now() + ANSWER;
    loop {
        let intake = inner.intake.lock().await;
        let Some(mut outcome) = intake.installing() else { return Some(intake) };
        drop(intake);
        if timeout_at(deadline, outcome.wait_for(Option::is_some)).await.is_err() {
            return None;
        }
    }
}

/// Whether all entries that a snapshot covers are settled here, and on the disk: so it is after a
/// start with the state that a lost answer was about. What is noted as settled alone does not say
/// it: that may have been noted before a snapshot that was lost with its process.
fn is_here(inner: &Inner, base: &Base) -> bool {
    let settled = *inner.settled.borrow();
    let synced = inner.log.synced().max(settled.installed);
    let is_settled = base.id.is_some_and(|id| settled.index >= Some(id.index));
    let is_there = settled.installs > 0 || inner.log.last() >= base.id;
    is_settled && is_there && synced >= base.position && !inner.needs_snapshot()
}

/// Answers [`SnapshotBegin`].
pub(crate) async fn begin(inner: &Inner, from: NodeNumber, bytes: Bytes) -> Result<SnapshotAnswer, String> {
    let SnapshotBegin { transfer, base, position } = body(bytes)?;
    // All of it would be sent in vain.
    if let Some(why) = inner.consensus.view().failure {
        return Err(format!("its order has ended: {why}"));
    }
    if position < base.position {
        return Err("a snapshot from before its own base".to_owned());
    }
    let Some(mut intake) = until_free(inner).await else { return Ok(SnapshotAnswer::Installing) };
    // What was coming before is given up first: the application takes in one at a time.
    intake.coming = None;
    if is_here(inner, &base) {
        return Ok(SnapshotAnswer::Here);
    }
    if inner.consensus.votes_alone_by(&base) {
        return Err(not_kept("it is of a time when this node voted alone".to_owned()));
    }
    let sink = inner.application.begin_install(position).await.map_err(not_kept)?;
    intake.coming = Some(Coming { from, transfer, base, position, chunks: 0, sink });
    Ok(SnapshotAnswer::Taken)
}

/// Answers [`SnapshotChunk`].
pub(crate) async fn chunk(inner: &Inner, from: NodeNumber, bytes: Bytes) -> Result<SnapshotAnswer, String> {
    let SnapshotChunk { transfer, number, bytes } = body(bytes)?;
    let mut intake = inner.intake.lock().await;
    let Some(mut taken) = intake.take(from, transfer, number) else { return Ok(SnapshotAnswer::Unknown) };
    taken.sink.put(bytes).await.map_err(not_kept)?;
    taken.chunks += 1;
    intake.coming = Some(taken);
    Ok(SnapshotAnswer::Taken)
}

/// Says why a snapshot cannot be taken in: here, too, where somebody can do something about it.
fn not_kept(why: Failure) -> String {
    tracing::error!(why, "this node cannot keep the state that another one sends; it is sent again later");
    why
}

/// Answers [`SnapshotEnd`], which comes again and again until its sender knows the outcome.
pub(crate) async fn end(
    inner: &Arc<Inner>,
    from: NodeNumber,
    bytes: Bytes,
) -> Result<SnapshotAnswer, String> {
    let SnapshotEnd { transfer, chunks, ballot } = body(bytes)?;
    let mut outcome = {
        let mut intake = inner.intake.lock().await;
        match intake.outcome(from, transfer) {
            Some(outcome) => outcome,
            None => {
                let Some(coming) = intake.take(from, transfer, chunks) else {
                    return Ok(SnapshotAnswer::Unknown);
                };
                let outcome = install(inner, ballot, coming);
                intake.ended = Some(Ended { from, transfer, outcome: outcome.clone() });
                outcome
            }
        }
    };
    let known = timeout(ANSWER, outcome.wait_for(Option::is_some)).await;
    match known {
        Ok(Ok(known)) => match &*known {
            Some(Ok(ballot)) => Ok(SnapshotAnswer::Installed(*ballot)),
            Some(Err(why)) => Err(why.clone()),
            None => Ok(SnapshotAnswer::Installing),
        },
        Ok(Err(_)) => Ok(SnapshotAnswer::Unknown),
        Err(_) => Ok(SnapshotAnswer::Installing),
    }
}

/// Has a snapshot that has come become the state, also if nobody waits for that any more.
fn install(inner: &Arc<Inner>, ballot: Ballot, coming: Coming) -> Outcome {
    let (told, outcome) = watch::channel(None);
    let inner = Arc::clone(inner);
    tokio::spawn(async move {
        let Coming { base, position, sink, .. } = coming;
        let installed = inner.consensus.install(ballot, base, position, sink).await;
        told.send_replace(Some(installed));
    });
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::application::Answer;
    use crate::entry::Leadership;

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
            let coming = Some(Coming { from, transfer, base, position: 9, chunks, sink });
            Intake { coming, ended: None }
        };
        let mut intake = begun();
        assert!(intake.take(2, 70, 2).is_none() && intake.take(1, 69, 2).is_none());
        let taken = intake.take(1, 70, 2);
        assert!(taken.is_some_and(|taken| taken.chunks == 2) && intake.coming.is_none());
        // What does not follow leaves nothing that could become a state.
        let mut intake = begun();
        assert!(intake.take(1, 70, 1).is_none() && intake.coming.is_none());
    }

    /// The end of a snapshot comes again before its outcome is known, and after it.
    #[test]
    fn the_last_snapshot_that_ended_is_known() {
        let (told, outcome) = watch::channel(None);
        let mut intake = Intake { coming: None, ended: Some(Ended { from: 1, transfer: 70, outcome }) };
        assert!(intake.installing().is_some());
        assert!(intake.outcome(2, 70).is_none() && intake.outcome(1, 69).is_none());
        let ballot = Ballot { leadership: Leadership { term: 3, node: 1 }, is_elected: true };
        told.send_replace(Some(Ok(ballot)));
        drop(told);
        assert!(intake.installing().is_none());
        let known = intake.outcome(1, 70).expect("the one that has ended");
        assert_eq!(*known.borrow(), Some(Ok(ballot)));
        // Nobody says what became of this one.
        let (_, outcome) = watch::channel(None);
        intake.ended = Some(Ended { from: 1, transfer: 71, outcome });
        assert!(intake.installing().is_none() && intake.outcome(1, 70).is_none());
    }
}
