//! One service against plain SQL, and the purchase against two-phase commits that are written by
//! hand and against other systems: in turns.

use std::sync::Arc;

use serde_json::json;

use super::peers::{Peer, Program};
use super::{Bench, WARMUP, client_threads};
use crate::command::turn_about;
use crate::driver::Outcome;
use crate::error::{Error, Result};
use crate::median::{median_ratio, ratio_error};
use crate::report;
use crate::workload::composite::by_hand::{self, Atomicity};
use crate::workload::composite::direct::{DECISIONS, Decision, Direct};
use crate::workload::composite::entries::{self, Entry};
use crate::workload::composite::host::{Components, Host};
use crate::workload::composite::http::Posts;
use crate::workload::composite::place::{DatabaseKind, Place};
use crate::workload::composite::plain::{self, Way};
use crate::workload::composite::purchase::{self, SITES};
use crate::workload::composite::tree::{self, Semantics, Shape, Tree};

/// What clients talk to.
enum Target {
    Http(std::net::SocketAddr, fn(&mut crate::random::Random) -> String),
    Direct(Box<Direct>),
    Program(Box<Program>),
}

/// One of what is compared.
struct Compared {
    name: &'static str,
    /// How the composite's record calls the ratio to this one; empty for the composite itself.
    ratio: &'static str,
    /// What the names of its databases begin with.
    prefix: &'static str,
    target: Target,
    rates: Vec<f64>,
    all: Option<Outcome>,
    is_given_up: bool,
}

impl Compared {
    fn new(name: &'static str, ratio: &'static str, prefix: &'static str, target: Target) -> Compared {
        Compared { name, ratio, prefix, target, rates: Vec::new(), all: None, is_given_up: false }
    }

    fn acknowledged(&self) -> u64 {
        let before = match &self.target {
            Target::Program(program) => program.warmed,
            _ => 0,
        };
        before + self.all.as_ref().map_or(0, |all| all.total().acknowledged)
    }

    /// Another system's failure does not keep the rest from being measured.
    fn unless_other(&mut self, bench: &mut Bench<'_>, outcome: Result<()>) -> Result<()> {
        let is_other = matches!(self.target, Target::Program(_));
        match outcome {
            Err(error) if is_other => {
                bench.goes_without(self.name, error)?;
                self.is_given_up = true;
                Ok(())
            }
            outcome => outcome,
        }
    }

    async fn round(&mut self, bench: &mut Bench<'_>, label: String) -> Result<()> {
        let (run, clients) = (bench.next_run(), bench.args.clients);
        let outcome = match &mut self.target {
            Target::Http(address, body) => {
                let (name, path) = (self.name.to_owned(), "/services/buy");
                let posts = Posts { name, address: *address, path, body: *body, run };
                bench.drive(Arc::new(posts), clients, label).await?
            }
            Target::Direct(direct) => {
                bench.drive(Arc::new(Direct { run, ..(**direct).clone() }), clients, label).await?
            }
            Target::Program(program) => {
                let spinner = crate::progress::spinner(&label);
                let outcome = program.window(WARMUP, bench.window(), run).await;
                spinner.finish_and_clear();
                outcome?
            }
        };
        self.rates.push(outcome.committed_per_s());
        match &mut self.all {
            Some(all) => all.add(&outcome),
            none => *none = Some(outcome),
        }
        Ok(())
    }
}

/// Each of them in turn, forwards and backwards.
async fn in_turns(bench: &mut Bench<'_>, what: &str, compared: &mut [Compared]) -> Result<()> {
    for round in 0..2 * bench.args.rounds {
        for index in turn_about(round, compared.len()) {
            let one = &mut compared[index];
            if one.is_given_up {
                continue;
            }
            let label = format!("{what}: {}", one.name);
            let outcome = one.round(bench, label).await;
            one.unless_other(bench, outcome)?;
        }
    }
    Ok(())
}

