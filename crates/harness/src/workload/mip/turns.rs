//! The same clients with one way of ending a request after the other.
//!
//! A client has a connection for each way, and uses the one whose turn it is. Whoever runs them changes the turn under them; requests that begin right after that, while those of
//! the way before are still at work, count as a kind of their own.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::requests::{Requests, SharedClient};
use crate::driver::{Client, Recorder, Workload};
use crate::error::Result;

/// Several kinds of requests, of which one has its turn.
#[derive(Debug)]
pub struct Turns {
    of: Vec<Arc<Requests>>,
    round: usize,
    /// Twice the one whose turn it is, and one more if it has only just begun.
    current: AtomicUsize,
}

impl Turns {
    /// For this round. With the rounds it changes who begins, and whose connections are opened first: a server gives them to its threads in turns, and one client alone is as fast as
    /// its thread's place makes it.
    pub fn new(of: Vec<Arc<Requests>>, round: u32) -> Turns {
        Turns { of, round: round as usize, current: AtomicUsize::new(0) }
    }

    /// The ways in this round's order.
    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.of.len()).collect();
        order.rotate_left(self.round % self.of.len());
        order
    }

    /// The kinds of requests.
    pub fn of(&self) -> &[Arc<Requests>] {
        &self.of
    }

    /// Changes the turns for ever: `part` each, of which `lead` does not count, forwards and backwards. Before that each has a turn that does not count at
    /// all, [`Turns::lap`] together: connections are new, and caches full of what came before.
    pub async fn change(&self, lead: Duration, part: Duration) {
        let mut order = self.order();
        for &index in &order {
            self.current.store(2 * index + 1, Ordering::Relaxed);
            tokio::time::sleep(COLD * lead).await;
        }
        loop {
            for &index in &order {
                self.current.store(2 * index + 1, Ordering::Relaxed);
                tokio::time::sleep(lead).await;
                self.current.store(2 * index, Ordering::Relaxed);
                tokio::time::sleep(part).await;
            }
            order.reverse();
        }
    }

    /// How long the turns at the beginning are together.
    pub fn lap(&self, lead: Duration) -> Duration {
        COLD * lead * self.of.len() as u32
    }
}

/// A turn at the beginning is so many leads long.
const COLD: u32 = 8;

/// One client's connections.
#[derive(Debug)]
pub struct TurnsClient {
    turns: Arc<Turns>,
    clients: Vec<SharedClient>,
}

impl Workload for Arc<Turns> {
    type Client = TurnsClient;

    fn kinds(&self) -> Vec<String> {
        let ways = self.of.iter().map(|requests| requests.way.name().to_owned());
        ways.chain(["after a change".to_owned()]).collect()
    }

    async fn open(&self, index: usize) -> Result<TurnsClient> {
        let mut clients = Vec::new();
        for way in self.order() {
            clients.push(self.of[way].open(index).await?);
        }
        clients.rotate_right(self.round % self.of.len());
        Ok(TurnsClient { turns: Arc::clone(self), clients })
    }
}

impl Client for TurnsClient {
    async fn step(&mut self, recorder: &RefCell<Recorder>) -> Result<()> {
        let current = self.turns.current.load(Ordering::Relaxed);
        let (index, last) = (current / 2, self.clients.len());
        let client = &mut self.clients[index];
        client.count_as(if current.is_multiple_of(2) { index } else { last });
        client.step(recorder).await
    }
}
