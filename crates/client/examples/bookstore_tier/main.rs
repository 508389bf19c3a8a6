//! A bookstore in three tiers: clients, application servers, and database sites: one with the
//! store, one with the payments, and, if wanted, one for delivery. A purchase changes all of them,
//! and happens exactly once, although application servers are killed and paused while it is under
//! way.
//!
//! ```text
//! cargo run -p cognate-client --example bookstore_tier            # a few hundred purchases under fire, and the judgement
//! cargo run -p cognate-client --example bookstore_tier -- --serve # only runs, to be called with curl
//! cargo run --release -p cognate-client --example bookstore_tier -- --buys 10000 --clients 16 --sites 3 --kill-sites --havoc   # the long trial
//! ```
//!
//! Everything runs on loopback, in temporary folders. `processes` starts and ends sites and
//! application servers (which are this program, too), `shop` is the request's logic and its tables,
//! `fire` kills and pauses, `judge` counts at the end.

mod fire;
mod judge;
mod processes;
mod shop;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use cognate_client::application::{ApplicationServer, Options, Patience};
use cognate_client::backoff::Backoff;
use cognate_client::http::{self, ClientOptions, EtxClient};
use cognate_client::postgres::PostgresSite;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use judge::{Bought, judge};
use processes::{Servers, Sites};

/// What goes wrong here is told and ends the program.
type Error = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, Parser)]
#[command(about = "A bookstore whose purchases happen exactly once at two sites")]
struct Arguments {
    /// Only run, to be called with curl.
    #[arg(long)]
    serve: bool,
    /// The `cognate` binary; beside this program if none, and built if it is not there.
    #[arg(long)]
    cognate: Option<PathBuf>,
    /// Databases that run already, store and payment, and delivery if there is a third, as
    /// PostgreSQL connection strings. Their bookstore is dropped and made again.
    #[arg(long, num_args = 1)]
    site: Vec<String>,
    /// Databases to start: 2, or 3 with one for delivery.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(2..=3))]
    sites: u8,
    /// Application servers.
    #[arg(long, default_value_t = 3)]
    servers: usize,
    /// Purchases.
    #[arg(long, default_value_t = 300)]
    buys: u64,
    /// Clients at a time.
    #[arg(long, default_value_t = 8)]
    clients: usize,
    /// Nothing is killed or paused.
    #[arg(long)]
    peace: bool,
    /// Sites are killed and started again, too.
    #[arg(long)]
    kill_sites: bool,
    /// Some clients send their request twice at the same time, and some go away before they have an
    /// answer.
    #[arg(long)]
    havoc: bool,
    /// Determines purchases and victims; chosen and printed if none.
    #[arg(long)]
    seed: Option<u64>,
    /// Further arguments of `cognate serve`.
    #[arg(long, allow_hyphen_values = true)]
    site_argument: Vec<String>,
    /// For the program itself: be an application server at this address.
    #[arg(long, hide = true)]
    application_server: Option<String>,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let arguments = Arguments::parse();
    match &arguments.application_server {
        Some(address) => application_server(address, &arguments.site).await,
        None => tokio::select! {
            done = tier(arguments) => done,
            // Whatever was started ends with what is dropped here.
            () = ended() => Ok(()),
        },
    }
}

/// Ctrl-C, or a request to end.
async fn ended() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else { return std::future::pending().await };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

/// The role of an application server: all of it.
async fn application_server(address: &str, sites: &[String]) -> Result<(), Error> {
    let sites = sites.iter().map(|site| site.parse()).collect::<Result<Vec<PostgresSite>, _>>()?;
    let patience = Patience { logic: Duration::from_secs(5), ..Patience::default() };
    let server = ApplicationServer::new(sites, Options { patience, ..Options::default() });
    let listener = TcpListener::bind(address).await?;
    http::serve(listener, http::router(server, shop::buy_confirm), std::future::pending()).await?;
    Ok(())
}

