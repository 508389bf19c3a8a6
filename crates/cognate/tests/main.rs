//! Integration tests of the command and of the embedding library.

mod command;
mod library;
mod process;
