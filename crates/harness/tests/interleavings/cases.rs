//! The anomalies and their look-alikes: rows at the start, and what each transaction does before it
//! commits.
//!
//! Tables: `account` is 0, `entry` is 1; the second column of `badge` is unique. Each pair stands
//! for a row and its second column.

use cognate_harness::checker::history::{Object, Predicate};
use cognate_harness::workload::bookstore::Isolation::{self, ReadCommitted, RepeatableRead};
use cognate_harness::workload::recorded::constraint::BADGE;
use cognate_harness::workload::recorded::operation::Access::{Aggregate, Rows, Window};
use cognate_harness::workload::recorded::operation::Operation::{
    self, Delete, Insert, Join, Lock, Move, Point, Range, Share, Update, UpdateRange, Upsert,
};

/// One anomaly or look-alike.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) rows: &'static [(Object, i64)],
    pub(crate) scripts: &'static [&'static [Operation]],
    /// The levels that permit it.
    pub(crate) permitted: &'static [Isolation],
}

/// The row with its key and second column moved.
pub(crate) fn shifted(object: Object, group: i64, base: i64) -> (Object, i64) {
    (Object { key: object.key + base, ..object }, group + base)
}

const NEVER: &[Isolation] = &[];
const BELOW_SNAPSHOT: &[Isolation] = &[ReadCommitted];
const BELOW_SERIALIZABLE: &[Isolation] = &[ReadCommitted, RepeatableRead];

const fn account(key: i64) -> Object {
    Object { table: 0, key }
}

const fn entry(key: i64) -> Object {
    Object { table: 1, key }
}

const fn badge(key: i64) -> Object {
    Object { table: BADGE, key }
}

const fn keys(low: i64, high: i64) -> Predicate {
    Predicate { table: 0, column: 0, low, high }
}

const fn groups(low: i64, high: i64) -> Predicate {
    Predicate { table: 0, column: 1, low, high }
}

const X: Object = account(1);
const Y: Object = account(2);
const Z: Object = account(3);
const THREE: &[(Object, i64)] = &[(X, 10), (Y, 20), (Z, 30)];

const fn case(
    name: &'static str,
    permitted: &'static [Isolation],
    scripts: &'static [&'static [Operation]],
) -> Case {
    Case { name, rows: THREE, scripts, permitted }
}

pub(crate) const LOST_UPDATE: &[Case] = &[
    case("lost update", BELOW_SNAPSHOT, &[&[Point(X), Update(X)], &[Point(X), Update(X)]]),
    case(
        "lost update by index",
        BELOW_SNAPSHOT,
        &[
            &[Range(Rows, groups(10, 10)), UpdateRange(groups(10, 10))],
            &[Point(X), UpdateRange(groups(10, 10))],
        ],
    ),
    case("updates that read what they replace", NEVER, &[&[Update(X), Point(X)], &[Update(X), Point(X)]]),
    case("updates of different rows", NEVER, &[&[Point(X), Update(X)], &[Point(Y), Update(Y)]]),
    case("reads that lock", NEVER, &[&[Share(X), Update(X)], &[Share(X), Update(X)]]),
    case("two inserts of one key", NEVER, &[&[Insert(account(7), 70)], &[Insert(account(7), 71)]]),
    case(
        "an insert where the snapshot still has a row",
        NEVER,
        &[&[Delete(X)], &[Point(Y), Insert(X, 40), Range(Rows, keys(1, 2))]],
    ),
    Case {
        name: "a unique value that the snapshot still shows in another row",
        rows: &[(badge(1), 10), (badge(2), 20)],
        scripts: &[
            &[Move(badge(1), 15)],
            &[
                Point(badge(2)),
                Insert(badge(3), 10),
                Range(Rows, Predicate { table: BADGE, ..groups(10, 20) }),
            ],
        ],
        permitted: NEVER,
    },
    case(
        "an insert where the snapshot's index still has a row",
        NEVER,
        &[&[Delete(X)], &[Point(Y), Insert(X, 40), UpdateRange(groups(10, 10))]],
    ),
    case("a delete and an insert of one key", NEVER, &[&[Delete(X)], &[Insert(X, 11)], &[Point(X)]]),
];

pub(crate) const WRITE_SKEW: &[Case] = &[
    case("write skew", BELOW_SERIALIZABLE, &[&[Point(X), Update(Y)], &[Point(Y), Update(X)]]),
    case(
        "write skew of a sum",
        BELOW_SERIALIZABLE,
        &[&[Range(Rows, keys(1, 2)), Update(X)], &[Range(Rows, keys(1, 2)), Update(Y)]],
    ),
    case("write skew by deletes", BELOW_SERIALIZABLE, &[&[Point(X), Delete(Y)], &[Point(Y), Delete(X)]]),
    case(
        "write skew on a row that is not there",
        BELOW_SERIALIZABLE,
        &[&[Point(account(5)), Update(X)], &[Point(X), Insert(account(5), 50)]],
    ),
    case(
        "an update that finds nothing",
        BELOW_SERIALIZABLE,
        &[&[Update(account(5)), Update(X)], &[Point(X), Insert(account(5), 50)]],
    ),
    case("one-sided skew", NEVER, &[&[Point(X), Update(Y)], &[Point(Z), Update(X)]]),
    case(
        "reads of other rows of a range",
        NEVER,
        &[&[Range(Rows, keys(1, 1)), Update(X)], &[Range(Rows, keys(2, 3)), Update(Y)]],
    ),
    case("own writes read", NEVER, &[&[Update(X), Point(X)], &[Update(Y), Point(Y)]]),
    case("reads that lock", NEVER, &[&[Share(X), Update(Y)], &[Share(Y), Update(X)]]),
];

