//! Tests of the disks.

mod real;
mod sim;
