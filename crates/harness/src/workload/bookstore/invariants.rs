//! What must hold of the bookstore whatever ran, however it was interrupted.
//!
//! The contents are read in one read-only snapshot; the checks themselves are pure, so tests can
//! plant violations.
//!
//! - **Stock**: 10 to 30 of each item, and exactly `initial - sold` modulo the refill of 21. As
//!   there are 21 values from 10 to 30, this tells every lost or doubled update of an item's stock.
//! - **Orders**: each has at least one line, lines numbered from 1 without a gap, and exactly one
//!   payment of its total; its subtotal, tax and total are those of its lines and the lines'
//!   discount. No line or payment lacks its order.
//! - **Carts**: every line has 1 to 10 of an item and belongs to a cart; a cart's totals are those
//!   of its lines.
//! - **Customers**: all numbers from 1 on that were loaded are there, each with an address that
//!   exists.
//! - **Acknowledged**: as many orders came by the run as Buy Confirms were acknowledged (plus at
//!   most those whose answer was lost).

use std::collections::HashMap;
use std::pin::pin;

use futures_util::{StreamExt, TryStreamExt};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

use super::generator::{REFILL, STOCK_LOW, Scale, totals};
use crate::error::{DatabaseContext, Error, Result};
use crate::money::Money;
use crate::peer::System;

/// A row of `orders` as far as it is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the columns' own names")]
pub struct Order {
    pub id: i32,
    pub customer: i32,
    pub sub_total: Money,
    pub tax: Money,
    pub total: Money,
}

/// A row of `order_line` as far as it is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the columns' own names")]
pub struct OrderLine {
    pub order: i32,
    pub number: i32,
    pub item: i32,
    pub quantity: i32,
    pub cost: Money,
    pub discount: Money,
}

/// A row of `shopping_cart` as far as it is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the columns' own names")]
pub struct Cart {
    pub id: i32,
    pub sub_total: Money,
    pub tax: Money,
    pub shipping: Money,
    pub total: Money,
}

/// A row of `shopping_cart_line` as far as it is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the columns' own names")]
pub struct CartLine {
    pub cart: i32,
    pub item: i32,
    pub quantity: i32,
    pub cost: Money,
}

/// What the checks look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Items and their stock.
    pub stock: Vec<(i32, i32)>,
    /// All orders.
    pub orders: Vec<Order>,
    /// All order lines.
    pub lines: Vec<OrderLine>,
    /// Payments: order and amount.
    pub payments: Vec<(i32, Money)>,
    /// All carts.
    pub carts: Vec<Cart>,
    /// All cart lines.
    pub cart_lines: Vec<CartLine>,
    /// Customers and their addresses.
    pub customers: Vec<(i32, i32)>,
    /// Numbers of all addresses.
    pub addresses: Vec<i32>,
}

/// What the clients know to have happened since the load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acknowledged {
    /// Buy Confirms whose commit was acknowledged.
    pub orders: u64,
    /// Buy Confirms whose answer was lost with the connection: each may have happened or not.
    pub unknown_orders: u64,
}

/// Reads everything that is checked, in one snapshot.
pub async fn read(system: &System) -> Result<Contents> {
    let client = system.client().await?;
    let name = &system.name;
    client
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        .await
        .at(name, "beginning the check")?;
    let contents = Contents {
        stock: all(name, &client, "SELECT i_id, i_stock FROM item", |r| (r.get(0), r.get(1))).await?,
        orders: all(name, &client, "SELECT o_id, o_c_id, o_sub_total, o_tax, o_total FROM orders", |r| {
            Order { id: r.get(0), customer: r.get(1), sub_total: r.get(2), tax: r.get(3), total: r.get(4) }
        })
        .await?,
        lines: all(
            name,
            &client,
            "SELECT ol_o_id, ol_id, ol_i_id, ol_qty, ol_cost, ol_discount FROM order_line",
            |r| OrderLine {
                order: r.get(0),
                number: r.get(1),
                item: r.get(2),
                quantity: r.get(3),
                cost: r.get(4),
                discount: r.get(5),
            },
        )
        .await?,
        payments: all(name, &client, "SELECT cx_o_id, cx_xact_amt FROM cc_xacts", |r| (r.get(0), r.get(1)))
            .await?,
        carts: all(
            name,
            &client,
            "SELECT sc_id, sc_sub_total, sc_tax, sc_ship_cost, sc_total FROM shopping_cart",
            |r| Cart {
                id: r.get(0),
                sub_total: r.get(1),
                tax: r.get(2),
                shipping: r.get(3),
                total: r.get(4),
            },
        )
        .await?,
        cart_lines: all(
            name,
            &client,
            "SELECT scl_sc_id, scl_i_id, scl_qty, scl_cost FROM shopping_cart_line",
            |r| CartLine { cart: r.get(0), item: r.get(1), quantity: r.get(2), cost: r.get(3) },
        )
        .await?,
        customers: all(name, &client, "SELECT c_id, c_addr_id FROM customer", |r| (r.get(0), r.get(1)))
            .await?,
        addresses: all(name, &client, "SELECT addr_id FROM address", |r| r.get(0)).await?,
    };
    client.batch_execute("COMMIT").await.at(name, "ending the check")?;
    Ok(contents)
}

