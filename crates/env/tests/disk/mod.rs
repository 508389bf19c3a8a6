//! Tests of the disks.

mod log_device;
mod real;
mod sim;
