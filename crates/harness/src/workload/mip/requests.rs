//! Closed-loop clients, each with one request at a time, with or without first siblings.
//!
//! | siblings | what a step does | latency |
//! |---|---|---|
//! | alone | begin, work, prepare, commit of instance 1 | all of it |
//! | each | begin, work, prepare of instance 1, which stays; begin, work, prepare, commit of instance 2 | of instance 2, the fail-over |
//! | found | begin, work, prepare of instance 1, which stays; show, and commit of what that finds prepared | of the fail-over |
//! | messages only | as *each*, but instance 2 has the messages of its work only, and instance 1 is committed | of instance 2 and that commit |
//! | ahead | as *each*, of instance 2 alone: instance 1 was prepared before the window, on connections that are closed | of instance 2 |
//!
//! The fail-over of *each* commits itself, as in the paper's experiment, and so ends its sibling;
//! that of *found* does what the application server of `cognate-client` does. What was committed is
//! noted and forgotten after the run.
//!
//! That of *messages only* is a bound and no fail-over: its statements are stand-ins, which touch
//! no table (`profile`). It sends what a second execution would send, and what it commits is the
//! first instance, as if the second one had adopted all that the first one has done.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio_postgres::Config;

use super::profile::{Draw, Profile, Request, Worker};
use super::site::{Attempt, Site, Way};
use crate::driver::{Client, Recorder, Workload};
use crate::error::{DatabaseContext, Error, Result};
use crate::peer::{self, System};
use crate::workload::bookstore::Isolation;
use crate::workload::bookstore::generator::Scale;
use crate::workload::turns::Countable;

/// Whether requests have a first sibling that is left prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Siblings {
    /// None.
    Alone,
    /// Each request executes twice.
    Each,
    /// Each request executes once, and a retry finds that.
    Found,
    /// Each request executes once, and a retry exchanges the same messages without executing.
    MessagesOnly,
    /// The first siblings were prepared ahead.
    Ahead,
}

/// A request whose first instance is prepared.
type Left = (Attempt, Request);

