//! The harness: workloads, peers and faults that show what Cognate does under load.
//!
//! Everything here talks to a database the way its users do, over the PostgreSQL protocol with a
//! real driver (or, for the embedded library, through its public calls), so that one client program
//! drives Cognate and PostgreSQL alike and the ratio of two figures means something.
//!
//! | room | what it holds |
//! |---|---|
//! | `workload` | the TPC-W bookstore, stock pgbench, and the smaller loads |
//! | `peer` | starting and stopping the database servers under test |
//! | `checker` | the oracle: was a recorded history serializable, and which aborts were needless |
//! | `fault` | killing a real server under load and checking what is left |
//! | `driver` | closed-loop clients, one measured window, counts per interaction |
//! | `chart` | curves over the number of clients, as SVG |
//! | `report` | the table, the JSON list and the chart that every benchmark ends with |
//! | `results` | docs/results.md and its pages, from the JSON files of the runs |
//! | `steal` | what the host of a virtual machine takes from it |
//! | `command` | one file per subcommand of `cognate-bench` |
//!
//! Invariants: every server started here is a child with its own temporary folder and a free
//! loopback port, and is stopped when its handle is dropped, on success, on an error, on a panic
//! and on Ctrl-C alike. Every wait is bounded.

pub mod chart;
pub mod checker;
pub mod cli;
pub mod command;
pub mod driver;
pub mod error;
pub mod fault;
pub mod median;
pub mod money;
pub mod peer;
pub mod progress;
pub mod random;
pub mod report;
pub mod results;
pub mod steal;
pub mod workload;
