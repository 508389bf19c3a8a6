//! What is settled, request by request, for the application to take at its own pace.
//!
//! A delivery holds a few entries at most; the rest waits in the log. Requests that the application
//! has already are passed over: those up to where it was at the start, and those in a snapshot.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;

use crate::consensus::Settled;
use crate::entry::{Content, Position};
use crate::error::OrderError;
use crate::log::OrderLog;

/// Bytes that are taken from the log at a time.
const BYTES: usize = 1 << 20;

/// The next thing that happens to the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivered {
    /// A request, settled. Positions have no gap, but after [`Delivered::Installed`].
    Request {
        /// Its place in the order.
        position: Position,
        /// Its bytes.
        request: Bytes,
    },
    /// A snapshot has become the application's state; the next request is the one after `position`.
    Installed {
        /// Up to where requests are in it.
        position: Position,
    },
}

/// See the module's description.
#[derive(Debug)]
pub struct Delivery {
    log: Arc<OrderLog>,
    settled: watch::Receiver<Settled>,
    ready: VecDeque<(Position, Bytes)>,
    next_index: u64,
    /// Requests up to here are the application's already.
    have: Position,
    installs: u64,
}

impl Delivery {
    pub(crate) fn new(log: Arc<OrderLog>, settled: watch::Receiver<Settled>, have: Position) -> Delivery {
        let next_index = log.index_after(have);
        Delivery { log, settled, ready: VecDeque::new(), next_index, have, installs: 0 }
    }

    /// Waits for the next request. Whatever was settled before the order ended still comes; then it
    /// is [`OrderError::Ended`]. May be given up and called again: nothing is lost.
    pub async fn next(&mut self) -> Result<Delivered, OrderError> {
        loop {
            let settled = *self.settled.borrow_and_update();
            if settled.installs != self.installs {
                self.ready.clear();
                (self.installs, self.have) = (settled.installs, settled.installed);
                self.next_index = settled.next_index;
                return Ok(Delivered::Installed { position: self.have });
            }
            if let Some((position, request)) = self.ready.pop_front() {
                self.have = position;
                return Ok(Delivered::Request { position, request });
            }
            let is_taken = match settled.index {
                Some(last) if last >= self.next_index => self.take(last).await?,
                _ => false,
            };
            if !is_taken && self.settled.changed().await.is_err() {
                return Err(OrderError::Ended("there is nothing more to deliver".to_owned()));
            }
        }
    }

    /// The next request, if it was taken from the log already.
    pub fn next_ready(&mut self) -> Option<Delivered> {
        if self.settled.borrow().installs != self.installs {
            return None;
        }
        let (position, request) = self.ready.pop_front()?;
        self.have = position;
        Some(Delivered::Request { position, request })
    }

    /// Takes entries up to `last` from the log. Says whether there were any.
    async fn take(&mut self, last: u64) -> Result<bool, OrderError> {
        let entries = self.log.read(self.next_index..last + 1, BYTES).await;
        let entries = entries.map_err(|error| OrderError::Ended(error.to_string()))?;
        // A snapshot that is being taken in may have removed them: then its mark comes next.
        if entries.first().is_none_or(|placed| placed.entry.id.index != self.next_index) {
            return Ok(false);
        }
        for placed in entries {
            self.next_index = placed.entry.id.index + 1;
            if let Content::Requests(requests) = &placed.entry.content {
                let numbered = (placed.before + 1..).zip(requests.iter());
                self.ready.extend(numbered.filter(|(position, _)| *position > self.have));
            }
        }
        Ok(true)
    }
}
