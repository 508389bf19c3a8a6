//! Each statement of the bookstore on its own: with arguments as its interaction would give it, one
//! at a time.
//!
//! For finding the statement behind a slow interaction. Statements that write run in transactions
//! that are rolled back, so the store stays as it was.

use std::time::{Duration, Instant};

use tokio_postgres::types::ToSql;

use super::generator::{
    Address, REFILL, STOCK_LOW, SUBJECTS, Scale, author_last_name, country_name, item_title, user_name,
};
use super::interactions::{SQL, after_prefix};
use crate::driver::{Counts, Outcome};
use crate::error::{DatabaseContext, Error, Result};
use crate::money::Money;
use crate::peer::System;
use crate::random::Random;

type Arguments = Vec<Box<dyn ToSql + Sync>>;

/// Transactions that write are rolled back after so many statements.
const ROLLED_BACK_AFTER: u32 = 20;

/// The statements that are measured, in the order of their file.
pub fn names() -> Vec<&'static str> {
    let all = SQL.iter().map(|(name, _)| *name);
    all.filter(|name| !matches!(*name, "begin" | "begin_read_only" | "commit")).collect()
}

fn is_write(sql: &str) -> bool {
    ["INSERT", "UPDATE", "DELETE"].iter().any(|verb| sql.starts_with(verb))
}

/// Arguments for a statement, drawn as the emulated browsers draw theirs. `cart` is a cart that is
/// there.
fn arguments(name: &str, scale: &Scale, cart: i32, random: &mut Random) -> Arguments {
    let item = random.skewed(scale.items);
    let customer = random.skewed(scale.customers());
    let order = random.int(1, scale.orders());
    let prefix = |text: String| -> Arguments {
        let start: String = text.chars().take(4).collect();
        vec![Box::new(after_prefix(&start)), Box::new(start)]
    };
    let mut arguments: Arguments = match name {
        "customer_name" | "user_name" | "buyer" | "customer_by_id" | "last_order" | "log_in" => {
            vec![Box::new(customer)]
        }
        "related" | "product" | "bought_with" => vec![Box::new(item)],
        "thumbnails" => (0..5).map(|_| Box::new(random.skewed(scale.items)) as _).collect(),
        "new_products" | "best_sellers" | "search_subject" => vec![Box::new(random.pick(&SUBJECTS))],
        "search_author" => {
            let author = random.int(1, scale.authors());
            prefix(author_last_name(scale, author)).into_iter().rev().collect()
        }
        "search_title" => prefix(item_title(scale, item)).into_iter().rev().collect(),
        "add_to_cart" => vec![Box::new(cart), Box::new(item), Box::new(2)],
        "first_line" | "cart_lines" | "cart_totals" | "lines_to_buy" | "empty_cart" => vec![Box::new(cart)],
        "change_line" => vec![Box::new(cart), Box::new(item), Box::new(3)],
        "delete_line" => vec![Box::new(cart), Box::new(item)],
        "set_totals" => {
            let mut all: Arguments = vec![Box::new(cart)];
            all.extend((0..4).map(|n| Box::new(Money(n * 100)) as _));
            all
        }
        "returning_customer" => vec![Box::new(user_name(customer))],
        "find_country" => vec![Box::new(country_name(random.int(1, 92)))],
        "order" | "order_lines" => vec![Box::new(order)],
        "take_stock" => vec![Box::new(item), Box::new(1), Box::new(STOCK_LOW), Box::new(REFILL)],
        _ => Vec::new(),
    };
    if arguments.is_empty() {
        arguments = entered(name, scale, item, customer, random);
    }
    arguments
}

