//! Clients at all nodes of a cluster who append to lists and move money, and what must be true of
//! what they saw, whatever happened to the nodes meanwhile.
//!
//! A transaction reads a list, appends its own number to two others, and moves money between two
//! accounts, as one message, by a protocol that is drawn; or it reads everything. Who gets no
//! answer asks again under the same name, so that it happens once; so does who has lost the
//! connection to a node that was killed, once that is there again. At the end the lists say in
//! which order everybody wrote, and reads say where between them everybody has read.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Condvar, Mutex};
use std::thread::{self, Scope};

use cognate_env::SplitMix;

use crate::cluster::{Cluster, SIZE, retried, rows};
use crate::wire::{Failure, Rows, Wire};

pub(crate) const PROTOCOLS: [&str; 4] = ["active", "certification", "weak_voting", "auto"];
const LISTS: usize = 8;
const ACCOUNTS: usize = 8;
/// Numbers of a client's transactions begin at its own number times this.
const SPAN: usize = 1_000_000;

/// A transaction that was acknowledged, or has perhaps happened.
#[derive(Debug, Clone)]
struct Deed {
    id: usize,
    appended: Vec<usize>,
    /// Lists, and what was read of them; unknown if the answer was lost.
    read: Vec<(usize, Vec<usize>)>,
    sum: Option<i64>,
}

#[derive(Debug, Default)]
struct Ledger {
    deeds: Vec<Deed>,
    /// How many transactions each client may do, and has done, by client.
    allowed: usize,
    done: BTreeMap<usize, usize>,
    /// How often a node has refused to write because it hears no majority.
    refused: [usize; SIZE],
    /// Where each node is; nowhere while it is down.
    addresses: [Option<SocketAddr>; SIZE],
    /// How often each node was killed.
    killed: [usize; SIZE],
    is_over: bool,
    /// A client, or who conducts them, has found something wrong.
    has_failed: bool,
}

/// What clients and who conducts them share.
#[derive(Debug)]
pub(crate) struct Crew {
    level: &'static str,
    token: String,
    ledger: Mutex<Ledger>,
    changed: Condvar,
}

