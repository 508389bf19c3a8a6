//! `cognate-bench governor`: what `cognate.active_limit = auto` finds, against the best of several
//! fixed limits.
//!
//! One server, real device, clients through the wire. For each number of clients, and for a hot-row
//! load on which more transactions at a time mean more aborts, the clients connect once and go on
//! without a break, while the limit is changed under them: a run per limit would compare the
//! machine's moods and the clients' beginnings.
//!
//! ```text
//! 2, 4, 8, … off, once each │ A B C │ C B A │ … │ auto settles │ A auto │ auto A │ A auto │ …      A, B, C: the best three of the fixed ones; then A: the best
//! ```
//!
//! The best fixed limit is chosen in turns of its own: in those in which it meets `auto` the
//! luckiest would win. Each part has a *lead* that is not measured: the old limit's transactions
//! end in it. `auto` goes on in each of its parts where it was at the end of the one before, its
//! trials included. A ratio is the median over the turns, and its standard error says what the
//! turns can tell. At last the benchmark opens many connections that do nothing, some of them
//! within a transaction, and measures a few busy ones among them: they must be served as if they
//! were alone.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_postgres::Client;

use super::{OutputArgs, ServerArgs, client_threads, parameters, turn_about};
use crate::driver::{self, Counts, Outcome, Plan};
use crate::error::{DatabaseContext, Error, Result};
use crate::median::{median, median_ratio, ratio_error};
use crate::peer::{self, System};
use crate::report::{self, Record, number};
use crate::workload::s3u1::{Stage, Table, Wire};

/// The arguments of the governor benchmark.
#[derive(Clone, Debug, Args)]
pub struct GovernorArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Rows of the table.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(i64).range(1000..=10_000_000))]
    rows: i64,
    /// Numbers of clients of the uniform load; 0 leaves it out.
    #[arg(long, value_delimiter = ',', default_value = "16,80,400,2000")]
    clients: Vec<u32>,
    /// Clients of the hot-row load; 0 leaves it out.
    #[arg(long, default_value_t = 400)]
    hot_clients: u32,
    /// Rows that the hot-row load goes to.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(i64).range(1..=1000))]
    hot_rows: i64,
    /// Fixed limits to compare with; `off` is none.
    #[arg(long, value_delimiter = ',', default_value = "2,4,8,16,32,64,256,off")]
    limits: Vec<String>,
    /// Connections of the last part; 0 leaves it out.
    #[arg(long, default_value_t = 5000)]
    connected: u32,
    /// Busy clients among them.
    #[arg(long, default_value_t = 80)]
    busy: u32,
    /// Turns in which `auto` and the best fixed limit are compared.
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=999))]
    turns: u32,
    /// Length of each measured part, in seconds.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Time after a change of the limit that is not measured, in seconds.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=3600))]
    lead: u32,
    /// Time that `auto` has to settle before the turns, in seconds.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=3600))]
    settle: u32,
    /// Seed of the keys.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Draw the rates over the number of clients into this SVG file.
    #[arg(long, value_name = "FILE")]
    curves: Option<PathBuf>,
}

/// A load: its name, and how hot it is.
#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    clients: u32,
    table: Table,
}

/// Runs the benchmark.
pub async fn run(args: &GovernorArgs) -> Result<()> {
    let mut options = args.server.cognate();
    let most = args.clients.iter().copied().chain([args.hot_clients, args.connected + args.busy]).max();
    options.extra = vec!["--max-connections".to_owned(), (most.unwrap_or(0) + 100).to_string()];
    let system = System::start_cognate(&options).await?;
    let uniform = Table { rows: args.rows, hot_rows: args.hot_rows, hot_pct: 0, seed: args.seed };
    let client = system.client().await?;
    system.execute_each(&client, &uniform.statements()).await?;
    let load = |clients: &u32| Load { name: "uniform", clients: *clients, table: uniform };
    let mut loads: Vec<Load> = args.clients.iter().filter(|clients| **clients > 0).map(load).collect();
    if args.hot_clients > 0 {
        let table = Table { hot_pct: 100, ..uniform };
        loads.push(Load { name: "hot", clients: args.hot_clients, table });
    }
    let mut bench = Bench { args, system: &system, client, round: 0, records: Vec::new() };
    let mut shares = Vec::new();
    for load in loads {
        shares.push(bench.against_fixed(load).await?);
    }
    if args.connected > 0 {
        bench.among_idle(uniform).await?;
    }
    let records = bench.records;
    println!("{}", report::table(&records, "case"));
    println!("{}", summary(&shares));
    if let Some(path) = &args.curves {
        draw(path, &shares)?;
    }
    args.output.write("Committed a second by limit of executing transactions", &records, "case")
}

