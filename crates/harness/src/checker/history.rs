//! A history: what each transaction read, wrote and was told, as its client recorded it.
//!
//! Every version of a row has a *stamp*, stored in the row: the number of the transaction that
//! wrote it and a count within that transaction. A deletion has a stamp too, which only its writer
//! knows. Transaction 0 is the load: it committed before everything else.
//!
//! All reads are predicate reads: a range of one indexed column, and the rows that were returned. A
//! point read is the range of one key; that it returned nothing is then recorded as well. Some
//! statements tell only that a row is there (a foreign key, ON CONFLICT DO NOTHING, a duplicate
//! key). One that went by a key alone depends on who brought the row, and precedes who takes it
//! away, but does not depend on its versions.
//!
//! ROLLBACK TO SAVEPOINT takes writes back, never reads.

/// Which version of a row: its writer, and the how-manieth version of that writer.
pub type Stamp = i64;

/// Bits of a stamp that count the versions of one transaction.
const COUNT_BITS: u32 = 16;

/// The stamp of a transaction's version.
pub fn stamp(writer: u64, count: u64) -> Stamp {
    ((writer << COUNT_BITS) | (count & ((1 << COUNT_BITS) - 1))) as Stamp
}

/// The transaction that wrote a version.
pub fn writer(stamp: Stamp) -> u64 {
    (stamp as u64) >> COUNT_BITS
}

/// A row, whether it exists or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Object {
    /// Its table.
    pub table: u32,
    /// Its primary key.
    pub key: i64,
}

/// The indexed columns of a row; the first is the primary key.
pub type Row = Vec<i64>;

/// A range of one indexed column, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Predicate {
    /// The table.
    pub table: u32,
    /// The column, counted as in [`Row`].
    pub column: usize,
    /// The lowest value.
    pub low: i64,
    /// The highest value.
    pub high: i64,
}

impl Predicate {
    /// One key.
    pub fn key(object: Object) -> Predicate {
        Predicate { table: object.table, column: 0, low: object.key, high: object.key }
    }

    /// Whether a row (`None`: it does not exist) is in the range.
    pub fn holds(&self, row: Option<&Row>) -> bool {
        row.and_then(|row| row.get(self.column)).is_some_and(|value| (self.low..=self.high).contains(value))
    }
}

/// A predicate read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// What was asked for.
    pub predicate: Predicate,
    /// What was returned: keys and versions.
    pub seen: Vec<(i64, Stamp)>,
    /// The commit number up to which the statement saw others' changes.
    pub snapshot: u64,
}

/// It was told that some row is in a range, but not which version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exists {
    /// The range.
    pub predicate: Predicate,
    /// The commit number at which that was so.
    pub snapshot: u64,
    /// The row was read as it is, though it was not told how; else the reader does not mind another
    /// version of it.
    pub as_it_is: bool,
}

/// A new version of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The row.
    pub object: Object,
    /// The version.
    pub stamp: Stamp,
    /// The version that it took the place of; `None` for an insert.
    pub replaced: Option<Stamp>,
    /// The new values; `None` for a deletion.
    pub row: Option<Row>,
}

/// One step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It read.
    Scan(Scan),
    /// It learned that a row is there. Judged only where commit numbers are known.
    Exists(Exists),
    /// A statement that the certifier ended had met a row in this range, which nothing that it had
    /// read before can be put in one order with. By whose commit the row was there is not known: it
    /// was the newest by then.
    Met(Predicate),
    /// It wrote.
    Write(Write),
    /// It took back what it wrote from the event of this place on.
    TakenBack(usize),
}

/// Those writes among events that were not taken back.
pub fn standing(events: &[Event]) -> Vec<&Write> {
    let mut standing: Vec<(usize, &Write)> = Vec::new();
    for (place, event) in events.iter().enumerate() {
        match event {
            Event::Write(write) => standing.push((place, write)),
            Event::TakenBack(from) => standing.retain(|(place, _)| place < from),
            Event::Scan(_) | Event::Exists(_) | Event::Met(_) => {}
        }
    }
    standing.into_iter().map(|(_, write)| write).collect()
}

/// Why a transaction was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Abort {
    /// 40001 for a dependency cycle, or for what may become one.
    Certifier,
    /// 40001 because a row had changed since the snapshot.
    FirstUpdater,
    /// 40P01.
    Deadlock,
    /// The client's own wish, or an error of its own making such as a duplicate key.
    Client,
}

impl Abort {
    /// From the SQLSTATE and the message that the server sent.
    pub fn classify(sqlstate: &str, message: &str) -> Abort {
        match sqlstate {
            "40P01" => Abort::Deadlock,
            "40001" if message.contains("concurrent") => Abort::FirstUpdater,
            "40001" => Abort::Certifier,
            _ => Abort::Client,
        }
    }

    /// In tables.
    pub fn name(self) -> &'static str {
        match self {
            Abort::Certifier => "certifier",
            Abort::FirstUpdater => "first updater wins",
            Abort::Deadlock => "deadlock",
            Abort::Client => "client",
        }
    }
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was told that it committed.
    Committed,
    /// It was told that it did not.
    Aborted(Abort),
}

/// One transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Its number in stamps; above 0, unique.
    pub id: u64,
    /// What it did, in order. A statement that failed is not among it.
    pub events: Vec<Event>,
    /// How it ended.
    pub outcome: Outcome,
    /// The snapshot of its last statement: later than that of its first where a server moves it, or
    /// takes one a statement. It committed after that number.
    pub snapshot: u64,
    /// The snapshot at which it began: whoever had committed up to it had ended by then. Where a
    /// server moves the snapshot later, it has not begun later.
    pub first: u64,
    /// Its commit number, where that is known exactly: commits up to a snapshot are seen by it.
    pub commit: Option<u64>,
    /// When its first statement was sent, on a counter that all transactions share.
    pub began: u64,
    /// When it was known, on that counter, that it had begun at `first`.
    pub placed: u64,
    /// When the statement that ended it was sent, on that counter.
    pub asked: u64,
    /// When that statement was answered.
    pub answered: u64,
}

impl Transaction {
    /// Whether it committed.
    pub fn committed(&self) -> bool {
        self.outcome == Outcome::Committed
    }

    /// What it did to others' eyes: for each row the version that it replaced and the last that it
    /// wrote.
    pub fn net_writes(&self) -> Vec<Write> {
        let mut net: Vec<Write> = Vec::new();
        for write in standing(&self.events) {
            match net.iter_mut().find(|known| known.object == write.object) {
                Some(known) => {
                    known.stamp = write.stamp;
                    known.row.clone_from(&write.row);
                }
                None => net.push(write.clone()),
            }
        }
        net
    }
}

/// What was recorded of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The rows that the load committed: number 0, before everything else.
    pub loaded: Vec<Write>,
    /// Everybody else, in any order.
    pub transactions: Vec<Transaction>,
}
