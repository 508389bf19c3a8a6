//! List-append histories: each row is a list that transactions read, and append to. A list tells
//! all of its versions in their order, so whoever reads one knows what came before it; the oracle
//! is asked the rest.
//!
//! ```text
//! T1: append 7 to x     x: 1, 7        T2: reads x: 1, 7     T3: append 9 to x     x: 1, 7, 9
//! ```
//!
//! One task drives all sessions, in an order that follows from the seed.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

use cognate::{Database, Method, Options, Session};
use cognate_harness::checker::history::{
    Abort, Event, History, Object, Outcome, Predicate, Scan, Stamp, Transaction, Write, stamp, writer,
};
use cognate_harness::checker::verdict::Verdict;
use cognate_harness::random::Random;
use cognate_harness::workload::recorded::stage;

use super::{first_seed, judge};

const CLIENTS: usize = 6;
const LISTS: i64 = 8;
const TRANSACTIONS: u64 = 80;
const SEEDS: u64 = 40;

/// One statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Begin,
    Read(i64),
    Append(i64),
    Commit,
    Rollback,
}

impl Deed {
    fn text(self, element: Stamp) -> String {
        match self {
            Deed::Begin => "BEGIN ISOLATION LEVEL SERIALIZABLE".to_owned(),
            Deed::Read(list) => format!("SELECT elements FROM list WHERE id = {list}"),
            Deed::Append(list) => format!(
                "UPDATE list SET elements = elements || ',{element}' WHERE id = {list} RETURNING elements"
            ),
            Deed::Commit => "COMMIT".to_owned(),
            Deed::Rollback => "ROLLBACK".to_owned(),
        }
    }
}

