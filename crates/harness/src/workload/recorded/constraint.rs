//! What a transaction learns of other rows by a constraint: that it held, or that it refused.
//!
//! A statement that went through knows that a child's parent is there, that a deleted parent has no
//! children, and that no other row has a badge's unique value. One that was refused, in a
//! transaction that goes on from a savepoint, knows the contrary. Constraints look at the newest
//! commits, under locks; `now` is the commit number of these.

use super::connection::Failure;
use super::operation::Operation;
use crate::checker::history::{Event, Exists, Object, Predicate, Scan};

/// The table that children refer to.
pub const PARENT: u32 = 2;
/// The table whose second column refers to a parent.
pub const CHILD: u32 = 3;
/// The table whose second column is unique.
pub const BADGE: u32 = 4;

fn group(table: u32, value: i64) -> Predicate {
    Predicate { table, column: 1, low: value, high: value }
}

fn parent_of(value: i64) -> Predicate {
    Predicate::key(Object { table: PARENT, key: value })
}

/// What the writes among a statement's events tell, since no constraint refused them.
pub fn held(events: &[Event], now: u64) -> Vec<Event> {
    let mut learned = Vec::new();
    for event in events {
        let Event::Write(write) = event else { continue };
        let Object { table, key } = write.object;
        match (table, &write.row) {
            (PARENT, None) => {
                let scan = Scan { predicate: group(CHILD, key), seen: Vec::new(), snapshot: now };
                learned.push(Event::Scan(scan));
            }
            (CHILD, Some(row)) => {
                learned.push(Event::Exists(Exists {
                    predicate: parent_of(row[1]),
                    snapshot: now,
                    as_it_is: false,
                }));
            }
            (BADGE, Some(row)) => {
                // Its own row has the value.
                let seen = vec![(key, write.stamp)];
                learned.push(Event::Scan(Scan { predicate: group(BADGE, row[1]), seen, snapshot: now }));
            }
            _ => {}
        }
    }
    learned
}

/// What a statement looked at that was ended by the certifier instead of by the constraint: a key
/// was taken, and no order explains that together with what was read before. The cycle that is
/// named tells which key. `now`: as [`held`], if it is known.
pub fn contradicted(operation: Operation, failure: &Failure, now: Option<u64>) -> Vec<Event> {
    let detail = failure.detail.as_deref().unwrap_or_default();
    let into_this = |edge: &&str| edge.contains(" -wr-> ") && edge.contains(" (this transaction): ");
    let Some(edge) = detail.split("; ").find(into_this) else { return Vec::new() };
    let message = if edge.contains(" of index ") { "duplicate" } else { "duplicate _pkey" };
    let duplicate = Failure { sqlstate: "23505".to_owned(), message: message.to_owned(), detail: None };
    let learned = refused(operation, &duplicate, now.unwrap_or_default()).unwrap_or_default();
    match (now, learned.last()) {
        (None, Some(Event::Exists(taken))) => vec![Event::Met(taken.predicate)],
        (None, _) => Vec::new(),
        (Some(_), _) => learned,
    }
}

/// What a statement's refusal tells: `None` if that cannot be recorded, so that the transaction has
/// to end.
pub fn refused(operation: Operation, failure: &Failure, now: u64) -> Option<Vec<Event>> {
    let exists = |predicate, as_it_is| Event::Exists(Exists { predicate, snapshot: now, as_it_is });
    let (object, value, moved) = match operation {
        Operation::Insert(object, value)
        | Operation::Ignore(object, value)
        | Operation::Upsert(object, value) => (object, value, false),
        Operation::Move(object, value) => (object, value, true),
        // Of a parent's children any could be the reason.
        _ => return None,
    };
    let mut learned = Vec::new();
    if moved {
        learned.push(exists(Predicate::key(object), true));
    }
    match failure.sqlstate.as_str() {
        "23505" if failure.message.contains("_pkey") => learned.push(exists(Predicate::key(object), true)),
        "23505" => learned.push(exists(group(object.table, value), false)),
        "23503" => {
            learned.push(Event::Scan(Scan { predicate: parent_of(value), seen: Vec::new(), snapshot: now }));
        }
        _ => return None,
    }
    Some(learned)
}
