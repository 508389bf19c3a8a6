//! Random transactions on few, hot rows: every kind of operation, few of them to a transaction.
//!
//! Keys are drawn from a small range of which about two thirds exist at the start; deletes and
//! inserts keep it so. Many transactions read before they write elsewhere, since that is what write
//! skew is made of.
//!
//! [`Variety`] says which kinds of operation there are: some can only be recorded where one task
//! drives all sessions.

use super::constraint::{BADGE, CHILD, PARENT};
use super::operation::{Access, Operation};
use super::recorder::{Mode, Step};
use crate::checker::history::{Object, Predicate};
use crate::random::Random;

/// Which operations there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Variety {
    /// Reads and writes of two tables.
    #[default]
    Plain,
    /// Also savepoints, ON CONFLICT DO UPDATE, FOR UPDATE, and READ ONLY with and without
    /// DEFERRABLE.
    Wide,
    /// All but DEFERRABLE, which waits for others: also ON CONFLICT DO NOTHING, foreign keys,
    /// unique values, refusals within a savepoint, and transactions with an age.
    Exact,
    /// Three rows by key and an update of one of them, as the workload s3u1 has it.
    S3u1,
}

/// How large, and so how hot, the data are.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Keys of each table, from 1.
    pub keys: i64,
    /// Values of the second column, from 1.
    pub groups: i64,
    /// The most operations of a transaction.
    pub operations: i64,
    /// Whether some ranges are read through a window function.
    pub windows: bool,
    /// Which operations there are.
    pub variety: Variety,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape { keys: 24, groups: 12, operations: 4, windows: false, variety: Variety::Plain }
    }
}

impl Shape {
    /// The rows at the start.
    pub fn rows(&self, random: &mut Random) -> Vec<(Object, i64)> {
        let mut rows = Vec::new();
        for table in 0..self.tables() {
            for key in 1..=self.keys {
                let group = random.between(1, self.groups);
                let chosen = random.chance(66) || self.variety == Variety::S3u1;
                let known = |object: Object| rows.iter().any(|(other, _)| *other == object);
                let permitted = match table {
                    CHILD => known(Object { table: PARENT, key: group }),
                    BADGE => !rows
                        .iter()
                        .any(|&(other, value): &(Object, i64)| other.table == BADGE && value == group),
                    _ => true,
                };
                if chosen && permitted {
                    rows.push((Object { table, key }, group));
                }
            }
        }
        rows
    }

    /// The steps of one transaction, its end included.
    pub fn transaction(&self, random: &mut Random) -> Vec<Step> {
        if self.variety == Variety::S3u1 {
            return self.s3u1(random);
        }
        let operations = random.between(1, self.operations);
        let reads_only = random.chance(15);
        let mode = if self.variety == Variety::Plain { Mode::Plain } else { self.mode(random, reads_only) };
        let mut steps = Vec::new();
        if mode != Mode::Plain {
            steps.push(Step::Begin(mode));
        }
        for place in 0..operations {
            if self.variety != Variety::Plain && !reads_only && place > 0 && random.chance(25) {
                steps.push(if random.chance(60) { Step::Savepoint } else { Step::RollbackTo });
            }
            steps.push(Step::Run(match () {
                () if matches!(mode, Mode::ReadOnly | Mode::Deferrable) => self.plain_read(random),
                () if reads_only || random.chance(45) => self.read(random),
                () => self.write(random),
            }));
        }
        steps.push(if random.chance(4) { Step::Rollback } else { Step::Commit });
        steps
    }

    fn s3u1(&self, random: &mut Random) -> Vec<Step> {
        let mut keys: Vec<i64> = Vec::new();
        while keys.len() < self.keys.clamp(0, 3) as usize {
            let key = random.between(1, self.keys);
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let object = |key: i64| Object { table: 0, key };
        let reads = keys.iter().map(|&key| Step::Run(Operation::Point(object(key))));
        let update = keys.first().map(|&key| Step::Run(Operation::Update(object(key))));
        reads.chain(update).chain([Step::Commit]).collect()
    }

    fn mode(&self, random: &mut Random, reads_only: bool) -> Mode {
        match random.between(1, 10) {
            1..=5 if reads_only => Mode::ReadOnly,
            6 if reads_only && self.variety == Variety::Wide => Mode::Deferrable,
            10 if self.variety == Variety::Exact => Mode::Aged,
            _ => Mode::Plain,
        }
    }

    fn tables(&self) -> u32 {
        if self.variety == Variety::Exact { 5 } else { 2 }
    }

    fn table(&self, random: &mut Random) -> u32 {
        random.between(0, i64::from(self.tables()) - 1) as u32
    }

    fn object(&self, random: &mut Random) -> Object {
        Object { table: self.table(random), key: random.between(1, self.keys) }
    }

    /// A range about a sixth as wide as all.
    fn range(&self, random: &mut Random) -> Predicate {
        let column = random.between(0, 1) as usize;
        let high = if column == 0 { self.keys } else { self.groups };
        let low = random.between(1, high);
        let high = high.min(low + random.between(0, (high / 6).max(1)));
        Predicate { table: self.table(random), column, low, high }
    }

    fn read(&self, random: &mut Random) -> Operation {
        match random.between(1, 20) {
            1 => Operation::Share(self.object(random)),
            2 if self.variety != Variety::Plain => Operation::Lock(self.object(random)),
            _ => self.plain_read(random),
        }
    }

    /// A read that locks nothing.
    fn plain_read(&self, random: &mut Random) -> Operation {
        match random.between(1, 20) {
            1..=8 => Operation::Point(self.object(random)),
            9..=13 => Operation::Range(Access::Rows, self.range(random)),
            14..=16 => Operation::Range(Access::Aggregate, self.range(random)),
            17 if self.windows => Operation::Range(Access::Window, self.range(random)),
            _ => {
                let Predicate { low, .. } = self.range(random);
                let low = low.min(self.groups);
                Operation::Join { low, high: self.groups.min(low + 1) }
            }
        }
    }

    fn write(&self, random: &mut Random) -> Operation {
        let (object, group) = (self.object(random), random.between(1, self.groups));
        match random.between(1, 20) {
            1..=9 => Operation::Update(object),
            10..=11 => Operation::Move(object, group),
            12..=13 => {
                let high = self.groups.min(group + random.between(0, 1));
                Operation::UpdateRange(Predicate { table: object.table, column: 1, low: group, high })
            }
            14 if self.variety != Variety::Plain => Operation::Upsert(object, group),
            15 if self.variety == Variety::Exact => Operation::Ignore(object, group),
            14..=17 => Operation::Insert(object, group),
            _ => Operation::Delete(object),
        }
    }
}
