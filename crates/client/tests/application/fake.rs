//! A site in the process: the engine's own families of siblings behind a table of lines, with
//! faults on order.
//!
//! It watches its callers: a BEGIN or COMMIT inside a transaction, or a step over a connection that
//! is lost, is a violation, and fails the test.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use cognate_client::application::Failure;
use cognate_client::etransaction::{Outcome, Refused, SiteReply, Table};
use cognate_client::site::{Connection, Job, Look, Site, Trouble};
use cognate_engine::sibling::{Answer, Effects, Family, Instance, Limits, Refusal, State};

/// Where a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    Connect,
    Begin,
    Logic,
    Prepare,
    Refuse,
    Withdraw,
    Commit,
    Rollback,
    Look,
    Forget,
}

/// What happens there, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection is lost before anything is done.
    LoseRequest,
    /// Done, and the connection is lost.
    LoseReply,
    /// The site waits before it does it.
    Slow(Duration),
    /// Done, and the reply is late.
    LateReply(Duration),
    /// The site stops and starts again before it does it: all connections are lost.
    Crash,
    /// It refuses.
    Refuse(Refused),
}

type Key = (String, i64);

#[derive(Debug, Default)]
pub(crate) struct Database {
    families: BTreeMap<String, Family>,
    forgotten: BTreeSet<String>,
    owners: u64,
    epoch: u64,
    written: BTreeMap<u64, Vec<String>>,
    prepared: BTreeMap<Key, Vec<String>>,
    /// Committed lines, in order.
    pub(crate) lines: Vec<String>,
    faults: VecDeque<(Point, Fault)>,
    pub(crate) violations: Vec<String>,
    pub(crate) connects: u32,
    pub(crate) open: u32,
    /// Refuses connections.
    pub(crate) is_down: bool,
}

impl Database {
    pub(crate) fn order(&mut self, point: Point, fault: Fault) {
        self.faults.push_back((point, fault));
    }

    /// No more faults.
    pub(crate) fn heal(&mut self) {
        self.faults.clear();
        self.is_down = false;
    }

    /// XIDs that are prepared and not decided.
    pub(crate) fn in_doubt(&self) -> BTreeSet<String> {
        self.prepared.keys().map(|(xid, _)| xid.clone()).collect()
    }

    pub(crate) fn crash(&mut self) {
        self.epoch += 1;
        self.written.clear();
        self.families.values_mut().for_each(Family::crash);
    }

    fn fault(&mut self, point: Point) -> Option<Fault> {
        let place = self.faults.iter().position(|(at, _)| *at == point)?;
        self.faults.remove(place).map(|(_, fault)| fault)
    }

    fn family(&mut self, xid: &str) -> &mut Family {
        self.families.entry(xid.to_owned()).or_default()
    }

    /// Transactions that are neither prepared nor ended.
    pub(crate) fn active(&self) -> usize {
        self.written.len()
    }

    pub(crate) fn undecided(&self) -> usize {
        self.prepared.len()
    }

    fn apply(&mut self, xid: &str, effects: &Effects) {
        for (_, owner) in &effects.abort_active {
            self.written.remove(owner);
        }
        for instance in &effects.abort_prepared {
            self.prepared.remove(&(xid.to_owned(), instance.get()));
        }
        if let Some(instance) = effects.commit
            && let Some(lines) = self.prepared.remove(&(xid.to_owned(), instance.get()))
        {
            self.lines.extend(lines);
        }
    }
}

/// The site; clones are the same one.
#[derive(Debug, Clone, Default)]
pub(crate) struct FakeSite {
    database: Arc<Mutex<Database>>,
    /// It has no siblings, as plain PostgreSQL.
    is_plain: bool,
}

