//! Tests of the harness that need no database server: generated data, requests, checks and reports;
//! and of the database by the oracle: generated interleavings and random histories.

mod bookstore_data;
mod bookstore_invariants;
mod checker;
mod command_line;
mod composite;
mod histories;
mod interleavings;
mod report_shape;

/// Whether a transaction at SERIALIZABLE that meets a newer row goes on at a later snapshot, where
/// nothing that it has read has changed: then no abort by first updater wins is needless.
const MOVES_SNAPSHOTS: bool = true;
