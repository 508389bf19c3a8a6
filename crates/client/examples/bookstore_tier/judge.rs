//! Counts, at the end, what has happened at the sites, against what clients were answered.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio_postgres::{Client, NoTls};

use crate::Error;
use crate::shop::{BALANCE, CUSTOMERS, ITEMS, STOCK};

/// How long the sites' stubs may take to finish what was left prepared.
const HEALING: Duration = Duration::from_secs(120);

/// What each site says of a request: XID, order, cents.
const SITES: [(&str, &str); 3] = [
    ("store", "SELECT o_request, o_id, o_total FROM orders"),
    ("payment", "SELECT cx_request, cx_o_id, cx_amount FROM cc_xacts"),
    ("delivery", "SELECT p_request, p_o_id, p_total FROM parcel"),
];

/// A purchase as its client knows it.
#[derive(Debug)]
pub(crate) struct Bought {
    pub(crate) xid: String,
    pub(crate) request: String,
    /// The result, or why there is none.
    pub(crate) answer: Result<String, String>,
    /// Its client has gone, and nobody asks again.
    pub(crate) is_abandoned: bool,
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

/// Waits until no family is in doubt at any site. Nobody asks for these any more: the sites' stubs
/// do it. Answers what is left, by site; nothing where sites have no stubs.
async fn healed(sites: &[Client]) -> Result<Vec<String>, Error> {
    let begun = Instant::now();
    loop {
        let mut left = Vec::new();
        for (client, (name, _)) in sites.iter().zip(SITES) {
            // Plain PostgreSQL has no stub.
            if let Ok(families) = number(client, "SELECT count(*) FROM cognate_in_doubt").await
                && families > 0
            {
                left.push(format!("{families} families are in doubt at {name}"));
            }
        }
        if left.is_empty() || begun.elapsed() > HEALING {
            println!("nothing was in doubt {:.1} s after the last client", begun.elapsed().as_secs_f64());
            return Ok(left);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Prints the verdict; an error if anything happened twice, halfway, or not at all although it was
/// answered.
pub(crate) async fn judge(sites: &[String], purchases: &[Bought]) -> Result<(), Error> {
    let mut clients = Vec::with_capacity(sites.len());
    for site in sites {
        clients.push(connect(site).await?);
    }
    let mut wrong = healed(&clients).await?;
    let mut all: Vec<Happened> = Vec::with_capacity(sites.len());
    for (client, (_, sql)) in clients.iter().zip(SITES) {
        all.push(happened(client, sql).await?);
    }
    let (mut bought, mut refused, mut unanswered, mut unanswered_bought) = (0, 0, 0, 0);
    let none = Vec::new();
    for Bought { xid, answer, is_abandoned, .. } in purchases {
        let at: Vec<&Vec<String>> = all.iter().map(|happened| happened.get(xid).unwrap_or(&none)).collect();
        let is_right = match answer {
            Ok(answer) if answer.starts_with("refused") => {
                refused += 1;
                at.iter().all(|at| at.is_empty())
            }
            Ok(answer) => {
                bought += 1;
                at.iter().all(|at| at.as_slice() == std::slice::from_ref(answer))
            }
            Err(why) => {
                unanswered += 1;
                unanswered_bought += at[0].len();
                if !is_abandoned {
                    println!("no answer: {why}");
                }
                at[0].len() <= 1 && at.iter().all(|other| *other == at[0])
            }
        };
        if !is_right {
            wrong.push(format!("{xid}: answered {answer:?}, happened {at:?}"));
        }
    }
    add_up(&clients, &mut wrong).await?;
    println!(
        "{bought} bought, {refused} refused, {unanswered} without an answer, of which {unanswered_bought} bought"
    );
    if !wrong.is_empty() {
        return Err(format!("{} are wrong:\n{}", wrong.len(), wrong.join("\n")).into());
    }
    println!(
        "each answered purchase happened exactly once at all {} sites, each other one once or not at all; stock and accounts add up",
        sites.len()
    );
    Ok(())
}

/// What was sold and paid is gone from stock and accounts, and nothing else.
async fn add_up(clients: &[Client], wrong: &mut Vec<String>) -> Result<(), Error> {
    let (store, payment) = (&clients[0], &clients[1]);
    let sold = number(store, "SELECT coalesce(sum(ol_qty), 0)::bigint FROM order_line").await?;
    let left = number(store, "SELECT sum(i_stock)::bigint FROM item").await?;
    if sold + left != i64::from(ITEMS) * i64::from(STOCK) {
        wrong.push(format!("{sold} sold and {left} left"));
    }
    let paid = number(payment, "SELECT coalesce(sum(cx_amount), 0)::bigint FROM cc_xacts").await?;
    let balances = number(payment, "SELECT sum(c_balance)::bigint FROM account").await?;
    if paid + balances != i64::from(CUSTOMERS) * BALANCE {
        wrong.push(format!("{paid} paid and {balances} left"));
    }
    Ok(())
}
