//! Closed-loop clients: each sends its next request when the last one is answered, for a fixed
//! time.
//!
//! The clients are spread over a few threads, each with a single-threaded runtime of its own, so
//! that the client program takes as little of the machine from the server as it can: no work
//! stealing, no wake-ups across threads. All clients connect and prepare first; then one window
//! opens for everybody:
//!
//! ```text
//!   connect, prepare │ warm-up │ measured │
//!                    open     from       until     (a request that ends after `until` is not counted as measured)
//! ```
//!
//! Latency is what a user waits: from the first attempt to the commit, aborted attempts included.
//! The abort rate is aborted attempts over all attempts. Only serialization failures (40001) and
//! deadlocks (40P01) are aborts; every other error is counted by its SQLSTATE.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;

use crate::checker::history::Abort;
use crate::error::{Error, Result, describe, is_retryable, sqlstate};
use crate::progress;

/// How long clients may take to connect, and how long after the window's end their last request may
/// take.
const GRACE: Duration = Duration::from_secs(120);

/// What is run: how many clients, how long.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The label of the progress bar.
    pub label: String,
    /// Connections, each with one request in flight.
    pub clients: usize,
    /// Threads that the clients are spread over.
    pub threads: usize,
    /// Time before the measured window, so that caches fill and plans are made.
    pub warmup: Duration,
    /// The measured window.
    pub measured: Duration,
}

/// A workload: knows its kinds of request and how to open a client.
pub trait Workload: Send + Sync + 'static {
    /// One connected client; lives on one thread.
    type Client: Client + 'static;

    /// The names of the kinds of request; a kind is its index here.
    fn kinds(&self) -> Vec<String>;

    /// Opens the client with this index (0-based, unique within a run).
    fn open(&self, index: usize) -> impl Future<Output = Result<Self::Client>>;

    /// Learns the window, once all clients are open and before any of them begins.
    fn begin(&self, _window: Window) {}
}

/// One closed-loop client.
pub trait Client {
    /// Runs one request to its end, retries included, and records each attempt. An error ends this
    /// client.
    fn step(&mut self, recorder: &RefCell<Recorder>) -> impl Future<Output = Result<()>>;
}

/// The moments of one run.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// When the measured part begins.
    pub from: Instant,
    /// When it ends; no request begins after it.
    pub until: Instant,
}

/// What was counted for one kind of request.
#[derive(Clone, Debug)]
pub struct Counts {
    /// Requests that committed within the measured window.
    pub committed: u64,
    /// Attempts within the window that ended in 40001 or 40P01.
    pub aborted: u64,
    /// The same by reason.
    pub reasons: BTreeMap<Abort, u64>,
    /// Other errors within the window, by SQLSTATE.
    pub errors: BTreeMap<String, u64>,
    /// Requests that committed at any time, the warm-up included.
    pub acknowledged: u64,
    /// Errors at any time after which the client cannot know whether its transaction committed.
    pub unknown: u64,
    /// Microseconds from the first attempt to the commit, of the committed requests of the window.
    pub latency: Histogram<u64>,
}

impl Counts {
    /// Nothing counted yet.
    pub fn new() -> Counts {
        // Three digits; the histogram grows with the values, and growing cannot fail for times
        // below centuries.
        let latency = Histogram::new(3).unwrap_or_else(|_| unreachable!("three digits are allowed"));
        Counts {
            committed: 0,
            aborted: 0,
            reasons: BTreeMap::new(),
            errors: BTreeMap::new(),
            acknowledged: 0,
            unknown: 0,
            latency,
        }
    }

    /// Adds another count, of another client or another round.
    pub fn add(&mut self, other: &Counts) {
        self.committed += other.committed;
        self.aborted += other.aborted;
        self.acknowledged += other.acknowledged;
        self.unknown += other.unknown;
        for (reason, n) in &other.reasons {
            *self.reasons.entry(*reason).or_default() += n;
        }
        for (state, n) in &other.errors {
            *self.errors.entry(state.clone()).or_default() += n;
        }
        let _ = self.latency.add(&other.latency);
    }

    /// Errors of all states.
    pub fn errors_total(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Aborted attempts in percent of all attempts.
    pub fn aborted_pct(&self) -> f64 {
        self.pct(self.aborted)
    }

    /// Attempts aborted for one reason in percent of all attempts.
    pub fn reason_pct(&self, reason: Abort) -> f64 {
        self.pct(self.reasons.get(&reason).copied().unwrap_or(0))
    }

    fn pct(&self, part: u64) -> f64 {
        let attempts = self.committed + self.aborted + self.errors_total();
        if attempts == 0 { 0.0 } else { 100.0 * part as f64 / attempts as f64 }
    }
}

impl Default for Counts {
    fn default() -> Self {
        Counts::new()
    }
}

/// How an attempt failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The SQLSTATE.
    pub state: String,
    /// What the server or the driver said.
    pub message: String,
    /// Why the system wants the transaction to be made again, if it does.
    pub abort: Option<Abort>,
    /// The connection broke: nobody knows whether the transaction committed.
    pub unknown: bool,
}

