//! A connection to a site, and the ways to begin and end a transaction on it.
//!
//! Each way's statements go as its users send them. MIP's are prepared functions with bound
//! parameters, as in `cognate-client`, or texts, as in psql. PREPARE TRANSACTION and COMMIT
//! PREPARED take no parameters on any system, so they are texts of the simple protocol, as drivers
//! send BEGIN and COMMIT, too.

use std::fmt;

use tokio_postgres::{Client, Config, Error, Row, SimpleQueryMessage, Statement};

use crate::peer;
use crate::workload::bookstore::Isolation;

/// How a request becomes a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// An instance of a family of siblings.
    Mip,
    /// The same, each statement as text.
    MipText,
    /// PREPARE TRANSACTION and COMMIT PREPARED.
    TwoPhase,
    /// BEGIN and COMMIT.
    Plain,
}

impl Way {
    /// Whether requests are families of siblings.
    pub fn is_mip(self) -> bool {
        matches!(self, Way::Mip | Way::MipText)
    }

    /// In tables.
    pub fn name(self) -> &'static str {
        match self {
            Way::Mip => "MIP",
            Way::MipText => "MIP as text",
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
    family: Option<Family>,
}

/// MIP's statements as functions, prepared, as `cognate-client` sends them: names and texts are
/// parameters.
#[derive(Debug)]
struct Family {
    begin: Statement,
    prepare: Statement,
    commit: Statement,
    show: Statement,
}

impl Family {
    async fn open(client: &Client) -> Result<Family, Error> {
        Ok(Family {
            begin: client.prepare("SELECT * FROM cognate_mip_begin($1, $2)").await?,
            prepare: client.prepare("SELECT * FROM cognate_mip_prepare($1, $2, $3, $4)").await?,
            commit: client.prepare("SELECT * FROM cognate_mip_commit($1, $2)").await?,
            show: client.prepare("SELECT * FROM cognate_mip_show($1)").await?,
        })
    }
}

/// The smallest prepared instance of a family's table.
fn smallest_prepared(table: &[Row]) -> Option<i64> {
    table.iter().filter(|row| row.get::<_, &str>(1) == "prepared").map(|row| row.get(0)).min()
}

/// The same of a table that came as text.
fn smallest_prepared_text(table: &[SimpleQueryMessage]) -> Option<i64> {
    let rows = table.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some((row.get(0)?.parse().ok()?, row.get(1)?)),
        _ => None,
    });
    rows.filter(|(_, state)| *state == "prepared").map(|(instance, _)| instance).min()
}

impl Site {
    /// Connects and prepares the statements.
    pub async fn open(config: &Config, way: Way, isolation: Isolation) -> Result<Site, Error> {
        let client = peer::connect(config).await?;
        let level = isolation.sql();
        client
            .batch_execute(&format!("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}"))
            .await?;
        let family = match way {
            Way::Mip => Some(Family::open(&client).await?),
            Way::MipText | Way::TwoPhase | Way::Plain => None,
        };
        Ok(Site { client, way, family })
    }

    /// The smallest prepared instance of a request whose server has stopped, as the application
    /// server's retry looks for it; always `None` without siblings.
    pub async fn find(&self, xid: &str) -> Result<Option<Attempt>, Error> {
        let Some(Family { show, .. }) = &self.family else { return Ok(None) };
        let table = self.client.query(show, &[&xid]).await?;
        Ok(smallest_prepared(&table).map(|instance| Attempt { xid: xid.to_owned(), instance }))
    }

    /// Begins the attempt.
    pub async fn begin(&self, attempt: &Attempt) -> Result<(), Error> {
        match &self.family {
            Some(Family { begin, .. }) => {
                self.client.execute(begin, &[&attempt.xid, &attempt.instance]).await.map(drop)
            }
            None if self.way == Way::MipText => {
                self.client.batch_execute(&format!("BEGIN MIP {attempt}")).await
            }
            None => self.client.batch_execute("BEGIN").await,
        }
    }

    /// Prepares the attempt, if the way has that. The answer is the smallest prepared instance,
    /// which an application server commits.
    pub async fn prepare(&self, attempt: &Attempt, request: &str, result: &str) -> Result<i64, Error> {
        if let Some(Family { prepare, .. }) = &self.family {
            let Attempt { xid, instance } = attempt;
            let table = self.client.query(prepare, &[xid, instance, &request, &result]).await?;
            return Ok(smallest_prepared(&table).unwrap_or(*instance));
        }
        if self.way == Way::MipText {
            let statement = format!("PREPARE MIP {attempt} {} {}", Literal(request), Literal(result));
            let table = self.client.simple_query(&statement).await?;
            return Ok(smallest_prepared_text(&table).unwrap_or(attempt.instance));
        }
        if self.way == Way::TwoPhase {
            self.client.batch_execute(&format!("PREPARE TRANSACTION '{}'", attempt.gid())).await?;
        }
        Ok(attempt.instance)
    }

    /// Commits the attempt.
    pub async fn commit(&self, attempt: &Attempt) -> Result<(), Error> {
        match (&self.family, self.way) {
            (Some(Family { commit, .. }), _) => {
                self.client.execute(commit, &[&attempt.xid, &attempt.instance]).await.map(drop)
            }
            (None, Way::MipText) => self.client.batch_execute(&format!("COMMIT MIP {attempt}")).await,
            (None, Way::TwoPhase) => {
                self.client.batch_execute(&format!("COMMIT PREPARED '{}'", attempt.gid())).await
            }
            (None, _) => self.client.batch_execute("COMMIT").await,
        }
    }

    /// Ends an attempt that is not prepared.
    pub async fn roll_back(&self) -> Result<(), Error> {
        self.client.batch_execute("ROLLBACK").await
    }

    /// Ends an attempt that is prepared.
    pub async fn roll_back_prepared(&self, attempt: &Attempt) -> Result<(), Error> {
        let statement = match self.way {
            Way::Mip | Way::MipText => format!("ROLLBACK MIP {attempt}"),
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
