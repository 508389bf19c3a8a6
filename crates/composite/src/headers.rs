//! The headers of requests, as far as they mean something to a component.
//!
//! A header may be there once, and is UTF-8. Spaces and tabs around its text are none of it;
//! whatever else is, also what other alphabets take for a space, is a part of it.

use std::time::Duration;

use axum::http::HeaderMap;
use tokio::time::Instant;

use crate::name::{CallId, Name, RootId};
use crate::problem::Problem;
use crate::wire::{self, Trace};

/// How long a request may take if it does not say.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);
/// Most calls that a call may be part of.
const DEPTH_MAX: usize = 32;
/// Only components know what these say.
const OF_PEERS: [&str; 4] = [wire::ROOT, wire::PARENT, wire::CALL, wire::ANCESTORS];

/// The text of a header, which may be there once.
pub(crate) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Problem> {
    let bad = |what: &str| Problem::new(400, "arguments", format!("the header {name} {what}"));
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(bad("is given twice"));
    }
    let text = std::str::from_utf8(value.as_bytes()).map_err(|_| bad("is not UTF-8"))?;
    Ok(Some(text.trim_matches([' ', '\t'])))
}

/// The token that is shown, once and readably. The name of its scheme has no case.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let shown = text(headers, "authorization").ok().flatten();
    let (scheme, token) = shown?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_matches([' ', '\t']))
}

/// When the time of a request is over that has arrived then.
pub(crate) fn deadline(headers: &HeaderMap, arrived: Instant) -> Result<Instant, Problem> {
    let left = match text(headers, wire::DEADLINE)? {
        None => DEADLINE,
        Some(text) if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => {
            // More than there is a number for is more than the most.
            Duration::from_millis(text.parse().unwrap_or(u64::MAX))
        }
        Some(text) => {
            let why = format!("{}: not a number of milliseconds: {text}", wire::DEADLINE);
            return Err(Problem::new(400, "arguments", why));
        }
    };
    if left.is_zero() {
        return Err(Problem::new(504, "deadline", "the time of the request is over"));
    }
    Ok(arrived + left.min(wire::DEADLINE_MAX))
}

/// The trace that a request is part of, to be passed on. One that makes no sense is left out, and
/// so are two. What systems have added to it may be in several headers.
pub(crate) fn trace(headers: &HeaderMap) -> Trace {
    let mut parents = headers.get_all(wire::TRACE[0]).iter();
    let parent = parents.next().and_then(|parent| parent.to_str().ok());
    if parents.next().is_some() || !parent.is_some_and(is_trace_parent) {
        return Trace::default();
    }
    let mut passed_on = Vec::new();
    for name in wire::TRACE {
        passed_on.extend(headers.get_all(name).iter().map(|value| (name, value.clone())));
    }
    passed_on.into()
}

/// Whether this is a `traceparent` of any version: two, 32, 16 and two small hexadecimal digits.
fn is_trace_parent(text: &str) -> bool {
    let is_digits = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let lengths = text.split('-').take(4).map(|part| if is_digits(part) { part.len() } else { 0 });
    lengths.eq([2, 32, 16, 2])
}

/// Whether whoever calls lets the call be answered ahead of its commit.
pub(crate) fn is_ahead(headers: &HeaderMap) -> Result<bool, Problem> {
    Ok(text(headers, wire::AHEAD)? == Some("1"))
}

/// Whether a request says anything of a root, however little sense that makes.
pub(crate) fn speaks_of_root(headers: &HeaderMap) -> bool {
    OF_PEERS.iter().any(|name| headers.contains_key(*name))
}

/// Where a call belongs: root, caller, call and its ancestors. None if it begins a root.
type Place = Option<(RootId, Name, CallId, Vec<CallId>)>;