impl From<&tokio_postgres::Error> for Failure {
    fn from(error: &tokio_postgres::Error) -> Failure {
        let said = error.as_db_error().map_or("", |db| db.message());
        let state = sqlstate(error);
        Failure {
            state: state.to_owned(),
            message: describe(error),
            abort: is_retryable(error).then(|| Abort::classify(state, said)),
            unknown: error.as_db_error().is_none(),
        }
    }
}

/// Collects the counts of the clients of one thread.
#[derive(Debug)]
pub struct Recorder {
    window: Window,
    kinds: Vec<Counts>,
    first_error: Option<String>,
}

impl Recorder {
    /// Nothing recorded for each of `kinds` kinds.
    pub fn new(window: Window, kinds: usize) -> Recorder {
        Recorder { window, kinds: vec![Counts::new(); kinds], first_error: None }
    }

    fn measured(&self, now: Instant) -> bool {
        now >= self.window.from && now <= self.window.until
    }

    /// True once no further request should begin; a retry is one.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.window.until
    }

    /// What was counted so far, by kind.
    pub fn counts(&self) -> &[Counts] {
        &self.kinds
    }

    /// A request that began at `since` has committed.
    pub fn committed(&mut self, kind: usize, since: Instant) {
        let now = Instant::now();
        let measured = self.measured(now);
        let counts = &mut self.kinds[kind];
        counts.acknowledged += 1;
        if measured {
            counts.committed += 1;
            // Fails only beyond what the histogram can ever grow to.
            let _ = counts.latency.record((now - since).as_micros() as u64);
        }
    }

    /// An attempt was aborted by the system, to be made again.
    pub fn aborted(&mut self, kind: usize, reason: Abort) {
        if self.measured(Instant::now()) {
            self.kinds[kind].aborted += 1;
            *self.kinds[kind].reasons.entry(reason).or_default() += 1;
        }
    }

    /// An attempt failed; the caller goes on with another attempt exactly if this returns true.
    pub fn failed(&mut self, kind: usize, error: &tokio_postgres::Error) -> bool {
        self.failed_with(kind, &Failure::from(error))
    }

    /// The same, whichever driver told it.
    pub fn failed_with(&mut self, kind: usize, failure: &Failure) -> bool {
        let measured = self.measured(Instant::now());
        let counts = &mut self.kinds[kind];
        if failure.unknown {
            counts.unknown += 1;
        }
        if let Some(reason) = failure.abort {
            self.aborted(kind, reason);
            return true;
        }
        if measured {
            *counts.errors.entry(failure.state.clone()).or_default() += 1;
        }
        self.first_error.get_or_insert_with(|| failure.message.clone());
        false
    }
}

/// What one run counted.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The measured window's length in seconds.
    pub seconds: f64,
    /// The names of the kinds.
    pub kinds: Vec<String>,
    /// Counts by kind.
    pub counts: Vec<Counts>,
    /// The text of the first error that was no abort.
    pub first_error: Option<String>,
}

impl Outcome {
    /// Adds the outcome of another round of the same workload.
    pub fn add(&mut self, other: &Outcome) {
        self.seconds += other.seconds;
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            mine.add(theirs);
        }
        if self.first_error.is_none() {
            self.first_error.clone_from(&other.first_error);
        }
    }

    /// All kinds together.
    pub fn total(&self) -> Counts {
        let mut total = Counts::new();
        for counts in &self.counts {
            total.add(counts);
        }
        total
    }

    /// Committed requests a second, all kinds together.
    pub fn committed_per_s(&self) -> f64 {
        self.total().committed as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }
}

/// Runs the workload with the plan's clients and returns what they counted.
pub async fn run<W: Workload>(workload: Arc<W>, plan: &Plan) -> Result<Outcome> {
    let kinds = workload.kinds();
    let threads = plan.threads.clamp(1, plan.clients.max(1));
    let (open, window) = watch::channel(None::<Window>);
    // Clients report twice: connected (true), and the thread's result at the end.
    let (reports, mut inbox) = mpsc::unbounded_channel();
    for thread in 0..threads {
        let share: Vec<usize> = (thread..plan.clients).step_by(threads).collect();
        let (workload, window, reports) = (Arc::clone(&workload), window.clone(), reports.clone());
        let kinds = kinds.len();
        std::thread::Builder::new()
            .name(format!("clients-{thread}"))
            .spawn(move || run_thread(&workload, &share, kinds, window, &reports))
            .map_err(|source| Error::Io { doing: "starting a client thread".to_owned(), source })?;
    }
    drop(reports);
    // From here on, returning early drops `open`, at which every client stops.
    let mut connected = 0;
    let connect_until = tokio::time::Instant::now() + GRACE;
    while connected < plan.clients {
        match tokio::time::timeout_at(connect_until, inbox.recv()).await {
            Ok(Some(Report::Connected)) => connected += 1,
            Ok(Some(Report::Ended(result))) => {
                result?;
            }
            Ok(None) => return Err(Error::Timeout("the client threads ended early".to_owned())),
            Err(_) => {
                return Err(Error::Timeout(format!(
                    "{connected} of {} clients connected in time",
                    plan.clients
                )));
            }
        }
    }
    let from = Instant::now() + plan.warmup;
    let until = from + plan.measured;
    workload.begin(Window { from, until });
    let _ = open.send(Some(Window { from, until }));
    let bar = progress::seconds(&plan.label, (plan.warmup + plan.measured).as_secs_f64());
    let outcome = collect(&mut inbox, until, kinds, plan, &bar).await;
    bar.finish_and_clear();
    outcome
}

