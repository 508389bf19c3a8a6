//! What all connections of a server share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cognate_replication::order::TotalOrder;
use cognate_sql::session::{Authority, SqlDatabase};
use parking_lot::RwLock;
use tokio_rustls::TlsAcceptor;

use crate::config::Config;
use crate::crew::Crew;
use crate::http::metrics::Metrics;
use crate::pg::auth::Users;
use crate::pg::registry::Registry;
use crate::pg::tls;
use crate::pg::transport::Budget;

/// The shared part of a running server.
pub(crate) struct Server {
    pub(crate) database: SqlDatabase,
    /// Its own, or that of all servers inside the process.
    pub(crate) crew: Arc<Crew>,
    pub(crate) registry: Arc<Registry>,
    /// Who gets in and how: replaced as a whole when the configuration is read again, and read once
    /// for each connection.
    access: RwLock<Arc<Access>>,
    /// Memory for large messages of all connections together.
    pub(crate) budget: Arc<Budget>,
    pub(crate) metrics: Metrics,
    pub(crate) message_bytes_max: usize,
    /// The order that its node takes part in, if it is one of a cluster.
    pub(crate) order: Option<TotalOrder>,
    pub(crate) started: Instant,
}

/// Who gets in and how.
#[derive(Clone)]
pub(crate) struct Access {
    pub(crate) users: Users,
    pub(crate) tls: Option<TlsAcceptor>,
    /// The user that may change what is the whole server's.
    pub(crate) superuser: String,
    /// Clients on other machines may do without encryption.
    pub(crate) allow_plaintext: bool,
    pub(crate) authentication_timeout: Duration,
}

impl Access {
    /// What the configuration says. Reads certificate and key.
    pub(crate) fn read(config: &Config) -> Result<Access, String> {
        let tls =
            config.tls.as_ref().map(|(certificate, key)| tls::acceptor(certificate, key)).transpose()?;
        Ok(Access {
            users: config.users.clone(),
            tls,
            superuser: config.superuser.clone(),
            allow_plaintext: config.allow_plaintext,
            authentication_timeout: config.authentication_timeout,
        })
    }

    /// What a user of this name may do.
    pub(crate) fn authority(&self, user: &str) -> Authority {
        if user == self.superuser { Authority::Superuser } else { Authority::Ordinary }
    }
}

impl Server {
    pub(crate) fn new(
        database: SqlDatabase,
        crew: Arc<Crew>,
        access: Access,
        config: &Config,
        order: Option<TotalOrder>,
    ) -> Server {
        Server {
            database,
            crew,
            registry: Registry::new(config.max_connections as usize),
            access: RwLock::new(Arc::new(access)),
            budget: Budget::new((config.memory_bytes / 4).max(2 * config.message_bytes_max as u64)),
            metrics: Metrics::default(),
            message_bytes_max: config.message_bytes_max,
            order,
            started: Instant::now(),
        }
    }

    /// Who gets in now.
    pub(crate) fn access(&self) -> Arc<Access> {
        self.access.read().clone()
    }

    /// Who gets in from now on.
    pub(crate) fn set_access(&self, access: Access) {
        *self.access.write() = Arc::new(access);
    }
}
