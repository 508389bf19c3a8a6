//! One service of the tree with plain SQL: the same HTTP server, the same statement, a pool of the
//! same size.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use tokio_postgres::Config;

use super::pool::Pool;
use super::tree::{BUY, Order};

/// How the statement is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// BEGIN with the statement, then COMMIT: the handler is given a transaction, as a component's
    /// is.
    Transaction,
    /// By itself: possible for a handler of a single statement.
    Autocommit,
}

impl Way {
    /// In tables.
    pub fn name(self) -> &'static str {
        match self {
            Way::Transaction => "plain SQL",
            Way::Autocommit => "plain SQL, autocommit",
        }
    }
}

/// Its routes.
pub fn router(config: Config, way: Way) -> Router {
    let pool = Pool::new(config, &[BUY]);
    Router::new().route("/services/buy", post(buy)).with_state((pool, way))
}

async fn buy(State((pool, way)): State<(Arc<Pool>, Way)>, body: Bytes) -> Response {
    let order: Order = match serde_json::from_slice(&body) {
        Ok(order) => order,
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    match work(&pool, way, order).await {
        Ok(()) => ([(header::CONTENT_TYPE, "application/json")], "null").into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response(),
    }
}

async fn work(pool: &Arc<Pool>, way: Way, order: Order) -> Result<(), tokio_postgres::Error> {
    let session = pool.take().await?;
    let item = order.item(0);
    match way {
        Way::Transaction => {
            session.begin(0, &[&item]).await?;
            session.text("COMMIT").await?;
        }
        Way::Autocommit => drop(session.execute(0, &[&item]).await?),
    }
    session.give_back();
    Ok(())
}
