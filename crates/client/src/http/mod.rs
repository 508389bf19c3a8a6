//! The HTTP surface: `server` answers requests, `client` makes them until there is an answer,
//! `wire` is what goes over the line between them.
//!
//! ```text
//! POST /etx              Idempotency-Key: c/7                the request string
//!                        Etx-Instance: 2048                  optional: the client numbers its attempts itself
//! DELETE /etx/c%2F7                                          the client has the answer: the sites forget the result, and keep the fact
//! POST /etx/ack          Idempotency-Key: c/7                the same
//! GET /healthz                                               200 if every site can be reached; one line for each
//! ```
//!
//! | status | `Etx-Outcome` | meaning |
//! |---|---|---|
//! | 200 | `done` | the body is the result; `Etx-Winner` is the instance that was committed |
//! | 400 | | the key or the number is none, or the body is not UTF-8 |
//! | 404 | `unknown` | acknowledgement: no site has heard of the request |
//! | 409 | `not-decided` | acknowledgement: there is no answer yet |
//! | 410 | `forgotten` | the request was executed, and its result was acknowledged |
//! | 413 | `request-too-large` | it was not executed, nor will it be |
//! | 422 | `request-differs` | the key was used for another request |
//! | 500 | `broken` | the sites do not agree: somebody intervened by hand |
//! | 503 | `retry` | try again, here or at another server, after `Retry-After` seconds, with a number above `Etx-Highest` |
//! | 503 | `in-doubt` | the same; an instance is in the way at a site of plain PostgreSQL |
//!
//! Whoever has no `Etx-Outcome` (a proxy's 502, a time-out, a lost connection) knows nothing and
//! tries again with the same key. That is always safe.
//!
//! A key is the text of the header as it is, UTF-8, without surrounding blanks. A request that is
//! under way is not disturbed when its HTTP client goes away.

mod client;
mod server;
mod wire;

pub use client::{Answer, ClientOptions, EtxClient, EtxError};
pub use server::{BODY_BYTES_MAX, router, serve};
pub use wire::{HIGHEST, IDEMPOTENCY_KEY, INSTANCE, OUTCOME, WINNER};
