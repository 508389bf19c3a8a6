//! Tests of transactions through the public face.

mod basics;
mod support;
