//! Tests of the crate's public face, one module a subject.

mod golden;
mod script;
mod select;
