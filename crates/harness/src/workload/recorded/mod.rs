//! Transactions whose reads and writes are recorded for the oracle, through SQL.
//!
//! Five tables of one shape; three of them are under constraints. Each row carries the stamp of its
//! version (`ver`) and that of the version before (`prev`), so a reader knows which version it
//! read, and an update tells in its own answer which one it replaced:
//!
//! ```sql
//! UPDATE account SET prev = ver, ver = $2 WHERE id = $1 RETURNING id, prev, grp
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `operation` | what a transaction can do, as SQL and as events of the history |
//! | `constraint` | what is learned of other rows by a constraint that held, or refused |
//! | `connection` | an embedded session or one over the wire |
//! | `recorder` | one session's transactions, statement by statement |
//! | `stage` | sessions driven by one task, in an order that the caller gives |
//! | `generate` | random transactions on few, hot rows |
//! | `run` | the random load with real concurrency |

pub mod connection;
pub mod constraint;
pub mod generate;
pub mod operation;
pub mod recorder;
pub mod run;
pub mod stage;

/// The tables, by their numbers in the history. A `child`'s second column refers to a `parent`;
/// that of `badge` is unique.
pub const TABLES: [&str; 5] = ["account", "entry", "parent", "child", "badge"];

/// What makes the tables, one statement each.
pub const SCHEMA: [&str; 9] = [
    "CREATE TABLE account (id int8 PRIMARY KEY, grp int8 NOT NULL, ver int8 NOT NULL, prev int8)",
    "CREATE INDEX account_grp ON account (grp)",
    "CREATE TABLE entry (id int8 PRIMARY KEY, grp int8 NOT NULL, ver int8 NOT NULL, prev int8)",
    "CREATE INDEX entry_grp ON entry (grp)",
    "CREATE TABLE parent (id int8 PRIMARY KEY, grp int8 NOT NULL, ver int8 NOT NULL, prev int8)",
    "CREATE INDEX parent_grp ON parent (grp)",
    "CREATE TABLE child (id int8 PRIMARY KEY, grp int8 NOT NULL REFERENCES parent (id), ver int8 NOT NULL, prev int8)",
    "CREATE INDEX child_grp ON child (grp)",
    "CREATE TABLE badge (id int8 PRIMARY KEY, grp int8 NOT NULL UNIQUE, ver int8 NOT NULL, prev int8)",
];
