//! What a request does between its begin and its end.
//!
//! ```text
//! Buy Confirm     read the customer with the address, insert the order; three times: insert the order line, lower the item's stock;
//!                 insert the payment                                                                            (9 statements)
//! Admin Confirm   change the item, find what was bought together with it, set the related items                (3 statements)
//! Purchase        lower a hot item's stock, insert the order                                                    (2 statements)
//! Update          count up one row                                                                              (1 statement)
//! ```
//!
//! Buy Confirm and Admin Confirm are the bookstore's own statements on the bookstore's tables,
//! without the cart: so they can be executed any number of times, and twice by siblings. The items
//! come from a walk over all of them, so that no two requests of one moment want the same: what is
//! compared is the cost of an end, not of conflicts. The crowd's purchases are about conflicts.
//!
//! Each statement has a *stand-in*: with parameters of the same types, and with rows of about the
//! same size, but without a table. A request by stand-ins exchanges the messages of an execution
//! and executes nothing of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio_postgres::{Client, Error, Statement};

use crate::money::Money;
use crate::random::Random;
use crate::workload::bookstore::generator::{
    CARD_TYPES, REFILL, SHIP_TYPES, STOCK_LOW, Scale, other_items, totals,
};
use crate::workload::bookstore::interactions::SQL;

/// The kinds of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// The bookstore's Buy Confirm: light reads, many writes.
    BuyConfirm,
    /// The bookstore's Admin Confirm: a heavy read, few writes.
    AdminConfirm,
    /// A purchase of one of ten hot items.
    Purchase,
    /// An update of a random row of `s3u1`.
    Update,
}

/// Hot items of the crowd.
pub const HOT_ITEMS: i32 = 10;
/// Rows of the table that [`Profile::Update`] goes to.
pub const UPDATE_ROWS: i64 = 100_000;
/// Order lines of a Buy Confirm.
pub const LINES: u64 = 3;

impl Profile {
    /// In tables.
    pub fn name(self) -> &'static str {
        match self {
            Profile::BuyConfirm => "Buy Confirm",
            Profile::AdminConfirm => "Admin Confirm",
            Profile::Purchase => "purchase",
            Profile::Update => "update",
        }
    }

    fn statements(self) -> Vec<&'static str> {
        let sql = |wanted: &str| SQL.iter().find(|(name, _)| *name == wanted).map_or("", |(_, sql)| *sql);
        match self {
            Profile::BuyConfirm => {
                ["buyer", "new_order", "new_order_line", "take_stock", "new_payment"].map(sql).to_vec()
            }
            Profile::AdminConfirm => ["change_item", "bought_with", "set_related"].map(sql).to_vec(),
            Profile::Purchase => vec![
                "UPDATE hot_item SET stock = stock - 1 WHERE id = $1",
                "INSERT INTO hot_order (item) VALUES ($1) RETURNING id",
            ],
            Profile::Update => vec!["UPDATE s3u1 SET v = v + 1 WHERE id = $1"],
        }
    }

    /// For each of the statements one with the same messages that touches no table: where the
    /// statement gives no rows, neither does it.
    fn stand_ins(self) -> Vec<&'static str> {
        match self {
            Profile::BuyConfirm => vec![
                "SELECT 'abcdefghijk'::varchar, 'abcdefghijkl'::varchar, 0.15::numeric, $1::int4, 77",
                "SELECT $1::int4 WHERE $2::numeric IS NOT NULL AND $3::numeric IS NOT NULL \
                    AND $4::numeric IS NOT NULL AND $5::varchar IS NOT NULL AND $6::int4 IS NOT NULL \
                    AND $7::int4 IS NOT NULL",
                "SELECT $1::int4, $2::int4, $3::int4, $4::int4, $5::numeric, $6::numeric, $7::varchar \
                    WHERE false",
                "SELECT $1::int4, $2::int4, $3::int4, $4::int4 WHERE false",
                "SELECT $1::int4, $2::varchar, $3::varchar, $4::varchar, $5::numeric, $6::int4 WHERE false",
            ],
            Profile::AdminConfirm => vec![
                "SELECT $1::int4, $2::numeric, $3::varchar, $4::varchar WHERE false",
                "SELECT $1::int4 + n FROM (VALUES (1), (2), (3), (4), (5)) AS v (n)",
                "SELECT $1::int4, $2::int4, $3::int4, $4::int4, $5::int4, $6::int4 WHERE false",
            ],
            Profile::Purchase => vec!["SELECT $1::int4 WHERE false", "SELECT $1::int4::int8"],
            Profile::Update => vec!["SELECT $1::int8 WHERE false"],
        }
    }
}

