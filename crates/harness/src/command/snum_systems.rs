//! The systems that sNuM compares: started when first needed, loaded once, measured in turns:
//! servers one after the other in each round, databases in this process in turns of 100 ms under
//! the same clients.
//!
//! How fast a server is differs from start to start, by where its threads and its memory came to
//! lie, and stays so as long as it runs. Of two servers that run through all rounds a ratio is as
//! much one of these processes as of their methods, and its error does not show it. So there is a
//! second form, in which servers are started for each round ([`Systems::measure_fresh`]): rounds
//! know nothing of each other, and the median and the error are those of the starts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cognate::{Database, Method, Options};
use tempfile::TempDir;

use super::{ServerArgs, client_threads, turn_about};
use crate::driver::{self, Counts, Outcome, Plan};
use crate::error::{Error, Result};
use crate::peer::{System, fresh_folder};
use crate::workload::bookstore::Isolation;
use crate::workload::snum::{Embedded, Shape, Wire};
use crate::workload::turns::{Pace, Turns};

/// Time of each round before it is measured.
const WARMUP: Duration = Duration::from_millis(300);
/// The same on a server that was started a moment ago.
pub(super) const FRESH_WARMUP: Duration = Duration::from_millis(1500);
/// A turn of a database in this process, and what of its beginning does not count.
const PART: Duration = Duration::from_millis(100);
const LEAD: Duration = Duration::from_millis(20);

/// A system, or a way to serializability within one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum SystemName {
    /// Cognate, precisely.
    Pssi,
    /// Cognate, precisely and in the order of real time.
    Strict,
    /// Cognate, by dangerous structures.
    Ssi,
    /// Cognate, snapshot isolation.
    Si,
    /// Cognate, strict two-phase locking.
    #[value(name = "2pl")]
    TwoPhaseLocking,
    /// PostgreSQL.
    Postgres,
}

impl SystemName {
    /// All of them.
    pub const ALL: [SystemName; 6] = [
        SystemName::Pssi,
        SystemName::Strict,
        SystemName::Ssi,
        SystemName::Si,
        SystemName::TwoPhaseLocking,
        SystemName::Postgres,
    ];

    /// As the command line writes it.
    pub fn name(self) -> &'static str {
        match self {
            SystemName::Pssi => "pssi",
            SystemName::Strict => "strict",
            SystemName::Ssi => "ssi",
            SystemName::Si => "si",
            SystemName::TwoPhaseLocking => "2pl",
            SystemName::Postgres => "postgres",
        }
    }

    /// As records name the system.
    pub fn label(self) -> &'static str {
        match self {
            SystemName::Pssi => "cognate",
            SystemName::Strict => "cognate strict",
            SystemName::Ssi => "cognate ssi",
            SystemName::Si => "cognate si",
            SystemName::TwoPhaseLocking => "cognate 2pl",
            SystemName::Postgres => "postgres",
        }
    }

    /// How Cognate is told, unless this is another system.
    pub fn method(self) -> Option<Method> {
        match self {
            SystemName::Pssi => Some(Method::Pssi),
            SystemName::Strict => Some(Method::Strict),
            SystemName::Ssi => Some(Method::Ssi),
            SystemName::Si => Some(Method::Si),
            SystemName::TwoPhaseLocking => Some(Method::TwoPhaseLocking),
            SystemName::Postgres => None,
        }
    }

    /// Starts its server.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn start(self, server: &ServerArgs) -> Result<System> {
        if self == SystemName::Postgres {
            return System::start_postgres(&server.postgres()).await;
        }
        let mut options = server.cognate();
        options.extra.extend(["--serializable".to_owned(), self.name().to_owned()]);
        System::start_cognate(&options).await
    }
}

/// A load and how long it is measured.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// What transactions do.
    pub shape: Shape,
    /// How many at once.
    pub clients: usize,
    /// In this process.
    pub embedded: bool,
    /// Of each system, all rounds together.
    pub seconds: u32,
    /// How many rounds.
    pub rounds: u32,
}

impl Program {
    /// The same in at most so many rounds, each as long as before: for rounds that begin with a
    /// start.
    pub fn of_starts(self, most: u32) -> Program {
        let rounds = self.rounds.min(most);
        let seconds = (self.seconds * rounds / self.rounds.max(1)).max(1);
        Program { seconds, rounds, ..self }
    }

