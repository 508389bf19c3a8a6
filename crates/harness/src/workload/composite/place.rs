//! Where components have their databases: folders of engines in this process, or databases of one
//! PostgreSQL.

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tokio_postgres::{Client, Config};

use crate::error::{DatabaseContext, Error, Result};
use crate::peer::postgres::PostgresOptions;
use crate::peer::{self, System, fresh_folder};

/// Room for fifteen components, and for all that are compared with each other.
const SERVER_CONNECTIONS: u32 = 900;

/// Which databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum DatabaseKind {
    /// An engine for each component, in this process.
    Embedded,
    /// A database for each component, on one PostgreSQL.
    Postgres,
}

impl DatabaseKind {
    /// As the command line writes it.
    pub fn name(self) -> &'static str {
        match self {
            DatabaseKind::Embedded => "embedded",
            DatabaseKind::Postgres => "postgres",
        }
    }
}

/// The place of all databases and journals; gone when dropped.
pub struct Place {
    server: Option<System>,
    folder: TempDir,
    made: Vec<String>,
    starts: u32,
}

impl Place {
    /// One of this kind.
    ///
    /// # Errors
    /// PostgreSQL does not start.
    pub async fn open(kind: DatabaseKind, directory: Option<&Path>) -> Result<Place> {
        let server = match kind {
            DatabaseKind::Embedded => None,
            DatabaseKind::Postgres => {
                let options = PostgresOptions {
                    directory: directory.map(Path::to_owned),
                    prepared_transactions: 200,
                    connections: Some(SERVER_CONNECTIONS),
                    ..PostgresOptions::default()
                };
                Some(System::start_postgres(&options).await?)
            }
        };
        Ok(Place { server, folder: fresh_folder(directory)?, made: Vec::new(), starts: 0 })
    }

    /// The version of the databases.
    pub fn version(&self) -> String {
        self.server
            .as_ref()
            .map_or_else(|| env!("CARGO_PKG_VERSION").to_owned(), |server| server.version.clone())
    }

    /// The next start has folders of its own: what an earlier one left behind does not meet it.
    pub fn next_start(&mut self) {
        self.starts += 1;
    }

    /// The URL of a database, which is made if it is not there, and the folder of a journal.
    ///
    /// # Errors
    /// The database cannot be made.
    pub async fn database(&mut self, name: &str) -> Result<(String, PathBuf)> {
        let own = self.folder.path().join(format!("start-{}", self.starts)).join(name);
        let journal = own.join("journal");
        let Some(server) = &self.server else {
            return Ok((format!("embedded:{}", own.join("database").display()), journal));
        };
        if !self.made.iter().any(|made| made == name) {
            let client = server.client().await?;
            server.execute_each(&client, &[format!("CREATE DATABASE {name}")]).await?;
            self.made.push(name.to_owned());
        }
        let port = server.port().unwrap_or_default();
        Ok((format!("postgresql://postgres@127.0.0.1:{port}/{name}"), journal))
    }

    /// How to connect to a database of the PostgreSQL.
    ///
    /// # Errors
    /// There is none.
    pub fn config(&self, name: &str) -> Result<Config> {
        let server =
            self.server.as_ref().ok_or_else(|| Error::Missing("there is no PostgreSQL".to_owned()))?;
        let mut config = server.config().clone();
        config.dbname(name);
        Ok(config)
    }

    /// A connection to a database of the PostgreSQL.
    ///
    /// # Errors
    /// There is none, or it cannot be reached.
    pub async fn client(&self, name: &str) -> Result<Client> {
        peer::connect(&self.config(name)?).await.at(name, "connecting")
    }

    /// One number of a database of the PostgreSQL.
    ///
    /// # Errors
    /// What the database answers.
    pub async fn number(&self, name: &str, sql: &str) -> Result<i64> {
        let client = self.client(name).await?;
        Ok(client.query_one(sql, &[]).await.at(name, sql)?.get(0))
    }

    /// Fails if a transaction is left prepared anywhere but in databases whose names begin so.
    ///
    /// # Errors
    /// There is one.
    pub async fn nothing_in_doubt(&self, but: &[&str]) -> Result<()> {
        let others = but.iter().map(|prefix| format!(" AND database::text NOT LIKE '{prefix}%'"));
        let count =
            format!("SELECT count(*) FROM pg_prepared_xacts WHERE true{}", others.collect::<String>());
        match self.number("postgres", &count).await? {
            0 => Ok(()),
            left => Err(Error::Violation(format!("{left} TRANSACTIONS ARE LEFT PREPARED"))),
        }
    }
}