/// The first value of an answer, or SQLSTATE and message.
type Answer = Result<Option<String>, (&'static str, String)>;
type Running = Pin<Box<dyn Future<Output = (Session, Answer)>>>;

struct Client {
    idle: Option<Session>,
    running: Option<Running>,
    /// The engine's transaction that waits for a lock.
    waits: Option<u64>,
    deeds: VecDeque<Deed>,
    doing: Deed,
    asked: u64,
    open: Transaction,
    appended: u64,
}

/// A list that a transaction was shown.
struct Shown {
    reader: u64,
    list: i64,
    elements: Vec<Stamp>,
}

struct World {
    database: Database,
    random: Random,
    clients: Vec<Client>,
    begun: u64,
    ticks: u64,
    history: History,
    shown: Vec<Shown>,
}

fn object(list: i64) -> Object {
    Object { table: 0, key: list }
}

fn new_transaction(id: u64) -> Transaction {
    Transaction {
        id,
        events: Vec::new(),
        outcome: Outcome::Committed,
        snapshot: 0,
        first: 0,
        commit: None,
        began: 0,
        placed: 0,
        asked: 0,
        answered: 0,
    }
}

fn elements(text: &str) -> Vec<Stamp> {
    text.split(',').map(|element| element.parse().unwrap()).collect()
}

impl World {
    async fn new(method: Method, seed: u64) -> World {
        let database = stage::open(|options| Options { serializable: method, ..options }).await.unwrap();
        let mut session = database.session().unwrap();
        let table = "CREATE TABLE list (id bigint PRIMARY KEY, elements text NOT NULL)";
        session.execute_async(table, &[]).await.unwrap();
        let mut history = History::default();
        for list in 1..=LISTS {
            let first = stamp(0, list as u64);
            let text = format!("INSERT INTO list VALUES ({list}, '{first}')");
            session.execute_async(text.as_str(), &[]).await.unwrap();
            let row = Some(vec![list]);
            history.loaded.push(Write { object: object(list), stamp: first, replaced: None, row });
        }
        let client = |_| Client {
            idle: Some(database.session().unwrap()),
            running: None,
            waits: None,
            deeds: VecDeque::new(),
            doing: Deed::Rollback,
            asked: 0,
            open: new_transaction(0),
            appended: 0,
        };
        let clients = (0..CLIENTS).map(client).collect();
        let random = Random::new(seed);
        World { database, random, clients, begun: 0, ticks: 0, history, shown: Vec::new() }
    }

    fn tick(&mut self) -> u64 {
        self.ticks += 1;
        self.ticks
    }

    /// The statements of one transaction: about as many reads as appends.
    fn deeds(&mut self) -> VecDeque<Deed> {
        let count = self.random.between(1, 4);
        let deed = |_| {
            let list = self.random.between(1, LISTS);
            if self.random.chance(50) { Deed::Read(list) } else { Deed::Append(list) }
        };
        let middle: Vec<Deed> = (0..count).map(deed).collect();
        [vec![Deed::Begin], middle, vec![Deed::Commit]].concat().into()
    }

    /// Runs until all transactions have ended.
    async fn run(&mut self) {
        loop {
            let is_ready = |client: &Client| {
                client.running.is_none() && (self.begun < TRANSACTIONS || !client.deeds.is_empty())
            };
            let ready: Vec<usize> = (0..CLIENTS).filter(|&at| is_ready(&self.clients[at])).collect();
            if ready.is_empty() {
                break;
            }
            let at = self.random.pick(&ready);
            self.start(at);
            self.poll(at).await;
            // Whoever has waited for it goes on.
            let mut goes_on = true;
            while goes_on {
                goes_on = false;
                for at in 0..CLIENTS {
                    goes_on |= self.clients[at].running.is_some() && self.poll(at).await;
                }
            }
        }
        assert!(self.clients.iter().all(|client| client.running.is_none()), "somebody waits for nobody");
    }

    /// Sends a client's next statement.
    fn start(&mut self, at: usize) {
        if self.clients[at].deeds.is_empty() {
            self.begun += 1;
            self.clients[at].deeds = self.deeds();
            self.clients[at].open = new_transaction(self.begun);
            self.clients[at].appended = 0;
        }
        let now = self.tick();
        let client = &mut self.clients[at];
        let deed = client.deeds.pop_front().unwrap();
        // BEGIN takes no snapshot: the first statement after it begins the transaction.
        if client.doing == Deed::Begin {
            client.open.began = now;
        }
        (client.doing, client.asked) = (deed, now);
        client.appended += u64::from(matches!(deed, Deed::Append(_)));
        let text = deed.text(stamp(client.open.id, client.appended));
        let mut session = client.idle.take().unwrap();
        client.running = Some(Box::pin(async move {
            let answer = match session.query_async(text.as_str(), &[]).await {
                Ok(rows) => Ok(rows.first().and_then(|row| row.text(0).unwrap())),
                Err(error) => Err((error.sqlstate, error.message.clone())),
            };
            (session, answer)
        }));
    }

    fn waiting(&self) -> Vec<u64> {
        let running = self.database.sql().engine().transactions().into_iter();
        running.filter(|running| running.waits_for.is_some()).map(|running| running.id).collect()
    }

    /// Goes on with a client's statement until it is answered (true) or waits for a lock.
    async fn poll(&mut self, at: usize) -> bool {
        let mut running = self.clients[at].running.take().unwrap();
        let (before, known) = (self.waiting(), self.clients[at].waits);
        let ended = std::future::poll_fn(|context| match running.as_mut().poll(context) {
            Poll::Ready(ended) => Poll::Ready(Ok(ended)),
            Poll::Pending => {
                let now = self.waiting();
                let mine = known.filter(|id| now.contains(id));
                match mine.or_else(|| now.into_iter().find(|id| !before.contains(id))) {
                    Some(id) => Poll::Ready(Err(id)),
                    None => Poll::Pending,
                }
            }
        })
        .await;
        match ended {
            Ok((session, answer)) => {
                (self.clients[at].idle, self.clients[at].waits) = (Some(session), None);
                self.note(at, answer);
                true
            }
            Err(id) => {
                (self.clients[at].running, self.clients[at].waits) = (Some(running), Some(id));
                false
            }
        }
    }

    /// Records what a client was answered.
    fn note(&mut self, at: usize, answer: Answer) {
        let now = self.tick();
        let client = &mut self.clients[at];
        let id = client.open.id;
        match (client.doing, answer) {
            (Deed::Begin | Deed::Rollback, Ok(_)) => {}
            (Deed::Commit, Ok(_)) => self.end(at, Outcome::Committed, now),
            (Deed::Read(list), Ok(Some(text))) => {
                let elements = elements(&text);
                let seen = vec![(list, *elements.last().unwrap())];
                let predicate = Predicate::key(object(list));
                client.open.events.push(Event::Scan(Scan { predicate, seen, snapshot: 0 }));
                self.shown.push(Shown { reader: id, list, elements });
            }
            (Deed::Append(list), Ok(Some(text))) => {
                let elements = elements(&text);
                let [.., replaced, own] = elements[..] else { panic!("{elements:?}") };
                let (object, replaced, row) = (object(list), Some(replaced), Some(vec![list]));
                client.open.events.push(Event::Write(Write { object, stamp: own, replaced, row }));
                self.shown.push(Shown { reader: id, list, elements });
            }
            (doing, Err((sqlstate, message))) => {
                let abort = Abort::classify(sqlstate, &message);
                assert_ne!(abort, Abort::Client, "{doing:?}: {sqlstate} {message}");
                client.deeds.clear();
                if doing != Deed::Commit {
                    client.deeds.push_back(Deed::Rollback);
                }
                self.end(at, Outcome::Aborted(abort), now);
            }
            (doing, Ok(None)) => panic!("{doing:?} found nothing"),
        }
    }

    fn end(&mut self, at: usize, outcome: Outcome, answered: u64) {
        let client = &self.clients[at];
        let mut ended = client.open.clone();
        (ended.outcome, ended.asked, ended.answered) = (outcome, client.asked, answered);
        // Nobody has asked when it took its first snapshot.
        ended.placed = answered;
        self.history.transactions.push(ended);
    }

    /// What was shown is the beginning of what the lists are in the end, but for what a transaction
    /// that did not commit saw of its own; and nothing was lost, or is there twice.
    async fn check_lists(&self) {
        let mut session = self.database.session().unwrap();
        let committed = self.history.transactions.iter().filter(|transaction| transaction.committed());
        let committed: BTreeMap<u64, &Transaction> = committed.map(|one| (one.id, one)).collect();
        for list in 1..=LISTS {
            let text = Deed::Read(list).text(0);
            let rows = session.query_async(text.as_str(), &[]).await.unwrap();
            let last = elements(&rows[0].text(0).unwrap().unwrap());
            for shown in self.shown.iter().filter(|shown| shown.list == list) {
                let is_own = |element: &&Stamp| writer(**element) == shown.reader;
                let own = shown.elements.iter().filter(is_own).count();
                let stands = committed.contains_key(&shown.reader);
                let counts = shown.elements.len() - if stands { 0 } else { own };
                let others = &shown.elements[..counts];
                assert!(
                    last.starts_with(others),
                    "list {list}: T{} saw {others:?} of {last:?}",
                    shown.reader
                );
            }
            let appends = committed.values().flat_map(|one| &one.events);
            let is_here = |event: &&Event| matches!(event, Event::Write(write) if write.object.key == list);
            assert_eq!(last.len(), 1 + appends.filter(is_here).count(), "list {list}: {last:?}");
        }
    }
}

/// How many of the runs are out of the order of real time.
fn runs(method: Method) -> usize {
    let first = first_seed();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (mut committed, mut aborted, mut out_of_time) = (0, 0, 0);
    for seed in first..first + SEEDS {
        let history = runtime.block_on(async {
            let mut world = World::new(method, seed).await;
            world.run().await;
            world.check_lists().await;
            world.history
        });
        let verdict: Verdict = judge(method, &history);
        let needless = [&verdict.needless[..], &verdict.conflicts.needless[..]].concat();
        assert!(verdict.serializable(), "COGNATE_SEED={seed}: {method:?}: {verdict}");
        assert!(needless.is_empty(), "COGNATE_SEED={seed}: {method:?}: {needless:?}: {verdict}");
        assert_eq!(history.transactions.len() as u64, TRANSACTIONS, "COGNATE_SEED={seed}");
        out_of_time += usize::from(!verdict.strictly_serializable());
        committed += verdict.committed;
        aborted += verdict.aborted.values().sum::<usize>();
    }
    println!("{method:?}: {committed} committed, {aborted} aborted, {out_of_time} runs out of time");
    assert!(committed > aborted, "{committed} committed, {aborted} aborted");
    out_of_time
}

#[test]
fn list_append_histories_are_strict_where_that_is_promised() {
    assert_eq!(runs(Method::Strict), 0);
    assert!(runs(Method::Pssi) > 0, "the load would find what strictness prevents");
}
