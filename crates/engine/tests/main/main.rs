//! The engine through its public face.

mod basics;
mod support;