impl Crew {
    /// Makes the tables.
    pub(crate) fn new(cluster: &Cluster, level: &'static str) -> Crew {
        let mut wire = cluster.connect(1);
        for text in [
            "CREATE TABLE list (key int PRIMARY KEY, items text NOT NULL)".to_owned(),
            "CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL)".to_owned(),
            format!("INSERT INTO list SELECT n, '' FROM generate_series(0, {}) n", LISTS - 1),
            format!("INSERT INTO account SELECT n, 100 FROM generate_series(0, {}) n", ACCOUNTS - 1),
        ] {
            retried(&mut wire, &text);
        }
        let token = rows(&mut wire, "SHOW cognate.commit_token")[0][0].clone();
        let addresses = std::array::from_fn(|at| Some(cluster.address(at + 1)));
        let ledger = Mutex::new(Ledger { addresses, ..Ledger::default() });
        Crew { level, token, ledger, changed: Condvar::new() }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Ledger) -> T) -> T {
        let result = change(&mut self.ledger.lock().expect("no panic"));
        self.changed.notify_all();
        result
    }

    /// Waits until something is so, or a client has failed.
    fn until(&self, is_so: impl Fn(&Ledger) -> bool) {
        let ledger = self.ledger.lock().expect("no panic");
        let is_not = |ledger: &mut Ledger| !is_so(ledger) && !ledger.has_failed;
        drop(self.changed.wait_while(ledger, is_not).expect("no panic"));
    }

    /// For who conducts, once nobody is held up any more.
    pub(crate) fn assert_well(&self) {
        let has_failed = self.change(|ledger| ledger.has_failed);
        assert!(!has_failed, "a client has failed");
    }

    /// Starts a client at a node. It waits to be allowed to do anything.
    pub(crate) fn hire<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        cluster: &Cluster,
        node: usize,
        protocols: &'static [&'static str],
        seed: u64,
    ) {
        let address = cluster.address(node);
        let (client, life) = self.change(|ledger| {
            // The last digit is its node.
            let client = ledger.done.len() * 10 + node;
            ledger.done.insert(client, ledger.allowed);
            (client, ledger.killed[node - 1])
        });
        let random = SplitMix::new(seed ^ ((client as u64) << 32));
        scope.spawn(move || {
            let _alarm = self.alarm();
            let wire = self.connect(address);
            Client { crew: self, client, protocols, random, wire, life }.run();
        });
    }

    /// To be held by everybody, who conducts included: if one fails, nobody waits for it.
    pub(crate) fn alarm(&self) -> Alarm<'_> {
        Alarm(self)
    }

    /// A session of a client.
    fn connect(&self, address: SocketAddr) -> Wire {
        let mut wire = Wire::connect(address).expect("connected");
        wire.query(&format!("SET cognate.read_after = '{}'", self.token)).expect("set");
        wire.query(&format!("SET default_transaction_isolation = '{}'", self.level)).expect("set");
        wire
    }

    /// A node is about to be killed: its clients lose their connections.
    pub(crate) fn lose(&self, node: usize) {
        self.change(|ledger| {
            ledger.addresses[node - 1] = None;
            ledger.killed[node - 1] += 1;
        });
    }

    /// It is there again.
    pub(crate) fn find(&self, node: usize, address: SocketAddr) {
        self.change(|ledger| ledger.addresses[node - 1] = Some(address));
    }

    /// Lets every client do so many transactions more, and waits until those of these nodes have.
    pub(crate) fn go_on(&self, times: usize, nodes: &[usize]) {
        self.change(|ledger| ledger.allowed += times);
        self.until(|ledger| {
            let is_meant = |client: &usize| nodes.contains(&(client % 10));
            ledger.done.iter().all(|(client, done)| !is_meant(client) || *done == ledger.allowed)
        });
    }

    /// Lets every client do so many transactions more, and waits for nobody.
    pub(crate) fn allow(&self, times: usize) {
        self.change(|ledger| ledger.allowed += times);
    }

    /// Waits until a node has refused to write once more.
    pub(crate) fn until_refused(&self, node: usize) {
        let before = self.change(|ledger| ledger.refused[node - 1]);
        self.until(|ledger| ledger.refused[node - 1] > before);
    }

    /// No client begins anything any more.
    pub(crate) fn end(&self) {
        self.change(|ledger| ledger.is_over = true);
    }

    /// Looks at what all nodes have, and at everything that was seen.
    pub(crate) fn judge(self, cluster: &Cluster) {
        let finally = cluster.assert_equal("SELECT key, items FROM list ORDER BY key");
        let finally: Vec<Vec<usize>> = finally.iter().map(|row| items(&row[1])).collect();
        let sum = cluster.assert_equal("SELECT sum(balance) FROM account");
        assert_eq!(sum, [[(100 * ACCOUNTS).to_string()]]);
        let ledger = self.ledger.into_inner().expect("no panic");
        println!("{} transactions, refused {:?}", ledger.deeds.len(), ledger.refused);
        judge(&ledger.deeds, &finally, self.level == "serializable");
    }
}

/// Who fails, a client or who conducts them, must not leave the others waiting.
pub(crate) struct Alarm<'a>(&'a Crew);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.change(|ledger| ledger.has_failed = true);
        }
    }
}

struct Client<'a> {
    crew: &'a Crew,
    client: usize,
    protocols: &'static [&'static str],
    random: SplitMix,
    wire: Wire,
    /// How often its node had been killed when it connected.
    life: usize,
}

