//! Faults put upon a real server.
