//! The loads that systems are put under.

pub mod bookstore;
pub mod composite;
pub mod keyed;
pub mod log;
pub mod mip;
pub mod pace;
pub mod pgbench;
pub mod point_read;
pub mod recorded;
pub mod s3u1;
pub mod shifting;
pub mod snum;
pub mod turns;
pub mod updates;
