//! Integration tests of the server.

mod arrivals;
mod binary_copy;
mod client;
mod codec;
mod databases;
mod departure;
mod durability;
mod embedded;
mod enums;
mod governor;
mod hostile;
mod limits;
mod live;
mod operator;
mod portals;
mod precise;
mod protocol;
mod rerun;
mod role_settings;
mod roles;
mod secured;
mod shared_plans;
mod siblings;
mod simulation;
mod support;