pub(crate) const READ_ONLY: &[Case] = &[
    case(
        "read-only anomaly",
        BELOW_SERIALIZABLE,
        &[&[Range(Rows, keys(1, 2)), Update(X)], &[Update(Y)], &[Range(Rows, keys(1, 2))]],
    ),
    case("a report of one row", NEVER, &[&[Range(Rows, keys(1, 2)), Update(X)], &[Update(Y)], &[Point(Y)]]),
    case(
        "a report of what does not meet",
        NEVER,
        &[&[Point(X), Update(X)], &[Update(Y)], &[Range(Rows, keys(1, 2))]],
    ),
];

pub(crate) const PHANTOM_BY_RANGE: &[Case] = &[
    case(
        "phantom by range",
        BELOW_SERIALIZABLE,
        &[
            &[Range(Rows, keys(4, 9)), Insert(account(5), 50)],
            &[Range(Rows, keys(4, 9)), Insert(account(6), 60)],
        ],
    ),
    case(
        "phantom at the ends of a range",
        BELOW_SERIALIZABLE,
        &[
            &[Range(Rows, keys(5, 9)), Insert(account(9), 50)],
            &[Range(Rows, keys(5, 9)), Insert(account(5), 60)],
        ],
    ),
    case(
        "a deletion in a range",
        BELOW_SERIALIZABLE,
        &[&[Range(Rows, keys(1, 2)), Update(Z)], &[Point(Z), Delete(X)]],
    ),
    case(
        "inserts beside the range",
        NEVER,
        &[
            &[Range(Rows, keys(5, 8)), Insert(account(4), 50)],
            &[Range(Rows, keys(5, 8)), Insert(account(9), 60)],
        ],
    ),
    case(
        "ranges that do not meet",
        NEVER,
        &[
            &[Range(Rows, keys(4, 6)), Insert(account(5), 50)],
            &[Range(Rows, keys(7, 9)), Insert(account(8), 60)],
        ],
    ),
    case(
        "one-sided phantom",
        NEVER,
        &[
            &[Range(Rows, keys(4, 9)), Insert(account(15), 50)],
            &[Range(Rows, keys(4, 9)), Insert(account(6), 60)],
        ],
    ),
];

pub(crate) const PHANTOM_BY_INDEX: &[Case] = &[
    case(
        "phantom by index",
        BELOW_SERIALIZABLE,
        &[
            &[Range(Rows, groups(40, 49)), Insert(account(5), 44)],
            &[Range(Rows, groups(40, 49)), Insert(account(6), 45)],
        ],
    ),
    case(
        "a row moves into the range",
        BELOW_SERIALIZABLE,
        &[&[Range(Rows, groups(40, 49)), Update(Z)], &[Point(Z), Move(X, 44)]],
    ),
    case(
        "a row moves out of the range",
        BELOW_SERIALIZABLE,
        &[&[Range(Rows, groups(10, 19)), Update(Z)], &[Point(Z), Move(X, 44)]],
    ),
    case(
        "an update by index that finds nothing",
        BELOW_SERIALIZABLE,
        &[&[UpdateRange(groups(40, 49)), Update(Z)], &[Point(Z), Insert(account(5), 44)]],
    ),
    case(
        "inserts beside the range",
        NEVER,
        &[
            &[Range(Rows, groups(40, 49)), Insert(account(5), 39)],
            &[Range(Rows, groups(40, 49)), Insert(account(6), 50)],
        ],
    ),
    case(
        "moves beside the range",
        NEVER,
        &[&[Range(Rows, groups(40, 49)), Move(X, 11)], &[Range(Rows, groups(40, 49)), Move(Y, 21)]],
    ),
    case(
        "a row that came and went within a transaction",
        NEVER,
        &[&[Range(Rows, groups(40, 49)), Update(Z)], &[Point(Z), Insert(account(5), 44), Delete(account(5))]],
    ),
];

