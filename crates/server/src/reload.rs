//! What a running server takes over when its configuration is read again, and what it cannot.
//!
//! Passwords, certificate and key, the superuser, and the authentication timeout are replaced as a
//! whole (`server::Access`). Settings that are also SQL's, for the whole server, are set where the
//! configuration changed them: what an operator has set by SQL meanwhile stays otherwise. The rest
//! is fixed at the start.

use cognate_sql::session::SqlDatabase;

use crate::config::{Config, ConfigError, check_listen};

/// Whether the address where the server listens, which stays, can do with what is new: passwords
/// and certificate that are not needed at the new address may be needed at this one until the
/// restart.
pub(crate) fn check(old: &Config, new: &Config) -> Result<(), ConfigError> {
    check_listen(old.listen, &new.users, new.tls.is_some() || new.allow_plaintext)
}

/// Sets what is also the server's in SQL, where it has changed.
pub(crate) fn settings(database: &SqlDatabase, old: &Config, new: &Config) {
    let engine = database.engine();
    if new.active_limit != old.active_limit {
        engine.governor().set_limit(new.active_limit);
    }
    if new.certifier_bytes != old.certifier_bytes {
        engine.set_certifier_bytes(new.certifier_bytes);
    }
    if (new.in_doubt_push_after, &new.application_servers)
        != (old.in_doubt_push_after, &old.application_servers)
    {
        database.healing().configure(new.in_doubt_push_after, new.application_servers.clone());
    }
}

/// Names of what has changed and needs a restart.
pub(crate) fn fixed(old: &Config, new: &Config) -> Vec<&'static str> {
    let changed = [
        ("data", old.data != new.data),
        ("listen", old.listen != new.listen),
        ("http", old.http != new.http),
        ("http_token", old.http_token != new.http_token),
        ("memory", old.memory_bytes != new.memory_bytes),
        ("max_connections", old.max_connections != new.max_connections),
        ("max_message", old.message_bytes_max != new.message_bytes_max),
        ("worker_threads", old.worker_threads != new.worker_threads),
        ("serializable", old.serializable != new.serializable),
        ("log_device_latency", old.log_device_latency != new.log_device_latency),
        ("lock_release", old.early_lock_release != new.early_lock_release),
        ("site", old.site != new.site),
        ("node", old.cluster != new.cluster),
    ];
    changed.into_iter().filter_map(|(name, changed)| changed.then_some(name)).collect()
}

/// The configuration after a reload: the new one, with what is fixed as it was.
pub(crate) fn in_force(old: &Config, new: Config) -> Config {
    Config {
        data: old.data.clone(),
        listen: old.listen,
        http: old.http,
        http_token: old.http_token.clone(),
        memory_bytes: old.memory_bytes,
        max_connections: old.max_connections,
        message_bytes_max: old.message_bytes_max,
        worker_threads: old.worker_threads,
        serializable: old.serializable,
        log_device_latency: old.log_device_latency,
        early_lock_release: old.early_lock_release,
        site: old.site,
        cluster: old.cluster.clone(),
        ..new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    fn config(text: &str) -> Config {
        Config::resolve(Settings::parse(text, "test").expect("TOML")).expect("valid")
    }

    #[test]
    fn what_makes_the_address_safe_stays_as_long_as_the_address() {
        let old = config("listen = '0.0.0.0:5433'\nallow_plaintext = true\n[auth]\npassword = 'x'");
        assert_eq!(check(&old, &old), Ok(()));
        for (text, missing) in
            [("", "a password is needed"), ("[auth]\npassword = 'x'", "a certificate is needed")]
        {
            let error = check(&old, &config(text)).expect_err("others reach the address");
            assert!(error.0.contains("0.0.0.0:5433") && error.0.contains(missing), "{error}");
        }
        assert_eq!(check(&config(""), &config("")), Ok(()));
    }

    #[test]
    fn what_needs_a_restart_is_named_until_then() {
        let old = config("memory = '64MB'\nactive_limit = '5'");
        let new = config("memory = '128MB'\nsite = 2\nactive_limit = '6'\nsuperuser = 'ann'\nlog = 'warn'");
        assert_eq!(fixed(&old, &new), ["memory", "site"]);
        let now = in_force(&old, new.clone());
        assert_eq!((now.superuser.as_str(), now.memory_bytes), ("ann", old.memory_bytes));
        assert_eq!(fixed(&now, &new), ["memory", "site"]);
        assert_eq!(fixed(&old, &old), [""; 0]);
    }
}
