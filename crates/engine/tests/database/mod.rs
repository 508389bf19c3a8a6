//! Tests of transactions through the public face.

mod basics;
mod reopen;
mod support;
