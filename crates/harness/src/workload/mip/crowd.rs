//! A crowd that buys ten hot items, and one server that dies between PREPARE and COMMIT.
//!
//! ```text
//! 0 s  warm-up   1 s            3 s  the first client's server dies, its purchase prepared
//!                │ 2 s: before  │ 100 ms: the client waits, then retries on another connection
//!                                              │ 5 s   third second   6 s
//! ```
//!
//! The retry is a sibling, instance 2, and commits what an application server commits: the smallest
//! prepared instance. Where there are no siblings (PostgreSQL) it is another prepared transaction,
//! which waits for the row of the first; so does whoever else wants that item. READ COMMITTED, so
//! that the crowd does not fail on first updater wins, on which it would wait otherwise.

use std::cell::RefCell;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio_postgres::Config;

use super::profile::{Draw, Profile, Worker};
use super::site::{Attempt, Site, Way};
use crate::driver::{Client, Recorder, Workload};
use crate::error::{DatabaseContext, Result};
use crate::peer::System;
use crate::workload::bookstore::Isolation;
use crate::workload::bookstore::generator::Scale;

/// Before anything counts.
pub const WARMUP: Duration = Duration::from_secs(1);
/// From then until the server dies.
pub const BEFORE: Duration = Duration::from_secs(2);
/// From then until the run is over.
pub const AFTER: Duration = Duration::from_millis(3200);
/// The client's patience.
const TIMEOUT: Duration = Duration::from_millis(100);

/// What happened, and when.
#[derive(Debug, Default)]
pub struct Events {
    /// Each purchase that was answered.
    pub answered: Vec<Instant>,
    /// The request whose server died, and when; or did not, where nobody dies.
    pub died: Option<(Attempt, Instant)>,
    /// When its retry was answered.
    pub retried: Option<Instant>,
}

impl Events {
    /// Answers a second: in the two seconds before the death, and in the first, second and third
    /// second after it.
    pub fn rates(&self) -> Option<(f64, [f64; 3])> {
        let (_, died) = self.died.as_ref()?;
        let within = |from: Instant, length: Duration| {
            let count = self.answered.iter().filter(|at| **at >= from && **at < from + length).count();
            count as f64 / length.as_secs_f64()
        };
        let second = Duration::from_secs(1);
        let after = [0, 1, 2].map(|n| within(*died + n * second, second));
        Some((within(died.checked_sub(BEFORE)?, BEFORE), after))
    }
}

/// The crowd on one system.
#[derive(Debug)]
pub struct Crowd {
    system: String,
    config: Config,
    way: Way,
    dies: bool,
    scale: Scale,
    run: u64,
    began: Mutex<Option<Instant>>,
    events: Mutex<Events>,
}

impl Crowd {
    /// A run, in which a server dies or, to compare, does not.
    pub fn new(system: &System, (way, dies): (Way, bool), scale: Scale, run: u64) -> Crowd {
        let (system, config) = (system.name.clone(), system.config().clone());
        Crowd { system, config, way, dies, scale, run, began: Mutex::default(), events: Mutex::default() }
    }

    /// Looks at, or changes, what happened.
    pub fn events<T>(&self, look: impl FnOnce(&mut Events) -> T) -> T {
        look(&mut self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn since_began(&self) -> Duration {
        let mut began = self.began.lock().unwrap_or_else(PoisonError::into_inner);
        began.get_or_insert_with(Instant::now).elapsed()
    }

    async fn open_site(&self) -> Result<(Site, Worker), tokio_postgres::Error> {
        let site = Site::open(&self.config, self.way, Isolation::ReadCommitted).await?;
        let worker = Worker::open(&site.client, Profile::Purchase).await?;
        Ok((site, worker))
    }
}

/// One buyer.
#[derive(Debug)]
pub struct Buyer {
    shared: Arc<Crowd>,
    site: Site,
    worker: Worker,
    /// The connection of another server; taken once this one has died.
    spare: Option<(Site, Worker)>,
    draw: Draw,
    index: usize,
    number: u64,
}

impl Workload for Arc<Crowd> {
    type Client = Buyer;

    fn kinds(&self) -> Vec<String> {
        vec![Profile::Purchase.name().to_owned()]
    }

    async fn open(&self, index: usize) -> Result<Buyer> {
        let (site, worker) = self.open_site().await.at(&self.system, "connecting a buyer")?;
        let spare = match index {
            0 => Some(self.open_site().await.at(&self.system, "connecting a buyer")?),
            _ => None,
        };
        let draw = Draw::new(self.scale, self.run, index as u64, &Arc::new(AtomicU64::new(0)));
        Ok(Buyer { shared: Arc::clone(self), site, worker, spare, draw, index, number: 0 })
    }
}

impl Buyer {
    async fn buy(&mut self, mut attempt: Attempt) -> Result<(), tokio_postgres::Error> {
        let request = self.draw.request();
        let mut chosen = self.prepare(&attempt, &request).await?;
        if self.spare.is_some() && self.shared.since_began() >= WARMUP + BEFORE {
            let (died, spare) = ((attempt.clone(), Instant::now()), self.spare.take());
            self.shared.events(|events| events.died = Some(died));
            if !self.shared.dies {
                attempt.instance = chosen;
                return self.site.commit(&attempt).await;
            }
            if let Some((site, worker)) = spare {
                // The old connection is dropped: the server is dead, and nobody will decide what it
                // prepared.
                (self.site, self.worker) = (site, worker);
            }
            tokio::time::sleep(TIMEOUT).await;
            attempt = attempt.next();
            chosen = self.prepare(&attempt, &request).await?;
            let chosen = Attempt { instance: chosen, ..attempt.clone() };
            self.site.commit(&chosen).await?;
            self.shared.events(|events| events.retried = Some(Instant::now()));
            return Ok(());
        }
        attempt.instance = chosen;
        self.site.commit(&attempt).await
    }

    async fn prepare(
        &self,
        attempt: &Attempt,
        request: &super::profile::Request,
    ) -> Result<i64, tokio_postgres::Error> {
        self.site.begin(attempt).await?;
        let result = self.worker.execute(&self.site.client, request).await?;
        self.site.prepare(attempt, self.worker.name(), &result).await
    }
}

impl Client for Buyer {
    async fn step(&mut self, recorder: &RefCell<Recorder>) -> Result<()> {
        self.shared.since_began();
        self.number += 1;
        let xid = format!("crowd{}.{}/{}", self.shared.run, self.index, self.number);
        let since = Instant::now();
        let Err(error) = self.buy(Attempt { xid, instance: 1 }).await else {
            self.shared.events(|events| events.answered.push(Instant::now()));
            recorder.borrow_mut().committed(0, since);
            return Ok(());
        };
        let retry = recorder.borrow_mut().failed(0, &error);
        if !retry {
            return Err(error).at(&self.shared.system, "buying");
        }
        self.site.roll_back().await.at(&self.shared.system, "ROLLBACK")
    }
}