async fn all<T>(system: &str, client: &Client, sql: &str, of: impl Fn(&Row) -> T) -> Result<Vec<T>> {
    let none: [&(dyn ToSql + Sync); 0] = [];
    let rows = client.query_raw(sql, none).await.at(system, sql)?;
    let rows = pin!(rows);
    rows.map(|row| row.map(|row| of(&row))).try_collect().await.at(system, sql)
}

/// At most so many violations of one kind are spelled out.
const SHOWN: usize = 5;

/// Collects violations, the first few of each kind in words.
#[derive(Debug, Default)]
struct Findings {
    all: Vec<String>,
    more: HashMap<&'static str, usize>,
    counts: HashMap<&'static str, usize>,
}

impl Findings {
    fn check(&mut self, kind: &'static str, holds: bool, text: impl FnOnce() -> String) {
        if holds {
            return;
        }
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        match *count <= SHOWN {
            true => self.all.push(format!("{kind}: {}", text())),
            false => *self.more.entry(kind).or_default() += 1,
        }
    }

    fn finish(mut self) -> Vec<String> {
        let mut more: Vec<_> = self.more.into_iter().collect();
        more.sort_unstable();
        self.all.extend(more.into_iter().map(|(kind, n)| format!("{kind}: and {n} more")));
        self.all
    }
}

/// All violations, in words; empty if the store is sound.
pub fn violations(contents: &Contents, scale: &Scale, acknowledged: Option<&Acknowledged>) -> Vec<String> {
    let mut findings = Findings::default();
    check_stock(contents, scale, &mut findings);
    check_orders(contents, &mut findings);
    check_carts(contents, &mut findings);
    check_customers(contents, scale, &mut findings);
    if let Some(acknowledged) = acknowledged {
        let new = contents.orders.iter().filter(|order| order.id > scale.orders()).count() as u64;
        let (low, high) = (acknowledged.orders, acknowledged.orders + acknowledged.unknown_orders);
        findings.check("acknowledged", (low..=high).contains(&new), || {
            format!(
                "{new} new orders in the store, but {low} were acknowledged and {} are unknown",
                high - low
            )
        });
    }
    findings.finish()
}

fn check_stock(contents: &Contents, scale: &Scale, findings: &mut Findings) {
    let mut sold: HashMap<i32, i64> = HashMap::new();
    for line in contents.lines.iter().filter(|line| line.order > scale.orders()) {
        *sold.entry(line.item).or_default() += i64::from(line.quantity);
    }
    findings.check("stock", contents.stock.len() == scale.items as usize, || {
        format!("{} items instead of {}", contents.stock.len(), scale.items)
    });
    for &(item, stock) in &contents.stock {
        let in_range = (STOCK_LOW..STOCK_LOW + REFILL).contains(&stock);
        findings.check("stock", in_range, || format!("item {item} has {stock}, outside 10 to 30"));
        let initial = i64::from(scale.initial_stock(item));
        let sold = sold.get(&item).copied().unwrap_or(0);
        let refills = i64::from(stock) - initial + sold;
        findings.check("stock", refills >= 0 && refills % i64::from(REFILL) == 0, || {
            format!(
                "item {item} began with {initial}, sold {sold} and has {stock}: not a whole number of refills"
            )
        });
    }
}

