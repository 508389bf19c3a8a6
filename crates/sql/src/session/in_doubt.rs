//! How families that were left prepared heal: after which time, and by whom. Settings of the whole
//! server; the server's stub keeps to them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// What the stub is told.
#[derive(Debug)]
pub struct Healing {
    push_after_ms: AtomicU64,
    servers: Mutex<Vec<String>>,
    /// What the server was started with.
    configured: Mutex<(u64, Vec<String>)>,
}

/// Until somebody says otherwise.
const PUSH_AFTER_MS: u64 = 10_000;

impl Default for Healing {
    fn default() -> Healing {
        Healing {
            push_after_ms: AtomicU64::new(PUSH_AFTER_MS),
            servers: Mutex::default(),
            configured: Mutex::new((PUSH_AFTER_MS, Vec::new())),
        }
    }
}

impl Healing {
    /// Sets both, as what DEFAULT means from now on.
    pub fn configure(&self, push_after: Option<Duration>, servers: Vec<String>) {
        let push_after_ms =
            push_after.map_or(PUSH_AFTER_MS, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        *self.configured.lock() = (push_after_ms, servers.clone());
        self.set_push_after(Some(push_after_ms));
        self.set_servers(Some(servers));
    }

    /// After how long a prepared family is pushed; `None`: never.
    pub fn push_after(&self) -> Option<Duration> {
        match self.push_after_ms.load(Ordering::Relaxed) {
            0 => None,
            ms => Some(Duration::from_millis(ms)),
        }
    }

    pub(super) fn set_push_after(&self, ms: Option<u64>) {
        let ms = ms.unwrap_or_else(|| self.configured.lock().0);
        self.push_after_ms.store(ms, Ordering::Relaxed);
    }

    /// Where application servers take requests.
    pub fn servers(&self) -> Vec<String> {
        self.servers.lock().clone()
    }

    pub(super) fn set_servers(&self, servers: Option<Vec<String>>) {
        let servers = servers.unwrap_or_else(|| self.configured.lock().1.clone());
        *self.servers.lock() = servers;
    }
}

/// The URLs of a list with commas between them.
///
/// # Errors
/// What is wrong with it, in words.
pub fn application_servers(text: &str) -> Result<Vec<String>, String> {
    let urls = text.split(',').map(str::trim).filter(|url| !url.is_empty());
    let checked = urls.map(|url| {
        let rest =
            url.strip_prefix("http://").ok_or_else(|| format!("\"{url}\" does not begin with http://"))?;
        let (host, path) = rest.split_once('/').map_or((rest, ""), |(host, path)| (host, path));
        let valid = |c: char| c.is_ascii_graphic() && !"\"<>\\^`{|}".contains(c);
        match host.is_empty() || !host.chars().chain(path.chars()).all(valid) {
            true => Err(format!("\"{url}\" is no URL")),
            false => Ok(url.trim_end_matches('/').to_owned()),
        }
    });
    checked.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_servers() {
        assert_eq!(application_servers(""), Ok(vec![]));
        let two = application_servers("http://a:1, http://b:2/base/").expect("valid");
        assert_eq!(two, ["http://a:1", "http://b:2/base"]);
        for wrong in ["a:1", "https://a", "http://", "http://a b"] {
            assert!(application_servers(wrong).is_err(), "{wrong}");
        }
    }
}
