//! The three components: what a developer writes.

use cognate_composite::matrix::{never, same_item};
use cognate_composite::{Call, Component, Error, Result, Service, Undo, service};
use serde::{Deserialize, Serialize};

/// What a client asks for.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Order {
    item: i32,
    customer: i32,
}

/// What the client is answered.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Receipt {
    id: i64,
    item: i32,
    customer: i32,
    price: i32,
}

/// Taking one of an item.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Take {
    item: i32,
}

/// Charging a customer with the price of an item.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Charge {
    customer: i32,
    price: i32,
}

const BUY: Service<Order, Receipt> = Service::named("shop", "buy");
const SOLD: Service<Take, i64> = Service::named("shop", "sold");
const TAKE: Service<Take, ()> = Service::named("stock", "take");
const COUNT: Service<Take, i32> = Service::named("stock", "count");
const CHARGE: Service<Charge, ()> = Service::named("payment", "charge");
const BALANCE: Service<i32, i32> = Service::named("payment", "balance");

/// All items have the same price.
const PRICE: i32 = 10;

async fn buy(call: Call, order: Order) -> Result<Receipt> {
    let Order { item, customer } = order;
    let (taken, charged) = (Take { item }, Charge { customer, price: PRICE });
    tokio::try_join!(call.call(TAKE, taken), call.call(CHARGE, charged))?;
    let enter = "INSERT INTO purchase (item, customer, price) VALUES ($1, $2, $3) RETURNING id";
    let row = call.sql().query_one(enter, &[&item, &customer, &PRICE]).await?;
    let id: i64 = row.get(0);
    // Needed where the purchase is part of somebody else's root; stock and payment undo their own.
    call.undo(&id)?;
    Ok(Receipt { id, item, customer, price: PRICE })
}

async fn strike_out(undo: Undo, id: i64) -> Result<()> {
    undo.sql().execute("DELETE FROM purchase WHERE id = $1", &[&id]).await.map(drop)
}

async fn sold(call: Call, take: Take) -> Result<i64> {
    let row = call.sql().query_one("SELECT count(*) FROM purchase WHERE item = $1", &[&take.item]).await?;
    Ok(row.get(0))
}

async fn take(call: Call, take: Take) -> Result<()> {
    let lower = "UPDATE item SET stock = stock - 1 WHERE id = $1 AND stock > 0";
    if call.sql().execute(lower, &[&take.item]).await? == 0 {
        return Err(Error::refuse(format!("item {} is sold out, or there is none", take.item)));
    }
    call.undo(&take)
}

async fn put_back(undo: Undo, take: Take) -> Result<()> {
    undo.sql().execute("UPDATE item SET stock = stock + 1 WHERE id = $1", &[&take.item]).await.map(drop)
}

async fn count(call: Call, take: Take) -> Result<i32> {
    let row = call.sql().query_opt("SELECT stock FROM item WHERE id = $1", &[&take.item]).await?;
    row.map(|row| row.get(0)).ok_or_else(|| Error::refuse(format!("there is no item {}", take.item)))
}

async fn charge(call: Call, charge: Charge) -> Result<()> {
    let lower = "UPDATE account SET balance = balance - $2 WHERE id = $1 AND balance >= $2";
    if call.sql().execute(lower, &[&charge.customer, &charge.price]).await? == 0 {
        return Err(Error::refuse(format!("customer {} cannot pay, or there is none", charge.customer)));
    }
    call.undo(&charge)
}

async fn refund(undo: Undo, charge: Charge) -> Result<()> {
    let raise = "UPDATE account SET balance = balance + $2 WHERE id = $1";
    undo.sql().execute(raise, &[&charge.customer, &charge.price]).await.map(drop)
}

async fn balance(call: Call, customer: i32) -> Result<i32> {
    let row = call.sql().query_opt("SELECT balance FROM account WHERE id = $1", &[&customer]).await?;
    row.map(|row| row.get(0)).ok_or_else(|| Error::refuse(format!("there is no customer {customer}")))
}

/// The shop: what was bought.
pub(crate) fn shop() -> Component {
    Component::named("shop")
        .setup(["CREATE TABLE IF NOT EXISTS purchase (
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item int NOT NULL, customer int NOT NULL, price int NOT NULL)"])
        .serve(BUY, service(buy).item(|order: &Order| order.item).undo(strike_out).read_committed())
        .serve(SOLD, service(sold).item(|take: &Take| take.item).reads())
        // What is entered is new each time, so two purchases never meet here.
        .conflicts([never("buy", "buy"), same_item("buy", "sold")])
}

/// The stock: how many of each item are left.
pub(crate) fn stock() -> Component {
    Component::named("stock")
        .setup([
            "CREATE TABLE IF NOT EXISTS item (id int PRIMARY KEY, stock int NOT NULL, price int NOT NULL)".to_owned(),
            format!("INSERT INTO item SELECT i, 1000, {PRICE} FROM generate_series(1, 100) i ON CONFLICT DO NOTHING"),
        ])
        .serve(TAKE, service(take).item(|take: &Take| take.item).undo(put_back).read_committed())
        .serve(COUNT, service(count).item(|take: &Take| take.item).reads())
        // Taking one commutes with taking one and with putting one back; who counts sees either.
        .conflicts([never("take", "take"), same_item("take", "count")])
}

/// The payment: what each customer has. Without undo a charge is kept prepared until its purchase
/// has ended.
pub(crate) fn payment(has_undo: bool) -> Component {
    let charge = service(charge).item(|charge: &Charge| charge.customer).read_committed();
    let (charge, charges) = match has_undo {
        true => (charge.undo(refund), never("charge", "charge")),
        // Its row is locked as long.
        false => (charge, same_item("charge", "charge")),
    };
    Component::named("payment")
        .setup([
            "CREATE TABLE IF NOT EXISTS account (id int PRIMARY KEY, balance int NOT NULL)",
            "INSERT INTO account SELECT i, 10000 FROM generate_series(1, 100) i ON CONFLICT DO NOTHING",
        ])
        .serve(CHARGE, charge)
        .serve(BALANCE, service(balance).item(|customer: &i32| *customer).reads())
        .conflicts([charges, same_item("charge", "balance")])
}