/// What `auto` reached on one load.
struct Share {
    load: Load,
    auto: f64,
    best: f64,
    /// Median of the turns, and the standard error of their mean.
    of_best: f64,
    error: f64,
    best_limit: String,
    off: Option<f64>,
    found: String,
}

/// So many of the fixed limits are measured again, in so many turns, to choose the best.
const CANDIDATES: usize = 3;
const CHOICE_TURNS: u32 = 4;

/// What was measured on one load.
struct Measured {
    screened: Vec<Compared>,
    candidates: Vec<Compared>,
    best: Compared,
    auto: Compared,
}

/// A limit, and the parts in which it was measured.
#[derive(Clone)]
struct Compared {
    limit: String,
    /// What it was at the end; of `auto`, what it had found.
    found: String,
    parts: Vec<Part>,
}

/// A measured part of a run.
#[derive(Clone, Copy)]
struct Part {
    /// Its number in the run.
    stage: usize,
    seconds: f64,
    committed_per_s: f64,
}

impl Compared {
    fn new(limit: &str) -> Compared {
        Compared { limit: limit.to_owned(), found: String::new(), parts: Vec::new() }
    }

    fn rates(&self) -> Vec<f64> {
        self.parts.iter().map(|part| part.committed_per_s).collect()
    }

    fn median(&self) -> f64 {
        median(&self.rates())
    }

    /// Its part of what the run's clients counted.
    fn outcome(&self, run: &Outcome) -> Outcome {
        let mut counts = Counts::new();
        self.parts.iter().filter_map(|part| run.counts.get(part.stage)).for_each(|part| counts.add(part));
        let seconds = self.parts.iter().map(|part| part.seconds).sum();
        Outcome { seconds, kinds: vec!["s3u1".to_owned()], counts: vec![counts], first_error: None }
    }
}

/// The best first.
fn ranked(limits: &[Compared]) -> Vec<&Compared> {
    let mut ranked: Vec<&Compared> = limits.iter().collect();
    ranked.sort_by(|a, b| b.median().total_cmp(&a.median()));
    ranked
}

/// Turns with and without idle connections, and the seconds before each is measured.
const IDLE_TURNS: u32 = 5;
const BUSY_WARMUP: u32 = 8;

/// Several runs of the same.
#[derive(Default)]
struct Busy {
    rates: Vec<f64>,
    sum: Option<Outcome>,
}

impl Busy {
    fn add(&mut self, outcome: Outcome) {
        self.rates.push(outcome.committed_per_s());
        match &mut self.sum {
            Some(sum) => sum.add(&outcome),
            none => *none = Some(outcome),
        }
    }

    fn median(&self) -> f64 {
        median(&self.rates)
    }
}

fn case(load: Load, limit: &str, how: &str) -> String {
    format!("{}, {} clients, limit {limit}, {how}", load.name, load.clients)
}

struct Bench<'a> {
    args: &'a GovernorArgs,
    system: &'a System,
    client: Client,
    /// Loads that were run.
    round: u64,
    records: Vec<Record>,
}

/// Clients at work, and when the present part ends.
struct Shift<'a> {
    client: &'a Client,
    system: &'a str,
    stage: &'a Stage,
    /// The last part.
    part: usize,
    until: Instant,
}

impl Shift<'_> {
    /// Waits until the clients have begun.
    async fn begin(&mut self) {
        while self.stage.committed() == 0 {
            sleep(Duration::from_millis(5)).await;
        }
        self.until = Instant::now();
    }

    /// Changes the limit and measures what is committed after the lead.
    async fn measure(&mut self, limit: &str, lead: u32, seconds: u32) -> Result<Part> {
        self.stage.go_to(0);
        let set = format!("SET cognate.active_limit = '{limit}'");
        self.client.batch_execute(&set).await.at(self.system, set)?;
        // By the clock of the whole run, so that it ends when its clients do.
        let from = self.until + Duration::from_secs(u64::from(lead));
        self.until = from + Duration::from_secs(u64::from(seconds));
        sleep_until(from).await;
        self.part += 1;
        self.stage.go_to(self.part);
        let (began, before) = (Instant::now(), self.stage.committed());
        sleep_until(self.until).await;
        let committed = self.stage.committed() - before;
        let elapsed = began.elapsed().as_secs_f64();
        Ok(Part { stage: self.part, seconds: elapsed, committed_per_s: committed as f64 / elapsed })
    }

    /// Measures each of the limits once in every turn, forwards and backwards.
    async fn take_turns(&mut self, limits: &mut [Compared], turns: u32, args: &GovernorArgs) -> Result<()> {
        for turn in 0..turns {
            for index in turn_about(turn, limits.len()) {
                let of = &mut limits[index];
                of.parts.push(self.measure(&of.limit, args.lead, args.seconds).await?);
                of.found = self.limit_found().await?;
            }
        }
        Ok(())
    }

    async fn limit_found(&self) -> Result<String> {
        let select = "SELECT coalesce(active_limit::text, 'off') FROM cognate_governor";
        let row = self.client.query_one(select, &[]).await.at(self.system, "reading cognate_governor")?;
        Ok(row.get(0))
    }
}

