//! Counts, at the end, what has happened at the sites, against what clients were answered.

use std::collections::BTreeMap;

use tokio_postgres::{Client, NoTls};

use crate::Error;
use crate::shop::{BALANCE, CUSTOMERS, ITEMS, STOCK};

/// A purchase as its client knows it.
#[derive(Debug)]
pub(crate) struct Bought {
    pub(crate) xid: String,
    pub(crate) request: String,
    /// The result, or why there is none.
    pub(crate) answer: Result<String, String>,
}

/// What the tables of a site say of a request: its orders or payments, as `order N: T cents`.
type Happened = BTreeMap<String, Vec<String>>;

async fn connect(site: &str) -> Result<Client, Error> {
    let (client, connection) = tokio_postgres::connect(site, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn happened(client: &Client, sql: &str) -> Result<Happened, Error> {
    let mut happened = Happened::new();
    for row in client.query(sql, &[]).await? {
        let (xid, order, total): (String, i64, i64) = (row.get(0), row.get(1), row.get(2));
        happened.entry(xid).or_default().push(format!("order {order}: {total} cents"));
    }
    Ok(happened)
}

async fn number(client: &Client, sql: &str) -> Result<i64, Error> {
    Ok(client.query_one(sql, &[]).await?.get(0))
}

/// Prints the verdict; an error if anything happened twice, halfway, or not at all although it was answered.
pub(crate) async fn judge(sites: [&str; 2], purchases: &[Bought]) -> Result<(), Error> {
    let (store, payment) = (connect(sites[0]).await?, connect(sites[1]).await?);
    let orders = happened(&store, "SELECT o_request, o_id, o_total FROM orders").await?;
    let payments = happened(&payment, "SELECT cx_request, cx_o_id, cx_amount FROM cc_xacts").await?;
    let (mut bought, mut refused, mut unanswered) = (0, 0, 0);
    let mut wrong = Vec::new();
    let none = Vec::new();
    for Bought { xid, answer, .. } in purchases {
        let at_store = orders.get(xid).unwrap_or(&none);
        let at_payment = payments.get(xid).unwrap_or(&none);
        let is_right = match answer {
            Ok(answer) if answer.starts_with("refused") => {
                refused += 1;
                at_store.is_empty() && at_payment.is_empty()
            }
            Ok(answer) => {
                bought += 1;
                [at_store, at_payment].iter().all(|at| at.as_slice() == std::slice::from_ref(answer))
            }
            Err(why) => {
                unanswered += 1;
                println!("no answer: {why}");
                at_store.len() <= 1 && at_payment.len() <= 1
            }
        };
        if !is_right {
            wrong.push(format!("{xid}: answered {answer:?}, store {at_store:?}, payment {at_payment:?}"));
        }
    }
    let sold = number(&store, "SELECT coalesce(sum(ol_qty), 0)::bigint FROM order_line").await?;
    let left = number(&store, "SELECT sum(i_stock)::bigint FROM item").await?;
    if sold + left != i64::from(ITEMS) * i64::from(STOCK) {
        wrong.push(format!("{sold} sold and {left} left"));
    }
    let paid = number(&payment, "SELECT coalesce(sum(cx_amount), 0)::bigint FROM cc_xacts").await?;
    let balances = number(&payment, "SELECT sum(c_balance)::bigint FROM account").await?;
    if paid + balances != i64::from(CUSTOMERS) * BALANCE {
        wrong.push(format!("{paid} paid and {balances} left"));
    }
    for (site, client) in [("store", &store), ("payment", &payment)] {
        // Plain PostgreSQL has its own view of it.
        let in_doubt = match number(client, "SELECT count(*) FROM cognate_in_doubt").await {
            Ok(in_doubt) => in_doubt,
            Err(_) => number(client, "SELECT count(*) FROM pg_prepared_xacts").await?,
        };
        if in_doubt > 0 && unanswered == 0 {
            wrong.push(format!("{in_doubt} in doubt at {site}"));
        }
    }
    println!("{bought} bought, {refused} refused, {unanswered} without an answer");
    if !wrong.is_empty() {
        return Err(format!("{} are wrong:\n{}", wrong.len(), wrong.join("\n")).into());
    }
    println!("each answered purchase happened exactly once at both sites; stock and accounts add up");
    Ok(())
}
