//! What a transaction can do: each operation as a statement, and its answer as events of the
//! history.
//!
//! A join reads a range of `entry` by its index and, for each row, the `account` of that number; it
//! is an outer join, so that a row without a partner is told, too. ON CONFLICT is about the primary
//! key, and in `badge` about the unique second column. The aggregate spells its rows out, so that
//! they can be recorded.

use crate::checker::history::{Event, Exists, Object, Predicate, Row, Scan, Stamp, Write};
use crate::error::{Error, Result};

use super::TABLES;
use super::connection::{Failure, Value};
use super::constraint::{BADGE, CHILD, PARENT};

/// One statement of a recorded transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A row by its primary key.
    Point(Object),
    /// A row by its primary key, `FOR SHARE`.
    Share(Object),
    /// A row by its primary key, `FOR UPDATE`.
    Lock(Object),
    /// Rows of a range, in the way that `Access` tells.
    Range(Access, Predicate),
    /// `entry` by a range of its second column, with the accounts of these numbers.
    Join {
        /// The lowest.
        low: i64,
        /// The highest.
        high: i64,
    },
    /// A new version of one row.
    Update(Object),
    /// New versions of all rows in a range.
    UpdateRange(Predicate),
    /// A new version of one row with another value in its second column.
    Move(Object, i64),
    /// A new row, with its second column.
    Insert(Object, i64),
    /// The same with ON CONFLICT DO NOTHING.
    Ignore(Object, i64),
    /// The same with ON CONFLICT DO UPDATE: a new version of the row in the way.
    Upsert(Object, i64),
    /// A row goes.
    Delete(Object),
}

/// How a range is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The rows as they are.
    Rows,
    /// Counted and concatenated by an aggregate.
    Aggregate,
    /// With a window function.
    Window,
}

/// The names of the columns of a history's row.
const COLUMNS: [&str; 2] = ["id", "grp"];

fn table(object: Object) -> &'static str {
    TABLES[object.table as usize]
}

impl Operation {
    /// The same with keys and second columns moved by `base`.
    pub fn shifted(self, base: i64) -> Operation {
        let of = |object: Object| Object { key: object.key + base, ..object };
        let range = |p: Predicate| Predicate { low: p.low + base, high: p.high + base, ..p };
        match self {
            Operation::Point(object) => Operation::Point(of(object)),
            Operation::Share(object) => Operation::Share(of(object)),
            Operation::Lock(object) => Operation::Lock(of(object)),
            Operation::Range(access, predicate) => Operation::Range(access, range(predicate)),
            Operation::Join { low, high } => Operation::Join { low: low + base, high: high + base },
            Operation::Update(object) => Operation::Update(of(object)),
            Operation::UpdateRange(predicate) => Operation::UpdateRange(range(predicate)),
            Operation::Move(object, group) => Operation::Move(of(object), group + base),
            Operation::Insert(object, group) => Operation::Insert(of(object), group + base),
            Operation::Ignore(object, group) => Operation::Ignore(of(object), group + base),
            Operation::Upsert(object, group) => Operation::Upsert(of(object), group + base),
            Operation::Delete(object) => Operation::Delete(of(object)),
        }
    }

    /// Whether it looks at more than its snapshot: it writes, or locks what it reads.
    pub fn meets_newer(self) -> bool {
        !matches!(self, Operation::Point(_) | Operation::Range(..) | Operation::Join { .. })
    }

