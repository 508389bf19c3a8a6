//! Calls that are answered ahead of their commits, over two components in this process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cognate_composite::matrix::{never, same_item};
use cognate_composite::{Call, Component, Result, Running, Service, Undo, service};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};

use crate::contract::{one, part_of};
use crate::process::{END, Failure};
use crate::server::{open, posted, status};

const ENTER: Service<i32, i32> = Service::named("stock", "enter");
const GO: Service<i32, i32> = Service::named("shop", "go");
const TWICE: Service<i32, i32> = Service::named("shop", "twice");
const INSTEAD: Service<i32, i32> = Service::named("shop", "instead");
/// The number that may be entered; COMMIT refuses all others.
const GOOD: i32 = 1;

async fn enter(call: Call, n: i32) -> Result<i32> {
    call.sql().execute("INSERT INTO word (place) VALUES ($1)", &[&n]).await?;
    call.undo(&n)?;
    Ok(n)
}

async fn leave(undo: Undo, n: i32) -> Result<()> {
    undo.sql().execute("DELETE FROM word WHERE place = $1", &[&n]).await.map(drop)
}

async fn go(call: Call, n: i32) -> Result<i32> {
    call.call(ENTER, n).await
}

async fn twice(call: Call, n: i32) -> Result<i32> {
    Ok(call.call(ENTER, n).await? + call.call(ENTER, GOOD).await?)
}

/// Does something else if it is refused.
async fn instead(call: Call, n: i32) -> Result<i32> {
    match call.call(ENTER, n).await {
        Ok(entered) => Ok(entered),
        Err(_) => call.call(ENTER, GOOD).await,
    }
}

struct Two {
    _folder: tempfile::TempDir,
    _running: [Running; 2],
    shop: SocketAddr,
    stock: SocketAddr,
    /// How often the handler has run.
    entered: Arc<AtomicUsize>,
}

impl Two {
    async fn start() -> std::result::Result<Two, Failure> {
        Two::start_with(|stock| stock).await
    }

    async fn start_with(change: fn(Component) -> Component) -> std::result::Result<Two, Failure> {
        let folder = tempfile::tempdir()?;
        let of = |name: &'static str| {
            let folder = folder.path().join(name);
            let database = format!("embedded:{}", folder.join("database").display());
            Component::named(name).database(&database).data(folder.join("journal"))
        };
        let entered = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&entered);
        let entering = move |call: Call, n: i32| {
            counted.fetch_add(1, Ordering::SeqCst);
            enter(call, n)
        };
        let stock = change(of("stock"))
            .setup([
                "CREATE TABLE IF NOT EXISTS place (n int PRIMARY KEY)",
                "INSERT INTO place VALUES (1) ON CONFLICT DO NOTHING",
                "CREATE TABLE IF NOT EXISTS word (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                    place int NOT NULL REFERENCES place (n) DEFERRABLE INITIALLY DEFERRED)",
            ])
            .serve(ENTER, service(entering).item(|n: &i32| *n).undo(leave))
            .conflicts([same_item("enter", "enter")])
            .start()
            .await?;
        let at_stock = open(&stock).await?;
        let shop = of("shop")
            .peer("stock", &format!("http://{at_stock}"))
            .serve(GO, service(go).begins_only())
            .serve(TWICE, service(twice).begins_only())
            .serve(INSTEAD, service(instead).begins_only())
            .conflicts([never("go", "go"), never("twice", "twice"), never("instead", "instead")])
            .start()
            .await?;
        let at_shop = open(&shop).await?;
        let running = [stock, shop];
        Ok(Two { _folder: folder, _running: running, shop: at_shop, stock: at_stock, entered })
    }

    async fn asks(&self, service: &str, n: i32) -> std::result::Result<(u16, Value), Failure> {
        posted(self.shop, &format!("/services/{service}"), &[], json!(n)).await
    }

    /// A call that is part of a root of the tests' own.
    async fn enters(&self, root: &str, ahead: &str, n: i32) -> std::result::Result<(u16, Value), Failure> {
        let call = format!("{root}.1");
        let headers = [&part_of(root, &call)[..], &[("Cognate-Ahead", ahead)]].concat();
        posted(self.stock, "/services/enter", &headers, json!(n)).await
    }

    async fn is_asked(&self, root: &str) -> std::result::Result<Value, Failure> {
        let about = json!({ "roots": [{ "root": root, "parent": "shop", "calls": 1 }] });
        one(posted(self.stock, "/composite/prepare", &[], about).await?)
    }

    /// Waits until nothing is left of any root.
    async fn ends(&self) -> std::result::Result<(), Failure> {
        let begun = Instant::now();
        for component in [self.shop, self.stock] {
            while status(component).await?["roots"] != json!([]) {
                assert!(begun.elapsed() < END, "a root does not end");
                sleep(Duration::from_millis(10)).await;
            }
        }
        Ok(())
    }
}

