//! Random transactions on few, hot rows: every kind of operation, few of them to a transaction.
//!
//! Keys are drawn from a small range of which about two thirds exist at the start; deletes and inserts keep it so.
//! Many transactions read before they write elsewhere, since that is what write skew is made of.

use super::operation::{Access, Operation};
use super::recorder::Step;
use crate::checker::history::{Object, Predicate};
use crate::random::Random;

/// How large, and so how hot, the data are.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Keys of each table, from 1.
    pub keys: i64,
    /// Values of the second column, from 1.
    pub groups: i64,
    /// The most operations of a transaction.
    pub operations: i64,
    /// Whether some ranges are read by the analytic executor. It reads whole tables, and depends on all that it reads.
    pub analytic: bool,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape { keys: 24, groups: 12, operations: 4, analytic: false }
    }
}

impl Shape {
    /// The rows at the start.
    pub fn rows(&self, random: &mut Random) -> Vec<(Object, i64)> {
        let mut rows = Vec::new();
        for table in 0..2 {
            for key in 1..=self.keys {
                let group = random.between(1, self.groups);
                if random.chance(66) {
                    rows.push((Object { table, key }, group));
                }
            }
        }
        rows
    }

    /// The steps of one transaction, its end included.
    pub fn transaction(&self, random: &mut Random) -> Vec<Step> {
        let operations = random.between(1, self.operations);
        let reads_only = random.chance(15);
        let mut steps: Vec<Step> = (0..operations)
            .map(|_| {
                Step::Run(if reads_only || random.chance(45) {
                    self.read(random)
                } else {
                    self.write(random)
                })
            })
            .collect();
        steps.push(if random.chance(4) { Step::Rollback } else { Step::Commit });
        steps
    }

    fn object(&self, random: &mut Random) -> Object {
        Object { table: random.between(0, 1) as u32, key: random.between(1, self.keys) }
    }

    /// A range about a sixth as wide as all.
    fn range(&self, random: &mut Random) -> Predicate {
        let column = random.between(0, 1) as usize;
        let high = if column == 0 { self.keys } else { self.groups };
        let low = random.between(1, high);
        let high = high.min(low + random.between(0, (high / 6).max(1)));
        Predicate { table: random.between(0, 1) as u32, column, low, high }
    }

    fn read(&self, random: &mut Random) -> Operation {
        match random.between(1, 20) {
            1..=7 => Operation::Point(self.object(random)),
            8 => Operation::Share(self.object(random)),
            9..=13 => Operation::Range(Access::Rows, self.range(random)),
            14..=16 => Operation::Range(Access::Aggregate, self.range(random)),
            17 if self.analytic => Operation::Range(Access::Analytic, self.range(random)),
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
            14..=17 => Operation::Insert(object, group),
            _ => Operation::Delete(object),
        }
    }
}