pub(crate) fn place(headers: &HeaderMap) -> Result<Place, Problem> {
    let bad = |error: crate::name::BadName| Problem::new(400, "arguments", error.to_string());
    let (root, parent, call) =
        (text(headers, wire::ROOT)?, text(headers, wire::PARENT)?, text(headers, wire::CALL)?);
    let ancestors = text(headers, wire::ANCESTORS)?;
    match (root, parent, call) {
        (None, None, None) if ancestors.is_none() => Ok(None),
        (Some(root), Some(parent), Some(call)) => {
            let ancestors =
                ancestors.unwrap_or_default().split(',').map(str::trim).filter(|text| !text.is_empty());
            let ancestors = ancestors.map(CallId::new).collect::<Result<Vec<_>, _>>().map_err(bad)?;
            if ancestors.len() > DEPTH_MAX {
                return Err(Problem::new(
                    508,
                    "depth",
                    format!("more than {DEPTH_MAX} calls within each other"),
                ));
            }
            let root = RootId::new(root).map_err(bad)?;
            let (parent, call) = (Name::new(parent).map_err(bad)?, CallId::new(call).map_err(bad)?);
            Ok(Some((root, parent, call, ancestors)))
        }
        _ => {
            let names = [wire::ROOT, wire::PARENT, wire::CALL].join(", ");
            Err(Problem::new(400, "arguments", format!("the headers {names} belong together")))
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue, header};

    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        let value = value.parse().expect("a header's value");
        HeaderMap::from_iter([(HeaderName::from_static(name), value)])
    }

    #[test]
    fn a_request_has_ten_seconds_if_it_does_not_say_and_sixty_at_most() {
        let arrived = Instant::now();
        let has = |headers: &HeaderMap| deadline(headers, arrived).map_err(|problem| problem.status);
        assert_eq!(has(&HeaderMap::new()), Ok(arrived + Duration::from_secs(10)));
        let (zeros, nines) = ("0".repeat(30) + "5000", "9".repeat(30));
        for (text, seconds) in [
            ("60001", 60),
            ("18446744073709551615", 60),
            ("18446744073709551616", 60),
            (nines.as_str(), 60),
            (" 5000 ", 5),
            (zeros.as_str(), 5),
            ("60000", 60),
        ] {
            let expected = arrived + Duration::from_secs(seconds);
            assert_eq!(has(&headers(wire::DEADLINE, text)), Ok(expected), "{text}");
        }
        for text in ["0", "0000"] {
            assert_eq!(has(&headers(wire::DEADLINE, text)), Err(504), "{text}");
        }
        for text in ["", "-1", "+5", "1.5", "1e3", "5 0", "0x5"] {
            assert_eq!(has(&headers(wire::DEADLINE, text)), Err(400), "{text}");
        }
    }

    #[test]
    fn a_token_is_shown_once_whatever_the_case_of_its_scheme() {
        for shown in ["Bearer t", "bearer t", "BEARER   t\t"] {
            assert_eq!(bearer(&headers("authorization", shown)), Some("t"), "{shown}");
        }
        for shown in ["t", "Bearer", "Basic t", "Bearert"] {
            assert_eq!(bearer(&headers("authorization", shown)), None, "{shown}");
        }
        let mut twice = headers("authorization", "Bearer t");
        twice.append("authorization", "Bearer t".parse().expect("a header's value"));
        assert_eq!(bearer(&twice), None);
        assert_eq!(bearer(&HeaderMap::new()), None);
        // What can be sent can be compared.
        let value = HeaderValue::from_bytes("Bearer tökén".as_bytes()).expect("a header's value");
        assert_eq!(bearer(&HeaderMap::from_iter([(header::AUTHORIZATION, value)])), Some("tökén"));
    }

    /// Two keys that differ are two, also if some alphabet takes that for a space.
    #[test]
    fn only_spaces_and_tabs_are_none_of_a_text() {
        let name = wire::IDEMPOTENCY_KEY;
        let of = |bytes: &[u8]| {
            let value = HeaderValue::from_bytes(bytes).expect("a header's value");
            let headers = HeaderMap::from_iter([(HeaderName::from_static(name), value)]);
            text(&headers, name).map(|text| text.map(str::to_owned)).map_err(|problem| problem.status)
        };
        assert_eq!(of(b" \tk\t "), Ok(Some("k".to_owned())));
        assert_eq!(of("k\u{a0}".as_bytes()), Ok(Some("k\u{a0}".to_owned())));
        assert_eq!(of("\u{2003}".as_bytes()), Ok(Some("\u{2003}".to_owned())));
        assert_eq!(of(b"k\xff"), Err(400));
    }

    #[test]
    fn whatever_is_said_of_a_root_is_for_components() {
        for name in OF_PEERS {
            assert!(speaks_of_root(&headers(name, "r")), "{name}");
        }
        for name in [wire::DEADLINE, wire::IDEMPOTENCY_KEY] {
            assert!(!speaks_of_root(&headers(name, "1")), "{name}");
        }
    }

    #[test]
    fn a_trace_is_passed_on_as_it_came_if_it_is_one() {
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let mut both = headers("traceparent", parent);
        both.insert("tracestate", "a=1,b=2".parse().expect("a header's value"));
        let passed: Vec<_> = trace(&both).iter().map(|(name, value)| (*name, value.clone())).collect();
        assert_eq!(
            passed,
            [("traceparent", both["traceparent"].clone()), ("tracestate", both["tracestate"].clone())]
        );
        both.append("tracestate", "c=3".parse().expect("a header's value"));
        let values: Vec<_> = trace(&both).iter().map(|(_, value)| value.clone()).collect();
        assert_eq!(values, [parent, "a=1,b=2", "c=3"]);
        both.append("traceparent", parent.parse().expect("a header's value"));
        assert_eq!(trace(&both).len(), 0);
        assert_eq!(trace(&headers("tracestate", "a=1")).len(), 0);
        for bad in ["", "00", "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", &parent[..54]] {
            assert_eq!(trace(&headers("traceparent", bad)).len(), 0, "{bad}");
        }
    }
}
