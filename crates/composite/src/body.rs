//! The bodies of requests.
//!
//! A body that is too large is read all the same, within a bound, and thrown away. Whoever is still
//! sending when the connection is closed may never come to read why it was.
//!
//! The time of a request begins with its head. What is not there when it is over is not waited for:
//! a sender that has gone without a word would have its connection for ever.

use std::convert::Infallible;

use axum::extract::{FromRequest, Request};
use axum::http::HeaderMap;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde_json::{Number, Value};
use tokio::time::{Instant, timeout_at};

use crate::headers::{DEADLINE, deadline};
use crate::problem::Problem;

/// Most bytes of a request.
const BYTES_MAX: usize = 4 << 20;
/// How many bytes are read of a request that has more.
const READ_BYTES_MAX: usize = 64 << 20;

/// What was read of a request, or why that is no body.
pub(crate) type Read = Result<Bytes, Problem>;

/// A request's body, its headers as they came (not a copy of them), and when they had arrived.
pub(crate) struct Body(pub(crate) Read, pub(crate) HeaderMap, pub(crate) Instant);

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = Infallible;

    async fn from_request(request: Request, _: &S) -> Result<Body, Infallible> {
        let arrived = Instant::now();
        // A time that makes no sense is refused afterwards.
        let (head, body) = request.into_parts();
        let until = deadline(&head.headers, arrived).unwrap_or(arrived + DEADLINE);
        let read = timeout_at(until, read(body)).await;
        let late = || Problem::new(504, "deadline", "the request did not come as a whole in its time");
        Ok(Body(read.unwrap_or_else(|_| Err(late())), head.headers, arrived))
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

/// JSON as it is compared: objects have no order, and equal numbers are the same, however they are
/// written. What a service is given stays as it came: `1.0` is no integer to it.
pub(crate) fn compared(value: &Value) -> String {
    if !has_floats(value) {
        return value.to_string();
    }
    let mut value = value.clone();
    make_whole(&mut value);
    value.to_string()
}

/// Whether any number was not read as an integer.
fn has_floats(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(items) => items.iter().any(has_floats),
        Value::Object(fields) => fields.values().any(has_floats),
        _ => false,
    }
}

/// Makes integers of all numbers that are some.
fn make_whole(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            if let Some(integer) = number.as_f64().and_then(whole) {
                *number = integer;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(make_whole),
        Value::Object(fields) => fields.values_mut().for_each(make_whole),
        _ => {}
    }
}

/// The integer that a number is, if it would be read as one without its point or exponent.
fn whole(number: f64) -> Option<Number> {
    let is_read = (i64::MIN as f64..u64::MAX as f64).contains(&number) && number.fract() == 0.0;
    is_read.then(|| match number < 0.0 {
        true => Number::from(number as i64),
        false => Number::from(number as u64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_by_what_they_are() {
        let compared = |text: &str| compared(&serde_json::from_str(text).unwrap());
        for (a, b) in [
            ("1", "1.0"),
            (r#"[1e2,{"a":-0.0}]"#, r#"[100, {"a":0}]"#),
            (r#"{"a":1,"b":2.50}"#, r#"{"b":25e-1,"a":1.0}"#),
            ("9007199254740992", "9.007199254740992e15"),
            ("18446744073709549568", "18446744073709549568.0"),
            ("-9223372036854775808", "-9223372036854775808.0"),
            ("100000000000000000000", "1e20"),
        ] {
            assert_eq!(compared(a), compared(b));
        }
        for (a, b) in [("1", "1.5"), ("1", r#""1""#), ("1", "true"), ("0", "null"), ("[1]", "1")] {
            assert_ne!(compared(a), compared(b));
        }
        assert_ne!(compared("9007199254740993"), compared("9007199254740992.0"));
    }

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