/// A record for each, and the ratios on the composite's.
fn record(bench: &mut Bench<'_>, place: &Place, what: &str, compared: &[Compared]) {
    let ours = compared[0].rates.clone();
    let mut records = Vec::new();
    for one in compared {
        let Some(all) = &one.all else { continue };
        let mut params = bench.parameters(
            place,
            DatabaseKind::Postgres,
            &[
                ("case", json!(format!("{what}, {}", one.name))),
                ("clients", json!(bench.args.clients)),
                ("per_s_of_rounds", json!(one.rates)),
            ],
        );
        if let Target::Program(program) = &one.target {
            params.insert("peer_version".to_owned(), json!(program.version));
        }
        records.push(report::records(one.name, "composite", &params, all).remove(0));
    }
    for one in compared.iter().filter(|one| !one.ratio.is_empty()) {
        let (ratio, error) = (median_ratio(&ours, &one.rates), ratio_error(&ours, &one.rates));
        println!("{what}: {} / {}: {ratio:.2} ± {error:.2}", compared[0].name, one.name);
        if let Some(first) = records.first_mut() {
            first.measured(one.ratio, ratio, error);
        }
    }
    bench.records.append(&mut records);
}

fn wrong(what: &str, site: &str, acknowledged: u64, found: i64) -> Error {
    Error::Violation(format!("{what}: {site}: {acknowledged} WERE ANSWERED, AND {found} ARE THERE"))
}

async fn make(place: &mut Place, database: &str, statements: &[String]) -> Result<()> {
    use crate::error::DatabaseContext;
    place.database(database).await?;
    let client = place.client(database).await?;
    for statement in statements {
        client.batch_execute(statement).await.at(database, statement.as_str())?;
    }
    Ok(())
}

/// A tree of one service against the same handler with plain SQL.
pub(super) async fn plain(bench: &mut Bench<'_>, place: &mut Place) -> Result<()> {
    let shape = Shape { depth: 1, width: 1 };
    let one = tree::component(Tree { shape, semantics: Semantics::AllConflict, parallel: false }, 0);
    let parts = vec![(tree::NAMES[0], one)];
    let components = Components::start(place, "one_", client_threads(), parts).await?;
    let composite = Target::Http(components.address(), tree::body);
    let mut compared = vec![Compared::new("composite", "", "one_n0", composite)];
    let host = Host::new(client_threads())?;
    for (way, ratio, database) in [
        (Way::Transaction, "of_plain", "one_plain"),
        (Way::Autocommit, "of_plain_autocommit", "one_autocommit"),
    ] {
        make(place, database, &tree::tables()).await?;
        let address = host.serve(plain::router(place.config(database)?, way)).await?;
        compared.push(Compared::new(way.name(), ratio, database, Target::Http(address, tree::body)));
    }
    in_turns(bench, "1x1", &mut compared).await?;
    components.settle().await?;
    complete(place, "1x1", &compared).await?;
    record(bench, place, "1x1", &compared);
    components.stop().await
}

/// Fails unless each database has what was answered of it.
async fn complete(place: &Place, what: &str, compared: &[Compared]) -> Result<()> {
    for one in compared {
        let found = place.number(one.prefix, tree::TOTAL).await?;
        if found != one.acknowledged() as i64 {
            return Err(wrong(what, one.prefix, one.acknowledged(), found));
        }
    }
    Ok(())
}

/// An undo entry in a slot of a pool against one that is a row of its own.
pub(super) async fn entries(bench: &mut Bench<'_>, place: &mut Place) -> Result<()> {
    let host = Host::new(client_threads())?;
    let mut compared = Vec::new();
    for (entry, ratio, database) in [(Entry::Slot, "", "entry_slot"), (Entry::Row, "of_rows", "entry_row")] {
        make(place, database, &[tree::tables(), entry.tables()].concat()).await?;
        let address = host.serve(entries::router(place.config(database)?, entry)).await?;
        compared.push(Compared::new(entry.name(), ratio, database, Target::Http(address, tree::body)));
    }
    in_turns(bench, "undo entries", &mut compared).await?;
    complete(place, "undo entries", &compared).await?;
    record(bench, place, "undo entries", &compared);
    Ok(())
}

