//! What a schema promises holds whichever nodes write, at every isolation level and by every
//! protocol, while it changes: references, unique keys, indexes, and rows that a client has locked
//! before it decided.
//!
//! The levels below SERIALIZABLE have nothing but locks for this, and locks of one node say nothing
//! at another one before the order has delivered them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use cognate_env::{Rng as _, SplitMix};

use crate::cluster::{Cluster, SIZE, retried, rows};
use crate::wire::{Failure, Rows, Wire};

const LEVELS: [&str; 3] = ["read committed", "repeatable read", "serializable"];
const PROTOCOLS: [&str; 4] = ["active", "certification", "weak_voting", "auto"];
/// Parents, names and doctors are few, so that clients meet.
const FEW: u64 = 4;
const TIMES: usize = 40;

const SCHEMA: [&str; 5] = [
    "CREATE TABLE parent (id int PRIMARY KEY, note text)",
    "CREATE TABLE child (id int PRIMARY KEY, parent int NOT NULL REFERENCES parent)",
    "CREATE TABLE name (id int PRIMARY KEY, name text NOT NULL UNIQUE)",
    "CREATE TABLE counter (id int PRIMARY KEY, n int NOT NULL); INSERT INTO counter VALUES (1, 0)",
    "CREATE TABLE doctor (id int PRIMARY KEY, is_on boolean NOT NULL); \
     INSERT INTO doctor SELECT n, true FROM generate_series(1, 4) n",
];

struct Client<'a> {
    wire: Wire,
    random: SplitMix,
    /// Numbers that no other client uses begin here.
    fresh: usize,
    tally: &'a Tally,
}

/// How often the counter was counted up, and has perhaps been.
#[derive(Default)]
struct Tally {
    counted: AtomicUsize,
    perhaps: AtomicUsize,
}

/// What another transaction was in the way of, what a constraint has refused, and what a node
/// refuses that hears no majority for a while: nothing of it has happened.
fn is_refusal(failure: &Failure) -> bool {
    matches!(failure.sqlstate(), "40001" | "40P01" | "23505" | "23503" | "25006")
}

