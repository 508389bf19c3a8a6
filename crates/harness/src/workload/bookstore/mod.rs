//! The TPC-W bookstore: an online shop with fourteen kinds of page in three mixes.
//!
//! Only the database's part of each page is here; there is no web server. The emulated browsers are
//! closed-loop clients without think time.
//!
//! - `schema`: ten tables with keys, foreign keys and indexes;
//! - `generator`: every row as a pure function of (seed, table, number), and the loader;
//! - `mix`: how often each interaction comes in each mix;
//! - `browser`: an emulated browser's state, and the requests that it draws;
//! - `interactions`: what each request does in the database;
//! - `statements`: each statement on its own, for finding slow ones;
//! - `invariants`: what must hold of the store whatever ran.
//!
//! Choices where TPC-W leaves room, or that make checking exact:
//! - `order_line.ol_cost` and `shopping_cart_line.scl_cost` keep the price at which an item was put
//!   into the cart, since Admin Confirm changes prices; without them no order's total could be
//!   checked later.
//! - A cart holds at most ten of an item. Stock begins at 10 to 30 and a sale that leaves less than
//!   10 adds 21; so stock stays within 10 to 30, which are exactly 21 values, and sold quantities
//!   alone tell what it must be.
//! - Searches are by prefix, written as a range, so that every system can use its index in a
//!   prepared statement.

pub mod browser;
pub mod generator;
pub mod interactions;
pub mod invariants;
pub mod mix;
pub mod schema;
pub mod statements;

use std::cell::RefCell;

use tokio_postgres::Config;

use crate::driver::{Client, Recorder, Workload};
use crate::error::{DatabaseContext, Result};
use crate::peer;
use browser::Browser;
use generator::Scale;
use interactions::Shop;
use mix::{INTERACTIONS, Mix};

/// The isolation level that a run asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Isolation {
    /// READ COMMITTED.
    ReadCommitted,
    /// REPEATABLE READ: snapshot isolation on both systems.
    RepeatableRead,
    /// SERIALIZABLE.
    Serializable,
}

impl Isolation {
    /// As SQL writes it.
    pub fn sql(self) -> &'static str {
        match self {
            Isolation::ReadCommitted => "READ COMMITTED",
            Isolation::RepeatableRead => "REPEATABLE READ",
            Isolation::Serializable => "SERIALIZABLE",
        }
    }

    /// As settings and command lines write it.
    pub fn name(self) -> &'static str {
        match self {
            Isolation::ReadCommitted => "read-committed",
            Isolation::RepeatableRead => "repeatable-read",
            Isolation::Serializable => "serializable",
        }
    }
}

/// The bookstore's load on one system.
#[derive(Debug)]
pub struct Bookstore {
    /// The system's name, for messages.
    pub system: String,
    /// How to connect.
    pub config: Config,
    /// What was loaded.
    pub scale: Scale,
    /// Which interactions how often.
    pub mix: Mix,
    /// Of every transaction.
    pub isolation: Isolation,
    /// Tells the clients of different rounds apart, so that no two draw the same requests.
    pub round: u64,
}

impl Workload for Bookstore {
    type Client = EmulatedBrowser;

    fn kinds(&self) -> Vec<String> {
        INTERACTIONS.iter().map(|interaction| interaction.name().to_owned()).collect()
    }

    async fn open(&self, index: usize) -> Result<EmulatedBrowser> {
        let client = peer::connect(&self.config).await.at(&self.system, "connecting a browser")?;
        let shop =
            Shop::prepare(client, self.isolation).await.at(&self.system, "preparing the interactions")?;
        let browser = Browser::new(self.scale, self.mix, self.round * 1_000_000 + index as u64);
        Ok(EmulatedBrowser { system: self.system.clone(), shop, browser })
    }
}

/// One emulated browser with its connection.
#[derive(Debug)]
pub struct EmulatedBrowser {
    system: String,
    shop: Shop,
    browser: Browser,
}

impl Client for EmulatedBrowser {
    async fn step(&mut self, recorder: &RefCell<Recorder>) -> Result<()> {
        let request = self.browser.next_request();
        let kind = request.interaction() as usize;
        let since = std::time::Instant::now();
        loop {
            match self.shop.execute(&request).await {
                Ok(reply) => {
                    recorder.borrow_mut().committed(kind, since);
                    self.browser.answered(&request, &reply);
                    return Ok(());
                }
                Err(error) => {
                    let retry = recorder.borrow_mut().failed(kind, &error);
                    self.shop.roll_back().await.at(&self.system, "rolling back")?;
                    if !retry || recorder.borrow().is_over() {
                        self.browser.gave_up(&request);
                        return Ok(());
                    }
                }
            }
        }
    }
}