/// What a run of clients shares.
#[derive(Debug)]
pub struct Requests {
    /// The system's name, for messages.
    pub system: String,
    /// How to connect.
    pub config: Config,
    /// How requests become transactions.
    pub way: Way,
    /// What they do.
    pub profile: Profile,
    /// Whether they have first siblings.
    pub siblings: Siblings,
    /// The bookstore that is loaded.
    pub scale: Scale,
    /// Of every transaction.
    pub isolation: Isolation,
    /// Tells the requests of different runs apart.
    pub run: u64,
    /// How far the walk over the items has come, over all runs.
    pub walk: Arc<AtomicU64>,
    /// BEGIN is sent together with the first statement, as pgjdbc does; not where a BEGIN may be
    /// refused.
    pub begins_with_statement: bool,
    left: Vec<Mutex<VecDeque<Left>>>,
    done: Mutex<Vec<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Requests {
    /// Requests without first siblings.
    pub fn new(
        system: &System,
        way: Way,
        profile: Profile,
        scale: Scale,
        isolation: Isolation,
        (run, walk): (u64, &Arc<AtomicU64>),
    ) -> Requests {
        Requests {
            system: system.name.clone(),
            config: system.config().clone(),
            way,
            profile,
            siblings: Siblings::Alone,
            scale,
            isolation,
            run,
            walk: Arc::clone(walk),
            begins_with_statement: false,
            left: Vec::new(),
            done: Mutex::default(),
        }
    }

    async fn client(&self, index: usize) -> Result<RequestClient, tokio_postgres::Error> {
        let site = Site::open(&self.config, self.way, self.isolation).await?;
        let worker = Worker::open(&site.client, self.profile).await?;
        let stand_ins = match self.siblings {
            Siblings::MessagesOnly => Some(Worker::of_stand_ins(&site.client, self.profile).await?),
            _ => None,
        };
        let draw = Draw::new(self.scale, self.run, index as u64, &self.walk);
        let begins_with_statement = self.begins_with_statement;
        Ok(RequestClient { site, worker, stand_ins, draw, begins_with_statement, index, number: 0 })
    }

    /// Prepares first instances for `clients` clients, `each` of them for each, and closes the
    /// connections.
    pub async fn prepare_ahead(&mut self, clients: usize, each: usize) -> Result<()> {
        self.siblings = Siblings::Ahead;
        let one = async |index: usize| -> Result<VecDeque<Left>> {
            let mut client = self.client(index).await.at(&self.system, "connecting")?;
            let mut left = VecDeque::new();
            while left.len() < each {
                let (attempt, request) = client.draw(self.run);
                client.attempt(&attempt, &request).await.at(&self.system, "preparing ahead")?;
                left.push_back((attempt, request));
            }
            Ok(left)
        };
        let all = futures_util::future::try_join_all((0..clients).map(one)).await?;
        self.left = all.into_iter().map(Mutex::new).collect();
        Ok(())
    }

    /// Ends what was prepared ahead and not retried, and forgets what was committed: after the run,
    /// on connections of its own.
    pub async fn clean_up(&self) -> Result<usize> {
        const CONNECTIONS: usize = 16;
        let left: Vec<Left> = self.left.iter().flat_map(|left| std::mem::take(&mut *lock(left))).collect();
        if !left.is_empty() {
            let site =
                Site::open(&self.config, self.way, self.isolation).await.at(&self.system, "connecting")?;
            for (attempt, _) in &left {
                site.roll_back_prepared(attempt).await.at(&self.system, "ending what was prepared")?;
            }
        }
        let done = std::mem::take(&mut *lock(&self.done));
        if !self.way.is_mip() {
            return Ok(left.len());
        }
        let part = async |xids: &[String]| -> Result<(), tokio_postgres::Error> {
            let client = peer::connect(&self.config).await?;
            let forget = client.prepare("SELECT * FROM cognate_mip_forget($1)").await?;
            for xid in xids {
                client.query(&forget, &[xid]).await?;
            }
            Ok(())
        };
        let parts = done.chunks(done.len().div_ceil(CONNECTIONS).max(1)).map(part);
        futures_util::future::try_join_all(parts).await.at(&self.system, "forgetting families")?;
        Ok(left.len())
    }
}

/// One connection.
#[derive(Debug)]
pub struct RequestClient {
    site: Site,
    worker: Worker,
    /// For retries that exchange messages only.
    stand_ins: Option<Worker>,
    draw: Draw,
    begins_with_statement: bool,
    index: usize,
    number: u64,
}

impl RequestClient {
    fn draw(&mut self, run: u64) -> Left {
        self.number += 1;
        let xid = format!("bench{run}.{}/{}", self.index, self.number);
        (Attempt { xid, instance: 1 }, self.draw.request())
    }

    /// Begins, works and prepares.
    async fn attempt(&self, attempt: &Attempt, request: &Request) -> Result<(), tokio_postgres::Error> {
        self.attempt_of(&self.worker, attempt, request).await.map(drop)
    }

    /// The messages of an attempt at a request whose first instance is prepared. The answer is what
    /// an application server commits then, the smallest prepared instance: this one has no writes.
    async fn exchange(
        &self,
        attempt: &Attempt,
        request: &Request,
    ) -> Result<Option<Attempt>, tokio_postgres::Error> {
        let Some(stand_ins) = &self.stand_ins else { return Ok(None) };
        let instance = self.attempt_of(stand_ins, attempt, request).await?;
        Ok(Some(Attempt { xid: attempt.xid.clone(), instance }))
    }

