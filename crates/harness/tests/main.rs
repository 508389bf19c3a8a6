//! Tests of the harness that need no database server: generated data, requests, checks and reports.

mod bookstore_data;
mod bookstore_invariants;
mod command_line;
mod report_shape;
