//! The bodies of requests.
//!
//! A body that is too large is read all the same, within a bound, and thrown away. Whoever is still
//! sending when the connection is closed may never come to read why it was.
//!
//! The time of a request begins with its head. What is not there when it is over is not waited for:
//! a sender that has gone without a word would have its connection for ever.

use std::convert::Infallible;

use axum::extract::{FromRequest, Request};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};

use crate::headers::{DEADLINE, deadline};
use crate::problem::Problem;

/// Most bytes of a request.
const BYTES_MAX: usize = 4 << 20;
/// How many bytes are read of a request that has more.
const READ_BYTES_MAX: usize = 64 << 20;

/// What was read of a request, or why that is no body.
pub(crate) type Read = Result<Bytes, Problem>;

/// A request's body, and when its head had arrived.
pub(crate) struct Body(pub(crate) Read, pub(crate) Instant);

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = Infallible;

    async fn from_request(request: Request, _: &S) -> Result<Body, Infallible> {
        let arrived = Instant::now();
        // A time that makes no sense is refused afterwards.
        let until = deadline(request.headers(), arrived).unwrap_or(arrived + DEADLINE);
        let read = timeout_at(until, read(request.into_body())).await;
        let late = || Problem::new(504, "deadline", "the request did not come as a whole in its time");
        Ok(Body(read.unwrap_or_else(|_| Err(late())), arrived))
    }
}

async fn read(mut body: axum::body::Body) -> Read {
    let (mut bytes, mut count) = (BytesMut::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Problem::new(400, "arguments", error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        count += data.len();
        if count <= BYTES_MAX {
            bytes.extend_from_slice(&data);
        } else if count > READ_BYTES_MAX {
            break;
        }
    }
    match count <= BYTES_MAX {
        true => Ok(bytes.freeze()),
        false => Err(Problem::new(413, "size", format!("the request has more than {BYTES_MAX} bytes"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn reason(length: usize) -> Option<String> {
        read(axum::body::Body::from(vec![b' '; length])).await.err().map(|problem| problem.reason)
    }

    #[tokio::test]
    async fn a_body_has_a_bound() {
        assert_eq!(reason(0).await, None);
        assert_eq!(reason(BYTES_MAX).await, None);
        assert_eq!(reason(BYTES_MAX + 1).await.as_deref(), Some("size"));
    }
}