    /// What is measured of each system in a round.
    fn of_a_round(&self) -> Duration {
        Duration::from_secs(u64::from(self.seconds)) / self.rounds.max(1)
    }
}

/// What one system did under one load.
#[derive(Clone, Debug)]
pub struct Measured {
    /// All rounds together.
    pub counts: Counts,
    /// Seconds measured.
    pub seconds: f64,
    /// Committed a second in each round.
    pub rounds: Vec<f64>,
}

impl Measured {
    /// Committed a second.
    pub fn committed_per_s(&self) -> f64 {
        self.counts.committed as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }
}

/// A database in this process; its folder goes when it is dropped.
struct Library {
    database: Database,
    _folder: TempDir,
}

impl Drop for Library {
    fn drop(&mut self) {
        // The folder goes in any case; closing ends the threads.
        let _ = self.database.clone().close();
    }
}

/// The systems that were started.
pub struct Systems {
    server: ServerArgs,
    rows: i64,
    isolation: Isolation,
    started: BTreeMap<SystemName, System>,
    opened: BTreeMap<SystemName, Library>,
    round: u64,
}

impl Systems {
    /// None yet.
    pub fn new(server: &ServerArgs, rows: i64, isolation: Isolation) -> Systems {
        let (started, opened) = (BTreeMap::new(), BTreeMap::new());
        Systems { server: server.clone(), rows, isolation, started, opened, round: 0 }
    }

    /// Measures these systems under one load, in turns; PostgreSQL is left out of embedded loads.
    ///
    /// # Errors
    /// If a system does not start, or answers with an error that is no abort.
    pub async fn measure(
        &mut self,
        names: &[SystemName],
        program: &Program,
    ) -> Result<Vec<(SystemName, Measured)>> {
        let names: Vec<SystemName> =
            names.iter().copied().filter(|name| !program.embedded || name.method().is_some()).collect();
        let mut sums = Sums::new(&names);
        for name in &names {
            self.ready(*name, program).await?;
        }
        for round in 0..program.rounds {
            self.round += 1;
            let of_round = match program.embedded {
                true => self.in_turns(&names, program, round).await?,
                false => self.one_by_one(&names, program, round, WARMUP).await?,
            };
            sums.add(of_round);
        }
        Ok(sums.measured())
    }

    /// The same through the wire, on servers that are started and loaded for each round, and gone
    /// after it.
    ///
    /// # Errors
    /// As `measure`.
    pub async fn measure_fresh(
        &mut self,
        names: &[SystemName],
        program: &Program,
    ) -> Result<Vec<(SystemName, Measured)>> {
        let mut sums = Sums::new(names);
        let kept = std::mem::take(&mut self.started);
        for round in 0..program.rounds {
            self.round += 1;
            for index in turn_about(round, names.len()) {
                self.ready(names[index], program).await?;
            }
            // Who was started first is not always measured first.
            sums.add(self.one_by_one(names, program, round / 2, FRESH_WARMUP).await?);
            self.started.clear();
        }
        self.started = kept;
        Ok(sums.measured())
    }

