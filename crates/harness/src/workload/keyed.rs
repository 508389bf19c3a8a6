//! A table of numbered rows with payloads that follow from their numbers, and point reads that
//! check them.
//!
//! Payloads are random letters, so nothing can shrink them, and a reader can tell a wrong one.

use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::pin::pin;
use std::time::Instant;

use bytes::Bytes;
use futures_util::SinkExt;
use tokio_postgres::{Config, Statement};

use crate::driver::{Client, Recorder, Workload};
use crate::error::{DatabaseContext, Error, Result};
use crate::peer::{self, System};
use crate::random::Random;

/// The table's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keyed {
    /// Rows, numbered from 1.
    pub rows: i64,
    /// Bytes of each payload.
    pub payload: i32,
    /// Determines the payloads.
    pub seed: u64,
}

/// How many bytes of payload one loading transaction carries.
const BATCH: i64 = 1 << 20;

impl Keyed {
    /// The payload of row `id`.
    pub fn payload_of(&self, id: i64) -> String {
        let mut text = String::with_capacity(self.payload as usize);
        Random::stream(self.seed, 77, id as u64).letters(self.payload, self.payload, &mut text);
        text
    }

    /// All payloads together, in bytes.
    pub fn bytes(&self) -> u64 {
        self.rows as u64 * self.payload as u64
    }

    /// Makes the table and fills it, a megabyte a transaction.
    pub async fn load(&self, system: &System) -> Result<()> {
        let client = system.client().await?;
        let statements = [
            "DROP TABLE IF EXISTS keyed".to_owned(),
            "CREATE TABLE keyed (id bigint PRIMARY KEY, payload text NOT NULL)".to_owned(),
        ];
        system.execute_each(&client, &statements).await?;
        let bar = crate::progress::steps(&format!("{}: loading rows", system.name), self.rows as u64);
        let per_batch = (BATCH / i64::from(self.payload)).max(1);
        let mut first = 1;
        while first <= self.rows {
            let last = self.rows.min(first + per_batch - 1);
            self.copy(system, &client, first..=last).await?;
            bar.inc((last - first + 1) as u64);
            first = last + 1;
        }
        bar.finish_and_clear();
        Ok(())
    }

    async fn copy(
        &self,
        system: &System,
        client: &tokio_postgres::Client,
        ids: RangeInclusive<i64>,
    ) -> Result<()> {
        let sink = client.copy_in("COPY keyed FROM STDIN").await.at(&system.name, "loading rows")?;
        let mut sink = pin!(sink);
        let mut chunk = String::new();
        for id in ids {
            chunk.push_str(&format!("{id}\t{}\n", self.payload_of(id)));
            if chunk.len() >= 64 << 10 {
                let full = std::mem::take(&mut chunk);
                sink.send(Bytes::from(full)).await.at(&system.name, "loading rows")?;
            }
        }
        sink.send(Bytes::from(chunk)).await.at(&system.name, "loading rows")?;
        sink.finish().await.at(&system.name, "loading rows").map(drop)
    }
}

/// Uniform point reads, each checked.
#[derive(Debug)]
pub struct KeyedReads {
    /// The system's name, for messages.
    pub system: String,
    /// How to connect.
    pub config: Config,
    /// What was loaded.
    pub table: Keyed,
    /// Tells the clients of different runs apart.
    pub round: u64,
}

impl Workload for KeyedReads {
    type Client = Reader;

    fn kinds(&self) -> Vec<String> {
        vec!["point read".to_owned()]
    }

    async fn open(&self, index: usize) -> Result<Reader> {
        let client = peer::connect(&self.config).await.at(&self.system, "connecting a reader")?;
        let select = client
            .prepare("SELECT payload FROM keyed WHERE id = $1")
            .await
            .at(&self.system, "preparing a point read")?;
        let random = Random::stream(self.table.seed, 78 + self.round, index as u64);
        Ok(Reader { system: self.system.clone(), client, select, table: self.table, random })
    }
}

/// One reading client.
#[derive(Debug)]
pub struct Reader {
    system: String,
    client: tokio_postgres::Client,
    select: Statement,
    table: Keyed,
    random: Random,
}

impl Client for Reader {
    async fn step(&mut self, recorder: &RefCell<Recorder>) -> Result<()> {
        let id = self.random.between(1, self.table.rows);
        let since = Instant::now();
        let row = match self.client.query_opt(&self.select, &[&id]).await {
            Ok(row) => row,
            Err(error) => {
                recorder.borrow_mut().failed(0, &error);
                return match self.client.is_closed() {
                    true => Err(error).at(&self.system, "reading"),
                    false => Ok(()),
                };
            }
        };
        recorder.borrow_mut().committed(0, since);
        let payload: Option<&str> = row.as_ref().map(|row| row.get(0));
        if payload != Some(self.table.payload_of(id).as_str()) {
            return Err(Error::Violation(format!("{}: ROW {id} IS WRONG OR MISSING", self.system)));
        }
        Ok(())
    }
}
