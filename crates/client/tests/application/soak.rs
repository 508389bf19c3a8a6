//! Many requests at once over three sites and three application servers, with everything that can
//! go wrong at random: faults at the sites, servers that are killed in the middle, calls that are
//! lost, repeated or answered to nobody.
//!
//! At the end the stubs' part is played once for what is left prepared. Then every answered request
//! has happened once, at every site, as it was answered; every other one at most once, and at all
//! sites or none; nothing is in doubt.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cognate_client::application::ApplicationServer;
use cognate_client::backoff::Backoff;
use cognate_client::etransaction::{Client, ClientEffect, Finished, Refused, Reply};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::fake::{FakeSite, Fault, Point};
use crate::{SECOND, options, settled, write};

const SITES: usize = 3;
const SERVERS: usize = 3;
const CLIENTS: u64 = 4;
const REQUESTS: u64 = 60;

/// An application server that can be killed: whatever it is doing stops where it is, and it begins
/// anew.
#[derive(Clone)]
struct Mortal {
    server: ApplicationServer<FakeSite>,
    life: watch::Sender<u64>,
}

impl Mortal {
    async fn run(&self, xid: &str, instance: i64, request: &str) -> Option<Reply> {
        let mut life = self.life.subscribe();
        life.mark_unchanged();
        tokio::select! {
            reply = self.server.run(xid, instance, request, &write) => reply.ok(),
            _ = life.changed() => None,
        }
    }
}

fn fault(random: &mut StdRng) -> (Point, Fault) {
    let points = [
        Point::Connect,
        Point::Begin,
        Point::Logic,
        Point::Prepare,
        Point::Commit,
        Point::Rollback,
        Point::Prepare,
        Point::Commit,
    ];
    let point = points[random.random_range(0..points.len())];
    let pause = Duration::from_millis(random.random_range(1..3000));
    let fault = match random.random_range(0..12) {
        0..3 => Fault::LoseRequest,
        3..6 => Fault::LoseReply,
        6..8 => Fault::Slow(pause),
        8..10 => Fault::LateReply(pause),
        10 => Fault::Crash,
        _ => Fault::Refuse(Refused::Failed("a full disk".into())),
    };
    (point, fault)
}

/// A request of a client that drives the pure protocol over servers that may not answer.
async fn pursue(servers: Arc<[Mortal]>, xid: String, mut random: StdRng) -> Finished {
    let backoff = Backoff { patience: SECOND * 2, pause: Duration::from_millis(20), ..Backoff::default() };
    let mut client = Client::new(SERVERS, 12, backoff);
    let mut replies = JoinSet::new();
    let mut timer = (0, Instant::now());
    let mut effect = client.start(random.random());
    loop {
        match effect.take() {
            Some(ClientEffect::Finish(finished)) => return finished,
            Some(ClientEffect::Send { attempt, server, instance, pause, patience }) => {
                timer = (attempt, Instant::now() + pause + patience);
                let (is_lost, is_unheard) = (random.random_bool(0.05), random.random_bool(0.1));
                let copies = if random.random_bool(0.15) { 2 } else { 1 };
                for copy in 0..copies {
                    let (servers, xid) = (Arc::clone(&servers), xid.clone());
                    let late = Duration::from_millis(random.random_range(0..3000) * copy);
                    let running = async move {
                        sleep(pause + late).await;
                        if is_lost {
                            return (attempt, None);
                        }
                        let server = &servers[(server + copy as usize) % SERVERS];
                        let reply = server.run(&xid, instance, "buy").await;
                        (attempt, reply.filter(|_| !is_unheard))
                    };
                    // A copy goes on although its client has finished.
                    if copy > 0 { drop(tokio::spawn(running)) } else { drop(replies.spawn(running)) }
                }
            }
            None => {}
        }
        effect = tokio::select! {
            Some(Ok((attempt, reply))) = replies.join_next() => match reply {
                Some(reply) => client.replied(attempt, reply, random.random()),
                None => None,
            },
            () = sleep_until(timer.1) => client.timed_out(timer.0, random.random()),
        };
    }
}

async fn soak(seed: u64) {
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let sites: [FakeSite; SITES] = std::array::from_fn(|_| FakeSite::default());
    let mortal = |_| {
        let server = ApplicationServer::new(sites.clone(), options());
        Mortal { server, life: watch::channel(0).0 }
    };
    let servers: Arc<[Mortal]> = (0..SERVERS).map(mortal).collect();
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let servers = Arc::clone(&servers);
        let mut random = StdRng::seed_from_u64(random.random());
        clients.spawn(async move {
            let mut finished = Vec::new();
            for number in 1..=REQUESTS {
                let xid = format!("c{client}/{number}");
                let random = StdRng::seed_from_u64(random.random());
                finished.push((xid.clone(), pursue(Arc::clone(&servers), xid, random).await));
            }
            finished
        });
    }
    let mut finished: BTreeMap<String, Finished> = BTreeMap::new();
    let mut kill_at = Instant::now() + SECOND;
    loop {
        let (site, (point, fault)) = (random.random_range(0..SITES), fault(&mut random));
        tokio::select! {
            joined = clients.join_next() => match joined {
                Some(list) => finished.extend(list.expect("no client panics")),
                None => break,
            },
            () = sleep(Duration::from_millis(random.random_range(0..300))) => {
                // In the place of one that has not struck.
                let mut database = sites[site].lock();
                database.heal();
                database.order(point, fault);
            }
        }
        if Instant::now() > kill_at {
            kill_at = Instant::now() + SECOND;
            servers[random.random_range(0..SERVERS)].life.send_modify(|life| *life += 1);
        }
    }
    sites.iter().for_each(|site| site.lock().heal());
    // Copies and late runs.
    sleep(SECOND * 100).await;
    judge(&sites, &servers[0].server, &finished).await;
}

async fn judge(
    sites: &[FakeSite],
    server: &ApplicationServer<FakeSite>,
    finished: &BTreeMap<String, Finished>,
) {
    settled(sites, &[]).await;
    let left: Vec<String> = sites.iter().flat_map(|site| site.lock().in_doubt()).collect();
    for xid in &left {
        let reply = server.answer(xid, "buy", &write).await.expect("good");
        assert!(matches!(reply, Reply::Done { .. }), "{xid}: {reply:?}");
    }
    settled(sites, &[]).await;
    let (mut answered, mut unanswered) = (0, 0);
    let first = sites[0].lock().lines.clone();
    let mut sorted = first.clone();
    sorted.sort();
    for site in sites {
        let mut lines = site.lock().lines.clone();
        lines.sort();
        assert_eq!(lines, sorted, "the sites differ");
        assert_eq!(site.lock().undecided(), 0, "in doubt");
    }
    for (xid, finished) in finished {
        let happened: Vec<&String> =
            first.iter().filter(|line| line.starts_with(&format!("{xid} "))).collect();
        match finished {
            Ok(result) => {
                answered += 1;
                assert_eq!(happened, [&**result], "{xid}");
            }
            Err(_) => {
                unanswered += 1;
                assert!(happened.len() <= 1, "{xid}: {happened:?}");
            }
        }
    }
    println!("{answered} answered, {unanswered} not; {} were left to the stubs", left.len());
    assert!(answered > unanswered * 10);
}

#[tokio::test(start_paused = true)]
async fn everything_happens_once_whatever_goes_wrong() {
    for seed in 1..=20 {
        soak(seed).await;
    }
}