    /// What it did, for counting: the operation, and by which constraint its table is special.
    pub fn kind(self, events: &[Event]) -> &'static str {
        let wrote = events.iter().any(|event| matches!(event, Event::Write(_)));
        let inserted = |event: &Event| matches!(event, Event::Write(write) if write.replaced.is_none());
        match self {
            Operation::Point(_) => "point read",
            Operation::Share(_) => "FOR SHARE",
            Operation::Lock(_) => "FOR UPDATE",
            Operation::Range(..) => "range read",
            Operation::Join { .. } => "join",
            _ if !wrote && !matches!(self, Operation::Ignore(..)) => "write of nothing",
            Operation::Update(_) => "update",
            Operation::UpdateRange(_) => "update by index",
            Operation::Move(o, _) if o.table == BADGE => "change of a unique value",
            Operation::Move(o, _) if o.table == CHILD => "child moved",
            Operation::Move(..) => "change of an indexed value",
            Operation::Insert(o, _) if o.table == BADGE => "insert of a unique value",
            Operation::Insert(o, _) if o.table == CHILD => "child inserted",
            Operation::Insert(..) => "insert",
            Operation::Ignore(..) if !wrote => "DO NOTHING: nothing",
            Operation::Ignore(..) => "DO NOTHING: inserted",
            Operation::Upsert(..) if events.iter().any(inserted) => "DO UPDATE: inserted",
            Operation::Upsert(..) => "DO UPDATE: updated",
            Operation::Delete(o) if o.table == PARENT => "parent deleted",
            Operation::Delete(_) => "delete",
        }
    }

    /// The statement and its parameters; `stamp` is the version that it writes, if it writes.
    pub fn statement(self, stamp: Stamp) -> (String, Vec<i64>) {
        let set = "SET prev = ver, ver";
        let within = |p: Predicate| format!("{} BETWEEN $1 AND $2", COLUMNS[p.column]);
        match self {
            Operation::Point(o) => (format!("SELECT id, ver FROM {} WHERE id = $1", table(o)), vec![o.key]),
            Operation::Share(o) => {
                (format!("SELECT id, ver FROM {} WHERE id = $1 FOR SHARE", table(o)), vec![o.key])
            }
            Operation::Lock(o) => {
                (format!("SELECT id, ver FROM {} WHERE id = $1 FOR UPDATE", table(o)), vec![o.key])
            }
            Operation::Range(access, p) => {
                let columns = match access {
                    Access::Rows => "id, ver",
                    Access::Aggregate => "count(*), string_agg(id::text || ':' || ver::text, ',')",
                    Access::Window => "id, ver, count(*) OVER ()",
                };
                let table = TABLES[p.table as usize];
                (format!("SELECT {columns} FROM {table} WHERE {}", within(p)), vec![p.low, p.high])
            }
            Operation::Join { low, high } => (
                "SELECT e.id, e.ver, e.grp, a.id, a.ver FROM entry e LEFT JOIN account a ON a.id = e.grp \
                 WHERE e.grp BETWEEN $1 AND $2"
                    .to_owned(),
                vec![low, high],
            ),
            Operation::Update(o) => {
                let text = format!("UPDATE {} {set} = $2 WHERE id = $1 RETURNING id, prev, grp", table(o));
                (text, vec![o.key, stamp])
            }
            Operation::UpdateRange(p) => {
                let table = TABLES[p.table as usize];
                let text = format!("UPDATE {table} {set} = $3 WHERE {} RETURNING id, prev, grp", within(p));
                (text, vec![p.low, p.high, stamp])
            }
            Operation::Move(o, group) => {
                let text =
                    format!("UPDATE {} {set} = $2, grp = $3 WHERE id = $1 RETURNING id, prev, grp", table(o));
                (text, vec![o.key, stamp, group])
            }
            Operation::Insert(o, group) => (insert(o), vec![o.key, group, stamp]),
            Operation::Ignore(o, group) => {
                let column = COLUMNS[arbiter(o)];
                let text = format!("{} ON CONFLICT ({column}) DO NOTHING RETURNING id", insert(o));
                (text, vec![o.key, group, stamp])
            }
            Operation::Upsert(o, group) => {
                let (table, column) = (table(o), COLUMNS[arbiter(o)]);
                let set = format!("SET prev = {table}.ver, ver = excluded.ver");
                let text =
                    format!("{} ON CONFLICT ({column}) DO UPDATE {set} RETURNING id, prev, grp", insert(o));
                (text, vec![o.key, group, stamp])
            }
            Operation::Delete(o) => {
                (format!("DELETE FROM {} WHERE id = $1 RETURNING id, ver", table(o)), vec![o.key])
            }
        }
    }

    /// The events that the answer tells of; `snapshot` is that of the statement.
    ///
    /// # Errors
    /// An answer of another shape than the statement's, which would be a fault of the server.
    pub fn events(self, rows: &[Vec<Value>], stamp: Stamp, snapshot: u64) -> Result<Vec<Event>> {
        let scan =
            |predicate: Predicate, seen: Vec<(i64, Stamp)>| Event::Scan(Scan { predicate, seen, snapshot });
        Ok(match self {
            Operation::Point(o) | Operation::Share(o) | Operation::Lock(o) => {
                vec![scan(Predicate::key(o), pairs(rows)?)]
            }
            Operation::Range(Access::Aggregate, p) => vec![scan(p, aggregated(rows)?)],
            Operation::Range(Access::Rows | Access::Window, p) => vec![scan(p, pairs(rows)?)],
            Operation::Join { low, high } => {
                joined(rows, Predicate { table: 1, column: 1, low, high }, snapshot)?
            }
            Operation::Update(o) | Operation::Move(o, _) => {
                let mut events = vec![scan(Predicate::key(o), pairs(rows)?)];
                events.extend(updates(rows, o.table, stamp)?);
                events
            }
            Operation::UpdateRange(p) => {
                let mut events = vec![scan(p, pairs(rows)?)];
                events.extend(updates(rows, p.table, stamp)?);
                events
            }
            Operation::Insert(object, group) => vec![inserted(object, group, stamp)],
            Operation::Ignore(object, group) if rows.is_empty() => {
                // The row is read by its primary key; by a unique value only the index is.
                let as_it_is = arbiter(object) == 0;
                vec![Event::Exists(Exists { predicate: in_the_way(object, group), snapshot, as_it_is })]
            }
            Operation::Ignore(object, group) => vec![inserted(object, group, stamp)],
            Operation::Upsert(object, group) => match rows {
                [row] if row.get(1) == Some(&Value::Null) => vec![inserted(object, group, stamp)],
                _ => {
                    let mut events = vec![scan(in_the_way(object, group), pairs(rows)?)];
                    events.extend(updates(rows, object.table, stamp)?);
                    events
                }
            },
            Operation::Delete(object) => {
                let seen = pairs(rows)?;
                let gone = seen.iter().map(|&(_, replaced)| {
                    Event::Write(Write { object, stamp, replaced: Some(replaced), row: None })
                });
                let gone: Vec<Event> = gone.collect();
                [vec![scan(Predicate::key(object), seen)], gone].concat()
            }
        })
    }
}

