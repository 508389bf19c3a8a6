//! Replies as HTTP responses, and back: the table at the head of `http`, in both directions.

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use crate::etransaction::{Reply, Text};

/// Header: the XID.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Header: the instance's number.
pub const INSTANCE: HeaderName = HeaderName::from_static("etx-instance");
/// Header of a response: what the reply is.
pub const OUTCOME: HeaderName = HeaderName::from_static("etx-outcome");
/// Header of a response: the committed instance.
pub const WINNER: HeaderName = HeaderName::from_static("etx-winner");
/// Header of a response: the highest instance number heard of.
pub const HIGHEST: HeaderName = HeaderName::from_static("etx-highest");

/// Seconds to wait before trying again.
const RETRY_AFTER: &str = "1";

/// A response: status, headers, body.
pub(super) type Parts = (StatusCode, HeaderMap, String);

/// A response with an outcome, or none.
pub(super) fn parts(status: StatusCode, outcome: Option<&'static str>, body: String) -> Parts {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    if let Some(outcome) = outcome {
        headers.insert(OUTCOME, HeaderValue::from_static(outcome));
    }
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER));
    }
    (status, headers, body)
}

/// A text of our own, with an end of line.
pub(super) fn said(
    status: StatusCode,
    outcome: Option<&'static str>,
    words: impl std::fmt::Display,
) -> Parts {
    parts(status, outcome, format!("{words}\n"))
}

/// The response for a reply.
pub(super) fn encode(reply: &Reply) -> Parts {
    match reply {
        Reply::Done { winner, result } => {
            let mut parts = parts(StatusCode::OK, Some("done"), result.as_ref().to_owned());
            parts.1.insert(WINNER, (*winner).into());
            parts
        }
        Reply::Retry { highest, reason } => retry("retry", *highest, reason),
        Reply::InDoubt { highest, reason } => retry("in-doubt", *highest, reason),
        Reply::RequestDiffers => {
            let words = "the idempotency key was used for another request";
            said(StatusCode::UNPROCESSABLE_ENTITY, Some("request-differs"), words)
        }
        Reply::RequestTooLarge(why) => said(StatusCode::PAYLOAD_TOO_LARGE, Some("request-too-large"), why),
        Reply::Forgotten => {
            let words = "the request was executed, and its result was acknowledged and forgotten";
            said(StatusCode::GONE, Some("forgotten"), words)
        }
        Reply::Broken(why) => said(StatusCode::INTERNAL_SERVER_ERROR, Some("broken"), why),
    }
}

fn retry(outcome: &'static str, highest: i64, reason: &str) -> Parts {
    let words = format!("try again with the same idempotency key: {reason}");
    let mut parts = said(StatusCode::SERVICE_UNAVAILABLE, Some(outcome), words);
    parts.1.insert(HIGHEST, highest.into());
    parts
}

fn number(headers: &HeaderMap, name: &HeaderName) -> Option<i64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// The reply in a response, if it has one.
pub(super) fn decode(headers: &HeaderMap, body: &str) -> Option<Reply> {
    let words = || Text::from(body.trim_end());
    Some(match headers.get(OUTCOME)?.to_str().ok()? {
        "done" => Reply::Done { winner: number(headers, &WINNER)?, result: body.into() },
        "retry" => Reply::Retry { highest: number(headers, &HIGHEST)?, reason: words() },
        "in-doubt" => Reply::InDoubt { highest: number(headers, &HIGHEST)?, reason: words() },
        "request-differs" => Reply::RequestDiffers,
        "request-too-large" => Reply::RequestTooLarge(words()),
        "forgotten" => Reply::Forgotten,
        "broken" => Reply::Broken(words()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_survive_the_line() {
        let prefix = "try again with the same idempotency key: ";
        let replies = [
            (200, Reply::Done { winner: 1024, result: "order 7\n".into() }),
            (503, Reply::Retry { highest: 2048, reason: format!("{prefix}x").into() }),
            (503, Reply::InDoubt { highest: 2048, reason: format!("{prefix}y").into() }),
            (422, Reply::RequestDiffers),
            (413, Reply::RequestTooLarge("2 MB".into())),
            (410, Reply::Forgotten),
            (500, Reply::Broken("by hand".into())),
        ];
        for (status, reply) in replies {
            // What is said in front of a reason is said once.
            let told = match &reply {
                Reply::Retry { highest, .. } => Reply::Retry { highest: *highest, reason: "x".into() },
                Reply::InDoubt { highest, .. } => Reply::InDoubt { highest: *highest, reason: "y".into() },
                other => other.clone(),
            };
            let (code, headers, body) = encode(&told);
            assert_eq!(code.as_u16(), status);
            assert_eq!(headers.contains_key(header::RETRY_AFTER), status == 503);
            assert_eq!(decode(&headers, &body), Some(reply));
        }
        assert_eq!(decode(&HeaderMap::new(), "Bad Gateway"), None);
    }
}
