//! An application that records what it is given: position by position, with checkpoints.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use cognate_replication::{
    Answer, Application, Failure, NodeNumber, Position, Snapshot, SnapshotSink, SnapshotSource,
};
use tokio::sync::watch;

/// What a recorder holds.
#[derive(Debug, Default, Clone)]
struct State {
    /// The request at position `began + 1 + index`.
    history: Vec<Bytes>,
    began: Position,
    /// Up to where it is durable.
    durable: Position,
}

impl State {
    fn end(&self) -> Position {
        self.began + self.history.len() as u64
    }
}

/// How snapshots come and go.
#[derive(Debug, Default)]
struct Transfers {
    /// How many more cannot be opened.
    refused: u64,
    /// Whether nothing of one can be kept.
    is_full: bool,
    /// How many have begun to come.
    begun: u64,
    /// Whether one is becoming the state.
    is_finishing: bool,
    /// How many have begun to come while another one was becoming the state.
    overlapping: u64,
    /// How many processes there were before this one.
    life: u64,
}

/// See the module's description. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Recorder {
    state: Arc<Mutex<State>>,
    applied: watch::Sender<Position>,
    snapshots: Arc<Mutex<(u64, u64)>>,
    transfers: Arc<Mutex<Transfers>>,
    is_held: watch::Sender<bool>,
    are_parts_held: watch::Sender<bool>,
    is_finish_held: watch::Sender<bool>,
}

impl Recorder {
    /// With data up to `began`, which are durable.
    pub(crate) fn new(began: Position) -> Recorder {
        let state = State { began, durable: began, ..State::default() };
        Recorder {
            state: Arc::new(Mutex::new(state)),
            applied: watch::channel(began).0,
            snapshots: Arc::default(),
            transfers: Arc::default(),
            is_held: watch::Sender::default(),
            are_parts_held: watch::Sender::default(),
            is_finish_held: watch::Sender::default(),
        }
    }

    pub(crate) fn apply(&self, position: Position, request: Bytes) {
        let mut state = self.state.lock().unwrap();
        assert_eq!(position, state.end() + 1, "positions have no gap");
        state.history.push(request);
        self.applied.send_replace(position);
    }

    /// From now on it takes nothing, or does again.
    pub(crate) fn hold(&self, is_held: bool) {
        self.is_held.send_replace(is_held);
    }

    /// Waits until it takes something.
    pub(crate) async fn until_free(&self) {
        let mut is_held = self.is_held.subscribe();
        is_held.wait_for(|is_held| !is_held).await.unwrap();
    }

    pub(crate) fn applied(&self) -> Position {
        self.state.lock().unwrap().end()
    }

    /// Waits until everything up to `position` was given.
    pub(crate) async fn until(&self, position: Position) {
        let mut applied = self.applied.subscribe();
        applied.wait_for(|applied| *applied >= position).await.unwrap();
    }

    /// Makes what was applied up to `position` durable.
    pub(crate) fn checkpoint(&self, position: Position) {
        let mut state = self.state.lock().unwrap();
        assert!(position <= state.end());
        state.durable = state.durable.max(position);
    }

    /// What is left after the process has ended; the answer is its position.
    pub(crate) fn crash(&self) -> Position {
        {
            let mut transfers = self.transfers.lock().unwrap();
            transfers.life += 1;
            transfers.is_finishing = false;
        }
        let mut state = self.state.lock().unwrap();
        let kept = (state.durable - state.began) as usize;
        state.history.truncate(kept);
        self.applied.send_replace(state.durable);
        state.durable
    }

    pub(crate) fn history(&self) -> Vec<Bytes> {
        self.state.lock().unwrap().history.clone()
    }

    /// Where a request is, if it has come.
    pub(crate) fn find(&self, request: &str) -> Option<Position> {
        let state = self.state.lock().unwrap();
        let place = state.history.iter().position(|known| known == request.as_bytes());
        place.map(|place| state.began + place as u64 + 1)
    }

    /// So many snapshots cannot be opened from now on.
    pub(crate) fn refuse_snapshots(&self, count: u64) {
        self.transfers.lock().unwrap().refused = count;
    }

    /// From now on it has no place for snapshots, or has again.
    pub(crate) fn fill(&self, is_full: bool) {
        self.transfers.lock().unwrap().is_full = is_full;
    }

