//! Does what a [`Run`] wants done, and tells it what came of it.
//!
//! Each step at a site is a task, so that sites do not wait for each other; there is at most one at
//! each site. A COMMIT for a site at which a step is under way waits for its end, and the reply to
//! that step is not handed over any more: it would answer a question that nobody asks now.
//!
//! The reply to the client leaves as soon as there is one; what is then still open at the sites is
//! rolled back by a task of its own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::steps::{self, Done, Held, Standing, Step};
use super::{Branches, Logic, Options};
use crate::etransaction::{Effect, Event, Reply, Run, SiteReply};
use crate::pool::Pool;
use crate::site::{Job, Site};

/// What the run has at a site.
struct Slot<S: Site> {
    held: Option<Held<S>>,
    is_busy: bool,
    /// A step that waits for the end of the one under way.
    next: Option<Step>,
    /// COMMITs sent so far.
    commits: u32,
    /// What PREPARE was sent with.
    stored: Option<Arc<str>>,
}

/// The driver of one run.
pub(super) struct Driver<S: Site> {
    pools: Arc<[Arc<Pool<S>>]>,
    options: Options,
    job: Arc<Job>,
    run: Run,
    slots: Vec<Slot<S>>,
    tasks: JoinSet<Done<S>>,
    /// When the COMMITs have taken long enough.
    deadline: Option<Instant>,
    /// Given back when nothing is left of the run.
    room: OwnedSemaphorePermit,
}

impl<S: Site> Driver<S> {
    pub(super) fn new(
        pools: Arc<[Arc<Pool<S>>]>,
        options: Options,
        job: Arc<Job>,
        run: Run,
        room: OwnedSemaphorePermit,
    ) -> Driver<S> {
        let slot = |_| Slot { held: None, is_busy: false, next: None, commits: 0, stored: None };
        let slots = pools.iter().map(slot).collect();
        Driver { pools, options, job, run, slots, tasks: JoinSet::new(), deadline: None, room }
    }

    /// To the reply.
    pub(super) async fn drive<L: Logic<S::Connection>>(mut self, first: Vec<Effect>, logic: &L) -> Reply {
        let mut effects = VecDeque::from(first);
        loop {
            while let Some(effect) = effects.pop_front() {
                match effect {
                    Effect::Look(site) => self.look(site),
                    Effect::Begin(site) => self.begin(site),
                    Effect::Execute => {
                        let event = self.execute(logic).await;
                        effects.extend(self.run.on(event));
                    }
                    Effect::Prepare(site, stored) => {
                        if let Some(event) = self.prepare(site, stored) {
                            effects.extend(self.run.on(event));
                        }
                    }
                    Effect::Commit(site, winner) => {
                        let bound = self.options.patience.commit_all;
                        self.deadline.get_or_insert_with(|| Instant::now() + bound);
                        self.outside(site, Step::Commit(winner));
                    }
                    Effect::Refuse(site, upto) => {
                        let stored = self.slots[site].stored.clone();
                        self.outside(site, Step::Refuse(upto, stored));
                    }
                    Effect::Withdraw(site, instances) => self.outside(site, Step::Withdraw(instances)),
                    // All at once, at the reply that follows.
                    Effect::Release(_) => {}
                    Effect::Reply(reply) => {
                        self.release();
                        return reply;
                    }
                }
            }
            let event = self.next().await;
            effects.extend(event.map(|event| self.run.on(event)).unwrap_or_default());
        }
    }

    /// Waits for the end of a step.
    async fn next(&mut self) -> Option<Event> {
        let joined = match self.deadline {
            Some(deadline) => timeout_at(deadline, self.tasks.join_next()).await,
            None => Ok(self.tasks.join_next().await),
        };
        let done = match joined {
            Ok(Some(Ok(done))) => done,
            Ok(Some(Err(error))) => return Some(Event::Expired(format!("a step failed: {error}").into())),
            // Nothing is under way: cannot be, and must not wait for ever.
            Ok(None) => return Some(Event::Expired("nothing is left to wait for".into())),
            Err(_) => return Some(Event::Expired(self.undecided())),
        };
        let slot = &mut self.slots[done.site];
        (slot.is_busy, slot.held) = (false, done.held);
        match slot.next.take() {
            Some(next) => {
                self.outside(done.site, next);
                None
            }
            None => Some(Event::Site(done.site, done.reply)),
        }
    }

    fn undecided(&self) -> Arc<str> {
        let winner = self.run.committing().unwrap_or(self.job.instance);
        let bound = self.options.patience.commit_all;
        format!("instance {winner} is the winner, but not all sites have acknowledged it within {bound:?}")
            .into()
    }

