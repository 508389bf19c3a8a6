//! `/`: the live page. It says nothing by itself: it asks for `/live` each second, with the token
//! that it is given.
//!
//! The page is one file and loads nothing else. Its policy holds the browser to that: the one style
//! and the one script that may be used are named by their hashes, and the page speaks with its own
//! server only. Markup that got into it by way of data would do nothing.

use std::sync::LazyLock;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha2::{Digest, Sha256};

const PAGE: &str = include_str!("live.html");

static POLICY: LazyLock<String> = LazyLock::new(|| {
    format!(
        "default-src 'none'; style-src {}; script-src {}; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
        source("style"),
        source("script")
    )
});

/// How a policy names what the page has between these tags.
fn source(tag: &str) -> String {
    let (begin, end) = (format!("<{tag}>"), format!("</{tag}>"));
    let within = PAGE.split_once(&begin).and_then(|(_, rest)| rest.split_once(&end));
    let (text, _) = within.unwrap_or_default();
    format!("'sha256-{}'", BASE64.encode(Sha256::digest(text)))
}

/// The page, for whoever asks.
pub(super) async fn show() -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY.as_str()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, PAGE).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_whole_and_never_makes_markup_of_data() {
        let nothing = format!("'sha256-{}'", BASE64.encode(Sha256::digest("")));
        for tag in ["style", "script"] {
            assert_eq!(PAGE.matches(&format!("<{tag}")).count(), 1, "the one that is hashed");
            assert_ne!(source(tag), nothing);
        }
        // The policy would keep these from working, or they would take data for markup.
        let unwanted = [
            "src=",
            "href=",
            "url(",
            "@import",
            "style=",
            "onclick",
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "localStorage",
            "sessionStorage",
            "cookie",
        ];
        for word in unwanted {
            assert!(!PAGE.contains(word), "{word}");
        }
    }
}