    /// From now on it keeps no part of a snapshot, or does again.
    pub(crate) fn hold_parts(&self, are_held: bool) {
        self.are_parts_held.send_replace(are_held);
    }

    /// From now on no snapshot becomes its state, or does again.
    pub(crate) fn hold_finish(&self, is_held: bool) {
        self.is_finish_held.send_replace(is_held);
    }

    /// How many snapshots have begun to come, also while another one was becoming the state.
    pub(crate) fn begun(&self) -> (u64, u64) {
        let transfers = self.transfers.lock().unwrap();
        (transfers.begun, transfers.overlapping)
    }

    /// Whether a snapshot is becoming the state.
    pub(crate) fn is_finishing(&self) -> bool {
        self.transfers.lock().unwrap().is_finishing
    }

    /// How many snapshots it has given and taken.
    pub(crate) fn snapshots(&self) -> (u64, u64) {
        *self.snapshots.lock().unwrap()
    }
}

struct Chunks(Vec<Bytes>);

impl SnapshotSource for Chunks {
    fn next(&mut self) -> Answer<'_, Result<Option<Bytes>, Failure>> {
        Box::pin(async { Ok(self.0.pop()) })
    }
}

struct Taking {
    recorder: Recorder,
    position: Position,
    history: Vec<Bytes>,
    /// Of the process that takes it in.
    life: u64,
}

impl SnapshotSink for Taking {
    fn put(&mut self, chunk: Bytes) -> Answer<'_, Result<(), Failure>> {
        if self.recorder.transfers.lock().unwrap().is_full {
            return Box::pin(async { Err("no space left on device".to_owned()) });
        }
        self.history.push(chunk);
        let mut are_held = self.recorder.are_parts_held.subscribe();
        Box::pin(async move {
            are_held.wait_for(|are_held| !are_held).await.unwrap();
            Ok(())
        })
    }

    fn finish(self: Box<Self>) -> Answer<'static, Result<(), Failure>> {
        Box::pin(async move {
            self.recorder.transfers.lock().unwrap().is_finishing = true;
            let mut is_held = self.recorder.is_finish_held.subscribe();
            is_held.wait_for(|is_held| !is_held).await.unwrap();
            {
                let mut transfers = self.recorder.transfers.lock().unwrap();
                if transfers.life != self.life {
                    return Err("its process has ended".to_owned());
                }
                transfers.is_finishing = false;
            }
            let mut state = self.recorder.state.lock().unwrap();
            let began = self.position - self.history.len() as u64;
            *state = State { history: self.history, began, durable: self.position };
            self.recorder.applied.send_replace(self.position);
            self.recorder.snapshots.lock().unwrap().1 += 1;
            Ok(())
        })
    }
}

impl Application for Recorder {
    fn open_snapshot(&self) -> Answer<'_, Result<Snapshot, Failure>> {
        {
            let mut transfers = self.transfers.lock().unwrap();
            if transfers.refused > 0 {
                transfers.refused -= 1;
                return Box::pin(async { Err("it cannot be opened for now".to_owned()) });
            }
        }
        let state = self.state.lock().unwrap().clone();
        self.snapshots.lock().unwrap().0 += 1;
        let kept = (state.durable - state.began) as usize;
        let mut chunks: Vec<Bytes> = state.history[..kept].to_vec();
        chunks.reverse();
        let snapshot = Snapshot { position: state.durable, source: Box::new(Chunks(chunks)) };
        Box::pin(async { Ok(snapshot) })
    }

    fn renew_snapshot(&self) {
        let mut state = self.state.lock().unwrap();
        state.durable = state.began + state.history.len() as u64;
    }

    fn begin_install(&self, position: Position) -> Answer<'_, Result<Box<dyn SnapshotSink>, Failure>> {
        let life = {
            let mut transfers = self.transfers.lock().unwrap();
            transfers.begun += 1;
            transfers.overlapping += u64::from(transfers.is_finishing);
            transfers.life
        };
        let taking = Taking { recorder: self.clone(), position, history: Vec::new(), life };
        Box::pin(async { Ok(Box::new(taking) as Box<dyn SnapshotSink>) })
    }

    fn answer(&self, from: NodeNumber, question: Bytes) -> Answer<'_, Result<Bytes, Failure>> {
        let answer = format!("{from} asks {}", String::from_utf8_lossy(&question));
        Box::pin(async { Ok(Bytes::from(answer)) })
    }
}
