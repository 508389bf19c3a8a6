//! Tests of transactions through the public face.

mod anomalies;
mod backup;
mod basics;
mod checkpoint;
mod cluster;
#[cfg(any(feature = "planted-faults", feature = "protocol-alone"))]
mod cluster_alone;
mod cluster_families;
#[cfg(feature = "planted-faults")]
mod cluster_faults;
mod cluster_given_up;
mod cluster_large;
mod cluster_memory;
mod cluster_prepared;
mod cluster_protocols;
mod cluster_snapshots;
mod cluster_voids;
mod cluster_waits;
mod crash;
mod damage;
mod defect;
mod load;
mod model;
mod prepared;
mod refresh;
mod reopen;
mod script;
mod siblings;
mod stress;
mod support;
