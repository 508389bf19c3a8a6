//! A session that recorded transactions run on: of the embedded library, or over the wire.
//!
//! The oracle wants the number of each transaction's snapshot. Where one task drives all sessions,
//! the visible mark at the first statement is that number; elsewhere the database is asked about
//! its running transactions.

use std::collections::HashMap;
use std::future::Future;

use cognate::{Datum, Parameter, Session};
use tokio_postgres::types::{ToSql, Type};

/// A value of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// NULL.
    Null,
    /// Any integer.
    Int(i64),
    /// Anything else, as text.
    Text(String),
}

/// What the database answered instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// SQLSTATE.
    pub sqlstate: String,
    /// The message.
    pub message: String,
    /// The detail, if there is one.
    pub detail: Option<String>,
}

/// A session.
pub trait Connection {
    /// Runs a statement with parameters of type int8.
    fn query(&mut self, sql: &str, args: &[i64]) -> impl Future<Output = Result<Vec<Vec<Value>>, Failure>>;

    /// The snapshot of the transaction that is open. Asked before its first own statement, which it
    /// may replace as the one that takes the snapshot.
    fn snapshot(&mut self) -> impl Future<Output = Result<u64, Failure>>;

    /// The snapshot that it has by now: at SERIALIZABLE a statement that writes or locks may have
    /// moved it.
    fn moved_snapshot(&mut self) -> impl Future<Output = Result<u64, Failure>>;

    /// The newest commit's number, if nobody else can have committed since the last answer.
    fn last_commit(&self) -> Option<u64>;
}

/// A session of the embedded library.
pub struct Embedded {
    session: Session,
    engine: cognate_engine::Database,
    alone: bool,
}

impl Embedded {
    /// A new session; `alone` promises that no other statement of the database runs while one of
    /// this session does.
    ///
    /// # Errors
    /// If the catalog cannot be read.
    pub fn new(database: &cognate::Database, alone: bool) -> cognate::Result<Embedded> {
        Ok(Embedded { session: database.session()?, engine: database.sql().engine().clone(), alone })
    }
}

impl From<cognate::Error> for Failure {
    fn from(error: cognate::Error) -> Failure {
        let (sqlstate, message) = (error.sqlstate.to_owned(), error.message.clone());
        Failure { sqlstate, message, detail: error.detail.clone() }
    }
}

impl Connection for Embedded {
    async fn query(&mut self, sql: &str, args: &[i64]) -> Result<Vec<Vec<Value>>, Failure> {
        let args: Vec<&dyn Parameter> = args.iter().map(|arg| arg as &dyn Parameter).collect();
        let rows = self.session.query_async(sql, &args).await?;
        let values = rows.iter().map(|row| {
            let value = |(place, value): (usize, &Datum)| match value {
                Datum::Null => Value::Null,
                Datum::Int8(value) => Value::Int(*value),
                Datum::Int4(value) => Value::Int(i64::from(*value)),
                _ => row.text(place).ok().flatten().map_or(Value::Null, Value::Text),
            };
            row.values().iter().enumerate().map(value).collect()
        });
        Ok(values.collect())
    }

    async fn snapshot(&mut self) -> Result<u64, Failure> {
        if self.alone {
            return Ok(self.engine.visible());
        }
        self.moved_snapshot().await
    }

    async fn moved_snapshot(&mut self) -> Result<u64, Failure> {
        let rows = self.query("SELECT txid_current()", &[]).await?;
        let id = match rows.first().and_then(|row| row.first()) {
            Some(Value::Int(id)) => *id as u64,
            _ => 0,
        };
        let running = self.engine.transactions().into_iter().find(|running| running.id == id);
        running.map(|running| running.snapshot).ok_or_else(|| unknown_snapshot(id))
    }

    fn last_commit(&self) -> Option<u64> {
        self.alone.then(|| self.engine.visible())
    }
}

fn unknown_snapshot(id: u64) -> Failure {
    let message = format!("transaction {id} is not among those that run");
    Failure { sqlstate: "XX000".to_owned(), message, detail: None }
}

/// Takes the snapshot of the transaction that it is the first statement of, and tells it.
const OWN_SNAPSHOT: &str = "SELECT snapshot FROM cognate_transactions WHERE pid = pg_backend_pid()";

/// A session over the wire, with prepared statements.
pub struct Wire {
    client: tokio_postgres::Client,
    prepared: HashMap<String, tokio_postgres::Statement>,
}

impl Wire {
    /// A session on a connection of its own.
    pub fn new(client: tokio_postgres::Client) -> Wire {
        Wire { client, prepared: HashMap::new() }
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Failure {
        match error.as_db_error() {
            Some(db) => Failure {
                sqlstate: db.code().code().to_owned(),
                message: db.message().to_owned(),
                detail: db.detail().map(str::to_owned),
            },
            None => {
                let message = crate::error::describe(&error);
                Failure { sqlstate: "08006".to_owned(), message, detail: None }
            }
        }
    }
}

impl Connection for Wire {
    async fn query(&mut self, sql: &str, args: &[i64]) -> Result<Vec<Vec<Value>>, Failure> {
        if args.is_empty() && !sql.starts_with("SELECT") {
            self.client.batch_execute(sql).await?;
            return Ok(Vec::new());
        }
        let statement = match self.prepared.get(sql) {
            Some(statement) => statement.clone(),
            None => {
                let types = vec![Type::INT8; args.len()];
                let statement = self.client.prepare_typed(sql, &types).await?;
                self.prepared.insert(sql.to_owned(), statement.clone());
                statement
            }
        };
        let args: Vec<&(dyn ToSql + Sync)> = args.iter().map(|arg| arg as &(dyn ToSql + Sync)).collect();
        let rows = self.client.query(&statement, &args).await?;
        let mut answer = Vec::with_capacity(rows.len());
        for row in &rows {
            let mut values = Vec::with_capacity(row.len());
            for (place, column) in row.columns().iter().enumerate() {
                values.push(match *column.type_() {
                    Type::INT8 => row.try_get::<_, Option<i64>>(place)?.map_or(Value::Null, Value::Int),
                    _ => row.try_get::<_, Option<String>>(place)?.map_or(Value::Null, Value::Text),
                });
            }
            answer.push(values);
        }
        Ok(answer)
    }

    async fn snapshot(&mut self) -> Result<u64, Failure> {
        let rows = self.query(OWN_SNAPSHOT, &[]).await?;
        match rows.first().and_then(|row| row.first()) {
            Some(Value::Int(snapshot)) => Ok(*snapshot as u64),
            _ => Err(unknown_snapshot(0)),
        }
    }

    async fn moved_snapshot(&mut self) -> Result<u64, Failure> {
        self.snapshot().await
    }

    fn last_commit(&self) -> Option<u64> {
        None
    }
}