enum Report {
    Connected,
    Ended(Result<Recorder>),
}

async fn collect(
    inbox: &mut mpsc::UnboundedReceiver<Report>,
    until: Instant,
    kinds: Vec<String>,
    plan: &Plan,
    bar: &indicatif::ProgressBar,
) -> Result<Outcome> {
    let mut outcome = Outcome {
        seconds: plan.measured.as_secs_f64(),
        counts: vec![Counts::new(); kinds.len()],
        kinds,
        first_error: None,
    };
    let deadline = tokio::time::Instant::from_std(until + GRACE);
    let mut tick = tokio::time::interval(Duration::from_millis(100));
    loop {
        let report = tokio::select! {
            report = inbox.recv() => report,
            _ = tick.tick() => { bar.inc(1); continue; }
            () = tokio::time::sleep_until(deadline) => {
                return Err(Error::Timeout(format!("{}: clients were still busy {} s after the end", plan.label, GRACE.as_secs())));
            }
        };
        match report {
            None => return Ok(outcome),
            Some(Report::Connected) => {}
            Some(Report::Ended(recorder)) => {
                let recorder = recorder?;
                for (mine, theirs) in outcome.counts.iter_mut().zip(&recorder.kinds) {
                    mine.add(theirs);
                }
                outcome.first_error = outcome.first_error.take().or(recorder.first_error);
            }
        }
    }
}

fn run_thread<W: Workload>(
    workload: &Arc<W>,
    share: &[usize],
    kinds: usize,
    window: watch::Receiver<Option<Window>>,
    reports: &mpsc::UnboundedSender<Report>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(source) => {
            let error = Error::Io { doing: "starting a client runtime".to_owned(), source };
            let _ = reports.send(Report::Ended(Err(error)));
            return;
        }
    };
    let result = LocalSet::new().block_on(&runtime, async {
        let recorder: Rc<RefCell<Option<Rc<RefCell<Recorder>>>>> = Rc::default();
        let clients: Vec<_> = share
            .iter()
            .map(|&index| {
                let (workload, window, reports) = (Arc::clone(workload), window.clone(), reports.clone());
                let recorder = Rc::clone(&recorder);
                tokio::task::spawn_local(run_client(workload, index, kinds, window, reports, recorder))
            })
            .collect();
        for client in clients {
            client.await.map_err(|panic| Error::Server(format!("a client failed: {panic}")))??;
        }
        let recorder = recorder.borrow_mut().take();
        Ok(recorder.and_then(|recorder| Rc::try_unwrap(recorder).ok()).map(RefCell::into_inner))
    });
    let ended = match result {
        Ok(Some(recorder)) => Ok(recorder),
        Ok(None) => return, // the run was given up before the window opened
        Err(error) => Err(error),
    };
    let _ = reports.send(Report::Ended(ended));
}

async fn run_client<W: Workload>(
    workload: Arc<W>,
    index: usize,
    kinds: usize,
    mut window: watch::Receiver<Option<Window>>,
    reports: mpsc::UnboundedSender<Report>,
    shared: Rc<RefCell<Option<Rc<RefCell<Recorder>>>>>,
) -> Result<()> {
    let mut client = workload.open(index).await?;
    let _ = reports.send(Report::Connected);
    let opened = match window.wait_for(Option::is_some).await {
        Ok(opened) => *opened,
        Err(_) => return Ok(()),
    };
    let Some(opened) = opened else { return Ok(()) };
    let recorder = Rc::clone(
        shared.borrow_mut().get_or_insert_with(|| Rc::new(RefCell::new(Recorder::new(opened, kinds)))),
    );
    // The sender is dropped when the run is given up (an error elsewhere, Ctrl-C): stop between
    // requests then.
    while Instant::now() < opened.until && window.has_changed().is_ok() {
        client.step(&recorder).await?;
    }
    Ok(())
}