    /// The answer is the smallest prepared instance.
    async fn attempt_of(
        &self,
        worker: &Worker,
        attempt: &Attempt,
        request: &Request,
    ) -> Result<i64, tokio_postgres::Error> {
        let (begin, work) = (self.site.begin(attempt), worker.execute(&self.site.client, request));
        let result = match self.begins_with_statement {
            true => futures_util::future::try_join(begin, work).await?.1,
            false => {
                begin.await?;
                work.await?
            }
        };
        self.site.prepare(attempt, worker.name(), &result).await
    }
}

/// A client with what it shares.
#[derive(Debug)]
pub struct SharedClient {
    client: RequestClient,
    shared: Arc<Requests>,
    /// What its requests count as.
    kind: usize,
}

impl Countable for SharedClient {
    fn count_as(&mut self, kind: usize) {
        self.kind = kind;
    }
}

impl SharedClient {
    /// Tries until an attempt is prepared, which is the answer; `None` once the run is over.
    async fn prepared(
        &self,
        mut attempt: Attempt,
        request: &Request,
        recorder: &RefCell<Recorder>,
    ) -> Result<Option<Attempt>> {
        loop {
            let Err(error) = self.client.attempt(&attempt, request).await else { return Ok(Some(attempt)) };
            self.again(&error, recorder).await?;
            if recorder.borrow().is_over() {
                return Ok(None);
            }
            attempt = attempt.next();
        }
    }

    /// After a failed attempt: an error if there is no point in another one.
    async fn again(&self, error: &tokio_postgres::Error, recorder: &RefCell<Recorder>) -> Result<()> {
        let Requests { system, profile, .. } = &*self.shared;
        if !recorder.borrow_mut().failed(self.kind, error) {
            let message = crate::error::describe(error);
            return Err(Error::Database {
                system: system.clone(),
                doing: profile.name().to_owned(),
                message,
            });
        }
        self.client.site.roll_back().await.at(system, "ROLLBACK")
    }

    async fn commit(&self, attempt: &Attempt) -> Result<(), tokio_postgres::Error> {
        self.client.site.commit(attempt).await
    }
}

impl Workload for Arc<Requests> {
    type Client = SharedClient;

    fn kinds(&self) -> Vec<String> {
        vec![self.profile.name().to_owned()]
    }

    async fn open(&self, index: usize) -> Result<SharedClient> {
        let client = self.client(index).await.at(&self.system, "connecting a client")?;
        Ok(SharedClient { client, shared: Arc::clone(self), kind: 0 })
    }
}

impl Client for SharedClient {
    async fn step(&mut self, recorder: &RefCell<Recorder>) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let (attempt, request) = match shared.siblings {
            Siblings::Ahead => lock(&shared.left[self.client.index]).pop_front().ok_or_else(|| {
                Error::Usage("the requests that were prepared ahead did not last: raise --ahead".to_owned())
            })?,
            _ => self.client.draw(shared.run),
        };
        let attempt = match shared.siblings {
            Siblings::Alone => attempt,
            Siblings::Ahead => attempt.next(),
            Siblings::Each | Siblings::Found | Siblings::MessagesOnly => {
                match self.prepared(attempt, &request, recorder).await? {
                    Some(first) => first.next(),
                    None => return Ok(()),
                }
            }
        };
        let (first, since) = (attempt.clone(), Instant::now());
        let mut found = match shared.siblings {
            Siblings::Found => self.client.site.find(&attempt.xid).await.at(&shared.system, "looking")?,
            // It touches nothing, so nobody can be in its way.
            Siblings::MessagesOnly => {
                self.client.exchange(&attempt, &request).await.at(&shared.system, "exchanging messages")?
            }
            _ => None,
        };
        let mut next = attempt;
        loop {
            let prepared = match found.take() {
                Some(found) => Some(found),
                None => self.prepared(next, &request, recorder).await?,
            };
            let Some(attempt) = prepared else {
                if shared.siblings != Siblings::Alone {
                    let first = Attempt { instance: first.instance - 1, ..first };
                    self.client.site.roll_back_prepared(&first).await.at(&shared.system, "giving up")?;
                }
                return Ok(());
            };
            let Err(error) = self.commit(&attempt).await else {
                recorder.borrow_mut().committed(self.kind, since);
                lock(&shared.done).push(attempt.xid);
                return Ok(());
            };
            self.again(&error, recorder).await?;
            next = if attempt.instance < first.instance { first.clone() } else { attempt.next() };
        }
    }
}
