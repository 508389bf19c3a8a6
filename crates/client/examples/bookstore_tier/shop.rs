//! The store's, the payments' and the delivery's tables, and Buy Confirm over them. Without a third
//! site nothing is delivered.
//!
//! Nothing in the tables keeps a purchase from being made twice: no unique key, no check. Only so
//! the judgement shows something.

use cognate_client::application::{Branches, Failure};
use cognate_client::etransaction::Text;
use cognate_client::postgres::{PostgresConnection, in_words};
use rand::Rng;
use rand::rngs::StdRng;
use tokio_postgres::NoTls;

use crate::Error;

const STORE: usize = 0;
const PAYMENT: usize = 1;
const DELIVERY: usize = 2;

/// Items, from 1.
pub(crate) const ITEMS: i32 = 50;
/// Customers, from 1.
pub(crate) const CUSTOMERS: i32 = 100;
/// Of each item, at the beginning.
pub(crate) const STOCK: i32 = 250;
/// What each customer has at the beginning, in cents.
pub(crate) const BALANCE: i64 = 1_000_000;

/// Makes the tables anew.
pub(crate) async fn create(sites: &[String]) -> Result<(), Error> {
    let store = [
        "DROP TABLE IF EXISTS order_line".to_owned(),
        "DROP TABLE IF EXISTS orders".to_owned(),
        "DROP TABLE IF EXISTS item".to_owned(),
        "DROP SEQUENCE IF EXISTS order_id".to_owned(),
        "CREATE SEQUENCE order_id".to_owned(),
        "CREATE TABLE item (i_id integer PRIMARY KEY, i_cost bigint NOT NULL, i_stock integer NOT NULL)".to_owned(),
        "CREATE TABLE orders (o_id bigint PRIMARY KEY, o_c_id integer NOT NULL, o_total bigint NOT NULL, \
         o_request text NOT NULL)"
            .to_owned(),
        "CREATE TABLE order_line (ol_o_id bigint PRIMARY KEY, ol_i_id integer NOT NULL, ol_qty integer NOT NULL)"
            .to_owned(),
    ];
    let items = (1..=ITEMS)
        .map(|item| format!("INSERT INTO item VALUES ({item}, {}, {STOCK})", 900 + 100 * i64::from(item)));
    let payment = [
        "DROP TABLE IF EXISTS cc_xacts".to_owned(),
        "DROP TABLE IF EXISTS account".to_owned(),
        "CREATE TABLE account (c_id integer PRIMARY KEY, c_balance bigint NOT NULL)".to_owned(),
        "CREATE TABLE cc_xacts (cx_o_id bigint NOT NULL, cx_c_id integer NOT NULL, cx_amount bigint NOT NULL, \
         cx_request text NOT NULL)"
            .to_owned(),
    ];
    let accounts =
        (1..=CUSTOMERS).map(|customer| format!("INSERT INTO account VALUES ({customer}, {BALANCE})"));
    run(&sites[STORE], store.into_iter().chain(items)).await?;
    run(&sites[PAYMENT], payment.into_iter().chain(accounts)).await?;
    let delivery = [
        "DROP TABLE IF EXISTS parcel",
        "CREATE TABLE parcel (p_o_id bigint NOT NULL, p_i_id integer NOT NULL, p_total bigint NOT NULL, \
         p_request text NOT NULL)",
    ];
    match sites.get(DELIVERY) {
        Some(site) => run(site, delivery.into_iter().map(str::to_owned)).await,
        None => Ok(()),
    }
}

async fn run(site: &str, statements: impl Iterator<Item = String>) -> Result<(), Error> {
    let (client, connection) = tokio_postgres::connect(site, NoTls).await?;
    tokio::spawn(connection);
    for sql in statements {
        client.batch_execute(&sql).await.map_err(|error| format!("{sql}: {}", in_words(&error)))?;
    }
    Ok(())
}

/// A purchase as a request string: `buy CUSTOMER ITEM QUANTITY`. A few items are bought most.
pub(crate) fn random_request(random: &mut StdRng) -> String {
    let most = if random.random_bool(0.5) { 5 } else { ITEMS };
    let (customer, item) = (random.random_range(1..=CUSTOMERS), random.random_range(1..=most));
    format!("buy {customer} {item} {}", random.random_range(1..=3))
}

fn parsed(request: &str) -> Option<(i32, i32, i32)> {
    let mut words = request.strip_prefix("buy ")?.split(' ').map(|word| word.parse().ok());
    let (customer, item, quantity) = (words.next()??, words.next()??, words.next()??);
    (words.next().is_none() && quantity > 0).then_some((customer, item, quantity))
}

/// The logic. What it decides against a purchase is a result, too: the same request always gets the
/// same answer.
pub(crate) async fn buy_confirm(
    request: Text,
    branches: Branches<PostgresConnection>,
) -> Result<String, Failure> {
    let Some((customer, item, quantity)) = parsed(&request) else {
        return Ok(format!("refused: not a purchase: {request}"));
    };
    let (store, payment) = (branches.site(STORE), branches.site(PAYMENT));
    let sql = "SELECT i_cost, i_stock FROM item WHERE i_id = $1";
    let Some(row) = store.query_opt(sql, &[&item]).await? else {
        return Ok(format!("refused: no item {item}"));
    };
    let (cost, stock): (i64, i32) = (row.get(0), row.get(1));
    if stock < quantity {
        return Ok(format!("refused: {stock} left of item {item}"));
    }
    let total = cost * i64::from(quantity);
    let xid = &*branches.job().xid;
    let sql = "UPDATE account SET c_balance = c_balance - $2 WHERE c_id = $1";
    if payment.execute(sql, &[&customer, &total]).await? == 0 {
        return Ok(format!("refused: no customer {customer}"));
    }
    let order: i64 = store.query_one("SELECT nextval('order_id')", &[]).await?.get(0);
    let sql = "INSERT INTO orders VALUES ($1, $2, $3, $4)";
    store.execute(sql, &[&order, &customer, &total, &xid]).await?;
    store.execute("INSERT INTO order_line VALUES ($1, $2, $3)", &[&order, &item, &quantity]).await?;
    store.execute("UPDATE item SET i_stock = i_stock - $2 WHERE i_id = $1", &[&item, &quantity]).await?;
    let sql = "INSERT INTO cc_xacts VALUES ($1, $2, $3, $4)";
    payment.execute(sql, &[&order, &customer, &total, &xid]).await?;
    if branches.sites() > DELIVERY {
        let sql = "INSERT INTO parcel VALUES ($1, $2, $3, $4)";
        branches.site(DELIVERY).execute(sql, &[&order, &item, &total, &xid]).await?;
    }
    Ok(format!("order {order}: {total} cents"))
}
