//! Integration tests of the command and of the embedding library.

mod advisory;
mod backup;
mod bad_input;
mod cluster;
mod cluster_constraints;
mod cluster_divergence;
mod cluster_faults;
mod cluster_flow;
mod cluster_histories;
mod cluster_joining;
mod cluster_machines;
mod cluster_operation;
mod cluster_protocols;
mod command;
mod crash;
mod damage;
mod library;
mod memory;
mod methods;
mod notify;
mod process;
mod proxies;
mod spill;
mod wire;