    fn spawn(
        &mut self,
        site: usize,
        step: impl Future<Output = (Option<Held<S>>, SiteReply)> + Send + 'static,
    ) {
        self.slots[site].is_busy = true;
        self.tasks.spawn(async move {
            let (held, reply) = step.await;
            Done { site, held, reply }
        });
    }

    fn look(&mut self, site: usize) {
        let (pool, job) = (Arc::clone(&self.pools[site]), Arc::clone(&self.job));
        self.spawn(site, steps::look(pool, job, self.options.patience));
    }

    fn begin(&mut self, site: usize) {
        let looked = self.slots[site].held.take();
        let (pool, job) = (Arc::clone(&self.pools[site]), Arc::clone(&self.job));
        self.spawn(site, steps::begin(pool, looked, job, self.options.patience));
    }

    /// Runs the logic. After a failure the connections are rolled back, and after an end that is
    /// none they are closed.
    async fn execute<L: Logic<S::Connection>>(&mut self, logic: &L) -> Event {
        let connections: Vec<_> =
            self.slots.iter().filter_map(|slot| Some(slot.held.as_ref()?.0.share())).collect();
        if connections.len() < self.slots.len() {
            return Event::Failed("a connection is missing".into());
        }
        let branches = Branches { connections, job: Arc::clone(&self.job) };
        let bound = self.options.patience.logic;
        let outcome = timeout(bound, logic.run(self.job.request.clone(), branches)).await;
        let is_kept =
            self.slots.iter().any(|slot| slot.held.as_ref().is_some_and(|(lease, _)| lease.is_shared()));
        let unfit = match &outcome {
            Err(_) => Some(format!("the logic did not end within {bound:?}")),
            Ok(_) if is_kept => Some("the logic has kept a branch beyond its end".to_owned()),
            Ok(_) => None,
        };
        if let Some(unfit) = unfit {
            self.slots.iter_mut().for_each(|slot| slot.held = None);
            return Event::Failed(unfit.into());
        }
        match outcome {
            Ok(Ok(result)) => Event::Executed(result.into()),
            Ok(Err(failure)) => Event::Failed(failure.0.into()),
            Err(_) => Event::Failed("the logic did not end".into()),
        }
    }

    fn prepare(&mut self, site: usize, stored: Arc<str>) -> Option<Event> {
        let Some((lease, _)) = self.slots[site].held.take() else {
            return Some(Event::Site(site, SiteReply::Unreachable));
        };
        self.slots[site].stored = Some(Arc::clone(&stored));
        self.spawn(site, steps::prepare(lease, Arc::clone(&self.job), stored, self.options.patience));
        None
    }

    /// Sends a step that is outside of transactions, once nothing else is under way at the site.
    fn outside(&mut self, site: usize, step: Step) {
        let slot = &mut self.slots[site];
        if slot.is_busy {
            slot.next = Some(step);
            return;
        }
        let mut pause = Duration::ZERO;
        if matches!(step, Step::Commit(_)) {
            slot.commits += 1;
            pause = self.options.backoff.pause(slot.commits, rand::random());
        }
        let held = slot.held.take();
        let (pool, job) = (Arc::clone(&self.pools[site]), Arc::clone(&self.job));
        self.spawn(site, steps::outside(pool, held, job, step, pause, self.options.patience));
    }

    /// Lets go of everything: what is idle goes back to its pool, what is open is rolled back
    /// first, also what is under way now once it has ended.
    fn release(self) {
        let Driver { slots, mut tasks, options, room, .. } = self;
        let patience = options.patience;
        let mut open = Vec::new();
        for (lease, standing) in slots.into_iter().filter_map(|slot| slot.held) {
            match standing {
                Standing::Idle => lease.give_back(),
                Standing::Open => open.push(lease),
            }
        }
        if open.is_empty() && tasks.is_empty() {
            return;
        }
        tokio::spawn(async move {
            let mut endings = JoinSet::new();
            let end = |lease| async move {
                if let Some(lease) = steps::roll_back::<S>(lease, patience).await {
                    lease.give_back();
                }
            };
            for lease in open {
                endings.spawn(end(lease));
            }
            while let Some(done) = tasks.join_next().await {
                match done.ok().and_then(|done| done.held) {
                    Some((lease, Standing::Idle)) => lease.give_back(),
                    Some((lease, Standing::Open)) => drop(endings.spawn(end(lease))),
                    None => {}
                }
            }
            while endings.join_next().await.is_some() {}
            drop(room);
        });
    }
}
