//! The purchase by a two-phase commit that is written by hand: one process with a connection to
//! each of the three databases, and whatever can be under way at once is.
//!
//! ```text
//! BEGIN and the statement │ PREPARE TRANSACTION │ the decision │ COMMIT PREPARED         textbook: seven flushes
//!        ×3 at once       │      ×3 at once     │   the shop   │    ×3 at once
//!
//! BEGIN and the statement │ PREPARE TRANSACTION │ the decision and COMMIT │ COMMIT PREPARED     last resource: five
//!        ×3 at once       │  ×2 at once         │   the shop              │    ×2 at once
//! ```
//!
//! The decision is a row of the shop's database, one for each client, which its next purchase
//! writes again: by then nobody needs it any more. Whoever recovers commits what is prepared and
//! decided, and rolls back the rest.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::{join_all, try_join_all};
use tokio_postgres::Config;

use super::pool::{Parameters, Session};
use super::purchase::{CHARGE, ENTER, PRICE, SITES, TAKE, order};
use crate::checker::history::Abort;
use crate::driver::{Client, Recorder, Workload};
use crate::error::{DatabaseContext, Error, Result, is_retryable, sqlstate};
use crate::random::Random;

/// The tables of decisions: pages are nearly empty, so that rows are updated in place.
pub const DECISIONS: [&str; 2] = [
    "DROP TABLE IF EXISTS decision",
    "CREATE TABLE decision (coordinator int PRIMARY KEY, purchase text NOT NULL) WITH (fillfactor = 10)",
];
/// Writes one.
pub const DECIDE: &str = "INSERT INTO decision VALUES ($1, $2)
    ON CONFLICT (coordinator) DO UPDATE SET purchase = excluded.purchase";
/// The statements of the sites, each with what it begins with in the first place.
const STATEMENTS: [&[&str]; 3] = [&[ENTER, DECIDE], &[TAKE], &[CHARGE]];

/// Whether the shop's own transaction is the decision, or prepared like the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// All three are prepared, and the decision is a transaction of its own.
    Textbook,
    /// The shop's transaction commits with the decision.
    LastResource,
}

impl Decision {
    /// The first site that is prepared.
    pub fn first_prepared(self) -> usize {
        match self {
            Decision::Textbook => 0,
            Decision::LastResource => 1,
        }
    }
}

/// What the clients share.
#[derive(Clone, Debug)]
pub struct Direct {
    /// How to connect to the three.
    pub configs: [Config; 3],
    /// How it is decided.
    pub decision: Decision,
    /// Seed and number of the run.
    pub run: (u64, u64),
}

/// One client, which is a coordinator.
#[derive(Debug)]
pub struct Coordinator {
    sessions: Vec<Session>,
    decision: Decision,
    index: i32,
    random: Random,
    name: String,
    count: u64,
}

impl Workload for Arc<Direct> {
    type Client = Coordinator;

    fn kinds(&self) -> Vec<String> {
        vec!["direct".to_owned()]
    }

    async fn open(&self, index: usize) -> Result<Coordinator> {
        let mut sessions = Vec::new();
        for (config, statements) in self.configs.iter().zip(STATEMENTS) {
            sessions.push(Session::open(config, statements).await.at("postgres", "connecting")?);
        }
        let (seed, run) = self.run;
        Ok(Coordinator {
            sessions,
            decision: self.decision,
            index: index as i32,
            random: Random::stream(seed, run, index as u64),
            name: format!("d{run}-{index}"),
            count: 0,
        })
    }
}

impl Coordinator {
    /// Runs a text at some of the sites at once.
    async fn at_once(
        &self,
        sites: &[usize],
        text: impl Fn(usize) -> String,
    ) -> Result<(), tokio_postgres::Error> {
        let each = sites.iter().map(|&site| {
            let text = text(site);
            async move { self.sessions[site].text(&text).await }
        });
        try_join_all(each).await.map(drop)
    }

    /// Votes, the decision and the outcome, once all three transactions have done their work.
    async fn end(&self, name: &str) -> Result<(), tokio_postgres::Error> {
        let prepared: Vec<usize> = (self.decision.first_prepared()..SITES.len()).collect();
        self.at_once(&prepared, |site| format!("PREPARE TRANSACTION '{name}-{}'", SITES[site])).await?;
        let shop = &self.sessions[0];
        match self.decision {
            Decision::Textbook => drop(shop.execute(1, &[&self.index, &name]).await?),
            Decision::LastResource => shop.commit_with(1, &[&self.index, &name]).await?,
        }
        self.at_once(&prepared, |site| format!("COMMIT PREPARED '{name}-{}'", SITES[site])).await
    }
}

impl Client for Coordinator {
    async fn step(&mut self, recorder: &RefCell<Recorder>) -> Result<()> {
        self.count += 1;
        let (order, name) = (order(&mut self.random), format!("{}-{}", self.name, self.count));
        let since = Instant::now();
        let [shop, stock, payment] = &self.sessions[..] else {
            return Err(Error::Missing("a purchase has three sites".to_owned()));
        };
        let enter: Parameters<'_> = &[&order.item, &order.customer, &PRICE];
        let (take, charge): (Parameters<'_>, Parameters<'_>) = (&[&order.item], &[&order.customer, &PRICE]);
        let (entered, taken, charged) =
            tokio::join!(shop.begin(0, enter), stock.begin(0, take), payment.begin(0, charge));
        for worked in [entered, taken, charged] {
            match worked {
                Ok(1) => {}
                Ok(rows) => return Err(Error::Violation(format!("{name}: {rows} rows were changed"))),
                // Two purchases over three databases may wait for each other where no database sees
                // it.
                Err(error) if is_retryable(&error) || sqlstate(&error) == "55P03" => {
                    join_all(self.sessions.iter().map(|session| session.text("ROLLBACK"))).await;
                    recorder.borrow_mut().aborted(0, Abort::Client);
                    return Ok(());
                }
                Err(error) => return Err(error).at("postgres", "buying"),
            }
        }
        self.end(&name).await.at("postgres", "ending a purchase")?;
        recorder.borrow_mut().committed(0, since);
        Ok(())
    }
}