/// Statements that make the crowd's tables.
pub fn crowd_tables() -> Vec<String> {
    vec![
        "DROP TABLE IF EXISTS hot_item, hot_order".to_owned(),
        "CREATE TABLE hot_item (id int PRIMARY KEY, stock int NOT NULL)".to_owned(),
        "CREATE TABLE hot_order (id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item int NOT NULL)"
            .to_owned(),
        format!("INSERT INTO hot_item SELECT g, 100000000 FROM generate_series(1, {HOT_ITEMS}) AS g"),
    ]
}

/// One request: everything that siblings have in common.
#[derive(Clone, Debug)]
pub struct Request {
    customer: i32,
    /// Ascending, so that two buyers cannot deadlock on them.
    items: [i32; LINES as usize],
    quantity: i32,
    cost: Money,
    card: &'static str,
    ship: &'static str,
    digits: String,
    name: String,
    others: [i32; 5],
    row: i64,
}

/// Draws requests.
#[derive(Clone, Debug)]
pub struct Draw {
    scale: Scale,
    random: Random,
    /// Shared by all clients: how far the walk over the items has come.
    walk: Arc<AtomicU64>,
}

/// A prime: in such steps the walk goes over the items.
const STEP: u64 = 7_919;

impl Draw {
    /// The requests of a client of a run.
    pub fn new(scale: Scale, run: u64, client: u64, walk: &Arc<AtomicU64>) -> Draw {
        let random = Random::stream(scale.seed, (1 << 33) + run, client);
        Draw { scale, random, walk: Arc::clone(walk) }
    }

    /// The next one.
    pub fn request(&mut self) -> Request {
        let first = LINES * self.walk.fetch_add(1, Ordering::Relaxed);
        let random = &mut self.random;
        let mut items = [0, 1, 2].map(|n| 1 + ((first + n) * STEP % self.scale.items as u64) as i32);
        items.sort_unstable();
        let mut digits = String::new();
        random.digits(16, &mut digits);
        let mut name = String::new();
        random.letters(20, 30, &mut name);
        Request {
            customer: random.int(1, self.scale.customers()),
            items,
            quantity: random.int(1, 3),
            cost: Money(random.between(100, 99_999)),
            card: random.pick(&CARD_TYPES),
            ship: random.pick(&SHIP_TYPES),
            digits,
            name,
            others: other_items(random, self.scale.items, items[0]),
            row: random.between(1, UPDATE_ROWS),
        }
    }
}

/// The statements of a profile on one connection.
#[derive(Debug)]
pub struct Worker {
    profile: Profile,
    statements: Vec<Statement>,
}

impl Worker {
    /// Prepares them.
    pub async fn open(client: &Client, profile: Profile) -> Result<Worker, Error> {
        Worker::prepare(client, profile, &profile.statements()).await
    }

    /// Prepares their stand-ins: what it executes are messages and nothing else.
    pub async fn of_stand_ins(client: &Client, profile: Profile) -> Result<Worker, Error> {
        Worker::prepare(client, profile, &profile.stand_ins()).await
    }

    async fn prepare(client: &Client, profile: Profile, all: &[&str]) -> Result<Worker, Error> {
        let mut statements = Vec::new();
        for sql in all {
            statements.push(client.prepare(sql).await?);
        }
        Ok(Worker { profile, statements })
    }

