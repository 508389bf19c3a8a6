//! Integration tests of the command and of the embedding library.

mod command;
mod crash;
mod damage;
mod library;
mod process;
mod wire;
