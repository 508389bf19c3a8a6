//! Clients that are told much and write little: what they were told must stay true after a crash.
//!
//! The things they look at only ever grow, so each answer gives a lower bound that can be judged
//! later without knowing who else did what:
//!
//! ```text
//! gate     its state is only raised     "no row has a state below 4" or a row that shows 4: it is 4 at least, for ever
//! seat     only inserted                a conflict, 23505 or a row: it is there, for ever
//! ticket   only deleted                 "no row has changed" or 23503: it is gone, for ever
//! room_n   only created                 42P07: it is there, for ever
//! turn     a sequence                   no number comes twice
//! ```
//!
//! An answer counts when the end of its transaction was acknowledged: COMMIT, ROLLBACK, the error
//! of a statement outside a block, or the ROLLBACK after an error. With `cognate.durable_reads` it
//! counts at once. Own writes count with their COMMIT only.
//!
//! One history that must not happen, and did while answers without rows of their own did not wait:
//!
//! ```text
//! a: INSERT INTO seat VALUES (7)                          visible; its flush takes a while
//! b: INSERT INTO seat VALUES (7) ON CONFLICT DO NOTHING   > INSERT 0 0
//!    power fails; seat 7 is not there, though b was told so
//! ```

use std::collections::BTreeSet;

use cognate_env::SplitMix;

use super::load::Sql;
use crate::wire::{Failure, Rows};

const GATES: u64 = 4;
const TICKETS: u64 = 2000;

const SCHEMA: [&str; 8] = [
    "CREATE TABLE gate (id int PRIMARY KEY, state bigint NOT NULL)",
    "INSERT INTO gate SELECT n, 0 FROM generate_series(0, 3) AS n",
    "CREATE TABLE seat (id int PRIMARY KEY)",
    "CREATE TABLE ticket (id int PRIMARY KEY)",
    "INSERT INTO ticket SELECT generate_series(0, 2000)",
    "CREATE TABLE stub (ticket int REFERENCES ticket (id) ON DELETE CASCADE)",
    "CREATE TABLE room_0 (n int)",
    "CREATE SEQUENCE turn",
];

/// Makes the tables.
pub(super) fn create(sql: &mut dyn Sql) {
    for statement in SCHEMA {
        sql.run(statement).unwrap_or_else(|failure| panic!("{statement}: {failure:?}"));
    }
}

/// Something that is true from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fact {
    /// The gate's state is at least this.
    Raised(u64, i64),
    Taken(u64),
    Gone(u64),
    Built(u64),
    /// The sequence has given out this number.
    Drawn(i64),
}

/// What a statement told.
#[derive(Default)]
struct Told {
    facts: Vec<Fact>,
    /// It has written: its facts need the COMMIT.
    wrote: bool,
    /// An error of the kind that was asked for: an open block is over.
    failed: bool,
}

/// A client and what it was told.
#[derive(Debug, Clone)]
pub(super) struct Observer {
    name: u64,
    /// What it may rely on.
    known: BTreeSet<Fact>,
    /// What it was told in the open block.
    provisional: Vec<Fact>,
    /// How many answers without a write of its own it relies on.
    pub(super) told: u64,
    durable_reads: bool,
    random: SplitMix,
}

impl Observer {
    pub(super) fn new(name: u64, seed: u64) -> Observer {
        let random = SplitMix::new(seed ^ (name + 1) << 40);
        Observer {
            name,
            known: BTreeSet::new(),
            provisional: Vec::new(),
            told: 0,
            durable_reads: false,
            random,
        }
    }

    /// Settings of a new session.
    pub(super) fn connected(&mut self, sql: &mut dyn Sql) -> Result<(), Failure> {
        self.provisional.clear();
        self.durable_reads = self.random.one_in(4);
        let level = ["serializable", "repeatable read", "read committed"][self.random.below(3) as usize];
        sql.run(&format!("SET default_transaction_isolation = '{level}'"))?;
        sql.run(&format!("SET cognate.durable_reads = {}", self.durable_reads)).map(drop)
    }

