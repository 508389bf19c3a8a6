//! e-Transactions: a request is executed exactly once, although clients time out and application
//! servers stall, die or are wrongly suspected.
//!
//! ```text
//! your client                 your application servers                        the sites
//! EtxClient ───HTTP───▶ http::router ─▶ ApplicationServer ─▶ Pool ─▶ postgres (MIP, or plain PostgreSQL)
//!   etransaction::Client                  etransaction::Run
//! ```
//!
//! - `etransaction` is the protocol, pure: events in, effects out. `backoff` says how long to wait,
//!   as data, and `xid` what an identifier is. None of them does I/O; the first two are a crate of
//!   their own.
//! - `site` is what a database site can do for the protocol, `pool` its connections, and
//!   `application` drives a run over all sites: the application server's side. It keeps nothing
//!   between requests but connections.
//! - `postgres` (feature `sites`) is a site reached by the PostgreSQL protocol: Cognate, or plain
//!   PostgreSQL with less (see `postgres::plain`).
//! - `http` (feature `http`) is the surface, `POST /etx`, and the client side that uses it.
//!
#![cfg_attr(
    feature = "http",
    doc = r#"
```no_run
use cognate_client::application::{ApplicationServer, Branches, Options};
use cognate_client::etransaction::Text;
use cognate_client::http;
use cognate_client::postgres::{PostgresConnection, PostgresSite};

# async fn served() -> Result<(), Box<dyn std::error::Error>> {
let (store, payment) = ("host=10.0.0.1 user=shop", "host=10.0.0.2 user=shop");
let server = ApplicationServer::new([store.parse::<PostgresSite>()?, payment.parse()?], Options::default());
let router = http::router(server, |_request: Text, branches: Branches<PostgresConnection>| async move {
    branches.site(0).execute("UPDATE item SET stock = stock - 1 WHERE id = 7", &[]).await?;
    branches.site(1).execute("UPDATE account SET balance = balance - 30 WHERE id = 4", &[]).await?;
    Ok("sold".to_owned())
});
let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
http::serve(listener, router, std::future::pending()).await?;
# Ok(())
# }
```
"#
)]

#[cfg(feature = "sites")]
pub mod application;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "sites")]
pub mod pool;
#[cfg(feature = "sites")]
pub mod postgres;
#[cfg(feature = "sites")]
pub mod site;
pub mod xid;

pub use cognate_client_protocol::{backoff, etransaction};
