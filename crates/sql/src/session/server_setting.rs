//! Settings that are the whole server's: `cognate.active_limit`, `cognate.certifier_memory`, and
//! what heals families that were left prepared.
//!
//! SET changes them for everybody and at once, and no ROLLBACK takes it back; DEFAULT is what the
//! server was started with. They belong to the operator: they decide how much of the machine the
//! server uses, and to whom it talks. Those of a cluster's flow control, and of what is kept for
//! nodes that are away, are shown like them, and are for a server's start only.

use cognate_engine::ActiveLimit;

use super::facts::Facts;
use super::settings;
use crate::error::{Result, SqlError, sqlstate};

const ACTIVE_LIMIT: &str = "cognate.active_limit";
const CERTIFIER_MEMORY: &str = "cognate.certifier_memory";
const PUSH_AFTER: &str = "cognate.in_doubt_push_after";
const APPLICATION_SERVERS: &str = "cognate.application_servers";
const LAG_LIMIT: &str = "cognate.cluster_lag_limit";
const LAG_WAIT: &str = "cognate.cluster_lag_wait";
const LOG_KEPT: &str = "cognate.cluster_log_kept";

impl Facts {
    /// The value of a setting of the server, if this is one.
    pub(super) fn server_setting(&self, name: &str) -> Option<String> {
        let engine = self.database.engine();
        if name.eq_ignore_ascii_case(ACTIVE_LIMIT) {
            Some(engine.governor().mode().to_string())
        } else if name.eq_ignore_ascii_case(CERTIFIER_MEMORY) {
            Some(shown(engine.statistics().certifier.limit))
        } else if name.eq_ignore_ascii_case(PUSH_AFTER) {
            Some(
                self.database
                    .healing()
                    .push_after()
                    .map_or("0".to_owned(), |after| shown_time(after.as_millis())),
            )
        } else if name.eq_ignore_ascii_case(APPLICATION_SERVERS) {
            Some(self.database.healing().servers().join(","))
        } else if name.eq_ignore_ascii_case(LAG_LIMIT) {
            Some(shown(self.database.nodes().flow.bounds().lag_bytes))
        } else if name.eq_ignore_ascii_case(LAG_WAIT) {
            Some(shown_time(self.database.nodes().flow.bounds().wait.as_millis()))
        } else if name.eq_ignore_ascii_case(LOG_KEPT) {
            Some(shown(self.database.nodes().flow.bounds().log_kept))
        } else {
            None
        }
    }

    /// Sets it; false if this is no setting of the server. 22023; 42501 for all but the operator.
    pub(super) fn set_server_setting(&self, name: &str, value: Option<&str>) -> Result<bool> {
        let names = [ACTIVE_LIMIT, CERTIFIER_MEMORY, PUSH_AFTER, APPLICATION_SERVERS];
        let Some(name) = names.into_iter().find(|known| known.eq_ignore_ascii_case(name)) else {
            return Ok(false);
        };
        if !self.is_superuser(&self.catalog()) {
            return Err(SqlError::new(
                sqlstate::INSUFFICIENT_PRIVILEGE,
                format!("permission denied to set parameter \"{name}\""),
            )
            .with_hint("It is the whole server's, and its superuser's to change (--superuser)."));
        }
        let engine = self.database.engine();
        if name == ACTIVE_LIMIT {
            let governor = engine.governor();
            let limit = match value {
                None => governor.configured(),
                Some(text) => text.parse::<ActiveLimit>().map_err(|error| {
                    SqlError::new(
                        sqlstate::INVALID_PARAMETER_VALUE,
                        format!("invalid value for parameter \"{ACTIVE_LIMIT}\": {error}"),
                    )
                })?,
            };
            governor.set_limit(limit);
        } else if name == CERTIFIER_MEMORY {
            let bytes = match value {
                None => engine.configured_certifier_bytes(),
                // Checked like any setting of this kind; what comes back is in its unit.
                Some(text) => settings::whole_number(CERTIFIER_MEMORY, text)? << 10,
            };
            engine.set_certifier_bytes(bytes);
        } else if name == PUSH_AFTER {
            let ms = value.map(|text| settings::whole_number(PUSH_AFTER, text)).transpose()?;
            self.database.healing().set_push_after(ms);
        } else {
            let servers = value.map(super::application_servers).transpose().map_err(|what| {
                SqlError::new(
                    sqlstate::INVALID_PARAMETER_VALUE,
                    format!("invalid value for parameter \"{APPLICATION_SERVERS}\": {what}"),
                )
            })?;
            self.database.healing().set_servers(servers);
        }
        Ok(true)
    }
}

/// As PostgreSQL prints sizes: in the largest unit that divides them.
pub(super) fn shown(bytes: u64) -> String {
    match bytes {
        0 => "0".to_owned(),
        _ if bytes.is_multiple_of(1 << 30) => format!("{}GB", bytes >> 30),
        _ if bytes.is_multiple_of(1 << 20) => format!("{}MB", bytes >> 20),
        _ => format!("{}kB", bytes >> 10),
    }
}

/// As PostgreSQL prints times: in the largest unit that divides them.
pub(super) fn shown_time(ms: u128) -> String {
    match ms {
        0 => "0".to_owned(),
        _ if ms.is_multiple_of(3_600_000) => format!("{}h", ms / 3_600_000),
        _ if ms.is_multiple_of(60_000) => format!("{}min", ms / 60_000),
        _ if ms.is_multiple_of(1000) => format!("{}s", ms / 1000),
        _ => format!("{ms}ms"),
    }
}