fn insert(object: Object) -> String {
    format!("INSERT INTO {} (id, grp, ver) VALUES ($1, $2, $3)", table(object))
}

fn inserted(object: Object, group: i64, stamp: Stamp) -> Event {
    let row = Some(vec![object.key, group]);
    Event::Write(Write { object, stamp, replaced: None, row })
}

/// The column that ON CONFLICT is about.
fn arbiter(object: Object) -> usize {
    usize::from(object.table == BADGE)
}

/// Where ON CONFLICT looks for a row.
fn in_the_way(object: Object, group: i64) -> Predicate {
    match arbiter(object) {
        0 => Predicate::key(object),
        column => Predicate { table: object.table, column, low: group, high: group },
    }
}

fn int(row: &[Value], column: usize) -> Result<i64> {
    match row.get(column) {
        Some(Value::Int(value)) => Ok(*value),
        other => Err(Error::Violation(format!("column {column} of an answer is {other:?} and no number"))),
    }
}

/// Keys and versions, from the first two columns.
fn pairs(rows: &[Vec<Value>]) -> Result<Vec<(i64, Stamp)>> {
    rows.iter().map(|row| Ok((int(row, 0)?, int(row, 1)?))).collect()
}

/// From a count and a list `7:65537,8:131073`.
fn aggregated(rows: &[Vec<Value>]) -> Result<Vec<(i64, Stamp)>> {
    let wrong = || Error::Violation(format!("the aggregate answered {rows:?}"));
    let [row] = rows else { return Err(wrong()) };
    let seen = match row.get(1) {
        Some(Value::Text(list)) => list
            .split(',')
            .map(|pair| {
                let (key, stamp) = pair.split_once(':')?;
                Some((key.parse().ok()?, stamp.parse().ok()?))
            })
            .collect::<Option<Vec<(i64, Stamp)>>>()
            .ok_or_else(wrong)?,
        Some(Value::Null) => Vec::new(),
        _ => return Err(wrong()),
    };
    if int(row, 0)? != seen.len() as i64 {
        return Err(wrong());
    }
    Ok(seen)
}

fn joined(rows: &[Vec<Value>], entries: Predicate, snapshot: u64) -> Result<Vec<Event>> {
    let mut events = vec![Event::Scan(Scan { predicate: entries, seen: pairs(rows)?, snapshot })];
    for row in rows {
        let account = Object { table: 0, key: int(row, 2)? };
        let seen = match row.get(3) {
            Some(Value::Null) => Vec::new(),
            _ => vec![(int(row, 3)?, int(row, 4)?)],
        };
        events.push(Event::Scan(Scan { predicate: Predicate::key(account), seen, snapshot }));
    }
    Ok(events)
}

fn updates(rows: &[Vec<Value>], table: u32, stamp: Stamp) -> Result<Vec<Event>> {
    let update = |row: &Vec<Value>| {
        let (key, replaced, group) = (int(row, 0)?, int(row, 1)?, int(row, 2)?);
        let row: Option<Row> = Some(vec![key, group]);
        Ok(Event::Write(Write { object: Object { table, key }, stamp, replaced: Some(replaced), row }))
    };
    rows.iter().map(update).collect()
}

/// Whether a failure is one that the load itself brings about, such as a key that exists already.
pub fn is_expected(failure: &Failure) -> bool {
    matches!(failure.sqlstate.as_str(), "40001" | "40P01" | "23503" | "23505")
}
