//! PostgreSQL's wire protocol, version 3: codec, start-up, authentication, and one task per connection.

pub mod auth;
pub mod frame;
pub mod fuzz;
pub mod message;
pub mod response;
pub mod startup;
pub mod tls;
