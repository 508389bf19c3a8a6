//! A node of a test: its order, its recorder, and the task that applies.

use std::time::Duration;

use bytes::Bytes;
use cognate_replication::{Delivered, Delivery, NodeState, Position, ProposeError, TotalOrder};
use tokio::task::JoinHandle;

use crate::recorder::Recorder;

/// Shows what happens, if `RUST_LOG` says so.
pub(crate) fn trace() {
    let wanted = std::env::var("RUST_LOG").unwrap_or_else(|_| "off".to_owned());
    let filter = tracing_subscriber::EnvFilter::new(wanted);
    let shown = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
    // Another test of this process was first.
    drop(shown);
}

/// Far more than anything takes: a test that waits for longer has found a defect.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(60);

/// Far more proposals than a change of leaders refuses: a consensus that has ended refuses for
/// ever.
const ATTEMPTS: usize = 1000;

#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) order: TotalOrder,
    pub(crate) recorder: Recorder,
    applier: JoinHandle<()>,
}

impl Running {
    pub(crate) fn new(
        order: TotalOrder,
        delivery: Delivery,
        recorder: Recorder,
        seen: impl Fn(Position, &Bytes) + Send + 'static,
    ) -> Running {
        let applier = tokio::spawn(apply(order.clone(), delivery, recorder.clone(), seen));
        Running { order, recorder, applier }
    }

    /// Ends the node as `kill -9` would, but for what the operating system keeps.
    pub(crate) async fn kill(self) -> Recorder {
        self.applier.abort();
        self.order.abandon().await;
        // What it was doing when it was aborted is over.
        let _ = self.applier.await;
        self.recorder
    }

    pub(crate) async fn propose(&self, request: &str) -> Result<Position, ProposeError> {
        let proposed = self.order.propose(Bytes::copy_from_slice(request.as_bytes()));
        tokio::time::timeout(FOR_EVER, proposed).await.expect("an answer")
    }

    /// Proposes until it is certain that the request is ordered. If an answer is lost, it looks
    /// whether the request has come, as an application does.
    pub(crate) async fn order(&self, request: &str) -> Position {
        for _ in 0..ATTEMPTS {
            match self.propose(request).await {
                Ok(position) => return position,
                Err(ProposeError::NotProposed(_)) => {}
                Err(ProposeError::Unknown(_)) => {
                    if let Ok(barrier) = self.order.read_barrier().await {
                        self.until(barrier).await;
                    }
                    if let Some(position) = self.recorder.find(request) {
                        return position;
                    }
                }
                Err(error) => panic!("{request}: {error}"),
            }
        }
        panic!("{request} is never ordered: {:?}", self.order.state());
    }

    pub(crate) async fn until(&self, position: Position) {
        let node = self.order.node();
        let reached = tokio::time::timeout(FOR_EVER, self.recorder.until(position)).await;
        assert!(reached.is_ok(), "node {node} is at {} and not {position}", self.recorder.applied());
    }

    /// Waits until the node is in this state.
    pub(crate) async fn until_state(&self, state: NodeState) {
        until(&format!("node {} is {}", self.order.node(), state.name()), || self.order.state().0 == state)
            .await;
    }
}

async fn apply(
    order: TotalOrder,
    mut delivery: Delivery,
    recorder: Recorder,
    seen: impl Fn(Position, &Bytes) + Send,
) {
    loop {
        match delivery.next().await {
            Ok(Delivered::Request { position, request }) => {
                recorder.until_free().await;
                seen(position, &request);
                recorder.apply(position, request);
                order.note_applied(position);
            }
            Ok(Delivered::Installed { position }) => order.note_applied(position),
            Err(_) => return,
        }
    }
}

/// Waits for something that nobody tells.
pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let looking = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(FOR_EVER, looking).await.is_ok(), "{what}");
}