pub(crate) const PHANTOM_BY_AGGREGATE: &[Case] = &[
    case(
        "phantom by aggregate",
        BELOW_SERIALIZABLE,
        &[
            &[Range(Aggregate, keys(4, 9)), Insert(account(5), 50)],
            &[Range(Aggregate, keys(4, 9)), Insert(account(6), 60)],
        ],
    ),
    case(
        "phantom by aggregate over an index",
        BELOW_SERIALIZABLE,
        &[
            &[Range(Aggregate, groups(10, 29)), Insert(account(5), 15)],
            &[Range(Aggregate, groups(10, 29)), Insert(account(6), 25)],
        ],
    ),
    case(
        "phantom by window function",
        BELOW_SERIALIZABLE,
        &[
            &[Range(Window, keys(1, 9)), Insert(account(5), 50)],
            &[Range(Window, keys(1, 9)), Insert(account(6), 60)],
        ],
    ),
    case(
        "aggregates beside the inserts",
        NEVER,
        &[
            &[Range(Aggregate, keys(5, 8)), Insert(account(4), 50)],
            &[Range(Aggregate, groups(10, 29)), Insert(account(9), 60)],
        ],
    ),
    case(
        "window functions beside the inserts",
        NEVER,
        &[
            &[Range(Window, keys(5, 8)), Insert(account(4), 50)],
            &[Range(Window, groups(10, 29)), Insert(account(9), 60)],
        ],
    ),
    case(
        "window functions on keys apart",
        NEVER,
        &[
            &[Range(Window, keys(1, 4)), Insert(account(9), 50)],
            &[Range(Window, keys(5, 8)), Insert(account(10), 60)],
        ],
    ),
];

/// Entries 1 and 2 name accounts 1 and 4; account 4 does not exist.
const JOINED: &[(Object, i64)] = &[(X, 10), (Y, 20), (Z, 30), (entry(1), 1), (entry(2), 4)];
const JOIN: Operation = Join { low: 1, high: 5 };

const fn join(
    name: &'static str,
    permitted: &'static [Isolation],
    scripts: &'static [&'static [Operation]],
) -> Case {
    Case { name, rows: JOINED, scripts, permitted }
}

pub(crate) const PHANTOM_BY_JOIN: &[Case] = &[
    join("phantom by join", BELOW_SERIALIZABLE, &[&[JOIN, Update(Z)], &[Point(Z), Insert(entry(3), 2)]]),
    join("a partner changes", BELOW_SERIALIZABLE, &[&[JOIN, Update(Z)], &[Point(Z), Update(X)]]),
    join("a partner comes", BELOW_SERIALIZABLE, &[&[JOIN, Update(Z)], &[Point(Z), Insert(account(4), 40)]]),
    join("a partner goes", BELOW_SERIALIZABLE, &[&[JOIN, Update(Z)], &[Point(Z), Delete(X)]]),
    join("an entry beside the join", NEVER, &[&[JOIN, Update(Z)], &[Point(Z), Insert(entry(3), 6)]]),
    join("an account that no entry names", NEVER, &[&[JOIN, Update(Z)], &[Point(Z), Update(Y)]]),
];

pub(crate) const FINISHED_READER: &[Case] = &[case(
    "a reader that has committed",
    BELOW_SERIALIZABLE,
    &[&[Point(X), Update(Z)], &[Point(Z), Update(Y)], &[Point(Y), Update(X)]],
)];

/// What first updater wins alone would abort, and no order forbids: snapshots move. Nothing here is
/// read and then replaced by another.
pub(crate) const MOVED_SNAPSHOTS: &[Case] = &[
    case(
        "payments that meet in their last row",
        NEVER,
        &[
            &[Update(X), Point(X), Update(Z), Insert(account(7), 70)],
            &[Update(Y), Point(Y), Update(Z), Insert(account(8), 80)],
        ],
    ),
    case(
        "first statements that wait",
        NEVER,
        &[&[Update(X), Update(Y)], &[Update(X), Point(Y)], &[Update(X)]],
    ),
    case("an update after a read of what stays", NEVER, &[&[Point(Z), Update(X)], &[Point(Z), Update(X)]]),
    case(
        "an update by index after a range of what stays",
        NEVER,
        &[&[Range(Rows, groups(30, 39)), UpdateRange(groups(10, 29))], &[Update(Y)], &[Update(X)]],
    ),
    case("a lock after a read of what stays", NEVER, &[&[Point(Z), Lock(X), Update(X)], &[Update(X)]]),
    case(
        "an insert where the snapshot still has a row",
        NEVER,
        &[&[Delete(X)], &[Point(Y), Insert(account(4), 40), Update(Z)], &[Update(Z)]],
    ),
    case(
        "an upsert of a row that came since",
        NEVER,
        &[&[Insert(account(5), 50)], &[Point(Y), Upsert(account(5), 50)]],
    ),
    case("a delete of a row that changed since", NEVER, &[&[Update(X)], &[Point(Y), Delete(X)]]),
    case("a value that moved on", NEVER, &[&[Move(X, 15)], &[Point(Y), UpdateRange(groups(10, 19))]]),
];

/// The same where something was read and is replaced: what is aborted could not have committed.
pub(crate) const STALE_READS: &[Case] = &[
    case("a read that is replaced first", BELOW_SNAPSHOT, &[&[Point(Y), Update(X)], &[Update(Y), Update(X)]]),
    case(
        "write skew through a moved snapshot",
        BELOW_SERIALIZABLE,
        &[&[Point(X), Update(Y)], &[Point(Y), Update(X)], &[Update(Y)]],
    ),
    case(
        "a phantom before the move",
        BELOW_SNAPSHOT,
        &[&[Range(Rows, keys(4, 9)), Update(X)], &[Insert(account(5), 50), Update(X)]],
    ),
];