    /// One statement outside a block, or a block of some.
    pub(super) fn act(&mut self, sql: &mut dyn Sql) -> Result<(), Failure> {
        if self.random.one_in(2) {
            let told = self.look(sql)?;
            self.rely(&told.facts, told.wrote);
            return Ok(());
        }
        self.provisional.clear();
        sql.run(["BEGIN", "BEGIN ISOLATION LEVEL READ COMMITTED"][self.random.below(2) as usize])?;
        let mut written = Vec::new();
        let mut failed = false;
        for _ in 0..=self.random.below(3) {
            let told = self.look(sql)?;
            failed = told.failed;
            if told.wrote {
                written = told.facts;
                break;
            }
            match self.durable_reads {
                true => self.rely(&told.facts, false),
                false => self.provisional.extend(told.facts),
            }
            if failed {
                break;
            }
        }
        let commits = !failed && !self.random.one_in(3);
        // A refused COMMIT ends the block as well, and says so only when what it rests on is safe.
        let committed = match sql.run(if commits { "COMMIT" } else { "ROLLBACK" }) {
            Ok(_) => commits,
            Err(failure) if is_retryable(&failure) => false,
            Err(failure) => return Err(failure),
        };
        let provisional = std::mem::take(&mut self.provisional);
        self.rely(&provisional, false);
        if committed {
            self.rely(&written, true);
        }
        Ok(())
    }

    fn rely(&mut self, facts: &[Fact], own: bool) {
        self.known.extend(facts);
        if !own {
            self.told += facts.len() as u64;
        }
    }

    fn state(&self, gate: u64) -> i64 {
        let of_gate = |fact: &Fact| match fact {
            Fact::Raised(raised, state) if *raised == gate => Some(*state),
            _ => None,
        };
        self.known.iter().chain(&self.provisional).filter_map(of_gate).max().unwrap_or(0)
    }

    /// The number after the last one of a kind, or one that others may be at already.
    fn next(&mut self, of: fn(&Fact) -> Option<u64>) -> u64 {
        let last = self.known.iter().filter_map(of).max().unwrap_or(0);
        last + 1 + self.random.below(2)
    }

    /// Runs one drawn statement.
    fn look(&mut self, sql: &mut dyn Sql) -> Result<Told, Failure> {
        let gate = self.random.below(GATES);
        let above = self.state(gate) + 1;
        match self.random.below(12) {
            0 => self.told_by_rows(sql, "SELECT id, state FROM gate", every_gate),
            1 => {
                let lock = ["UPDATE", "SHARE", "UPDATE SKIP LOCKED"][self.random.below(3) as usize];
                let text = format!("SELECT id, state FROM gate WHERE id = {gate} FOR {lock}");
                self.told_by_rows(sql, &text, every_gate)
            }
            2 => {
                let text = format!("UPDATE gate SET state = state + 1 WHERE id = {gate} RETURNING id, state");
                let told = self.told_by_rows(sql, &text, every_gate)?;
                Ok(Told { wrote: !told.failed, ..told })
            }
            3 => {
                let condition = format!("id = {gate} AND state < {above}");
                let text = format!("UPDATE gate SET state = {above} WHERE {condition} RETURNING id");
                self.told_either_way(sql, &text, Fact::Raised(gate, above))
            }
            4 => {
                let text = format!(
                    "INSERT INTO gate VALUES ({gate}, {above}) ON CONFLICT (id) DO UPDATE SET state = {above} \
                     WHERE gate.state < {above} RETURNING id"
                );
                self.told_either_way(sql, &text, Fact::Raised(gate, above))
            }
            5 => {
                let test = format!("CASE WHEN state >= {above} THEN 0 ELSE 1 END");
                let text = format!("SELECT 1 / {test} FROM gate WHERE id = {gate}");
                self.told_by_error(sql, &text, "22012", Fact::Raised(gate, above), Told::default())
            }
            6 | 7 => {
                let seat = self.next(|fact| if let Fact::Taken(seat) = fact { Some(*seat) } else { None });
                let text = format!("INSERT INTO seat VALUES ({seat})");
                if self.random.one_in(2) {
                    return self.told_by_error(
                        sql,
                        &text,
                        "23505",
                        Fact::Taken(seat),
                        wrote(Fact::Taken(seat)),
                    );
                }
                let text = format!("{text} ON CONFLICT DO NOTHING RETURNING id");
                self.told_either_way(sql, &text, Fact::Taken(seat))
            }
            8 | 9 => {
                let ticket =
                    self.next(|fact| if let Fact::Gone(ticket) = fact { Some(*ticket) } else { None });
                let ticket = ticket.min(TICKETS);
                if self.random.one_in(2) {
                    let text = format!("INSERT INTO stub VALUES ({ticket})");
                    let stayed = Told { wrote: true, ..Told::default() };
                    return self.told_by_error(sql, &text, "23503", Fact::Gone(ticket), stayed);
                }
                let text = format!("DELETE FROM ticket WHERE id = {ticket} RETURNING id");
                self.told_either_way(sql, &text, Fact::Gone(ticket))
            }
            10 => {
                let room = self.next(|fact| if let Fact::Built(room) = fact { Some(*room) } else { None });
                let text = format!("CREATE TABLE room_{room} (n int)");
                self.told_by_error(sql, &text, "42P07", Fact::Built(room), wrote(Fact::Built(room)))
            }
            _ => self.told_by_rows(sql, "SELECT 0, nextval('turn')", |row| vec![Fact::Drawn(number(row, 1))]),
        }
    }