    /// A round through the wire: each system has its time, with connections of its own.
    async fn one_by_one(
        &self,
        names: &[SystemName],
        program: &Program,
        round: u32,
        warmup: Duration,
    ) -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        for index in turn_about(round, names.len()) {
            let name = names[index];
            let plan = Plan {
                label: format!("{}: {} clients", name.label(), program.clients),
                clients: program.clients,
                threads: client_threads(),
                warmup,
                measured: program.of_a_round(),
            };
            let system = self.started.get(&name).ok_or_else(|| missing(name))?;
            let (config, system) = (system.config().clone(), system.name.clone());
            let (shape, isolation, round) = (program.shape, self.isolation, self.round);
            let outcome =
                driver::run(Arc::new(Wire { system, config, shape, isolation, round }), &plan).await?;
            if let Some(error) = &outcome.first_error {
                return Err(Error::Server(format!("{}: {error}", name.label())));
            }
            outcomes.push(outcome);
        }
        if round % 2 == 1 {
            outcomes.reverse();
        }
        Ok(outcomes)
    }

    /// A round in this process: the clients have a session with each database and turn from one to
    /// the other.
    async fn in_turns(&self, names: &[SystemName], program: &Program, round: u32) -> Result<Vec<Outcome>> {
        let mut of = Vec::new();
        for &name in names {
            let database = self.opened.get(&name).ok_or_else(|| missing(name))?.database.clone();
            let (shape, isolation, round) = (program.shape, self.isolation, self.round);
            of.push((name.label().to_owned(), Embedded { database, shape, isolation, round }));
        }
        let turns = program.of_a_round().div_duration_f64(PART).round().max(1.0) as u32;
        let turns = Arc::new(Turns::new(of, Pace { lead: LEAD, part: PART, turns }, round));
        let plan = turns.plan(format!("{} sessions", program.clients), program.clients, client_threads());
        let run = driver::run(Arc::new(Arc::clone(&turns)), &plan).await?;
        match run.first_error {
            Some(error) => Err(Error::Server(error)),
            None => Ok(turns.each(&run)),
        }
    }

    /// Starts and loads a system unless that was done.
    async fn ready(&mut self, name: SystemName, program: &Program) -> Result<()> {
        let shape = Shape { rows: self.rows, ..program.shape };
        let spinner = crate::progress::spinner(&format!("{}: loading", name.label()));
        if program.embedded {
            if let (false, Some(method)) = (self.opened.contains_key(&name), name.method()) {
                let library = open(&self.server, method, &shape).await?;
                self.opened.insert(name, library);
            }
        } else if !self.started.contains_key(&name) {
            let system = start(&self.server, name, &shape).await?;
            self.started.insert(name, system);
        }
        spinner.finish_and_clear();
        Ok(())
    }
}

/// What rounds come to.
struct Sums {
    names: Vec<SystemName>,
    outcomes: Vec<Option<Outcome>>,
    rates: Vec<Vec<f64>>,
}

impl Sums {
    fn new(names: &[SystemName]) -> Sums {
        let (outcomes, rates) = (vec![None; names.len()], vec![Vec::new(); names.len()]);
        Sums { names: names.to_vec(), outcomes, rates }
    }

    /// Adds a round, with an outcome for each name.
    fn add(&mut self, round: Vec<Outcome>) {
        for (index, outcome) in round.into_iter().enumerate() {
            self.rates[index].push(outcome.committed_per_s());
            match &mut self.outcomes[index] {
                Some(sum) => sum.add(&outcome),
                sum => *sum = Some(outcome),
            }
        }
    }

    fn measured(self) -> Vec<(SystemName, Measured)> {
        let together = self.names.into_iter().zip(self.outcomes).zip(self.rates);
        let measured = together.filter_map(|((name, outcome), rounds)| {
            let outcome = outcome?;
            Some((name, Measured { counts: outcome.total(), seconds: outcome.seconds, rounds }))
        });
        measured.collect()
    }
}

fn missing(name: SystemName) -> Error {
    Error::Missing(format!("{} was not started", name.label()))
}

async fn start(server: &ServerArgs, name: SystemName, shape: &Shape) -> Result<System> {
    let system = name.start(server).await?;
    let client = system.client().await?;
    system.execute_each(&client, &shape.statements()).await?;
    system.execute_each(&client, &["VACUUM ANALYZE".to_owned(), "CHECKPOINT".to_owned()]).await?;
    Ok(system)
}

async fn open(server: &ServerArgs, method: Method, shape: &Shape) -> Result<Library> {
    let failed = |error: cognate::Error| Error::Server(error.to_string());
    let folder = fresh_folder(server.directory.as_deref())?;
    let mut options = Options::new(folder.path().join("data"));
    if let Some(memory) = &server.memory {
        options = options.memory(super::parse_size(memory)?);
    }
    options.serializable = method;
    let database = Database::open_with(options).map_err(failed)?;
    let mut session = database.session().map_err(failed)?;
    for statement in shape.statements() {
        session.execute_async(statement.as_str(), &[]).await.map_err(failed)?;
    }
    session.execute_async("CHECKPOINT", &[]).await.map_err(failed)?;
    Ok(Library { database, _folder: folder })
}
