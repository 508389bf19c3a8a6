//! Integration tests of the server.

mod codec;