impl Bench<'_> {
    async fn against_fixed(&mut self, load: Load) -> Result<Share> {
        let args = self.args;
        let candidates = CANDIDATES.min(args.limits.len()) as u32;
        let parts = args.limits.len() as u32 + CHOICE_TURNS * candidates + 2 * args.turns;
        let seconds = parts * (args.lead + args.seconds) + args.settle;
        let stage = Arc::new(Stage::new(parts as usize + 2));
        self.round += 1;
        let clients = self.run(load, "all limits", 0, seconds + 1, &stage);
        let (run, measured) = tokio::try_join!(clients, self.change_limits(&stage))?;
        let Measured { screened, candidates, best, auto } = measured;
        let off = screened.iter().find(|of| of.limit == "off").map(Compared::median);
        for (how, list) in [
            ("once", screened.as_slice()),
            ("to choose", &candidates),
            ("in turns", &[best.clone(), auto.clone()]),
        ] {
            for of in list {
                self.add(load, case(load, &of.limit, how), &of.limit, &of.outcome(&run));
                if let (Some(record), true) = (self.records.last_mut(), how != "once") {
                    record.params.insert("median_per_s".to_owned(), json!(of.median()));
                    record.params.insert("limit_found".to_owned(), json!(of.found));
                }
            }
        }
        let share = Share {
            load,
            auto: auto.median(),
            best: best.median(),
            of_best: median_ratio(&auto.rates(), &best.rates()),
            error: ratio_error(&auto.rates(), &best.rates()),
            best_limit: best.limit,
            off,
            found: auto.found,
        };
        if let Some(record) = self.records.last_mut() {
            record.measured("of_best_pct", 100.0 * share.of_best, 100.0 * share.error);
            record.params.insert("best_limit".to_owned(), json!(share.best_limit));
        }
        Ok(share)
    }

    /// All fixed limits once, the best of them in turns, and then the best of these and `auto` in
    /// turns.
    async fn change_limits(&self, stage: &Stage) -> Result<Measured> {
        let args = self.args;
        let mut shift =
            Shift { client: &self.client, system: &self.system.name, stage, part: 0, until: Instant::now() };
        shift.begin().await;
        let mut screened: Vec<Compared> = args.limits.iter().map(|limit| Compared::new(limit)).collect();
        shift.take_turns(&mut screened, 1, args).await?;
        let mut candidates: Vec<Compared> =
            ranked(&screened).into_iter().take(CANDIDATES).map(|of| Compared::new(&of.limit)).collect();
        shift.take_turns(&mut candidates, CHOICE_TURNS, args).await?;
        let Some(best) = ranked(&candidates).first().map(|of| Compared::new(&of.limit)) else {
            return Err(Error::Usage("--limits names none".to_owned()));
        };
        shift.measure("auto", 0, args.settle).await?;
        let mut both = [best, Compared::new("auto")];
        shift.take_turns(&mut both, args.turns, args).await?;
        let [best, auto] = both;
        Ok(Measured { screened, candidates, best, auto })
    }

    /// Runs a load's clients.
    async fn run(
        &self,
        load: Load,
        label: &str,
        warmup: u32,
        seconds: u32,
        stage: &Arc<Stage>,
    ) -> Result<Outcome> {
        let before = Wire::sum(self.system).await?;
        let wire = Wire {
            system: self.system.name.clone(),
            config: self.system.config().clone(),
            table: load.table,
            round: self.round,
            stage: Arc::clone(stage),
        };
        let plan = Plan {
            label: format!("{}, {} clients, {label}", load.name, load.clients),
            clients: load.clients as usize,
            threads: client_threads(),
            warmup: Duration::from_secs(u64::from(warmup)),
            measured: Duration::from_secs(u64::from(seconds)),
        };
        let outcome = driver::run(Arc::new(wire), &plan).await?;
        let (done, acknowledged) =
            (Wire::sum(self.system).await? - before, outcome.total().acknowledged as i64);
        if done != acknowledged {
            let text = format!("{acknowledged} TRANSACTIONS WERE ACKNOWLEDGED, AND {done} ARE THERE");
            return Err(Error::Violation(text));
        }
        Ok(outcome)
    }

    fn add(&mut self, load: Load, case: String, limit: &str, outcome: &Outcome) {
        let params = parameters(
            self.system,
            &[
                ("case", json!(case)),
                ("load", json!(load.name)),
                ("clients", json!(load.clients)),
                ("active_limit", json!(limit)),
                ("rows", json!(load.table.rows)),
                ("hot_rows", json!(load.table.hot_rows)),
                ("hot_pct", json!(load.table.hot_pct)),
                ("seconds", json!(self.args.seconds)),
                ("isolation", json!("serializable")),
            ],
        );
        self.records.push(report::records(&self.system.name, "governor", &params, outcome).remove(0));
    }

    /// Busy clients alone and among many connections that do nothing, in turns.
    async fn among_idle(&mut self, table: Table) -> Result<()> {
        let load = Load { name: "uniform", clients: self.args.busy, table };
        let auto = "SET cognate.active_limit = 'auto'";
        self.client.batch_execute(auto).await.at(&self.system.name, auto)?;
        let (mut alone, mut among) = (Busy::default(), Busy::default());
        for _ in 0..self.args.turns.min(IDLE_TURNS) {
            alone.add(self.busy(load, "alone").await?);
            let idle = self.idle_connections().await?;
            among.add(self.busy(load, "among idle connections").await?);
            drop(idle);
        }
        let share = 100.0 * among.median() / alone.median().max(f64::MIN_POSITIVE);
        let of_many = format!("{} connected, {} busy", self.args.connected, self.args.busy);
        for (case, of) in [(format!("{} connected and busy", self.args.busy), &alone), (of_many, &among)] {
            let Some(outcome) = &of.sum else { continue };
            self.add(load, case, "auto", outcome);
            if let Some(record) = self.records.last_mut() {
                record.params.insert("median_per_s".to_owned(), json!(of.median()));
            }
        }
        if let Some(record) = self.records.last_mut() {
            record.params.insert("of_alone_pct".to_owned(), json!(share));
        }
        println!(
            "{} connected, {} busy: {share:.0} % of what the busy ones do alone",
            self.args.connected, self.args.busy
        );
        Ok(())
    }

    async fn busy(&mut self, load: Load, label: &str) -> Result<Outcome> {
        self.round += 1;
        self.run(load, label, BUSY_WARMUP, self.args.seconds, &Arc::new(Stage::new(1))).await
    }

    /// Connections that do nothing; every tenth is within a transaction.
    async fn idle_connections(&self) -> Result<Vec<Client>> {
        let mut idle = Vec::new();
        for nth in 0..self.args.connected.saturating_sub(self.args.busy) {
            let client = peer::connect(self.system.config()).await.at(&self.system.name, "connecting")?;
            if nth % 10 == 0 {
                let begin = "BEGIN; SELECT v FROM s3u1 WHERE id = 1";
                client.batch_execute(begin).await.at(&self.system.name, begin)?;
            }
            idle.push(client);
        }
        Ok(idle)
    }
}

