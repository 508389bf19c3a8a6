//! A connection to a site, and the ways to begin and end a transaction on it.
//!
//! Whatever begins, prepares and ends a transaction goes as text of the simple protocol, on each way: most of it has an identifier and cannot be prepared, and
//! that is how drivers send BEGIN and COMMIT, too.

use std::fmt;

use tokio_postgres::{Client, Config, Error, SimpleQueryMessage, Statement};

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

/// As in the statements of MIP.
impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{}, {}>", Literal(&self.xid), self.instance)
    }
}

/// A string literal.
struct Literal<'a>(&'a str);

impl fmt::Display for Literal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("'")?;
        for (nth, part) in self.0.split('\'').enumerate() {
            f.write_str(if nth > 0 { "''" } else { "" })?;
            f.write_str(part)?;
        }
        f.write_str("'")
    }
}

/// One connection.
#[derive(Debug)]
pub struct Site {
    /// For the statements between begin and end.
    pub client: Client,
    way: Way,
    show: Option<Statement>,
}

impl Site {
    /// Connects and prepares the statements.
    pub async fn open(config: &Config, way: Way, isolation: Isolation) -> Result<Site, Error> {
        let client = peer::connect(config).await?;
        let level = isolation.sql();
        client
            .batch_execute(&format!("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}"))
            .await?;
        let show = match way {
            Way::Mip => Some(client.prepare("SELECT * FROM cognate_mip_show($1)").await?),
            Way::TwoPhase | Way::Plain => None,
        };
        Ok(Site { client, way, show })
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
            Way::Mip => self.client.batch_execute(&format!("BEGIN MIP {attempt}")).await,
            Way::TwoPhase | Way::Plain => self.client.batch_execute("BEGIN").await,
        }
    }

    /// Prepares the attempt, if the way has that. The answer is the smallest prepared instance, which an application server commits.
    pub async fn prepare(&self, attempt: &Attempt, request: &str, result: &str) -> Result<i64, Error> {
        match self.way {
            Way::Mip => {
                let text = format!("PREPARE MIP {attempt} {} {}", Literal(request), Literal(result));
                let table = self.client.simple_query(&text).await?;
                let prepared = table.iter().filter_map(|message| match message {
                    SimpleQueryMessage::Row(row) if row.get(1) == Some("prepared") => {
                        row.get(0)?.parse().ok()
                    }
                    _ => None,
                });
                return Ok(prepared.min().unwrap_or(attempt.instance));
            }
            Way::TwoPhase => {
                self.client.batch_execute(&format!("PREPARE TRANSACTION '{}'", attempt.gid())).await?;
            }
            Way::Plain => {}
        }
        Ok(attempt.instance)
    }

    /// Commits the attempt.
    pub async fn commit(&self, attempt: &Attempt) -> Result<(), Error> {
        match self.way {
            Way::Mip => self.client.batch_execute(&format!("COMMIT MIP {attempt}")).await,
            Way::TwoPhase => self.client.batch_execute(&format!("COMMIT PREPARED '{}'", attempt.gid())).await,
            Way::Plain => self.client.batch_execute("COMMIT").await,
        }
    }

    /// Ends an attempt that is not prepared.
    pub async fn roll_back(&self) -> Result<(), Error> {
        self.client.batch_execute("ROLLBACK").await
    }

    /// Ends an attempt that is prepared.
    pub async fn roll_back_prepared(&self, attempt: &Attempt) -> Result<(), Error> {
        let statement = match self.way {
            Way::Mip => format!("ROLLBACK MIP {attempt}"),
            _ => format!("ROLLBACK PREPARED '{}'", attempt.gid()),
        };
        self.client.batch_execute(&statement).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_doubled() {
        let attempt = Attempt { xid: "o'c/1".to_owned(), instance: 2 };
        assert_eq!(attempt.to_string(), "<'o''c/1', 2>");
        assert_eq!([Literal("'").to_string(), Literal("").to_string()], ["''''", "''"]);
    }
}
