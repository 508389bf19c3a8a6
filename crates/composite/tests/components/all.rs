//! The example as a newcomer starts it: all three components in one process.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tokio_postgres::NoTls;

use crate::process::{Failure, example, post};
use crate::server::{serve, url};

/// A process that ends with its owner.
struct All(Child);

impl Drop for All {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts it; answers what it has printed up to the line that says how to buy.
fn start(folder: &Path, more: &[&str]) -> Result<(All, Vec<String>), Failure> {
    let mut process = Command::new(example()?)
        .arg("all")
        .args(more)
        .current_dir(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let output = process.stdout.take().ok_or("no output")?;
    let (started, mut lines) = (All(process), Vec::new());
    for line in BufReader::new(output).lines() {
        lines.push(line?);
        if lines.last().is_some_and(|line| line.starts_with("curl ")) {
            return Ok((started, lines));
        }
    }
    Err(format!("it did not start: {lines:?}").into())
}

/// Buys as the printed line says.
fn buy(line: &str) -> Result<(SocketAddr, Value), Failure> {
    let between = |from: &str, to: &str| {
        let rest = line.split_once(from).map(|(_, rest)| rest);
        rest.and_then(|rest| rest.split_once(to)).map(|(found, _)| found).ok_or(format!("{from} in {line}"))
    };
    let shop: SocketAddr = between("http://", "/services/buy ")?.parse()?;
    let order: Value = serde_json::from_str(between("-d '", "'")?)?;
    let key = between("-H 'Idempotency-Key: ", "'")?;
    let (status, receipt) = post(shop, "/services/buy", &[("Idempotency-Key", key)], &order)?;
    assert_eq!(status, 200, "{receipt}");
    assert_eq!(receipt, json!({ "id": 1, "item": 7, "customer": 3, "price": 10 }));
    Ok((shop, receipt))
}

/// The only row of a query on the database in a folder, opened as `cognate serve --data` does.
async fn found(folder: &Path, name: &str, query: &str) -> Result<Vec<i64>, Failure> {
    let server = serve(&folder.join("purchase-data").join(name).join("database")).await?;
    let (client, connection) = tokio_postgres::connect(&url(server.listen()), NoTls).await?;
    tokio::spawn(connection);
    let row = client.query_one(query, &[]).await?;
    let found = (0..row.len()).map(|column| row.get(column)).collect();
    drop(client);
    server.stop().await.map_err(|error| error.0)?;
    Ok(found)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_of_it_starts_with_one_command_and_its_databases_are_databases() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let place = folder.path().to_owned();
    let bought = tokio::task::spawn_blocking(move || {
        let (all, lines) = start(&place, &[])?;
        let matrices = lines.iter().filter(|line| line.starts_with("held \\ new")).count();
        assert_eq!(matrices, 3, "{lines:?}");
        let line = lines.last().ok_or("no line")?;
        let first = buy(line)?;
        assert_eq!(buy(line)?, first, "the same key, the same answer");
        drop(all);
        // Started again it has what was bought before.
        let (all, lines) = start(&place, &[])?;
        let (_, receipt) = buy(lines.last().ok_or("no line")?)?;
        assert_eq!(receipt, first.1);
        drop(all);
        Ok::<_, Failure>(())
    });
    bought.await??;
    let stock = "SELECT count(*), sum(stock), min(price)::bigint, max(price)::bigint, min(id)::bigint, max(id)::bigint FROM item";
    assert_eq!(found(folder.path(), "stock", stock).await?, [100, 99_999, 10, 10, 1, 100]);
    let account = "SELECT count(*), sum(balance), min(id)::bigint, max(id)::bigint FROM account";
    assert_eq!(found(folder.path(), "payment", account).await?, [100, 999_990, 1, 100]);
    let purchase = "SELECT count(*), min(id), min(item)::bigint, min(customer)::bigint, min(price)::bigint FROM purchase";
    assert_eq!(found(folder.path(), "shop", purchase).await?, [1, 1, 7, 3, 10]);
    // Answers are kept for a day.
    let kept = "SELECT count(*), sum(CASE WHEN kept_until > now() + interval '23 hours'
            AND kept_until <= now() + interval '24 hours' THEN 1 ELSE 0 END)
        FROM cognate_composite.answer WHERE component = 'shop' AND key = '1'";
    assert_eq!(found(folder.path(), "shop", kept).await?, [1, 1]);
    let tables =
        "SELECT (SELECT count(*) FROM cognate_composite.component WHERE name = 'shop' AND generation = 2
            AND journal IS NOT NULL AND database IS NOT NULL),
        (SELECT count(*) FROM cognate_composite.slot WHERE component = 'shop'
            AND (generation <> 2 OR noted IS NULL OR (root IS NULL) <> (facts IS NULL)))";
    assert_eq!(found(folder.path(), "shop", tables).await?, [1, 0]);
    Ok(())
}

/// Where a token is asked for, the line shows it, without showing it on the screen.
#[test]
fn the_line_that_says_how_to_buy_shows_the_token() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("tokens"), "of-peers\nof-clients\n")?;
    let (_all, lines) = start(folder.path(), &["--token-file", "tokens"])?;
    let line = lines.last().ok_or("no line")?;
    assert!(line.contains("Authorization: Bearer $(tail -n 1 'tokens')"), "{line}");
    assert!(!line.contains("of-clients"), "{line}");
    let shop = line.split_once("http://").and_then(|(_, rest)| rest.split_once("/services/buy "));
    let (shop, order) = (shop.ok_or("no address")?.0.parse()?, json!({ "item": 7, "customer": 3 }));
    assert_eq!(post(shop, "/services/buy", &[], &order)?.0, 401);
    let token = [("Authorization", "Bearer of-clients")];
    assert_eq!(post(shop, "/services/buy", &token, &order)?.0, 200);
    Ok(())
}
