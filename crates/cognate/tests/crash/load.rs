//! The load: transactions over tables with unique and plain indexes, checks, a foreign key that
//! restricts and one that cascades; and the ledger of each client.
//!
//! A client owns its items, so it knows what must be in the table: what its acknowledged
//! transactions made, and perhaps one more, whose COMMIT got no answer. The owners' totals are
//! shared: clients meet there, wait, and at times deadlock.

use std::collections::BTreeMap;

use cognate_env::SplitMix;

use crate::wire::{Failure, Rows};

/// What runs a statement.
pub(crate) trait Sql {
    fn run(&mut self, text: &str) -> Result<Rows, Failure>;
}

pub(super) const OWNERS: i64 = 5;
/// Items of client `c` have numbers from `c * IDS`.
pub(super) const IDS: i64 = 1_000_000;

pub(super) const SCHEMA: [&str; 4] = [
    "CREATE TABLE owner (id int PRIMARY KEY, name text NOT NULL UNIQUE, total bigint NOT NULL)",
    "CREATE TABLE item (id int PRIMARY KEY, owner int NOT NULL REFERENCES owner (id), tag text NOT NULL UNIQUE, \
     amount bigint NOT NULL CHECK (amount > 0))",
    "CREATE INDEX item_owner ON item (owner)",
    "CREATE TABLE note (item int REFERENCES item (id) ON DELETE CASCADE, body text UNIQUE, PRIMARY KEY (item, body))",
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) owner: i64,
    pub(super) tag: String,
    pub(super) amount: i64,
}

impl Item {
    /// Items with an odd amount have a note.
    pub(super) fn note(&self) -> Option<String> {
        (self.amount % 2 == 1).then(|| format!("note of {}", self.tag))
    }
}

/// What a transaction does to the client's own things.
#[derive(Debug, Clone, Default)]
pub(super) struct Change {
    /// New contents of items; `None` deletes.
    items: Vec<(i64, Option<Item>)>,
    /// Creates the client's own table, with this number in it, or drops it.
    table: Option<Option<i64>>,
}

/// What a client's things are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Things {
    pub(super) items: BTreeMap<i64, Item>,
    pub(super) table: Option<i64>,
}

impl Things {
    fn apply(&mut self, change: &Change) {
        for (id, item) in &change.items {
            match item {
                Some(item) => self.items.insert(*id, item.clone()),
                None => self.items.remove(id),
            };
        }
        if let Some(table) = change.table {
            self.table = table;
        }
    }
}

/// A client and what it knows.
#[derive(Debug, Clone)]
pub(super) struct Ledger {
    pub(super) client: i64,
    /// What the acknowledged transactions made.
    pub(super) things: Things,
    in_doubt: Option<Change>,
    /// How many were acknowledged, and how many ended in doubt.
    pub(super) acknowledged: u64,
    pub(super) doubts: u64,
    random: SplitMix,
    next_id: i64,
}

impl Ledger {
    pub(super) fn new(client: i64, seed: u64) -> Ledger {
        let random = SplitMix::new(seed ^ (client as u64) << 32);
        Ledger {
            client,
            things: Things::default(),
            in_doubt: None,
            acknowledged: 0,
            doubts: 0,
            random,
            next_id: client * IDS,
        }
    }

    /// Takes what is there, which must be what was acknowledged, with or without the transaction in
    /// doubt.
    pub(super) fn judge(&mut self, found: Things) {
        let in_doubt = self.in_doubt.take();
        if found == self.things {
            return;
        }
        let mut with = self.things.clone();
        let Some(change) = in_doubt else {
            panic!("client {}: found {found:?}, acknowledged {:?}", self.client, self.things)
        };
        with.apply(&change);
        assert_eq!(found, with, "client {}: neither without nor with what was in doubt", self.client);
        self.things = with;
    }

    /// Runs one transaction. `Ok(true)`: acknowledged. `Err`: there is no going on; what was being
    /// committed then is in doubt.
    pub(super) fn transact(&mut self, sql: &mut dyn Sql) -> Result<bool, Failure> {
        let change = self.draw();
        let level = ["", " ISOLATION LEVEL READ COMMITTED", " ISOLATION LEVEL REPEATABLE READ"];
        sql.run(&format!("BEGIN{}", level[self.random.below(3) as usize]))?;
        let written = match self.random.below(12) {
            0 => self.fail_on_purpose(sql, &change),
            1 => self.write(sql, &change).and(sql.run("ROLLBACK")).and(Ok(false)),
            2 => self.write_twice(sql, &change),
            _ => self.write(sql, &change).and(Ok(true)),
        };
        match written {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(failure) if is_retryable(&failure) => return sql.run("ROLLBACK").and(Ok(false)),
            Err(failure) => return Err(failure),
        }
        match sql.run("COMMIT") {
            Ok(_) => {
                self.things.apply(&change);
                self.acknowledged += 1;
                Ok(true)
            }
            Err(failure) if is_retryable(&failure) => Ok(false),
            Err(failure) => {
                self.in_doubt = Some(change);
                self.doubts += 1;
                Err(failure)
            }
        }
    }

