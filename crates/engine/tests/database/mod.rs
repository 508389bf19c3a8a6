//! Tests of transactions through the public face.

mod basics;
mod checkpoint;
mod crash;
mod model;
mod reopen;
mod support;