/// Arguments of the statements that carry what somebody entered.
fn entered(name: &str, scale: &Scale, item: i32, customer: i32, random: &mut Random) -> Arguments {
    let known = Address::loaded(scale, random.int(1, scale.addresses()));
    // Numbers far above the loaded ones; the transactions are rolled back.
    let fresh = 500_000_000 + random.int(1, 400_000_000);
    match name {
        "find_address" => vec![
            Box::new(known.zip),
            Box::new(known.street1),
            Box::new(known.street2),
            Box::new(known.city),
            Box::new(known.state),
            Box::new(known.country),
        ],
        "new_address" => vec![
            Box::new(known.street1),
            Box::new(known.street2),
            Box::new(known.city),
            Box::new(known.state),
            Box::new(known.zip),
            Box::new(known.country),
        ],
        "new_customer" => vec![
            Box::new(fresh),
            Box::new(user_name(fresh)),
            Box::new("secret"),
            Box::new("First"),
            Box::new("Last"),
            Box::new(random.int(1, scale.addresses())),
            Box::new("123456"),
            Box::new("somebody@example.com"),
            Box::new(Money(15)),
            Box::new("data"),
        ],
        "new_order" => vec![
            Box::new(customer),
            Box::new(Money(1_000)),
            Box::new(Money(83)),
            Box::new(Money(1_483)),
            Box::new("AIR"),
            Box::new(1),
            Box::new(2),
        ],
        "new_order_line" => vec![
            Box::new(random.int(1, scale.orders())),
            Box::new(fresh),
            Box::new(item),
            Box::new(1),
            Box::new(Money(1_000)),
            Box::new(Money(15)),
            Box::new("a remark"),
        ],
        "change_item" => {
            vec![
                Box::new(item),
                Box::new(Money(900)),
                Box::new("img1/image_1.gif"),
                Box::new("img1/thumb_1.gif"),
            ]
        }
        "set_related" => (0..6).map(|n| Box::new(item.min(scale.items - 6) + n) as _).collect(),
        _ => Vec::new(),
    }
}

/// Runs every statement for about `each`; the kinds of the outcome are the statements.
pub async fn measure(
    system: &System,
    scale: &Scale,
    each: Duration,
    only: &[String],
) -> Result<Vec<Outcome>> {
    let client = system.client().await?;
    let cart = fill_cart(system, &client, scale).await?;
    let mut outcomes = Vec::new();
    for name in names() {
        if !only.is_empty() && !only.iter().any(|only| only == name) {
            continue;
        }
        // A payment needs an order without one; Buy Confirm's own figures tell about it.
        if name == "new_payment" {
            continue;
        }
        outcomes.push(one(system, &client, scale, cart, name, each).await?);
    }
    Ok(outcomes)
}

async fn fill_cart(system: &System, client: &tokio_postgres::Client, scale: &Scale) -> Result<i32> {
    let sql = |wanted: &str| SQL.iter().find(|(name, _)| *name == wanted).map_or("", |(_, sql)| *sql);
    let row = client.query_one(sql("new_cart"), &[]).await.at(&system.name, "making a cart")?;
    let cart: i32 = row.get(0);
    for item in [1, scale.items / 2, scale.items] {
        client.execute(sql("add_to_cart"), &[&cart, &item, &2]).await.at(&system.name, "filling a cart")?;
    }
    Ok(cart)
}

async fn one(
    system: &System,
    client: &tokio_postgres::Client,
    scale: &Scale,
    cart: i32,
    name: &'static str,
    each: Duration,
) -> Result<Outcome> {
    let doing = || format!("statement {name}");
    let sql = SQL.iter().find(|(known, _)| *known == name).map(|(_, sql)| *sql);
    let sql = sql.ok_or_else(|| Error::Usage(format!("there is no statement {name}")))?;
    let statement = client.prepare(sql).await.at(&system.name, doing())?;
    let mut random = Random::stream(scale.seed, 99, 0);
    let mut counts = Counts::new();
    let write = is_write(sql);
    let (started, mut n, mut busy) = (Instant::now(), 0_u32, Duration::ZERO);
    while started.elapsed() < each {
        if write && n.is_multiple_of(ROLLED_BACK_AFTER) {
            client.batch_execute("ROLLBACK; BEGIN").await.at(&system.name, doing())?;
        }
        let arguments = arguments(name, scale, cart, &mut random);
        let references: Vec<&(dyn ToSql + Sync)> = arguments.iter().map(|argument| &**argument).collect();
        let since = Instant::now();
        client.query(&statement, &references).await.at(&system.name, doing())?;
        let took = since.elapsed();
        n += 1;
        // The first runs make plans and fill caches.
        if n > 10 {
            busy += took;
            counts.committed += 1;
            let _ = counts.latency.record(took.as_micros() as u64);
        }
    }
    if write {
        client.batch_execute("ROLLBACK").await.at(&system.name, doing())?;
    }
    Ok(Outcome {
        seconds: busy.as_secs_f64(),
        kinds: vec![name.to_owned()],
        counts: vec![counts],
        first_error: None,
    })
}
