//! What all connections of a server share.

use std::sync::Arc;
use std::time::Duration;

use cognate_sql::session::SqlDatabase;
use tokio_rustls::TlsAcceptor;

use crate::crew::Crew;
use crate::http::metrics::Metrics;
use crate::pg::auth::Users;
use crate::pg::registry::Registry;
use crate::pg::transport::Budget;

/// The shared part of a running server.
pub(crate) struct Server {
    pub(crate) database: SqlDatabase,
    pub(crate) crew: Crew,
    pub(crate) registry: Arc<Registry>,
    pub(crate) users: Users,
    pub(crate) tls: Option<TlsAcceptor>,
    /// Memory for large messages of all connections together.
    pub(crate) budget: Arc<Budget>,
    pub(crate) metrics: Metrics,
    pub(crate) message_bytes_max: usize,
    pub(crate) authentication_timeout: Duration,
}