    /// Rows tell, and an abort tells nothing more.
    fn told_by_rows(
        &mut self,
        sql: &mut dyn Sql,
        text: &str,
        facts: fn(&[Option<String>]) -> Vec<Fact>,
    ) -> Result<Told, Failure> {
        match self.run(sql, text)? {
            Ok(rows) => {
                let facts = rows.iter().flat_map(|row| facts(row)).collect();
                Ok(Told { facts, ..Told::default() })
            }
            Err(told) => Ok(told),
        }
    }

    /// A row: it has written what makes the fact true. No row: it was true.
    fn told_either_way(&mut self, sql: &mut dyn Sql, text: &str, fact: Fact) -> Result<Told, Failure> {
        match self.run(sql, text)? {
            Ok(rows) => Ok(Told { facts: vec![fact], wrote: !rows.is_empty(), failed: false }),
            Err(told) => Ok(told),
        }
    }

    /// This error: the fact was true.
    fn told_by_error(
        &mut self,
        sql: &mut dyn Sql,
        text: &str,
        sqlstate: &str,
        fact: Fact,
        otherwise: Told,
    ) -> Result<Told, Failure> {
        match sql.run(text) {
            Ok(_) => Ok(otherwise),
            Err(failure) if failure.sqlstate() == sqlstate => {
                Ok(Told { facts: vec![fact], wrote: false, failed: true })
            }
            Err(failure) if is_retryable(&failure) => Ok(Told { failed: true, ..Told::default() }),
            Err(failure) => Err(failure),
        }
    }

    /// An abort that asks for another try is a [`Told`] without facts.
    fn run(&self, sql: &mut dyn Sql, text: &str) -> Result<Result<Rows, Told>, Failure> {
        match sql.run(text) {
            Ok(rows) => Ok(Ok(rows)),
            Err(failure) if is_retryable(&failure) => Ok(Err(Told { failed: true, ..Told::default() })),
            Err(failure) => Err(failure),
        }
    }
}

/// What a write makes true with its COMMIT.
fn wrote(fact: Fact) -> Told {
    Told { facts: vec![fact], wrote: true, failed: false }
}

fn number(row: &[Option<String>], place: usize) -> i64 {
    row[place].as_ref().expect("no NULL").parse().expect("a number")
}

/// A row of `id` and `state`.
fn every_gate(row: &[Option<String>]) -> Vec<Fact> {
    vec![Fact::Raised(number(row, 0) as u64, number(row, 1))]
}

/// Deadlock and serialization failure.
fn is_retryable(failure: &Failure) -> bool {
    matches!(failure.sqlstate(), "40001" | "40P01")
}

/// Whatever anybody was told is still true, and no number of the sequence was given twice.
pub(super) fn judge(sql: &mut dyn Sql, observers: &[Observer]) {
    let mut ids = |text: &str| -> BTreeSet<u64> {
        let rows = sql.run(text).unwrap_or_else(|failure| panic!("{text}: {failure:?}"));
        rows.iter().map(|row| number(row, 0) as u64).collect()
    };
    let seats = ids("SELECT id FROM seat");
    let tickets = ids("SELECT id FROM ticket");
    let rooms = ids("SELECT substr(relname, 6) FROM pg_class WHERE relname LIKE 'room\\_%'");
    let states: Vec<i64> = sql
        .run("SELECT id, state FROM gate ORDER BY id")
        .expect("gates")
        .iter()
        .map(|row| number(row, 1))
        .collect();
    let next = number(&sql.run("SELECT nextval('turn')").expect("a number")[0], 0);
    let mut drawn = BTreeSet::new();
    for observer in observers {
        for fact in &observer.known {
            let holds = match *fact {
                Fact::Raised(gate, state) => states[gate as usize] >= state,
                Fact::Taken(seat) => seats.contains(&seat),
                Fact::Gone(ticket) => !tickets.contains(&ticket),
                Fact::Built(room) => rooms.contains(&room),
                Fact::Drawn(number) => number < next && drawn.insert(number),
            };
            assert!(holds, "observer {} was told {fact:?}, which a crash took back", observer.name);
        }
    }
}