impl Client<'_> {
    fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    /// Sends a message; `None` if it was refused, or nobody knows.
    fn ask(&mut self, text: &str) -> Option<Rows> {
        match self.wire.query(text) {
            Ok(rows) => Some(rows),
            Err(failure) if is_refusal(&failure) || failure.sqlstate() == "08007" => {
                if failure.sqlstate() == "08007" {
                    self.tally.perhaps.fetch_add(1, Ordering::Relaxed);
                }
                self.wire.query("ROLLBACK").expect("rolled back");
                None
            }
            Err(failure) => panic!("{text}: {failure:?}"),
        }
    }

    fn act(&mut self) {
        let level = LEVELS[self.below(LEVELS.len() as u64) as usize];
        let does = self.below(11);
        // Who asks its client between its statements cannot be executed everywhere.
        let first = usize::from(does >= 6);
        let protocol = PROTOCOLS[first + self.below((PROTOCOLS.len() - first) as u64) as usize];
        let set =
            format!("SET default_transaction_isolation = '{level}'; SET cognate.replication = {protocol}");
        self.wire.query(&set).expect("set");
        self.fresh += 1;
        let (fresh, few) = (self.fresh, 1 + self.below(FEW));
        match does {
            0 => drop(self.ask(&format!("INSERT INTO parent VALUES ({few}, 'new')"))),
            1 => drop(self.ask(&format!("DELETE FROM parent WHERE id = {few}"))),
            2 => drop(self.ask(&format!("INSERT INTO child VALUES ({fresh}, {few})"))),
            3 => drop(self.ask(&format!("DELETE FROM child WHERE parent = {few}"))),
            // No foreign key is in the way of other columns.
            4 => drop(self.ask(&format!("UPDATE parent SET note = '{fresh}' WHERE id = {few}"))),
            5 => {
                let text = format!(
                    "BEGIN; DELETE FROM name WHERE id = {few}; INSERT INTO name VALUES ({fresh}, 'n{few}'); \
                     COMMIT"
                );
                if self.ask(&text).is_none() {
                    self.ask(&format!("DELETE FROM name WHERE name = 'n{few}'"));
                }
            }
            6 => self.count(),
            7 => self.go_off(few),
            8 => drop(self.ask("CREATE INDEX IF NOT EXISTS of_parent ON child (parent)")),
            9 => drop(self.ask("DROP INDEX IF EXISTS of_parent")),
            _ => {
                let text = match few % 2 {
                    0 => "ALTER TABLE child ADD COLUMN IF NOT EXISTS more int NOT NULL DEFAULT 7",
                    _ => "ALTER TABLE child DROP COLUMN IF EXISTS more",
                };
                self.ask(text);
            }
        }
    }

    /// Locks the row, computes, and writes what it has computed.
    fn count(&mut self) {
        let Some(found) = self.ask("BEGIN; SELECT n FROM counter WHERE id = 1 FOR UPDATE") else { return };
        let n: usize = found[0][0].as_ref().expect("a number").parse().expect("a number");
        let next = format!("UPDATE counter SET n = {} WHERE id = 1", n + 1);
        if self.ask(&next).is_some() && self.ask("COMMIT").is_some() {
            self.tally.counted.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A doctor goes off duty if another one stays, and on duty otherwise. All who are on duty are
    /// locked before that is decided.
    fn go_off(&mut self, doctor: u64) {
        let who = "BEGIN; SELECT id FROM doctor WHERE is_on ORDER BY id FOR UPDATE";
        let Some(on) = self.ask(who) else { return };
        let is_on = on.iter().any(|row| row[0] == Some(doctor.to_string()));
        let becomes = !(is_on && on.len() > 1);
        let text = format!("UPDATE doctor SET is_on = {becomes} WHERE id = {doctor}");
        if self.ask(&text).is_some() {
            self.ask("COMMIT");
        }
    }
}

fn run(address: SocketAddr, token: &str, place: usize, seed: u64, tally: &Tally) {
    let mut wire = Wire::connect(address).expect("connected");
    wire.query(&format!("SET cognate.read_after = '{token}'")).expect("set");
    let random = SplitMix::new(seed ^ ((place as u64) << 32));
    let mut client = Client { wire, random, fresh: 1000 * (place + 1), tally };
    (0..TIMES).for_each(|_| client.act());
}

#[test]
fn constraints_and_locks_hold_whichever_nodes_write() {
    let seed = std::env::var("COGNATE_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| cognate_env::RealRng.next_u64());
    println!("seed {seed}");
    let cluster = Cluster::start();
    let mut setup = cluster.connect(1);
    SCHEMA.iter().for_each(|text| retried(&mut setup, text));
    let token = rows(&mut setup, "SHOW cognate.commit_token")[0][0].clone();
    let tally = Tally::default();
    thread::scope(|scope| {
        for place in 0..3 * SIZE {
            let (address, token, tally) = (cluster.address(1 + place % SIZE), &token, &tally);
            scope.spawn(move || run(address, token, place, seed, tally));
        }
    });
    let orphans = "SELECT id, parent FROM child WHERE parent NOT IN (SELECT id FROM parent)";
    assert_eq!(cluster.assert_equal(orphans), [] as [Vec<String>; 0]);
    let twice = "SELECT name FROM name GROUP BY name HAVING count(*) > 1";
    assert_eq!(cluster.assert_equal(twice), [] as [Vec<String>; 0]);
    // Whether an index has all rows, whatever was written while it was made.
    retried(&mut setup, "CREATE INDEX IF NOT EXISTS of_parent ON child (parent)");
    for parent in 1..=FEW {
        let by_index =
            cluster.assert_equal(&format!("SELECT id FROM child WHERE parent = {parent} ORDER BY id"));
        let all = format!("SELECT id FROM child WHERE parent + 0 = {parent} ORDER BY id");
        assert_eq!(by_index, cluster.assert_equal(&all));
    }
    let (counted, perhaps) = (tally.counted.into_inner(), tally.perhaps.into_inner());
    println!("{counted} counted, {perhaps} answers lost");
    let found = cluster.assert_equal("SELECT n FROM counter");
    let n: usize = found[0][0].parse().expect("a number");
    assert!((counted..=counted + perhaps).contains(&n), "{n} stand there");
    let on = cluster.assert_equal("SELECT count(*) > 0 FROM doctor WHERE is_on");
    assert_eq!(on, [["t"]], "nobody is on duty");
}
