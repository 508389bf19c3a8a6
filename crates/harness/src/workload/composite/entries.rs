//! Where a local transaction writes its undo entry, in two ways: into a slot of a pool, which is
//! updated in place (paper, §3.7), or as a row of its own, which is inserted, and deleted when its
//! root is over. All else is the same: the HTTP server, the service's statement, the pool of
//! connections, one commit for both.
//!
//! A slot is freed by its next use. Rows are deleted many at once, in a transaction of their own,
//! before one of so many requests is answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use tokio_postgres::Config;

use super::pool::Pool;
use super::tree::{BUY, Order};

/// Slots of the pool: as many as a component begins with. No more requests are under way at once.
const SLOTS: i64 = 128;
/// How many rows are deleted at once. The last ones may be of roots that are not over.
const BATCH: i64 = 64;
/// How long an entry is: about as long as a component's.
const FACTS_BYTES: usize = 300;
/// Writes a slot, by the kind of statement that a component writes it by.
const WRITE: &str = "INSERT INTO entry AS e VALUES ($1, $2, $3)
    ON CONFLICT (id) DO UPDATE SET root = excluded.root, facts = excluded.facts";
const INSERT: &str = "INSERT INTO entry VALUES ($1, $2, $3)";
const DELETE: &str = "DELETE FROM entry WHERE id <= $1";

/// Where entries are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// In slots.
    Slot,
    /// In rows.
    Row,
}

impl Entry {
    /// Both.
    pub const ALL: [Entry; 2] = [Entry::Slot, Entry::Row];

    /// In tables.
    pub fn name(self) -> &'static str {
        match self {
            Entry::Slot => "slots, updated in place",
            Entry::Row => "rows, inserted and deleted",
        }
    }

    /// Statements that make the table of entries. Slots are made as a component makes them on
    /// PostgreSQL: few on a page, so that there is room for what updates leave.
    pub fn tables(self) -> Vec<String> {
        let mut statements = vec![
            "DROP TABLE IF EXISTS entry".to_owned(),
            "CREATE TABLE entry (id bigint PRIMARY KEY, root text, facts text)".to_owned(),
        ];
        if self == Entry::Slot {
            let last = SLOTS - 1;
            statements.push(format!(
                "INSERT INTO entry SELECT i, NULL, repeat(' ', 1800) FROM generate_series(0, {last}) i"
            ));
            statements.push("UPDATE entry SET facts = NULL".to_owned());
        }
        statements
    }

    fn statements(self) -> &'static [&'static str] {
        match self {
            Entry::Slot => &[BUY, WRITE],
            Entry::Row => &[BUY, INSERT, DELETE],
        }
    }
}

/// What requests share: connections, where entries are, and how many there were.
type Shared = (Arc<Pool>, Entry, Arc<AtomicI64>);

/// Its routes.
pub fn router(config: Config, entry: Entry) -> Router {
    let shared: Shared = (Pool::new(config, entry.statements()), entry, Arc::default());
    Router::new().route("/services/buy", post(buy)).with_state(shared)
}

async fn buy(State((pool, entry, count)): State<Shared>, body: Bytes) -> Response {
    let order: Order = match serde_json::from_slice(&body) {
        Ok(order) => order,
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    let nth = count.fetch_add(1, Ordering::Relaxed);
    match work(&pool, entry, nth, order).await {
        Ok(()) => ([(header::CONTENT_TYPE, "application/json")], "null").into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response(),
    }
}

async fn work(pool: &Arc<Pool>, entry: Entry, nth: i64, order: Order) -> Result<(), tokio_postgres::Error> {
    let session = pool.take().await?;
    let (item, id) = (order.item(0), if entry == Entry::Slot { nth % SLOTS } else { nth });
    let (root, facts) = (format!("shop-1-{nth:016x}"), "x".repeat(FACTS_BYTES));
    session.begin(0, &[&item]).await?;
    session.commit_with(1, &[&id, &root, &facts]).await?;
    if entry == Entry::Row && nth % BATCH == BATCH - 1 {
        session.execute(2, &[&(nth - BATCH)]).await?;
    }
    session.give_back();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_have_the_same_statement_of_the_service_and_one_entry() {
        for entry in Entry::ALL {
            assert_eq!(entry.statements()[0], BUY);
            assert!(entry.statements()[1].starts_with("INSERT INTO entry"), "{}", entry.name());
        }
        assert_eq!(Entry::ALL.map(|entry| entry.tables().len()), [4, 2]);
    }
}
