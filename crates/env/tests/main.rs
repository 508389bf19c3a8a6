//! Integration tests of the environment.

mod real;
