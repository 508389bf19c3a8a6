//! Tests of the harness that need no database server: generated data, requests, checks and reports;
//! and of the embedded database by the oracle: generated interleavings and random histories.

mod bookstore_data;
mod bookstore_invariants;
mod checker;
mod command_line;
mod composite;
mod histories;
mod interleavings;
mod report_shape;