/// The purchase over three databases.
pub(super) async fn purchase(bench: &mut Bench<'_>, place: &mut Place) -> Result<()> {
    let parts = (0..SITES.len()).map(|site| (SITES[site], purchase::component(site)));
    let components = Components::start(place, "composite_", client_threads(), parts.collect()).await?;
    let composite = Target::Http(components.address(), purchase::body);
    let mut compared = vec![Compared::new("composite", "", "composite_", composite)];
    let host = Host::new(client_threads())?;
    for (name, ratio, prefix, atomicity) in [
        ("2PC over HTTP", "of_http", "http_", Atomicity::TwoPhase(Decision::Textbook)),
        (
            "2PC over HTTP, last resource",
            "of_http_last",
            "http_last_",
            Atomicity::TwoPhase(Decision::LastResource),
        ),
        ("no atomicity over HTTP", "of_none", "none_", Atomicity::None),
    ] {
        let configs = sites(place, prefix).await?;
        let address = by_hand::start(&host, configs, atomicity, prefix).await?;
        compared.push(Compared::new(name, ratio, prefix, Target::Http(address, purchase::body)));
    }
    for (name, ratio, prefix, decision) in [
        ("2PC, direct", "of_direct", "direct_", Decision::Textbook),
        ("2PC, direct, last resource", "of_direct_last", "direct_last_", Decision::LastResource),
    ] {
        let configs = sites(place, prefix).await?;
        let direct = Box::new(Direct { configs, decision, run: (0, 0) });
        compared.push(Compared::new(name, ratio, prefix, Target::Direct(direct)));
    }
    if !bench.args.without_peers {
        for peer in Peer::ALL {
            compared.extend(started(bench, place, peer).await?);
        }
    }
    in_turns(bench, "purchase", &mut compared).await?;
    components.settle().await?;
    for one in compared.iter_mut().filter(|one| !one.is_given_up) {
        let outcome = check(place, one.prefix, one.acknowledged()).await;
        one.unless_other(bench, outcome)?;
    }
    let given_up = compared.iter().filter(|one| one.is_given_up);
    let given_up: Vec<&str> = given_up.map(|one| one.prefix).collect();
    compared.retain(|one| !one.is_given_up);
    place.nothing_in_doubt(&given_up).await?;
    record(bench, place, "purchase", &compared);
    components.stop().await
}

/// Another system on databases of its own, if it can be had.
async fn started(bench: &mut Bench<'_>, place: &mut Place, peer: Peer) -> Result<Option<Compared>> {
    let prefix = peer.prefix();
    sites(place, prefix).await?;
    let mut urls: [String; 4] = Default::default();
    for (url, name) in urls.iter_mut().zip(SITES.into_iter().chain(["system"])) {
        *url = place.database(&format!("{prefix}{name}")).await?.0;
    }
    let directory = bench.args.server.directory.as_deref();
    match Program::start(peer, &urls, bench.args.clients, directory).await {
        Ok(program) => {
            let program = Target::Program(Box::new(program));
            Ok(Some(Compared::new(peer.name(), peer.ratio(), prefix, program)))
        }
        Err(error) => bench.goes_without(peer.name(), error).map(|()| None),
    }
}

/// Makes the databases and tables of a purchase that is written by hand, or another system's.
async fn sites(place: &mut Place, prefix: &str) -> Result<[tokio_postgres::Config; 3]> {
    for (site, name) in SITES.iter().enumerate() {
        let mut statements = purchase::tables(site);
        if site == 0 {
            statements.extend(DECISIONS.map(str::to_owned));
        }
        make(place, &format!("{prefix}{name}"), &statements).await?;
    }
    let config = |site: usize| place.config(&format!("{prefix}{}", SITES[site]));
    Ok([config(0)?, config(1)?, config(2)?])
}

/// Each purchase that was answered is at each site, and no other.
pub(super) async fn check(place: &Place, prefix: &str, acknowledged: u64) -> Result<()> {
    for (site, name) in SITES.iter().enumerate() {
        let found = place.number(&format!("{prefix}{name}"), &purchase::count(site)).await?;
        if found != acknowledged as i64 {
            return Err(wrong("purchase", &format!("{prefix}{name}"), acknowledged, found));
        }
    }
    Ok(())
}
