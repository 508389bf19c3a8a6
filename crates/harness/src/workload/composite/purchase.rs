//! A purchase over three databases: the shop enters it, the stock gives one item, the customer
//! pays.
//!
//! Here it is written with components; `direct` and `by_hand` have the same tables and statements.

use cognate_composite::matrix::never;
use cognate_composite::{Call, Component, Error, Result, Service, Undo, service};
use serde::{Deserialize, Serialize};

use super::{CONNECTIONS, ITEMS, skewed};
use crate::random::Random;

/// The three, in this order everywhere.
pub const SITES: [&str; 3] = ["shop", "stock", "payment"];
/// All items have the same price.
pub const PRICE: i32 = 10;
/// Of each item.
const STOCK: i32 = 1_000_000;
/// Of each customer; there are as many as items.
const BALANCE: i32 = 1_000_000_000;

/// Enters a purchase.
pub const ENTER: &str = "INSERT INTO purchase (item, customer, price) VALUES ($1, $2, $3) RETURNING id";
/// Takes one of an item.
pub const TAKE: &str = "UPDATE item SET stock = stock - 1 WHERE id = $1 AND stock > 0";
/// Charges a customer.
pub const CHARGE: &str = "UPDATE account SET balance = balance - $2 WHERE id = $1 AND balance >= $2";

/// What a client asks for.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Order {
    /// Items are met 80 to 20.
    pub item: i32,
    /// Customers are all alike.
    pub customer: i32,
}

/// What the stock is asked for.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Take {
    /// Which item.
    pub item: i32,
}

/// What the payment is asked for.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Charge {
    /// Whom.
    pub customer: i32,
    /// How much.
    pub price: i32,
}

/// What a client is answered.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Receipt {
    /// Of the purchase.
    pub id: i64,
}

/// The next request.
pub fn order(random: &mut Random) -> Order {
    Order { item: skewed(random), customer: random.int(1, ITEMS) }
}

/// The body of the next request.
pub fn body(random: &mut Random) -> String {
    let Order { item, customer } = order(random);
    format!("{{\"item\":{item},\"customer\":{customer}}}")
}

/// The statements that make one site's tables anew.
pub fn tables(site: usize) -> Vec<String> {
    let statements = [
        "DROP TABLE IF EXISTS purchase;
         CREATE TABLE purchase (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item int NOT NULL,
            customer int NOT NULL, price int NOT NULL)"
            .to_owned(),
        format!(
            "DROP TABLE IF EXISTS item;
             CREATE TABLE item (id int PRIMARY KEY, stock int NOT NULL);
             INSERT INTO item SELECT i, {STOCK} FROM generate_series(1, {ITEMS}) i"
        ),
        format!(
            "DROP TABLE IF EXISTS account;
             CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL);
             INSERT INTO account SELECT i, {BALANCE} FROM generate_series(1, {ITEMS}) i"
        ),
    ];
    statements[site].split(';').map(|statement| statement.trim().to_owned()).collect()
}

/// Asks a site how many purchases it knows of.
pub fn count(site: usize) -> String {
    match site {
        0 => "SELECT count(*) FROM purchase".to_owned(),
        1 => format!("SELECT sum({STOCK}::bigint - stock)::bigint FROM item"),
        _ => format!("SELECT (sum({BALANCE}::bigint - balance) / {PRICE})::bigint FROM account"),
    }
}

const BUYING: Service<Order, Receipt> = Service::named("shop", "buy");
const TAKING: Service<Take, ()> = Service::named("stock", "take");
const CHARGING: Service<Charge, ()> = Service::named("payment", "charge");

async fn buy(call: Call, order: Order) -> Result<Receipt> {
    let Order { item, customer } = order;
    let (taken, charged) = (Take { item }, Charge { customer, price: PRICE });
    tokio::try_join!(call.call(TAKING, taken), call.call(CHARGING, charged))?;
    let row = call.sql().query_one(ENTER, &[&item, &customer, &PRICE]).await?;
    Ok(Receipt { id: row.get(0) })
}

async fn take(call: Call, take: Take) -> Result<()> {
    match call.sql().execute(TAKE, &[&take.item]).await? {
        0 => Err(Error::refuse(format!("item {} is sold out, or there is none", take.item))),
        _ => call.undo(&take),
    }
}

async fn put_back(undo: Undo, take: Take) -> Result<()> {
    undo.sql().execute("UPDATE item SET stock = stock + 1 WHERE id = $1", &[&take.item]).await.map(drop)
}

async fn charge(call: Call, charge: Charge) -> Result<()> {
    match call.sql().execute(CHARGE, &[&charge.customer, &charge.price]).await? {
        0 => Err(Error::refuse(format!("customer {} cannot pay, or there is none", charge.customer))),
        _ => call.undo(&charge),
    }
}

async fn refund(undo: Undo, charge: Charge) -> Result<()> {
    let raise = "UPDATE account SET balance = balance + $2 WHERE id = $1";
    undo.sql().execute(raise, &[&charge.customer, &charge.price]).await.map(drop)
}

/// The component of a site, without its database.
pub fn component(site: usize) -> Component {
    let component = Component::named(SITES[site]).setup(tables(site)).connections(CONNECTIONS);
    match site {
        // What is entered is new each time.
        0 => component
            .serve(BUYING, service(buy).item(|order: &Order| order.item).read_committed())
            .conflicts([never("buy", "buy")]),
        1 => component
            .serve(TAKING, service(take).item(|take: &Take| take.item).undo(put_back).read_committed())
            .conflicts([never("take", "take")]),
        _ => component
            .serve(
                CHARGING,
                service(charge).item(|charge: &Charge| charge.customer).undo(refund).read_committed(),
            )
            .conflicts([never("charge", "charge")]),
    }
}
