//! The loads that systems are put under.

pub mod bookstore;