/// Who is answered ahead hears of it by the vote; who has not asked for it hears it at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_is_refused_behind_its_answer_is_a_no() -> std::result::Result<(), Failure> {
    let two = Two::start().await?;
    assert_eq!(two.enters("a", "1", GOOD).await?, (200, json!(GOOD)));
    assert_eq!(two.is_asked("a").await?["vote"], "yes");
    assert_eq!(two.enters("b", "1", 9).await?, (200, json!(9)));
    let vote = two.is_asked("b").await?;
    let reason = vote["reason"].as_str().unwrap_or_default();
    // It may have failed before the question came.
    assert!(vote["vote"] == "no" && ["failed", "ended"].contains(&reason), "{vote}");
    let (code, problem) = two.enters("b", "1", 9).await?;
    assert_eq!((code, &problem["reason"]), (409, &json!("ended")), "{problem}");
    for ahead in ["0", "true", ""] {
        let (code, problem) = two.enters("c", ahead, 9).await?;
        assert_eq!((code, &problem["reason"]), (400, &json!("failed")), "{ahead}: {problem}");
    }
    Ok(())
}

/// Its callers use its tables, too, and would go on beside the commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_answers_after_commits_is_not_hurried() -> std::result::Result<(), Failure> {
    let two = Two::start_with(Component::answers_after_commits).await?;
    let (code, problem) = two.enters("a", "1", 9).await?;
    assert_eq!((code, &problem["reason"]), (400, &json!("failed")), "{problem}");
    assert_eq!(two.enters("b", "1", GOOD).await?, (200, json!(GOOD)));
    assert_eq!(two.is_asked("b").await?["vote"], "yes");
    // A root needs one attempt to be told so.
    let before = two.entered.load(Ordering::SeqCst);
    assert_eq!(two.asks("go", 9).await?.0, 400);
    assert_eq!(two.entered.load(Ordering::SeqCst) - before, 1);
    Ok(())
}

/// Its root is begun again, and nobody is answered ahead for it any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_is_told_what_the_service_says() -> std::result::Result<(), Failure> {
    let two = Two::start().await?;
    for (service, calls) in [("go", 2), ("twice", 2)] {
        let before = two.entered.load(Ordering::SeqCst);
        let (code, problem) = two.asks(service, 9).await?;
        assert_eq!((code, &problem["reason"]), (400, &json!("failed")), "{service}: {problem}");
        // The other call of the first attempt may have come before the root had ended there.
        let ran = two.entered.load(Ordering::SeqCst) - before;
        assert!((calls..=calls + 1).contains(&ran), "{service}: {ran}");
    }
    // A service that does without hears so, too.
    assert_eq!(two.asks("instead", 9).await?, (200, json!(GOOD)));
    assert_eq!(two.asks("go", GOOD).await?, (200, json!(GOOD)));
    two.ends().await
}
