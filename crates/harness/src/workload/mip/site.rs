//! A connection to a site, and the ways to begin and end a transaction on it.

use tokio_postgres::{Client, Config, Error, Statement};

use crate::peer;
use crate::workload::bookstore::Isolation;

/// How a request becomes a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// An instance of a family of siblings.
    Mip,
    /// PREPARE TRANSACTION and COMMIT PREPARED.
    TwoPhase,
    /// BEGIN and COMMIT.
    Plain,
}

impl Way {
    /// In tables.
    pub fn name(self) -> &'static str {
        match self {
            Way::Mip => "MIP",
            Way::TwoPhase => "two-phase",
            Way::Plain => "plain",
        }
    }
}

/// One attempt at a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The request's identifier.
    pub xid: String,
    /// The attempt's number, from 1.
    pub instance: i64,
}

impl Attempt {
    /// The name of a prepared transaction that is not MIP: each attempt is another one.
    pub fn gid(&self) -> String {
        format!("{},{}", self.xid, self.instance)
    }

    /// The same request, tried again.
    pub fn next(&self) -> Attempt {
        Attempt { xid: self.xid.clone(), instance: self.instance + 1 }
    }
}

/// One connection.
#[derive(Debug)]
pub struct Site {
    /// For the statements between begin and end.
    pub client: Client,
    way: Way,
    begin: Statement,
    show: Option<Statement>,
    prepare: Option<Statement>,
    commit: Option<Statement>,
}

impl Site {
    /// Connects and prepares the statements.
    pub async fn open(config: &Config, way: Way, isolation: Isolation) -> Result<Site, Error> {
        let client = peer::connect(config).await?;
        let level = isolation.sql();
        client
            .batch_execute(&format!("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}"))
            .await?;
        let (begin, prepare, commit) = match way {
            Way::Mip => (
                "SELECT * FROM cognate_mip_begin($1, $2)",
                Some("SELECT * FROM cognate_mip_prepare($1, $2, $3, $4)"),
                Some("SELECT * FROM cognate_mip_commit($1, $2)"),
            ),
            Way::TwoPhase => ("BEGIN", None, None),
            Way::Plain => ("BEGIN", None, Some("COMMIT")),
        };
        let begin = client.prepare(begin).await?;
        let prepare = match prepare {
            Some(sql) => Some(client.prepare(sql).await?),
            None => None,
        };
        let commit = match commit {
            Some(sql) => Some(client.prepare(sql).await?),
            None => None,
        };
        let show = match way {
            Way::Mip => Some(client.prepare("SELECT * FROM cognate_mip_show($1)").await?),
            Way::TwoPhase | Way::Plain => None,
        };
        Ok(Site { client, way, begin, show, prepare, commit })
    }

    /// The smallest prepared instance of a request whose server has stopped, as the application server's retry looks for it; always `None` without siblings.
    pub async fn find(&self, xid: &str) -> Result<Option<Attempt>, Error> {
        let Some(show) = &self.show else { return Ok(None) };
        let table = self.client.query(show, &[&xid]).await?;
        let prepared = table.iter().filter(|row| row.get::<_, &str>(1) == "prepared");
        let smallest = prepared.map(|row| row.get(0)).min();
        Ok(smallest.map(|instance| Attempt { xid: xid.to_owned(), instance }))
    }

    /// Begins the attempt.
    pub async fn begin(&self, attempt: &Attempt) -> Result<(), Error> {
        match self.way {
            Way::Mip => self.client.query(&self.begin, &[&attempt.xid, &attempt.instance]).await.map(drop),
            Way::TwoPhase | Way::Plain => self.client.execute(&self.begin, &[]).await.map(drop),
        }
    }

    /// Prepares the attempt, if the way has that. The answer is the smallest prepared instance, which an application server commits.
    pub async fn prepare(&self, attempt: &Attempt, request: &str, result: &str) -> Result<i64, Error> {
        if let Some(prepare) = &self.prepare {
            let table =
                self.client.query(prepare, &[&attempt.xid, &attempt.instance, &request, &result]).await?;
            let prepared = table.iter().filter(|row| row.get::<_, &str>(1) == "prepared");
            return Ok(prepared.map(|row| row.get(0)).min().unwrap_or(attempt.instance));
        }
        if self.way == Way::TwoPhase {
            self.client.batch_execute(&format!("PREPARE TRANSACTION '{}'", attempt.gid())).await?;
        }
        Ok(attempt.instance)
    }

    /// Commits the attempt.
    pub async fn commit(&self, attempt: &Attempt) -> Result<(), Error> {
        match (&self.commit, self.way) {
            (Some(commit), Way::Mip) => {
                self.client.query(commit, &[&attempt.xid, &attempt.instance]).await.map(drop)
            }
            (Some(commit), _) => self.client.execute(commit, &[]).await.map(drop),
            (None, _) => self.client.batch_execute(&format!("COMMIT PREPARED '{}'", attempt.gid())).await,
        }
    }

    /// Ends an attempt that is not prepared.
    pub async fn roll_back(&self) -> Result<(), Error> {
        self.client.batch_execute("ROLLBACK").await
    }

    /// Ends an attempt that is prepared.
    pub async fn roll_back_prepared(&self, attempt: &Attempt) -> Result<(), Error> {
        let Attempt { xid, instance } = attempt;
        let statement = match self.way {
            Way::Mip => format!("ROLLBACK MIP <'{xid}', {instance}>"),
            _ => format!("ROLLBACK PREPARED '{}'", attempt.gid()),
        };
        self.client.batch_execute(&statement).await
    }
}