fn summary(shares: &[Share]) -> String {
    let mut rows = vec![
        ["load", "clients", "auto/s", "its limit", "best/s", "best limit", "off/s", "auto / best"]
            .map(str::to_owned),
    ];
    for share in shares {
        rows.push([
            share.load.name.to_owned(),
            share.load.clients.to_string(),
            number(share.auto),
            share.found.clone(),
            number(share.best),
            share.best_limit.clone(),
            share.off.map_or(String::new(), number),
            format!("{:.1} ± {:.1} %", 100.0 * share.of_best, 100.0 * share.error),
        ]);
    }
    report::align(&rows, 1)
}

fn draw(path: &Path, shares: &[Share]) -> Result<()> {
    let curve = |name: &str, rate: &dyn Fn(&Share) -> Option<f64>| {
        let uniform = shares.iter().filter(|share| share.load.name == "uniform");
        let points = uniform.filter_map(|share| Some((f64::from(share.load.clients), rate(share)?)));
        (name.to_owned(), points.collect::<Vec<_>>())
    };
    let curves = [
        curve("auto", &|share| Some(share.auto)),
        curve("best fixed limit", &|share| Some(share.best)),
        curve("no limit", &|share| share.off),
    ];
    report::write_curves(path, "Committed a second over the number of clients", "clients", &curves)?;
    eprintln!("wrote {}", path.display());
    Ok(())
}
