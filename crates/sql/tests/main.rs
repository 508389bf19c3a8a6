//! Tests of the crate's public face, one module a subject.

mod bounds;
mod calls;
mod damage;
mod databases;
mod golden;
mod keys;
mod monitor;
mod node_answers;
mod nodes;
mod numeric;
mod parallel;
mod precise;
mod random;
mod replication;
mod role_settings;
mod routines;
mod row;
mod script;
mod select;
mod snapshots;
mod statistics;
mod temporary;
mod told;
mod wire;
