//! Bytes of a table that MIP transactions filled, against the same table filled by plain ones.
//!
//! A server for each way and size: a table is made, filled by transactions of twenty rows with keys
//! in order, every family is forgotten, and CHECKPOINT moves all of it to the base store, whose
//! size is the metric `cognate_base_bytes`. What MIP transactions leave behind is of two kinds:
//! bytes with each row (the paper's eight bytes of tuple header), and bytes that do not grow with
//! the rows (the record of what was forgotten, one for each client, and the files that hold it).
//! The goal is about the first. So two sizes are measured, and bytes a row are the growth of the
//! difference over the growth of the table.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Bench, blank};
use crate::error::{DatabaseContext, Error, IoContext, Result};
use crate::peer::System;
use crate::progress;
use crate::workload::bookstore::Isolation;
use crate::workload::mip::site::{Attempt, Site, Way};

/// Bytes a row.
pub(super) const BYTES: &str = "bytes_a_row";

/// Isolation level of the transactions.
const LEVEL: Isolation = Isolation::ReadCommitted;
/// Rows of one transaction.
const ROWS: u32 = 20;

/// Bytes of the base store with the table filled.
struct Filled {
    rows: u32,
    mip: f64,
    plain: f64,
}

/// Measures two sizes.
pub(super) async fn measure(bench: &mut Bench<'_>) -> Result<()> {
    let small = bench.args.rows / ROWS * ROWS;
    let mut filled = Vec::new();
    for rows in [small, 2 * small] {
        let mip = fill(bench, Way::Mip, rows).await?;
        let plain = fill(bench, Way::Plain, rows).await?;
        println!(
            "{rows} rows: {mip} bytes by MIP transactions, {plain} by plain ones, difference {}",
            mip - plain
        );
        filled.push(Filled { rows, mip, plain });
    }
    let [small, large] = &filled[..] else { return Ok(()) };
    let difference = |of: &Filled| of.mip - of.plain;
    let a_row = (difference(large) - difference(small)) / f64::from(large.rows - small.rows);
    println!(
        "{a_row:.4} bytes a row; a row has {:.1} bytes on disk; beside the rows {:.0} bytes\n",
        (large.plain - small.plain) / f64::from(large.rows - small.rows),
        difference(small) - a_row * f64::from(small.rows)
    );
    let mut params = serde_json::Map::new();
    params.insert("case".to_owned(), json!("storage"));
    params.insert("isolation".to_owned(), json!(LEVEL.name()));
    params.insert("rows".to_owned(), json!(large.rows));
    params.insert("mip_bytes".to_owned(), json!(large.mip));
    params.insert("plain_bytes".to_owned(), json!(large.plain));
    params.insert("difference_at_half".to_owned(), json!(difference(small)));
    // A file's blocks round: what is less than a hundredth of a byte a row is no byte in any row.
    params.insert(BYTES.to_owned(), json!((a_row * 100.0).round() / 100.0));
    bench.push(blank("cognate", params));
    Ok(())
}

async fn fill(bench: &Bench<'_>, way: Way, rows: u32) -> Result<f64> {
    let mut system = bench.start().await?;
    let site = Site::open(system.config(), way, LEVEL).await.at(&system.name, "connecting")?;
    let table = "CREATE TABLE filled (id int PRIMARY KEY, a int NOT NULL, b text NOT NULL)";
    site.client.batch_execute(table).await.at(&system.name, table)?;
    let insert = format!(
        "INSERT INTO filled SELECT g, g % 7, 'row number ' || g FROM generate_series($1::int, $1::int + {}) AS g",
        ROWS - 1
    );
    let insert = site.client.prepare(&insert).await.at(&system.name, "preparing the insert")?;
    let bar = progress::steps(&format!("filling, {}", way.name()), u64::from(rows));
    let transactions = rows / ROWS;
    for n in 0..transactions {
        let attempt = Attempt { xid: format!("storage/{}", n + 1), instance: 1 };
        let first = (n * ROWS + 1) as i32;
        site.begin(&attempt).await.at(&system.name, "BEGIN")?;
        site.client.execute(&insert, &[&first]).await.at(&system.name, "INSERT")?;
        site.prepare(&attempt, "fill", "filled").await.at(&system.name, "PREPARE")?;
        site.commit(&attempt).await.at(&system.name, "COMMIT")?;
        if way == Way::Mip {
            let forget = format!("FORGET MIP <'{}'>", attempt.xid);
            site.client.batch_execute(&forget).await.at(&system.name, "FORGET")?;
        }
        bar.inc(u64::from(ROWS));
    }
    bar.finish_and_clear();
    site.client.batch_execute("CHECKPOINT").await.at(&system.name, "CHECKPOINT")?;
    settled_bytes(&mut system).await
}

/// The size of the base store once it does not change any more.
async fn settled_bytes(system: &mut System) -> Result<f64> {
    let mut before = base_bytes(system).await?;
    let (mut same, mut left) = (0, 100);
    while same < 5 && left > 0 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = base_bytes(system).await?;
        same = if now == before { same + 1 } else { 0 };
        (before, left) = (now, left - 1);
    }
    Ok(before)
}

async fn base_bytes(system: &mut System) -> Result<f64> {
    let missing = || Error::Missing("the metric cognate_base_bytes".to_owned());
    let port = system.cognate().map(|server| server.http_port()).ok_or_else(missing)?;
    let doing = "reading the server's metrics";
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.doing(doing)?;
    let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.doing(doing)?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.doing(doing)?;
    let value = text.lines().find_map(|line| line.strip_prefix("cognate_base_bytes "));
    value.and_then(|value| value.trim().parse().ok()).ok_or_else(missing)
}