    fn draw(&mut self) -> Change {
        let mut change = Change::default();
        for _ in 0..=self.random.below(3) {
            let known = self.things.items.len() as u64;
            let old = self.things.items.keys().nth(self.random.below(known) as usize).copied();
            let drawn = match (old, self.random.below(6)) {
                (Some(id), 0) => (id, None),
                (Some(id), 1 | 2) => (id, Some(self.draw_item(id))),
                _ => {
                    self.next_id += 1;
                    (self.next_id, Some(self.draw_item(self.next_id)))
                }
            };
            change.items.retain(|(id, _)| *id != drawn.0);
            change.items.push(drawn);
        }
        if self.random.one_in(12) {
            change.table = Some(self.things.table.is_none().then_some(self.random.below(1000) as i64));
        }
        change
    }

    fn draw_item(&mut self, id: i64) -> Item {
        let owner = self.random.below(OWNERS as u64) as i64;
        let fill = "x".repeat(self.random.below(60) as usize);
        Item {
            owner,
            tag: format!("{:x}{fill}-{id}", self.random.below(1 << 40)),
            amount: 1 + self.random.below(99) as i64,
        }
    }

    fn write(&self, sql: &mut dyn Sql, change: &Change) -> Result<(), Failure> {
        for (id, item) in &change.items {
            let old = self.things.items.get(id);
            match (old, item) {
                (None, Some(Item { owner, tag, amount })) => {
                    sql.run(&format!("INSERT INTO item VALUES ({id}, {owner}, '{tag}', {amount})"))?;
                }
                (Some(_), Some(Item { owner, tag, amount })) => {
                    sql.run(&format!(
                        "UPDATE item SET owner = {owner}, tag = '{tag}', amount = {amount} WHERE id = {id}"
                    ))?;
                    sql.run(&format!("DELETE FROM note WHERE item = {id}"))?;
                }
                (_, None) => {
                    sql.run(&format!("DELETE FROM item WHERE id = {id}"))?;
                }
            }
            if let Some(note) = item.as_ref().and_then(Item::note) {
                sql.run(&format!("INSERT INTO note VALUES ({id}, '{note}')"))?;
            }
            let sums = old.map(|old| (old.owner, -old.amount)).into_iter();
            for (owner, amount) in sums.chain(item.as_ref().map(|item| (item.owner, item.amount))) {
                sql.run(&format!("UPDATE owner SET total = total + {amount} WHERE id = {owner}"))?;
            }
        }
        let client = self.client;
        match change.table {
            Some(Some(number)) => {
                sql.run(&format!("CREATE TABLE own_{client} (number bigint PRIMARY KEY)"))?;
                sql.run(&format!("INSERT INTO own_{client} VALUES ({number})"))?;
            }
            Some(None) => {
                sql.run(&format!("DROP TABLE own_{client}"))?;
            }
            None => {}
        }
        Ok(())
    }

    /// What is rolled back to a savepoint leaves nothing.
    fn write_twice(&mut self, sql: &mut dyn Sql, change: &Change) -> Result<bool, Failure> {
        let other = self.draw();
        sql.run("SAVEPOINT before")?;
        self.write(sql, &other)?;
        sql.run("ROLLBACK TO before")?;
        self.write(sql, change)?;
        Ok(true)
    }

    /// A violation at the end: nothing of the transaction may stay, although COMMIT is said.
    fn fail_on_purpose(&self, sql: &mut dyn Sql, change: &Change) -> Result<bool, Failure> {
        self.write(sql, change)?;
        let id = self.client * IDS;
        let (statement, sqlstate) = match change.items.len() {
            1 => (format!("INSERT INTO item VALUES ({id}, 999, 'nobody {id}', 1)"), "23503"),
            2 => (format!("INSERT INTO owner VALUES (0, 'again', {id})"), "23505"),
            _ => (format!("INSERT INTO item VALUES ({id}, 1, 'nothing {id}', 0)"), "23514"),
        };
        match sql.run(&statement) {
            Err(Failure::Error { sqlstate: found, .. }) if found == sqlstate => {}
            Err(failure) => return Err(failure),
            Ok(_) => panic!("{statement}: it was accepted"),
        }
        sql.run("COMMIT").and(Ok(false))
    }
}

/// Deadlock and serialization failure: the transaction is over, the client goes on.
fn is_retryable(failure: &Failure) -> bool {
    matches!(failure.sqlstate(), "40001" | "40P01")
}

/// Makes the tables.
pub(super) fn create(sql: &mut dyn Sql) {
    for statement in SCHEMA {
        sql.run(statement).expect("created");
    }
    for id in 0..OWNERS {
        sql.run(&format!("INSERT INTO owner VALUES ({id}, 'owner {id}', 0)")).expect("inserted");
    }
}