async fn tier(arguments: Arguments) -> Result<(), Error> {
    let seed = arguments.seed.unwrap_or_else(rand::random);
    println!("seed {seed}");
    let ports = processes::free_ports(arguments.servers.max(1))?;
    let mut sites = match arguments.site.as_slice() {
        [] => {
            let (count, binary) = (usize::from(arguments.sites), arguments.cognate.as_deref());
            Sites::start(count, binary, &arguments.site_argument, &ports).await?
        }
        given @ ([_, _] | [_, _, _]) => Sites::given(given.to_vec()),
        _ => return Err("two or three sites are needed: --site STORE --site PAYMENT".into()),
    };
    shop::create(sites.addresses()).await?;
    let mut servers = Servers::start(ports, sites.addresses()).await?;
    if arguments.serve {
        return serve(&sites, &servers).await;
    }
    let options = ClientOptions {
        attempts_max: 12,
        backoff: Backoff {
            patience: Duration::from_secs(1),
            patience_max: Duration::from_secs(10),
            pause_max: Duration::from_secs(1),
            ..Backoff::default()
        },
    };
    let client = EtxClient::new(servers.urls(), options)?;
    let begun = Instant::now();
    let mut random = StdRng::seed_from_u64(seed);
    let buying = buy(&client, &arguments, StdRng::seed_from_u64(random.random()));
    let purchases = match arguments.peace {
        true => buying.await,
        false => {
            let kill_sites = arguments.kill_sites && sites.are_ours();
            fire::under(&mut servers, &mut sites, kill_sites, &mut random, buying).await?
        }
    };
    let seconds = begun.elapsed().as_secs_f64();
    let unanswered = purchases.iter().filter(|bought| bought.answer.is_err()).count();
    println!("{} purchases in {seconds:.1} s; {unanswered} without an answer so far", purchases.len());
    // In peace, whoever has no answer gets it now, under the same XID.
    let purchases = ask_again(&client, purchases).await;
    judge(sites.addresses(), &purchases).await?;
    // The answers are safe now: the sites may forget them.
    let answered = purchases.iter().filter(|bought| bought.answer.is_ok());
    let mut forgotten = 0;
    for bought in answered {
        forgotten += usize::from(client.acknowledge(&bought.xid).await.is_ok());
    }
    println!("{forgotten} answers acknowledged and forgotten");
    Ok(())
}

async fn serve(sites: &Sites, servers: &Servers) -> Result<(), Error> {
    for (name, address) in ["store    ", "payment  ", "delivery "].iter().zip(sites.addresses()) {
        println!("{name}{address}");
    }
    for url in servers.urls() {
        println!("server   {url}");
    }
    let first = &servers.urls()[0];
    println!(
        "\ncurl -i {first}/etx -H 'Idempotency-Key: me/1' -d 'buy 7 12 2'   # customer, item, how many; as often as you like"
    );
    println!("curl -i -X DELETE {first}/etx/me/1\ncurl -i {first}/healthz\n\nCtrl-C ends it");
    std::future::pending().await
}

/// Has all purchases made by `clients` at a time.
async fn buy(client: &EtxClient, arguments: &Arguments, mut random: StdRng) -> Vec<Bought> {
    let requests: Arc<[String]> = (0..arguments.buys).map(|_| shop::random_request(&mut random)).collect();
    let next = Arc::new(AtomicU64::new(0));
    let mut clients = JoinSet::new();
    for _ in 0..arguments.clients.max(1) {
        let (client, next, requests) = (client.clone(), Arc::clone(&next), Arc::clone(&requests));
        let (havoc, mut random) = (arguments.havoc, StdRng::seed_from_u64(random.random()));
        clients.spawn(async move {
            let mut done = Vec::new();
            while let Some(request) = requests.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                done.push(match havoc {
                    true => havoc_of(&client, request, &mut random).await,
                    false => once(&client, request).await,
                });
            }
            done
        });
    }
    clients.join_all().await.into_iter().flatten().collect()
}

async fn once(client: &EtxClient, request: &str) -> Bought {
    let xid = client.fresh_xid();
    let answer = told(client.execute_as(&xid, request).await);
    Bought { xid, request: request.to_owned(), answer, is_abandoned: false }
}

fn told(answer: Result<http::Answer, http::EtxError>) -> Result<String, String> {
    answer.map(|answer| answer.result().to_owned()).map_err(|error| error.to_string())
}

/// One request in ten is sent twice at the same time, with the same instance numbers; one in ten is
/// given up after a moment.
async fn havoc_of(client: &EtxClient, request: &str, random: &mut StdRng) -> Bought {
    match random.random_range(0..10) {
        0 => {
            let xid = client.fresh_xid();
            let (one, other) =
                tokio::join!(client.execute_as(&xid, request), client.execute_as(&xid, request));
            let (one, other) = (told(one), told(other));
            let answer = match (one, other) {
                (Ok(one), Ok(other)) if one != other => Ok(format!("{one}, and {other}")),
                (Ok(answer), _) | (_, Ok(answer)) => Ok(answer),
                (Err(why), Err(_)) => Err(why),
            };
            Bought { xid, request: request.to_owned(), answer, is_abandoned: false }
        }
        1 => {
            let (xid, moment) = (client.fresh_xid(), Duration::from_millis(random.random_range(0..40)));
            let answer = tokio::time::timeout(moment, client.execute_as(&xid, request)).await;
            let is_abandoned = answer.is_err();
            let answer = answer.map_or_else(|_| Err("given up".to_owned()), told);
            Bought { xid, request: request.to_owned(), answer, is_abandoned }
        }
        _ => once(client, request).await,
    }
}

async fn ask_again(client: &EtxClient, purchases: Vec<Bought>) -> Vec<Bought> {
    let mut asked = Vec::with_capacity(purchases.len());
    for mut bought in purchases {
        if bought.answer.is_err() && !bought.is_abandoned {
            bought.answer = told(client.execute_as(&bought.xid, &bought.request).await);
        }
        asked.push(bought);
    }
    asked
}
