//! The verdict on a history, for tests and for people.

use std::collections::BTreeMap;
use std::fmt;

use super::graph::{Clock, Cycle, Graph};
use super::history::{Abort, History, Object, Outcome};
use super::needless::{Judgement, Orders, Readers, judge, judge_conflict};
use super::versions::Versions;

/// What no history may hold, whatever the order: each is an anomaly by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A version was read (or replaced) that its writer did not commit, or that its writer itself
    /// replaced later.
    ReadOfUncommitted {
        /// Who read.
        reader: u64,
        /// Whose version it was.
        writer: u64,
        /// The row.
        object: Object,
        /// Whether the history holds that version at all.
        known: bool,
    },
    /// Two transactions replaced the same version.
    LostUpdate {
        /// The row.
        object: Object,
        /// Both.
        writers: [u64; 2],
    },
    /// A row was inserted while it existed.
    InsertedTwice {
        /// The row.
        object: Object,
        /// Who inserted it again.
        writer: u64,
    },
    /// A scan returned a row that is not in its range.
    RowOutOfRange {
        /// Who scanned.
        reader: u64,
        /// The row.
        object: Object,
    },
    /// A reader was told that a row is in a range that held none then.
    NobodyThere {
        /// Who was told.
        reader: u64,
        /// The table.
        table: u32,
        /// The lower end of the range.
        low: i64,
    },
    /// A scan did not return a row that its snapshot held.
    RowMissed {
        /// Who scanned.
        reader: u64,
        /// The row.
        object: Object,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |object: &Object| format!("table {} key {}", object.table, object.key);
        match self {
            Violation::ReadOfUncommitted { reader, writer, object, known } => {
                let what = if *known {
                    "a version that was never committed"
                } else {
                    "a version that nobody recorded"
                };
                write!(f, "T{reader} read {what}, T{writer}'s of {}", row(object))
            }
            Violation::LostUpdate { object, writers } => {
                write!(f, "T{} and T{} replaced the same version of {}", writers[0], writers[1], row(object))
            }
            Violation::InsertedTwice { object, writer } => {
                write!(f, "T{writer} inserted {}, which existed", row(object))
            }
            Violation::RowOutOfRange { reader, object } => {
                write!(f, "T{reader} was given {}, which was not in its range", row(object))
            }
            Violation::NobodyThere { reader, table, low } => {
                write!(f, "T{reader} was told of a row of table {table} from {low} on, where none was")
            }
            Violation::RowMissed { reader, object } => {
                write!(f, "T{reader} was not given {}, which its snapshot held in range", row(object))
            }
        }
    }
}

/// What the oracle decided.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Transactions that committed.
    pub committed: usize,
    /// Aborts by reason.
    pub aborted: BTreeMap<Abort, usize>,
    /// Anomalies that need no graph.
    pub violations: Vec<Violation>,
    /// A dependency cycle among the committed.
    pub cycle: Option<Cycle>,
    /// A cycle among them once real time counts: they may have an equivalent serial order, but none
    /// in which whoever had ended comes before whoever began afterwards.
    pub strict_cycle: Option<Cycle>,
    /// Aborts by the certifier that closed a cycle.
    pub justified: usize,
    /// Those of which the order of commits in flight would have to be known.
    pub undecided: usize,
    /// The victims of those that closed none.
    pub needless: Vec<u64>,
    /// Aborts by first updater wins.
    pub conflicts: Conflicts,
}

/// Aborts because a row had changed since the snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conflicts {
    /// Those of which something that was read had changed, too.
    pub stale: usize,
    /// Those of which the order of commits in flight would have to be known.
    pub undecided: usize,
    /// The victims of those that a later snapshot would have served.
    pub needless: Vec<u64>,
}

impl Verdict {
    /// Judges a history. Its aborts by the certifier are to be justified by dependencies.
    pub fn of(history: &History) -> Verdict {
        Verdict::judge(history, false)
    }

    /// The same, where real time justifies them, too.
    pub fn strictly(history: &History) -> Verdict {
        Verdict::judge(history, true)
    }

    fn judge(history: &History, strict: bool) -> Verdict {
        let mut verdict = Verdict::default();
        let versions = Versions::new(history, &mut verdict.violations);
        let graph = Graph::new(history, &versions, &mut verdict.violations);
        verdict.cycle = graph.cycle(history);
        verdict.strict_cycle = graph.in_time(history, Clock::Answers).cycle(history);
        let orders = if strict { Orders::strict(&graph, history) } else { Orders::serial(&graph, history) };
        let readers = Readers::new(history);
        for (place, transaction) in history.transactions.iter().enumerate() {
            let reason = match transaction.outcome {
                Outcome::Committed => {
                    verdict.committed += 1;
                    continue;
                }
                Outcome::Aborted(reason) => reason,
            };
            *verdict.aborted.entry(reason).or_default() += 1;
            let (violations, conflicts) = (&mut verdict.violations, &mut verdict.conflicts);
            match reason {
                Abort::Certifier => match judge(place, history, &versions, &orders, &readers, violations) {
                    Judgement::Justified => verdict.justified += 1,
                    Judgement::Undecided => verdict.undecided += 1,
                    Judgement::Needless => verdict.needless.push(transaction.id),
                },
                Abort::FirstUpdater => match judge_conflict(place, history, &versions, &orders, violations) {
                    Judgement::Justified => conflicts.stale += 1,
                    Judgement::Undecided => conflicts.undecided += 1,
                    Judgement::Needless => conflicts.needless.push(transaction.id),
                },
                Abort::Deadlock | Abort::Client => {}
            }
        }
        verdict
    }

    /// Whether the committed transactions have an equivalent serial order.
    pub fn serializable(&self) -> bool {
        self.cycle.is_none() && self.violations.is_empty()
    }

    /// Whether they have one that is in the order of real time.
    pub fn strictly_serializable(&self) -> bool {
        self.serializable() && self.strict_cycle.is_none()
    }

    /// Aborts for one reason.
    pub fn aborted_by(&self, reason: Abort) -> usize {
        self.aborted.get(&reason).copied().unwrap_or(0)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "committed {}", self.committed)?;
        for (reason, count) in &self.aborted {
            writeln!(f, "aborted, {}: {count}", reason.name())?;
        }
        match self.serializable() {
            true => writeln!(f, "serializable: yes")?,
            false => writeln!(f, "serializable: NO")?,
        }
        if let Some(cycle) = &self.cycle {
            writeln!(f, "  cycle: {cycle}")?;
        }
        for violation in self.violations.iter().take(10) {
            writeln!(f, "  {violation}")?;
        }
        if self.serializable() {
            writeln!(
                f,
                "in the order of real time: {}",
                if self.strict_cycle.is_none() { "yes" } else { "no" }
            )?;
            if let Some(cycle) = &self.strict_cycle {
                writeln!(f, "  cycle: {cycle}")?;
            }
        }
        writeln!(
            f,
            "aborts by the certifier: {} justified, {} needless, {} undecided (commits in flight)",
            self.justified,
            self.needless.len(),
            self.undecided
        )?;
        let Conflicts { stale, undecided, needless } = &self.conflicts;
        write!(
            f,
            "aborts by first updater wins: {stale} had read what was replaced, {} needless (a later snapshot \
             would have served), {undecided} undecided",
            needless.len()
        )
    }
}