impl FakeSite {
    pub(crate) fn plain() -> FakeSite {
        FakeSite { is_plain: true, ..FakeSite::default() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Database> {
        self.database.lock().expect("no test panics with the lock")
    }
}

impl Site for FakeSite {
    type Connection = FakeConnection;

    async fn connect(&self) -> Result<FakeConnection, Trouble> {
        let fault = self.lock().fault(Point::Connect);
        if let Some(Fault::Slow(pause) | Fault::LateReply(pause)) = fault {
            tokio::time::sleep(pause).await;
        }
        let mut database = self.lock();
        if database.is_down || fault == Some(Fault::LoseRequest) {
            return Err(Trouble("connection refused".into()));
        }
        database.connects += 1;
        database.open += 1;
        database.owners += 1;
        let (owner, epoch) = (database.owners, database.epoch);
        drop(database);
        let (transaction, is_lost) = (Mutex::new(None), AtomicBool::new(false));
        Ok(FakeConnection { site: self.clone(), owner, epoch, transaction, is_lost })
    }
}

#[derive(Debug)]
pub(crate) struct FakeConnection {
    site: FakeSite,
    owner: u64,
    epoch: u64,
    transaction: Mutex<Option<Key>>,
    is_lost: AtomicBool,
}

fn instance(number: i64) -> Instance {
    Instance::new(number).expect("positive")
}

/// As the site's SQLSTATEs say it; `highest` is the family's.
fn refused(refusal: Refusal, highest: i64) -> SiteReply {
    SiteReply::Refused(match refusal {
        Refusal::InstanceAborted { .. } | Refusal::InstanceInUse { .. } => Refused::Taken { highest },
        Refusal::RequestDiffers => Refused::RequestDiffers,
        Refusal::RequestTooLarge { .. } => Refused::RequestTooLarge(refusal.to_string().into()),
        Refusal::Forgotten => Refused::Forgotten,
        other => Refused::Failed(other.to_string().into()),
    })
}

impl FakeConnection {
    fn is_dead(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed) || self.site.lock().epoch != self.epoch
    }

    fn lose(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
        self.abandon();
    }

    fn abandon(&self) {
        let Some((xid, number)) = self.transaction.lock().expect("no panic").take() else { return };
        let mut database = self.site.lock();
        database.written.remove(&self.owner);
        if database.epoch == self.epoch {
            database.family(&xid).abandon(instance(number), self.owner);
        }
    }

    /// A step, with the fault that was ordered for it. `None`: the connection is lost.
    async fn step<T>(&self, point: Point, work: impl FnOnce() -> T) -> Result<T, Option<Refused>> {
        let fault = self.site.lock().fault(point);
        match fault {
            Some(Fault::LoseRequest) => self.lose(),
            Some(Fault::Crash) => self.site.lock().crash(),
            Some(Fault::Slow(pause)) => tokio::time::sleep(pause).await,
            Some(Fault::Refuse(refused)) => {
                if point == Point::Prepare {
                    self.abandon();
                }
                return Err(Some(refused));
            }
            _ => {}
        }
        if self.is_dead() {
            self.lose();
            return Err(None);
        }
        let done = work();
        match fault {
            Some(Fault::LoseReply) => {
                self.lose();
                return Err(None);
            }
            Some(Fault::LateReply(pause)) => tokio::time::sleep(pause).await,
            _ => {}
        }
        Ok(done)
    }

    fn watch(&self, what: &str) {
        if self.transaction.lock().expect("no panic").is_some() {
            self.site.lock().violations.push(format!("{what} inside a transaction"));
        }
    }

    /// What the logic does at a site.
    pub(crate) async fn write(&self, line: &str) -> Result<(), Failure> {
        let write = || {
            let mut database = self.site.lock();
            match database.written.get_mut(&self.owner) {
                Some(lines) => {
                    lines.push(line.to_owned());
                    Ok(())
                }
                None => Err(Failure("the instance was aborted".to_owned())),
            }
        };
        self.step(Point::Logic, write).await.unwrap_or_else(|_| Err(Failure("connection lost".to_owned())))
    }

    fn begin_now(&self, job: &Job) -> SiteReply {
        self.watch("BEGIN");
        let mut database = self.site.lock();
        if database.forgotten.contains(&*job.xid) {
            return SiteReply::Refused(Refused::Forgotten);
        }
        let is_plain = self.site.is_plain;
        let family = database.family(&job.xid);
        let is_occupied = family.prepared().next().is_some()
            || family.mipt().entries.iter().any(|e| e.state == State::Active);
        if is_plain && family.outcome().is_none() && is_occupied {
            return SiteReply::Refused(Refused::InDoubt("occupied".into()));
        }
        match family.begin(instance(job.instance), self.owner) {
            Ok(Effects { answer: Answer::Decided(outcome), .. }) => decided(outcome),
            Ok(_) => {
                database.written.insert(self.owner, Vec::new());
                *self.transaction.lock().expect("no panic") = Some((job.xid.to_string(), job.instance));
                SiteReply::Begun
            }
            Err(refusal) => refused(refusal, family.highest()),
        }
    }

    fn prepare_now(&self, job: &Job, stored: &str) -> SiteReply {
        let key = self.transaction.lock().expect("no panic").take();
        let mut database = self.site.lock();
        if key != Some((job.xid.to_string(), job.instance)) {
            database.violations.push(format!("PREPARE of {job:?} inside {key:?}"));
        }
        let written = database.written.remove(&self.owner).unwrap_or_default();
        if database.forgotten.contains(&*job.xid) {
            return SiteReply::Refused(Refused::Forgotten);
        }
        let family = database.family(&job.xid);
        let limits = Limits::default();
        let number = instance(job.instance);
        let outcome = family.prepare(number, self.owner, &job.request, &stored.into(), limits);
        match outcome {
            Ok(Effects { answer: Answer::Decided(outcome), .. }) => decided(outcome),
            Ok(effects) => {
                let table = table(family);
                if effects.answer == Answer::Prepared {
                    database.prepared.insert((job.xid.to_string(), job.instance), written);
                }
                database.apply(&job.xid, &effects);
                SiteReply::Table(table)
            }
            Err(refusal) => {
                family.abandon(number, self.owner);
                family.settle();
                refused(refusal, family.highest())
            }
        }
    }

    fn commit_now(&self, xid: &str, winner: i64) -> SiteReply {
        self.watch("COMMIT");
        let mut database = self.site.lock();
        if database.forgotten.contains(xid) {
            return SiteReply::Refused(Refused::Forgotten);
        }
        match database.family(xid).commit(instance(winner)) {
            Ok(effects) => {
                database.apply(xid, &effects);
                SiteReply::Committed
            }
            Err(_) => SiteReply::Refused(Refused::Taken { highest: 0 }),
        }
    }

    fn show_now(&self, xid: &str) -> SiteReply {
        self.watch("SHOW");
        let mut database = self.site.lock();
        if database.forgotten.contains(xid) {
            return SiteReply::Refused(Refused::Forgotten);
        }
        let family = database.family(xid);
        match family.outcome() {
            Some(outcome) => decided(outcome),
            None if self.site.is_plain => SiteReply::Table(Table::default()),
            None => SiteReply::Table(table(family)),
        }
    }

    /// A site without siblings tells of this execution only.
    fn refuse_now(&self, job: &Job, upto: i64, stored: Option<&str>) -> SiteReply {
        self.watch("REFUSE");
        let mut database = self.site.lock();
        if database.forgotten.contains(&*job.xid) {
            return SiteReply::Refused(Refused::Forgotten);
        }
        let is_plain = self.site.is_plain;
        let family = database.family(&job.xid);
        if is_plain {
            let is_it = |stored: &&str| family.prepared().any(|(_, result)| &**result == *stored);
            return SiteReply::Table(match stored.filter(|stored| !is_it(stored)) {
                Some(stored) => Table { never: Some(stored.into()), ..Table::default() },
                None => Table::default(),
            });
        }
        let effects = family.refuse(instance(upto));
        if let Some(outcome) = family.outcome() {
            return decided(outcome);
        }
        let table = Table { floor: upto + 1, ..table(family) };
        database.apply(&job.xid, &effects);
        SiteReply::Table(table)
    }

    fn withdraw_now(&self, xid: &str, number: i64, stored: &str) -> SiteReply {
        self.watch("ROLLBACK");
        let mut database = self.site.lock();
        let family = database.family(xid);
        let is_it = family.prepared().any(|(i, result)| i.get() == number && &**result == stored);
        if is_it && let Ok(effects) = family.rollback(instance(number)) {
            database.apply(xid, &effects);
        }
        SiteReply::Withdrawn
    }

    fn look_now(&self, xid: &str) -> Look {
        let mut database = self.site.lock();
        if database.forgotten.contains(xid) {
            return Look::Forgotten;
        }
        let family = database.family(xid);
        let token = |stored: &str| stored.split(' ').next().unwrap_or_default().to_owned();
        match family.outcome() {
            Some(outcome) => Look::Committed(outcome.winner.get()),
            None if family.is_blank() => Look::Unknown,
            None => Look::Undecided(family.prepared().map(|(i, r)| (i.get(), token(r))).collect()),
        }
    }
}

/// What the family's table tells; what it tells as aborted is durable from now on.
fn table(family: &mut Family) -> Table {
    family.settle();
    let prepared: BTreeMap<i64, _> = family.prepared().map(|(i, result)| (i.get(), result.clone())).collect();
    let mipt = family.mipt();
    let is_aborted = |entry: &&cognate_engine::sibling::Entry| entry.state == State::Aborted;
    let aborted = mipt.entries.iter().filter(is_aborted).map(|entry| entry.instance.get()).collect();
    let floor = prepared.keys().last().copied().unwrap_or(0);
    Table { prepared, aborted, floor, request: mipt.request, highest: family.highest(), never: None }
}

fn decided(outcome: cognate_engine::sibling::Outcome) -> SiteReply {
    let (winner, result, request) = (outcome.winner.get(), outcome.result, outcome.request);
    SiteReply::Decided(Outcome { winner, result, request })
}

fn unwrapped(reply: Result<SiteReply, Option<Refused>>) -> SiteReply {
    reply.unwrap_or_else(|refused| refused.map_or(SiteReply::Unreachable, SiteReply::Refused))
}

fn lost<T>(_: T) -> Trouble {
    Trouble("connection lost".into())
}

impl Connection for FakeConnection {
    fn is_closed(&self) -> bool {
        // As in life, a loss is noticed when the connection is used.
        self.is_lost.load(Ordering::Relaxed)
    }