    /// The request string of a family: what its requests are.
    pub fn name(&self) -> &'static str {
        self.profile.name()
    }

    /// Executes a request; the answer is its result.
    pub async fn execute(&self, client: &Client, request: &Request) -> Result<String, Error> {
        match self.profile {
            Profile::BuyConfirm => self.buy_confirm(client, request).await,
            Profile::AdminConfirm => self.admin_confirm(client, request).await,
            Profile::Purchase => {
                let item = 1 + request.customer % HOT_ITEMS;
                client.execute(&self.statements[0], &[&item]).await?;
                let row = client.query_one(&self.statements[1], &[&item]).await?;
                Ok(format!("order {}", row.get::<_, i64>(0)))
            }
            Profile::Update => {
                client.execute(&self.statements[0], &[&request.row]).await?;
                Ok(String::new())
            }
        }
    }

    async fn buy_confirm(&self, client: &Client, request: &Request) -> Result<String, Error> {
        let Request { customer, items, quantity, cost, card, ship, digits, name, .. } = request;
        let [buyer, new_order, new_line, take_stock, new_payment] = &self.statements[..] else {
            return Ok(String::new());
        };
        let row = client.query_one(buyer, &[customer]).await?;
        let (discount, address, country): (Money, i32, i32) = (row.get(2), row.get(3), row.get(4));
        let units = i64::from(*quantity) * items.len() as i64;
        let sums = totals(*cost * units, units, discount.0);
        let order: i32 = client
            .query_one(
                new_order,
                &[customer, &sums.sub_total, &sums.tax, &sums.total, ship, &address, &address],
            )
            .await?
            .get(0);
        for (index, item) in items.iter().enumerate() {
            let number = index as i32 + 1;
            client.execute(new_line, &[&order, &number, item, quantity, cost, &discount, name]).await?;
            client.execute(take_stock, &[item, quantity, &STOCK_LOW, &REFILL]).await?;
        }
        client.execute(new_payment, &[&order, card, digits, name, &sums.total, &country]).await?;
        Ok(format!("order {order}"))
    }

    async fn admin_confirm(&self, client: &Client, request: &Request) -> Result<String, Error> {
        let Request { items: [item, ..], cost, digits, others, .. } = request;
        let [change, bought_with, set_related] = &self.statements[..] else { return Ok(String::new()) };
        client.execute(change, &[item, cost, digits, digits]).await?;
        let rows = client.query(bought_with, &[item]).await?;
        let mut related: Vec<i32> = rows.iter().map(|row| row.get(0)).collect();
        for other in others {
            if related.len() < others.len() && !related.contains(other) {
                related.push(*other);
            }
        }
        let [a, b, c, d, e] = related[..] else { return Ok(String::new()) };
        client.execute(set_related, &[item, &a, &b, &c, &d, &e]).await?;
        Ok(format!("item {item}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The highest number of a parameter.
    fn parameters(sql: &str) -> usize {
        let number = |part: &str| {
            let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<usize>().expect("a number behind the dollar")
        };
        sql.split('$').skip(1).map(number).max().unwrap_or(0)
    }

    #[test]
    fn a_stand_in_has_the_messages_of_its_statement_and_no_table() {
        let all = [Profile::BuyConfirm, Profile::AdminConfirm, Profile::Purchase, Profile::Update];
        for profile in all {
            let (statements, stand_ins) = (profile.statements(), profile.stand_ins());
            assert_eq!(statements.len(), stand_ins.len(), "{profile:?}");
            for (statement, stand_in) in statements.into_iter().zip(stand_ins) {
                assert_ne!(parameters(statement), 0, "{statement}");
                assert_eq!(parameters(statement), parameters(stand_in), "{statement} / {stand_in}");
                let gives_rows = statement.starts_with("SELECT") || statement.contains("RETURNING");
                assert_eq!(gives_rows, !stand_in.ends_with("WHERE false"), "{statement} / {stand_in}");
                let from = stand_in.split_once(" FROM ").map_or("(VALUES", |(_, from)| from);
                assert!(stand_in.starts_with("SELECT ") && from.starts_with("(VALUES"), "{stand_in}");
            }
        }
    }
}