fn check_orders(contents: &Contents, findings: &mut Findings) {
    let mut lines: HashMap<i32, Vec<&OrderLine>> = HashMap::new();
    for line in &contents.lines {
        lines.entry(line.order).or_default().push(line);
    }
    let mut payments: HashMap<i32, Vec<Money>> = HashMap::new();
    for &(order, amount) in &contents.payments {
        payments.entry(order).or_default().push(amount);
    }
    for order in &contents.orders {
        let id = order.id;
        let mut own = lines.remove(&id).unwrap_or_default();
        own.sort_unstable_by_key(|line| line.number);
        findings.check("order lines", !own.is_empty(), || format!("order {id} has none"));
        let numbered = own.iter().zip(1..).all(|(line, number)| line.number == number);
        findings.check("order lines", numbered, || format!("order {id}'s lines are not numbered 1, 2, ..."));
        let gross = own.iter().map(|line| line.cost * i64::from(line.quantity)).sum();
        let units = own.iter().map(|line| i64::from(line.quantity)).sum();
        let discount = own.first().map_or(Money(0), |line| line.discount);
        let one_discount = own.iter().all(|line| line.discount == discount);
        findings
            .check("order lines", one_discount, || format!("order {id}'s lines have different discounts"));
        let expected = totals(gross, units, discount.0);
        let agree =
            (order.sub_total, order.tax, order.total) == (expected.sub_total, expected.tax, expected.total);
        findings.check("order totals", agree, || {
            format!(
                "order {id} says {} + tax {} = {} with shipping, its lines make {} + {} = {}",
                order.sub_total, order.tax, order.total, expected.sub_total, expected.tax, expected.total
            )
        });
        let paid = payments.remove(&id).unwrap_or_default();
        findings.check("payments", paid == [order.total], || {
            let paid: Vec<String> = paid.iter().map(Money::to_string).collect();
            format!("order {id} costs {} and was paid [{}]", order.total, paid.join(", "))
        });
    }
    for order in lines.keys() {
        findings.check("order lines", false, || format!("lines of order {order}, which does not exist"));
    }
    for order in payments.keys() {
        findings.check("payments", false, || format!("a payment of order {order}, which does not exist"));
    }
}

fn check_carts(contents: &Contents, findings: &mut Findings) {
    let mut lines: HashMap<i32, Vec<&CartLine>> = HashMap::new();
    for line in &contents.cart_lines {
        let (cart, quantity) = (line.cart, line.quantity);
        findings.check("carts", (1..=10).contains(&quantity), || {
            format!("cart {cart} holds {quantity} of an item")
        });
        lines.entry(line.cart).or_default().push(line);
    }
    for cart in &contents.carts {
        let own = lines.remove(&cart.id).unwrap_or_default();
        let gross = own.iter().map(|line| line.cost * i64::from(line.quantity)).sum();
        let units = own.iter().map(|line| i64::from(line.quantity)).sum();
        let expected = totals(gross, units, 0);
        let agree = (cart.sub_total, cart.tax, cart.shipping, cart.total)
            == (expected.sub_total, expected.tax, expected.shipping, expected.total);
        findings.check("carts", agree, || {
            format!("cart {} says {}, its {} lines make {}", cart.id, cart.total, own.len(), expected.total)
        });
    }
    for cart in lines.keys() {
        findings.check("carts", false, || format!("lines of cart {cart}, which does not exist"));
    }
}

fn check_customers(contents: &Contents, scale: &Scale, findings: &mut Findings) {
    let addresses: std::collections::HashSet<i32> = contents.addresses.iter().copied().collect();
    let customers: std::collections::HashSet<i32> = contents.customers.iter().map(|(id, _)| *id).collect();
    findings.check("customers", customers.len() == contents.customers.len(), || "a number twice".to_owned());
    let missing = (1..=scale.customers()).filter(|id| !customers.contains(id)).count();
    findings.check("customers", missing == 0, || format!("{missing} of those loaded are missing"));
    let missing = (1..=scale.addresses()).filter(|id| !addresses.contains(id)).count();
    findings.check("customers", missing == 0, || format!("{missing} of the loaded addresses are missing"));
    for (customer, address) in &contents.customers {
        let there = addresses.contains(address);
        findings.check("customers", there, || {
            format!("customer {customer} lives at {address}, which does not exist")
        });
    }
    for order in &contents.orders {
        let there = customers.contains(&order.customer);
        findings.check("customers", there, || {
            format!("order {} is of customer {}, who does not exist", order.id, order.customer)
        });
    }
}

/// Reads and checks; an error with every violation if there is one.
pub async fn verify(system: &System, scale: &Scale, acknowledged: Option<&Acknowledged>) -> Result<Contents> {
    let contents = read(system).await?;
    let found = violations(&contents, scale, acknowledged);
    if found.is_empty() {
        return Ok(contents);
    }
    Err(Error::Violation(format!("{}: THE BOOKSTORE IS NOT SOUND\n  {}", system.name, found.join("\n  "))))
}