impl Client<'_> {
    fn run(mut self) {
        for number in 0.. {
            let may = |ledger: &Ledger| ledger.done[&self.client] < ledger.allowed;
            self.crew.until(|ledger| ledger.is_over || may(ledger));
            if self.crew.change(|ledger| ledger.has_failed || !may(ledger)) {
                break;
            }
            let deed = self.act(self.client * SPAN + number);
            self.crew.change(|ledger| {
                ledger.deeds.push(deed);
                *ledger.done.get_mut(&self.client).expect("it was hired") += 1;
            });
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound as u64) as usize
    }

    /// One transaction, until it is acknowledged.
    fn act(&mut self, id: usize) -> Deed {
        let reads_all = self.random.one_in(6);
        let (read, first, account) = (self.below(LISTS), self.below(LISTS), self.below(ACCOUNTS));
        let second = (first + 1 + self.below(LISTS - 1)) % LISTS;
        let other = (account + 1 + self.below(ACCOUNTS - 1)) % ACCOUNTS;
        let (text, appended) = if reads_all {
            let text = "BEGIN; SELECT key, items FROM list ORDER BY key; \
                        SELECT -1, sum(balance) FROM account; COMMIT";
            (text.to_owned(), Vec::new())
        } else {
            let text = format!(
                "BEGIN; SELECT key, items FROM list WHERE key = {read}; \
                 UPDATE list SET items = items || '{id},' WHERE key = {first}; \
                 UPDATE list SET items = items || '{id},' WHERE key = {second}; \
                 UPDATE account SET balance = balance - 1 WHERE id = {account}; \
                 UPDATE account SET balance = balance + 1 WHERE id = {other}; COMMIT"
            );
            (text, vec![first, second])
        };
        let protocol = self.protocols[self.below(self.protocols.len())];
        let set = format!("SET cognate.replication = {protocol}; SET cognate.request_id = 'deed {id}'");
        let found = self.repeat(&set, &text);
        let (mut read, mut sum) = (Vec::new(), None);
        for row in found.into_iter().flatten() {
            let row: Vec<String> = row.into_iter().map(|value| value.expect("a value")).collect();
            match row[0].parse::<usize>() {
                Ok(key) => read.push((key, items(&row[1]))),
                Err(_) => sum = Some(row[1].parse().expect("a sum")),
            }
        }
        Deed { id, appended, read, sum }
    }

    /// What a transaction answered, for which the session is set up so; `None` if it has happened
    /// and the answer was lost.
    fn repeat(&mut self, set: &str, text: &str) -> Option<Rows> {
        let mut may_have_happened = false;
        loop {
            let failure = match self.wire.query(set).and_then(|_| self.wire.query(text)) {
                Ok(rows) => return Some(rows),
                Err(failure) => failure,
            };
            if failure == Failure::Broken && !self.crew.change(|ledger| ledger.has_failed) {
                may_have_happened = true;
                self.reconnect();
                continue;
            }
            // Where it fails, the transaction may be over already, or not.
            let _ = self.wire.query("ROLLBACK");
            match failure.sqlstate() {
                _ if self.crew.change(|ledger| ledger.has_failed) => return None,
                "40001" | "40P01" => {}
                "25006" => self.crew.change(|ledger| ledger.refused[self.client % 10 - 1] += 1),
                "08007" => may_have_happened = true,
                "42710" if may_have_happened => return None,
                _ => {
                    let (client, failure): (usize, Failure) = (self.client, failure);
                    panic!("client {client}: {failure:?} to {text}");
                }
            }
        }
    }

    /// Waits until its node, which was killed, is there again, and connects to it anew. Or a client
    /// has failed: then nobody goes on.
    fn reconnect(&mut self) {
        let (crew, node, life) = (self.crew, self.client % 10, self.life);
        let was_killed = crew.change(|ledger| ledger.killed[node - 1] > life || ledger.has_failed);
        assert!(was_killed, "client {}: node {node} has broken the connection", self.client);
        crew.until(|ledger| ledger.addresses[node - 1].is_some());
        let found = crew.change(|ledger| {
            let address = ledger.addresses[node - 1]?;
            Some((address, ledger.killed[node - 1]))
        });
        if let Some((address, life)) = found {
            (self.wire, self.life) = (crew.connect(address), life);
        }
    }
}

fn items(text: &str) -> Vec<usize> {
    text.split_terminator(',').map(|item| item.parse().expect("a number")).collect()
}