    fn describe(&self) -> String {
        "a fake".to_owned()
    }

    async fn show(&self, xid: &str) -> SiteReply {
        unwrapped(self.step(Point::Look, || self.show_now(xid)).await)
    }

    async fn begin(&self, job: &Job) -> SiteReply {
        unwrapped(self.step(Point::Begin, || self.begin_now(job)).await)
    }

    async fn prepare(&self, job: &Job, stored: &str) -> SiteReply {
        unwrapped(self.step(Point::Prepare, || self.prepare_now(job, stored)).await)
    }

    async fn refuse(&self, job: &Job, upto: i64, stored: Option<&str>) -> SiteReply {
        unwrapped(self.step(Point::Refuse, || self.refuse_now(job, upto, stored)).await)
    }

    async fn withdraw(&self, xid: &str, instance: i64, stored: &str) -> SiteReply {
        unwrapped(self.step(Point::Withdraw, || self.withdraw_now(xid, instance, stored)).await)
    }

    async fn commit(&self, xid: &str, winner: i64) -> SiteReply {
        unwrapped(self.step(Point::Commit, || self.commit_now(xid, winner)).await)
    }

    async fn rollback(&self) -> bool {
        self.step(Point::Rollback, || self.abandon()).await.is_ok()
    }

    async fn look(&self, xid: &str) -> Result<Look, Trouble> {
        self.step(Point::Look, || self.look_now(xid)).await.map_err(lost)
    }

    async fn forget(&self, xid: &str) -> Result<(), Trouble> {
        let forget = || {
            let mut database = self.site.lock();
            if database.forgotten.contains(xid) {
                return Ok(());
            }
            database.family(xid).forget().map_err(|why| Trouble(why.to_string().into()))?;
            database.families.remove(xid);
            database.forgotten.insert(xid.to_owned());
            Ok(())
        };
        self.step(Point::Forget, forget).await.map_err(lost)?
    }
}

impl Drop for FakeConnection {
    fn drop(&mut self) {
        self.abandon();
        self.site.lock().open -= 1;
    }
}
