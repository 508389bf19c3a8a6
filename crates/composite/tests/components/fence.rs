//! Two processes for one component, over one server: the later one has it, and the older one ends.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use cognate_server::assemble;
use cognate_server::config::{Config, Settings};
use serde_json::json;

use crate::contract::{one, part_of};
use crate::process::{Failure, example, port, post, request};

/// A process that ends with its owner.
struct Stock {
    process: Child,
    address: SocketAddr,
}

impl Drop for Stock {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn stock(database: &str, journal: &Path) -> Result<Stock, Failure> {
    let address = port()?;
    let mut process = Command::new(example()?)
        .arg("stock")
        .args(["--listen", &address.to_string(), "--database", database])
        .arg("--data")
        .arg(journal)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(process.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let started = Stock { process, address };
    if line.contains("listens on") { Ok(started) } else { Err(format!("it did not start: {line}").into()) }
}

fn take_over(database: &str, folder: &Path) -> Result<(), Failure> {
    let take = json!({ "item": 5 });
    let mut older = stock(database, &folder.join("older"))?;
    assert_eq!(post(older.address, "/services/take", &part_of("a", "a.1"), &take)?.0, 200);
    let later = stock(database, &folder.join("later"))?;
    // It has no journal that knows anything, so what it finds may have been voted for.
    let (_, status) = request(later.address, "GET", "/status", &[], b"")?;
    assert_eq!((status["generation"].as_u64(), status["in_doubt"].as_u64()), (Some(2), Some(1)));
    // Whatever the older one is asked to write, it cannot, and ends.
    let refused = loop {
        match post(older.address, "/services/take", &part_of("b", "b.1"), &take) {
            // Its connections were ended: it notices by that, and tries again on a new one.
            Ok((503, problem)) if problem["reason"] == "database" => {}
            Ok((status, problem)) => break Some((status, problem["reason"].clone())),
            Err(_) => break None,
        }
    };
    assert!(matches!(&refused, None | Some((503, _))), "{refused:?}");
    assert!(!older.process.wait()?.success(), "it says why it ends");
    let about = json!({ "roots": [{ "root": "a", "parent": "shop" }] });
    let commit =
        || Ok::<_, Failure>(one(post(later.address, "/composite/commit", &[], &about)?)?["state"].clone());
    while commit()? != "done" {}
    assert_eq!(post(later.address, "/services/count", &[], &take)?, (200, json!(999)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_older_process_is_fenced_and_ends() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let settings = Settings {
        data: Some(folder.path().join("data")),
        listen: Some("127.0.0.1:0".to_owned()),
        http: Some("127.0.0.1:0".to_owned()),
        memory: Some("64MB".to_owned()),
        ..Settings::default()
    };
    let server = assemble::start(Config::resolve(settings).map_err(|error| error.0)?).await;
    let server = server.map_err(|error| error.0)?;
    let database = format!("postgresql://cognate@{}/cognate", server.listen());
    let journals = folder.path().to_owned();
    tokio::task::spawn_blocking(move || take_over(&database, &journals)).await??;
    server.stop().await.map_err(|error| error.0)?;
    Ok(())
}