fn judge(deeds: &[Deed], finally: &[Vec<usize>], is_serializable: bool) {
    let known: HashMap<usize, &Deed> = deeds.iter().map(|deed| (deed.id, deed)).collect();
    for (key, list) in finally.iter().enumerate() {
        let there: HashSet<usize> = list.iter().copied().collect();
        assert_eq!(there.len(), list.len(), "list {key} has something twice: {list:?}");
        for id in list {
            let is_meant = known.get(id).is_some_and(|deed| deed.appended.contains(&key));
            assert!(is_meant, "list {key} has {id}, which nobody appended");
        }
        let lost = deeds.iter().find(|deed| deed.appended.contains(&key) && !there.contains(&deed.id));
        assert!(lost.is_none(), "acknowledged, and not in list {key}: {lost:?}");
    }
    for deed in deeds {
        for (key, read) in &deed.read {
            assert!(finally[*key].starts_with(read), "{deed:?} has read what never was: {:?}", finally[*key]);
        }
        assert!(deed.sum.is_none_or(|sum| sum == 100 * ACCOUNTS as i64), "{deed:?}");
    }
    // Whoever has read everything has seen one state of those that followed each other.
    let mut states: Vec<Vec<usize>> = deeds
        .iter()
        .filter(|deed| deed.read.len() == LISTS)
        .map(|deed| deed.read.iter().map(|(_, read)| read.len()).collect())
        .collect();
    states.sort_by_key(|state| state.iter().sum::<usize>());
    for pair in states.windows(2) {
        let grows = pair[0].iter().zip(&pair[1]).all(|(before, after)| before <= after);
        assert!(grows, "two have seen the same in two orders: {pair:?}");
    }
    if is_serializable {
        acyclic(deeds, finally);
    }
}

/// One serial order explains everything: nobody is, over others, before himself.
fn acyclic(deeds: &[Deed], finally: &[Vec<usize>]) {
    let mut after: HashMap<usize, Vec<usize>> = HashMap::new();
    let mut before: HashMap<usize, usize> = deeds.iter().map(|deed| (deed.id, 0)).collect();
    let mut edge = |from: usize, to: usize| {
        if from != to {
            after.entry(from).or_default().push(to);
            *before.get_mut(&to).expect("known") += 1;
        }
    };
    for list in finally {
        list.windows(2).for_each(|pair| edge(pair[0], pair[1]));
    }
    for deed in deeds {
        for (key, read) in &deed.read {
            read.last().into_iter().for_each(|writer| edge(*writer, deed.id));
            finally[*key].get(read.len()).into_iter().for_each(|next| edge(deed.id, *next));
        }
    }
    let mut free: Vec<usize> = before.iter().filter(|(_, count)| **count == 0).map(|(id, _)| *id).collect();
    while let Some(id) = free.pop() {
        before.remove(&id);
        for next in after.remove(&id).unwrap_or_default() {
            let count = before.get_mut(&next).expect("not free yet");
            *count -= 1;
            if *count == 0 {
                free.push(next);
            }
        }
    }
    let left: Vec<&Deed> = deeds.iter().filter(|deed| before.contains_key(&deed.id)).collect();
    assert!(left.is_empty(), "in cycles, or behind them: {left:?}");
}

/// What is judged is judged: an append that is lost, a read of what never was, and a write skew.
#[test]
fn the_judge_sees_what_is_wrong() {
    let deed = |id, key, read: &[(usize, &[usize])]| {
        let read = read.iter().map(|(key, list)| (*key, list.to_vec())).collect();
        Deed { id, appended: vec![key], read, sum: None }
    };
    let wrong = |deeds: &[Deed], finally: &[Vec<usize>]| {
        let judged = std::panic::AssertUnwindSafe(|| judge(deeds, finally, true));
        std::panic::catch_unwind(judged).is_err()
    };
    let well = [deed(1, 0, &[(1, &[])]), deed(2, 1, &[(0, &[1])])];
    assert!(!wrong(&well, &[vec![1], vec![2]]));
    assert!(wrong(&well, &[vec![1], vec![]]), "lost");
    assert!(wrong(&well, &[vec![1], vec![2, 2]]), "twice");
    assert!(wrong(&well, &[vec![1], vec![2, 3]]), "of nobody");
    let never = [deed(1, 0, &[(1, &[2, 1])]), deed(2, 1, &[])];
    assert!(wrong(&never, &[vec![1], vec![2]]), "read and never there");
    let skew = [deed(1, 0, &[(1, &[])]), deed(2, 1, &[(0, &[])])];
    assert!(wrong(&skew, &[vec![1], vec![2]]), "each has not seen the other one");
}
